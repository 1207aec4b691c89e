//! Sparse points of many days: no old points stay in a tier only because their segment also has younger points.
//!
//! Seals choose their windows accordingly, and cuts split segments that were written under another policy.

use std::sync::Arc;

use tideline_model::time::{NANOS_PER_DAY, NANOS_PER_SECOND};
use tideline_model::{ManualClock, SegmentId, TableSpec, Tier, TimeRange, TimelineId, Timestamp, Value};
use tideline_series_store::manifest::Segment;
use tideline_series_store::window::cold_boundary;
use tideline_series_store::{Delete, Order, Rewrite, RewriteCause, SeriesStore, Settings, StoreError, Table};

use crate::fixture::{Point, Rows, TestBackend, archived_table, read, timeline, write};
use crate::moves::all_steps;

const DAY: i64 = NANOS_PER_DAY;
/// 11 February 2027, 08:00 UTC: not the start of a day.
const NOW: i64 = 1_798_761_600 * NANOS_PER_SECOND + 41 * DAY + DAY / 3;
const TIMELINES: u64 = 3;

fn ids() -> Vec<TimelineId> {
    let mut ids: Vec<TimelineId> = (0..TIMELINES).map(timeline).collect();
    ids.sort_unstable();
    ids
}

/// Returns one point per day and timeline; the newest is at `NOW`.
fn daily(days: i64, salt: i64) -> Vec<Point> {
    let points = (0..days).flat_map(|back| {
        let at = NOW - back * DAY;
        (0..TIMELINES).map(move |id| (timeline(id), at, vec![("value", Value::Signed(back + salt))]))
    });
    points.collect()
}

fn open(test_backend: &TestBackend) -> (SeriesStore, Arc<Table>) {
    let clock = ManualClock::new(Timestamp::from_nanos_clamped(NOW));
    let settings = Settings {
        archive: Some(crate::fixture::archive()),
        ..Settings::default()
    };
    let (store, _) = test_backend.open_at(&settings, &clock);
    let table = store.table("default").expect("the default table");
    (store, table)
}

fn set_policy(store: &SeriesStore, hot_days: Option<i64>, after_days: Option<i64>) {
    let mut spec = match after_days {
        Some(_) => archived_table(),
        None => TableSpec::default(),
    };
    spec.policy.hot_ttl = hot_days.map(|days| days * DAY);
    if let Some(archive) = &mut spec.policy.archive {
        archive.after = after_days.unwrap_or_default() * DAY;
    }
    store.alter_table("default", spec).expect("a policy");
}

fn segments(store: &SeriesStore, table: &Table) -> Vec<Segment> {
    let survey = store.survey();
    let of_table = survey
        .tables
        .iter()
        .filter(|survey| survey.table.id() == table.id());
    let all = of_table.flat_map(|survey| &survey.segments);
    all.map(|have| Segment::clone(&have.segment)).collect()
}

fn rows(store: &SeriesStore, table: &Table) -> Vec<Rows> {
    read(store, table, &ids(), TimeRange::ALL, None, Order::Ascending)
}

fn width() -> i64 {
    Settings::default().window_nanos
}

#[test]
fn a_sparse_backfill_is_sealed_past_hot_ttl_into_the_cold_tier() {
    for days in [300, 1_500] {
        for (name, test_backend) in TestBackend::all() {
            let (store, table) = open(&test_backend);
            set_policy(&store, Some(5), None);
            write(&store, &table, &daily(days, 0), &ids()).expect("a write");
            let before = rows(&store, &table);
            store.seal().expect("a seal");
            let found = segments(&store, &table);
            for segment in found.iter().filter(|segment| segment.tier == Tier::Hot) {
                let start = segment.window.range(width()).start;
                assert!(start > NOW - 6 * DAY, "{name}, {days} days: {segment:?}");
            }
            let cold = found.iter().filter(|segment| segment.tier == Tier::Cold);
            let cold: u64 = cold.map(|segment| segment.points).sum();
            assert_eq!(cold, (days as u64 - 6) * TIMELINES, "{name}, {days} days");
            assert!(found.len() <= 60, "{name}, {days} days: {} segments", found.len());
            assert_eq!(rows(&store, &table), before, "{name}, {days} days");
        }
    }
}

#[test]
fn no_window_of_a_seal_spans_the_age_at_which_points_are_archived() {
    let (_, test_backend) = TestBackend::all().swap_remove(0);
    let (store, table) = open(&test_backend);
    set_policy(&store, Some(5), Some(400));
    write(&store, &table, &daily(1_500, 0), &ids()).expect("a write");
    store.seal().expect("a seal");
    let at = cold_boundary(NOW - 400 * DAY, width());
    for segment in segments(&store, &table) {
        let window = segment.window.range(width());
        assert!(window.end <= at || window.start >= at, "{segment:?}");
    }
}

#[test]
fn a_cut_leaves_no_window_around_it_and_changes_no_answer() {
    for (name, test_backend) in TestBackend::all() {
        let (store, table) = open(&test_backend);
        set_policy(&store, None, None);
        // Every second point is overwritten, and the points of ten days of one timeline are deleted.
        write(&store, &table, &daily(700, 0), &ids()).expect("a write");
        store.seal().expect("a seal");
        let again: Vec<Point> = daily(700, 5_000).into_iter().step_by(2).collect();
        write(&store, &table, &again, &[]).expect("a write");
        store.seal().expect("a seal");
        let delete = Delete {
            timelines: vec![timeline(1)],
            range: TimeRange::new(NOW - 40 * DAY, NOW - 30 * DAY),
            removes_timelines: false,
        };
        store.delete(&table, delete).expect("a delete");
        store.seal().expect("a seal");
        let before = rows(&store, &table);
        let at = cold_boundary(NOW - 33 * DAY, width());
        let wide: Vec<Segment> = segments(&store, &table)
            .into_iter()
            .filter(|segment| {
                let window = segment.window.range(width());
                window.start < at && at < window.end
            })
            .collect();
        assert_eq!(wide.len(), 2, "{name}: {wide:?}");
        assert!(wide[0].window.level > 5, "{name}: it is much wider than a day");
        let cut = Rewrite {
            table: table.id(),
            inputs: wide.iter().map(|segment| segment.id).collect(),
            tier: Tier::Cold,
            cause: RewriteCause::Cut(at),
        };
        let made = store.rewrite(&cut, &mut all_steps()).expect("it is cut");
        assert!(made.outputs.len() > 2, "{name}: {:?}", made.outputs.len());
        for output in &made.outputs {
            let window = output.window.range(width());
            let expected = if window.end <= at { Tier::Cold } else { Tier::Hot };
            assert_eq!(output.tier, expected, "{name}: {output:?}");
            assert!(window.end <= at || window.start >= at, "{name}: {output:?}");
            assert!(
                window.contains(output.first) && window.contains(output.last),
                "{name}: {output:?}"
            );
            let pair = (output.written, output.deletes_applied);
            assert_eq!(pair, (made.outputs[0].written, made.outputs[0].deletes_applied));
        }
        let found = segments(&store, &table);
        assert!(
            wide.iter()
                .all(|segment| found.iter().all(|other| other.id != segment.id)),
            "{name}: the inputs are gone"
        );
        assert_eq!(rows(&store, &table), before, "{name}");
        store.close().expect("it closes");
        drop((store, table));
        let (store, table) = open(&test_backend);
        assert_eq!(rows(&store, &table), before, "{name}, opened again");
        assert_eq!(segments(&store, &table).len(), found.len(), "{name}");
        let held = store
            .backend()
            .segments(tideline_log::SHARD)
            .expect("they can be listed")
            .len();
        assert_eq!(held, found.len(), "{name}: the backend keeps nothing else");
    }
}

#[test]
fn a_cut_that_is_given_up_leaves_nothing_behind() {
    for (name, test_backend) in TestBackend::all() {
        let (store, table) = open(&test_backend);
        set_policy(&store, None, None);
        write(&store, &table, &daily(700, 0), &ids()).expect("a write");
        store.seal().expect("a seal");
        let before = (segments(&store, &table), rows(&store, &table));
        let held = || {
            store
                .backend()
                .segments(tideline_log::SHARD)
                .expect("they can be listed")
                .len()
        };
        let held_before = held();
        let at = cold_boundary(NOW - 33 * DAY, width());
        let wide = before.0.iter().find(|segment| {
            let window = segment.window.range(width());
            window.start < at && at < window.end
        });
        let cut = |at: i64, inputs: Vec<SegmentId>| Rewrite {
            table: table.id(),
            inputs,
            tier: Tier::Cold,
            cause: RewriteCause::Cut(at),
        };
        let inputs = vec![wide.expect("one is wide").id];
        // The rewrite is cancelled within the first outputs, and within a later output.
        for steps in [1, 4, 8] {
            let given_up = store.rewrite(&cut(at, inputs.clone()), &mut crate::moves::Steps::of(steps));
            assert!(
                matches!(given_up, Err(StoreError::Cancelled)),
                "{name}: {given_up:?}"
            );
            assert_eq!(held(), held_before, "{name}, after {steps} steps");
        }
        for wrong in [at + 1, at - 20_000 * DAY] {
            let refused = store.rewrite(&cut(wrong, inputs.clone()), &mut all_steps());
            assert!(
                matches!(refused, Err(StoreError::Cut { .. })),
                "{name}: {refused:?}"
            );
        }
        assert_eq!((segments(&store, &table), rows(&store, &table)), before, "{name}");
        store
            .rewrite(&cut(at, inputs), &mut all_steps())
            .expect("it is cut");
    }
}
