//! Triggers of a seal: memory, timelines and settings.
//!
//! The tests count seals and compare the memory of the heads with their budget.

use std::sync::Arc;

use tideline_backend::memory::{Character, MemoryDisk};
use tideline_chunk::{Delta, DeltaGroup, NewTimeline};
use tideline_model::{ColumnData, Durability, Ordinal, TimelineId};
use tideline_series_store::{HeadBudget, SeriesStore, Settings};

use crate::fixture::{TestBackend, timeline};

/// Number of timelines in one write.
const BATCH: u64 = 10_000;

fn open(head: HeadBudget) -> SeriesStore {
    let test_backend = TestBackend::Memory(MemoryDisk::new(Character::Embedded));
    let settings = Settings {
        head,
        ..Settings::default()
    };
    test_backend.open(&settings).0
}

/// Writes one point of each timeline at a given second. Returns the maximum bytes of the heads after a write.
fn write_round(store: &SeriesStore, timelines: u64, second: i64) -> usize {
    let table = store.table("default").expect("the default table");
    let mut most = 0;
    for from in (0..timelines).step_by(BATCH as usize) {
        let ids: Vec<TimelineId> = (from..timelines.min(from + BATCH)).map(timeline).collect();
        let rows = ids.len();
        let introduced = |id: &TimelineId| NewTimeline {
            id: *id,
            ordinal: Ordinal(0),
            identity: id.0.to_vec(),
        };
        let group = DeltaGroup {
            measurements: "m".into(),
            fields: ["value"].map(Into::into).into(),
            columns: vec![ColumnData::Signed(vec![second % 100; rows])],
            timelines: (0..rows as u32).collect(),
            timestamps: vec![1_700_000_000_000_000_000 + second * 1_000_000_000; rows],
        };
        let shape = table
            .schema()
            .shape(group.measurements.names(), &group.fields, &group.columns)
            .expect("a shape");
        let delta = Delta {
            table: table.id(),
            new_timelines: ids.iter().filter(|_| second == 0).map(introduced).collect(),
            timelines: ids,
            groups: vec![group],
            ..Delta::default()
        };
        let generation = table.timeline_generation();
        store
            .commit(
                &table,
                &Arc::new(delta),
                vec![shape],
                Durability::Synced,
                generation,
            )
            .expect("a write");
        most = most.max(store.stats().head_bytes);
    }
    most
}

/// Writes a stream of points of many timelines. Returns the number of seals and the maximum bytes of the heads.
fn stream(store: &SeriesStore, timelines: u64, rounds: i64) -> (u64, usize) {
    let most = (0..rounds).map(|second| write_round(store, timelines, second));
    let most = most.max().expect("a round");
    // Waits until the frozen heads are sealed, so that these seals are counted.
    store.seal().expect("a seal");
    (store.stats().seals, most)
}

#[test]
fn by_default_half_a_million_timelines_are_not_sealed_at_their_first_point() {
    let test_backend = TestBackend::Memory(MemoryDisk::new(Character::Embedded));
    let (store, _) = test_backend.open(&Settings::default());
    let timelines = 500_000;
    write_round(&store, timelines, 0);
    let stats = store.stats();
    assert_eq!((stats.seals, stats.frozen_heads), (0, 0), "{stats:?}");
    assert_eq!(stats.head_points, timelines);
    assert!(stats.head_budget_bytes > stats.head_bytes, "{stats:?}");
    // The index of a timeline takes at most half of its budget, so the other half remains for points.
    let each = stats.head_bytes as u64 / timelines;
    assert!(each <= 128, "{each} bytes for each timeline with one point");
}

#[test]
fn a_seal_writes_many_points_of_each_timeline() {
    let (timelines, rounds) = (5_000, 40);
    let per_timeline = HeadBudget {
        bytes_min: 256 << 10,
        bytes_per_timeline: 256,
        bytes_max: 512 << 20,
    };
    let (seals, most) = stream(&open(per_timeline), timelines, rounds);
    assert!(
        seals <= 3,
        "{seals} seals, each of {} points a timeline",
        rounds as u64 / seals
    );
    assert!(
        most <= 2 * per_timeline.bytes(timelines as usize) + (1 << 20),
        "{most} bytes"
    );
    // The budget never exceeds its maximum, regardless of the number of timelines.
    let limited = HeadBudget {
        bytes_max: 512 << 10,
        ..per_timeline
    };
    let (more_seals, most) = stream(&open(limited), timelines, rounds);
    assert!(more_seals > 3 * seals, "{more_seals} seals");
    assert!(most <= 2 * limited.bytes_max + (1 << 20), "{most} bytes");
    // A fixed budget does not depend on the number of timelines.
    let fixed = HeadBudget::fixed(256 << 10);
    let (more_seals, most) = stream(&open(fixed), timelines, rounds);
    assert!(more_seals > 3 * seals, "{more_seals} seals");
    assert!(most <= 2 * fixed.bytes_max + (1 << 20), "{most} bytes");
}

#[test]
fn few_timelines_are_sealed_at_the_same_size_as_ever() {
    let budget = HeadBudget {
        bytes_min: 64 << 10,
        bytes_per_timeline: 256,
        bytes_max: 512 << 20,
    };
    let (timelines, rounds) = (100, 1_000);
    let (seals, _) = stream(&open(budget), timelines, rounds);
    let (fixed, _) = stream(&open(HeadBudget::fixed(64 << 10)), timelines, rounds);
    assert_eq!(seals, fixed);
}
