//! The command line of a running server: commands that use it over HTTP, and what they share.
//!
//! The binary `tideline` joins these commands with those that run the server in their own process. Nothing here depends
//! on the server's code, so both compile at the same time.
//!
//! | module | holds |
//! |---|---|
//! | `command` | [`ClientCommand`]: the commands, for the command line of a binary |
//! | [`commands`] | one module a command |
//! | `write` | `tideline write`: files into a server |
//! | `client` | the client, profiles, TLS |
//! | `condition` | conditions of the command line |
//! | [`output`] | tables and charts for people, JSON for programs |
//! | [`usage`] | errors of the command line itself |
//! | [`error`] | [`CliError`]: exit statuses, errors in JSON |

mod client;
mod command;
pub mod commands;
mod condition;
pub mod error;
pub mod output;
pub mod usage;
mod write;

pub use command::ClientCommand;
pub use error::{CliError, Result};
