//! Files of archived segments: unreferenced files are found and removed, referenced files stay. Also tests the cost
//! of reading files.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tideline_archive::layout::file_name;
use tideline_archive::{Archive, ArchiveCopy, ArchiveSettings, Attached, Description, SegmentTarget};
use tideline_backend::memory::{Character, MemoryDisk};
use tideline_chunk::{ColumnSummary, NewTimeline, SequenceSpan, Sum};
use tideline_model::time::NANOS_PER_DAY;
use tideline_model::{
    ManualClock, SegmentId, SequenceNumber, TableId, TableName, Tier, TimeRange, TimelineId, Timestamp,
    Value, ValueType,
};
use tideline_series_store::scan::{Grid, Part};
use tideline_series_store::{
    Adopted, Delete, Order, Recovery, Rewrite, RewriteCause, Selection, SeriesStore, Settings, StoreError,
    Table, TimelineDirectory,
};

use crate::fixture::{Half, Point, TARGET, TestBackend, archived_table, read, timeline, tiny, write};
use crate::moves::all_steps;

/// Time later than any file that a test writes.
const LATE: i64 = i64::MAX / 2;

/// Moves all segments of a table into one archived segment.
fn archive_all(store: &SeriesStore, table: &Table) {
    let survey = store.survey();
    let inputs = survey.tables.iter().flat_map(|table| &table.segments);
    let rewrite = Rewrite {
        table: table.id(),
        inputs: inputs.map(|have| have.segment.id).collect(),
        tier: Tier::Archive,
        cause: RewriteCause::Archive,
    };
    store.rewrite(&rewrite, &mut all_steps()).expect("a move");
}

/// Returns the files of the only archived segment.
fn copy_of(store: &SeriesStore) -> Arc<ArchiveCopy> {
    let survey = store.survey();
    let segments = survey.tables.iter().flat_map(|table| &table.segments);
    let archived = segments.filter_map(|have| store.files_of(&have.segment).expect("it reads"));
    let [copy] = archived.collect::<Vec<_>>().try_into().expect("one is archived");
    copy
}

/// Writes files like those of a job that ended before any reference to them was stored. Returns their number.
fn orphans(archive: &Archive, store: &SeriesStore, origin: &str, table: &str) -> u64 {
    let test_backend = SegmentTarget {
        origin: origin.into(),
        table: TableName::new(table).expect("valid"),
        segment: SegmentId(1_000_000),
        target: TARGET.into(),
    };
    let of = store.table("default").expect("it is there");
    let mut writer = archive
        .writer(test_backend, &Half, of.schema())
        .expect("it begins");
    let run = tideline_chunk::Run {
        timestamps: vec![1],
        columns: Vec::new(),
    };
    let sequences = SequenceSpan {
        lowest: SequenceNumber(1),
        highest: SequenceNumber(1),
    };
    writer.add(timeline(1), &run, sequences).expect("added");
    let written = writer.finish(&mut || true).expect("written");
    written.copy.keys().count() as u64
}

/// Writes files like those of a failed job, with or without a complete description. Returns their names.
pub(crate) fn leftovers(
    archive: &Archive,
    store: &SeriesStore,
    origin: &str,
    is_described: bool,
) -> BTreeSet<String> {
    static NEXT: AtomicU64 = AtomicU64::new(2_000_000);
    let test_backend = SegmentTarget {
        origin: origin.into(),
        table: TableName::new("default").expect("valid"),
        segment: SegmentId(NEXT.fetch_add(1, Ordering::Relaxed)),
        target: TARGET.into(),
    };
    let of = store.table("default").expect("it is there");
    let mut writer = archive
        .writer(test_backend.clone(), &Half, of.schema())
        .expect("it begins");
    let sent = writer.sent();
    let run = tideline_chunk::Run {
        timestamps: (0..60).collect(),
        columns: Vec::new(),
    };
    let sequences = SequenceSpan {
        lowest: SequenceNumber(1),
        highest: SequenceNumber(1),
    };
    writer.add(timeline(1), &run, sequences).expect("added");
    let written = writer.finish(&mut || true).expect("written");
    if is_described {
        let description = Description {
            format: tideline_archive::FORMAT,
            table: test_backend.table.clone(),
            spec: None,
            fields: Some(written.fields),
            segment: serde_json::json!({"id": test_backend.segment.0}),
            archive: written.copy,
        };
        archive
            .describe(&test_backend, &description, &sent)
            .expect("described");
    }
    sent.newest_first().into_iter().collect()
}

#[test]
fn unreferenced_files_are_removed_also_of_dropped_tables() {
    let test_backend = TestBackend::Memory(MemoryDisk::new(Character::Embedded));
    let clock = ManualClock::new(Timestamp::from_nanos_clamped(LATE));
    let settings = tiny();
    let (store, _) = test_backend.open_at(&settings, &clock);
    let archive = settings.archive.clone().expect("there is one");
    store.alter_table("default", archived_table()).expect("a policy");
    let table = store.table("default").expect("it is there");
    let points: Vec<Point> = (0..100)
        .map(|at| (timeline(at % 5), at as i64, vec![("value", Value::Signed(1))]))
        .collect();
    let ids: Vec<_> = (0..5).map(timeline).collect();
    write(&store, &table, &points, &ids).expect("a write");
    store.seal().expect("a seal");
    let survey = store.survey();
    let inputs = survey.tables.iter().flat_map(|table| &table.segments);
    let inputs = inputs.map(|have| have.segment.id).collect();
    let rewrite = Rewrite {
        table: table.id(),
        inputs,
        tier: Tier::Archive,
        cause: RewriteCause::Archive,
    };
    store.rewrite(&rewrite, &mut all_steps()).expect("a move");
    let copy = copy_of(&store);
    let origin = file_name(&copy.sidecar)
        .split('-')
        .next()
        .expect("it begins with it");
    let left = orphans(&archive, &store, origin, "default") + orphans(&archive, &store, origin, "gone");
    let foreign = orphans(&archive, &store, "0123456789abcdef", "gone");
    assert_eq!(store.sweep_archive(table.id()).expect("swept"), left);
    assert!(archive.verify(&copy).expect("known").is_sound());
    let at_target = archive
        .target(TARGET)
        .expect("known")
        .list("gone/")
        .expect("listed");
    assert_eq!(at_target.len() as u64, foreign);
    assert_eq!(store.sweep_archive(table.id()).expect("swept"), 0);
    // While the clock is in doubt, the age of objects is unknown, and nothing is removed.
    orphans(&archive, &store, origin, "default");
    clock.set(Timestamp::EPOCH);
    assert_eq!(store.sweep_archive(table.id()).expect("swept"), 0);
}

/// Twenty days of one timeline with a point per hour: daily aggregates need no request. The first read of the rows
/// needs one request per file, the second one needs no request.
#[test]
fn days_of_few_points_are_aggregated_without_a_request_and_read_once() {
    const DAYS: i64 = 20;
    let folder = tempfile::tempdir().expect("made");
    let target = format!("file://{}", folder.path().display());
    let open = || {
        let settings = ArchiveSettings::new(folder.path().join("temporary"));
        Arc::new(Archive::open(settings).expect("it opens"))
    };
    let test_backend = TestBackend::Memory(MemoryDisk::new(Character::Embedded));
    let settings = |archive: &Arc<Archive>| Settings {
        archive: Some(Arc::clone(archive)),
        ..Settings::default()
    };
    let archive = open();
    let (store, _) = test_backend.open(&settings(&archive));
    let mut spec = archived_table();
    spec.policy
        .archive
        .as_mut()
        .expect("it has one")
        .target
        .clone_from(&target);
    let table = store.alter_table("default", spec).expect("a policy");
    let start = 20_000 * NANOS_PER_DAY;
    let points: Vec<Point> = (0..DAYS * 24)
        .map(|hour| {
            let time = start + hour * NANOS_PER_DAY / 24;
            (timeline(1), time, vec![("value", Value::Signed(hour))])
        })
        .collect();
    write(&store, &table, &points, &[timeline(1)]).expect("a write");
    store.seal().expect("a seal");
    archive_all(&store, &table);
    let files = copy_of(&store).files.len() as u64;
    store.close().expect("closed");
    let archive = open();
    let (store, _) = test_backend.open(&settings(&archive));
    let table = store.table("default").expect("it is there");
    let gets = || archive.target(&target).expect("known").traffic().gets;
    let mut sums = vec![0; DAYS as usize];
    let (ids, snapshot) = ([timeline(1)], store.snapshot());
    let selection = Selection {
        table: table.id(),
        timelines: &ids,
        range: TimeRange::ALL,
        fields: None,
        order: Order::Ascending,
        tier: None,
    };
    let grid = Grid::Windows {
        width: NANOS_PER_DAY,
        offset: 0,
    };
    snapshot
        .reader(selection)
        .timeline_summarized(timeline(1), grid, &mut |part| {
            let Part::Summaries(_, summaries) = part else {
                panic!("rows of a file were read");
            };
            for summary in summaries {
                if let ColumnSummary::Known(known) = summary
                    && let Sum::Integer(sum) = known.sum
                {
                    sums[((known.first.0 - start) / NANOS_PER_DAY) as usize] += sum;
                }
            }
            Ok(ControlFlow::Continue(()))
        })
        .expect("it reads");
    let expected: Vec<i128> = (0..DAYS)
        .map(|day| (day * 24..day * 24 + 24).map(i128::from).sum())
        .collect();
    assert_eq!((sums, gets()), (expected, 0));
    let rows = || {
        let found = read(&store, &table, &ids, TimeRange::ALL, None, Order::Ascending);
        assert_eq!(found[0].len() as i64, DAYS * 24);
        gets()
    };
    assert_eq!(
        (rows(), rows()),
        (files, files),
        "one for each file, and none when read again"
    );
}

/// No published segment overlaps the range of the delete, so it would be removed as applied everywhere if the
/// attachment did not keep it.
#[test]
fn a_delete_during_an_attachment_hides_the_points_of_segments_attached_later() {
    let settings = tiny();
    let open = || TestBackend::Memory(MemoryDisk::new(Character::Embedded)).open(&settings);
    let mut ids = [1, 2].map(timeline);
    ids.sort_unstable();
    let (other, _) = open();
    let table = other.alter_table("default", archived_table()).expect("a policy");
    let points: Vec<Point> = (0..100)
        .map(|at| (timeline(1 + at % 2), at as i64, vec![("value", Value::Signed(1))]))
        .collect();
    write(&other, &table, &points, &ids).expect("a write");
    other.seal().expect("a seal");
    archive_all(&other, &table);
    let described = other.archived(&table).pop().expect("one is archived");
    let mut files = ArchiveCopy::clone(&copy_of(&other));
    files.attached = Some(Attached::Foreign);

    let (store, _) = open();
    let table = store.table("default").expect("it is there");
    table
        .schema()
        .take_in("m", "value", &[ValueType::Signed])
        .expect("a new field");
    let attachment = store
        .begin_attach(&table, described.sequences_end())
        .expect("the sequences are raised");
    let delete = Delete {
        timelines: vec![timeline(1)],
        range: TimeRange::ALL,
        removes_timelines: false,
    };
    store.delete(&table, delete).expect("a delete");
    // This removes the deletes that are applied everywhere.
    let free = || store.drop_segments(table.id(), &[]).expect("an edit");
    free();
    let archive = settings.archive.clone().expect("there is one");
    let file = archive.timelines(&Arc::new(files.clone())).expect("fetched");
    let mut slots = file.runs().expect("a sound file").map(|run| {
        let run = run?;
        Ok::<_, StoreError>((run.id, run.extent))
    });
    let attached = attachment
        .attach(&described, files, &mut slots)
        .expect("attached");
    assert_eq!(attached.map(|segment| segment.points), Some(100));
    drop(attachment);
    free();
    let found = read(&store, &table, &ids, TimeRange::ALL, None, Order::Ascending);
    let rows = ids.iter().zip(&found).map(|(id, rows)| (*id, rows.len()));
    let expected = ids.map(|id| (id, if id == timeline(1) { 0 } else { 50 }));
    assert_eq!(rows.collect::<Vec<_>>(), expected);
}

/// Directory with one durable timeline.
struct Counted;

impl TimelineDirectory for Counted {
    fn adopt(&self, _table: TableId, _timeline: &NewTimeline) -> Result<(), String> {
        Ok(())
    }

    fn made_durable(&self, _table: TableId, _timelines: &[NewTimeline]) {}

    fn removed(&self, _table: TableId, _ids: &[TimelineId]) {}

    fn saved(&self, _table: TableId) -> Option<u64> {
        Some(1)
    }
}

#[test]
fn an_adoption_and_a_change_of_settings_keep_the_other_values_of_the_table_row() {
    let test_backend = TestBackend::Memory(MemoryDisk::new(Character::Embedded));
    let clock = Arc::new(ManualClock::new(Timestamp::EPOCH));
    let recovery = Recovery::begin(test_backend.backend(), clock, tiny()).expect("the store begins to open");
    let (store, _) = recovery.finish(Arc::new(Counted)).expect("the store opens");
    let table = store.table("default").expect("it is there");
    let point = (timeline(1), 1, vec![("value", Value::Signed(1))]);
    write(&store, &table, &[point], &[timeline(1)]).expect("a write");
    store.seal().expect("a seal");
    let row = || store.log().manifest().tables[&table.id()].clone();
    let counts = row().counts;
    assert!(counts.is_some(), "a seal stores the counts");
    let adopted = vec![Adopted {
        target: TARGET.into(),
        table: TableName::new("other").expect("valid"),
        origin: "0123456789abcdef".into(),
    }];
    store.adopt(&table, &adopted).expect("adopted");
    assert_eq!((row().adopted, row().counts), (adopted.clone(), counts));
    store.alter_table("default", archived_table()).expect("a policy");
    assert_eq!((row().adopted, row().counts), (adopted, counts));
    assert_eq!(row().spec, archived_table());
}
