//! Protocol-independent decoded form of a write.
//!
//! A decoder turns a request body into a [`PointBatch`]: rows grouped by *shape* (field names and types). Each group is
//! stored in columns, and each row references its timeline by the catalog's [`Ordinal`]. Decoders are independent of
//! the storage: a [`SeriesResolver`] maps the raw bytes of a series key to the ordinal of its timeline. The tags of a
//! known timeline are therefore never parsed again.

use crate::id::Ordinal;
pub use crate::joined::{BytesColumn, Joined, JoinedColumn, StringColumn};
use crate::measurements::Measurements;
use crate::reject::{LineReject, RejectReason};
use crate::value::ValueType;

/// Lookup of timelines by their raw series keys.
pub trait SeriesResolver {
    /// Returns the timeline of `key`. The key has one of two forms: `measurement[,tag=value…]` in line-protocol
    /// escaping, with tags in any order, or the labels of a Prometheus series as encoded by remote write.
    ///
    /// Decoders of other protocols encode their keys in one of these forms. A known key costs a hash and a comparison;
    /// an unknown key is parsed and registered.
    ///
    /// # Errors
    ///
    /// Returns the reason to reject the line if the key is not valid or its timeline cannot be registered.
    fn resolve(&mut self, key: &[u8]) -> Result<Ordinal, RejectReason>;

    /// Guesses the next timeline: the timeline that followed the most recently returned timeline in earlier requests.
    /// Returns this timeline if `is_it` returns true for its key, otherwise `None`.
    ///
    /// With this guess a decoder can compare a known key in place, and need not find the end of the key or assemble the
    /// key first. The default implementation returns `None`.
    fn guess(&mut self, _is_it: impl FnOnce(&[u8]) -> bool) -> Option<Ordinal> {
        None
    }
}

/// Error of an invalid series key, with a message for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SeriesError(pub String);

impl From<SeriesError> for RejectReason {
    fn from(error: SeriesError) -> Self {
        error.0.into()
    }
}

/// Result of decoding one request body: rows and rejects.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PointBatch {
    /// Accepted rows by shape, in the order in which each shape first occurred.
    pub groups: Vec<PointGroup>,
    /// Rejected lines, in line order.
    pub rejects: Vec<LineReject>,
}

impl PointBatch {
    /// Returns the number of rows in all groups.
    pub fn rows(&self) -> usize {
        self.groups.iter().map(PointGroup::rows).sum()
    }

    /// Returns the number of field values in all groups.
    pub fn values(&self) -> usize {
        self.groups
            .iter()
            .map(|group| group.rows() * group.columns.len())
            .sum()
    }
}

/// Rows of one shape. All per-row vectors have the same length; every row has every field.
#[derive(Debug, Clone, PartialEq)]
pub struct PointGroup {
    /// Measurement of each row.
    pub measurements: Measurements,
    /// Unique field names, one per column, in the order of the first line with this shape.
    pub fields: Vec<Box<str>>,
    /// One column per field.
    pub columns: Vec<ColumnData>,
    /// Timeline of each row.
    pub timelines: Vec<Ordinal>,
    /// Timestamp of each row in nanoseconds since the epoch, in the range of [`crate::Timestamp`].
    pub timestamps: Vec<i64>,
    /// Number of the line or element that each row was decoded from; starts at 1.
    pub lines: Vec<u32>,
}

impl PointGroup {
    /// Returns the number of rows in this group.
    pub fn rows(&self) -> usize {
        self.timestamps.len()
    }

    /// Reserves capacity for exactly `rows` more rows. The bytes of strings and histograms are not reserved.
    pub fn reserve(&mut self, rows: usize) {
        self.timelines.reserve_exact(rows);
        self.timestamps.reserve_exact(rows);
        self.lines.reserve_exact(rows);
        self.columns.iter_mut().for_each(|column| column.reserve(rows));
    }
}

/// Accounted bytes of a value, without the content of a string or histogram.
const VALUE_BYTES: usize = 8;

/// Values of one field, without gaps. In a [`PointGroup`], every row has a value. In a run of rows, which the storage
/// reads and writes, only the rows that have the field have a value.
#[derive(Debug, Clone)]
pub enum ColumnData {
    /// See [`ValueType::Float`].
    Float(Vec<f64>),
    /// See [`ValueType::Signed`].
    Signed(Vec<i64>),
    /// See [`ValueType::Unsigned`].
    Unsigned(Vec<u64>),
    /// See [`ValueType::Boolean`].
    Boolean(Vec<bool>),
    /// See [`ValueType::String`].
    String(StringColumn),
    /// See [`ValueType::Histogram`].
    Histogram(BytesColumn),
}

impl ColumnData {
    /// Creates an empty column of the given type.
    pub fn new(value_type: ValueType) -> Self {
        match value_type {
            ValueType::Float => Self::Float(Vec::new()),
            ValueType::Signed => Self::Signed(Vec::new()),
            ValueType::Unsigned => Self::Unsigned(Vec::new()),
            ValueType::Boolean => Self::Boolean(Vec::new()),
            ValueType::String => Self::String(StringColumn::default()),
            ValueType::Histogram => Self::Histogram(BytesColumn::default()),
        }
    }

    /// Returns the type of the values.
    pub const fn value_type(&self) -> ValueType {
        match self {
            Self::Float(_) => ValueType::Float,
            Self::Signed(_) => ValueType::Signed,
            Self::Unsigned(_) => ValueType::Unsigned,
            Self::Boolean(_) => ValueType::Boolean,
            Self::String(_) => ValueType::String,
            Self::Histogram(_) => ValueType::Histogram,
        }
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::Float(values) => values.len(),
            Self::Signed(values) => values.len(),
            Self::Unsigned(values) => values.len(),
            Self::Boolean(values) => values.len(),
            Self::String(values) => values.len(),
            Self::Histogram(values) => values.len(),
        }
    }

    /// Returns true if the column has no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reserves capacity for exactly `rows` more numbers or booleans. Does nothing for strings and histograms.
    fn reserve(&mut self, rows: usize) {
        match self {
            Self::Float(values) => values.reserve_exact(rows),
            Self::Signed(values) => values.reserve_exact(rows),
            Self::Unsigned(values) => values.reserve_exact(rows),
            Self::Boolean(values) => values.reserve_exact(rows),
            Self::String(_) | Self::Histogram(_) => {}
        }
    }

    /// Returns the accounted bytes of the value of row `row`: eight, plus the content of a string or histogram.
    ///
    /// # Panics
    ///
    /// Panics for strings and histograms if there is no such row.
    pub fn bytes_at(&self, row: usize) -> usize {
        VALUE_BYTES
            + match self {
                Self::Float(_) | Self::Signed(_) | Self::Unsigned(_) | Self::Boolean(_) => 0,
                Self::String(values) => values.get(row).len(),
                Self::Histogram(values) => values.get(row).len(),
            }
    }

    /// Returns the sum of [`bytes_at`](Self::bytes_at) over all rows, in constant time.
    pub fn bytes(&self) -> usize {
        VALUE_BYTES * self.len()
            + match self {
                Self::Float(_) | Self::Signed(_) | Self::Unsigned(_) | Self::Boolean(_) => 0,
                Self::String(values) => values.bytes(),
                Self::Histogram(values) => values.bytes(),
            }
    }

    /// Appends the values of another column of the same type.
    ///
    /// # Panics
    ///
    /// Panics if the types differ.
    pub fn append(&mut self, more: &Self) {
        match (self, more) {
            (Self::Float(values), Self::Float(more)) => values.extend_from_slice(more),
            (Self::Signed(values), Self::Signed(more)) => values.extend_from_slice(more),
            (Self::Unsigned(values), Self::Unsigned(more)) => values.extend_from_slice(more),
            (Self::Boolean(values), Self::Boolean(more)) => values.extend_from_slice(more),
            (Self::String(values), Self::String(more)) => more.iter().for_each(|value| values.push(value)),
            (Self::Histogram(values), Self::Histogram(more)) => {
                more.iter().for_each(|value| values.push(value));
            }
            _ => panic!("values of one type are appended"),
        }
    }

    /// Returns the values at the given row indexes, in the order of the indexes.
    ///
    /// # Panics
    ///
    /// Panics if an index is out of range.
    #[must_use]
    pub fn pick(&self, positions: impl Iterator<Item = usize>) -> Self {
        match self {
            Self::Float(values) => Self::Float(positions.map(|at| values[at]).collect()),
            Self::Signed(values) => Self::Signed(positions.map(|at| values[at]).collect()),
            Self::Unsigned(values) => Self::Unsigned(positions.map(|at| values[at]).collect()),
            Self::Boolean(values) => Self::Boolean(positions.map(|at| values[at]).collect()),
            Self::String(values) => Self::String(positions.map(|at| values.get(at)).collect()),
            Self::Histogram(values) => Self::Histogram(positions.map(|at| values.get(at)).collect()),
        }
    }
}

/// Columns are equal if their types are equal and their values have the same bits.
impl PartialEq for ColumnData {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Float(a), Self::Float(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
            }
            (Self::Signed(a), Self::Signed(b)) => a == b,
            (Self::Unsigned(a), Self::Unsigned(b)) => a == b,
            (Self::Boolean(a), Self::Boolean(b)) => a == b,
            (Self::String(a), Self::String(b)) => a == b,
            (Self::Histogram(a), Self::Histogram(b)) => a == b,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_column_are_those_of_its_rows() {
        let columns = [
            (ColumnData::Float(vec![1.5, 2.5]), [8, 8]),
            (ColumnData::Signed(vec![1, 2]), [8, 8]),
            (ColumnData::Unsigned(vec![1, 2]), [8, 8]),
            (ColumnData::Boolean(vec![true, false]), [8, 8]),
            (ColumnData::String(["", "größer"].into_iter().collect()), [8, 16]),
            (
                ColumnData::Histogram([&[7u8; 3][..], &[9; 40]].into_iter().collect()),
                [11, 48],
            ),
        ];
        for (column, bytes) in columns {
            assert_eq!([column.bytes_at(0), column.bytes_at(1)], bytes, "{column:?}");
            assert_eq!(column.bytes(), bytes.iter().sum::<usize>(), "{column:?}");
        }
    }
}
