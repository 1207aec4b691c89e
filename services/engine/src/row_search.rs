//! Search indexes over the rows of wide tables.
//!
//! An index is a part of the settings of its table, and has a separate folder below the folder of the search index of
//! timelines. An [`Indexer`](indexer) thread per index opens the folder and follows the changes of the table. The
//! folder can always be deleted: the thread then reads all rows and builds the index again.
//!
//! | module | holds |
//! |---|---|
//! | `settings` | checks of the settings of an index, forms of its columns |
//! | `routing` | assignment of rows to the shards of an index |
//! | `lifecycle` | creation, removal and rebuild; start and end of the threads |
//! | `indexer` | the thread of an index |
//! | `document` | a row as input of its document |
//! | `trace` | state of one row in the indexes, for its diagnosis |
//!
//! This file contains the searches, and the functions by which writes and reads wait for an index.

mod document;
mod indexer;
mod lifecycle;
mod routing;
pub(crate) mod settings;
mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hashbrown::HashSet;
use parking_lot::{Condvar, Mutex};
use tideline_condition::Node;
use tideline_model::{SearchIndexSpec, SequenceNumber, TableId, TableName, TierScope};
pub use tideline_search_index::Highlight;
use tideline_search_index::SearchError;
pub use tideline_search_index::rows::{
    FACET_GROUPS_MAX, PartsShown, RowColumn, RowFacetKey, RowFacetQuery, RowFacets, RowForm, RowHit,
    RowIndex, RowIndexError, RowMark, RowMetric, RowPage, RowQuery, RowSort, RowSortBy, RowSums,
    RowTestAccess, RowTestPlan, RowWindows, RowsShown, ShardSet, SortValue, highlights,
};
pub use tideline_wide_table::SearchBacklog;
use tideline_wide_table::{MoveEnd, WideError};

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::wide_table::WideTable;
pub(crate) use lifecycle::{RowSearches, folder_of};
pub use routing::Routing;
pub use trace::{LeftOut, SearchTrace};

/// Writes to a table wait if a search index lacks a change that is older than this.
const LAG_MAX: Duration = Duration::from_millis(700);
/// Maximum time that a write waits for a search index that is behind.
pub const BACK_PRESSURE_MAX: Duration = Duration::from_secs(10);
/// Maximum time that a search waits for an index that is being opened after a start.
const OPENING_MAX: Duration = Duration::from_secs(10);

/// Interval at which a move that waits for the documents of a part checks whether it must end.
const PART_PATIENCE: Duration = Duration::from_millis(200);

/// Search index that serves searches.
#[derive(Debug, Clone)]
pub struct IndexOfRows {
    state: Arc<IndexState>,
    index: Arc<RowIndex>,
    /// Tiers whose rows the search finds.
    tier: TierScope,
    /// Shards that the search reads.
    shards: ShardSet,
}

impl IndexOfRows {
    /// Limits searches to these shards. They must contain all rows that the searches can match.
    #[must_use]
    pub fn in_shards(mut self, shards: ShardSet) -> Self {
        self.shards = shards;
        self
    }

    /// Returns the division of the rows over shards; `None` if the index has one shard.
    pub fn routing(&self) -> Option<&Routing> {
        self.state.routing.as_ref()
    }

    /// Returns the number of shards that searches read.
    pub fn shards_read(&self) -> usize {
        self.shards.len_of(self.index.shards())
    }

    /// Returns the number of segments in the shards that searches read.
    pub fn segments_read(&self) -> u64 {
        self.index.segments_of(self.shards)
    }

    /// Returns the number of documents in the shards that searches read.
    pub fn documents_read(&self) -> u64 {
        self.index.documents_of(self.shards)
    }

    /// Limits searches to the rows of these tiers.
    ///
    /// # Errors
    ///
    /// [`WideError::TierNotCovered`] if the index covers only another tier. `name` is the name of the index.
    pub fn in_tier(mut self, tier: TierScope, name: &str) -> Result<Self> {
        let covered = self.state.tier;
        self.tier = match (tier, covered) {
            (TierScope::All, covered) => covered,
            (tier, covered) if covered.is_all() || covered == tier => tier,
            _ => {
                return Err(EngineError::Rows(WideError::TierNotCovered {
                    index: name.to_owned(),
                    covered: covered.name(),
                    missing: tier.name(),
                }));
            }
        };
        Ok(self)
    }

    /// Returns the tiers whose rows searches find.
    pub fn tier(&self) -> TierScope {
        self.tier
    }

    /// Returns the id.
    pub fn id(&self) -> TableId {
        self.state.id
    }

    /// Counts a search or count that uses these columns.
    pub fn note_search(&self, columns: &[String]) {
        self.state.used.lock().searches += 1;
        columns.iter().for_each(|column| self.note_column(column));
    }

    /// Counts the use of an indexed column by a search or count.
    fn note_column(&self, column: &str) {
        let mut used = self.state.used.lock();
        if let Some(count) = used.columns.get_mut(column) {
            *count += 1;
        } else if self.index.columns().iter().any(|known| known.name == column) {
            used.columns.insert(column.to_owned(), 1);
        }
    }

    /// Returns the index: its columns, the check of conditions, and searches.
    pub fn index(&self) -> &RowIndex {
        &self.index
    }
}

/// Phase of a search index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IndexPhase {
    /// Its files are being opened and checked. Searches wait.
    #[default]
    Opening,
    /// Rows without a document are being read. Searches are refused.
    Building,
    /// Every row has its document.
    Built,
    /// It has failed, and is opened again soon. Searches are refused.
    Failed,
}

/// State of a search index, for status reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchStatus {
    /// Phase.
    pub phase: IndexPhase,
    /// Number of rows that the running or last build has read.
    pub rows_read: u64,
    /// Number of documents in the index.
    pub documents: u64,
    /// Error of the last commit, or of the last read of rows by the build; `None` after a success. The index is built
    /// again after an error of a commit.
    pub last_error: Option<String>,
    /// True while the build waits because rows cannot be read. It is continued when they can be read.
    pub is_waiting: bool,
}

impl SearchStatus {
    /// Returns true if the index serves searches.
    pub fn is_built(&self) -> bool {
        self.phase == IndexPhase::Built
    }
}

/// State that an indexer shares with the callers.
#[derive(Debug)]
struct IndexState {
    id: TableId,
    table: TableId,
    /// Tiers of the parts whose rows have documents.
    tier: TierScope,
    /// Division of the rows over shards; `None` if the index has one shard.
    routing: Option<Routing>,
    /// Numbers of the parts whose documents are built and committed.
    parts: Mutex<BTreeSet<i32>>,
    /// Signals a built part.
    part_built: Condvar,
    /// Set when the indexer has opened the index.
    index: OnceLock<Arc<RowIndex>>,
    status: Mutex<SearchStatus>,
    /// Signals a new phase.
    changed: Condvar,
    used: Mutex<SearchUse>,
}

/// Search indexes that a request waits for. The wait needs no thread: the caller repeats
/// [`Engine::awaited_end`] until it returns a result.
#[derive(Debug)]
pub struct AwaitedSearches {
    table: TableName,
    /// Indexes that are not ready yet.
    indexes: Vec<AwaitedIndex>,
}

/// Index that a request waits for.
#[derive(Debug)]
struct AwaitedIndex {
    id: TableId,
    name: String,
    /// True if the index must serve searches.
    is_build_awaited: bool,
    /// The index must hold all changes below this position. It is determined once, so that later writes do not extend
    /// the wait.
    target: SequenceNumber,
}

/// Use of a search index since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchUse {
    /// Number of searches and counts.
    pub searches: u64,
    /// For each column, number of searches and counts that tested it, sorted by it or grouped by it.
    pub columns: BTreeMap<String, u64>,
}

impl IndexState {
    fn new(id: TableId, table: TableId, tier: TierScope, routing: Option<Routing>) -> Self {
        Self {
            id,
            table,
            tier,
            routing,
            parts: Mutex::default(),
            part_built: Condvar::new(),
            index: OnceLock::new(),
            status: Mutex::default(),
            changed: Condvar::new(),
            used: Mutex::default(),
        }
    }

    fn set_phase(&self, phase: IndexPhase) {
        self.status.lock().phase = phase;
        self.changed.notify_all();
    }

    fn phase(&self) -> IndexPhase {
        self.status.lock().phase
    }

    /// Waits until the index is opened, and returns its phase. Also returns at the deadline.
    fn wait_opened(&self, deadline: Instant) -> IndexPhase {
        let mut status = self.status.lock();
        while status.phase == IndexPhase::Opening {
            if self.changed.wait_until(&mut status, deadline).timed_out() {
                break;
            }
        }
        status.phase
    }

    /// Waits until the index is opened. Returns it if it serves searches.
    fn searchable(self: Arc<Self>, deadline: Instant) -> Option<IndexOfRows> {
        let phase = self.wait_opened(deadline);
        let index = self.index.get().filter(|_| phase == IndexPhase::Built).cloned()?;
        Some(self.with(index))
    }

    fn with(self: Arc<Self>, index: Arc<RowIndex>) -> IndexOfRows {
        IndexOfRows {
            tier: self.tier,
            shards: ShardSet::ALL,
            state: self,
            index,
        }
    }

    /// Records that the documents of a part are committed.
    fn set_part_built(&self, number: i32) {
        self.parts.lock().insert(number);
        self.part_built.notify_all();
    }

    /// Waits until the documents of a part are committed. Returns false if they are not after `patience`.
    fn wait_part_built(&self, number: i32, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut parts = self.parts.lock();
        while !parts.contains(&number) {
            if self.part_built.wait_until(&mut parts, deadline).timed_out() {
                return parts.contains(&number);
            }
        }
        true
    }

    fn status(&self) -> SearchStatus {
        SearchStatus {
            documents: self.index.get().map_or(0, |index| index.documents()),
            ..self.status.lock().clone()
        }
    }
}

impl Engine {
    /// Returns an index that can be searched. `name` may be omitted if the table has only one. Waits while the index is
    /// being opened after a start, at most 10 seconds.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::NoSuchIndex`] for an unknown name, [`EngineError::Invalid`] if the name is missing, and
    /// [`EngineError::SearchNotReady`] while the index is being built.
    pub fn search_index(&self, table: &WideTable, name: Option<&str>) -> Result<IndexOfRows> {
        let specs = &table.settings().search_indexes;
        let first = specs.first().map(|spec| spec.name.as_str());
        let is_only = specs.iter().all(|spec| Some(spec.name.as_str()) == first);
        let name = match (name, first) {
            (Some(name), _) => name,
            (None, Some(first)) if is_only => first,
            (None, Some(_)) => {
                return Err(EngineError::Invalid(format!(
                    "table {} has several search indexes; name one of {} with `index`",
                    table.table().name(),
                    names_of(specs).join(", ")
                )));
            }
            (None, None) => {
                return Err(EngineError::Invalid(format!(
                    "table {} has no search index; create one first",
                    table.table().name()
                )));
            }
        };
        let mut of_name = specs.iter().filter(|spec| spec.name == name).peekable();
        if of_name.peek().is_none() {
            return Err(table.no_such_search_index(name));
        }
        let states = self.row_searches.states(of_name);
        let deadline = Instant::now() + OPENING_MAX;
        let mut states = states.into_iter().flatten();
        let index = states.find_map(|state| state.searchable(deadline));
        index.ok_or_else(|| EngineError::SearchNotReady {
            table: table.table().name().clone(),
            index: name.to_owned(),
        })
    }

    /// Returns the number of search indexes that a table can get in addition to those that it has.
    pub fn room_for_search_indexes(&self, table: &WideTable) -> usize {
        let count = names_of(&table.settings().search_indexes).len();
        self.settings.tables.search_indexes_max.saturating_sub(count)
    }

    /// Returns the status and the backlog of a search index; `None` if it is not open.
    pub fn search_index_status(&self, id: TableId) -> Option<(SearchStatus, SearchBacklog)> {
        let state = self.row_searches.state(id)?;
        Some((state.status(), self.rows.search_backlog(id).unwrap_or_default()))
    }

    /// Returns the number of documents of a search index and the bytes of its files, as of the last commit; `None` if
    /// it is not open.
    pub(crate) fn search_size(&self, id: TableId) -> Option<(u64, u64)> {
        let state = self.row_searches.state(id)?;
        let index = state.index.get()?;
        Some((index.documents(), index.bytes().ok()?))
    }

    /// Returns the use of a search index; `None` if it is not open.
    pub fn search_use(&self, id: TableId) -> Option<SearchUse> {
        let state = self.row_searches.state(id)?;
        let used = state.used.lock().clone();
        Some(used)
    }

    /// Waits until the changes up to and including `sequence` are visible in an index. Returns false if they are not
    /// visible at the deadline.
    pub fn wait_searchable(&self, index: &IndexOfRows, sequence: SequenceNumber, deadline: Instant) -> bool {
        self.rows.wait_searchable(index.id(), sequence, deadline)
    }

    /// Begins a wait until searches find all writes to a table so far. An index that serves searches must be built. A
    /// replacement that is being built must only follow the writes.
    pub fn await_writes(&self, table: &WideTable) -> AwaitedSearches {
        let specs = &table.settings().search_indexes;
        // While an index is replaced, two indexes have its name. The first one serves searches. The second one may
        // serve the next search.
        let mut names = HashSet::new();
        let indexes = specs.iter().map(|spec| AwaitedIndex {
            id: TableId(spec.id),
            name: spec.name.clone(),
            is_build_awaited: names.insert(spec.name.as_str()),
            target: self.rows.search_target(TableId(spec.id)),
        });
        AwaitedSearches {
            indexes: indexes.collect(),
            table: table.table().name().clone(),
        }
    }

    /// Begins a wait until all search indexes of a table, including replacements, are built.
    pub fn await_builds(&self, table: &WideTable) -> AwaitedSearches {
        let specs = table.settings().search_indexes.iter();
        let indexes = specs.map(|spec| AwaitedIndex {
            id: TableId(spec.id),
            name: spec.name.clone(),
            is_build_awaited: true,
            target: SequenceNumber(0),
        });
        AwaitedSearches {
            indexes: indexes.collect(),
            table: table.table().name().clone(),
        }
    }

    /// Returns the result of a wait, without blocking: true if all awaited indexes are ready, false if one of them was
    /// dropped, and `None` while the wait must continue. If an index was replaced meanwhile, the wait continues with
    /// the index that has its name now.
    pub fn awaited_end(&self, awaited: &mut AwaitedSearches) -> Option<bool> {
        if self.row_searches.is_closed() {
            return Some(false);
        }
        for index in &mut awaited.indexes {
            if !self.follow_name(&awaited.table, index) {
                return Some(false);
            }
        }
        awaited.indexes.retain(|index| !self.is_ready(index));
        awaited.indexes.is_empty().then_some(true)
    }

    /// Replaces an awaited index that was dropped by the index that has its name now. Returns false if no index has
    /// this name.
    fn follow_name(&self, table: &TableName, index: &mut AwaitedIndex) -> bool {
        if self.row_searches.state(index.id).is_some() {
            return true;
        }
        let Ok(table) = self.known_rows(table.as_str()) else {
            return false;
        };
        let specs = &table.settings().search_indexes;
        if specs.iter().any(|spec| TableId(spec.id) == index.id) {
            // Its indexer is about to start.
            return true;
        }
        let Some(spec) = specs.iter().find(|spec| spec.name == index.name) else {
            return false;
        };
        index.id = TableId(spec.id);
        index.is_build_awaited = true;
        // Its queue may have begun after the awaited writes. It is then built from rows with these writes.
        index.target = index.target.min(self.rows.search_target(index.id));
        true
    }

    /// Returns true if an awaited index is ready.
    fn is_ready(&self, index: &AwaitedIndex) -> bool {
        let state = self.row_searches.state(index.id);
        let is_built = state.is_some_and(|state| state.phase() == IndexPhase::Built);
        (is_built || !index.is_build_awaited)
            && (index.target.0 == 0 || self.rows.request_searchable(index.id, index.target) == Some(true))
    }

    /// Returns true if a search index of a table is so far behind that writes must wait for it.
    pub fn is_search_behind(&self, table: &WideTable) -> bool {
        let mut specs = table.settings().search_indexes.iter();
        specs.any(|spec| self.rows.is_search_behind(TableId(spec.id), LAG_MAX))
    }

    fn rows_shown<'p>(&self, index: &IndexOfRows, parts: Option<&'p PartsShown>) -> Result<RowsShown<'p>> {
        let table = index.state.table;
        let first = self.rows.first_parts(table)?;
        Ok(RowsShown {
            expired_at: self.rows.expired_at(table)?,
            first_part: first.map(|first| first.visible),
            parts,
            shards: index.shards,
        })
    }

    /// Returns the parts whose rows a search finds; `None` for all parts. A part that moves is in one of the tiers at
    /// every moment, so each of its rows is found by the indexes of one tier.
    fn parts_shown(&self, index: &IndexOfRows) -> Option<PartsShown> {
        let cold = || self.rows.cold_parts(index.state.table);
        match index.tier {
            TierScope::All => None,
            TierScope::Hot => Some(PartsShown::Except(cold())),
            TierScope::Cold => Some(PartsShown::Only(cold())),
        }
    }

    /// Adds the documents of a part to a search index, and waits until they are committed. The move of the part needs
    /// these documents. Returns the result of the move if the move cannot continue; otherwise `None`.
    pub(crate) fn index_part(
        &self,
        search: TableId,
        number: i32,
        proceed: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Option<MoveEnd> {
        let Some(state) = self.row_searches.state(search) else {
            return Some(MoveEnd::Unready);
        };
        state.parts.lock().remove(&number);
        if !self.rows.index_part(search, number) {
            return Some(MoveEnd::Unready);
        }
        while !state.wait_part_built(number, PART_PATIENCE) {
            if proceed().is_break() {
                return Some(MoveEnd::Stopped);
            }
            let running = self.row_searches.state(search);
            let is_running = running.is_some_and(|running| Arc::ptr_eq(&running, &state));
            if !is_running || state.phase() == IndexPhase::Failed {
                return Some(MoveEnd::Unready);
            }
        }
        None
    }

    /// Waits, at most 10 seconds, for the search indexes of a table that are far behind. Writes can therefore be faster
    /// than the indexes only for a short time.
    pub fn wait_for_searches(&self, table: &WideTable) {
        let deadline = Instant::now() + BACK_PRESSURE_MAX;
        for spec in &table.settings().search_indexes {
            self.rows.wait_search_age(TableId(spec.id), LAG_MAX, deadline);
        }
    }

    /// Returns the page of rows that a search finds in an index, as of the last commit of the index.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::SearchNotReady`] if the index is damaged; it is then built again.
    pub fn search_rows(
        &self,
        table: &WideTable,
        index: &IndexOfRows,
        query: &RowQuery<'_>,
    ) -> Result<RowPage> {
        let parts = self.parts_shown(index);
        let page = index.index.search(query, self.rows_shown(index, parts.as_ref())?);
        page.map_err(|error| self.damaged_search(table, index, &error))
    }

    /// Passes to `take` the stored keys of all rows that a condition matches in an index, as of the last commit of the
    /// index. Each key is passed once. Ends early if `take` returns false or `is_stopped` returns true.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::SearchNotReady`] if the index is damaged; it is then built again.
    pub fn search_keys(
        &self,
        table: &WideTable,
        index: &IndexOfRows,
        root: &Node,
        is_stopped: &dyn Fn() -> bool,
        take: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<()> {
        let parts = self.parts_shown(index);
        let shown = self.rows_shown(index, parts.as_ref())?;
        let passed = index.index.each_key(root, shown, is_stopped, take);
        passed.map_err(|error| self.damaged_search(table, index, &error))
    }

    /// Plans a test of a search in an index, as of the last commit of the index; see [`RowIndex::plan_test`].
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::SearchNotReady`] if the index is damaged; it is then built again.
    pub fn plan_row_test(
        &self,
        table: &WideTable,
        index: &IndexOfRows,
        test: &Node,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<RowTestPlan> {
        let parts = self.parts_shown(index);
        let shown = self.rows_shown(index, parts.as_ref())?;
        let plan = index.index.plan_test(test, shown, is_stopped);
        plan.map_err(|error| self.damaged_search(table, index, &error))
    }

    /// Counts the rows that a search finds in an index by their values, as of the last commit of the index.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::SearchNotReady`] if the index is damaged; it is then built again. Returns
    /// [`EngineError::Search`] for too many groups.
    pub fn facet_rows(
        &self,
        table: &WideTable,
        index: &IndexOfRows,
        query: &RowFacetQuery<'_>,
    ) -> Result<RowFacets> {
        let parts = self.parts_shown(index);
        let facets = index.index.facets(query, self.rows_shown(index, parts.as_ref())?);
        facets.map_err(|error| match error {
            SearchError::Rows(error) => self.damaged_search(table, index, &error),
            error => error.into(),
        })
    }

    /// Begins to build a damaged index again, and returns the error of the search that has found the damage.
    fn damaged_search(&self, table: &WideTable, index: &IndexOfRows, error: &RowIndexError) -> EngineError {
        let id = index.id();
        tracing::warn!(%error, index = id.0, "a search index of rows is damaged; it is built again");
        index.state.set_phase(IndexPhase::Building);
        self.rows.abandon_search(id);
        let mut specs = table.settings().search_indexes.iter();
        let spec = specs.find(|spec| spec.id == id.0);
        EngineError::SearchNotReady {
            table: table.table().name().clone(),
            index: spec.map_or_else(String::new, |spec| spec.name.clone()),
        }
    }
}

/// Returns the distinct names of indexes. An index and its replacement have the same name.
fn names_of(specs: &[SearchIndexSpec]) -> Vec<String> {
    let mut names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
    names.sort();
    names.dedup();
    names
}

impl WideTable {
    /// Returns the error for a name that no search index has.
    pub fn no_such_search_index(&self, name: &str) -> EngineError {
        EngineError::NoSuchIndex {
            table: self.table().name().clone(),
            index: name.to_owned(),
            known: names_of(&self.settings().search_indexes),
        }
    }
}
