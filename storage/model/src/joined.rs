//! Values of different lengths one after another in one buffer, so that a row costs no allocation.
//!
//! Texts and bytes are the same column over two kinds of buffer. Nothing but whole values is appended to the buffer of
//! texts, so its pieces are texts without another look at them.

use std::fmt::Debug;
use std::ops::Range;

/// Strings one after another.
pub type StringColumn = JoinedColumn<String>;
/// Values of bytes one after another.
pub type BytesColumn = JoinedColumn<Vec<u8>>;

/// A buffer that values are joined in.
pub trait Joined: Debug + Clone + Default + PartialEq + Eq {
    /// A value.
    type Value: ?Sized + Debug;

    /// The value that some bytes are; `None` where they are none.
    fn value_of(bytes: &[u8]) -> Option<&Self::Value>;

    /// The bytes of a value.
    fn bytes_of(value: &Self::Value) -> &[u8];

    /// Appends a value.
    fn append(&mut self, value: &Self::Value);

    /// Bytes appended.
    fn bytes(&self) -> usize;

    /// The value at some bytes, as it was appended.
    fn at(&self, bytes: Range<usize>) -> &Self::Value;

    /// Drops all bytes from `bytes` on, which is where a value begins.
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

/// Values of different lengths, one for each row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JoinedColumn<B> {
    joined: B,
    /// Where each value ends in `joined`.
    ends: Vec<u32>,
}

impl<B: Joined> JoinedColumn<B> {
    /// Appends a value.
    ///
    /// # Panics
    ///
    /// When all values together pass 4 GiB; a request body is bounded far below.
    pub fn push(&mut self, value: &B::Value) {
        self.joined.append(value);
        self.end();
    }

    /// The value of row `row`.
    ///
    /// # Panics
    ///
    /// When there is no such row.
    pub fn get(&self, row: usize) -> &B::Value {
        let start = if row == 0 { 0 } else { self.ends[row - 1] as usize };
        self.joined.at(start..self.ends[row] as usize)
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
        self.joined.bytes()
    }

    /// Drops all values from `rows` on.
    pub fn truncate(&mut self, rows: usize) {
        self.ends.truncate(rows);
        self.joined.cut(self.ends.last().map_or(0, |end| *end as usize));
    }

    /// The values in row order.
    pub fn iter(&self) -> impl Iterator<Item = &B::Value> {
        (0..self.len()).map(|row| self.get(row))
    }

    /// A value ends where the buffer does now.
    fn end(&mut self) {
        let end = u32::try_from(self.joined.bytes()).expect("a column is bounded by its request");
        self.ends.push(end);
    }
}

impl JoinedColumn<Vec<u8>> {
    /// Appends what `write` appends to the bytes that it is given as one value.
    ///
    /// # Panics
    ///
    /// As [`push`](Self::push), or when `write` takes bytes away.
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
