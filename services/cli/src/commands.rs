//! The commands that query a running server, or steer it; and the completions and manual pages of the whole command line.

use std::sync::mpsc;
use std::time::Duration;

pub mod archive;
pub(crate) mod attributes;
pub mod complete;
pub(crate) mod delete;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod facets;
pub(crate) mod find;
pub(crate) mod jobs;
pub(crate) mod known;
pub(crate) mod latest;
pub(crate) mod names;
pub(crate) mod promql;
pub(crate) mod queries;
pub(crate) mod query;
pub(crate) mod ready;
pub(crate) mod searches;
pub(crate) mod selection;
pub mod shell;
pub(crate) mod tables;
pub(crate) mod top;
pub(crate) mod watch;

/// Waits from one look at a server to the next.
pub(crate) fn pause(time: Duration) {
    // Nobody sends: the timeout is what is waited for.
    let (_sender, never) = mpsc::channel::<()>();
    let _ = never.recv_timeout(time);
}
