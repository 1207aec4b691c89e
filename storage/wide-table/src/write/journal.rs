//! Log entry of a write: its check before the commit, and its application to the row buffer.
//!
//! The committer checks that the rows that the writer has read are unchanged. It applies the entry once the entry is in
//! the journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tideline_log::{LogEntry, ModelError, Refusal, RequestRecord};
use tideline_model::{Durability, SequenceNumber, TableId};

use super::Seen;
use crate::changed::SearchChange;
use crate::entry::{Change, Entry};
use crate::store::WideStore;
use crate::unchanged::SeenRange;

/// Entry that the log checks, journals and applies.
pub(crate) struct WideEntry {
    store: Arc<WideStore>,
    entry: Entry,
    encoded: Bytes,
    durability: Durability,
    /// Rows and ranges that must not have changed.
    seen: Seen,
    /// Length of the key prefix that names the partition, for each row change.
    partitions: Vec<usize>,
    /// True while the rows of the entry count as pending.
    is_pending: AtomicBool,
}

impl WideEntry {
    pub(crate) fn new(
        store: Arc<WideStore>,
        entry: Entry,
        durability: Durability,
        seen: Seen,
        partitions: Vec<usize>,
    ) -> Self {
        Self {
            encoded: entry.encode(),
            store,
            entry,
            durability,
            seen,
            partitions,
            is_pending: AtomicBool::new(false),
        }
    }

    /// Returns the key and the partition prefix length of each changed row.
    fn rows(&self) -> impl Iterator<Item = (&[u8], usize)> {
        let rows = self.entry.changes.iter().filter_map(|change| match change {
            Change::Row { key, .. } => Some(key.as_ref()),
            Change::DeleteRange(_) => None,
        });
        rows.zip(self.partitions.iter().copied())
    }

    /// Returns the number of deleted ranges.
    fn ranges(&self) -> u32 {
        let changes = self.entry.changes.iter();
        let ranges = changes.filter(|change| matches!(change, Change::DeleteRange(_)));
        u32::try_from(ranges.count()).unwrap_or(u32::MAX)
    }
}

impl LogEntry for WideEntry {
    fn kind(&self) -> &'static str {
        "rows"
    }

    fn table(&self) -> TableId {
        self.entry.table
    }

    fn encoded(&self) -> &Bytes {
        &self.encoded
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn request(&self) -> Option<RequestRecord> {
        self.entry.request.clone()
    }

    fn check(&self) -> std::result::Result<(), Refusal> {
        let (table, pending) = (self.entry.table, &self.store.pending);
        let tables = self.store.tables();
        let rules = tables.get(table).ok_or(Refusal::TableDropped(table))?;
        if !rules.index_ids().eq(self.seen.indexes.iter().copied()) {
            return Err(Refusal::Outdated);
        }
        let state = self.store.state();
        let depends_on_closings = rules.division.is_some() || state.floors.contains_key(&table);
        if depends_on_closings && state.closings != self.seen.closings {
            return Err(Refusal::Outdated);
        }
        if !self.seen.rows.is_empty() || !self.seen.ranges.is_empty() {
            let is_range_current = |seen: &SeenRange| {
                let partition = &seen.range.start[..seen.partition];
                !pending.is_partition_pending(table, partition)
                    && state.range_revision(table, &seen.range) == seen.revision
            };
            let keys = self.seen.rows.iter().map(|(key, _)| key.as_ref());
            let is_current = !pending.is_any_pending(table, keys)
                && state.are_unchanged(table, &self.seen.rows)
                && self.seen.ranges.iter().all(is_range_current);
            if !is_current {
                return Err(Refusal::Outdated);
            }
        }
        for (other, rows) in &self.seen.others {
            let keys = rows.iter().map(|(key, _)| key.as_ref());
            let is_closed = tables
                .get(*other)
                .is_none_or(|rules| rules.division.is_some() && state.closings != self.seen.closings);
            let is_current =
                !is_closed && !pending.is_any_pending(*other, keys) && state.are_unchanged(*other, rows);
            if !is_current {
                return Err(Refusal::Outdated);
            }
        }
        pending.begin_rows(table, self.rows());
        pending.begin_ranges(self.ranges());
        self.is_pending.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn apply(&self, sequence: SequenceNumber) -> std::result::Result<(), ModelError> {
        // The changes of a dropped table are not applied, because it has no readers.
        let tables = self.store.tables();
        let Some(rules) = tables.get(self.entry.table) else {
            return Ok(());
        };
        // Keys and mutations share the memory of the encoded entry, which the log also keeps among its recent entries.
        let entry = Entry::decode(&self.encoded)?;
        let searched: Vec<SearchChange> = match rules.searches.is_empty() {
            true => Vec::new(),
            false => entry.changes.iter().map(SearchChange::from).collect(),
        };
        let all = std::iter::once((entry.table, entry.changes, rules.versions_max));
        let of_indexes = entry.index_changes.into_iter();
        // The entries of a dropped index have no readers.
        let of_indexes = of_indexes.filter(|(index, _)| tables.contains(*index));
        let all = all.chain(of_indexes.map(|(index, changes)| (index, changes, 1)));
        let state = self.store.state();
        for (table, changes, versions_max) in all {
            *self.store.committed.lock().entry(table).or_default() += changes.len() as u64;
            state.active.apply(table, changes, sequence, versions_max)?;
        }
        // Indexers read the rows of these changes, so the changes must be in the buffer first.
        if !searched.is_empty() {
            self.store.searches.push(&rules.searches, sequence, &searched);
        }
        Ok(())
    }
}

impl Drop for WideEntry {
    fn drop(&mut self) {
        if self.is_pending.load(Ordering::Relaxed) {
            let (table, pending) = (self.entry.table, &self.store.pending);
            pending.end_rows(table, self.rows());
            pending.end_ranges(self.ranges());
        }
    }
}
