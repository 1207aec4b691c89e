//! A small model on the log: named counters that are incremented and deleted. The tests cover restarts, power cuts,
//! kills, remembered requests, refused entries, unknown models, orphaned parts and job rows.
//!
//! A row stores the sequence of the last increment, so an entry that is replayed after its row was written counts once.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_backend::{
    Backend, Direction, KeyRange, ManifestChange, ManifestKind, ManifestRow, PageLimit, PartRef, Partition,
    RowChange, SegmentRef, Shard, Space, VALUE_BYTES_MAX,
};
use tideline_backend_cassandra::fixture::ScratchKeyspace;
use tideline_backend_fjall::{FjallBackend, FjallOptions};
use tideline_key_codec::part_name;
use tideline_log::manifest::put_cursor;
use tideline_log::{
    Edit, Flushed, Log, LogEntry, LogError, LogModel, LogSettings, LogThreads, Manifest, ModelError,
    ModelTag, Opening, Pressure, Refusal, Replay, ReplayedEntry, RequestRecord, SHARD,
};
use tideline_model::{Durability, PartId, SequenceNumber, SystemClock, TableId, Tier};
use tideline_testkit::cassandra::shared_node;

const TABLE: TableId = TableId(1);
const ROWS: Partition = Partition::space(Space(999), 0);
/// Environment variable with the folder of a child process that counts until it is killed.
const FOLDER: &str = "TIDELINE_COUNTERS";

/// Value of a counter, and the sequence of its last increment.
type Counter = (u64, SequenceNumber);
/// Changed counters; `None` for deleted counters.
type Changed = BTreeMap<String, Option<Counter>>;

#[derive(Debug, Default)]
struct Counts {
    all: BTreeMap<String, Counter>,
    active: Changed,
    frozen: Vec<(SequenceNumber, Changed)>,
    /// True if the model refuses to take over the next manifest.
    refuses_manifest: bool,
    /// Version of the last manifest that the model has taken over.
    taken_over: u64,
}

impl Counts {
    fn apply(&mut self, entry: &[u8], sequence: SequenceNumber) {
        let name = String::from_utf8_lossy(&entry[3..]).into_owned();
        if entry[2] == b'+' {
            let counter = self.all.entry(name.clone()).or_default();
            if counter.1 < sequence {
                *counter = (counter.0 + 1, sequence);
            }
            self.active.insert(name, Some(*counter));
        } else {
            self.all.remove(&name);
            self.active.insert(name, None);
        }
    }
}

#[derive(Debug, Clone, Default)]
struct Counters(Arc<Mutex<Counts>>);

struct Entry {
    counters: Counters,
    encoded: Bytes,
    request: Option<RequestRecord>,
}

impl LogEntry for Entry {
    fn kind(&self) -> &'static str {
        "count"
    }
    fn table(&self) -> TableId {
        TABLE
    }
    fn encoded(&self) -> &Bytes {
        &self.encoded
    }
    fn durability(&self) -> Durability {
        Durability::Synced
    }
    fn request(&self) -> Option<RequestRecord> {
        self.request.clone()
    }
    fn check(&self) -> Result<(), Refusal> {
        match self.encoded[3..].is_empty() {
            true => Err(Refusal::Outdated),
            false => Ok(()),
        }
    }
    fn apply(&self, sequence: SequenceNumber) -> Result<(), ModelError> {
        self.counters.0.lock().apply(&self.encoded, sequence);
        Ok(())
    }
}

/// Entry whose check waits, so that later entries form one group.
struct Gate {
    entry: Box<Entry>,
    reached: mpsc::Sender<()>,
    opened: mpsc::Receiver<()>,
}

impl LogEntry for Gate {
    fn kind(&self) -> &'static str {
        self.entry.kind()
    }
    fn table(&self) -> TableId {
        TABLE
    }
    fn encoded(&self) -> &Bytes {
        self.entry.encoded()
    }
    fn durability(&self) -> Durability {
        self.entry.durability()
    }
    fn check(&self) -> Result<(), Refusal> {
        self.reached.send(()).expect("the test waits");
        self.opened.recv().expect("the test opens the gate");
        self.entry.check()
    }
    fn apply(&self, sequence: SequenceNumber) -> Result<(), ModelError> {
        self.entry.apply(sequence)
    }
}

impl Replay for Counters {
    fn tag(&self) -> ModelTag {
        ModelTag::TEST
    }
    fn apply(&mut self, sequence: SequenceNumber, entry: &Bytes) -> Result<ReplayedEntry, ModelError> {
        self.0.lock().apply(entry, sequence);
        Ok(ReplayedEntry {
            table: TABLE,
            request: None,
        })
    }
}

/// Model of a running log.
struct Running {
    counters: Counters,
    log: Arc<Log>,
}

impl LogModel for Running {
    fn pressure(&self) -> Pressure {
        match self.counters.0.lock().active.len() > 100 {
            true => Pressure::Full,
            false => Pressure::Low,
        }
    }
    fn is_empty(&self) -> bool {
        self.counters.0.lock().active.is_empty()
    }
    fn freeze(&self, next: SequenceNumber) {
        let mut counts = self.counters.0.lock();
        let frozen = std::mem::take(&mut counts.active);
        counts.frozen.push((next, frozen));
    }
    fn flush(&self, end: SequenceNumber) -> Result<Option<Box<dyn Flushed>>, ModelError> {
        let counts = self.counters.0.lock();
        let frozen = counts.frozen.iter().filter(|(at, _)| *at <= end);
        let row = |(name, counter): (&String, &Option<Counter>)| RowChange {
            key: name.clone().into(),
            value: counter.map(|(count, last)| [count.to_be_bytes(), last.0.to_be_bytes()].concat().into()),
        };
        let rows: Vec<RowChange> = frozen.flat_map(|(_, changed)| changed.iter().map(row)).collect();
        for rows in rows.chunks(100) {
            let stamp = self.log.stamps().next()?;
            self.log
                .backend()
                .write(ROWS, rows, stamp, Durability::Buffered)?;
        }
        Ok(None)
    }
    fn flushed(&self, end: SequenceNumber) {
        self.counters.0.lock().frozen.retain(|(at, _)| *at > end);
    }
    fn tidy(&self) {}
    fn take_over(&self, manifest: &Arc<Manifest>, _: &[ManifestRow]) -> Result<(), ModelError> {
        let mut counts = self.counters.0.lock();
        if std::mem::take(&mut counts.refuses_manifest) {
            return Err("a row cannot be read".into());
        }
        counts.taken_over = manifest.version;
        Ok(())
    }
    fn doubt(&self, _: &[TableId]) {}
    fn abandon(&self, _: &[SegmentRef]) {}
}

/// Counters of a running database.
struct Database {
    counters: Counters,
    threads: LogThreads,
}

impl Database {
    fn open(backend: Arc<dyn Backend>) -> Self {
        Self::open_with(backend, LogSettings::default())
    }

    fn open_with(backend: Arc<dyn Backend>, settings: LogSettings) -> Self {
        let opening = Opening::begin(backend, Arc::new(SystemClock), settings).expect("it begins");
        let counters = Counters::default();
        let limit = PageLimit {
            rows_max: 10_000,
            bytes_max: 1 << 20,
        };
        // A page may end before its limit.
        let mut rest = Some(KeyRange::ALL);
        while let Some(range) = rest {
            let page = opening
                .backend()
                .scan(ROWS, &range, Direction::Ascending, limit)
                .expect("rows are read");
            for row in page.rows {
                let number =
                    |at: usize| u64::from_be_bytes(row.value[at..at + 8].try_into().expect("eight bytes"));
                let name = String::from_utf8_lossy(&row.key).into_owned();
                let counter = (number(0), SequenceNumber(number(8)));
                counters.0.lock().all.insert(name, counter);
            }
            rest = page.next;
        }
        let replayed = opening.replay(&mut [&mut counters.clone()]).expect("it replays");
        let log = replayed.open().expect("it opens");
        let running = Running {
            counters: counters.clone(),
            log: Arc::clone(&log),
        };
        let threads = LogThreads::start(log, vec![Arc::new(running)]);
        Self { counters, threads }
    }

    fn commit(&self, entry: &str) -> Result<SequenceNumber, LogError> {
        self.commit_as(entry, None)
    }

    fn commit_as(&self, entry: &str, request: Option<RequestRecord>) -> Result<SequenceNumber, LogError> {
        self.threads.commit(self.entry(entry, request))
    }

    fn entry(&self, entry: &str, request: Option<RequestRecord>) -> Box<Entry> {
        Box::new(Entry {
            counters: self.counters.clone(),
            encoded: Bytes::from(format!("TT{entry}")),
            request,
        })
    }

    fn raise(&self, name: &str, times: usize) {
        for _ in 0..times {
            self.commit(&format!("+{name}")).expect("it is raised");
        }
    }

    fn count(&self, name: &str) -> u64 {
        self.counters
            .0
            .lock()
            .all
            .get(name)
            .map_or(0, |(count, _)| *count)
    }

    fn close(self) {
        self.threads.stop();
        self.threads.log().backend().close().expect("it closes");
    }
}

fn fjall(folder: &Path) -> Arc<dyn Backend> {
    Arc::new(FjallBackend::open(folder, FjallOptions::default()).expect("fjall opens its folder"))
}

fn every_backend(test: impl Fn(&dyn Fn() -> Arc<dyn Backend>)) {
    for character in [Character::Embedded, Character::Distributed] {
        let disk = MemoryDisk::new(character);
        test(&|| Arc::new(MemoryBackend::open(&disk)));
    }
    let folder = tempfile::tempdir().expect("a folder");
    test(&|| fjall(&folder.path().join("data")));
    if let Some(contact) = shared_node() {
        let keyspace = ScratchKeyspace::create(contact).expect("a keyspace");
        test(&|| Arc::new(keyspace.open().expect("the cluster answers")));
    }
}

#[test]
fn counters_survive_restarts_flushed_and_not() {
    every_backend(|backend| {
        let database = Database::open(backend());
        database.raise("a", 3);
        database.threads.flush().expect("it is flushed");
        let flushed_to = database.threads.log().manifest().cursor.sealed_to;
        assert_eq!(flushed_to, database.threads.log().recent_end());
        database.raise("a", 2);
        database.raise("b", 1);
        database.close();
        let database = Database::open(backend());
        assert_eq!((database.count("a"), database.count("b")), (5, 1));
        database.commit("-a").expect("it is deleted");
        database.raise("b", 1);
        database.close();
        let database = Database::open(backend());
        assert_eq!((database.count("a"), database.count("b")), (0, 2));
        database.threads.flush().expect("it is flushed");
        database.close();
        let database = Database::open(backend());
        assert_eq!((database.count("a"), database.count("b")), (0, 2));
        database.close();
    });
}

/// A flush syncs its buffered rows before the journal is deleted, so flushed rows survive a power cut.
#[test]
fn what_was_flushed_survives_a_power_cut() {
    for character in [Character::Embedded, Character::Distributed] {
        let disk = MemoryDisk::new(character);
        let database = Database::open(Arc::new(MemoryBackend::open(&disk)));
        for name in 0..250 {
            database.raise(&name.to_string(), 1);
        }
        database.threads.flush().expect("it is flushed");
        database.raise("after", 1);
        disk.cut_power();
        drop(database);
        let database = Database::open(Arc::new(MemoryBackend::open(&disk)));
        assert_eq!(database.counters.0.lock().all.len(), 251);
        database.close();
    }
}

#[test]
fn a_full_model_is_frozen_and_flushed_by_itself() {
    every_backend(|backend| {
        let database = Database::open(backend());
        for name in 0..250 {
            database.raise(&name.to_string(), 1);
        }
        database.threads.flush().expect("what is left is flushed");
        assert!(database.counters.0.lock().frozen.is_empty());
        database.close();
        let database = Database::open(backend());
        assert_eq!(database.counters.0.lock().all.len(), 250);
        database.close();
    });
}

#[test]
fn requests_are_remembered_and_refusals_reach_their_writer() {
    every_backend(|backend| {
        let database = Database::open(backend());
        let request = RequestRecord {
            key: [7; 16],
            outcome: Bytes::from_static(b"done"),
        };
        database.commit_as("+a", Some(request)).expect("it is raised");
        let outcome = |database: &Database| database.threads.log().request_outcome(TABLE, [7; 16]);
        assert_eq!(outcome(&database).as_deref(), Some(&b"done"[..]));
        let refused = database.commit("+");
        assert!(
            matches!(refused, Err(LogError::Refused(Refusal::Outdated))),
            "{refused:?}"
        );
        assert_eq!(database.count(""), 0);
        let tail = database.threads.log().recent(TABLE, SequenceNumber(1), 1_000);
        assert_eq!(tail.expect("it is kept").entries.len(), 1);
        database.close();
    });
}

#[test]
fn an_entry_that_is_too_large_is_refused_without_the_other_entries_of_its_group() {
    let backend = MemoryBackend::open(&MemoryDisk::new(Character::Embedded));
    let database = Database::open(Arc::new(backend));
    let submit = |entry: Box<dyn LogEntry>| database.threads.submit(entry).expect("it is sent");
    let ((reached, has_reached), (open, opened)) = (mpsc::channel(), mpsc::channel());
    let gate = submit(Box::new(Gate {
        entry: database.entry("+gate", None),
        reached,
        opened,
    }));
    has_reached.recv().expect("the committer checks the entry");
    let small = submit(database.entry("+small", None));
    // With the tag, the entry has one byte too many.
    let large = format!("+{}", "x".repeat(VALUE_BYTES_MAX - 2));
    let large = submit(database.entry(&large, None));
    open.send(()).expect("the committer waits");
    for sent in [gate, small] {
        database.threads.wait(sent).expect("it is committed");
    }
    let error = database.threads.wait(large).expect_err("it is too large");
    assert!(error.is_not_written(), "{error}");
    assert_eq!((database.count("gate"), database.count("small")), (1, 1));
    database.close();
}

#[test]
fn a_manifest_that_a_model_has_refused_is_taken_over_by_the_next_edit() {
    let backend = MemoryBackend::open(&MemoryDisk::new(Character::Embedded));
    let database = Database::open(Arc::new(backend));
    let log = database.threads.log();
    let before = log.manifest();
    // Simulates an edit whose outcome did not reach the log.
    let change = put_cursor(&before.cursor);
    let edited = log.backend().edit(SHARD, log.epoch(), before.version, &[change]);
    edited.expect("the manifest is edited");
    database.counters.0.lock().refuses_manifest = true;
    let edit = || {
        let job = (Bytes::from_static(b"job"), Bytes::from_static(b"{}"));
        log.edit_job_rows(vec![job], Vec::new())
    };
    let refused = edit().expect_err("the model refuses the manifest");
    assert!(matches!(refused, LogError::Model(_)), "{refused}");
    assert_eq!(log.manifest().version, before.version);
    let refused = edit().expect_err("the manifest has changed");
    assert!(refused.is_retryable(), "{refused}");
    assert_eq!(database.counters.0.lock().taken_over, before.version + 1);
    edit().expect("the manifest is current");
    database.close();
}

#[test]
fn entries_that_reach_no_committer_do_not_count_as_pending() {
    let backend = MemoryBackend::open(&MemoryDisk::new(Character::Embedded));
    let settings = LogSettings {
        pending_bytes_max: 1,
        ..LogSettings::default()
    };
    let database = Database::open_with(Arc::new(backend), settings);
    database.threads.stop();
    for _ in 0..2 {
        let refused = database.commit("+a");
        assert!(matches!(refused, Err(LogError::Closed)), "{refused:?}");
    }
}

#[test]
fn an_entry_that_raises_the_sequence_is_counted() {
    let backend = MemoryBackend::open(&MemoryDisk::new(Character::Embedded));
    let database = Database::open(Arc::new(backend));
    database.raise("a", 1);
    let to = SequenceNumber(database.threads.log().recent_end().0 + 10);
    for _ in 0..2 {
        let raised = database.threads.raise(to, database.entry("+a", None));
        assert_eq!(raised.expect("it is raised"), to);
    }
    let counts = database.threads.log().counts();
    assert_eq!((counts.commits, counts.appends), (2, 2));
    database.close();
}

#[test]
fn a_journal_of_an_unknown_model_is_refused() {
    let disk = MemoryDisk::new(Character::Embedded);
    let database = Database::open(Arc::new(MemoryBackend::open(&disk)));
    database.raise("a", 1);
    database.close();
    let backend = Arc::new(MemoryBackend::open(&disk));
    let opening = Opening::begin(backend, Arc::new(SystemClock), LogSettings::default()).expect("it begins");
    let refused = opening.replay(&mut []).expect_err("no model has this tag");
    assert!(
        matches!(
            refused,
            LogError::UnknownModel {
                model: ModelTag::TEST,
                ..
            }
        ),
        "{refused}"
    );
}

#[test]
fn a_kill_loses_no_count_and_doubles_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let mut acknowledged = 0;
    for round in 0..3 {
        let mut child = Command::new(std::env::current_exe().expect("this test is a program"))
            .args([
                "--exact",
                "counters::the_child_counts_until_it_is_killed",
                "--nocapture",
            ])
            .env(FOLDER, &data)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let said = BufReader::new(child.stdout.take().expect("it is piped"));
        let counts = said.lines().map_while(Result::ok);
        let mut counts = counts.filter_map(|line| line.strip_prefix("count ")?.parse::<u64>().ok());
        let until = acknowledged + 60;
        let last = counts.find(|count| *count >= until).expect("it counts");
        child.kill().expect("it is our child");
        child.wait().expect("it ends");
        acknowledged = counts.last().unwrap_or(last);
        let database = Database::open(fjall(&data));
        let found = database.count("a");
        assert!(
            found == acknowledged || found == acknowledged + 1,
            "round {round}: {found} after {acknowledged} acknowledged"
        );
        acknowledged = found;
        database.close();
    }
}

#[test]
fn the_child_counts_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let database = Database::open(fjall(Path::new(&folder)));
    loop {
        database.raise("a", 1);
        let count = database.count("a");
        println!("count {count}");
        if count.is_multiple_of(25) {
            database.threads.flush().expect("it is flushed");
        }
    }
}

#[test]
fn parts_that_no_manifest_names_are_freed_by_the_next_start() {
    every_backend(|backend| {
        let database = Database::open(backend());
        let log = database.threads.log();
        let parts = [Tier::Hot, Tier::Cold, Tier::Hot].map(|tier| PartRef {
            part: log.next_part(),
            table: TABLE,
            tier,
        });
        let other_shard = PartRef {
            part: PartId::of(5, 1),
            ..parts[0]
        };
        let row = RowChange {
            key: Bytes::from_static(b"k"),
            value: Some(Bytes::new()),
        };
        for part in parts.iter().chain([&other_shard]) {
            let partition = Partition::part(*part, 0);
            let stamp = log.stamps().next().expect("the lease holds");
            log.backend()
                .write(partition, std::slice::from_ref(&row), stamp, Durability::Synced)
                .expect("it is written");
        }
        let named = ManifestChange::Put(ManifestRow {
            kind: ManifestKind::Part,
            name: Bytes::copy_from_slice(&part_name(parts[0].part)),
            detail: Bytes::from_static(b"{}"),
        });
        let edit = |manifest: &Arc<Manifest>| {
            let mut manifest = Manifest::clone(manifest);
            manifest.cursor = log.cursor(manifest.cursor, manifest.cursor.sealed_to);
            let changes = vec![named, put_cursor(&manifest.cursor)];
            Ok::<_, LogError>(Edit {
                manifest,
                changes,
                adds: Vec::new(),
            })
        };
        log.edit(edit, |_| {}).expect("it is edited");
        database.close();
        let database = Database::open(backend());
        let log = database.threads.log();
        let deadline = Instant::now() + Duration::from_secs(30);
        while log.backend().parts(SHARD).expect("parts") != parts[..1] {
            assert!(Instant::now() < deadline, "the others are still there");
            std::thread::yield_now();
        }
        assert!(log.next_part() > parts[2].part, "an id is never used again");
        let others = log.backend().parts(Shard(5)).expect("parts");
        assert_eq!(others, [other_shard], "it is for its owner to free");
        database.close();
    });
}

#[test]
fn rows_about_jobs_are_found_again() {
    every_backend(|backend| {
        let database = Database::open(backend());
        let log = database.threads.log();
        let before = log.manifest().version;
        log.edit_job_rows(
            vec![("a".into(), "{}".into()), ("b".into(), "{}".into())],
            Vec::new(),
        )
        .expect("they are stored");
        log.edit_job_rows(Vec::new(), vec!["a".into()])
            .expect("it is removed");
        assert_eq!(log.manifest().version, before + 2);
        database.close();
        let database = Database::open(backend());
        let manifest = database.threads.log().manifest();
        assert_eq!(manifest.jobs.keys().collect::<Vec<_>>(), [&Bytes::from("b")]);
        database.close();
    });
}
