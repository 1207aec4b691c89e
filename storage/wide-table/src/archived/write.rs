//! Archiving of a part: its rows are written to Parquet files, which are verified before the stored rows are freed.
//!
//! The files have whole rows. In a table with column groups, the parts of the groups are freed together with the part.
//! The streamed values of the rows are written to separate files afterwards.
//!
//! The part is *closed* first: the committer refuses further changes of its rows. After a flush, all of its rows are
//! stored and do not change any more. A crash leaves a closed part, and files that belong to no part. The next run
//! archives the part again, and the removal of orphaned files deletes these files.

use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use tideline_archive::rows::{DescribedGroup, FORMAT_WITH_VALUES, PartTarget, RowsDescription, WrittenRows};
use tideline_archive::{Archive, ArchiveError, SentObjects};
use tideline_backend::{PartRef, RowChange, WRITE_BYTES_MAX, WRITE_ROWS_MAX};
use tideline_key_codec::layout::KeyLayout;
use tideline_log::fail_points::around;
use tideline_model::{TableId, TableName, TableSpec, Tier};

use super::form::{GroupBuilder, RowForm};
use super::source::{PartReader, RowSpan};
use super::values::{VALUES_BUCKET, WrittenValues};
use super::{
    ArchivedFiles, FILES_BUCKET, FILES_BYTES_MAX, FILES_KEY, GROUPS_BUCKET, stored_files, value_file_key,
};
use crate::error::{Result, WideError};
use crate::moves::{GroupParts, MoveEnd, MoveProgress};
use crate::read::StoredRow;
use crate::state::{Part, PartDetail};
use crate::store::WideStore;

/// Size of the rows of a group at which the group is written, in bytes before encoding. A read of one row decodes a
/// whole group.
const GROUP_BYTES: usize = 1 << 20;
/// Number of rows of a group at which the group is written.
const GROUP_ROWS_MAX: usize = 16_384;
/// Maximum number of flushes that write the rows of a closed part from the row buffer.
const FLUSHES_MAX: usize = 3;

/// Part of a table to be archived.
#[derive(Debug)]
pub struct PartToArchive<'a> {
    /// Table of the part.
    pub table: TableId,
    /// Number of the part.
    pub number: i32,
    /// Settings of the table, which are stored with the files.
    pub spec: &'a TableSpec,
    /// Hexadecimal digits that identify this database.
    pub origin: String,
    /// Name of the table, and name of the part.
    pub names: (TableName, String),
    /// Name or address of the target.
    pub target: String,
}

/// Targets and object names of all archived parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchivedObjects {
    /// Targets, by name or address.
    pub targets: HashSet<String>,
    /// Object names of the files and descriptions.
    pub keys: HashSet<String>,
    /// Ids of the parts whose files are being written, or whose publication has an unknown outcome. The names of their
    /// objects have these ids.
    pub writing: BTreeSet<u64>,
}

/// Files and row groups of a written part.
pub(super) struct Written {
    pub(super) files: ArchivedFiles,
    pub(super) groups: Vec<RowChange>,
    /// Locations of the groups of streamed values, and markers of these values.
    pub(super) values: Vec<RowChange>,
}

impl WideStore {
    /// Moves a part into the archive. `flush` must write all rows of the row buffer that were committed before the
    /// call. Calls `proceed` after each group of rows. Takes time linear in the number of rows of the part.
    ///
    /// # Errors
    ///
    /// [`WideError::NoArchive`] if the archive is switched off, [`WideError::Archive`] if the target fails, and the
    /// errors of `flush`, of the backend and of the log. The part then stays closed, with its rows. Objects that were
    /// already sent are removed if possible.
    pub fn archive_part(
        self: &Arc<Self>,
        part: &PartToArchive<'_>,
        flush: &dyn Fn() -> Result<()>,
        proceed: &mut dyn FnMut(&MoveProgress) -> ControlFlow<()>,
    ) -> Result<MoveEnd> {
        let (table, number) = (part.table, part.number);
        let archive = Arc::clone(self.archived.archive()?);
        if !self.close_part(table, number)? || !self.flush_closed(table, number, flush)? {
            return Ok(MoveEnd::Gone);
        }
        let Some(from) = self.state().parts.get(&(table, number)).copied() else {
            return Ok(MoveEnd::Gone);
        };
        let to = PartRef {
            part: self.log.next_part(),
            table,
            tier: Tier::Cold,
        };
        let target = PartTarget {
            origin: part.origin.clone(),
            table: part.names.0.clone(),
            name: part.names.1.clone(),
            part: to.part.0,
            target: part.target.clone(),
        };
        let mut progress = MoveProgress::default();
        let mut sent = SentObjects::default();
        self.archived.writing.lock().insert(to.part.0);
        let written = self.write_files(
            &archive,
            part,
            (&from, &target),
            &mut sent,
            &mut progress,
            proceed,
        );
        let end = match written {
            Ok(Some(written)) => self.put_archived(to, &written).and_then(|()| {
                let has_values = !written.files.values.is_empty();
                self.end_archiving((number, has_values), (from.at, to), progress)
            }),
            Ok(None) => Ok(MoveEnd::Stopped),
            Err(error) => Err(error),
        };
        let is_known = matches!(end, Ok(MoveEnd::Moved(_)))
            || self.give_up_files(&archive, &part.target, &sent, to, end.is_err());
        if is_known {
            self.archived.writing.lock().remove(&to.part.0);
        }
        end
    }

    /// Publishes an archived part in place of the stored one, unless the part was opened for writes in the meantime.
    fn end_archiving(
        self: &Arc<Self>,
        (number, has_values): (i32, bool),
        parts: (PartRef, PartRef),
        progress: MoveProgress,
    ) -> Result<MoveEnd> {
        let is_moved = self.put_instead(
            (number, GroupParts::Remove),
            parts,
            &mut |part| Ok(part.is_closed()),
            &|detail: &mut PartDetail| detail.set_archived(has_values),
        )?;
        Ok(match is_moved {
            true => MoveEnd::Moved(progress),
            false => MoveEnd::Gone,
        })
    }

    /// Removes the files and the stored locations of an archiving that failed. An edit that returned an error may have
    /// been applied nevertheless, so the files are removed only if they are certainly unused. Returns false if the
    /// outcome is still unknown.
    fn give_up_files(
        &self,
        archive: &Archive,
        target: &str,
        sent: &SentObjects,
        to: PartRef,
        is_unknown: bool,
    ) -> bool {
        // If the edit was applied nevertheless, it uses the files. Its outcome must be known before the state is read.
        if is_unknown && self.log.settle().is_err() {
            return false;
        }
        if self.state().parts.values().any(|part| part.at == to) {
            return true;
        }
        let keys = sent.newest_first();
        let removed = archive.remove_objects(target, keys.iter().map(String::as_str));
        if let Err(error) = removed {
            tracing::warn!(%error, "the files of an archiving that failed stay until orphans are removed");
        }
        if let Err(error) = self.log.backend().reclaim_part(to) {
            tracing::warn!(%error, "a part that was not used is freed at the next start");
        }
        true
    }

    /// Flushes until the row buffer has no row of a closed part. Returns false if it still has rows of the part after
    /// [`FLUSHES_MAX`] flushes.
    pub(crate) fn flush_closed(
        &self,
        table: TableId,
        number: i32,
        flush: &dyn Fn() -> Result<()>,
    ) -> Result<bool> {
        for _ in 0..FLUSHES_MAX {
            flush()?;
            if !self.is_buffered((table, number))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes all rows of a part to files, and describes the files. Returns `None` if the caller stopped the work.
    fn write_files(
        &self,
        archive: &Archive,
        part: &PartToArchive<'_>,
        (from, target): (&Part, &PartTarget),
        sent: &mut SentObjects,
        progress: &mut MoveProgress,
        proceed: &mut dyn FnMut(&MoveProgress) -> ControlFlow<()>,
    ) -> Result<Option<Written>> {
        let table = part.table;
        let settings = |reason: String| WideError::Settings { table, reason };
        let wide = part.spec.wide.as_deref();
        let wide = wide.ok_or_else(|| settings("they have no key".to_owned()))?;
        let layout = KeyLayout::new(&wide.key, true).map_err(|error| settings(error.to_string()))?;
        let form = RowForm::new(wide, &layout)?;
        let mut writer = archive.rows_writer(target.clone(), form.schema.clone())?;
        *sent = writer.sent();
        let mut lasts: Vec<Bytes> = Vec::new();
        let mut builder = GroupBuilder::new(&form, &layout);
        let mut reader = PartReader::new(self, *from, self.rules(table)?);
        while let Some(span) = reader.next()? {
            let mut rows = add_block(&mut builder, &reader, span, progress)?.into_iter();
            loop {
                if builder.bytes() >= GROUP_BYTES || builder.group().rows >= GROUP_ROWS_MAX {
                    lasts.extend(builder.last_key());
                    writer.add(builder.group())?;
                    builder.clear();
                    if proceed(progress).is_break() {
                        return Ok(None);
                    }
                }
                let Some(row) = rows.next() else { break };
                add_row(&mut builder, &reader, row, progress)?;
            }
        }
        if let Some(last) = builder.last_key() {
            lasts.push(last);
            writer.add(builder.group())?;
        }
        let written = around("wide_archive", "files", || Ok::<_, WideError>(writer.finish()?))?;
        let streamed = builder.into_streamed();
        let values = self.write_values((archive, target, &*sent), from, streamed, progress, proceed)?;
        let Some(values) = values else {
            return Ok(None);
        };
        let written = (&form, written, lasts, values);
        self.describe(archive, part, (from, target), written, sent)
            .map(Some)
    }

    /// Writes the description of the files to the target, for other databases, and returns the data that this database
    /// stores.
    fn describe(
        &self,
        archive: &Archive,
        part: &PartToArchive<'_>,
        (from, target): (&Part, &PartTarget),
        (form, written, lasts, values): (&RowForm, WrittenRows, Vec<Bytes>, WrittenValues),
        sent: &SentObjects,
    ) -> Result<Written> {
        let groups = std::iter::zip(&lasts, &written.groups);
        let described_values = values.described();
        let description = RowsDescription {
            format: match described_values {
                None => tideline_archive::FORMAT,
                Some(_) => FORMAT_WITH_VALUES,
            },
            table: part.names.0.clone(),
            spec: described(part.spec),
            number: part.number,
            name: part.names.1.clone(),
            detail: serde_json::to_value(from.detail).map_err(|error| unwritable(&error))?,
            columns: form.schema.columns().to_vec(),
            files: written.files.clone(),
            groups: groups
                .map(|(last, location)| DescribedGroup::new(last, location.clone()))
                .collect(),
            streamed_values: values.missing,
            values: described_values,
        };
        let key = around("wide_archive", "describe", || {
            Ok::<_, WideError>(archive.describe_rows(target, &description, sent)?)
        })?;
        let groups = std::iter::zip(lasts, written.groups).map(|(last, location)| {
            let value = serde_json::to_vec(&location).map_err(|error| unwritable(&error))?;
            Ok(RowChange {
                key: last,
                value: Some(value.into()),
            })
        });
        Ok(Written {
            groups: groups.collect::<Result<_>>()?,
            values: values.rows()?,
            files: ArchivedFiles {
                target: target.target.clone(),
                description: key,
                files: written.files,
                columns: form.schema.columns().to_vec(),
                declared: form.declared().to_vec(),
                values: values.files,
            },
        })
    }

    /// Stores the locations of the groups of rows and of values, and the files of an archived part.
    pub(super) fn put_archived(&self, to: PartRef, written: &Written) -> Result<()> {
        let files = serde_json::to_vec(&written.files).map_err(|error| unwritable(&error))?;
        if files.len() > FILES_BYTES_MAX {
            return Err(WideError::TooLarge {
                what: "the list of the files of an archived part in bytes",
                limit: FILES_BYTES_MAX as u64,
                actual: files.len() as u64,
            });
        }
        let values = (0..).zip(&written.files.values).map(|(position, file)| {
            let value = serde_json::to_vec(file).map_err(|error| unwritable(&error))?;
            Ok(RowChange {
                key: value_file_key(position),
                value: Some(value.into()),
            })
        });
        let values = values.collect::<Result<Vec<_>>>()?;
        around("wide_archive", "index", || {
            self.put_rows((to, GROUPS_BUCKET), &written.groups)?;
            self.put_rows((to, VALUES_BUCKET), &written.values)?;
            self.put_rows((to, FILES_BUCKET), &values)?;
            let list = RowChange {
                key: Bytes::from_static(FILES_KEY),
                value: Some(files.into()),
            };
            self.change_part(to, FILES_BUCKET, &[list])
        })
    }

    /// Writes rows of a bucket of a part, in as few writes as possible.
    fn put_rows(&self, (to, bucket): (PartRef, u16), mut rest: &[RowChange]) -> Result<()> {
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take(WRITE_ROWS_MAX).take_while(|row| {
                bytes += row.key.len() + row.value.as_ref().map_or(0, Bytes::len);
                bytes <= WRITE_BYTES_MAX / 2
            });
            let count = fits.count().max(1);
            self.change_part(to, bucket, &rest[..count])?;
            rest = &rest[count..];
        }
        Ok(())
    }

    /// Returns the object names of the archived parts of all tables, and the ids of the parts that are being archived.
    ///
    /// # Errors
    ///
    /// The errors of the backend, and [`WideError::Damaged`] if a list cannot be read.
    pub fn archived_objects(&self) -> Result<ArchivedObjects> {
        let mut objects = ArchivedObjects {
            // The ids are read before the state, because a part is published before its id is removed.
            writing: self.archived.writing.lock().clone(),
            ..ArchivedObjects::default()
        };
        for part in self.state().parts.values().filter(|part| part.is_archived()) {
            let files = stored_files(self.log.backend().as_ref(), part.at)?;
            let all = files.files.into_iter().chain(files.values);
            objects.keys.extend(all.map(|file| file.key));
            objects.keys.insert(files.description);
            objects.targets.insert(files.target);
        }
        Ok(objects)
    }
}

/// Returns the settings of a table as the description of its files stores them: the rows in the files have no cut
/// values and no codecs.
fn described(spec: &TableSpec) -> TableSpec {
    let mut spec = spec.clone();
    if let Some(wide) = spec.wide.as_deref_mut() {
        wide.cut_values = false;
        wide.codecs = false;
    }
    spec
}

/// Adds a block of rows to a group as a whole, if this is possible. Returns the rows that must be added one by one.
fn add_block(
    builder: &mut GroupBuilder<'_>,
    reader: &PartReader<'_>,
    span: RowSpan,
    progress: &mut MoveProgress,
) -> Result<Vec<StoredRow>> {
    let block = match span {
        RowSpan::Block(block) => block,
        RowSpan::Rows(rows) => return Ok(rows),
    };
    let before = (builder.group().rows, builder.bytes());
    let pushed = builder.push_block(&reader.open(&block.value)?);
    if !pushed.map_err(|reason| reader.damaged(reason))? {
        return reader.rows_of(&block);
    }
    progress.values += (builder.group().rows - before.0) as u64;
    progress.bytes += (builder.bytes() - before.1) as u64;
    Ok(Vec::new())
}

/// Adds a row to a group, with the contents of its cut values.
fn add_row(
    builder: &mut GroupBuilder<'_>,
    reader: &PartReader<'_>,
    row: StoredRow,
    progress: &mut MoveProgress,
) -> Result<()> {
    let row = reader.whole(row)?;
    builder.push(&row).map_err(|reason| reader.damaged(reason))?;
    progress.values += 1;
    progress.bytes += row.bytes() as u64;
    Ok(())
}

pub(super) fn unwritable(error: &serde_json::Error) -> WideError {
    WideError::from(ArchiveError::Format {
        what: "the description of a part".to_owned(),
        reason: error.to_string(),
    })
}
