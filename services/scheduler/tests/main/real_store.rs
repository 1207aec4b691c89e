//! Tests of the scheduler over the real store in memory.
//!
//! After each step of the scheduler, reads return the points of a naive model.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tideline_archive::{Archive, ArchiveSettings};
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_chunk::{Delta, DeltaGroup, NewTimeline};
use tideline_engine::time::TrustedNow;
use tideline_model::time::NANOS_PER_SECOND;
use tideline_model::{
    ArchivePolicy, Clock, ColumnData, Durability, JobKind, ManualClock, Ordinal, Policy, Schedule, SegmentId,
    TableId, TableModel, Tier, TimeRange, TimelineId, Timestamp,
};
use tideline_scheduler::series::plan::Facts;
use tideline_scheduler::{Database, JobFilter, JobState, Models, Scheduler, SeriesWork, Settings, WorkError};
use tideline_series_store::{
    Delete, Evicted, Order, Recovery, Rewrite, Rewritten, SealReport, Selection, SeriesStore, Survey, Table,
    Throttle, TimelineDirectory, Unsealed,
};

use crate::chance::Chance;
use crate::fake::{DAY, HOUR, START};

const TIMELINES: u64 = 6;

/// Store without a catalog to clean.
struct StoreWork {
    store: SeriesStore,
    clock: ManualClock,
}

impl Database for StoreWork {
    fn models(&self) -> &[TableModel] {
        &[TableModel::Series]
    }

    fn trusted_now(&self) -> TrustedNow {
        self.store.trusted_now()
    }

    fn job_rows(&self) -> Vec<(Bytes, Bytes)> {
        self.store.job_rows()
    }

    fn edit_job_rows(&self, put: Vec<(Bytes, Bytes)>, remove: Vec<Bytes>) -> Result<(), WorkError> {
        Ok(self.store.edit_job_rows(put, remove)?)
    }

    fn confirm_clock(&self) {
        self.store.confirm_clock();
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clock.clone())
    }
}

impl SeriesWork for StoreWork {
    fn facts(&self) -> Facts {
        Facts::from(&self.store.survey())
    }

    fn facts_and_unsealed(
        &self,
        table: TableId,
        before: &dyn Fn(&Facts) -> [i64; 4],
    ) -> Result<(Facts, [Unsealed; 4]), WorkError> {
        let bounds = |survey: &Survey| before(&Facts::from(survey));
        let (survey, unsealed) = self.store.survey_unsealed(table, bounds)?;
        Ok((Facts::from(&survey), unsealed))
    }

    fn rewrite(&self, rewrite: &Rewrite, throttle: &mut dyn Throttle) -> Result<Rewritten, WorkError> {
        Ok(self.store.rewrite(rewrite, throttle)?)
    }

    fn evict(&self, table: TableId, segments: &[SegmentId]) -> Result<Evicted, WorkError> {
        Ok(self.store.evict(table, segments)?)
    }

    fn drop_segments(&self, table: TableId, segments: &[SegmentId]) -> Result<u64, WorkError> {
        Ok(self.store.drop_segments(table, segments)?)
    }

    fn seal(&self) -> Result<(), WorkError> {
        Ok(self.store.seal()?)
    }

    fn take_seal_reports(&self) -> Vec<SealReport> {
        self.store.take_seal_reports()
    }

    fn sweep_archive(&self, _table: TableId) -> Result<u64, WorkError> {
        Ok(0)
    }

    fn write_settings(&self, table: TableId) -> Result<u64, WorkError> {
        Ok(self.store.write_settings(table)?)
    }

    fn clean_catalog(&self, _table: TableId) -> Result<u64, WorkError> {
        Ok(0)
    }
}

fn started(work: &Arc<StoreWork>) -> Scheduler {
    let models = Models::new(Arc::clone(work) as _);
    Scheduler::without_thread(Arc::clone(work) as _, models, Settings::default())
}

struct NoNames;

impl TimelineDirectory for NoNames {
    fn adopt(&self, _table: TableId, _timeline: &NewTimeline) -> Result<(), String> {
        Ok(())
    }

    fn made_durable(&self, _table: TableId, _timelines: &[NewTimeline]) {}

    fn removed(&self, _table: TableId, _ids: &[TimelineId]) {}
}

fn open(disk: &Arc<MemoryDisk>, clock: &ManualClock) -> Arc<StoreWork> {
    let settings = tideline_series_store::Settings {
        head: tideline_series_store::HeadBudget::fixed(64 << 10),
        archive: Some(archive()),
        ..tideline_series_store::Settings::default()
    };
    let backend = Arc::new(MemoryBackend::open(disk));
    let recovery =
        Recovery::begin(backend, Arc::new(clock.clone()), settings).expect("the store begins to open");
    let (store, _) = recovery.finish(Arc::new(NoNames)).expect("the store opens");
    let clock = clock.clone();
    Arc::new(StoreWork { store, clock })
}

/// Returns the archive that all stores share, because one target may serve many stores. The archive exists until the
/// process ends.
fn archive() -> Arc<Archive> {
    static ARCHIVE: OnceLock<(Arc<Archive>, tempfile::TempDir)> = OnceLock::new();
    let (archive, _) = ARCHIVE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let settings = ArchiveSettings::new(folder.path().to_owned());
        (Arc::new(Archive::open(settings).expect("it opens")), folder)
    });
    Arc::clone(archive)
}

fn timeline(number: u64) -> TimelineId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    id[8..].copy_from_slice(&number.wrapping_mul(0xD6E8_FEB8_6659_FD93).to_be_bytes());
    TimelineId(id)
}

fn write(store: &SeriesStore, table: &Arc<Table>, points: &[(u64, i64, i64)]) {
    let ids: Vec<TimelineId> = (0..TIMELINES).map(timeline).collect();
    let mut values = ColumnData::new(tideline_model::ValueType::Signed);
    if let ColumnData::Signed(values) = &mut values {
        values.extend(points.iter().map(|(.., value)| *value));
    }
    let group = DeltaGroup {
        measurements: "m".into(),
        fields: vec!["f".into()],
        columns: vec![values],
        timelines: points.iter().map(|(id, ..)| *id as u32).collect(),
        timestamps: points.iter().map(|(_, at, _)| *at).collect(),
    };
    let shape = table
        .schema()
        .shape(group.measurements.names(), &group.fields, &group.columns)
        .expect("a shape");
    let new_timelines = ids.iter().map(|id| NewTimeline {
        id: *id,
        ordinal: Ordinal(0),
        identity: id.0.to_vec(),
    });
    let delta = Delta {
        table: table.id(),
        new_timelines: new_timelines.collect(),
        timelines: ids.clone(),
        groups: vec![group],
        ..Delta::default()
    };
    let generation = table.timeline_generation();
    store
        .commit(
            table,
            &Arc::new(delta),
            vec![shape],
            Durability::Synced,
            generation,
        )
        .expect("a write");
}

type Model = BTreeMap<(TimelineId, i64), i64>;

fn read(store: &SeriesStore, table: &Table) -> Model {
    let mut ids: Vec<TimelineId> = (0..TIMELINES).map(timeline).collect();
    ids.sort_unstable();
    let snapshot = store.snapshot();
    let mut reader = snapshot.reader(Selection {
        table: table.id(),
        timelines: &ids,
        range: TimeRange::ALL,
        fields: None,
        order: Order::Ascending,
        tier: None,
    });
    let mut found = Model::new();
    for id in &ids {
        let read = reader.timeline(*id, &mut |run| {
            let ColumnData::Signed(values) = &run.columns[0].values else {
                panic!("one signed field")
            };
            let rows = run.timestamps.iter().zip(values.iter());
            for (at, value) in rows {
                assert!(found.insert((*id, *at), *value).is_none(), "each point once");
            }
            Ok(ControlFlow::Continue(()))
        });
        read.expect("the timeline can be read");
    }
    found
}

/// Draws the writes of one step: current, late by hours, days or years, or in the future.
fn some_points(chance: &mut Chance, now: i64) -> Vec<(u64, i64, i64)> {
    let spans = [HOUR, HOUR, HOUR, 12 * HOUR, 9 * DAY, 700 * DAY, -20 * DAY];
    let span = spans[chance.below(7) as usize];
    let count = 1 + chance.below(300);
    let point = |chance: &mut Chance| {
        let back = chance.below(span.unsigned_abs() / 60_000_000_000) * 60_000_000_000 * span.signum();
        (chance.below(TIMELINES) as u64, now - back, chance.below(1_000))
    };
    (0..count).map(|_| point(chance)).collect()
}

/// Draws a policy. Only some runs have an archive, because reading files back after each step takes a while.
fn new_policy(chance: &mut Chance, has_archive: bool) -> Policy {
    let days =
        |chance: &mut Chance, least: i64| (chance.below(3) > 0).then(|| (least + chance.below(40)) * DAY);
    let hot_ttl = days(chance, 1);
    let nightly = Schedule::Cron {
        expression: "30 2 * * *".into(),
        time_zone: "Europe/Berlin".into(),
    };
    let retention = days(chance, 50);
    let archive = hot_ttl
        .filter(|_| has_archive && chance.below(3) > 0)
        .map(|hot| ArchivePolicy {
            target: "memory:///".into(),
            after: hot + DAY + chance.below(3) * DAY,
            schedule: Schedule::Continuous,
            keep_cold: (chance.below(3) > 0).then(|| chance.below(20) * DAY),
            keep: days(chance, 50).filter(|keep| retention.is_none_or(|retention| *keep < retention)),
        });
    Policy {
        hot_ttl,
        retention,
        archive,
        migrate: if chance.below(3) == 0 {
            nightly
        } else {
            Schedule::Continuous
        },
        ..Policy::default()
    }
}

#[test]
fn moves_change_no_answer() {
    let (mut done_kinds, runs) = (
        BTreeSet::new(),
        tideline_testkit::rounds("TIDELINE_RUNS", 6, 60) as u64,
    );
    // Further runs follow until every kind of move has happened.
    for (run, seed) in (1..).zip(tideline_testkit::seeds("moves", 10 * runs)) {
        if run > runs && done_kinds.len() == 5 {
            break;
        }
        let mut chance = Chance(seed.max(1));
        let disk = MemoryDisk::new(Character::Embedded);
        let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
        let mut work = open(&disk, &clock);
        let mut scheduler = started(&work);
        let mut model = Model::new();
        for step in 0..if run % 3 == 0 { 200 } else { 250 } {
            let now = clock.now().nanos();
            let table = work.store.table("default").expect("the default table");
            match chance.below(12) {
                0..=6 => {
                    let points = some_points(&mut chance, now);
                    write(&work.store, &table, &points);
                    model.extend(
                        points
                            .iter()
                            .map(|(id, at, value)| ((timeline(*id), *at), *value)),
                    );
                }
                7 => {
                    let id = timeline(chance.below(TIMELINES) as u64);
                    let start = now - chance.below(30) * DAY;
                    let range = TimeRange::new(start, start + 5 * DAY);
                    let delete = Delete {
                        timelines: vec![id],
                        range,
                        removes_timelines: false,
                    };
                    work.store.delete(&table, delete).expect("a delete");
                    model.retain(|(of, at), _| *of != id || !range.contains(*at));
                }
                8 => work.store.seal().expect("a seal"),
                9 => {
                    let hidden_before = work.store.visible_from(&table);
                    let mut spec = (*table.spec()).clone();
                    spec.policy = new_policy(&mut chance, run % 3 == 0);
                    work.store.alter_table("default", spec).expect("a policy");
                    // A longer retention makes hidden points visible again unless they were freed. Only a read
                    // determines which points were freed.
                    let (now_from, found) = (work.store.visible_from(&table), read(&work.store, &table));
                    let is_freed = |point: &(TimelineId, i64)| {
                        (now_from..hidden_before).contains(&point.1) && !found.contains_key(point)
                    };
                    model.retain(|point, _| !is_freed(point));
                }
                11 if chance.below(3) == 0 => {
                    let start = now - chance.below(40) * DAY;
                    let range = TimeRange::new(start, start + chance.below(5) * DAY);
                    let until = now + chance.below(10) * DAY;
                    scheduler
                        .restore("default", range, until)
                        .expect("the table is there");
                }
                10 if chance.below(4) == 0 => {
                    drop(scheduler);
                    work.store.close().expect("it closes");
                    work = open(&disk, &clock);
                    scheduler = started(&work);
                }
                _ => clock.advance(chance.below(20) * HOUR),
            }
            clock.advance(10 * NANOS_PER_SECOND);
            scheduler.run_due();
            let table = work.store.table("default").expect("the default table");
            let visible_from = work.store.visible_from(&table);
            let expected = model.iter().filter(|((_, at), _)| *at >= visible_from);
            let expected: Model = expected.map(|(point, value)| (*point, *value)).collect();
            let found = read(&work.store, &table);
            assert!(
                found == expected,
                "seed {seed} step {step}: {} points, not {}",
                found.len(),
                expected.len()
            );
        }
        let jobs = scheduler.jobs(&JobFilter::default());
        let bad = jobs
            .iter()
            .filter(|job| matches!(job.state, JobState::Failed | JobState::Cancelled));
        assert_eq!(
            bad.collect::<Vec<_>>(),
            [] as [&tideline_scheduler::Job; 0],
            "seed {seed}"
        );
        let done = |kind| {
            jobs.iter()
                .any(|job| job.kind == kind && job.state == JobState::Done)
        };
        let kinds = [
            JobKind::Migrate,
            JobKind::Purge,
            JobKind::Archive,
            JobKind::Evict,
            JobKind::Restore,
        ];
        done_kinds.extend(kinds.into_iter().filter(|kind| done(*kind)));
        let segments = work.facts().tables[0].segments.len();
        assert!(segments < 400, "seed {seed}: {segments} segments");
    }
    assert_eq!(
        done_kinds.len(),
        5,
        "the runs do every kind of move: {done_kinds:?}"
    );
}

#[test]
fn in_the_end_everything_old_is_cold_and_everything_expired_is_gone() {
    let disk = MemoryDisk::new(Character::Embedded);
    let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
    let work = open(&disk, &clock);
    let scheduler = started(&work);
    let table = work.store.table("default").expect("the default table");
    let mut spec = (*table.spec()).clone();
    spec.policy = Policy {
        hot_ttl: Some(3 * DAY),
        retention: Some(30 * DAY),
        ..Policy::default()
    };
    work.store.alter_table("default", spec).expect("a policy");
    for hour in 0..60 * 24 {
        let now = clock.now().nanos();
        let points: Vec<_> = (0..TIMELINES).map(|id| (id, now, hour)).collect();
        write(&work.store, &table, &points);
        clock.advance(HOUR);
        if hour % 6 == 5 {
            work.store.seal().expect("a seal");
            scheduler.run_due();
        }
    }
    let now = clock.now().nanos();
    let facts = work.facts();
    for segment in &facts.tables[0].segments {
        assert!(
            segment.last >= now - 32 * DAY,
            "kept for {} days",
            (now - segment.last) / DAY
        );
        assert!(segment.tier == Tier::Cold || segment.last >= now - 4 * DAY);
        assert!(segment.tier == Tier::Hot || segment.last < now - 3 * DAY);
    }
    assert_eq!(read(&work.store, &table).len() as u64, 30 * 24 * TIMELINES);
}

/// Returns one point per timeline and day.
fn daily(days: i64, now: i64) -> Vec<(u64, i64, i64)> {
    let points = (0..days).flat_map(|back| (0..TIMELINES).map(move |id| (id, now - back * DAY, back)));
    points.collect()
}

#[test]
fn hot_ttl_holds_to_a_day_after_a_sparse_backfill_and_after_a_late_change() {
    // `hot_ttl` is set before the backfill, set after it, or shortened after it (cases 2 and 3). Case 3 has an archive.
    for (case, days) in (0..4).zip([300, 700, 1_100, 1_500]) {
        let disk = MemoryDisk::new(Character::Embedded);
        let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
        let work = open(&disk, &clock);
        let scheduler = started(&work);
        let table = work.store.table("default").expect("the default table");
        let set_policy = |hot_days: Option<i64>, after_days: Option<i64>| {
            let mut spec = (*table.spec()).clone();
            spec.policy = Policy {
                hot_ttl: hot_days.map(|days| days * DAY),
                archive: after_days.map(|days| ArchivePolicy {
                    target: "memory:///".into(),
                    after: days * DAY,
                    schedule: Schedule::Continuous,
                    keep_cold: None,
                    keep: None,
                }),
                ..Policy::default()
            };
            work.store.alter_table("default", spec).expect("a policy");
        };
        let after = (case == 3).then_some(20);
        match case {
            0 => set_policy(Some(5), None),
            1 => set_policy(None, None),
            _ => set_policy(Some(200), None),
        }
        write(&work.store, &table, &daily(days, START));
        work.store.seal().expect("a seal");
        let expected = read(&work.store, &table);
        assert_eq!(expected.len() as i64, days * TIMELINES as i64);
        set_policy(Some(5), after);
        let old = |clock: &ManualClock, tier: Tier, age: i64| {
            let before = clock.now().nanos() - age;
            let facts = work.facts();
            let segments = facts.tables[0].segments.clone();
            let of_tier = segments.into_iter().filter(|segment| segment.tier == tier);
            of_tier.filter(|segment| segment.first < before).count()
        };
        if case > 0 {
            let preview = scheduler.preview("default", None).expect("a preview");
            let moves =
                preview.migrates.points + preview.archives.map_or(0, |archives| archives.amount.points);
            assert!(moves > 0, "case {case}: there is something to move");
        }
        // No new points are written. Each day the windows of the backfill are cut further.
        for day in 0..if tideline_testkit::is_slow() { 60 } else { 10 } {
            scheduler.run_due();
            assert_eq!(old(&clock, Tier::Hot, 6 * DAY), 0, "case {case}, day {day}");
            if after.is_some() {
                assert_eq!(old(&clock, Tier::Cold, 21 * DAY), 0, "case {case}, day {day}");
            }
            assert_eq!(read(&work.store, &table), expected, "case {case}, day {day}");
            let preview = scheduler.preview("default", None).expect("a preview");
            assert_eq!(preview.migrates.points, 0, "case {case}, day {day}");
            clock.advance(DAY);
        }
        let count = work.facts().tables[0].segments.len();
        assert!(count <= 100, "case {case}: {count} segments");
    }
}

#[test]
fn a_preview_reports_the_unsealed_points_that_the_policy_then_hides() {
    for seed in tideline_testkit::seeds("previews", 8) {
        let mut chance = Chance(seed.max(1));
        let disk = MemoryDisk::new(Character::Embedded);
        let clock = ManualClock::new(Timestamp::from_nanos_clamped(START));
        let work = open(&disk, &clock);
        let scheduler = started(&work);
        let table = work.store.table("default").expect("the default table");
        for _ in 0..1 + chance.below(6) {
            write(&work.store, &table, &some_points(&mut chance, START));
            let id = timeline(chance.below(TIMELINES) as u64);
            let start = START - chance.below(30) * DAY;
            let delete = Delete {
                timelines: vec![id],
                range: TimeRange::new(start, start + DAY),
                removes_timelines: false,
            };
            work.store.delete(&table, delete).expect("a delete");
        }
        let model = read(&work.store, &table);
        for _ in 0..6 {
            let policy = Policy {
                hot_ttl: Some((1 + chance.below(20)) * DAY),
                retention: Some((21 + chance.below(300)) * DAY),
                ..Policy::default()
            };
            let preview = scheduler
                .preview("default", Some(policy.clone()))
                .expect("a preview");
            let older = |than: i64| model.keys().filter(|(_, at)| *at < than).count() as u64;
            let visible_from = START - policy.retention.expect("set");
            let day = |at: i64| at.div_euclid(DAY) * DAY;
            let cold_before = day(START - policy.hot_ttl.expect("set"));
            assert_eq!(preview.hides.points, older(visible_from), "seed {seed}");
            assert_eq!(preview.unsealed.hides, preview.hides.points, "seed {seed}");
            assert_eq!(preview.drops.points, older(day(visible_from)), "seed {seed}");
            assert_eq!(
                preview.migrates.points,
                older(cold_before) - older(day(visible_from)),
                "seed {seed}"
            );
        }
    }
}
