//! The search index as its users see it. The work behind it is in `search` (reading) and `indexer` (writing).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};
use roaring::RoaringBitmap;
use tideline_condition::{Condition, Matcher};
use tideline_model::TableId;
use tideline_runtime::{MemoryAccount, SupervisedThread, Supervisor};
use tideline_timeline_catalog::Catalog;

use crate::indexer::Indexer;
use crate::record::SeenLookup;
use crate::search::{Snapshot, search};
use crate::{Result, SearchError};

/// Name of the thread.
pub(crate) const THREAD: &str = "indexer";

/// The index over the catalogs of all tables, and the thread that feeds it.
///
/// Dropping it closes it. All methods may be called from many threads.
#[derive(Debug)]
pub struct SearchIndex {
    shared: Arc<Shared>,
    thread: SupervisedThread,
    memory: MemoryAccount,
}

/// When and with how much memory the index commits.
#[derive(Debug, Clone)]
pub struct IndexOptions {
    /// How long the first new timeline waits for others to be committed with it.
    pub commit_delay: Duration,
    /// New or edited timelines that are committed without waiting.
    pub commit_documents: u64,
    /// Memory of the one indexing thread, in bytes; tantivy takes no less than 15 MB.
    pub heap_bytes: usize,
    /// How long the writer and its memory are kept without work.
    pub idle_after: Duration,
    /// The pause after a failed commit.
    pub retry_after: Duration,
    /// Starts the indexer thread, and records whether it has panicked outside of a commit.
    pub supervisor: Supervisor,
    /// Patterns of conditions are reserved here.
    pub memory: MemoryAccount,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self {
            commit_delay: Duration::from_secs(1),
            commit_documents: 100_000,
            heap_bytes: 30_000_000,
            idle_after: Duration::from_secs(10),
            retry_after: Duration::from_secs(5),
            supervisor: Supervisor::default(),
            memory: MemoryAccount::default(),
        }
    }
}

/// How the index is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexStatus {
    /// Timelines that searches find through the index.
    pub documents: u64,
    /// Timelines that searches look at one by one, because they are new or edited.
    pub pending: u64,
    /// Whether the index is being built again, after damage or a missing folder.
    pub rebuilding: bool,
    /// What went wrong last; `None` once a commit has succeeded.
    pub last_error: Option<String>,
}

impl SearchIndex {
    /// Opens, or makes, the index in a folder of its own, and starts the indexer thread.
    ///
    /// Returns at once: the thread validates what is on disk, and until it has done so, searches look at every
    /// timeline. Files in the folder are deleted when they are not a sound index of this version.
    pub fn open(folder: &Path, options: IndexOptions) -> Result<Self> {
        let in_folder = |source| SearchError::Folder {
            path: folder.to_owned(),
            source,
        };
        std::fs::create_dir_all(folder).map_err(in_folder)?;
        let shared = Arc::new(Shared::default());
        let supervisor = options.supervisor.clone();
        let memory = options.memory.clone();
        let indexer = Indexer::new(PathBuf::from(folder), options, Arc::clone(&shared));
        let thread = supervisor.spawn(THREAD, move || indexer.run());
        let thread = thread.map_err(SearchError::Thread)?;
        // A flush must not wait for a thread that is gone.
        let waited_for = Arc::downgrade(&shared);
        supervisor.on_failure(move |_| {
            if let Some(shared) = waited_for.upgrade() {
                shared.control.lock().closed = true;
                shared.wake.notify_one();
                shared.done.notify_all();
            }
        });
        Ok(Self {
            shared,
            thread,
            memory,
        })
    }

    /// Feeds a table's catalog to the index. Call it before timelines are registered or edited.
    pub fn attach(&self, catalog: Arc<Catalog>) {
        let edits = catalog.reader().edit_counter();
        let table = catalog.table();
        let mut control = self.shared.control.lock();
        control.catalogs.insert(table, Arc::clone(&catalog));
        control.orders.push(Order::Attach(catalog, edits));
        self.shared.wake.notify_one();
    }

    /// Removes a dropped table from the index.
    pub fn detach(&self, table: TableId) {
        let mut control = self.shared.control.lock();
        control.catalogs.remove(&table);
        control.orders.push(Order::Detach(table));
        self.shared.wake.notify_one();
    }

    /// Removes what the index holds of tables that are not attached: call it once all tables are.
    pub fn detach_others(&self) {
        let mut control = self.shared.control.lock();
        let kept = control.catalogs.keys().copied().collect();
        control.orders.push(Order::Keep(kept));
        self.shared.wake.notify_one();
    }

    /// Says that timelines were announced, edited or removed. Cheap; answers do not depend on it.
    pub fn notify(&self) {
        self.shared.control.lock().notified = true;
        self.shared.wake.notify_one();
    }

    /// All visible timelines of a table that meet a condition, as ordinals.
    ///
    /// Exact and complete, whatever the index has reached; [`SearchError::Stopped`] where `seen` ends it. Two equal tags among 200,000 timelines take about
    /// 0.1 ms; a timeline that has to be looked at costs about 0.3 µs.
    pub fn search(
        &self,
        catalog: &Catalog,
        condition: &Condition,
        seen: &dyn SeenLookup,
    ) -> Result<RoaringBitmap> {
        self.matching(catalog, &self.compile(condition, seen)?, seen)
    }

    /// Checks a condition and compiles its patterns, with memory from the account of the options.
    pub fn compile(&self, condition: &Condition, seen: &dyn SeenLookup) -> Result<Matcher> {
        Ok(Matcher::compile(condition, &self.memory, &|| seen.is_stopped())?)
    }

    /// As [`search`](Self::search), for a condition that is checked.
    pub(crate) fn matching(
        &self,
        catalog: &Catalog,
        matcher: &Matcher,
        seen: &dyn SeenLookup,
    ) -> Result<RoaringBitmap> {
        let snapshot = self.shared.snapshot.read().clone();
        let (found, fault) = search(snapshot.as_deref(), catalog, matcher, seen);
        if let Some(fault) = fault {
            tracing::warn!(fault = fault.0, "search index is damaged and will be rebuilt");
            self.shared.snapshot.write().take();
            let mut control = self.shared.control.lock();
            control.status.last_error = Some(fault.0);
            control.status.rebuilding = true;
            control.orders.push(Order::Rebuild);
            self.shared.wake.notify_one();
        }
        // The hits found until then are a part only.
        match seen.is_stopped() {
            true => Err(SearchError::Stopped),
            false => Ok(found),
        }
    }

    /// How the index is doing.
    pub fn status(&self) -> IndexStatus {
        let snapshot = self.shared.snapshot.read().clone();
        let (catalogs, status) = {
            let control = self.shared.control.lock();
            let catalogs: Vec<Arc<Catalog>> = control.catalogs.values().cloned().collect();
            (catalogs, control.status.clone())
        };
        let (mut documents, mut pending) = (0, 0);
        for catalog in catalogs {
            let positions = snapshot.as_ref().map(|snapshot| &snapshot.positions);
            let position = positions.and_then(|positions| positions.get(&catalog.table()));
            let reader = catalog.reader();
            let Some(position) = position else {
                pending += reader.visible().len();
                continue;
            };
            let difference = position.difference(&reader);
            documents += position.indexed.len() - difference.gone.len();
            pending += (difference.new | difference.edited).len();
        }
        IndexStatus {
            documents,
            pending,
            ..status
        }
    }

    /// Waits until everything that was announced, edited or removed before the call is committed.
    pub fn flush(&self) -> Result<()> {
        let mut control = self.shared.control.lock();
        control.flush_asked += 1;
        let ticket = control.flush_asked;
        self.shared.wake.notify_one();
        while control.flush_done < ticket {
            if control.closed {
                return Err(SearchError::Closed);
            }
            self.shared.done.wait(&mut control);
        }
        match &control.status.last_error {
            Some(error) => Err(SearchError::Commit(error.clone())),
            None => Ok(()),
        }
    }

    /// Ends the indexer thread and waits for it. What is not yet committed is caught up at the next start.
    /// Searches go on to work. Idempotent.
    pub fn close(&self) {
        self.shared.control.lock().closed = true;
        self.shared.wake.notify_one();
        self.shared.done.notify_all();
        self.thread.join();
    }
}

impl Drop for SearchIndex {
    fn drop(&mut self) {
        self.close();
    }
}

/// What the indexer thread and its users share.
#[derive(Default)]
pub(crate) struct Shared {
    /// What searches use; `None` until the thread has opened the index.
    pub(crate) snapshot: RwLock<Option<Arc<Snapshot>>>,
    pub(crate) control: Mutex<Control>,
    /// Wakes the indexer.
    pub(crate) wake: Condvar,
    /// Wakes those that wait for a flush.
    pub(crate) done: Condvar,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// What the users want of the indexer, and what it tells them.
#[derive(Default)]
pub(crate) struct Control {
    pub(crate) catalogs: BTreeMap<TableId, Arc<Catalog>>,
    pub(crate) orders: Vec<Order>,
    pub(crate) notified: bool,
    pub(crate) flush_asked: u64,
    pub(crate) flush_done: u64,
    pub(crate) closed: bool,
    pub(crate) status: IndexStatus,
}

/// A change of what is indexed.
pub(crate) enum Order {
    /// A catalog, and its edit counter when it was handed over.
    Attach(Arc<Catalog>, u64),
    Detach(TableId),
    /// Detach all but these.
    Keep(Vec<TableId>),
    /// The index on disk is not sound.
    Rebuild,
}
