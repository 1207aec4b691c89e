//! Distributed backend: Apache Cassandra or ScyllaDB, reached with the driver `scylla`.
//!
//! The cluster replicates and spreads the data. A process owns the shard for the time of its lease, and stores no data
//! outside the cluster. The tables and the rules for their use are in [`schema`].
//!
//! | module | holds |
//! |---|---|
//! | [`options`] | settings of a connection |
//! | [`schema`] | tables, their version, and their creation |
//! | `backend` | the backend trait: checks of arguments, and calls of the modules below |
//! | `cluster` | session, prepared statements, repeated requests |
//! | `data_center` | choice of one data center, and the copies in it |
//! | `nodes` | nodes of the cluster, and queries to a single node |
//! | `watch` | changes of the nodes while the backend is open |
//! | `error` | errors of the driver, classified by the possible effect of the request |
//! | `speculation` | second requests for reads that take longer than usual |
//! | `tls` | encrypted connections |
//! | `ownership` | leases, epochs, and the take-over from an owner that stopped |
//! | `manifest`, `journal` | the shard's rows that other owners must see in order |
//! | `rows`, `units` | rows of spaces, parts and segments, and the list of parts and segments |
//! | `dead_rows` | scans of ranges with more deleted rows than a node reads for one request |
//! | [`check`] | checks of a cluster before it is used |
//! | [`fixture`] | keyspaces for tests |
//!
//! Three rules hold everywhere:
//!
//! - Rows are written plainly, under keys that no other process writes. Only writes of leases, manifests and ends of
//!   epochs are conditional (light-weight transactions).
//! - Every read and write needs a quorum of the local data center.
//! - No decision compares the clocks of two machines.

mod backend;
pub mod check;
mod cluster;
mod data_center;
mod dead_rows;
mod error;
pub mod fixture;
mod journal;
mod manifest;
mod nodes;
mod options;
mod ownership;
mod rows;
pub mod schema;
mod speculation;
mod tls;
mod units;
mod watch;

pub use backend::CassandraBackend;
pub use options::{CassandraOptions, Replication};
pub use ownership::Owner;
