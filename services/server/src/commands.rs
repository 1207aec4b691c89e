//! Commands that need no running server: they read a data folder, an archive target or a cluster, or make a certificate.

pub(crate) mod archive;
#[cfg(feature = "cassandra")]
pub(crate) mod backend;
pub(crate) mod check;
pub(crate) mod tls;
