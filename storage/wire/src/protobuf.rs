//! Encoding of Protocol Buffers messages.
//!
//! A message is a sequence of fields. Each field is a tag (a varint of field number and [`WireType`]) and a payload.
//! [`PutFields`] appends fields to a `Vec`. A nested message is encoded into a separate buffer and appended with
//! [`PutFields::put_bytes`].
//!
//! In proto3, a field with its default value is omitted. [`PutFields::put_integer`], [`PutFields::put_fixed64`] and
//! [`PutFields::put_bytes`] write every value, as needed for a member of a `oneof`. All other methods that append a
//! whole field omit default values.

use crate::varint::{self, zigzag};

/// Payload encoding of a field; the lowest three bits of its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireType {
    /// A varint.
    Varint = 0,
    /// Eight bytes, little-endian.
    Fixed64 = 1,
    /// A length, followed by that many bytes: strings, messages, packed lists.
    Bytes = 2,
}

/// Writer of the fields of a message.
pub trait PutFields {
    /// Appends the tag of a field. The caller appends the payload.
    fn put_tag(&mut self, field: u32, wire_type: WireType);

    /// Appends a varint field, even if the value is zero.
    fn put_integer(&mut self, field: u32, value: u64);

    /// Appends a `fixed64` field, even if all bytes are zero.
    fn put_fixed64(&mut self, field: u32, bits: u64);

    /// Appends the tag and length of a length-delimited field. The caller appends `length` bytes.
    fn put_bytes_head(&mut self, field: u32, length: usize);

    /// Appends a `bytes` field or a nested message, even if it is empty.
    fn put_bytes(&mut self, field: u32, bytes: &[u8]);

    /// Appends a `uint32`, `uint64`, `bool` or `enum` field unless it is zero.
    fn put_uint(&mut self, field: u32, value: u64);

    /// Appends an `int32` or `int64` field unless it is zero.
    fn put_int(&mut self, field: u32, value: i64);

    /// Appends a `sint32` or `sint64` field unless it is zero.
    fn put_sint(&mut self, field: u32, value: i64);

    /// Appends a `double` field unless it is positive zero.
    fn put_double(&mut self, field: u32, value: f64);

    /// Appends a `string` field unless it is empty.
    fn put_text(&mut self, field: u32, text: &str);

    /// Appends a packed list of varints unless it is empty.
    fn put_uints(&mut self, field: u32, values: impl IntoIterator<Item = u64>);

    /// Appends a packed list of doubles unless it is empty.
    fn put_doubles(&mut self, field: u32, values: &[f64]);
}

impl PutFields for Vec<u8> {
    #[inline]
    fn put_tag(&mut self, field: u32, wire_type: WireType) {
        varint::put(u64::from(field) << 3 | wire_type as u64, self);
    }

    #[inline]
    fn put_integer(&mut self, field: u32, value: u64) {
        self.put_tag(field, WireType::Varint);
        varint::put(value, self);
    }

    #[inline]
    fn put_fixed64(&mut self, field: u32, bits: u64) {
        self.put_tag(field, WireType::Fixed64);
        self.extend_from_slice(&bits.to_le_bytes());
    }

    #[inline]
    fn put_bytes_head(&mut self, field: u32, length: usize) {
        self.put_tag(field, WireType::Bytes);
        varint::put(length as u64, self);
    }

    #[inline]
    fn put_bytes(&mut self, field: u32, bytes: &[u8]) {
        self.put_bytes_head(field, bytes.len());
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn put_uint(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.put_integer(field, value);
        }
    }

    #[inline]
    fn put_int(&mut self, field: u32, value: i64) {
        self.put_uint(field, value.cast_unsigned());
    }

    #[inline]
    fn put_sint(&mut self, field: u32, value: i64) {
        self.put_uint(field, zigzag(value));
    }

    #[inline]
    fn put_double(&mut self, field: u32, value: f64) {
        // Negative zero is not the default value.
        if value.to_bits() != 0 {
            self.put_fixed64(field, value.to_bits());
        }
    }

    #[inline]
    fn put_text(&mut self, field: u32, text: &str) {
        if !text.is_empty() {
            self.put_bytes(field, text.as_bytes());
        }
    }

    fn put_uints(&mut self, field: u32, values: impl IntoIterator<Item = u64>) {
        let mut packed = Vec::new();
        values
            .into_iter()
            .for_each(|value| varint::put(value, &mut packed));
        if !packed.is_empty() {
            self.put_bytes(field, &packed);
        }
    }

    fn put_doubles(&mut self, field: u32, values: &[f64]) {
        if values.is_empty() {
            return;
        }
        self.put_bytes_head(field, size_of_val(values));
        for value in values {
            self.extend_from_slice(&value.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out);
        out
    }

    /// Examples from <https://protobuf.dev/programming-guides/encoding/>, doubles, and the largest field number.
    #[test]
    fn fields_have_the_bytes_of_the_specification() {
        assert_eq!(written(|out| out.put_integer(1, 150)), [0x08, 0x96, 0x01]);
        assert_eq!(written(|out| out.put_text(2, "testing")), *b"\x12\x07testing");
        let inner = written(|out| out.put_uint(1, 150));
        assert_eq!(
            written(|out| out.put_bytes(3, &inner)),
            [0x1a, 0x03, 0x08, 0x96, 0x01]
        );
        assert_eq!(
            written(|out| out.put_uints(6, [3, 270, 86_942])),
            [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]
        );
        assert_eq!(written(|out| out.put_sint(4, -2)), [0x20, 3]);
        assert_eq!(
            written(|out| out.put_int(1, -2)),
            [8, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]
        );
        assert_eq!(
            written(|out| out.put_double(16, 1.5)),
            [0x81, 0x01, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f]
        );
        assert_eq!(
            written(|out| out.put_doubles(1, &[1.5, 0.0])),
            [0x0a, 16, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        let largest = (1 << 29) - 1;
        assert_eq!(
            written(|out| out.put_tag(largest, WireType::Bytes)),
            [0xfa, 0xff, 0xff, 0xff, 0x0f]
        );
    }

    #[test]
    fn typed_fields_leave_defaults_out() {
        let defaults = written(|out| {
            out.put_uint(1, 0);
            out.put_int(2, 0);
            out.put_sint(3, 0);
            out.put_double(4, 0.0);
            out.put_text(5, "");
            out.put_uints(6, []);
            out.put_doubles(7, &[]);
        });
        assert_eq!(defaults, []);
        assert_eq!(written(|out| out.put_double(1, -0.0)).len(), 9);
        assert_eq!(written(|out| out.put_uints(1, [0])), [0x0a, 1, 0]);
        assert_eq!(written(|out| out.put_integer(1, 0)), [0x08, 0]);
        assert_eq!(
            written(|out| out.put_fixed64(1, 0)),
            [0x09, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(written(|out| out.put_bytes(1, &[])), [0x0a, 0]);
    }
}
