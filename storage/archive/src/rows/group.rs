//! Rows of a group, column by column.
//!
//! Writing and reading use the same form, which needs no separate allocation per value.

use super::schema::{RowColumnKind, RowSchema};

/// Concatenated texts or byte strings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JoinedBytes {
    data: Vec<u8>,
    ends: Vec<usize>,
}

impl JoinedBytes {
    /// Appends a value.
    pub fn push(&mut self, value: &[u8]) {
        self.data.extend_from_slice(value);
        self.ends.push(self.data.len());
    }

    fn clear(&mut self) {
        self.data.clear();
        self.ends.clear();
    }

    /// Appends the values that are concatenated in `data`. `ends` holds the end offset of each value; the last offset
    /// is the length of `data`.
    pub fn push_joined(&mut self, data: &[u8], ends: &[usize]) {
        let start = self.data.len();
        self.data.extend_from_slice(data);
        self.ends.extend(ends.iter().map(|end| start + end));
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if there are no values.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns a value; `None` beyond the last one.
    pub fn get(&self, at: usize) -> Option<&[u8]> {
        let end = *self.ends.get(at)?;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.data.get(start..end)
    }

    /// Returns the bytes of all values, without gaps.
    pub(super) fn joined(&self) -> &[u8] {
        &self.data
    }

    /// Returns the values.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        let mut start = 0;
        self.ends
            .iter()
            .map(move |end| &self.data[std::mem::replace(&mut start, *end)..*end])
    }
}

/// Values of one column, without slots for rows that have no value.
#[derive(Debug, Clone, PartialEq)]
pub enum GroupValues {
    /// Texts, JSON or bytes.
    Bytes(JoinedBytes),
    /// Doubles.
    Floats(Vec<f64>),
    /// Integers or times. Unsigned integers are stored by their bits.
    Integers(Vec<i64>),
    /// Booleans.
    Booleans(Vec<bool>),
}

/// Column of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupColumn {
    /// Definition level of each row: 1 if the row has a value, otherwise 0. `None` if every row has a value.
    pub levels: Option<Vec<i16>>,
    /// Values of the rows that have a value.
    pub values: GroupValues,
}

impl GroupColumn {
    /// Appends a row with a text or bytes. A column of another type gets a row without a value.
    pub fn push_bytes(&mut self, value: &[u8]) {
        match &mut self.values {
            GroupValues::Bytes(values) => values.push(value),
            _ => return self.push_absent(),
        }
        self.note(1);
    }

    /// Appends a row with an integer or time. A column of another type gets a row without a value.
    pub fn push_integer(&mut self, value: i64) {
        match &mut self.values {
            GroupValues::Integers(values) => values.push(value),
            _ => return self.push_absent(),
        }
        self.note(1);
    }

    /// Appends a row with a double. A column of another type gets a row without a value.
    pub fn push_float(&mut self, value: f64) {
        match &mut self.values {
            GroupValues::Floats(values) => values.push(value),
            _ => return self.push_absent(),
        }
        self.note(1);
    }

    /// Appends a row with a boolean. A column of another type gets a row without a value.
    pub fn push_boolean(&mut self, value: bool) {
        match &mut self.values {
            GroupValues::Booleans(values) => values.push(value),
            _ => return self.push_absent(),
        }
        self.note(1);
    }

    /// Appends the definition levels of rows. A row with level 1 has a value, which the caller must append to the
    /// values. Returns the number of rows with a value.
    pub fn push_levels(&mut self, levels: impl ExactSizeIterator<Item = i16>) -> usize {
        let rows = levels.len();
        let Some(all) = &mut self.levels else {
            return rows;
        };
        let start = all.len();
        all.extend(levels);
        all[start..].iter().filter(|level| **level == 1).count()
    }

    /// Appends a row without a value.
    pub fn push_absent(&mut self) {
        self.note(0);
    }

    fn note(&mut self, level: i16) {
        if let Some(levels) = &mut self.levels {
            levels.push(level);
        }
    }
}

/// Rows of a group, stored column by column.
#[derive(Debug, Clone, PartialEq)]
pub struct RowGroup {
    /// Columns in the order of the schema.
    pub columns: Vec<GroupColumn>,
    /// Number of rows.
    pub rows: usize,
}

impl RowGroup {
    /// Returns a group without rows.
    pub fn new(schema: &RowSchema) -> Self {
        let values = |kind| match kind {
            RowColumnKind::Float => GroupValues::Floats(Vec::new()),
            RowColumnKind::Signed | RowColumnKind::Unsigned | RowColumnKind::Time => {
                GroupValues::Integers(Vec::new())
            }
            RowColumnKind::Boolean => GroupValues::Booleans(Vec::new()),
            RowColumnKind::Text | RowColumnKind::Json | RowColumnKind::Bytes | RowColumnKind::Sorted => {
                GroupValues::Bytes(JoinedBytes::default())
            }
        };
        let column = |of: &super::RowColumn| GroupColumn {
            levels: (!of.required).then(Vec::new),
            values: values(of.kind),
        };
        Self {
            columns: schema.columns().iter().map(column).collect(),
            rows: 0,
        }
    }

    /// Removes all rows, but keeps the allocated memory.
    pub fn clear(&mut self) {
        self.rows = 0;
        for column in &mut self.columns {
            if let Some(levels) = &mut column.levels {
                levels.clear();
            }
            match &mut column.values {
                GroupValues::Bytes(values) => values.clear(),
                GroupValues::Floats(values) => values.clear(),
                GroupValues::Integers(values) => values.clear(),
                GroupValues::Booleans(values) => values.clear(),
            }
        }
    }
}
