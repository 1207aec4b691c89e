//! The shape that every write ends in, whatever protocol it came by.
//!
//! A decoder turns a body into a [`PointBatch`]: rows grouped by *shape* (measurement, field names and types),
//! each group in columns, each row naming its timeline by the catalog's [`Ordinal`]. The decoder knows no
//! storage: it asks a [`SeriesResolver`] for the ordinal of the raw bytes that name a timeline, and a known
//! timeline never has its tags parsed twice.

use crate::id::Ordinal;
use crate::value::ValueType;

/// Tells a decoder which timeline some raw bytes name.
pub trait SeriesResolver {
    /// The timeline of `key`, which is `measurement[,tag=value…]` in line-protocol escaping, tags in any order, or the
    /// labels of a Prometheus series as remote write sends them.
    ///
    /// A decoder of another protocol writes its names in one of these forms. Costs a hash and a comparison for a key
    /// seen before; an unknown key is parsed and registered.
    fn resolve(&mut self, key: &[u8]) -> Result<Ordinal, SeriesError>;
}

/// A raw key that names no timeline, in words for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SeriesError(pub String);

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
    /// The measurement of all these rows.
    pub measurement: Box<str>,
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
}

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

/// Strings one after another in one buffer, so that a row costs no allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StringColumn {
    text: String,
    /// Where each string ends in `text`.
    ends: Vec<u32>,
}

impl StringColumn {
    /// Appends a string.
    ///
    /// # Panics
    ///
    /// When all strings together pass 4 GiB; a request body is bounded far below.
    pub fn push(&mut self, value: &str) {
        self.text.push_str(value);
        self.ends
            .push(u32::try_from(self.text.len()).expect("a column is bounded by its request"));
    }

    /// The string of row `row`.
    ///
    /// # Panics
    ///
    /// When there is no such row.
    pub fn get(&self, row: usize) -> &str {
        let start = if row == 0 { 0 } else { self.ends[row - 1] as usize };
        &self.text[start..self.ends[row] as usize]
    }

    /// Strings held.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of text held.
    pub fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// Drops all strings from `rows` on.
    pub fn truncate(&mut self, rows: usize) {
        self.ends.truncate(rows);
        self.text
            .truncate(self.ends.last().map_or(0, |end| *end as usize));
    }

    /// The strings in row order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|row| self.get(row))
    }
}

impl<'a> FromIterator<&'a str> for StringColumn {
    fn from_iter<I: IntoIterator<Item = &'a str>>(values: I) -> Self {
        let mut column = Self::default();
        values.into_iter().for_each(|value| column.push(value));
        column
    }
}

/// Values of bytes one after another in one buffer, so that a row costs no allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BytesColumn {
    bytes: Vec<u8>,
    /// Where each value ends in `bytes`.
    ends: Vec<u32>,
}

impl BytesColumn {
    /// Appends a value.
    ///
    /// # Panics
    ///
    /// When all values together pass 4 GiB; a request body is bounded far below.
    pub fn push(&mut self, value: &[u8]) {
        self.push_with(|bytes| bytes.extend_from_slice(value));
    }

    /// Appends what `write` appends to the bytes that it is given as one value.
    ///
    /// # Panics
    ///
    /// As [`push`](Self::push), or when `write` takes bytes away.
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.bytes.len();
        write(&mut self.bytes);
        assert!(before <= self.bytes.len(), "bytes are appended");
        self.ends
            .push(u32::try_from(self.bytes.len()).expect("a column is bounded by its request"));
    }

    /// The value of row `row`.
    ///
    /// # Panics
    ///
    /// When there is no such row.
    pub fn get(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] as usize };
        &self.bytes[start..self.ends[row] as usize]
    }

    /// Values held.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all values.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Drops all values from `rows` on.
    pub fn truncate(&mut self, rows: usize) {
        self.ends.truncate(rows);
        self.bytes
            .truncate(self.ends.last().map_or(0, |end| *end as usize));
    }

    /// The values in row order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|row| self.get(row))
    }
}

impl<'a> FromIterator<&'a [u8]> for BytesColumn {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(values: I) -> Self {
        let mut column = Self::default();
        values.into_iter().for_each(|value| column.push(value));
        column
    }
}

/// A line that was not stored, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineReject {
    /// The line, or the index of the element; the first is 1.
    pub line: u32,
    /// The reason, short and lower case, naming the offending token.
    pub reason: String,
    /// The start of the offending line, for people, cut at a character boundary.
    pub excerpt: String,
}
