//! Log model of wide tables: freezes and flushes the row buffer, and frees the parts of dropped tables.
//!
//! [`flush`](crate::flush) writes the rows of a generation into the part of their table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tideline_backend::{ManifestChange, ManifestRow, PartRef, SegmentRef};
use tideline_log::fail_points::around;
use tideline_log::manifest::put_cursor;
use tideline_log::{Edit, Flushed, LogError, LogModel, Manifest, ModelError, Pressure};
use tideline_model::{SequenceNumber, TableId};

use crate::buffer::TableBuffer;
use crate::division::{ALL_PARTS, RECORD, WHOLE};
use crate::error::WideError;
use crate::flush::{PartRows, TableFlush, rows_by_part};
use crate::groups::Share;
use crate::moves::Flushing;
use crate::state::{Part, PartDetail, PartKey, State, put_of, removal_of};
use crate::store::{WideStore, read_parts};
use crate::tables::{TableRules, Tables};

/// Maximum number of parts that one edit of the manifest publishes or removes. An edit has at most 1,000 changes.
const PARTS_PER_EDIT: usize = 400;

impl WideStore {
    /// Replaces the state with a changed copy.
    pub(crate) fn change_state(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.write();
        let mut changed = State::clone(&state);
        change(&mut changed);
        *state = Arc::new(changed);
    }

    /// Removes dropped parts, and the parts of dropped tables and indexes, from the manifest and frees them.
    fn free_dropped(&self) -> std::result::Result<(), LogError> {
        let state = self.state();
        let tables = self.tables();
        let is_dropped = |part: &&Part| !tables.keeps(part.at.table, part.number());
        let dropped = state.parts.values().filter(is_dropped).take(PARTS_PER_EDIT);
        let dropped: Vec<Part> = dropped.copied().collect();
        // The parts of an index without rules belong to a dropped index only if the settings of all tables are intact.
        if dropped.is_empty() || tables.have_damage() {
            return Ok(());
        }
        let heirs = self.heirs_of(&state, &tables, &dropped);
        around("wide_free", "edit", || {
            self.log.edit::<LogError>(
                |current| {
                    let changes = dropped.iter().map(removal_of).chain(heirs.iter().map(put_of));
                    Ok(self.edit_with_ids(current, changes.collect()))
                },
                |_| {
                    self.change_state(|state| {
                        for part in &dropped {
                            state.parts.remove(&part.key());
                        }
                        state.parts.extend(heirs.iter().map(|part| (part.key(), *part)));
                    });
                    self.new_parts
                        .lock()
                        .retain(|_, at| heirs.iter().all(|heir| heir.at != *at));
                },
            )
        })?;
        // An upload that has already checked that the part exists must end its write before the part is freed.
        let writes = self.large.writes.lock();
        // A packing that has begun writes into the part until the packing ends.
        drop(self.part_writes.lock());
        for part in dropped {
            self.archived.forget(part.at.part);
            self.singles.forget(part.at.part);
            around("wide_free", "reclaim", || {
                self.log.backend().reclaim_part(part.at)
            })?;
        }
        drop(writes);
        self.free_dropped()
    }

    /// Publishes parts.
    pub(crate) fn publish(&self, parts: &[Part]) -> std::result::Result<(), LogError> {
        self.log.edit::<LogError>(
            |current| Ok(self.edit_with_ids(current, self.puts(parts, current))),
            |_| self.follow_parts(parts, |_| {}),
        )?;
        Ok(())
    }

    /// Returns an edit that changes manifest rows of parts. The edit also stores the next id, so that a restart does
    /// not assign the id of a new part again.
    pub(crate) fn edit_with_ids(&self, current: &Arc<Manifest>, mut changes: Vec<ManifestChange>) -> Edit {
        let mut manifest = Manifest::clone(current);
        manifest.cursor = self.log.cursor(manifest.cursor, manifest.cursor.sealed_to);
        changes.push(put_cursor(&manifest.cursor));
        Edit {
            manifest,
            changes,
            adds: Vec::new(),
        }
    }

    /// Returns the manifest rows of parts. A part that was dropped, alone or with its table, gets no row: it is freed
    /// with the other dropped parts.
    fn puts(&self, parts: &[Part], manifest: &Manifest) -> Vec<ManifestChange> {
        let tables = Tables::new(manifest, &self.tables());
        let exists = |part: &&Part| tables.keeps(part.at.table, part.number());
        parts.iter().filter(exists).map(put_of).collect()
    }

    /// Makes published parts visible to readers, together with another change of the state.
    fn follow_parts(&self, parts: &[Part], change: impl FnOnce(&mut State)) {
        let published = |at: &PartRef| parts.iter().any(|part| part.at == *at);
        self.new_parts.lock().retain(|_, at| !published(at));
        self.change_state(|state| {
            state.parts.extend(parts.iter().map(|part| (part.key(), *part)));
            change(state);
        });
    }

    /// Returns parts that take over the records of dropped parts that apply to the whole table: the newest version, and
    /// the position of the search indexes. If no part of a table is left, a new empty part takes them over.
    fn heirs_of(&self, state: &State, tables: &Tables, dropped: &[Part]) -> Vec<Part> {
        let mut heirs: BTreeMap<TableId, Part> = BTreeMap::new();
        for part in dropped.iter().filter(|part| tables.contains(part.at.table)) {
            let table = part.at.table;
            let heir = heirs.entry(table).or_insert_with(|| {
                let kept = state.parts_of(table, ALL_PARTS);
                let kept = kept.filter(|part| tables.keeps(table, part.number())).last();
                kept.copied()
                    .unwrap_or_else(|| self.new_part(table, Some(RECORD)))
            });
            let (left, kept) = (&part.detail, &mut heir.detail);
            self.versions.record(kept);
            kept.search_end = kept.search_end.max(left.search_end);
        }
        heirs.into_values().collect()
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
            // While a flush is in progress, the next generation waits, so that old generations do not accumulate.
            false if active > 0 && frozen == 0 && self.0.is_buffer_old() => Pressure::Full,
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
        let flushing = store.begin_flush();
        let mut flush = StoreFlush {
            store,
            state: store.state(),
            parts: BTreeMap::new(),
            unpublished: BTreeSet::new(),
            stale: Vec::new(),
        };
        let frozen = flush.state.frozen.clone();
        for generation in frozen.iter().filter(|generation| generation.end() <= end) {
            for (table, buffer) in generation.tables() {
                // The changes of a dropped table are not written.
                let Ok(rules) = store.rules(table) else {
                    continue;
                };
                let searches = rules.searches.iter();
                let settled = searches.map(|search| store.searches.settle(*search, generation.end()));
                let settled = settled.max().unwrap_or(0);
                for changed in changed_parts(&flush.state, table, &rules, &buffer)? {
                    flush.write(table, &rules, (&buffer, changed), settled)?;
                }
            }
        }
        let StoreFlush {
            mut parts,
            unpublished,
            stale,
            ..
        } = flush;
        parts.retain(|part_key, _| unpublished.contains(part_key));
        let parts = parts.into_values().collect();
        Ok(Some(Box::new(FlushedRows {
            store: Arc::clone(store),
            _flushing: flushing,
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
        if self.0.log.check_not_read_only().is_err() {
            return;
        }
        let dropped = {
            let _flushing = self.0.begin_flush();
            self.0.free_dropped()
        };
        if let Err(error) = dropped {
            tracing::warn!(%error, "failed to free the rows of a dropped table; it is retried");
        }
        if let Err(error) = self.0.free_replaced() {
            tracing::warn!(%error, "failed to free a part that was moved; it is retried");
        }
    }

    fn take_over(
        &self,
        manifest: &Arc<Manifest>,
        rows: &[ManifestRow],
    ) -> std::result::Result<(), ModelError> {
        let parts = read_parts(rows)?;
        self.0.change_state(|state| {
            state.parts = parts;
            // The edit whose outcome was unknown may have closed or moved a part, so decided writes must be decided
            // again.
            state.closings += 1;
            state.drop_flushed(manifest.cursor.sealed_to);
        });
        Ok(())
    }

    fn doubt(&self, _: &[TableId]) {}

    fn abandon(&self, _: &[SegmentRef]) {}
}

impl WideStore {
    /// Returns the part that the first flush of these rows writes. A later edit of the manifest publishes the part. A
    /// repeated flush uses the same part.
    pub(crate) fn new_part(&self, table: TableId, number: Option<i32>) -> Part {
        let part_key = (table, number.unwrap_or(WHOLE));
        let tier = self.first_tier(part_key);
        let mut parts = self.new_parts.lock();
        let at = parts.entry(part_key).or_insert_with(|| {
            let part = self.log.next_part();
            self.singles.begin(part);
            PartRef { part, table, tier }
        });
        Part {
            at: *at,
            detail: PartDetail::new(table, number, at.tier),
        }
    }
}

/// Flush of generations into the parts of all tables.
struct StoreFlush<'f> {
    store: &'f WideStore,
    state: Arc<State>,
    /// Parts that were changed so far.
    parts: BTreeMap<PartKey, Part>,
    /// Keys in `parts` of the parts that are not published yet.
    unpublished: BTreeSet<PartKey>,
    stale: Vec<StaleFragments>,
}

impl StoreFlush<'_> {
    /// Writes the changes of one part of a table, and the shares of its column groups.
    fn write(
        &mut self,
        table: TableId,
        rules: &TableRules,
        (buffer, (number, mut rows)): (&TableBuffer, ChangedPart),
        settled: u64,
    ) -> std::result::Result<(), ModelError> {
        for (group, id) in rules.groups.ids().enumerate() {
            self.write_share(
                (id, number),
                (rules, Share::Group(group)),
                (buffer, rows.clone()),
                0,
            )?;
        }
        self.write_share(
            (table, number),
            (rules, Share::Main),
            (buffer, rows.take()),
            settled,
        )?;
        // The generation still hides these rows, so early publication of some parts does not change the result of any
        // read.
        if self.unpublished.len() >= PARTS_PER_EDIT {
            let unpublished = std::mem::take(&mut self.unpublished);
            let parts: Vec<Part> = unpublished.iter().map(|part_key| self.parts[part_key]).collect();
            self.store.publish(&parts)?;
        }
        Ok(())
    }

    /// Writes one share of the changed rows. The part of a group is created with its first columns.
    fn write_share(
        &mut self,
        (id, number): (TableId, Option<i32>),
        share: (&TableRules, Share),
        (buffer, rows): (&TableBuffer, Option<PartRows>),
        settled: u64,
    ) -> std::result::Result<(), ModelError> {
        let part_key = (id, number.unwrap_or(WHOLE));
        let known = self.parts.remove(&part_key);
        let known = known.or_else(|| self.state.parts.get(&part_key).copied());
        let mut part = known.unwrap_or_else(|| self.store.new_part(id, number));
        part.detail.search_end = settled.max(part.detail.search_end);
        let mut part = {
            let _alone = self.store.part_writes.lock();
            TableFlush::new(self.store, part, share, &mut self.stale).write(buffer, rows)?
        };
        let is_unused = share.1 != Share::Main && known.is_none() && part.detail.row_bytes_max == 0;
        if !is_unused {
            self.store.versions.record(&mut part.detail);
            self.parts.insert(part_key, part);
            self.unpublished.insert(part_key);
        }
        Ok(())
    }
}

/// Part that a flush changes: its number and its changed rows. Both are `None` for the only part of a table that is not
/// divided.
type ChangedPart = (Option<i32>, Option<PartRows>);

/// Returns the parts that a flush of a table changes.
fn changed_parts(
    state: &State,
    table: TableId,
    rules: &TableRules,
    buffer: &TableBuffer,
) -> std::result::Result<Vec<ChangedPart>, WideError> {
    if rules.division.is_none() {
        return Ok(vec![(None, None)]);
    }
    let rows = rows_by_part(buffer, rules).map_err(|reason| WideError::Damaged { table, reason })?;
    let mut parts: BTreeMap<i32, PartRows> = rows;
    // Index entries in a part whose tier the index does not cover are not written: they were committed before the part
    // moved.
    parts.retain(|number, _| rules.keeps_entries(state, *number));
    if !buffer.deleted_ranges().is_empty() {
        // Deletes of ranges do not reach into the archive.
        let stored = state
            .parts_of(table, ALL_PARTS)
            .filter(|part| !part.is_archived());
        for number in stored
            .map(Part::number)
            .filter(|number| rules.keeps(*number) && *number != RECORD)
        {
            parts.entry(number).or_default();
        }
    }
    let changed = parts.into_iter();
    Ok(changed.map(|(number, rows)| (Some(number), Some(rows))).collect())
}

impl State {
    /// Drops the generations that end at or before `end`, because their rows are in the parts.
    fn drop_flushed(&mut self, end: SequenceNumber) {
        self.frozen.retain(|generation| generation.end() > end);
        self.count_publication();
    }
}

/// Rows of frozen generations that were written to parts and are not published yet.
struct FlushedRows {
    store: Arc<WideStore>,
    _flushing: Flushing,
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
        Ok(self.store.puts(&self.parts, manifest))
    }

    fn adds(&self) -> Vec<SegmentRef> {
        Vec::new()
    }

    fn follow(self: Box<Self>, _: &Arc<Manifest>) {
        self.store
            .follow_parts(&self.parts, |state| state.drop_flushed(self.end));
    }
}
