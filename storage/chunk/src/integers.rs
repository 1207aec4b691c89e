//! Codec of columns of 64-bit integers.
//!
//! Signed and unsigned values, booleans, indexes, end offsets of texts, scaled decimals and float bits are all encoded
//! here. Arithmetic wraps, so every 64-bit pattern is a valid value. `FORMAT.md` describes the layout.
//!
//! | file | holds |
//! |---|---|
//! | `packed` | bit-packed forms: constant, offsets, differences |
//! | `coded` | decoder of the entropy-coded form |
//! | `coding` | encoder of the entropy-coded form |
//! | `bins` | alphabet of the entropy-coded form |
//! | `tests` | tests of all forms |

mod bins;
mod coded;
mod coding;
mod packed;
#[cfg(test)]
mod tests;

use std::ops::Range;

use self::coded::Coded;
use self::coding::CodedEncoder;
pub(crate) use self::packed::Packed;
use self::packed::PackedEncoder;
use crate::wire::{Damaged, Reader};

/// Form byte of entropy-coded integers. The packed forms have lower numbers.
const CODED: u8 = 3;

/// Minimum packed size in bytes for which entropy coding is tried. The description of a code takes about thirty
/// bytes.
const CODED_BYTES_MIN: usize = 40;

/// Minimum number of values for which entropy coding is tried.
const CODED_VALUES_MIN: usize = 64;

/// Type whose values are stored as 64-bit integers.
pub(crate) trait PackedInt: Copy {
    /// Returns the stored integer.
    fn into_packed(self) -> i64;
    /// Returns the value of a stored integer. The result is arbitrary for integers that [`PackedInt::into_packed`]
    /// never returns.
    fn from_packed(packed: i64) -> Self;
}

impl PackedInt for i64 {
    fn into_packed(self) -> i64 {
        self
    }
    fn from_packed(packed: i64) -> Self {
        packed
    }
}

impl PackedInt for u64 {
    fn into_packed(self) -> i64 {
        self as i64
    }
    fn from_packed(packed: i64) -> Self {
        packed as u64
    }
}

impl PackedInt for u32 {
    fn into_packed(self) -> i64 {
        i64::from(self)
    }
    fn from_packed(packed: i64) -> Self {
        packed as u32
    }
}

impl PackedInt for bool {
    fn into_packed(self) -> i64 {
        i64::from(self)
    }
    fn from_packed(packed: i64) -> Self {
        packed != 0
    }
}

/// Encoder of integer columns with reusable buffers.
#[derive(Debug, Default)]
pub(crate) struct IntegerEncoder {
    packed: PackedEncoder,
    /// Encoder of the entropy-coded form; `None` if the form is not allowed.
    coded: Option<Box<CodedEncoder>>,
    wrote_coded: bool,
}

impl IntegerEncoder {
    /// Allows or forbids entropy coding for the following columns. A new encoder forbids it.
    pub(crate) fn allow_coding(&mut self, allowed: bool) {
        if allowed != self.coded.is_some() {
            self.coded = allowed.then(Box::default);
        }
        self.wrote_coded = false;
    }

    /// Returns true if any column since [`IntegerEncoder::allow_coding`] was entropy-coded.
    pub(crate) fn wrote_coded(&self) -> bool {
        self.wrote_coded
    }

    /// Appends `values` in the allowed form with the smallest estimated size.
    pub(crate) fn encode<T: PackedInt>(&mut self, values: &[T], out: &mut Vec<u8>) {
        let plan = self.packed.plan(values);
        if let Some(coded) = &mut self.coded
            && values.len() >= CODED_VALUES_MIN
        {
            let bytes = self.packed.bytes(&plan);
            if bytes >= CODED_BYTES_MIN && coded.plan(values) < bytes {
                coded.write(values, out);
                self.wrote_coded = true;
                return;
            }
        }
        self.packed.write(&plan, values, out);
    }
}

/// View of a stored column. Opening it checks every length, so reading cannot fail.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Integers<'a> {
    Packed(Packed<'a>),
    Coded(Coded<'a>),
}

impl<'a> Integers<'a> {
    /// Opens the next column, which has `count` values. The caller must have checked `count` against a limit.
    ///
    /// Costs a few instructions per block.
    #[inline]
    pub(crate) fn open(reader: &mut Reader<'a>, count: usize) -> Result<Self, Damaged> {
        match reader.byte()? {
            CODED => Coded::open(reader, count).map(Self::Coded),
            form => Packed::open_form(form, reader, count).map(Self::Packed),
        }
    }

    /// Returns true if the column at the start of `bytes` is entropy-coded.
    pub(crate) fn are_coded(bytes: &[u8]) -> bool {
        bytes.first() == Some(&CODED)
    }

    fn count(&self) -> usize {
        match self {
            Self::Packed(column) => column.count(),
            Self::Coded(column) => column.count(),
        }
    }

    /// Calls `visit` with the values of `rows`, block by block in order. `rows` must be within the column.
    pub(crate) fn for_each_block(&self, rows: Range<usize>, visit: impl FnMut(&[i64])) {
        match self {
            Self::Packed(column) => column.for_each_block(rows, visit),
            Self::Coded(column) => column.for_each_block(rows, visit),
        }
    }

    /// Calls `visit` with each value in order.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(i64)) {
        self.for_each_block(0..self.count(), |values| {
            values.iter().for_each(|value| visit(*value));
        });
    }

    /// Appends the values of `rows`, which must be within the column.
    pub(crate) fn decode<T: PackedInt>(&self, rows: Range<usize>, out: &mut Vec<T>) {
        out.reserve(rows.len());
        self.for_each_block(rows, |values| {
            out.extend(values.iter().map(|value| T::from_packed(*value)));
        });
    }

    /// Returns one value. Unpacks its block, or decodes its frame up to the row.
    pub(crate) fn get(&self, row: usize) -> i64 {
        let mut found = 0;
        self.for_each_block(row..row + 1, |values| found = values[0]);
        found
    }

    /// Returns the number of leading values of a rising column that satisfy `before`. The values that satisfy
    /// `before` must form a prefix.
    ///
    /// Costs a binary search over the heads of blocks, a pass over the sizes of the preceding blocks, and the unpacking
    /// of at most one block. An entropy-coded column has frames instead of blocks.
    pub(crate) fn partition_point(&self, before: impl Fn(i64) -> bool) -> usize {
        let (firsts, length) = match self {
            Self::Packed(column) => match column.rising_heads() {
                Ok(heads) => heads,
                Err(constant) => return if before(constant) { column.count() } else { 0 },
            },
            Self::Coded(column) => column.heads(),
        };
        let later = firsts.partition_point(&before);
        let Some(index) = later.checked_sub(1) else {
            return 0;
        };
        let start = index * length;
        let mut within = 0;
        self.for_each_block(start..self.count().min(start + length), |values| {
            within += values.partition_point(|value| before(*value));
        });
        start + within
    }
}
