//! Log model of wide tables: freezes and flushes the row buffer, and frees the parts of dropped tables.
//!
//! A flush writes the rows of a generation in key order into the part of their table. An update is merged with the
//! stored row first. A flush that was interrupted is repeated as a whole, which gives the same rows.

use std::sync::Arc;

use bytes::Bytes;
use tideline_backend::{
    Direction, ManifestChange, ManifestKind, ManifestRow, PageLimit, PartRef, Partition, RowChange,
    SegmentRef, WRITE_BYTES_MAX, WRITE_ROWS_MAX,
};
use tideline_key_codec::part_name;
use tideline_log::fail_points::around;
use tideline_log::manifest::put_row;
use tideline_log::{Edit, Flushed, LogError, LogModel, Manifest, ModelError, Pressure};
use tideline_model::{Durability, KeyRange, SequenceNumber, TableId, Tier};

use crate::buffer::TableBuffer;
use crate::codec;
use crate::error::{Result, WideError};
use crate::fragments::Head;
use crate::read::{ROWS_BUCKET, resolve, rest_of};
use crate::state::{PART_FORMAT, Part, PartDetail, State};
use crate::store::{WideStore, is_base, read_parts};
use crate::tables::{TableRules, Tables};

/// Number of rows of a generation that are read and merged at once.
const MERGE_ROWS: usize = 500;

/// Rows waiting for one write to the backend.
#[derive(Debug, Default)]
struct Batch {
    changes: Vec<RowChange>,
    bytes: usize,
}

impl WideStore {
    /// Writes the changes of one table into its part. Appends to `stale` the fragments that must be deleted after the
    /// sync.
    fn write_table(
        &self,
        part: &mut Part,
        buffer: &TableBuffer,
        rules: &TableRules,
        stale: &mut Vec<StaleFragments>,
    ) -> Result<()> {
        let table = part.at.table;
        for range in buffer.deleted_ranges() {
            around("wide", "delete", || self.delete_range(part, range))?;
        }
        let expiry = self.expiry(rules);
        let mut batch = Batch::default();
        let mut rest = Some(KeyRange::ALL);
        while let Some(range) = rest {
            let rows = buffer.page(&range, Direction::Ascending, MERGE_ROWS);
            rest = match rows.last() {
                Some((last, _)) if rows.len() == MERGE_ROWS => rest_of(&range, last, Direction::Ascending),
                _ => None,
            };
            for (key, mutations) in rows {
                let base = match mutations.first().is_some_and(|first| is_base(first)) {
                    true => None,
                    false => self.stored_in(part.at, &key)?,
                };
                let damaged = |reason| WideError::Damaged { table, reason };
                let value = resolve(base.as_ref(), &mutations, rules.versions_max).map_err(damaged)?;
                let value = match value {
                    Some(value) => expiry.visible(value).map_err(damaged)?,
                    None => None,
                };
                let value = self.stored_form(part, &key, value, stale)?;
                let bytes = key.len() + value.as_ref().map_or(0, Bytes::len);
                if batch.changes.len() == WRITE_ROWS_MAX || batch.bytes + bytes > WRITE_BYTES_MAX {
                    self.write_batch(part.at, &mut batch)?;
                }
                batch.bytes += bytes;
                batch.changes.push(RowChange { key, value });
            }
        }
        self.write_batch(part.at, &mut batch)
    }

    /// Returns the stored form of a row: the row itself, or the head of a large row, whose fragments are written first.
    /// Returns `None` for a deleted row.
    fn stored_form(
        &self,
        part: &mut Part,
        key: &Bytes,
        value: Option<Bytes>,
        stale: &mut Vec<StaleFragments>,
    ) -> Result<Option<Bytes>> {
        let bytes = key.len() + value.as_ref().map_or(0, Bytes::len);
        let detail = &mut part.detail;
        detail.row_bytes_max = detail.row_bytes_max.max(bytes as u64);
        let is_large = bytes > self.settings.fragment_bytes;
        if !is_large {
            detail.note_column(bytes);
            if !detail.has_fragments() {
                return Ok(value);
            }
        }
        detail.set_fragments();
        let damaged = |reason| WideError::Damaged {
            table: part.at.table,
            reason,
        };
        let stored = self.stored_raw(part.at, key)?;
        let before = stored.map(|stored| Head::decode(&stored)).transpose();
        let before = before.map_err(damaged)?.flatten();
        self.delete_fragments(part.at, key, before.as_ref().map(|head| head.generation))?;
        if let Some(head) = &before {
            stale.push(StaleFragments {
                part: part.at,
                key: key.clone(),
                generation: head.generation,
            });
        }
        match value {
            Some(value) if is_large => {
                let (head, largest) = around("wide", "fragments", || {
                    self.write_fragments(part.at, key, &value, before.as_ref())
                })?;
                part.detail.note_column(largest);
                Ok(Some(head.encode().into()))
            }
            value => Ok(value),
        }
    }

    fn write_batch(&self, part: PartRef, batch: &mut Batch) -> Result<()> {
        if batch.changes.is_empty() {
            return Ok(());
        }
        let stamp = self.log.stamps().next()?;
        let partition = Partition::part(part, ROWS_BUCKET);
        around("wide", "write", || {
            let backend = self.log.backend();
            backend.write(partition, &batch.changes, stamp, Durability::Buffered)
        })?;
        *batch = Batch::default();
        Ok(())
    }

    /// Deletes the stored rows of a range and their fragments. Takes time linear in their number.
    fn delete_range(&self, part: &Part, range: KeyRange) -> Result<()> {
        if part.detail.has_fragments() {
            // Also deletes fragments whose heads were deleted by an interrupted flush.
            self.delete_fragments_in(part.at, &range)?;
        }
        let part = part.at;
        let partition = Partition::part(part, ROWS_BUCKET);
        let limit = PageLimit {
            rows_max: WRITE_ROWS_MAX,
            bytes_max: WRITE_BYTES_MAX,
        };
        let mut rest = Some(range);
        while let Some(range) = rest {
            let page = self
                .log
                .backend()
                .scan(partition, &range, Direction::Ascending, limit)?;
            let mut batch = Batch::default();
            for row in page.rows {
                if row.value.first() == Some(&codec::HEAD) {
                    self.delete_fragments(part, &row.key, None)?;
                }
                if batch.bytes + row.key.len() > WRITE_BYTES_MAX {
                    self.write_batch(part, &mut batch)?;
                }
                batch.bytes += row.key.len();
                batch.changes.push(RowChange {
                    key: row.key,
                    value: None,
                });
            }
            self.write_batch(part, &mut batch)?;
            rest = page.next;
        }
        Ok(())
    }

    /// Replaces the state with a changed copy.
    fn change_state(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.write();
        let mut changed = State::clone(&state);
        change(&mut changed);
        *state = Arc::new(changed);
    }

    /// Removes the parts of dropped tables and indexes from the manifest and frees them.
    fn free_dropped(&self) -> std::result::Result<(), LogError> {
        let state = self.state();
        let tables = self.tables();
        let exists = |table: &TableId| tables.contains(*table);
        let dropped: Vec<PartRef> = state
            .parts
            .iter()
            .filter(|(table, _)| !exists(table))
            .map(|(_, part)| part.at)
            .collect();
        if dropped.is_empty() {
            return Ok(());
        }
        let remove = |part: &PartRef| {
            let name = Bytes::copy_from_slice(&part_name(part.part));
            ManifestChange::Remove(ManifestKind::Part, name)
        };
        self.log.edit::<LogError>(
            |current| {
                Ok(Edit {
                    manifest: Manifest::clone(current),
                    changes: dropped.iter().map(remove).collect(),
                    adds: Vec::new(),
                })
            },
            |_| {
                self.change_state(|state| {
                    state.parts.retain(|_, part| !dropped.contains(&part.at));
                });
            },
        )?;
        for part in dropped {
            self.log.backend().reclaim_part(part)?;
        }
        Ok(())
    }
}

/// [`LogModel`] implementation of the store.
#[derive(Debug)]
pub struct WideModel(pub Arc<WideStore>);

impl LogModel for WideModel {
    fn pressure(&self) -> Pressure {
        let (active, frozen) = self.0.buffer_bytes();
        let budget = self.0.settings.buffer_bytes;
        match active >= budget {
            true if frozen >= 2 * budget => Pressure::Over,
            true => Pressure::Full,
            false => Pressure::Low,
        }
    }

    fn is_empty(&self) -> bool {
        self.0.state().active.is_empty()
    }

    fn freeze(&self, next: SequenceNumber) {
        self.0.change_state(|state| {
            let frozen = std::mem::take(&mut state.active);
            frozen.freeze(next);
            state.frozen.push(frozen);
        });
    }

    fn flush(&self, end: SequenceNumber) -> std::result::Result<Option<Box<dyn Flushed>>, ModelError> {
        let store = &self.0;
        let state = store.state();
        let (mut parts, mut stale) = (Vec::new(), Vec::new());
        for generation in state.frozen.iter().filter(|generation| generation.end() <= end) {
            for (table, buffer) in generation.tables() {
                // The changes of a dropped table are not written.
                let Ok(rules) = store.rules(table) else {
                    continue;
                };
                let known = parts.iter().position(|part: &Part| part.at.table == table);
                let at = known.unwrap_or_else(|| {
                    let part = state.parts.get(&table).copied();
                    parts.push(part.unwrap_or_else(|| store.new_part(table)));
                    parts.len() - 1
                });
                let part = &mut parts[at];
                store.write_table(part, &buffer, &rules, &mut stale)?;
                part.detail.newest = store.newest();
            }
        }
        Ok(Some(Box::new(FlushedRows {
            store: Arc::clone(store),
            end,
            parts,
            stale,
        })))
    }

    fn flushed(&self, end: SequenceNumber) {
        let is_flushed = |state: &State| state.frozen.iter().any(|generation| generation.end() <= end);
        if is_flushed(&self.0.state()) {
            self.0.change_state(|state| state.drop_flushed(end));
        }
    }

    fn tidy(&self) {
        if self.0.log.check_not_read_only().is_ok()
            && let Err(error) = self.0.free_dropped()
        {
            tracing::warn!(%error, "failed to free the rows of a dropped table; it is retried");
        }
    }

    fn take_over(
        &self,
        manifest: &Arc<Manifest>,
        rows: &[ManifestRow],
    ) -> std::result::Result<(), ModelError> {
        let parts = read_parts(&self.0.tables.of(manifest), rows)?;
        self.0.change_state(|state| {
            state.parts = parts;
            state.drop_flushed(manifest.cursor.sealed_to);
        });
        Ok(())
    }

    fn doubt(&self, _: &[TableId]) {}

    fn abandon(&self, _: &[SegmentRef]) {}
}

impl WideStore {
    /// Returns the part for the first flush of a table. The next manifest edit publishes the part. A repeated flush
    /// uses the same part.
    fn new_part(&self, table: TableId) -> Part {
        let mut parts = self.new_parts.lock();
        let at = parts.entry(table).or_insert_with(|| PartRef {
            part: self.log.next_part(),
            table,
            tier: Tier::Hot,
        });
        Part {
            at: *at,
            detail: PartDetail {
                format: PART_FORMAT,
                table: table.0,
                buckets: 1,
                row_bytes_max: 0,
                column_bytes_max: Some(0),
                newest: i64::MIN,
            },
        }
    }
}

impl State {
    /// Drops the generations that end at or before `end`: their rows are in the parts.
    fn drop_flushed(&mut self, end: SequenceNumber) {
        self.frozen.retain(|generation| generation.end() > end);
        self.flushes += 1;
    }
}

/// Rows of frozen generations that were written to parts and are not published yet.
struct FlushedRows {
    store: Arc<WideStore>,
    end: SequenceNumber,
    parts: Vec<Part>,
    stale: Vec<StaleFragments>,
}

/// Fragments to delete once the flush is durable, because no head references them any more.
struct StaleFragments {
    part: PartRef,
    key: Bytes,
    generation: u32,
}

impl Flushed for FlushedRows {
    fn synced(&mut self) -> std::result::Result<(), ModelError> {
        around("wide", "stale", || {
            self.stale.drain(..).try_for_each(|stale| {
                let (part, key) = (stale.part, stale.key);
                self.store.delete_generation(part, &key, stale.generation)
            })
        })?;
        Ok(())
    }

    fn edit(&mut self, manifest: &mut Manifest) -> std::result::Result<Vec<ManifestChange>, ModelError> {
        // The part of a table that was dropped meanwhile gets no manifest row. After the edit it is freed with the
        // parts of other dropped tables.
        let tables = Tables::new(manifest, &self.store.tables());
        let exists = |part: &&Part| tables.contains(part.at.table);
        let put = |part: &Part| put_row(ManifestKind::Part, &part_name(part.at.part), &part.detail);
        Ok(self.parts.iter().filter(exists).map(put).collect())
    }

    fn adds(&self) -> Vec<SegmentRef> {
        Vec::new()
    }

    fn follow(self: Box<Self>, _: &Arc<Manifest>) {
        let published = |table: &TableId| self.parts.iter().any(|part| part.at.table == *table);
        self.store.new_parts.lock().retain(|table, _| !published(table));
        self.store.change_state(|state| {
            state
                .parts
                .extend(self.parts.iter().map(|part| (part.at.table, *part)));
            state.drop_flushed(self.end);
        });
    }
}
