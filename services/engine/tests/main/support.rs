//! Fixture of the engine tests.
//!
//! The fixture has a backend that outlives the engine, a clock set by the test, and helpers for writes and queries.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_condition::Condition;
use tideline_engine::find::NEVER;
use tideline_engine::{
    Engine, EngineError, IdempotentRequest, RequestStart, Settings, Table, Timeline, TimelineSelector,
    WriteOptions, WriteOutcome,
};
use tideline_ingest_protocols::{DecodeOptions, line_protocol};
use tideline_model::{
    ManualClock, PointBatch, Policy, TableName, TableSpec, TimeRange, TimelineId, Timestamp,
};
use tideline_search_index::FindRequest;
use tideline_series_store::{Order, Selection};
use tideline_timeline_catalog::{AttributeValue, TimelinesAhead};

pub(crate) const SECOND: i64 = 1_000_000_000;
pub(crate) const HOUR: i64 = 3_600 * SECOND;
pub(crate) const DAY: i64 = 24 * HOUR;
/// Time at which tests begin, in nanoseconds since the epoch.
pub(crate) const START: i64 = 1_800_000_000 * SECOND;

pub(crate) struct Fixture {
    pub(crate) disk: Arc<MemoryDisk>,
    pub(crate) clock: ManualClock,
    index: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::on(Character::Embedded)
    }

    /// Creates a fixture on a backend whose edits may have an unknown outcome.
    pub(crate) fn distributed() -> Self {
        Self::on(Character::Distributed)
    }

    fn on(character: Character) -> Self {
        Self {
            disk: MemoryDisk::new(character),
            clock: ManualClock::new(Timestamp::from_nanos_clamped(START)),
            index: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    pub(crate) fn open(&self) -> Engine {
        self.open_with(|_| {})
    }

    pub(crate) fn open_with(&self, set: impl FnOnce(&mut Settings)) -> Engine {
        self.try_open_with(set).expect("the engine opens")
    }

    pub(crate) fn try_open_with(&self, set: impl FnOnce(&mut Settings)) -> Result<Engine, EngineError> {
        let mut settings = Settings::new(self.index.path().join("index"));
        set(&mut settings);
        Engine::open(Arc::new(self.backend()), Arc::new(self.clock.clone()), settings)
    }

    /// Opens the database with timelines that were read before.
    pub(crate) fn open_ahead(&self, ahead: TimelinesAhead) -> Engine {
        let settings = Settings::new(self.index.path().join("index"));
        let clock = Arc::new(self.clock.clone());
        let engine = Engine::open_ahead(Arc::new(self.backend()), clock, settings, Some(ahead));
        engine.expect("the engine opens")
    }

    /// Returns direct access to the stored database, to damage it.
    pub(crate) fn backend(&self) -> MemoryBackend {
        MemoryBackend::open(&self.disk)
    }

    pub(crate) fn now(&self) -> i64 {
        tideline_model::Clock::now(&self.clock).nanos()
    }

    /// Lets time pass in steps of at most 30 minutes, each followed by a read of the clock, as in a running server.
    pub(crate) fn pass(&self, engine: &Engine, nanos: i64) {
        let mut left = nanos;
        while left > 0 {
            let step = left.min(HOUR / 2);
            self.clock.advance(step);
            engine.store().trusted_now();
            left -= step;
        }
    }
}

pub(crate) fn table_with(engine: &Engine, name: &str, policy: Policy) -> Table {
    let spec = TableSpec {
        policy,
        ..TableSpec::default()
    };
    let name = TableName::new(name).expect("valid");
    engine.create_table(name, spec).expect("a table")
}

pub(crate) fn decode(engine: &Engine, table: &Table, lines: &str) -> PointBatch {
    let options = DecodeOptions::new(engine.clock().now());
    line_protocol::decode(lines.as_bytes(), options, &mut engine.resolver(table))
}

pub(crate) fn write(engine: &Engine, table: &Table, lines: &str) -> WriteOutcome {
    let batch = decode(engine, table, lines);
    engine
        .write(table, batch, &WriteOptions::default())
        .expect("a write")
}

/// Writes lines under an idempotency key.
pub(crate) fn write_once(
    engine: &Engine,
    table: &Table,
    lines: &str,
    request: &IdempotentRequest,
) -> Result<WriteOutcome, EngineError> {
    let request = match engine.begin_request(table, request)? {
        RequestStart::Repeated(outcome) => return Ok(outcome),
        RequestStart::New(request) => Some(request),
    };
    let options = WriteOptions {
        request,
        ..WriteOptions::default()
    };
    engine.write(table, decode(engine, table, lines), &options)
}

/// Returns every timeline that matches a condition, by its machine.
pub(crate) fn found(engine: &Engine, table: &Table, condition: Condition) -> BTreeMap<String, Timeline> {
    let request = FindRequest {
        condition,
        limit: 10_000,
        ..FindRequest::default()
    };
    let page = engine.find(table, &request, NEVER).expect("a page");
    assert_eq!(page.total, page.found.len() as u64);
    let named = page
        .found
        .into_iter()
        .map(|found| found.timeline)
        .map(|timeline| (timeline.source.clone().unwrap_or_default(), timeline));
    named.collect()
}

pub(crate) fn hosts(engine: &Engine, table: &Table, condition: Condition) -> Vec<String> {
    found(engine, table, condition).into_keys().collect()
}

pub(crate) fn host(name: &str) -> TimelineSelector {
    TimelineSelector::Condition(Condition::tag("host", name))
}

/// Returns the timestamps of the points of a timeline.
pub(crate) fn instants(engine: &Engine, table: &Table, id: TimelineId) -> Vec<i64> {
    let snapshot = engine.store().snapshot();
    let timelines = [id];
    let mut reader = snapshot.reader(Selection {
        table: table.points().id(),
        timelines: &timelines,
        range: TimeRange::ALL,
        fields: None,
        order: Order::Ascending,
        tier: None,
    });
    let mut all = Vec::new();
    reader
        .timeline(id, &mut |run| {
            all.extend_from_slice(&run.timestamps);
            Ok(ControlFlow::Continue(()))
        })
        .expect("readable");
    all
}

pub(crate) fn set_owner(engine: &Engine, table: &Table, id: TimelineId, owner: &str) {
    let owner = Some(AttributeValue::Text(owner.into()));
    let changes = BTreeMap::from([("owner".to_owned(), owner)]);
    engine.set_attributes(table, id, &changes).expect("an edit");
}

/// Returns the condition for timelines of an owner.
pub(crate) fn owned(owner: &str) -> Condition {
    Condition::leaf(
        tideline_condition::Subject::Attribute("owner".into()),
        tideline_condition::operators::Equals(tideline_condition::Literal::Text(owner.into())),
    )
}
