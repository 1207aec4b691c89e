//! Reads the inputs and cuts them into batches.
//!
//! Several files are read alternately in random order. Consecutive batches then usually contain points of different
//! machines, which spreads the load. Ranges acknowledged by an earlier run are skipped after a check of their hash.

use std::cell::Cell;
use std::io::Read;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender};

use tideline_openapi::model::{Clock, Precision, SystemClock};
use xxhash_rust::xxh3::xxh3_64;

use super::csv::{ColumnScan, CsvArguments, CsvPlan};
use super::cutter::{BatchLimits, Cutter, RecordBlock};
use super::early::likely_unit_of;
use super::input::{FormatName, Input};
use super::parquet::ParquetRows;
use super::progress::Progress;
use super::record::Framing;
use super::resume::{Acknowledged, Ranges};
use super::{Unit, WriteArguments};
use crate::error::{CliError, Result};

/// Maximum number of files that are read alternately.
const OPEN_FILES_MAX: usize = 16;

/// Records of one input.
pub(super) struct Batch {
    /// Path of the input.
    pub(super) path: Arc<str>,
    pub(super) framing: Framing,
    /// Unit of integer times.
    pub(super) precision: &'static str,
    /// Conversion plan for rows of CSV; `None` for other formats.
    pub(super) csv: Option<Arc<CsvPlan>>,
    pub(super) block: RecordBlock,
    /// Hash of the bytes, if the run has a resume file: a later run detects changes by this hash.
    pub(super) hash: Option<u64>,
    /// Time of reading, in nanoseconds since the Unix epoch. Points without a time get this time.
    pub(super) time: i64,
    /// Bytes on disk that were read for the batch.
    pub(super) source_bytes: u64,
}

/// Source of the batches of all inputs.
pub(super) struct Feed<'a> {
    /// Inputs that are not opened yet, the next one last.
    waiting: Vec<Input>,
    open: Vec<Source>,
    open_max: usize,
    acknowledged: Acknowledged,
    csv: &'a CsvArguments,
    precision: &'static str,
    /// Unit of `--precision`; `None` if the option is not given.
    unit: Option<&'static str>,
    limits: BatchLimits,
    random: u64,
    /// True if batches are hashed for the resume file.
    is_resumable: bool,
    /// Buffers of completed batches, for reuse.
    spares: Receiver<Vec<u8>>,
    /// Set when the run has failed.
    stopped: Arc<AtomicBool>,
}

/// Reader of the records of an input.
enum Records {
    Text(Cutter<Box<dyn Read>>),
    Parquet {
        rows: Box<ParquetRows>,
        /// Size of the file, in bytes.
        bytes: u64,
    },
}

/// Input that is being read.
struct Source {
    path: Arc<str>,
    framing: Framing,
    csv: Option<Arc<CsvPlan>>,
    records: Records,
    /// Unit of integer times.
    precision: &'static str,
    /// Number of bytes read from disk. `accounted` counts the bytes assigned to batches so far.
    read: Rc<Cell<u64>>,
    accounted: u64,
    acknowledged: Ranges,
    /// True once the times of the first batch were checked for a wrong unit.
    is_checked: bool,
}

impl<'a> Feed<'a> {
    pub(super) fn new(
        inputs: Vec<Input>,
        acknowledged: Acknowledged,
        arguments: &'a WriteArguments,
        run: &str,
        spares: Receiver<Vec<u8>>,
        stopped: Arc<AtomicBool>,
    ) -> Self {
        let mut waiting = inputs;
        waiting.reverse();
        let mut feed = Self {
            waiting,
            open: Vec::new(),
            open_max: OPEN_FILES_MAX.min(usize::from(arguments.parallel)),
            acknowledged,
            csv: &arguments.csv,
            precision: arguments.precision(),
            unit: arguments.precision.map(Unit::name),
            limits: BatchLimits {
                bytes: arguments.batch_bytes,
                rows: usize::try_from(arguments.batch_rows).unwrap_or(usize::MAX),
            },
            random: xxh3_64(run.as_bytes()) | 1,
            is_resumable: arguments.resume.is_some(),
            spares,
            stopped,
        };
        if feed.open_max > 1 {
            for at in (1..feed.waiting.len()).rev() {
                let other = feed.below(at + 1);
                feed.waiting.swap(at, other);
            }
        }
        feed
    }

    /// Sends all batches to the channel. Ends early if the channel is closed.
    pub(super) fn run(&mut self, batches: &SyncSender<Batch>, progress: &Progress) -> Result<()> {
        loop {
            while self.open.len() < self.open_max
                && let Some(input) = self.waiting.pop()
            {
                let source = self.open(&input, progress)?;
                self.open.push(source);
            }
            if self.open.is_empty() {
                return Ok(());
            }
            let at = self.below(self.open.len());
            let source = &mut self.open[at];
            source.records.lend(|| self.spares.try_recv().ok());
            match source
                .next(progress, self.is_resumable)
                .map_err(|error| source.failed(error))?
            {
                Some(batch) => {
                    if batches.send(batch).is_err() {
                        return Ok(());
                    }
                }
                None => {
                    self.open.swap_remove(at);
                    progress.file_read();
                }
            }
        }
    }

    fn open(&mut self, input: &Input, progress: &Progress) -> Result<Source> {
        if input.format == FormatName::Parquet {
            return self.open_parquet(input, progress);
        }
        let opened = input
            .open(&self.stopped)
            .map_err(|error| CliError::file(&input.path, error))?;
        let path: Arc<str> = input.path.to_string_lossy().into();
        let mut source = Source {
            acknowledged: self.acknowledged.take(&path),
            path,
            framing: input.framing,
            csv: None,
            records: Records::Text(Cutter::new(opened.reader, input.framing, self.limits)),
            precision: self.precision,
            read: opened.read,
            accounted: 0,
            is_checked: false,
        };
        if input.format == FormatName::Csv {
            let header = match self.csv.has_header() {
                true => source.records.record().map_err(|error| source.failed(error))?,
                false => None,
            };
            if self.csv.has_header() && header.is_none() {
                // An empty file needs no header.
                return Ok(source);
            }
            let plan = self
                .csv
                .plan(header.as_ref().map(|block| &*block.bytes), &source.path);
            let mut plan = plan.map_err(|error| CliError::usage(format!("{}: {error}", source.path)))?;
            let scan = self.scan(input, &mut source, &plan)?;
            scan.decide(&mut plan, &source.path, self.unit)?;
            source.precision = plan.unit().unwrap_or(source.precision);
            if let Some(likely) = scan.likely_unit(source.precision) {
                progress.warn_of_1970(&source.path, source.precision, likely);
            }
            source.csv = Some(Arc::new(plan));
        }
        Ok(source)
    }

    /// Scans all rows of a file, or those of the first batch of a stream.
    fn scan(&self, input: &Input, source: &mut Source, plan: &CsvPlan) -> Result<ColumnScan> {
        let mut scan = ColumnScan::new(plan);
        if input.bytes.is_none() {
            let first = source.records.next(None).map_err(|error| source.failed(error))?;
            if let Some(block) = first {
                scan.add(plan, &block);
                source.records.give_back(block);
            }
            return Ok(scan);
        }
        let opened = input.open(&self.stopped).map_err(|error| source.failed(error))?;
        let mut rows = Cutter::new(opened.reader, input.framing, self.limits);
        if self.csv.has_header() {
            rows.record().map_err(|error| source.failed(error))?;
        }
        while let Some(block) = rows.next(None).map_err(|error| source.failed(error))? {
            scan.add(plan, &block);
            rows.lend(|| Some(block.bytes));
        }
        Ok(scan)
    }

    fn open_parquet(&mut self, input: &Input, progress: &Progress) -> Result<Source> {
        let unit = Precision::parse(self.precision).unwrap_or_default();
        let rows = ParquetRows::open(&input.path, self.csv, unit.nanos(), self.limits)?;
        let path: Arc<str> = input.path.to_string_lossy().into();
        progress.passed_over(&path, rows.histograms());
        Ok(Source {
            acknowledged: self.acknowledged.take(&path),
            path,
            framing: input.framing,
            csv: None,
            records: Records::Parquet {
                rows: Box::new(rows),
                bytes: input.bytes.unwrap_or_default(),
            },
            // Times of any Parquet type are converted to nanoseconds.
            precision: "ns",
            read: Rc::default(),
            accounted: 0,
            // The unit of times is not checked: the columns define it, or it is the configured one.
            is_checked: true,
        })
    }

    /// Returns a random number below `bound`, by xorshift; 0 if files are not read alternately. The choice of the
    /// next file must be evenly distributed, but it need not be unpredictable.
    fn below(&mut self, bound: usize) -> usize {
        if self.open_max == 1 {
            return 0;
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % bound as u64).unwrap_or(0)
    }
}

impl Records {
    fn offset(&self) -> u64 {
        match self {
            Self::Text(cutter) => cutter.offset(),
            Self::Parquet { rows, .. } => rows.offset(),
        }
    }

    /// Returns the next batch, which ends at `stop` or before, unless its first record ends later. Returns
    /// `None` at the end.
    fn next(&mut self, stop: Option<u64>) -> std::io::Result<Option<RecordBlock>> {
        match self {
            Self::Text(cutter) => cutter.next(stop),
            Self::Parquet { rows, .. } => rows.next(stop),
        }
    }

    /// Lends a buffer. Parquet readers ignore it.
    fn lend(&mut self, spare: impl FnOnce() -> Option<Vec<u8>>) {
        match self {
            Self::Text(cutter) => cutter.lend(spare),
            Self::Parquet { .. } => {}
        }
    }

    /// Returns the next `length` bytes of text or rows of Parquet; fewer at the end.
    fn take(&mut self, length: usize) -> std::io::Result<RecordBlock> {
        match self {
            Self::Text(cutter) => cutter.take(length),
            Self::Parquet { rows, .. } => rows.take(length),
        }
    }

    /// Puts back the block that was returned last, so that it is read again.
    fn give_back(&mut self, block: RecordBlock) {
        match self {
            Self::Text(cutter) => cutter.give_back(block),
            Self::Parquet { rows, .. } => rows.give_back(block),
        }
    }

    /// Returns the next record alone. At the end, returns `None` for text and an empty block for Parquet.
    fn record(&mut self) -> std::io::Result<Option<RecordBlock>> {
        match self {
            Self::Text(cutter) => cutter.record(),
            Self::Parquet { rows, .. } => rows.take(1).map(Some),
        }
    }
}

impl Source {
    /// Returns the next batch that is not acknowledged yet. `None` at the end.
    fn next(&mut self, progress: &Progress, is_resumable: bool) -> std::io::Result<Option<Batch>> {
        loop {
            let offset = self.records.offset();
            let block = match self.acknowledged.next_from(offset) {
                Some(range) if range.start == offset => {
                    let block = self.records.take(range.len())?;
                    if block.end == range.end && xxh3_64(&block.bytes) == range.hash {
                        let bytes = block.bytes.len() as u64;
                        match self.grown(block, progress)? {
                            Some(record) => Some(record),
                            None => {
                                let source_bytes = self.source_bytes();
                                progress.skipped(bytes, source_bytes, range.rejected);
                                continue;
                            }
                        }
                    } else {
                        // The file has changed here, so later ranges do not apply any more.
                        self.records.give_back(block);
                        self.acknowledged.clear();
                        self.records.next(None)?
                    }
                }
                range => self.records.next(range.map(|range| range.start))?,
            };
            let Some(block) = block else {
                return Ok(None);
            };
            if !std::mem::replace(&mut self.is_checked, true)
                && let Some(likely) = likely_unit_of(&block.bytes, self.framing, self.precision)
            {
                progress.warn_of_1970(&self.path, self.precision, likely);
            }
            return Ok(Some(Batch {
                path: Arc::clone(&self.path),
                framing: self.framing,
                precision: self.precision,
                csv: self.csv.clone(),
                hash: is_resumable.then(|| xxh3_64(&block.bytes)),
                time: SystemClock.now().nanos(),
                block,
                source_bytes: self.source_bytes(),
            }));
        }
    }

    /// Returns the whole record if an earlier run sent only its beginning, `block`, because the file ended there;
    /// otherwise `None`.
    fn grown(&mut self, block: RecordBlock, progress: &Progress) -> std::io::Result<Option<RecordBlock>> {
        if self.framing.end(&block.bytes, 0).is_some() {
            return Ok(None);
        }
        let sent = block.bytes.clone();
        self.records.give_back(block);
        let record = self.records.record()?.filter(|record| record.bytes != sent);
        if let Some(record) = &record {
            progress.note(format!(
                "{}:{}: an earlier run sent only the first {} bytes of this record, because the file \
                 ended there; the whole record is sent again",
                self.path,
                record.first_line,
                sent.len()
            ));
        }
        Ok(record)
    }

    /// Returns the number of bytes read from disk since the last call.
    fn source_bytes(&mut self) -> u64 {
        if let Records::Parquet { rows, bytes } = &self.records {
            self.read.set(rows.read_of(*bytes));
        }
        let read = self.read.get();
        read - std::mem::replace(&mut self.accounted, read)
    }

    fn failed(&self, error: std::io::Error) -> CliError {
        CliError::file(Path::new(&*self.path), error)
    }
}
