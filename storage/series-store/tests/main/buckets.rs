//! Segments in several buckets: dense and sparse reads, rewrites and the offline check find every point.

use tideline_model::{TimeRange, TimelineId, Value};
use tideline_series_store::{Order, Rewrite, RewriteCause, SeriesStore, Settings, Table};

use crate::fixture::{Point, Rows, TestBackend, checked, read, timeline, write};
use crate::moves::all_steps;

const TIMELINES: u64 = 400;

fn ids(step: usize) -> Vec<TimelineId> {
    let mut ids: Vec<TimelineId> = (0..TIMELINES).step_by(step).map(timeline).collect();
    ids.sort_unstable();
    ids
}

fn points(from: i64) -> Vec<Point> {
    let point = |id: u64, at: i64| (timeline(id), at, vec![("v", Value::Signed(at * id as i64))]);
    (0..TIMELINES)
        .flat_map(|id| (from..from + 5).map(move |at| point(id, at)))
        .collect()
}

/// Returns the bucket bits of each segment.
fn bits(store: &SeriesStore) -> Vec<u8> {
    let survey = store.survey();
    let segments = survey.tables.iter().flat_map(|table| &table.segments);
    segments.map(|have| have.segment.bucket_bits).collect()
}

/// Reads all timelines, then a few of them, then a single one.
fn reads(store: &SeriesStore, table: &Table) -> Vec<Vec<Rows>> {
    let read = |ids: &[TimelineId]| read(store, table, ids, TimeRange::ALL, None, Order::Ascending);
    let one = &ids(1)[150..151];
    vec![read(&ids(1)), read(&ids(37)), read(one)]
}

#[test]
fn a_segment_in_buckets_is_read_rewritten_and_checked_whole() {
    for (name, test_backend) in TestBackend::all() {
        let settings = Settings {
            bucket_bytes: 1 << 10,
            ..Settings::default()
        };
        let (store, _) = test_backend.open(&settings);
        let table = store.table("default").expect("the default table");
        for from in [0, 100] {
            write(&store, &table, &points(from), &ids(1)).expect("a write");
        }
        let before = reads(&store, &table);
        store.seal().expect("a seal");
        let sealed = bits(&store);
        assert!(sealed.iter().all(|bits| *bits >= 3), "{name}: {sealed:?}");
        assert_eq!(reads(&store, &table), before, "{name}: sealed");
        let survey = store.survey();
        let segments = survey.tables.iter().flat_map(|table| &table.segments);
        let migrate = Rewrite {
            table: table.id(),
            inputs: segments.map(|have| have.segment.id).collect(),
            tier: tideline_model::Tier::Cold,
            cause: RewriteCause::Migrate,
        };
        store.rewrite(&migrate, &mut all_steps()).expect("it is moved");
        assert!(bits(&store).iter().all(|bits| *bits >= 3), "{name}");
        assert_eq!(reads(&store, &table), before, "{name}: moved");
        drop((survey, table, store));
        // The store is opened with a bucket size that differs from the one used for its segments.
        let (store, _) = test_backend.open(&Settings::default());
        let table = store.table("default").expect("the default table");
        assert_eq!(reads(&store, &table), before, "{name}: opened again");
        let checked = checked(&store);
        assert_eq!(checked.findings, [""; 0], "{name}");
        assert_eq!(checked.points, 10 * TIMELINES, "{name}");
    }
}
