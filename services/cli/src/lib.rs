//! Command line client: commands that use a running server over HTTP, and their shared parts.
//!
//! The binary `tideline` joins these commands with those that run the server in their own process. The crate
//! does not depend on the server's code, so that both compile in parallel.
//!
//! | module | holds |
//! |---|---|
//! | `command` | [`ClientCommand`]: the commands, to be added to a binary's command line |
//! | [`commands`] | one module per command |
//! | `write` | `tideline write`: sends files to a server |
//! | `client` | HTTP client, profiles, TLS; [`bytes`], which parses sizes |
//! | `events` | server-sent events of watches |
//! | `condition` | conditions on the command line |
//! | [`output`] | tables and charts for terminals, JSON for programs |
//! | [`usage`] | usage errors of the command line |
//! | [`error`] | [`CliError`]: exit statuses, errors in JSON |

mod client;
mod command;
pub mod commands;
mod condition;
pub mod error;
mod events;
pub mod output;
pub mod usage;
mod write;

pub use client::bytes;
pub use command::ClientCommand;
pub use error::{CliError, Result};
