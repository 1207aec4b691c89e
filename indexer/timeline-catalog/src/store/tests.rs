//! Tests of the catalog over the in-memory backend: saved rows are loaded, later changes are replayed from the journal.
//!
//! Random sequences of registrations, edits, removals, saves and restarts must not lose or restore anything. An edit
//! with unknown outcome may or may not be present after a restart.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk, WriteFault};
use tideline_backend::{BackendError, Epoch};
use tideline_model::{GeoPoint, Identity, TimelineId};

use super::*;
use crate::change::tests::{Journal, check, options, save, unknown};
use crate::{
    AttributeRef, AttributeType, AttributeValue, Attributes, CatalogChange, CatalogReader, ChangeLog,
    CommitError, CountedKey,
};

const TABLE: TableId = TableId(7);

/// A catalog, its backend, and a simulated journal.
struct Database {
    /// Table of the catalog. After a drop, the next table takes its place.
    table: TableId,
    disk: Arc<MemoryDisk>,
    backend: MemoryBackend,
    catalog: Arc<Catalog>,
    stamp: u64,
    /// Entries committed since the journal was last cleared.
    journal: Vec<Entry>,
    /// Epoch of the owner; a restart begins the next one.
    epoch: Epoch,
    log: Arc<ChangeLog>,
    /// Timelines that the next owner has read ahead.
    ahead: Option<TimelinesAhead>,
}

enum Entry {
    /// Id, ordinal, identity.
    Introduce(TimelineId, Ordinal, Vec<u8>),
    Remove(TimelineId),
    /// An encoded entry of the catalog.
    Change(Bytes),
}

impl Database {
    fn new(character: Character) -> Self {
        let disk = MemoryDisk::new(character);
        let backend = MemoryBackend::open(&disk);
        let database = Self {
            table: TABLE,
            disk,
            backend,
            catalog: Arc::new(Catalog::new(TABLE, options())),
            stamp: 0,
            journal: Vec::new(),
            epoch: Epoch(1),
            log: Arc::default(),
            ahead: None,
        };
        database.begin_epoch();
        database
    }

    fn begin_epoch(&self) {
        if self.backend.capabilities().is_shared {
            self.log.begin(self.epoch);
            self.catalog.log_changes(Arc::clone(&self.log));
        }
    }

    /// Reads the timelines as a standby does. Does nothing if no other process can take over the data.
    fn read_ahead(&mut self) {
        if !self.backend.capabilities().is_shared {
            return;
        }
        let stamp = &mut self.stamp;
        self.log
            .announce(&self.backend, &mut || next(stamp))
            .expect("memory does not fail");
        self.ahead = TimelinesAhead::read(&self.backend, self.epoch, &|_| true).expect("sound rows");
        assert!(self.ahead.is_some());
    }

    fn catch_up(&mut self) {
        if let Some(ahead) = &mut self.ahead {
            assert!(ahead.catch_up(&self.backend).expect("sound records"));
        }
    }

    /// Drops the table and creates another one. If the process ends during the drop, the rows stay until
    /// [`remove_dropped_rows`](Self::remove_dropped_rows).
    fn drop_table(&mut self, removes_rows: bool) {
        if removes_rows {
            let stamp = &mut self.stamp;
            self.catalog
                .drop_rows(&self.backend, &mut || next(stamp))
                .expect("memory does not fail");
        }
        self.journal.clear();
        self.table.0 += 1;
        self.catalog = Arc::new(Catalog::new(self.table, options()));
        if self.backend.capabilities().is_shared {
            self.catalog.log_changes(Arc::clone(&self.log));
        }
    }

    /// Removes the rows of tables that do not exist, as after a start.
    fn remove_dropped_rows(&mut self) {
        let tables = Catalog::stored_tables(&self.backend).expect("sound keys");
        let stamp = &mut self.stamp;
        for dropped in tables.into_iter().filter(|table| *table != self.table) {
            Catalog::remove_all(&self.backend, dropped, &self.log, &mut || next(stamp))
                .expect("memory does not fail");
        }
        let left = Catalog::stored_tables(&self.backend).expect("sound keys");
        assert!(left.iter().all(|table| *table == self.table), "{left:?}");
    }

    fn register(&self, number: u32) -> Ordinal {
        let tags = vec![
            ("host".to_owned(), format!("h{number}")),
            ("dc".to_owned(), "x".to_owned()),
        ];
        let identity = Identity::new("cpu".to_owned(), tags).expect("valid");
        self.catalog.register(&identity, None).expect("room").ordinal
    }

    fn introduce(&mut self, ordinal: Ordinal) {
        let reader = self.catalog.reader();
        let mut identity = Vec::new();
        reader.encode_identity(ordinal, &mut identity);
        let entry = Entry::Introduce(reader.id(ordinal), ordinal, identity);
        self.journal.push(entry);
        drop(reader);
        self.catalog.mark_durable(&[ordinal]);
    }

    /// Commits a removal without acknowledging it.
    fn remove(&mut self, ordinal: Ordinal) {
        let id = self.catalog.reader().id(ordinal);
        self.journal.push(Entry::Remove(id));
        self.catalog.remove(&[id]);
    }

    /// Deletes the rows of removals, as is required before they are acknowledged.
    fn save_removals(&mut self) {
        let stamp = &mut self.stamp;
        self.catalog
            .save_removals(&self.backend, &mut || next(stamp))
            .expect("memory does not fail");
    }

    /// Makes all rows durable, but keeps the journal.
    fn save_only(&mut self) {
        let stamp = &mut self.stamp;
        save(&self.catalog, &self.backend, &mut || next(stamp)).expect("memory does not fail");
        assert_eq!(self.catalog.unsaved(), 0);
    }

    fn save(&mut self) {
        self.save_only();
        self.journal.clear();
    }

    fn edit(&mut self, ordinal: Ordinal, key: &str, value: Option<AttributeValue>) -> Result<Attributes> {
        let changes = BTreeMap::from([(key.to_owned(), value)]);
        let journal = RefCell::new(&mut self.journal);
        self.catalog.set_attributes(ordinal, &changes, &|entry| {
            check(&entry)?;
            journal.borrow_mut().push(Entry::Change(entry.encoded().clone()));
            entry.apply();
            Ok(())
        })
    }

    /// Makes an edit of unknown outcome; `lands` decides whether the journal contains it.
    fn edit_unknown(&mut self, ordinal: Ordinal, key: &str, value: Option<AttributeValue>, lands: bool) {
        let changes = BTreeMap::from([(key.to_owned(), value)]);
        let journal = RefCell::new(&mut self.journal);
        let failed = self.catalog.set_attributes(ordinal, &changes, &|entry| {
            check(&entry)?;
            if lands {
                journal.borrow_mut().push(Entry::Change(entry.encoded().clone()));
            }
            Err(unknown())
        });
        failed.expect_err("the outcome is unknown");
    }

    fn restart(&mut self) {
        self.backend = MemoryBackend::open(&self.disk);
        self.epoch.0 += 1;
        let ahead = self.ahead.take();
        let has_followed = |ahead: &TimelinesAhead| ahead.is_followed_by(self.epoch);
        assert!(ahead.as_ref().is_none_or(has_followed), "no other owner");
        let ahead = ahead.and_then(|ahead| ahead.complete(&self.backend).expect("sound records"));
        let mut in_doubt: Vec<TimelineId> = Vec::new();
        let loaded = match ahead {
            Some(mut ahead) => {
                let of_table = ahead.in_doubt().filter(|(table, _)| *table == self.table);
                of_table.for_each(|(_, ids)| in_doubt.extend(ids));
                Catalog::load_ahead(&self.backend, self.table, options(), &mut ahead)
            }
            None => Catalog::load(&self.backend, self.table, options()),
        };
        self.catalog = Arc::new(loaded.expect("sound rows"));
        self.log = Arc::default();
        self.begin_epoch();
        for entry in &self.journal {
            match entry {
                Entry::Introduce(id, ordinal, identity) => self
                    .catalog
                    .adopt(*id, *ordinal, identity)
                    .expect("agrees with the rows"),
                Entry::Remove(id) => self.catalog.remove_replayed(&[*id]),
                Entry::Change(entry) => self.catalog.replay(entry).expect("what was written"),
            }
        }
        self.catalog.doubt_rows(&in_doubt);
        self.catalog.replayed();
    }
}

fn next(stamp: &mut u64) -> tideline_backend::Result<Stamp> {
    *stamp += 1;
    Ok(Stamp(*stamp))
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
    Introduce(usize),
    Edit(usize, &'static str, Option<u32>),
    /// An edit of unknown outcome; the flag is true if the journal contains it.
    EditUnknown(usize, Option<u32>, bool),
    Index,
    Remove(usize),
    /// A drop of the table; the flag is false if the process ends before it removes the rows.
    Drop(bool),
    Save,
    SaveOnly,
    ReadAhead,
    CatchUp,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..40u32).prop_map(Step::Register),
        4 => any::<usize>().prop_map(Step::Introduce),
        3 => (any::<usize>(), prop::sample::select(vec!["owner", "rack"]), any::<Option<u32>>())
            .prop_map(|(which, key, value)| Step::Edit(which, key, value)),
        1 => (any::<usize>(), any::<Option<u32>>(), any::<bool>())
            .prop_map(|(which, value, lands)| Step::EditUnknown(which, value, lands)),
        1 => Just(Step::Index),
        2 => any::<usize>().prop_map(Step::Remove),
        1 => any::<bool>().prop_map(Step::Drop),
        1 => Just(Step::Save),
        1 => Just(Step::SaveOnly),
        1 => Just(Step::ReadAhead),
        2 => Just(Step::CatchUp),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(256))]

    #[test]
    fn a_restart_changes_nothing_that_was_durable(
        steps in prop::collection::vec(step(), 1..120),
        distributed in any::<bool>(),
    ) {
        let character = if distributed { Character::Distributed } else { Character::Embedded };
        let mut database = Database::new(character);
        let mut registered: Vec<Ordinal> = Vec::new();
        // Attributes that timelines may have after a restart because of edits with unknown outcome.
        let mut possible: BTreeMap<u32, Vec<Attributes>> = BTreeMap::new();
        let mut index = Index::default();
        for step in steps {
            match step {
                Step::Register(number) => registered.push(database.register(number)),
                Step::Introduce(which) if !registered.is_empty() => {
                    let ordinal = registered[which % registered.len()];
                    database.introduce(ordinal);
                }
                Step::Edit(which, key, value) if !registered.is_empty() => {
                    let ordinal = registered[which % registered.len()];
                    let visible = database.catalog.reader().visible().contains(ordinal.0);
                    let edited = database.edit(ordinal, key, value.map(|n| AttributeValue::Number(n.into())));
                    prop_assert_eq!(edited.is_ok(), visible, "only visible timelines have attributes");
                    possible.remove(&ordinal.0);
                }
                Step::EditUnknown(which, value, lands) if !registered.is_empty() => {
                    let ordinal = registered[which % registered.len()];
                    let before = describe(&database.catalog.reader());
                    let value = value.map(|n| AttributeValue::Number(n.into()));
                    database.edit_unknown(ordinal, "owner", value.clone(), lands);
                    prop_assert_eq!(&describe(&database.catalog.reader()), &before);
                    if let Some((_, _, attributes)) = before.get(&ordinal.0) {
                        let mut edited = attributes.clone();
                        match value {
                            Some(value) => edited.insert("owner".to_owned(), value),
                            None => edited.remove("owner"),
                        };
                        possible.entry(ordinal.0).or_default().push(edited);
                    }
                }
                Step::Index => index = Index::of(&database.catalog.reader()),
                Step::Remove(which) if !registered.is_empty() => {
                    let ordinal = registered[which % registered.len()];
                    database.remove(ordinal);
                    database.save_removals();
                    possible.remove(&ordinal.0);
                    prop_assert!(!database.catalog.reader().visible().contains(ordinal.0));
                }
                Step::Drop(removes_rows) => {
                    database.drop_table(removes_rows);
                    registered.clear();
                    possible.clear();
                    index = Index::default();
                }
                Step::Save => {
                    database.save();
                    possible.clear();
                }
                Step::SaveOnly => {
                    database.save_only();
                    possible.clear();
                }
                Step::ReadAhead => database.read_ahead(),
                Step::CatchUp => database.catch_up(),
                Step::Restart => {
                    let mut before = describe(&database.catalog.reader());
                    database.restart();
                    registered.retain(|ordinal| before.contains_key(&ordinal.0));
                    let reader = database.catalog.reader();
                    let after = describe(&reader);
                    for (ordinal, possible) in &possible {
                        let (Some(before), Some(after)) = (before.get_mut(ordinal), after.get(ordinal)) else {
                            continue;
                        };
                        if possible.contains(&after.2) {
                            before.2.clone_from(&after.2);
                        }
                    }
                    prop_assert_eq!(&after, &before);
                    index.check(&reader, &after)?;
                    let edited: Vec<u32> = reader.edits_since(0).map(|ordinal| ordinal.0).collect();
                    let expected = before.iter().filter(|(_, (_, _, attributes))| !attributes.is_empty());
                    prop_assert!(expected.into_iter().all(|(ordinal, _)| edited.contains(ordinal)));
                    drop(reader);
                    database.remove_dropped_rows();
                }
                _ => {}
            }
        }
    }
}

/// State that the search index keeps about a catalog.
#[derive(Debug, Default)]
struct Index {
    documents: BTreeMap<u32, Described>,
    position: u64,
}

impl Index {
    fn of(reader: &CatalogReader<'_>) -> Self {
        Self {
            documents: describe(reader),
            position: reader.settled_edits(),
        }
    }

    /// Checks that the timelines which the index would read again after a restart include all changed timelines.
    fn check(
        &mut self,
        reader: &CatalogReader<'_>,
        now: &BTreeMap<u32, Described>,
    ) -> std::result::Result<(), TestCaseError> {
        let edited: BTreeSet<u32> = reader.edits_since(0).map(|ordinal| ordinal.0).collect();
        let since = match self.position <= reader.edit_counter() {
            true => reader
                .edits_since(self.position)
                .map(|ordinal| ordinal.0)
                .collect(),
            false => edited.clone(),
        };
        for (ordinal, (id, _, attributes)) in &self.documents {
            let Some((same, _, has)) = now.get(ordinal).filter(|(same, ..)| same == id) else {
                continue;
            };
            let is_looked_at = since.contains(ordinal) || !attributes.is_empty() && !edited.contains(ordinal);
            prop_assert!(
                has == attributes || is_looked_at,
                "timeline {same}: {attributes:?} in the index of edit {}, {has:?} now",
                self.position
            );
        }
        // If the newest edits were lost together with their timelines, later edits reuse their numbers.
        if self.position > reader.edit_counter() {
            *self = Self::of(reader);
        }
        Ok(())
    }
}

#[test]
fn many_rows_are_saved_in_pages_and_removed() {
    let mut database = Database::new(Character::Embedded);
    for number in 0..2_500 {
        let ordinal = database.register(number);
        database.introduce(ordinal);
    }
    database.save();
    database.restart();
    assert_eq!(database.catalog.len(), 2_500);
    let other = Catalog::load(&database.backend, TableId(8), options()).expect("no rows");
    assert!(other.is_empty(), "rows belong to one table");
    for _ in 0..2 {
        let stamp = &mut database.stamp;
        let log = &database.log;
        Catalog::remove_all(&database.backend, TABLE, log, &mut || next(stamp)).expect("may be repeated");
    }
    database.restart();
    assert!(database.catalog.is_empty());
}

#[test]
fn many_rows_of_a_cluster_are_read_with_requests_in_flight() {
    let mut database = Database::new(Character::Distributed);
    let count = 2_500;
    for number in 0..count {
        let ordinal = database.register(number);
        database.introduce(ordinal);
    }
    database.save();
    let before = describe(&database.catalog.reader());
    let round_trips = database.disk.round_trips();
    database.restart();
    let round_trips = database.disk.round_trips() - round_trips;
    assert_eq!(describe(&database.catalog.reader()), before);
    // A page of this backend has at most 63 rows, so a scan by one request after the other takes 40 round trips.
    assert!(round_trips < 20, "{round_trips} round trips");
    let mut rows = 0;
    let mut stop = |page: Vec<tideline_backend::Row>| {
        rows += page.len();
        match rows > 500 {
            true => Err(CatalogError::Full("rows")),
            false => Ok(()),
        }
    };
    let limit = database.backend.capabilities().page_advice;
    let stopped = each_catalog_row(&database.backend, TABLE, limit, &mut stop);
    assert!(
        matches!(stopped, Err(CatalogError::Full(_))),
        "an error ends the read"
    );
}

/// Saves while the write after the record is lost.
fn save_without_rows(database: &mut Database) {
    let (stamp, disk) = (&mut database.stamp, &database.disk);
    let mut writes = 0;
    let mut losing = || {
        writes += 1;
        if writes == 2 {
            disk.fail_write(WriteFault::Lost);
        }
        next(stamp)
    };
    save(&database.catalog, &database.backend, &mut losing).expect_err("the rows are not written");
}

#[test]
fn timelines_read_ahead_are_complete_after_a_take_over() {
    let mut database = Database::new(Character::Distributed);
    for number in 0..1_500 {
        let ordinal = database.register(number);
        database.introduce(ordinal);
    }
    database.save();
    database.read_ahead();
    let edited = Ordinal(3);
    database.edit(edited, "owner", text("ops")).expect("visible");
    database.remove(Ordinal(5));
    database.save_removals();
    for number in 1_500..1_800 {
        let ordinal = database.register(number);
        database.introduce(ordinal);
    }
    database.save();
    database.catch_up();
    database.edit(edited, "owner", text("db")).expect("visible");
    database.save();
    let before = describe(&database.catalog.reader());
    let round_trips = database.disk.round_trips();
    database.restart();
    let round_trips = database.disk.round_trips() - round_trips;
    assert_eq!(describe(&database.catalog.reader()), before);
    assert_eq!(before.len(), 1_799);
    // The last records, the saved searches and the metadata of metrics.
    assert!(round_trips < 8, "{round_trips} round trips");
    let source = |entry: crate::Entry<'_>| entry.source().map(str::to_owned);
    let source = database.catalog.reader().entry(edited).and_then(source);
    assert_eq!(source.as_deref(), Some("h3"));
    assert_eq!(database.catalog.unsaved(), 0, "all rows are known to be written");
    database.restart();
    assert_eq!(describe(&database.catalog.reader()), before);
}

#[test]
fn a_new_timeline_whose_row_is_missing_is_written_by_the_next_owner() {
    let mut database = Database::new(Character::Distributed);
    database.read_ahead();
    let ordinal = database.register(1);
    database.introduce(ordinal);
    save_without_rows(&mut database);
    let before = describe(&database.catalog.reader());
    database.restart();
    assert_eq!(describe(&database.catalog.reader()), before);
    assert_eq!(database.catalog.unsaved(), 1, "its row is in doubt");
    database.save();
    database.restart();
    assert_eq!(describe(&database.catalog.reader()), before);
}

#[test]
fn a_removed_timeline_whose_row_is_left_is_deleted_by_the_next_owner() {
    let mut database = Database::new(Character::Distributed);
    let ordinal = database.register(1);
    database.introduce(ordinal);
    database.save();
    database.read_ahead();
    database.remove(ordinal);
    save_without_rows(&mut database);
    database.restart();
    assert!(database.catalog.is_empty());
    assert_eq!(database.catalog.unsaved(), 1, "its row is still stored");
    database.save();
    database.restart();
    assert!(database.catalog.is_empty());
}

#[test]
fn a_standby_forgets_the_timelines_of_a_dropped_table() {
    for has_crashed in [false, true] {
        let mut database = Database::new(Character::Distributed);
        for number in 0..200 {
            let ordinal = database.register(number);
            database.introduce(ordinal);
        }
        database.save();
        database.read_ahead();
        let late = database.register(200);
        database.introduce(late);
        save_without_rows(&mut database);
        database.catch_up();
        let ahead = |database: &Database| {
            let ahead = database.ahead.as_ref().expect("it was read");
            (ahead.timelines(), ahead.in_doubt().count())
        };
        assert_eq!(ahead(&database), (201, 1));
        if has_crashed {
            let (stamp, disk) = (&mut database.stamp, &database.disk);
            let mut writes = 0;
            let mut losing = || {
                writes += 1;
                if writes == 2 {
                    disk.fail_write(WriteFault::Lost);
                }
                next(stamp)
            };
            let failed = database.catalog.drop_rows(&database.backend, &mut losing);
            failed.expect_err("only the record is written");
        }
        database.drop_table(!has_crashed);
        database.catch_up();
        assert_eq!(ahead(&database), (0, 0));
        let ordinal = database.register(7);
        database.introduce(ordinal);
        database.save();
        let stored = Catalog::stored_tables(&database.backend).expect("sound keys");
        assert_eq!(stored.len(), 1 + usize::from(has_crashed));
        // A standby that begins now reads the record only if the rows may still be stored.
        database.read_ahead();
        database.catch_up();
        assert_eq!(ahead(&database).0, 1);
        let before = describe(&database.catalog.reader());
        database.restart();
        assert_eq!(describe(&database.catalog.reader()), before);
        database.remove_dropped_rows();
        database.restart();
        assert_eq!(describe(&database.catalog.reader()), before);
    }
}

#[test]
fn a_catalog_of_a_dropped_table_writes_no_rows() {
    for character in [Character::Embedded, Character::Distributed] {
        let mut database = Database::new(character);
        let [first, second] = [1, 2].map(|number| database.register(number));
        database.introduce(first);
        database.save();
        let old = Arc::clone(&database.catalog);
        database.drop_table(true);
        // A flush and a removal that began before the drop end after it.
        old.mark_durable(&[second]);
        let id = old.reader().id(first);
        old.remove(&[id]);
        let stamp = &mut database.stamp;
        save(&old, &database.backend, &mut || next(stamp)).expect("memory does not fail");
        old.save_removals(&database.backend, &mut || next(stamp))
            .expect("memory does not fail");
        let stored = Catalog::stored_tables(&database.backend).expect("sound keys");
        assert!(stored.is_empty(), "{stored:?}");
    }
}

#[test]
fn tables_with_stored_rows_of_any_kind_are_found() {
    let mut database = Database::new(Character::Embedded);
    let expected = [0, 1, 7, 300, u32::MAX].map(TableId);
    for (at, table) in expected.into_iter().enumerate() {
        for row in 0..3_u8 {
            let (partition, range) = table_rows(SPACES[at % SPACES.len()], table);
            let change = RowChange {
                key: [&range.start[..], &[row; 16]].concat().into(),
                value: Some(Bytes::from_static(b"any")),
            };
            let stamp = next(&mut database.stamp).expect("a stamp");
            database
                .backend
                .write(partition, &[change], stamp, Durability::Synced)
                .expect("memory does not fail");
        }
    }
    let found = Catalog::stored_tables(&database.backend).expect("sound keys");
    assert_eq!(found, BTreeSet::from(expected));
}

#[test]
fn timelines_read_ahead_are_of_no_use_after_another_owner() {
    let mut database = Database::new(Character::Distributed);
    database.read_ahead();
    let ahead = database.ahead.take().expect("it was read");
    assert!(!ahead.is_followed_by(Epoch(3)), "epoch 2 was another process");
    // An owner of an older build writes no records.
    database.epoch = Epoch(9);
    let ahead = TimelinesAhead::read(&database.backend, database.epoch, &|_| true).expect("sound rows");
    let ahead = ahead.expect("it is wanted");
    assert!(ahead.is_followed_by(Epoch(10)), "no other owner");
    assert!(ahead.complete(&database.backend).expect("sound").is_none());
    let unwanted = TimelinesAhead::read(&database.backend, database.epoch, &|_| false);
    assert!(unwanted.expect("sound rows").is_none());
}

#[test]
fn an_edit_of_unknown_outcome_holds_the_settled_counter_back() {
    for lands in [false, true] {
        let mut database = Database::new(Character::Embedded);
        let ordinal = database.register(1);
        database.introduce(ordinal);
        database.edit(ordinal, "owner", text("ops")).expect("visible");
        database.edit_unknown(ordinal, "owner", text("dev"), lands);
        let counters = |catalog: &Catalog| {
            let reader = catalog.reader();
            (reader.edit_counter(), reader.settled_edits())
        };
        // The edit with unknown outcome took number 2; its failure renumbered the visible edit of the timeline from 1
        // to 3.
        assert_eq!(counters(&database.catalog), (3, 1));
        assert_eq!(
            owner(&database.catalog, ordinal),
            text("ops"),
            "it is not visible"
        );
        let before = std::mem::replace(&mut database.catalog, Arc::new(Catalog::new(TABLE, options())));
        database.restart();
        let expected = if lands { "dev" } else { "ops" };
        assert_eq!(
            owner(&database.catalog, ordinal),
            text(expected),
            "it may be there"
        );
        database.catalog = before;
        database.save_only();
        assert_eq!(counters(&database.catalog), (3, 3));
        database.restart();
        assert_eq!(owner(&database.catalog, ordinal), text("ops"), "the row is newer");
    }
}

#[test]
fn an_edit_that_is_surely_not_written_leaves_nothing() {
    let mut database = Database::new(Character::Embedded);
    let ordinal = database.register(1);
    database.introduce(ordinal);
    database.save();
    let changes = BTreeMap::from([("owner".to_owned(), text("ops"))]);
    let overloaded = |_: CatalogChange| {
        Err(CommitError {
            cause: "overloaded".into(),
            is_not_written: true,
            is_outdated: false,
        })
    };
    let failed = database.catalog.set_attributes(ordinal, &changes, &overloaded);
    assert!(matches!(failed, Err(CatalogError::NotCommitted(_))), "{failed:?}");
    assert_eq!(database.catalog.unsaved(), 0);
    let reader = database.catalog.reader();
    assert_eq!((reader.edit_counter(), reader.settled_edits()), (0, 0));
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
    database.introduce(ordinal);
    database.edit(ordinal, "owner", text("ops")).expect("visible");
    database.save();
    database.remove(ordinal);
    database.save_removals();
    database.introduce(ordinal);
    assert_eq!(owner(&database.catalog, ordinal), None);
    database.restart();
    assert_eq!(owner(&database.catalog, ordinal), None);
    database.edit(ordinal, "owner", text("dev")).expect("visible");
    for _ in 0..2 {
        // The journal still contains the removal; the row is newer.
        database.restart();
        assert_eq!(owner(&database.catalog, ordinal), text("dev"));
    }
    database.remove(ordinal);
    database.restart();
    assert!(database.catalog.is_empty());
    database.introduce(ordinal);
    assert_eq!(owner(&database.catalog, ordinal), None);
}

#[test]
fn a_row_that_a_removal_overtakes_is_deleted() {
    let mut database = Database::new(Character::Embedded);
    let (first, second) = (database.register(1), database.register(2));
    database.introduce(first);
    database.introduce(second);
    let id = database.catalog.reader().id(first);
    let (catalog, backend) = (&database.catalog, &database.backend);
    let mut stamp = 0;
    let mut removing = || {
        catalog.remove(&[id]);
        next(&mut stamp)
    };
    save(catalog, backend, &mut removing).expect("memory does not fail");
    assert_eq!(catalog.unsaved(), 1);
    // The rows must be deleted before the removal is acknowledged.
    catalog
        .save_removals(backend, &mut removing)
        .expect("memory does not fail");
    let loaded = Catalog::load(backend, TABLE, options()).expect("sound rows");
    assert_eq!(loaded.reader().visible().iter().collect::<Vec<_>>(), [second.0]);
    assert_eq!(catalog.unsaved(), 0);
}

#[test]
fn an_edit_during_a_save_is_saved_by_the_next_one() {
    let mut database = Database::new(Character::Embedded);
    let ordinal = database.register(1);
    database.introduce(ordinal);
    let journal = Journal::default();
    let (catalog, backend) = (&database.catalog, &database.backend);
    let changes = BTreeMap::from([("owner".to_owned(), text("ops"))]);
    let mut stamp = 0;
    let mut editing = || {
        catalog
            .set_attributes(ordinal, &changes, &journal.commit())
            .expect("visible");
        next(&mut stamp)
    };
    save(catalog, backend, &mut editing).expect("memory does not fail");
    assert_eq!(catalog.unsaved(), 1);
    let loaded = Catalog::load(backend, TABLE, options()).expect("sound rows");
    loaded.replay(&journal.entries()[0]).expect("what was written");
    assert_eq!(owner(&loaded, ordinal), text("ops"));
    save(catalog, backend, &mut || next(&mut stamp)).expect("memory does not fail");
    assert_eq!(catalog.unsaved(), 0);
    let loaded = Catalog::load(backend, TABLE, options()).expect("sound rows");
    assert_eq!(owner(&loaded, ordinal), text("ops"));
}

#[test]
fn an_edit_is_made_anew_when_its_timeline_was_removed_and_came_back() {
    let mut database = Database::new(Character::Embedded);
    let ordinal = database.register(1);
    database.introduce(ordinal);
    database.edit(ordinal, "owner", text("ops")).expect("visible");
    let id = database.catalog.reader().id(ordinal);
    let catalog = Arc::clone(&database.catalog);
    let journal = Journal::default();
    let tries = RefCell::new(0);
    let commit = |entry: CatalogChange| {
        *tries.borrow_mut() += 1;
        if *tries.borrow() == 1 {
            catalog.remove(&[id]);
            catalog.mark_durable(&[ordinal]);
        }
        journal.commit()(entry)
    };
    let changes = BTreeMap::from([("rack".to_owned(), text("7"))]);
    let has = catalog
        .set_attributes(ordinal, &changes, &commit)
        .expect("visible");
    assert_eq!(
        has,
        Attributes::from([("rack".to_owned(), text("7").expect("a value"))])
    );
    assert_eq!((*tries.borrow(), journal.entries().len()), (2, 1));
    let gone = catalog.set_attributes(ordinal, &changes, &|entry| {
        catalog.remove(&[id]);
        check(&entry)
    });
    assert!(matches!(gone, Err(CatalogError::UnknownTimeline(_))), "{gone:?}");
    assert_eq!(catalog.unsaved(), 1, "its row is to be deleted");
    let reader = catalog.reader();
    assert_eq!(reader.edit_counter(), reader.settled_edits());
}

#[test]
fn an_edit_whose_number_a_removal_takes_is_seen_as_the_later_one() {
    let mut database = Database::new(Character::Embedded);
    let (first, second) = (database.register(1), database.register(2));
    database.introduce(first);
    database.introduce(second);
    database.edit(first, "owner", text("ops")).expect("visible");
    let id = database.catalog.reader().id(first);
    let catalog = Arc::clone(&database.catalog);
    let journal = Journal::default();
    let between = RefCell::new((0, 0));
    let changes = BTreeMap::from([("owner".to_owned(), text("dev"))]);
    let counters = || {
        let reader = catalog.reader();
        (reader.edit_counter(), reader.settled_edits())
    };
    let commit = |entry: CatalogChange| {
        check(&entry)?;
        catalog.remove(&[id]);
        between.replace(counters());
        journal.commit()(entry)
    };
    catalog
        .set_attributes(second, &changes, &commit)
        .expect("visible");
    assert_eq!(*between.borrow(), (2, 1), "an edit on its way is not settled");
    assert_eq!(catalog.reader().edits_since(2).collect::<Vec<_>>(), [second]);
    assert_eq!(counters(), (3, 1));
    let mut stamp = database.stamp;
    save(&catalog, &database.backend, &mut || next(&mut stamp)).expect("memory does not fail");
    let loaded = Catalog::load(&database.backend, TABLE, options()).expect("sound rows");
    assert_eq!((loaded.reader().edit_counter(), counters()), (3, (3, 3)));
}

#[test]
fn a_large_edit_is_several_entries() {
    let mut database = Database::new(Character::Embedded);
    let ordinals: Vec<Ordinal> = (0..1_000).map(|number| database.register(number)).collect();
    ordinals.iter().for_each(|ordinal| database.introduce(*ordinal));
    let journal = Journal::default();
    let changes = BTreeMap::from([("owner".to_owned(), text(&"x".repeat(4_000)))]);
    let edited = database
        .catalog
        .set_attributes_of(&ordinals, &changes, &journal.commit())
        .expect("committed");
    assert_eq!(edited.iter().filter(|outcome| outcome.is_ok()).count(), 1_000);
    let sizes: Vec<usize> = journal.entries().iter().map(Bytes::len).collect();
    assert!((4..=5).contains(&sizes.len()), "{sizes:?}");
    assert!(sizes.iter().all(|bytes| *bytes < (1 << 20) + 5_000), "{sizes:?}");
    database
        .journal
        .extend(journal.entries().into_iter().map(Entry::Change));
    database.restart();
    assert_eq!(database.catalog.reader().edits_since(0).count(), 1_000);
    assert_eq!(owner(&database.catalog, ordinals[999]), changes["owner"]);
}

#[test]
fn rows_that_were_not_synced_are_written_again() {
    for is_cut in [false, true] {
        let mut database = Database::new(Character::Embedded);
        let ordinals = [1, 2].map(|number| database.register(number));
        ordinals.iter().for_each(|ordinal| database.introduce(*ordinal));
        database.edit(ordinals[0], "owner", text("ops")).expect("visible");
        let (catalog, mut stamp) = (Arc::clone(&database.catalog), 0);
        catalog
            .write_rows(&database.backend, &mut || next(&mut stamp))
            .expect("memory does not fail");
        assert_eq!(catalog.unsaved(), 2, "not confirmed as durable");
        // A removal between the write and the sync must delete the row.
        let id = catalog.reader().id(ordinals[1]);
        catalog.remove(&[id]);
        catalog
            .save_removals(&database.backend, &mut || next(&mut stamp))
            .expect("memory does not fail");
        if is_cut {
            database.disk.cut_power();
            database.backend = MemoryBackend::open(&database.disk);
            save(&catalog, &database.backend, &mut || next(&mut stamp)).expect("memory does not fail");
        } else {
            catalog.rows_synced();
        }
        assert_eq!(catalog.unsaved(), 0);
        let loaded = Catalog::load(&database.backend, TABLE, options()).expect("sound rows");
        assert_eq!(
            loaded.reader().visible().iter().collect::<Vec<_>>(),
            [ordinals[0].0]
        );
        assert_eq!(owner(&loaded, ordinals[0]), text("ops"));
    }
}

#[test]
fn a_removal_stays_unsaved_when_its_row_cannot_be_deleted_during_a_flush() {
    let mut database = Database::new(Character::Embedded);
    let ordinal = database.register(1);
    database.introduce(ordinal);
    let id = database.catalog.reader().id(ordinal);
    let (catalog, backend) = (&database.catalog, &database.backend);
    let mut stamp = 0;
    catalog
        .write_rows(backend, &mut || next(&mut stamp))
        .expect("memory does not fail");
    catalog.remove(&[id]);
    catalog
        .save_removals(backend, &mut || Err(BackendError::corrupt("no stamp")))
        .expect_err("there is no stamp");
    // The flush wrote the row before the removal.
    catalog.rows_synced();
    assert_eq!(catalog.unsaved(), 1, "the row is still stored");
    assert!(catalog.reader().needs_identity(ordinal));
    save(catalog, backend, &mut || next(&mut stamp)).expect("memory does not fail");
    assert_eq!(catalog.unsaved(), 0);
    let loaded = Catalog::load(backend, TABLE, options()).expect("sound rows");
    assert!(loaded.is_empty());
}

#[test]
fn ordinals_of_removed_timelines_are_given_out_after_a_restart() {
    let mut database = Database::new(Character::Embedded);
    let ordinals: Vec<Ordinal> = (0..100).map(|number| database.register(number)).collect();
    ordinals.iter().for_each(|ordinal| database.introduce(*ordinal));
    for ordinal in ordinals.iter().take(90) {
        database.remove(*ordinal);
    }
    let fresh = database.register(1_000);
    assert_eq!(fresh, Ordinal(100), "writes in flight may still use the others");
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
    database.introduce(ordinal);
    database.save();
    let id = database.catalog.reader().id(ordinal);
    let change = RowChange {
        key: Bytes::copy_from_slice(&catalog_key(TABLE, id)),
        value: Some(Bytes::from_static(b"\x01damaged")),
    };
    let stamp = next(&mut database.stamp);
    database
        .backend
        .write(
            catalog_partition(id),
            &[change],
            stamp.expect("a stamp"),
            tideline_model::Durability::Synced,
        )
        .expect("memory does not fail");
    let loaded = Catalog::load(&database.backend, TABLE, options());
    assert!(matches!(loaded, Err(CatalogError::DamagedRow { id: named, .. }) if named == id));
}

#[test]
fn a_key_has_one_type_in_a_table_until_no_other_timeline_has_it() {
    let mut database = Database::new(Character::Embedded);
    let [one, two] = [1, 2].map(|n| database.register(n));
    database.introduce(one);
    database.introduce(two);
    let rack = |value| ("rack", Some(value));
    let place = GeoPoint::new(52.5, 13.4).expect("a valid point");
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
        database
            .edit(one, key, value)
            .expect("no other timeline has the key");
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
