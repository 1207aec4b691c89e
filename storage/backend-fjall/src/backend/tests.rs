//! Tests of automatic recovery after injected failures, of spare groups, freed parts, and power cuts after buffered
//! writes.
//!
//! The failures of stores and journals cannot be caused from outside. The tests run the rounds of the maintenance
//! thread themselves.

use std::fs;

use tideline_backend::conformance::value_of;
use tideline_backend::{ErrorKind, Space};
use tideline_model::{GroupId, PartId, SegmentId, TableId};
use tideline_runtime::Supervisor;

use super::*;

const SHARD: Shard = Shard(0);
const ROWS: Partition = Partition::space(Space(1), 0);

fn open(folder: &tempfile::TempDir) -> FjallBackend {
    let options = FjallOptions {
        free_bytes_min: 0,
        free_per_mille_min: 0,
        // The interval is so long that the maintenance thread runs no round during a test.
        high_water_interval: std::time::Duration::from_secs(3_600),
        ..FjallOptions::default()
    };
    FjallBackend::open(folder.path(), options).expect("open")
}

fn write(backend: &FjallBackend, key: &'static str) -> Result<()> {
    let change = RowChange {
        key: Bytes::from_static(key.as_bytes()),
        value: Some(Bytes::new()),
    };
    backend.write(ROWS, &[change], Stamp(1), Durability::Synced)
}

#[test]
fn a_poisoned_store_refuses_writes_and_reopens_by_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = open(&folder);
    let epoch = backend.take(SHARD).expect("take").epoch;
    write(&backend, "before").expect("write");
    backend.inner.hot.poison("a failed sync");
    assert!(matches!(backend.health(), Health::Poisoned { .. }));
    assert_eq!(
        write(&backend, "k").expect_err("poisoned").kind(),
        ErrorKind::Unavailable
    );
    assert!(value_of(&backend, ROWS, b"before").expect("reads work").is_some());
    // The failed write may have been an edit; only the reopened store shows its outcome.
    let manifest = backend.manifest(SHARD);
    assert_eq!(manifest.expect_err("open").kind(), ErrorKind::Unavailable);
    backend.inner.tick();
    assert_eq!(backend.manifest(SHARD).expect("known again").epoch, epoch);
    assert_eq!(backend.health(), Health::Ready);
    write(&backend, "after").expect("write");
    let outcome = backend.edit(SHARD, epoch, 0, &[]).expect("still the owner");
    assert_eq!(outcome, EditOutcome::Applied { version: 1 });
    backend.close().expect("close");
    let reopened = open(&folder);
    assert_eq!(reopened.health(), Health::Ready);
    assert!(value_of(&reopened, ROWS, b"after").expect("get").is_some());
}

/// Returns the inode numbers of the files in a folder, by name.
fn numbers(folder: &std::path::Path) -> BTreeMap<String, u64> {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(folder).expect("a folder");
    let number = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("text");
        (name, entry.metadata().expect("metadata").ino())
    };
    entries.map(number).collect()
}

#[test]
fn a_log_that_failed_is_used_again_as_a_new_file_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = open(&folder);
    write(&backend, "before").expect("write");
    load(&backend, COLD).expect("load");
    for (tier, store) in [(Tier::Hot, "store"), (Tier::Cold, "cold/store")] {
        let store = folder.path().join(store);
        let before = numbers(&store)["0.jnl"];
        // The copy cannot be created: the store stays failed, and a later round retries.
        let obstacle = store.join("0.jnl.new");
        std::fs::create_dir(&obstacle).expect("a folder");
        backend.inner.store(tier).poison("a failed sync");
        backend.inner.tick();
        assert!(matches!(backend.tier_health(tier), Health::Poisoned { .. }));
        assert_eq!(numbers(&store)["0.jnl"], before);
        std::fs::remove_dir(&obstacle).expect("remove");
        backend.inner.store(tier).try_now();
        backend.inner.tick();
        assert_eq!(backend.tier_health(tier), Health::Ready);
        assert_ne!(numbers(&store)["0.jnl"], before, "the doubtful file is used");
    }
    assert!(value_of(&backend, ROWS, b"before").expect("get").is_some());
    assert_eq!(backend.segments(SHARD).expect("segments"), [COLD]);
}

#[test]
fn a_journal_that_failed_is_a_new_file_before_it_is_used_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = open(&folder);
    let epoch = backend.take(SHARD).expect("take").epoch;
    let append = |sequence| {
        let entry = JournalEntry {
            sequence: SequenceNumber(sequence),
            value: Bytes::from_static(b"delta"),
        };
        backend.append(SHARD, epoch, &[entry], Durability::Synced)
    };
    append(1).expect("append");
    let journal = folder.path().join(JOURNAL);
    let before = numbers(&journal);
    let (name, _) = before.first_key_value().expect("a file");
    backend.inner.journals.shard(SHARD).lock().fail_next_write();
    append(2).expect_err("failed");
    let obstacle = format!("{name}.new");
    std::fs::create_dir(journal.join(&obstacle)).expect("a folder");
    backend.inner.tick();
    assert!(matches!(backend.health(), Health::Poisoned { .. }));
    assert_eq!(append(3).expect_err("broken").kind(), ErrorKind::Unavailable);
    std::fs::remove_dir(journal.join(&obstacle)).expect("remove");
    backend.inner.tick();
    assert_eq!(backend.health(), Health::Ready);
    assert_ne!(numbers(&journal)[name], before[name], "the doubtful file is used");
    append(4).expect("append");
    assert_eq!(numbers(&journal).len(), 2, "and nothing is appended to it");
}

/// Damages both copies of the list of keyspaces, without which the store does not open. Returns their former content.
fn damage_lists(folder: &tempfile::TempDir) -> Vec<u8> {
    let list = folder.path().join("KEYSPACES");
    let kept = std::fs::read(&list).expect("read");
    std::fs::write(&list, b"damaged").expect("damage");
    std::fs::write(folder.path().join("KEYSPACES.copy"), b"damaged").expect("damage");
    kept
}

fn reopening(health: Health) -> Reopening {
    match health {
        Health::Poisoned { reopening, .. } => reopening,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_store_is_reopened_however_many_attempts_have_failed() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = open(&folder);
    write(&backend, "k").expect("write");
    let kept = damage_lists(&folder);
    backend.inner.hot.poison("a failed sync");
    let before = reopening(backend.health());
    assert!(before.reads && before.attempts == 0, "{before:?}");
    assert!(value_of(&backend, ROWS, b"k").expect("reads work").is_some());
    for attempt in 1..=40 {
        backend.inner.hot.try_now();
        backend.inner.tick();
        let state = reopening(backend.health());
        assert!(
            !state.reads && !state.is_running && state.attempts == attempt,
            "{state:?}"
        );
        assert!(state.last_error.expect("it failed").contains("keyspaces"));
        assert!(
            state.next_in <= std::time::Duration::from_secs(10),
            "{:?}",
            state.next_in
        );
    }
    let refused = value_of(&backend, ROWS, b"k").expect_err("not open");
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.to_string().contains("a failed sync"), "{refused}");
    std::fs::write(folder.path().join("KEYSPACES"), kept).expect("repair");
    backend.inner.hot.try_now();
    backend.inner.tick();
    assert_eq!(backend.health(), Health::Ready);
    assert!(value_of(&backend, ROWS, b"k").expect("get").is_some());
    write(&backend, "after").expect("write");
}

#[test]
fn a_store_is_reopened_at_once_when_space_returns() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = open(&folder);
    write(&backend, "k").expect("write");
    let kept = damage_lists(&folder);
    backend.inner.hot.seem_full(true);
    backend.inner.hot.poison("no space left");
    backend.inner.tick();
    backend.inner.hot.try_late();
    backend.inner.tick();
    assert_eq!(reopening(backend.health()).attempts, 1);
    std::fs::write(folder.path().join("KEYSPACES"), kept).expect("repair");
    backend.inner.hot.seem_full(false);
    backend.inner.tick();
    assert_eq!(backend.health(), Health::Ready);
    write(&backend, "after").expect("write");
}

#[test]
fn a_dead_maintenance_thread_is_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let supervisor = Supervisor::default();
    supervisor.on_round(|thread| assert_ne!(thread, "maintenance", "as the test asked"));
    let (sender, failed) = std::sync::mpsc::channel();
    supervisor.on_failure(move |failure| sender.send(failure.thread).expect("the test listens"));
    let options = FjallOptions {
        high_water_interval: std::time::Duration::from_millis(1),
        supervisor,
        ..FjallOptions::default()
    };
    let backend = FjallBackend::open(folder.path(), options).expect("open");
    let patience = std::time::Duration::from_secs(30);
    assert_eq!(failed.recv_timeout(patience), Ok("maintenance"));
    backend.close().expect("close");
}

#[test]
fn a_broken_journal_refuses_appends_and_heals_by_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = open(&folder);
    let epoch = backend.take(SHARD).expect("take").epoch;
    let entry = |sequence| JournalEntry {
        sequence: SequenceNumber(sequence),
        value: Bytes::from_static(b"delta"),
    };
    let append = |sequence| backend.append(SHARD, epoch, &[entry(sequence)], Durability::Synced);
    append(1).expect("append");
    backend.inner.journals.shard(SHARD).lock().fail_next_write();
    assert_eq!(append(2).expect_err("failed").kind(), ErrorKind::Unknown);
    assert!(matches!(backend.health(), Health::Poisoned { .. }));
    assert_eq!(append(3).expect_err("broken").kind(), ErrorKind::Unavailable);
    backend.inner.tick();
    assert_eq!(backend.health(), Health::Ready);
    append(4).expect("append");
    let mut seen = Vec::new();
    backend
        .replay(SHARD, epoch, SequenceNumber(0), &mut |sequence, _| {
            seen.push(sequence.0);
            Ok(())
        })
        .expect("replay");
    assert_eq!(seen, [1, 4]);
}

#[test]
fn the_mark_follows_what_was_acknowledged() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = open(&folder);
    for key in ["a", "b", "c"] {
        write(&backend, key).expect("write");
    }
    backend.inner.tick();
    let (_, remembered) = HighWater::open(folder.path()).expect("open");
    let crate::highwater::StoredMarks::Marks(marks) = remembered else {
        panic!("{remembered:?}");
    };
    assert_eq!(marks.commits, 3);
}

const COLD: SegmentRef = SegmentRef {
    segment: SegmentId(1),
    group: GroupId(1),
    tier: Tier::Cold,
};

fn rows(number: u64) -> impl Iterator<Item = Result<Row>> {
    (0..number).map(|n| {
        Ok(Row {
            key: Bytes::copy_from_slice(&n.to_be_bytes()),
            value: Bytes::from(vec![n as u8; 10_000]),
        })
    })
}

fn load(backend: &FjallBackend, segment: SegmentRef) -> Result<()> {
    backend.load(segment, 0, &mut rows(10))
}

#[test]
fn a_failed_cold_store_hinders_nothing_else_and_reopens_by_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = open(&folder);
    let epoch = backend.take(SHARD).expect("take").epoch;
    load(&backend, COLD).expect("load");
    let next = SegmentRef {
        segment: SegmentId(2),
        ..COLD
    };
    for _ in 0..2 {
        backend.inner.cold.store.poison("a failed sync");
        assert!(matches!(backend.tier_health(Tier::Cold), Health::Poisoned { .. }));
        assert_eq!(backend.health(), Health::Ready);
        for refused in [load(&backend, next), backend.reclaim(COLD)] {
            assert_eq!(refused.expect_err("poisoned").kind(), ErrorKind::Unavailable);
        }
        write(&backend, "hot").expect("write");
        backend.edit(SHARD, epoch, 0, &[]).expect("edit");
        let read = value_of(&backend, Partition::segment(COLD, 0), &0_u64.to_be_bytes());
        assert!(read.expect("reads work").is_some());
        backend.inner.tick();
        assert_eq!(backend.tier_health(Tier::Cold), Health::Ready);
    }
    load(&backend, next).expect("load");
    assert_eq!(backend.segments(SHARD).expect("segments"), [COLD, next]);
}

#[test]
fn a_cold_store_that_cannot_be_reopened_leaves_the_hot_one_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = open(&folder);
    load(&backend, COLD).expect("load");
    let cold = folder.path().join("cold");
    let away = folder.path().join("away");
    std::fs::rename(&cold, &away).expect("unmount");
    backend.inner.cold.store.poison("the disk is gone");
    backend.inner.tick();
    let read = value_of(&backend, Partition::segment(COLD, 0), b"k");
    assert_eq!(read.expect_err("not open").kind(), ErrorKind::Unavailable);
    assert_eq!(
        backend.segments(SHARD).expect_err("not all of them").kind(),
        ErrorKind::Unavailable
    );
    assert_eq!(backend.health(), Health::Ready);
    write(&backend, "hot").expect("write");
    assert!(value_of(&backend, ROWS, b"hot").expect("get").is_some());
    std::fs::rename(&away, &cold).expect("mount");
    backend.inner.cold.store.try_now();
    backend.inner.tick();
    assert_eq!(backend.tier_health(Tier::Cold), Health::Ready);
    assert_eq!(backend.segments(SHARD).expect("segments"), [COLD]);
}

#[test]
fn a_full_cold_disk_refuses_cold_loads_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = open(&folder);
    load(&backend, COLD).expect("load");
    backend.inner.cold.store.seem_full(true);
    assert!(matches!(backend.tier_health(Tier::Cold), Health::DiskLow { .. }));
    assert_eq!(backend.health(), Health::Ready);
    let next = SegmentRef {
        segment: SegmentId(2),
        ..COLD
    };
    assert_eq!(
        load(&backend, next).expect_err("full").kind(),
        ErrorKind::Unavailable
    );
    let hot = SegmentRef {
        tier: Tier::Hot,
        ..COLD
    };
    load(&backend, hot).expect("the other disk has space");
    write(&backend, "hot").expect("write");
    backend.reclaim(COLD).expect("what frees space works");
    backend.inner.cold.store.seem_full(false);
    backend.inner.hot.seem_full(true);
    assert!(matches!(backend.health(), Health::DiskLow { .. }));
    assert_eq!(backend.tier_health(Tier::Cold), Health::Ready);
    load(&backend, next).expect("the other disk has space");
}

#[test]
fn a_load_ends_when_its_disk_fills_up_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = open(&folder);
    for tier in Tier::KEPT {
        let kept = SegmentRef { tier, ..COLD };
        let ended = SegmentRef {
            segment: SegmentId(2),
            ..kept
        };
        load(&backend, kept).expect("load");
        let before = backend.usage().data_bytes;
        let mut endless = rows(u64::MAX).enumerate().map(|(n, row)| {
            backend.inner.store(tier).seem_full(n > 1_000);
            row
        });
        let refused = backend.load(ended, 0, &mut endless).expect_err("full");
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        drop(endless);
        backend.inner.store(tier).seem_full(false);
        assert!(backend.usage().data_bytes < before + 100_000);
        let held = backend.inner.store(tier).segments();
        assert_eq!(held.expect("segments"), [kept]);
    }
}

#[test]
fn an_emptied_group_is_offered_until_something_is_loaded_over_reopenings_and_restarts() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut backend = open(&folder);
    let keyspaces = || {
        let keyspaces = |store: &str| fs::read_dir(folder.path().join(store).join("keyspaces"));
        ["store", "cold/store"].map(|store| keyspaces(store).expect("a folder").count())
    };
    let both = [Tier::Hot, Tier::Cold].map(|tier| SegmentRef { tier, ..COLD });
    for segment in both {
        assert_eq!(backend.spare_group(segment.tier), None);
        load(&backend, segment).expect("load");
        assert_eq!(backend.spare_group(segment.tier), None);
    }
    let before = keyspaces();
    for round in 0..6 {
        for segment in both {
            backend.reclaim(segment).expect("reclaim");
            backend.reclaim(segment).expect("reclaim again");
        }
        match round % 3 {
            0 => {}
            1 => {
                for segment in both {
                    backend.inner.store(segment.tier).poison("a failed sync");
                }
                backend.inner.tick();
            }
            _ => {
                backend.close().expect("close");
                backend = open(&folder);
            }
        }
        for segment in both {
            let store = backend.inner.store(segment.tier);
            assert_eq!(store.filled(), 0, "round {round}");
            let spare = backend.spare_group(segment.tier);
            assert_eq!(spare, Some(segment.group), "round {round}");
            assert_eq!(backend.spare_group(segment.tier), spare, "until it is used");
            load(&backend, segment).expect("load");
            assert_eq!(backend.spare_group(segment.tier), None, "round {round}");
            assert_eq!(store.filled(), 1);
            assert_eq!(store.segments().expect("segments"), [segment]);
        }
    }
    assert_eq!(keyspaces(), before);
}

#[test]
fn spare_groups_are_offered_in_turn() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = open(&folder);
    let segments = [1, 2, 3].map(|group| SegmentRef {
        group: GroupId(group),
        ..COLD
    });
    for segment in segments {
        load(&backend, segment).expect("load");
    }
    for segment in segments {
        backend.reclaim(segment).expect("reclaim");
    }
    let mut offered: Vec<GroupId> = (0..3).filter_map(|_| backend.spare_group(COLD.tier)).collect();
    offered.sort_unstable();
    assert_eq!(offered, [1, 2, 3].map(GroupId));
}

/// fjall's log may still hold rows of a freed part that were flushed to a table. A reopening and a start read the
/// log, but must not restore these rows.
#[test]
fn a_part_that_was_freed_does_not_come_back_from_the_log() {
    for tier in Tier::KEPT {
        let folder = tempfile::tempdir().expect("a folder");
        let mut backend = open(&folder);
        let parts = [1, 2, 3].map(|part| PartRef {
            part: PartId(part),
            // All keys of the first table sort before the row that counts commits. All keys of the last table sort
            // after that row.
            table: TableId(if part == 3 { u32::MAX } else { 1 }),
            tier,
        });
        let write = |backend: &FjallBackend, part: PartRef| {
            let changes: Vec<_> = (0..500_u16)
                .map(|n| RowChange {
                    key: Bytes::copy_from_slice(&n.to_be_bytes()),
                    value: Some(Bytes::from(vec![n as u8; 100])),
                })
                .collect();
            backend
                .write(Partition::part(part, 0), &changes, Stamp(1), Durability::Synced)
                .expect("write");
        };
        parts.iter().for_each(|part| write(&backend, *part));
        let flush = |backend: &FjallBackend| {
            let engine = backend.inner.store(tier).opened().expect("open");
            engine.flush_rows().expect("flush");
        };
        flush(&backend);
        write(&backend, parts[0]);
        backend.reclaim_part(parts[0]).expect("reclaim");
        backend.inner.tick();
        let check = |backend: &FjallBackend, left: &[PartRef]| {
            assert_eq!(backend.parts(SHARD).expect("parts"), left, "{tier}");
        };
        check(&backend, &parts[1..]);
        backend.inner.store(tier).poison("a failed sync");
        backend.inner.tick();
        check(&backend, &parts[1..]);
        flush(&backend);
        backend.reclaim_part(parts[2]).expect("reclaim");
        backend.close().expect("close");
        backend = open(&folder);
        check(&backend, &parts[1..2]);
        let usage = backend.usage();
        assert!(usage.data_bytes > 0, "{usage:?}");
        assert_eq!(backend.health(), Health::Ready);
    }
}

fn write_buffered(backend: &FjallBackend, partition: Partition, n: u64) {
    let change = RowChange {
        key: Bytes::copy_from_slice(&n.to_be_bytes()),
        value: Some(Bytes::from_static(b"buffered")),
    };
    backend
        .write(partition, &[change], Stamp(n), Durability::Buffered)
        .expect("write");
}

fn rows_in(backend: &FjallBackend, partition: Partition) -> usize {
    let limit = PageLimit {
        rows_max: usize::MAX,
        bytes_max: usize::MAX,
    };
    let page = backend.scan(partition, &KeyRange::ALL, Direction::Ascending, limit);
    page.expect("scan").rows.len()
}

fn part_of(tier: Tier) -> Partition {
    let part = PartRef {
        part: PartId(1),
        table: TableId(1),
        tier,
    };
    Partition::part(part, 0)
}

#[test]
fn replaced_values_of_parts_leave_the_disk_when_their_writes_have_ended() {
    for partition in [part_of(Tier::Hot), part_of(Tier::Cold)] {
        let folder = tempfile::tempdir().expect("a folder");
        let backend = open(&folder);
        let Unit::Part(part) = partition.unit else {
            unreachable!()
        };
        let store = backend.inner.store(part.tier);
        let write = |numbers: std::ops::Range<u64>, value: &dyn Fn(u64) -> Option<Bytes>| {
            let changes = numbers.map(|n| RowChange {
                key: Bytes::copy_from_slice(&n.to_be_bytes()),
                value: value(n),
            });
            let changes: Vec<RowChange> = changes.collect();
            let groups: Vec<Vec<RowChange>> = changes.chunks(500).map(<[RowChange]>::to_vec).collect();
            backend.write_sorted(partition, &groups, Stamp(1)).expect("write");
        };
        // Values of 8 KiB that cannot be compressed.
        let value = |n: u64| {
            let words = (0..1_024).map(|word| xxhash_rust::xxh3::xxh3_64_with_seed(&n.to_le_bytes(), word));
            Some(words.flat_map(u64::to_le_bytes).collect())
        };
        write(0..1_000, &value);
        store.opened().expect("open").flush_rows().expect("flush");
        write(10..1_000, &|_| None);
        let bytes = || store.opened().expect("open").part_bytes();
        let before = bytes();
        assert!(before > 8_000_000, "{before}");
        assert!(
            !store.begin_compaction() && !store.begin_compaction(),
            "nothing was reported"
        );
        backend.note_replaced(part, 7_000_000);
        assert!(!store.begin_compaction(), "more values may follow");
        backend.note_replaced(part, 1_000_000);
        assert!(!store.begin_compaction());
        assert!(
            store.begin_compaction(),
            "no value was replaced between two rounds"
        );
        assert!(!store.begin_compaction(), "it runs");
        std::thread::scope(|scope| scope.spawn(|| store.compact()).join()).expect("no panic");
        let after = bytes();
        assert!(after < 200_000, "{after}");
        assert_eq!(rows_in(&backend, partition), 10);
        assert!(
            !store.begin_compaction() && !store.begin_compaction(),
            "nothing was replaced since"
        );
        backend.close().expect("close");
        let reopened = open(&folder);
        assert_eq!(rows_in(&reopened, partition), 10);
        assert_eq!(reopened.health(), Health::Ready);
    }
}

#[test]
fn a_sync_of_rows_fails_once_after_a_reopening_and_marks_what_is_durable() {
    for partition in [ROWS, part_of(Tier::Hot), part_of(Tier::Cold)] {
        let folder = tempfile::tempdir().expect("a folder");
        let backend = open(&folder);
        let tier = partition.unit.tier();
        let store = backend.inner.store(tier);
        backend.sync_rows(SHARD).expect("there is nothing");
        // Nothing was buffered, so nothing can be lost.
        write(&backend, "synced").expect("write");
        backend.inner.hot.poison("a failed sync");
        let refused = backend.sync_rows(SHARD).expect_err("poisoned");
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        backend.inner.tick();
        backend.sync_rows(SHARD).expect("all of it was synced");

        let marked = || backend.inner.high_water.marks();
        let counted = || (marked().commits, marked().cold_loads);
        let before = counted();
        write_buffered(&backend, partition, 1);
        assert_eq!(counted(), before, "{partition:?}: it is not durable yet");
        backend.sync_rows(SHARD).expect("sync");
        assert_ne!(counted(), before, "{partition:?}");
        write_buffered(&backend, partition, 2);
        store.poison("a failed sync");
        assert_eq!(
            backend.sync_rows(SHARD).expect_err("poisoned").kind(),
            ErrorKind::Unavailable
        );
        backend.inner.tick();
        assert_eq!(backend.tier_health(tier), Health::Ready);
        let unknown = backend.sync_rows(SHARD).expect_err("it may be lost");
        assert_eq!(unknown.kind(), ErrorKind::Unknown);
        write_buffered(&backend, partition, 2);
        backend.sync_rows(SHARD).expect("written again");
        if tier == Tier::Hot {
            load(&backend, COLD).expect("load");
            backend.inner.cold.store.poison("a failed sync");
            write_buffered(&backend, partition, 2);
            backend
                .sync_rows(SHARD)
                .expect("nothing is buffered in the cold store");
            backend.inner.tick();
        }
        let others = usize::from(partition == ROWS);
        assert_eq!(rows_in(&backend, partition), 2 + others);
        backend.close().expect("close");
        drop(backend);
        assert_eq!(open(&folder).health(), Health::Ready);
    }
}

/// Returns the content of a store's log, up to its last batch.
fn log_content(folder: &std::path::Path) -> Vec<u8> {
    let content = fs::read(folder.join("store/0.jnl")).expect("read");
    let end = content.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
    content[..end].to_vec()
}

/// Opens a copy of a folder in which the log has the given content, as after a power cut.
fn open_with_log(folder: &tempfile::TempDir, log: &[u8]) -> (tempfile::TempDir, Result<FjallBackend>) {
    let copy = tempfile::tempdir().expect("a folder");
    crate::copy::copy_root(folder.path(), copy.path(), crate::copy::Journals::Copied).expect("copy");
    let path = copy.path().join("store/0.jnl");
    let length = fs::metadata(&path).expect("metadata").len();
    fs::write(&path, log).expect("write");
    let file = fs::OpenOptions::new().write(true).open(path).expect("open");
    file.set_len(length).expect("set the length");
    let options = FjallOptions {
        free_bytes_min: 0,
        free_per_mille_min: 0,
        high_water_interval: std::time::Duration::from_secs(3_600),
        ..FjallOptions::default()
    };
    let backend = FjallBackend::open(copy.path(), options);
    (copy, backend)
}

/// Unsynced batches reach the disk in any order, so a bad unsynced batch before intact batches is not damage.
#[test]
fn a_power_cut_between_buffered_rows_leaves_a_folder_that_opens() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = open(&folder);
    for key in ["a", "b", "c"] {
        write(&backend, key).expect("write");
    }
    backend.inner.high_water.save().expect("save");
    let synced = log_content(folder.path()).len();
    let mut ends = Vec::new();
    for n in 0..5 {
        write_buffered(&backend, ROWS, n);
        ends.push(log_content(folder.path()).len());
    }
    let log = log_content(folder.path());
    let with_hole = |log: &[u8], at: usize| {
        let mut log = log.to_vec();
        log[at..at + 20].fill(0);
        log
    };
    let starts = std::iter::once(&synced).chain(&ends).copied().take(5);
    for (n, at) in starts.enumerate() {
        let (_copy, opened) = open_with_log(&folder, &with_hole(&log, at));
        let cut = opened.expect("these rows were not promised");
        assert_eq!(cut.health(), Health::Ready);
        assert_eq!(rows_in(&cut, ROWS), 3 + n);
        write_buffered(&cut, ROWS, 100);
        cut.sync_rows(SHARD).expect("sync");
        cut.close().expect("close");
    }
    let (_copy, opened) = open_with_log(&folder, &with_hole(&log, synced - 30));
    assert_eq!(opened.expect_err("it was synced").kind(), ErrorKind::Corrupt);
    backend.sync_rows(SHARD).expect("sync");
    write(&backend, "d").expect("write");
    let log = log_content(folder.path());
    for at in [synced, ends[2]] {
        let (_copy, opened) = open_with_log(&folder, &with_hole(&log, at));
        assert_eq!(opened.expect_err("they were synced").kind(), ErrorKind::Corrupt);
    }
}

/// fjall writes a memtable to a table even if its log is not synced, so a table may hold rows that the log lacks.
#[test]
fn buffered_rows_that_are_in_a_table_and_not_in_the_log_are_no_loss() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = open(&folder);
    write(&backend, "a").expect("write");
    backend.inner.high_water.save().expect("save");
    let synced = log_content(folder.path()).len();
    for n in 0..5 {
        write_buffered(&backend, ROWS, n);
    }
    let flushed = backend.inner.hot.opened().expect("open").flush_rows_alone();
    flushed.expect("flush");
    let log = log_content(folder.path());
    let (copy, opened) = open_with_log(&folder, &log[..synced]);
    let cut = opened.expect("these rows were not promised");
    assert_eq!(cut.health(), Health::Ready);
    assert_eq!(rows_in(&cut, ROWS), 6);
    for round in 0..2 {
        write_buffered(&cut, ROWS, 100 + round);
    }
    cut.close().expect("close");
    drop(cut);
    assert_eq!(open(&copy).health(), Health::Ready);
    // If the rows were acknowledged as durable, the same cut log is a loss.
    write(&backend, "b").expect("write");
    let flushed = backend.inner.hot.opened().expect("open").flush_rows_alone();
    flushed.expect("flush");
    let (_copy, opened) = open_with_log(&folder, &log[..synced]);
    assert!(matches!(opened.expect("open").health(), Health::ReadOnly { .. }));
}
