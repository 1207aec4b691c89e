//! Test fixtures: backends to open a store on, and helpers that write and read points.
//!
//! Tests that use [`TestBackend::all`] run on every backend.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, OnceLock};

use tideline_archive::{Archive, ArchiveSettings, TimelineMetadata};
use tideline_backend::Backend;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_backend_cassandra::fixture::ScratchKeyspace;
use tideline_backend_fjall::{FjallBackend, FjallOptions};
use tideline_chunk::{Delta, DeltaGroup, NewTimeline, Presence};
use tideline_model::{
    ArchivePolicy, Clock, ColumnData, Durability, FieldId, Identity, ManualClock, Ordinal, Schedule, TableId,
    TableSpec, TimeRange, TimelineId, Timestamp, Value,
};
use tideline_series_store::check::{Checked, check};
use tideline_series_store::{
    HeadBudget, Order, Recovery, Selection, SeriesStore, Settings, StoreError, Table, TimelineDirectory,
};
use tideline_testkit::cassandra::shared_node;

/// Backend on which a store can be opened several times.
pub(crate) enum TestBackend {
    /// Memory backend that behaves like an embedded or a distributed backend.
    Memory(Arc<MemoryDisk>),
    /// Fjall backend in a temporary folder.
    Fjall(tempfile::TempDir),
    /// Distributed backend on a node of Cassandra.
    Cassandra(Box<ScratchKeyspace>),
}

impl TestBackend {
    pub(crate) fn all() -> Vec<(&'static str, TestBackend)> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        vec![
            (
                "memory, embedded",
                TestBackend::Memory(MemoryDisk::new(Character::Embedded)),
            ),
            (
                "memory, distributed",
                TestBackend::Memory(MemoryDisk::new(Character::Distributed)),
            ),
            ("fjall", TestBackend::Fjall(folder)),
        ]
    }

    /// Returns a backend on a node of Cassandra; `None` after a message if there is no node.
    pub(crate) fn cluster() -> Option<TestBackend> {
        let keyspace = ScratchKeyspace::create(shared_node()?);
        Some(Self::Cassandra(Box::new(keyspace.expect("a keyspace"))))
    }

    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        match self {
            Self::Memory(disk) => Arc::new(MemoryBackend::open(disk)),
            Self::Fjall(folder) => Arc::new(
                FjallBackend::open(&folder.path().join("data"), FjallOptions::default())
                    .expect("fjall opens its folder"),
            ),
            Self::Cassandra(keyspace) => Arc::new(keyspace.open().expect("the cluster answers")),
        }
    }

    /// Opens the store like a starting process.
    pub(crate) fn open(&self, settings: &Settings) -> (SeriesStore, Arc<Names>) {
        self.open_at(settings, &ManualClock::new(Timestamp::EPOCH))
    }

    /// Opens the store with a clock that the test controls.
    pub(crate) fn open_at(
        &self,
        settings: &Settings,
        clock: &(impl Clock + Clone + 'static),
    ) -> (SeriesStore, Arc<Names>) {
        let clock = Arc::new(clock.clone());
        let names = Arc::new(Names::default());
        let recovery =
            Recovery::begin(self.backend(), clock, settings.clone()).expect("the store begins to open");
        let (store, _) = recovery.finish(Arc::clone(&names) as _).expect("the store opens");
        (store, names)
    }
}

/// Returns settings with small budgets, so that short tests reach the limits.
pub(crate) fn tiny() -> Settings {
    Settings {
        head: HeadBudget::fixed(96 << 10),
        window_nanos: 1_000,
        windows_per_seal_max: 4,
        bucket_bytes: 2 << 10,
        archive: Some(archive()),
        ..Settings::default()
    }
}

/// Archive target in memory; its content is lost with the process.
pub(crate) const TARGET: &str = "memory:///";

/// Returns one archive for all tests, as a server has one for all tables. It outlives every store. A measurement gets
/// its own file from 50 rows on, so the files are small.
pub(crate) fn archive() -> Arc<Archive> {
    static ARCHIVE: OnceLock<(Arc<Archive>, tempfile::TempDir)> = OnceLock::new();
    let (archive, _) = ARCHIVE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let settings = ArchiveSettings {
            own_file_rows: 50,
            footers_bytes_max: 1 << 20,
            ..ArchiveSettings::new(folder.path().to_owned())
        };
        (Arc::new(Archive::open(settings).expect("it opens")), folder)
    });
    Arc::clone(archive)
}

/// Returns the settings of a table with an archive.
pub(crate) fn archived_table() -> TableSpec {
    let mut spec = TableSpec::default();
    spec.policy.archive = Some(ArchivePolicy {
        target: TARGET.into(),
        after: 1,
        schedule: Schedule::Continuous,
        keep_cold: None,
        keep: None,
    });
    spec
}

/// Directory that records the ids of replayed timelines, without those that were removed.
#[derive(Default)]
pub(crate) struct Names(pub(crate) Mutex<Vec<TimelineId>>);

impl TimelineDirectory for Names {
    fn adopt(&self, _table: TableId, timeline: &NewTimeline) -> Result<(), String> {
        self.0.lock().expect("not poisoned").push(timeline.id);
        Ok(())
    }

    fn removed(&self, _table: TableId, ids: &[TimelineId]) {
        self.0
            .lock()
            .expect("not poisoned")
            .retain(|id| !ids.contains(id));
    }

    fn made_durable(&self, _table: TableId, _timelines: &[NewTimeline]) {}

    fn metadata(&self, _table: TableId) -> Option<Arc<dyn TimelineMetadata>> {
        Some(Arc::new(Half))
    }
}

/// Metadata resolver with the identities of some timelines.
pub(crate) struct Half;

impl TimelineMetadata for Half {
    fn identity(&self, id: TimelineId) -> Option<Arc<Identity>> {
        let tags = vec![("host".into(), id.to_string())];
        let who = Identity::new("m".into(), tags).expect("valid");
        (!id.low().is_multiple_of(3)).then(|| Arc::new(who))
    }

    fn attributes(&self, _id: TimelineId) -> Option<String> {
        None
    }

    fn tag_keys(&self, _measurement: &str) -> Vec<String> {
        Vec::new()
    }
}

/// Returns the timeline with a number. Ids are spread over all shards and prefixes.
pub(crate) fn timeline(number: u64) -> TimelineId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    id[8..].copy_from_slice(&number.wrapping_mul(0xD6E8_FEB8_6659_FD93).to_be_bytes());
    TimelineId(id)
}

/// Timeline, timestamp, and fields with their values.
pub(crate) type Point = (TimelineId, i64, Vec<(&'static str, Value)>);

/// Commits points in one synced delta, grouped by shape as a decoder does.
pub(crate) fn write(
    store: &SeriesStore,
    table: &Arc<Table>,
    points: &[Point],
    new: &[TimelineId],
) -> Result<(), StoreError> {
    write_as(store, table, points, new, Durability::Synced)
}

/// Commits points like [`write`], with a given durability.
pub(crate) fn write_as(
    store: &SeriesStore,
    table: &Arc<Table>,
    points: &[Point],
    new: &[TimelineId],
    durability: Durability,
) -> Result<(), StoreError> {
    let mut delta = Delta {
        table: table.id(),
        new_timelines: new
            .iter()
            .map(|id| NewTimeline {
                id: *id,
                ordinal: Ordinal(0),
                identity: id.0.to_vec(),
            })
            .collect(),
        ..Delta::default()
    };
    for (id, timestamp, fields) in points {
        let test_backend = delta
            .timelines
            .iter()
            .position(|have| have == id)
            .unwrap_or_else(|| {
                delta.timelines.push(*id);
                delta.timelines.len() - 1
            });
        let fits = |group: &DeltaGroup| {
            group.fields.len() == fields.len()
                && group.fields.iter().zip(&group.columns).zip(fields).all(
                    |((name, column), (field, value))| {
                        &**name == *field && column.value_type() == value.value_type()
                    },
                )
        };
        let at = delta.groups.iter().position(fits).unwrap_or_else(|| {
            delta.groups.push(DeltaGroup {
                measurements: "m".into(),
                fields: fields.iter().map(|(name, _)| (*name).into()).collect(),
                columns: fields
                    .iter()
                    .map(|(_, value)| ColumnData::new(value.value_type()))
                    .collect(),
                timelines: Vec::new(),
                timestamps: Vec::new(),
            });
            delta.groups.len() - 1
        });
        let group = &mut delta.groups[at];
        group.timelines.push(test_backend as u32);
        group.timestamps.push(*timestamp);
        for (column, (_, value)) in group.columns.iter_mut().zip(fields) {
            push(column, value);
        }
    }
    let shapes = delta
        .groups
        .iter()
        .map(|group| {
            table
                .schema()
                .shape(group.measurements.names(), &group.fields, &group.columns)
        })
        .collect::<Result<_, _>>()?;
    let generation = table.timeline_generation();
    store
        .commit(table, &Arc::new(delta), shapes, durability, generation)
        .map(|_| ())
}

fn push(column: &mut ColumnData, value: &Value) {
    match (column, value) {
        (ColumnData::Float(values), Value::Float(value)) => values.push(*value),
        (ColumnData::Signed(values), Value::Signed(value)) => values.push(*value),
        (ColumnData::Unsigned(values), Value::Unsigned(value)) => values.push(*value),
        (ColumnData::Boolean(values), Value::Boolean(value)) => values.push(*value),
        (ColumnData::String(values), Value::String(value)) => values.push(value),
        (ColumnData::Histogram(values), Value::Histogram(value)) => values.push(value),
        _ => panic!("a group has one type a column"),
    }
}

/// Rows read: timestamp, and fields in order of their numbers.
pub(crate) type Rows = Vec<(i64, Vec<(FieldId, Value)>)>;

/// Reads timelines, whose ids must be in increasing order. Omits rows without any requested field.
pub(crate) fn read(
    store: &SeriesStore,
    table: &Table,
    ids: &[TimelineId],
    range: TimeRange,
    fields: Option<&[FieldId]>,
    order: Order,
) -> Vec<Rows> {
    let snapshot = store.snapshot();
    let mut reader = snapshot.reader(Selection {
        table: table.id(),
        timelines: ids,
        range,
        fields,
        order,
        tier: None,
    });
    let mut all = Vec::new();
    for id in ids {
        let mut rows = Rows::new();
        reader
            .timeline(*id, &mut |run| {
                let mut found: Rows = (0..run.rows())
                    .map(|row| (run.timestamps[row], cells(run, row)))
                    .collect();
                found.retain(|(_, cells)| !cells.is_empty());
                if order == Order::Descending {
                    found.reverse();
                }
                rows.extend(found);
                Ok(ControlFlow::Continue(()))
            })
            .expect("the timeline can be read");
        all.push(rows);
    }
    all
}

fn cells(run: &tideline_chunk::Run, row: usize) -> Vec<(FieldId, Value)> {
    let present = run.columns.iter().filter(|column| match &column.presence {
        Presence::All => true,
        Presence::Some(bitmap) => bitmap.get(row),
    });
    present
        .map(|column| {
            let at = column.presence.rank(row);
            let value = match &column.values {
                ColumnData::Float(values) => Value::Float(values[at]),
                ColumnData::Signed(values) => Value::Signed(values[at]),
                ColumnData::Unsigned(values) => Value::Unsigned(values[at]),
                ColumnData::Boolean(values) => Value::Boolean(values[at]),
                ColumnData::String(values) => Value::String(values.get(at).into()),
                ColumnData::Histogram(values) => Value::Histogram(values.get(at).into()),
            };
            (column.field, value)
        })
        .collect()
}

/// Runs the offline check on the backend of a store. Journal entries of other models are reported as damage.
pub(crate) fn checked(store: &SeriesStore) -> Checked {
    check(
        store.backend().as_ref(),
        &mut |_| Err("it is no delta".to_owned()),
    )
}
