//! Columns of variable-length values, concatenated in one buffer so that a row costs no allocation.
//!
//! Strings and bytes share one column type over two kinds of buffer. Only whole values are appended to a string buffer,
//! so its values need no further UTF-8 validation.

use std::fmt::Debug;
use std::ops::Range;

/// Column of strings.
pub type StringColumn = JoinedColumn<String>;
/// Column of byte strings.
pub type BytesColumn = JoinedColumn<Vec<u8>>;

/// Buffer of concatenated values.
pub trait Joined: Debug + Clone + Default + PartialEq + Eq {
    /// Type of a single value.
    type Value: ?Sized + Debug;

    /// Returns the value that consists of `bytes`; `None` if the bytes are not valid for the type.
    fn value_of(bytes: &[u8]) -> Option<&Self::Value>;

    /// Returns the bytes of a value.
    fn bytes_of(value: &Self::Value) -> &[u8];

    /// Appends a value.
    fn append(&mut self, value: &Self::Value);

    /// Returns the total bytes of all values.
    fn bytes(&self) -> usize;

    /// Returns the value in a byte range, which must be the range of an appended value.
    fn at(&self, bytes: Range<usize>) -> &Self::Value;

    /// Drops all bytes from offset `bytes` on. The offset must be the start of a value.
    fn cut(&mut self, bytes: usize);
}

impl Joined for String {
    type Value = str;

    fn value_of(bytes: &[u8]) -> Option<&str> {
        std::str::from_utf8(bytes).ok()
    }

    fn bytes_of(value: &str) -> &[u8] {
        value.as_bytes()
    }

    fn append(&mut self, value: &str) {
        self.push_str(value);
    }

    fn bytes(&self) -> usize {
        self.len()
    }

    fn at(&self, bytes: Range<usize>) -> &str {
        &self[bytes]
    }

    fn cut(&mut self, bytes: usize) {
        self.truncate(bytes);
    }
}

impl Joined for Vec<u8> {
    type Value = [u8];

    fn value_of(bytes: &[u8]) -> Option<&[u8]> {
        Some(bytes)
    }

    fn bytes_of(value: &[u8]) -> &[u8] {
        value
    }

    fn append(&mut self, value: &[u8]) {
        self.extend_from_slice(value);
    }

    fn bytes(&self) -> usize {
        self.len()
    }

    fn at(&self, bytes: Range<usize>) -> &[u8] {
        &self[bytes]
    }

    fn cut(&mut self, bytes: usize) {
        self.truncate(bytes);
    }
}

/// Column of variable-length values, one per row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JoinedColumn<B> {
    joined: B,
    /// End offset of each value in `joined`.
    ends: Vec<u32>,
}

impl<B: Joined> JoinedColumn<B> {
    /// Appends a value.
    ///
    /// # Panics
    ///
    /// Panics if the values exceed 4 GiB in total. The limits on request bodies are far below 4 GiB.
    pub fn push(&mut self, value: &B::Value) {
        self.joined.append(value);
        self.end();
    }

    /// Returns the value of a row.
    ///
    /// # Panics
    ///
    /// Panics if there is no such row.
    pub fn get(&self, row: usize) -> &B::Value {
        let start = if row == 0 { 0 } else { self.ends[row - 1] as usize };
        self.joined.at(start..self.ends[row] as usize)
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if the column has no values.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the total bytes of all values.
    pub fn bytes(&self) -> usize {
        self.joined.bytes()
    }

    /// Keeps the values of the first `rows` rows and drops the others.
    pub fn truncate(&mut self, rows: usize) {
        self.ends.truncate(rows);
        self.joined.cut(self.ends.last().map_or(0, |end| *end as usize));
    }

    /// Returns an iterator over the values in row order.
    pub fn iter(&self) -> impl Iterator<Item = &B::Value> {
        (0..self.len()).map(|row| self.get(row))
    }

    /// Records the current end of the buffer as the end of a value.
    fn end(&mut self) {
        let end = u32::try_from(self.joined.bytes()).expect("a column is bounded by its request");
        self.ends.push(end);
    }
}

impl JoinedColumn<Vec<u8>> {
    /// Appends one value, which `write` appends to the buffer passed to it.
    ///
    /// # Panics
    ///
    /// Panics like [`push`](Self::push), or if `write` shortens the buffer.
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.joined.len();
        write(&mut self.joined);
        assert!(before <= self.joined.len(), "bytes are appended");
        self.end();
    }
}

impl<'a, B: Joined> FromIterator<&'a B::Value> for JoinedColumn<B>
where
    B::Value: 'a,
{
    fn from_iter<I: IntoIterator<Item = &'a B::Value>>(values: I) -> Self {
        let mut column = Self::default();
        values.into_iter().for_each(|value| column.push(value));
        column
    }
}
