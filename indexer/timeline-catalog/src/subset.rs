//! Timelines of a catalog that pass a test, with the counts of their names.
//!
//! A [`CatalogSubset`] follows its catalog: [`CatalogSubset::reader`] tests the timelines that were added or edited
//! since the last call. The returned reader shows only the timelines that pass. The test can use the attributes of a
//! timeline.
//!
//! Memory: two bitmaps, and the counts of the names of the timelines that pass.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use roaring::RoaringBitmap;
use tideline_model::Ordinal;

use crate::catalog::Catalog;
use crate::names::NameCounts;
use crate::reader::{CatalogReader, Entry};
use crate::state::State;

/// Maximum number of timelines that are tested under one lock of the catalog; the test of a group takes about a
/// millisecond.
const TESTED_GROUP: usize = 4_096;

/// Timelines of one catalog that pass a test. All methods are thread-safe.
#[derive(Debug, Default)]
pub struct CatalogSubset(RwLock<Members>);

/// Timelines that pass the test, as of a state of the catalog.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// Visible timelines that were tested.
    tested: RoaringBitmap,
    /// Visible timelines that pass.
    pub(crate) visible: RoaringBitmap,
    pub(crate) names: NameCounts,
    /// Counter of the last change of visibility that was followed.
    changes: u64,
    /// Number of the last edit that was followed.
    edits: u64,
    /// False while added or edited timelines wait for their test.
    is_complete: bool,
}

impl CatalogSubset {
    /// Locks the catalog for a batch of lookups of the timelines that pass the test, as [`Catalog::reader`] does for
    /// all timelines. Pass the same catalog and test in each call.
    ///
    /// Costs one call of `is_member` for each timeline that was added or edited since the last call. The lock of the
    /// catalog is released after every 4,096 of these calls.
    pub fn reader<'a>(
        &'a self,
        catalog: &'a Catalog,
        is_member: &dyn Fn(&Entry<'_>) -> bool,
    ) -> CatalogReader<'a> {
        loop {
            // The order of the locks is the same everywhere: first the catalog, then the subset.
            let state = catalog.state.read();
            let members = self.0.read();
            if members.is_current(&state) {
                return CatalogReader::of_subset(state, members);
            }
            drop(members);
            let mut members = self.0.write();
            if members.follow(&state, is_member) {
                let members: RwLockReadGuard<'_, Members> = RwLockWriteGuard::downgrade(members);
                return CatalogReader::of_subset(state, members);
            }
        }
    }
}

impl Members {
    fn is_current(&self, state: &State) -> bool {
        self.is_complete && self.changes == state.changes && self.edits == state.edits.newest()
    }

    /// Follows the changes of the catalog. Returns false if untested timelines are left after [`TESTED_GROUP`] tests.
    fn follow(&mut self, state: &State, is_member: &dyn Fn(&Entry<'_>) -> bool) -> bool {
        if self.is_current(state) {
            return true;
        }
        for ordinal in &self.visible - &state.visible {
            self.remove(state, ordinal);
        }
        self.tested &= &state.visible;
        if self.edits != state.edits.newest() {
            for ordinal in state.edits.since(self.edits) {
                self.tested.remove(ordinal.0);
            }
            self.edits = state.edits.newest();
        }
        let mut untested = (&state.visible - &self.tested).into_iter();
        for ordinal in untested.by_ref().take(TESTED_GROUP) {
            let entry = Entry::new(state, Ordinal(ordinal));
            self.tested.insert(ordinal);
            match (is_member(&entry), self.visible.contains(ordinal)) {
                (true, false) => self.add(state, ordinal),
                (false, true) => self.remove(state, ordinal),
                (true, true) | (false, false) => {}
            }
        }
        self.changes = state.changes;
        self.is_complete = untested.next().is_none();
        self.is_complete
    }

    fn add(&mut self, state: &State, ordinal: u32) {
        self.visible.insert(ordinal);
        let (measurement, tags) = state.symbols_of(Ordinal(ordinal));
        self.names.add(measurement, tags);
    }

    fn remove(&mut self, state: &State, ordinal: u32) {
        self.visible.remove(ordinal);
        // A removed timeline keeps its identity until the next start.
        let (measurement, tags) = state.symbols_of(Ordinal(ordinal));
        self.names.remove(measurement, tags);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tideline_model::{Identity, TableId};

    use super::*;
    use crate::change::tests::{Journal, catalog};
    use crate::names::{CountedName, NameSelection};
    use crate::types::CountedKey;
    use crate::value::AttributeRef;
    use crate::{AttributeType, AttributeValue};

    const ALL: NameSelection<'_> = NameSelection {
        prefix: "",
        after: None,
        limit: usize::MAX,
    };

    fn is_member(entry: &Entry<'_>) -> bool {
        entry.tag("team") == Some("x") || matches!(entry.attribute("team"), Some(AttributeRef::Text("x")))
    }

    /// Counts names as one pass over the timelines of a catalog does.
    fn counted<'a>(names: impl Iterator<Item = &'a str>) -> Vec<CountedName> {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        names.for_each(|name| *counts.entry(name).or_default() += 1);
        let counted = counts.into_iter().map(|(name, timelines)| CountedName {
            name: name.to_owned(),
            timelines,
        });
        counted.collect()
    }

    #[test]
    fn a_subset_follows_registrations_edits_and_removals() {
        for seed in tideline_testkit::seeds("subset", 40) {
            let mut state = seed;
            let mut below = |end: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % end
            };
            let (catalog, journal, subset) =
                (catalog(TableId(7)), Journal::default(), CatalogSubset::default());
            for step in 0..300 {
                let ordinals: Vec<Ordinal> = catalog.reader().visible().iter().map(Ordinal).collect();
                match below(4) {
                    0 | 1 => {
                        let team = ["x", "y", "z"][below(3) as usize].to_owned();
                        let tags = vec![
                            ("host".to_owned(), format!("h{}", below(60))),
                            (if below(2) == 0 { "team" } else { "group" }.to_owned(), team),
                        ];
                        let identity = Identity::new(format!("m{}", below(4)), tags).expect("valid");
                        let registered = catalog.register(&identity, None).expect("room");
                        if below(5) > 0 {
                            catalog.mark_durable(&[registered.ordinal]);
                        }
                    }
                    2 if !ordinals.is_empty() => {
                        let ordinal = ordinals[below(ordinals.len() as u64) as usize];
                        let value = ["x", "y"].get(below(3) as usize);
                        let value = value.map(|text| AttributeValue::Text((*text).to_owned()));
                        let key = ["team", "rack"][below(2) as usize].to_owned();
                        let changes = BTreeMap::from([(key, value)]);
                        catalog
                            .set_attributes(ordinal, &changes, &journal.commit())
                            .expect("edited");
                    }
                    3 if below(4) == 0 && !ordinals.is_empty() => {
                        let id = catalog
                            .reader()
                            .id(ordinals[below(ordinals.len() as u64) as usize]);
                        catalog.remove(&[id]);
                    }
                    _ => {}
                }
                if below(3) > 0 {
                    continue;
                }
                let all = catalog.reader();
                let entries = all
                    .visible()
                    .iter()
                    .filter_map(|ordinal| all.entry(Ordinal(ordinal)));
                let members: Vec<Entry<'_>> = entries.filter(is_member).collect();
                let visible: Vec<u32> = members.iter().map(|entry| entry.ordinal().0).collect();
                let measurements = counted(members.iter().map(Entry::measurement));
                let keys = counted(members.iter().flat_map(|entry| entry.tags().map(|(key, _)| key)));
                let hosts = counted(members.iter().filter_map(|entry| entry.tag("host")));
                let attributes = counted(
                    members
                        .iter()
                        .flat_map(|entry| entry.attributes().map(|(key, _)| key)),
                );
                let attributes = attributes.into_iter().map(|name| CountedKey {
                    key: name.name,
                    types: vec![(AttributeType::Text, name.timelines)],
                });
                let attributes: Vec<CountedKey> = attributes.collect();
                drop(members);
                drop(all);
                let reader = subset.reader(&catalog, &is_member);
                let what = format!("seed {seed}, step {step}");
                assert_eq!(reader.visible().iter().collect::<Vec<_>>(), visible, "{what}");
                assert_eq!(reader.measurements(&ALL), measurements, "{what}");
                assert_eq!(reader.tag_keys(&ALL), keys, "{what}");
                assert_eq!(reader.tag_values("host", &ALL), hosts, "{what}");
                assert_eq!(reader.attribute_keys(), attributes, "{what}");
                assert_eq!(
                    reader.has_attribute_key("rack"),
                    attributes.iter().any(|key| key.key == "rack"),
                    "{what}"
                );
                assert_eq!(reader.cardinality(1).timelines, visible.len() as u64, "{what}");
                for ordinal in &ordinals {
                    let is_visible = visible.contains(&ordinal.0);
                    assert_eq!(reader.entry(*ordinal).is_some(), is_visible, "{what}");
                    assert_eq!(reader.by_id(reader.id(*ordinal)).is_some(), is_visible, "{what}");
                }
            }
        }
    }

    #[test]
    fn many_new_timelines_are_tested_in_groups() {
        let (catalog, subset) = (catalog(TableId(7)), CatalogSubset::default());
        let count = 3 * TESTED_GROUP as u32 + 5;
        let mut ordinals = Vec::new();
        for n in 0..count {
            let team = if n % 2 == 0 { "x" } else { "y" }.to_owned();
            let tags = vec![("host".to_owned(), format!("h{n}")), ("team".to_owned(), team)];
            let identity = Identity::new("m".to_owned(), tags).expect("valid");
            ordinals.push(catalog.register(&identity, None).expect("room").ordinal);
        }
        catalog.mark_durable(&ordinals);
        let reader = subset.reader(&catalog, &is_member);
        assert_eq!(reader.visible().len(), u64::from(count.div_ceil(2)));
        assert_eq!(
            reader.timelines_with_tag("team", "x"),
            u64::from(count.div_ceil(2))
        );
        assert_eq!(reader.timelines_with_tag("team", "y"), 0);
        drop(reader);
        // Many edits, without a new timeline.
        let moved = BTreeMap::from([("team".to_owned(), Some(AttributeValue::Text("x".to_owned())))]);
        let journal = Journal::default();
        for group in ordinals.chunks(1_000) {
            let edited = catalog.set_attributes_of(group, &moved, &journal.commit());
            assert!(edited.expect("edited").iter().all(Result::is_ok));
        }
        let reader = subset.reader(&catalog, &is_member);
        assert_eq!(reader.visible().len(), u64::from(count));
        assert!(reader.has_attribute_key("team") && !reader.has_attribute_key("rack"));
    }
}
