//! Parts in the archive: their rows are in Parquet files on an object store, and are read from there.
//!
//! The storage engine stores two things for the rows of such a part: in bucket 0, the location of each row group under
//! the last key of the group; in bucket 1, the list of the files with their columns. A read of a row or a page looks up
//! the groups that can contain its keys, fetches each group with one request, and decodes it as a whole. Recently read
//! groups stay in memory, decoded.
//!
//! Rows of such a part cannot be written, so nothing else is stored for them. Streamed values of the rows are in
//! separate files ([`values`]).

mod attach;
mod form;
mod restore;
mod source;
mod values;
mod write;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde::{Deserialize, Serialize};
use tideline_archive::rows::{GroupLocation, RowColumn};
use tideline_archive::{Archive, ArchiveFile};
use tideline_backend::{Backend, Direction, PageLimit, PartRef, Partition, Row};
use tideline_model::{KeyRange, PartId, TableId};

use crate::blocks::PackedRows;
use crate::division::ALL_PARTS;
use crate::error::{Damage, Result, WideError};
use crate::read::STEP_PAGE;
use crate::state::Part;
use crate::store::WideStore;
pub use attach::{AttachEnd, PartToAttach};
use form::{DeclaredColumn, RowForm};
pub(crate) use values::PieceGroup;
pub use write::{ArchivedObjects, PartToArchive};

/// Bucket with the locations of the row groups.
const GROUPS_BUCKET: u16 = 0;
/// Bucket with the list of the files, under [`FILES_KEY`], and with one row per file of streamed values.
const FILES_BUCKET: u16 = 1;
const FILES_KEY: &[u8] = b"files";
/// Start of the key of a file of streamed values, which is followed by the position of the file. The number of these
/// files has no limit, so they are not in the list of the files.
const VALUE_FILES: &[u8] = b"values/";
/// Maximum size of the stored list of the files, in bytes: the engine must accept the list in one write.
const FILES_BYTES_MAX: usize = 3 << 20;
/// Limit of a scan that returns one value.
const ONE: PageLimit = PageLimit {
    rows_max: 1,
    bytes_max: 1,
};

/// Files of an archived part, as stored in bucket 1.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ArchivedFiles {
    /// Name or address of the target.
    target: String,
    /// Object name of the description.
    description: String,
    files: Vec<ArchiveFile>,
    columns: Vec<RowColumn>,
    declared: Vec<DeclaredColumn>,
    /// Files of the streamed values, each stored in its own row.
    #[serde(skip)]
    values: Vec<ArchiveFile>,
}

/// Part in the archive, with the amount of data in its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedPart {
    /// Number of the part.
    pub number: i32,
    /// Name or address of the target.
    pub target: String,
    /// Number of files, without the description.
    pub files: u64,
    /// Number of rows.
    pub rows: u64,
    /// Size of the files in bytes.
    pub bytes: u64,
}

impl ArchivedPart {
    fn new(number: i32, stored: &ArchivedFiles) -> Self {
        let files = || stored.files.iter().chain(&stored.values);
        Self {
            number,
            target: stored.target.clone(),
            files: files().count() as u64,
            rows: stored.files.iter().map(|file| file.rows).sum(),
            bytes: files().map(|file| file.bytes).sum(),
        }
    }
}

/// Files and columns of an archived part, kept in memory after its first read.
#[derive(Debug)]
struct OpenPart {
    files: ArchivedFiles,
    form: RowForm,
}

/// Keys and encoded rows of a decoded group, in key order.
type GroupRows = Arc<Vec<(Bytes, Bytes)>>;

/// Computes the memory of a decoded group, in bytes.
#[derive(Debug, Clone)]
struct GroupBytes;

impl Weighter<(PartId, Bytes), GroupRows> for GroupBytes {
    fn weight(&self, (_, last): &(PartId, Bytes), rows: &GroupRows) -> u64 {
        let row = |(key, row): &(Bytes, Bytes)| key.len() + row.len() + size_of::<(Bytes, Bytes)>();
        (last.len() + rows.iter().map(row).sum::<usize>()) as u64
    }
}

/// Archived parts of a store: their files and columns, and the cache of recently read groups.
#[derive(Debug)]
pub(crate) struct ArchivedParts {
    archive: Option<Arc<Archive>>,
    open: Mutex<HashMap<PartId, Arc<OpenPart>>>,
    groups: Cache<(PartId, Bytes), GroupRows, GroupBytes>,
    /// Group of pieces of streamed values that was read last.
    last_pieces: Mutex<Option<Arc<PieceGroup>>>,
    /// Ids of the parts whose files are being written, or whose publication has an unknown outcome. Their files must
    /// not be removed.
    writing: Mutex<BTreeSet<u64>>,
}

impl ArchivedParts {
    /// Creates the reader of archived parts. `cache_bytes` limits the memory of decoded groups.
    pub(crate) fn new(archive: Option<Arc<Archive>>, cache_bytes: usize) -> Self {
        let items = cache_bytes >> 20;
        Self {
            archive,
            open: Mutex::default(),
            groups: Cache::with_weighter(items.max(4), cache_bytes as u64, GroupBytes),
            last_pieces: Mutex::default(),
            writing: Mutex::default(),
        }
    }

    /// Returns the archive.
    ///
    /// # Errors
    ///
    /// [`WideError::NoArchive`] if it is switched off.
    pub(crate) fn archive(&self) -> Result<&Arc<Archive>> {
        self.archive.as_ref().ok_or(WideError::NoArchive)
    }

    /// Removes the files, the columns and the last pieces of a freed part from memory.
    pub(crate) fn forget(&self, part: PartId) {
        self.open.lock().remove(&part);
        self.forget_pieces(part);
    }

    fn open(&self, backend: &dyn Backend, at: PartRef) -> Result<Arc<OpenPart>> {
        if let Some(open) = self.open.lock().get(&at.part) {
            return Ok(Arc::clone(open));
        }
        let files = stored_files(backend, at)?;
        let form = RowForm::of_columns(files.columns.clone(), files.declared.clone())?;
        let open = Arc::new(OpenPart { files, form });
        self.open.lock().insert(at.part, Arc::clone(&open));
        Ok(open)
    }

    /// Returns the rows of a group. `group` is the stored entry of the group: its last key and its location.
    fn rows(&self, backend: &dyn Backend, at: PartRef, group: &Row) -> Result<GroupRows> {
        let damaged = |reason| WideError::Damaged {
            table: at.table,
            reason,
        };
        let name = (at.part, group.key.clone());
        if let Some(rows) = self.groups.get(&name) {
            return Ok(rows);
        }
        let open = self.open(backend, at)?;
        let location: GroupLocation = serde_json::from_slice(&group.value)
            .map_err(|_| damaged(Damage("the location of archived rows cannot be read")))?;
        let file = open.files.files.get(location.file as usize);
        let file = file.ok_or_else(|| damaged(Damage("an archived part has no such file")))?;
        let read = self
            .archive()?
            .row_group(&open.files.target, file, &open.form.schema, &location)?;
        let rows = Arc::new(open.form.rows_of(&read).map_err(damaged)?);
        self.groups.insert(name, Arc::clone(&rows));
        Ok(rows)
    }
}

fn value_file_key(position: u32) -> Bytes {
    [VALUE_FILES, &position.to_be_bytes()].concat().into()
}

/// Reads the list of the files of an archived part, and the files of its streamed values.
pub(crate) fn stored_files(backend: &dyn Backend, at: PartRef) -> Result<ArchivedFiles> {
    let damaged = |reason| WideError::Damaged {
        table: at.table,
        reason,
    };
    let stored = backend.get(Partition::part(at, FILES_BUCKET), FILES_KEY)?;
    let stored = stored.ok_or_else(|| damaged(Damage("the files of an archived part are not listed")))?;
    let unreadable = || damaged(Damage("the list of the files of an archived part cannot be read"));
    let mut files: ArchivedFiles = serde_json::from_slice(&stored).map_err(|_| unreadable())?;
    let mut rest = Some(KeyRange::prefix(VALUE_FILES));
    while let Some(range) = rest {
        let values = Partition::part(at, FILES_BUCKET);
        let page = backend.scan(values, &range, Direction::Ascending, STEP_PAGE)?;
        for (row, position) in page.rows.iter().zip(files.values.len()..) {
            // The locations of pieces hold the positions of the files.
            if u32::try_from(position).map(value_file_key).as_ref() != Ok(&row.key) {
                return Err(damaged(Damage(
                    "the list of the files of archived values has a gap",
                )));
            }
            files
                .values
                .push(serde_json::from_slice(&row.value).map_err(|_| unreadable())?);
        }
        rest = page.next;
    }
    Ok(files)
}

/// Reads all stored data of an archived part: the list of the files and the locations of the groups of rows and of
/// values. Returns the number of rows.
///
/// # Errors
///
/// [`WideError::Damaged`] if the data is not valid, and the errors of the backend.
pub(crate) fn archived_rows(backend: &dyn Backend, at: PartRef) -> Result<u64> {
    let damaged = |reason| WideError::Damaged {
        table: at.table,
        reason,
    };
    let files = stored_files(backend, at)?;
    RowForm::of_columns(files.columns.clone(), files.declared.clone())?;
    values::check_locations(backend, at, &files)?;
    let (mut rows, mut rest) = (0, Some(KeyRange::ALL));
    while let Some(range) = rest {
        let groups = Partition::part(at, GROUPS_BUCKET);
        let page = backend.scan(groups, &range, Direction::Ascending, STEP_PAGE)?;
        for group in page.rows {
            let location: GroupLocation = serde_json::from_slice(&group.value)
                .map_err(|_| damaged(Damage("the location of archived rows cannot be read")))?;
            let file = files.files.get(location.file as usize);
            let end = location.start.saturating_add(u64::from(location.bytes));
            if file.is_none_or(|file| end > file.bytes) {
                return Err(damaged(Damage(
                    "the location of archived rows is outside of the files",
                )));
            }
            rows += u64::from(location.rows);
        }
        rest = page.next;
    }
    let recorded: u64 = files.files.iter().map(|file| file.rows).sum();
    match rows == recorded {
        true => Ok(rows),
        false => Err(damaged(Damage("the locations of archived rows are not complete"))),
    }
}

impl WideStore {
    /// Returns the archived parts of a table in the order of their numbers. The list of the files of a part is read
    /// once and then kept in memory.
    ///
    /// # Errors
    ///
    /// The errors of the backend, and [`WideError::Damaged`] if a list cannot be read.
    pub fn archived_parts(&self, table: TableId) -> Result<Vec<ArchivedPart>> {
        let state = self.state();
        let archived = state.parts_of(table, ALL_PARTS).filter(|part| part.is_archived());
        let sizes = archived.map(|part| {
            let open = self.archived.open(self.log.backend().as_ref(), part.at)?;
            Ok(ArchivedPart::new(part.number(), &open.files))
        });
        sizes.collect()
    }

    /// Returns the group of an archived part that can contain a key; `None` if no group can.
    fn group_of(&self, part: &Part, key: &[u8]) -> Result<Option<Row>> {
        let groups = Partition::part(part.at, GROUPS_BUCKET);
        Ok(self.log.backend().first(groups, key)?)
    }

    fn rows_of_group(&self, part: &Part, group: &Row) -> Result<GroupRows> {
        self.archived.rows(self.log.backend().as_ref(), part.at, group)
    }

    /// Returns a row of an archived part; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// [`WideError::Archive`] if the file cannot be read, and the errors of the backend.
    pub(crate) fn archived_row(&self, part: &Part, key: &[u8]) -> Result<Option<Bytes>> {
        let Some(group) = self.group_of(part, key)? else {
            return Ok(None);
        };
        let rows = self.rows_of_group(part, &group)?;
        let found = rows.binary_search_by(|(other, _)| other[..].cmp(key));
        Ok(found.ok().map(|at| rows[at].1.clone()))
    }

    /// Returns the first rows of a range of an archived part in scan order: at most `limit.rows_max` rows, and no
    /// further row once their size exceeds `limit.bytes_max`.
    ///
    /// # Errors
    ///
    /// The errors of [`archived_row`](Self::archived_row).
    pub(crate) fn archived_page(
        &self,
        part: &Part,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<PackedRows> {
        let mut found = VecDeque::new();
        let mut bytes = 0;
        let mut rest = Some(range.clone());
        while let Some(wanted) = rest {
            let Some(group) = self.next_group(part, &wanted, direction)? else {
                break;
            };
            let rows = self.rows_of_group(part, &group)?;
            let start = rows.partition_point(|(key, _)| key[..] < wanted.start[..]);
            let end = match &wanted.end {
                Some(end) => rows.partition_point(|(key, _)| key[..] < end[..]),
                None => rows.len(),
            };
            let mut within = rows.get(start..end).unwrap_or_default().iter();
            let mut next = || match direction {
                Direction::Ascending => within.next(),
                Direction::Descending => within.next_back(),
            };
            while let Some((key, row)) = next() {
                bytes += key.len() + row.len();
                found.push_back((key.clone(), row.clone()));
                if found.len() >= limit.rows_max || bytes > limit.bytes_max {
                    return Ok(PackedRows {
                        rows: found,
                        more_after: Some(key.clone()),
                    });
                }
            }
            rest = match direction {
                Direction::Ascending => wanted.above(&group.key),
                // The rows of the previous group are below the first row of this group.
                Direction::Descending => rows.first().and_then(|(first, _)| wanted.below(first)),
            };
        }
        Ok(PackedRows {
            rows: found,
            more_after: None,
        })
    }

    /// Returns the first group in scan order that can contain rows of a range; `None` if none can.
    fn next_group(&self, part: &Part, range: &KeyRange, direction: Direction) -> Result<Option<Row>> {
        let Direction::Descending = direction else {
            return self.group_of(part, &range.start);
        };
        // The last row of the range may be in the first group whose last key is at or above the end of the range.
        if let Some(end) = &range.end
            && let Some(group) = self.group_of(part, end)?
        {
            let rows = self.rows_of_group(part, &group)?;
            if rows.first().is_some_and(|(first, _)| first[..] < end[..]) {
                return Ok(Some(group));
            }
        }
        let groups = Partition::part(part.at, GROUPS_BUCKET);
        let found = self
            .log
            .backend()
            .scan(groups, range, Direction::Descending, ONE)?;
        Ok(found.rows.into_iter().next())
    }
}
