//! Columns of a file: schema, names, and the metadata entry that describes them.
//!
//! The names must be unique without regard to case, because some readers ignore case.

use std::sync::Arc;

use hashbrown::HashMap;
use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::errors::ParquetError;
use parquet::schema::types::{Type, TypePtr};
use serde::{Deserialize, Serialize};
use tideline_model::{FieldId, ValueType};

use crate::error::{ArchiveError, Result};

/// Name of the timestamp column.
pub(crate) const TIME: &str = "time";
/// Name of the timeline id column.
pub(crate) const TIMELINE: &str = "timeline";
/// Index of the timestamp column in every file of points.
pub(crate) const TIME_AT: usize = 0;
/// Index of the timeline id column in every file of points.
pub(crate) const TIMELINE_AT: usize = 1;
/// Key of the metadata entry that describes the columns.
pub(crate) const NOTE_COLUMNS: &str = "tideline.columns";
/// Key of the metadata entry with the format number.
pub(crate) const NOTE_FORMAT: &str = "tideline.format";

/// Columns of the rows of a measurement: all tags and fields that may occur, in a fixed order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape {
    /// Tag keys.
    pub tags: Vec<String>,
    /// Fields with their names and types. The types are in order of first use.
    pub fields: Vec<ShapeField>,
}

/// Field of a [`Shape`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeField {
    /// Number of the field in the table.
    pub id: FieldId,
    /// Name of the field.
    pub name: String,
    /// Types of its values in order of first use; at least one.
    pub types: Vec<ValueType>,
}

/// Description of a column in the metadata of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ColumnNote {
    /// Name of the column.
    pub(crate) column: String,
    /// Tag key, if the column holds a tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tag: Option<String>,
    /// Name of the field, if the column holds field values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<String>,
    /// Name of the type of the field values ([`ValueType::name`]).
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
}

/// Columns of a file of one measurement.
#[derive(Debug)]
pub(crate) struct Columns {
    pub(crate) schema: TypePtr,
    pub(crate) notes: Vec<ColumnNote>,
    /// Column index of each tag.
    pub(crate) tags: HashMap<String, usize>,
    /// Column index of each field and type.
    pub(crate) fields: HashMap<(FieldId, ValueType), usize>,
    /// Value type of each column; `None` for timestamps, ids and tags.
    pub(crate) types: Vec<Option<ValueType>>,
}

impl Columns {
    /// Creates the columns of a shape.
    ///
    /// A column has the name of its tag key or field; columns of further types of a field are named `name:type`. A name
    /// that is empty, or equal to an earlier one when case is ignored, gets the prefix `tag.` or `field.`, and if
    /// necessary a number as suffix.
    pub(crate) fn of(shape: &Shape) -> Result<Self> {
        let mut names = Names::default();
        let mut notes = Vec::new();
        let mut types = Vec::new();
        let mut push = |note: ColumnNote, of: Option<ValueType>| {
            notes.push(note);
            types.push(of);
            notes.len() - 1
        };
        for name in [TIME, TIMELINE] {
            let column = names.take(name, "");
            push(
                ColumnNote {
                    column,
                    tag: None,
                    field: None,
                    kind: None,
                },
                None,
            );
        }
        let mut tags = HashMap::new();
        for key in &shape.tags {
            let column = names.take(key, "tag.");
            let note = ColumnNote {
                column,
                tag: Some(key.clone()),
                field: None,
                kind: None,
            };
            tags.insert(key.clone(), push(note, None));
        }
        let mut fields = HashMap::new();
        for field in &shape.fields {
            for (nth, of) in field.types.iter().enumerate() {
                let plain = match nth {
                    0 => field.name.clone(),
                    _ => format!("{}:{}", field.name, of.name()),
                };
                let note = ColumnNote {
                    column: names.take(&plain, "field."),
                    tag: None,
                    field: Some(field.name.clone()),
                    kind: Some(of.name().to_owned()),
                };
                fields.insert((field.id, *of), push(note, Some(*of)));
            }
        }
        let columns = notes.iter().zip(&types).map(|(note, of)| leaf(note, *of));
        let columns = columns
            .collect::<std::result::Result<Vec<TypePtr>, _>>()
            .map_err(format)?;
        Ok(Self {
            schema: root(columns)?,
            notes,
            tags,
            fields,
            types,
        })
    }

    /// Returns true if there are columns for all of these tags, and for all columns of a run.
    pub(crate) fn hold(&self, tags: &[(String, String)], run: &tideline_chunk::Run) -> bool {
        tags.iter().all(|(key, _)| self.tags.contains_key(key))
            && run.columns.iter().all(|column| {
                self.fields
                    .contains_key(&(column.field, column.values.value_type()))
            })
    }
}

/// Column names in use, in lower case, because some readers ignore case.
#[derive(Default)]
pub(crate) struct Names(std::collections::HashSet<String>);

impl Names {
    /// Returns `name`. If it is empty or in use, returns it with the prefix `instead`, and if necessary with a number
    /// as suffix.
    pub(crate) fn take(&mut self, name: &str, instead: &str) -> String {
        let mut candidate = name.to_owned();
        let mut number = 1;
        while candidate.is_empty() || !self.0.insert(candidate.to_lowercase()) {
            candidate = match number {
                1 => format!("{instead}{name}"),
                _ => format!("{instead}{name}.{number}"),
            };
            number += 1;
        }
        candidate
    }
}

fn leaf(note: &ColumnNote, of: Option<ValueType>) -> std::result::Result<TypePtr, ParquetError> {
    match of {
        Some(of) => value(&note.column, of),
        None if note.tag.is_some() => text(&note.column, Repetition::OPTIONAL),
        None if note.column == TIME => time(TIME),
        None => id(TIMELINE),
    }
}

/// Creates a column of timestamps.
pub(crate) fn time(name: &str) -> std::result::Result<TypePtr, ParquetError> {
    let of = LogicalType::timestamp(true, TimeUnit::NANOS);
    Type::primitive_type_builder(name, Physical::INT64)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(Some(of))
        .build()
        .map(Arc::new)
}

/// Creates a column of timeline ids.
pub(crate) fn id(name: &str) -> std::result::Result<TypePtr, ParquetError> {
    Type::primitive_type_builder(name, Physical::FIXED_LEN_BYTE_ARRAY)
        .with_repetition(Repetition::REQUIRED)
        .with_length(16)
        .build()
        .map(Arc::new)
}

/// Creates a column of strings.
pub(crate) fn text(name: &str, repetition: Repetition) -> std::result::Result<TypePtr, ParquetError> {
    Type::primitive_type_builder(name, Physical::BYTE_ARRAY)
        .with_repetition(repetition)
        .with_logical_type(Some(LogicalType::String))
        .build()
        .map(Arc::new)
}

/// Creates a column of required integers.
pub(crate) fn integer(name: &str) -> std::result::Result<TypePtr, ParquetError> {
    Type::primitive_type_builder(name, Physical::INT64)
        .with_repetition(Repetition::REQUIRED)
        .build()
        .map(Arc::new)
}

/// Creates a column of optional values.
pub(crate) fn value(name: &str, of: ValueType) -> std::result::Result<TypePtr, ParquetError> {
    let build = |physical| Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
    match of {
        ValueType::Float => build(Physical::DOUBLE).build().map(Arc::new),
        ValueType::Signed => build(Physical::INT64).build().map(Arc::new),
        ValueType::Unsigned => build(Physical::INT64)
            .with_logical_type(Some(LogicalType::integer(64, false)))
            .build()
            .map(Arc::new),
        ValueType::Boolean => build(Physical::BOOLEAN).build().map(Arc::new),
        ValueType::String => text(name, Repetition::OPTIONAL),
        ValueType::Histogram => build(Physical::BYTE_ARRAY).build().map(Arc::new),
    }
}

/// Creates a column of maps from string to string.
pub(crate) fn map(name: &str) -> Result<TypePtr> {
    let pair = Type::group_type_builder("key_value")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![
            text("key", Repetition::REQUIRED).map_err(format)?,
            text("value", Repetition::REQUIRED).map_err(format)?,
        ])
        .build()
        .map_err(format)?;
    Type::group_type_builder(name)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(Some(LogicalType::Map))
        .with_converted_type(ConvertedType::MAP)
        .with_fields(vec![Arc::new(pair)])
        .build()
        .map(Arc::new)
        .map_err(format)
}

/// Creates a schema with the given columns.
pub(crate) fn root(columns: Vec<TypePtr>) -> Result<TypePtr> {
    Type::group_type_builder("rows")
        .with_fields(columns)
        .build()
        .map(Arc::new)
        .map_err(format)
}

pub(crate) fn format(error: ParquetError) -> ArchiveError {
    ArchiveError::format("the columns of a file", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_clash() {
        let shape = Shape {
            tags: vec!["host".into(), "Time".into(), "usage".into()],
            fields: vec![
                ShapeField {
                    id: FieldId(1),
                    name: "usage".into(),
                    types: vec![ValueType::Float, ValueType::Signed],
                },
                ShapeField {
                    id: FieldId(2),
                    name: "HOST".into(),
                    types: vec![ValueType::String],
                },
                ShapeField {
                    id: FieldId(3),
                    name: "usage:integer".into(),
                    types: vec![ValueType::Boolean],
                },
            ],
        };
        let columns = Columns::of(&shape).expect("valid");
        let names: Vec<&str> = columns.notes.iter().map(|note| note.column.as_str()).collect();
        assert_eq!(
            names,
            [
                "time",
                "timeline",
                "host",
                "tag.Time",
                "usage",
                "field.usage",
                "usage:integer",
                "field.HOST",
                "field.usage:integer"
            ]
        );
        assert_eq!(columns.fields[&(FieldId(1), ValueType::Signed)], 6);
    }
}
