//! Groups as JSON, lines of JSON, CSV, Arrow and Parquet.
//!
//! In a tabular format, there is one column per key, the column `rows`, and one column per function, such as
//! `sum(total)`. Decimals are text in these formats, because the number of their decimal places differs between groups.

use std::io::Write;

use tideline_engine::model::{ColumnType, ValueType};
use tideline_engine::rows::CellValue;
use tideline_openapi::row::RowIntegers;
use tideline_query::ValueRef;
use tideline_results::ResultFormat;
use tideline_results::columnar::{Cell, ColumnType as TableType, ColumnarWriter};
use tideline_results::text::put_csv_text;

use super::state::Overflow;
use super::{AggregateShape, Group, Groups};
use crate::error::{Result, RowsError};
use crate::tabular::text_of;
use crate::value::{write_plain, write_text};

/// Name of the column with the number of rows of a group.
const ROWS: &str = "rows";
/// Size of the collected text at which it is written, in bytes.
const WRITTEN_BYTES: usize = 64 << 10;

/// Writer of the groups of an aggregation.
#[derive(Debug)]
pub struct AggregateWriter<'a> {
    shape: &'a AggregateShape,
    groups: &'a Groups,
    format: ResultFormat,
    integers: RowIntegers,
}

impl<'a> AggregateWriter<'a> {
    /// Creates a writer. `integers` is the form of integers in JSON.
    ///
    /// # Errors
    ///
    /// [`RowsError::Invalid`] if a table would have two columns of the same name.
    pub fn new(
        shape: &'a AggregateShape,
        groups: &'a Groups,
        format: ResultFormat,
        integers: RowIntegers,
    ) -> Result<Self> {
        let is_table = !matches!(format, ResultFormat::Json | ResultFormat::Ndjson);
        if is_table && shape.keys.iter().any(|(name, _)| name == ROWS) {
            return Err(RowsError::Invalid(format!(
                "by: a table has the number of rows in the column {ROWS:?}; use application/json or application/x-ndjson"
            )));
        }
        Ok(Self {
            shape,
            groups,
            format,
            integers,
        })
    }

    /// Writes all groups. In JSON, they are written as the elements of a list, without its brackets. `notes` are the
    /// metadata of a Parquet file.
    ///
    /// # Errors
    ///
    /// [`RowsError::Output`] if writing fails.
    pub fn write<W: Write + Send>(&self, mut out: W, notes: &[(&str, String)]) -> Result<()> {
        match self.format {
            ResultFormat::Json => self.write_json(&mut out, b","),
            ResultFormat::Ndjson => self.write_json(&mut out, b"\n"),
            ResultFormat::Csv => self.write_csv(&mut out),
            ResultFormat::Columnar(form) => {
                let names = self.names();
                let types = self.types();
                let columns: Vec<(String, TableType)> = names.into_iter().zip(types).collect();
                let mut writer = ColumnarWriter::new(out, form, &columns)?;
                for group in &self.groups.groups {
                    let values = self.values(group)?;
                    let texts: Vec<Option<String>> = values
                        .iter()
                        .map(|value| match value {
                            Some(value @ (CellValue::Decimal(_) | CellValue::Json(_))) => {
                                Some(text_of(value))
                            }
                            _ => None,
                        })
                        .collect();
                    writer.row(
                        values
                            .iter()
                            .zip(&texts)
                            .map(|(value, text)| cell_of(value, text.as_deref())),
                    )?;
                }
                Ok(writer.end(notes)?)
            }
        }
    }

    fn write_json(&self, out: &mut impl Write, separator: &[u8]) -> Result<()> {
        let mut json = Vec::new();
        for (number, group) in self.groups.groups.iter().enumerate() {
            if number > 0 && separator == b"," {
                json.extend_from_slice(separator);
            }
            self.group_json(group, &mut json)?;
            if separator == b"\n" {
                json.extend_from_slice(separator);
            }
            if json.len() >= WRITTEN_BYTES {
                out.write_all(&json)?;
                json.clear();
            }
        }
        Ok(out.write_all(&json)?)
    }

    fn group_json(&self, group: &Group, json: &mut Vec<u8>) -> Result<()> {
        let put = |value: &Option<CellValue<'_>>, json: &mut Vec<u8>| match value {
            None => json.extend_from_slice(b"null"),
            Some(value) => write_plain(value, self.integers, json),
        };
        json.extend_from_slice(b"{\"key\":{");
        for (number, ((name, _), value)) in self.shape.keys.iter().zip(&group.key).enumerate() {
            if number > 0 {
                json.push(b',');
            }
            write_text(name, json);
            json.push(b':');
            put(value, json);
        }
        json.extend_from_slice(format!("}},\"rows\":{}", group.rows).as_bytes());
        if !self.shape.metrics.is_empty() {
            let results = self.results(group)?;
            let mut results = results.iter();
            json.extend_from_slice(b",\"metrics\":{");
            for (number, (column, functions)) in self.shape.metrics.iter().enumerate() {
                if number > 0 {
                    json.push(b',');
                }
                write_text(column, json);
                json.extend_from_slice(b":{");
                for (number, ((function, _), result)) in functions.iter().zip(results.by_ref()).enumerate() {
                    if number > 0 {
                        json.push(b',');
                    }
                    write_text(function, json);
                    json.push(b':');
                    put(result, json);
                }
                json.push(b'}');
            }
            json.push(b'}');
        }
        json.push(b'}');
        Ok(())
    }

    fn write_csv(&self, out: &mut impl Write) -> Result<()> {
        let mut text = Vec::new();
        for (number, name) in self.names().iter().enumerate() {
            if number > 0 {
                text.push(b',');
            }
            put_csv_text(name, &mut text);
        }
        text.extend_from_slice(b"\r\n");
        for group in &self.groups.groups {
            for (number, value) in self.values(group)?.iter().enumerate() {
                if number > 0 {
                    text.push(b',');
                }
                if let Some(value) = value {
                    put_csv_text(&text_of(value), &mut text);
                }
            }
            text.extend_from_slice(b"\r\n");
            if text.len() >= WRITTEN_BYTES {
                out.write_all(&text)?;
                text.clear();
            }
        }
        Ok(out.write_all(&text)?)
    }

    /// Returns the names of the columns in tabular formats.
    fn names(&self) -> Vec<String> {
        let keys = self.shape.keys.iter().map(|(name, _)| name.clone());
        let mut names: Vec<String> = keys.chain([ROWS.to_owned()]).collect();
        for (column, functions) in &self.shape.metrics {
            names.extend(
                functions
                    .iter()
                    .map(|(function, _)| format!("{function}({column})")),
            );
        }
        names
    }

    fn types(&self) -> Vec<TableType> {
        let keys = self.shape.keys.iter().map(|(_, column_type)| *column_type);
        let functions = self.shape.metrics.iter().flat_map(|(_, functions)| functions);
        let functions = functions.map(|(_, column_type)| *column_type);
        keys.chain([ColumnType::U64])
            .chain(functions)
            .map(table_type)
            .collect()
    }

    /// Returns the values of a group in the order of [`names`](Self::names).
    fn values(&self, group: &Group) -> Result<Vec<Option<CellValue<'static>>>> {
        let mut values = group.key.clone();
        values.push(Some(CellValue::U64(group.rows)));
        values.extend(self.results(group)?);
        Ok(values)
    }

    /// Returns the results of all functions in a group.
    fn results(&self, group: &Group) -> Result<Vec<Option<CellValue<'static>>>> {
        let mut states = group.states.iter();
        let mut results = Vec::with_capacity(group.states.len());
        for (column, functions) in &self.shape.metrics {
            for ((function, column_type), state) in functions.iter().zip(states.by_ref()) {
                let result = state.result(*column_type);
                results.push(result.map_err(|Overflow| overflow(column, function))?);
            }
        }
        Ok(results)
    }
}

/// Creates the error of a result that does not fit its type.
pub(super) fn overflow(column: &str, function: &dyn std::fmt::Display) -> RowsError {
    RowsError::Invalid(format!(
        "{function}({column}) of a group does not fit its type; group by more columns, or request the mean and the count \
         of the values"
    ))
}

impl Groups {
    /// Returns the values of all groups, in the order of the groups: the values of the keys, the number of rows, and
    /// the results of the functions, metric by metric.
    ///
    /// # Errors
    ///
    /// An item is [`RowsError::Invalid`] if the result of a function does not fit its type.
    pub fn values<'g>(
        &'g self,
        shape: &'g AggregateShape,
    ) -> impl Iterator<Item = Result<Vec<Option<CellValue<'static>>>>> + 'g {
        let writer = AggregateWriter {
            shape,
            groups: self,
            format: ResultFormat::Json,
            integers: RowIntegers::default(),
        };
        self.groups.iter().map(move |group| writer.values(group))
    }
}

fn table_type(column_type: ColumnType) -> TableType {
    match column_type {
        ColumnType::I64 => TableType::Value(ValueType::Signed),
        ColumnType::U64 => TableType::Value(ValueType::Unsigned),
        ColumnType::F64 => TableType::Value(ValueType::Float),
        ColumnType::Bool => TableType::Value(ValueType::Boolean),
        ColumnType::Binary => TableType::Binary,
        ColumnType::Timestamp => TableType::Time,
        ColumnType::String | ColumnType::Decimal | ColumnType::Json => TableType::Text,
    }
}

fn cell_of<'v>(value: &'v Option<CellValue<'_>>, text: Option<&'v str>) -> Cell<'v> {
    match (value, text) {
        (_, Some(text)) => Cell::Value(ValueRef::String(text)),
        (None, None) => Cell::Null,
        (Some(value), None) => match value {
            CellValue::String(text) | CellValue::Json(text) => Cell::Value(ValueRef::String(text)),
            CellValue::I64(number) => Cell::Value(ValueRef::Signed(*number)),
            CellValue::U64(number) => Cell::Value(ValueRef::Unsigned(*number)),
            CellValue::F64(number) => Cell::Value(ValueRef::Float(*number)),
            CellValue::Bool(value) => Cell::Value(ValueRef::Boolean(*value)),
            CellValue::Binary(bytes) => Cell::Binary(bytes),
            CellValue::Timestamp(time) => Cell::Time(time.nanos()),
            // Decimals are passed as `text`, and no aggregate returns large values.
            CellValue::Decimal(_) | CellValue::Large(_) => Cell::Null,
        },
    }
}
