//! The commands that read a data folder or the target of an archive themselves, without a server.

pub(crate) mod archive;
pub(crate) mod check;
