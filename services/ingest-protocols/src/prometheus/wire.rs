//! Protocol Buffers as bytes: fields read in place, nothing built.
//!
//! Only what Prometheus' messages need: varints, 64-bit words and runs of bytes. Groups, which no living schema uses,
//! are refused; 32-bit words and unknown fields are passed over, as every reader has to.

use tideline_wire::varint::{self, VarintError, unzigzag};

/// Bytes that are not the message that they ought to be. The text says in what way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// The result of reading.
pub(crate) type Read<T> = Result<T, Malformed>;

/// The tags of a double in field 1 and of a varint in field 2.
const DOUBLE_1: u8 = 0x09;
const VARINT_2: u8 = 0x10;

const CUT_OFF: Malformed = Malformed("message cut off");
const WRONG_TYPE: Malformed = Malformed("field has a wrong wire type");

/// A field as it lies in its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payload<'a> {
    Varint(u64),
    Word64(u64),
    Bytes(&'a [u8]),
    Word32,
}

/// The fields of a message that are still to be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    #[inline]
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// What was not read yet.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next field and its number; `None` at the end.
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

    /// The next of messages that lie one after another, each behind its length; `None` at the end.
    pub(crate) fn delimited(&mut self) -> Read<Option<&'a [u8]>> {
        match self.rest.is_empty() {
            true => Ok(None),
            false => self.bytes().map(Some),
        }
    }

    /// Passes over the runs of bytes of field `tag`, whose tag is one byte, that come next.
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

    /// A message of a double in field 1 and a varint in field 2 and nothing else, as every sender spells a sample.
    #[inline]
    pub(crate) fn double_and_varint(message: &'a [u8]) -> Option<(f64, u64)> {
        let (head, rest) = message.split_first_chunk::<10>()?;
        let [DOUBLE_1, bits @ .., VARINT_2] = *head else {
            return None;
        };
        // The varint ends where the message does, so the word that ends there has it whole.
        let unused = 64
            - 8 * u32::try_from(rest.len())
                .ok()
                .filter(|bytes| (1..=8).contains(bytes))?;
        let word = u64::from_le_bytes(*message.last_chunk()?) >> unused;
        let number = varint::filling(word, 8 - unused / 8)?;
        Some((f64::from_bits(u64::from_le_bytes(bits)), number))
    }

    /// A varint; bits beyond the 64th are dropped, as every reader does.
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
    /// A message, a string or a packed list.
    #[inline]
    pub(crate) fn bytes(self) -> Read<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(WRONG_TYPE),
        }
    }

    /// A double, bit for bit.
    #[inline]
    pub(crate) fn double(self) -> Read<f64> {
        match self {
            Self::Word64(bits) => Ok(f64::from_bits(bits)),
            _ => Err(WRONG_TYPE),
        }
    }

    /// `uint64`, and `int64` after a cast.
    #[inline]
    pub(crate) fn varint(self) -> Read<u64> {
        match self {
            Self::Varint(value) => Ok(value),
            _ => Err(WRONG_TYPE),
        }
    }

    /// `int64`.
    #[inline]
    pub(crate) fn int64(self) -> Read<i64> {
        self.varint().map(u64::cast_signed)
    }

    /// `sint32` and `sint64`: the sign is the lowest bit.
    pub(crate) fn zigzag(self) -> Read<i64> {
        self.varint().map(unzigzag)
    }

    /// Hands the numbers of a repeated integer field to `take`, whether they are packed or alone.
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

    /// The same for `sint64`.
    pub(crate) fn each_zigzag(self, mut take: impl FnMut(i64)) -> Read<()> {
        self.each_varint(|code| take(unzigzag(code)))
    }

    /// Hands the numbers of a repeated double field to `take`, whether they are packed or alone.
    pub(crate) fn each_double(self, mut take: impl FnMut(f64)) -> Read<()> {
        match self {
            Self::Word64(bits) => take(f64::from_bits(bits)),
            Self::Bytes(packed) => {
                let mut packed = Fields::new(packed);
                while !packed.rest.is_empty() {
                    take(f64::from_bits(packed.word64()?));
                }
            }
            _ => return Err(WRONG_TYPE),
        }
        Ok(())
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
            // The same where more follows, whatever that is.
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
        // Whatever is longer or ends elsewhere is left to the reader of fields.
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
