//! Codec of timestamp columns.
//!
//! A regular series is stored as first timestamp and step, from which row numbers are computed. Any other series is
//! stored as one integer per row: the timestamp in the largest unit (a power of ten) that divides all timestamps. Rows
//! of such a series are found by binary search.

use std::ops::Range;

use tideline_model::TimeRange;

use crate::integers::{IntegerEncoder, Integers};
use crate::wire::{Damaged, Reader, put_signed, put_varint};

/// Form codes. They are stored in the high four bits of the first byte. A regular series stores the exponent of its
/// unit (a power of ten) in the low four bits.
const REGULAR: u8 = 0;
const PACKED: u8 = 1;
/// Like [`PACKED`], preceded by the time span: the last timestamp minus the first, in units. Used for entropy-coded
/// integers, where reading the last integer would decode a frame.
const SPANNED: u8 = 2;

/// Powers of ten that can be a unit. 10¹⁵ ns is more than eleven days.
const UNITS: [i64; 16] = {
    let mut units = [1; 16];
    let mut exponent = 1;
    while exponent < units.len() {
        units[exponent] = units[exponent - 1] * 10;
        exponent += 1;
    }
    units
};

/// Returns the exponent of the largest power of ten that divides all `values`.
fn common_unit(values: impl IntoIterator<Item = i64>) -> usize {
    let mut exponent = UNITS.len() - 1;
    let mut seen = 0;
    for value in values {
        if value != seen {
            while value % UNITS[exponent] != 0 {
                exponent -= 1;
            }
            seen = value;
        }
    }
    exponent
}

/// Encoder of timestamp columns with reusable buffers.
#[derive(Debug, Default)]
pub(crate) struct TimestampEncoder {
    scaled: Vec<i64>,
    body: Vec<u8>,
}

impl TimestampEncoder {
    /// Appends the timestamps of a run: at least one, strictly increasing. Returns true if they are regular.
    pub(crate) fn encode_rising(
        &mut self,
        values: &[i64],
        integers: &mut IntegerEncoder,
        out: &mut Vec<u8>,
    ) -> bool {
        let first = values[0];
        let last = values[values.len() - 1];
        let step = values.get(1).map_or(0, |second| second.wrapping_sub(first));
        // A span that exceeds `i64` would overflow the arithmetic of the reader.
        let regular = last.checked_sub(first).is_some()
            && values
                .windows(2)
                .all(|pair| pair[1].wrapping_sub(pair[0]) == step);
        if !regular {
            let mut body = std::mem::take(&mut self.body);
            body.clear();
            let exponent = self.encode_any(values, integers, &mut body);
            if Integers::are_coded(&body[1..]) {
                out.push(SPANNED << 4);
                put_varint((last.wrapping_sub(first) as u64) / UNITS[exponent] as u64, out);
            } else {
                out.push(PACKED << 4);
            }
            out.extend_from_slice(&body);
            self.body = body;
            return false;
        }
        let exponent = common_unit([first, step]);
        out.push(REGULAR << 4 | exponent as u8);
        put_signed(first / UNITS[exponent], out);
        put_varint((step / UNITS[exponent]) as u64, out);
        true
    }

    /// Appends timestamps in any order: unit byte, then integers. Returns the exponent of the unit.
    pub(crate) fn encode_any(
        &mut self,
        values: &[i64],
        integers: &mut IntegerEncoder,
        out: &mut Vec<u8>,
    ) -> usize {
        let exponent = common_unit(values.iter().copied());
        let unit = UNITS[exponent];
        out.push(exponent as u8);
        if unit == 1 {
            integers.encode(values, out);
            return exponent;
        }
        self.scaled.clear();
        let (mut seen, mut scaled) = (0, 0);
        self.scaled.extend(values.iter().map(|value| {
            if *value != seen {
                seen = *value;
                scaled = seen / unit;
            }
            scaled
        }));
        integers.encode(&self.scaled, out);
        exponent
    }
}

/// View of the stored timestamps of a chunk.
#[derive(Debug, Clone, Copy)]
pub struct Timestamps<'a> {
    rows: usize,
    form: Form<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Form<'a> {
    Regular {
        first: i64,
        step: i64,
    },
    Packed {
        packed: PackedTimestamps<'a>,
        /// Last timestamp, if it is stored separately.
        last: Option<i64>,
    },
}

impl<'a> Timestamps<'a> {
    /// Opens the timestamps of the next `rows` rows. `rows` must be at least one.
    pub(crate) fn open(reader: &mut Reader<'a>, rows: usize) -> Result<Self, Damaged> {
        let code = reader.byte()?;
        let form = match code >> 4 {
            REGULAR => {
                let beyond = Damaged("timestamps beyond 64 bits");
                let unit = UNITS[usize::from(code & 0xf)];
                let first = reader.signed()?.checked_mul(unit).ok_or(beyond)?;
                let step = i64::try_from(reader.varint()?).map_err(|_| beyond)?;
                let step = step.checked_mul(unit).ok_or(beyond)?;
                let span = step.checked_mul(rows as i64 - 1).ok_or(beyond)?;
                first.checked_add(span).ok_or(beyond)?;
                if step == 0 && rows > 1 {
                    return Err(Damaged("timestamps are not increasing"));
                }
                Form::Regular { first, step }
            }
            PACKED => Form::Packed {
                packed: PackedTimestamps::open(reader, rows)?,
                last: None,
            },
            SPANNED => {
                let span = reader.varint()? as i64;
                let packed = PackedTimestamps::open(reader, rows)?;
                let last = packed.get(0).wrapping_add(span.wrapping_mul(packed.unit));
                Form::Packed {
                    packed,
                    last: Some(last),
                }
            }
            _ => return Err(Damaged("unknown form of timestamps")),
        };
        Ok(Self { rows, form })
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns `(first, step)` in nanoseconds if the timestamp of each row `i` is `first + i·step`; `None` for a series
    /// that is stored as integers.
    pub fn regular(&self) -> Option<(i64, i64)> {
        match self.form {
            Form::Regular { first, step } => Some((first, step)),
            Form::Packed { .. } => None,
        }
    }

    /// Returns the timestamp of row `row`.
    ///
    /// Unpacks at most one block. In an entropy-coded column, decodes one frame unless `row` is the last row or the
    /// first row of a frame.
    ///
    /// # Panics
    ///
    /// Panics if `row` is out of bounds.
    pub fn get(&self, row: usize) -> i64 {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        match &self.form {
            Form::Regular { first, step } => first.wrapping_add(step.wrapping_mul(row as i64)),
            Form::Packed { last: Some(last), .. } if row == self.rows - 1 => *last,
            Form::Packed { packed, .. } => packed.get(row),
        }
    }

    /// Returns the rows with timestamps in `range`.
    ///
    /// Costs only arithmetic for a regular series. Any other series costs two binary searches over the heads of blocks
    /// or frames, and the decoding of at most two blocks or frames.
    pub fn row_range(&self, range: TimeRange) -> Range<usize> {
        let start = self.lower_bound(range.start);
        start..self.lower_bound(range.end).max(start)
    }

    /// Returns the number of rows before the timestamp `instant`.
    pub fn lower_bound(&self, instant: i64) -> usize {
        match &self.form {
            Form::Regular { first, .. } if instant <= *first => 0,
            Form::Regular { step: 0, .. } => self.rows,
            Form::Regular { first, step } => {
                let elapsed = instant.wrapping_sub(*first) as u64;
                let rows = elapsed.div_ceil(*step as u64);
                usize::try_from(rows).map_or(self.rows, |rows| rows.min(self.rows))
            }
            Form::Packed { last: Some(last), .. } if instant > *last => self.rows,
            Form::Packed { packed, .. } => {
                let unit = packed.unit;
                packed
                    .integers
                    .partition_point(|value| value.wrapping_mul(unit) < instant)
            }
        }
    }

    /// Appends the timestamps of `rows`.
    ///
    /// # Panics
    ///
    /// Panics if `rows` exceed the chunk.
    pub fn decode(&self, rows: Range<usize>, out: &mut Vec<i64>) {
        assert!(rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        match &self.form {
            Form::Regular { first, step } => {
                out.extend(rows.map(|row| first.wrapping_add(step.wrapping_mul(row as i64))));
            }
            Form::Packed { packed, .. } => packed.decode(rows, out),
        }
    }
}

/// View of timestamps stored as integers in a unit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackedTimestamps<'a> {
    unit: i64,
    integers: Integers<'a>,
}

impl<'a> PackedTimestamps<'a> {
    /// Opens the next `count` timestamps.
    pub(crate) fn open(reader: &mut Reader<'a>, count: usize) -> Result<Self, Damaged> {
        let unit = *UNITS
            .get(usize::from(reader.byte()?))
            .ok_or(Damaged("unknown unit of time"))?;
        let integers = Integers::open(reader, count)?;
        Ok(Self { unit, integers })
    }

    fn get(&self, row: usize) -> i64 {
        self.integers.get(row).wrapping_mul(self.unit)
    }

    /// Calls `visit` with each timestamp in order.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(i64)) {
        self.integers
            .for_each(|value| visit(value.wrapping_mul(self.unit)));
    }

    /// Appends the timestamps of `rows`, which must be within the column.
    pub(crate) fn decode(&self, rows: Range<usize>, out: &mut Vec<i64>) {
        out.reserve(rows.len());
        self.integers.for_each_block(rows, |values| {
            out.extend(values.iter().map(|value| value.wrapping_mul(self.unit)));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn encoded(values: &[i64], tightly: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut integers = IntegerEncoder::default();
        integers.allow_coding(tightly);
        TimestampEncoder::default().encode_rising(values, &mut integers, &mut bytes);
        bytes
    }

    fn check(values: &[i64]) -> usize {
        check_bytes(&encoded(values, true), values);
        check_bytes(&encoded(values, false), values)
    }

    fn check_bytes(bytes: &[u8], values: &[i64]) -> usize {
        let mut reader = Reader::new(bytes);
        let view = Timestamps::open(&mut reader, values.len()).expect("it was just written");
        assert_eq!(reader.finish(), Ok(()));
        let mut read = Vec::new();
        view.decode(0..values.len(), &mut read);
        assert_eq!(read, values);
        for row in [0, values.len() / 2, values.len() - 1] {
            assert_eq!(view.get(row), values[row]);
        }
        let near = |value: &i64| [value.saturating_sub(1), *value, value.saturating_add(1)];
        for instant in values.iter().flat_map(near).chain([i64::MIN, i64::MAX]) {
            assert_eq!(
                view.lower_bound(instant),
                values.partition_point(|value| *value < instant)
            );
        }
        bytes.len()
    }

    #[test]
    fn a_regular_series_costs_a_dozen_bytes() {
        let start = 1_767_225_600 * SECOND;
        let values: Vec<i64> = (0..540).map(|row| start + row * 10 * SECOND).collect();
        assert!(check(&values) <= 12);
        assert!(check(&values[..1]) <= 12);
        assert!(check(&[-5 * SECOND, 0]) <= 12);
    }

    #[test]
    fn jitter_and_gaps_stay_small() {
        let start = 1_767_225_600 * SECOND;
        let jitter: Vec<i64> = (0..540)
            .map(|row| start + row * 10 * SECOND + (row * 7 % 13) * 1_000_000)
            .collect();
        assert!(check(&jitter) < 540 * 2);
        let gaps: Vec<i64> = (0..540)
            .filter(|row| row % 50 != 3)
            .map(|row| start + row * 10 * SECOND)
            .collect();
        assert!(check(&gaps) < 150);
    }

    #[test]
    fn tightly_written_gaps_cost_little_more_than_their_news() {
        let start = 1_767_225_600 * SECOND;
        let gaps: Vec<i64> = (0..3_000)
            .filter(|row| row * row % 61 != 3)
            .map(|row| start + row * 10 * SECOND)
            .collect();
        let bytes = encoded(&gaps, true);
        assert_eq!(bytes[0], SPANNED << 4);
        assert!(check_bytes(&bytes, &gaps) * 2 < encoded(&gaps, false).len());
    }

    #[test]
    fn the_ends_of_time_read_back() {
        check(&[i64::MIN + 2, 0, i64::MAX - 1]);
        check(&[i64::MIN + 2, i64::MAX - 1]);
        check(&[i64::MIN + 2]);
    }

    #[test]
    fn a_row_range_is_half_open() {
        let bytes = encoded(&[10, 20, 30, 40], false);
        let view = Timestamps::open(&mut Reader::new(&bytes), 4).expect("it was just written");
        assert_eq!(view.row_range(TimeRange::new(20, 40)), 1..3);
        assert_eq!(view.row_range(TimeRange::new(40, 20)), 3..3);
        assert_eq!(view.row_range(TimeRange::ALL), 0..4);
    }
}
