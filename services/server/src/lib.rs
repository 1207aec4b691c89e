//! The server: configuration, logging, wiring and life cycle of one Tideline process.
//!
//! The binary `tideline` is `main.rs`: the command line of this server, with the commands of `tideline-cli`.
//!
//! Only this crate names a concrete backend. It joins what the others offer (store, engine, HTTP) and decides
//! nothing about data. The order of a start: configuration → logging → listen → open the store → open the engine →
//! begin background work → serve. The order of a stop: no new connections → running requests end → background work is
//! given up → engine closes → exit.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | [`Config`] and the layers it is resolved from |
//! | [`logging`] | log lines, to standard error |
//! | [`memory`] | [`MemoryLimit`]: what the control group or the machine grants |
//! | [`server`] | [`Server`]: start, wait, stop |
//! | `descriptors` | the limit of open files, shared between store and connections |
//! | [`check`] | a data folder that no server uses, read and compared |
//! | [`error`] | [`ServerError`] |

pub mod check;
pub mod config;
mod descriptors;
pub mod error;
pub mod logging;
pub mod memory;
pub mod server;

pub use config::{Config, LogFormat, Origin, Problem, Resolved, Secret, Sources, reference};
pub use error::{Result, ServerError};
pub use memory::{MemoryLimit, MemorySource};
pub use server::{Server, Stop};
