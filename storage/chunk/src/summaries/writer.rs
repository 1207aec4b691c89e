//! Encodes summaries: divides the rows into buckets, then summarizes each numeric column.
//!
//! Floats are stored as decimals only if this restores all extremes, first and last values exactly. Sums are computed
//! with compensation, so that sums of buckets can be added without loss of precision.

use std::ops::Range;

use tideline_model::{ColumnData, CompensatedSum};
use tideline_runtime::background;

use super::{BITS, CORRECTION_SHIFT, ROWS_MIN, ROWS_PER_BUCKET_MIN, flag, state};
use crate::chunk::directory::Entry;
use crate::floats::{choose_exponent, near, power_of, restored};
use crate::integers::{IntegerEncoder, PackedInt};
use crate::presence::Presence;
use crate::run::{Run, RunColumn};
use crate::timestamps::TimestampEncoder;
use crate::wire::put_varint;

/// Largest correction of a decimal sum, relative to the largest magnitude summed: 2⁻⁴⁴, the rounding error of a few
/// thousand decimals stored as doubles. A larger correction means that the sum is not a decimal, and the shortened
/// correction would not be precise enough.
const DECIMAL_CORRECTION_MAX: f64 = 1.0 / (1u64 << 44) as f64;

/// Encoder of summaries with reusable buffers.
#[derive(Debug, Default)]
pub(crate) struct SummaryEncoder {
    buckets: Vec<Bucket>,
    states: Vec<i64>,
    known: Vec<Known>,
    body: Vec<u8>,
    arrays: Arrays,
}

/// Bucket: its number, which is its start divided by the width, and its rows.
#[derive(Debug)]
struct Bucket {
    number: i64,
    rows: Range<usize>,
}

/// Summary of a column in a bucket in stored form.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// Number of values; `gaps` is the number of rows without a value.
    count: i64,
    gaps: i64,
    /// Time from the first row of the bucket to the first value; `trail` is the time from the last value to the last
    /// row.
    lead: i64,
    trail: i64,
    /// Integers are held unchanged. Floats are held as their bits, and later as decimals if all of them can be
    /// converted.
    min: i64,
    max: i64,
    first: i64,
    last: i64,
    sum: i128,
    correction: f64,
}

impl SummaryEncoder {
    /// Appends the summaries of a checked run in buckets of `width`. Appends nothing if the run is too short, has no
    /// numeric column, or the buckets have too few rows.
    ///
    /// The timestamps of buckets are not stored for regular rows, because the reader can compute them.
    pub(crate) fn encode(&mut self, run: &Run, is_regular: bool, width: i64, out: &mut Vec<u8>) {
        if has_numbers(run) && run.rows() >= ROWS_MIN && self.cut(&run.timestamps, width, ROWS_PER_BUCKET_MIN)
        {
            self.put(run, is_regular, width, out);
        }
    }

    /// Appends the summaries of a checked run. The bucket width is the first of `widths` with at least
    /// [`ROWS_PER_BUCKET_MIN`] rows per bucket on average, or the last of `widths` if no width satisfies this. Appends
    /// nothing if the run has no rows or no numeric columns, or if `widths` is empty. The timestamps of buckets are
    /// always stored.
    pub(super) fn encode_lone(&mut self, run: &Run, widths: &[i64], out: &mut Vec<u8>) {
        let Some((last, others)) = widths.split_last().filter(|_| has_numbers(run) && run.rows() > 0) else {
            return;
        };
        let times = &run.timestamps;
        let dense = others
            .iter()
            .find(|width| self.cut(times, **width, ROWS_PER_BUCKET_MIN));
        let width = *dense.unwrap_or(last);
        if dense.is_some() || self.cut(times, width, 1) {
            self.put(run, false, width, out);
        }
    }

    /// Appends the summaries of all numeric columns for the buckets in `self.buckets`.
    fn put(&mut self, run: &Run, is_regular: bool, width: i64, out: &mut Vec<u8>) {
        let numeric = run.columns.iter().filter(|column| is_numeric(&column.values));
        let count = numeric.clone().count();
        put_varint(width as u64, out);
        put_varint(self.buckets.len() as u64, out);
        self.put_buckets(&run.timestamps, is_regular, width, out);
        put_varint(count as u64, out);
        let mut previous = 0;
        for column in numeric {
            self.gather(&run.timestamps, column);
            self.body.clear();
            self.put_column(&column.values);
            let entry = Entry {
                field: column.field,
                value_type: column.values.value_type(),
                is_sparse: false,
                length: self.body.len(),
            };
            entry.put(previous, out);
            previous = column.field.0;
            out.extend_from_slice(&self.body);
            background::yield_core_after(run.rows());
        }
    }

    /// Divides the rows into buckets. Returns false if the buckets have fewer than `rows_min` rows on average. In this
    /// case, the list of buckets is incomplete.
    fn cut(&mut self, times: &[i64], width: i64, rows_min: usize) -> bool {
        self.buckets.clear();
        let mut start = 0;
        while start < times.len() {
            if (self.buckets.len() + 1) * rows_min > times.len() {
                return false;
            }
            let number = times[start].div_euclid(width);
            let end = (i128::from(number) + 1) * i128::from(width);
            let rows = times[start..].partition_point(|time| i128::from(*time) < end);
            self.buckets.push(Bucket {
                number,
                rows: start..start + rows,
            });
            start += rows;
        }
        true
    }

    fn put_buckets(&mut self, times: &[i64], is_regular: bool, width: i64, out: &mut Vec<u8>) {
        let (arrays, buckets) = (&mut self.arrays, self.buckets.iter());
        arrays.put(buckets.clone().map(|bucket| bucket.number), out);
        arrays.put(buckets.clone().map(|bucket| bucket.rows.len() as i64), out);
        if !is_regular {
            let firsts = buckets.clone().map(|bucket| {
                let start = bucket.number.wrapping_mul(width);
                times[bucket.rows.start].wrapping_sub(start)
            });
            arrays.put_spans(firsts, out);
            let lengths =
                buckets.map(|bucket| times[bucket.rows.end - 1].wrapping_sub(times[bucket.rows.start]));
            arrays.put_spans(lengths, out);
        }
    }

    /// Fills `states` and `known` for `column`.
    fn gather(&mut self, times: &[i64], column: &RunColumn) {
        self.states.clear();
        self.known.clear();
        let mut position = 0;
        for bucket in &self.buckets {
            let rows = bucket.rows.clone();
            let Some((first, last, count)) = present(&column.presence, rows.clone()) else {
                self.states.push(state::EMPTY);
                continue;
            };
            let range = position..position + count;
            position = range.end;
            let known = match &column.values {
                ColumnData::Signed(values) => Some(integers(&values[range])),
                ColumnData::Unsigned(values) => Some(integers(&values[range])),
                ColumnData::Float(values) => floats(&values[range]),
                ColumnData::Boolean(_) | ColumnData::String(_) | ColumnData::Histogram(_) => None,
            };
            let Some(known) = known else {
                self.states.push(state::UNKNOWN);
                continue;
            };
            self.states.push(state::KNOWN);
            self.known.push(Known {
                count: count as i64,
                gaps: (rows.len() - count) as i64,
                lead: times[first].wrapping_sub(times[rows.start]),
                trail: times[rows.end - 1].wrapping_sub(times[last]),
                ..known
            });
        }
    }

    fn put_column(&mut self, values: &ColumnData) {
        let (known, arrays, out) = (&mut self.known, &mut self.arrays, &mut self.body);
        let form = match values {
            ColumnData::Float(values) => {
                let exponent = choose_exponent(values);
                let exponent = exponent.filter(|exponent| to_decimals(known, power_of(*exponent)));
                Some(exponent.map_or(BITS, |exponent| exponent as u8))
            }
            _ => None,
        };
        // Sum minus count · lowest; the entire sum for floats stored as bits.
        let excess = |known: &Known| match form {
            Some(BITS) => known.sum,
            _ => known
                .sum
                .wrapping_sub(i128::from(known.count) * known.lowest(values)),
        };
        let is_partial = known.len() < self.states.len();
        let is_sparse = known.iter().any(|known| known.gaps > 0);
        let is_wide = known.iter().any(|known| excess(known) >> 64 != 0);
        out.push(
            (u8::from(is_partial) * flag::PARTIAL)
                | (u8::from(is_sparse) * flag::SPARSE)
                | (u8::from(is_wide) * flag::WIDE),
        );
        out.extend(form);
        if is_partial {
            arrays.put(self.states.iter().copied(), out);
        }
        if known.is_empty() {
            return;
        }
        let known = known.iter();
        if is_sparse {
            arrays.put(known.clone().map(|known| known.gaps), out);
            arrays.put_spans(known.clone().map(|known| known.lead), out);
            arrays.put_spans(known.clone().map(|known| known.trail), out);
        }
        arrays.put(known.clone().map(|known| known.min), out);
        arrays.put(known.clone().map(|known| known.max.wrapping_sub(known.min)), out);
        arrays.put(
            known.clone().map(|known| known.first.wrapping_sub(known.min)),
            out,
        );
        arrays.put(known.clone().map(|known| known.last.wrapping_sub(known.min)), out);
        arrays.put(known.clone().map(|known| excess(known) as i64), out);
        if is_wide {
            arrays.put(known.clone().map(|known| (excess(known) >> 64) as i64), out);
        }
        if form.is_some() {
            arrays.put(known.map(|known| rounded(known.correction)), out);
        }
    }
}

impl Known {
    /// Returns the lowest value as a number. Not applicable to the bits of floats.
    fn lowest(&self, values: &ColumnData) -> i128 {
        match values {
            ColumnData::Unsigned(_) => i128::from(self.min as u64),
            _ => i128::from(self.min),
        }
    }
}

/// Codecs of the arrays in summaries.
#[derive(Debug, Default)]
struct Arrays {
    integers: IntegerEncoder,
    timestamps: TimestampEncoder,
    elements: Vec<i64>,
}

impl Arrays {
    fn put(&mut self, elements: impl Iterator<Item = i64>, out: &mut Vec<u8>) {
        self.elements.clear();
        self.elements.extend(elements);
        self.integers.encode(&self.elements, out);
    }

    /// Appends time spans in the largest unit that divides all of them.
    fn put_spans(&mut self, elements: impl Iterator<Item = i64>, out: &mut Vec<u8>) {
        self.elements.clear();
        self.elements.extend(elements);
        self.timestamps
            .encode_any(&self.elements, &mut self.integers, out);
    }
}

fn has_numbers(run: &Run) -> bool {
    run.columns.iter().any(|column| is_numeric(&column.values))
}

fn is_numeric(values: &ColumnData) -> bool {
    matches!(
        values,
        ColumnData::Float(_) | ColumnData::Signed(_) | ColumnData::Unsigned(_)
    )
}

/// Returns the first and the last of `rows` that have a value, and the number of rows with a value; `None` if no row
/// has a value.
fn present(presence: &Presence, rows: Range<usize>) -> Option<(usize, usize, usize)> {
    match presence {
        Presence::All => Some((rows.start, rows.end - 1, rows.len())),
        Presence::Some(bitmap) => {
            let mut present = rows.filter(|row| bitmap.get(*row));
            let first = present.next()?;
            let (last, more) = present.fold((first, 0), |(_, count), row| (row, count + 1));
            Some((first, last, 1 + more))
        }
    }
}

/// Returns the summary of one or more integers.
fn integers<T: PackedInt + Ord + Into<i128>>(values: &[T]) -> Known {
    let first = values[0];
    let (mut min, mut max, mut sum) = (first, first, 0i128);
    for value in values {
        min = min.min(*value);
        max = max.max(*value);
        sum += (*value).into();
    }
    Known {
        min: min.into_packed(),
        max: max.into_packed(),
        first: first.into_packed(),
        last: values[values.len() - 1].into_packed(),
        sum,
        ..Known::default()
    }
}

/// Returns the summary of one or more floats. Its numbers are held as the bits of the floats. Returns `None` if the sum
/// is not finite, which is the case for any NaN or infinity.
fn floats(values: &[f64]) -> Option<Known> {
    let CompensatedSum {
        sum,
        compensation: correction,
    } = compensated_sum(values);
    if !(sum.is_finite() && correction.is_finite()) {
        return None;
    }
    let (mut min, mut max) = (i64::MAX, i64::MIN);
    for value in values {
        let key = total_order(value.to_bits() as i64);
        min = min.min(key);
        max = max.max(key);
    }
    Some(Known {
        min: total_order(min),
        max: total_order(max),
        first: values[0].to_bits() as i64,
        last: values[values.len() - 1].to_bits() as i64,
        sum: i128::from(sum.to_bits()),
        correction,
        ..Known::default()
    })
}

/// Maps the bits of doubles to integers in their total order, and back.
fn total_order(bits: i64) -> i64 {
    bits ^ ((bits >> 63) as u64 >> 1) as i64
}

/// Returns the sum of all values, computed with twice the precision of a double (Ogita, Rump, Oishi, "Accurate Sum and
/// Dot Product", 2005).
fn compensated_sum(values: &[f64]) -> CompensatedSum {
    let (lanes, rest) = CompensatedSum::sum_in_parallel(values);
    let mut total = CompensatedSum {
        sum: 0.0,
        compensation: lanes.iter().map(|lane| lane.compensation).sum(),
    };
    let sums = lanes.iter().map(|lane| lane.sum);
    sums.chain(rest.iter().copied())
        .for_each(|value| total.add(value));
    total.normalized()
}

/// Converts the bits of floats to decimals and returns true. Returns false and leaves the floats unchanged in two
/// cases: a decimal does not restore a value exactly, or a sum or its correction is too large.
fn to_decimals(known: &mut [Known], power: f64) -> bool {
    let decimal = |known: &Known| -> Option<Known> {
        let value = |bits: i64| restored(f64::from_bits(bits as u64), power);
        let sum = f64::from_bits(known.sum as u64);
        let (decimal, missing) = near(sum, power)?;
        let correction = missing + known.correction;
        let [min, max] = [known.min, known.max].map(|bits| f64::from_bits(bits as u64));
        let is_small = correction.abs() <= min.abs().max(max.abs()) * DECIMAL_CORRECTION_MAX;
        is_small.then_some(Known {
            min: value(known.min)?,
            max: value(known.max)?,
            first: value(known.first)?,
            last: value(known.last)?,
            sum: i128::from(decimal),
            correction,
            ..*known
        })
    };
    if !known.iter().all(|known| decimal(known).is_some()) {
        return false;
    }
    for known in known {
        if let Some(decimal) = decimal(known) {
            *known = decimal;
        }
    }
    true
}

/// Returns the stored bits of a correction, rounded.
fn rounded(correction: f64) -> i64 {
    let bits = correction.to_bits() + (1 << (CORRECTION_SHIFT - 1));
    (bits >> CORRECTION_SHIFT) as i64
}
