//! The shape that every write ends in, whatever protocol it came by.
//!
//! A decoder turns a body into a [`PointBatch`]: rows grouped by *shape* (field names and types),
//! each group in columns, each row naming its timeline by the catalog's [`Ordinal`]. The decoder knows no
//! storage: it asks a [`SeriesResolver`] for the ordinal of the raw bytes that name a timeline, and a known
//! timeline never has its tags parsed twice.

use crate::id::Ordinal;
pub use crate::joined::{BytesColumn, Joined, JoinedColumn, StringColumn};
use crate::measurements::Measurements;
use crate::reject::{LineReject, RejectReason};
use crate::value::ValueType;

/// Tells a decoder which timeline some raw bytes name.
pub trait SeriesResolver {
    /// The timeline of `key`, which is `measurement[,tag=value…]` in line-protocol escaping, tags in any order, or the
    /// labels of a Prometheus series as remote write sends them.
    ///
    /// A decoder of another protocol writes its names in one of these forms. Costs a hash and a comparison for a key
    /// seen before; an unknown key is parsed and registered.
    fn resolve(&mut self, key: &[u8]) -> Result<Ordinal, RejectReason>;

    /// The timeline that came after the last one before, where `is_it` says of its key that it is the one that is wanted.
    /// So a decoder need not find out where a known key ends, nor put one together, before it is compared.
    fn guess(&mut self, _is_it: impl FnOnce(&[u8]) -> bool) -> Option<Ordinal> {
        None
    }
}

/// A raw key that names no timeline, in words for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SeriesError(pub String);

impl From<SeriesError> for RejectReason {
    fn from(error: SeriesError) -> Self {
        error.0.into()
    }
}

/// What a decoder made of one request body.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PointBatch {
    /// The good rows, by shape, in the order in which each shape was first seen.
    pub groups: Vec<PointGroup>,
    /// What was wrong with the others, in line order.
    pub rejects: Vec<LineReject>,
}

impl PointBatch {
    /// Rows in all groups.
    pub fn rows(&self) -> usize {
        self.groups.iter().map(PointGroup::rows).sum()
    }

    /// Field values in all groups.
    pub fn values(&self) -> usize {
        self.groups
            .iter()
            .map(|group| group.rows() * group.columns.len())
            .sum()
    }
}

/// Rows of one shape. All vectors over rows have one length; every row has every field.
#[derive(Debug, Clone, PartialEq)]
pub struct PointGroup {
    /// The measurement of each row.
    pub measurements: Measurements,
    /// Field names, unique, in the order of the first line that had them; one for each column.
    pub fields: Vec<Box<str>>,
    /// One column a field.
    pub columns: Vec<ColumnData>,
    /// The timeline of each row.
    pub timelines: Vec<Ordinal>,
    /// Nanoseconds since the epoch of each row, in the range of [`crate::Timestamp`].
    pub timestamps: Vec<i64>,
    /// The line, or the index of the element, that each row came from; the first is 1.
    pub lines: Vec<u32>,
}

impl PointGroup {
    /// Rows in this group.
    pub fn rows(&self) -> usize {
        self.timestamps.len()
    }

    /// Makes room for just so many more rows; what texts and histograms take is not known.
    pub fn reserve(&mut self, rows: usize) {
        self.timelines.reserve_exact(rows);
        self.timestamps.reserve_exact(rows);
        self.lines.reserve_exact(rows);
        self.columns.iter_mut().for_each(|column| column.reserve(rows));
    }
}

/// What a number or a truth counts as, and what a text or histogram counts as beside its bytes.
const VALUE_BYTES: usize = 8;

/// The values of one field over the rows of a group or a run: dense, one for each row.
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
    /// An empty column of a type.
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

    /// The type of its values.
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

    /// Values held.
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

    /// Whether it holds no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes room for just so many more numbers or truths.
    fn reserve(&mut self, rows: usize) {
        match self {
            Self::Float(values) => values.reserve_exact(rows),
            Self::Signed(values) => values.reserve_exact(rows),
            Self::Unsigned(values) => values.reserve_exact(rows),
            Self::Boolean(values) => values.reserve_exact(rows),
            Self::String(_) | Self::Histogram(_) => {}
        }
    }

    /// Bytes of the value of row `row`: those of a text or histogram, and eight for each value. Beyond the last row panics.
    pub fn bytes_at(&self, row: usize) -> usize {
        VALUE_BYTES
            + match self {
                Self::Float(_) | Self::Signed(_) | Self::Unsigned(_) | Self::Boolean(_) => 0,
                Self::String(values) => values.get(row).len(),
                Self::Histogram(values) => values.get(row).len(),
            }
    }

    /// What [`bytes_at`](Self::bytes_at) comes to over all rows; costs no look at the values.
    pub fn bytes(&self) -> usize {
        VALUE_BYTES * self.len()
            + match self {
                Self::Float(_) | Self::Signed(_) | Self::Unsigned(_) | Self::Boolean(_) => 0,
                Self::String(values) => values.bytes(),
                Self::Histogram(values) => values.bytes(),
            }
    }

    /// Appends the values of another column of its type.
    ///
    /// # Panics
    ///
    /// When it has another type.
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

    /// The values at some places, in their order.
    ///
    /// # Panics
    ///
    /// When there is no such place.
    #[must_use]
    pub fn pick(&self, places: impl Iterator<Item = usize>) -> Self {
        match self {
            Self::Float(values) => Self::Float(places.map(|at| values[at]).collect()),
            Self::Signed(values) => Self::Signed(places.map(|at| values[at]).collect()),
            Self::Unsigned(values) => Self::Unsigned(places.map(|at| values[at]).collect()),
            Self::Boolean(values) => Self::Boolean(places.map(|at| values[at]).collect()),
            Self::String(values) => Self::String(places.map(|at| values.get(at)).collect()),
            Self::Histogram(values) => Self::Histogram(places.map(|at| values.get(at)).collect()),
        }
    }
}

/// Columns are equal when type and bits are.
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
