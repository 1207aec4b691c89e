//! Rows as a table with fixed columns: CSV, Arrow streams and Parquet files.
//!
//! These formats have one schema for all rows. [`TableColumns`] determines the schema from the declared columns and the
//! request before the first row is read. [`TabularWriter`] writes rows one by one, so memory is bounded by one batch.
//!
//! The columns are the key columns, then one column per requested name, and one JSON column per requested prefix, with
//! the name of the prefix, such as `seen_*`. A JSON column contains an object. The members of the object are the
//! columns of the row that begin with the prefix and have no separate column. Without a list of columns, the table has
//! all declared columns and the prefix `*`, so no column of a row is omitted.
//!
//! The JSON column also holds values that do not have the declared type of their column, and the descriptions of large
//! values. If such a value has no matching JSON column, the row is refused with an error.

use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hashbrown::HashMap;
use tideline_engine::WideTable;
use tideline_engine::key_codec::tuple::Decimal;
use tideline_engine::model::{ColumnType, ValueType};
use tideline_engine::rows::{CellValue, StoredRow};
use tideline_openapi::row::RowIntegers;
use tideline_query::ValueRef;
use tideline_results::columnar::{Cell, ColumnType as TableType, ColumnarForm, ColumnarWriter};
use tideline_results::put_csv_text;

use crate::error::{Result, RowsError};
use crate::large::write_large;
use crate::value;

/// Maximum number of columns of a table.
pub const TABLE_COLUMNS_MAX: usize = 1_000;
/// Exclusive upper bound of the magnitude of a decimal in a decimal column of 38 digits.
const DECIMAL_LIMIT: u128 = 10_u128.pow(38);

/// Columns of a table of rows.
#[derive(Debug)]
pub struct TableColumns {
    columns: Vec<TableColumn>,
    /// Position of each column, by name.
    numbers: HashMap<String, usize>,
    /// Positions and prefixes of the JSON columns.
    prefixes: Vec<(usize, String)>,
    decimal_scale: Option<u8>,
}

/// Column of a table of rows.
#[derive(Debug)]
struct TableColumn {
    name: String,
    /// Type of the values; `None` for a column that is not declared. Its values can have any type and are converted to
    /// text.
    declared: Option<ColumnType>,
    form: Form,
}

/// Origin of the values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Key,
    Column,
    Prefix,
}

impl TableColumns {
    /// Determines the columns. `columns` are names, and prefixes that end with `*`; `None` selects all declared
    /// columns, and one JSON column for all others. With `decimal_scale`, decimals are numbers of 38 digits with this
    /// number of digits after the decimal point. Without it, they are text.
    ///
    /// # Errors
    ///
    /// [`RowsError::OverLimit`] for more than [`TABLE_COLUMNS_MAX`] columns, and [`RowsError::Invalid`] for a scale
    /// above 38, for a column that is requested twice, and for a requested key column.
    pub fn new(table: &WideTable, columns: Option<&[String]>, decimal_scale: Option<u8>) -> Result<Self> {
        if let Some(scale) = decimal_scale.filter(|scale| *scale > 38) {
            return Err(RowsError::Invalid(format!(
                "decimal_scale of {scale} is over the limit of 38 digits"
            )));
        }
        let mut this = Self {
            columns: Vec::new(),
            numbers: HashMap::new(),
            prefixes: Vec::new(),
            decimal_scale,
        };
        for column in table.layout().logical() {
            this.add(&column.name, Some(value::type_of(column.kind)), Form::Key)?;
        }
        match columns {
            None => {
                for column in table.settings().columns.iter().filter(|it| !it.is_pattern()) {
                    this.add(&column.name, Some(column.column_type), Form::Column)?;
                }
                this.add("*", None, Form::Prefix)?;
            }
            Some(names) => {
                for name in names {
                    match name.strip_suffix('*') {
                        Some(_) => this.add(name, None, Form::Prefix)?,
                        None => this.add(name, table.column(name).1, Form::Column)?,
                    }
                }
            }
        }
        Ok(this)
    }

    fn add(&mut self, name: &str, declared: Option<ColumnType>, form: Form) -> Result<()> {
        let number = self.columns.len();
        if number >= TABLE_COLUMNS_MAX {
            return Err(RowsError::over(
                "number of columns of a table",
                TABLE_COLUMNS_MAX as u64,
                number as u64 + 1,
            ));
        }
        if self.numbers.insert(name.to_owned(), number).is_some() {
            return Err(RowsError::Invalid(format!(
                "column {name:?} occurs twice; this format needs each column once, and always contains the key columns"
            )));
        }
        if form == Form::Prefix {
            let prefix = name.strip_suffix('*').unwrap_or(name);
            self.prefixes.push((number, prefix.to_owned()));
        }
        self.columns.push(TableColumn {
            name: name.to_owned(),
            declared,
            form,
        });
        Ok(())
    }

    /// Returns the names of the columns in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|column| column.name.as_str())
    }

    fn table_type(&self, column: &TableColumn) -> TableType {
        match column.declared {
            Some(ColumnType::I64) => TableType::Value(ValueType::Signed),
            Some(ColumnType::U64) => TableType::Value(ValueType::Unsigned),
            Some(ColumnType::F64) => TableType::Value(ValueType::Float),
            Some(ColumnType::Bool) => TableType::Value(ValueType::Boolean),
            Some(ColumnType::Binary) => TableType::Binary,
            Some(ColumnType::Timestamp) => TableType::Time,
            // The scale is at most 38, which was checked before.
            Some(ColumnType::Decimal) => match self.decimal_scale {
                Some(scale) => TableType::Decimal(scale as i8),
                None => TableType::Text,
            },
            Some(ColumnType::String | ColumnType::Json) | None => TableType::Text,
        }
    }

    /// Returns the position of the column that stores a value of the row column `name`; `None` if the row column was
    /// not requested.
    fn number_of(&self, name: &str, value: &CellValue<'_>) -> Result<Option<usize>> {
        let own = self
            .numbers
            .get(name)
            .copied()
            .filter(|number| self.columns[*number].form == Form::Column);
        let fits = |number: &usize| {
            let declared = self.columns[*number].declared;
            let is_large = matches!(value, CellValue::Large(_));
            declared.is_none_or(|declared| declared == value.column_type() && !is_large)
        };
        if let Some(number) = own.filter(fits) {
            return Ok(Some(number));
        }
        let mut prefixes = self.prefixes.iter();
        let prefix = prefixes.find(|(_, prefix)| name.starts_with(prefix.as_str()));
        match (prefix, own) {
            (Some((number, _)), _) => Ok(Some(*number)),
            (None, None) => Ok(None),
            (None, Some(_)) if matches!(value, CellValue::Large(_)) => Err(RowsError::Invalid(format!(
                "column {name:?}: a row holds a large value; add {:?} to the columns, which returns its size and \
                 checksum in a JSON column",
                format!("{name}*")
            ))),
            (None, Some(number)) => {
                let declared = self.columns[number].declared.map_or("none", ColumnType::name);
                Err(RowsError::Invalid(format!(
                    "column {name:?} has the type {declared}, and a row holds a value of type {} from before it was \
                     declared; add {:?} to the columns, which returns such values in a JSON column",
                    value.column_type(),
                    format!("{name}*")
                )))
            }
        }
    }
}

/// Writer of rows in one format.
pub struct TabularWriter<W: Write + Send> {
    columns: TableColumns,
    output: Output<W>,
    /// Text of the current line of CSV.
    line: Vec<u8>,
    rows: u64,
}

enum Output<W: Write + Send> {
    Csv(W),
    Columnar(Box<ColumnarWriter<W>>),
}

/// Value of a cell, either borrowed from the row or owned.
enum Field<'v> {
    Nothing,
    Value(CellValue<'v>),
    Object(Vec<u8>),
}

impl<W: Write + Send> TabularWriter<W> {
    /// Begins the output: writes the header line of CSV, or the schema. `form` is `None` for CSV.
    ///
    /// # Errors
    ///
    /// [`RowsError::Output`] if writing to `out` fails.
    pub fn new(mut out: W, form: Option<ColumnarForm>, columns: TableColumns) -> Result<Self> {
        let mut line = Vec::new();
        let output = match form {
            None => {
                for (number, name) in columns.names().enumerate() {
                    if number > 0 {
                        line.push(b',');
                    }
                    put_csv_text(name, &mut line);
                }
                line.extend_from_slice(b"\r\n");
                out.write_all(&line)?;
                line.clear();
                Output::Csv(out)
            }
            Some(form) => {
                let types = columns
                    .columns
                    .iter()
                    .map(|column| (column.name.clone(), columns.table_type(column)));
                let types: Vec<(String, TableType)> = types.collect();
                Output::Columnar(Box::new(ColumnarWriter::new(out, form, &types)?))
            }
        };
        Ok(Self {
            columns,
            output,
            line,
            rows: 0,
        })
    }

    /// Appends a row. Returns its size in bytes; for columnar formats, the size is an estimate.
    ///
    /// # Errors
    ///
    /// [`RowsError::Damaged`] for a damaged row, [`RowsError::Invalid`] for a value that cannot be stored in its
    /// column, and [`RowsError::Output`] if writing fails.
    pub fn row(&mut self, table: &WideTable, row: &StoredRow) -> Result<u64> {
        let damaged = |reason: String| RowsError::Damaged {
            table: table.table().name().to_string(),
            reason,
        };
        let key = table
            .layout()
            .decode(&row.key)
            .map_err(|error| damaged(error.to_string()))?;
        let stored = row.columns().map_err(|error| damaged(error.to_string()))?;
        let mut fields: Vec<Field<'_>> = Vec::with_capacity(self.columns.columns.len());
        fields.extend(key.iter().map(|value| Field::Value(value::cell_of(value))));
        fields.resize_with(self.columns.columns.len(), || Field::Nothing);
        for column in &stored.columns {
            // If the declaration of a column was removed from the settings, the column has no name.
            let Some((name, newest)) = table.name_of(&column.name).zip(column.newest()) else {
                continue;
            };
            let Some(number) = self.columns.number_of(name, &newest.value)? else {
                continue;
            };
            if self.columns.columns[number].form == Form::Column {
                fields[number] = Field::Value(newest.value.clone());
                continue;
            }
            let object = match &mut fields[number] {
                Field::Object(object) => {
                    object.push(b',');
                    object
                }
                field => {
                    *field = Field::Object(vec![b'{']);
                    let Field::Object(object) = field else { continue };
                    object
                }
            };
            value::write_text(name, object);
            object.push(b':');
            let (_, declared) = table.column(name);
            value::write_value(&newest.value, declared, RowIntegers::Number, object);
        }
        for field in &mut fields {
            if let Field::Object(object) = field {
                object.push(b'}');
            }
        }
        self.rows += 1;
        match self.output {
            Output::Csv(_) => self.csv_row(&fields),
            Output::Columnar(_) => self.columnar_row(&fields, row.bytes() as u64),
        }
    }

    fn csv_row(&mut self, fields: &[Field<'_>]) -> Result<u64> {
        let Output::Csv(out) = &mut self.output else {
            return Ok(0);
        };
        for (number, field) in fields.iter().enumerate() {
            if number > 0 {
                self.line.push(b',');
            }
            match field {
                Field::Nothing => {}
                Field::Value(value) => put_csv_text(&text_of(value), &mut self.line),
                Field::Object(object) => put_csv_text(&String::from_utf8_lossy(object), &mut self.line),
            }
        }
        self.line.extend_from_slice(b"\r\n");
        out.write_all(&self.line)?;
        let bytes = self.line.len() as u64;
        self.line.clear();
        Ok(bytes)
    }

    fn columnar_row(&mut self, fields: &[Field<'_>], bytes: u64) -> Result<u64> {
        let Output::Columnar(writer) = &mut self.output else {
            return Ok(0);
        };
        let mut texts: Vec<Option<String>> = Vec::with_capacity(fields.len());
        let mut digits: Vec<i128> = Vec::with_capacity(fields.len());
        for (column, field) in self.columns.columns.iter().zip(fields) {
            let is_text = self.columns.table_type(column) == TableType::Text;
            let mut number = 0;
            texts.push(match field {
                Field::Value(CellValue::String(_) | CellValue::Json(_)) | Field::Nothing => None,
                Field::Value(value) if is_text => Some(text_of(value)),
                Field::Value(CellValue::Decimal(decimal)) => {
                    number = digits_at(*decimal, self.columns.decimal_scale.unwrap_or(0)).ok_or_else(|| {
                        RowsError::Invalid(format!(
                            "column {:?}: the decimal {decimal} does not fit 38 digits with decimal_scale {}; choose \
                             another scale, or omit it to get text",
                            column.name,
                            self.columns.decimal_scale.unwrap_or(0)
                        ))
                    })?;
                    None
                }
                Field::Value(_) => None,
                Field::Object(object) => Some(String::from_utf8_lossy(object).into_owned()),
            });
            digits.push(number);
        }
        let cells = fields.iter().zip(&texts).zip(&digits);
        let cells = cells.map(|((field, text), digits)| match (field, text) {
            (_, Some(text)) => Cell::Value(ValueRef::String(text)),
            (Field::Value(value), None) => match value {
                CellValue::String(text) | CellValue::Json(text) => Cell::Value(ValueRef::String(text)),
                CellValue::I64(number) => Cell::Value(ValueRef::Signed(*number)),
                CellValue::U64(number) => Cell::Value(ValueRef::Unsigned(*number)),
                CellValue::F64(number) => Cell::Value(ValueRef::Float(*number)),
                CellValue::Bool(value) => Cell::Value(ValueRef::Boolean(*value)),
                CellValue::Binary(bytes) => Cell::Binary(bytes),
                CellValue::Decimal(_) => Cell::Decimal(*digits),
                CellValue::Timestamp(time) => Cell::Time(time.nanos()),
                // Columns of declared types hold no large values. In other columns, large values are text.
                CellValue::Large(_) => Cell::Null,
            },
            (Field::Nothing | Field::Object(_), None) => Cell::Null,
        });
        writer.row(cells)?;
        Ok(bytes)
    }

    /// Returns the number of rows that were written.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Ends the output. A Parquet file stores `notes` as metadata; other formats ignore them.
    ///
    /// # Errors
    ///
    /// [`RowsError::Output`] if writing fails.
    pub fn end(self, notes: &[(&str, String)]) -> Result<()> {
        match self.output {
            Output::Csv(_) => Ok(()),
            Output::Columnar(writer) => Ok(writer.end(notes)?),
        }
    }
}

/// Returns the digits of a decimal at a scale; `None` if this would lose digits, or if more than 38 digits are needed.
fn digits_at(decimal: Decimal, scale: u8) -> Option<i128> {
    let missing = scale.checked_sub(decimal.scale())?;
    let digits = decimal
        .mantissa()
        .checked_mul(10_i128.checked_pow(u32::from(missing))?)?;
    (digits.unsigned_abs() < DECIMAL_LIMIT).then_some(digits)
}

/// Returns a value as text: texts unchanged, bytes in base64, times as RFC 3339.
pub(crate) fn text_of(value: &CellValue<'_>) -> String {
    match value {
        CellValue::String(text) | CellValue::Json(text) => text.to_string(),
        CellValue::I64(number) => number.to_string(),
        CellValue::U64(number) => number.to_string(),
        CellValue::F64(number) if number.is_nan() => "NaN".to_owned(),
        CellValue::F64(number) if number.is_infinite() => {
            let sign = if *number < 0.0 { "-" } else { "" };
            format!("{sign}Infinity")
        }
        CellValue::F64(number) => {
            let mut text = Vec::new();
            value::write_plain(&CellValue::F64(*number), RowIntegers::Number, &mut text);
            String::from_utf8(text).unwrap_or_default()
        }
        CellValue::Bool(value) => value.to_string(),
        CellValue::Binary(bytes) => STANDARD.encode(bytes),
        CellValue::Decimal(number) => number.to_string(),
        CellValue::Timestamp(time) => time.to_rfc3339(),
        CellValue::Large(large) => {
            let mut text = Vec::new();
            write_large(large, None, &mut text);
            String::from_utf8(text).unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_fit_a_scale_exactly_or_not_at_all() {
        let parse = |text: &str| Decimal::parse(text).expect("a decimal");
        for (text, scale, digits) in [
            ("5.32", 2, Some(532)),
            ("5.32", 4, Some(53_200)),
            ("5.32", 1, None),
            ("-100", 0, Some(-100)),
            ("0", 38, Some(0)),
            ("1", 38, None),
            ("0.9", 38, Some(9 * 10_i128.pow(37))),
            (
                "99999999999999999999999999999999999999",
                0,
                Some(10_i128.pow(38) - 1),
            ),
            ("100000000000000000000000000000000000000", 0, None),
        ] {
            assert_eq!(digits_at(parse(text), scale), digits, "{text} {scale}");
        }
    }
}
