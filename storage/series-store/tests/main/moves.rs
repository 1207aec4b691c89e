//! Moves between tiers: reads during a move, freed segments, the state after a cancelled move, and refused moves. Also
//! tests deletes in every tier, and writes to removed timelines.
//!
//! Most tests run on every backend, with points of all timelines in one window, spread over several seals.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tideline_backend::memory::{Character, MemoryDisk};
use tideline_model::{SegmentId, Tier, TimeRange, TimelineId, Value};
use tideline_series_store::{
    Delete, Order, Rewrite, RewriteCause, RewriteCost, Selection, SeriesStore, Snapshot, StoreError, Table,
    Throttle,
};

use crate::fixture::{Point, TestBackend, archived_table, read, timeline, tiny, write};

const TIMELINES: u64 = 8;
const POINTS: i64 = 300;

/// Throttle that cancels a rewrite after a number of steps.
pub(crate) struct Steps(usize);

impl Throttle for Steps {
    fn step(&mut self, _cost: &RewriteCost) -> ControlFlow<()> {
        match self.0.checked_sub(1) {
            Some(left) => {
                self.0 = left;
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(()),
        }
    }
}

impl Steps {
    /// Returns a throttle that cancels the rewrite after `count` steps.
    pub(crate) fn of(count: usize) -> Self {
        Self(count)
    }
}

/// Throttle that runs a closure at each step of a rewrite.
struct Meanwhile<F>(F);

impl<F: FnMut()> Throttle for Meanwhile<F> {
    fn step(&mut self, _cost: &RewriteCost) -> ControlFlow<()> {
        (self.0)();
        ControlFlow::Continue(())
    }
}

/// Returns a throttle that never cancels.
pub(crate) fn all_steps() -> Steps {
    Steps(usize::MAX)
}

fn ids() -> Vec<TimelineId> {
    let mut ids: Vec<TimelineId> = (0..TIMELINES).map(timeline).collect();
    ids.sort_unstable();
    ids
}

/// Writes points of every timeline in one window, spread over several seals.
fn filled(store: &SeriesStore, seals: i64) {
    let table = store.table("default").expect("the default table");
    store.alter_table("default", archived_table()).expect("a policy");
    for part in 0..seals {
        let point = |at: i64, id: u64| -> Point { (timeline(id), at, vec![("value", Value::Signed(at))]) };
        let points: Vec<Point> = (part..POINTS)
            .step_by(seals as usize)
            .flat_map(|at| (0..TIMELINES).map(move |id| point(at, id)))
            .collect();
        let new = if part == 0 { ids() } else { Vec::new() };
        write(store, &table, &points, &new).expect("a write");
        store.seal().expect("a seal");
    }
}

fn segments(store: &SeriesStore) -> Vec<SegmentId> {
    let survey = store.survey();
    let of_all = survey.tables.iter().flat_map(|table| &table.segments);
    of_all.map(|have| have.segment.id).collect()
}

fn rewrite(table: &Table, inputs: Vec<SegmentId>, tier: Tier) -> Rewrite {
    Rewrite {
        table: table.id(),
        inputs,
        tier,
        cause: RewriteCause::Fold,
    }
}

fn held_segments(store: &SeriesStore) -> usize {
    store
        .backend()
        .segments(tideline_log::SHARD)
        .expect("they can be listed")
        .len()
}

fn count(store: &SeriesStore, table: &Table, tier: Option<Tier>) -> usize {
    count_in(&store.snapshot(), table, tier)
}

fn count_in(snapshot: &Snapshot, table: &Table, tier: Option<Tier>) -> usize {
    let ids = ids();
    let mut reader = snapshot.reader(Selection {
        table: table.id(),
        timelines: &ids,
        range: TimeRange::ALL,
        fields: None,
        order: Order::Ascending,
        tier,
    });
    let mut rows = 0;
    for id in &ids {
        let visited = reader.timeline(*id, &mut |run| {
            rows += run.rows();
            Ok(ControlFlow::Continue(()))
        });
        visited.expect("the timeline can be read");
    }
    rows
}

#[test]
fn readers_see_every_point_once_before_during_and_after_moves() {
    for (name, test_backend) in TestBackend::all() {
        let (store, _) = test_backend.open(&tiny());
        filled(&store, 6);
        let table = store.table("default").expect("the default table");
        let expected = TIMELINES as usize * POINTS as usize;
        let before = store.snapshot();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut reads = 0;
                while !done.load(Ordering::Acquire) || reads == 0 {
                    assert_eq!(count(&store, &table, None), expected, "{name}");
                    reads += 1;
                }
            });
            for tier in [
                Tier::Hot,
                Tier::Cold,
                Tier::Archive,
                Tier::Archive,
                Tier::Hot,
                Tier::Cold,
            ] {
                let inputs = segments(&store);
                let moved = store.rewrite(&rewrite(&table, inputs, tier), &mut all_steps());
                let cost = moved.expect("a move").cost;
                assert_eq!(cost.points_written, expected as u64, "{name}");
            }
            done.store(true, Ordering::Release);
            reader.join().expect("readers agree");
        });
        assert_eq!(count(&store, &table, Some(Tier::Cold)), expected, "{name}");
        assert_eq!(count(&store, &table, Some(Tier::Hot)), 0, "{name}");
        assert!(before.manifest().of_table(table.id()).count() >= 6, "{name}");
    }
}

#[test]
fn a_reader_keeps_its_segments_over_many_edits() {
    for (name, test_backend) in TestBackend::all() {
        let (store, _) = test_backend.open(&tiny());
        filled(&store, 3);
        let table = store.table("default").expect("the default table");
        // Includes the late point, because the snapshot holds the head that is still active when the point is
        // written.
        let expected = TIMELINES as usize * POINTS as usize + 1;
        let held = store.snapshot();
        let inputs = segments(&store);
        // Another edit comes first, so that the move removes its inputs from a manifest that no reader holds.
        let late: Point = (timeline(0), POINTS, vec![("value", Value::Signed(POINTS))]);
        write(&store, &table, &[late], &[]).expect("a write");
        store.seal().expect("a seal");
        let moved = store.rewrite(&rewrite(&table, inputs, Tier::Cold), &mut all_steps());
        moved.expect("a move");
        store.seal().expect("a seal");
        assert_eq!(count_in(&held, &table, None), expected, "{name}");
        assert_eq!(
            held_segments(&store),
            5,
            "{name}: the reader's three and the two that there are now"
        );
        drop(held);
        filled(&store, 1);
        let inputs = segments(&store);
        let moved = store.rewrite(&rewrite(&table, inputs, Tier::Cold), &mut all_steps());
        moved.expect("a move");
        assert_eq!(held_segments(&store), 1, "{name}: data without readers is freed");
    }
}

#[test]
fn what_one_move_left_is_freed_while_the_next_one_runs() {
    for (name, test_backend) in TestBackend::all() {
        let (store, _) = test_backend.open(&tiny());
        filled(&store, 3);
        let table = store.table("default").expect("the default table");
        let reader = store.snapshot();
        let inputs = segments(&store);
        let moved = store.rewrite(&rewrite(&table, inputs, Tier::Hot), &mut all_steps());
        moved.expect("a move");
        filled(&store, 2);
        assert_eq!(held_segments(&store), 6, "{name}: the reader's three, and three");
        let inputs = segments(&store);
        let mut reader = Some(reader);
        let mut meanwhile = Meanwhile(|| {
            if reader.take().is_some() {
                // The sealer frees segments before each seal.
                filled(&store, 2);
                let held = held_segments(&store);
                assert!(held <= 6, "{name}: {held}, the reader's three among them");
            }
        });
        let moved = store.rewrite(&rewrite(&table, inputs, Tier::Cold), &mut meanwhile);
        moved.expect("a move");
    }
}

#[test]
fn a_move_that_is_given_up_leaves_everything_as_it_was() {
    for (name, test_backend) in TestBackend::all() {
        let (store, _) = test_backend.open(&tiny());
        filled(&store, 3);
        let table = store.table("default").expect("the default table");
        let inputs = segments(&store);
        for steps in [0, 1, TIMELINES as usize - 1] {
            let moved = store.rewrite(&rewrite(&table, inputs.clone(), Tier::Cold), &mut Steps(steps));
            assert!(matches!(moved, Err(StoreError::Cancelled)), "{name}");
        }
        assert_eq!(segments(&store), inputs, "{name}");
        let mut held: Vec<SegmentId> = store
            .backend()
            .segments(tideline_log::SHARD)
            .expect("segments")
            .iter()
            .map(|held| held.segment)
            .collect();
        held.sort_unstable();
        assert_eq!(held, inputs, "{name}: nothing is left of what was loaded");
    }
}

#[test]
fn segments_change_places_with_none_between_them() {
    let test_backend = TestBackend::Memory(MemoryDisk::new(Character::Embedded));
    let (store, _) = test_backend.open(&tiny());
    filled(&store, 3);
    let table = store.table("default").expect("the default table");
    let inputs = segments(&store);
    let ends = vec![inputs[0], inputs[2]];
    let refused = store.rewrite(&rewrite(&table, ends, Tier::Hot), &mut all_steps());
    assert!(
        matches!(refused, Err(StoreError::Interleaved { segment }) if segment == inputs[1]),
        "{refused:?}"
    );
    let unknown = store.rewrite(
        &rewrite(&table, vec![SegmentId(999)], Tier::Hot),
        &mut all_steps(),
    );
    assert!(matches!(unknown, Err(StoreError::SegmentGone(SegmentId(999)))));
}

#[test]
fn what_is_deleted_is_gone_from_every_tier_and_its_bytes_after_a_purge() {
    for (name, test_backend) in TestBackend::all() {
        let (store, _) = test_backend.open(&tiny());
        filled(&store, 2);
        let table = store.table("default").expect("the default table");
        let inputs = segments(&store);
        let cold = rewrite(&table, vec![inputs[0]], Tier::Cold);
        store.rewrite(&cold, &mut all_steps()).expect("a move");
        let delete = Delete {
            timelines: vec![timeline(3)],
            range: TimeRange::new(100, 200),
            removes_timelines: false,
        };
        for _ in 0..2 {
            store.delete(&table, delete.clone()).expect("a delete");
        }
        let left = |store: &SeriesStore| {
            let table = store.table("default").expect("the default table");
            let order = Order::Ascending;
            let rows = read(store, &table, &[timeline(3)], TimeRange::ALL, None, order);
            assert_eq!(rows[0].len() as i64, POINTS - 100, "{name}");
            assert!(rows[0].iter().all(|(at, _)| !(100..200).contains(at)), "{name}");
        };
        left(&store);
        store.close().expect("a clean close");
        let (store, _) = test_backend.open(&tiny());
        left(&store);
        let table = store.table("default").expect("the default table");
        let again: Vec<Point> = vec![(timeline(3), 150, vec![("value", Value::Signed(1))])];
        write(&store, &table, &again, &[]).expect("a write");
        store.seal().expect("a seal");
        let values_before = store.stats().segment_values;
        for survey in store.survey().tables {
            for have in survey.segments.iter().filter(|have| have.has_deletes) {
                let purge = Rewrite {
                    cause: RewriteCause::Purge,
                    ..rewrite(&table, vec![have.segment.id], have.segment.tier)
                };
                store.rewrite(&purge, &mut all_steps()).expect("a purge");
            }
        }
        assert_eq!(store.stats().segment_values, values_before - 100, "{name}");
        assert!(
            store.survey().tables.iter().all(|table| table.deletes == 0),
            "{name}"
        );
        assert_eq!(
            count(&store, &table, None) as i64,
            TIMELINES as i64 * POINTS - 99,
            "{name}"
        );
    }
}

#[test]
fn a_write_that_takes_a_removed_timeline_for_known_is_refused() {
    let test_backend = TestBackend::Memory(MemoryDisk::new(Character::Embedded));
    let (store, names) = test_backend.open(&tiny());
    filled(&store, 1);
    let table = store.table("default").expect("the default table");
    let before = table.timeline_generation();
    let delete = Delete {
        timelines: vec![timeline(1)],
        range: TimeRange::ALL,
        removes_timelines: true,
    };
    store.delete(&table, delete).expect("a delete");
    assert!(!names.0.lock().expect("not poisoned").contains(&timeline(1)));
    let outdated = Arc::new(tideline_chunk::Delta {
        table: table.id(),
        timelines: vec![timeline(1)],
        ..Default::default()
    });
    let durability = tideline_model::Durability::Synced;
    let refused = store.commit(&table, &outdated, Vec::new(), durability, before);
    assert!(
        matches!(refused, Err(StoreError::TimelinesRemoved)),
        "{refused:?}"
    );
    let now = table.timeline_generation();
    store
        .commit(&table, &outdated, Vec::new(), durability, now)
        .expect("the same write, looked at again");
}
