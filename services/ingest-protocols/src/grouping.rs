//! Grouping of rows by shape while a body is decoded.
//!
//! A *shape* is the measurement together with the names, the order and the types of the fields. The JSON decoders find
//! the group of a point with one hash lookup; the line-protocol decoder usually guesses the group without a lookup.

use std::collections::HashMap;

use tideline_model::{ColumnData, Ordinal, PointGroup, ValueType};

use crate::reject::{Reason, quote, too_large};

/// Size limit of a measurement, tag key, tag value or field name, in bytes.
pub(crate) use crate::series_key::NAME_BYTES_MAX;

/// Field value; a string still borrows from the body.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum FieldValue<'a> {
    Float(f64),
    Signed(i64),
    Unsigned(u64),
    Boolean(bool),
    String(&'a str),
}

impl FieldValue<'_> {
    pub(crate) fn value_type(self) -> ValueType {
        match self {
            Self::Float(_) => ValueType::Float,
            Self::Signed(_) => ValueType::Signed,
            Self::Unsigned(_) => ValueType::Unsigned,
            Self::Boolean(_) => ValueType::Boolean,
            Self::String(_) => ValueType::String,
        }
    }

    /// Appends the value to a column of the same type.
    pub(crate) fn push_to(self, column: &mut ColumnData) {
        match (self, column) {
            (Self::Float(value), ColumnData::Float(values)) => values.push(value),
            (Self::Signed(value), ColumnData::Signed(values)) => values.push(value),
            (Self::Unsigned(value), ColumnData::Unsigned(values)) => values.push(value),
            (Self::Boolean(value), ColumnData::Boolean(values)) => values.push(value),
            (Self::String(value), ColumnData::String(values)) => values.push(value),
            _ => unreachable!("a group is found by the types of its columns"),
        }
    }
}

/// Encoded shape of one point. Equal shapes have equal bytes.
///
/// The measurement comes first, then the type code and name of each field. Each name ends with a NUL byte, which no
/// name can contain. The buffer is reused for all points of a body.
#[derive(Debug, Default)]
pub(crate) struct ShapeKey {
    bytes: Vec<u8>,
}

impl ShapeKey {
    /// Starts a new shape with its unescaped measurement.
    pub(crate) fn start(&mut self, write_measurement: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.clear();
        write_measurement(&mut self.bytes);
        self.bytes.push(0);
    }

    /// Adds a field with its unescaped name.
    pub(crate) fn field(&mut self, value_type: ValueType, write_name: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.push(value_type.code());
        write_name(&mut self.bytes);
        self.bytes.push(0);
    }

    /// Returns the type and name of each field.
    fn fields(&self) -> impl Iterator<Item = (ValueType, &[u8])> {
        self.bytes.split(|byte| *byte == 0).skip(1).filter_map(|field| {
            let (code, name) = field.split_first()?;
            Some((ValueType::from_code(*code)?, name))
        })
    }

    /// Returns the measurement.
    fn measurement(&self) -> &[u8] {
        self.bytes.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

/// All groups of one body.
#[derive(Debug)]
pub(crate) struct Groups {
    pub(crate) all: Vec<PointGroup>,
    by_shape: HashMap<Vec<u8>, usize>,
    limit: usize,
}

impl Groups {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            all: Vec::new(),
            by_shape: HashMap::new(),
            limit,
        }
    }

    /// Returns the group of a shape, or `None` if the shape is new. A known shape has valid names and unique fields.
    pub(crate) fn find(&self, shape: &ShapeKey) -> Option<usize> {
        self.by_shape.get(shape.bytes.as_slice()).copied()
    }

    /// Opens the group of a new shape. The caller makes sure that [`Groups::find`] returned `None` and that the fields
    /// are unique. Returns a reason if the limit of shapes is reached, or if a name is too long or not UTF-8.
    pub(crate) fn open(&mut self, shape: &ShapeKey) -> Result<usize, Reason> {
        if self.all.len() >= self.limit {
            return Err(format!("too many different shapes in one request (limit {})", self.limit).into());
        }
        let measurement = name_text(shape.measurement())?;
        let mut fields = Vec::new();
        let mut columns = Vec::new();
        for (value_type, name) in shape.fields() {
            fields.push(name_text(name)?);
            columns.push(ColumnData::new(value_type));
        }
        let index = self.all.len();
        self.all.push(PointGroup {
            measurements: measurement.into(),
            fields,
            columns,
            timelines: Vec::new(),
            timestamps: Vec::new(),
            lines: Vec::new(),
        });
        self.by_shape.insert(shape.bytes.clone(), index);
        Ok(index)
    }
}

/// Completes a row whose values are already in the columns.
pub(crate) fn finish_row(group: &mut PointGroup, timeline: Ordinal, nanos: i64, line: u32) {
    group.timelines.push(timeline);
    group.timestamps.push(nanos);
    group.lines.push(line);
}

/// Removes the values of an incomplete row.
pub(crate) fn take_back(group: &mut PointGroup) {
    let rows = group.rows();
    for column in &mut group.columns {
        match column {
            ColumnData::Float(values) => values.truncate(rows),
            ColumnData::Signed(values) => values.truncate(rows),
            ColumnData::Unsigned(values) => values.truncate(rows),
            ColumnData::Boolean(values) => values.truncate(rows),
            ColumnData::String(values) => values.truncate(rows),
            ColumnData::Histogram(values) => values.truncate(rows),
        }
    }
}

/// Resolves repeated field names: the last value wins and takes the position of the first value.
///
/// `names` are the unescaped field names. Returns, for each remaining position, the index of the value to use. Returns
/// `None` if all names differ. Cost: one sort.
pub(crate) fn last_of_each_name<N: AsRef<[u8]>>(names: &[N]) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by(|a, b| names[*a].as_ref().cmp(names[*b].as_ref()));
    let same = |a: &usize, b: &usize| names[*a].as_ref() == names[*b].as_ref();
    if !order.windows(2).any(|pair| same(&pair[0], &pair[1])) {
        return None;
    }
    // The sort is stable: within a run of equal names, the first entry is the index of the first value, and the last
    // entry is the index of the last value.
    let mut kept: Vec<(usize, usize)> = order
        .chunk_by(same)
        .filter_map(|run| Some((*run.first()?, *run.last()?)))
        .collect();
    kept.sort_unstable();
    Some(kept.into_iter().map(|(_, last)| last).collect())
}

fn name_text(name: &[u8]) -> Result<Box<str>, Reason> {
    if name.len() > NAME_BYTES_MAX {
        return Err(too_large("name", name.len(), NAME_BYTES_MAX));
    }
    match std::str::from_utf8(name) {
        Ok(text) => Ok(text.into()),
        Err(_) => Err(format!("invalid UTF-8 in name {}", quote(name)).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_a_name_takes_the_first_place() {
        assert_eq!(last_of_each_name(&["a", "b", "c"]), None);
        assert_eq!(last_of_each_name(&["b", "a", "b", "a", "b"]), Some(vec![4, 3]));
    }

    #[test]
    fn shapes_differ_by_type_order_and_name() {
        let mut groups = Groups::new(3);
        let mut shape = ShapeKey::default();
        let mut open = |groups: &mut Groups, fields: &[(ValueType, &str)]| {
            shape.start(|out| out.extend_from_slice(b"m"));
            for (value_type, name) in fields {
                shape.field(*value_type, |out| out.extend_from_slice(name.as_bytes()));
            }
            match groups.find(&shape) {
                Some(group) => Ok(group),
                None => groups.open(&shape),
            }
        };
        assert_eq!(open(&mut groups, &[(ValueType::Float, "a")]), Ok(0));
        assert_eq!(open(&mut groups, &[(ValueType::Signed, "a")]), Ok(1));
        assert_eq!(open(&mut groups, &[(ValueType::Float, "a")]), Ok(0));
        assert_eq!(
            open(&mut groups, &[(ValueType::Float, "a"), (ValueType::Float, "b")]),
            Ok(2)
        );
        assert!(open(&mut groups, &[(ValueType::Float, "b"), (ValueType::Float, "a")]).is_err());
        assert_eq!(groups.all[2].fields, ["a".into(), "b".into()]);
    }
}
