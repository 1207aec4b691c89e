//! Tests of copies between backends: an interrupted copy continues, and the target then equals the source.
//!
//! Random rows, entries and manifests are copied from the embedded engine into the in-memory backend in its distributed
//! character and back. A copy that waits for the lease of another owner reports it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_backend::page::scan_to_limit;
use tideline_backend::{
    Backend, BackendError, Direction, EditOutcome, Epoch, JournalEntry, ManifestChange, ManifestKind,
    ManifestRow, PageLimit, Row, RowChange, Shard, Stamp,
};
use tideline_backend_fjall::{FjallBackend, FjallOptions};
use tideline_key_codec::{part_name, segment_name, space_partitions};
use tideline_log::copy::{CopyError, CopyProgress, CopySettings, copy};
use tideline_log::manifest::{Manifest, put_cursor};
use tideline_log::{LogError, LogSettings, Opening};
use tideline_model::{
    Durability, GroupId, KeyRange, ManualClock, PartId, PartRef, Partition, SegmentId, SegmentRef,
    SequenceNumber, SystemClock, TableId, Tier, Timestamp, Unit,
};
use tideline_runtime::Supervisor;
use tideline_testkit::{Random, rounds, seed};

const SHARD: Shard = Shard(0);
/// End of the sealed entries of the source.
const SEALED_TO: u64 = 40;
/// Oldest entry that is kept for change streams.
const KEPT_FROM: u64 = 25;

fn settings() -> CopySettings {
    CopySettings {
        patience: Duration::ZERO,
        piece_bytes: 3_000,
        clock: Arc::new(SystemClock),
        supervisor: Supervisor::default(),
        on_wait: Arc::new(|_, _| {}),
    }
}

/// Returns fewer than `max` random bytes, which can hardly be compressed.
fn random_bytes(random: &mut Random, max: u64) -> Bytes {
    let count = random.below(max);
    (0..count).map(|_| random.below(256) as u8).collect()
}

fn random_rows(random: &mut Random, max: u64) -> Vec<Row> {
    let rows: BTreeMap<Bytes, Bytes> = (0..random.below(max))
        .map(|_| (random_bytes(random, 12), random_bytes(random, 200)))
        .collect();
    rows.into_iter().map(|(key, value)| Row { key, value }).collect()
}

fn put(kind: ManifestKind, name: &[u8], detail: &str) -> ManifestChange {
    ManifestChange::Put(ManifestRow {
        kind,
        name: Bytes::copy_from_slice(name),
        detail: Bytes::copy_from_slice(detail.as_bytes()),
    })
}

/// Writes random rows, some of them in parts and segments that the manifest does not name, and a journal of two epochs.
fn fill(backend: &dyn Backend, random: &mut Random) {
    let epoch = backend.take(SHARD).expect("take").epoch;
    let stamp = Stamp(7);
    let write = |partition, rows: Vec<Row>| {
        let change = |row: Row| RowChange {
            key: row.key,
            value: Some(row.value),
        };
        let changes: Vec<RowChange> = rows.into_iter().map(change).collect();
        backend
            .write(partition, &changes, stamp, Durability::Synced)
            .expect("write");
    };
    for space in space_partitions() {
        write(space, random_rows(random, 100));
    }
    let mut changes = vec![put(ManifestKind::Job, b"a job", "{}")];
    for n in 1..=6_u64 {
        let tier = if n % 2 == 0 { Tier::Hot } else { Tier::Cold };
        let part = PartRef {
            part: PartId(n),
            table: TableId(1 + n as u32 % 2),
            tier,
        };
        let segment = SegmentRef {
            segment: SegmentId(10 + n),
            group: GroupId(n / 2 * 2 + n % 2),
            tier,
        };
        for bucket in [0, 1, 300] {
            write(Partition::part(part, bucket), random_rows(random, 80));
            let mut rows = random_rows(random, 80).into_iter().map(Ok);
            backend.load(segment, bucket, &mut rows).expect("load");
        }
        // The part and the segment of the last round are not published.
        if n < 6 {
            changes.push(put(ManifestKind::Part, &part_name(part.part), "a part"));
            changes.push(put(
                ManifestKind::Segment,
                &segment_name(segment.segment),
                "a segment",
            ));
        }
    }
    let mut cursor = Manifest::default().cursor;
    cursor.sealed_to = SequenceNumber(SEALED_TO);
    cursor.next_segment = 17;
    changes.push(put_cursor(&cursor));
    let version = backend.manifest(SHARD).expect("manifest").version;
    let edited = backend.edit(SHARD, epoch, version, &changes);
    assert!(matches!(edited, Ok(EditOutcome::Applied { .. })));
    backend
        .keep_history(SHARD, epoch, Some(SequenceNumber(KEPT_FROM)))
        .expect("keep");
    append(backend, random, epoch, 20..50);
    backend
        .forget(SHARD, epoch, SequenceNumber(SEALED_TO))
        .expect("forget");
    let next = backend.take(SHARD).expect("take").epoch;
    backend
        .close_epoch(SHARD, epoch, SequenceNumber(50))
        .expect("close");
    let end = 60 + random.below(200);
    append(backend, random, next, 50..end);
}

fn append(backend: &dyn Backend, random: &mut Random, epoch: Epoch, sequences: std::ops::Range<u64>) {
    for sequence in sequences {
        let entry = JournalEntry {
            sequence: SequenceNumber(sequence),
            value: random_bytes(random, 100),
        };
        backend
            .append(SHARD, epoch, &[entry], Durability::Synced)
            .expect("append");
    }
}

/// All data that a start reads from a backend.
#[derive(Debug, PartialEq)]
struct Content {
    manifest: Vec<ManifestRow>,
    rows: BTreeMap<Partition, Vec<Row>>,
    replayed: Vec<(SequenceNumber, Bytes)>,
    kept: Vec<(SequenceNumber, Bytes)>,
}

fn scan_all(backend: &dyn Backend, partition: Partition) -> Vec<Row> {
    let limit = PageLimit {
        rows_max: usize::MAX,
        bytes_max: usize::MAX,
    };
    let page = scan_to_limit(backend, partition, &KeyRange::ALL, Direction::Ascending, limit);
    page.expect("scan").rows
}

fn content(backend: &dyn Backend) -> Content {
    let manifest = backend.manifest(SHARD).expect("manifest").rows;
    let is_named = |kind, name: &[u8]| manifest.iter().any(|row| row.kind == kind && *row.name == *name);
    let parts = backend.parts(SHARD).expect("parts").into_iter();
    let parts = parts.filter(|part| is_named(ManifestKind::Part, &part_name(part.part)));
    let segments = backend.segments(SHARD).expect("segments").into_iter();
    let segments = segments.filter(|held| is_named(ManifestKind::Segment, &segment_name(held.segment)));
    let units = parts.map(Unit::Part).chain(segments.map(Unit::Segment));
    let mut partitions = space_partitions().to_vec();
    for unit in units {
        let buckets = backend.buckets(unit).expect("buckets").into_iter();
        partitions.extend(buckets.map(|bucket| Partition { unit, bucket }));
    }
    let rows = partitions
        .into_iter()
        .map(|partition| (partition, scan_all(backend, partition)))
        .filter(|(_, rows)| !rows.is_empty());
    let mut replayed = Vec::new();
    for journal in backend.epochs(SHARD).expect("epochs") {
        let visit = &mut |sequence, value| {
            replayed.push((sequence, value));
            Ok(())
        };
        backend
            .replay(SHARD, journal.epoch, SequenceNumber(SEALED_TO), visit)
            .expect("replay");
    }
    let page = backend
        .read_history(SHARD, SequenceNumber(KEPT_FROM), usize::MAX)
        .expect("history");
    let entries = page.entries.into_iter();
    Content {
        rows: rows.collect(),
        replayed,
        kept: entries.map(|entry| (entry.sequence, entry.value)).collect(),
        manifest,
    }
}

/// Storage that can be opened repeatedly.
enum Storage {
    Memory(Arc<MemoryDisk>),
    Fjall(TempDir),
}

impl Storage {
    fn memory(character: Character) -> Self {
        let disk = MemoryDisk::new(character);
        if character == Character::Distributed {
            disk.limit_leases(Duration::from_secs(60), 1 << 40);
        }
        Self::Memory(disk)
    }

    fn fjall() -> Self {
        Self::Fjall(tempfile::tempdir().expect("a folder"))
    }

    fn open(&self) -> Arc<dyn Backend> {
        match self {
            Self::Memory(disk) => Arc::new(MemoryBackend::open(disk)),
            Self::Fjall(folder) => {
                let backend = FjallBackend::open(folder.path(), FjallOptions::default());
                Arc::new(backend.expect("it opens"))
            }
        }
    }
}

/// Repeats the copy until it is complete, and interrupts each attempt after a random number of pieces. Returns the
/// number of interruptions.
fn copy_with_interruptions(source: &Storage, target: &Storage, random: &mut Random) -> (u64, CopyProgress) {
    let mut interruptions = 0;
    loop {
        let mut left = random.below(25);
        let mut last = CopyProgress::default();
        let copied = copy(source.open(), target.open(), &settings(), &mut |progress| {
            assert!(progress.rows >= last.rows && progress.partitions >= last.partitions);
            last = *progress;
            left = left.saturating_sub(1);
            match left {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        match copied {
            Ok(progress) => return (interruptions, progress),
            Err(CopyError::Interrupted) => {
                interruptions += 1;
                let begun = Opening::begin(target.open(), Arc::new(SystemClock), LogSettings::default());
                assert!(matches!(begun, Err(LogError::UnfinishedCopy)));
                // The attempt to start has taken the target, but not changed it.
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_copy_that_is_interrupted_continues_and_equals_its_source() {
    let seed = seed("a_copy_that_is_interrupted_continues_and_equals_its_source");
    let mut random = Random::new(seed);
    for _ in 0..rounds("TIDELINE_COPY_ROUNDS", 2, 100) {
        let storages = [
            Storage::fjall(),
            Storage::memory(Character::Distributed),
            Storage::fjall(),
            Storage::memory(Character::Embedded),
        ];
        fill(&*storages[0].open(), &mut random);
        let expected = content(&*storages[0].open());
        assert!(expected.kept.len() > expected.replayed.len());
        for pair in storages.windows(2) {
            let (interruptions, progress) = copy_with_interruptions(&pair[0], &pair[1], &mut random);
            let target = pair[1].open();
            assert_eq!(content(&*target), expected);
            let rows: usize = expected.rows.values().map(Vec::len).sum();
            assert_eq!(progress.rows, rows as u64);
            assert_eq!(progress.partitions, progress.partitions_total);
            assert_eq!(progress.entries, expected.kept.len() as u64);
            assert!(interruptions > 0);
        }
    }
}

/// Each interrupted copy leaves a file of journal entries that do not count.
#[test]
fn a_copy_that_is_interrupted_after_the_journal_keeps_the_history() {
    let mut random = Random::new(seed(
        "a_copy_that_is_interrupted_after_the_journal_keeps_the_history",
    ));
    let source = Storage::memory(Character::Embedded);
    fill(&*source.open(), &mut random);
    let expected = content(&*source.open());
    for target in [
        Storage::fjall(),
        Storage::memory(Character::Embedded),
        Storage::memory(Character::Distributed),
    ] {
        for _ in 0..3 {
            let copied = copy(
                source.open(),
                target.open(),
                &settings(),
                &mut |progress| match progress.entries {
                    0 => ControlFlow::Continue(()),
                    _ => ControlFlow::Break(()),
                },
            );
            assert!(matches!(copied, Err(CopyError::Interrupted)), "{copied:?}");
        }
        copy_whole(&source, &target).expect("the copy is complete");
        assert_eq!(content(&*target.open()), expected);
    }
}

fn interrupt_at_once(source: &Storage, target: &Storage) {
    let copied = copy(source.open(), target.open(), &settings(), &mut |_| {
        ControlFlow::Break(())
    });
    assert!(matches!(copied, Err(CopyError::Interrupted)));
}

fn copy_whole(source: &Storage, target: &Storage) -> Result<CopyProgress, CopyError> {
    copy(source.open(), target.open(), &settings(), &mut |_| {
        ControlFlow::Continue(())
    })
}

#[test]
fn a_source_that_was_used_since_is_not_continued() {
    let (source, target) = (Storage::fjall(), Storage::memory(Character::Distributed));
    fill(&*source.open(), &mut Random::new(1));
    interrupt_at_once(&source, &target);
    // A start that was killed early has taken the source, but not changed it.
    source.open().take(SHARD).expect("take");
    interrupt_at_once(&source, &target);
    // A server edits the manifest before its first write.
    let backend = source.open();
    let epoch = backend.take(SHARD).expect("take").epoch;
    let version = backend.manifest(SHARD).expect("manifest").version;
    let change = put(ManifestKind::Job, b"another job", "{}");
    let edited = backend.edit(SHARD, epoch, version, &[change]);
    assert!(matches!(edited, Ok(EditOutcome::Applied { .. })));
    drop(backend);
    assert!(matches!(
        copy_whole(&source, &target),
        Err(CopyError::SourceChanged)
    ));
}

#[test]
fn a_target_with_data_is_refused_and_stays_as_it_is() {
    let (source, target) = (Storage::fjall(), Storage::memory(Character::Distributed));
    fill(&*source.open(), &mut Random::new(1));
    fill(&*target.open(), &mut Random::new(2));
    let before = content(&*target.open());
    let copied = copy_whole(&source, &target);
    assert!(matches!(copied, Err(CopyError::TargetHasData(_))), "{copied:?}");
    assert_eq!(content(&*target.open()), before);
    for unit in 0..3 {
        let target = Storage::memory(Character::Embedded);
        let backend = target.open();
        let row = [RowChange {
            key: Bytes::from_static(b"k"),
            value: Some(Bytes::new()),
        }];
        let part = PartRef {
            part: PartId(1),
            table: TableId(1),
            tier: Tier::Hot,
        };
        let written = match unit {
            0 => backend.write(space_partitions()[5], &row, Stamp(1), Durability::Synced),
            1 => backend.write(Partition::part(part, 3), &row, Stamp(1), Durability::Synced),
            _ => {
                let epoch = backend.take(SHARD).expect("take").epoch;
                let entry = JournalEntry {
                    sequence: SequenceNumber(1),
                    value: Bytes::new(),
                };
                backend.append(SHARD, epoch, &[entry], Durability::Synced)
            }
        };
        written.expect("write");
        drop(backend);
        let copied = copy_whole(&source, &target);
        assert!(matches!(copied, Err(CopyError::TargetHasData(_))), "{copied:?}");
    }
}

#[test]
fn an_unfinished_copy_is_no_source() {
    let (source, target) = (Storage::fjall(), Storage::memory(Character::Distributed));
    fill(&*source.open(), &mut Random::new(1));
    interrupt_at_once(&source, &target);
    let copied = copy_whole(&target, &Storage::fjall());
    assert!(
        matches!(copied, Err(CopyError::Source(LogError::UnfinishedCopy))),
        "{copied:?}"
    );
}

/// Segments of a cluster have the epoch of their owner in their ids. Owners of the target must not assign them again.
#[test]
fn later_owners_of_the_target_assign_ids_above_those_of_the_source() {
    let (source, target) = (Storage::fjall(), Storage::memory(Character::Distributed));
    let backend = source.open();
    let epoch = backend.take(SHARD).expect("take").epoch;
    let mut cursor = Manifest::default().cursor;
    cursor.next_segment = (37 << 24) + 5;
    let version = backend.manifest(SHARD).expect("manifest").version;
    let edited = backend.edit(SHARD, epoch, version, &[put_cursor(&cursor)]);
    assert!(matches!(edited, Ok(EditOutcome::Applied { .. })));
    drop(backend);
    copy_whole(&source, &target).expect("it copies");
    let mut assigned = Vec::new();
    for _ in 0..3 {
        let opening = Opening::begin(target.open(), Arc::new(SystemClock), LogSettings::default());
        let log = opening.expect("it opens").replay(&mut []).expect("it replays");
        assigned.push(log.open().expect("it opens").next_segment().0);
    }
    assert!(assigned[0] > cursor.next_segment, "{assigned:?}");
    assert!(
        assigned.is_sorted_by(|one, next| one + (1 << 24) <= *next),
        "{assigned:?}"
    );
}

/// Copies with a clock that stands still. `pass` is called at each report of a wait. Returns the reports: the reason of
/// each wait, and its longest time.
fn copy_with_patience(
    [source, target]: [Arc<dyn Backend>; 2],
    clock: &ManualClock,
    patience: Duration,
    pass: impl Fn() + Send + Sync + 'static,
) -> (Result<CopyProgress, CopyError>, Vec<(String, Duration)>) {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&reports);
    let report = move |error: &BackendError, longest: Duration| {
        let mut reports = reported.lock().expect("no report panics");
        reports.push((error.to_string(), longest));
        drop(reports);
        pass();
    };
    let settings = CopySettings {
        patience,
        clock: Arc::new(clock.clone()),
        on_wait: Arc::new(report),
        ..settings()
    };
    let copied = copy(source, target, &settings, &mut |_| ControlFlow::Continue(()));
    let reports = reports.lock().expect("no report panics").clone();
    (copied, reports)
}

#[test]
fn a_wait_for_the_lease_of_another_owner_is_reported_once() {
    /// A copy renews its lease after a quarter of this time, which is longer than the test.
    const LEASE: Duration = Duration::from_secs(600);
    /// Time after which a silent owner counts as dead.
    const SILENCE: Duration = Duration::from_secs(750);
    const OWNED: &str = "another process owns the data";

    let clock = ManualClock::new(Timestamp::from_nanos_clamped(0));
    let disk = MemoryDisk::new(Character::Distributed);
    disk.limit_leases(LEASE, 1 << 40);
    let open = || -> Arc<dyn Backend> {
        let clock = Arc::new(clock.clone());
        Arc::new(MemoryBackend::open_with_clock(&disk, clock))
    };
    let later = || {
        let clock = clock.clone();
        move || clock.advance(SILENCE.as_nanos() as i64)
    };
    let source = Storage::fjall();
    fill(&*source.open(), &mut Random::new(1));
    let expected = content(&*source.open());

    // The owner of the target renews its lease until the patience ends.
    let owner = open();
    let epoch = owner.take(SHARD).expect("the shard is free").epoch;
    let pass = later();
    let renew = move || {
        owner.renew(SHARD, epoch).expect("it owns the shard");
        pass();
    };
    let (copied, reports) = copy_with_patience([source.open(), open()], &clock, SILENCE, renew);
    assert!(matches!(copied, Err(CopyError::Target(_))), "{copied:?}");
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(
        reports[0].0.contains(OWNED) && reports[0].1 == SILENCE,
        "{reports:?}"
    );

    // The owner has ended without giving up its lease, as after a kill.
    let (copied, reports) = copy_with_patience([source.open(), open()], &clock, SILENCE * 2, later());
    copied.expect("the owner is silent");
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(
        reports[0].0.contains(OWNED) && reports[0].1 == SILENCE * 2,
        "{reports:?}"
    );

    // That copy has not given up its lease either.
    let target = Storage::memory(Character::Embedded);
    let (copied, reports) = copy_with_patience([open(), target.open()], &clock, SILENCE * 2, later());
    copied.expect("the owner is silent");
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert_eq!(content(&*target.open()), expected);

    // Without patience, there is no wait. Nor is there one if both sides are free.
    let target = Storage::memory(Character::Embedded);
    let (copied, reports) = copy_with_patience([open(), target.open()], &clock, Duration::ZERO, later());
    assert!(matches!(copied, Err(CopyError::Source(_))), "{copied:?}");
    assert!(reports.is_empty(), "{reports:?}");
    let (copied, reports) = copy_with_patience([source.open(), target.open()], &clock, SILENCE, later());
    copied.expect("both sides are free");
    assert!(reports.is_empty(), "{reports:?}");
}
