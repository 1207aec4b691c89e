//! The indexer thread: commits the differences between the catalogs and the index.
//!
//! 1. Wait for work: a command, a flush, enough changed timelines, or the end of the commit delay.
//! 2. Open the index; recreate it if it is unreadable or a checksum is wrong. Reindex each table whose positions do
//!    not match the catalog.
//! 3. Commit batches of documents, each with its positions, until nothing is left.
//! 4. Publish the new snapshot to searches.
//!
//! A failed round drops the writer and recreates the index, immediately the first time, then after a pause. Searches
//! use the previous snapshot until the new index has caught up. If another process holds the lock of the index, the
//! round is repeated without recreating the index.

mod round;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tideline_model::TableId;
use tideline_timeline_catalog::Catalog;

use crate::index::{IndexCommand, IndexOptions, Shared, THREAD};
use crate::positions::{Difference, Positions};

use writer::OpenIndex;

/// State of the indexer thread.
pub(crate) struct Indexer {
    folder: PathBuf,
    options: IndexOptions,
    shared: Arc<Shared>,
    /// `None` before the first round and after a failure.
    open: Option<OpenIndex>,
    /// True if the index on disk must be recreated instead of opened.
    remake: bool,
    /// True while searches still use the snapshot of the previous index. The snapshot of the new index is published
    /// once the new index has caught up with the catalogs.
    replacing: bool,
    /// Committed positions of all tables with documents.
    positions: Positions,
    attached: BTreeMap<TableId, Attached>,
    /// Tables whose documents the next commit deletes.
    removed: BTreeSet<TableId>,
    /// Tables to keep, from a command that is not applied yet.
    kept: Option<Vec<TableId>>,
    /// Latest start of the round that commits the pending timelines.
    deadline: Option<Instant>,
    /// Time before which only commands and flushes start a round.
    retry_at: Option<Instant>,
}

/// A catalog that is indexed.
struct Attached {
    catalog: Arc<Catalog>,
    /// Edit counter at the time of the attach command.
    edits: u64,
    /// True if the index content of the table has been compared with the catalog.
    verified: bool,
}

/// Input of a round.
struct Call {
    commands: Vec<IndexCommand>,
    /// Number of the last flush request that this round completes.
    ticket: u64,
}

impl Indexer {
    pub(crate) fn new(folder: PathBuf, options: IndexOptions, shared: Arc<Shared>) -> Self {
        Self {
            folder,
            options,
            shared,
            open: None,
            remake: false,
            replacing: false,
            positions: Positions::new(),
            attached: BTreeMap::new(),
            removed: BTreeSet::new(),
            kept: None,
            deadline: None,
            retry_at: None,
        }
    }

    /// Runs until the index is closed.
    pub(crate) fn run(mut self) {
        while let Some(call) = self.wait() {
            self.options.supervisor.round(THREAD);
            for command in call.commands {
                self.take(command);
            }
            let mut failure = self.guarded_round();
            if failure.is_some() && self.retry_at.is_none() {
                failure = self.guarded_round();
            }
            let now = Instant::now();
            self.retry_at = failure.as_ref().map(|_| now + self.options.retry_after);
            self.deadline = self.retry_at;
            let mut control = self.shared.control.lock();
            control.status.rebuilding = failure.is_some();
            control.status.last_error = failure;
            control.flush_done = call.ticket;
            self.shared.done.notify_all();
        }
    }

    /// Waits for work. Returns `None` if the index is closed.
    fn wait(&mut self) -> Option<Call> {
        loop {
            let notified = {
                let mut control = self.shared.control.lock();
                if control.closed {
                    return None;
                }
                if !control.commands.is_empty() || control.flush_requested > control.flush_done {
                    return Some(Call {
                        commands: std::mem::take(&mut control.commands),
                        ticket: control.flush_requested,
                    });
                }
                std::mem::take(&mut control.notified)
            };
            let now = Instant::now();
            if notified && self.retry_at.is_none() {
                let pending = self.pending();
                if pending >= self.options.commit_documents {
                    self.deadline = Some(now);
                } else if pending > 0 {
                    self.deadline.get_or_insert(now + self.options.commit_delay);
                }
            }
            if self.deadline.is_some_and(|deadline| deadline <= now) {
                let control = self.shared.control.lock();
                let ticket = control.flush_done;
                let commands = Vec::new();
                return Some(Call { commands, ticket });
            }
            self.sleep(now);
        }
    }

    /// Sleeps until a wake-up or the deadline. Releases the writer if the indexer stays idle.
    fn sleep(&mut self, now: Instant) {
        let idle = self.open.as_ref().is_some_and(OpenIndex::has_writer) && self.deadline.is_none();
        let until = if idle {
            Some(now + self.options.idle_after)
        } else {
            self.deadline
        };
        let mut control = self.shared.control.lock();
        let called = control.notified
            || control.closed
            || !control.commands.is_empty()
            || control.flush_requested > control.flush_done;
        if called {
            return;
        }
        let timed_out = match until {
            Some(until) => self.shared.wake.wait_until(&mut control, until).timed_out(),
            None => {
                self.shared.wake.wait(&mut control);
                false
            }
        };
        drop(control);
        if timed_out && idle {
            self.rest();
        }
    }

    /// Returns the number of timelines to index or to remove from the index.
    fn pending(&self) -> u64 {
        let of = |(table, attached): (&TableId, &Attached)| {
            let reader = attached.catalog.reader();
            match self.positions.get(table) {
                Some(position) if position.analyzers != *reader.analyzers() => reader.visible().len().max(1),
                Some(position) => {
                    let Difference { new, edited, gone } = position.difference(&reader);
                    (new | edited | gone).len()
                }
                None => reader.visible().len(),
            }
        };
        self.attached.iter().map(of).sum()
    }

    fn take(&mut self, command: IndexCommand) {
        match command {
            IndexCommand::Attach(catalog, edits) => {
                let verified = false;
                let attached = Attached {
                    catalog,
                    edits,
                    verified,
                };
                self.attached.insert(attached.catalog.table(), attached);
            }
            IndexCommand::Detach(table) => {
                self.attached.remove(&table);
                self.removed.insert(table);
            }
            IndexCommand::Keep(tables) => self.kept = Some(tables),
            IndexCommand::Rebuild => {
                self.open = None;
                self.remake = true;
            }
        }
    }

    /// Runs one round. Returns the error message if it fails or panics.
    fn guarded_round(&mut self) -> Option<String> {
        let failure = match catch_unwind(AssertUnwindSafe(|| self.round())) {
            Ok(Ok(())) => return None,
            Ok(Err(tantivy::TantivyError::LockFailure(error, _))) => {
                // Another process holds the lock of the index; its files must not be changed.
                self.open = None;
                error.to_string()
            }
            Ok(Err(error)) => {
                self.give_up();
                error.to_string()
            }
            Err(_) => {
                self.give_up();
                "panic while indexing".to_owned()
            }
        };
        tracing::warn!(error = failure, "search index failed");
        Some(failure)
    }

    /// Closes the index after a failure; the next round recreates it.
    fn give_up(&mut self) {
        self.remake = true;
        self.replacing = self.shared.snapshot.read().is_some();
        // Dropping a broken writer may panic, too.
        let open = self.open.take();
        if catch_unwind(AssertUnwindSafe(|| drop(open))).is_err() {
            tracing::warn!("panic while dropping the index writer");
        }
    }

    /// Waits for merges, releases the writer and its memory, and publishes the merged segments.
    fn rest(&mut self) {
        let rested = catch_unwind(AssertUnwindSafe(|| {
            self.open.as_mut().map_or(Ok(()), OpenIndex::release_writer)
        }));
        if matches!(rested, Ok(Ok(()))) {
            self.publish();
        } else {
            self.give_up();
        }
    }
}
