//! Query results in columns: an Arrow IPC stream or a Parquet file.
//!
//! [`ColumnarWriter`] takes single rows and encodes them in batches. Memory is bounded by one batch (Arrow) or one
//! row group (Parquet).
//!
//! Times are `timestamp[ns, UTC]`; integers and floats are 64 bits wide. A column with several numeric types becomes
//! a column of doubles; a column with values of several kinds becomes text. Every cell may be null.

mod columns;
mod sink;

use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

pub use columns::{Cell, ColumnType};
pub(crate) use sink::ColumnarSink;

use self::columns::ColumnBuilder;

/// Maximum number of rows in a batch.
const BATCH_ROWS: usize = 8_192;
/// Estimated bytes after which a batch ends early. Long texts and many columns make batches small.
const BATCH_BYTES: usize = 8 << 20;
/// Maximum number of rows in a Parquet row group.
const GROUP_ROWS: usize = 65_536;
/// Estimated encoded bytes after which a Parquet row group ends early.
const GROUP_BYTES: usize = 32 << 20;

/// Encoding of a columnar result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnarForm {
    /// Arrow IPC stream format.
    ArrowStream,
    /// Parquet file, compressed with zstd.
    Parquet,
}

/// Streaming encoder of rows into columns.
///
/// # Examples
///
/// ```
/// use arrow_ipc::reader::StreamReader;
/// use tideline_query::ValueRef;
/// use tideline_results::columnar::{Cell, ColumnType, ColumnarForm, ColumnarWriter};
///
/// let columns = [("time".to_owned(), ColumnType::Time), ("state".to_owned(), ColumnType::Text)];
/// let mut stream = Vec::new();
/// let mut writer = ColumnarWriter::new(&mut stream, ColumnarForm::ArrowStream, &columns)?;
/// writer.row([Cell::Time(1_000), Cell::Value(ValueRef::String("idle"))].into_iter())?;
/// writer.row([Cell::Time(2_000), Cell::Null].into_iter())?;
/// writer.end(&[])?;
///
/// let batch = StreamReader::try_new(&stream[..], None)?.next().ok_or("no batch")??;
/// assert_eq!(batch.num_rows(), 2);
/// assert_eq!(batch.column(1).null_count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ColumnarWriter<W: Write + Send> {
    schema: SchemaRef,
    builders: Vec<ColumnBuilder>,
    rows: usize,
    /// Estimated bytes of the rows in the builders.
    bytes: usize,
    encoder: Encoder<W>,
}

enum Encoder<W: Write + Send> {
    Arrow(Box<StreamWriter<W>>),
    Parquet(Box<ArrowWriter<W>>),
}

impl<W: Write + Send> ColumnarWriter<W> {
    /// Starts a result with the given column names and types. All columns are nullable.
    ///
    /// # Errors
    ///
    /// Returns the I/O error if writing to `out` fails.
    pub fn new(out: W, form: ColumnarForm, columns: &[(String, ColumnType)]) -> io::Result<Self> {
        let field = |(name, of): &(String, ColumnType)| Field::new(name, of.data_type(), true);
        let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
        let encoder = match form {
            ColumnarForm::ArrowStream => {
                let writer = StreamWriter::try_new(out, &schema);
                Encoder::Arrow(Box::new(writer.map_err(arrow)?))
            }
            ColumnarForm::Parquet => {
                let properties = WriterProperties::builder()
                    .set_compression(Compression::ZSTD(ZstdLevel::default()))
                    .set_max_row_group_row_count(Some(GROUP_ROWS))
                    .set_created_by("tideline".into())
                    .build();
                let writer = ArrowWriter::try_new(out, Arc::clone(&schema), Some(properties));
                Encoder::Parquet(Box::new(writer.map_err(parquet)?))
            }
        };
        Ok(Self {
            schema,
            builders: columns.iter().map(|(_, of)| ColumnBuilder::new(*of)).collect(),
            rows: 0,
            bytes: 0,
            encoder,
        })
    }

    /// Appends a row of one cell per column. Missing cells become null.
    ///
    /// # Errors
    ///
    /// Returns an error if a value does not fit the type of its column, or if writing a full batch fails.
    pub fn row<'c>(&mut self, cells: impl Iterator<Item = Cell<'c>>) -> io::Result<()> {
        let mut cells = cells.fuse();
        for builder in &mut self.builders {
            let cell = cells.next().unwrap_or(Cell::Null);
            self.bytes += builder.push(cell)?;
        }
        self.rows += 1;
        if self.rows == BATCH_ROWS || self.bytes >= BATCH_BYTES {
            self.write_batch()?;
        }
        Ok(())
    }

    /// Writes the last batch and the end marker (Arrow) or footer (Parquet). A Parquet file stores `notes` as
    /// key-value metadata; an Arrow stream omits them.
    ///
    /// # Errors
    ///
    /// Returns the I/O error if writing to the output fails.
    pub fn end(mut self, notes: &[(&str, String)]) -> io::Result<()> {
        self.write_batch()?;
        match self.encoder {
            Encoder::Arrow(mut writer) => writer.finish().map_err(arrow),
            Encoder::Parquet(mut writer) => {
                for (name, text) in notes {
                    writer.append_key_value_metadata(KeyValue::new((*name).to_owned(), text.clone()));
                }
                writer.close().map(drop).map_err(parquet)
            }
        }
    }

    fn write_batch(&mut self) -> io::Result<()> {
        self.bytes = 0;
        if std::mem::take(&mut self.rows) == 0 {
            return Ok(());
        }
        let arrays = self.builders.iter_mut().map(ColumnBuilder::take).collect();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays).map_err(arrow)?;
        match &mut self.encoder {
            Encoder::Arrow(writer) => writer.write(&batch).map_err(arrow),
            Encoder::Parquet(writer) => {
                writer.write(&batch).map_err(parquet)?;
                if writer.in_progress_size() >= GROUP_BYTES {
                    writer.flush().map_err(parquet)?;
                }
                Ok(())
            }
        }
    }
}

fn arrow(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        other => io::Error::other(other),
    }
}

fn parquet(error: ParquetError) -> io::Error {
    io::Error::other(error)
}

#[cfg(test)]
mod tests;
