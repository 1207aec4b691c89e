//! The catalog over the in-memory backend: what is saved is loaded, what is not comes from the journal.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_model::{Identity, TimelineId};

use super::*;
use crate::{AttributeRef, AttributeType, AttributeValue, Attributes, CatalogReader, CountedKey, GeoPoint};

const TABLE: TableId = TableId(7);

/// A catalog, its backend, and what a journal would hold.
struct Database {
    disk: Arc<MemoryDisk>,
    backend: MemoryBackend,
    catalog: Catalog,
    stamp: u64,
    /// What was committed since the last time that the journal was forgotten.
    journal: Vec<Entry>,
}

enum Entry {
    /// Id, ordinal, identity.
    Announce(TimelineId, Ordinal, Vec<u8>),
    Remove(TimelineId),
}

impl Database {
    fn new(character: Character) -> Self {
        let disk = MemoryDisk::new(character);
        let backend = MemoryBackend::open(&disk);
        Self {
            disk,
            backend,
            catalog: Catalog::new(TABLE, options()),
            stamp: 0,
            journal: Vec::new(),
        }
    }

    fn register(&self, number: u32) -> Ordinal {
        let tags = vec![
            ("host".to_owned(), format!("h{number}")),
            ("dc".to_owned(), "x".to_owned()),
        ];
        let identity = Identity::new("cpu".to_owned(), tags).expect("valid");
        self.catalog.register(&identity, None).expect("room").ordinal
    }

    fn announce(&mut self, ordinal: Ordinal) {
        let reader = self.catalog.reader();
        let mut identity = Vec::new();
        reader.encode_identity(ordinal, &mut identity);
        let entry = Entry::Announce(reader.id(ordinal), ordinal, identity);
        self.journal.push(entry);
        drop(reader);
        self.catalog.announced(&[ordinal]);
    }

    /// A removal that is committed, but not answered.
    fn remove(&mut self, ordinal: Ordinal) {
        let id = self.catalog.reader().id(ordinal);
        self.journal.push(Entry::Remove(id));
        self.catalog.remove(&[id]);
    }

    /// What must be done before a removal is answered.
    fn save_removals(&mut self) {
        let stamp = &mut self.stamp;
        self.catalog
            .save_removals(&self.backend, &mut || next(stamp))
            .expect("memory does not fail");
    }

    /// Makes all durable, and does not come to forget the journal.
    fn save_only(&mut self) {
        let stamp = &mut self.stamp;
        self.catalog
            .save(&self.backend, &mut || next(stamp))
            .expect("memory does not fail");
        assert_eq!(self.catalog.unsaved(), 0);
    }

    fn save(&mut self) {
        self.save_only();
        self.journal.clear();
    }

    fn edit(&mut self, ordinal: Ordinal, key: &str, value: Option<AttributeValue>) -> Result<Attributes> {
        let changes = BTreeMap::from([(key.to_owned(), value)]);
        let stamp = &mut self.stamp;
        self.catalog
            .set_attributes(&self.backend, ordinal, &changes, &mut || next(stamp))
    }

    fn restart(&mut self) {
        self.backend = MemoryBackend::open(&self.disk);
        self.catalog = Catalog::load(&self.backend, TABLE, options()).expect("sound rows");
        for entry in &self.journal {
            match entry {
                Entry::Announce(id, ordinal, identity) => self
                    .catalog
                    .adopt(*id, *ordinal, identity)
                    .expect("agrees with the rows"),
                Entry::Remove(id) => self.catalog.remove_replayed(&[*id]),
            }
        }
        self.catalog.replayed();
    }
}

fn next(stamp: &mut u64) -> tideline_backend::Result<Stamp> {
    *stamp += 1;
    Ok(Stamp(*stamp))
}

fn options() -> CatalogOptions {
    CatalogOptions {
        source_tags: vec!["host".to_owned()],
        raw_key_cache_bytes: 0,
    }
}

type Described = (TimelineId, Vec<(String, String)>, Attributes);

fn describe(reader: &CatalogReader<'_>) -> BTreeMap<u32, Described> {
    let entry = |ordinal| {
        let entry = reader.entry(Ordinal(ordinal)).expect("visible");
        let tags = entry
            .tags()
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let attributes = entry.owned_attributes();
        (ordinal, (entry.id(), tags.collect(), attributes))
    };
    let described: BTreeMap<u32, Described> = reader.visible().iter().map(entry).collect();
    let mut hosts: BTreeMap<&str, u32> = BTreeMap::new();
    for (_, tags, _) in described.values() {
        let host = tags.iter().find(|(key, _)| key == "host");
        *hosts.entry(&host.expect("all have one").1).or_default() += 1;
    }
    let all = crate::NameSelection {
        limit: usize::MAX,
        ..crate::NameSelection::default()
    };
    let counted = reader.tag_values("host", &all);
    let counted = counted.iter().map(|value| (value.name.as_str(), value.timelines));
    assert!(counted.eq(hosts), "names are counted for what is visible");
    described
}

#[derive(Debug, Clone)]
enum Step {
    Register(u32),
    Announce(usize),
    Edit(usize, &'static str, Option<u32>),
    Remove(usize),
    Save,
    SaveOnly,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..40u32).prop_map(Step::Register),
        4 => any::<usize>().prop_map(Step::Announce),
        3 => (any::<usize>(), prop::sample::select(vec!["owner", "rack"]), any::<Option<u32>>())
            .prop_map(|(which, key, value)| Step::Edit(which, key, value)),
        2 => any::<usize>().prop_map(Step::Remove),
        1 => Just(Step::Save),
        1 => Just(Step::SaveOnly),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(64))]

    #[test]
    fn a_restart_changes_nothing_that_was_announced(
        steps in prop::collection::vec(step(), 1..120),
        distributed in any::<bool>(),
    ) {
        let character = if distributed { Character::Distributed } else { Character::Embedded };
        let mut database = Database::new(character);
        let mut registered: Vec<Ordinal> = Vec::new();
        for step in steps {
            match step {
                Step::Register(number) => registered.push(database.register(number)),
                Step::Announce(which) if !registered.is_empty() => {
                    let ordinal = registered[which % registered.len()];
                    database.announce(ordinal);
                }
                Step::Edit(which, key, value) if !registered.is_empty() => {
                    let ordinal = registered[which % registered.len()];
                    let visible = database.catalog.reader().visible().contains(ordinal.0);
                    let edited = database.edit(ordinal, key, value.map(|n| AttributeValue::Number(n.into())));
                    prop_assert_eq!(edited.is_ok(), visible, "only visible timelines have attributes");
                }
                Step::Remove(which) if !registered.is_empty() => {
                    let ordinal = registered[which % registered.len()];
                    database.remove(ordinal);
                    database.save_removals();
                    prop_assert!(!database.catalog.reader().visible().contains(ordinal.0));
                }
                Step::Save => database.save(),
                Step::SaveOnly => database.save_only(),
                Step::Restart => {
                    let before = describe(&database.catalog.reader());
                    database.restart();
                    registered.retain(|ordinal| before.contains_key(&ordinal.0));
                    let reader = database.catalog.reader();
                    prop_assert_eq!(&describe(&reader), &before);
                    let edited: Vec<u32> = reader.edits_since(0).map(|ordinal| ordinal.0).collect();
                    let expected = before.iter().filter(|(_, (_, _, attributes))| !attributes.is_empty());
                    prop_assert!(expected.into_iter().all(|(ordinal, _)| edited.contains(ordinal)));
                }
                _ => {}
            }
        }
    }
}

#[test]
fn many_rows_are_saved_in_pages_and_removed() {
    let mut database = Database::new(Character::Embedded);
    for number in 0..2_500 {
        let ordinal = database.register(number);
        database.announce(ordinal);
    }
    database.save();
    database.restart();
    assert_eq!(database.catalog.len(), 2_500);
    let other = Catalog::load(&database.backend, TableId(8), options()).expect("no rows");
    assert!(other.is_empty(), "rows belong to one table");
    for _ in 0..2 {
        let stamp = &mut database.stamp;
        Catalog::remove_all(&database.backend, TABLE, &mut || next(stamp)).expect("may be repeated");
    }
    database.restart();
    assert!(database.catalog.is_empty());
}

#[test]
fn an_edit_of_unknown_outcome_holds_the_settled_counter_back() {
    let mut database = Database::new(Character::Embedded);
    let ordinal = database.register(1);
    database.announce(ordinal);
    let value = |text: &str| Some(AttributeValue::Text(text.to_owned()));
    database
        .edit(ordinal, "owner", value("ops"))
        .expect("memory does not fail");
    assert_eq!(database.catalog.unsaved(), 0, "the edit wrote the whole row");
    let working = MemoryBackend::open(&database.disk);
    let failed = database.edit(ordinal, "owner", value("dev"));
    assert!(
        matches!(failed, Err(CatalogError::Backend(_))),
        "an older handle is dead: {failed:?}"
    );
    {
        let reader = database.catalog.reader();
        assert_eq!((reader.edit_counter(), reader.settled_edits()), (2, 1));
        let entry = reader.entry(ordinal).expect("visible");
        let owner = entry.attribute("owner").map(AttributeRef::to_value);
        assert_eq!(owner, value("ops"), "a failed edit is not visible");
    }
    assert_eq!(database.catalog.unsaved(), 1, "the row is written again");
    database.backend = working;
    database.save();
    let reader = database.catalog.reader();
    assert_eq!((reader.edit_counter(), reader.settled_edits()), (2, 2));
}

fn text(text: &str) -> Option<AttributeValue> {
    Some(AttributeValue::Text(text.to_owned()))
}

fn owner(catalog: &Catalog, ordinal: Ordinal) -> Option<AttributeValue> {
    let reader = catalog.reader();
    let entry = reader.entry(ordinal).expect("visible");
    entry.attribute("owner").map(AttributeRef::to_value)
}

#[test]
fn attributes_go_with_a_timeline_and_those_given_to_it_afterwards_stay() {
    let mut database = Database::new(Character::Embedded);
    let ordinal = database.register(1);
    database.announce(ordinal);
    database.edit(ordinal, "owner", text("ops")).expect("visible");
    database.save();
    database.remove(ordinal);
    database.save_removals();
    database.announce(ordinal);
    assert_eq!(owner(&database.catalog, ordinal), None);
    database.restart();
    assert_eq!(owner(&database.catalog, ordinal), None);
    database.edit(ordinal, "owner", text("dev")).expect("visible");
    for _ in 0..2 {
        // The journal still holds the removal; the row is of after it.
        database.restart();
        assert_eq!(owner(&database.catalog, ordinal), text("dev"));
    }
    database.remove(ordinal);
    database.restart();
    assert!(database.catalog.is_empty());
    database.announce(ordinal);
    assert_eq!(owner(&database.catalog, ordinal), None);
}

#[test]
fn a_row_that_a_removal_overtakes_is_deleted() {
    for saves_all in [false, true] {
        let mut database = Database::new(Character::Embedded);
        let (first, second) = (database.register(1), database.register(2));
        database.announce(first);
        database.announce(second);
        let id = database.catalog.reader().id(first);
        let (catalog, backend) = (&database.catalog, &database.backend);
        let mut stamp = 0;
        let mut removing = || {
            catalog.remove(&[id]);
            next(&mut stamp)
        };
        if saves_all {
            catalog
                .save(backend, &mut removing)
                .expect("memory does not fail");
        } else {
            let changes = BTreeMap::from([("owner".to_owned(), text("ops"))]);
            let edited = catalog.set_attributes(backend, first, &changes, &mut removing);
            assert!(
                matches!(edited, Err(CatalogError::UnknownTimeline(_))),
                "{edited:?}"
            );
            catalog
                .save(backend, &mut removing)
                .expect("memory does not fail");
        }
        let loaded = Catalog::load(backend, TABLE, options()).expect("sound rows");
        assert_eq!(loaded.reader().visible().iter().collect::<Vec<_>>(), [second.0]);
        assert_eq!(catalog.unsaved(), 0);
    }
}

#[test]
fn an_edit_whose_number_a_removal_takes_is_seen_as_the_later_one() {
    let mut database = Database::new(Character::Embedded);
    let (first, second) = (database.register(1), database.register(2));
    database.announce(first);
    database.announce(second);
    database.edit(first, "owner", text("ops")).expect("visible");
    let id = database.catalog.reader().id(first);
    let (catalog, backend) = (&database.catalog, &database.backend);
    let mut stamp = database.stamp;
    let mut between = (0, 0);
    let changes = BTreeMap::from([("owner".to_owned(), text("dev"))]);
    let mut removing = || {
        catalog.remove(&[id]);
        let reader = catalog.reader();
        between = (reader.edit_counter(), reader.settled_edits());
        next(&mut stamp)
    };
    catalog
        .set_attributes(backend, second, &changes, &mut removing)
        .expect("visible");
    assert_eq!(between, (2, 1), "an edit on its way is not settled");
    {
        let reader = catalog.reader();
        assert_eq!(reader.edits_since(2).collect::<Vec<_>>(), [second]);
        assert_eq!((reader.edit_counter(), reader.settled_edits()), (3, 1));
    }
    catalog
        .save(backend, &mut || next(&mut stamp))
        .expect("memory does not fail");
    let loaded = Catalog::load(backend, TABLE, options()).expect("sound rows");
    let reader = loaded.reader();
    assert_eq!((reader.edit_counter(), catalog.reader().settled_edits()), (3, 3));
}

#[test]
fn ordinals_of_removed_timelines_are_given_out_after_a_restart() {
    let mut database = Database::new(Character::Embedded);
    let ordinals: Vec<Ordinal> = (0..100).map(|number| database.register(number)).collect();
    ordinals.iter().for_each(|ordinal| database.announce(*ordinal));
    for ordinal in ordinals.iter().take(90) {
        database.remove(*ordinal);
    }
    let fresh = database.register(1_000);
    assert_eq!(
        fresh,
        Ordinal(100),
        "writes on their way may still use the others"
    );
    database.save();
    database.restart();
    assert_eq!(database.catalog.len(), 10);
    let given: Vec<u32> = (200..300).map(|number| database.register(number).0).collect();
    assert_eq!(given[..90], (0..90).collect::<Vec<_>>());
    assert_eq!(given[90..], (100..110).collect::<Vec<_>>());
}

#[test]
fn a_damaged_row_is_an_error_that_names_it() {
    let mut database = Database::new(Character::Embedded);
    let ordinal = database.register(1);
    database.announce(ordinal);
    database.save();
    let id = database.catalog.reader().id(ordinal);
    let change = RowChange {
        key: Bytes::copy_from_slice(&catalog_key(TABLE, id)),
        value: Some(Bytes::from_static(b"\x01damaged")),
    };
    let stamp = next(&mut database.stamp);
    database
        .backend
        .write(catalog_partition(id), &[change], stamp.expect("a stamp"))
        .expect("memory does not fail");
    let loaded = Catalog::load(&database.backend, TABLE, options());
    assert!(matches!(loaded, Err(CatalogError::DamagedRow { id: named, .. }) if named == id));
}

#[test]
fn a_key_has_one_type_in_a_table_until_nobody_else_has_it() {
    let mut database = Database::new(Character::Embedded);
    let [one, two] = [1, 2].map(|n| database.register(n));
    database.announce(one);
    database.announce(two);
    let rack = |value| ("rack", Some(value));
    let place = GeoPoint::new(52.5, 13.4).expect("a place");
    let values = [
        AttributeValue::Text("a".into()),
        AttributeValue::Number(7.0),
        AttributeValue::Boolean(true),
        AttributeValue::Time(tideline_model::Timestamp::EPOCH),
        AttributeValue::Point(place),
        AttributeValue::Texts(vec!["a".into(), "b".into()]),
        AttributeValue::Numbers(vec![1.0, 2.0]),
    ];
    for first in &values {
        let (key, value) = rack(first.clone());
        database.edit(one, key, value).expect("nobody else has the key");
        for second in &values {
            let (key, value) = rack(second.clone());
            let edited = database.edit(two, key, value);
            assert_eq!(
                edited.is_ok(),
                first.kind() == second.kind(),
                "{first:?} {second:?}"
            );
            if let Err(error) = edited {
                let said = error.to_string();
                assert!(said.contains("\"rack\"") && said.contains("on 1 other"), "{said}");
                assert!(
                    said.contains(first.kind().name()) && said.contains(second.kind().name()),
                    "{said}"
                );
            }
        }
        assert_eq!(
            database.catalog.reader().attribute_keys(),
            [CountedKey {
                key: "rack".into(),
                types: vec![(first.kind(), 2)]
            }]
        );
        database.restart();
        let reader = database.catalog.reader();
        let entry = reader.entry(one).expect("visible");
        assert_eq!(
            entry.attribute("rack").map(AttributeRef::to_value).as_ref(),
            Some(first)
        );
        assert_eq!(
            entry.attribute("rack").map(AttributeRef::kind),
            Some(first.kind())
        );
        drop(reader);
        database.edit(two, "rack", None).expect("removed");
    }
    assert_eq!(
        AttributeType::ALL.map(|kind| kind as usize),
        [0, 1, 2, 3, 4, 5, 6]
    );
}
