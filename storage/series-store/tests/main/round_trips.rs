//! Number of round trips that a read waits for with a remote backend.

use tideline_backend::memory::{Character, MemoryDisk};
use tideline_model::{TimeRange, TimelineId, Value};
use tideline_series_store::{Order, Settings};

use crate::fixture::{Point, TestBackend, read, timeline, write};

const SEGMENTS: i64 = 6;

#[test]
fn a_sparse_read_has_many_requests_under_way() {
    let disk = MemoryDisk::new(Character::Distributed);
    let (store, _) = TestBackend::Memory(disk.clone()).open(&Settings::default());
    let table = store.table("default").expect("the default table");
    let mut all: Vec<TimelineId> = (0..2_000).map(timeline).collect();
    all.sort();
    for segment in 0..SEGMENTS {
        let point = |id: &TimelineId| -> Point { (*id, segment, vec![("value", Value::Signed(segment))]) };
        let points: Vec<Point> = all.iter().map(point).collect();
        let new = if segment == 0 { all.as_slice() } else { &[] };
        write(&store, &table, &points, new).expect("a write");
        store.seal().expect("a seal");
    }
    let field = table.schema().field("value").expect("the field");
    let expected: Vec<_> = (0..SEGMENTS)
        .map(|at| (at, vec![(field, Value::Signed(at))]))
        .collect();
    // One timeline takes one round trip. 100 timelines take 600 requests, at most 32 of them in parallel.
    for (timelines, most) in [(1, 1), (100, 40)] {
        let wanted: Vec<TimelineId> = all.iter().step_by(all.len() / timelines).copied().collect();
        let before = disk.round_trips();
        let found = read(&store, &table, &wanted, TimeRange::ALL, None, Order::Ascending);
        let round_trips = disk.round_trips() - before;
        assert!(
            found.iter().all(|rows| *rows == expected),
            "{timelines} timelines"
        );
        assert!(
            round_trips <= most,
            "{timelines} timelines took {round_trips} round trips, {most} are enough"
        );
    }
}
