//! Creation, removal and rebuild of search indexes over rows; start and end of their indexers.
//!
//! The settings list the existing indexes. [`Engine::follow_searches`] starts and ends indexers so that they match the
//! settings. It is called after each change of settings. The scheduler calls it too, so that failed indexes are started
//! again.
//!
//! A rebuild with other columns adds a second index with the same name. Searches use the first until the second is
//! built; then the first is dropped.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashSet;
use parking_lot::Mutex;
use tideline_log::fail_points::around;
use tideline_model::{SearchIndexSpec, TableId, WideSpec};
use tideline_runtime::{Reservation, SupervisedThread};
use tideline_search_index::rows::{SHARDS_MAX, Sharding};
use tideline_wide_table::WideStore;

use super::document::Sources;
use super::indexer::{self, Task};
use super::routing::Routing;
use super::settings::{check_names, columns_of, with_routing};
use super::{IndexPhase, IndexState};
use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::wide_table::WideTable;

/// Name of the folder of the indexes, below the folder of the index of timelines.
const FOLDER: &str = "rows";

/// Returns the folder of an index over rows, below the folder of all indexes. The folders of its other shards are in
/// this folder.
pub(crate) fn folder_of(index_dir: &Path, id: TableId) -> PathBuf {
    index_dir.join(FOLDER).join(id.0.to_string())
}

/// Deletes the folder of an index. A folder that does not exist is not an error.
fn remove_folder(folder: &Path) -> Result<()> {
    around("search_index", "remove", || {
        match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(EngineError::Invalid(error.to_string())),
            _ => Ok(()),
        }
    })
}

/// Search indexes with a running indexer.
#[derive(Debug, Default)]
pub(crate) struct RowSearches(Mutex<Running>);

#[derive(Debug)]
struct Running {
    indexes: BTreeMap<TableId, RunningIndex>,
    /// True if folders of dropped indexes may exist.
    has_leftovers: bool,
    /// True after the database was closed.
    is_closed: bool,
}

impl Default for Running {
    fn default() -> Self {
        Self {
            indexes: BTreeMap::new(),
            // A crash may have left folders.
            has_leftovers: true,
            is_closed: false,
        }
    }
}

#[derive(Debug)]
struct RunningIndex {
    state: Arc<IndexState>,
    rows: Arc<WideStore>,
    thread: SupervisedThread,
    /// Memory of the writer of the index.
    _memory: Reservation,
}

impl Drop for RunningIndex {
    /// Ends the indexer. It commits the changes that it has claimed.
    fn drop(&mut self) {
        self.rows.close_search(self.state.id);
        self.thread.join();
    }
}

impl RowSearches {
    /// Returns the state of an index; `None` if it has no indexer.
    pub(super) fn state(&self, id: TableId) -> Option<Arc<IndexState>> {
        let running = self.0.lock();
        running.indexes.get(&id).map(|index| Arc::clone(&index.state))
    }

    /// Returns true after the database was closed.
    pub(super) fn is_closed(&self) -> bool {
        self.0.lock().is_closed
    }

    /// Returns the states of indexes, in the order of `specs`; `None` for an index without an indexer.
    pub(super) fn states<'s>(
        &self,
        specs: impl IntoIterator<Item = &'s SearchIndexSpec>,
    ) -> Vec<Option<Arc<IndexState>>> {
        let states = specs.into_iter().map(|spec| self.state(TableId(spec.id)));
        states.collect()
    }
}

impl Engine {
    /// Creates a search index. The id in `index` is ignored. Its indexer adds the rows of the table in the background.
    /// With `replace`, an index of the same name serves searches until the new one is built, and is dropped then.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::IndexExists`] without `replace` if the table has an index of this name,
    /// [`EngineError::Invalid`] or [`EngineError::OverLimit`] for a definition that does not fit the table,
    /// [`EngineError::Memory`] if there is too little memory for the writers of its shards, and the errors of
    /// [`wide_table`](Self::wide_table) and [`alter_table`](Self::alter_table).
    pub fn create_search_index(
        &self,
        table: &str,
        index: SearchIndexSpec,
        replace: bool,
    ) -> Result<Arc<WideTable>> {
        let alone = self.lock_settings();
        let wide = self.table_of_rows(table)?;
        self.check_definable(wide.table())?;
        let known = &wide.settings().search_indexes;
        if !replace && known.iter().any(|known| known.name == index.name) {
            return Err(EngineError::IndexExists {
                table: wide.table().name().clone(),
                index: index.name,
            });
        }
        check_names(&index)?;
        let index = with_routing(wide.layout(), index);
        self.check_search_memory(std::slice::from_ref(&index))?;
        around("search_index", "create", || {
            self.change_searches(&wide, |indexes| {
                // A replacement that is still being built is itself replaced.
                let mut of_name = 0;
                indexes.retain(|known| {
                    of_name += usize::from(known.name == index.name);
                    known.name != index.name || of_name == 1
                });
                indexes.push(SearchIndexSpec { id: 0, ..index });
            })
        })?;
        drop(alone);
        self.follow_searches();
        self.table_of_rows(table)
    }

    /// Checks that there is memory for the writers of new indexes. Without it, the indexes could not be started, and
    /// flushes would wait for them in vain.
    ///
    /// # Errors
    ///
    /// [`EngineError::Memory`].
    pub(crate) fn check_search_memory(&self, indexes: &[SearchIndexSpec]) -> Result<()> {
        let writers = indexes
            .iter()
            .map(|index| indexer::writer_bytes(index.shards.min(SHARDS_MAX as u16)));
        drop(
            self.settings
                .memory
                .reserve("search index of rows", writers.sum())?,
        );
        Ok(())
    }

    /// Drops a search index, and deletes its files.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::NoSuchIndex`] if the table has no search index of this name, and the errors of
    /// [`wide_table`](Self::wide_table) and [`alter_table`](Self::alter_table).
    pub fn drop_search_index(&self, table: &str, name: &str) -> Result<()> {
        let alone = self.lock_settings();
        let wide = self.table_of_rows(table)?;
        self.check_definable(wide.table())?;
        if !wide
            .settings()
            .search_indexes
            .iter()
            .any(|known| known.name == name)
        {
            return Err(wide.no_such_search_index(name));
        }
        around("search_index", "drop", || {
            self.change_searches(&wide, |indexes| indexes.retain(|index| index.name != name))
        })?;
        drop(alone);
        self.follow_searches();
        Ok(())
    }

    /// Starts the indexers of new indexes, ends the indexers of dropped indexes and deletes the files of dropped
    /// indexes. Also drops each index whose replacement is built. Called after each change of settings, and by the
    /// scheduler.
    pub fn follow_searches(&self) {
        self.swap_rebuilt();
        let mut running = self.row_searches.0.lock();
        if running.is_closed {
            return;
        }
        // Dropping a failed index releases its files, so that it can be opened again.
        let failed: BTreeMap<TableId, Option<String>> = running
            .indexes
            .extract_if(.., |_, index| index.state.phase() == IndexPhase::Failed)
            .map(|(id, index)| (id, index.state.status().last_error))
            .collect();
        let mut kept = HashSet::new();
        for table in self.wide_tables() {
            for spec in &table.settings().search_indexes {
                let id = TableId(spec.id);
                kept.insert(id);
                if self.unbuilt.lock().contains(table.table().name()) {
                    continue;
                }
                let Entry::Vacant(vacant) = running.indexes.entry(id) else {
                    continue;
                };
                // From now on, flushes wait for the index, even if it cannot be started yet.
                self.rows.expect_search(id);
                let last_error = failed.get(&id).cloned().flatten();
                match self.start_search_index(&table, spec, last_error) {
                    Ok(started) => drop(vacant.insert(started)),
                    Err(error) => {
                        tracing::error!(%error, index = spec.name, "a search index cannot be started; it is retried");
                    }
                }
            }
        }
        let dropped: Vec<RunningIndex> = running
            .indexes
            .extract_if(.., |id, _| !kept.contains(id))
            .map(|(_, index)| index)
            .collect();
        // The folders are listed before another thread can start a new index.
        let mut leftovers = match std::mem::take(&mut running.has_leftovers) {
            true => self.folders_except(&kept),
            false => Vec::new(),
        };
        // The last commit of a dropped index takes a while. Searches of other indexes must not wait for it.
        drop(running);
        for index in dropped {
            let id = index.state.id;
            drop(index);
            self.rows.forget_search(id);
            leftovers.push(self.search_folder(id));
        }
        for folder in leftovers {
            if let Err(error) = remove_folder(&folder) {
                tracing::warn!(%error, folder = %folder.display(), "a dropped search index was not deleted; it is retried");
                self.row_searches.0.lock().has_leftovers = true;
            }
        }
    }

    /// Ends all indexers. Each commits the changes that it has claimed.
    pub(crate) fn close_searches(&self) {
        let indexes = {
            let mut running = self.row_searches.0.lock();
            running.is_closed = true;
            std::mem::take(&mut running.indexes)
        };
        drop(indexes);
    }

    /// Returns the wide tables whose settings can be compiled.
    fn wide_tables(&self) -> Vec<Arc<WideTable>> {
        let tables = self.known_tables().into_iter();
        let wide = tables.filter(|table| table.spec().model.has_rows());
        wide.filter_map(|table| self.known_rows(table.name().as_str()).ok())
            .collect()
    }

    /// Returns the folder of an index.
    fn search_folder(&self, id: TableId) -> PathBuf {
        folder_of(&self.settings.index_dir, id)
    }

    /// Starts the indexer of an index.
    fn start_search_index(
        &self,
        table: &Arc<WideTable>,
        spec: &SearchIndexSpec,
        last_error: Option<String>,
    ) -> Result<RunningIndex> {
        let id = TableId(spec.id);
        let memory = self
            .settings
            .memory
            .reserve("search index of rows", indexer::writer_bytes(spec.shards))?;
        let routing = Routing::new(table.layout(), spec);
        let sharding = routing
            .as_ref()
            .map_or_else(Sharding::one, |routing| routing.sharding(Arc::clone(table)));
        let table_id = table.table().points().id();
        let state = Arc::new(IndexState::new(id, table_id, spec.tier, routing));
        state.status.lock().last_error = last_error;
        let task = Task {
            rows: Arc::clone(&self.rows),
            folder: self.search_folder(id),
            columns: columns_of(table.declared(), &spec.columns)?,
            sharding,
            sources: Sources::new(Arc::clone(table), &spec.columns),
            state: Arc::clone(&state),
            purge_delay: self.settings.purge_delay,
        };
        let supervisor = &self.settings.store.log.supervisor;
        let thread = supervisor.spawn(indexer::THREAD, move || indexer::run(task));
        let thread = thread.map_err(|error| EngineError::Invalid(error.to_string()))?;
        Ok(RunningIndex {
            state,
            rows: Arc::clone(&self.rows),
            thread,
            _memory: memory,
        })
    }

    /// Drops each index whose replacement is built.
    fn swap_rebuilt(&self) {
        for table in self.wide_tables() {
            if self.replaced(table.settings()).is_empty() {
                continue;
            }
            let _alone = self.lock_settings();
            let Ok(table) = self.known_rows(table.table().name().as_str()) else {
                continue;
            };
            let replaced = self.replaced(table.settings());
            let dropped = around("search_index", "swap", || {
                self.change_searches(&table, |indexes| {
                    indexes.retain(|index| !replaced.contains(&index.id));
                })
            });
            if let Err(error) = dropped {
                tracing::warn!(%error, "a replaced search index could not be dropped; it is retried");
            }
        }
    }

    /// Returns the ids of the indexes whose replacement, a later index of the same name, is built.
    fn replaced(&self, wide: &WideSpec) -> Vec<u32> {
        let specs = &wide.search_indexes;
        let is_built = |spec: &SearchIndexSpec| {
            let state = self.row_searches.state(TableId(spec.id));
            state.is_some_and(|state| state.phase() == IndexPhase::Built)
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

    /// Returns the folders of indexes that do not exist any more.
    fn folders_except(&self, kept: &HashSet<TableId>) -> Vec<PathBuf> {
        let Ok(folders) = std::fs::read_dir(self.settings.index_dir.join(FOLDER)) else {
            return Vec::new();
        };
        let is_left = |folder: &PathBuf| {
            let name = folder.file_name().and_then(|name| name.to_str());
            let id = name.and_then(|name| name.parse().ok()).map(TableId);
            id.is_some_and(|id| !kept.contains(&id))
        };
        let folders = folders.flatten().map(|folder| folder.path());
        folders.filter(is_left).collect()
    }

    /// Returns a line for each search index that does not serve searches.
    pub(crate) fn search_warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for table in self.known_tables() {
            let spec = table.spec();
            for index in spec.wide.iter().flat_map(|wide| &wide.search_indexes) {
                let state = self.row_searches.state(TableId(index.id));
                let status = state.map(|state| state.status.lock().clone());
                let is_waiting = status.as_ref().is_some_and(|status| status.is_waiting);
                let problem = match status.map(|status| (status.phase, status.last_error)) {
                    Some((IndexPhase::Built, _)) => continue,
                    Some((IndexPhase::Opening, None)) => "is being opened".to_owned(),
                    Some((_, None)) => "is being built".to_owned(),
                    Some((_, Some(error))) if is_waiting => {
                        format!("is being built, and waits until rows can be read: {error}")
                    }
                    Some((_, Some(error))) => format!("failed and is built again: {error}"),
                    None => "cannot be started; it is retried".to_owned(),
                };
                warnings.push(format!(
                    "search index {:?} of table {} {problem}",
                    index.name,
                    table.name()
                ));
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
        self.change_wide(table, |wide| change(&mut wide.search_indexes))
    }
}
