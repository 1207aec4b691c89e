//! Batches of Arrow streams and Parquet files.
//!
//! The Arrow reader allocates as much memory as a message declares, and panics if a buffer is outside of its message. The
//! declared sizes and positions are therefore checked first, and only complete messages are passed to the reader. Parquet
//! files are read in small batches after the sizes of their row groups are checked. Both readers still panic on some
//! damaged files; such a panic is reported as an error of the file.

use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Date64Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::Message;
use arrow_ipc::reader::StreamReader;
use arrow_schema::{ArrowError, DataType, TimeUnit};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::Compression;
use parquet::file::metadata::RowGroupMetaData;
use tideline_engine::key_codec::tuple::Decimal;
use tideline_engine::model::{ColumnType, Timestamp};

use super::columns::{FileColumns, FileValue, Target};
use super::{Record, unreadable};
use crate::error::{Result, RowsError};

/// Maximum size of the body of a message of a stream, in bytes.
const MESSAGE_BYTES_MAX: u64 = 32 << 20;
/// Maximum size of the metadata of a message, in bytes.
const METADATA_BYTES_MAX: u64 = 4 << 20;
/// Maximum size of a row group of a Parquet file, decompressed, in bytes.
const GROUP_BYTES_MAX: u64 = 256 << 20;
/// Number of rows of a Parquet file that are decoded at once.
const BATCH_ROWS: usize = 512;
/// Marker with which every message begins.
const CONTINUATION: [u8; 4] = [0xff; 4];
const NANOS_PER_DAY: i64 = 86_400_000_000_000;
/// Names of the inputs in messages.
const STREAM: &str = "the Arrow stream";
const FILE: &str = "the Parquet file";

/// Reads a stream and passes each row with its size to `take`.
pub(super) fn read_stream(
    input: impl Read,
    columns: &FileColumns<'_>,
    take: &mut dyn FnMut(Record, usize) -> Result<()>,
) -> Result<()> {
    let messages = Messages {
        input,
        message: Vec::new(),
        at: 0,
    };
    let open = || StreamReader::try_new(messages, None).map_err(stream_error);
    let mut reader = guarded(STREAM, open)?;
    let mut targets = None;
    while let Some(batch) = guarded(STREAM, || reader.next().transpose().map_err(stream_error))? {
        pass_rows(&batch, columns, &mut targets, take)?;
    }
    Ok(())
}

/// Reads a Parquet file and passes each row with its size to `take`.
pub(super) fn read_file(
    file: Bytes,
    columns: &FileColumns<'_>,
    take: &mut dyn FnMut(Record, usize) -> Result<()>,
) -> Result<()> {
    // Use the Parquet types, not the Arrow schema that the writing library has stored in the file.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let mut reader = guarded(FILE, || {
        let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options);
        let builder = builder.map_err(|error| unreadable(FILE, error))?;
        builder.metadata().row_groups().iter().try_for_each(check_group)?;
        let reader = builder.with_batch_size(BATCH_ROWS).build();
        reader.map_err(|error| unreadable(FILE, error))
    })?;
    let mut targets = None;
    let mut next = || reader.next().transpose().map_err(|error| unreadable(FILE, error));
    while let Some(batch) = guarded(FILE, &mut next)? {
        pass_rows(&batch, columns, &mut targets, take)?;
    }
    Ok(())
}

/// Calls a reader of the file `what`. A panic of the reader becomes an error of the file: the readers do not check damaged
/// files completely.
fn guarded<T>(what: &str, read: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err(unreadable(what, "it is damaged")))
}

/// Returns the error of a stream: the error of its input, or the description of its damage.
fn stream_error(error: ArrowError) -> RowsError {
    match error {
        ArrowError::IoError(text, error) => match error.downcast::<io::Error>() {
            Ok(input) => RowsError::Input(input),
            Err(_) => unreadable(STREAM, text),
        },
        error => unreadable(STREAM, error),
    }
}

/// Checks the size of a row group, and the compression of its columns.
fn check_group(group: &RowGroupMetaData) -> Result<()> {
    let bytes = u64::try_from(group.total_byte_size()).unwrap_or(u64::MAX);
    if bytes > GROUP_BYTES_MAX {
        return Err(RowsError::over(
            "size of a row group in bytes",
            GROUP_BYTES_MAX,
            bytes,
        ));
    }
    for column in group.columns() {
        let codec = match column.compression() {
            Compression::GZIP(_) => "gzip",
            Compression::BROTLI(_) => "brotli",
            Compression::LZO => "lzo",
            _ => continue,
        };
        return Err(RowsError::Invalid(format!(
            "column {:?} of the Parquet file is compressed with {codec}, which is not supported; write the file with \
             snappy, lz4, zstd or no compression",
            column.column_path().string()
        )));
    }
    Ok(())
}

fn pass_rows(
    batch: &RecordBatch,
    columns: &FileColumns<'_>,
    targets: &mut Option<Vec<Target>>,
    take: &mut dyn FnMut(Record, usize) -> Result<()>,
) -> Result<()> {
    let schema = batch.schema();
    if targets.is_none() {
        let mut found = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            let target = columns.target(field.name());
            if target != Target::Ignored && !is_supported(field.data_type()) {
                return Err(RowsError::Invalid(format!(
                    "column {:?} of the file has the type {}, which is not supported; convert it to a number, a \
                     boolean, text, bytes, a time or a decimal of 128 bits, or leave it out with the map",
                    field.name(),
                    field.data_type()
                )));
            }
            found.push(target);
        }
        *targets = Some(found);
    }
    let targets = targets.as_deref().unwrap_or_default();
    for row in 0..batch.num_rows() {
        let mut record = columns.record();
        for (target, column) in targets.iter().zip(batch.columns()) {
            if *target == Target::Ignored || column.is_null(row) {
                continue;
            }
            if let Some(value) = value_of(column, row) {
                record.add(target, value);
            }
        }
        let (record, bytes) = record.end();
        take(record, bytes)?;
    }
    Ok(())
}

fn is_supported(of: &DataType) -> bool {
    use DataType::{
        Binary, Boolean, Date32, Date64, Decimal128, FixedSizeBinary, Float32, Float64, Int8, Int16, Int32,
        Int64, LargeBinary, LargeUtf8, Null, Timestamp, UInt8, UInt16, UInt32, UInt64, Utf8,
    };
    match of {
        Decimal128(_, scale) => (0..=38).contains(scale),
        Null | Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 | Float32
        | Float64 | Utf8 | LargeUtf8 | Binary | LargeBinary | FixedSizeBinary(_) | Timestamp(..) | Date32
        | Date64 => true,
        _ => false,
    }
}

/// Returns the value of a cell that is not null; `None` for a type that is not supported.
fn value_of(column: &dyn Array, row: usize) -> Option<FileValue<'_>> {
    let signed = |number: i64| FileValue::Json(number.to_string());
    let unsigned = |number: u64| FileValue::Typed(ColumnType::U64, number.to_string());
    let float = |number: f64| match serde_json::Number::from_f64(number) {
        Some(number) => FileValue::Typed(ColumnType::F64, number.to_string()),
        None if number.is_nan() => FileValue::Typed(ColumnType::F64, "\"NaN\"".into()),
        None if number < 0.0 => FileValue::Typed(ColumnType::F64, "\"-Infinity\"".into()),
        None => FileValue::Typed(ColumnType::F64, "\"Infinity\"".into()),
    };
    let binary =
        |bytes: &[u8]| FileValue::Typed(ColumnType::Binary, format!("\"{}\"", STANDARD.encode(bytes)));
    let time = |count: i64, nanos: i64| {
        let time = count.checked_mul(nanos).map(Timestamp::from_nanos);
        match time {
            Some(Ok(time)) => FileValue::Typed(ColumnType::Timestamp, format!("\"{}\"", time.to_rfc3339())),
            _ => FileValue::Unsupported(format!(
                "the time {count} (in units of {nanos} ns since 1970) is out of range"
            )),
        }
    };
    macro_rules! number {
        ($type:ty) => {
            column.as_primitive::<$type>().value(row)
        };
    }
    Some(match column.data_type() {
        DataType::Boolean => FileValue::Json(column.as_boolean().value(row).to_string()),
        DataType::Int8 => signed(number!(Int8Type).into()),
        DataType::Int16 => signed(number!(Int16Type).into()),
        DataType::Int32 => signed(number!(Int32Type).into()),
        DataType::Int64 => signed(number!(Int64Type)),
        DataType::UInt8 => unsigned(number!(UInt8Type).into()),
        DataType::UInt16 => unsigned(number!(UInt16Type).into()),
        DataType::UInt32 => unsigned(number!(UInt32Type).into()),
        DataType::UInt64 => unsigned(number!(UInt64Type)),
        DataType::Float32 => float(number!(Float32Type).into()),
        DataType::Float64 => float(number!(Float64Type)),
        DataType::Utf8 => FileValue::Text(column.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => FileValue::Text(column.as_string::<i64>().value(row)),
        DataType::Binary => binary(column.as_binary::<i32>().value(row)),
        DataType::LargeBinary => binary(column.as_binary::<i64>().value(row)),
        DataType::FixedSizeBinary(_) => binary(column.as_fixed_size_binary().value(row)),
        DataType::Date32 => time(number!(Date32Type).into(), NANOS_PER_DAY),
        DataType::Date64 => time(number!(Date64Type), 1_000_000),
        DataType::Timestamp(TimeUnit::Second, _) => time(number!(TimestampSecondType), 1_000_000_000),
        DataType::Timestamp(TimeUnit::Millisecond, _) => time(number!(TimestampMillisecondType), 1_000_000),
        DataType::Timestamp(TimeUnit::Microsecond, _) => time(number!(TimestampMicrosecondType), 1_000),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => time(number!(TimestampNanosecondType), 1),
        DataType::Decimal128(_, scale) => {
            let digits = number!(Decimal128Type);
            let decimal = u8::try_from(*scale).map(|scale| Decimal::new(digits, scale));
            match decimal {
                Ok(Ok(decimal)) => FileValue::Typed(ColumnType::Decimal, format!("\"{decimal}\"")),
                _ => FileValue::Unsupported(format!(
                    "the decimal {digits} with the scale {scale} is out of range"
                )),
            }
        }
        _ => return None,
    })
}

/// Reader of a stream that reads each message completely, after checking its size.
struct Messages<R> {
    input: R,
    message: Vec<u8>,
    /// Position in `message` up to which it has been passed on.
    at: usize,
}

impl<R: Read> Messages<R> {
    /// Reads the next message. At the end of the input, the message is empty.
    fn next(&mut self) -> io::Result<()> {
        self.message.clear();
        self.at = 0;
        self.read(8)?;
        if self.message.is_empty() {
            return Ok(());
        }
        let (mark, length) = self.message.split_at(self.message.len().min(4));
        let Ok(length) = <[u8; 4]>::try_from(length) else {
            return Err(invalid("the stream is cut off"));
        };
        if mark != CONTINUATION {
            return Err(invalid(
                "it does not have the format of an Arrow IPC stream of version 1 or later",
            ));
        }
        let length = u64::from(u32::from_le_bytes(length));
        if length == 0 {
            return Ok(());
        }
        if length > METADATA_BYTES_MAX {
            return Err(invalid(&format!(
                "metadata of {length} bytes is over the limit of {METADATA_BYTES_MAX}"
            )));
        }
        self.read_exactly(length)?;
        let message = arrow_ipc::root_as_message(&self.message[8..]);
        let message = message.map_err(|error| invalid(&error.to_string()))?;
        let body =
            u64::try_from(message.bodyLength()).map_err(|_| invalid("a message has a negative size"))?;
        if body > MESSAGE_BYTES_MAX {
            return Err(invalid(&format!(
                "a batch of {body} bytes is over the limit of {MESSAGE_BYTES_MAX}; write smaller batches"
            )));
        }
        check_batch(&message, body).map_err(|reason| invalid(&reason))?;
        self.read_exactly(body)
    }

    /// Appends the next bytes of the input to the message, at most `bytes`. Memory is allocated only as the bytes
    /// arrive.
    ///
    /// An error of the input is wrapped in another one. It is therefore distinguished from damage of the stream, and the
    /// Arrow reader never regards it as the end of the stream.
    fn read(&mut self, bytes: u64) -> io::Result<u64> {
        let read = (&mut self.input).take(bytes).read_to_end(&mut self.message);
        Ok(read.map_err(io::Error::other)? as u64)
    }

    fn read_exactly(&mut self, bytes: u64) -> io::Result<()> {
        match self.read(bytes)? == bytes {
            true => Ok(()),
            false => Err(invalid("the stream is cut off")),
        }
    }
}

impl<R: Read> Read for Messages<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.at == self.message.len() {
            self.next()?;
        }
        let rest = &self.message[self.at..];
        let read = rest.len().min(bytes.len());
        bytes[..read].copy_from_slice(&rest[..read]);
        self.at += read;
        Ok(read)
    }
}

/// Checks the batch of a message whose body has `body` bytes: every buffer must be inside of the body, and there cannot be
/// more rows than bits.
fn check_batch(message: &Message<'_>, body: u64) -> std::result::Result<(), String> {
    let batch = match message.header_as_dictionary_batch() {
        Some(dictionary) => dictionary.data(),
        None => message.header_as_record_batch(),
    };
    let Some(batch) = batch else {
        return Ok(());
    };
    if let Some(compression) = batch.compression() {
        return Err(format!(
            "its batches are compressed with {:?}, which is not supported; write the stream without compression of \
             batches, and compress the whole body instead",
            compression.codec()
        ));
    }
    let rows = u64::try_from(batch.length()).unwrap_or(u64::MAX);
    if rows > body.saturating_mul(8) {
        return Err(format!(
            "a batch of {body} bytes declares {} rows",
            batch.length()
        ));
    }
    for buffer in batch.buffers().into_iter().flatten() {
        let bounds = u64::try_from(buffer.offset())
            .ok()
            .zip(u64::try_from(buffer.length()).ok());
        let end = bounds.and_then(|(offset, length)| offset.checked_add(length));
        if end.is_none_or(|end| end > body) {
            return Err(format!(
                "a buffer at {} with a length of {} bytes is outside of its batch of {body} bytes",
                buffer.offset(),
                buffer.length()
            ));
        }
    }
    Ok(())
}

fn invalid(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.to_owned())
}
