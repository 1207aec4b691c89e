//! Tests of large values: uploads, reads, removal and the offline check.
//!
//! Random uploads, stops, overwrites, flushes, restarts and garbage collections are compared with a naive model on
//! every backend.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_backend::{Backend, Direction, PageLimit, Partition, RowChange, Shard, Stamp};
use tideline_model::{Durability, KeyRange, PartsSpec, TableId, TableSpec};
use tideline_testkit::wait::until;
use tideline_wide_table::check::{JournalChanges, StoredParts};
use tideline_wide_table::{
    Action, CellValue, Column, Image, LARGE_BYTES_MAX, LargeKind, LargeUpload, LargeValue, Mutation,
    PIECE_BYTES, Refused, RowOutcome, RowWrite, Settings, Update, ValueToCut, WideError, check_large,
};

use super::database::*;

/// Id under which the pieces are stored.
const PIECES: TableId = TableId(900);

fn spec_with(versions_max: u32) -> TableSpec {
    let mut spec = spec(versions_max);
    let wide = spec.wide.as_deref_mut().expect("a wide table");
    wide.large_values = Some(PIECES.0);
    wide.cut_values = true;
    spec
}

fn open(backend: Arc<dyn Backend>, versions_max: u32) -> Database {
    let clock = Arc::new(tideline_model::SystemClock);
    Database::open_at(backend, clock, spec_with(versions_max), settings())
}

/// Returns bytes that depend on the seed and on the position.
fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut out: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| next()).collect();
    out.truncate(bytes);
    out
}

impl Database {
    fn begin(&self, key: &str, kind: LargeKind) -> LargeUpload {
        let upload = self.store.begin_large(TABLE, key.as_bytes(), &named("v"), kind);
        upload.expect("it begins")
    }

    fn write_large(&self, key: &str, value: LargeValue) -> RowOutcome {
        self.write_one(self.large_write(key, value))
    }

    fn large_write(&self, key: &str, value: LargeValue) -> RowWrite<'static> {
        let time = self.store.next_version();
        let columns = vec![Column::with(named("v"), time, CellValue::Large(value))];
        let update = Update {
            columns,
            ..Update::default()
        };
        write_of(key, time, Action::Update(update))
    }

    fn upload(&self, key: &str, content: &[u8]) {
        let mut upload = self.begin(key, LargeKind::Binary);
        for part in content.chunks(100_000) {
            upload.write(part).expect("it is written");
        }
        let value = upload.finish().expect("it is complete");
        assert_eq!(value.bytes, content.len() as u64);
        assert_eq!(self.write_large(key, value), RowOutcome::Written(None));
        upload.kept();
    }

    /// Stores values of rows in pieces, then writes all of the rows at once.
    fn cut(&self, rows: &[(&str, &[u8])]) {
        let values: Vec<CellValue<'_>> = rows
            .iter()
            .map(|(_, content)| CellValue::Binary(content.to_vec().into()))
            .collect();
        let column = named("v");
        let to_cut = rows.iter().zip(&values).map(|((key, _), value)| ValueToCut {
            key: key.as_bytes(),
            column: &column,
            value,
        });
        let cut = self.store.cut_values(TABLE, &to_cut.collect::<Vec<_>>());
        let cut = cut.expect("they are stored");
        let writes = rows.iter().zip(&cut).map(|((key, _), cut)| {
            let cut = cut.as_ref().expect("the part can be written");
            self.large_write(key, cut.value())
        });
        let written = self.write(&writes.collect::<Vec<_>>());
        let is_written = |outcome: &RowOutcome| *outcome == RowOutcome::Written(None);
        assert!(written.rows.iter().all(is_written), "{:?}", written.rows);
    }

    /// Returns the value of a row with its content.
    fn whole(&self, key: &str) -> Option<CellValue<'static>> {
        let read = || self.store.row(TABLE, key.as_bytes());
        let row = read().expect("it is read")?;
        let (digest, bytes) = (row.digest(), row.bytes());
        let whole = self.store.whole(TABLE, row, &|_| true, &mut || read());
        let whole = whole.expect("it is read").expect("the row exists");
        assert_eq!(
            whole.digest(),
            digest,
            "a revision is a digest of the stored bytes"
        );
        let columns = whole.columns().expect("it is intact").into_owned();
        let value = columns.column(&named("v"))?.newest()?.value.clone();
        let is_larger = matches!(&value, CellValue::Binary(content) if content.len() > 65_536);
        assert_eq!(whole.bytes() > bytes + 65_000, is_larger);
        Some(value)
    }

    fn named_value(&self, key: &str) -> Option<LargeValue> {
        let row: Mutation<'_> = self.row(key.as_bytes())?;
        match row.column(&named("v"))?.newest()?.value {
            CellValue::Large(value) => Some(value),
            _ => None,
        }
    }

    fn read_large(&self, key: &str) -> Option<Vec<u8>> {
        let value = self.named_value(key)?;
        let reader = self.store.read_large(TABLE, key.as_bytes(), value);
        let reader = reader.expect("it is read").expect("its pieces exist");
        let mut out = Vec::new();
        loop {
            let bytes = reader.at(out.len() as u64).expect("an intact piece");
            if bytes.is_empty() {
                return Some(out);
            }
            assert!(bytes.len() <= PIECE_BYTES);
            out.extend_from_slice(&bytes);
        }
    }

    /// Collects the garbage of the whole table. Returns the number of kept values and the number of removed values.
    fn collect_garbage(&self) -> (u64, u64) {
        let (mut kept, mut removed, mut from) = (0, 0, None);
        loop {
            let step = self.store.gc_large_values(&self.threads, TABLE, from);
            let step = step.expect("a step");
            kept += step.values;
            removed += step.removed;
            from = step.next;
            if from.is_none() {
                return (kept, removed);
            }
        }
    }

    /// Returns the number of stored headers and pieces.
    fn stored_pieces(&self) -> usize {
        pieces(self.threads.log().backend().as_ref()).len()
    }
}

/// Returns the keys of all headers and pieces, each with its partition.
fn pieces(backend: &dyn Backend) -> Vec<(Partition, Bytes)> {
    let parts = backend.parts(Shard(0)).expect("the parts");
    let mut keys = Vec::new();
    for part in parts.into_iter().filter(|part| part.table == PIECES) {
        let partition = Partition::part(part, 0);
        let mut rest = Some(KeyRange::ALL);
        while let Some(range) = rest {
            let limit = PageLimit {
                rows_max: 100,
                bytes_max: 1 << 20,
            };
            let page = backend
                .scan(partition, &range, Direction::Ascending, limit)
                .expect("a page");
            keys.extend(page.rows.into_iter().map(|row| (partition, row.key)));
            rest = page.next;
        }
    }
    keys
}

#[derive(Debug, Clone)]
enum Step {
    Upload(String, u64, usize),
    /// Uploads a part of a value and stops.
    Stop(String, u64, usize),
    /// Uploads a value and does not write the row.
    Abandon(String, u64, usize),
    /// Stores values of one row, or of several rows, in pieces with an ordinary write.
    Cut(Vec<String>, u64, usize),
    /// Stores a value in pieces and does not write the row.
    AbandonCut(String, u64, usize),
    Set(String, i64),
    Delete(String),
    DeleteAll,
    Flush,
    Restart,
    CollectGarbage,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || "[a-c]".prop_map(|text| encoded(&text));
    let size = || prop_oneof![8 => 1..2_000_usize, 8 => 250_000..270_000_usize, 8 => 500_000..900_000_usize, 1 => 4_100_000..4_600_000_usize];
    let step = prop_oneof![
        6 => (key(), any::<u64>(), size()).prop_map(|(key, seed, size)| Step::Upload(key, seed, size)),
        2 => (key(), any::<u64>(), size()).prop_map(|(key, seed, size)| Step::Stop(key, seed, size)),
        1 => (key(), any::<u64>(), size()).prop_map(|(key, seed, size)| Step::Abandon(key, seed, size)),
        4 => (proptest::sample::subsequence(vec!["a", "b", "c"], 1..4), any::<u64>(), 65_537..1_500_000_usize)
            .prop_map(|(keys, seed, size)| Step::Cut(keys.into_iter().map(encoded).collect(), seed, size)),
        1 => (key(), any::<u64>(), 65_537..600_000_usize)
            .prop_map(|(key, seed, size)| Step::AbandonCut(key, seed, size)),
        2 => (key(), 0..9_i64).prop_map(|(key, number)| Step::Set(key, number)),
        1 => key().prop_map(Step::Delete),
        1 => Just(Step::DeleteAll),
        2 => Just(Step::Flush),
        1 => Just(Step::Restart),
        3 => Just(Step::CollectGarbage),
    ];
    proptest::collection::vec(step, 1..25)
}

#[test]
fn random_uploads_are_whole_or_absent_and_leave_nothing() {
    every_backend(|open_backend| {
        let mut runner = TestRunner::new(tideline_testkit::proptest_config(12));
        runner
            .run(&steps(), |steps| {
                let mut database = open(open_backend(), 1);
                database.delete_rows(KeyRange::ALL);
                database.collect_garbage();
                let mut model: BTreeMap<String, (u64, usize)> = BTreeMap::new();
                for step in steps {
                    match step {
                        Step::Upload(key, seed, size) => {
                            database.upload(&key, &content(seed, size));
                            model.insert(key, (seed, size));
                        }
                        Step::Stop(key, seed, size) => {
                            let mut upload = database.begin(&key, LargeKind::Binary);
                            upload.write(&content(seed, size)).expect("it is written");
                        }
                        Step::Abandon(key, seed, size) => {
                            let mut upload = database.begin(&key, LargeKind::Binary);
                            upload.write(&content(seed, size)).expect("it is written");
                            upload.finish().expect("it is complete");
                            let before = database.stored_pieces();
                            upload.abandon();
                            prop_assert!(database.stored_pieces() < before);
                        }
                        Step::Cut(keys, seed, size) => {
                            let content = content(seed, size);
                            let rows: Vec<(&str, &[u8])> =
                                keys.iter().map(|key| (&key[..], &content[..])).collect();
                            database.cut(&rows);
                            for key in keys {
                                prop_assert_eq!(
                                    database.whole(&key),
                                    Some(CellValue::Binary(content.clone().into()))
                                );
                                model.insert(key, (seed, size));
                            }
                        }
                        Step::AbandonCut(key, seed, size) => {
                            let value = CellValue::Binary(content(seed, size).into());
                            let to_cut = ValueToCut {
                                key: key.as_bytes(),
                                column: &named("v"),
                                value: &value,
                            };
                            let before = database.stored_pieces();
                            let cut = database.store.cut_values(TABLE, &[to_cut]).expect("it is stored");
                            prop_assert_eq!(
                                database.stored_pieces(),
                                before + 1 + size.div_ceil(PIECE_BYTES)
                            );
                            let cut: Vec<_> = cut.into_iter().flatten().collect();
                            database.store.abandon_cut(&cut);
                            drop(cut);
                            prop_assert_eq!(database.stored_pieces(), before);
                        }
                        Step::Set(key, number) => {
                            let time = database.store.next_version();
                            database.write_one(set(&key, time, "v", number));
                            model.remove(&key);
                        }
                        Step::Delete(key) => {
                            let time = database.store.next_version();
                            database.write_one(write_of(&key, time, Action::Delete));
                            model.remove(&key);
                        }
                        Step::DeleteAll => {
                            database.delete_rows(KeyRange::ALL);
                            model.clear();
                        }
                        Step::Flush => database.flush(),
                        Step::Restart => {
                            database.close();
                            database = open(open_backend(), 1);
                        }
                        Step::CollectGarbage => {
                            let (kept, _) = database.collect_garbage();
                            prop_assert_eq!(kept, model.len() as u64);
                            let pieces = |(_, size): &(u64, usize)| 1 + size.div_ceil(PIECE_BYTES);
                            prop_assert_eq!(
                                database.stored_pieces(),
                                model.values().map(pieces).sum::<usize>()
                            );
                        }
                    }
                    for key in ["a", "b", "c"].map(encoded) {
                        let expected = model.get(&key).map(|(seed, size)| content(*seed, *size));
                        prop_assert!(database.read_large(&key) == expected, "{}", key);
                    }
                }
                database.flush();
                let backend = Arc::clone(database.threads.log().backend());
                let parts = StoredParts::read(&*backend).expect("the parts");
                let checked = check_large(&*backend, &parts, TABLE, &JournalChanges::default());
                let checked = checked.expect("it is checked");
                prop_assert_eq!((checked.rows, checked.findings), (model.len() as u64, vec![]));
                database.close();
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{error}\n{runner}"));
    });
}

#[test]
fn a_value_stays_while_it_is_read_or_an_older_version_names_it() {
    let disk = MemoryDisk::new(Character::Embedded);
    let database = open(Arc::new(MemoryBackend::open(&disk)), 2);
    let key = encoded("a");
    let (first, second, third) = (content(1, 300_000), content(2, 70_000), content(3, 70_000));
    database.upload(&key, &first);
    let value = database.named_value(&key).expect("a large value");
    database.upload(&key, &second);
    assert_eq!(
        database.collect_garbage(),
        (2, 0),
        "the older version names the first value"
    );
    let reader = database.store.read_large(TABLE, key.as_bytes(), value);
    let reader = reader.expect("it is read").expect("its pieces exist");
    database.upload(&key, &third);
    database.flush();
    assert_eq!(
        database.collect_garbage(),
        (2, 0),
        "the first value is being read"
    );
    assert_eq!(
        reader.at(PIECE_BYTES as u64).expect("a piece"),
        first[PIECE_BYTES..]
    );
    assert_eq!(reader.at(value.bytes).expect("the end"), b""[..]);
    drop(reader);
    assert_eq!(database.collect_garbage(), (2, 1));
    let again = database.store.read_large(TABLE, key.as_bytes(), value);
    assert!(again.expect("it is read").is_none(), "the pieces were removed");
    assert_eq!(database.read_large(&key), Some(third));
}

#[test]
fn values_of_versions_that_exceed_a_lowered_number_stay_until_a_flush_removes_the_versions() {
    let disk = MemoryDisk::new(Character::Embedded);
    let database = open(Arc::new(MemoryBackend::open(&disk)), 3);
    let key = encoded("a");
    for seed in 1..=3 {
        database.cut(&[(&key, &content(seed, 70_000))]);
    }
    let keep = |versions_max| database.change_wide(|wide| wide.max_versions = versions_max);
    let findings = || {
        let backend = database.threads.log().backend();
        let parts = StoredParts::read(&**backend).expect("the parts");
        let checked = check_large(&**backend, &parts, TABLE, &JournalChanges::default());
        checked.expect("it is checked").findings
    };
    database.flush();
    keep(1);
    assert_eq!(database.collect_garbage(), (3, 0), "stored versions");
    assert_eq!(findings(), [""; 0]);
    keep(3);
    let last = CellValue::Binary(content(3, 70_000).into());
    assert_eq!(database.whole(&key), Some(last.clone()));

    keep(1);
    database.write_one(set(&key, database.store.next_version(), "n", 7));
    database.flush();
    assert_eq!(database.collect_garbage(), (1, 2));
    assert_eq!(findings(), [""; 0]);
    assert_eq!(database.whole(&key), Some(last));
}

#[test]
fn overwritten_values_in_the_buffer_are_removed_by_one_collection() {
    let disk = MemoryDisk::new(Character::Embedded);
    let database = open(Arc::new(MemoryBackend::open(&disk)), 3);
    let key = encoded("a");
    for seed in 1..=3 {
        database.upload(&key, &content(seed, 70_000));
    }
    let keep = |versions_max| database.change_wide(|wide| wide.max_versions = versions_max);
    assert_eq!(database.collect_garbage(), (3, 0));
    assert!(database.store.buffer_bytes().0 > 0, "nothing had to be flushed");
    keep(1);
    assert_eq!(database.collect_garbage(), (1, 2));
    assert_eq!(database.stored_pieces(), 2, "one header and one piece");
    // A raised number shows no version again whose value was removed.
    keep(3);
    database.flush();
    let backend = database.threads.log().backend();
    let parts = StoredParts::read(&**backend).expect("the parts");
    let checked = check_large(&**backend, &parts, TABLE, &JournalChanges::default());
    let checked = checked.expect("it is checked");
    assert_eq!((checked.rows, checked.findings), (1, vec![]));
    assert_eq!(database.read_large(&key), Some(content(3, 70_000)));
}

#[test]
fn a_collection_does_not_flush_young_changes() {
    let disk = MemoryDisk::new(Character::Embedded);
    let young = Settings {
        surplus_age_min: Duration::from_secs(3_600),
        ..settings()
    };
    let clock = Arc::new(tideline_model::SystemClock);
    let database = Database::open_at(Arc::new(MemoryBackend::open(&disk)), clock, spec_with(3), young);
    let key = encoded("a");
    for seed in 1..=3 {
        database.upload(&key, &content(seed, 70_000));
    }
    database.change_wide(|wide| wide.max_versions = 1);
    let buffered = database.store.buffer_bytes();
    assert_eq!(database.collect_garbage(), (3, 0), "all values are kept");
    assert_eq!(database.store.buffer_bytes(), buffered, "nothing was flushed");
    database.flush();
    assert_eq!(database.collect_garbage(), (1, 2));
    assert_eq!(database.read_large(&key), Some(content(3, 70_000)));
}

#[test]
fn an_old_buffer_is_flushed_although_it_is_small() {
    let disk = MemoryDisk::new(Character::Embedded);
    let old = Settings {
        buffer_age_max: Duration::ZERO,
        ..Settings::default()
    };
    let backend = Arc::new(MemoryBackend::open(&disk));
    let database = Database::open_with(backend, 1, old);
    database.write_one(set(&encoded("a"), 1, "a", 7));
    let flushed = until(Duration::from_secs(30), || {
        (database.store.buffer_bytes() == (0, 0)).then_some(())
    });
    assert_eq!(flushed, Some(()), "{:?}", database.store.buffer_bytes());
    database.close();
    let young = Database::open(Arc::new(MemoryBackend::open(&disk)), 1);
    young.write_one(set(&encoded("b"), 2, "a", 7));
    assert!(young.store.buffer_bytes().0 > 0, "a young buffer is not flushed");
}

#[test]
fn an_upload_in_progress_or_of_unknown_outcome_is_not_removed() {
    let disk = MemoryDisk::new(Character::Embedded);
    let database = open(Arc::new(MemoryBackend::open(&disk)), 1);
    let key = encoded("a");
    let mut upload = database.begin(&key, LargeKind::Text);
    upload.write(&vec![b'x'; 100_000]).expect("it is written");
    let value = upload.finish().expect("it is complete");
    assert_eq!(database.collect_garbage(), (0, 0));
    upload.hold();
    assert_eq!(database.collect_garbage(), (0, 0));
    assert_eq!(database.write_large(&key, value), RowOutcome::Written(None));
    assert_eq!(database.read_large(&key).map(|text| text.len()), Some(100_000));
    database.close();
    let database = open(Arc::new(MemoryBackend::open(&disk)), 1);
    assert_eq!(database.collect_garbage(), (1, 0));
}

#[test]
fn an_upload_refuses_other_text_and_too_many_bytes() {
    let disk = MemoryDisk::new(Character::Embedded);
    let database = open(Arc::new(MemoryBackend::open(&disk)), 1);
    let mut upload = database.begin(&encoded("a"), LargeKind::Text);
    upload.write(b"a\xc3").expect("a character may be cut");
    assert!(matches!(upload.finish(), Err(WideError::NotText)));
    assert!(matches!(upload.write(b"a"), Err(WideError::NotText)));
    let mut upload = database.begin(&encoded("a"), LargeKind::Binary);
    // The pages of this zeroed memory are never touched, so the allocation is cheap.
    let refused = upload.write(&vec![0; LARGE_BYTES_MAX as usize + 1]);
    let refused = refused.expect_err("the limit is exceeded");
    let is_limit = matches!(
        refused,
        WideError::TooLarge {
            limit: LARGE_BYTES_MAX,
            ..
        }
    );
    assert!(is_limit, "{refused}");
}

#[test]
fn dropped_parts_take_their_values_along() {
    let disk = MemoryDisk::new(Character::Embedded);
    let wide = serde_json::json!({
        "key": [{"name": "at", "type": "timestamp"}],
        "allow_rising_key": true,
        "parts": {"by": "at", "every": "day"},
        "large_values": PIECES.0,
    });
    let spec = TableSpec {
        model: tideline_model::TableModel::Wide,
        wide: Some(Box::new(serde_json::from_value(wide).expect("valid settings"))),
        ..TableSpec::default()
    };
    let clock = Arc::new(tideline_model::SystemClock);
    let database = Database::open_at(Arc::new(MemoryBackend::open(&disk)), clock, spec, settings());
    let key_of = |day: i64| {
        let manifest = database.threads.log().manifest();
        let wide = manifest.tables[&TABLE].spec.wide.clone().expect("a wide table");
        let layout = tideline_key_codec::layout::KeyLayout::new(&wide.key, true).expect("a valid key");
        let time = tideline_model::Timestamp::from_nanos_clamped(day * 86_400_000_000_000);
        let mut key = Vec::new();
        layout
            .encode(&[tideline_key_codec::tuple::KeyValue::Timestamp(time)], &mut key)
            .expect("a valid value");
        key
    };
    let days = [20_000, 20_001, 20_002];
    for day in days {
        let key = key_of(day);
        let mut upload = database
            .store
            .begin_large(TABLE, &key, &named("v"), LargeKind::Binary)
            .expect("it begins");
        upload.write(&content(day as u64, 70_000)).expect("it is written");
        let value = upload.finish().expect("it is complete");
        let mut write = database.large_write("", value);
        write.key = key.into();
        database.write_one(write);
        upload.kept();
    }
    let parts = |backend: &dyn Backend| {
        let parts = backend.parts(Shard(0)).expect("the parts").into_iter();
        parts.filter(|part| part.table == PIECES).count()
    };
    let backend = Arc::clone(database.threads.log().backend());
    assert_eq!((parts(&*backend), database.collect_garbage()), (3, (3, 0)));
    let mut open = database
        .store
        .begin_large(TABLE, &key_of(20_000), &named("v"), LargeKind::Binary)
        .expect("it begins");
    open.write(&content(9, 70_000)).expect("it is gathered");
    database.change_wide(|wide| {
        wide.parts = Some(PartsSpec {
            first: 20_001,
            ..wide.parts.clone().expect("parts")
        });
    });
    let refused = open.finish();
    assert!(matches!(refused, Err(WideError::LargeGone(TABLE))), "{refused:?}");
    assert_eq!(database.collect_garbage(), (2, 0));
    database.flush();
    assert_eq!(parts(&*backend), 2, "the part of the dropped day is freed");
    let refused = database
        .store
        .begin_large(TABLE, &key_of(20_000), &named("v"), LargeKind::Binary);
    assert!(matches!(refused, Err(WideError::LargeGone(TABLE))));
}

#[test]
fn the_check_finds_missing_and_damaged_pieces() {
    let disk = MemoryDisk::new(Character::Embedded);
    let database = open(Arc::new(MemoryBackend::open(&disk)), 1);
    for (number, key) in ["a", "b", "c"].map(encoded).iter().enumerate() {
        database.upload(key, &content(number as u64, 300_000));
    }
    database.flush();
    let backend = Arc::clone(database.threads.log().backend());
    let check = || {
        let parts = StoredParts::read(&*backend).expect("the parts");
        let checked = check_large(&*backend, &parts, TABLE, &JournalChanges::default());
        checked.expect("it is checked").findings
    };
    assert_eq!(check(), [""; 0]);
    let stored = pieces(&*backend);
    let stored: Vec<_> = stored.into_iter().filter(|(_, key)| key[0] == 1).collect();
    assert_eq!(stored.len(), 6);
    let change = |(partition, key): &(Partition, Bytes), value: Option<Bytes>| {
        let change = RowChange {
            key: key.clone(),
            value,
        };
        backend
            .write(*partition, &[change], Stamp(u64::MAX / 2), Durability::Synced)
            .expect("it is changed");
    };
    change(&stored[1], None);
    let other = backend
        .get(stored[4].0, &stored[4].1)
        .expect("a read")
        .expect("a piece");
    change(&stored[2], Some(other));
    let findings = check();
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(findings[0].contains("missing"), "{findings:?}");
    assert!(findings[1].contains("checksum"), "{findings:?}");
    for key in ["a", "b"].map(encoded) {
        let value = database.named_value(&key).expect("a large value");
        let reader = database.store.read_large(TABLE, key.as_bytes(), value);
        let reader = reader.expect("it is read").expect("the first piece exists");
        let read = [0, PIECE_BYTES as u64].map(|offset| reader.at(offset));
        let is_damaged = |read: &Result<Bytes, WideError>| matches!(read, Err(WideError::Damaged { .. }));
        assert_eq!(read.iter().filter(|read| is_damaged(read)).count(), 1);
    }
}

#[test]
fn conditions_and_images_of_writes_have_the_contents_of_cut_values() {
    let disk = MemoryDisk::new(Character::Embedded);
    let database = open(Arc::new(MemoryBackend::open(&disk)), 1);
    let key = encoded("a");
    let (first, second) = (content(1, 100_000), content(2, 100_000));
    database.cut(&[(&key, &first)]);
    database.flush();
    let newest = |row: Option<&Mutation<'_>>| {
        let row = row?.clone().into_owned();
        row.column(&named("v"))?
            .newest()
            .map(|version| version.value.clone())
    };
    let of = |content: &[u8]| Some(CellValue::Binary(content.to_vec().into()));
    for (required, image) in [
        (&second, Image::Before),
        (&first, Image::Before),
        (&first, Image::After),
    ] {
        let (time, expected) = (database.store.next_version(), of(required));
        let write = RowWrite {
            condition: Some(Box::new(move |row| newest(row) == expected)),
            image,
            ..set(&key, time, "n", 7)
        };
        let (row, is_met) = match database.write_one(write) {
            RowOutcome::ConditionFailed(row) => (row, false),
            RowOutcome::Written(row) => (row, true),
            other => panic!("{other:?}"),
        };
        assert_eq!(is_met, required == &first);
        assert_eq!(newest(row.as_ref()), of(&first));
    }
    assert_eq!(database.collect_garbage(), (1, 0));
    assert_eq!(database.whole(&key), of(&first));
}

#[test]
fn contents_of_cut_values_count_for_the_limits_of_rows_and_columns() {
    let disk = MemoryDisk::new(Character::Embedded);
    let database = open(Arc::new(MemoryBackend::open(&disk)), 3);
    let key = encoded("a");
    let content = vec![7; 900_000];
    for number in 0..3 {
        let value = CellValue::Binary(content.clone().into());
        let to_cut = ValueToCut {
            key: key.as_bytes(),
            column: &named("v"),
            value: &value,
        };
        assert!(ValueToCut::is_cut(&value));
        let cut = database.store.cut_values(TABLE, &[to_cut]).expect("it is stored");
        let cut: Vec<_> = cut.into_iter().flatten().collect();
        let outcome = database.write_large(&key, cut[0].value());
        match number {
            0 | 1 => assert_eq!(outcome, RowOutcome::Written(None)),
            _ => assert!(
                matches!(outcome, RowOutcome::Refused(Refused::ColumnTooLarge(_, bytes)) if bytes > 2_700_000),
                "{outcome:?}"
            ),
        }
    }
    assert!(!ValueToCut::is_cut(&CellValue::Binary(vec![7; 65_536].into())));
    assert!(!ValueToCut::is_cut(&CellValue::Binary(
        vec![7; (2 << 20) + 1].into()
    )));
    assert!(!ValueToCut::is_cut(&CellValue::I64(7)));
}

#[test]
fn concurrent_values_are_whole() {
    let disk = MemoryDisk::new(Character::Embedded);
    let database = open(Arc::new(MemoryBackend::open(&disk)), 1);
    let value_of =
        |thread: u64, number: u64| content(thread * 100 + number, 70_000 + 1_000 * number as usize);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let database = &database;
            scope.spawn(move || {
                for number in 0..12 {
                    database.cut(&[(&encoded(&format!("{thread}-{number}")), &value_of(thread, number))]);
                }
            });
        }
    });
    for (thread, number) in (0..8).flat_map(|thread| (0..12).map(move |number| (thread, number))) {
        let whole = database.whole(&encoded(&format!("{thread}-{number}")));
        assert!(whole == Some(CellValue::Binary(value_of(thread, number).into())));
    }
    assert_eq!(database.collect_garbage(), (96, 0));
}

#[test]
fn concurrent_first_values_create_one_part() {
    const ROUNDS: u64 = 20;
    const WRITERS: usize = 8;
    let mut edits = 0;
    for _ in 0..ROUNDS {
        let disk = MemoryDisk::new(Character::Embedded);
        let database = open(Arc::new(MemoryBackend::open(&disk)), 1);
        let version = || database.threads.log().manifest().version;
        let before = version();
        let start = Barrier::new(WRITERS);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (database, start) = (&database, &start);
                scope.spawn(move || {
                    start.wait();
                    drop(database.begin(&encoded(&format!("{writer}")), LargeKind::Binary));
                });
            }
        });
        edits += version() - before;
        database.close();
    }
    // A writer that publishes the part after another one can replace a part that already has pieces. Few edits are made
    // for other reasons, such as storing the trusted time.
    assert!(edits < 2 * ROUNDS, "{edits} edits created {ROUNDS} parts");
}
