//! Open rows of one shape of one timeline, encoded as variable-length numbers.
//!
//! A row consists of the second difference of its timestamp (one byte at a steady cadence), the difference of its
//! sequence, and its values: integers as varints (a gauge takes one or two bytes), floats as a byte count followed
//! by their significant bytes, booleans as one byte, strings and histograms as length and bytes. A value takes about
//! two bytes instead of the eight bytes of a machine word, and encoding takes about as long as copying words.

use std::sync::Arc;

use tideline_chunk::varint::{self, unzigzag, zigzag};
use tideline_chunk::{DeltaGroup, Presence, Run, RunColumn, SequenceSpan};
use tideline_model::{ColumnData, SequenceNumber};

use crate::schema::Shape;

/// Minimum allocation in bytes for rows.
const BYTES_MIN: usize = 16;

/// Open rows of one shape. Every live timeline has at least one instance, so an instance must be small.
#[derive(Debug)]
pub(super) struct OpenRows {
    shape: Arc<Shape>,
    /// Encoded rows, followed by spare capacity.
    bytes: Box<[u8]>,
    timestamp: i64,
    /// Difference between the last two timestamps; zero with fewer than two rows.
    step: i64,
    sequence: u64,
    /// Bytes used by rows.
    used: u32,
    rows: u16,
    /// True if the rows are in time order with distinct timestamps, as a run requires.
    is_sorted: bool,
}

/// Decoded open rows of one shape in insertion order.
#[derive(Debug, Default)]
pub(super) struct UnpackedRows {
    pub(super) run: Run,
    /// Sequence of each row.
    pub(super) sequences: Vec<u64>,
    /// True if the run is sorted.
    pub(super) is_sorted: bool,
}

impl OpenRows {
    pub(super) fn new(shape: &Arc<Shape>) -> Self {
        Self {
            shape: Arc::clone(shape),
            bytes: Box::default(),
            timestamp: 0,
            step: 0,
            sequence: 0,
            used: 0,
            rows: 0,
            is_sorted: true,
        }
    }

    /// Returns true if the rows are of this shape.
    pub(super) fn is_of(&self, shape: &Arc<Shape>) -> bool {
        Arc::ptr_eq(&self.shape, shape)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Returns the number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows.into()
    }

    /// Returns the byte that the next row will overwrite first; 0 if there is no spare capacity.
    pub(super) fn next_byte(&self) -> u8 {
        self.bytes.get(self.used as usize).copied().unwrap_or(0)
    }

    /// Returns the memory of the rows in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Removes the rows and frees their memory.
    pub(super) fn clear(&mut self) {
        *self = Self::new(&self.shape);
    }

    /// Returns the lowest and the highest sequence of the rows; `None` without rows.
    pub(super) fn sequences(&self) -> Option<SequenceSpan> {
        (self.rows > 0).then(|| {
            // The first row stores timestamp and sequence in full.
            let mut reader = Reader(&self.bytes);
            let _timestamp = reader.number();
            SequenceSpan {
                lowest: SequenceNumber(reader.number()),
                highest: SequenceNumber(self.sequence),
            }
        })
    }

    /// Adds a row of a group. Returns the additional memory in bytes. Sequences must not decrease. `scratch` is a
    /// reusable buffer.
    pub(super) fn append(
        &mut self,
        group: &DeltaGroup,
        row: usize,
        sequence: SequenceNumber,
        scratch: &mut Vec<u8>,
    ) -> usize {
        let before = self.bytes();
        let timestamp = group.timestamps[row];
        let step = timestamp.wrapping_sub(self.timestamp);
        let out = scratch;
        out.clear();
        varint::put(zigzag(step.wrapping_sub(self.step)), out);
        varint::put(sequence.0.wrapping_sub(self.sequence), out);
        for column in &group.columns {
            match column {
                ColumnData::Float(values) => put_float(values[row], out),
                ColumnData::Signed(values) => varint::put(zigzag(values[row]), out),
                ColumnData::Unsigned(values) => varint::put(values[row], out),
                ColumnData::Boolean(values) => out.push(u8::from(values[row])),
                ColumnData::String(values) => put_bytes(values.get(row).as_bytes(), out),
                ColumnData::Histogram(values) => put_bytes(values.get(row), out),
            }
        }
        if self.rows > 0 {
            self.is_sorted &= timestamp > self.timestamp;
            self.step = step;
        }
        self.rows += 1;
        self.timestamp = timestamp;
        self.sequence = sequence.0;
        self.push(out);
        self.bytes() - before
    }

    fn push(&mut self, row: &[u8]) {
        let start = self.used as usize;
        let end = start + row.len();
        if end > self.bytes.len() {
            let wanted = end.max(start + start / 2).max(BYTES_MIN);
            let wanted = wanted.next_multiple_of(BYTES_MIN);
            let mut grown = std::mem::take(&mut self.bytes).into_vec();
            grown.reserve_exact(wanted - grown.len());
            grown.resize(wanted, 0);
            self.bytes = grown.into_boxed_slice();
        }
        self.bytes[start..end].copy_from_slice(row);
        self.used = u32::try_from(end).expect("the open rows of a timeline are closed long before 4 GiB");
    }

    /// Decodes the rows.
    pub(super) fn to_rows(&self) -> UnpackedRows {
        let rows = self.rows();
        let (mut timestamps, mut sequences) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        let types = self.shape.fields.iter().map(|(_, value_type)| *value_type);
        let mut columns: Vec<ColumnData> = types.map(ColumnData::new).collect();
        let (mut timestamp, mut step, mut sequence) = (0i64, 0i64, 0u64);
        let mut reader = Reader(&self.bytes);
        for row in 0..rows {
            let next = step.wrapping_add(unzigzag(reader.number()));
            step = if row > 0 { next } else { 0 };
            timestamp = timestamp.wrapping_add(next);
            sequence = sequence.wrapping_add(reader.number());
            timestamps.push(timestamp);
            sequences.push(sequence);
            columns.iter_mut().for_each(|column| reader.value(column));
        }
        let fields = self.shape.fields.iter().map(|(field, _)| *field);
        let mut columns: Vec<RunColumn> = fields
            .zip(columns)
            .map(|(field, values)| RunColumn {
                field,
                presence: Presence::All,
                values,
            })
            .collect();
        columns.sort_unstable_by_key(|column| (column.field, column.values.value_type().code()));
        UnpackedRows {
            run: Run { timestamps, columns },
            sequences,
            is_sorted: self.is_sorted,
        }
    }
}

/// Decoder of the format of [`OpenRows::append`]. The bytes never leave this process, so they are valid.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().expect("open rows are whole");
        self.0 = rest;
        *first
    }

    fn bytes(&mut self, count: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn number(&mut self) -> u64 {
        varint::take(&mut self.0).expect("open rows are whole")
    }

    fn value(&mut self, column: &mut ColumnData) {
        match column {
            ColumnData::Float(values) => {
                let count = usize::from(self.byte());
                let mut bits = [0; 8];
                bits[..count].copy_from_slice(self.bytes(count));
                let unused = 64 - 8 * count as u32;
                let bits = u64::from_le_bytes(bits).checked_shl(unused).unwrap_or(0);
                values.push(f64::from_bits(bits));
            }
            ColumnData::Signed(values) => values.push(unzigzag(self.number())),
            ColumnData::Unsigned(values) => values.push(self.number()),
            ColumnData::Boolean(values) => values.push(self.byte() != 0),
            ColumnData::String(values) => {
                let length = self.number() as usize;
                let text = std::str::from_utf8(self.bytes(length)).expect("text went in");
                values.push(text);
            }
            ColumnData::Histogram(values) => {
                let length = self.number() as usize;
                values.push(self.bytes(length));
            }
        }
    }
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    varint::put(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends the bits of a double without the lowest zero bytes: the number of remaining bytes (0 to 8), then these bytes
/// in little-endian order.
fn put_float(value: f64, out: &mut Vec<u8>) {
    let bits = value.to_bits();
    let count = 8 - bits.trailing_zeros().min(64) as usize / 8;
    out.push(count as u8);
    let significant = bits.checked_shr(64 - 8 * count as u32).unwrap_or(0);
    out.extend_from_slice(&significant.to_le_bytes()[..count]);
}

#[cfg(test)]
mod tests {
    use tideline_model::FieldId;
    use tideline_model::batch::StringColumn;

    use super::*;

    #[test]
    fn rows_come_back_bit_for_bit() {
        let floats = [
            0.0,
            -0.0,
            1.5,
            73.2,
            f64::MIN_POSITIVE,
            f64::INFINITY,
            f64::from_bits(0x7ff8_dead_beef_0001),
        ];
        let rows = floats.len();
        let group = DeltaGroup {
            measurements: "m".into(),
            fields: ["a", "b", "c", "d", "e"].map(Into::into).into(),
            columns: vec![
                ColumnData::Float(floats.to_vec()),
                ColumnData::Signed(vec![0, -1, 63, -64, i64::MIN, i64::MAX, 300]),
                ColumnData::Unsigned(vec![0, 127, 128, u64::MAX, 1 << 35, 7, 7]),
                ColumnData::Boolean(vec![true, false, true, true, false, false, true]),
                ColumnData::String(
                    ["", "x", "żółw", "", "long text", "y", ""]
                        .into_iter()
                        .collect::<StringColumn>(),
                ),
            ],
            timelines: vec![0; rows],
            timestamps: vec![5, 9, i64::MAX - 1, i64::MIN + 2, 0, 1, 1],
        };
        let types = group.columns.iter().map(ColumnData::value_type);
        let shape = Arc::new(Shape {
            fields: (0..).map(FieldId).zip(types).collect(),
        });
        let mut open = OpenRows::new(&shape);
        let (mut bytes, mut scratch) = (0, Vec::new());
        for row in 0..rows {
            let sequence = SequenceNumber(100 + row as u64 * 1_000);
            bytes += open.append(&group, row, sequence, &mut scratch);
        }
        assert_eq!(
            open.sequences(),
            Some(SequenceSpan {
                lowest: SequenceNumber(100),
                highest: SequenceNumber(6_100),
            })
        );
        assert_eq!(bytes, open.bytes());
        let back = open.to_rows();
        assert_eq!(back.run.timestamps, group.timestamps);
        assert_eq!(
            back.sequences,
            (0..rows as u64).map(|row| 100 + row * 1_000).collect::<Vec<_>>()
        );
        assert!(!back.is_sorted);
        for (column, (read, written)) in back.run.columns.iter().zip(&group.columns).enumerate() {
            match (&read.values, written) {
                (ColumnData::Float(read), ColumnData::Float(written)) => {
                    let bits =
                        |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(read), bits(written));
                }
                (read, written) => assert_eq!(read, written, "column {column}"),
            }
        }
        open.clear();
        assert!(open.is_empty() && open.bytes() == 0 && open.sequences().is_none());
    }

    #[test]
    fn a_number_at_a_steady_cadence_takes_three_bytes() {
        let rows = 100;
        let group = DeltaGroup {
            measurements: "m".into(),
            fields: ["value"].map(Into::into).into(),
            columns: vec![ColumnData::Signed((0..rows).map(|row| row % 50).collect())],
            timelines: vec![0; rows as usize],
            timestamps: (0..rows)
                .map(|row| 1_700_000_000_000_000_000 + row * 10_000_000_000)
                .collect(),
        };
        let shape = Arc::new(Shape {
            fields: vec![(FieldId(0), group.columns[0].value_type())].into(),
        });
        let (mut open, mut scratch) = (OpenRows::new(&shape), Vec::new());
        for row in 0..rows as usize {
            open.append(&group, row, SequenceNumber(7 + 100 * row as u64), &mut scratch);
        }
        // The first row stores two full numbers, and the second row stores the first step.
        assert!((open.used as usize) < 3 * group.timestamps.len() + 24, "{open:?}");
        assert_eq!(open.to_rows().run.timestamps, group.timestamps);
        assert!(size_of::<OpenRows>() <= 56);
    }
}
