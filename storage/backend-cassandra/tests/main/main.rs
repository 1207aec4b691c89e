//! Integration tests of the distributed backend on a real node: the contract, take-over, entries that arrive late.

mod conformance;
mod keyspace;
