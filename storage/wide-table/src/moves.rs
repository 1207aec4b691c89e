//! Moves of parts between the hot and the cold tier, while the rows are read and written.
//!
//! A move copies the stored values of a part into a new part in the other tier. It then publishes the new part instead
//! of the old one, in one edit of the manifest. Flushes continue during the copy. Every change of the old part passes
//! [`change_part`](WideStore::change_part) or [`load_part`](WideStore::load_part), which record the changed keys after
//! each write, and the move copies these keys again. Only the last changes are copied, synced and published while no
//! flush runs.
//!
//! A reader that began before the edit still reads the old part, and then reads again, as after a flush. The old part
//! is freed when no such reader is left. An interrupted move leaves a part that the manifest does not contain; the next
//! start frees it.

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tideline_backend::{
    Direction, PageLimit, PartRef, Partition, RowChange, WRITE_BYTES_MAX, WRITE_ROWS_MAX,
};
use tideline_log::fail_points::around;
use tideline_log::{LogError, Manifest, SHARD};
use tideline_model::{Durability, KeyRange, TableId, Tier};

use crate::blocks::BLOCKS_BUCKET;
use crate::dictionaries::DICTIONARIES_BUCKET;
use crate::division::{ALL_PARTS, RECORD};
use crate::error::{Result, WideError};
use crate::fragments::FRAGMENTS_BUCKET;
use crate::read::ROWS_BUCKET;
use crate::state::{Part, PartDetail, put_of, removal_of};
use crate::store::WideStore;

/// Buckets of a part, in the order in which they are copied: heads after the fragments that they reference, and blocks
/// after the dictionaries that they need.
const BUCKETS: [u16; 4] = [FRAGMENTS_BUCKET, ROWS_BUCKET, DICTIONARIES_BUCKET, BLOCKS_BUCKET];
/// Size of the copied values at which they are written, in bytes.
const COPY_BYTES: usize = 16 << 20;
/// Size from which copied values are written as sorted rows, in bytes.
const SORTED_BYTES_MIN: usize = 256 << 10;
/// Maximum number of changed values that are copied while flushes wait.
const LAST_CHANGES_MAX: usize = 2_000;
/// Number of changed values above which a move is given up, because the part is still written too often.
const CHANGES_MAX: usize = 200_000;
/// Limit of one page of values to copy.
const COPY_PAGE: PageLimit = PageLimit {
    rows_max: WRITE_ROWS_MAX,
    bytes_max: WRITE_BYTES_MAX / 4,
};

/// Stored part and its tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartInTier {
    /// Table or index of the part.
    pub table: TableId,
    /// Number of the part.
    pub number: i32,
    /// Tier.
    pub tier: Tier,
    /// True if the part is in the archive, or is being archived.
    pub is_closed: bool,
    /// Time until which a restored part is not archived again, in nanoseconds since 1970-01-01T00:00:00Z.
    pub held_until: Option<i64>,
}

/// Amount of work that a move has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MoveProgress {
    /// Number of stored values that were copied.
    pub values: u64,
    /// Bytes that were read and written again.
    pub bytes: u64,
}

impl MoveProgress {
    /// Returns the sum of two amounts of work.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            values: self.values + other.values,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// Result of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveEnd {
    /// The part is in the other tier.
    Moved(MoveProgress),
    /// The caller ended the move; nothing has changed.
    Stopped,
    /// The part no longer exists, is already in this tier, or is in the archive.
    Gone,
    /// The part was changed faster than it was copied, or another move runs; nothing has changed.
    Busy,
    /// A search index that covers only the other tier cannot take the documents of the part; the part has not moved.
    Unready,
}

/// State of the moves of parts, and of the flushes that must not run while a move is published.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    state: Mutex<MovesState>,
    changed: Condvar,
    /// Replaced parts that are not freed yet, oldest first. Each element holds the parts that were replaced together,
    /// and the value that all states with these parts share.
    replaced: Mutex<VecDeque<(Vec<PartRef>, Arc<()>)>>,
}

/// Change of the parts of column groups, together with the part of their rows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GroupParts<'g> {
    /// The parts of the groups stay.
    Keep,
    /// The parts of the groups are removed, because the new part has whole rows.
    Remove,
    /// These parts of groups are added, because the old part had whole rows.
    Add(&'g [Part]),
}

#[derive(Debug, Default)]
struct MovesState {
    /// True from the start of a flush until its parts are published.
    is_flushing: bool,
    /// True while a move copies its last changes and is being published.
    is_ending: bool,
    /// Part that is being moved.
    moved: Option<Moved>,
}

#[derive(Debug)]
struct Moved {
    at: PartRef,
    /// Keys of the values that were changed since they were last copied, with their buckets.
    changed: BTreeSet<(u16, Bytes)>,
}

impl Moves {
    /// Records the changed keys of a part if the part is being moved. Called after each write, even after a failed
    /// write, because it may have changed some of the values. If the keys were recorded before the write, the move
    /// could take them and copy the values that the write is about to replace. The move takes the last keys while no
    /// write runs.
    fn note<'k>(&self, at: PartRef, bucket: u16, keys: impl Iterator<Item = &'k Bytes>) {
        if let Some(moved) = self.state.lock().moved.as_mut().filter(|moved| moved.at == at) {
            // One key above the limit is recorded, which shows that the limit was exceeded.
            let room = (CHANGES_MAX + 1).saturating_sub(moved.changed.len());
            let keys = keys.take(room).map(|key| (bucket, Bytes::copy_from_slice(key)));
            moved.changed.extend(keys);
        }
    }

    /// Begins to record the changes of a part. Returns false if another part is being moved.
    fn begin(&self, at: PartRef) -> bool {
        let mut state = self.state.lock();
        let is_free = state.moved.is_none();
        if is_free {
            let changed = BTreeSet::new();
            state.moved = Some(Moved { at, changed });
        }
        is_free
    }

    /// Returns the number of recorded changes.
    fn changes(&self) -> usize {
        let state = self.state.lock();
        state.moved.as_ref().map_or(0, |moved| moved.changed.len())
    }

    /// Takes the recorded changes.
    fn take_changes(&self) -> BTreeSet<(u16, Bytes)> {
        let mut state = self.state.lock();
        let moved = state.moved.as_mut();
        moved.map_or_else(BTreeSet::new, |moved| std::mem::take(&mut moved.changed))
    }

    /// Stops recording changes.
    fn end(&self) {
        self.state.lock().moved = None;
    }
}

/// Guard of a flush. No move is published while the guard exists. It is held until the parts of the flush are
/// published.
#[derive(Debug)]
pub(crate) struct Flushing(Arc<WideStore>);

impl Drop for Flushing {
    fn drop(&mut self) {
        self.0.moves.state.lock().is_flushing = false;
        self.0.moves.changed.notify_all();
    }
}

/// Guard of the publication of a move. Neither a flush nor a packing runs while the guard exists.
pub(crate) struct Ending<'m> {
    moves: &'m Moves,
    _alone: MutexGuard<'m, ()>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.moves.state.lock().is_ending = false;
        self.moves.changed.notify_all();
    }
}

impl WideStore {
    /// Waits until no move is being published, and prevents further publications until the guard is dropped. Only the
    /// flushing thread calls this, and it holds at most one guard.
    pub(crate) fn begin_flush(self: &Arc<Self>) -> Flushing {
        let mut state = self.moves.state.lock();
        while state.is_ending {
            self.moves.changed.wait(&mut state);
        }
        state.is_flushing = true;
        Flushing(Arc::clone(self))
    }

    /// Changes values of a bucket of a part. They are durable after the next sync.
    pub(crate) fn change_part(&self, at: PartRef, bucket: u16, changes: &[RowChange]) -> Result<()> {
        self.put_part(at, bucket, changes, Durability::Buffered)
    }

    /// Changes values of a bucket of a part with this durability.
    pub(crate) fn put_part(
        &self,
        at: PartRef,
        bucket: u16,
        changes: &[RowChange],
        durability: Durability,
    ) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let stamp = self.log.stamps().next()?;
        let partition = Partition::part(at, bucket);
        let backend = self.log.backend();
        self.singles.note(at.part, bucket, changes.iter());
        let written = backend.write(partition, changes, stamp, durability);
        self.moves
            .note(at, bucket, changes.iter().map(|change| &change.key));
        Ok(written?)
    }

    /// Changes many values of a bucket of a part, in key order. They are durable after the next sync.
    pub(crate) fn load_part(&self, at: PartRef, bucket: u16, groups: &[Vec<RowChange>]) -> Result<()> {
        let stamp = self.log.stamps().next()?;
        let partition = Partition::part(at, bucket);
        self.singles.note(at.part, bucket, groups.iter().flatten());
        let written = self.log.backend().write_sorted(partition, groups, stamp);
        let keys = groups.iter().flatten().map(|change| &change.key);
        self.moves.note(at, bucket, keys);
        Ok(written?)
    }

    /// Returns the stored parts of a table or index in the order of their numbers, with their tiers.
    pub fn parts_in_tiers(&self, table: TableId) -> Vec<PartInTier> {
        let state = self.state();
        let parts = state
            .parts_of(table, ALL_PARTS)
            .filter(|part| part.number() != RECORD);
        let in_tier = |part: &Part| PartInTier {
            table,
            number: part.number(),
            tier: part.detail.tier,
            is_closed: part.is_closed(),
            held_until: part.detail.held_until,
        };
        parts.map(in_tier).collect()
    }

    /// Moves one part of a table or index into the hot or the cold tier. Calls `proceed` after every few megabytes.
    /// Takes time linear in the bytes of the part. Flushes wait for a fraction of a second at the end.
    ///
    /// # Errors
    ///
    /// The errors of the backend and of the log. After an error, the part may be in either tier; a repeated move starts
    /// from the beginning.
    pub(crate) fn move_part(
        self: &Arc<Self>,
        (table, number): (TableId, i32),
        tier: Tier,
        proceed: &mut dyn FnMut(&MoveProgress) -> ControlFlow<()>,
    ) -> Result<MoveEnd> {
        let state = self.state();
        let Some(part) = state
            .parts
            .get(&(table, number))
            .filter(|part| !part.is_archived() && part.at.tier != tier)
        else {
            return Ok(MoveEnd::Gone);
        };
        let (from, part) = (part.at, self.log.next_part());
        drop(state);
        if !self.moves.begin(from) {
            return Ok(MoveEnd::Busy);
        }
        let to = PartRef { part, table, tier };
        self.singles.begin(part);
        let mut progress = MoveProgress::default();
        let copied = self.copy_part(from, to, &mut progress, proceed);
        let end = match copied {
            Ok(None) => self.end_move(number, from, to, &mut progress),
            Ok(Some(end)) => Ok(end),
            Err(error) => Err(error),
        };
        self.moves.end();
        if matches!(end, Ok(MoveEnd::Gone | MoveEnd::Stopped | MoveEnd::Busy)) {
            // After an error, the edit may have been applied. The next start frees the part that the manifest does not
            // contain.
            self.singles.forget(part);
            self.log.backend().reclaim_part(to)?;
        }
        end
    }

    /// Copies a part, and then repeatedly the values that were changed in the meantime, until few are left. Returns the
    /// result of the move if it must not continue.
    fn copy_part(
        &self,
        from: PartRef,
        to: PartRef,
        progress: &mut MoveProgress,
        proceed: &mut dyn FnMut(&MoveProgress) -> ControlFlow<()>,
    ) -> Result<Option<MoveEnd>> {
        for bucket in BUCKETS {
            if self.copy_bucket(from, to, bucket, progress, proceed)?.is_break() {
                return Ok(Some(MoveEnd::Stopped));
            }
        }
        while self.moves.changes() > LAST_CHANGES_MAX {
            let changed = self.moves.take_changes();
            if changed.len() > CHANGES_MAX {
                return Ok(Some(MoveEnd::Busy));
            }
            self.copy_values(from, to, &changed, progress)?;
            if proceed(progress).is_break() {
                return Ok(Some(MoveEnd::Stopped));
            }
        }
        Ok(None)
    }

    fn copy_bucket(
        &self,
        from: PartRef,
        to: PartRef,
        bucket: u16,
        progress: &mut MoveProgress,
        proceed: &mut dyn FnMut(&MoveProgress) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let (mut groups, mut bytes) = (Vec::new(), 0);
        let mut rest = Some(KeyRange::ALL);
        while let Some(range) = rest {
            let source = Partition::part(from, bucket);
            let page = self
                .log
                .backend()
                .scan(source, &range, Direction::Ascending, COPY_PAGE)?;
            rest = page.next;
            let of_page: usize = page.rows.iter().map(|row| row.key.len() + row.value.len()).sum();
            progress.values += page.rows.len() as u64;
            progress.bytes += of_page as u64;
            bytes += of_page;
            let copies = page.rows.into_iter().map(|row| RowChange {
                key: row.key,
                value: Some(row.value),
            });
            groups.push(copies.collect());
            if bytes >= COPY_BYTES || rest.is_none() {
                self.put_copies(
                    to,
                    bucket,
                    &std::mem::take(&mut groups),
                    std::mem::take(&mut bytes),
                )?;
                if proceed(progress).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn put_copies(&self, to: PartRef, bucket: u16, groups: &[Vec<RowChange>], bytes: usize) -> Result<()> {
        around("wide_move", "copy", || {
            if bytes >= SORTED_BYTES_MIN {
                return self.load_part(to, bucket, groups);
            }
            let mut groups = groups.iter();
            groups.try_for_each(|group| self.change_part(to, bucket, group))
        })
    }

    /// Copies the current values of keys, or deletes them if they have none.
    fn copy_values(
        &self,
        from: PartRef,
        to: PartRef,
        keys: &BTreeSet<(u16, Bytes)>,
        progress: &mut MoveProgress,
    ) -> Result<()> {
        for bucket in BUCKETS {
            let of_bucket = (bucket, Bytes::new())..(bucket + 1, Bytes::new());
            let (mut changes, mut bytes) = (Vec::new(), 0);
            for (_, key) in keys.range(of_bucket) {
                let value = self.log.backend().get(Partition::part(from, bucket), key)?;
                let size = key.len() + value.as_ref().map_or(0, Bytes::len);
                progress.values += 1;
                progress.bytes += size as u64;
                if changes.len() == WRITE_ROWS_MAX || bytes + size > WRITE_BYTES_MAX {
                    self.change_part(to, bucket, &std::mem::take(&mut changes))?;
                    bytes = 0;
                }
                bytes += size;
                let key = key.clone();
                changes.push(RowChange { key, value });
            }
            self.change_part(to, bucket, &changes)?;
        }
        Ok(())
    }

    /// Copies the last changes while no flush runs, and publishes the new part in place of the old one.
    fn end_move(
        self: &Arc<Self>,
        number: i32,
        from: PartRef,
        to: PartRef,
        progress: &mut MoveProgress,
    ) -> Result<MoveEnd> {
        let mut is_busy = false;
        let change = |detail: &mut PartDetail| detail.set_tier(to.tier);
        let mut copy_last = |part: &Part| {
            let changed = self.moves.take_changes();
            let mut moved = part.detail;
            change(&mut moved);
            // If an index was created during the move, a repeated move builds its entries first.
            is_busy = changed.len() > CHANGES_MAX || !self.is_prepared(part, &moved);
            if !is_busy {
                self.copy_values(from, to, &changed, progress)?;
            }
            Ok(!is_busy)
        };
        let is_moved = self.put_instead((number, GroupParts::Keep), (from, to), &mut copy_last, &change)?;
        Ok(match is_moved {
            true => MoveEnd::Moved(*progress),
            false if is_busy => MoveEnd::Busy,
            false => MoveEnd::Gone,
        })
    }

    /// Waits until no move is being published. A move that is published later uses the current settings.
    pub fn wait_ending(&self) {
        let mut state = self.moves.state.lock();
        while state.is_ending {
            self.moves.changed.wait(&mut state);
        }
    }

    /// Waits until no flush and no packing runs, and prevents new ones until the guard is dropped.
    pub(crate) fn begin_end(&self) -> Ending<'_> {
        let mut state = self.moves.state.lock();
        while state.is_flushing || state.is_ending {
            self.moves.changed.wait(&mut state);
        }
        state.is_ending = true;
        drop(state);
        Ending {
            moves: &self.moves,
            _alone: self.part_writes.lock(),
        }
    }

    /// Publishes the part `to` in place of the part `from`, while no flush runs. Also changes the parts of column
    /// groups as `groups` specifies, and removes the parts of indexes that do not cover the new tier. Calls `prepare`
    /// first, with the part that is replaced. Returns false if `prepare` returns false, if the part was dropped or
    /// replaced in the meantime, or if an index of the new tier lacks the entries.
    pub(crate) fn put_instead(
        self: &Arc<Self>,
        (number, groups): (i32, GroupParts<'_>),
        (from, to): (PartRef, PartRef),
        prepare: &mut dyn FnMut(&Part) -> Result<bool>,
        change: &dyn Fn(&mut PartDetail),
    ) -> Result<bool> {
        let _ending = self.begin_end();
        let state = self.state();
        let part = state.parts.get(&(from.table, number)).copied();
        let is_kept = self.tables().keeps(from.table, number);
        let Some(mut part) = part.filter(|part| part.at == from && is_kept) else {
            return Ok(false);
        };
        if !prepare(&part)? {
            return Ok(false);
        }
        around("wide_move", "sync", || {
            Ok::<_, WideError>(self.log.backend().sync_rows(SHARD)?)
        })?;
        let before = part;
        part.at = to;
        change(&mut part.detail);
        if !self.is_prepared(&before, &part.detail) {
            return Ok(false);
        }
        let mut old = self.lost_parts(&state, &before, part.detail.tier);
        old.push(before);
        // The removed parts may be the only ones that recorded the newest version.
        self.versions.record(&mut part.detail);
        let mut new = vec![part];
        match groups {
            GroupParts::Keep => {}
            GroupParts::Remove => old.extend(self.parts_of_groups(from.table, number)?),
            GroupParts::Add(added) => new.extend_from_slice(added),
        }
        let changes = old.iter().map(removal_of).chain(new.iter().map(put_of)).collect();
        drop(state);
        let edit = |current: &Arc<Manifest>| Ok::<_, LogError>(self.edit_with_ids(current, changes));
        around("wide_move", "edit", || {
            self.log.edit(edit, |_| self.replace_parts(&old, &new))
        })?;
        Ok(true)
    }

    /// Returns the parts of the column groups of a table that have this number.
    fn parts_of_groups(&self, table: TableId, number: i32) -> Result<Vec<Part>> {
        let (rules, state) = (self.rules(table)?, self.state());
        let parts = rules.groups.ids().filter_map(|id| state.parts.get(&(id, number)));
        Ok(parts.copied().collect())
    }

    /// Changes the record of a stored part in the manifest, while no flush runs. Returns false if the part does not
    /// exist, or if `change` returns false.
    pub(crate) fn change_detail(
        &self,
        table: TableId,
        number: i32,
        change: &dyn Fn(&mut PartDetail) -> bool,
    ) -> Result<bool> {
        let _ending = self.begin_end();
        let part = self.state().parts.get(&(table, number)).copied();
        let Some(mut part) = part.filter(|_| self.tables().keeps(table, number)) else {
            return Ok(false);
        };
        let before = part.detail;
        if !change(&mut part.detail) {
            return Ok(false);
        }
        if part.detail == before {
            return Ok(true);
        }
        let changes = vec![put_of(&part)];
        let edit = |current: &Arc<Manifest>| Ok::<_, LogError>(self.edit_with_ids(current, changes));
        around("wide_move", "detail", || {
            self.log.edit(edit, |_| {
                self.change_state(|state| {
                    state.parts.insert(part.key(), part);
                    state.closings += 1;
                });
            })
        })?;
        Ok(true)
    }

    /// Closes a part for writes, so that it can be archived. Returns false if the part does not exist or is already in
    /// the archive.
    pub(crate) fn close_part(&self, table: TableId, number: i32) -> Result<bool> {
        self.change_detail(table, number, &|detail| {
            let is_stored = detail.tier != Tier::Archive;
            if is_stored {
                detail.set_closed(true);
            }
            is_stored
        })
    }

    /// Prevents the archiving of a stored part until a time, and opens it for writes. Returns false if the part does
    /// not exist or is in the archive.
    pub(crate) fn hold_part(&self, table: TableId, number: i32, until: i64) -> Result<bool> {
        self.change_detail(table, number, &|detail| {
            let is_stored = detail.tier != Tier::Archive;
            if is_stored {
                detail.set_held(until);
            }
            is_stored
        })
    }

    /// Opens parts of a table for writes again that were closed for an archiving but were not archived.
    ///
    /// # Errors
    ///
    /// The errors of the log.
    pub fn open_closed_parts(&self, table: TableId) -> Result<()> {
        let state = self.state();
        let closed = state
            .parts_of(table, ALL_PARTS)
            .filter(|part| part.is_closed() && !part.is_archived());
        for number in closed.map(Part::number) {
            self.change_detail(table, number, &|detail| {
                let is_stored = detail.tier != Tier::Archive;
                if is_stored {
                    detail.set_closed(false);
                }
                is_stored
            })?;
        }
        Ok(())
    }

    /// Makes new parts visible to readers in place of old ones. The old parts are kept until no reader uses an earlier
    /// state. Writes that were already decided are decided again, because the new parts may have other indexes.
    pub(crate) fn replace_parts(&self, old: &[Part], new: &[Part]) {
        let replaced: Vec<PartRef> = old.iter().map(|part| part.at).collect();
        // The old parts are not the parts of an unpublished flush any more.
        self.new_parts.lock().retain(|_, at| !replaced.contains(at));
        self.change_state(|state| {
            for part in old {
                state.parts.remove(&part.key());
            }
            state.parts.extend(new.iter().map(|part| (part.key(), *part)));
            state.count_publication();
            state.closings += 1;
            let readers = std::mem::take(&mut state.readers);
            self.moves.replaced.lock().push_back((replaced, readers));
        });
    }

    /// Frees the replaced parts that no reader uses any more.
    pub(crate) fn free_replaced(&self) -> Result<()> {
        loop {
            let mut replaced = self.moves.replaced.lock();
            let is_free = replaced
                .front()
                .is_some_and(|(_, readers)| Arc::strong_count(readers) == 1);
            let Some((parts, _)) = replaced.front().filter(|_| is_free) else {
                return Ok(());
            };
            let Some(part) = parts.last().copied() else {
                replaced.pop_front();
                continue;
            };
            drop(replaced);
            self.archived.forget(part.part);
            self.singles.forget(part.part);
            self.log.backend().reclaim_part(part)?;
            if let Some((parts, _)) = self.moves.replaced.lock().front_mut() {
                parts.pop();
            }
        }
    }
}
