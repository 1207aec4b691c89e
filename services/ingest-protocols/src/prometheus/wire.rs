//! In-place reader of Protocol Buffers, without allocation.
//!
//! Supports what the messages of Prometheus need: varints, 64-bit words and length-delimited bytes. Groups, which
//! current schemas do not use, are rejected. 32-bit words and unknown fields are skipped, as the format requires.

use tideline_wire::varint::{self, VarintError, unzigzag};

/// Error of an invalid message, with a description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Result of reading a message.
pub(crate) type Read<T> = Result<T, Malformed>;

/// Tag of a double in field 1.
const DOUBLE_1: u8 = 0x09;
/// Tag of a varint in field 2.
const VARINT_2: u8 = 0x10;

const CUT_OFF: Malformed = Malformed("message cut off");
const WRONG_TYPE: Malformed = Malformed("field has a wrong wire type");

/// Undecoded value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payload<'a> {
    Varint(u64),
    Word64(u64),
    Bytes(&'a [u8]),
    Word32,
}

/// Reader of the remaining fields of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    #[inline]
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// Returns the unread bytes.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the next field with its number; `None` at the end.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Read<Option<(u32, Payload<'a>)>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| Malformed("field number out of range"))?;
        if number == 0 {
            return Err(Malformed("field number 0"));
        }
        let payload = match tag & 7 {
            0 => Payload::Varint(self.varint()?),
            1 => Payload::Word64(self.word64()?),
            2 => Payload::Bytes(self.bytes()?),
            5 => {
                self.rest = self.rest.get(4..).ok_or(CUT_OFF)?;
                Payload::Word32
            }
            _ => return Err(Malformed("unknown wire type")),
        };
        Ok(Some((number, payload)))
    }

    /// Returns the next length-delimited message; `None` at the end.
    pub(crate) fn delimited(&mut self) -> Read<Option<&'a [u8]>> {
        match self.rest.is_empty() {
            true => Ok(None),
            false => self.bytes().map(Some),
        }
    }

    /// Skips consecutive length-delimited fields with the one-byte tag `tag`.
    #[inline]
    pub(crate) fn skip_runs(&mut self, tag: u8) -> Read<()> {
        while let Some((first, rest)) = self.rest.split_first()
            && *first == tag
        {
            self.rest = rest;
            self.bytes()?;
        }
        Ok(())
    }

    /// Decodes a message with exactly a double in field 1 and a varint of up to eight bytes in field 2, the usual
    /// encoding of a sample. Returns `None` for any other encoding.
    #[inline]
    pub(crate) fn double_and_varint(message: &'a [u8]) -> Option<(f64, u64)> {
        let (head, rest) = message.split_first_chunk::<10>()?;
        let [DOUBLE_1, bits @ .., VARINT_2] = *head else {
            return None;
        };
        // The varint ends with the message, so the last eight bytes of the message contain all of it.
        let unused = 64
            - 8 * u32::try_from(rest.len())
                .ok()
                .filter(|bytes| (1..=8).contains(bytes))?;
        let word = u64::from_le_bytes(*message.last_chunk()?) >> unused;
        let number = varint::filling(word, 8 - unused / 8)?;
        Some((f64::from_bits(u64::from_le_bytes(bits)), number))
    }

    /// Reads a varint. Bits beyond the 64th are dropped, as the format requires.
    #[inline(always)]
    pub(crate) fn varint(&mut self) -> Read<u64> {
        varint::take_wrapping(&mut self.rest).map_err(|error| match error {
            VarintError::CutOff => CUT_OFF,
            VarintError::TooLong => Malformed("varint is too long"),
        })
    }

    #[inline]
    fn word64(&mut self) -> Read<u64> {
        let (word, rest) = self.rest.split_first_chunk::<8>().ok_or(CUT_OFF)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*word))
    }

    #[inline(always)]
    fn bytes(&mut self) -> Read<&'a [u8]> {
        let length = usize::try_from(self.varint()?).map_err(|_| CUT_OFF)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(CUT_OFF)?;
        self.rest = rest;
        Ok(bytes)
    }
}

impl<'a> Payload<'a> {
    /// Returns the bytes of a message, a string or a packed list.
    #[inline]
    pub(crate) fn bytes(self) -> Read<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(WRONG_TYPE),
        }
    }

    /// Returns a double, bit for bit.
    #[inline]
    pub(crate) fn double(self) -> Read<f64> {
        match self {
            Self::Word64(bits) => Ok(f64::from_bits(bits)),
            _ => Err(WRONG_TYPE),
        }
    }

    /// Returns a `fixed64`.
    #[inline]
    pub(crate) fn fixed64(self) -> Read<u64> {
        match self {
            Self::Word64(word) => Ok(word),
            _ => Err(WRONG_TYPE),
        }
    }

    /// Calls `take` for each number of a repeated `fixed64` field, packed or not.
    pub(crate) fn each_fixed64(self, mut take: impl FnMut(u64)) -> Read<()> {
        match self {
            Self::Word64(word) => take(word),
            Self::Bytes(packed) => {
                let mut packed = Fields::new(packed);
                while !packed.rest.is_empty() {
                    take(packed.word64()?);
                }
            }
            _ => return Err(WRONG_TYPE),
        }
        Ok(())
    }

    /// Returns a `uint64`; cast it for an `int64`.
    #[inline]
    pub(crate) fn varint(self) -> Read<u64> {
        match self {
            Self::Varint(value) => Ok(value),
            _ => Err(WRONG_TYPE),
        }
    }

    /// Returns an `int64`.
    #[inline]
    pub(crate) fn int64(self) -> Read<i64> {
        self.varint().map(u64::cast_signed)
    }

    /// Returns a `sint32` or `sint64`; the sign is the lowest bit.
    pub(crate) fn zigzag(self) -> Read<i64> {
        self.varint().map(unzigzag)
    }

    /// Calls `take` for each number of a repeated integer field, packed or not.
    #[inline]
    pub(crate) fn each_varint(self, mut take: impl FnMut(u64)) -> Read<()> {
        match self {
            Self::Varint(value) => take(value),
            Self::Bytes(packed) => {
                let mut packed = Fields::new(packed);
                while !packed.rest.is_empty() {
                    take(packed.varint()?);
                }
            }
            _ => return Err(WRONG_TYPE),
        }
        Ok(())
    }

    /// Calls `take` for each number of a repeated `sint64` field.
    pub(crate) fn each_zigzag(self, mut take: impl FnMut(i64)) -> Read<()> {
        self.each_varint(|code| take(unzigzag(code)))
    }

    /// Calls `take` for each number of a repeated double field, packed or not.
    pub(crate) fn each_double(self, mut take: impl FnMut(f64)) -> Read<()> {
        self.each_fixed64(|word| take(f64::from_bits(word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_and_cut_ones_do_not() {
        let near = |value: u64| [value - 1, value, value + 1];
        let steps = (7..64).step_by(7).flat_map(|bits| near(1 << bits));
        for value in steps.chain([0, 1, 300, 0x0123_4567_89ab_cdef, u64::MAX]) {
            let mut out = Vec::new();
            varint::put(value, &mut out);
            assert_eq!(Fields::new(&out).varint(), Ok(value));
            // The result is the same if more bytes follow.
            for more in [[0; 8], [0xff; 8]] {
                let longer = [&out[..], &more].concat();
                let mut fields = Fields::new(&longer);
                assert_eq!((fields.varint(), fields.rest()), (Ok(value), &more[..]));
            }
            for end in 0..out.len() {
                assert_eq!(Fields::new(&out[..end]).varint(), Err(CUT_OFF));
            }
        }
        assert!(Fields::new(&[0xff; 11]).varint().is_err());
    }

    #[test]
    fn unknown_fields_are_passed_and_wrong_ones_named() {
        let message = [0x08, 0x96, 0x01, 0x15, 1, 2, 3, 4, 0x1a, 2, b'o', b'k'];
        let mut fields = Fields::new(&message);
        assert_eq!(fields.next(), Ok(Some((1, Payload::Varint(150)))));
        assert_eq!(fields.next(), Ok(Some((2, Payload::Word32))));
        assert_eq!(fields.next(), Ok(Some((3, Payload::Bytes(b"ok")))));
        assert_eq!(fields.next(), Ok(None));
        for (message, reason) in [
            (&[0x0a, 5, 1][..], "message cut off"),
            (&[0x0b], "unknown wire type"),
            (&[0x00, 0], "field number 0"),
            (&[0x0d, 1, 2], "message cut off"),
        ] {
            assert_eq!(Fields::new(message).next(), Err(Malformed(reason)), "{message:?}");
        }
        let sample = [0x09, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 0x10, 0x96, 0x01];
        assert_eq!(Fields::double_and_varint(&sample), Some((1.5, 150)));
        assert_eq!(Fields::double_and_varint(&sample[..11]), None);
        assert_eq!(
            Fields::double_and_varint(&[&sample[..], &[0x18, 1]].concat()),
            None
        );
        // Longer messages and other encodings return `None`.
        for value in (0..56).step_by(7).map(|bits| 1u64 << bits) {
            let mut message = sample[..10].to_vec();
            varint::put(value, &mut message);
            assert_eq!(Fields::double_and_varint(&message), Some((1.5, value)), "{value}");
            message.push(0);
            assert_eq!(Fields::double_and_varint(&message), None, "{value}");
        }
        assert_eq!(Fields::double_and_varint(&sample[..10]), None);
        assert_eq!(Payload::Varint(1).double(), Err(WRONG_TYPE));
        let mut sum = 0;
        assert!(
            Payload::Bytes(&[1, 0x80])
                .each_varint(|value| sum += value)
                .is_err()
        );
        assert!(Payload::Bytes(&[0; 9]).each_double(|_| sum += 1).is_err());
        assert_eq!(sum, 2);
    }
}
