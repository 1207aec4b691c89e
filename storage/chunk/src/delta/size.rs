//! Upper bound of the encoded size of a delta, computed without encoding it.
//!
//! Each column is packed into the fewest bits that the differences of its values need. The first bound assumes the
//! widest values of each type, so no value is read. For nearly all deltas, the first bound is below the limit. If it
//! exceeds the limit, a second bound is computed from the minimum and maximum of the values. The actual size of typical
//! deltas is a fraction of either bound.

use tideline_model::{ColumnData, Measurements};

use super::{CONTENT_AT, DELTA_VALUES_MAX, Delta, DeltaGroup};
use crate::bitpack::{BLOCK, bits, packed_bytes};
use crate::floats::DECIMAL_WIDE_BYTES;

/// Maximum size of a 64-bit varint in bytes.
const VARINT: usize = 10;
/// Maximum size of kind and length of a section in bytes.
const SECTION: usize = 1 + VARINT;
/// Maximum size in bytes of the fixed parts of an encoded integer column: the encoding byte, and the headers of its
/// three arrays of widths, steps and first values of blocks.
const COLUMN: usize = 1 + 3 * (VARINT + 1 + 1);
/// Maximum size in bytes of width, step and first value of a block.
const BLOCK_HEAD: usize = 1 + 8 + 8;
/// Maximum size in bytes of the header of a float column (encoding byte, number of exceptions) or of a text column
/// (encoding byte, number of entries, header of the end offsets).
const FORM: usize = 1 + 3 * VARINT;

/// Source of the bit widths that a bound assumes for the differences of values.
#[derive(Debug, Clone, Copy)]
enum Widths {
    /// Width of the type; no value is read.
    OfTypes,
    /// Width of the actual values.
    OfValues,
}

impl Widths {
    fn of(self, values: impl Iterator<Item = i64>) -> usize {
        match self {
            Self::OfTypes => 64,
            Self::OfValues => {
                let spread = |(low, high): (i64, i64), value: i64| (low.min(value), high.max(value));
                let (low, high) = values.fold((i64::MAX, i64::MIN), spread);
                bits(high.wrapping_sub(low) as u64)
            }
        }
    }
}

impl Delta {
    /// Returns true if the encoded size is at most `bytes`, according to an upper bound. The result may be false
    /// although the delta would fit. The result is always false if the delta has more than [`DELTA_VALUES_MAX`] values.
    ///
    /// Costs a few instructions per column and per new timeline. If the first bound exceeds `bytes`, the second bound
    /// costs about half a nanosecond per value.
    pub fn fits_into(&self, bytes: usize) -> bool {
        let mut values = 0usize;
        for group in &self.groups {
            values = values.saturating_add(group.rows().saturating_mul(group.columns.len() + 2));
        }
        let is_within = |widths| self.encoded_bytes_max(widths) <= bytes;
        values <= DELTA_VALUES_MAX && (is_within(Widths::OfTypes) || is_within(Widths::OfValues))
    }

    /// Returns an upper bound of the encoded size in bytes.
    fn encoded_bytes_max(&self, widths: Widths) -> usize {
        let request = self.request.as_ref();
        let request = request.map_or(0, |request| SECTION + request.key.len() + request.outcome.len());
        let new = &self.new_timelines;
        let identities: usize = new.iter().map(|timeline| timeline.identity.len()).sum();
        let numbers = integers(new.len(), 32) + integers(new.len(), 64);
        let new = SECTION + ids(new.len()) + numbers + identities;
        let timelines = SECTION + ids(self.timelines.len());
        let groups = self.groups.iter();
        let groups: usize = groups
            .map(|group| group_bytes(group, self.timelines.len(), widths))
            .sum();
        let delete = self.delete.as_ref();
        let delete = delete.map_or(0, |delete| SECTION + 1 + 2 * VARINT + ids(delete.timelines.len()));
        CONTENT_AT + size_of_val(&self.table.0) + request + new + timelines + groups + delete
    }
}

fn group_bytes(group: &DeltaGroup, timelines: usize, widths: Widths) -> usize {
    let rows = group.rows();
    let columns = group.fields.iter().zip(&group.columns);
    let columns: usize = columns
        .map(|(field, column)| VARINT + field.len() + 1 + column_bytes(column, widths))
        .sum();
    let name_indexes = integers(rows, bits(timelines as u64));
    let timestamps = 1 + integers(rows, widths.of(group.timestamps.iter().copied()));
    SECTION + 2 * VARINT + names_bytes(&group.measurements, rows) + name_indexes + timestamps + columns
}

fn names_bytes(measurements: &Measurements, rows: usize) -> usize {
    let names = measurements.names();
    let texts: usize = names.iter().map(|name| VARINT + name.len()).sum();
    match names.len() {
        0 | 1 => texts,
        several => VARINT + texts + integers(rows, bits(several as u64)),
    }
}

fn column_bytes(column: &ColumnData, widths: Widths) -> usize {
    let rows = column.len();
    match column {
        ColumnData::Boolean(_) => integers(rows, 1),
        ColumnData::Signed(values) => integers(rows, widths.of(values.iter().copied())),
        ColumnData::Unsigned(values) => integers(rows, widths.of(values.iter().map(|value| *value as i64))),
        // If decimals take more than `DECIMAL_WIDE_BYTES` per value plus 16 bytes, the encoder also tries the bits of
        // the doubles and keeps the smaller result. The larger of both sizes is therefore an upper bound.
        ColumnData::Float(values) => {
            let width = widths.of(values.iter().map(|value| value.to_bits() as i64));
            FORM + 16 + integers(rows, width.max(8 * DECIMAL_WIDE_BYTES))
        }
        // The bound covers the bytes of all values, and 64 bits per value. Without a dictionary, the 64 bits hold the
        // end offset of the value. With a dictionary, at most half of the values are entries. The 64 bits then hold the
        // 32-bit index of the value and, averaged over all values, the 64-bit end offsets of the entries.
        ColumnData::String(_) | ColumnData::Histogram(_) => {
            FORM + integers(rows, 64) + column.bytes() - rows * size_of::<u64>()
        }
    }
}

/// Returns an upper bound for a column of ids: count, repeat flags, and both halves of each id.
fn ids(count: usize) -> usize {
    VARINT + integers(count, 1) + 16 * count
}

/// Returns an upper bound for a column of integers whose differences are less than 2^`width`.
fn integers(count: usize, width: usize) -> usize {
    COLUMN + count.div_ceil(BLOCK) * BLOCK_HEAD + packed_bytes(count, width)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tideline_model::TimelineId;

    use super::*;

    fn column() -> impl Strategy<Value = Vec<u64>> {
        let value = prop_oneof![
            any::<u64>(),
            0u64..100,
            any::<f64>().prop_map(f64::to_bits),
            (0i32..1_000_000).prop_map(|value| (f64::from(value) / 1_000.0).to_bits()),
        ];
        prop_oneof![
            prop::collection::vec(any::<u64>(), 1..600),
            prop::collection::vec(value, 1..600),
        ]
    }

    fn delta_of(values: &[u64]) -> Delta {
        let texts = || {
            values
                .iter()
                .map(|value| format!("{:x}", value % (1 << (value % 60))))
        };
        let floats = values.iter().map(|value| f64::from_bits(*value));
        let decimals = values.iter().map(|value| *value as i64 as f64 / 1e3);
        let timelines = values.len().min(300) as u32;
        let columns = vec![
            ColumnData::Float(floats.collect()),
            ColumnData::Float(decimals.collect()),
            ColumnData::Signed(values.iter().map(|value| *value as i64).collect()),
            ColumnData::Unsigned(values.to_vec()),
            ColumnData::Boolean(values.iter().map(|value| value % 2 == 0).collect()),
            ColumnData::String(texts().collect::<Vec<_>>().iter().map(String::as_str).collect()),
            ColumnData::Histogram(
                values
                    .iter()
                    .map(|value| value.to_le_bytes())
                    .collect::<Vec<_>>()
                    .iter()
                    .map(|bytes| &bytes[..])
                    .collect(),
            ),
        ];
        Delta {
            timelines: (0..timelines)
                .map(|n| TimelineId(u128::from(n).to_le_bytes()))
                .collect(),
            groups: vec![DeltaGroup {
                measurements: "cpu".into(),
                fields: (0..columns.len()).map(|n| format!("f{n}").into()).collect(),
                columns,
                timelines: values
                    .iter()
                    .map(|value| (*value % u64::from(timelines)) as u32)
                    .collect(),
                timestamps: values.iter().map(|value| *value as i64).collect(),
            }],
            ..Delta::default()
        }
    }

    proptest! {
        #![proptest_config(tideline_testkit::proptest_config(150))]

        #[test]
        fn nothing_takes_more_than_its_bound(values in column()) {
            let delta = delta_of(&values);
            let mut encoded = Vec::new();
            delta.encode(&mut encoded).expect("it is well formed");
            let [of_types, of_values] =
                [Widths::OfTypes, Widths::OfValues].map(|widths| delta.encoded_bytes_max(widths));
            prop_assert!(encoded.len() <= of_values, "{} of {of_values}", encoded.len());
            prop_assert!(of_values <= of_types);
            prop_assert!(delta.fits_into(of_values) && !delta.fits_into(of_values - 1));
            for column in &delta.groups[0].columns {
                let mut encoded = Vec::new();
                crate::column::ColumnEncoder::default().encode(column, &mut encoded);
                prop_assert!(encoded.len() <= column_bytes(column, Widths::OfValues), "{column:?}");
            }
        }
    }

    #[test]
    fn a_large_delta_of_noise_is_close_to_its_bound() {
        let noise = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) ^ (n << 40);
        let delta = delta_of(&(1..20_000).map(noise).collect::<Vec<_>>());
        let mut encoded = Vec::new();
        delta.encode(&mut encoded).expect("it is well formed");
        let bound = delta.encoded_bytes_max(Widths::OfTypes);
        assert!(
            encoded.len() <= bound && encoded.len() * 3 > bound * 2,
            "{} of {bound}",
            encoded.len()
        );
    }

    #[test]
    fn values_that_hardly_differ_fit_where_those_of_their_types_may_not() {
        let rows = 1_000_000;
        let delta = Delta {
            timelines: vec![TimelineId([0; 16])],
            groups: vec![DeltaGroup {
                measurements: "cpu".into(),
                fields: vec!["value".into()],
                columns: vec![ColumnData::Float(vec![0.5; rows])],
                timelines: vec![0; rows],
                timestamps: vec![1_700_000_000_000_000_000; rows],
            }],
            ..Delta::default()
        };
        assert!(delta.encoded_bytes_max(Widths::OfTypes) > 8 << 20);
        assert!(delta.fits_into(8 << 20));
    }
}
