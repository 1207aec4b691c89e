//! Encoding primitives shared by storage formats and network protocols.
//!
//! | module | holds |
//! |---|---|
//! | [`protobuf`] | writing Protocol Buffers messages |
//! | [`varint`] | variable-length integers (LEB128) and zigzag codes |
//!
//! The formats themselves are defined in other crates. This crate has no framing, checksums or length limits.
//!
//! # Examples
//!
//! ```
//! use tideline_wire::protobuf::PutFields;
//! use tideline_wire::varint;
//!
//! // Field 1 has tag 0x08 (varint), field 2 has tag 0x12 (length-delimited).
//! let mut message = Vec::new();
//! message.put_uint(1, 300);
//! message.put_text(2, "cpu");
//! assert_eq!(message, [0x08, 0xac, 0x02, 0x12, 3, b'c', b'p', b'u']);
//!
//! let mut rest = &message[1..];
//! assert_eq!(varint::take(&mut rest)?, 300);
//! assert_eq!(rest, &message[3..]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod protobuf;
pub mod varint;
