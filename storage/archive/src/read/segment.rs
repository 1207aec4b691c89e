//! Reader of runs of all files of a segment.
//!
//! Readers of one query share a memory limit. While the limit is exceeded, each reader closes its least recently used
//! files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use tideline_chunk::{Bitmap, Presence, Run, RunColumn};
use tideline_model::{ColumnData, FieldId, ValueType};

use super::fetch::PageCache;
use super::file::FileReader;
use super::footers::Footers;
use crate::copy::ArchiveCopy;
use crate::error::{ArchiveError, Result};
use crate::extent::Extent;
use crate::target::Target;

/// Memory limit in bytes of a reader that does not share a limit.
const MEMORY_MAX: u64 = 64 << 20;

/// Resolves field names to field numbers.
pub trait FieldNames {
    /// Returns the number of a field; `None` if the table has no field of this name.
    fn id(&self, name: &str) -> Option<FieldId>;
}

impl<F: Fn(&str) -> Option<FieldId>> FieldNames for F {
    fn id(&self, name: &str) -> Option<FieldId> {
        self(name)
    }
}

/// Reader of runs of a segment. Reads each file once and forward if runs are requested in ascending order of timelines.
pub struct SegmentReader {
    target: Arc<Target>,
    footers: Arc<Footers>,
    copy: Arc<ArchiveCopy>,
    fields: Option<Vec<FieldId>>,
    /// Maximum bytes that all files together fetch ahead; zero if single timelines are read.
    ahead: u64,
    /// True if fetched blocks are added to the page cache.
    keeps: bool,
    files: HashMap<u32, OpenReader>,
    memory: Arc<ReadMemory>,
    /// Share of `memory` used by the open files of this reader, in bytes.
    memory_bytes: u64,
    reads: u64,
}

/// File that is being read.
struct OpenReader {
    reader: FileReader,
    /// Approximate memory usage, in bytes.
    memory_bytes: u64,
    /// Number of the last read that used the file.
    used: u64,
}

/// Memory limit shared by the readers of one query. The limit applies to fetched pages and metadata of open files.
#[derive(Debug)]
pub struct ReadMemory {
    bytes_max: u64,
    bytes: AtomicU64,
}

impl ReadMemory {
    /// Creates a shared limit of `bytes_max` bytes. While the limit is exceeded, a reader keeps only the file that it
    /// read last, or no file if other readers use memory as well.
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            bytes: AtomicU64::new(0),
        }
    }

    /// Returns the approximate memory usage in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.bytes() > self.bytes_max
    }
}

impl std::fmt::Debug for SegmentReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "SegmentReader({}, {} files)",
            self.target,
            self.copy.files.len()
        )
    }
}

impl SegmentReader {
    pub(crate) fn new(
        target: Arc<Target>,
        footers: Arc<Footers>,
        copy: Arc<ArchiveCopy>,
        fields: Option<Vec<FieldId>>,
        ahead: u64,
    ) -> Self {
        Self {
            target,
            footers,
            copy,
            fields,
            ahead,
            keeps: true,
            files: HashMap::new(),
            memory: Arc::new(ReadMemory::new(MEMORY_MAX)),
            memory_bytes: 0,
            reads: 0,
        }
    }

    /// Shares a memory limit with other readers. By default each reader has its own limit.
    #[must_use]
    pub fn within(mut self, memory: &Arc<ReadMemory>) -> Self {
        self.memory = Arc::clone(memory);
        self
    }

    /// Disables adding fetched blocks to the page cache. Intended for compactions, which replace the files.
    #[must_use]
    pub fn passing(mut self) -> Self {
        self.keeps = false;
        self
    }

    /// Reads a run with the requested fields. Omits columns without a value.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::Damaged`] if the stored rows differ from those recorded or have a field that the table does not
    /// have. [`ArchiveError::Format`] if the segment does not have the file of the extent. Other errors if the target
    /// fails.
    pub fn read(&mut self, extent: &Extent, names: &dyn FieldNames) -> Result<Run> {
        let run = self.read_from_file(extent, names);
        self.settle(extent.file);
        let run = run?;
        let ends = run.timestamps.first().zip(run.timestamps.last());
        let all_values = self.fields.is_none() && extent.values < u32::MAX;
        let is_right = ends == Some((&extent.first, &extent.last))
            && run.rows() == extent.points as usize
            && (!all_values || run.values() == extent.values as usize);
        if !is_right || !run.timestamps.is_sorted_by(|a, b| a < b) {
            let key = &self.copy.files[extent.file as usize].key;
            return Err(self
                .target
                .damaged(key, "its rows differ from those recorded for it"));
        }
        Ok(run)
    }

    fn read_from_file(&mut self, extent: &Extent, names: &dyn FieldNames) -> Result<Run> {
        let fields = self.fields.as_deref();
        let open = match self.files.entry(extent.file) {
            hashbrown::hash_map::Entry::Occupied(open) => open.into_mut(),
            hashbrown::hash_map::Entry::Vacant(vacant) => {
                let file = self.copy.files.get(extent.file as usize).ok_or_else(|| {
                    ArchiveError::format("an extent", format!("the segment has no file {}", extent.file))
                })?;
                let open = self.footers.open(&self.target, file)?;
                let share = self.ahead / self.copy.files.len().max(1) as u64;
                let target = Arc::clone(&self.target);
                let cache = PageCache {
                    pages: Arc::clone(self.footers.pages()),
                    keeps: self.keeps,
                };
                vacant.insert(OpenReader {
                    reader: FileReader::new(target, &file.key, open, names, fields, share, cache)?,
                    memory_bytes: 0,
                    used: 0,
                })
            }
        };
        self.reads += 1;
        open.used = self.reads;
        let rows = extent.row..extent.row.saturating_add(u64::from(extent.rows));
        open.reader.read(rows, names, fields)
    }

    /// Updates the memory usage of a file. Closes the least recently used files if the limit is exceeded.
    fn settle(&mut self, file: u32) {
        let Some(open) = self.files.get_mut(&file) else {
            return;
        };
        let before = std::mem::replace(&mut open.memory_bytes, open.reader.memory());
        self.memory_bytes = self.memory_bytes - before + open.memory_bytes;
        self.memory.bytes.fetch_add(open.memory_bytes, Ordering::Relaxed);
        self.memory.bytes.fetch_sub(before, Ordering::Relaxed);
        while self.memory.is_over() && self.files.len() > 1 {
            let oldest = self.files.iter().min_by_key(|(_, open)| open.used);
            let Some(oldest) = oldest.map(|(file, _)| *file) else {
                return;
            };
            self.close(oldest);
        }
        // If other readers also use the shared memory, this reader closes its last file too.
        if self.memory.is_over() && self.memory_bytes < self.memory.bytes() {
            self.close(file);
        }
    }

    fn close(&mut self, file: u32) {
        if let Some(open) = self.files.remove(&file) {
            self.memory_bytes -= open.memory_bytes;
            self.memory.bytes.fetch_sub(open.memory_bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for SegmentReader {
    fn drop(&mut self) {
        self.memory.bytes.fetch_sub(self.memory_bytes, Ordering::Relaxed);
    }
}

/// Builder of a run from values that arrive one by one.
#[derive(Default)]
pub(super) struct Pivot {
    times: Vec<i64>,
    columns: HashMap<(FieldId, ValueType), (Vec<usize>, ColumnData)>,
}

impl Pivot {
    /// Starts the next point.
    pub(super) fn begin(&mut self, time: i64) {
        self.times.push(time);
    }

    /// Adds a value to the current point.
    pub(super) fn push(&mut self, field: FieldId, from: &ColumnData, at: usize) {
        let of = from.value_type();
        let new = || (Vec::new(), ColumnData::new(of));
        let (rows, values) = self.columns.entry((field, of)).or_insert_with(new);
        rows.push(self.times.len() - 1);
        match (values, from) {
            (ColumnData::Float(to), ColumnData::Float(from)) => to.push(from[at]),
            (ColumnData::Signed(to), ColumnData::Signed(from)) => to.push(from[at]),
            (ColumnData::Unsigned(to), ColumnData::Unsigned(from)) => to.push(from[at]),
            (ColumnData::Boolean(to), ColumnData::Boolean(from)) => to.push(from[at]),
            (ColumnData::String(to), ColumnData::String(from)) => to.push(from.get(at)),
            (ColumnData::Histogram(to), ColumnData::Histogram(from)) => to.push(from.get(at)),
            _ => {}
        }
    }

    pub(super) fn finish(self) -> Run {
        let length = self.times.len();
        let columns = self.columns.into_iter().map(|((field, _), (rows, values))| {
            let presence = if rows.len() == length {
                Presence::All
            } else {
                let mut bitmap = Bitmap::absent(length);
                rows.iter().for_each(|row| bitmap.set(*row));
                Presence::Some(bitmap)
            };
            RunColumn {
                field,
                presence,
                values,
            }
        });
        let mut columns: Vec<RunColumn> = columns.collect();
        columns.sort_unstable_by_key(|column| (column.field, column.values.value_type().code()));
        Run {
            timestamps: self.times,
            columns,
        }
    }
}
