//! Commands that read a data folder, an archive target or a cluster directly, without a server.

pub(crate) mod archive;
#[cfg(feature = "cassandra")]
pub(crate) mod backend;
pub(crate) mod check;
