//! The smallest parts of both formats: signed numbers, byte strings and a reader that cannot leave its bytes.
//!
//! Every length in a chunk or delta is read through [`Reader`], so damage shows as [`Damaged`], never as a
//! panic.

use tideline_wire::varint::{self, VarintError, unzigzag, zigzag};

pub(crate) use tideline_wire::varint::put as put_varint;

/// Bytes that no writer of ours leaves behind; the text says which rule they break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damaged(pub &'static str);

/// Appends a signed number so that small magnitudes of either sign are short.
pub(crate) fn put_signed(value: i64, out: &mut Vec<u8>) {
    put_varint(zigzag(value), out);
}

/// Appends a byte string behind its length.
pub(crate) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Walks over a part of a larger byte string.
///
/// It gives out only bytes before its end, but [`Reader::take_padded`] lets the unpacking kernels *look* at the
/// bytes of the container that follow, which spares them a copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    container: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    /// Reads all of `container`.
    pub(crate) fn new(container: &'a [u8]) -> Self {
        Self {
            container,
            at: 0,
            end: container.len(),
        }
    }

    /// Bytes left.
    pub(crate) fn remaining(&self) -> usize {
        self.end - self.at
    }

    /// The next `length` bytes.
    #[inline]
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Damaged> {
        self.take_padded(length).map(|padded| &padded[..length])
    }

    /// The next `length` bytes, and behind them whatever else the container holds.
    #[inline]
    pub(crate) fn take_padded(&mut self, length: usize) -> Result<&'a [u8], Damaged> {
        if length > self.remaining() {
            return Err(Damaged("bytes end early"));
        }
        let padded = &self.container[self.at..];
        self.at += length;
        Ok(padded)
    }

    /// A reader over the next `length` bytes, which are skipped here.
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

    /// The next byte.
    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, Damaged> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// The next `N` bytes as an array.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// A number written by [`put_varint`].
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Damaged> {
        let read = varint::read(&self.container[self.at..self.end]);
        let (value, length) = read.map_err(|error| match error {
            VarintError::CutOff => Damaged("bytes end early"),
            VarintError::TooLong => Damaged("number longer than 64 bits"),
        })?;
        self.at += length;
        Ok(value)
    }

    /// A number written by [`put_signed`].
    pub(crate) fn signed(&mut self) -> Result<i64, Damaged> {
        self.varint().map(unzigzag)
    }

    /// A count or length that may not pass `max`.
    #[inline]
    pub(crate) fn count(&mut self, max: usize) -> Result<usize, Damaged> {
        usize::try_from(self.varint()?)
            .ok()
            .filter(|count| *count <= max)
            .ok_or(Damaged("count passes its limit"))
    }

    /// A byte string written by [`put_bytes`].
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Damaged> {
        let length = self.count(self.remaining())?;
        self.take(length)
    }

    /// A byte string written by [`put_bytes`] that is text.
    pub(crate) fn text(&mut self) -> Result<&'a str, Damaged> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Damaged("text is not UTF-8"))
    }

    /// Checks that nothing is left.
    pub(crate) fn finish(&self) -> Result<(), Damaged> {
        if self.remaining() == 0 {
            Ok(())
        } else {
            Err(Damaged("bytes run on"))
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
    fn a_part_ends_where_it_was_told_to() {
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
