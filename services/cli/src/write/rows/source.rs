//! Files with rows, cut into batches that the server imports.
//!
//! Positions are byte offsets in the decompressed text, or row numbers in Arrow and Parquet files.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::ArrowError;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use xxhash_rust::xxh3::xxh3_64;

use super::{Counters, RowFormat};
use crate::error::{CliError, Result};
use crate::write::cutter::{BatchLimits, Cutter, RecordBlock};
use crate::write::record::Framing;
use crate::write::resume::Ranges;

/// Batch of rows to send.
pub(super) struct RowBatch {
    pub(super) path: Arc<str>,
    /// Records of the batch with their position in the file. The bytes do not include the header line.
    pub(super) block: RecordBlock,
    pub(super) hash: u64,
    /// Header line of CSV, which precedes the bytes.
    pub(super) header: Arc<[u8]>,
    pub(super) framing: Option<Framing>,
    pub(super) content_type: &'static str,
}

/// Opened file.
pub(super) struct Source {
    path: Arc<str>,
    records: Records,
    header: Arc<[u8]>,
    framing: Option<Framing>,
    content_type: &'static str,
}

/// Records of a file.
enum Records {
    Text(Cutter<Box<dyn Read>>),
    Columnar(Box<Columnar>),
}

/// Rows of an Arrow or Parquet file.
struct Columnar {
    batches: Box<dyn RecordBatchReader>,
    rows_max: usize,
    bytes_max: usize,
    /// Decoded batch, and the number of its rows that were taken.
    current: Option<(RecordBatch, usize)>,
    row: u64,
    /// Block that was put back.
    returned: Option<RecordBlock>,
}

impl Source {
    /// Opens a file. Fails with a usage error if its format is unknown.
    pub(super) fn open(path: &Path, format: Option<RowFormat>, limits: BatchLimits) -> Result<Self> {
        let failed = |error| CliError::file(path, error);
        let format = format.or_else(|| format_of(path)).ok_or_else(|| {
            CliError::usage(format!(
                "{}: unknown file ending; use --format csv, ndjson, arrow or parquet",
                path.display()
            ))
        })?;
        let name: Arc<str> = path.to_string_lossy().into();
        let framing = match format {
            RowFormat::Csv => Some(Framing::Csv { delimiter: b',' }),
            RowFormat::Ndjson => Some(Framing::Ndjson),
            RowFormat::Arrow | RowFormat::Parquet => None,
        };
        let (records, header) = match framing {
            Some(framing) => {
                let mut cutter = Cutter::new(text_of(path).map_err(failed)?, framing, limits);
                let header = match format {
                    RowFormat::Csv => cutter.record().map_err(failed)?,
                    _ => None,
                };
                let mut header = header.map(|header| header.bytes).unwrap_or_default();
                if !header.is_empty() && !header.ends_with(b"\n") {
                    header.push(b'\n');
                }
                (Records::Text(cutter), header)
            }
            None => {
                let columnar = Columnar::open(path, format, limits).map_err(failed)?;
                (Records::Columnar(Box::new(columnar)), Vec::new())
            }
        };
        Ok(Self {
            path: name,
            records,
            header: header.into(),
            framing,
            content_type: match format {
                RowFormat::Csv => "text/csv",
                RowFormat::Ndjson => "application/x-ndjson",
                RowFormat::Arrow | RowFormat::Parquet => "application/vnd.apache.arrow.stream",
            },
        })
    }

    /// Calls `take` with each batch that earlier runs have not sent, until `take` returns false. Returns false in that
    /// case.
    pub(super) fn feed(
        mut self,
        mut acknowledged: Ranges,
        counters: &Counters,
        take: &mut dyn FnMut(RowBatch) -> bool,
    ) -> Result<bool> {
        let path = Arc::clone(&self.path);
        let failed = |error| CliError::file(Path::new(&*path), error);
        loop {
            let offset = self.records.offset();
            let block = match acknowledged.next_from(offset) {
                Some(range) if range.start == offset => {
                    let block = self.records.take(range.len()).map_err(failed)?;
                    if block.end == range.end && xxh3_64(&block.bytes) == range.hash {
                        Counters::add(&counters.skipped, 1);
                        Counters::add(&counters.rejected_before, range.rejected);
                        continue;
                    }
                    // The file has changed here, so later ranges do not apply any more.
                    self.records.give_back(block);
                    acknowledged.clear();
                    self.records.next(None).map_err(failed)?
                }
                range => {
                    let stop = range.map(|range| range.start);
                    self.records.next(stop).map_err(failed)?
                }
            };
            let Some(block) = block else { return Ok(true) };
            let batch = RowBatch {
                path: Arc::clone(&self.path),
                hash: xxh3_64(&block.bytes),
                block,
                header: Arc::clone(&self.header),
                framing: self.framing,
                content_type: self.content_type,
            };
            if !take(batch) {
                return Ok(false);
            }
        }
    }
}

impl Records {
    fn offset(&self) -> u64 {
        match self {
            Self::Text(cutter) => cutter.offset(),
            Self::Columnar(rows) => rows.row,
        }
    }

    /// Returns the next batch, which ends at `stop` or before, unless its first record ends later; `None` at the end.
    fn next(&mut self, stop: Option<u64>) -> io::Result<Option<RecordBlock>> {
        match self {
            Self::Text(cutter) => cutter.next(stop),
            Self::Columnar(rows) => rows.next(stop),
        }
    }

    /// Returns the next `length` bytes or rows; fewer at the end.
    fn take(&mut self, length: usize) -> io::Result<RecordBlock> {
        match self {
            Self::Text(cutter) => cutter.take(length),
            Self::Columnar(rows) => {
                let block = rows.next(Some(rows.row + length as u64))?;
                Ok(block.unwrap_or(RecordBlock {
                    start: rows.row,
                    end: rows.row,
                    first_line: 0,
                    bytes: Vec::new(),
                }))
            }
        }
    }

    fn give_back(&mut self, block: RecordBlock) {
        match self {
            Self::Text(cutter) => cutter.give_back(block),
            // At the end of the file there is no block to keep.
            Self::Columnar(_) if block.bytes.is_empty() => {}
            Self::Columnar(rows) => {
                rows.row = block.start;
                rows.returned = Some(block);
            }
        }
    }
}

impl Columnar {
    fn open(path: &Path, format: RowFormat, limits: BatchLimits) -> io::Result<Self> {
        let other = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
        let file = File::open(path);
        let batches: Box<dyn RecordBatchReader> = match format {
            RowFormat::Parquet => {
                // Uses the types of Parquet, not the Arrow types that the writing library stored in the file.
                let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
                let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file?, options);
                let builder = builder.map_err(|error| other(&error))?;
                let reader = builder.with_batch_size(limits.rows).build();
                Box::new(reader.map_err(|error| other(&error))?)
            }
            _ => {
                let input: Box<dyn Read> = match path == Path::new("-") {
                    true => Box::new(io::stdin()),
                    false => Box::new(file?),
                };
                let reader = StreamReader::try_new(BufReader::new(input), None);
                Box::new(reader.map_err(|error| other(&error))?)
            }
        };
        Ok(Self {
            batches,
            rows_max: limits.rows,
            bytes_max: limits.bytes,
            current: None,
            row: 0,
            returned: None,
        })
    }

    fn next(&mut self, stop: Option<u64>) -> io::Result<Option<RecordBlock>> {
        if let Some(block) = self.returned.take() {
            self.row = block.end;
            return Ok(Some(block));
        }
        let other = |error: ArrowError| io::Error::other(error.to_string());
        let (batch, taken) = loop {
            match self.current.take() {
                Some((batch, taken)) if taken < batch.num_rows() => break (batch, taken),
                _ => match self.batches.next() {
                    None => return Ok(None),
                    Some(batch) => self.current = Some((batch.map_err(other)?, 0)),
                },
            }
        };
        let room = stop.map_or(u64::MAX, |stop| stop.saturating_sub(self.row).max(1));
        let row_bytes = (batch.get_array_memory_size() / batch.num_rows().max(1)).max(1);
        let fitting = (self.bytes_max / row_bytes).clamp(1, self.rows_max);
        let count = fitting
            .min(batch.num_rows() - taken)
            .min(usize::try_from(room).unwrap_or(usize::MAX));
        let rows = batch.slice(taken, count);
        let mut bytes = Vec::new();
        let mut writer = StreamWriter::try_new(&mut bytes, &rows.schema()).map_err(other)?;
        writer
            .write(&rows)
            .and_then(|()| writer.finish())
            .map_err(other)?;
        drop(writer);
        self.current = Some((batch, taken + count));
        let start = self.row;
        self.row += count as u64;
        Ok(Some(RecordBlock {
            start,
            end: self.row,
            first_line: start + 1,
            bytes,
        }))
    }
}

/// Opens a text file, or standard input, and decompresses it by its first bytes.
pub(in crate::write) fn text_of(path: &Path) -> io::Result<Box<dyn Read>> {
    let source: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(path)?),
    };
    let mut buffered = BufReader::new(source);
    let head = buffered.fill_buf()?;
    Ok(match head {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(buffered)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(zstd::stream::read::Decoder::with_buffer(buffered)?),
        _ => Box::new(buffered),
    })
}

/// Returns the format of a file's ending; `None` for an unknown ending.
fn format_of(path: &Path) -> Option<RowFormat> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let text = name
        .strip_suffix(".gz")
        .or_else(|| name.strip_suffix(".zst"))
        .unwrap_or(&name);
    match (text.rsplit_once('.')?.1, text == name) {
        ("csv", _) => Some(RowFormat::Csv),
        ("ndjson" | "jsonl", _) => Some(RowFormat::Ndjson),
        ("arrow", true) => Some(RowFormat::Arrow),
        ("parquet", true) => Some(RowFormat::Parquet),
        _ => None,
    }
}
