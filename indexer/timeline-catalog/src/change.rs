//! A change of a catalog on its way through the log.
//!
//! Its entry of the journal carries the rows that will say it, as `FORMAT.md` draws them. Memory takes it in when it is in
//! the journal; the rows are written before the journal forgets it. A restart takes it in from the journal once more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tideline_log::{LogEntry, LogError, ModelError, ModelTag, Refusal};
use tideline_model::{Durability, SequenceNumber, TableId, TimelineId};
use tideline_wire::varint;

use crate::catalog::{Catalog, CatalogOptions};
use crate::editing::Edit;
use crate::metadata::Known;
use crate::value::Parts;
use crate::{CatalogError, Result};

/// The layout of entries.
const VERSION: u8 = 1;
/// About the most bytes of rows in one entry; a single row may pass it.
pub(crate) const ENTRY_BYTES_MAX: usize = 1 << 20;

/// Commits an entry: returns when it is on stable storage and was applied, or with the reason why it may not be.
pub type Commit<'a> = dyn Fn(Box<dyn LogEntry>) -> tideline_log::Result<SequenceNumber> + 'a;

/// Bytes of entries, of all catalogs that share it, whose rows are not written yet.
#[derive(Debug, Default)]
pub struct UnflushedBytes(AtomicU64);

impl UnflushedBytes {
    /// How many there are.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Those so far are about to be written.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, entry: &Bytes) {
        self.0.fetch_add(entry.len() as u64, Ordering::Relaxed);
    }
}

/// Kind of a row in an entry. The number is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RowKind {
    /// A timeline, by its id.
    Timeline = 1,
    /// A saved search, by its name.
    Search = 2,
    /// A metric, by its name.
    Metric = 3,
}

/// Builds the bytes of an entry, row by row.
#[derive(Debug)]
pub(crate) struct EntryRows(Vec<u8>);

impl EntryRows {
    pub(crate) fn new(table: TableId) -> Self {
        let mut bytes = ModelTag::CATALOG.0.to_vec();
        bytes.push(VERSION);
        varint::put(u64::from(table.0), &mut bytes);
        Self(bytes)
    }

    /// Adds a row; `None` for one that is deleted.
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

/// A row of an entry that is replayed.
struct EntryRow<'a> {
    kind: RowKind,
    key: &'a [u8],
    value: Option<&'a [u8]>,
}

/// Takes the next row off an entry; `None` where there is no sound one.
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

/// Change of memory that an entry makes.
#[derive(Debug)]
pub(crate) enum Changed {
    /// Attributes of timelines.
    Attributes(Vec<Edit>),
    /// A saved search and its text; `None` when it is deleted.
    Search(String, Option<Arc<str>>),
    /// Metadata of metrics.
    Metrics(Vec<(Box<str>, Known)>),
}

/// A change that was handed to the log.
#[derive(Debug)]
pub(crate) struct Change {
    catalog: Arc<Catalog>,
    encoded: Bytes,
    changed: Mutex<Option<Changed>>,
    /// Whether memory has taken it in.
    is_applied: AtomicBool,
}

/// The entry of a change.
struct ChangeEntry(Arc<Change>);

impl Catalog {
    /// Commits a change; whether it is in memory even though the outcome is an error comes with that.
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
        match commit(Box::new(ChangeEntry(Arc::clone(&change)))) {
            Ok(_) => Ok(()),
            Err(error) => Err(NotCommitted {
                error,
                is_applied: change.is_applied.load(Ordering::Acquire),
            }),
        }
    }

    /// The table of an entry.
    ///
    /// # Errors
    ///
    /// The bytes are no entry of a catalog.
    pub fn table_of(entry: &[u8]) -> Result<TableId> {
        header(entry)
            .map(|(table, _)| table)
            .ok_or(CatalogError::DamagedEntry)
    }

    /// Reads an entry of the journal and changes nothing.
    ///
    /// # Errors
    ///
    /// The entry is not what was written.
    pub fn check_entry(entry: &Bytes) -> Result<()> {
        let table = Self::table_of(entry)?;
        let nobody = Self::new(table, CatalogOptions::default());
        nobody.replay(entry)
    }

    /// Takes in an entry of the journal: all rows of the table have been loaded, and all entries before it were taken in.
    ///
    /// A loaded row that is newer than the entry stays.
    ///
    /// # Errors
    ///
    /// The entry is not what was written.
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

/// The table of an entry, and its rows.
fn header(entry: &[u8]) -> Option<(TableId, Parts<'_>)> {
    let rest = entry.strip_prefix(&ModelTag::CATALOG.0)?;
    let (&VERSION, rest) = rest.split_first()? else {
        return None;
    };
    let mut parts = Parts { rest };
    let table = u32::try_from(parts.number()?).ok()?;
    Some((TableId(table), parts))
}

/// A commit that failed.
#[derive(Debug)]
pub(crate) struct NotCommitted {
    pub(crate) error: LogError,
    /// The entry is in the journal and memory has taken it in, although the call failed.
    pub(crate) is_applied: bool,
}

impl NotCommitted {
    /// Whether the change was made from a state that has changed meanwhile, so that it is to be made anew.
    pub(crate) fn is_outdated(&self) -> bool {
        matches!(self.error, LogError::Refused(Refusal::Outdated))
    }
}

impl From<NotCommitted> for CatalogError {
    fn from(failed: NotCommitted) -> Self {
        Self::Log(failed.error)
    }
}

impl LogEntry for ChangeEntry {
    fn kind(&self) -> &'static str {
        "catalog"
    }

    fn table(&self) -> TableId {
        self.0.catalog.table
    }

    fn encoded(&self) -> &Bytes {
        &self.0.encoded
    }

    fn durability(&self) -> Durability {
        Durability::Synced
    }

    fn check(&self) -> std::result::Result<(), Refusal> {
        match &*self.0.changed.lock() {
            Some(Changed::Attributes(edits)) => self.0.catalog.check_edits(edits),
            _ => Ok(()),
        }
    }

    fn apply(&self, _: SequenceNumber) -> std::result::Result<(), ModelError> {
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
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
