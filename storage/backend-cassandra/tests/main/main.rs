//! Integration tests of the distributed backend on real nodes: the contract, take-over, entries that arrive late, nodes
//! that stop, clusters of three, encrypted connections, and wrong settings.

mod conformance;
mod encryption;
mod faults;
mod keyspace;
mod rivals;
mod rows;
mod settings;
mod take_over;
mod three_nodes;
