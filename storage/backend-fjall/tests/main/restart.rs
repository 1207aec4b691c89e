//! Crashes at various moments, second processes, full disks.

use std::fs::{self, OpenOptions};
use std::io::Write;

use bytes::Bytes;
use tideline_backend::{
    Backend, EditOutcome, ErrorKind, Health, ManifestChange, ManifestKind, ManifestRow, Partition,
};
use tideline_backend_fjall::FjallOptions;
use tideline_model::{Durability, SequenceNumber};

use crate::place::*;

#[test]
fn a_second_open_is_refused_and_names_the_holder() {
    let place = Place::new();
    let backend = place.open().expect("open");
    let refused = place.open().expect_err("in use");
    assert_eq!(refused.kind(), ErrorKind::Misconfigured);
    let holder = format!("process {}", std::process::id());
    assert!(refused.to_string().contains(&holder), "{refused}");
    write(&backend, 1).expect("the first is not disturbed");
    backend.close().expect("close");
    place.open().expect("free after close");
}

#[test]
fn what_was_acknowledged_is_there_after_a_crash() {
    let place = Place::new();
    let backend = place.open().expect("open");
    let epoch = backend.take(SHARD).expect("take");
    for n in 0..50 {
        append(&backend, epoch, n + 1, Durability::Synced);
        write(&backend, n).expect("write");
    }
    load(&backend, SEGMENT);
    append(&backend, epoch, 51, Durability::Buffered);
    for _ in 0..2 {
        let clone = place.clone_as_after_a_crash();
        let restarted = clone.open().expect("open");
        assert_eq!(restarted.health(), Health::Ready);
        assert_eq!(replay(&restarted, epoch), (1..=51).collect::<Vec<_>>());
        assert_eq!(count(&restarted, ROWS).expect("scan"), 50);
        assert_eq!(
            count(&restarted, Partition::segment(SEGMENT, 0)).expect("scan"),
            100
        );
        // The same epoch goes on in a new file.
        append(&restarted, epoch, 60, Durability::Synced);
        restarted.close().expect("close");
        let again = clone.open().expect("open");
        assert_eq!(replay(&again, epoch).last(), Some(&60));
        assert_eq!(replay(&again, epoch).len(), 52);
    }
}

#[test]
fn a_crash_in_the_first_boot_leaves_a_folder_that_opens() {
    let place = Place::new();
    let creating = place.path().join("store.creating");
    fs::create_dir_all(creating.join("keyspaces")).expect("a folder");
    fs::write(creating.join("lock"), b"").expect("a file");
    let backend = place.open().expect("open");
    write(&backend, 1).expect("write");
    assert!(!creating.exists());
    backend.close().expect("close");
    assert!(!place.path().join("safety").exists());
}

#[test]
fn a_torn_end_is_cut() {
    let place = Place::new();
    let backend = place.open().expect("open");
    let epoch = backend.take(SHARD).expect("take");
    for n in 1..=5 {
        append(&backend, epoch, n, Durability::Synced);
    }
    append(&backend, epoch, 6, Durability::Buffered);
    append(&backend, epoch, 7, Durability::Buffered);
    let whole = fs::read(place.journal()).expect("read");

    // (cut to this length, then add these bytes) leaves so many entries.
    let cases: [(usize, &[u8], u64); 5] = [
        (whole.len(), b"", 7),
        (whole.len(), b"half a frame", 7),
        (whole.len(), &[0; 5_000], 7),
        (whole.len() - 1, b"", 6),
        (whole.len() - 150, b"", 5),
    ];
    for (length, added, left) in cases {
        let clone = place.clone_as_after_a_crash();
        let mut torn = whole[..length].to_vec();
        torn.extend_from_slice(added);
        fs::write(clone.journal(), torn).expect("tear");
        for _ in 0..2 {
            let restarted = clone.open().expect("open");
            assert_eq!(restarted.health(), Health::Ready);
            assert_eq!(replay(&restarted, epoch), (1..=left).collect::<Vec<_>>());
            restarted.close().expect("close");
        }
    }

    // The first unsynced entry never reached the disk, the second did: nobody was promised either.
    let clone = place.clone_as_after_a_crash();
    let mut torn = whole.clone();
    let from = torn.len() - 250;
    torn[from..from + 60].fill(0);
    fs::write(clone.journal(), torn).expect("tear");
    let restarted = clone.open().expect("open");
    assert_eq!(restarted.health(), Health::Ready);
    assert_eq!(replay(&restarted, epoch), [1, 2, 3, 4, 5]);
}

#[test]
fn a_file_that_was_being_created_is_removed() {
    let place = Place::new();
    let backend = place.open().expect("open");
    let epoch = backend.take(SHARD).expect("take");
    append(&backend, epoch, 1, Durability::Synced);
    backend.cut(SHARD, epoch, SequenceNumber(2)).expect("cut");
    append(&backend, epoch, 2, Durability::Buffered);
    for length in [0, 20, 48, 60] {
        let clone = place.clone_as_after_a_crash();
        let file = OpenOptions::new()
            .write(true)
            .open(clone.journal())
            .expect("open");
        file.set_len(length).expect("tear");
        let restarted = clone.open().expect("open");
        assert_eq!(replay(&restarted, epoch), [1]);
        append(&restarted, epoch, 3, Durability::Synced);
        assert_eq!(replay(&restarted, epoch), [1, 3]);
    }
}

#[test]
fn less_than_acknowledged_is_read_only_until_an_operator_accepts() {
    let place = Place::new();
    let backend = place.open().expect("open");
    let epoch = backend.take(SHARD).expect("take");
    for n in 1..=5 {
        append(&backend, epoch, n, Durability::Synced);
        write(&backend, n).expect("write");
    }
    backend.close().expect("close");
    let journal = place.journal();
    let file = OpenOptions::new().write(true).open(&journal).expect("open");
    let length = file.metadata().expect("metadata").len();
    file.set_len(length - 10).expect("lose the last entry");

    for _ in 0..2 {
        let degraded = place.open().expect("open");
        let Health::ReadOnly { reason } = degraded.health() else {
            panic!("{:?}", degraded.health());
        };
        assert!(reason.contains("entry 5"), "{reason}");
        assert_eq!(replay(&degraded, epoch), [1, 2, 3, 4], "reads work");
        assert_eq!(count(&degraded, ROWS).expect("scan"), 5);
        let refused = write(&degraded, 6).expect_err("read-only");
        assert_eq!(refused.kind(), ErrorKind::Misconfigured);
        let next = degraded.take(SHARD).expect("readers may open the shard");
        assert!(next > epoch);
        assert!(degraded.edit(SHARD, next, 0, &[]).is_err());
    }
    let accepting = FjallOptions {
        accept_loss: true,
        ..options()
    };
    let accepted = place.open_with(accepting).expect("open");
    assert_eq!(accepted.health(), Health::Ready);
    write(&accepted, 6).expect("write");
    accepted.close().expect("close");
    assert_eq!(place.open().expect("open").health(), Health::Ready);
}

#[test]
fn a_forgotten_journal_is_not_missed() {
    let place = Place::new();
    let backend = place.open().expect("open");
    let epoch = backend.take(SHARD).expect("take");
    append(&backend, epoch, 1, Durability::Synced);
    backend.close().expect("close");
    let backend = place.open().expect("open");
    backend.forget(SHARD, epoch, SequenceNumber(2)).expect("forget");
    let clone = place.clone_as_after_a_crash();
    assert_eq!(clone.open().expect("open").health(), Health::Ready);
    assert_eq!(
        fs::read_dir(place.path().join("journal")).expect("read").count(),
        0
    );
}

#[test]
fn a_full_disk_refuses_what_takes_space_and_allows_what_frees_it() {
    let place = Place::new();
    let backend = place.open().expect("open");
    let epoch = backend.take(SHARD).expect("take");
    load(&backend, SEGMENT);
    append(&backend, epoch, 1, Durability::Synced);
    backend.close().expect("close");

    let full = FjallOptions {
        free_bytes_min: u64::MAX,
        ..options()
    };
    let backend = place.open_with(full).expect("open");
    assert!(matches!(backend.health(), Health::DiskLow { .. }));
    assert_eq!(
        write(&backend, 1).expect_err("full").kind(),
        ErrorKind::Unavailable
    );
    let epoch = backend.take(SHARD).expect("take");
    let appended = backend.append(SHARD, epoch, &[], Durability::Synced);
    assert_eq!(appended.expect_err("full").kind(), ErrorKind::Unavailable);
    assert_eq!(
        count(&backend, Partition::segment(SEGMENT, 0)).expect("scan"),
        100
    );
    let row = ManifestRow {
        kind: ManifestKind::Cursor,
        name: Bytes::from_static(b"sealed"),
        detail: Bytes::from_static(b"1"),
    };
    let edited = backend.edit(SHARD, epoch, 0, &[ManifestChange::Put(row)]);
    assert_eq!(edited.expect("edit"), EditOutcome::Applied { version: 1 });
    backend.reclaim(SEGMENT).expect("reclaim");
    backend.forget(SHARD, epoch, SequenceNumber(2)).expect("forget");
    backend.close().expect("close");
    write(&place.open().expect("open"), 1).expect("write");
}

#[test]
fn usage_counts_what_is_there() {
    let place = Place::new();
    let backend = place.open().expect("open");
    let epoch = backend.take(SHARD).expect("take");
    assert_eq!(backend.usage().journal_bytes, 0);
    append(&backend, epoch, 1, Durability::Synced);
    load(&backend, SEGMENT);
    let usage = backend.usage();
    assert_eq!(
        usage.journal_bytes,
        fs::metadata(place.journal()).expect("metadata").len()
    );
    assert!(usage.data_bytes > 100_000);
    assert!(usage.free_bytes > 0);
}

#[test]
fn rubbish_beside_the_journal_is_left_alone() {
    let place = Place::new();
    drop(place.open().expect("open"));
    let stray = place.path().join("journal").join("notes.txt");
    let mut file = fs::File::create(&stray).expect("create");
    file.write_all(b"notes").expect("write");
    drop(place.open().expect("open"));
    assert!(stray.exists());
}
