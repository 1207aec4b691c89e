//! Fan-out: the job that writes the messages of feeds with many members to the inboxes.
//!
//! Such messages are pulled at first, so every inbox shows them when they are acknowledged. The job then writes their
//! inbox entries in batches and raises the start of the pulled range, so that readers do not merge many messages of
//! many feeds for ever. For each feed, it
//!
//! 1. takes a version and waits for the writes of messages that have begun before. All messages below the version are
//!    visible then;
//! 2. stores the version as the end of its work. If a member joins later, the job may have read the members already, so
//!    the request to join writes the entries of these messages;
//! 3. writes the entries of up to 100 messages for all members, and stores the end of these messages as done. Readers
//!    of inboxes read later messages from the feed, and drop a message that they get twice.
//!
//! A crash, a pause or a cancel between any two steps loses nothing; the next run continues after the last stored end.
//! Writing an entry again does not change it.
//!
//! The job holds a claim on the feed while it reads members and writes their entries. A member who leaves is deleted
//! first, and the request then waits for earlier claims before it removes the entries. So no entry is written after
//! that.
//!
//! Entries refer to messages, even in tables whose pushed entries have copies.
//!
//! The job also completes interrupted joins: it writes the entries of earlier messages that a request has not written
//! for a new member. It does this in every table with inboxes.

use std::cell::{Cell, RefCell};
use std::iter;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use tideline_engine::backend::Direction;
use tideline_engine::fail_points::{When, pass};
use tideline_engine::feeds::FeedName;
use tideline_engine::key_codec::tuple::KeyValue;
use tideline_engine::model::TimelineId;
use tideline_engine::model::feed::{EXCEPT, TO};
use tideline_engine::rows::{RowOutcome, RowScan, RowWrite, RowWriteOptions, StoredRow};
use tideline_engine::{Engine, EngineError, WideTable};
use tideline_rows::{Result, RowsError};

use crate::delivery::{fan_out_max, is_closed, reference};
use crate::members::{
    ENTRIES_PER_WRITE, JoinEnd, complete_join, count_members, inbox_of, member, members, membership, range_of,
};
use crate::message::{damaged, names_in, number_of_message, sequence_of};
use crate::read::begin_scan;
use crate::send::{ReaderLists, inbox_entry};
use crate::state::{Progress, State};

/// Number of messages whose entries are written before the progress is stored. A larger number needs more memory, and
/// with a smaller number the members are read more often.
const MESSAGES_PER_STEP: usize = 100;
/// Number of entries after which a run ends, so that other jobs run too. The next run continues.
const ENTRIES_PER_RUN: u64 = 2_000_000;
/// Number of entries of interrupted joins after which a run continues with the waiting messages.
const JOIN_ENTRIES_PER_RUN: u64 = ENTRIES_PER_RUN / 2;

/// Progress of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FanOutProgress {
    /// Number of feeds whose messages are all written.
    pub feeds: u64,
    /// Number of messages and events whose entries are written.
    pub messages: u64,
    /// Number of interrupted joins that are complete now.
    pub joins: u64,
    /// Number of entries that are written, also for interrupted joins.
    pub entries: u64,
    /// Number of entries of interrupted joins that cannot be written, because their parts are closed for writes.
    pub skipped: u64,
    /// Number of entries of the messages that were read so far: at most one per message and member.
    pub total: u64,
    /// Bytes of the messages that were read.
    pub bytes_read: u64,
}

/// Function that takes the progress of a run, and breaks to end it.
pub type FanOutStep<'s> = &'s mut dyn FnMut(&FanOutProgress) -> ControlFlow<()>;

/// Message or event whose entries are written.
struct Message {
    sequence: i64,
    /// Sequence number of the message, also for an event of the message.
    message: i64,
    /// Time of its last change.
    time: i64,
    to: Option<Vec<String>>,
    except: Vec<String>,
}

/// Run of the job for a table.
struct Run<'r, 's> {
    engine: &'r Engine,
    table: &'r Arc<WideTable>,
    users: Arc<WideTable>,
    progress: FanOutProgress,
    step: FanOutStep<'s>,
}

/// Completes the interrupted joins of a table, and writes the waiting messages of all its feeds to the inboxes, one feed
/// at a time. Ends early after 2,000,000 entries, of which the joins use at most about half, so that many joins do not
/// delay the messages. The rest stays in the lists. A join or a feed that fails does not prevent the others.
///
/// # Errors
///
/// [`RowsError::Cancelled`] if `step` breaks, and the error of the first join or feed that has failed: those of
/// [`Engine::users_table`], [`Engine::write_rows`] and of scans.
pub fn fan_out(engine: &Engine, table: &Arc<WideTable>, step: FanOutStep<'_>) -> Result<FanOutProgress> {
    let mut run = Run {
        engine,
        table,
        users: engine.users_table(table)?,
        progress: FanOutProgress::default(),
        step,
    };
    let id = table.table().points().id();
    let mut known = engine.fan_outs().into_iter().filter(|known| known.table == id);
    if !known.any(|known| known.is_complete) {
        if fan_out_max(table) > 0 {
            run.find_waiting()?;
        }
        if run.find_joins()? {
            engine.complete_fan_outs(id);
        }
    }
    let mut failed = None;
    for (feed, user) in engine.interrupted_joins(table) {
        match run.join(feed, &user) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => break,
            Err(RowsError::Cancelled) => return Err(RowsError::Cancelled),
            // The members of the feed are being deleted, so a later run does not find this one.
            Err(RowsError::Engine(EngineError::FeedDeleting(_))) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    for feed in engine.waiting_feeds(table) {
        match run.feed(feed) {
            Ok(ControlFlow::Continue(())) => run.progress.feeds += 1,
            Ok(ControlFlow::Break(())) => break,
            Err(RowsError::Cancelled) => return Err(RowsError::Cancelled),
            // The feed is being deleted, so the next run finds no message of it.
            Err(RowsError::Engine(EngineError::FeedDeleting(_))) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed {
        None => Ok(run.progress),
        Some(error) => Err(error),
    }
}

impl<'r> Run<'r, '_> {
    fn step(&mut self) -> Result<()> {
        match (self.step)(&self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(RowsError::Cancelled),
        }
    }

    /// Adds the feeds whose messages waited before the start of the process to the list.
    fn find_waiting(&mut self) -> Result<()> {
        let (engine, table) = (self.engine, self.table);
        let users = Arc::clone(&self.users);
        let ranges = range_of(&users, &[""])?;
        let mut rows = begin_scan(engine, &users, ranges, Direction::Ascending, usize::MAX);
        while let Some(found) = rows.next_row()? {
            self.step()?;
            let key = users.layout().decode(&found.row.key);
            let feed = match key.map_err(|error| damaged(&users, error))?.as_slice() {
                [_, KeyValue::String(feed), KeyValue::String(row)] if row.is_empty() => feed.parse(),
                _ => continue,
            };
            let feed: TimelineId = feed.map_err(|_| damaged(&users, "the state of a feed has no feed id"))?;
            for part in State::read(engine, (table, &users), feed)?.waiting(i64::MAX) {
                if let Some(first) = self.messages(feed, part)?.next_row()? {
                    let sequence = sequence_of(table, &first.row.key)?;
                    engine.add_fan_out(table, feed, (sequence, sequence));
                    break;
                }
            }
        }
        Ok(())
    }

    /// Adds the joins that were interrupted before the start of the process to the list. Skips damaged rows, after a
    /// warning in the log. Returns false if the list is full before all are found.
    fn find_joins(&mut self) -> Result<bool> {
        let (engine, table) = (self.engine, self.table);
        let users = Arc::clone(&self.users);
        let mut rows = begin_scan(
            engine,
            &users,
            range_of(&users, &[])?,
            Direction::Ascending,
            usize::MAX,
        );
        let mut count = 0_usize;
        while let Some(found) = rows.next_row()? {
            count += 1;
            self.progress.bytes_read += found.row.bytes() as u64;
            if count.is_multiple_of(ENTRIES_PER_WRITE) {
                self.step()?;
            }
            let member = membership(&users, &found.row).unwrap_or_else(|error| {
                Engine::warn_of_damaged_member(&users, &found.row.key, &error);
                None
            });
            if let Some(member) = member
                && member.is_filling
                && !engine.add_interrupted_join(table, member.feed, &member.user)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Completes an interrupted join. Breaks if the joins have written too many entries before.
    fn join(&mut self, feed: TimelineId, user: &str) -> Result<ControlFlow<()>> {
        let (engine, table) = (self.engine, self.table);
        self.step()?;
        let before = self.progress.entries;
        let (run, messages) = (RefCell::new(&mut *self), Cell::new(0_usize));
        let is_stopped = || {
            messages.set(messages.get() + 1);
            messages.get().is_multiple_of(ENTRIES_PER_WRITE) && run.borrow_mut().step().is_err()
        };
        let written = |entries: u64, skipped: u64| {
            engine.wait_for_searches(table);
            let mut run = run.borrow_mut();
            let progress = &mut run.progress;
            progress.entries += entries;
            progress.skipped += skipped;
            progress.total += entries;
            match progress.entries + progress.skipped >= JOIN_ENTRIES_PER_RUN {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let end = complete_join(engine, table, (feed, user), &written, &is_stopped);
        engine.add_fan_out_entries(self.progress.entries - before);
        match end? {
            JoinEnd::Stopped => return Ok(ControlFlow::Break(())),
            JoinEnd::Complete => self.progress.joins += 1,
            JoinEnd::Gone => {}
        }
        engine.end_interrupted_join(table, feed, user);
        // The user may have left and joined again, and the new join may be interrupted too. The list has only one entry
        // for both.
        let newer = member(engine, table, feed, user).inspect_err(|_| {
            engine.add_interrupted_join(table, feed, user);
        })?;
        if newer.is_some_and(|newer| newer.is_filling) {
            engine.add_interrupted_join(table, feed, user);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Begins a scan of the messages of a feed in a range of sequence numbers. The end of the range is exclusive.
    fn messages(&self, feed: TimelineId, (from, to): (i64, i64)) -> Result<RowScan<'r>> {
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        let ranges = self.engine.messages_of(self.table, feed, bounds)?;
        Ok(begin_scan(
            self.engine,
            self.table,
            ranges,
            Direction::Ascending,
            MESSAGES_PER_STEP,
        ))
    }

    /// Writes the waiting messages of a feed. Breaks if the run must end before all are written.
    fn feed(&mut self, feed: TimelineId) -> Result<ControlFlow<()>> {
        let (engine, table) = (self.engine, self.table);
        let users = Arc::clone(&self.users);
        self.step()?;
        let until = engine.next_version();
        engine.wait_for_messages(until, &|| false);
        let state = State::read(engine, (table, &users), feed)?;
        let parts = state.waiting(until);
        let before = self.progress.entries;
        let fan_out_max = fan_out_max(table);
        let members = count_members(engine, table, feed, fan_out_max + 1)?;
        let is_known = engine.feed(table, &FeedName::Id(feed)).is_ok();
        if members > fan_out_max || parts.is_empty() || !is_known {
            if members > fan_out_max && is_known {
                self.leave_to_readers(feed, None)?;
            }
            engine.end_fan_out(table, feed, (until, 0));
            return Ok(ControlFlow::Continue(()));
        }
        let done = state.progress.done;
        self.store(feed, "begin", Progress { done, until })?;
        for part in parts {
            let mut from = part.0;
            loop {
                let messages = self.read(feed, (from, part.1))?;
                let Some(last) = messages.last() else { break };
                let total = (messages.len() * members) as u64;
                self.progress.total += total;
                from = match self.write(feed, &messages)? {
                    None => {
                        self.progress.messages += messages.len() as u64;
                        last.sequence + 1
                    }
                    // The messages after the refused one are read again.
                    Some(refused) => {
                        self.progress.total -= total;
                        self.leave_to_readers(feed, Some(refused + 1))?;
                        refused + 1
                    }
                };
                self.store(feed, "done", Progress { done: from, until })?;
                if self.progress.entries >= ENTRIES_PER_RUN {
                    engine.audience_changed(table, feed);
                    engine.end_fan_out(table, feed, (from, self.progress.entries - before));
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        self.store(feed, "end", Progress { done: until, until })?;
        // Readers use the later start of the pulled range.
        engine.audience_changed(table, feed);
        engine.end_fan_out(table, feed, (until, self.progress.entries - before));
        Ok(ControlFlow::Continue(()))
    }

    /// Stores the progress of a feed.
    fn store(&self, feed: TimelineId, step: &str, progress: Progress) -> Result<()> {
        at(step, || {
            State::set_progress(self.engine, &self.users, feed, progress)
        })
    }

    /// Ends the fan-out of the unwritten messages below `end`, or of all if `end` is `None`. Readers of inboxes always
    /// read these messages from the feed.
    fn leave_to_readers(&self, feed: TimelineId, end: Option<i64>) -> Result<()> {
        let leave = |state: &mut State| state.leave_to_readers(end);
        at("leave", || {
            State::change(self.engine, (self.table, &self.users), feed, leave)
        })?;
        self.engine.audience_changed(self.table, feed);
        Ok(())
    }

    /// Reads the next messages of a range.
    fn read(&mut self, feed: TimelineId, part: (i64, i64)) -> Result<Vec<Message>> {
        let mut messages = Vec::with_capacity(MESSAGES_PER_STEP);
        let mut rows = self.messages(feed, part)?;
        while messages.len() < MESSAGES_PER_STEP
            && let Some(found) = rows.next_row()?
        {
            self.progress.bytes_read += found.row.bytes() as u64;
            messages.push(message_of(self.table, &found.row)?);
        }
        Ok(messages)
    }

    /// Writes the entries of messages for all members. Ends at a part that cannot be written any more, and returns a
    /// sequence number in it; `None` if all entries are written.
    fn write(&mut self, feed: TimelineId, messages: &[Message]) -> Result<Option<i64>> {
        let (engine, table) = (self.engine, self.table);
        let values = inbox_entry(table, feed);
        let lists: Vec<ReaderLists<'_>> = messages
            .iter()
            .map(|message| ReaderLists::new(message.to.as_deref(), &message.except))
            .collect();
        let members_per_write = (ENTRIES_PER_WRITE / messages.len().max(1)).max(1);
        let mut after = None;
        loop {
            self.step()?;
            engine.wait_for_searches(table);
            // A request that removes a member waits for this claim, or the member is not found here.
            let claim = engine.claim_feed(table, feed, iter::empty())?;
            let page = members(engine, table, feed, after.as_ref(), members_per_write)?;
            let mut entries = Vec::with_capacity(ENTRIES_PER_WRITE);
            for member in &page.members {
                let inbox = engine.feed_or_new(table, &inbox_of(&member.user)?)?;
                let shown = messages.iter().zip(&lists).filter(|(message, lists)| {
                    message.message >= member.visible_from && lists.has(&member.user)
                });
                entries.extend(shown.map(|(message, _)| (inbox, (message.sequence, message.time))));
            }
            if !entries.is_empty() {
                let make =
                    |_: &mut dyn FnMut() -> i64| -> std::result::Result<Vec<RowWrite<'_>>, EngineError> {
                        let entries = entries.iter();
                        entries
                            .map(|(inbox, message)| reference(table, *inbox, *message, &values))
                            .collect()
                    };
                let options = RowWriteOptions::default();
                let (_, written) = at("write", || Ok(engine.write_rows(table, &make, &options)?))?;
                let sequences = entries.iter().map(|(_, (sequence, _))| *sequence);
                if let Some(refused) = closed(table, sequences, &written.rows)? {
                    return Ok(Some(refused));
                }
            }
            drop(claim);
            self.progress.entries += entries.len() as u64;
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(None),
            }
        }
    }
}

/// Executes a step between its two fail points.
fn at<T>(step: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
    pass::<EngineError>("fan_out", step, When::Before)?;
    let done = body()?;
    pass::<EngineError>("fan_out", step, When::After)?;
    Ok(done)
}

/// Returns a message or event of a feed.
fn message_of(table: &WideTable, row: &StoredRow) -> Result<Message> {
    let columns = row.columns().map_err(|reason| damaged(table, reason))?;
    let sequence = sequence_of(table, &row.key)?;
    Ok(Message {
        sequence,
        message: number_of_message(table, &columns, sequence),
        time: columns.time,
        to: names_in(table, &columns, TO),
        except: names_in(table, &columns, EXCEPT).unwrap_or_default(),
    })
}

/// Returns the highest sequence number of the entries that were refused because their part is closed for writes or
/// dropped; `None` without such an entry.
fn closed(
    table: &WideTable,
    sequences: impl Iterator<Item = i64>,
    outcomes: &[RowOutcome],
) -> Result<Option<i64>> {
    let mut closed = None;
    for (sequence, outcome) in sequences.zip(outcomes) {
        if is_closed(table, outcome)? {
            closed = closed.max(Some(sequence));
        }
    }
    Ok(closed)
}
