//! Commands that query or control a running server, and completions and manual pages of the whole command line.

use std::sync::mpsc;
use std::time::Duration;

pub mod archive;
pub(crate) mod attributes;
pub(crate) mod audit;
pub(crate) mod changes;
pub mod complete;
pub(crate) mod delete;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod facets;
pub(crate) mod feed;
pub(crate) mod find;
pub(crate) mod jobs;
pub(crate) mod known;
pub(crate) mod latest;
pub(crate) mod names;
pub(crate) mod promql;
pub(crate) mod queries;
pub(crate) mod query;
pub(crate) mod ready;
pub(crate) mod rows;
pub(crate) mod searches;
pub(crate) mod selection;
pub mod shell;
pub(crate) mod sql;
pub(crate) mod tables;
pub(crate) mod tenant;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod watch;

/// Sleeps between two polls of a server.
pub(crate) fn pause(time: Duration) {
    // No message is sent, so the call always ends with its timeout.
    let (_sender, never) = mpsc::channel::<()>();
    let _ = never.recv_timeout(time);
}
