//! Writing of row groups to files.
//!
//! A file is built in memory, sent when it is large enough, and read back before the next one begins. Each of its bytes
//! is therefore processed only a few times: for encoding, for the checksums, and for the comparison with the bytes that
//! the target returns.

use std::sync::Arc;

use bytes::Bytes;
use parquet::file::metadata::{KeyValue, RowGroupMetaData};
use parquet::file::writer::SerializedFileWriter;

use super::encode::ColumnEncoder;
use super::group::RowGroup;
use super::schema::RowSchema;
use super::{ColumnLocation, GroupLocation, PartTarget};
use crate::copy::ArchiveFile;
use crate::error::{ArchiveError, Result};
use crate::file::sums::{NOTE_SUMS, Summed};
use crate::file::writer::failed;
use crate::send::{ContentOfFile, send_content};
use crate::target::Target;
use crate::write::SentObjects;

/// Size at which a file is completed, in bytes. The file and the copy that is read back are in memory at the same time.
const FILE_BYTES_MAX: usize = 32 << 20;
/// Memory reserved for a file in addition to [`FILE_BYTES_MAX`], in bytes: for a group and the footer. More is
/// allocated if this is not enough.
const FILE_BYTES_SPARE: usize = 6 << 20;

/// Files of a part, all verified.
#[derive(Debug)]
pub struct WrittenRows {
    /// Files in the order of their keys.
    pub files: Vec<ArchiveFile>,
    /// Locations of all groups, in the order in which they were added.
    pub groups: Vec<GroupLocation>,
}

/// Writer of the files of one part: of its rows, or of their streamed values.
pub struct RowsWriter {
    part: PartTarget,
    /// Returns the name of a file with this SHA-256.
    name: fn(&PartTarget, &str) -> String,
    target: Arc<Target>,
    schema: RowSchema,
    encoder: ColumnEncoder,
    file: Option<OpenFile>,
    done: WrittenRows,
    sent: SentObjects,
}

struct OpenFile {
    writer: SerializedFileWriter<Summed<Vec<u8>>>,
    rows: u64,
    groups: Vec<GroupLocation>,
}

impl RowsWriter {
    pub(super) fn new(
        part: PartTarget,
        target: Arc<Target>,
        schema: RowSchema,
        name: fn(&PartTarget, &str) -> String,
    ) -> Self {
        Self {
            part,
            name,
            target,
            schema,
            encoder: ColumnEncoder::new(),
            file: None,
            done: WrittenRows {
                files: Vec::new(),
                groups: Vec::new(),
            },
            sent: SentObjects::default(),
        }
    }

    /// Adds the names of objects to a list of another writer.
    pub(super) fn recording(mut self, sent: &SentObjects) -> Self {
        self.sent = sent.clone();
        self
    }

    /// Returns the list of names to which this writer adds every object that it puts. The list remains valid after a
    /// failure.
    pub fn sent(&self) -> SentObjects {
        self.sent.clone()
    }

    /// Writes a group. The keys of the group must be above the keys of earlier groups, and its columns must be the
    /// columns of the schema. If the file is then large enough, the file is sent and verified.
    ///
    /// # Errors
    ///
    /// Fails if the target fails.
    pub fn add(&mut self, group: &RowGroup) -> Result<()> {
        let mut open = match self.file.take() {
            Some(open) => open,
            None => self.open()?,
        };
        let mut row_group = open.writer.next_row_group().map_err(failed)?;
        let rows = group.rows;
        let kinds = self.schema.columns().iter().zip(self.schema.leaves().columns());
        for (column, (of, about)) in group.columns.iter().zip(kinds) {
            let encoded = self.encoder.encode(column, of.kind, Arc::clone(about), rows);
            let encoded = encoded.map_err(failed)?;
            row_group
                .append_column(&encoded.bytes, encoded.close)
                .map_err(failed)?;
        }
        let metadata = row_group.close().map_err(failed)?;
        open.groups.push(location_of(&metadata, rows)?);
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
    /// Fails if the target fails.
    pub fn finish(mut self) -> Result<WrittenRows> {
        self.complete()?;
        Ok(self.done)
    }

    fn open(&self) -> Result<OpenFile> {
        let notes = vec![
            ("tideline.table".to_owned(), self.part.table.to_string()),
            ("tideline.part".to_owned(), self.part.name.clone()),
        ];
        let writer = SerializedFileWriter::new(
            Summed::new(Vec::with_capacity(FILE_BYTES_MAX + FILE_BYTES_SPARE)),
            Arc::clone(self.schema.parquet()),
            Arc::new(RowSchema::properties(notes)),
        );
        Ok(OpenFile {
            writer: writer.map_err(failed)?,
            rows: 0,
            groups: Vec::new(),
        })
    }

    /// Completes the open file, sends it and verifies it at the target.
    fn complete(&mut self) -> Result<()> {
        let Some(mut open) = self.file.take() else {
            return Ok(());
        };
        open.writer.flush().map_err(ArchiveError::local("writing"))?;
        let sums = open.writer.inner_mut().take_sums();
        let note = KeyValue::new(NOTE_SUMS.to_owned(), sums.to_note());
        open.writer.append_key_value_metadata(note);
        let content = Bytes::from(open.writer.into_inner().map_err(failed)?.into_inner());
        let number = u32::try_from(self.done.files.len())
            .map_err(|_| ArchiveError::format("a part", "it has too many files"))?;
        for group in &mut open.groups {
            let start = usize::try_from(group.start).unwrap_or(usize::MAX);
            let part = content.get(start..start.saturating_add(group.bytes as usize));
            let part = part.ok_or_else(|| ArchiveError::format("a group", "it is outside of its file"))?;
            group.checksum = crc32fast::hash(part);
            group.file = number;
        }
        let name = |sha256: &str| {
            let key = (self.name)(&self.part, sha256);
            self.sent.note(&key);
            key
        };
        let about = ContentOfFile {
            index_from: sums.end(),
            rows: open.rows,
            // Files of rows have no recorded time range. The widest range disables the comparison with the statistics.
            times: (i64::MIN, i64::MAX),
            shared: false,
        };
        let file = send_content(&self.target, &content, &about, name)?;
        self.done.files.push(file);
        self.done.groups.append(&mut open.groups);
        Ok(())
    }
}

/// Returns the location of a written group. File and checksum are added when the file is complete.
fn location_of(metadata: &RowGroupMetaData, rows: usize) -> Result<GroupLocation> {
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
        Ok(ColumnLocation {
            dictionary: column.dictionary_page_offset().map(within).transpose()?,
            data: within(column.data_page_offset())?,
            bytes: short(offset(column.compressed_size())?)?,
        })
    });
    Ok(GroupLocation {
        file: 0,
        rows: short(rows as u64)?,
        start,
        bytes: short(end.checked_sub(start).ok_or_else(wrong)?)?,
        checksum: 0,
        columns: columns.collect::<Result<_>>()?,
    })
}
