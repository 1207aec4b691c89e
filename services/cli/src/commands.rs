//! The commands that ask a running server, or steer it.

pub(crate) mod delete;
pub(crate) mod export;
pub(crate) mod find;
pub(crate) mod jobs;
pub(crate) mod latest;
pub(crate) mod names;
pub(crate) mod query;
pub(crate) mod selection;
pub(crate) mod shell;
pub(crate) mod tables;
