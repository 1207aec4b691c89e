//! Catalog changes that are committed through the log.
//!
//! A journal entry carries the new rows, in the format of `FORMAT.md`. The change is applied to memory once the entry
//! is in the journal. The rows are written before the journal discards the entry. A restart replays the entry from
//! the journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tideline_model::{ModelTag, TableId, TimelineId};
use tideline_wire::varint;

use crate::catalog::{Catalog, CatalogOptions};
use crate::editing::Edit;
use crate::metadata::StoredMetadata;
use crate::value::Parts;
use crate::{CatalogError, Result};

/// Version of the entry layout.
const VERSION: u8 = 1;
/// Size in bytes at which an entry gets no further rows. The last row of an entry may exceed this size.
pub(crate) const ENTRY_BYTES_MAX: usize = 1 << 20;

/// Callback that commits a change. It returns `Ok` once the entry is on stable storage and the change is applied.
pub type Commit<'a> = dyn Fn(CatalogChange) -> std::result::Result<(), CommitError> + 'a;

/// The log did not commit a change, or the outcome of the commit is unknown.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct CommitError {
    /// Error of the log.
    pub cause: Box<dyn std::error::Error + Send + Sync>,
    /// True if the entry is not in the journal and never will be.
    pub is_not_written: bool,
    /// True if [`CatalogChange::is_current`] was false. The catalog prepares the change again.
    pub is_outdated: bool,
}

/// Bytes of journal entries whose rows are not written yet, summed over all catalogs that share this counter.
#[derive(Debug, Default)]
pub struct UnflushedBytes(AtomicU64);

impl UnflushedBytes {
    /// Returns the number of bytes.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Resets the counter to 0. Called when a write of all rows begins.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, entry: &Bytes) {
        self.0.fetch_add(entry.len() as u64, Ordering::Relaxed);
    }
}

/// Kind of a row in an entry. The number of the variant is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RowKind {
    /// A timeline, keyed by its id.
    Timeline = 1,
    /// A saved search, keyed by its name.
    Search = 2,
    /// A metric, keyed by its name.
    Metric = 3,
}

/// Builder of an entry's bytes, row by row.
#[derive(Debug)]
pub(crate) struct EntryRows(Vec<u8>);

impl EntryRows {
    pub(crate) fn new(table: TableId) -> Self {
        let mut bytes = ModelTag::CATALOG.0.to_vec();
        bytes.push(VERSION);
        varint::put(u64::from(table.0), &mut bytes);
        Self(bytes)
    }

    /// Adds a row; `None` deletes the row.
    pub(crate) fn push(&mut self, kind: RowKind, key: &[u8], value: Option<&[u8]>) {
        let Self(bytes) = self;
        bytes.push(kind as u8);
        varint::put(key.len() as u64, bytes);
        bytes.extend_from_slice(key);
        // A row has a version and a checksum, so it is never empty.
        let value = value.unwrap_or_default();
        varint::put(value.len() as u64, bytes);
        bytes.extend_from_slice(value);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= ENTRY_BYTES_MAX
    }

    pub(crate) fn finish(self) -> Bytes {
        self.0.into()
    }
}

/// Named content of a catalog that an entry has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogRow {
    /// Attributes of a timeline.
    Timeline(TimelineId),
    /// A saved search, by name.
    Search(String),
    /// Metadata of a metric, by name.
    Metric(String),
}

/// Row of a replayed entry.
struct EntryRow<'a> {
    kind: RowKind,
    key: &'a [u8],
    value: Option<&'a [u8]>,
}

/// Takes the next row off an entry; `None` if the bytes are malformed.
fn next_row<'a>(parts: &mut Parts<'a>) -> Option<EntryRow<'a>> {
    let [kind] = *parts.bytes(1)? else { return None };
    let kinds = [RowKind::Timeline, RowKind::Search, RowKind::Metric];
    let kind = kinds.into_iter().find(|known| *known as u8 == kind)?;
    let mut part = || {
        let length = usize::try_from(parts.number()?).ok()?;
        parts.bytes(length)
    };
    let (key, value) = (part()?, part()?);
    let value = Some(value).filter(|value| !value.is_empty());
    Some(EntryRow { kind, key, value })
}

/// In-memory effect of an entry.
#[derive(Debug)]
pub(crate) enum Changed {
    /// Changed attributes of timelines.
    Attributes(Vec<Edit>),
    /// A saved search and its text; `None` if it is deleted.
    Search(String, Option<Arc<str>>),
    /// Changed metadata of metrics.
    Metrics(Vec<(Box<str>, StoredMetadata)>),
}

/// Content of a change, shared by the catalog and the log.
#[derive(Debug)]
struct Change {
    catalog: Arc<Catalog>,
    encoded: Bytes,
    changed: Mutex<Option<Changed>>,
    /// True once the change is applied to memory.
    is_applied: AtomicBool,
}

/// A change that is being committed. The log writes its entry, then applies the change; each at most once.
#[derive(Debug)]
pub struct CatalogChange(Arc<Change>);

impl Catalog {
    /// Commits a change. On error, the result also reports whether the change was applied to memory.
    pub(crate) fn commit(
        self: &Arc<Self>,
        rows: EntryRows,
        changed: Changed,
        commit: &Commit<'_>,
    ) -> std::result::Result<(), NotCommitted> {
        let change = Arc::new(Change {
            catalog: Arc::clone(self),
            encoded: rows.finish(),
            changed: Mutex::new(Some(changed)),
            is_applied: AtomicBool::new(false),
        });
        match commit(CatalogChange(Arc::clone(&change))) {
            Ok(()) => Ok(()),
            Err(error) => Err(NotCommitted {
                error,
                is_applied: change.is_applied.load(Ordering::Acquire),
            }),
        }
    }

    /// Returns the table of an entry.
    ///
    /// # Errors
    ///
    /// [`CatalogError::DamagedEntry`] if the bytes are not an entry of a catalog.
    pub fn table_of(entry: &[u8]) -> Result<TableId> {
        header(entry)
            .map(|(table, _)| table)
            .ok_or(CatalogError::DamagedEntry)
    }

    /// Returns the table of an entry, and the rows that the entry has changed, in order.
    ///
    /// # Errors
    ///
    /// [`CatalogError::DamagedEntry`] if the bytes are not an entry of a catalog.
    pub fn changed_rows(entry: &[u8]) -> Result<(TableId, Vec<CatalogRow>)> {
        let (table, mut parts) = header(entry).ok_or(CatalogError::DamagedEntry)?;
        let mut rows = Vec::new();
        while !parts.rest.is_empty() {
            let row = next_row(&mut parts).ok_or(CatalogError::DamagedEntry)?;
            let name = || {
                let name = std::str::from_utf8(row.key).map_err(|_| CatalogError::DamagedEntry);
                name.map(str::to_owned)
            };
            rows.push(match row.kind {
                RowKind::Timeline => {
                    let id = row.key.try_into().map_err(|_| CatalogError::DamagedEntry)?;
                    CatalogRow::Timeline(TimelineId(id))
                }
                RowKind::Search => CatalogRow::Search(name()?),
                RowKind::Metric => CatalogRow::Metric(name()?),
            });
        }
        Ok((table, rows))
    }

    /// Decodes a journal entry without applying it.
    ///
    /// # Errors
    ///
    /// The errors of [`replay`](Self::replay) for a damaged entry.
    pub fn check_entry(entry: &Bytes) -> Result<()> {
        let table = Self::table_of(entry)?;
        let empty = Self::new(table, CatalogOptions::default());
        empty.replay(entry)
    }

    /// Applies a journal entry. All rows of the table must be loaded and all earlier entries replayed.
    ///
    /// A loaded timeline row that is newer than the entry is kept.
    ///
    /// # Errors
    ///
    /// [`CatalogError::DamagedEntry`], [`CatalogError::DamagedRow`], [`CatalogError::DamagedSearch`] or
    /// [`CatalogError::DamagedMetadata`] if the entry or one of its rows is damaged; [`CatalogError::Full`] if a
    /// 32-bit number space is exhausted.
    pub fn replay(&self, entry: &Bytes) -> Result<()> {
        let (_, mut parts) = header(entry).ok_or(CatalogError::DamagedEntry)?;
        while !parts.rest.is_empty() {
            let EntryRow { kind, key, value } = next_row(&mut parts).ok_or(CatalogError::DamagedEntry)?;
            let name = || std::str::from_utf8(key).map_err(|_| CatalogError::DamagedEntry);
            match kind {
                RowKind::Timeline => {
                    let id = key.try_into().map_err(|_| CatalogError::DamagedEntry)?;
                    self.replay_edit(TimelineId(id), value.ok_or(CatalogError::DamagedEntry)?)?;
                }
                RowKind::Search => self.searches.replay(name()?, value)?,
                RowKind::Metric => self.metadata.replay(name()?, value)?,
            }
        }
        self.unflushed.add(entry);
        Ok(())
    }
}

/// Returns the table of an entry and a decoder of its rows.
fn header(entry: &[u8]) -> Option<(TableId, Parts<'_>)> {
    let rest = entry.strip_prefix(&ModelTag::CATALOG.0)?;
    let (&VERSION, rest) = rest.split_first()? else {
        return None;
    };
    let mut parts = Parts { rest };
    let table = u32::try_from(parts.number()?).ok()?;
    Some((TableId(table), parts))
}

/// A failed commit.
#[derive(Debug)]
pub(crate) struct NotCommitted {
    pub(crate) error: CommitError,
    /// True if the entry is in the journal and applied to memory although the commit failed.
    pub(crate) is_applied: bool,
}

impl From<NotCommitted> for CatalogError {
    fn from(failed: NotCommitted) -> Self {
        Self::NotCommitted(failed.error.cause)
    }
}

impl CatalogChange {
    /// Returns the table of the catalog.
    pub fn table(&self) -> TableId {
        self.0.catalog.table
    }

    /// Returns the bytes for the journal. They begin with [`ModelTag::CATALOG`].
    pub fn encoded(&self) -> &Bytes {
        &self.0.encoded
    }

    /// Returns true if the change still applies to the current state of its timelines; always true for searches and
    /// metadata. Called before the entry is written.
    pub fn is_current(&self) -> bool {
        match &*self.0.changed.lock() {
            Some(Changed::Attributes(edits)) => self.0.catalog.are_current(edits),
            _ => true,
        }
    }

    /// Applies the change to memory. Called after the entry is in the journal, in the order of entries.
    pub fn apply(&self) {
        let Change {
            catalog,
            encoded,
            changed,
            is_applied,
        } = &*self.0;
        match changed.lock().take() {
            Some(Changed::Attributes(edits)) => catalog.apply_edits(edits),
            Some(Changed::Search(name, text)) => catalog.searches.apply(name, text),
            Some(Changed::Metrics(metrics)) => catalog.metadata.apply(metrics),
            None => {}
        }
        catalog.unflushed.add(encoded);
        is_applied.store(true, Ordering::Release);
    }
}

#[cfg(test)]
pub(crate) mod tests;
