//! Conformance tests of the memory backend, once as [`Character::Embedded`] and once as [`Character::Distributed`].
//!
//! Further tests cover outcomes that are possible only for [`Character::Distributed`], and power failures.

use tideline_model::{ManualClock, PartId, TableId};

use super::*;
use crate::conformance::{self, Fixture};
use crate::error::ErrorKind;
use crate::page::scan_to_limit;

struct Memory(Arc<MemoryDisk>);

impl Fixture for Memory {
    fn open(&self) -> Arc<dyn Backend> {
        Arc::new(MemoryBackend::open(&self.0))
    }
}

const SHARD: Shard = Shard(0);

fn entry(sequence: u64) -> JournalEntry {
    JournalEntry {
        sequence: SequenceNumber(sequence),
        value: Bytes::from(sequence.to_string()),
    }
}

fn sequences(backend: &MemoryBackend, epoch: Epoch) -> Vec<u64> {
    let mut seen = Vec::new();
    backend
        .replay(SHARD, epoch, SequenceNumber(0), &mut |sequence, _| {
            seen.push(sequence.0);
            Ok(())
        })
        .expect("replay");
    seen
}

#[test]
fn the_embedded_character_conforms() {
    conformance::run_all(&|| Box::new(Memory(MemoryDisk::new(Character::Embedded))));
}

#[test]
fn the_distributed_character_conforms() {
    conformance::run_all(&|| Box::new(Memory(MemoryDisk::new(Character::Distributed))));
}

#[test]
fn the_distributed_character_conforms_when_each_request_takes_a_millisecond() {
    conformance::run_all(&|| {
        let disk = MemoryDisk::new(Character::Distributed);
        disk.delay_round_trips(Duration::from_millis(1));
        Box::new(Memory(disk))
    });
}

#[test]
fn an_append_of_unknown_outcome_may_land_late_until_the_epoch_is_closed() {
    let disk = MemoryDisk::new(Character::Distributed);
    let backend = MemoryBackend::open(&disk);
    let epoch = backend.take(SHARD).expect("take").epoch;
    disk.fail_append(AppendFault::Landed);
    disk.fail_append(AppendFault::Lost);
    disk.fail_append(AppendFault::Late);
    for sequence in 1..=3 {
        let failed = backend.append(SHARD, epoch, &[entry(sequence)], Durability::Synced);
        assert_eq!(failed.expect_err("planned").kind(), ErrorKind::Unknown);
    }
    backend
        .append(SHARD, epoch, &[entry(4)], Durability::Synced)
        .expect("append");
    assert_eq!(sequences(&backend, epoch), [1, 4]);
    disk.land_late();
    assert_eq!(sequences(&backend, epoch), [1, 3, 4]);

    disk.fail_append(AppendFault::Late);
    let failed = backend.append(SHARD, epoch, &[entry(5)], Durability::Synced);
    assert_eq!(failed.expect_err("planned").kind(), ErrorKind::Unknown);
    backend.take(SHARD).expect("take");
    backend
        .close_epoch(SHARD, epoch, SequenceNumber(6))
        .expect("close the epoch");
    disk.land_late();
    assert_eq!(
        sequences(&backend, epoch),
        [1, 3, 4],
        "a closed epoch never changes"
    );
}

#[test]
fn an_edit_of_unknown_outcome_is_told_apart_by_reading_the_manifest() {
    let disk = MemoryDisk::new(Character::Distributed);
    let backend = MemoryBackend::open(&disk);
    let epoch = backend.take(SHARD).expect("take").epoch;
    for (fault, version) in [(EditFault::Lost, 0), (EditFault::Applied, 1)] {
        disk.fail_edit(fault);
        let failed = backend.edit(SHARD, epoch, 0, &[]);
        assert_eq!(failed.expect_err("planned").kind(), ErrorKind::Unknown);
        assert_eq!(backend.manifest(SHARD).expect("manifest").version, version);
    }
}

#[test]
fn a_late_edit_is_applied_unless_its_owner_has_read_the_manifest() {
    let disk = MemoryDisk::new(Character::Distributed);
    let (backend, reader) = (MemoryBackend::open(&disk), MemoryBackend::open(&disk));
    let epoch = backend.take(SHARD).expect("take").epoch;
    let version = |backend: &MemoryBackend| backend.manifest(SHARD).expect("manifest").version;
    let edit_late = |version| {
        disk.fail_edit(EditFault::Late);
        let failed = backend.edit(SHARD, epoch, version, &[]);
        assert_eq!(failed.expect_err("planned").kind(), ErrorKind::Unknown);
    };
    edit_late(0);
    assert_eq!(version(&reader), 0, "another process decides nothing");
    disk.land_late();
    assert_eq!(version(&backend), 1);
    edit_late(1);
    assert_eq!(version(&backend), 1);
    disk.land_late();
    assert_eq!(version(&backend), 1, "a read of the owner is final");
    edit_late(1);
    reader.take(SHARD).expect("take");
    disk.land_late();
    assert_eq!(version(&reader), 1, "the edit has the epoch of a former owner");
}

#[test]
fn a_late_write_of_rows_has_its_own_stamp() {
    let disk = MemoryDisk::new(Character::Distributed);
    let backend = MemoryBackend::open(&disk);
    let partition = Partition::space(Space(1), 0);
    let write = |value: &'static str, stamp| {
        let change = RowChange {
            key: Bytes::from_static(b"k"),
            value: Some(Bytes::from_static(value.as_bytes())),
        };
        backend.write(partition, &[change], Stamp(stamp), Durability::Synced)
    };
    let read = || conformance::value_of(&backend, partition, b"k").expect("scan");
    for (late, newer, expected) in [(1, 2, "newer"), (4, 3, "late")] {
        disk.fail_write(WriteFault::Late);
        let failed = write("late", late).expect_err("planned");
        assert_eq!(failed.kind(), ErrorKind::Unknown);
        write("newer", newer).expect("write");
        assert_eq!(read().as_deref(), Some(b"newer".as_slice()));
        disk.land_late();
        assert_eq!(read().as_deref(), Some(expected.as_bytes()));
    }
    disk.fail_write(WriteFault::Lost);
    write("lost", 5).expect_err("planned");
    disk.fail_write(WriteFault::Landed);
    write("landed", 5).expect_err("planned");
    disk.land_late();
    assert_eq!(read().as_deref(), Some(b"landed".as_slice()));
}

#[test]
fn a_closed_epoch_has_exactly_the_entries_that_were_replayed() {
    let disk = MemoryDisk::new(Character::Distributed);
    disk.accept_stale_appends();
    let (old, new) = (MemoryBackend::open(&disk), MemoryBackend::open(&disk));
    let append = |epoch, sequence| old.append(SHARD, epoch, &[entry(sequence)], Durability::Synced);
    let first = old.take(SHARD).expect("take").epoch;
    append(first, 1).expect("append");
    disk.fail_append(AppendFault::Late);
    append(first, 2).expect_err("planned");
    append(first, 3).expect("append");
    let second = new.take(SHARD).expect("take").epoch;
    assert_eq!(sequences(&new, first), [1, 3]);
    disk.land_late();
    append(first, 4).expect("the epoch is not closed");
    new.close_epoch(SHARD, first, SequenceNumber(4)).expect("close");
    append(first, 5).expect("the append is not checked");
    assert_eq!(sequences(&new, first), [1, 3]);

    // An epoch without entries is not closed, and gets no entries later.
    let third = old.take(SHARD).expect("take").epoch;
    append(second, 6).expect("the append is not checked");
    assert_eq!(sequences(&old, second), []);
    let listed: Vec<Epoch> = old
        .epochs(SHARD)
        .expect("epochs")
        .iter()
        .map(|at| at.epoch)
        .collect();
    assert_eq!(listed, [first]);
    let future = append(Epoch(third.0 + 1), 7);
    assert_eq!(future.expect_err("never taken").kind(), ErrorKind::Refused);
}

#[test]
fn a_handle_with_a_clock_takes_a_shard_only_from_a_silent_owner() {
    let disk = MemoryDisk::new(Character::Distributed);
    let lease = Duration::from_secs(4);
    disk.limit_leases(lease, 1_000);
    let clocks = [0, 1].map(|_| ManualClock::new(Timestamp::EPOCH));
    let [old, new] = clocks
        .clone()
        .map(|clock| MemoryBackend::open_with_clock(&disk, Arc::new(clock)));
    let wait = |time: Duration| clocks[1].advance(time.as_nanos() as i64);
    let is_owned = || {
        let refused = new
            .take(SHARD)
            .expect_err("the owner is not silent for long enough");
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    };
    let held = old.take(SHARD).expect("the shard is free");
    is_owned();
    wait(lease);
    is_owned();
    old.renew(SHARD, held.epoch).expect("the owner lives");
    wait(lease / 4);
    is_owned();
    wait(lease + lease / 4 - Duration::from_nanos(1));
    is_owned();
    wait(Duration::from_nanos(1));
    let next = new.take(SHARD).expect("the owner is silent");
    assert!(next.epoch > held.epoch && next.stamp_min > held.stamp_max);
    let refused = old.renew(SHARD, held.epoch).expect_err("it was declared dead");
    assert_eq!(refused.kind(), ErrorKind::Refused);

    // After an owner has closed its handle, another handle takes the shard at once.
    let refused = old.take(SHARD).expect_err("the new owner lives");
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    new.close().expect("it closes");
    old.take(SHARD).expect("the owner has given up the shard");
}

#[test]
fn the_highest_stamp_wins_and_a_delete_wins_a_tie() {
    let backend = MemoryBackend::open(&MemoryDisk::new(Character::Distributed));
    let partition = Partition::space(Space(1), 0);
    let write = |value: Option<&'static str>, stamp: u64| {
        let change = RowChange {
            key: Bytes::from_static(b"k"),
            value: value.map(|value| Bytes::from_static(value.as_bytes())),
        };
        backend
            .write(partition, &[change], Stamp(stamp), Durability::Synced)
            .expect("write");
        conformance::value_of(&backend, partition, b"k").expect("scan")
    };
    assert_eq!(write(Some("b"), 2).as_deref(), Some(b"b".as_slice()));
    assert_eq!(write(Some("a"), 1).as_deref(), Some(b"b".as_slice()));
    assert_eq!(write(None, 2), None);
    assert_eq!(write(Some("z"), 2), None);
    assert_eq!(write(Some("c"), 3).as_deref(), Some(b"c".as_slice()));
}

#[test]
fn chance_repeats_with_its_seed() {
    let run = |seed| {
        let disk = MemoryDisk::new(Character::Distributed);
        disk.fail_by_chance(seed, 300);
        let backend = MemoryBackend::open(&disk);
        let epoch = backend.take(SHARD).expect("take").epoch;
        let acknowledged: Vec<u64> = (1..100)
            .filter(|&sequence| {
                backend
                    .append(SHARD, epoch, &[entry(sequence)], Durability::Synced)
                    .is_ok()
            })
            .collect();
        disk.land_late();
        let landed = sequences(&backend, epoch);
        assert!(
            acknowledged.iter().all(|sequence| landed.contains(sequence)),
            "seed {seed}"
        );
        (acknowledged, landed)
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn an_embedded_handle_dies_when_the_disk_is_opened_again() {
    let disk = MemoryDisk::new(Character::Embedded);
    let killed = MemoryBackend::open(&disk);
    let restarted = MemoryBackend::open(&disk);
    assert!(killed.segments(SHARD).is_err());
    assert!(restarted.segments(SHARD).is_ok());
}

#[test]
fn a_power_cut_takes_rows_that_were_not_synced() {
    for character in [Character::Embedded, Character::Distributed] {
        let disk = MemoryDisk::new(character);
        let part = |shard| {
            let part = PartRef {
                part: PartId::of(shard, 1),
                table: TableId(1),
                tier: Tier::Hot,
            };
            Partition::part(part, 0)
        };
        let places = [Partition::space(Space(1), 0), part(0), part(1)];
        let write = |backend: &MemoryBackend, key: &'static str, stamp, durability| {
            let changes = [RowChange {
                key: Bytes::from_static(key.as_bytes()),
                value: Some(Bytes::copy_from_slice(&[stamp])),
            }];
            for place in places {
                let stamp = Stamp(stamp.into());
                backend.write(place, &changes, stamp, durability).expect("write");
            }
        };
        let read = |backend: &MemoryBackend, place, key: &str| {
            let value = conformance::value_of(backend, place, key.as_bytes()).expect("scan");
            value.map(|value| value[0])
        };
        let backend = MemoryBackend::open(&disk);
        let (synced, buffered) = (Durability::Synced, Durability::Buffered);
        write(&backend, "a", 1, synced);
        write(&backend, "a", 2, buffered);
        write(&backend, "b", 2, buffered);
        write(&backend, "c", 2, buffered);
        write(&backend, "c", 3, synced);
        write(&backend, "c", 4, buffered);
        let found = |backend: &MemoryBackend, place| ["a", "b", "c"].map(|key| read(backend, place, key));
        assert_eq!(found(&backend, places[0]), [Some(2), Some(2), Some(4)]);
        if character == Character::Embedded {
            let killed = MemoryBackend::open(&disk);
            assert_eq!(
                found(&killed, places[0]),
                [Some(2), Some(2), Some(4)],
                "a kill loses nothing"
            );
        }
        disk.cut_power();
        let backend = MemoryBackend::open(&disk);
        for place in places {
            assert_eq!(found(&backend, place), [Some(1), None, Some(3)], "{character:?}");
        }
        write(&backend, "b", 5, buffered);
        backend.sync_rows(SHARD).expect("sync");
        write(&backend, "a", 6, buffered);
        disk.cut_power();
        let backend = MemoryBackend::open(&disk);
        assert_eq!(found(&backend, places[0]), [Some(1), Some(5), Some(3)]);
        assert_eq!(found(&backend, places[1]), [Some(1), Some(5), Some(3)]);
        assert_eq!(
            found(&backend, places[2]),
            [Some(1), None, Some(3)],
            "another shard is not synced"
        );
        write(&backend, "a", 7, buffered);
        backend.close().expect("close");
        disk.cut_power();
        let backend = MemoryBackend::open(&disk);
        assert_eq!(read(&backend, places[2], "a"), Some(7), "a close syncs");
    }
}

#[test]
fn pages_that_end_early_are_joined_up_to_the_limit() {
    let backend = MemoryBackend::open(&MemoryDisk::new(Character::Distributed));
    let partition = Partition::space(Space(1), 0);
    let row = |n: u16| RowChange {
        key: Bytes::copy_from_slice(&n.to_be_bytes()),
        value: Some(Bytes::from_static(&[7; 8])),
    };
    let rows: Vec<RowChange> = (0..300).map(row).collect();
    backend
        .write(partition, &rows, Stamp(1), Durability::Synced)
        .expect("write");
    let joined = |direction, rows_max, bytes_max| {
        let limit = PageLimit { rows_max, bytes_max };
        let page = backend
            .scan(partition, &KeyRange::ALL, direction, limit)
            .expect("scan");
        assert!(page.rows.len() < 64, "a page of many rows ends early");
        scan_to_limit(&backend, partition, &KeyRange::ALL, direction, limit).expect("scan")
    };
    for direction in [Direction::Ascending, Direction::Descending] {
        let page = joined(direction, 200, usize::MAX);
        assert_eq!((page.rows.len(), page.next.is_some()), (200, true));
        // A row has 10 bytes; the page ends after the row that exceeds the limit.
        let page = joined(direction, usize::MAX, 1_005);
        assert_eq!((page.rows.len(), page.next.is_some()), (101, true));
        let page = joined(direction, usize::MAX, usize::MAX);
        assert_eq!((page.rows.len(), page.next), (300, None));
    }
}
