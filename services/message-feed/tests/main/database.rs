//! Database with one feed table. It can be closed and opened again on the same backend, and the test sets its clock.
//!
//! All tests of the crate use it, so that each of them runs on every backend.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use tideline_backend_cassandra::fixture::ScratchKeyspace;
use tideline_backend_fjall::{FjallBackend, FjallOptions};
use tideline_engine::archive::{Archive, ArchiveSettings};
use tideline_engine::backend::Backend;
use tideline_engine::backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_engine::check::check_database;
use tideline_engine::feeds::FeedName;
use tideline_engine::model::{ManualClock, TableModel, TableName, TableSpec, TimelineId, Timestamp};
use tideline_engine::{Engine, Settings, WideTable};
use tideline_message_feed::read::{Page, ReadTerms, Room, page};
use tideline_message_feed::send::{Sent, WriteTerms, send};
use tideline_message_feed::{MessageEncoder, MessageList};
use tideline_openapi::feed::{FeedSettings, NewMessage};
use tideline_rows::Result;
use tideline_testkit::cassandra::shared_node;

pub(crate) const SECOND: i64 = 1_000_000_000;
pub(crate) const TABLE: &str = "chat";
pub(crate) const START: i64 = 1_800_000_000 * SECOND;

/// Function that opens the backend of a database.
pub(crate) type OpenBackend = Box<dyn Fn() -> Arc<dyn Backend>>;

pub(crate) fn fjall(folder: &Path) -> OpenBackend {
    let folder = folder.to_owned();
    Box::new(move || {
        let opened = FjallBackend::open(&folder, FjallOptions::default());
        Arc::new(opened.expect("fjall opens its folder"))
    })
}

pub(crate) fn memory(character: Character) -> OpenBackend {
    let disk = MemoryDisk::new(character);
    Box::new(move || Arc::new(MemoryBackend::open(&disk)))
}

/// Returns the name of a feed by its key.
pub(crate) fn key(name: &str) -> FeedName {
    FeedName::parse(name)
}

/// Parses a JSON value as a type of the API.
pub(crate) fn parse<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    // `RawValue` can only be read from text.
    serde_json::from_str(&value.to_string()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

/// Returns terms of a write on behalf of a principal.
pub(crate) fn on_behalf_of(principal: Option<&str>) -> WriteTerms<'_> {
    WriteTerms {
        principal,
        durability: None,
    }
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
    /// Creates a database with a feed table that has these settings. `archive_after` is the age at which parts of the
    /// table are archived; `None` for a table without an archive.
    pub(crate) fn new(open_backend: OpenBackend, settings: &Value, archive_after: Option<&str>) -> Self {
        let mut database = Self {
            engine: None,
            open_backend,
            clock: ManualClock::new(Timestamp::from_nanos_clamped(START)),
            folder: tempfile::tempdir().expect("a folder"),
        };
        database.open();
        let mut settings = settings.clone();
        if let Some(after) = archive_after {
            settings["parts"]["archive"] = json!({"target": database.target(), "after": after});
        }
        database.create_table(&settings);
        database
    }

    /// Creates the feed table with these settings.
    pub(crate) fn create_table(&self, settings: &Value) {
        let settings: FeedSettings = parse(settings);
        let (feed, rows) = settings.into_spec().expect("settings");
        let spec = TableSpec {
            model: TableModel::Feed,
            wide: Some(Box::new(rows)),
            feed: Some(feed),
            ..TableSpec::default()
        };
        let name = TableName::new(TABLE).expect("a name");
        self.engine().create_table(name, spec).expect("a table");
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("it is open")
    }

    pub(crate) fn table(&self) -> Arc<WideTable> {
        self.engine().feed_table(TABLE).expect("it exists")
    }

    pub(crate) fn open(&mut self) {
        let mut settings = Settings::new(self.folder.path().join("index"));
        settings.rows.buffer_bytes = 32 << 10;
        settings.store.archive = Some(Arc::new(self.archive()));
        let engine = Engine::open((self.open_backend)(), Arc::new(self.clock.clone()), settings);
        self.engine = Some(engine.expect("the engine opens"));
    }

    fn archive(&self) -> Archive {
        let temporary = self.folder.path().join("temporary");
        Archive::open(ArchiveSettings::new(temporary)).expect("the archive opens")
    }

    /// Returns the address of the archive target.
    fn target(&self) -> String {
        let target = self.folder.path().join("target");
        std::fs::create_dir_all(&target).expect("a folder");
        format!("file://{}", target.display())
    }

    pub(crate) fn close(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.close().expect("it closes");
        }
    }

    /// Closes the database, checks all stored data, and opens the database again.
    pub(crate) fn reopen(&mut self) {
        self.close();
        self.check_stored();
        self.open();
    }

    /// Checks all stored data of a closed database.
    pub(crate) fn check_stored(&self) {
        let backend = (self.open_backend)();
        let report = check_database(backend.as_ref());
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
        backend.close().expect("it closes");
    }

    /// Returns the id of a feed that exists.
    pub(crate) fn id(&self, feed: &str) -> TimelineId {
        let id = self.engine().feed(&self.table(), &key(feed));
        id.expect("the feed exists")
    }

    /// Sends messages without a principal.
    pub(crate) fn send(&self, feed: &str, messages: &Value) -> Result<Sent> {
        let messages: Vec<NewMessage> = parse(messages);
        let terms = WriteTerms::default();
        send(self.engine(), &self.table(), &key(feed), &messages, &terms)
    }

    /// Sends one message. Returns its sequence number.
    pub(crate) fn send_one(&self, feed: &str, message: &Value) -> i64 {
        let sent = self.send(feed, &json!([message])).expect("it is sent");
        sent.messages[0].sequence
    }

    /// Reads a page of a feed.
    pub(crate) fn page(&self, feed: TimelineId, terms: &ReadTerms, limit: usize) -> Page {
        let encoder = MessageEncoder::default();
        let mut room = Room::default();
        let (engine, table) = (self.engine(), self.table());
        let read = page(
            engine,
            &table,
            (feed, terms),
            &encoder,
            (limit, &mut room),
            &|| false,
        );
        read.expect("a page")
    }

    /// Returns all messages and events of a feed.
    pub(crate) fn all(&self, feed: &str) -> Vec<Value> {
        let terms = ReadTerms {
            has_events: true,
            ..ReadTerms::default()
        };
        let page = self.page(self.id(feed), &terms, 1_000);
        assert!(!page.has_more);
        values(&page.messages)
    }
}

/// Parses messages.
pub(crate) fn values(messages: &MessageList) -> Vec<Value> {
    let parsed: Vec<Value> = serde_json::from_str(&messages.to_json()).expect("JSON");
    assert_eq!(parsed.len(), messages.len());
    parsed
}
