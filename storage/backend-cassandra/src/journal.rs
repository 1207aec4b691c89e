//! Journal of a shard: entries of each epoch, in slots that are freed as a whole.
//!
//! An append writes its entries with plain requests, in batches that are in flight together. So after a failed append,
//! some of its entries may be stored, and others can arrive later, even after another process has taken the shard. When
//! the new owner closes the epoch, it therefore stores which entries it has found. All other entries are ignored from
//! then on.
//!
//! A slot is a partition; its number is the sequence of its first entry. `journal_slot` lists the slots. A slot is
//! listed before an append into it is acknowledged. Slots that are forgotten while a history is kept stay in the list
//! with a mark.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use scylla::statement::prepared::PreparedStatement;
use tideline_backend::limits::{check_entries, check_older};
use tideline_backend::{
    BackendError, Epoch, ErrorKind, History, HistoryPage, HistoryUnit, JournalEntry, JournalEpoch, Result,
    Shard,
};
use tideline_model::{Clock, SequenceNumber, SystemClock, Timestamp};

use crate::cluster::{Cluster, RequestKind, is_applied, one_partition};
use crate::error::unexpected;
use crate::manifest::Manifests;
use crate::ownership::Leases;

/// Bytes after which a new slot begins.
const SLOT_BYTES: i64 = 32 << 20;
/// Maximum bytes of the entries of a batch. A batch has at least one entry.
const BATCH_BYTES: usize = 256 << 10;
/// Target size of the response to a request for entries, in bytes.
const PAGE_BYTES: usize = 2 << 20;
/// Maximum number of entries in the response to the first request of a read.
const ENTRIES_AT_FIRST: i32 = 8;
/// Maximum number of entries in the response to a request.
const ENTRIES_MAX: i32 = 2_000;
/// Number of responses that a replay has in memory, besides the one that it applies.
const PAGES_AHEAD: usize = 2;
/// Kind of the rows of a shard that hold ends of epochs. Manifest rows have other kinds.
const CLOSED: i8 = 2;

/// Timestamps of the rows of `journal_slot` and `journal`.
const LISTED: i64 = 1;
const FORGOTTEN: i64 = 2;
const FREED: i64 = 3;

/// Statements of journals.
#[derive(Debug)]
struct Statements {
    put: PreparedStatement,
    entries: PreparedStatement,
    sequences: PreparedStatement,
    last: PreparedStatement,
    free: PreparedStatement,
    list: PreparedStatement,
    forget: PreparedStatement,
    unlist: PreparedStatement,
    slots: PreparedStatement,
    settings: PreparedStatement,
    set_history: PreparedStatement,
    set_epoch_min: PreparedStatement,
}

/// Slot of the journal.
#[derive(Debug, Clone, Copy, Default)]
struct JournalSlot {
    /// Sequence of the last entry. `None` if this process has not seen it.
    last: Option<i64>,
    bytes: i64,
    /// Time of the last append, in microseconds.
    written: i64,
    is_forgotten: bool,
    /// True if the row of the slot is stored.
    is_listed: bool,
}

/// Epoch and number of a slot.
type SlotKey = (i64, i64);

/// End of a closed epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Closed {
    /// First sequence after the epoch.
    end: i64,
    /// Sequence from which `runs` is complete. Earlier entries were flushed by their owner.
    from: i64,
    /// Entries of the epoch from `from` on: first sequences and counts of runs without a gap.
    runs: Vec<(i64, i64)>,
}

/// State of a journal without its entries: the stored state, and the state of the owner in memory.
#[derive(Debug, Clone, Default)]
struct State {
    slots: BTreeMap<SlotKey, JournalSlot>,
    closed: BTreeMap<i64, Closed>,
    history_from: Option<i64>,
    /// Epochs below this epoch have no entries for a replay.
    epoch_min: i64,
    /// Highest acknowledged sequence of the owner's epoch.
    acknowledged: Option<i64>,
    /// Owner's epoch; 0 for a state that was read without ownership.
    epoch: i64,
    /// True if the next entry begins a new slot.
    is_cut: bool,
    /// Entries that the last replay of each open epoch has passed to its caller: the sequence from which the replay was
    /// complete, and the runs.
    replayed: BTreeMap<i64, (i64, Vec<(i64, i64)>)>,
}

/// Journals of all shards.
#[derive(Debug)]
pub(crate) struct Journals {
    statements: Statements,
    /// States of the owned shards. Reads share them; a change copies a state only while a read holds it.
    owned: Mutex<BTreeMap<Shard, Arc<State>>>,
}

/// Entries of one append, by slot.
struct Append<'a> {
    slots: Vec<(i64, Vec<&'a JournalEntry>)>,
    unlisted: Vec<i64>,
}

impl Journals {
    pub(crate) async fn prepare(cluster: &Cluster) -> Result<Self> {
        let slot = "WHERE shard = ? AND epoch = ? AND slot = ?";
        let mut slots = cluster
            .prepare_read(
                "SELECT epoch, slot, last, bytes, written, is_forgotten FROM journal_slot WHERE shard = ?",
            )
            .await?;
        slots.set_page_size(5_000);
        let mut sequences = cluster
            .prepare_read(&format!("SELECT sequence FROM journal {slot} AND sequence < ?"))
            .await?;
        sequences.set_page_size(5_000);
        let statements = Statements {
            put: cluster
                .prepare("INSERT INTO journal (shard, epoch, slot, sequence, value) VALUES (?, ?, ?, ?, ?)")
                .await?,
            entries: cluster
                .prepare_read(&format!(
                    "SELECT sequence, value FROM journal {slot} AND sequence >= ? LIMIT ?"
                ))
                .await?,
            sequences,
            last: cluster
                .prepare_read(&format!(
                    "SELECT sequence FROM journal {slot} ORDER BY sequence DESC LIMIT 1"
                ))
                .await?,
            free: cluster
                .prepare(&format!("DELETE FROM journal USING TIMESTAMP ? {slot}"))
                .await?,
            list: cluster
                .prepare("INSERT INTO journal_slot (shard, epoch, slot) VALUES (?, ?, ?) USING TIMESTAMP ?")
                .await?,
            forget: cluster
                .prepare(&format!(
                    "UPDATE journal_slot USING TIMESTAMP ? SET last = ?, bytes = ?, written = ?, \
                     is_forgotten = true {slot}"
                ))
                .await?,
            unlist: cluster
                .prepare(&format!("DELETE FROM journal_slot USING TIMESTAMP ? {slot}"))
                .await?,
            slots,
            settings: cluster
                .prepare_serial("SELECT epoch_min, history_from FROM shard WHERE shard = ? LIMIT 1")
                .await?,
            set_history: cluster
                .prepare("UPDATE shard SET history_from = ? WHERE shard = ? IF epoch = ?")
                .await?,
            set_epoch_min: cluster
                .prepare("UPDATE shard SET epoch_min = ? WHERE shard = ? IF epoch = ?")
                .await?,
        };
        Ok(Self {
            statements,
            owned: Mutex::new(BTreeMap::new()),
        })
    }

    /// Reads the state of a shard that this process has taken.
    pub(crate) fn begin(
        &self,
        cluster: &Cluster,
        manifests: &Manifests,
        shard: Shard,
        epoch: Epoch,
    ) -> Result<()> {
        let mut state = self.load(cluster, manifests, shard)?;
        state.epoch = epoch.0 as i64;
        // An older epoch without a slot has no acknowledged entry. Its owner may still store entries with sequences
        // that this epoch uses too, so the epoch ends before them.
        let is_empty =
            |epoch: &i64| !state.closed.contains_key(epoch) && state.live_of(*epoch).next().is_none();
        let empty: Vec<i64> = (state.epoch_min.max(1)..state.epoch).filter(is_empty).collect();
        for older in empty {
            self.store_end(cluster, manifests, (shard, epoch), older, &Closed::EMPTY)?;
            state.closed.insert(older, Closed::EMPTY);
        }
        self.owned.lock().insert(shard, Arc::new(state));
        Ok(())
    }

    /// Stores the end of an older epoch, under the condition that `owner` is the epoch of the owner.
    fn store_end(
        &self,
        cluster: &Cluster,
        manifests: &Manifests,
        (shard, owner): (Shard, Epoch),
        epoch: i64,
        closed: &Closed,
    ) -> Result<()> {
        let detail = closed.encode();
        let row = (CLOSED, &epoch.to_be_bytes()[..], &detail[..]);
        match cluster.block_on(manifests.put_other(cluster, shard, owner, row))? {
            true => Ok(()),
            false => Err(not_owned(owner)),
        }
    }

    /// Returns true if this process has begun the epoch, and has sent no entries in it.
    pub(crate) fn is_unused(&self, shard: Shard, epoch: Epoch) -> bool {
        let owned = self.owned.lock();
        let state = owned.get(&shard).filter(|state| state.epoch == epoch.0 as i64);
        state.is_some_and(|state| state.slots.keys().all(|(of, _)| *of != state.epoch))
    }

    /// Forgets the state of all shards.
    pub(crate) fn end(&self) {
        self.owned.lock().clear();
    }

    /// Returns the bytes of the entries in the owned journals. Entries that earlier owners wrote count only if a
    /// history keeps them.
    pub(crate) fn bytes(&self) -> u64 {
        let owned = self.owned.lock();
        let slots = owned.values().flat_map(|state| state.slots.values());
        slots.map(|slot| slot.bytes as u64).sum()
    }

    // --- writes ----------------------------------------------------------------------------------------

    pub(crate) async fn append(
        &self,
        cluster: &Cluster,
        shard: Shard,
        epoch: Epoch,
        entries: &[JournalEntry],
    ) -> Result<()> {
        let Some(append) = self.plan(shard, epoch, entries)? else {
            return Ok(());
        };
        let (number, held) = (i32::from(shard.0), epoch.0 as i64);
        let mut requests: Vec<BoxFuture<'_, Result<()>>> = Vec::new();
        for slot in &append.unlisted {
            let values = (number, held, *slot, LISTED);
            let listed = cluster.execute(RequestKind::Write, &self.statements.list, values);
            requests.push(listed.map(|done| done.map(|_| ())).boxed());
        }
        for (slot, entries) in &append.slots {
            for batch in in_batches(entries) {
                requests.push(self.put(cluster, (number, held, *slot), batch).boxed());
            }
        }
        let count = requests.len();
        let sent = stream::iter(requests).buffer_unordered(cluster.options.requests_in_flight);
        let sent: Result<()> = sent.try_collect().await;
        sent.map_err(|error| failure_of_append(error, count))?;
        self.acknowledge(shard, epoch, &append, entries);
        Ok(())
    }

    /// Assigns entries to slots. Returns `None` without entries.
    fn plan<'a>(
        &self,
        shard: Shard,
        epoch: Epoch,
        entries: &'a [JournalEntry],
    ) -> Result<Option<Append<'a>>> {
        let mut owned = self.owned.lock();
        let state = owned.get_mut(&shard).map(Arc::make_mut);
        let state = state.ok_or_else(|| not_owned(epoch))?;
        if state.epoch != epoch.0 as i64 {
            return Err(not_owned(epoch));
        }
        check_entries(
            entries,
            state.acknowledged.map(|last| SequenceNumber(last as u64)),
        )?;
        let now = SystemClock.now().nanos() / 1_000;
        let mut append = Append {
            slots: Vec::new(),
            unlisted: Vec::new(),
        };
        for entry in entries {
            let sequence = entry.sequence.0 as i64;
            let number = state.slot_for(sequence);
            let slot = state.slots.entry((state.epoch, number)).or_default();
            slot.bytes += entry.value.len() as i64;
            slot.last = slot.last.max(Some(sequence));
            slot.written = now;
            match append.slots.last_mut() {
                Some((last, entries)) if *last == number => entries.push(entry),
                _ => {
                    if !slot.is_listed {
                        append.unlisted.push(number);
                    }
                    append.slots.push((number, vec![entry]));
                }
            }
        }
        Ok((!entries.is_empty()).then_some(append))
    }

    fn acknowledge(&self, shard: Shard, epoch: Epoch, append: &Append<'_>, entries: &[JournalEntry]) {
        let mut owned = self.owned.lock();
        let state = owned.get_mut(&shard).map(Arc::make_mut);
        let Some(state) = state.filter(|state| state.epoch == epoch.0 as i64) else {
            return;
        };
        for slot in &append.unlisted {
            if let Some(slot) = state.slots.get_mut(&(state.epoch, *slot)) {
                slot.is_listed = true;
            }
        }
        state.acknowledged = entries.last().map(|entry| entry.sequence.0 as i64);
    }

    async fn put(
        &self,
        cluster: &Cluster,
        (shard, epoch, slot): (i32, i64, i64),
        entries: Vec<&JournalEntry>,
    ) -> Result<()> {
        let mut batch = one_partition(Some(LISTED));
        let values = entries.iter().map(|entry| {
            batch.append_statement(self.statements.put.clone());
            (shard, epoch, slot, entry.sequence.0 as i64, entry.value.as_ref())
        });
        let values: Vec<(i32, i64, i64, i64, &[u8])> = values.collect();
        cluster
            .batch(RequestKind::Write, &batch, values)
            .await
            .map(|_| ())
    }

    pub(crate) fn cut(&self, shard: Shard, epoch: Epoch) -> Result<()> {
        let mut owned = self.owned.lock();
        match owned.get_mut(&shard).map(Arc::make_mut) {
            Some(state) if state.epoch == epoch.0 as i64 => {
                state.is_cut = true;
                Ok(())
            }
            _ => Err(not_owned(epoch)),
        }
    }

    // --- reads -----------------------------------------------------------------------------------------

    pub(crate) fn epochs(
        &self,
        cluster: &Cluster,
        manifests: &Manifests,
        shard: Shard,
    ) -> Result<Vec<JournalEpoch>> {
        let state = self.state(cluster, manifests, shard)?;
        let mut epochs: Vec<i64> = state.live().map(|((epoch, _), _)| *epoch).collect();
        epochs.dedup();
        let epochs = epochs.into_iter().map(|epoch| JournalEpoch {
            epoch: Epoch(epoch as u64),
            end: state
                .closed
                .get(&epoch)
                .map(|closed| SequenceNumber(closed.end as u64)),
        });
        Ok(epochs.collect())
    }

    pub(crate) fn replay(
        &self,
        cluster: &Cluster,
        manifests: &Manifests,
        (shard, epoch, from): (Shard, Epoch, SequenceNumber),
        visit: &mut dyn FnMut(SequenceNumber, Bytes) -> Result<()>,
    ) -> Result<()> {
        let state = self.state(cluster, manifests, shard)?;
        let (epoch, from) = (epoch.0 as i64, from.0 as i64);
        let closed = state.closed.get(&epoch);
        let mut runs = Vec::new();
        let slots: Vec<i64> = state.live_of(epoch).collect();
        let is_over = |at: usize| slots.get(at + 1).is_some_and(|next| *next <= from);
        let read = slots.iter().enumerate().filter(|(at, _)| !is_over(*at));
        let read: Vec<i64> = read.map(|(_, slot)| *slot).collect();
        // A thread reads the next entries while the caller applies the last ones. The thread has one response, and the
        // channel the others.
        thread::scope(|scope| {
            let (sender, pages) = sync_channel::<Vec<(i64, Bytes)>>(PAGES_AHEAD - 1);
            let reading = scope.spawn(move || {
                for slot in read {
                    let send = &mut |page: Vec<(i64, Bytes)>| -> Result<ControlFlow<()>> {
                        // The receiver is dropped after an error of `visit`.
                        Ok(match sender.send(page) {
                            Ok(()) => ControlFlow::Continue(()),
                            Err(_) => ControlFlow::Break(()),
                        })
                    };
                    let place = (shard, epoch, slot);
                    if self.each_page(cluster, place, from, send)?.is_break() {
                        break;
                    }
                }
                Ok::<_, BackendError>(())
            });
            let mut entries = pages.into_iter().flatten();
            let visited: Result<()> = entries.try_for_each(|(sequence, value)| {
                if closed.is_none_or(|closed| closed.has(sequence)) {
                    add_to_runs(&mut runs, sequence);
                    visit(SequenceNumber(sequence as u64), value)?;
                }
                Ok(())
            });
            drop(entries);
            let read = reading.join().unwrap_or_else(|panic| resume_unwind(panic));
            visited.and(read)
        })?;
        if let Some(own) = self
            .owned
            .lock()
            .get_mut(&shard)
            .map(Arc::make_mut)
            .filter(|_| closed.is_none())
        {
            own.replayed
                .insert(epoch, (state.complete_from(epoch, from), runs));
        }
        Ok(())
    }

    /// Passes the entries of a slot to `visit`, from a sequence on, until `visit` ends the read.
    fn each_entry(
        &self,
        cluster: &Cluster,
        place: (Shard, i64, i64),
        from: i64,
        visit: &mut dyn FnMut(i64, Bytes) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let each = &mut |page: Vec<(i64, Bytes)>| -> Result<ControlFlow<()>> {
            for (sequence, value) in page {
                if visit(sequence, value)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        };
        self.each_page(cluster, place, from, each).map(|_| ())
    }

    /// Passes the entries of each response to a request for entries of a slot to `visit`, from a sequence on, until
    /// `visit` ends the read. Returns `Break` if `visit` has ended it.
    fn each_page(
        &self,
        cluster: &Cluster,
        (shard, epoch, slot): (Shard, i64, i64),
        from: i64,
        visit: &mut dyn FnMut(Vec<(i64, Bytes)>) -> Result<ControlFlow<()>>,
    ) -> Result<ControlFlow<()>> {
        let (mut next, mut limit) = (from.max(slot), ENTRIES_AT_FIRST);
        loop {
            let values = (i32::from(shard.0), epoch, slot, next, limit);
            let rows = cluster.block_on(cluster.rows(RequestKind::Read, &self.statements.entries, values))?;
            let (mut count, mut bytes) = (0, 0);
            let mut page = Vec::with_capacity(rows.rows_num());
            for row in rows
                .rows::<(i64, Bytes)>()
                .map_err(|error| unexpected("the read of entries", error))?
            {
                let (sequence, value) = row.map_err(|error| unexpected("the read of entries", error))?;
                (count, bytes, next) = (count + 1, bytes + value.len(), sequence + 1);
                page.push((sequence, value));
            }
            if visit(page)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if count < limit {
                return Ok(ControlFlow::Continue(()));
            }
            let average = (bytes / count.unsigned_abs() as usize).max(1);
            limit = i32::try_from(PAGE_BYTES / average)
                .unwrap_or(ENTRIES_MAX)
                .clamp(1, ENTRIES_MAX);
        }
    }

    // --- ends ------------------------------------------------------------------------------------------

    pub(crate) fn close(
        &self,
        cluster: &Cluster,
        manifests: &Manifests,
        leases: &Leases,
        (shard, epoch, end): (Shard, Epoch, SequenceNumber),
    ) -> Result<()> {
        let owner = match leases.epoch(shard) {
            Some(owner) => owner,
            None => cluster.block_on(manifests.epoch(cluster, shard))?,
        };
        check_older(epoch, owner)?;
        let (number, end) = (epoch.0 as i64, end.0 as i64);
        let state = self.state(cluster, manifests, shard)?;
        if let Some(closed) = state
            .closed
            .get(&number)
            .filter(|closed| **closed != Closed::EMPTY)
        {
            return match closed.end == end {
                true => Ok(()),
                false => Err(BackendError::Refused {
                    reason: format!("epoch {number} was closed at {}, not at {end}", closed.end),
                }),
            };
        }
        let (read_from, found) = state
            .replayed
            .get(&number)
            .cloned()
            .unwrap_or((i64::MAX, Vec::new()));
        // Entries before the start of the last replay are looked up, so that a hole among them cannot be filled later.
        let from = state.complete_from(number, 0).min(read_from);
        let mut runs = self.sequences(cluster, &state, (shard, number), read_from)?;
        runs.extend(found);
        runs.retain_mut(|(first, count)| {
            *count = (*count).min(end - *first);
            *count > 0
        });
        let closed = Closed { end, from, runs };
        self.store_end(cluster, manifests, (shard, owner), number, &closed)?;
        if let Some(own) = self.owned.lock().get_mut(&shard).map(Arc::make_mut) {
            own.closed.insert(number, closed);
            own.replayed.remove(&number);
        }
        Ok(())
    }

    /// Returns the sequences below `to` of all live entries of an epoch, as runs.
    fn sequences(
        &self,
        cluster: &Cluster,
        state: &State,
        (shard, epoch): (Shard, i64),
        to: i64,
    ) -> Result<Vec<(i64, i64)>> {
        let mut runs = Vec::new();
        for slot in state.live_of(epoch).take_while(|slot| *slot < to) {
            let values = (i32::from(shard.0), epoch, slot, to);
            let read = cluster.each_row(
                RequestKind::Read,
                &self.statements.sequences,
                values,
                |(sequence,): (i64,)| {
                    add_to_runs(&mut runs, sequence);
                    Ok(())
                },
            );
            cluster.block_on(read)?;
        }
        Ok(runs)
    }

    pub(crate) fn forget(
        &self,
        cluster: &Cluster,
        manifests: &Manifests,
        (shard, epoch, to): (Shard, Epoch, SequenceNumber),
    ) -> Result<()> {
        let (epoch, to) = (epoch.0 as i64, to.0 as i64);
        let state = self.state(cluster, manifests, shard)?;
        let live: Vec<(SlotKey, JournalSlot)> = state
            .live()
            .filter(|(place, _)| place.0 <= epoch)
            .map(|(place, slot)| (*place, *slot))
            .collect();
        for (at, (place, slot)) in live.iter().enumerate() {
            let next = live.get(at + 1).filter(|(next, _)| next.0 == place.0);
            let is_over = match next {
                Some((next, _)) => next.1 <= to,
                None if place.0 == state.epoch => false,
                None => match state.closed.get(&place.0) {
                    Some(closed) if closed.end <= to => true,
                    _ => self.last(cluster, shard, *place)?.is_none_or(|last| last < to),
                },
            };
            if is_over {
                self.forget_slot(cluster, shard, *place, *slot, state.history_from)?;
            }
        }
        self.raise_epoch_min(cluster, manifests, shard)
    }

    /// Frees a slot, or marks it as forgotten if a history keeps it.
    fn forget_slot(
        &self,
        cluster: &Cluster,
        shard: Shard,
        place: SlotKey,
        mut slot: JournalSlot,
        history_from: Option<i64>,
    ) -> Result<()> {
        let Some(history_from) = history_from else {
            return self.free_slot(cluster, shard, place);
        };
        if slot.last.is_none() {
            self.each_entry(cluster, (shard, place.0, place.1), 0, &mut |sequence, value| {
                slot.last = Some(sequence);
                slot.bytes += value.len() as i64;
                Ok(ControlFlow::Continue(()))
            })?;
            slot.written = SystemClock.now().nanos() / 1_000;
        }
        let Some(last) = slot.last.filter(|last| *last >= history_from) else {
            return self.free_slot(cluster, shard, place);
        };
        let number = i32::from(shard.0);
        let values = (
            FORGOTTEN,
            last,
            slot.bytes,
            slot.written,
            number,
            place.0,
            place.1,
        );
        cluster.block_on(cluster.execute(RequestKind::Write, &self.statements.forget, values))?;
        slot.is_forgotten = true;
        if let Some(own) = self.owned.lock().get_mut(&shard).map(Arc::make_mut) {
            own.slots.insert(place, slot);
        }
        Ok(())
    }

    fn free_slot(&self, cluster: &Cluster, shard: Shard, place: SlotKey) -> Result<()> {
        let values = (FREED, i32::from(shard.0), place.0, place.1);
        cluster.block_on(cluster.execute(RequestKind::Write, &self.statements.free, values))?;
        cluster.block_on(cluster.execute(RequestKind::Write, &self.statements.unlist, values))?;
        if let Some(own) = self.owned.lock().get_mut(&shard).map(Arc::make_mut) {
            own.slots.remove(&place);
        }
        Ok(())
    }

    /// Records that older epochs have no entries left. Slots of these epochs that are listed later are then ignored.
    fn raise_epoch_min(&self, cluster: &Cluster, manifests: &Manifests, shard: Shard) -> Result<()> {
        let state = self.state(cluster, manifests, shard)?;
        if state.epoch == 0 {
            return Ok(());
        }
        let lowest = state.live().map(|(place, _)| place.0).next();
        let lowest = lowest.unwrap_or(state.epoch).min(state.epoch);
        if lowest <= state.epoch_min {
            return Ok(());
        }
        let values = (lowest, i32::from(shard.0), state.epoch);
        let answer = cluster.block_on(cluster.execute(
            RequestKind::Conditional,
            &self.statements.set_epoch_min,
            values,
        ))?;
        if !is_applied(answer)? {
            return Err(not_owned(Epoch(state.epoch as u64)));
        }
        if let Some(own) = self.owned.lock().get_mut(&shard).map(Arc::make_mut) {
            own.epoch_min = lowest;
        }
        Ok(())
    }

    // --- history ---------------------------------------------------------------------------------------

    pub(crate) fn keep_history(
        &self,
        cluster: &Cluster,
        manifests: &Manifests,
        (shard, epoch, from): (Shard, Epoch, Option<SequenceNumber>),
    ) -> Result<()> {
        let state = self.state(cluster, manifests, shard)?;
        if state.epoch != epoch.0 as i64 {
            return Err(not_owned(epoch));
        }
        let from = from.map(|from| state.history_from.unwrap_or(0).max(from.0 as i64));
        let values = (from, i32::from(shard.0), state.epoch);
        let answer = cluster.block_on(cluster.execute(
            RequestKind::Conditional,
            &self.statements.set_history,
            values,
        ))?;
        if !is_applied(answer)? {
            return Err(not_owned(epoch));
        }
        if let Some(own) = self.owned.lock().get_mut(&shard).map(Arc::make_mut) {
            own.history_from = from;
        }
        let freed = state.slots.iter().filter(|(_, slot)| {
            let last = slot.last.unwrap_or(i64::MAX);
            slot.is_forgotten && from.is_none_or(|from| last < from)
        });
        for (place, _) in freed {
            self.free_slot(cluster, shard, *place)?;
        }
        Ok(())
    }

    pub(crate) fn history(&self, cluster: &Cluster, manifests: &Manifests, shard: Shard) -> Result<History> {
        let state = self.state(cluster, manifests, shard)?;
        let Some(from) = state.history_from else {
            return Ok(History::default());
        };
        let kept = state.slots.values().filter(|slot| slot.is_forgotten);
        let units = kept.map(|slot| HistoryUnit {
            last: SequenceNumber(slot.last.unwrap_or(0) as u64),
            bytes: slot.bytes as u64,
            written: Timestamp::from_nanos_clamped(slot.written.saturating_mul(1_000)),
        });
        Ok(History {
            from: Some(SequenceNumber(from as u64)),
            units: units.collect(),
        })
    }

    pub(crate) fn read_history(
        &self,
        cluster: &Cluster,
        manifests: &Manifests,
        (shard, from, bytes_max): (Shard, SequenceNumber, usize),
    ) -> Result<HistoryPage> {
        let state = self.state(cluster, manifests, shard)?;
        let from = (from.0 as i64).max(state.history_from.unwrap_or(0));
        let mut page = HistoryPage {
            from: SequenceNumber(from as u64),
            is_damaged: false,
            entries: Vec::new(),
            next: SequenceNumber(from as u64),
        };
        let places: Vec<SlotKey> = state.slots.keys().copied().collect();
        let mut bytes = 0;
        for (at, (epoch, slot)) in places.iter().enumerate() {
            let is_before = places.get(at + 1).is_some_and(|next| next.1 <= from);
            if is_before || bytes >= bytes_max {
                continue;
            }
            self.each_entry(cluster, (shard, *epoch, *slot), from, &mut |sequence, value| {
                if bytes >= bytes_max {
                    return Ok(ControlFlow::Break(()));
                }
                if state.is_durable(*epoch, sequence) {
                    bytes += value.len().max(1);
                    let sequence = SequenceNumber(sequence as u64);
                    page.next = SequenceNumber(sequence.0 + 1);
                    page.entries.push(JournalEntry { sequence, value });
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(page)
    }

    // --- state -----------------------------------------------------------------------------------------

    /// Returns the state of a shard: the state in memory if this process owns the shard, otherwise the stored state.
    fn state(&self, cluster: &Cluster, manifests: &Manifests, shard: Shard) -> Result<Arc<State>> {
        if let Some(own) = self.owned.lock().get(&shard) {
            return Ok(Arc::clone(own));
        }
        self.load(cluster, manifests, shard).map(Arc::new)
    }

    fn load(&self, cluster: &Cluster, manifests: &Manifests, shard: Shard) -> Result<State> {
        type Stored = (i64, i64, Option<i64>, Option<i64>, Option<i64>, Option<bool>);
        let number = i32::from(shard.0);
        let settings =
            cluster.block_on(cluster.rows(RequestKind::Conditional, &self.statements.settings, (number,)))?;
        let settings = settings.maybe_first_row::<(Option<i64>, Option<i64>)>();
        let settings = settings.map_err(|error| unexpected("the read of a shard", error))?;
        let (epoch_min, history_from) = settings.unwrap_or((None, None));
        let mut state = State {
            epoch_min: epoch_min.unwrap_or(0),
            history_from,
            ..State::default()
        };
        for (name, detail) in cluster.block_on(manifests.rows_of_kind(cluster, shard, CLOSED))? {
            let read = || {
                Some((
                    i64::from_be_bytes(name[..].try_into().ok()?),
                    Closed::decode(&detail)?,
                ))
            };
            let (epoch, closed) =
                read().ok_or_else(|| BackendError::corrupt("the end of an epoch has no known form"))?;
            state.closed.insert(epoch, closed);
        }
        let epoch_min = state.epoch_min;
        let slots = &mut state.slots;
        let read = cluster.each_row(
            RequestKind::Read,
            &self.statements.slots,
            (number,),
            |row: Stored| {
                let (epoch, slot, last, bytes, written, is_forgotten) = row;
                let is_forgotten = is_forgotten.unwrap_or(false);
                if is_forgotten || epoch >= epoch_min {
                    let stored = JournalSlot {
                        last,
                        bytes: bytes.unwrap_or(0),
                        written: written.unwrap_or(0),
                        is_forgotten,
                        is_listed: true,
                    };
                    slots.insert((epoch, slot), stored);
                }
                Ok(())
            },
        );
        cluster.block_on(read)?;
        Ok(state)
    }

    fn last(&self, cluster: &Cluster, shard: Shard, place: SlotKey) -> Result<Option<i64>> {
        let values = (i32::from(shard.0), place.0, place.1);
        let rows = cluster.block_on(cluster.rows(RequestKind::Read, &self.statements.last, values))?;
        let row = rows.maybe_first_row::<(i64,)>();
        let row = row.map_err(|error| unexpected("the read of an entry", error))?;
        Ok(row.map(|(sequence,)| sequence))
    }
}

impl State {
    /// Returns the slots that a replay reads, in order.
    fn live(&self) -> impl Iterator<Item = (&SlotKey, &JournalSlot)> {
        self.slots.iter().filter(|(_, slot)| !slot.is_forgotten)
    }

    /// Returns the numbers of the slots of an epoch that a replay reads, in order.
    fn live_of(&self, epoch: i64) -> impl Iterator<Item = i64> {
        self.live()
            .filter(move |(place, _)| place.0 == epoch)
            .map(|(place, _)| place.1)
    }

    /// Returns the sequence from which on a read of an epoch is complete, if the read began at `from`. Entries in
    /// forgotten slots are not read.
    fn complete_from(&self, epoch: i64, from: i64) -> i64 {
        self.live_of(epoch).next().map_or(from, |first| from.max(first))
    }

    /// Returns the slot for an entry of the owner's epoch. An entry that is sent again goes to the slot to which it was
    /// sent before.
    fn slot_for(&mut self, sequence: i64) -> i64 {
        let own = |first: i64, last: i64| (self.epoch, first)..=(self.epoch, last);
        let before = self.slots.range(own(i64::MIN, sequence)).next_back();
        let is_newest = self.slots.range(own(sequence + 1, i64::MAX)).next().is_none();
        match before {
            Some(((_, first), _)) if !is_newest || *first == sequence => *first,
            Some(((_, first), slot)) if !self.is_cut && slot.bytes < SLOT_BYTES => *first,
            _ => {
                self.is_cut = false;
                sequence
            }
        }
    }

    /// Returns true if a stored entry belongs to the journal and was acknowledged by its owner, or found by the next
    /// owner.
    fn is_durable(&self, epoch: i64, sequence: i64) -> bool {
        if epoch == self.epoch && self.epoch > 0 {
            return self.acknowledged.is_some_and(|last| sequence <= last);
        }
        self.closed.get(&epoch).is_none_or(|closed| closed.has(sequence))
    }
}

impl Closed {
    /// End of an epoch that had no entry when its successor began.
    const EMPTY: Self = Self {
        end: 0,
        from: 0,
        runs: Vec::new(),
    };

    /// Returns true if the epoch has an entry with this sequence.
    fn has(&self, sequence: i64) -> bool {
        if sequence >= self.end {
            return false;
        }
        if sequence < self.from {
            return true;
        }
        let after = self.runs.partition_point(|(first, _)| *first <= sequence);
        after > 0 && {
            let (first, count) = self.runs[after - 1];
            sequence < first + count
        }
    }

    fn encode(&self) -> Vec<u8> {
        let numbers = [self.end, self.from].into_iter();
        let runs = self.runs.iter().flat_map(|(first, count)| [*first, *count]);
        numbers.chain(runs).flat_map(i64::to_be_bytes).collect()
    }

    fn decode(detail: &[u8]) -> Option<Self> {
        let (numbers, rest) = detail.as_chunks::<8>();
        let mut numbers = numbers.iter().map(|number| i64::from_be_bytes(*number));
        let (end, from) = (numbers.next()?, numbers.next()?);
        let numbers: Vec<i64> = numbers.collect();
        let (pairs, odd) = numbers.as_chunks::<2>();
        (rest.is_empty() && odd.is_empty()).then(|| Self {
            end,
            from,
            runs: pairs.iter().map(|[first, count]| (*first, *count)).collect(),
        })
    }
}

/// Divides entries into batches of limited size.
fn in_batches<'a>(entries: &[&'a JournalEntry]) -> Vec<Vec<&'a JournalEntry>> {
    let mut batches: Vec<Vec<&JournalEntry>> = Vec::new();
    let mut bytes = 0;
    for entry in entries {
        bytes += entry.value.len();
        match batches.last_mut() {
            Some(batch) if bytes <= BATCH_BYTES => batch.push(entry),
            _ => {
                bytes = entry.value.len();
                batches.push(vec![entry]);
            }
        }
    }
    batches
}

/// Adds a sequence above all earlier ones.
fn add_to_runs(runs: &mut Vec<(i64, i64)>, sequence: i64) {
    match runs.last_mut() {
        Some((first, count)) if *first + *count == sequence => *count += 1,
        _ => runs.push((sequence, 1)),
    }
}

/// Returns the error of an append of which one request has failed. Its other requests may have stored their entries, or
/// may store them later.
fn failure_of_append(error: BackendError, requests: usize) -> BackendError {
    let may_be_stored = requests > 1 || matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout);
    if may_be_stored && error.kind() != ErrorKind::Unknown {
        return BackendError::Unknown {
            reason: error.to_string(),
        };
    }
    error
}

fn not_owned(epoch: Epoch) -> BackendError {
    BackendError::Refused {
        reason: format!("epoch {} is not the owner's", epoch.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_epoch_has_only_the_entries_that_were_found() {
        let mut runs = Vec::new();
        for sequence in [5, 6, 7, 10, 20, 21] {
            add_to_runs(&mut runs, sequence);
        }
        assert_eq!(runs, [(5, 3), (10, 1), (20, 2)]);
        let closed = Closed {
            end: 21,
            from: 5,
            runs,
        };
        let has: Vec<i64> = (0..30).filter(|sequence| closed.has(*sequence)).collect();
        assert_eq!(has, [0, 1, 2, 3, 4, 5, 6, 7, 10, 20]);
        assert_eq!(Closed::decode(&closed.encode()), Some(closed.clone()));
        assert_eq!(Closed::decode(&closed.encode()[1..]), None);
    }

    #[test]
    fn a_failed_append_of_several_requests_has_an_unknown_outcome() {
        let refused = || BackendError::Misconfigured {
            reason: "no permission".to_owned(),
        };
        let late = || BackendError::Timeout {
            after: std::time::Duration::from_secs(1),
        };
        let kind = |error, requests| failure_of_append(error, requests).kind();
        assert_eq!(kind(refused(), 1), ErrorKind::Misconfigured);
        assert_eq!(kind(refused(), 2), ErrorKind::Unknown);
        assert_eq!(kind(late(), 1), ErrorKind::Unknown);
    }

    #[test]
    fn an_entry_that_is_sent_again_keeps_its_slot() {
        let mut state = State {
            epoch: 3,
            ..State::default()
        };
        let place = |state: &mut State, sequence: i64, bytes: i64| {
            let number = state.slot_for(sequence);
            state.slots.entry((3, number)).or_default().bytes += bytes;
            number
        };
        assert_eq!(place(&mut state, 5, SLOT_BYTES), 5);
        assert_eq!(place(&mut state, 6, 1), 6);
        assert_eq!(place(&mut state, 5, SLOT_BYTES), 5);
        assert_eq!(place(&mut state, 6, 1), 6);
        state.is_cut = true;
        assert_eq!(place(&mut state, 7, 1), 7);
        assert_eq!(place(&mut state, 8, 1), 7);
    }
}
