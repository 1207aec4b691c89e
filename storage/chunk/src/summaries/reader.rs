//! Reads summaries in place: the buckets when the section is opened, and columns on request.
//!
//! A column whose summaries are damaged is reported as unknown in every bucket, so that the caller decodes the rows
//! instead.

use tideline_model::{FieldId, ValueType};

use super::{
    BITS, CORRECTION_SHIFT, ColumnSummary, Number, ROWS_PER_BUCKET_MIN, Sum, SummaryBucket, ValueSummary,
    flag, state,
};
use crate::bitpack::BLOCK;
use crate::chunk::ChunkError;
use crate::chunk::directory::Entry;
use crate::floats::{EXPONENT_MAX, power_of, unscaled};
use crate::integers::Packed;
use crate::timestamps::{PackedTimestamps, Timestamps};
use crate::wire::{Damaged, Reader};

/// Maximum number of arrays per column. Stored order: lowest, highest, first, last, and the three parts of the sum.
const ARRAYS: usize = 7;
const HIGH: usize = 5;
const CORRECTION: usize = 6;

/// View of the summaries of a chunk. It owns the buckets and borrows the columns.
#[derive(Debug, Clone)]
pub struct Summaries<'a> {
    width: i64,
    buckets: Vec<SummaryBucket>,
    count: usize,
    /// Positioned at the first column.
    columns: Reader<'a>,
}

impl<'a> Summaries<'a> {
    /// Reads the buckets of the section in `reader`.
    pub(crate) fn open(reader: Reader<'a>, times: &Timestamps<'a>) -> Result<Self, Damaged> {
        Self::open_of(reader, times.rows(), times.regular(), ROWS_PER_BUCKET_MIN)
    }

    /// Reads the buckets of summaries that cover `rows` rows. Rejects summaries with fewer than `rows_min` rows per
    /// bucket on average. `regular` holds first timestamp and step if the timestamps of buckets are not stored.
    pub(super) fn open_of(
        mut reader: Reader<'a>,
        rows: usize,
        regular: Option<(i64, i64)>,
        rows_min: usize,
    ) -> Result<Self, Damaged> {
        let width = i64::try_from(reader.varint()?).unwrap_or(0);
        if width <= 0 {
            return Err(Damaged("bucket width is not positive"));
        }
        let count = reader.count(rows / rows_min)?;
        let mut buckets = read_buckets(&mut reader, count, width, rows)?;
        if let Some((first, step)) = regular {
            let at = |row: usize| first.wrapping_add(step.wrapping_mul(row as i64));
            for bucket in &mut buckets {
                bucket.first_timestamp = at(bucket.rows.start);
                bucket.last_timestamp = at(bucket.rows.end - 1);
            }
        } else {
            read_instants(&mut reader, &mut buckets)?;
        }
        let count = reader.count(reader.remaining())?;
        Ok(Self {
            width,
            buckets,
            count,
            columns: reader,
        })
    }

    /// Returns the width of the buckets in nanoseconds.
    pub fn width(&self) -> i64 {
        self.width
    }

    /// Returns the buckets in time order. Each bucket has at least one row, and every row of the chunk is in one
    /// bucket.
    pub fn buckets(&self) -> &[SummaryBucket] {
        &self.buckets
    }

    /// Replaces the content of `out` with the summary of a column in each bucket. Returns false, with `out` empty,
    /// if the chunk has no numeric column with this field and type.
    ///
    /// A column whose summaries are damaged is [unknown](ColumnSummary::Unknown) in every bucket. Costs about thirty
    /// nanoseconds per bucket, and no allocation once `out` has grown.
    pub fn column(&self, field: FieldId, value_type: ValueType, out: &mut Vec<ColumnSummary>) -> bool {
        out.clear();
        let read = self.find(field, value_type).and_then(|body| match body {
            Some(body) => self.read(body, value_type, out).map(|()| true),
            None => Ok(false),
        });
        read.unwrap_or_else(|_| {
            out.clear();
            out.resize(self.buckets.len(), ColumnSummary::Unknown);
            true
        })
    }

    fn find(&self, field: FieldId, value_type: ValueType) -> Result<Option<Reader<'a>>, ChunkError> {
        let mut columns = self.columns;
        let mut previous = 0;
        for _ in 0..self.count {
            let length_max = columns.remaining();
            let entry = Entry::read(&mut columns, previous, length_max)?;
            let body = columns.split(entry.length)?;
            if (entry.field, entry.value_type) == (field, value_type) {
                return Ok(Some(body));
            }
            previous = entry.field.0;
        }
        Ok(None)
    }

    /// Reads the states, gaps and numbers of a column, and fills the known summaries.
    fn read(
        &self,
        mut body: Reader<'a>,
        value_type: ValueType,
        out: &mut Vec<ColumnSummary>,
    ) -> Result<(), ChunkError> {
        let body = &mut body;
        let flags = body.byte()?;
        if flags & flag::RESERVED != 0 {
            return Err(Damaged("summary with unknown flags").into());
        }
        let form = NumberForm::open(body, value_type)?;
        let known = self.read_states(body, flags, out)?;
        if known > 0 {
            if flags & flag::SPARSE != 0 {
                read_gaps(body, known, out)?;
            }
            form.read(body, known, flags, out)?;
        }
        Ok(body.finish()?)
    }

    /// Fills `out` with the state of each bucket. Returns the number of buckets with a known summary.
    fn read_states(
        &self,
        body: &mut Reader<'a>,
        flags: u8,
        out: &mut Vec<ColumnSummary>,
    ) -> Result<usize, Damaged> {
        out.extend(self.buckets.iter().map(dense));
        if flags & flag::PARTIAL == 0 {
            return Ok(out.len());
        }
        let states = Packed::open(body, out.len())?;
        let (mut known, mut is_whole) = (0, true);
        set_each(&states, out.iter_mut(), |summary, stored| match stored {
            state::EMPTY => *summary = ColumnSummary::Empty,
            state::UNKNOWN => *summary = ColumnSummary::Unknown,
            state::KNOWN => known += 1,
            _ => is_whole = false,
        });
        if is_whole {
            Ok(known)
        } else {
            Err(Damaged("bucket with invalid state"))
        }
    }
}

/// Type of the numbers of a column, and their stored form.
#[derive(Debug, Clone, Copy)]
enum NumberForm {
    Signed,
    Unsigned,
    /// Floats stored as integers to be divided by a power of ten.
    Decimal(f64),
    /// Floats stored as their bits.
    Bits,
}

impl NumberForm {
    fn open(body: &mut Reader<'_>, value_type: ValueType) -> Result<Self, Damaged> {
        match value_type {
            ValueType::Signed => Ok(Self::Signed),
            ValueType::Unsigned => Ok(Self::Unsigned),
            ValueType::Float => match body.byte()? {
                BITS => Ok(Self::Bits),
                exponent if usize::from(exponent) <= EXPONENT_MAX => {
                    Ok(Self::Decimal(power_of(exponent.into())))
                }
                _ => Err(Damaged("unknown form of floats")),
            },
            ValueType::Boolean | ValueType::String | ValueType::Histogram => {
                Err(Damaged("summary of a non-numeric column"))
            }
        }
    }

    /// Reads the numbers of the `count` known summaries.
    fn read(
        self,
        body: &mut Reader<'_>,
        count: usize,
        flags: u8,
        out: &mut [ColumnSummary],
    ) -> Result<(), Damaged> {
        let mut arrays = [None; ARRAYS];
        for (position, array) in arrays.iter_mut().enumerate() {
            let is_stored = match position {
                HIGH => flags & flag::WIDE != 0,
                CORRECTION => matches!(self, Self::Decimal(_) | Self::Bits),
                _ => true,
            };
            if is_stored {
                *array = Some(Packed::open(body, count)?);
            }
        }
        let mut blocks = [[0; BLOCK]; ARRAYS];
        for (index, summary) in known(out).enumerate() {
            let slot = index % BLOCK;
            if slot == 0 {
                for (array, block) in arrays.iter().zip(&mut blocks) {
                    if let Some(array) = array {
                        array.read_block(index / BLOCK, block);
                    }
                }
            }
            self.fill(summary, blocks.each_ref().map(|block| block[slot]));
        }
        Ok(())
    }

    /// Converts the stored integers to the numbers of a summary.
    fn fill(self, summary: &mut ValueSummary, stored: [i64; ARRAYS]) {
        let [lowest, highest, first, last, low, high, correction] = stored;
        // The highest, first and last value are stored as differences from the lowest.
        summary.min = self.number(lowest);
        summary.max = self.number(lowest.wrapping_add(highest));
        summary.first.1 = self.number(lowest.wrapping_add(first));
        summary.last.1 = self.number(lowest.wrapping_add(last));
        let excess = i128::from(low as u64) | i128::from(high) << 64;
        let total = |lowest: i128| excess.wrapping_add(i128::from(summary.count).wrapping_mul(lowest));
        let correction = f64::from_bits((correction as u64) << CORRECTION_SHIFT);
        summary.sum = match self {
            Self::Signed => Sum::Integer(total(lowest.into())),
            Self::Unsigned => Sum::Integer(total((lowest as u64).into())),
            Self::Decimal(power) => Sum::Float {
                sum: unscaled(total(lowest.into()) as i64, power),
                correction,
            },
            Self::Bits => Sum::Float {
                sum: f64::from_bits(excess as u64),
                correction,
            },
        };
    }

    fn number(self, packed: i64) -> Number {
        match self {
            Self::Signed => Number::Signed(packed),
            Self::Unsigned => Number::Unsigned(packed as u64),
            Self::Decimal(power) => Number::Float(unscaled(packed, power)),
            Self::Bits => Number::Float(f64::from_bits(packed as u64)),
        }
    }
}

/// Reads the buckets and their rows. Sets the first timestamp of each bucket to the start of the bucket; the caller
/// then sets the actual timestamps.
fn read_buckets(
    reader: &mut Reader<'_>,
    count: usize,
    width: i64,
    rows: usize,
) -> Result<Vec<SummaryBucket>, Damaged> {
    let numbers = Packed::open(reader, count)?;
    let counts = Packed::open(reader, count)?;
    let mut buckets = Vec::with_capacity(count);
    let (mut last, mut rises) = (i64::MIN, true);
    numbers.for_each(|number| {
        rises &= number > last || buckets.is_empty();
        last = number;
        buckets.push(SummaryBucket {
            start: number.saturating_mul(width),
            rows: 0..0,
            first_timestamp: number.wrapping_mul(width),
            last_timestamp: 0,
        });
    });
    let (mut end, mut fits) = (0, true);
    set_each(&counts, buckets.iter_mut(), |bucket, count| {
        let count = usize::try_from(count).unwrap_or(0);
        fits &= (1..=rows - end).contains(&count);
        bucket.rows = end..end + if fits { count } else { 0 };
        end = bucket.rows.end;
    });
    if rises && fits && end == rows {
        Ok(buckets)
    } else {
        Err(Damaged("buckets out of order"))
    }
}

/// Reads the first and last timestamp of each bucket of an irregular series.
fn read_instants(reader: &mut Reader<'_>, buckets: &mut [SummaryBucket]) -> Result<(), Damaged> {
    let leads = PackedTimestamps::open(reader, buckets.len())?;
    set_each_span(&leads, buckets.iter_mut(), |bucket, lead| {
        bucket.first_timestamp = bucket.first_timestamp.wrapping_add(lead);
    });
    let lengths = PackedTimestamps::open(reader, buckets.len())?;
    set_each_span(&lengths, buckets.iter_mut(), |bucket, length| {
        bucket.last_timestamp = bucket.first_timestamp.wrapping_add(length);
    });
    Ok(())
}

/// Reads the number of rows without a value in each bucket with a known summary, and corrects count, first and last
/// timestamp.
fn read_gaps(body: &mut Reader<'_>, count: usize, out: &mut [ColumnSummary]) -> Result<(), Damaged> {
    let gaps = Packed::open(body, count)?;
    let mut is_whole = true;
    set_each(&gaps, known(out), |summary, gaps| {
        let left = u64::try_from(gaps)
            .ok()
            .and_then(|gaps| summary.count.checked_sub(gaps));
        summary.count = left.unwrap_or(0);
        is_whole &= summary.count > 0;
    });
    if !is_whole {
        return Err(Damaged("bucket with more gaps than rows"));
    }
    let leads = PackedTimestamps::open(body, count)?;
    set_each_span(&leads, known(out), |summary, lead| {
        summary.first.0 = summary.first.0.wrapping_add(lead);
    });
    let trails = PackedTimestamps::open(body, count)?;
    set_each_span(&trails, known(out), |summary, trail| {
        summary.last.0 = summary.last.0.wrapping_sub(trail);
    });
    Ok(())
}

/// Returns the summary of a column with a value in every row of a bucket, before its numbers are read.
fn dense(bucket: &SummaryBucket) -> ColumnSummary {
    let zero = Number::Signed(0);
    ColumnSummary::Known(ValueSummary {
        count: bucket.rows.len() as u64,
        sum: Sum::Integer(0),
        min: zero,
        max: zero,
        first: (bucket.first_timestamp, zero),
        last: (bucket.last_timestamp, zero),
    })
}

fn known(out: &mut [ColumnSummary]) -> impl Iterator<Item = &mut ValueSummary> {
    out.iter_mut().filter_map(|summary| match summary {
        ColumnSummary::Known(known) => Some(known),
        ColumnSummary::Empty | ColumnSummary::Unknown => None,
    })
}

/// Calls `set` for each target with the corresponding element of `array`.
fn set_each<'t, T: 't>(
    array: &Packed<'_>,
    mut targets: impl Iterator<Item = &'t mut T>,
    mut set: impl FnMut(&mut T, i64),
) {
    array.for_each(|element| {
        if let Some(target) = targets.next() {
            set(target, element);
        }
    });
}

/// Calls `set` for each target with the corresponding time span; see [`set_each`].
fn set_each_span<'t, T: 't>(
    array: &PackedTimestamps<'_>,
    mut targets: impl Iterator<Item = &'t mut T>,
    mut set: impl FnMut(&mut T, i64),
) {
    array.for_each(|span| {
        if let Some(target) = targets.next() {
            set(target, span);
        }
    });
}
