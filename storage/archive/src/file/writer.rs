//! Writer of one Parquet file: writes buffered columns as row groups to a temporary file.
//!
//! Row groups are limited in rows and memory, because a row group is buffered completely before it is written.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, Type as Physical, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, ParquetMetaData, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, SchemaDescriptor, TypePtr};
use tempfile::NamedTempFile;

use super::buffer::Buffer;
use super::sums::{BlockSums, NOTE_SUMS, Summed};
use crate::error::{ArchiveError, Result};

/// Number of buffered rows at which a row group is written.
const GROUP_ROWS_MAX: usize = 512 << 10;
/// Number of buffered bytes at which a row group is written.
const GROUP_BYTES_MAX: usize = 48 << 20;
/// Target size of an encoded page, in bytes.
const PAGE_BYTES: usize = 32 << 10;
/// Maximum number of rows in a page.
const PAGE_ROWS: usize = 8_192;
/// Maximum number of distinct floats in a dictionary. Columns with more distinct floats use the encoding
/// `BYTE_STREAM_SPLIT`.
pub(crate) const DISTINCT_FLOATS_MAX: usize = 4_096;
/// Maximum size of a dictionary of strings or ids, in bytes.
const TEXTS_DICTIONARY_BYTES: usize = 1 << 20;
/// Compression level of zstd.
const ZSTD: i32 = 3;

/// Parquet file that is being written.
pub(crate) struct FileWriter {
    writer: SerializedFileWriter<Summed<BufWriter<File>>>,
    file: NamedTempFile,
    buffers: Vec<Buffer>,
    /// Number of buffered rows.
    waiting: usize,
    /// Number of added rows.
    rows: u64,
}

/// Complete and synced file.
#[derive(Debug)]
pub(crate) struct FinishedFile {
    pub(crate) file: NamedTempFile,
    pub(crate) metadata: ParquetMetaData,
    pub(crate) rows: u64,
    /// Block checksums of the bytes before the page indexes.
    pub(crate) sums: BlockSums,
}

impl FileWriter {
    /// Creates a temporary file in `directory`. `buffers` are its columns; `sorted` are the indexes of the columns that
    /// the rows are sorted by; `varied` are the indexes of float columns without a dictionary.
    pub(crate) fn new(
        directory: &std::path::Path,
        schema: &TypePtr,
        buffers: Vec<Buffer>,
        sorted: &[usize],
        varied: &[usize],
        notes: Vec<(String, String)>,
    ) -> Result<Self> {
        let file = tempfile::Builder::new()
            .prefix("archive-")
            .suffix(".parquet")
            .tempfile_in(directory)
            .map_err(ArchiveError::local("making"))?;
        let handle = file.reopen().map_err(ArchiveError::local("opening"))?;
        let properties = Arc::new(properties(schema, sorted, varied, notes));
        let writer = SerializedFileWriter::new(
            Summed::new(BufWriter::new(handle)),
            Arc::clone(schema),
            properties,
        );
        Ok(Self {
            writer: writer.map_err(failed)?,
            file,
            buffers,
            waiting: 0,
            rows: 0,
        })
    }

    /// Returns the buffers. After pushing the same number of rows to each, call [`pushed`](Self::pushed).
    pub(crate) fn buffers(&mut self) -> &mut [Buffer] {
        &mut self.buffers
    }

    /// Counts rows that were pushed to every buffer. Writes a row group if the buffers are full.
    pub(crate) fn pushed(&mut self, rows: usize) -> Result<()> {
        self.waiting += rows;
        self.rows += rows as u64;
        if self.waiting >= GROUP_ROWS_MAX || self.bytes_waiting() >= GROUP_BYTES_MAX {
            self.flush()?;
        }
        Ok(())
    }

    /// Returns the number of added rows.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the approximate memory of the buffered rows, in bytes.
    pub(crate) fn bytes_waiting(&self) -> usize {
        self.buffers.iter().map(Buffer::bytes).sum()
    }

    /// Returns the number of bytes written to the file.
    pub(crate) fn bytes_written(&self) -> u64 {
        self.writer.bytes_written() as u64
    }

    /// Writes the buffered rows as a row group.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if std::mem::take(&mut self.waiting) == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group().map_err(failed)?;
        for buffer in &mut self.buffers {
            for _ in 0..buffer.leaves() {
                let column = group.next_column().map_err(failed)?;
                let mut column = column.expect("there is a buffer for each column, and not more");
                buffer.write(&mut column).map_err(failed)?;
                column.close().map_err(failed)?;
            }
        }
        group.close().map(drop).map_err(failed)
    }

    /// Completes and syncs the file.
    pub(crate) fn finish(mut self) -> Result<FinishedFile> {
        self.flush()?;
        self.writer.flush().map_err(ArchiveError::local("writing"))?;
        let sums = self.writer.inner_mut().take_sums();
        let note = KeyValue::new(NOTE_SUMS.to_owned(), sums.to_note());
        self.writer.append_key_value_metadata(note);
        let metadata = self.writer.finish().map_err(failed)?;
        self.writer
            .inner_mut()
            .flush()
            .map_err(ArchiveError::local("writing"))?;
        let handle = self.file.as_file();
        handle.sync_all().map_err(ArchiveError::local("syncing"))?;
        Ok(FinishedFile {
            file: self.file,
            metadata,
            rows: self.rows,
            sums,
        })
    }
}

impl FinishedFile {
    /// Returns the offset of the first page index that readers need; zero if the file has no rows. One request reads
    /// the bytes from this offset to the end of the file.
    pub(crate) fn index_from(&self) -> u64 {
        let columns = self
            .metadata
            .row_groups()
            .iter()
            .flat_map(|group| group.columns());
        let offsets = columns.filter_map(|column| column.offset_index_offset());
        offsets.min().and_then(|at| u64::try_from(at).ok()).unwrap_or(0)
    }
}

fn properties(
    schema: &TypePtr,
    sorted: &[usize],
    varied: &[usize],
    notes: Vec<(String, String)>,
) -> WriterProperties {
    let zstd = ZstdLevel::try_new(ZSTD).expect("it is a level");
    let notes = notes
        .into_iter()
        .map(|(key, value)| KeyValue::new(key, value))
        .collect();
    let sorted = sorted.iter().map(|column| SortingColumn {
        column_idx: *column as i32,
        descending: false,
        nulls_first: true,
    });
    let mut builder = WriterProperties::builder()
        .set_created_by(format!("tideline {}", env!("CARGO_PKG_VERSION")))
        .set_compression(Compression::ZSTD(zstd))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_column_index_truncate_length(Some(64))
        .set_statistics_truncate_length(Some(64))
        .set_data_page_size_limit(PAGE_BYTES)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_dictionary_page_size_limit(TEXTS_DICTIONARY_BYTES)
        .set_max_row_group_row_count(None)
        .set_sorting_columns(Some(sorted.collect()))
        .set_key_value_metadata(Some(notes));
    for (at, column) in SchemaDescriptor::new(Arc::clone(schema))
        .columns()
        .iter()
        .enumerate()
    {
        let path: ColumnPath = column.path().clone();
        builder = match column.physical_type() {
            Physical::INT64 => builder
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
            Physical::DOUBLE => builder
                .set_column_dictionary_enabled(path.clone(), !varied.contains(&at))
                .set_column_dictionary_page_size_limit(path.clone(), DISTINCT_FLOATS_MAX * size_of::<f64>())
                .set_column_encoding(path, Encoding::BYTE_STREAM_SPLIT),
            Physical::BOOLEAN => builder.set_column_dictionary_enabled(path, false),
            _ => builder,
        };
    }
    builder.build()
}

pub(crate) fn failed(error: ParquetError) -> ArchiveError {
    match error {
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            Ok(source) => ArchiveError::Local {
                action: "writing",
                source: *source,
            },
            Err(cause) => ArchiveError::format("a file that is written", cause),
        },
        error => ArchiveError::format("a file that is written", error),
    }
}
