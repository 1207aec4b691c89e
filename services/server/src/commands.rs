//! Commands that read a data folder or an archive target directly, without a server.

pub(crate) mod archive;
pub(crate) mod check;
