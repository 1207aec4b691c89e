//! Writes of several protocols through the write pipeline, with the in-memory backend.
//!
//! Covers databases as tags, rejects, idempotency keys and counts of samples.

use std::sync::Arc;

use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_engine::{Engine, ErrorKind, Settings};
use tideline_ingest::{Decoder, Outcome, Target, WriteError, WriteRequest, write};
use tideline_ingest_protocols::IngestError;
use tideline_ingest_protocols::prometheus::{ImportOptions, TextFormat};
use tideline_model::{
    ManualClock, Precision, RejectReason, TableName, TableSpec, Timestamp, TypeConflict, ValueType,
};
use tideline_timeline_catalog::NameSelection;

/// Time of the clock and of points without a timestamp, in nanoseconds since the Unix epoch.
const AT: i64 = 1_800_000_000_000_000_000;

struct Database {
    engine: Engine,
    _index: tempfile::TempDir,
}

fn open() -> Database {
    open_on(&MemoryDisk::new(Character::Embedded))
}

fn open_on(disk: &Arc<MemoryDisk>) -> Database {
    let index = tempfile::tempdir().expect("a temporary folder");
    let backend = MemoryBackend::open(disk);
    let clock = ManualClock::new(Timestamp::from_nanos_clamped(AT));
    let settings = Settings::new(index.path().join("index"));
    let engine = Engine::open(Arc::new(backend), Arc::new(clock), settings).expect("the engine opens");
    Database {
        engine,
        _index: index,
    }
}

fn lines(target: Target) -> WriteRequest {
    WriteRequest::new(target, Decoder::LineProtocol(Precision::default()))
}

fn default_table() -> Target {
    Target::Database(String::new())
}

impl Database {
    fn write(&self, request: &WriteRequest, body: &str) -> Result<Outcome, WriteError> {
        write(&self.engine, request, body.as_bytes())
    }

    /// Returns the values of the tag `db` in the default table.
    fn databases(&self) -> Vec<String> {
        let table = self.engine.default_table().expect("the default table");
        let all = NameSelection {
            prefix: "",
            after: None,
            limit: 10,
        };
        let names = self.engine.tag_values(&table, "db", &all).into_iter();
        names.map(|found| found.name).collect()
    }
}

#[test]
fn a_database_without_a_table_is_a_tag_of_the_default_table() {
    let database = open();
    let name = TableName::new("metrics").expect("valid");
    let table = database.engine.create_table(name, TableSpec::default());
    table.expect("a table");
    for target in ["metrics", "telegraf", ""] {
        let request = lines(Target::Database(target.into()));
        let outcome = database.write(&request, "m,host=a f=1\n").expect("a write");
        assert_eq!(outcome.written.points, 1, "{target}");
    }
    assert_eq!(database.databases(), ["telegraf"]);

    let refused = database.write(&lines(Target::Database("a\nb".into())), "m f=1\n");
    assert!(matches!(refused, Err(WriteError::DatabaseName(_))), "{refused:?}");
    let refused = database.write(&lines(Target::Table("telegraf".into())), "m f=1\n");
    assert!(is_not_found(&refused), "{refused:?}");
    // A tag cannot be appended to Prometheus labels.
    let page = Decoder::Exposition(TextFormat::Classic, ImportOptions::default());
    let request = WriteRequest::new(Target::Database("telegraf".into()), page);
    let refused = database.write(&request, "up 1\n");
    assert!(is_not_found(&refused), "{refused:?}");
}

fn is_not_found(result: &Result<Outcome, WriteError>) -> bool {
    matches!(result, Err(WriteError::Engine(error)) if error.kind() == ErrorKind::NotFound)
}

#[test]
fn rejects_of_decoder_and_table_say_why() {
    let database = open();
    let body = "m,host=a f=1\nnonsense\nm,host=a f=\"text\"\n";
    let outcome = database.write(&lines(default_table()), body).expect("a write");
    let written = &outcome.written;
    assert_eq!((written.points, written.rejected, written.retryable), (1, 2, 0));
    assert!(matches!(written.rejects[0].reason, RejectReason::Unreadable(_)));
    let conflict = TypeConflict {
        measurement: "m".into(),
        field: "f".into(),
        input: ValueType::String,
        existing: ValueType::Float,
    };
    assert_eq!(
        written.rejects[1].reason,
        RejectReason::TypeConflict(Arc::new(conflict))
    );
    let lines: Vec<u32> = written.rejects.iter().map(|reject| reject.line).collect();
    assert_eq!(lines, [2, 3]);
}

#[test]
fn a_key_is_claimed_until_its_request_has_an_outcome() {
    let database = open();
    let request = WriteRequest {
        key: Some("order-7".into()),
        ..WriteRequest::new(default_table(), Decoder::Json(Precision::default()))
    };
    let refused = database.write(&request, "{");
    assert!(
        matches!(refused, Err(WriteError::Body(IngestError::Json { .. }))),
        "{refused:?}"
    );
    let body = r#"[{"measurement":"m","fields":{"f":1}},{"measurement":"m"}]"#;
    let first = database.write(&request, body).expect("the claim was given up");
    let again = database.write(&request, body).expect("an answer");
    assert_eq!((first.written.repeated, again.written.repeated), (false, true));
    assert_eq!((again.written.points, again.written.rejected), (1, 1));
    let of = |outcome: &Outcome| outcome.written.rejects[0].reason.to_string();
    assert_eq!(of(&again), of(&first));

    let refused = database.write(&request, r#"[{"measurement":"m","fields":{"f":2}}]"#);
    let Err(WriteError::Engine(error)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(error.kind(), ErrorKind::KeyReused);
}

#[test]
fn a_request_that_is_repeated_until_it_succeeds_stores_its_metadata() {
    for seed in 0..12 {
        let disk = MemoryDisk::new(Character::Distributed);
        let database = open_on(&disk);
        let page = Decoder::Exposition(TextFormat::Classic, ImportOptions::default());
        let request = WriteRequest {
            key: Some("page-1".into()),
            ..WriteRequest::new(default_table(), page)
        };
        let body = "# TYPE up gauge\n# HELP up One line.\nup 1\n";
        disk.fail_by_chance(seed, 500);
        let is_stored = (0..1_000).any(|_| database.write(&request, body).is_ok());
        disk.fail_by_chance(seed, 0);
        assert!(is_stored, "seed {seed}");
        let table = database.engine.default_table().expect("the default table");
        let metadata = database.engine.metadata(&table);
        assert_eq!(metadata.len(), 1, "seed {seed}: {metadata:?}");
    }
}

#[test]
fn samples_are_counted_as_they_are_stored() {
    let database = open();
    let lines = lines(Target::Table("default".into()));
    let outcome = database.write(&lines, "up value=\"text\"\n").expect("a write");
    assert_eq!((outcome.written.points, outcome.samples.samples), (1, 0));
    let page = Decoder::Exposition(TextFormat::Classic, ImportOptions::default());
    let request = WriteRequest::new(default_table(), page);
    let page = "# TYPE down gauge\n# HELP down One line.\ndown 1\nup 1\nbad{\n";
    let outcome = database.write(&request, page).expect("a write");
    assert_eq!((outcome.written.points, outcome.written.rejected), (1, 2));
    assert_eq!(
        outcome.samples.samples, 1,
        "the row of `up` was refused by the table"
    );
    let table = database.engine.default_table().expect("the default table");
    let metadata = database.engine.metadata(&table);
    assert_eq!(metadata.len(), 1, "{metadata:?}");
}
