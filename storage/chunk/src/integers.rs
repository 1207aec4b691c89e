//! Columns of 64-bit integers.
//!
//! Signed, unsigned, booleans, indexes, text ends, scaled decimals and float bits all end here. Arithmetic
//! wraps, so every bit pattern of 64 bits is ordinary. The layout is drawn in `FORMAT.md`.
//!
//! | file | holds |
//! |---|---|
//! | `packed` | forms of bit-packed blocks: constant, offsets, differences |
//! | `coded` | the entropy-coded form, read |
//! | `coding` | the entropy-coded form, written |
//! | `bins` | the alphabet of the entropy-coded form |
//! | `tests` | of all forms |

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

/// The form byte of entropy-coded integers; those of packed ones are below.
const CODED: u8 = 3;

/// Columns that are packed into fewer bytes than this stay so: a code takes some thirty bytes to describe.
const CODED_BYTES_MIN: usize = 40;

/// Fewer values than this are always packed.
const CODED_VALUES_MIN: usize = 64;

/// A type whose values are stored as 64-bit integers.
pub(crate) trait Lane: Copy {
    /// The stored integer.
    fn into_lane(self) -> i64;
    /// The value of a stored integer; one that was never stored gives any value.
    fn from_lane(lane: i64) -> Self;
}

impl Lane for i64 {
    fn into_lane(self) -> i64 {
        self
    }
    fn from_lane(lane: i64) -> Self {
        lane
    }
}

impl Lane for u64 {
    fn into_lane(self) -> i64 {
        self as i64
    }
    fn from_lane(lane: i64) -> Self {
        lane as u64
    }
}

impl Lane for u32 {
    fn into_lane(self) -> i64 {
        i64::from(self)
    }
    fn from_lane(lane: i64) -> Self {
        lane as u32
    }
}

impl Lane for bool {
    fn into_lane(self) -> i64 {
        i64::from(self)
    }
    fn from_lane(lane: i64) -> Self {
        lane != 0
    }
}

/// Writes columns; keeps its buffers from one to the next.
#[derive(Debug, Default)]
pub(crate) struct IntegerEncoder {
    packed: PackedEncoder,
    /// Where entropy coding may be used.
    coded: Option<Box<CodedEncoder>>,
    wrote_coded: bool,
}

impl IntegerEncoder {
    /// Allows or forbids entropy coding from here on; to begin with it is forbidden.
    pub(crate) fn allow_coding(&mut self, allowed: bool) {
        if allowed != self.coded.is_some() {
            self.coded = allowed.then(Box::default);
        }
        self.wrote_coded = false;
    }

    /// Whether any column since [`IntegerEncoder::allow_coding`] was entropy-coded.
    pub(crate) fn wrote_coded(&self) -> bool {
        self.wrote_coded
    }

    /// Appends `values` in the smallest of the forms that are allowed.
    pub(crate) fn encode<T: Lane>(&mut self, values: &[T], out: &mut Vec<u8>) {
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

/// A view of a stored column. Opening it checks every length, so reading cannot fail.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Integers<'a> {
    Packed(Packed<'a>),
    Coded(Coded<'a>),
}

impl<'a> Integers<'a> {
    /// Reads the column of `count` values that stands next; `count` must be backed by a checked limit.
    ///
    /// Costs a few instructions a block.
    #[inline]
    pub(crate) fn open(reader: &mut Reader<'a>, count: usize) -> Result<Self, Damaged> {
        match reader.byte()? {
            CODED => Coded::open(reader, count).map(Self::Coded),
            form => Packed::open_form(form, reader, count).map(Self::Packed),
        }
    }

    /// Whether the column that `bytes` begin with is entropy-coded.
    pub(crate) fn are_coded(bytes: &[u8]) -> bool {
        bytes.first() == Some(&CODED)
    }

    fn count(&self) -> usize {
        match self {
            Self::Packed(column) => column.count(),
            Self::Coded(column) => column.count(),
        }
    }

    /// The values of `rows`, which must lie inside the column, block by block in order.
    pub(crate) fn for_each_block(&self, rows: Range<usize>, visit: impl FnMut(&[i64])) {
        match self {
            Self::Packed(column) => column.for_each_block(rows, visit),
            Self::Coded(column) => column.for_each_block(rows, visit),
        }
    }

    /// Hands each value to `visit`, in order.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(i64)) {
        self.for_each_block(0..self.count(), |values| {
            values.iter().for_each(|value| visit(*value));
        });
    }

    /// Appends the values of `rows`, which must lie inside the column.
    pub(crate) fn decode<T: Lane>(&self, rows: Range<usize>, out: &mut Vec<T>) {
        out.reserve(rows.len());
        self.for_each_block(rows, |values| {
            out.extend(values.iter().map(|value| T::from_lane(*value)));
        });
    }

    /// One value. Costs the unpacking of its block, or its frame up to there.
    pub(crate) fn get(&self, row: usize) -> i64 {
        let mut found = 0;
        self.for_each_block(row..row + 1, |values| found = values[0]);
        found
    }

    /// Of a rising column, how many values satisfy `before`, which must hold for a prefix of it.
    ///
    /// Costs a binary search over the heads of blocks or frames and the unpacking of at most one.
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
