//! Presence: the rows of a run that have a value in a column.
//!
//! Columns are dense: they store only the values of present rows. Ranks convert row numbers to positions in a
//! column.

use std::ops::Range;

use crate::bitpack::read_bits;
use crate::packed_array::PackedArray;
use crate::wire::{Damaged, Reader, put_varint};

const WORD: usize = u64::BITS as usize;

/// Set of the rows of a run that have a value in a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence {
    /// Every row.
    All,
    /// The rows whose bit is set. The bitmap is as long as the run.
    Some(Bitmap),
}

impl Presence {
    /// Returns the number of present rows. `rows` is the number of rows of the run.
    pub fn count(&self, rows: usize) -> usize {
        match self {
            Self::All => rows,
            Self::Some(bitmap) => bitmap.count_ones(),
        }
    }

    /// Returns true if row `row` has a value.
    pub fn contains(&self, row: usize) -> bool {
        match self {
            Self::All => true,
            Self::Some(bitmap) => bitmap.get(row),
        }
    }

    /// Returns the number of present rows before `row`, which is the position of that row's value in the dense
    /// column.
    pub fn rank(&self, row: usize) -> usize {
        match self {
            Self::All => row,
            Self::Some(bitmap) => bitmap.rank(row),
        }
    }
}

/// Bitmap with one bit per row. Unused bits of the last word are zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bitmap {
    words: Vec<u64>,
    length: usize,
}

impl Bitmap {
    /// Returns a bitmap of `length` absent rows.
    pub fn absent(length: usize) -> Self {
        Self {
            words: vec![0; length.div_ceil(WORD)],
            length,
        }
    }

    /// Returns a bitmap of `length` present rows.
    pub fn present(length: usize) -> Self {
        let mut bitmap = Self::default();
        bitmap.reset_present(length);
        bitmap
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns true if the bitmap has no rows.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Appends a row.
    pub fn push(&mut self, present: bool) {
        if self.length.is_multiple_of(WORD) {
            self.words.push(0);
        }
        if present {
            self.words[self.length / WORD] |= 1 << (self.length % WORD);
        }
        self.length += 1;
    }

    /// Marks row `row` as present.
    ///
    /// # Panics
    ///
    /// Panics if `row` is out of bounds.
    pub fn set(&mut self, row: usize) {
        assert!(row < self.length, "row {row} of {}", self.length);
        self.words[row / WORD] |= 1 << (row % WORD);
    }

    /// Returns true if row `row` is present. Rows after the end are absent.
    pub fn get(&self, row: usize) -> bool {
        row < self.length && self.words[row / WORD] >> (row % WORD) & 1 == 1
    }

    /// Returns the number of present rows.
    pub fn count_ones(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns the number of present rows before `row`.
    pub fn rank(&self, row: usize) -> usize {
        let row = row.min(self.length);
        let whole: usize = self.words[..row / WORD]
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum();
        let part = row % WORD;
        if part == 0 {
            return whole;
        }
        whole + (self.words[row / WORD] & ((1 << part) - 1)).count_ones() as usize
    }

    /// Iterates over the present rows in increasing order.
    pub fn iter_ones(&self) -> impl Iterator<Item = usize> {
        self.words.iter().enumerate().flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest.wrapping_sub(1);
                (bit < WORD).then_some(index * WORD + bit)
            })
        })
    }

    /// Resets the bitmap to `length` present rows. Reuses the buffer.
    pub fn reset_present(&mut self, length: usize) {
        self.words.clear();
        self.words.resize(length.div_ceil(WORD), u64::MAX);
        self.length = length;
        if let Some(last) = self.words.last_mut() {
            *last >>= (WORD - length % WORD) % WORD;
        }
    }

    /// Resets the bitmap to `length` absent rows. Reuses the buffer.
    pub fn reset_absent(&mut self, length: usize) {
        self.words.clear();
        self.words.resize(length.div_ceil(WORD), 0);
        self.length = length;
    }

    /// Marks `rows` as present. They must be in bounds.
    fn set_range(&mut self, rows: Range<usize>) {
        let mut row = rows.start;
        while row < rows.end {
            let (word, from) = (row / WORD, row % WORD);
            let count = (WORD - from).min(rows.end - row);
            self.words[word] |= (u64::MAX >> (WORD - count)) << from;
            row += count;
        }
    }

    /// Iterates over the flips: the rows whose presence differs from that of the previous row. Rows before the first
    /// flip are absent.
    fn flips(&self) -> impl Iterator<Item = i64> + Clone {
        (0..self.length)
            .filter(|row| self.get(*row) != (*row > 0 && self.get(*row - 1)))
            .map(|row| row as i64)
    }
}

impl FromIterator<bool> for Bitmap {
    fn from_iter<I: IntoIterator<Item = bool>>(rows: I) -> Self {
        let mut bitmap = Self::default();
        rows.into_iter().for_each(|present| bitmap.push(present));
        bitmap
    }
}

/// View of a stored presence.
///
/// ```text
/// form    varint    0 = bits, else 1 + number of flips
/// bits    ⌈rows/8⌉  row i is bit i mod 8 of byte i div 8        (form 0)
/// flips   array     rows at which absent and present alternate  (otherwise)
/// ```
///
/// The smaller form is written. One gap costs a few bytes, and alternating rows cost one bit per row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PresenceView<'a> {
    All,
    Bits(&'a [u8]),
    Flips { flips: PackedArray<'a>, rows: usize },
}

impl<'a> PresenceView<'a> {
    /// Appends `bitmap`.
    pub(crate) fn encode(bitmap: &Bitmap, out: &mut Vec<u8>) {
        let start = out.len();
        let flips = bitmap.flips();
        let count = flips.clone().count();
        if count > 0 {
            put_varint(1 + count as u64, out);
            PackedArray::encode(flips, out);
        }
        let bytes = bitmap.length.div_ceil(8);
        if count == 0 || out.len() - start > 1 + bytes {
            out.truncate(start);
            out.push(0);
            out.extend(
                bitmap
                    .words
                    .iter()
                    .flat_map(|word| word.to_le_bytes())
                    .take(bytes),
            );
        }
    }

    /// Opens the next presence, which covers `rows` rows.
    pub(crate) fn open(reader: &mut Reader<'a>, rows: usize) -> Result<Self, Damaged> {
        let flips = reader.count(rows + 1)?;
        if flips == 0 {
            let bytes = reader.take(rows.div_ceil(8))?;
            return Ok(Self::Bits(bytes));
        }
        let flips = PackedArray::open(reader, flips - 1)?;
        let mut last = -1;
        for index in 0..flips.len() {
            let flip = flips.get(index);
            if flip <= last || flip >= rows as i64 {
                return Err(Damaged("presence flips out of order"));
            }
            last = flip;
        }
        Ok(Self::Flips { flips, rows })
    }

    /// Returns the number of present rows before `row`.
    pub(crate) fn rank(&self, row: usize) -> usize {
        match self {
            Self::All => row,
            Self::Bits(bytes) => (0..row)
                .step_by(WORD)
                .map(|at| read_bits(bytes, at, WORD.min(row - at)).count_ones() as usize)
                .sum(),
            Self::Flips { .. } => self.present_ranges(0..row).map(|range| range.len()).sum(),
        }
    }

    /// Fills `bitmap` with the presence of `rows`. Bit 0 is the first of these rows.
    pub(crate) fn read(&self, rows: Range<usize>, bitmap: &mut Bitmap) {
        match self {
            Self::All => bitmap.reset_present(rows.len()),
            Self::Bits(bytes) => {
                bitmap.reset_absent(rows.len());
                let starts = rows.clone().step_by(WORD);
                for (word, at) in bitmap.words.iter_mut().zip(starts) {
                    *word = read_bits(bytes, at, WORD.min(rows.end - at));
                }
            }
            Self::Flips { .. } => {
                bitmap.reset_absent(rows.len());
                let start = rows.start;
                self.present_ranges(rows)
                    .for_each(|range| bitmap.set_range(range.start - start..range.end - start));
            }
        }
    }

    /// Iterates over the ranges of present rows within `rows`. Applies only to the form with flips.
    fn present_ranges(&self, rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let (flips, end) = match *self {
            Self::Flips { flips, rows } => (Some(flips), rows),
            _ => (None, 0),
        };
        let count = flips.map_or(0, |flips| flips.len());
        let flip = move |index: usize| match flips {
            Some(flips) if index < count => flips.get(index) as usize,
            _ => end,
        };
        (0..count)
            .step_by(2)
            .map(move |index| flip(index).max(rows.start)..flip(index + 1).min(rows.end))
            .filter(|range| !range.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Bitmap> {
        vec![
            Bitmap::absent(70),
            Bitmap::present(64),
            Bitmap::present(129),
            (0..200).map(|row| row % 3 == 0).collect(),
            (0..200).map(|row| !(90..=140).contains(&row)).collect(),
            (0..5).map(|row| row == 4).collect(),
        ]
    }

    #[test]
    fn ranks_and_ones_agree_with_counting() {
        for bitmap in samples() {
            let rows: Vec<usize> = (0..bitmap.len()).filter(|row| bitmap.get(*row)).collect();
            assert_eq!(bitmap.iter_ones().collect::<Vec<_>>(), rows);
            assert_eq!(bitmap.count_ones(), rows.len());
            for row in 0..=bitmap.len() {
                assert_eq!(bitmap.rank(row), rows.iter().filter(|one| **one < row).count());
            }
        }
    }

    #[test]
    fn stored_presence_reads_back_in_any_range() {
        for bitmap in samples() {
            let mut bytes = Vec::new();
            PresenceView::encode(&bitmap, &mut bytes);
            assert!(bytes.len() <= 1 + bitmap.len().div_ceil(8));
            let mut reader = Reader::new(&bytes);
            let view = PresenceView::open(&mut reader, bitmap.len()).expect("it was just written");
            assert_eq!(reader.finish(), Ok(()));
            for start in 0..bitmap.len() {
                assert_eq!(view.rank(start), bitmap.rank(start));
                let mut part = Bitmap::present(3);
                view.read(start..bitmap.len(), &mut part);
                let wanted: Bitmap = (start..bitmap.len()).map(|row| bitmap.get(row)).collect();
                assert_eq!(part, wanted);
            }
        }
    }
}
