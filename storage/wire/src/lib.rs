//! Encoding primitives shared by storage formats and network protocols.
//!
//! | module | holds |
//! |---|---|
//! | [`protobuf`] | writing Protocol Buffers messages |
//! | [`varint`] | variable-length integers (LEB128) and zigzag codes |
//!
//! The formats themselves are defined in their own crates. This crate has no framing, checksums or length limits.

pub mod protobuf;
pub mod varint;
