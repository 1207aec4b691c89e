//! Indexer thread of a search index over rows.
//!
//! The thread takes changes from the queue of the index, reads the current rows, and writes their documents. While the
//! index is being built, it also reads all rows in key order, a page at a time between the changes. A document always
//! reflects a row that was read after the change, so the order of changes and pages does not matter. A commit stores the
//! position in the journal and the position of the build, so that a restart continues there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hashbrown::HashSet;
use tideline_backend::{Direction, PageLimit};
use tideline_model::{KeyRange, SequenceNumber};
use tideline_search_index::rows::{Document, RowIndexError, RowPosition};
use tideline_wide_table::{QueueState, SearchChange, StoredRow, WideError, WideStore};

use super::IndexOfRows;
use super::document::Sources;
use crate::row_values::{bytes_of_hex, hex};

/// Name of the thread.
pub(super) const THREAD: &str = "row-indexer";
/// Memory of the writer of an index, in bytes. Tantivy needs at least 15 MB.
pub(super) const HEAP_BYTES: usize = 20_000_000;
/// Maximum time that a change waits before its commit starts.
const COMMIT_DELAY: Duration = Duration::from_millis(500);
/// Number of changes that triggers an immediate commit.
const COMMIT_CHANGES: usize = 100_000;
/// Number of changes that are taken at once.
const TAKEN_MAX: usize = 1_000;
/// Time without changes after which the memory of the writer is released.
const IDLE_AFTER: Duration = Duration::from_secs(10);
/// Interval at which the documents of expired rows are removed.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);
/// Page of rows that one step of a build reads.
const BUILD_PAGE: PageLimit = PageLimit {
    rows_max: 500,
    bytes_max: 1 << 20,
};

pub(super) struct Indexer {
    pub(super) rows: Arc<WideStore>,
    pub(super) sources: Sources,
    pub(super) index: Arc<IndexOfRows>,
    /// Delay of the removal of expired data.
    pub(super) purge_delay: Duration,
}

/// State at the start of the thread.
pub(super) struct Start {
    position: RowPosition,
    is_fresh: bool,
}

/// Work that is not committed.
struct Work {
    /// Position of the changes that were taken, and of the build.
    position: RowPosition,
    /// Number of changes and rows since the last commit.
    count: usize,
    since: Instant,
}

impl Work {
    fn build_key(&self) -> Option<Vec<u8>> {
        bytes_of_hex(self.position.build.as_deref()?)
    }
}

/// Failure of the index or of a read of rows.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("it did not follow the writes")]
    Behind,
    #[error(transparent)]
    Index(#[from] RowIndexError),
    #[error(transparent)]
    Rows(#[from] WideError),
}

impl Indexer {
    /// Opens the queue of the index. Must be called before the thread starts, so that no change is missed.
    pub(super) fn start(&self, position: Option<RowPosition>) -> Start {
        let end = position.as_ref().map(|position| SequenceNumber(position.end));
        let start = self.rows.open_search(self.index.table, self.index.id, end);
        let position = position.filter(|_| start.is_current);
        let is_fresh = position.is_none();
        let position = position.unwrap_or(RowPosition {
            end: start.position.0,
            build: Some(String::new()),
        });
        self.index.status.lock().is_built = position.build.is_none();
        Start { position, is_fresh }
    }

    /// Runs until the queue is closed or the index fails. A failed index is opened and built again by
    /// [`Engine::follow_searches`](crate::Engine::follow_searches).
    pub(super) fn run(&self, start: Start) {
        let Err(failure) = self.follow(start) else {
            return;
        };
        tracing::warn!(error = %failure, index = self.index.id.0, "a search index of rows failed; it is built again");
        self.rows.abandon_search(self.index.id);
        let mut status = self.index.status.lock();
        status.last_error = Some(failure.to_string());
        status.is_built = false;
        status.has_failed = true;
    }

    /// Follows the changes until the queue is closed or the index fails.
    fn follow(&self, start: Start) -> Result<(), Failure> {
        let index = &self.index.index;
        let mut work = Work {
            position: start.position,
            count: 0,
            since: Instant::now(),
        };
        if start.is_fresh {
            index.clear()?;
            self.index.status.lock().rows_read = 0;
            self.commit(&mut work)?;
        }
        let mut expired = Instant::now();
        loop {
            let patience = match (&work.position.build, work.count) {
                (Some(_), _) => Duration::ZERO,
                (None, 0) => IDLE_AFTER,
                (None, _) => COMMIT_DELAY.saturating_sub(work.since.elapsed()),
            };
            let state = self.rows.wait_changes(self.index.id, patience);
            match state {
                QueueState::Closed => break,
                QueueState::Abandoned => {
                    return Err(Failure::Behind);
                }
                QueueState::Idle if work.count == 0 && work.position.build.is_none() => {
                    index.release_writer()?;
                }
                QueueState::Idle | QueueState::Changes { .. } => {}
            }
            self.take(&mut work)?;
            if work.position.build.is_some() {
                self.build_page(&mut work)?;
            }
            if expired.elapsed() >= EXPIRY_INTERVAL {
                expired = Instant::now();
                self.remove_expired(&mut work)?;
            }
            let is_wanted = state == (QueueState::Changes { is_wanted: true });
            let is_due = work.since.elapsed() >= COMMIT_DELAY || work.count >= COMMIT_CHANGES;
            if is_wanted || (work.count > 0 && is_due) {
                self.commit(&mut work)?;
            }
        }
        // The changes that the queue still holds are in the journal, and are taken after the next start. A flush that
        // runs now does not wait, so everything up to here must be committed.
        while self.take(&mut work)? > 0 {}
        if work.count > 0 {
            self.commit(&mut work)?;
        }
        index.release_writer()?;
        Ok(())
    }

    /// Takes changes from the queue and indexes their rows. Returns the number of changes.
    fn take(&self, work: &mut Work) -> Result<usize, Failure> {
        let taken = self.rows.take_changes(self.index.id, TAKEN_MAX);
        let mut keys = HashSet::new();
        for change in &taken.changes {
            match change {
                SearchChange::Row(key) => drop(keys.insert(key.clone())),
                // Rows of the range that were written again since are changes of their own.
                SearchChange::Range(range) => {
                    self.index_rows(std::mem::take(&mut keys))?;
                    self.index.index.delete_range(range)?;
                }
            }
        }
        self.index_rows(keys)?;
        work.position.end = work.position.end.max(taken.end.0);
        self.count(work, taken.changes.len());
        Ok(taken.changes.len())
    }

    fn count(&self, work: &mut Work, more: usize) {
        if work.count == 0 {
            work.since = Instant::now();
        }
        work.count += more;
    }

    /// Replaces the documents of rows by those of their current state.
    fn index_rows(&self, keys: HashSet<Bytes>) -> Result<(), Failure> {
        let mut documents = Vec::with_capacity(keys.len());
        for key in &keys {
            match self.rows.row(self.index.table, key) {
                Ok(Some(row)) => documents.push(self.document(&row)?),
                Ok(None) | Err(WideError::NoTable(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let keys = keys.into_iter().map(|key| key.to_vec()).collect();
        Ok(self.index.index.replace(keys, documents)?)
    }

    fn document(&self, row: &StoredRow) -> Result<Document, Failure> {
        let damaged = |reason| WideError::Damaged {
            table: self.index.table,
            reason,
        };
        let document = self.sources.row(row).map_err(damaged)?;
        Ok(self.index.index.document(&document))
    }

    /// Indexes the next page of rows of a build.
    fn build_page(&self, work: &mut Work) -> Result<(), Failure> {
        let range = KeyRange {
            start: work.build_key().unwrap_or_default(),
            end: None,
        };
        let page = match self
            .rows
            .page(self.index.table, &range, Direction::Ascending, BUILD_PAGE)
        {
            // The queue of a dropped table is closed soon.
            Err(WideError::NoTable(_)) => return Ok(()),
            page => page?,
        };
        let documents = page.rows.iter().map(|row| self.document(row));
        let documents = documents.collect::<Result<Vec<_>, _>>()?;
        let keys = page.rows.iter().map(|row| row.key.to_vec()).collect();
        self.index.index.replace(keys, documents)?;
        self.count(work, page.rows.len());
        self.index.status.lock().rows_read += page.rows.len() as u64;
        match page.next {
            Some(next) => work.position.build = Some(hex(&next.start)),
            None => {
                work.position.build = None;
                self.commit(work)?;
                self.index.set_built();
                tracing::info!(index = self.index.id.0, "a search index of rows is built");
            }
        }
        Ok(())
    }

    /// Removes the documents of rows that have expired long ago. They are hidden from searches already.
    fn remove_expired(&self, work: &mut Work) -> Result<(), Failure> {
        if let Ok(Some(expired)) = self.rows.expired_at(self.index.table) {
            let delay = i64::try_from(self.purge_delay.as_nanos()).unwrap_or(i64::MAX);
            self.index.index.delete_expired(expired.saturating_sub(delay))?;
            self.count(work, 1);
        }
        Ok(())
    }

    fn commit(&self, work: &mut Work) -> Result<(), Failure> {
        self.index.index.commit(&work.position)?;
        self.rows
            .confirm_changes(self.index.id, SequenceNumber(work.position.end));
        self.index.status.lock().last_error = None;
        work.count = 0;
        work.since = Instant::now();
        Ok(())
    }
}
