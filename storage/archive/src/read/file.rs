//! Reader of runs of one file, requested in ascending order of rows.
//!
//! The column readers advance through a row group and skip the rows that were not requested. The pages of the requested
//! rows are fetched together before decoding. If the reader has a read-ahead, pages of the following rows are fetched
//! as well.

use std::ops::Range;
use std::sync::Arc;

use parquet::errors::{ParquetError, Result as ParquetResult};
use tideline_chunk::{Run, RunColumn};
use tideline_model::{ColumnData, FieldId, ValueType};

use super::columns::{ColumnReader, Kind, page_locations, presence};
use super::fetch::{Fetched, PageCache};
use super::footers::{OpenFile, Opened};
use super::segment::FieldNames;
use crate::error::{ArchiveError, Result, guarded};
use crate::file::columns::TIME_AT;
use crate::file::shared::FIELD_LEAF;
use crate::target::Target;

/// Reader of runs of one file.
pub(super) struct FileReader {
    target: Arc<Target>,
    /// Object name.
    key: String,
    file: Arc<OpenFile>,
    fetched: Arc<Fetched>,
    /// Requested value columns with their fields. Empty for a shared file, whose value columns are all read.
    wanted: Vec<(usize, FieldId, ValueType)>,
    /// All columns that are read, starting with the timestamps.
    leaves: Vec<(usize, Kind)>,
    /// Maximum bytes fetched ahead of the requested rows.
    ahead: u64,
    group: Option<Group>,
}

/// Row group that is being read.
struct Group {
    number: usize,
    readers: Vec<ColumnReader>,
    /// Next row of all readers.
    at: u64,
    /// Rows whose pages are available.
    fetched: Range<u64>,
}

/// Approximate memory of a page of one column that is being decoded.
const PAGE_MEMORY: u64 = 64 << 10;

impl FileReader {
    /// Creates a reader. Its read-ahead is `share` minus the memory for decoding.
    pub(super) fn new(
        target: Arc<Target>,
        key: &str,
        opened: Opened,
        names: &dyn FieldNames,
        fields: Option<&[FieldId]>,
        share: u64,
        cache: PageCache,
    ) -> Result<Self> {
        let Opened { file, rows } = opened;
        let mut wanted = Vec::new();
        if !file.is_shared {
            for (column, name, of) in &file.fields {
                let field = names.id(name).ok_or_else(|| unknown(&target, key, name))?;
                if fields.is_none_or(|fields| fields.contains(&field)) {
                    wanted.push((*column, field, *of));
                }
            }
            wanted.sort_unstable_by_key(|(_, field, of)| (*field, of.code()));
        }
        let mut leaves = vec![(TIME_AT, Kind::Times)];
        if file.is_shared {
            leaves.push((FIELD_LEAF, Kind::Values(ValueType::String)));
            leaves.extend(
                file.fields
                    .iter()
                    .map(|(column, _, of)| (*column, Kind::Values(*of))),
            );
        } else {
            leaves.extend(wanted.iter().map(|(column, _, of)| (*column, Kind::Values(*of))));
        }
        let ahead = share.saturating_sub(leaves.len() as u64 * PAGE_MEMORY);
        let fetched = Fetched::new(Arc::clone(&target), key.to_owned(), Arc::clone(&file), cache);
        if let Some(rows) = rows {
            fetched.take(&rows);
        }
        Ok(Self {
            fetched: Arc::new(fetched),
            target,
            key: key.to_owned(),
            file,
            wanted,
            leaves,
            ahead,
            group: None,
        })
    }

    /// Returns the approximate memory usage: fetched bytes, pages being decoded, and metadata of the file.
    pub(super) fn memory(&self) -> u64 {
        let decoded = self
            .group
            .as_ref()
            .map_or(0, |group| group.readers.len() as u64 * PAGE_MEMORY);
        self.fetched.bytes_held()
            + decoded
            + (self.file.metadata.memory_size() + self.file.sums.bytes()) as u64
    }

    /// Reads rows of the file as a run of one timeline. Omits columns without a value in these rows.
    pub(super) fn read(
        &mut self,
        rows: Range<u64>,
        names: &dyn FieldNames,
        fields: Option<&[FieldId]>,
    ) -> Result<Run> {
        if rows.end > self.file.group_starts.last().copied().unwrap_or(0) {
            return Err(self
                .target
                .damaged(&self.key, "it has fewer rows than recorded for it"));
        }
        let mut raw = Raw::new(&self.leaves, self.file.is_shared);
        let mut at = rows.start;
        while at < rows.end {
            let number = self.file.group_starts.partition_point(|start| *start <= at) - 1;
            let end = rows.end.min(self.file.group_starts[number + 1]);
            let read = self.read_group(number, at..end, &mut raw);
            if !matches!(read, Ok(Ok(()))) {
                // After an error the position of the readers is unknown.
                self.group = None;
            }
            read?.map_err(|error| self.failed(error))?;
            at = end;
        }
        match self.file.is_shared {
            true => self.pivot(&raw, names, fields),
            false => Ok(self.columns(raw)),
        }
    }

    /// Reads rows of one row group.
    fn read_group(&mut self, number: usize, rows: Range<u64>, raw: &mut Raw) -> Result<ParquetResult<()>> {
        let start = self.file.group_starts[number];
        let rows = rows.start - start..rows.end - start;
        let is_behind = self
            .group
            .as_ref()
            .is_none_or(|group| group.number != number || group.at > rows.start);
        if is_behind {
            self.group = None;
            match self.open_group(number) {
                Ok(group) => self.group = Some(group),
                Err(error) => return Ok(Err(error)),
            }
        }
        self.fetch(number, &rows)?;
        let Some(group) = &mut self.group else {
            return Ok(Ok(()));
        };
        let (skip, count) = ((rows.start - group.at) as usize, (rows.end - rows.start) as usize);
        group.at = rows.end;
        let decoded = guarded(|| {
            let mut readers = group.readers.iter_mut().enumerate();
            readers.try_for_each(|(nth, reader)| {
                reader.skip(skip)?;
                raw.read(nth, reader, count)
            })
        });
        decoded.map_err(|reason| self.target.damaged(&self.key, reason))
    }

    /// Converts a decoding error: the file is damaged, or its bytes could not be fetched.
    fn failed(&self, error: ParquetError) -> ArchiveError {
        let damaged = |reason: String| self.target.damaged(&self.key, reason);
        match error {
            ParquetError::External(cause) => match cause.downcast::<ArchiveError>() {
                Ok(cause) => *cause,
                Err(cause) => damaged(cause.to_string()),
            },
            error => damaged(error.to_string()),
        }
    }

    fn open_group(&self, number: usize) -> ParquetResult<Group> {
        let open = |(column, kind): &(usize, Kind)| {
            ColumnReader::open(&self.fetched, &self.file.metadata, number, *column, *kind)
        };
        Ok(Group {
            number,
            readers: self.leaves.iter().map(open).collect::<ParquetResult<_>>()?,
            at: 0,
            fetched: 0..0,
        })
    }

    /// Fetches the pages of rows, and of following rows within the read-ahead.
    fn fetch(&mut self, number: usize, rows: &Range<u64>) -> Result<()> {
        let fetched = self.group.as_ref().map_or(0..0, |group| group.fetched.clone());
        if fetched.start <= rows.start && rows.end <= fetched.end {
            return Ok(());
        }
        let metadata = &self.file.metadata;
        let of_group = metadata.row_group(number);
        let total = u64::try_from(of_group.num_rows()).unwrap_or(0);
        let sizes = self
            .leaves
            .iter()
            .map(|(column, _)| of_group.column(*column).byte_range().1);
        let bytes: u64 = sizes.sum();
        let more = u128::from(self.ahead) * u128::from(total) / u128::from(bytes.max(1));
        let more = u64::try_from(more).unwrap_or(u64::MAX);
        let end = rows
            .start
            .saturating_add(more)
            .clamp(rows.end, total.max(rows.end));
        let mut ranges = Vec::new();
        for (column, _) in &self.leaves {
            let chunk = of_group.column(*column);
            let pages = page_locations(metadata, number, *column);
            let pages = pages.map_err(|error| self.failed(error))?;
            let (start, length) = chunk.byte_range();
            if let Some(first) = pages.first() {
                // The dictionary is stored before the first page.
                ranges.push(start..(first.offset as u64).min(start + length));
            }
            let from = pages
                .partition_point(|page| page.first_row_index as u64 <= rows.start)
                .saturating_sub(1);
            let to = pages.partition_point(|page| (page.first_row_index as u64) < end);
            if let (Some(first), Some(last)) = (pages.get(from), pages.get(to.max(from + 1) - 1)) {
                let last_end = last.offset as u64 + last.compressed_page_size as u64;
                ranges.push(first.offset as u64..last_end);
            }
        }
        self.fetched.fetch(ranges)?;
        if let Some(group) = &mut self.group {
            group.fetched = rows.start..end;
        }
        Ok(())
    }

    /// Builds a run from rows of a file of one measurement.
    fn columns(&self, raw: Raw) -> Run {
        let columns = self.wanted.iter().zip(raw.columns.into_iter().skip(1));
        let columns = columns.filter(|(_, (_, values))| !values.is_empty());
        let columns = columns.map(|((_, field, _), (levels, values))| RunColumn {
            field: *field,
            presence: presence(&levels),
            values,
        });
        Run {
            columns: columns.collect(),
            timestamps: raw.times,
        }
    }

    /// Builds a run from rows of a shared file, which has one row per value.
    fn pivot(&self, raw: &Raw, names: &dyn FieldNames, fields: Option<&[FieldId]>) -> Result<Run> {
        let damaged = |reason: &str| self.target.damaged(&self.key, reason);
        let mut pivot = super::segment::Pivot::default();
        let mut taken = vec![0; raw.columns.len()];
        let mut before = None;
        for (row, time) in raw.times.iter().enumerate() {
            if before.replace(*time) != Some(*time) {
                pivot.begin(*time);
            }
            let Some(Some(name)) = raw.names.get(row) else {
                continue;
            };
            let name = std::str::from_utf8(name).map_err(|_| damaged("the name of a field is not UTF-8"))?;
            let field = names
                .id(name)
                .ok_or_else(|| unknown(&self.target, &self.key, name))?;
            let of = (NAMES_AT + 1..raw.columns.len())
                .find(|nth| raw.columns[*nth].0.get(row).is_some_and(|level| *level > 0));
            let Some(nth) = of else { continue };
            let at = taken[nth];
            taken[nth] += 1;
            if fields.is_none_or(|fields| fields.contains(&field)) {
                pivot.push(field, &raw.columns[nth].1, at);
            }
        }
        Ok(pivot.finish())
    }
}

fn unknown(target: &Target, key: &str, name: &str) -> ArchiveError {
    target.damaged(
        key,
        format!("it has a field {name:?} that the table does not have"),
    )
}

/// Decoded columns.
struct Raw {
    times: Vec<i64>,
    /// Field name of each row of a shared file.
    names: Vec<Option<bytes::Bytes>>,
    /// Definition levels and values of each column; empty for timestamps and field names.
    columns: Vec<(Vec<i16>, ColumnData)>,
    is_shared: bool,
}

/// Index of the field names in the list of columns that are read from a shared file. The value columns follow.
const NAMES_AT: usize = 1;

impl Raw {
    fn new(leaves: &[(usize, Kind)], is_shared: bool) -> Self {
        let empty = |(_, kind): &(usize, Kind)| match kind {
            Kind::Times => (Vec::new(), ColumnData::new(ValueType::Signed)),
            Kind::Values(of) => (Vec::new(), ColumnData::new(*of)),
        };
        Self {
            times: Vec::new(),
            names: Vec::new(),
            columns: leaves.iter().map(empty).collect(),
            is_shared,
        }
    }

    fn read(&mut self, nth: usize, reader: &mut ColumnReader, rows: usize) -> ParquetResult<()> {
        if nth == 0 {
            return reader.times(rows, &mut self.times);
        }
        if self.is_shared && nth == NAMES_AT {
            self.names.extend(reader.texts(rows)?);
            return Ok(());
        }
        let (levels, values) = &mut self.columns[nth];
        reader.values(rows, levels, values)
    }
}
