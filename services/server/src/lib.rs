//! The server: configuration, logging, wiring and life cycle of a Tideline process.
//!
//! `main.rs` is the binary `tideline`: the command line of this server and of the commands in `tideline-cli`.
//!
//! Apart from tests and benchmarks, this is the only crate that uses a concrete backend. The crate connects store,
//! engine and HTTP service, and contains no logic about data. A start has these steps: read the configuration, start
//! logging, listen, open the store, open the engine, start background work, serve requests. A stop has these steps:
//! flush the memory if another process can take over the data, refuse new connections, finish running requests, cancel
//! background work, close the engine, exit.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | [`Config`] and the layers it is resolved from |
//! | [`logging`] | log lines on standard error |
//! | [`memory`] | [`MemoryLimit`]: the memory of the control group or machine |
//! | [`server`] | [`Server`]: start, wait, stop |
//! | [`cluster`] | the same for a server whose data is in a cluster: stand by, take over, serve |
//! | `read_ahead` | timelines that a standby reads before it takes over |
//! | [`copy`](mod@copy) | copy of all data between a data folder and a cluster |
//! | `installation` | creation of a data folder, and whether an earlier release made it |
//! | `descriptors` | division of file descriptors between store and connections |
//! | [`check`] | integrity check of a data folder that no server uses |
//! | `unix_socket` | Unix socket of the server |
//! | [`error`] | [`ServerError`] |

pub mod check;
#[cfg(feature = "cassandra")]
pub mod cluster;
pub mod config;
#[cfg(feature = "cassandra")]
pub mod copy;
mod descriptors;
pub mod error;
mod installation;
pub mod logging;
pub mod memory;
#[cfg(feature = "cassandra")]
mod read_ahead;
pub mod server;
mod unix_socket;

pub use config::{
    ClusterConfig, Config, LogFormat, Origin, Problem, Resolved, Secret, Sources, StorageEngine, reference,
};
pub use error::{Result, ServerError};
pub use memory::{MemoryLimit, MemorySource};
pub use server::{Server, Stop};
