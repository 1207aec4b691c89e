//! Tests of groups whose timelines are removed while the query is planned.
//!
//! The steps of the planner are called one by one, with a removal from the catalog in between.

use std::sync::Arc;

use tempfile::TempDir;
use tideline_engine::backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_engine::condition::Condition;
use tideline_engine::find::NEVER;
use tideline_engine::model::{
    ColumnData, ManualClock, PointBatch, PointGroup, SeriesResolver, TimelineId, Timestamp,
};
use tideline_engine::{Engine, Settings, TimelineSelector, WriteOptions};

use super::*;
use crate::budget::{Budget, Cancel, Watch};
use crate::point_query::Selector;

/// Engine with one point in each of six timelines: hosts `a`, `b` and `c`, each with the zones `x` and `y`.
struct World {
    engine: Engine,
    table: Table,
    _index: TempDir,
}

impl World {
    fn new() -> Self {
        let backend = MemoryBackend::open(&MemoryDisk::new(Character::Embedded));
        let index = tempfile::tempdir().expect("a folder");
        let clock = ManualClock::new(Timestamp::EPOCH);
        let settings = Settings::new(index.path().into());
        let engine = Engine::open(Arc::new(backend), Arc::new(clock), settings).expect("it opens");
        let table = engine.default_table().expect("it exists");
        let keys = ["a", "b", "c"].map(|host| ["x", "y"].map(|zone| format!("m,host={host},zone={zone}")));
        let mut resolver = engine.resolver(&table);
        let timelines = keys
            .as_flattened()
            .iter()
            .map(|key| resolver.resolve(key.as_bytes()).expect("a valid key"));
        let group = PointGroup {
            measurements: "m".into(),
            fields: vec!["v".into()],
            columns: vec![ColumnData::Signed(vec![1; 6])],
            timelines: timelines.collect(),
            timestamps: vec![0; 6],
            lines: (1..=6).collect(),
        };
        drop(resolver);
        let batch = PointBatch {
            groups: vec![group],
            rejects: Vec::new(),
        };
        engine
            .write(&table, batch, &WriteOptions::default())
            .expect("written");
        Self {
            engine,
            table,
            _index: index,
        }
    }

    fn select(&self) -> Scope {
        let engine = Arc::new(self.engine.clone());
        let watch = Watch::new(Budget::default(), Cancel::new(), &engine);
        let all = Selector::Condition(Condition::All);
        Scope::select(&self.engine, &self.table, &all, &watch).expect("selected")
    }

    fn host(&self, timeline: &Selected) -> String {
        let reader = self.table.reader();
        reader.tag(timeline.ordinal, "host").expect("a host").to_owned()
    }

    /// Returns the host of each timeline of the scope and the `host` of its group.
    fn pairs(&self, scope: &Scope, groups: &Groups) -> Vec<(String, Option<String>)> {
        assert_eq!(scope.timelines.len(), groups.of.len());
        let named = |group: &u32| groups.groups[*group as usize].tags[0].1.clone();
        let all = scope.timelines.iter().zip(&groups.of);
        all.map(|(timeline, group)| (self.host(timeline), group.as_ref().map(named)))
            .collect()
    }

    fn remove(&self, ids: &[TimelineId]) {
        let removed = TimelineSelector::Ids(ids.to_vec());
        self.engine
            .delete_timelines(&self.table, &removed, NEVER)
            .expect("deleted");
    }
}

fn by_host() -> GroupBy {
    GroupBy::Tags(vec!["host".to_owned()])
}

#[test]
fn a_timeline_removed_after_selection_is_in_no_group_and_shifts_no_other() {
    for removed in 0..6 {
        let world = World::new();
        let mut scope = world.select();
        world.remove(&[scope.timelines[removed].id]);
        let groups = scope.groups(&world.table, &by_host());
        for (at, (host, group)) in world.pairs(&scope, &groups).into_iter().enumerate() {
            assert_eq!(group, (at != removed).then_some(host), "{at} of {removed}");
        }
        let kept = scope.keep_groups(groups, &[2, 0]);
        let hosts = world.pairs(&scope, &kept);
        assert!(hosts.len() >= 3);
        assert!(hosts.iter().all(|(host, group)| group.as_ref() == Some(host)));
        assert!(hosts.iter().all(|(host, _)| host != "b"));
    }
}

#[test]
fn a_group_is_named_even_if_its_example_was_removed_meanwhile() {
    for removed in 0..6 {
        let world = World::new();
        let scope = world.select();
        let mut groups = scope.find_groups(&world.table, &by_host());
        world.remove(&[scope.timelines[removed].id]);
        scope.name_groups(&world.table, &by_host(), &mut groups, &[0, 1, 2]);
        for (host, group) in world.pairs(&scope, &groups) {
            assert_eq!(group, Some(host), "{removed}");
        }
    }
}

#[test]
fn a_group_disappears_with_its_last_timeline() {
    let world = World::new();
    let scope = world.select();
    let mut of_b = scope.timelines.clone();
    of_b.retain(|timeline| world.host(timeline) == "b");
    world.remove(&[of_b[0].id, of_b[1].id]);
    let groups = scope.groups(&world.table, &by_host());
    let named: Vec<&str> = groups
        .groups
        .iter()
        .map(|group| group.tags[0].1.as_str())
        .collect();
    assert_eq!(named, ["a", "c"]);
}
