//! Mapping of the columns of a file to columns of the table, and conversion of values to JSON.
//!
//! A file column with the name of a key column is mapped to this key column. A file column whose name ends with `*` is
//! a JSON column of an export: each value is an object, and its members are columns. All other file columns are mapped
//! to declared or undeclared columns with the same name.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;
use tideline_engine::WideTable;
use tideline_engine::model::ColumnType;
use tideline_openapi::row::{Members, RowImage, RowWrite};

use super::{ImportSettings, Record, operation};
use crate::value;

/// Table to which the columns of a file are mapped, with the settings of the mapping.
pub(super) struct FileColumns<'t> {
    table: &'t WideTable,
    map: &'t BTreeMap<String, Option<String>>,
    is_update: bool,
}

/// Destination of a column of a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Target {
    /// Key column, and its type.
    Key(String, ColumnType),
    /// Column, and its declared type.
    Column(String, Option<ColumnType>),
    /// Object whose members are columns.
    Object,
    /// The column is ignored.
    Ignored,
}

/// Value of a column of a file.
pub(super) enum FileValue<'v> {
    /// Text of a file without JSON types, such as a cell of CSV. It is parsed according to the type of its column.
    Text(&'v str),
    /// JSON value.
    Json(String),
    /// JSON value with its type, because the type does not follow from the JSON alone.
    Typed(ColumnType, String),
    /// Value that no column can hold; holds the reason.
    Unsupported(String),
}

/// Record that is being built.
pub(super) struct RecordBuilder<'c> {
    columns: &'c FileColumns<'c>,
    key: Members,
    values: Members,
    bytes: usize,
    refused: Option<String>,
}

impl<'t> FileColumns<'t> {
    pub(super) fn new(table: &'t WideTable, settings: &'t ImportSettings) -> Self {
        Self {
            table,
            map: &settings.map,
            is_update: settings.is_update,
        }
    }

    /// Returns the destination of a column.
    pub(super) fn target(&self, name: &str) -> Target {
        let name = match self.map.get(name) {
            Some(None) => return Target::Ignored,
            Some(Some(to)) => to.as_str(),
            None => name,
        };
        let layout = self.table.layout();
        if let Ok(number) = layout.logical_number(name) {
            return Target::Key(name.to_owned(), value::type_of(layout.logical()[number].kind));
        }
        let (_, declared) = self.table.column(name);
        match name.ends_with('*') && declared.is_none() {
            true => Target::Object,
            false => Target::Column(name.to_owned(), declared),
        }
    }

    /// Begins a new record.
    pub(super) fn record(&'t self) -> RecordBuilder<'t> {
        RecordBuilder {
            columns: self,
            key: Members::default(),
            values: Members::default(),
            bytes: 0,
            refused: None,
        }
    }

    /// Returns the write of a row with this key and these columns.
    pub(super) fn write(&self, key: Members, columns: Members) -> RowWrite {
        RowWrite {
            op: operation(self.is_update),
            key,
            columns,
            clear: Vec::new(),
            increment: BTreeMap::new(),
            remove_versions: Vec::new(),
            condition: None,
            image: RowImage::None,
        }
    }
}

impl RecordBuilder<'_> {
    /// Adds a value to the record.
    pub(super) fn add(&mut self, target: &Target, value: FileValue<'_>) {
        if let Err(reason) = self.try_add(target, value) {
            self.refused.get_or_insert(reason);
        }
    }

    fn try_add(&mut self, target: &Target, value: FileValue<'_>) -> Result<(), String> {
        match target {
            Target::Ignored => Ok(()),
            Target::Key(name, column_type) => {
                let json = json_of(value, Some(*column_type))
                    .map_err(|reason| format!("key column {name:?} has the type {column_type}; {reason}"))?;
                self.bytes += name.len() + json.get().len();
                push(&mut self.key, name, &json)
            }
            Target::Column(name, declared) => {
                let json =
                    json_of(value, *declared).map_err(|reason| format!("column {name:?}: {reason}"))?;
                self.bytes += name.len() + json.get().len();
                push(&mut self.values, name, &json)
            }
            Target::Object => {
                let text = match &value {
                    FileValue::Text(text) => (*text).to_owned(),
                    FileValue::Json(json) | FileValue::Typed(_, json) => json.clone(),
                    FileValue::Unsupported(reason) => return Err(reason.clone()),
                };
                let members: Members = serde_json::from_str(&text).map_err(|error| {
                    format!("a column whose name ends with `*` holds no JSON object: {error}")
                })?;
                for (name, json) in members.iter() {
                    self.bytes += name.len() + json.len();
                    let json: &RawValue = serde_json::from_str(json).map_err(|error| error.to_string())?;
                    push(&mut self.values, name, json)?;
                }
                Ok(())
            }
        }
    }

    /// Returns the record and the size of its values in bytes.
    pub(super) fn end(self) -> (Record, usize) {
        let record = match self.refused {
            Some(reason) => Err(reason),
            None => Ok(self.columns.write(self.key, self.values)),
        };
        (record, self.bytes)
    }
}

fn push(members: &mut Members, name: &str, json: &RawValue) -> Result<(), String> {
    if members.get(name).is_some() {
        return Err(format!(
            "column {name:?} has two values in the record; map one of the columns of the file to another name"
        ));
    }
    members.push(name, json);
    Ok(())
}

/// Returns a value in the JSON form that writes accept for a column of the declared type.
fn json_of(value: FileValue<'_>, declared: Option<ColumnType>) -> Result<Box<RawValue>, String> {
    let json = match value {
        FileValue::Text(text) => json_of_text(text, declared)?,
        FileValue::Json(json) => json,
        FileValue::Unsupported(reason) => return Err(reason),
        FileValue::Typed(column_type, json) => match declared {
            Some(ColumnType::String) if column_type == ColumnType::Binary => text_of_bytes(&json)?,
            Some(_) => json,
            None => format!("{{\"type\":\"{column_type}\",\"value\":{json}}}"),
        },
    };
    RawValue::from_string(json).map_err(|error| format!("found a value that is not JSON: {error}"))
}

/// Converts bytes, given as base64 in a JSON string, to a JSON string with UTF-8 text. This is needed because some
/// tools store texts in binary columns.
fn text_of_bytes(json: &str) -> Result<String, String> {
    let bytes = STANDARD.decode(json.trim_matches('"')).unwrap_or_default();
    let text = String::from_utf8(bytes)
        .map_err(|_| "the column has the type string; found bytes that are not UTF-8")?;
    serde_json::to_string(&text).map_err(|error| error.to_string())
}

/// Converts a text to JSON according to the declared type of its column. A text of an undeclared column remains a text.
fn json_of_text(text: &str, declared: Option<ColumnType>) -> Result<String, String> {
    let quoted = || {
        let mut json = Vec::new();
        value::write_text(text, &mut json);
        String::from_utf8(json).unwrap_or_default()
    };
    let trimmed = text.trim();
    let is_integer = || {
        let digits = trimmed.strip_prefix('-').unwrap_or(trimmed);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    Ok(match declared {
        None | Some(ColumnType::String | ColumnType::Binary) => quoted(),
        Some(ColumnType::I64 | ColumnType::U64 | ColumnType::Decimal) => format!("\"{}\"", escaped(trimmed)),
        Some(ColumnType::F64) => match trimmed.parse::<f64>() {
            Ok(number) if number.is_finite() => {
                serde_json::to_string(&number).map_err(|error| error.to_string())?
            }
            _ => quoted(),
        },
        Some(ColumnType::Bool) => match trimmed.to_ascii_lowercase().as_str() {
            "true" => "true".to_owned(),
            "false" => "false".to_owned(),
            _ => quoted(),
        },
        Some(ColumnType::Timestamp) if is_integer() => match trimmed.parse::<i64>() {
            Ok(nanos) => nanos.to_string(),
            Err(_) => quoted(),
        },
        Some(ColumnType::Timestamp) => {
            let time = value::utc(trimmed);
            format!("\"{}\"", escaped(time.as_deref().unwrap_or(trimmed)))
        }
        Some(ColumnType::Json) => match serde_json::from_str::<&RawValue>(trimmed) {
            Ok(json) => json.get().to_owned(),
            Err(error) => {
                return Err(format!(
                    "the column has the type json; found invalid JSON: {error}"
                ));
            }
        },
    })
}

/// Returns a text escaped as the content of a JSON string, without the quotes.
fn escaped(text: &str) -> String {
    let json = serde_json::to_string(text).unwrap_or_default();
    json.get(1..json.len().saturating_sub(1))
        .unwrap_or_default()
        .to_owned()
}
