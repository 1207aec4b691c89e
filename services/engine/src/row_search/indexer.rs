//! Indexer thread of a search index over rows. One thread writes all shards of an index.
//!
//! The thread takes changes from the queue of the index, reads the current rows, and writes their documents. While the
//! index is being built, it also reads all rows in key order, a page at a time between the changes. A document always
//! reflects a row that was read after the change, so the order of changes and pages does not matter. A commit stores
//! the position in the journal and the position of the build, so that a restart continues there.

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hashbrown::HashSet;
use tideline_backend::{BackendError, Direction, PageLimit};
use tideline_log::fail_points::around;
use tideline_model::{KeyRange, SequenceNumber, TierScope};
use tideline_search_index::rows::{Document, RowColumn, RowIndex, RowIndexError, RowPosition, Sharding};
use tideline_wide_table::{QueueState, RowPage, SearchChange, StoredRow, WideError, WideStore};

use super::document::Sources;
use super::{IndexPhase, IndexState};
use crate::row_values::{bytes_of_hex, hex};

/// Name of the thread.
pub(super) const THREAD: &str = "row-indexer";
/// Memory of the writer of an index with one shard, in bytes.
const HEAP_BYTES: usize = 20_000_000;
/// Memory of the writer of each shard of an index with several shards, in bytes: the minimum of tantivy.
const SHARD_HEAP_BYTES: usize = 15_000_000;
/// Maximum time that a change waits before its commit starts.
const COMMIT_DELAY: Duration = Duration::from_millis(500);
/// Number of changes that triggers an immediate commit.
const COMMIT_CHANGES: usize = 100_000;
/// Maximum number of changes that are claimed in one call.
const CLAIMED_MAX: usize = 1_000;
/// Time without changes after which merged segments become visible without a commit.
const IDLE_AFTER: Duration = Duration::from_secs(10);
/// Interval at which the documents of expired rows are removed.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum time after which a build reads a page again that could not be read.
const BUILD_PAUSE: Duration = Duration::from_secs(1);
/// Maximum of this time.
const BUILD_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Page of rows that one step of a build reads.
const BUILD_PAGE: PageLimit = PageLimit {
    rows_max: 500,
    bytes_max: 1 << 20,
};

/// Returns the memory of the writer of each shard, in bytes.
fn heap_bytes(shards: usize) -> usize {
    match shards {
        1 => HEAP_BYTES,
        _ => SHARD_HEAP_BYTES,
    }
}

/// Returns the memory of all writers of an index, in bytes.
pub(super) fn writer_bytes(shards: u16) -> u64 {
    let shards = usize::from(shards);
    (shards * heap_bytes(shards)) as u64
}

/// Input of the thread of an index.
pub(super) struct Task {
    pub(super) rows: Arc<WideStore>,
    pub(super) folder: PathBuf,
    pub(super) columns: Vec<RowColumn>,
    pub(super) sharding: Sharding,
    pub(super) sources: Sources,
    pub(super) state: Arc<IndexState>,
    /// Delay of the removal of expired data.
    pub(super) purge_delay: Duration,
}

/// Runs until the queue is closed or the index fails. A failed index is opened and built again by
/// [`Engine::follow_searches`](crate::Engine::follow_searches).
pub(super) fn run(task: Task) {
    let (rows, state) = (Arc::clone(&task.rows), Arc::clone(&task.state));
    let ended = Indexer::open(task).and_then(|indexer| match indexer {
        Some(mut indexer) => indexer.follow_and_release(),
        None => Ok(()),
    });
    let Err(failure) = ended else {
        return;
    };
    tracing::warn!(error = %failure, index = state.id.0, "a search index of rows failed; it is built again");
    rows.abandon_search(state.id);
    {
        let mut status = state.status.lock();
        status.last_error = Some(failure.to_string());
        status.is_waiting = false;
    }
    state.set_phase(IndexPhase::Failed);
}

/// Open index, and the work that is not committed.
struct Indexer {
    rows: Arc<WideStore>,
    sources: Sources,
    state: Arc<IndexState>,
    purge_delay: Duration,
    index: Arc<RowIndex>,
    /// Number of the first part whose documents are kept.
    first_part: i32,
    /// Parts whose documents were removed because the index does not cover their tier.
    left: BTreeSet<i32>,
    /// Parts whose documents are being built, with the key at which the next page begins.
    parts: VecDeque<(i32, KeyRange)>,
    /// True if the build must begin with an empty index.
    is_fresh: bool,
    /// Pause of the build; `None` if its last page was read.
    pause: Option<Pause>,
    /// Position of the changes that were claimed, and of the build.
    position: RowPosition,
    /// Number of changes and rows since the last commit.
    count: usize,
    since: Instant,
}

/// Pause of a build after a page of rows could not be read.
struct Pause {
    /// Time of the next attempt.
    until: Instant,
    /// Error of the last attempt.
    reason: String,
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

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Self::Rows(error.into())
    }
}

impl Indexer {
    /// Opens the index and its queue. Returns `None` if the queue was closed meanwhile.
    fn open(task: Task) -> Result<Option<Self>, Failure> {
        let Task { rows, state, .. } = task;
        let heap_bytes = heap_bytes(task.sharding.count());
        let traits = task.sources.traits();
        let (index, position) =
            RowIndex::open(&task.folder, task.columns, traits, task.sharding, heap_bytes)?;
        let end = position.as_ref().map(|position| SequenceNumber(position.end));
        let Some(start) = rows.open_search(state.table, state.id, end) else {
            return Ok(None);
        };
        let position = position.filter(|_| start.is_current);
        let is_fresh = position.is_none();
        let position = position.unwrap_or(RowPosition {
            end: start.position.0,
            build: Some(String::new()),
        });
        let index = Arc::clone(state.index.get_or_init(|| Arc::new(index)));
        state.set_phase(match position.build {
            None => IndexPhase::Built,
            Some(_) => IndexPhase::Building,
        });
        Ok(Some(Self {
            rows,
            sources: task.sources,
            state,
            purge_delay: task.purge_delay,
            index,
            first_part: i32::MIN,
            left: BTreeSet::new(),
            parts: VecDeque::new(),
            is_fresh,
            pause: None,
            position,
            count: 0,
            since: Instant::now(),
        }))
    }

    /// Follows the changes, and releases the writer at the end, so that the index can be opened again.
    fn follow_and_release(&mut self) -> Result<(), Failure> {
        let ended = self.follow();
        self.index.release_writer()?;
        ended
    }

    /// Follows the changes until the queue is closed or the index fails.
    fn follow(&mut self) -> Result<(), Failure> {
        if self.is_fresh {
            // Waits for a move of a part that began without this index, so that the build reads the part in its new
            // tier.
            self.rows.wait_ending();
            around("search_index", "begin", || -> Result<(), Failure> {
                self.index.clear()?;
                self.commit()
            })?;
        }
        let mut expired = Instant::now();
        loop {
            let state = self.rows.wait_changes(self.state.id, self.patience());
            match state {
                QueueState::Closed => break,
                QueueState::Abandoned => return Err(Failure::Behind),
                // Segments that were merged since the last commit become visible, so the old ones can be deleted.
                QueueState::Idle if self.count == 0 && self.position.build.is_none() => {
                    self.index.reload()?;
                }
                QueueState::Idle | QueueState::Changes { .. } => {}
            }
            self.take()?;
            if self.position.build.is_some() && self.pause_left().is_zero() {
                self.build_page()?;
            }
            self.build_part()?;
            if expired.elapsed() >= EXPIRY_INTERVAL {
                expired = Instant::now();
                self.remove_expired()?;
            }
            let is_wanted = state == (QueueState::Changes { is_wanted: true });
            let is_due = self.since.elapsed() >= COMMIT_DELAY || self.count >= COMMIT_CHANGES;
            if is_wanted || (self.count > 0 && is_due) {
                self.commit()?;
            }
        }
        // Later changes are in the journal, and are claimed after the next start. A flush no longer waits for a closed
        // index, so all changes that are in the queue now must be committed.
        while self.take()? > 0 {}
        if self.count > 0 {
            self.commit()?;
        }
        Ok(())
    }

    /// Returns the time that the thread waits for changes if it has no other work.
    fn patience(&self) -> Duration {
        if !self.parts.is_empty() {
            return Duration::ZERO;
        }
        let until_page = match self.position.build {
            Some(_) => self.pause_left(),
            None => IDLE_AFTER,
        };
        match self.count {
            0 => until_page,
            _ => until_page.min(COMMIT_DELAY.saturating_sub(self.since.elapsed())),
        }
    }

    /// Returns the rest of the pause of the build.
    fn pause_left(&self) -> Duration {
        let until = self.pause.as_ref().map(|pause| pause.until);
        until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        })
    }

    /// Takes changes from the queue and indexes their rows. Returns the number of changes.
    fn take(&mut self) -> Result<usize, Failure> {
        let claimed = self.rows.claim_changes(self.state.id, CLAIMED_MAX);
        let mut keys = HashSet::new();
        for change in &claimed.changes {
            match change {
                SearchChange::Row(key) => drop(keys.insert(key.clone())),
                // Rows of the range that were written again later have separate changes.
                SearchChange::Range(range) => {
                    self.index_rows(std::mem::take(&mut keys))?;
                    self.index.delete_range(range)?;
                }
                SearchChange::Part(number) => {
                    self.index_rows(std::mem::take(&mut keys))?;
                    self.index.delete_part(*number)?;
                    // Replaces an earlier request for this part, whose move has ended.
                    self.parts.retain(|(other, _)| other != number);
                    self.parts.push_back((*number, KeyRange::ALL));
                }
            }
        }
        self.index_rows(keys)?;
        self.position.end = self.position.end.max(claimed.end.0);
        self.add_count(claimed.changes.len());
        Ok(claimed.changes.len())
    }

    fn add_count(&mut self, more: usize) {
        if self.count == 0 {
            self.since = Instant::now();
        }
        self.count += more;
    }

    /// Replaces the documents of rows with documents of their current state.
    fn index_rows(&self, keys: HashSet<Bytes>) -> Result<(), Failure> {
        let mut documents = Vec::with_capacity(keys.len());
        for key in &keys {
            let row = self.rows.row_with_hidden(self.state.table, key);
            match row.and_then(|row| row.map_or(Ok(None), |row| self.whole(row))) {
                Ok(Some(row)) => documents.extend(self.document(&row)?),
                Ok(None) | Err(WideError::NoTable(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let keys = keys.into_iter().map(|key| key.to_vec()).collect();
        Ok(self.index.replace(keys, documents)?)
    }

    /// Returns a row with its large values, if they were written with it; `None` if the row was deleted meanwhile.
    fn whole(&self, row: StoredRow) -> Result<Option<StoredRow>, WideError> {
        let (table, key) = (self.state.table, row.key.clone());
        let mut again = || self.rows.row_with_hidden(table, &key);
        self.rows.whole(table, row, &|_| true, &mut again)
    }

    /// Returns the document of a row; `None` if the index does not cover the tier of its part.
    fn document(&self, row: &StoredRow) -> Result<Option<Document>, Failure> {
        let (table, tier) = (self.state.table, self.state.tier);
        match self.rows.maintains_document(table, &row.key, tier) {
            Ok(true) => {}
            Ok(false) | Err(WideError::NoTable(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let damaged = |reason| WideError::Damaged {
            table: self.state.table,
            reason,
        };
        let document = self.sources.row(row).map_err(damaged)?;
        Ok(Some(self.index.document(&document)))
    }

    /// Indexes the rows of a page. Returns the rest of its range.
    fn index_page(&mut self, page: RowPage) -> Result<Option<KeyRange>, Failure> {
        let mut documents = Vec::with_capacity(page.rows.len());
        for row in &page.rows {
            match self.whole(row.clone()) {
                Ok(Some(row)) => documents.extend(self.document(&row)?),
                // The queue of a dropped table is closed soon.
                Ok(None) | Err(WideError::NoTable(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let keys = page.rows.iter().map(|row| row.key.to_vec()).collect();
        self.index.replace(keys, documents)?;
        self.add_count(page.rows.len());
        self.state.status.lock().rows_read += page.rows.len() as u64;
        Ok(page.next)
    }

    /// Indexes the next page of rows of a part whose documents are requested.
    fn build_part(&mut self) -> Result<(), Failure> {
        let Some((number, range)) = self.parts.pop_front() else {
            return Ok(());
        };
        let (table, numbers) = (self.state.table, number..=number);
        let page = self
            .rows
            .page_with_hidden_of(table, &numbers, &range, Direction::Ascending, BUILD_PAGE);
        let page = match page {
            // The queue of a dropped table is closed soon.
            Err(WideError::NoTable(_)) => return Ok(()),
            page => page?,
        };
        match self.index_page(page)? {
            Some(rest) => self.parts.push_front((number, rest)),
            None => {
                self.left.remove(&number);
                self.commit()?;
                self.state.set_part_built(number);
            }
        }
        Ok(())
    }

    /// Indexes the next page of rows of a build.
    fn build_page(&mut self) -> Result<(), Failure> {
        let start = self.position.build.as_deref().and_then(bytes_of_hex);
        let range = KeyRange {
            start: start.unwrap_or_default(),
            end: None,
        };
        let (table, tier) = (self.state.table, self.state.tier);
        let begun = Instant::now();
        let page = self.rows.page_to_index(table, tier, &range, BUILD_PAGE);
        let indexed = match page {
            Ok(page) => around("search_index", "page", || self.index_page(page)),
            Err(error) => Err(error.into()),
        };
        let next = match indexed {
            // The queue of a dropped table is closed soon.
            Err(Failure::Rows(WideError::NoTable(_))) => return Ok(()),
            // The position of the build has not changed, so the page is read again.
            Err(Failure::Rows(error)) if is_temporary(&error) => {
                self.pause(begun.elapsed(), error.to_string());
                return Ok(());
            }
            indexed => indexed?,
        };
        self.resume();
        match next {
            Some(next) => self.position.build = Some(hex(&next.start)),
            None => {
                self.position.build = None;
                around("search_index", "built", || self.commit())?;
                self.state.set_phase(IndexPhase::Built);
                tracing::info!(index = self.state.id.0, "a search index of rows is built");
            }
        }
        Ok(())
    }

    /// Begins a pause of the build, or extends it, after an attempt of the duration `attempt`. Logs only its begin.
    fn pause(&mut self, attempt: Duration, reason: String) {
        if self.pause.is_none() {
            tracing::warn!(
                error = %reason,
                index = self.state.id.0,
                "the build of a search index waits, because rows cannot be read; it is continued when they can be read"
            );
        }
        {
            let mut status = self.state.status.lock();
            status.last_error = Some(reason.clone());
            status.is_waiting = true;
        }
        // During an attempt, which can last until a timeout of the archive, no changes are indexed, so writes and flushes
        // wait. Longer attempts are therefore less frequent.
        let pause = attempt.saturating_mul(3).clamp(BUILD_PAUSE, BUILD_PAUSE_MAX);
        self.pause = Some(Pause {
            until: Instant::now() + pause,
            reason,
        });
    }

    /// Ends the pause of the build, if there is one.
    fn resume(&mut self) {
        if self.pause.take().is_some() {
            tracing::info!(index = self.state.id.0, "the build of a search index continues");
            let mut status = self.state.status.lock();
            status.last_error = None;
            status.is_waiting = false;
        }
    }

    /// Removes the documents of rows that expired at least the purge delay ago, of dropped parts, and of parts that
    /// have moved to a tier that the index does not cover. Searches do not find these documents any more.
    fn remove_expired(&mut self) -> Result<(), Failure> {
        let left = match self.state.tier {
            TierScope::All => BTreeSet::new(),
            tier => self.rows.parts_without_documents(self.state.table, tier),
        };
        for number in left.difference(&self.left) {
            self.index.delete_part(*number)?;
        }
        if left != self.left {
            self.left = left;
            self.add_count(1);
        }
        if let Ok(Some(first)) = self.rows.first_parts(self.state.table)
            && first.kept > self.first_part
        {
            self.index.delete_parts_before(first.kept)?;
            self.first_part = first.kept;
            self.add_count(1);
        }
        if let Ok(Some(expired)) = self.rows.expired_at(self.state.table) {
            let delay = i64::try_from(self.purge_delay.as_nanos()).unwrap_or(i64::MAX);
            self.index.delete_expired(expired.saturating_sub(delay))?;
            self.add_count(1);
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failure> {
        around("search_index", "commit", || -> Result<(), Failure> {
            Ok(self.index.commit(&self.position)?)
        })?;
        self.rows
            .confirm_changes(self.state.id, SequenceNumber(self.position.end));
        self.state.status.lock().last_error = self.pause.as_ref().map(|pause| pause.reason.clone());
        self.count = 0;
        self.since = Instant::now();
        Ok(())
    }
}

/// Returns true if rows could not be read because the archive or the backend does not serve them now. The index is
/// intact, so a new build from the beginning would not help.
fn is_temporary(error: &WideError) -> bool {
    match error {
        WideError::Archive(_) | WideError::NoArchive => true,
        WideError::Backend(error) => error.kind().is_retryable(),
        _ => false,
    }
}
