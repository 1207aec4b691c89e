//! Primitives that stored formats and network protocols share.
//!
//! | module | holds |
//! |---|---|
//! | [`protobuf`] | writing Protocol Buffers messages |
//! | [`varint`] | integers of variable length (LEB128) and zigzag codes |
//!
//! Formats themselves stay with their crates: this one has no framing, no checksums and no limits on lengths.

pub mod protobuf;
pub mod varint;
