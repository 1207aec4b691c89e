//! Basic parts of all formats: signed numbers, byte strings and a bounds-checked reader.
//!
//! Every length in a chunk or delta is read through [`Reader`], so damage results in [`Damaged`] and never in a
//! panic.

use tideline_wire::varint::{self, VarintError, unzigzag, zigzag};

pub(crate) use tideline_wire::varint::put as put_varint;

/// Error for bytes that violate the format; the text names the violated rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damaged(pub &'static str);

/// Appends a signed number in zigzag form, which keeps small magnitudes of either sign short.
pub(crate) fn put_signed(value: i64, out: &mut Vec<u8>) {
    put_varint(zigzag(value), out);
}

/// Appends the length of a byte string, followed by its bytes.
pub(crate) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Reader over a part of a larger byte string.
///
/// A reader returns only bytes before its end. The exception is [`Reader::take_padded`], whose result includes the
/// following bytes of the container. Unpacking kernels may load these bytes and ignore them, which avoids a copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    container: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    /// Returns a reader over all of `container`.
    pub(crate) fn new(container: &'a [u8]) -> Self {
        Self {
            container,
            at: 0,
            end: container.len(),
        }
    }

    /// Returns the number of remaining bytes.
    pub(crate) fn remaining(&self) -> usize {
        self.end - self.at
    }

    /// Reads the next `length` bytes.
    #[inline]
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Damaged> {
        self.take_padded(length).map(|padded| &padded[..length])
    }

    /// Reads the next `length` bytes. The returned slice also contains all later bytes of the container.
    #[inline]
    pub(crate) fn take_padded(&mut self, length: usize) -> Result<&'a [u8], Damaged> {
        if length > self.remaining() {
            return Err(Damaged("unexpected end of data"));
        }
        let padded = &self.container[self.at..];
        self.at += length;
        Ok(padded)
    }

    /// Returns a reader over the next `length` bytes and skips them in this reader.
    #[inline]
    pub(crate) fn split(&mut self, length: usize) -> Result<Reader<'a>, Damaged> {
        let start = self.at;
        self.take(length)?;
        Ok(Reader {
            container: self.container,
            at: start,
            end: self.at,
        })
    }

    /// Reads the next byte.
    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, Damaged> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// Reads the next `N` bytes as an array.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// Reads a number written by [`put_varint`].
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Damaged> {
        let read = varint::read(&self.container[self.at..self.end]);
        let (value, length) = read.map_err(|error| match error {
            VarintError::CutOff => Damaged("unexpected end of data"),
            VarintError::TooLong => Damaged("number longer than 64 bits"),
        })?;
        self.at += length;
        Ok(value)
    }

    /// Reads a number written by [`put_signed`].
    pub(crate) fn signed(&mut self) -> Result<i64, Damaged> {
        self.varint().map(unzigzag)
    }

    /// Reads a count or length of at most `max`.
    #[inline]
    pub(crate) fn count(&mut self, max: usize) -> Result<usize, Damaged> {
        usize::try_from(self.varint()?)
            .ok()
            .filter(|count| *count <= max)
            .ok_or(Damaged("count exceeds its limit"))
    }

    /// Reads a byte string written by [`put_bytes`].
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Damaged> {
        let length = self.count(self.remaining())?;
        self.take(length)
    }

    /// Reads a UTF-8 string written by [`put_bytes`].
    pub(crate) fn text(&mut self) -> Result<&'a str, Damaged> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Damaged("text is not UTF-8"))
    }

    /// Checks that no bytes remain.
    pub(crate) fn finish(&self) -> Result<(), Damaged> {
        if self.remaining() == 0 {
            Ok(())
        } else {
            Err(Damaged("unexpected trailing bytes"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(value, &mut bytes);
            put_signed(value as i64, &mut bytes);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.varint(), Ok(value));
            assert_eq!(reader.signed(), Ok(value as i64));
            assert_eq!(reader.finish(), Ok(()));
        }
    }

    #[test]
    fn a_number_beyond_64_bits_is_damage() {
        let mut bytes = [0xff; 11];
        assert!(Reader::new(&bytes).varint().is_err());
        bytes[9] = 0x02;
        assert!(Reader::new(&bytes).varint().is_err());
        bytes[9] = 0x01;
        assert_eq!(Reader::new(&bytes).varint(), Ok(u64::MAX));
    }

    #[test]
    fn a_part_ends_at_its_given_end() {
        let bytes = [1, 2, 3, 4];
        let mut reader = Reader::new(&bytes);
        let mut part = reader.split(2).expect("two bytes");
        assert_eq!(part.take(2), Ok(&bytes[..2]));
        assert!(part.byte().is_err());
        assert_eq!(reader.take_padded(1), Ok(&bytes[2..]));
        assert!(reader.split(usize::MAX).is_err());
        assert_eq!(reader.remaining(), 1);
    }
}
