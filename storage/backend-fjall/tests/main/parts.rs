//! Parts on disk: the format of the folder, crashes, a log without its end.
//!
//! Golden folders of formats 1 and 3 are opened. Most tests cover both tiers.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tideline_backend::{
    Backend, EditOutcome, ErrorKind, Health, ManifestChange, ManifestKind, ManifestRow, PartRef, Partition,
    RowChange, SegmentRef, Stamp,
};
use tideline_backend_fjall::{FjallBackend, FjallOptions, verify};
use tideline_model::{Durability, PartId, SegmentId, TableId, Tier};

use crate::test_folder::*;

const ROUNDS: u64 = 30;

fn part(tier: Tier) -> PartRef {
    PartRef {
        part: PartId(0x0a0b + tier as u64),
        table: TableId(7),
        tier,
    }
}

fn both() -> [PartRef; 2] {
    Tier::KEPT.map(part)
}

fn write_part(backend: &FjallBackend, part: PartRef, n: u64) {
    let change = RowChange {
        key: Bytes::copy_from_slice(&n.to_be_bytes()),
        value: Some(Bytes::from_static(b"a value")),
    };
    let partition = Partition::part(part, (n % 3) as u16);
    backend
        .write(partition, &[change], Stamp(n), Durability::Synced)
        .expect("write");
}

fn rows_of(backend: &FjallBackend, part: PartRef) -> u64 {
    let count = |bucket| count(backend, Partition::part(part, bucket)).expect("scan");
    (0..3).map(count).sum::<usize>() as u64
}

fn format_of(test_folder: &TestFolder) -> String {
    fs::read_to_string(test_folder.path().join("FORMAT")).expect("read")
}

fn parts_of(backend: &FjallBackend) -> Vec<PartRef> {
    backend.parts(SHARD).expect("parts")
}

#[test]
fn the_format_rises_with_the_first_part() {
    let test_folder = TestFolder::unpack(include_bytes!("../../golden/format-1.folder"));
    let backend = test_folder.open().expect("open");
    assert_eq!(parts_of(&backend), []);
    backend.reclaim_part(part(Tier::Hot)).expect("there is nothing");
    backend.reclaim_part(part(Tier::Cold)).expect("there is nothing");
    assert_eq!(rows_of(&backend, part(Tier::Hot)), 0);
    assert_eq!(format_of(&test_folder), "tideline-fjall 1\n");
    write_part(&backend, part(Tier::Hot), 1);
    assert_eq!(format_of(&test_folder), "tideline-fjall 3\n");
    load(&backend, COLD);
    let format = format_of(&test_folder);
    assert!(format.starts_with("tideline-fjall 3\nfolder "), "{format}");
    backend.close().expect("close");
    let backend = test_folder.open().expect("open");
    assert_eq!(parts_of(&backend), [part(Tier::Hot)]);
    assert_eq!(count(&backend, ROWS).expect("scan"), 20);
    assert_eq!(count(&backend, Partition::segment(COLD, 0)).expect("scan"), 100);
    write_part(&backend, part(Tier::Cold), 1);
    assert_eq!(parts_of(&backend), both());
    assert_eq!(format_of(&test_folder), format, "the folder keeps its id");
}

#[test]
fn the_format_rises_where_only_a_manifest_names_a_part() {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    load(&backend, COLD);
    let tiered = format_of(&test_folder);
    let epoch = backend.take(SHARD).expect("take").epoch;
    let named = |kind| {
        ManifestChange::Put(ManifestRow {
            kind,
            name: Bytes::from_static(b"name"),
            detail: Bytes::new(),
        })
    };
    let edit = |version, change| {
        let outcome = backend.edit(SHARD, epoch, version, &[change]).expect("edit");
        let version = version + 1;
        assert_eq!(outcome, EditOutcome::Applied { version });
    };
    edit(0, named(ManifestKind::Segment));
    assert_eq!(format_of(&test_folder), tiered);
    edit(1, named(ManifestKind::Part));
    assert_eq!(format_of(&test_folder), tiered.replace("fjall 2", "fjall 3"));
    backend.close().expect("close");
    let rows = test_folder
        .open()
        .expect("open")
        .manifest(SHARD)
        .expect("manifest")
        .rows;
    assert_eq!(rows.len(), 2);
}

#[test]
fn a_folder_of_format_3_opens() {
    let test_folder = TestFolder::unpack(include_bytes!("../../golden/format-3.folder"));
    for _ in 0..2 {
        let report = verify(test_folder.path(), None).expect("verify");
        assert_eq!(report.findings, Vec::<String>::new());
        let backend = test_folder.open().expect("open");
        assert_eq!(backend.health(), Health::Ready);
        assert_eq!(parts_of(&backend), both());
        for part in both() {
            assert_eq!(rows_of(&backend, part), 20);
        }
        assert_eq!(count(&backend, ROWS).expect("scan"), 10);
        backend.close().expect("close");
    }
    let backend = test_folder.open().expect("open");
    for part in both() {
        write_part(&backend, part, 1_000);
        assert_eq!(rows_of(&backend, part), 21);
        backend.reclaim_part(part).expect("reclaim");
    }
    assert_eq!(parts_of(&backend), []);
}

#[test]
fn acknowledged_rows_of_parts_are_there_after_a_crash() {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    for n in 1..=ROUNDS {
        write(&backend, n).expect("write");
        for part in both() {
            write_part(&backend, part, n);
        }
    }
    for _ in 0..2 {
        let clone = test_folder.clone_as_after_a_crash();
        let restarted = clone.open().expect("open");
        assert_eq!(restarted.health(), Health::Ready);
        assert_eq!(count(&restarted, ROWS).expect("scan"), ROUNDS as usize);
        for part in both() {
            assert_eq!(rows_of(&restarted, part), ROUNDS);
        }
        restarted.reclaim_part(part(Tier::Cold)).expect("reclaim");
        restarted.close().expect("close");
        let again = clone.clone_as_after_a_crash().open().expect("open");
        assert_eq!(parts_of(&again), [part(Tier::Hot)]);
    }
}

/// Returns a folder that was closed after fjall had flushed the manifest's keyspace of each tier, but not the parts.
fn stopped_after_a_flush() -> TestFolder {
    let test_folder = TestFolder::new();
    let options = FjallOptions {
        high_water_interval: Duration::from_millis(2),
        ..options()
    };
    let backend = test_folder.open_with(options).expect("open");
    for n in 1..=ROUNDS {
        both().iter().for_each(|part| write_part(&backend, *part, n));
    }
    for kept in [SEGMENT, COLD] {
        // Freeing the tables of a segment whose group stays flushes the manifest.
        let freed = SegmentRef {
            segment: SegmentId(kept.segment.0 + 100),
            ..kept
        };
        load(&backend, kept);
        load(&backend, freed);
        backend.reclaim(freed).expect("reclaim");
    }
    for (list, store) in LISTS {
        let keyspace = keyspace_of(&test_folder, list, store, "manifest");
        let deadline = Instant::now() + Duration::from_secs(60);
        while files(&keyspace.join("tables")).is_empty() {
            assert!(Instant::now() < deadline, "{} is not flushed", keyspace.display());
            std::thread::yield_now();
        }
    }
    backend.close().expect("close");
    test_folder
}

const LISTS: [(&str, &str); 2] = [("KEYSPACES", "store"), ("COLD_KEYSPACES", "cold/store")];

fn keyspace_of(test_folder: &TestFolder, list: &str, store: &str, name: &str) -> std::path::PathBuf {
    let list = fs::read_to_string(test_folder.path().join(list)).expect("a list");
    let mut lines = list.lines().filter_map(|line| line.split_once(' '));
    let listed = lines.find(|(_, listed)| *listed == name);
    let (number, _) = listed.expect("it is listed");
    test_folder.path().join(store).join("keyspaces").join(number)
}

#[test]
fn a_log_without_its_end_is_noticed_although_only_parts_are_missing() {
    let test_folder = stopped_after_a_flush();
    for (_, store) in LISTS {
        let log = Path::new(store).join("0.jnl");
        let content = fs::read(test_folder.path().join(&log)).expect("read");
        let end = content.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
        for n in 0..=24 {
            let at = end * n / 24;
            let clone = test_folder.clone_as_after_a_crash();
            fs::write(clone.path().join(&log), &content[..at]).expect("truncate");
            let what = format!("{store}: log of {end} bytes ends at {at}");
            let backend = clone.open().expect("a log without damage opens");
            match backend.health() {
                Health::Ready => {
                    for part in both() {
                        assert_eq!(rows_of(&backend, part), ROUNDS, "{what}");
                    }
                }
                Health::ReadOnly { .. } => assert!(n < 24, "{what}: nothing is missing"),
                health => panic!("{what}: {health:?}"),
            }
        }
    }
}

#[test]
fn an_accepted_loss_of_parts_is_not_reported_again() {
    for (_, store) in LISTS {
        let test_folder = stopped_after_a_flush();
        fs::write(test_folder.path().join(store).join("0.jnl"), b"").expect("truncate");
        let backend = test_folder.open().expect("open");
        let Health::ReadOnly { reason } = backend.health() else {
            panic!("{store}: {:?}", backend.health());
        };
        assert!(reason.contains("keyspace"), "{store}: {reason}");
        let refused = backend.reclaim_part(part(Tier::Cold)).expect_err("read-only");
        assert_eq!(refused.kind(), ErrorKind::Misconfigured);
        drop(backend);
        let accepting = FjallOptions {
            accept_loss: true,
            ..options()
        };
        drop(test_folder.open_with(accepting).expect("an operator accepts"));
        for n in 1..=2 {
            let backend = test_folder.open().expect("open");
            assert_eq!(backend.health(), Health::Ready, "{store}");
            both().iter().for_each(|part| write_part(&backend, *part, n));
            backend.close().expect("close");
        }
    }
}

#[test]
fn a_missing_keyspace_of_parts_is_refused() {
    let test_folder = stopped_after_a_flush();
    for (list, store) in LISTS {
        let clone = test_folder.clone_as_after_a_crash();
        let keyspace = keyspace_of(&clone, list, store, "parts");
        fs::remove_dir_all(keyspace).expect("remove");
        assert_eq!(clone.open().expect_err("missing").kind(), ErrorKind::Corrupt);
    }
    fs::remove_dir_all(test_folder.path().join("cold/store")).expect("remove");
    let refused = test_folder.open().expect_err("the cold store is gone");
    assert_eq!(refused.kind(), ErrorKind::Misconfigured);
}
