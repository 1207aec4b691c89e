//! Writing of row groups to files.
//!
//! A file is built on the local disk, sent when it is large enough, and read back before the next one begins.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, RowGroupMetaData};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use tempfile::NamedTempFile;

use super::group::{GroupColumn, GroupValues, RowGroup};
use super::schema::RowSchema;
use super::{ColumnPlace, GroupPlace, PartTarget};
use crate::copy::ArchiveFile;
use crate::error::{ArchiveError, Result};
use crate::file::sums::{NOTE_SUMS, Summed};
use crate::file::writer::{FinishedFile, failed};
use crate::send::send;
use crate::target::Target;
use crate::write::SentObjects;

/// Size at which a file is completed, in bytes.
const FILE_BYTES_MAX: usize = 64 << 20;

/// Files of a part, all verified.
#[derive(Debug)]
pub struct WrittenRows {
    /// Files in the order of their keys.
    pub files: Vec<ArchiveFile>,
    /// Locations of all groups, in the order in which they were added.
    pub groups: Vec<GroupPlace>,
}

/// Writer of the files of one part.
pub struct RowsWriter {
    place: PartTarget,
    target: Arc<Target>,
    directory: PathBuf,
    schema: RowSchema,
    file: Option<OpenFile>,
    done: WrittenRows,
    sent: SentObjects,
}

struct OpenFile {
    writer: SerializedFileWriter<Summed<BufWriter<File>>>,
    file: NamedTempFile,
    rows: u64,
    groups: Vec<GroupPlace>,
}

impl RowsWriter {
    pub(super) fn new(
        place: PartTarget,
        target: Arc<Target>,
        directory: PathBuf,
        schema: RowSchema,
    ) -> Result<Self> {
        Ok(Self {
            place,
            target,
            directory,
            schema,
            file: None,
            done: WrittenRows {
                files: Vec::new(),
                groups: Vec::new(),
            },
            sent: SentObjects::default(),
        })
    }

    /// Returns the list of names to which this writer adds every object that it puts. The list remains valid after a
    /// failure.
    pub fn sent(&self) -> SentObjects {
        self.sent.clone()
    }

    /// Writes a group. Its keys must be above those of earlier groups, and its columns must be those of the schema. A file
    /// that is large enough is sent and verified.
    ///
    /// # Errors
    ///
    /// Fails if the target or the local disk fails.
    pub fn add(&mut self, group: RowGroup) -> Result<()> {
        let mut open = match self.file.take() {
            Some(open) => open,
            None => self.open()?,
        };
        let mut row_group = open.writer.next_row_group().map_err(failed)?;
        let rows = group.rows;
        for column in group.columns {
            let next = row_group.next_column().map_err(failed)?;
            let mut to = next.ok_or_else(|| ArchiveError::format("a group", "it has too many columns"))?;
            column.write(&mut to).map_err(failed)?;
            to.close().map_err(failed)?;
        }
        let metadata = row_group.close().map_err(failed)?;
        open.groups.push(place_of(&metadata, rows)?);
        open.rows += rows as u64;
        let is_full = open.writer.bytes_written() >= FILE_BYTES_MAX;
        self.file = Some(open);
        match is_full {
            true => self.complete(),
            false => Ok(()),
        }
    }

    /// Completes the last file. On success all files are stored at the target and verified.
    ///
    /// # Errors
    ///
    /// Fails if the target or the local disk fails.
    pub fn finish(mut self) -> Result<WrittenRows> {
        self.complete()?;
        Ok(self.done)
    }

    fn open(&self) -> Result<OpenFile> {
        let file = tempfile::Builder::new()
            .prefix("archive-")
            .suffix(".parquet")
            .tempfile_in(&self.directory)
            .map_err(ArchiveError::local("making"))?;
        let handle = file.reopen().map_err(ArchiveError::local("opening"))?;
        let notes = vec![
            ("tideline.table".to_owned(), self.place.table.to_string()),
            ("tideline.part".to_owned(), self.place.name.clone()),
        ];
        let writer = SerializedFileWriter::new(
            Summed::new(BufWriter::new(handle)),
            Arc::clone(self.schema.parquet()),
            Arc::new(self.schema.properties(notes)),
        );
        Ok(OpenFile {
            writer: writer.map_err(failed)?,
            file,
            rows: 0,
            groups: Vec::new(),
        })
    }

    /// Completes the open file, sends it and verifies it at the target.
    fn complete(&mut self) -> Result<()> {
        let Some(mut open) = self.file.take() else {
            return Ok(());
        };
        let local = |source| ArchiveError::local("writing")(source);
        open.writer.flush().map_err(local)?;
        let sums = open.writer.inner_mut().take_sums();
        let note = KeyValue::new(NOTE_SUMS.to_owned(), sums.to_note());
        open.writer.append_key_value_metadata(note);
        let metadata = open.writer.finish().map_err(failed)?;
        open.writer.inner_mut().flush().map_err(local)?;
        open.file
            .as_file()
            .sync_all()
            .map_err(ArchiveError::local("syncing"))?;
        let finished = FinishedFile {
            file: open.file,
            metadata,
            rows: open.rows,
            sums,
        };
        let content = std::fs::read(finished.file.path()).map_err(ArchiveError::local("reading"))?;
        let number = u32::try_from(self.done.files.len())
            .map_err(|_| ArchiveError::format("a part", "it has too many files"))?;
        for group in &mut open.groups {
            let start = usize::try_from(group.start).unwrap_or(usize::MAX);
            let part = content.get(start..start.saturating_add(group.bytes as usize));
            let part = part.ok_or_else(|| ArchiveError::format("a group", "it is outside of its file"))?;
            group.checksum = crc32fast::hash(part);
            group.file = number;
        }
        drop(content);
        let name = |sha256: &str| {
            let key = self.place.file_key(sha256);
            self.sent.note(&key);
            key
        };
        // Rows have no range of times that the statistics could be compared with.
        let file = send(&self.target, &finished, (i64::MIN, i64::MAX), false, name)?;
        self.done.files.push(file);
        self.done.groups.append(&mut open.groups);
        Ok(())
    }
}

impl GroupColumn {
    fn write(self, to: &mut SerializedColumnWriter<'_>) -> std::result::Result<usize, ParquetError> {
        let levels = self.levels.as_deref();
        match self.values {
            GroupValues::Bytes(values) => {
                let (data, ends) = values.into_parts();
                let (data, mut start) = (Bytes::from(data), 0);
                let value = |end| ByteArray::from(data.slice(std::mem::replace(&mut start, end)..end));
                let values: Vec<ByteArray> = ends.into_iter().map(value).collect();
                to.typed::<ByteArrayType>().write_batch(&values, levels, None)
            }
            GroupValues::Floats(values) => to.typed::<DoubleType>().write_batch(&values, levels, None),
            GroupValues::Integers(values) => to.typed::<Int64Type>().write_batch(&values, levels, None),
            GroupValues::Booleans(values) => to.typed::<BoolType>().write_batch(&values, levels, None),
        }
    }
}

/// Returns the location of a written group. File and checksum are added when the file is complete.
fn place_of(metadata: &RowGroupMetaData, rows: usize) -> Result<GroupPlace> {
    let wrong = || ArchiveError::format("a group", "its columns are not where they should be");
    let offset = |at: i64| u64::try_from(at).map_err(|_| wrong());
    let (mut start, mut end) = (u64::MAX, 0);
    for column in metadata.columns() {
        let first = column
            .dictionary_page_offset()
            .unwrap_or_else(|| column.data_page_offset());
        let first = offset(first)?;
        start = start.min(first);
        end = end.max(first + offset(column.compressed_size())?);
    }
    let short = |bytes: u64| u32::try_from(bytes).map_err(|_| wrong());
    let within = |at: i64| short(offset(at)?.checked_sub(start).ok_or_else(wrong)?);
    let columns = metadata.columns().iter().map(|column| {
        Ok(ColumnPlace {
            dictionary: column.dictionary_page_offset().map(within).transpose()?,
            data: within(column.data_page_offset())?,
            bytes: short(offset(column.compressed_size())?)?,
        })
    });
    Ok(GroupPlace {
        file: 0,
        rows: short(rows as u64)?,
        start,
        bytes: short(end.checked_sub(start).ok_or_else(wrong)?)?,
        checksum: 0,
        columns: columns.collect::<Result<_>>()?,
    })
}
