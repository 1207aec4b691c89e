//! Conversion of Parquet to points. Roles of columns are assigned as for CSV; values have the type of their column.
//!
//! Files are read by row group and page, in batches of about a thousand rows, so that memory is bounded by the pages of
//! one row group, not by the file. Positions in a file are row numbers. Each row becomes a line of JSON.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};

mod described;
mod wide_times;

use self::described::Described;
use self::wide_times::{Seconds, WideTimes, is_whole};
use super::csv::{CsvArguments, Kind, Role};
use super::cutter::{BatchLimits, RecordBlock};
use crate::error::{CliError, Result};

/// Number of rows per decoded batch.
const ROWS_AT_ONCE: usize = 1_024;
const NANOS_PER_DAY: i64 = 86_400_000_000_000;

/// Reader of one file.
pub(super) struct ParquetRows {
    reader: ParquetRecordBatchReader,
    /// Second reader, if some columns have the type INT96.
    wide: Option<WideTimes>,
    /// Columns of a batch, in their order.
    columns: Vec<Column>,
    measurement: Option<String>,
    /// Number of native histograms in skipped columns.
    histograms: u64,
    limits: BatchLimits,
    /// Rows decoded last, and the index of the next row.
    unpacked: Option<(Rows, usize)>,
    /// Block that was put back.
    returned: Option<RecordBlock>,
    /// Number of the next row, from 0.
    row: u64,
    /// Number of rows of the file.
    rows: u64,
}

/// Decoded rows, with the seconds of INT96 columns.
struct Rows {
    batch: RecordBatch,
    seconds: Seconds,
}

/// Column that is read.
#[derive(Debug, Clone)]
struct Column {
    role: Role,
    /// Name of the tag or field as JSON text; empty for other roles.
    name: Vec<u8>,
    /// Nanoseconds per unit, for integers that are times.
    unit_nanos: i64,
}

/// Value of a column.
enum Cell<'a> {
    Nothing,
    Boolean(bool),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Text(&'a str),
    /// Nanoseconds since the Unix epoch; `None` outside of the supported range.
    Time(Option<i64>),
}

impl ParquetRows {
    /// Opens a file. Fails with a usage error if the options do not match its columns.
    pub(super) fn open(
        path: &Path,
        arguments: &CsvArguments,
        precision_nanos: i64,
        limits: BatchLimits,
    ) -> Result<Self> {
        let failed = |error: io::Error| CliError::file(path, error);
        let unreadable = |error: parquet::errors::ParquetError| failed(invalid(&error));
        let file = File::open(path).map_err(failed)?;
        // Uses the types of Parquet, not the Arrow types that the writing library stored in the file.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let builder =
            ParquetRecordBatchReaderBuilder::try_new_with_options(file, options).map_err(unreadable)?;
        let fields = builder.schema().fields().clone();
        let names: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
        let at = |error: CliError| CliError::usage(format!("{}: {error}", path.display()));
        let described = match arguments.has_no_options() {
            true => described::described(builder.metadata().file_metadata(), &names),
            false => None,
        };
        let described = match described {
            Some(described) => described,
            None => Described {
                roles: arguments.roles(&names).map_err(at)?,
                measurement: arguments.measurement().map(str::to_owned),
                histograms: Vec::new(),
            },
        };
        let mut wanted = Vec::new();
        let mut columns = Vec::new();
        for (at, (role, field)) in described.roles.into_iter().zip(fields.iter()).enumerate() {
            if role == Role::Nothing {
                continue;
            }
            check_type(&role, field.data_type()).map_err(|reason| {
                CliError::usage(format!("{}: column {}: {reason}", path.display(), field.name()))
            })?;
            wanted.push(at);
            columns.push(Column {
                name: match &role {
                    Role::Tag(name) | Role::Field(name, _) => in_json(name),
                    _ => Vec::new(),
                },
                role,
                unit_nanos: precision_nanos,
            });
        }
        let wide = WideTimes::open(path, &builder, &wanted).map_err(failed)?;
        let mask = ProjectionMask::roots(builder.parquet_schema(), wanted);
        let rows = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0);
        let histograms = described::count(builder.metadata(), &described.histograms);
        let reader = builder
            .with_projection(mask)
            .with_batch_size(ROWS_AT_ONCE)
            .build()
            .map_err(unreadable)?;
        Ok(Self {
            reader,
            wide,
            columns,
            measurement: described.measurement,
            histograms,
            limits,
            unpacked: None,
            returned: None,
            row: 0,
            rows,
        })
    }

    /// Returns the number of the next row.
    pub(super) fn offset(&self) -> u64 {
        self.returned.as_ref().map_or(self.row, |block| block.start)
    }

    /// Returns the number of native histograms in skipped columns. No write format supports them.
    pub(super) fn histograms(&self) -> u64 {
        self.histograms
    }

    /// Returns the share of rows read so far, scaled to `whole`.
    pub(super) fn read_of(&self, whole: u64) -> u64 {
        let share = u128::from(whole) * u128::from(self.row) / u128::from(self.rows.max(1));
        u64::try_from(share).unwrap_or(whole)
    }

    /// Returns the next batch, which ends at row `stop` or before. Returns `None` at the end of the file.
    pub(super) fn next(&mut self, stop: Option<u64>) -> io::Result<Option<RecordBlock>> {
        let room = stop.map_or(u64::MAX, |stop| stop.saturating_sub(self.row));
        let rows = self.limits.rows.min(usize::try_from(room).unwrap_or(usize::MAX));
        self.read(rows, self.limits.bytes)
    }

    /// Returns the next `rows` rows, however large, or fewer at the end of the file.
    pub(super) fn take(&mut self, rows: usize) -> io::Result<RecordBlock> {
        let at_end = RecordBlock {
            start: self.row,
            end: self.row,
            first_line: self.row + 1,
            bytes: Vec::new(),
        };
        Ok(self.read(rows, usize::MAX)?.unwrap_or(at_end))
    }

    /// Puts back the block that was returned last, so that it is read again.
    pub(super) fn give_back(&mut self, block: RecordBlock) {
        self.returned = Some(block);
    }

    fn read(&mut self, rows_max: usize, bytes_max: usize) -> io::Result<Option<RecordBlock>> {
        if let Some(block) = self.returned.take() {
            return Ok((block.end > block.start).then_some(block));
        }
        let start = self.row;
        let mut bytes = Vec::new();
        let mut rows = 0;
        while rows < rows_max && bytes.len() < bytes_max {
            let Some((unpacked, at)) = self.unpacked.take() else {
                match self.unpack()? {
                    Some(unpacked) => self.unpacked = Some((unpacked, 0)),
                    None => break,
                }
                continue;
            };
            if at < unpacked.batch.num_rows() {
                self.point(&unpacked, at, &mut bytes);
                rows += 1;
                self.row += 1;
                self.unpacked = Some((unpacked, at + 1));
            }
        }
        if bytes.iter().all(|byte| *byte == b'\n') {
            bytes.clear();
        }
        Ok((rows > 0).then_some(RecordBlock {
            start,
            end: self.row,
            first_line: start + 1,
            bytes,
        }))
    }

    /// Decodes the next rows. Returns `None` at the end of the file.
    fn unpack(&mut self) -> io::Result<Option<Rows>> {
        let Some(batch) = self.reader.next() else {
            return Ok(None);
        };
        let batch = batch.map_err(|error| io::Error::new(ErrorKind::InvalidData, error.to_string()))?;
        let seconds = match &mut self.wide {
            Some(wide) => wide.next(batch.num_rows())?,
            None => vec![None; self.columns.len()],
        };
        Ok(Some(Rows { batch, seconds }))
    }

    /// Appends a row as a line of JSON. Invalid values are refused by the server. If histograms are skipped and the
    /// row has no other field value, its line is blank, so that line numbers still count rows.
    fn point(&self, rows: &Rows, row: usize, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(b"{\"measurement\":");
        let named = self.columns.iter().enumerate();
        let mut measurement = named
            .clone()
            .filter(|(_, column)| column.role == Role::Measurement);
        match (&self.measurement, measurement.next()) {
            (Some(name), _) => text(name, out),
            (None, Some((at, _))) => as_text(&rows.cell(at, row), out),
            (None, None) => text("", out),
        }
        for (at, column) in named.clone().filter(|(_, column)| column.role == Role::Time) {
            out.extend_from_slice(b",\"time\":");
            time(&rows.cell(at, row), column.unit_nanos, out);
        }
        for (title, is_tags) in [(&b",\"tags\":{"[..], true), (b",\"fields\":{", false)] {
            out.extend_from_slice(title);
            let mut is_first = true;
            for (at, column) in named.clone() {
                let kind = match (&column.role, is_tags) {
                    (Role::Tag(_), true) => None,
                    (Role::Field(_, kind), false) => Some(*kind),
                    _ => continue,
                };
                let cell = rows.cell(at, row);
                if matches!(cell, Cell::Nothing) {
                    continue;
                }
                if !std::mem::take(&mut is_first) {
                    out.push(b',');
                }
                out.extend_from_slice(&column.name);
                out.push(b':');
                match kind {
                    None => as_text(&cell, out),
                    Some(kind) => as_field(&cell, kind, out),
                }
            }
            if !is_tags && is_first && self.histograms > 0 {
                out.truncate(start);
                out.push(b'\n');
                return;
            }
            out.push(b'}');
        }
        out.extend_from_slice(b"}\n");
    }
}

impl Rows {
    /// Returns the value of a column in a row.
    fn cell(&self, column: usize, row: usize) -> Cell<'_> {
        let cell = cell(self.batch.column(column), row);
        match (&self.seconds[column], &cell) {
            (Some(seconds), Cell::Time(Some(nanos))) if !is_whole(*nanos, seconds, row) => Cell::Time(None),
            _ => cell,
        }
    }
}

/// Checks that the type of a column fits its role.
fn check_type(role: &Role, data_type: &DataType) -> std::result::Result<(), String> {
    use DataType as T;
    let is_integer = data_type.is_integer();
    let is_time = matches!(data_type, T::Timestamp(..) | T::Date32);
    let is_text = matches!(data_type, T::Utf8 | T::LargeUtf8 | T::Utf8View);
    let is_plain = is_integer || is_text || matches!(data_type, T::Boolean | T::Float32 | T::Float64);
    match role {
        Role::Time if is_time || is_integer || is_text => Ok(()),
        Role::Time => Err(format!("its type {data_type} is not a time")),
        Role::Measurement | Role::Tag(_) if is_text || is_integer || *data_type == T::Boolean => Ok(()),
        Role::Field(..) if is_plain || matches!(data_type, T::Decimal128(..)) || is_time => Ok(()),
        _ => Err(format!(
            "its type {data_type} is not supported; select other columns by --tag and --field"
        )),
    }
}

/// Returns a value of an array whose type was checked.
fn cell(array: &ArrayRef, row: usize) -> Cell<'_> {
    if array.is_null(row) {
        return Cell::Nothing;
    }
    let nanos = |value: i64, unit: i64| Cell::Time(value.checked_mul(unit));
    match array.data_type() {
        DataType::Boolean => Cell::Boolean(array.as_boolean().value(row)),
        DataType::Int8 => Cell::Signed(array.as_primitive::<Int8Type>().value(row).into()),
        DataType::Int16 => Cell::Signed(array.as_primitive::<Int16Type>().value(row).into()),
        DataType::Int32 => Cell::Signed(array.as_primitive::<Int32Type>().value(row).into()),
        DataType::Int64 => Cell::Signed(array.as_primitive::<Int64Type>().value(row)),
        DataType::UInt8 => Cell::Unsigned(array.as_primitive::<UInt8Type>().value(row).into()),
        DataType::UInt16 => Cell::Unsigned(array.as_primitive::<UInt16Type>().value(row).into()),
        DataType::UInt32 => Cell::Unsigned(array.as_primitive::<UInt32Type>().value(row).into()),
        DataType::UInt64 => Cell::Unsigned(array.as_primitive::<UInt64Type>().value(row)),
        DataType::Float32 => Cell::Float(array.as_primitive::<Float32Type>().value(row).into()),
        DataType::Float64 => Cell::Float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Decimal128(_, scale) => {
            let value = array.as_primitive::<Decimal128Type>().value(row);
            Cell::Float(value as f64 / 10f64.powi((*scale).into()))
        }
        DataType::Utf8 => Cell::Text(array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => Cell::Text(array.as_string::<i64>().value(row)),
        DataType::Utf8View => Cell::Text(array.as_string_view().value(row)),
        DataType::Date32 => nanos(
            array.as_primitive::<Date32Type>().value(row).into(),
            NANOS_PER_DAY,
        ),
        DataType::Timestamp(TimeUnit::Second, _) => nanos(
            array.as_primitive::<TimestampSecondType>().value(row),
            1_000_000_000,
        ),
        DataType::Timestamp(TimeUnit::Millisecond, _) => nanos(
            array.as_primitive::<TimestampMillisecondType>().value(row),
            1_000_000,
        ),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            nanos(array.as_primitive::<TimestampMicrosecondType>().value(row), 1_000)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            nanos(array.as_primitive::<TimestampNanosecondType>().value(row), 1)
        }
        _ => Cell::Nothing,
    }
}

/// Appends a time as nanoseconds, or as a text that the server parses or refuses.
fn time(cell: &Cell<'_>, unit_nanos: i64, out: &mut Vec<u8>) {
    let nanos = match cell {
        Cell::Time(nanos) => *nanos,
        Cell::Signed(units) => units.checked_mul(unit_nanos),
        Cell::Unsigned(units) => i64::try_from(*units)
            .ok()
            .and_then(|units| units.checked_mul(unit_nanos)),
        Cell::Text(rfc3339) => return text(rfc3339, out),
        Cell::Nothing => return text("missing", out),
        Cell::Boolean(_) | Cell::Float(_) => None,
    };
    match nanos {
        Some(nanos) => out.extend_from_slice(nanos.to_string().as_bytes()),
        None => text(BEYOND, out),
    }
}

fn as_text(cell: &Cell<'_>, out: &mut Vec<u8>) {
    match cell {
        Cell::Nothing => text("", out),
        Cell::Text(value) => text(value, out),
        Cell::Boolean(value) => text(&value.to_string(), out),
        Cell::Signed(value) => text(&value.to_string(), out),
        Cell::Unsigned(value) => text(&value.to_string(), out),
        Cell::Float(value) => text(&value.to_string(), out),
        Cell::Time(Some(value)) => text(&value.to_string(), out),
        Cell::Time(None) => text(BEYOND, out),
    }
}

/// Text written for a time outside of the supported range. The text makes the server refuse the row.
const BEYOND: &str = "beyond the years 1677 to 2262";

/// Appends a field value of the requested type, or for [`Kind::Auto`] of the type of its column.
fn as_field(cell: &Cell<'_>, kind: Kind, out: &mut Vec<u8>) {
    let typed = |name: &str, value: &str, out: &mut Vec<u8>| {
        out.extend_from_slice(format!("{{\"{name}\":\"{value}\"}}").as_bytes());
    };
    match (kind, cell) {
        (Kind::String, cell) => as_text(cell, out),
        (Kind::Auto | Kind::Bool, Cell::Boolean(value)) => {
            out.extend_from_slice(value.to_string().as_bytes());
        }
        (Kind::Float, Cell::Signed(value)) => typed("float", &value.to_string(), out),
        (Kind::Float, Cell::Unsigned(value)) => typed("float", &value.to_string(), out),
        (_, Cell::Float(value)) if kind != Kind::Auto && kind != Kind::Float => {
            let name = if kind == Kind::Uint { "unsigned" } else { "signed" };
            // The server refuses a number with a fraction.
            typed(name, &value.to_string(), out);
        }
        (_, Cell::Float(value)) => match value.is_finite() {
            true => typed("float", &format!("{value:?}"), out),
            false if value.is_nan() => typed("float", "NaN", out),
            false => typed("float", if *value > 0.0 { "Inf" } else { "-Inf" }, out),
        },
        (Kind::Uint, Cell::Signed(value)) => typed("unsigned", &value.to_string(), out),
        (Kind::Int, Cell::Unsigned(value)) => typed("signed", &value.to_string(), out),
        (_, Cell::Signed(value)) => out.extend_from_slice(value.to_string().as_bytes()),
        (_, Cell::Unsigned(value)) => typed("unsigned", &value.to_string(), out),
        (Kind::Auto, Cell::Text(value)) => text(value, out),
        (_, Cell::Text(value)) => {
            let name = match kind {
                Kind::Float => "float",
                Kind::Uint => "unsigned",
                _ => "signed",
            };
            out.extend_from_slice(format!("{{\"{name}\":").as_bytes());
            text(value.trim(), out);
            out.push(b'}');
        }
        // The server refuses a boolean for a number.
        (Kind::Float, Cell::Boolean(value)) => typed("float", &value.to_string(), out),
        (Kind::Uint, Cell::Boolean(value)) => typed("unsigned", &value.to_string(), out),
        (_, Cell::Boolean(value)) => typed("signed", &value.to_string(), out),
        (_, Cell::Time(Some(value))) => out.extend_from_slice(value.to_string().as_bytes()),
        (_, Cell::Time(None)) => typed("signed", BEYOND, out),
        (_, Cell::Nothing) => out.extend_from_slice(b"null"),
    }
}

fn text(value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&in_json(value));
}

fn in_json(value: &str) -> Vec<u8> {
    serde_json::to_vec(value).expect("a text always serialises")
}

fn invalid(error: &parquet::errors::ParquetError) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error.to_string())
}
