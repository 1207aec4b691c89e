//! A database with one wide table, on any kind of backend.
//!
//! The tests write and read through the public interface of the store, with a real log and real parts.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tideline_archive::Archive;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_backend::{Backend, Direction, ManifestKind, ManifestRow, PageLimit, PartRef, Partition, Row};
use tideline_backend_cassandra::fixture::ScratchKeyspace;
use tideline_backend_fjall::{FjallBackend, FjallOptions};
use tideline_key_codec::layout::KeyLayout;
use tideline_key_codec::parse_part_name;
use tideline_key_codec::tuple::KeyValue;
use tideline_log::manifest::{TableRow, put_table};
use tideline_log::{LogSettings, LogThreads, Opening, SHARD};
use tideline_model::{
    Clock, ColumnGroupSpec, GroupCompression, KeyRange, SearchIndexSpec, SystemClock, TableId, TableModel,
    TableName, TableSpec, Tier, TierScope, Timestamp, WideSpec,
};
use tideline_testkit::cassandra::shared_node;
use tideline_wide_table::why::KeyTrace;
use tideline_wide_table::{
    Action, CellValue, Column, ColumnName, ColumnSpan, Condition, Image, Increment, Index, Mutation,
    RowOutcome, RowWrite, Settings, StoredRow, Update, WideModel, WideReplay, WideStore, WriteOptions,
    Written,
};

pub(crate) const TABLE: TableId = TableId(1);
/// Bucket of a part that holds the single rows.
pub(crate) const SINGLES: u16 = 0;
/// Bucket of a part that holds the blocks.
pub(crate) const BLOCKS: u16 = 2;

/// Running database. [`close`](Self::close) shuts it down cleanly. Dropping the value simulates a crash, because the
/// backend is not closed.
pub(crate) struct Database {
    pub(crate) store: Arc<WideStore>,
    pub(crate) threads: LogThreads,
}

impl Database {
    /// Opens the database on a backend, and creates the table if it does not exist.
    pub(crate) fn open(backend: Arc<dyn Backend>, versions_max: u32) -> Self {
        Self::open_with(backend, versions_max, settings())
    }

    /// Opens the database on a backend with these settings of the store.
    pub(crate) fn open_with(backend: Arc<dyn Backend>, versions_max: u32, settings: Settings) -> Self {
        Self::open_at(backend, Arc::new(SystemClock), spec(versions_max), settings)
    }

    /// Opens the database on a backend with a clock. Creates the table with the settings `spec` if it does not exist.
    pub(crate) fn open_at(
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        spec: TableSpec,
        settings: Settings,
    ) -> Self {
        Self::open_archived(backend, (clock, spec, settings), None)
    }

    /// Opens the database like [`open_at`](Self::open_at), with an archive.
    pub(crate) fn open_archived(
        backend: Arc<dyn Backend>,
        (clock, spec, settings): (Arc<dyn Clock>, TableSpec, Settings),
        archive: Option<Arc<Archive>>,
    ) -> Self {
        let database = Self::start(backend, clock, settings, archive);
        if !database.threads.log().manifest().tables.contains_key(&TABLE) {
            database.set_spec(spec);
        }
        database
    }

    /// Opens the database like [`open_archived`](Self::open_archived), but never creates the table.
    pub(crate) fn start(
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        settings: Settings,
        archive: Option<Arc<Archive>>,
    ) -> Self {
        let opening = Opening::begin(backend, clock, LogSettings::default()).expect("it begins");
        let replay = WideReplay::new(opening.manifest(), opening.rows(), opening.trusted_now());
        let replay = replay.expect("the parts are read");
        let replayed = opening.replay(&mut [&mut replay.clone()]).expect("it replays");
        let log = replayed.open().expect("it opens");
        let store = Arc::new(WideStore::open(&log, &replay, archive, settings));
        let model = Arc::new(WideModel(Arc::clone(&store)));
        let threads = LogThreads::start(Arc::clone(&log), vec![model]);
        Self { store, threads }
    }

    /// Stores the settings of the table.
    fn set_spec(&self, spec: TableSpec) {
        let stored = self.threads.log().edit_shared(|manifest| {
            let row = TableRow::new(TABLE, name(), spec, 0, 0);
            let changes = vec![put_table(&row)];
            manifest.tables.insert(TABLE, row);
            changes
        });
        stored.expect("the table is stored");
    }

    /// Replaces the indexes of the table. The id of an index must never have been used for another index.
    pub(crate) fn set_indexes(&self, indexes: &serde_json::Value) {
        let manifest = self.threads.log().manifest();
        let mut spec = manifest.tables[&TABLE].spec.clone();
        let wide = spec.wide.as_deref_mut().expect("a wide table");
        wide.indexes = serde_json::from_value(indexes.clone()).expect("valid indexes");
        self.set_spec(spec);
    }

    /// Changes the settings of the rows of the table.
    pub(crate) fn change_wide(&self, change: impl FnOnce(&mut WideSpec)) {
        let manifest = self.threads.log().manifest();
        let mut spec = manifest.tables[&TABLE].spec.clone();
        change(spec.wide.as_deref_mut().expect("a wide table"));
        self.set_spec(spec);
    }

    /// Gives the table one search index.
    pub(crate) fn add_search(&self, index: TableId) {
        let manifest = self.threads.log().manifest();
        let mut spec = manifest.tables[&TABLE].spec.clone();
        let wide = spec.wide.as_deref_mut().expect("a wide table");
        let columns = serde_json::json!([{"column": "a", "as": "number"}]);
        wide.search_indexes = vec![SearchIndexSpec {
            id: index.0,
            name: "all".into(),
            columns: serde_json::from_value(columns).expect("valid columns"),
            tier: TierScope::All,
            shards: 1,
            routing: Vec::new(),
        }];
        self.set_spec(spec);
    }

    /// Returns the compiled indexes of the table.
    pub(crate) fn indexes(&self) -> Vec<Arc<Index>> {
        let manifest = self.threads.log().manifest();
        let wide = manifest.tables[&TABLE].spec.wide.clone();
        Index::all_of(&wide.expect("a wide table")).expect("valid indexes")
    }

    /// Builds an index completely.
    pub(crate) fn build(&self, index: TableId) {
        self.store
            .settle_writes(&self.threads, TABLE)
            .expect("writes settle");
        let mut next = Some(Bytes::new());
        while let Some(from) = next {
            let step = self.store.build_index(&self.threads, TABLE, index, &from);
            next = step.expect("it is built").next;
        }
    }

    pub(crate) fn write(&self, writes: &[RowWrite<'_>]) -> Written {
        self.write_with(writes, &WriteOptions::default())
    }

    pub(crate) fn write_with(&self, writes: &[RowWrite<'_>], options: &WriteOptions) -> Written {
        let written = self.store.write(&self.threads, TABLE, writes, options, &|_| None);
        written.expect("it is written")
    }

    /// Writes one row and returns its outcome.
    pub(crate) fn write_one(&self, write: RowWrite<'_>) -> RowOutcome {
        self.write(&[write]).rows.remove(0)
    }

    pub(crate) fn delete_rows(&self, range: KeyRange) {
        let options = WriteOptions::default();
        self.store
            .delete_rows(&self.threads, TABLE, &[range], options.durability, &|| false)
            .expect("they are deleted");
    }

    /// Returns a row. Checks that the visible part of its trace is the same row.
    pub(crate) fn row(&self, key: &[u8]) -> Option<Mutation<'static>> {
        let row = self.store.row(TABLE, key).expect("it is read");
        let row = row.map(|row| row.columns().expect("it is intact").into_owned());
        let trace = self.trace(key);
        assert_eq!(trace.row(), row, "{trace:?}");
        assert_eq!(trace.is_visible(), row.is_some(), "{trace:?}");
        assert!(trace.hidden.is_some() || row.is_some() || trace.layers.is_empty());
        row
    }

    pub(crate) fn trace(&self, key: &[u8]) -> KeyTrace {
        self.store.trace(TABLE, key).expect("it is read")
    }

    /// Returns a row, read in pages of one column.
    pub(crate) fn row_by_columns(&self, key: &[u8]) -> Option<Mutation<'static>> {
        let mut whole: Option<Mutation<'static>> = None;
        let mut from = String::new();
        loop {
            let span = ColumnSpan {
                declared: &[],
                from: &from,
                to: None,
                limit: 1,
            };
            let page = self.store.columns(TABLE, key, &span).expect("it is read")?;
            let row = page.row.columns().expect("it is intact").into_owned();
            assert!(row.columns.len() <= 1);
            if let Some(ColumnName::Named(last)) = row.columns.last().map(|column| &column.name) {
                from = format!("{last}\0");
            }
            match &mut whole {
                Some(whole) => whole.columns.extend(row.columns),
                None => whole = Some(row),
            }
            if !page.has_more {
                return whole;
            }
        }
    }

    /// Returns all rows of a range, read in pages.
    pub(crate) fn rows(
        &self,
        range: KeyRange,
        direction: Direction,
        rows_max: usize,
    ) -> Vec<(Bytes, Mutation<'static>)> {
        self.rows_of(TABLE, range, direction, rows_max)
            .into_iter()
            .map(|row| {
                let columns = row.columns().expect("it is intact").into_owned();
                (row.key, columns)
            })
            .collect()
    }

    /// Returns all rows of a range of a table or index, read in pages.
    pub(crate) fn rows_of(
        &self,
        table: TableId,
        range: KeyRange,
        direction: Direction,
        rows_max: usize,
    ) -> Vec<StoredRow> {
        let limit = PageLimit {
            rows_max,
            bytes_max: 1 << 20,
        };
        let mut rows = Vec::new();
        let mut rest = Some(range);
        while let Some(range) = rest {
            let page = self
                .store
                .page(table, &range, direction, limit)
                .expect("it is read");
            assert!(page.rows.len() <= rows_max);
            rows.extend(page.rows);
            rest = page.next;
        }
        rows
    }

    pub(crate) fn flush(&self) {
        self.threads.flush().expect("it is flushed");
    }

    pub(crate) fn close(self) {
        self.threads.stop();
        self.threads.log().backend().close().expect("it closes");
    }
}

/// Returns settings with a small row buffer and small blocks, which a few rows fill.
pub(crate) fn settings() -> Settings {
    Settings {
        buffer_bytes: 64 << 10,
        block_bytes: 100,
        surplus_age_min: Duration::ZERO,
        ..Settings::default()
    }
}

/// Returns settings with blocks of about 30 rows, and a row buffer that only the tests flush.
pub(crate) fn large_blocks() -> Settings {
    Settings {
        block_bytes: 1_000,
        buffer_bytes: 1 << 20,
        ..settings()
    }
}

fn name() -> TableName {
    TableName::new("rows").expect("a valid name")
}

pub(crate) fn spec(versions_max: u32) -> TableSpec {
    let wide = serde_json::json!({
        "key": [{"name": "k", "type": "string"}],
        "columns": [{"name": "a", "type": "i64"}, {"name": "b", "type": "i64"}, {"name": "c", "type": "i64"}],
        "max_versions": versions_max,
    });
    let wide: WideSpec = serde_json::from_value(wide).expect("valid settings");
    TableSpec {
        model: TableModel::Wide,
        wide: Some(Box::new(wide)),
        ..TableSpec::default()
    }
}

/// Returns the settings of a table with one part per day. The keys of its rows are those of [`put_on_day`].
pub(crate) fn divided_by_day() -> TableSpec {
    let wide = serde_json::json!({
        "key": [{"name": "k", "type": "string"}, {"name": "at", "type": "timestamp"}],
        "parts": {"by": "at", "every": "day"},
    });
    let wide: WideSpec = serde_json::from_value(wide).expect("valid settings");
    TableSpec {
        model: TableModel::Wide,
        wide: Some(Box::new(wide)),
        ..TableSpec::default()
    }
}

/// Returns a write of a row of a table with one part per day. `day` is the number of the day since 1970-01-01.
pub(crate) fn put_on_day(key: &str, day: i64, columns: &[(&'static str, i64)]) -> RowWrite<'static> {
    let spec = divided_by_day().wide.expect("a wide table");
    let layout = KeyLayout::new(&spec.key, true).expect("a valid key");
    let at = Timestamp::from_nanos_clamped(day * 86_400_000_000_000);
    let mut stored = Vec::new();
    layout
        .encode(&[KeyValue::from(key), KeyValue::Timestamp(at)], &mut stored)
        .expect("valid values");
    RowWrite {
        key: stored.into(),
        ..put(key, 1, columns)
    }
}

/// Adds column groups to the settings of a table, one per list of columns. The ids of the groups begin at 50. Every
/// second group is compressed densely.
pub(crate) fn grouped(mut spec: TableSpec, groups: &[&[&str]]) -> TableSpec {
    let wide = spec.wide.as_deref_mut().expect("a wide table");
    let group = |(number, columns): (u32, &&[&str])| ColumnGroupSpec {
        id: 50 + number,
        name: format!("group{number}"),
        columns: columns.iter().map(|column| (*column).to_owned()).collect(),
        compression: GroupCompression::ALL[number as usize % 2],
    };
    wide.groups = (0..).zip(groups).map(group).collect();
    spec
}

/// Returns the stored key of a row, which is valid UTF-8.
pub(crate) fn encoded(key: &str) -> String {
    let spec = spec(1).wide.expect("a wide table");
    let layout = KeyLayout::new(&spec.key, false).expect("a valid key");
    let mut stored = Vec::new();
    layout
        .encode(&[KeyValue::from(key)], &mut stored)
        .expect("a valid value");
    String::from_utf8(stored).expect("the delimiter is ASCII")
}

/// Returns the stored key of the row with a number. Keys rise with the numbers.
pub(crate) fn key(number: usize) -> String {
    encoded(&format!("k{number:05}"))
}

/// Returns a write of a row whose partition is the first byte of its key.
pub(crate) fn write_of(key: &str, time: i64, action: Action<'static>) -> RowWrite<'static> {
    RowWrite {
        key: Bytes::copy_from_slice(key.as_bytes()),
        partition: 1,
        time,
        action,
        condition: None,
        image: Image::None,
    }
}

/// Returns a write that sets one column to an integer.
pub(crate) fn set(key: &str, time: i64, column: &'static str, number: i64) -> RowWrite<'static> {
    let columns = vec![integer(column, time, number)];
    write_of(
        key,
        time,
        Action::Update(Update {
            columns,
            ..Update::default()
        }),
    )
}

pub(crate) fn put(key: &str, time: i64, columns: &[(&'static str, i64)]) -> RowWrite<'static> {
    let columns = columns
        .iter()
        .map(|(name, number)| integer(name, time, *number))
        .collect();
    write_of(key, time, Action::Put(columns))
}

/// Returns deletes of the rows with these numbers.
pub(crate) fn deletes(numbers: impl Iterator<Item = usize>, time: i64) -> Vec<RowWrite<'static>> {
    numbers
        .map(|number| write_of(&key(number), time, Action::Delete))
        .collect()
}

pub(crate) fn increment(key: &str, time: i64, column: &'static str, by: i64) -> RowWrite<'static> {
    let update = Update {
        increments: vec![Increment {
            column: named(column),
            by,
            is_unsigned: false,
        }],
        ..Update::default()
    };
    RowWrite {
        image: Image::After,
        ..write_of(key, time, Action::Update(update))
    }
}

pub(crate) fn when(write: RowWrite<'static>, condition: Condition<'static>) -> RowWrite<'static> {
    RowWrite {
        condition: Some(condition),
        ..write
    }
}

pub(crate) fn named(name: &'static str) -> ColumnName<'static> {
    ColumnName::Named(name.into())
}

fn integer(name: &'static str, time: i64, number: i64) -> Column<'static> {
    Column::with(named(name), time, CellValue::I64(number))
}

/// Returns the newest value of a column; `None` if the column is missing or holds no `i64`.
pub(crate) fn number(row: &Mutation<'_>, name: &'static str) -> Option<i64> {
    match row.column(&named(name))?.newest()?.value {
        CellValue::I64(number) => Some(number),
        _ => None,
    }
}

pub(crate) fn fjall(folder: &Path) -> Arc<dyn Backend> {
    Arc::new(FjallBackend::open(folder, FjallOptions::default()).expect("fjall opens its folder"))
}

/// Returns the manifest row of the first part.
pub(crate) fn part_row(backend: &dyn Backend) -> ManifestRow {
    let stored = backend.manifest(SHARD).expect("it is read").rows;
    let row = stored.into_iter().find(|row| row.kind == ManifestKind::Part);
    row.expect("the table has a part")
}

/// Returns a bucket of the only part of the table, which is in the hot tier.
pub(crate) fn bucket(backend: &dyn Backend, bucket: u16) -> Partition {
    let part = PartRef {
        part: parse_part_name(&part_row(backend).name).expect("a part"),
        table: TABLE,
        tier: Tier::Hot,
    };
    Partition::part(part, bucket)
}

/// Returns all rows that a backend stores in a partition. A page may end before its limit.
pub(crate) fn stored_rows(backend: &dyn Backend, partition: Partition) -> Vec<Row> {
    let limit = PageLimit {
        rows_max: 100_000,
        bytes_max: 1 << 28,
    };
    let (mut rows, mut rest) = (Vec::new(), Some(KeyRange::ALL));
    while let Some(range) = rest {
        let page = backend.scan(partition, &range, Direction::Ascending, limit);
        let page = page.expect("it is read");
        rows.extend(page.rows);
        rest = page.next;
    }
    rows
}

/// Returns a keyspace on a node of Cassandra; `None` after a message if there is no node.
pub(crate) fn cluster() -> Option<ScratchKeyspace> {
    let keyspace = ScratchKeyspace::create(shared_node()?);
    Some(keyspace.expect("a keyspace"))
}

/// Calls `test` for both in-memory backends and for fjall, with a function that reopens the backend.
pub(crate) fn every_backend(test: impl Fn(&dyn Fn() -> Arc<dyn Backend>)) {
    for character in [Character::Embedded, Character::Distributed] {
        let disk = MemoryDisk::new(character);
        test(&|| Arc::new(MemoryBackend::open(&disk)));
    }
    let folder = tempfile::tempdir().expect("a folder");
    test(&|| fjall(&folder.path().join("data")));
}
