//! Streamed values of an archived part: their pieces are the rows of separate files, in the order of the ids of the
//! values.
//!
//! A row of these files holds a piece as the storage engine stores it, with its checksum. The row of the first piece of
//! a value also holds the header of the value, so a restore needs no other data. The pieces are copied one by one, and
//! memory is bounded by one file.
//!
//! For each group of rows, the storage engine stores the location under the key of the last piece of the group, in
//! bucket 2 of the part. It also stores a marker for each value that this database wrote to the files, or began to
//! restore from them. The pieces of a marked value are no longer needed in the storage engine, and
//! [`gc`](crate::large::gc) removes them. Readers look for a piece in the storage engine first, and then in the files.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tideline_archive::rows::{
    DescribedGroup, DescribedValues, GroupLocation, GroupValues, PartTarget, RowColumn, RowColumnKind,
    RowGroup, RowSchema, RowsWriter,
};
use tideline_archive::{Archive, ArchiveFile, SentObjects};
use tideline_backend::{Backend, Direction, PartRef, Partition, Row, RowChange};
use tideline_log::fail_points::around;
use tideline_model::{Durability, KeyRange, PartId, TableId};
use xxhash_rust::xxh3::Xxh3;

use super::write::unwritable;
use super::{ArchivedFiles, ArchivedParts, ONE};
use crate::cold;
use crate::error::{Damage, Result, WideError};
use crate::large::{self, Header, LargeValue, header_key, open_piece, piece_key};
use crate::moves::MoveProgress;
use crate::read::STEP_PAGE;
use crate::state::{Part, PartKey};
use crate::store::WideStore;

/// Bucket with the locations of the groups of pieces, and with the markers of values.
pub(super) const VALUES_BUCKET: u16 = 2;
/// First byte of the key of a location, which is followed by the id of the value and the number of the piece.
const LOCATION: u8 = 0;
/// First byte of the key of a marker, which is followed by the id of the value.
const MARKER: u8 = 1;

/// Position of the file column with the ids of the values.
const VALUE: usize = 0;
/// Position of the file column with the numbers of the pieces.
const PIECE: usize = 1;
/// Position of the file column with the headers.
const HEADER: usize = 2;
/// Position of the file column with the stored pieces.
const CONTENT: usize = 3;

/// Size of the pieces of a group at which the group is written, in bytes. A read of one piece reads a whole group.
const GROUP_BYTES: usize = 4 << 20;
/// Number of pieces of a group at which the group is written.
const GROUP_PIECES_MAX: usize = 256;
/// Length of the key of a piece in a description, in bytes: its id and its number.
const KEY_BYTES: usize = 12;

/// Id of a value, and number of a piece.
type PieceKey = (u64, u32);

fn schema() -> Result<RowSchema> {
    let column = |name: &str, kind, required| RowColumn {
        name: name.to_owned(),
        kind,
        required,
    };
    Ok(RowSchema::new(vec![
        column("_value", RowColumnKind::Unsigned, true),
        column("_piece", RowColumnKind::Unsigned, true),
        column("_header", RowColumnKind::Bytes, false),
        column("_content", RowColumnKind::Bytes, true),
    ])?)
}

fn location_key((value, piece): PieceKey) -> Bytes {
    [&[LOCATION][..], &value.to_be_bytes(), &piece.to_be_bytes()]
        .concat()
        .into()
}

fn marker_key(value: u64) -> Bytes {
    [&[MARKER][..], &value.to_be_bytes()].concat().into()
}

/// Files of the streamed values of a part, all verified.
#[derive(Default)]
pub(super) struct WrittenValues {
    pub(super) files: Vec<ArchiveFile>,
    /// Key of the last piece of each group, and location of the group.
    groups: Vec<(PieceKey, GroupLocation)>,
    /// Ids of the values in the files.
    ids: Vec<u64>,
    /// Number of values whose contents are not in the files, because this database does not have them.
    pub(super) missing: u64,
}

impl WrittenValues {
    /// Returns the form that is stored with the files; `None` without files.
    pub(super) fn described(&self) -> Option<DescribedValues> {
        let group = |((value, piece), location): &(PieceKey, GroupLocation)| {
            let last = [&value.to_be_bytes()[..], &piece.to_be_bytes()].concat();
            DescribedGroup::new(&last, location.clone())
        };
        (!self.files.is_empty()).then(|| DescribedValues {
            files: self.files.clone(),
            groups: self.groups.iter().map(group).collect(),
        })
    }

    /// Returns the rows of [`VALUES_BUCKET`].
    pub(super) fn rows(&self) -> Result<Vec<RowChange>> {
        let locations = self.groups.iter().map(|(last, location)| {
            let value = serde_json::to_vec(location).map_err(|error| unwritable(&error))?;
            Ok(row(location_key(*last), value))
        });
        let markers = self.ids.iter().map(|id| Ok(row(marker_key(*id), Vec::new())));
        locations.chain(markers).collect()
    }
}

fn row(key: Bytes, value: Vec<u8>) -> RowChange {
    RowChange {
        key,
        value: Some(value.into()),
    }
}

/// Returns the rows of [`VALUES_BUCKET`] for the values of another database. On error, returns the reason why their
/// description is not valid.
pub(super) fn rows_of(described: &DescribedValues) -> std::result::Result<Vec<RowChange>, String> {
    let mut rows: Vec<RowChange> = Vec::with_capacity(described.groups.len());
    for group in &described.groups {
        let last = group.last_key().filter(|last| last.len() == KEY_BYTES);
        let last = last.ok_or("the key of a group of values is not valid")?;
        let key = Bytes::from([&[LOCATION][..], &last].concat());
        if rows.last().is_some_and(|before| before.key >= key) {
            return Err("the groups of values are not in order".to_owned());
        }
        if !is_inside(&group.location, &described.files) {
            return Err("a group of values is outside of its file".to_owned());
        }
        let location = serde_json::to_vec(&group.location);
        rows.push(row(
            key,
            location.map_err(|error| unwritable(&error).to_string())?,
        ));
    }
    let located: u64 = described
        .groups
        .iter()
        .map(|group| u64::from(group.location.rows))
        .sum();
    match located == described.files.iter().map(|file| file.rows).sum::<u64>() {
        true => Ok(rows),
        false => Err("the groups of values are not complete".to_owned()),
    }
}

fn is_inside(location: &GroupLocation, files: &[ArchiveFile]) -> bool {
    let end = location.start.saturating_add(u64::from(location.bytes));
    let file = files.get(location.file as usize);
    file.is_some_and(|file| end <= file.bytes)
}

/// Reads the locations of all pieces of an archived part, and compares them with the list of its files.
///
/// # Errors
///
/// [`WideError::Damaged`] if a location is not valid or missing, and the errors of the backend.
pub(super) fn check_locations(backend: &dyn Backend, at: PartRef, files: &ArchivedFiles) -> Result<()> {
    let (mut pieces, mut rest) = (0, Some(KeyRange::prefix(&[LOCATION])));
    while let Some(range) = rest {
        let stored = Partition::part(at, VALUES_BUCKET);
        let page = backend.scan(stored, &range, Direction::Ascending, STEP_PAGE)?;
        for group in &page.rows {
            let location = location_of(at.table, group)?;
            if !is_inside(&location, &files.values) {
                return Err(damaged(
                    at.table,
                    "the location of archived values is outside of the files",
                ));
            }
            pieces += u64::from(location.rows);
        }
        rest = page.next;
    }
    match pieces == files.values.iter().map(|file| file.rows).sum::<u64>() {
        true => Ok(()),
        false => Err(damaged(
            at.table,
            "the locations of archived values are not complete",
        )),
    }
}

fn location_of(table: TableId, group: &Row) -> Result<GroupLocation> {
    serde_json::from_slice(&group.value)
        .map_err(|_| damaged(table, "the location of archived values cannot be read"))
}

fn damaged(table: TableId, reason: &'static str) -> WideError {
    WideError::Damaged {
        table,
        reason: Damage(reason),
    }
}

/// Writes pieces to files, in the order of their keys.
struct PieceWriter {
    writer: RowsWriter,
    group: RowGroup,
    /// Bytes of the pieces of the group.
    bytes: usize,
    last: PieceKey,
    lasts: Vec<PieceKey>,
}

impl PieceWriter {
    fn new(writer: RowsWriter, schema: &RowSchema) -> Self {
        Self {
            writer,
            group: RowGroup::new(schema),
            bytes: 0,
            last: (0, 0),
            lasts: Vec::new(),
        }
    }

    fn push(&mut self, key: PieceKey, header: Option<&[u8]>, stored: &[u8]) {
        let columns = &mut self.group.columns;
        columns[VALUE].push_integer(key.0.cast_signed());
        columns[PIECE].push_integer(i64::from(key.1));
        match header {
            Some(header) => columns[HEADER].push_bytes(header),
            None => columns[HEADER].push_absent(),
        }
        columns[CONTENT].push_bytes(stored);
        self.group.rows += 1;
        self.bytes += stored.len();
        self.last = key;
    }

    fn is_full(&self) -> bool {
        self.bytes >= GROUP_BYTES || self.group.rows >= GROUP_PIECES_MAX
    }

    fn end_group(&mut self) -> Result<()> {
        if self.group.rows > 0 {
            self.writer.add(&self.group)?;
            self.lasts.push(self.last);
            self.group.clear();
            self.bytes = 0;
        }
        Ok(())
    }

    fn finish(mut self, written: &mut WrittenValues) -> Result<()> {
        self.end_group()?;
        let done = around("wide_archive", "values", || {
            Ok::<_, WideError>(self.writer.finish()?)
        })?;
        written.files = done.files;
        written.groups = std::iter::zip(self.lasts, done.groups).collect();
        Ok(())
    }
}

/// Group of pieces, read from a file.
#[derive(Debug)]
pub(crate) struct PieceGroup {
    part: PartId,
    /// Key of the location of the group.
    location: Bytes,
    group: RowGroup,
}

impl PieceGroup {
    /// Returns the key of a piece of the group.
    fn key(&self, at: usize) -> Option<PieceKey> {
        let number = |column: usize| match &self.group.columns[column].values {
            GroupValues::Integers(values) => values.get(at).copied(),
            _ => None,
        };
        let piece = u32::try_from(number(PIECE)?).ok()?;
        Some((number(VALUE)?.cast_unsigned(), piece))
    }

    fn bytes(&self, column: usize, at: usize) -> Option<&[u8]> {
        match &self.group.columns[column].values {
            GroupValues::Bytes(values) => values.get(at),
            _ => None,
        }
    }

    /// Returns a stored piece; `None` if the group does not have it.
    fn find(&self, key: PieceKey) -> Option<Bytes> {
        let at = (0..self.group.rows).find(|at| self.key(*at) == Some(key))?;
        self.bytes(CONTENT, at).map(Bytes::copy_from_slice)
    }

    /// Returns the ids of the values that have pieces in the group.
    fn values(&self) -> Vec<u64> {
        let keys = (0..self.group.rows).filter_map(|at| self.key(at));
        let mut ids: Vec<u64> = keys.map(|(value, _)| value).collect();
        ids.dedup();
        ids
    }

    /// Returns the headers and the pieces of the group as rows of the storage engine; `None` if the group does not have
    /// the form of a group of pieces.
    fn stored(&self) -> Option<(Vec<RowChange>, Vec<RowChange>)> {
        let (mut headers, mut pieces) = (Vec::new(), Vec::with_capacity(self.group.rows));
        let levels = self.group.columns[HEADER].levels.as_ref()?;
        for at in 0..self.group.rows {
            let (value, piece) = self.key(at)?;
            if levels.get(at) == Some(&1) {
                let header = self.bytes(HEADER, headers.len())?;
                headers.push(row(header_key(value), header.to_vec()));
            }
            let content = self.bytes(CONTENT, at)?;
            pieces.push(row(piece_key(value, piece), content.to_vec()));
        }
        Some((headers, pieces))
    }
}

impl ArchivedParts {
    /// Reads a group of pieces. `group` is the stored entry of the group: the key of its last piece and its location.
    fn pieces(&self, backend: &dyn Backend, at: PartRef, group: &Row) -> Result<PieceGroup> {
        let open = self.open(backend, at)?;
        let location = location_of(at.table, group)?;
        let file = open.files.values.get(location.file as usize);
        let file = file.ok_or_else(|| damaged(at.table, "an archived part has no such file of values"))?;
        let read = self
            .archive()?
            .row_group(&open.files.target, file, &schema()?, &location)?;
        Ok(PieceGroup {
            part: at.part,
            location: group.key.clone(),
            group: read,
        })
    }

    /// Reads a group of pieces, unless it was read last. The requests of a client for consecutive ranges of a value
    /// need the same group.
    fn recent_pieces(&self, backend: &dyn Backend, at: PartRef, group: &Row) -> Result<Arc<PieceGroup>> {
        let mut recent = self.last_pieces.lock();
        let is_wanted = |recent: &Arc<PieceGroup>| recent.part == at.part && recent.location == group.key;
        if let Some(recent) = recent.as_ref().filter(|recent| is_wanted(recent)) {
            return Ok(Arc::clone(recent));
        }
        *recent = None;
        drop(recent);
        let read = Arc::new(self.pieces(backend, at, group)?);
        *self.last_pieces.lock() = Some(Arc::clone(&read));
        Ok(read)
    }

    /// Removes the pieces of a freed part from memory.
    pub(super) fn forget_pieces(&self, part: PartId) {
        self.last_pieces.lock().take_if(|recent| recent.part == part);
    }
}

/// Guard of a part whose values are being restored. It prevents their removal.
pub(super) struct Restoring<'s> {
    store: &'s WideStore,
    part: PartKey,
}

impl<'s> Restoring<'s> {
    fn begin(store: &'s WideStore, part: PartKey) -> Self {
        store.large.restoring.lock().push(part);
        Self { store, part }
    }
}

impl Drop for Restoring<'_> {
    fn drop(&mut self) {
        let mut restoring = self.store.large.restoring.lock();
        if let Some(at) = restoring.iter().position(|part| *part == self.part) {
            restoring.swap_remove(at);
        }
    }
}

impl WideStore {
    /// Writes the streamed values of a closed part to files. Calls `proceed` after each group of pieces. Returns `None`
    /// if the caller stopped the work.
    pub(super) fn write_values(
        &self,
        (archive, target, sent): (&Archive, &PartTarget, &SentObjects),
        from: &Part,
        mut values: Vec<LargeValue>,
        progress: &mut MoveProgress,
        proceed: &mut dyn FnMut(&MoveProgress) -> ControlFlow<()>,
    ) -> Result<Option<WrittenValues>> {
        let mut written = WrittenValues::default();
        if values.is_empty() {
            return Ok(Some(written));
        }
        // Several versions may reference one value.
        values.sort_unstable_by_key(|value| value.id);
        values.dedup_by_key(|value| value.id);
        let (table, number) = (from.at.table, from.number());
        let rules = self.rules(table)?;
        let stored = self.large_part_of(&rules, number);
        let schema = schema()?;
        let writer = archive.values_writer(target.clone(), schema.clone(), sent)?;
        let mut writer = PieceWriter::new(writer, &schema);
        let backend = self.log.backend();
        for value in &values {
            self.log.check_lease()?;
            let header = match &stored {
                Some(part) => backend.get(large::partition(part.at), &header_key(value.id))?,
                None => None,
            };
            let (Some(part), Some(header)) = (&stored, header) else {
                if !self.state().is_elsewhere(table, &rules, (number, value.id)) {
                    tracing::warn!(
                        table = table.0,
                        value = value.id,
                        "a streamed value is missing, and is archived without its content"
                    );
                }
                written.missing += 1;
                continue;
            };
            let mut hash = Xxh3::new();
            for piece in 0..value.pieces() {
                let found = backend.get(large::partition(part.at), &piece_key(value.id, piece))?;
                let found = found.ok_or_else(|| damaged(table, "a piece of a large value is missing"))?;
                let content = open_piece(value, piece, &found);
                hash.update(&content.map_err(|reason| WideError::Damaged { table, reason })?);
                let header = (piece == 0).then_some(&header[..]);
                writer.push((value.id, piece), header, &found);
                progress.bytes += found.len() as u64;
                if writer.is_full() {
                    writer.end_group()?;
                    if proceed(progress).is_break() {
                        return Ok(None);
                    }
                }
            }
            if hash.digest() != value.checksum {
                return Err(damaged(table, "a large value does not match its checksum"));
            }
            written.ids.push(value.id);
        }
        writer.finish(&mut written)?;
        Ok(Some(written))
    }

    /// Returns a stored piece of a value from the files of an archived part; `None` if the part is not in the archive,
    /// or if its files do not have the piece. `last` is the group that the caller has read last.
    ///
    /// # Errors
    ///
    /// [`WideError::Archive`] if a file cannot be read, and the errors of the backend.
    pub(crate) fn archived_piece(
        &self,
        part: PartKey,
        key: PieceKey,
        last: &Mutex<Option<Arc<PieceGroup>>>,
    ) -> Result<Option<Bytes>> {
        // The state is held until the end, so that the locations are not freed meanwhile.
        let state = self.state();
        let part = state.parts.get(&part).filter(|part| part.detail.archived_values);
        let Some(part) = part else {
            return Ok(None);
        };
        let mut last = last.lock();
        let group = last.as_ref().filter(|group| group.part == part.at.part);
        if let Some(found) = group.and_then(|group| group.find(key)) {
            cold::count(part, || found.len());
            return Ok(Some(found));
        }
        // The reader never has two groups in memory at the same time.
        *last = None;
        let backend = self.log.backend();
        let range = KeyRange {
            start: location_key(key).to_vec(),
            end: KeyRange::prefix(&[LOCATION]).end,
        };
        let locations = Partition::part(part.at, VALUES_BUCKET);
        let page = backend.scan(locations, &range, Direction::Ascending, ONE)?;
        let Some(group) = page.rows.first() else {
            return Ok(None);
        };
        let group = self.archived.recent_pieces(backend.as_ref(), part.at, group)?;
        let found = group.find(key);
        *last = Some(group);
        if let Some(found) = &found {
            cold::count(part, || found.len());
        }
        Ok(found)
    }

    /// Returns true if this database wrote a value, given by its id, to the files of an archived part, or began to
    /// restore it from them.
    pub(crate) fn is_value_archived(&self, part: &Part, value: u64) -> Result<bool> {
        if !part.detail.archived_values {
            return Ok(false);
        }
        let backend = self.log.backend();
        let marker = backend.get(Partition::part(part.at, VALUES_BUCKET), &marker_key(value))?;
        Ok(marker.is_some())
    }

    /// Returns true if a part is in the archive, together with streamed values of its rows. The settings of its table
    /// must have an id for large values before the part is restored.
    pub fn has_archived_values(&self, table: TableId, number: i32) -> bool {
        let state = self.state();
        let part = state.parts.get(&(table, number));
        part.is_some_and(|part| part.detail.archived_values)
    }

    /// Prevents the removal of the values of a part until the returned guard is dropped.
    pub(super) fn begin_restore(&self, part: &Part) -> Restoring<'_> {
        Restoring::begin(self, part.key())
    }

    /// Stores markers of values before their pieces are restored, so that the pieces of an interrupted restore are
    /// removed. The markers are durable on return.
    fn mark_restored(&self, part: &Part, ids: &[u64]) -> Result<()> {
        let mut markers = Vec::new();
        for id in ids {
            if !self.is_value_archived(part, *id)? {
                markers.push(row(marker_key(*id), Vec::new()));
            }
        }
        // Both are held until the end, so that the part is not freed meanwhile. It is freed under this lock if it is
        // dropped, and after all readers of the state if it is replaced.
        let _writes = self.large.writes.lock();
        let state = self.state();
        if state.parts.get(&part.key()).map(|current| current.at) != Some(part.at) {
            return Ok(());
        }
        self.put_part(part.at, VALUES_BUCKET, &markers, Durability::Synced)
    }

    /// Copies the streamed values of an archived part into the storage engine. Their pieces are durable on return.
    /// Calls `proceed` after each group of pieces. Returns false if the caller stopped the work.
    pub(super) fn restore_values(
        &self,
        part: &Part,
        progress: &mut MoveProgress,
        proceed: &mut dyn FnMut(&MoveProgress) -> ControlFlow<()>,
    ) -> Result<bool> {
        if !part.detail.archived_values {
            return Ok(true);
        }
        let table = part.at.table;
        let wrong = || {
            damaged(
                table,
                "a group of archived values does not have the form of pieces",
            )
        };
        let rules = self.rules(table)?;
        let backend = self.log.backend();
        let (mut to, mut rest) = (None, Some(KeyRange::prefix(&[LOCATION])));
        while let Some(range) = rest {
            self.log.check_lease()?;
            let locations = Partition::part(part.at, VALUES_BUCKET);
            let page = backend.scan(locations, &range, Direction::Ascending, ONE)?;
            let Some(location) = page.rows.first() else {
                break;
            };
            let group = self.archived.pieces(backend.as_ref(), part.at, location)?;
            let (headers, pieces) = group.stored().ok_or_else(wrong)?;
            let ids = group.values();
            drop(group);
            let to = match to {
                Some(to) => to,
                None => {
                    // The first row of the files is the first piece of a value, so it has a header.
                    let header = headers.first().and_then(|header| header.value.as_deref());
                    let header = Header::decode(header.ok_or_else(wrong)?);
                    let header = header.map_err(|reason| WideError::Damaged { table, reason })?;
                    let created = self.create_large_part(table, &rules, &header.key)?;
                    if created.number() != part.number() {
                        return Err(wrong());
                    }
                    *to.insert(created)
                }
            };
            let bytes = |change: &RowChange| change.value.as_ref().map_or(0, Bytes::len) as u64;
            progress.bytes += pieces.iter().map(bytes).sum::<u64>();
            around("wide_restore", "values", || {
                self.mark_restored(part, &ids)?;
                self.load_pieces(table, to, headers, &pieces)
            })?;
            if proceed(progress).is_break() {
                return Ok(false);
            }
            rest = range.above(&location.key);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::value_file_key;
    use super::*;

    #[test]
    fn the_keys_and_columns_of_archived_values_never_change() {
        assert_eq!(
            location_key((0x0102, 3))[..],
            [0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3]
        );
        assert_eq!(marker_key(0x0102)[..], [1, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(value_file_key(0x0102)[..], *b"values/\0\0\x01\x02");
        let schema = schema().expect("a schema");
        let names: Vec<&str> = schema.columns().iter().map(|of| of.name.as_str()).collect();
        assert_eq!(names, ["_value", "_piece", "_header", "_content"]);
    }

    #[test]
    fn groups_of_values_must_be_in_order_and_inside_of_their_files() {
        let location = |start| GroupLocation {
            file: 0,
            rows: 2,
            start,
            bytes: 10,
            checksum: 0,
            columns: Vec::new(),
        };
        let file = ArchiveFile {
            key: "t/_values/0a1b-7-00.parquet".to_owned(),
            bytes: 100,
            sha256: String::new(),
            index_from: 0,
            index_sha256: String::new(),
            rows: 4,
            first: 0,
            last: 0,
            shared: false,
        };
        let described = |groups: &[(PieceKey, u64)]| {
            let written = WrittenValues {
                files: vec![file.clone()],
                groups: groups
                    .iter()
                    .map(|(key, start)| (*key, location(*start)))
                    .collect(),
                ..WrittenValues::default()
            };
            (written.described().expect("it has a file"), written)
        };
        let (right, written) = described(&[((1, 4), 0), ((7, 0), 90)]);
        let rows = rows_of(&right).expect("it is valid");
        assert_eq!(rows, written.rows().expect("rows"));
        assert_eq!(rows[1].key, location_key((7, 0)));
        for wrong in [
            &[((7, 0), 0), ((1, 4), 10)][..],
            &[((1, 4), 0), ((7, 0), 91)],
            &[((1, 4), 0)],
        ] {
            assert!(rows_of(&described(wrong).0).is_err(), "{wrong:?}");
        }
    }
}
