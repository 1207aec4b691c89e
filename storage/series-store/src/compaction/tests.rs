//! Tests of rewrites that need the internal state of the store.

use std::ops::ControlFlow;
use std::sync::Arc;

use tideline_chunk::{Delta, DeltaGroup};
use tideline_model::{ColumnData, Durability, ManualClock, Tier, TimelineId, Timestamp};

use super::{Rewrite, RewriteCause, RewriteCost, Throttle};
use crate::store::SeriesStore;
use crate::tables::Table;
use crate::test_store::open;

/// Throttle that runs a closure at each step of a rewrite.
struct Meanwhile<F>(F);

impl<F: FnMut()> Throttle for Meanwhile<F> {
    fn step(&mut self, _cost: &RewriteCost) -> ControlFlow<()> {
        (self.0)();
        ControlFlow::Continue(())
    }
}

fn write_one(store: &SeriesStore, table: &Arc<Table>, at: i64) {
    let group = DeltaGroup {
        measurements: "m".into(),
        fields: vec!["value".into()],
        columns: vec![ColumnData::Signed(vec![at])],
        timelines: vec![0],
        timestamps: vec![at],
    };
    let shape = table
        .schema()
        .shape(group.measurements.names(), &group.fields, &group.columns)
        .expect("one type");
    let delta = Delta {
        table: table.id(),
        timelines: vec![TimelineId([1; 16])],
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

#[test]
fn a_head_that_is_sealed_during_a_rewrite_is_freed_before_the_rewrite_ends() {
    let store = open(Arc::new(ManualClock::new(Timestamp::EPOCH)));
    let table = store.table("default").expect("the default table");
    for at in 0..2 {
        write_one(&store, &table, at);
        store.seal().expect("a seal");
    }
    let survey = store.survey();
    let inputs = survey.tables.iter().flat_map(|table| &table.segments);
    let rewrite = Rewrite {
        table: table.id(),
        inputs: inputs.map(|have| have.segment.id).collect(),
        tier: Tier::Hot,
        cause: RewriteCause::Fold,
    };
    write_one(&store, &table, 2);
    let head = Arc::downgrade(&store.shared().state.read().active);
    let mut is_freed = None;
    let mut meanwhile = Meanwhile(|| {
        store.seal().expect("a seal");
        is_freed = Some(head.upgrade().is_none());
    });
    store.rewrite(&rewrite, &mut meanwhile).expect("a rewrite");
    assert_eq!(is_freed, Some(true));
}
