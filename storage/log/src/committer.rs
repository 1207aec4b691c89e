//! Group commit: one thread appends waiting entries to the journal in groups, syncs at most once per group, lets the
//! models apply the entries, and replies.
//!
//! 1. Take the first waiting write, then the other waiting writes. Stop when a budget of bytes is reached, after an
//!    entry that ends its group, or at a message of another kind.
//! 2. Check and number the entries, and append them in one call; sync if any of them requests it.
//! 3. Apply the entries in order and reply to each writer.
//! 4. Sync the entries that were appended without a sync (*buffered* entries) if the oldest of them has waited for
//!    [`SYNC_INTERVAL`].
//! 5. Freeze the models if one of them is full or old.
//!
//! New writes queue up while the thread handles a group, so the size of groups grows with the load.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use tideline_backend::{BackendError, Epoch, ErrorKind, JournalEntry, VALUE_BYTES_MAX};
use tideline_model::{Durability, SequenceNumber};
use tideline_runtime::SupervisedThread;

use crate::entry::LogEntry;
use crate::error::{LogError, Result};
use crate::fail_points::{When, pass};
use crate::log::{Log, SHARD};
use crate::manifest::put_cursor;
use crate::model::{LogModel, Pressure};
use crate::recent_entries::RecentEntry;
use crate::reply::{Replier, Submitted, reply};

/// Name of the thread.
const THREAD: &str = "committer";
/// Interval at which the idle thread checks whether a generation is old. It is also the pause after a failed sync, and
/// the time after which writers continue if flushes fail.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
/// Delay from the append of the first buffered entry to the sync, with and without load. According to the guide, a
/// power cut loses at most one second of buffered writes; the remaining half second is reserved for the sync itself.
const SYNC_INTERVAL: Duration = Duration::from_millis(500);

/// Number of sequences that each run but the first skips before its first write. It exceeds the number of sequences
/// that the previous run can have assigned to lost entries, such as buffered entries in a power cut. A watcher that
/// received such an entry has a cursor after it, and would miss new entries with the same sequences.
const START_LEAP: u64 = 1 << 24;
/// Epoch of the first run.
const FIRST_EPOCH: Epoch = Epoch(1);

/// Handle of the committer thread.
#[derive(Debug)]
pub(crate) struct Committer {
    log: Arc<Log>,
    sender: Sender<Message>,
    pending_bytes: Arc<AtomicUsize>,
    thread: SupervisedThread,
}

enum Message {
    Write(Write),
    /// Skips sequences, so that the entry gets the sequence before this number.
    Raise(SequenceNumber, Write),
    /// Freezes the models. The reply is the first sequence that is not frozen.
    Freeze(Replier),
    Stop,
}

struct Write {
    entry: Box<dyn LogEntry>,
    reply: Replier,
    /// Counts the entry as pending until the write is dropped: after its reply, or when it could not be sent.
    _pending: PendingBytes,
}

/// Guard that counts the bytes of an entry as pending.
struct PendingBytes {
    total: Arc<AtomicUsize>,
    bytes: usize,
}

impl Write {
    fn bytes(&self) -> usize {
        self.entry.encoded().len()
    }

    /// Checks that the entry can be written. The backend would refuse all entries of a group for one that is too large.
    fn check(&self) -> Result<()> {
        let actual = self.bytes();
        if actual > VALUE_BYTES_MAX {
            let (what, limit) = ("journal entry", VALUE_BYTES_MAX);
            return Err(BackendError::TooLarge { what, limit, actual }.into());
        }
        Ok(self.entry.check()?)
    }

    /// Sends the reply. Does nothing if the caller no longer waits.
    fn answer(&self, result: Result<SequenceNumber>) {
        self.reply.answer(result);
    }
}

impl PendingBytes {
    /// Adds bytes to a total. Also returns the previous total.
    fn add(total: &Arc<AtomicUsize>, bytes: usize) -> (Self, usize) {
        let before = total.fetch_add(bytes, Ordering::Relaxed);
        let total = Arc::clone(total);
        (Self { total, bytes }, before)
    }
}

impl Drop for PendingBytes {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Work of the thread.
pub(crate) struct Worker {
    log: Arc<Log>,
    models: Vec<Arc<dyn LogModel>>,
    receiver: Receiver<Message>,
    next: SequenceNumber,
    /// True if `next` is above every sequence that earlier runs may have assigned.
    has_leapt: bool,
    /// Time by which the buffered entries must be synced; `None` while everything is synced.
    sync_due: Option<Instant>,
}

impl Committer {
    /// Starts the thread.
    pub(crate) fn start(log: Arc<Log>, models: Vec<Arc<dyn LogModel>>) -> Self {
        let (mut committer, worker) = Self::new(log, models);
        let supervisor = &committer.log.settings.supervisor;
        let thread = supervisor.spawn(THREAD, move || worker.run());
        committer.thread = thread.expect("the system has a thread left at start");
        committer
    }

    /// Creates the handle, and the work for its thread. Sequences continue after the newest entry.
    pub(crate) fn new(log: Arc<Log>, models: Vec<Arc<dyn LogModel>>) -> (Self, Worker) {
        // The number of messages is unbounded; `pending_bytes_max` bounds the bytes of the waiting writes.
        let (sender, receiver) = unbounded();
        let worker = Worker {
            has_leapt: log.epoch() == FIRST_EPOCH,
            log: Arc::clone(&log),
            models,
            receiver,
            next: log.recent.end(),
            sync_due: None,
        };
        let committer = Self {
            log,
            sender,
            pending_bytes: Arc::default(),
            thread: SupervisedThread::default(),
        };
        (committer, worker)
    }

    /// Sends a message and waits for its reply. Returns an error if the thread has ended, or if a supervised thread of
    /// the database had panicked before the call.
    fn request(&self, message: Message, submitted: Submitted) -> Result<SequenceNumber> {
        self.log.check_threads()?;
        let sent = self.sender.send(message);
        sent.map_err(|_| self.log.ended())?;
        submitted.wait()
    }

    pub(crate) fn commit(&self, entry: Box<dyn LogEntry>) -> Result<SequenceNumber> {
        self.submit(entry)?.wait()
    }

    /// Sends an entry to the thread. Entries are committed in the order in which they are submitted.
    pub(crate) fn submit(&self, entry: Box<dyn LogEntry>) -> Result<Submitted> {
        let (bytes, limit) = (entry.encoded().len(), self.log.settings.pending_bytes_max);
        let (pending, waiting) = PendingBytes::add(&self.pending_bytes, bytes);
        if waiting > 0 && waiting + bytes > limit {
            return Err(LogError::Overloaded {
                limit,
                actual: waiting + bytes,
            });
        }
        let (reply, submitted) = reply(&self.log);
        self.log.check_threads()?;
        let sent = self.sender.send(Message::Write(Write {
            entry,
            reply,
            _pending: pending,
        }));
        sent.map_err(|_| self.log.ended())?;
        Ok(submitted)
    }

    pub(crate) fn raise(&self, to: SequenceNumber, entry: Box<dyn LogEntry>) -> Result<SequenceNumber> {
        let (reply, submitted) = reply(&self.log);
        let (pending, _) = PendingBytes::add(&self.pending_bytes, entry.encoded().len());
        let write = Write {
            entry,
            reply,
            _pending: pending,
        };
        self.request(Message::Raise(to, write), submitted)
    }

    pub(crate) fn freeze(&self) -> Result<SequenceNumber> {
        let (reply, submitted) = reply(&self.log);
        self.request(Message::Freeze(reply), submitted)
    }

    /// Completes the waiting writes, then ends the thread. May be called repeatedly.
    pub(crate) fn stop(&self) {
        // Fails only if the thread has already ended.
        let _ = self.sender.send(Message::Stop);
        self.thread.join();
    }
}

impl Worker {
    fn run(mut self) {
        loop {
            match self.receiver.recv_timeout(self.patience()) {
                Ok(message) => {
                    if !self.handle(message) {
                        break;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.sync_if_due();
            self.freeze_if_due();
        }
        self.sync_buffered();
    }

    /// Handles a message, and the writes that wait after a write. Returns false for [`Message::Stop`].
    fn handle(&mut self, message: Message) -> bool {
        let Message::Write(first) = message else {
            return self.answer(message);
        };
        self.log.settings.supervisor.round(THREAD);
        let (group, follow) = self.gather(first);
        self.commit(group);
        follow.is_none_or(|message| self.answer(message))
    }

    /// Handles all waiting messages, for tests that run the work without its thread.
    #[cfg(test)]
    pub(crate) fn handle_waiting(&mut self) {
        while let Ok(message) = self.receiver.try_recv() {
            self.handle(message);
        }
    }

    /// Handles a message that is not part of a group. Returns false for [`Message::Stop`].
    fn answer(&mut self, message: Message) -> bool {
        match message {
            Message::Write(write) => self.commit(vec![write]),
            Message::Raise(to, write) => self.raise(to, &write),
            Message::Freeze(reply) => {
                reply.answer(self.freeze());
            }
            Message::Stop => return false,
        }
        true
    }

    /// Returns the maximum time to wait for a message, until other work is due.
    fn patience(&self) -> Duration {
        self.sync_due.map_or(IDLE_INTERVAL, |due| {
            due.saturating_duration_since(Instant::now()).min(IDLE_INTERVAL)
        })
    }

    /// Collects `first` and the writes that are already waiting, until they reach the budget or an entry ends its
    /// group. Returns these writes, and a message of another kind if one ended the group.
    fn gather(&self, first: Write) -> (Vec<Write>, Option<Message>) {
        let (mut bytes, mut is_over) = (first.bytes(), first.entry.ends_group());
        let mut group = vec![first];
        while !is_over && bytes < self.log.settings.group_bytes_max {
            match self.receiver.try_recv() {
                Ok(Message::Write(write)) => {
                    bytes += write.bytes();
                    is_over = write.entry.ends_group();
                    group.push(write);
                }
                Ok(other) => return (group, Some(other)),
                Err(_) => break,
            }
        }
        (group, None)
    }

    fn commit(&mut self, mut group: Vec<Write>) {
        group.retain(|write| match write.check() {
            Ok(()) => true,
            Err(refusal) => {
                write.answer(Err(refusal));
                false
            }
        });
        if group.is_empty() {
            return;
        }
        if let Err(error) = self.leap() {
            tracing::warn!(%error, writes = group.len(), "the first sequence of this run could not be stored");
            group
                .iter()
                .for_each(|write| write.answer(Err(error.for_writer())));
        } else {
            self.append_and_apply(group, self.next);
        }
    }

    /// Skips to a sequence above all sequences that earlier runs may have assigned. Stores it in the manifest, because
    /// the journal may have lost all entries of a run. Does nothing after the first success.
    fn leap(&mut self) -> Result<()> {
        if self.has_leapt {
            return Ok(());
        }
        let mut first = self.next;
        self.log.edit_shared(|manifest| {
            let begun = manifest.cursor.sequences_from.unwrap_or_default();
            first = SequenceNumber(first.0.max(begun) + START_LEAP);
            manifest.cursor.sequences_from = Some(first.0);
            manifest.cursor.leaps.add(self.next.0..first.0);
            vec![put_cursor(&manifest.cursor)]
        })?;
        self.next = first;
        self.log.recent.pass_over(first);
        self.has_leapt = true;
        Ok(())
    }

    /// Numbers entries from `first` on, appends them to the journal, applies them and replies.
    fn append_and_apply(&mut self, group: Vec<Write>, first: SequenceNumber) {
        let synced = group
            .iter()
            .any(|write| write.entry.durability() == Durability::Synced);
        // The sequences are used up even if the append fails: its entries may still become durable.
        self.next = SequenceNumber(first.0 + group.len() as u64);
        if let Err(error) = self.append(&group, first, synced) {
            tracing::warn!(%error, writes = group.len(), "journal append failed");
            group
                .iter()
                .for_each(|write| write.answer(Err(error.for_writer())));
            return;
        }
        if synced {
            self.sync_due = None;
        } else {
            self.sync_due
                .get_or_insert_with(|| Instant::now() + SYNC_INTERVAL);
        }
        for (sequence, write) in (first.0..).map(SequenceNumber).zip(group) {
            let applied = self.apply(&write, sequence);
            if synced {
                // This must happen before the reply: a reader of changes must find every acknowledged entry.
                self.note_durable(SequenceNumber(sequence.0 + 1));
            }
            write.answer(applied.map(|()| sequence));
        }
        self.log.recent.wake();
    }

    /// Appends entries to the journal, numbered from `first` on, and counts them.
    fn append(&self, group: &[Write], first: SequenceNumber, synced: bool) -> Result<()> {
        let counters = &self.log.counters;
        counters.appends.fetch_add(1, Ordering::Relaxed);
        let entry = |(sequence, write): (u64, &Write)| JournalEntry {
            sequence: SequenceNumber(sequence),
            value: write.entry.encoded().clone(),
        };
        let entries: Vec<_> = (first.0..).zip(group).map(entry).collect();
        let durability = match synced {
            true => Durability::Synced,
            false => Durability::Buffered,
        };
        let step = |when| -> Result<()> {
            let mut kinds = group.iter().map(|write| write.entry.kind());
            kinds.try_for_each(|kind| pass(kind, "append", when))
        };
        step(When::Before)?;
        self.log.check_lease()?;
        let (backend, ownership) = (self.log.backend.as_ref(), &self.log.ownership);
        let appended = backend.append(SHARD, ownership.epoch, &entries, durability);
        if let Err(error) = appended {
            ownership.check_error(&error, backend);
            let is_unknown = matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Timeout);
            if is_unknown && ownership.is_limited() {
                ownership.lose(&format!("an append has an unknown outcome: {error}"));
            }
            return Err(error.into());
        }
        // A newer owner may have closed this epoch before the append arrived. A renewal proves that none has.
        if let Err(lost) = ownership.wait_for_renewal(self.log.settings.renewal_patience) {
            let reason = format!("when the append was acknowledged, {lost}");
            ownership.lose(&reason);
            return Err(BackendError::Unknown { reason }.into());
        }
        step(When::After)?;
        counters.commits.fetch_add(group.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn apply(&self, write: &Write, sequence: SequenceNumber) -> Result<()> {
        let entry = &write.entry;
        let applied = entry.apply(sequence);
        if let Some(request) = entry.request() {
            // Uses the trusted time: a wrong clock would evict all outcomes, and repeated requests would be executed
            // again.
            let (now, settings) = (self.log.trusted_now().now, &self.log.settings);
            self.log.requests.remember(entry.table(), request, now, settings);
        }
        // This must happen before the reply: once the writer has the reply, the sequence after this entry must be a
        // valid cursor.
        self.log.recent.push(RecentEntry {
            sequence,
            table: entry.table(),
            encoded: entry.encoded().clone(),
        });
        applied.map_err(LogError::Model)?;
        pass(entry.kind(), "apply", When::After)
    }

    /// Handles [`Message::Raise`]. The entry gets the last skipped sequence, so that a restart continues after it.
    fn raise(&mut self, to: SequenceNumber, write: &Write) {
        write.answer(self.raised(to, write));
    }

    fn raised(&mut self, to: SequenceNumber, write: &Write) -> Result<SequenceNumber> {
        self.leap()?;
        if self.next >= to {
            return Ok(self.next);
        }
        let last = SequenceNumber(to.0 - 1);
        self.next = to;
        self.append(std::slice::from_ref(write), last, true)
            .map_err(|error| error.for_writer())?;
        self.sync_due = None;
        self.apply(write, last)?;
        self.note_durable(to);
        Ok(to)
    }

    /// Records that all entries before `end` are applied and on stable storage.
    fn note_durable(&self, end: SequenceNumber) {
        self.log.durable_end.store(end.0, Ordering::Release);
    }

    fn sync_if_due(&mut self) {
        if self.sync_due.is_some_and(|due| due <= Instant::now()) {
            self.sync_buffered();
        }
    }

    /// Syncs buffered entries, if there are any.
    pub(crate) fn sync_buffered(&mut self) {
        if self.sync_due.is_none() {
            return;
        }
        match self.log.backend.sync_journal(SHARD, self.log.epoch()) {
            Ok(()) => {
                self.sync_due = None;
                self.note_durable(self.next);
                self.log.recent.wake();
            }
            Err(error) => {
                tracing::warn!(%error, "syncing buffered writes failed; the sync is retried");
                self.sync_due = Some(Instant::now() + IDLE_INTERVAL);
            }
        }
    }

    fn pressure(&self) -> Pressure {
        let pressures = self.models.iter().map(|model| model.pressure());
        pressures.max().unwrap_or(Pressure::Low)
    }

    fn freeze_if_due(&mut self) {
        match self.pressure() {
            Pressure::Low => return,
            Pressure::Full => {}
            Pressure::Over => {
                // The wait below may be long, and nothing is synced during it.
                self.sync_buffered();
                self.log.wait_for_flush(IDLE_INTERVAL);
                if self.pressure() == Pressure::Low {
                    return;
                }
            }
        }
        if let Err(error) = self.freeze() {
            tracing::warn!(%error, "freezing the models failed; they grow until the next try");
        }
    }

    pub(crate) fn freeze(&mut self) -> Result<SequenceNumber> {
        if self.models.iter().any(|model| !model.is_empty()) {
            self.log.backend.cut(SHARD, self.log.epoch(), self.next)?;
            for model in &self.models {
                model.freeze(self.next);
            }
            self.log.frozen.lock().push(self.next);
        }
        self.log.notify_flusher();
        Ok(self.next)
    }
}
