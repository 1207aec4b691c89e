//! Group commit: one thread that appends what waits to the journal, syncs once for all of it, applies it to
//! the head and answers.
//!
//! 1. Take the first waiting write, then all others that wait already, up to a budget of bytes.
//! 2. Number them, append them in one call, synced if any of them asks for it.
//! 3. Apply them to the head and the latest values, in order; answer each.
//! 4. Sync what no append of this thread has synced, if the oldest such write has waited for [`SYNC_INTERVAL`].
//! 5. Freeze the head when it is full or old.
//!
//! While the thread is busy with one group the next one gathers, so groups grow with the load by themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use tideline_backend::{BackendError, Epoch, ErrorKind, JournalEntry, VALUE_BYTES_MAX};
use tideline_chunk::{DeleteRecord, Delta, DeltaError};
use tideline_model::{Durability, SequenceNumber, SupervisedThread, TableId};

use crate::error::{Result, StoreError};
use crate::fail_points::{When, around, pass};
use crate::head::Head;
use crate::manifest::put_cursor;
use crate::schema::Shape;
use crate::sharding::ShardedDelta;
use crate::shared::{SHARD, Shared};
use crate::store::Committed;
use crate::tables::Table;
use crate::tail::TailEntry;

/// Name of the thread.
const THREAD: &str = "committer";
/// How often the head's age is checked while nothing is written, and the pause after a failed sync.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
/// Time from the first unsynced write to the sync, under load and without. The guide promises that a power cut loses
/// at most a second of buffered writes; the other half of it is for the sync itself.
const SYNC_INTERVAL: Duration = Duration::from_millis(500);
/// Budgets of a head that the active one and those which are still being sealed may take together; then writers wait.
const HEADS_MAX: usize = 2;
/// Part of its budget that the active head may take however large the others are, as one from a long journal is.
const ACTIVE_SHARE: usize = 2;

/// Sequences that a run passes over before its first write: more than the run before can have given to entries that are
/// lost since, as buffered ones in a power cut. A watcher that has seen those has a cursor after them, and would miss what
/// came next in their place.
const START_LEAP: u64 = 1 << 24;
/// The epoch of the first run.
const FIRST_EPOCH: Epoch = Epoch(1);

/// The handle of the committer thread.
#[derive(Debug)]
pub(crate) struct Committer {
    shared: Arc<Shared>,
    sender: Sender<Message>,
    pending_bytes: Arc<AtomicUsize>,
    pending_bytes_max: usize,
    thread: SupervisedThread,
}

enum Message {
    Write(Box<Write>),
    Delete(Box<Deletion>),
    Raise(TableId, SequenceNumber, Sender<Result<SequenceNumber>>),
    /// Freezes the head; answers with the first sequence that is not in it.
    Freeze(Sender<Result<SequenceNumber>>),
    Stop,
}

struct Write {
    table: Arc<Table>,
    delta: Delta,
    shapes: Vec<Arc<Shape>>,
    encoded: Bytes,
    durability: Durability,
    generation: u64,
    reply: Sender<Result<Committed>>,
}

struct Deletion {
    table: Arc<Table>,
    record: DeleteRecord,
    encoded: Bytes,
    reply: Sender<Result<Committed>>,
}

struct Worker {
    shared: Arc<Shared>,
    receiver: Receiver<Message>,
    pending_bytes: Arc<AtomicUsize>,
    next: SequenceNumber,
    /// Whether `next` is above everything that earlier runs may have given.
    has_leapt: bool,
    /// When to sync at the latest; `None` while everything is synced.
    sync_due: Option<Instant>,
}

impl Committer {
    pub(crate) fn start(shared: Arc<Shared>) -> Self {
        // Unbounded in number, bounded in bytes by `pending_bytes_max`.
        let (sender, receiver) = unbounded();
        let pending_bytes = Arc::new(AtomicUsize::new(0));
        let pending_bytes_max = shared.settings.pending_bytes_max;
        let next = shared.tail.end().max(shared.state.read().active.end());
        let has_leapt = shared.epoch == FIRST_EPOCH;
        let worker = Worker {
            shared: Arc::clone(&shared),
            receiver,
            pending_bytes: Arc::clone(&pending_bytes),
            next,
            has_leapt,
            sync_due: None,
        };
        let supervisor = &shared.settings.supervisor;
        let thread = supervisor.spawn(THREAD, move || worker.run());
        let thread = thread.expect("the system has a thread left at start");
        Self {
            shared,
            sender,
            pending_bytes,
            pending_bytes_max,
            thread,
        }
    }

    /// Sends a message and waits for its reply. Fails when the thread has ended, and when any thread of the store has
    /// panicked: then nothing more is committed.
    fn request<T>(&self, message: Message, answer: &Receiver<Result<T>>) -> Result<T> {
        self.shared.check_threads()?;
        let sent = self.sender.send(message);
        sent.map_err(|_| self.shared.ended())?;
        answer.recv().map_err(|_| self.shared.ended())?
    }

    pub(crate) fn commit(
        &self,
        table: Arc<Table>,
        delta: Delta,
        shapes: Vec<Arc<Shape>>,
        durability: Durability,
        generation: u64,
    ) -> Result<Committed> {
        let mut encoded = Vec::new();
        match delta.encode(&mut encoded) {
            Ok(()) => {}
            Err(DeltaError::TooLarge(_)) => return Err(StoreError::DeltaTooLarge(Box::new(delta))),
            Err(error) => return Err(StoreError::BadDelta(error)),
        }
        let bytes = encoded.len();
        if bytes > VALUE_BYTES_MAX {
            // Noticed here, since the writes that it would be appended with would fail too.
            return Err(StoreError::DeltaTooLarge(Box::new(delta)));
        }
        let waiting = self.pending_bytes.fetch_add(bytes, Ordering::Relaxed);
        if waiting > 0 && waiting + bytes > self.pending_bytes_max {
            self.pending_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(StoreError::Overloaded {
                limit: self.pending_bytes_max,
                actual: waiting + bytes,
            });
        }
        let (reply, answer) = bounded(1);
        let write = Write {
            table,
            delta,
            shapes,
            encoded: encoded.into(),
            durability,
            generation,
            reply,
        };
        self.request(Message::Write(Box::new(write)), &answer)
    }

    pub(crate) fn delete(&self, table: Arc<Table>, record: DeleteRecord) -> Result<Committed> {
        let delta = Delta {
            table: table.id(),
            delete: Some(record.clone()),
            ..Delta::default()
        };
        let mut encoded = Vec::new();
        delta.encode(&mut encoded).map_err(StoreError::BadDelta)?;
        let (reply, answer) = bounded(1);
        let deletion = Deletion {
            table,
            record,
            encoded: encoded.into(),
            reply,
        };
        self.request(Message::Delete(Box::new(deletion)), &answer)
    }

    /// Has all writes from now on behind a sequence; the next one.
    pub(crate) fn raise(&self, table: TableId, to: SequenceNumber) -> Result<SequenceNumber> {
        let (reply, answer) = bounded(1);
        self.request(Message::Raise(table, to, reply), &answer)
    }

    pub(crate) fn freeze(&self) -> Result<SequenceNumber> {
        let (reply, answer) = bounded(1);
        self.request(Message::Freeze(reply), &answer)
    }

    /// Answers what waits, then ends the thread. Repeatable.
    pub(crate) fn stop(&self) {
        // Fails only when the thread has ended already.
        let _ = self.sender.send(Message::Stop);
        self.thread.join();
    }
}

impl Worker {
    fn run(mut self) {
        loop {
            match self.receiver.recv_timeout(self.patience()) {
                Ok(Message::Write(first)) => {
                    self.shared.settings.supervisor.round(THREAD);
                    let (group, follow) = self.gather(*first);
                    self.commit(group);
                    match follow {
                        Some(Message::Stop) => break,
                        Some(Message::Freeze(reply)) => self.answer_freeze(&reply),
                        Some(Message::Delete(deletion)) => self.answer_delete(&deletion),
                        Some(Message::Raise(table, to, reply)) => self.answer_raise(table, to, &reply),
                        Some(Message::Write(_)) | None => {}
                    }
                }
                Ok(Message::Delete(deletion)) => self.answer_delete(&deletion),
                Ok(Message::Raise(table, to, reply)) => self.answer_raise(table, to, &reply),
                Ok(Message::Freeze(reply)) => self.answer_freeze(&reply),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => break,
            }
            self.sync_if_due();
            self.freeze_if_due();
        }
        self.sync_buffered();
    }

    /// How long to wait for a message: until something else is due.
    fn patience(&self) -> Duration {
        self.sync_due.map_or(IDLE_INTERVAL, |due| {
            due.saturating_duration_since(Instant::now()).min(IDLE_INTERVAL)
        })
    }

    /// What waits already, up to the budget, and a message of another kind that ended the gathering.
    fn gather(&self, first: Write) -> (Vec<Write>, Option<Message>) {
        let mut bytes = first.encoded.len();
        let mut group = vec![first];
        while bytes < self.shared.settings.group_bytes_max {
            match self.receiver.try_recv() {
                Ok(Message::Write(write)) => {
                    bytes += write.encoded.len();
                    group.push(*write);
                }
                Ok(other) => return (group, Some(other)),
                Err(_) => break,
            }
        }
        (group, None)
    }

    fn commit(&mut self, group: Vec<Write>) {
        let bytes: usize = group.iter().map(|write| write.encoded.len()).sum();
        let (alive, dropped): (Vec<_>, Vec<_>) = {
            let tables = self.shared.tables.read();
            let is_there = |table: &Table| tables.by_id.contains_key(&table.id());
            group
                .into_iter()
                .partition(|write| is_there(&write.table) && !write.table.is_in_doubt())
        };
        for write in dropped {
            let refused = self.shared.check_table(&write.table).err();
            // The doubt may have ended meanwhile.
            let in_doubt = || StoreError::TableInDoubt(write.table.name().clone());
            let _ = write.reply.send(Err(refused.unwrap_or_else(in_doubt)));
        }
        let (alive, outdated): (Vec<_>, Vec<_>) = alive
            .into_iter()
            .partition(|write| write.generation == write.table.timeline_generation());
        for write in outdated {
            let refused = StoreError::TimelinesRemoved(Box::new(write.delta));
            let _ = write.reply.send(Err(refused));
        }
        if !alive.is_empty() {
            self.append_and_apply(alive);
        }
        self.pending_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Begins above every sequence that an earlier run may have given, durably: a run of which no entry is left is counted too.
    fn leap(&mut self) -> Result<()> {
        if self.has_leapt {
            return Ok(());
        }
        let mut first = self.next;
        self.shared.edit(|manifest| {
            let begun = manifest.cursor.sequences_from.unwrap_or_default();
            first = SequenceNumber(first.0.max(begun) + START_LEAP);
            manifest.cursor.sequences_from = Some(first.0);
            vec![put_cursor(&manifest.cursor)]
        })?;
        self.next = first;
        self.shared.tail.pass_over(first);
        self.has_leapt = true;
        Ok(())
    }

    fn append_and_apply(&mut self, group: Vec<Write>) {
        if let Err(error) = self.leap() {
            tracing::warn!(%error, writes = group.len(), "the first sequence of this run could not be stored");
            for write in group {
                let _ = write.reply.send(Err(leap_error(&error)));
            }
            return;
        }
        let first = self.next;
        let entry = |(sequence, write): (u64, &Write)| JournalEntry {
            sequence: SequenceNumber(sequence),
            value: write.encoded.clone(),
        };
        let entries: Vec<_> = (first.0..).zip(&group).map(entry).collect();
        let synced = group.iter().any(|write| write.durability == Durability::Synced);
        let durability = if synced {
            Durability::Synced
        } else {
            Durability::Buffered
        };
        // The numbers are used up even if the append fails: its entries may still land.
        self.next = SequenceNumber(first.0 + group.len() as u64);
        self.shared.counters.appends.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self
            .shared
            .backend
            .append(SHARD, self.shared.epoch, &entries, durability)
        {
            tracing::warn!(%error, writes = group.len(), "journal append failed");
            for write in group {
                let _ = write.reply.send(Err(append_error(&error)));
            }
            return;
        }
        if synced {
            self.sync_due = None;
        } else {
            self.sync_due
                .get_or_insert_with(|| Instant::now() + SYNC_INTERVAL);
        }
        self.shared
            .counters
            .commits
            .fetch_add(group.len() as u64, Ordering::Relaxed);
        let head = Arc::clone(&self.shared.state.read().active);
        for (sequence, write) in (first.0..).map(SequenceNumber).zip(group) {
            self.apply(&head, &write, sequence);
            // Before the answer: whoever asks for what followed a cursor after it finds this.
            self.shared.tail.push(TailEntry {
                sequence,
                table: write.table.id(),
                encoded: write.encoded,
            });
            let _ = write.reply.send(Ok(Committed { sequence }));
        }
        self.shared.tail.wake();
    }

    fn apply(&self, head: &Head, write: &Write, sequence: SequenceNumber) {
        let sharded = ShardedDelta::new(&write.delta, &write.shapes);
        head.apply(&sharded, sequence, self.shared.settings.head);
        self.shared.note_stored(&write.delta);
        write.table.latest().apply(&sharded, sequence, true);
        // Before the answer, and before this head can be sealed: its journal is what carries the identities.
        self.shared
            .directory
            .announced(write.delta.table, &write.delta.new_timelines);
        if let Some(request) = &write.delta.request {
            // By the trusted time: a wrong clock would forget all outcomes, and do repeated requests again.
            let (now, settings) = (self.shared.trusted_now().now, &self.shared.settings);
            self.shared
                .requests
                .remember(write.table.id(), request, now, settings);
        }
    }

    fn answer_delete(&mut self, deletion: &Deletion) {
        let _ = deletion.reply.send(self.delete(deletion));
    }

    /// Journals a delete, then applies it: to the active head, to what readers mask, to the latest values.
    fn delete(&mut self, deletion: &Deletion) -> Result<Committed> {
        let Deletion {
            table,
            record,
            encoded,
            ..
        } = deletion;
        let shared = Arc::clone(&self.shared);
        shared.check_table(table)?;
        self.leap()?;
        let sequence = self.next;
        let entry = JournalEntry {
            sequence,
            value: encoded.clone(),
        };
        self.next = SequenceNumber(sequence.0 + 1);
        around("delete", "append", || {
            shared
                .backend
                .append(SHARD, shared.epoch, &[entry], Durability::Synced)
                .map_err(|error| append_error(&error))
        })?;
        self.sync_due = None;
        // It is in the journal: whatever fails from here on, a restart would find it, so it is applied to the end.
        let head = Arc::clone(&shared.state.read().active);
        let deleted = head.delete(table.id(), &record.timelines, record.range, sequence);
        shared
            .waiting_rows
            .lock()
            .insert(sequence, (table.id(), encoded.clone()));
        {
            let mut state = shared.state.write();
            state.deletes.add(table.id(), sequence, record);
        }
        table.latest().forget(&record.timelines);
        if record.removes_timelines {
            // In this order: with the counter raised first, a writer could read it and still take them for known.
            shared.directory.removed(table.id(), &record.timelines);
            table.timelines_removed();
        }
        let (table, encoded) = (table.id(), encoded.clone());
        shared.tail.push(TailEntry {
            sequence,
            table,
            encoded,
        });
        shared.tail.wake();
        deleted?;
        pass("delete", "apply", When::After)?;
        Ok(Committed { sequence })
    }

    fn answer_raise(&mut self, table: TableId, to: SequenceNumber, reply: &Sender<Result<SequenceNumber>>) {
        let _ = reply.send(self.raise(table, to));
    }

    /// Passes over sequences with an empty entry behind them: so a restart begins behind them as well.
    fn raise(&mut self, table: TableId, to: SequenceNumber) -> Result<SequenceNumber> {
        self.leap()?;
        if self.next >= to {
            return Ok(self.next);
        }
        let delta = Delta {
            table,
            ..Delta::default()
        };
        let mut encoded = Vec::new();
        delta.encode(&mut encoded).map_err(StoreError::BadDelta)?;
        let (sequence, value) = (SequenceNumber(to.0 - 1), Bytes::from(encoded));
        let encoded = value.clone();
        self.next = to;
        self.shared
            .backend
            .append(
                SHARD,
                self.shared.epoch,
                &[JournalEntry { sequence, value }],
                Durability::Synced,
            )
            .map_err(|error| append_error(&error))?;
        self.sync_due = None;
        let head = Arc::clone(&self.shared.state.read().active);
        let sharded = ShardedDelta::new(&delta, &[]);
        head.apply(&sharded, sequence, self.shared.settings.head);
        self.shared.tail.push(TailEntry {
            sequence,
            table,
            encoded,
        });
        Ok(to)
    }

    fn sync_if_due(&mut self) {
        if self.sync_due.is_some_and(|due| due <= Instant::now()) {
            self.sync_buffered();
        }
    }

    /// Syncs what no append has synced.
    fn sync_buffered(&mut self) {
        if self.sync_due.is_none() {
            return;
        }
        match self.shared.backend.sync(SHARD, self.shared.epoch) {
            Ok(()) => self.sync_due = None,
            Err(error) => {
                tracing::warn!(%error, "syncing buffered writes failed; it is tried again");
                self.sync_due = Some(Instant::now() + IDLE_INTERVAL);
            }
        }
    }

    fn freeze_if_due(&mut self) {
        let (active, frozen) = {
            let state = self.shared.state.read();
            (Arc::clone(&state.active), state.frozen.clone())
        };
        let budget = |head: &Head| self.shared.settings.head.bytes(head.timelines());
        let max = budget(&active);
        if !frozen.is_empty() {
            // The timelines of the frozen heads are alive as well, although the active one has not seen them yet.
            let largest = frozen.iter().map(|head| budget(head)).fold(max, usize::max);
            let frozen: usize = frozen.iter().map(|head| head.bytes()).sum();
            let room = (largest * HEADS_MAX).saturating_sub(frozen);
            if active.bytes() < room.max(max / ACTIVE_SHARE) {
                return;
            }
            // This wait may be long, and nothing is synced meanwhile.
            self.sync_buffered();
            self.wait_for_sealer();
        }
        let old = !active.is_empty() && active.started().elapsed() >= self.shared.settings.head_age_max;
        if active.bytes() < max && !old {
            return;
        }
        if let Err(error) = self.freeze() {
            tracing::warn!(%error, "freezing the head failed; it grows until the next try");
        }
    }

    /// Back-pressure: holds the committer, and so all writers, while older heads are sealed; not for ever where
    /// sealing fails, since then only the head's memory is at stake.
    fn wait_for_sealer(&self) {
        let started = Instant::now();
        let mut progress = self.shared.sealing.lock();
        let is_over = || {
            let supervisor = &self.shared.settings.supervisor;
            self.shared.state.read().frozen.is_empty() || supervisor.failure().is_some()
        };
        while !is_over() && !progress.stopping {
            let timed_out = self
                .shared
                .sealing_changed
                .wait_for(&mut progress, IDLE_INTERVAL)
                .timed_out();
            if timed_out && progress.error.is_some() {
                break;
            }
        }
        tracing::warn!(waited = ?started.elapsed(), "writers waited for a seal");
    }

    fn answer_freeze(&mut self, reply: &Sender<Result<SequenceNumber>>) {
        let _ = reply.send(self.freeze());
    }

    fn freeze(&mut self) -> Result<SequenceNumber> {
        if !self.shared.state.read().active.is_empty() {
            self.shared.backend.cut(SHARD, self.shared.epoch, self.next)?;
            let mut state = self.shared.state.write();
            let frozen = std::mem::replace(&mut state.active, Arc::new(Head::new(self.next)));
            state.frozen.push(frozen);
        }
        self.shared.notify_sealer();
        Ok(self.next)
    }
}

/// Each writer gets the failure as its own; nothing was appended.
fn leap_error(error: &StoreError) -> StoreError {
    match error {
        StoreError::Backend(error) => append_error(error),
        StoreError::OpenEdit { retry_after, .. } => StoreError::Append {
            kind: ErrorKind::Unavailable,
            reason: error.to_string(),
            retry_after: Some(*retry_after),
        },
        _ => StoreError::Closed,
    }
}

/// Each writer of a failed group gets the failure as its own.
fn append_error(error: &BackendError) -> StoreError {
    let retry_after = match error {
        BackendError::Unavailable { retry_after, .. } => Some(*retry_after),
        _ => None,
    };
    StoreError::Append {
        kind: error.kind(),
        reason: error.to_string(),
        retry_after,
    }
}
