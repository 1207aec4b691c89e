//! Database with one wide table, for random tests of rows.
//!
//! The database can be closed and opened again on the same backend, and the test sets its clock.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tideline_backend_cassandra::fixture::ScratchKeyspace;
use tideline_backend_fjall::{FjallBackend, FjallOptions};
use tideline_engine::archive::{Archive, ArchiveSettings};
use tideline_engine::backend::Backend;
use tideline_engine::backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_engine::check::check_database;
use tideline_engine::model::{ManualClock, TableModel, TableName, TableSpec, Timestamp, WideSpec};
use tideline_engine::row_search::AwaitedSearches;
use tideline_engine::runtime::Helpers;
use tideline_engine::{Engine, EngineError, Settings, WideTable};
use tideline_openapi::condition::RowFilter;
use tideline_openapi::row::{RowIntegers, RowsBody};
use tideline_openapi::row_search::{CreateSearchIndex, SearchEnd, SearchRows};
use tideline_rows::read::ScanTerms;
use tideline_rows::search::Search;
use tideline_rows::write::write;
use tideline_rows::{PageLimits, RowsError, Scan, Selection, WriteSettings};
use tideline_testkit::cassandra::shared_node;

pub(crate) const SECOND: i64 = 1_000_000_000;
pub(crate) const TABLE: &str = "orders";
pub(crate) const START: i64 = 1_800_000_000 * SECOND;
const PATIENCE: Duration = Duration::from_secs(60);

/// Function that opens the backend of a database.
pub(crate) type OpenBackend = Box<dyn Fn() -> Arc<dyn Backend>>;

pub(crate) fn fjall(folder: &Path) -> Arc<dyn Backend> {
    Arc::new(FjallBackend::open(folder, FjallOptions::default()).expect("fjall opens its folder"))
}

/// Returns a function that opens an in-memory backend.
pub(crate) fn memory(character: Character) -> OpenBackend {
    let disk = MemoryDisk::new(character);
    Box::new(move || Arc::new(MemoryBackend::open(&disk)))
}

/// Returns a function that opens a backend on a node of Cassandra; `None` after a message if there is no node.
pub(crate) fn cluster() -> Option<OpenBackend> {
    let keyspace = ScratchKeyspace::create(shared_node()?).expect("a keyspace");
    Some(Box::new(move || {
        Arc::new(keyspace.open().expect("the cluster answers"))
    }))
}

/// Database whose backend outlives the engine.
pub(crate) struct Database {
    engine: Option<Engine>,
    open_backend: OpenBackend,
    pub(crate) clock: ManualClock,
    folder: TempDir,
}

impl Database {
    /// Creates a database without the table. Its clock shows the time `now`, in nanoseconds since 1970-01-01T00:00:00Z.
    pub(crate) fn empty(open_backend: OpenBackend, now: i64) -> Self {
        let mut database = Self {
            engine: None,
            open_backend,
            clock: ManualClock::new(Timestamp::from_nanos_clamped(now)),
            folder: tempfile::tempdir().expect("a folder"),
        };
        database.open();
        database
    }

    pub(crate) fn new(open_backend: OpenBackend, wide: &Value) -> Self {
        let database = Self::empty(open_backend, START);
        let wide: WideSpec = serde_json::from_value(wide.clone()).expect("settings");
        let spec = TableSpec {
            model: TableModel::Wide,
            wide: Some(Box::new(wide)),
            ..TableSpec::default()
        };
        let name = TableName::new(TABLE).expect("a name");
        database.engine().create_table(name, spec).expect("a table");
        database
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("it is open")
    }

    pub(crate) fn table(&self) -> Arc<WideTable> {
        self.engine().wide_table(TABLE).expect("it exists")
    }

    pub(crate) fn open(&mut self) {
        let mut settings = Settings::new(self.index_folder());
        settings.rows.buffer_bytes = 32 << 10;
        // Helpers read the first pages of merged scans.
        settings.helpers = Arc::new(Helpers::start("helper", 2).expect("threads start"));
        settings.store.archive = Some(Arc::new(self.archive()));
        let engine = Engine::open((self.open_backend)(), Arc::new(self.clock.clone()), settings);
        self.engine = Some(engine.expect("the engine opens"));
    }

    /// Returns the archive of the database. Its files are written to [`Self::target`].
    pub(crate) fn archive(&self) -> Archive {
        let temporary = self.folder.path().join("temporary");
        Archive::open(ArchiveSettings::new(temporary)).expect("the archive opens")
    }

    /// Returns the address of the archive target.
    pub(crate) fn target(&self) -> String {
        let target = self.folder.path().join("target");
        std::fs::create_dir_all(&target).expect("a folder");
        format!("file://{}", target.display())
    }

    pub(crate) fn index_folder(&self) -> std::path::PathBuf {
        self.folder.path().join("index")
    }

    pub(crate) fn close(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.close().expect("it closes");
        }
    }

    /// Checks all stored data of a closed database. Returns the notes of the check.
    pub(crate) fn check_stored(&self) -> Vec<String> {
        let backend = (self.open_backend)();
        let report = check_database(backend.as_ref());
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
        backend.close().expect("it closes");
        report.notes
    }

    /// Deletes the files of the search indexes, if there are any.
    pub(crate) fn remove_index(&self) {
        use std::io::ErrorKind;
        loop {
            match std::fs::remove_dir_all(self.index_folder().join("rows")) {
                // An index has created a file in the meantime.
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
                Err(error) if error.kind() != ErrorKind::NotFound => panic!("{error}"),
                _ => return,
            }
        }
    }

    pub(crate) fn create_index(&self, columns: &Value, replace: bool) {
        self.create_search_index(
            &json!({"name": "all", "columns": columns, "replace": replace}),
            replace,
        );
    }

    pub(crate) fn create_search_index(&self, index: &Value, replace: bool) {
        let index = index.clone();
        let index: CreateSearchIndex = serde_json::from_value(index).expect("a definition");
        let created = self.engine().create_search_index(TABLE, index.into(), replace);
        created.expect("it is created");
    }

    /// Waits until all search indexes are complete and hold every change.
    pub(crate) fn settle(&self) {
        let engine = self.engine();
        let begun = Instant::now();
        // An index that has failed, because its files were deleted, is opened again.
        let mut is_settled = false;
        while !is_settled {
            assert!(begun.elapsed() < PATIENCE, "the index follows in time");
            engine.follow_searches();
            is_settled = self.are_ready(engine.await_builds(&self.table()))
                && self.are_ready(engine.await_writes(&self.table()));
        }
        engine.follow_searches();
    }

    /// Waits until search indexes are ready. Returns false after half a second, or if an index was dropped.
    pub(crate) fn are_ready(&self, mut awaited: AwaitedSearches) -> bool {
        let deadline = Instant::now() + Duration::from_millis(500);
        loop {
            match self.engine().awaited_end(&mut awaited) {
                Some(are_ready) => return are_ready,
                None if Instant::now() >= deadline => return false,
                None => std::thread::yield_now(),
            }
        }
    }

    pub(crate) fn write(&self, rows: &Value) {
        let body: RowsBody = serde_json::from_value(json!({"rows": rows})).expect("rows");
        let table = self.table();
        let written = write(self.engine(), &table, &body.rows, b"", &WriteSettings::default());
        let outcomes = written.expect("they are written");
        assert_eq!(
            outcomes.counts.written as usize,
            body.rows.len(),
            "{:?}",
            outcomes.rows
        );
    }

    /// Returns the rows that match a condition, in the order of a scan.
    pub(crate) fn naive(&self, filter: Option<&Value>) -> Vec<Value> {
        let filter = filter.map(|filter| serde_json::from_value(filter.clone()).expect("a condition"));
        self.matching(filter.as_ref())
    }

    /// Returns the rows that match a condition, in the order of a scan.
    pub(crate) fn matching(&self, filter: Option<&RowFilter>) -> Vec<Value> {
        let terms = ScanTerms {
            index: None,
            prefix: &Default::default(),
            range: None,
            direction: Default::default(),
            filter,
            tier: Default::default(),
            page_token: None,
            allow_scan: true,
        };
        let (engine, table, selection) = (self.engine(), self.table(), Selection::default());
        let scan = Scan::new(engine, &table, &terms, &selection).expect("a scan");
        let limits = PageLimits {
            rows: None,
            scanned: None,
            bytes: None,
        };
        let mut rows = Vec::new();
        scan.page(engine, &table, &selection, limits, &|| false, &mut |row| {
            rows.push(serde_json::from_slice(row).expect("JSON"));
            Ok(())
        })
        .expect("a page");
        rows
    }

    /// Repeats a search while its index is being built. If the files of an index are deleted while it is open, it may
    /// fail at any later time, even after it has followed all changes.
    pub(crate) fn when_ready<T>(
        &self,
        mut search: impl FnMut() -> Result<T, RowsError>,
    ) -> Result<T, RowsError> {
        let begun = Instant::now();
        loop {
            match search() {
                Err(RowsError::Engine(EngineError::SearchNotReady { .. })) if begun.elapsed() < PATIENCE => {
                    self.settle();
                }
                ended => return ended,
            }
        }
    }

    pub(crate) fn page(&self, request: &Value) -> Result<(Vec<Value>, SearchEnd), RowsError> {
        self.when_ready(|| self.try_page(request))
    }

    fn try_page(&self, request: &Value) -> Result<(Vec<Value>, SearchEnd), RowsError> {
        let request: SearchRows = serde_json::from_value(request.clone()).expect("a request");
        let (engine, table) = (self.engine(), self.table());
        let selection = Selection::new(None, None, None, RowIntegers::Number, engine.now())?;
        let search = Search::new(engine, &table, &request, &selection)?;
        let mut rows = Vec::new();
        let end = search.page(engine, &table, &selection, &|| false, &mut |row| {
            rows.push(serde_json::from_slice(row).expect("JSON"));
            Ok(())
        })?;
        Ok((rows, end))
    }

    /// Returns the rows of all pages, and the total of the first page.
    pub(crate) fn search(&self, request: &Value) -> (Vec<Value>, u64) {
        let mut request = request.clone();
        let (mut rows, mut total) = (Vec::new(), None);
        loop {
            let (mut page, end) = self.page(&request).expect("a page");
            rows.append(&mut page);
            total.get_or_insert(end.total);
            match end.next {
                Some(next) => request["page_token"] = json!(next),
                None => return (rows, total.unwrap_or_default()),
            }
        }
    }
}
