//! Array of integers with random access, such as block heads, exception rows and dictionary ends.
//!
//! ```text
//! base    signed varint      smallest element
//! width   1 byte             bits per slot, 0 to 64; absent if there is one element
//! slots   ⌈count·width/8⌉    element − base
//! ```
//!
//! The count is not stored; the caller provides it. An array of one element consists only of its varint, which keeps
//! columns with few rows small.

use crate::bitpack::{bits, packed_bytes, read_bits};
use crate::wire::{Damaged, Reader, put_signed};

/// View of a stored array. Reading an element costs a few instructions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackedArray<'a> {
    base: i64,
    width: usize,
    count: usize,
    slots: &'a [u8],
}

impl<'a> PackedArray<'a> {
    /// Appends `elements`, at least one.
    pub(crate) fn encode(elements: impl Iterator<Item = i64> + Clone, out: &mut Vec<u8>) {
        let base = elements.clone().min().unwrap_or(0);
        let count = elements.clone().count();
        put_signed(base, out);
        if count <= 1 {
            return;
        }
        let offsets = elements.map(|element| element.wrapping_sub(base) as u64);
        let width = bits(offsets.clone().max().unwrap_or(0));
        out.push(width as u8);
        let (mut word, mut filled) = (0u128, 0);
        for offset in offsets {
            word |= u128::from(offset) << filled;
            filled += width;
            while filled >= 8 {
                out.push(word as u8);
                word >>= 8;
                filled -= 8;
            }
        }
        if filled > 0 {
            out.push(word as u8);
        }
    }

    /// Opens the next array, which has `count` elements. The caller must have checked `count` against a limit.
    pub(crate) fn open(reader: &mut Reader<'a>, count: usize) -> Result<Self, Damaged> {
        let base = reader.signed()?;
        let width = if count <= 1 {
            0
        } else {
            usize::from(reader.byte()?)
        };
        if width > 64 {
            return Err(Damaged("width beyond 64 bits"));
        }
        let slots = reader.take(packed_bytes(count, width))?;
        Ok(Self {
            base,
            width,
            count,
            slots,
        })
    }

    /// Returns the number of elements.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Returns element `index`, which must be below [`PackedArray::len`].
    pub(crate) fn get(&self, index: usize) -> i64 {
        let offset = read_bits(self.slots, index * self.width, self.width);
        self.base.wrapping_add(offset as i64)
    }

    /// Returns the number of leading elements that satisfy `before`. The elements that satisfy `before` must form a
    /// prefix.
    pub(crate) fn partition_point(&self, before: impl Fn(i64) -> bool) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if before(self.get(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_read_back_one_by_one() {
        for elements in [
            vec![5],
            vec![-3, -3, -3],
            vec![i64::MIN, 0, i64::MAX],
            (0..300).map(|n| n * 7 - 50).collect(),
        ] {
            let mut bytes = Vec::new();
            PackedArray::encode(elements.iter().copied(), &mut bytes);
            let mut reader = Reader::new(&bytes);
            let array = PackedArray::open(&mut reader, elements.len()).expect("it was just written");
            assert_eq!(reader.finish(), Ok(()));
            let read: Vec<i64> = (0..array.len()).map(|index| array.get(index)).collect();
            assert_eq!(read, elements);
            assert_eq!(
                array.partition_point(|element| element < 20),
                elements.partition_point(|element| *element < 20)
            );
        }
    }
}
