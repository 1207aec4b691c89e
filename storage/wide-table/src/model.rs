//! Log model of wide tables: freezes and flushes the row buffer, and frees the parts of dropped tables.
//!
//! [`flush`](crate::flush) writes the rows of a generation into the part of their table.

use std::sync::Arc;

use bytes::Bytes;
use tideline_backend::{ManifestChange, ManifestKind, ManifestRow, PartRef, SegmentRef};
use tideline_key_codec::part_name;
use tideline_log::fail_points::around;
use tideline_log::manifest::put_row;
use tideline_log::{Edit, Flushed, LogError, LogModel, Manifest, ModelError, Pressure};
use tideline_model::{SequenceNumber, TableId, Tier};

use crate::flush::TableFlush;
use crate::state::{PART_FORMAT_BLOCKS, Part, PartDetail, State};
use crate::store::{WideStore, read_parts};
use crate::tables::Tables;

impl WideStore {
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
                for search in &rules.searches {
                    let settled = store.searches.settle(*search, generation.end());
                    let search_end = &mut parts[at].detail.search_end;
                    *search_end = settled.max(*search_end);
                }
                let mut part = TableFlush::new(store, parts[at], &rules, &mut stale).write(&buffer)?;
                part.detail.newest = store.newest();
                parts[at] = part;
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
                format: PART_FORMAT_BLOCKS,
                table: table.0,
                buckets: 3,
                row_bytes_max: 0,
                column_bytes_max: Some(0),
                newest: i64::MIN,
                fragments: false,
                search_end: 0,
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
pub(crate) struct StaleFragments {
    pub(crate) part: PartRef,
    pub(crate) key: Bytes,
    pub(crate) generation: u32,
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
