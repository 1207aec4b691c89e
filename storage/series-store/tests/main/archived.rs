//! The files of archived segments: what is left behind is found and removed, what is named stays.

use std::sync::Arc;

use tideline_archive::layout::file_name;
use tideline_archive::{Archive, ArchiveCopy, SegmentPlace};
use tideline_backend::memory::{Character, MemoryDisk};
use tideline_chunk::SequenceSpan;
use tideline_model::{ManualClock, SegmentId, SequenceNumber, TableName, Tier, Timestamp, Value};
use tideline_series_store::{Rewrite, RewriteCause, SeriesStore};

use crate::fixture::{Half, Place, Point, TARGET, archived_table, timeline, tiny, write};
use crate::moves::all_steps;

/// Later than any file is written that a test writes.
const LATE: i64 = i64::MAX / 2;

/// The files of the only archived segment.
fn copy_of(store: &SeriesStore) -> Arc<ArchiveCopy> {
    let survey = store.survey();
    let segments = survey.tables.iter().flat_map(|table| &table.segments);
    let archived = segments.filter_map(|have| have.segment.archive.clone());
    let [copy] = archived.collect::<Vec<_>>().try_into().expect("one is archived");
    copy
}

/// Writes files as a job would that ended before anything named them; how many.
fn orphans(archive: &Archive, store: &SeriesStore, origin: &str, table: &str) -> u64 {
    let place = SegmentPlace {
        origin: origin.into(),
        table: TableName::new(table).expect("valid"),
        segment: SegmentId(1_000_000),
        target: TARGET.into(),
    };
    let of = store.table("default").expect("it is there");
    let mut writer = archive.writer(place, &Half, of.schema()).expect("it begins");
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

#[test]
fn what_nobody_names_is_swept_also_of_tables_that_are_gone() {
    let place = Place::Memory(MemoryDisk::new(Character::Embedded));
    let clock = ManualClock::new(Timestamp::from_nanos_clamped(LATE));
    let settings = tiny();
    let (store, _) = place.open_at(&settings, &clock);
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
    // What is young is left alone: somebody may be about to name it.
    orphans(&archive, &store, origin, "default");
    clock.set(Timestamp::EPOCH);
    assert_eq!(store.sweep_archive(table.id()).expect("swept"), 0);
}
