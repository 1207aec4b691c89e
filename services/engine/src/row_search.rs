//! Search indexes over the rows of wide tables: opening, creation, removal, rebuild and searches.
//!
//! An index is a part of the settings of its table, and has a folder of its own below the folder of the search index of
//! timelines. An [`Indexer`](indexer) thread per index follows the changes of the table. The folder can always be
//! deleted: the thread then reads all rows and builds the index again.
//!
//! A rebuild with other columns adds a second index with the same name. Searches use the first until the second is
//! built; then the first is dropped.

mod document;
mod indexer;
pub(crate) mod settings;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashSet;
use parking_lot::{Condvar, Mutex};
use tideline_model::{SearchIndexSpec, SequenceNumber, TableId, TableModel, TableSpec, WideSpec};
use tideline_runtime::{Reservation, SupervisedThread};
pub use tideline_search_index::Highlight;
use tideline_search_index::SearchError;
pub use tideline_search_index::rows::{
    FACET_GROUPS_MAX, RowColumn, RowFacetKey, RowFacetQuery, RowFacets, RowForm, RowHit, RowIndex,
    RowIndexError, RowMark, RowMetric, RowPage, RowQuery, RowSort, RowSortBy, RowSums, SortValue, highlights,
};
pub use tideline_wide_table::SearchBacklog;
use tideline_wide_table::WideStore;

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::wide_table::WideTable;
use document::Sources;
use indexer::Indexer;
use settings::columns_of;

/// Age of the oldest change that an index does not hold, above which writes to its table wait.
const LAG_MAX: Duration = Duration::from_secs(1);
/// Maximum time that a write waits for a search index.
const BACK_PRESSURE_MAX: Duration = Duration::from_secs(10);
/// Name of the folder of the indexes, below the folder of the index of timelines.
const FOLDER: &str = "rows";

/// Open search indexes over rows.
#[derive(Debug, Default)]
pub(crate) struct RowSearches {
    open: Mutex<BTreeMap<TableId, Open>>,
    /// True after the database was closed.
    is_closed: Mutex<bool>,
}

#[derive(Debug)]
struct Open {
    index: Arc<IndexOfRows>,
    rows: Arc<WideStore>,
    thread: SupervisedThread,
    /// Memory of the writer of the index.
    _memory: Reservation,
}

impl Drop for Open {
    /// Ends the indexer. It commits the changes that it has taken.
    fn drop(&mut self) {
        self.rows.close_search(self.index.id);
        self.thread.join();
    }
}

/// Search index with the state of its indexer.
#[derive(Debug)]
pub struct IndexOfRows {
    id: TableId,
    table: TableId,
    index: RowIndex,
    status: Mutex<SearchStatus>,
    /// Signals the end of a build.
    built: Condvar,
}

/// State of a search index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchStatus {
    /// True if every row has its document. Searches are refused before.
    pub is_built: bool,
    /// Number of rows that the running or last build has read.
    pub rows_read: u64,
    /// Number of documents in the index.
    pub documents: u64,
    /// Error of the last commit; `None` after a success. The index is built again after an error.
    pub last_error: Option<String>,
    /// True if the indexer has ended after an error. The index is opened again soon.
    has_failed: bool,
}

impl IndexOfRows {
    /// Returns the id.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Returns the index: its columns, the check of conditions, and searches.
    pub fn index(&self) -> &RowIndex {
        &self.index
    }

    /// Waits until the index is built. Returns false if it is not built at the deadline.
    fn wait_built(&self, deadline: Instant) -> bool {
        let mut status = self.status.lock();
        while !status.is_built {
            if self.built.wait_until(&mut status, deadline).timed_out() {
                return false;
            }
        }
        true
    }

    fn set_built(&self) {
        self.status.lock().is_built = true;
        self.built.notify_all();
    }

    /// Returns the state.
    pub fn status(&self) -> SearchStatus {
        SearchStatus {
            documents: self.index.documents(),
            ..self.status.lock().clone()
        }
    }
}

impl Engine {
    /// Creates a search index. The id in `index` is ignored. Its indexer adds the rows of the table in the background.
    /// With `replace`, an index of the same name serves searches until the new one is built, and is dropped then.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::IndexExists`] without `replace` if the table has an index of this name,
    /// [`EngineError::Invalid`] or [`EngineError::OverLimit`] for a definition that does not fit the table, and the
    /// errors of [`wide_table`](Self::wide_table) and [`alter_table`](Self::alter_table).
    pub fn create_search_index(
        &self,
        table: &str,
        index: SearchIndexSpec,
        replace: bool,
    ) -> Result<Arc<WideTable>> {
        let alone = self.lock_settings();
        let wide = self.wide_table(table)?;
        let known = &wide.settings().search_indexes;
        if !replace && known.iter().any(|known| known.name == index.name) {
            return Err(EngineError::IndexExists {
                table: wide.table().name().clone(),
                index: index.name,
            });
        }
        self.change_searches(&wide, |indexes| {
            // A replacement that is still being built is replaced itself.
            let mut of_name = 0;
            indexes.retain(|known| {
                of_name += usize::from(known.name == index.name);
                known.name != index.name || of_name == 1
            });
            indexes.push(SearchIndexSpec { id: 0, ..index });
        })?;
        drop(alone);
        self.follow_searches();
        self.wide_table(table)
    }

    /// Drops a search index, and deletes its files.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::NoSuchIndex`] if the table has no search index of this name, and the errors of
    /// [`wide_table`](Self::wide_table) and [`alter_table`](Self::alter_table).
    pub fn drop_search_index(&self, table: &str, name: &str) -> Result<()> {
        let alone = self.lock_settings();
        let wide = self.wide_table(table)?;
        if !wide
            .settings()
            .search_indexes
            .iter()
            .any(|known| known.name == name)
        {
            return Err(wide.no_such_search_index(name));
        }
        self.change_searches(&wide, |indexes| indexes.retain(|index| index.name != name))?;
        drop(alone);
        self.follow_searches();
        Ok(())
    }

    /// Returns an index that can be searched. `name` may be omitted if the table has only one.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::NoSuchIndex`] for an unknown name, [`EngineError::Invalid`] if the name is missing, and
    /// [`EngineError::SearchNotReady`] while the index is being built.
    pub fn search_index(&self, table: &WideTable, name: Option<&str>) -> Result<Arc<IndexOfRows>> {
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
                    names(specs)
                )));
            }
            (None, None) => {
                return Err(EngineError::Invalid(format!(
                    "table {} has no search index; create one first",
                    table.table().name()
                )));
            }
        };
        let of_name: Vec<TableId> = specs
            .iter()
            .filter(|spec| spec.name == name)
            .map(|spec| TableId(spec.id))
            .collect();
        if of_name.is_empty() {
            return Err(table.no_such_search_index(name));
        }
        let open = self.row_searches.open.lock();
        let mut found = of_name.iter().filter_map(|id| open.get(id));
        let built = found.find(|open| open.index.status.lock().is_built);
        built
            .map(|open| Arc::clone(&open.index))
            .ok_or_else(|| EngineError::SearchNotReady {
                table: table.table().name().clone(),
                index: name.to_owned(),
            })
    }

    /// Returns the status and the backlog of a search index; `None` if it is not open.
    pub fn search_index_status(&self, id: TableId) -> Option<(SearchStatus, SearchBacklog)> {
        let index = Arc::clone(&self.row_searches.open.lock().get(&id)?.index);
        Some((index.status(), self.rows.search_backlog(id).unwrap_or_default()))
    }

    /// Waits until all search indexes of a table are built. Returns false if they are not built at the deadline.
    pub fn wait_searches_built(&self, table: &WideTable, deadline: Instant) -> bool {
        let specs = &table.settings().search_indexes;
        let indexes: Vec<Arc<IndexOfRows>> = {
            let open = self.row_searches.open.lock();
            let found = specs.iter().filter_map(|spec| open.get(&TableId(spec.id)));
            found.map(|open| Arc::clone(&open.index)).collect()
        };
        indexes.len() == specs.len() && indexes.iter().all(|index| index.wait_built(deadline))
    }

    /// Waits until the changes up to and including `sequence` are visible in an index. Returns false if they are not
    /// visible at the deadline.
    pub fn wait_searchable(&self, index: &IndexOfRows, sequence: SequenceNumber, deadline: Instant) -> bool {
        self.rows.wait_searchable(index.id, sequence, deadline)
    }

    /// Waits until the changes up to and including `sequence` are visible in all search indexes of a table that serve
    /// searches. Returns false if they are not visible at the deadline, or if an index is not built before.
    pub fn wait_all_searchable(
        &self,
        table: &WideTable,
        sequence: SequenceNumber,
        deadline: Instant,
    ) -> bool {
        let specs = &table.settings().search_indexes;
        // While an index is replaced, the first of its name serves searches. The second may serve the next one.
        let mut names = HashSet::new();
        let indexes: Vec<(bool, Option<Arc<IndexOfRows>>)> = {
            let open = self.row_searches.open.lock();
            let index =
                |spec: &SearchIndexSpec| open.get(&TableId(spec.id)).map(|open| Arc::clone(&open.index));
            let indexes = specs
                .iter()
                .map(|spec| (names.insert(spec.name.as_str()), index(spec)));
            indexes.collect()
        };
        indexes.into_iter().all(|(is_first, index)| {
            index.is_some_and(|index| {
                (!is_first || index.wait_built(deadline))
                    && self.rows.wait_searchable(index.id, sequence, deadline)
            })
        })
    }

    /// Returns true if a search index of a table is so far behind that writes wait for it.
    pub fn is_search_behind(&self, table: &WideTable) -> bool {
        let mut specs = table.settings().search_indexes.iter();
        specs.any(|spec| self.rows.is_search_behind(TableId(spec.id), LAG_MAX))
    }

    /// Waits for search indexes of a table that are far behind, at most 10 seconds: writes must not be faster than the
    /// index for long. Other tables are not affected.
    pub(crate) fn wait_for_searches(&self, table: &WideTable) {
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
        let query = RowQuery {
            expired_at: self.rows.expired_at(index.table)?,
            ..*query
        };
        let page = index.index.search(&query);
        page.map_err(|error| self.damaged_search(table, index, &error))
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
        let query = RowFacetQuery {
            expired_at: self.rows.expired_at(index.table)?,
            ..*query
        };
        index.index.facets(&query).map_err(|error| match error {
            SearchError::Rows(error) => self.damaged_search(table, index, &error),
            error => error.into(),
        })
    }

    /// Begins to build a damaged index again, and returns the error of the search that has found the damage.
    fn damaged_search(&self, table: &WideTable, index: &IndexOfRows, error: &RowIndexError) -> EngineError {
        tracing::warn!(%error, index = index.id.0, "a search index of rows is damaged; it is built again");
        index.status.lock().is_built = false;
        self.rows.abandon_search(index.id);
        let mut specs = table.settings().search_indexes.iter();
        let spec = specs.find(|spec| spec.id == index.id.0);
        EngineError::SearchNotReady {
            table: table.table().name().clone(),
            index: spec.map_or_else(String::new, |spec| spec.name.clone()),
        }
    }

    /// Makes the open indexes those of the settings: opens new ones, closes dropped ones and deletes their files.
    /// Also replaces each index whose rebuild has ended. Called after each change of settings, and by the scheduler.
    pub fn follow_searches(&self) {
        if *self.row_searches.is_closed.lock() {
            return;
        }
        self.swap_rebuilt();
        let mut open = self.row_searches.open.lock();
        // Dropping a failed index releases its files, so that it can be created again.
        let failed: BTreeMap<TableId, String> = open
            .extract_if(.., |_, open| open.index.status.lock().has_failed)
            .map(|(id, open)| (id, open.index.status().last_error.unwrap_or_default()))
            .collect();
        let mut kept = HashSet::new();
        for table in self.tables() {
            if table.spec().model != TableModel::Wide {
                continue;
            }
            let Ok(wide) = self.wide_table(table.name().as_str()) else {
                continue;
            };
            for spec in &wide.settings().search_indexes {
                let id = TableId(spec.id);
                kept.insert(id);
                if let Entry::Vacant(vacant) = open.entry(id) {
                    match self.open_search_index(&wide, spec) {
                        Ok(opened) => {
                            opened.index.status.lock().last_error = failed.get(&id).cloned();
                            vacant.insert(opened);
                        }
                        Err(error) => {
                            tracing::error!(%error, index = spec.name, "a search index cannot be opened; it is retried");
                        }
                    }
                }
            }
        }
        let dropped: Vec<Open> = open
            .extract_if(.., |id, _| !kept.contains(id))
            .map(|(_, open)| open)
            .collect();
        // The last commit of a dropped index takes a while, in which searches of other indexes must not wait.
        drop(open);
        for open in dropped {
            let id = open.index.id;
            drop(open);
            self.rows.forget_search(id);
        }
        self.remove_folders(&kept);
    }

    /// Ends all indexers. Each commits the changes that it has taken.
    pub(crate) fn close_searches(&self) {
        *self.row_searches.is_closed.lock() = true;
        drop(std::mem::take(&mut *self.row_searches.open.lock()));
    }

    /// Returns the folder of an index.
    fn search_folder(&self, id: TableId) -> PathBuf {
        self.settings.index_dir.join(FOLDER).join(id.0.to_string())
    }

    fn open_search_index(&self, table: &Arc<WideTable>, spec: &SearchIndexSpec) -> Result<Open> {
        let id = TableId(spec.id);
        let columns = columns_of(table.declared(), &spec.columns)?;
        let memory = self
            .settings
            .memory
            .reserve("search index of rows", indexer::HEAP_BYTES as u64)?;
        let failed = |error: RowIndexError| EngineError::Invalid(error.to_string());
        let opened = RowIndex::open(&self.search_folder(id), columns, indexer::HEAP_BYTES);
        let (index, position) = opened.map_err(failed)?;
        let index = Arc::new(IndexOfRows {
            id,
            table: table.table().points().id(),
            index,
            status: Mutex::default(),
            built: Condvar::new(),
        });
        let indexer = Indexer {
            rows: Arc::clone(&self.rows),
            sources: Sources::new(Arc::clone(table), &spec.columns),
            index: Arc::clone(&index),
            purge_delay: self.settings.purge_delay,
        };
        let start = indexer.start(position);
        let thread = self
            .settings
            .store
            .log
            .supervisor
            .spawn(indexer::THREAD, move || indexer.run(start));
        let thread = thread.map_err(|error| EngineError::Invalid(error.to_string()))?;
        Ok(Open {
            index,
            rows: Arc::clone(&self.rows),
            thread,
            _memory: memory,
        })
    }

    /// Drops each index that a built one of the same name replaces.
    fn swap_rebuilt(&self) {
        for table in self.tables() {
            let spec = table.spec();
            let Some(wide) = spec.wide.as_deref().filter(|_| spec.model == TableModel::Wide) else {
                continue;
            };
            let replaced = self.replaced(wide);
            if replaced.is_empty() {
                continue;
            }
            let _alone = self.lock_settings();
            let Ok(table) = self.wide_table(table.name().as_str()) else {
                continue;
            };
            let dropped = self.change_searches(&table, |indexes| {
                indexes.retain(|index| !replaced.contains(&index.id));
            });
            if let Err(error) = dropped {
                tracing::warn!(%error, "a replaced search index could not be dropped; it is retried");
            }
        }
    }

    /// Returns the ids of the indexes that a later one of the same name replaces.
    fn replaced(&self, wide: &WideSpec) -> Vec<u32> {
        let specs = &wide.search_indexes;
        let open = self.row_searches.open.lock();
        let is_built = |spec: &SearchIndexSpec| {
            open.get(&TableId(spec.id))
                .is_some_and(|open| open.index.status.lock().is_built)
        };
        let is_replaced = |(at, spec): &(usize, &SearchIndexSpec)| {
            let mut later = specs[at + 1..].iter();
            later.any(|later| later.name == spec.name && is_built(later))
        };
        specs
            .iter()
            .enumerate()
            .filter(is_replaced)
            .map(|(_, spec)| spec.id)
            .collect()
    }

    /// Deletes the folders of indexes that do not exist any more.
    fn remove_folders(&self, kept: &HashSet<TableId>) {
        let Ok(folders) = std::fs::read_dir(self.settings.index_dir.join(FOLDER)) else {
            return;
        };
        for folder in folders.flatten() {
            let name = folder.file_name();
            let id = name.to_str().and_then(|name| name.parse().ok()).map(TableId);
            if id.is_some_and(|id| !kept.contains(&id))
                && let Err(error) = std::fs::remove_dir_all(folder.path())
            {
                tracing::warn!(%error, folder = %folder.path().display(), "a dropped search index was not deleted");
            }
        }
    }

    /// Returns a line for each search index that is being built or has failed.
    pub(crate) fn search_warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for table in self.tables() {
            let spec = table.spec();
            let specs = spec.wide.iter().flat_map(|wide| &wide.search_indexes);
            for index in specs {
                let status = self.search_index_status(TableId(index.id));
                let (name, table) = (&index.name, table.name());
                match status.map(|(status, _)| status) {
                    Some(SearchStatus { is_built: true, .. }) => {}
                    Some(SearchStatus {
                        last_error: Some(error),
                        ..
                    }) => warnings.push(format!(
                        "search index {name:?} of table {table} failed and is built again: {error}"
                    )),
                    Some(_) => {
                        warnings.push(format!("search index {name:?} of table {table} is being built"));
                    }
                    None => warnings.push(format!(
                        "search index {name:?} of table {table} cannot be opened; it is retried"
                    )),
                }
            }
        }
        warnings
    }

    /// Changes the list of search indexes. The caller holds the lock of the settings.
    fn change_searches(
        &self,
        table: &WideTable,
        change: impl FnOnce(&mut Vec<SearchIndexSpec>),
    ) -> Result<()> {
        let mut spec = TableSpec::clone(&table.table().spec());
        if let Some(wide) = spec.wide.as_deref_mut() {
            change(&mut wide.search_indexes);
        }
        self.alter_table(table.table().name().as_str(), spec)?;
        Ok(())
    }
}

fn names(specs: &[SearchIndexSpec]) -> String {
    let mut names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    names.dedup();
    names.join(", ")
}

impl WideTable {
    /// Returns the error for a name that no search index has.
    pub fn no_such_search_index(&self, name: &str) -> EngineError {
        let mut known: Vec<String> = self
            .settings()
            .search_indexes
            .iter()
            .map(|spec| spec.name.clone())
            .collect();
        known.dedup();
        EngineError::NoSuchIndex {
            table: self.table().name().clone(),
            index: name.to_owned(),
            known,
        }
    }
}
