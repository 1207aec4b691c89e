//! Parts in the archive: every read returns the same rows before the archiving, in the archive, and after the
//! restoration.
//!
//! The rows are random. They have values of all types, several versions, undeclared columns, and values of other types
//! than declared. Some are in fragments, some are deleted, some are packed into blocks, and some are single.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use tideline_archive::{Archive, ArchiveSettings};
use tideline_backend::memory::{Character, EditFault, MemoryBackend, MemoryDisk};
use tideline_backend::{Backend, Direction};
use tideline_key_codec::layout::KeyLayout;
use tideline_key_codec::tuple::{Decimal, KeyValue};
use tideline_log::SHARD;
use tideline_model::{
    KeyRange, PartPeriod, SystemClock, TableId, TableModel, TableName, TableSpec, Tier, Timestamp, WideSpec,
};
use tideline_testkit::{Random, is_slow, seed};
use tideline_wide_table::check::{JournalChanges, StoredParts, check_index};
use tideline_wide_table::{
    Action, CellValue, Column, ColumnName, GcStep, Image, LargeKind, MoveEnd, MoveProgress, Mutation,
    PIECE_BYTES, PartToArchive, RowWrite, Settings, StoredRow, Update, ValueToCut, Version, WideError,
};

use super::database::*;
use super::paused::paused_backend;

const EVERY: PartPeriod = PartPeriod::Day;
/// 2026-10-01T00:00:00Z.
const START: i64 = 1_790_812_800_000_000_000;
const DAY: i64 = 86_400_000_000_000;

fn divided() -> TableSpec {
    let types = [
        "string",
        "i64",
        "u64",
        "f64",
        "bool",
        "binary",
        "decimal",
        "json",
        "timestamp",
    ];
    let columns = types.iter().zip(1..);
    // The order of the column numbers differs from the order of the names.
    let columns = columns.map(
        |(of, number)| serde_json::json!({"name": format!("{of}_column"), "type": of, "number": 20 - number}),
    );
    let wide = serde_json::json!({
        "key": [{"name": "k", "type": "string"}, {"name": "at", "type": "timestamp"}],
        "columns": columns.collect::<Vec<_>>(),
        "max_versions": 3,
        "parts": {"by": "at", "every": EVERY},
    });
    let wide: WideSpec = serde_json::from_value(wide).expect("valid settings");
    TableSpec {
        model: TableModel::Wide,
        wide: Some(Box::new(wide)),
        ..TableSpec::default()
    }
}

fn value(of: u64, random: &mut Random) -> CellValue<'static> {
    let number = match random.below(3) {
        0 => random.next(),
        1 => random.below(5),
        _ => 1_000_000 + random.below(1_000),
    };
    let text = ["", "a", "ünique", "a longer text that is in no other row"][random.below(4) as usize];
    match of {
        0 => CellValue::String(text.into()),
        1 => CellValue::I64(number.cast_signed()),
        2 => CellValue::U64(number),
        3 => CellValue::F64(f64::from_bits(number)),
        4 => CellValue::Bool(number % 2 == 1),
        5 => CellValue::Binary(number.to_le_bytes()[..(number % 8) as usize].to_vec().into()),
        6 => {
            let sign = if random.is(50) { -1 } else { 1 };
            let scale = random.below(39) as u8;
            CellValue::Decimal(Decimal::new(sign * i128::from(number), scale).expect("a scale"))
        }
        7 => CellValue::Json(format!("{{\"n\": {number}}}").into()),
        _ => CellValue::Timestamp(Timestamp::from_nanos_clamped(number.cast_signed())),
    }
}

/// Returns columns of a write. `odd` is the percentage of columns that the typed columns of a file cannot hold.
fn columns(time: i64, odd: u64, random: &mut Random) -> Vec<Column<'static>> {
    let mut columns = Vec::new();
    for of in 0..9 {
        if random.is(20) {
            continue;
        }
        let value = match random.is(odd) {
            true => value(random.below(9), random),
            false => value(of, random),
        };
        columns.push(Column::with(ColumnName::Declared(19 - of as u32), time, value));
    }
    columns.reverse();
    for name in ["other", "pöther"] {
        if random.is(odd) {
            columns.push(Column::with(named(name), time, value(random.below(9), random)));
        }
    }
    if random.is(odd / 4) {
        let bytes = vec![7; 3_000 + random.below(3_000) as usize];
        columns.push(Column::with(named("wide"), time, CellValue::Binary(bytes.into())));
    }
    columns
}

struct Lab {
    database: Database,
    layout: KeyLayout,
    target: tempfile::TempDir,
}

impl Lab {
    /// Writes random rows into a part.
    fn fill(&self, number: i32, odd: u64, random: &mut Random) {
        for step in 0..2 + random.below(4) as i64 {
            let mut writes = Vec::new();
            for _ in 0..random.below(300) {
                let at = Timestamp::from_nanos_clamped(EVERY.start_of(number) + random.below(5) as i64);
                let name = format!("k{:03}", random.below(400));
                let mut key = Vec::new();
                let values = [KeyValue::from(&name[..]), KeyValue::Timestamp(at)];
                self.layout.encode(&values, &mut key).expect("a key");
                let time = START + step * 10 + random.below(10) as i64;
                let mut columns = columns(time, odd, random);
                let action = match random.below(10) {
                    0 => Action::Delete,
                    1 if odd > 0 => {
                        let update = |column: &mut Column<'static>| {
                            let value = column.versions[0].value.clone();
                            let time = time - 5;
                            column.versions.push(Version { time, value });
                        };
                        columns.iter_mut().for_each(update);
                        Action::Update(Update {
                            columns,
                            ..Update::default()
                        })
                    }
                    _ => Action::Put(columns),
                };
                writes.push(RowWrite {
                    key: Bytes::from(key),
                    partition: 1,
                    time,
                    action,
                    condition: None,
                    image: Image::None,
                });
            }
            self.database.write(&writes);
            self.database.flush();
        }
    }

    fn rows(&self, direction: Direction) -> Vec<StoredRow> {
        let mut rows = self.database.rows_of(TABLE, KeyRange::ALL, direction, 97);
        if direction == Direction::Descending {
            rows.reverse();
        }
        rows
    }

    fn archive(&self, number: i32) -> MoveEnd {
        self.archive_after(number, &|| {}).expect("it is archived")
    }

    /// Archives a part. Calls `flushed` when the part is closed and flushed.
    fn archive_after(&self, number: i32, flushed: &dyn Fn()) -> Result<MoveEnd, WideError> {
        let manifest = self.database.threads.log().manifest();
        let part = PartToArchive {
            table: TABLE,
            number,
            spec: &manifest.tables[&TABLE].spec,
            origin: "0123456789abcdef".to_owned(),
            names: (TableName::new("rows").expect("a name"), EVERY.part_name(number)),
            target: format!("file://{}", self.target.path().display()),
        };
        let flush = || {
            self.database.threads.flush()?;
            flushed();
            Ok(())
        };
        self.database.store.archive_part(&part, &flush, &mut on)
    }
}

fn on(_: &MoveProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn rows_are_the_same_bit_for_bit_in_the_archive_and_after_it() {
    let seed = seed("rows_are_the_same_bit_for_bit_in_the_archive_and_after_it");
    every_backend(|backend| {
        let mut random = Random::new(seed);
        let target = tempfile::tempdir().expect("a folder");
        let archive = Archive::open(ArchiveSettings::new(target.path().join("temporary")));
        let settings = Settings {
            block_bytes: 600,
            fragment_bytes: 2_000,
            ..settings()
        };
        let spec = divided();
        let key = spec.wide.as_deref().expect("a wide table").key.clone();
        let database = Database::open_archived(
            backend(),
            (Arc::new(SystemClock), spec, settings),
            Some(Arc::new(archive.expect("it opens"))),
        );
        let lab = Lab {
            database,
            layout: KeyLayout::new(&key, true).expect("a key"),
            target,
        };
        for round in 0..if is_slow() { 80 } else { 8 } {
            let number = EVERY.number_of(START + round * DAY);
            // Half of the parts have only rows that the typed columns of files can hold; the others also have a few or
            // many other rows.
            lab.fill(number, random.of(&[0, 0, 2, 30]), &mut random);
            let rows = lab.rows(Direction::Ascending);
            assert_eq!(lab.rows(Direction::Descending), rows, "{seed}");
            let Some(part) = lab.database.store.parts_in_tiers(TABLE).pop() else {
                continue;
            };
            if part.number != number {
                continue;
            }
            assert!(matches!(lab.archive(number), MoveEnd::Moved(_)));
            let tiers = lab.database.store.parts_in_tiers(TABLE);
            assert_eq!(tiers.last().map(|part| part.tier), Some(Tier::Archive));
            assert_eq!(lab.rows(Direction::Ascending), rows, "{seed}, part {number}");
            assert_eq!(lab.rows(Direction::Descending), rows, "{seed}, part {number}");
            let restored = lab.database.store.restore_part(TABLE, number, i64::MAX, &mut on);
            assert!(matches!(restored.expect("it is restored"), MoveEnd::Moved(_)));
            assert_eq!(lab.rows(Direction::Ascending), rows, "{seed}, part {number}");
        }
        lab.database.close();
    });
}

#[test]
fn an_archiving_that_was_published_after_all_keeps_its_files() {
    let seed = seed("an_archiving_that_was_published_after_all_keeps_its_files");
    for (fault, tier) in [
        (EditFault::Applied, Tier::Archive),
        (EditFault::Lost, Tier::Hot),
        (EditFault::Late, Tier::Hot),
    ] {
        let disk = MemoryDisk::new(Character::Distributed);
        let target = tempfile::tempdir().expect("a folder");
        let archive = Archive::open(ArchiveSettings::new(target.path().join("temporary")));
        let spec = divided();
        let key = spec.wide.as_deref().expect("a wide table").key.clone();
        let database = Database::open_archived(
            Arc::new(MemoryBackend::open(&disk)),
            (Arc::new(SystemClock), spec, settings()),
            Some(Arc::new(archive.expect("it opens"))),
        );
        let lab = Lab {
            database,
            layout: KeyLayout::new(&key, true).expect("a key"),
            target,
        };
        let number = EVERY.number_of(START);
        lab.fill(number, 0, &mut Random::new(seed));
        let rows = lab.rows(Direction::Ascending);
        assert!(!rows.is_empty());
        // The next edit publishes the part. Its outcome is known at the second read of the manifest.
        let unknown = lab.archive_after(number, &|| {
            disk.fail_edit(fault);
            disk.fail_manifest_reads(1);
        });
        assert!(unknown.is_err(), "{fault:?}: {unknown:?}");
        let objects = lab.database.store.archived_objects().expect("the objects");
        assert_eq!(objects.keys.is_empty(), tier == Tier::Hot, "{fault:?}");
        assert!(objects.writing.is_empty(), "{fault:?}: the outcome is known");
        let tiers = lab.database.store.parts_in_tiers(TABLE);
        assert_eq!(tiers.last().map(|part| part.tier), Some(tier), "{fault:?}");
        assert!(lab.rows(Direction::Ascending) == rows, "{fault:?}, {seed}");
        if tier == Tier::Hot {
            assert!(matches!(lab.archive(number), MoveEnd::Moved(_)));
            assert!(lab.rows(Direction::Ascending) == rows, "{fault:?}, {seed}");
        }
        lab.database.close();
    }
}

#[test]
fn values_in_pieces_are_in_the_archive_with_their_rows() {
    let pieces = TableId(900);
    every_backend(|backend| {
        let target = tempfile::tempdir().expect("a folder");
        let archive = Archive::open(ArchiveSettings::new(target.path().join("temporary")));
        let mut spec = divided();
        let wide = spec.wide.as_deref_mut().expect("a wide table");
        wide.large_values = Some(pieces.0);
        wide.cut_values = true;
        let index = serde_json::json!([{"id": 901, "name": "by", "key": [{"name": "u64_column", "type": "u64"}],
            "covers": "all", "state": "ready"}]);
        wide.indexes = serde_json::from_value(index).expect("valid indexes");
        let key = wide.key.clone();
        let database = Database::open_archived(
            backend(),
            (Arc::new(SystemClock), spec, settings()),
            Some(Arc::new(archive.expect("it opens"))),
        );
        let layout = KeyLayout::new(&key, true).expect("a key");
        let lab = Lab {
            database,
            layout,
            target,
        };
        let (store, number) = (&lab.database.store, EVERY.number_of(START));
        // Columns with a declared type, with another type than declared, and without a declaration.
        let text = |of: usize| CellValue::String("täxt ".repeat(20_000 + of).into());
        let values: Vec<(ColumnName<'static>, CellValue<'static>)> = vec![
            (ColumnName::Declared(19), text(0)),
            (
                ColumnName::Declared(14),
                CellValue::Binary(vec![9; 400_000].into()),
            ),
            (
                ColumnName::Declared(12),
                CellValue::Json(format!("[{}1]", "1, ".repeat(40_000)).into()),
            ),
            (ColumnName::Declared(18), text(1)),
            (named("other"), text(2)),
        ];
        let mut writes = Vec::new();
        for row in 0..40_usize {
            let at = Timestamp::from_nanos_clamped(EVERY.start_of(number));
            let name = format!("k{row:03}");
            let mut key = Vec::new();
            let of_key = [KeyValue::from(&name[..]), KeyValue::Timestamp(at)];
            lab.layout.encode(&of_key, &mut key).expect("a key");
            let (column, value) = &values[row % values.len()];
            let to_cut = ValueToCut {
                key: &key,
                column,
                value,
            };
            let cut = store
                .cut_values(TABLE, &[to_cut])
                .expect("it is stored")
                .remove(0);
            let cut = CellValue::Large(cut.expect("the part can be written").value());
            let mut columns = vec![
                Column::with(column.clone(), START, cut),
                Column::with(ColumnName::Declared(17), START, CellValue::U64(row as u64)),
            ];
            columns.sort_by(|one, other| one.name.cmp(&other.name));
            writes.push(RowWrite {
                key: Bytes::from(key),
                partition: 1,
                time: START,
                action: Action::Put(columns),
                condition: None,
                image: Image::None,
            });
        }
        lab.database.write(&writes);
        lab.database.flush();
        let whole = || -> Vec<Mutation<'static>> {
            let rows = lab.rows(Direction::Ascending).into_iter().map(|row| {
                let key = row.key.clone();
                let whole = store.whole(TABLE, row, &|_| true, &mut || store.row(TABLE, &key));
                let whole = whole.expect("it is read").expect("the row exists");
                whole.columns().expect("it is intact").into_owned()
            });
            rows.collect()
        };
        let rows = whole();
        for (row, (column, value)) in rows.iter().zip(values.iter().cycle()) {
            let newest = row.column(column).and_then(Column::newest);
            assert!(newest.is_some_and(|newest| newest.value == *value), "{column:?}");
        }
        assert!(matches!(lab.archive(number), MoveEnd::Moved(_)));
        // A backend like a cluster returns short pages, so that a collection can take several steps.
        let collect_garbage = || {
            let (mut collected, mut from) = (GcStep::default(), None);
            loop {
                let step = store.gc_large_values(&lab.database.threads, TABLE, from);
                let step = step.expect("a step");
                collected.values += step.values;
                collected.removed += step.removed;
                from = step.next;
                if from.is_none() {
                    return collected;
                }
            }
        };
        let collected = collect_garbage();
        assert_eq!(
            (collected.values, collected.removed),
            (0, 40),
            "no row references pieces any more"
        );
        assert!(whole() == rows, "in the archive");
        let restored = store.restore_part(TABLE, number, i64::MAX, &mut on);
        assert!(matches!(restored.expect("it is restored"), MoveEnd::Moved(_)));
        assert!(whole() == rows, "restored");
        // The index entries still hold the references that the rows had before the part was archived.
        lab.database.flush();
        let backend = Arc::clone(lab.database.threads.log().backend());
        let parts = StoredParts::read(&*backend).expect("the parts");
        let index = lab.database.indexes().remove(0);
        let checked = check_index(
            &*backend,
            &parts,
            TABLE,
            &index,
            &JournalChanges::default(),
            &|_| false,
        );
        let checked = checked.expect("it is checked");
        assert_eq!((checked.rows, checked.findings), (40, vec![]));
        lab.database.close();
    });
}

#[test]
fn a_reader_that_begins_during_a_removal_of_pieces_reads_them_after_a_restore() {
    let pieces = TableId(900);
    let (backend, opened) = paused_backend();
    let target = tempfile::tempdir().expect("a folder");
    let archive = Archive::open(ArchiveSettings::new(target.path().join("temporary")));
    let mut spec = divided();
    let wide = spec.wide.as_deref_mut().expect("a wide table");
    wide.large_values = Some(pieces.0);
    let layout = KeyLayout::new(&wide.key, true).expect("a key");
    let database = Database::open_archived(
        opened,
        (Arc::new(SystemClock), spec, settings()),
        Some(Arc::new(archive.expect("it opens"))),
    );
    let lab = Lab {
        database,
        layout,
        target,
    };
    let (store, number) = (&lab.database.store, EVERY.number_of(START));
    let mut key = Vec::new();
    let at = Timestamp::from_nanos_clamped(EVERY.start_of(number));
    let of_key = [KeyValue::from("k"), KeyValue::Timestamp(at)];
    lab.layout.encode(&of_key, &mut key).expect("a key");
    let content: Vec<u8> = (0..PIECE_BYTES + 7).map(|at| at as u8).collect();
    let upload = store.begin_large(TABLE, &key, &named("other"), LargeKind::Binary);
    let mut upload = upload.expect("it begins");
    upload.write(&content).expect("it is written");
    let value = upload.finish().expect("it is complete");
    let columns = vec![Column::with(named("other"), START, CellValue::Large(value))];
    lab.database.write(&[RowWrite {
        key: Bytes::from(key.clone()),
        partition: 1,
        time: START,
        action: Action::Put(columns),
        condition: None,
        image: Image::None,
    }]);
    upload.kept();
    lab.database.flush();
    assert!(matches!(lab.archive(number), MoveEnd::Moved(_)));

    let mut parts = backend.parts(SHARD).expect("the parts").into_iter();
    let part = parts.find(|part| part.table == pieces);
    let part = part.expect("the part of the pieces");
    let removal = backend.pause(move |call| call.writes(part));
    let reader = thread::scope(|scope| {
        let collection = scope.spawn(|| store.gc_large_values(&lab.database.threads, TABLE, None));
        removal.wait();
        let reader = store.read_large(TABLE, &key, value).expect("it is read");
        removal.end();
        let step = collection.join().expect("it ends").expect("a step");
        assert_eq!(step.removed, 1);
        reader.expect("the archive has the pieces")
    });
    let restored = store.restore_part(TABLE, number, i64::MAX, &mut on);
    assert!(matches!(restored.expect("it is restored"), MoveEnd::Moved(_)));
    for start in [0, PIECE_BYTES] {
        let read = reader.at(start as u64).expect("it is restored");
        assert!(content[start..].starts_with(&read) && !read.is_empty(), "{start}");
    }
    drop(reader);
    lab.database.close();
}
