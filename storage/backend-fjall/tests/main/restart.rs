//! Tests of crashes at various moments, second processes, full disks, and files that do not belong to the journal.
//!
//! Acknowledged writes must exist after each crash; torn ends are cut, and renewed files replace doubtful files.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use bytes::Bytes;
use tideline_backend::{
    Backend, EditOutcome, ErrorKind, Health, ManifestChange, ManifestKind, ManifestRow, Partition,
};
use tideline_backend_fjall::FjallOptions;
use tideline_model::{Durability, SequenceNumber};

use crate::test_folder::*;

#[test]
fn a_second_open_is_refused_and_names_the_holder() {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    let refused = test_folder.open().expect_err("in use");
    assert_eq!(refused.kind(), ErrorKind::Misconfigured);
    let holder = format!("process {}", std::process::id());
    assert!(refused.to_string().contains(&holder), "{refused}");
    write(&backend, 1).expect("the first is not disturbed");
    backend.close().expect("close");
    test_folder.open().expect("free after close");
}

#[test]
fn what_was_acknowledged_is_there_after_a_crash() {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    let epoch = backend.take(SHARD).expect("take").epoch;
    for n in 0..50 {
        append(&backend, epoch, n + 1, Durability::Synced);
        write(&backend, n).expect("write");
    }
    load(&backend, SEGMENT);
    append(&backend, epoch, 51, Durability::Buffered);
    for _ in 0..2 {
        let clone = test_folder.clone_as_after_a_crash();
        let restarted = clone.open().expect("open");
        assert_eq!(restarted.health(), Health::Ready);
        assert_eq!(replay(&restarted, epoch), (1..=51).collect::<Vec<_>>());
        assert_eq!(count(&restarted, ROWS).expect("scan"), 50);
        assert_eq!(
            count(&restarted, Partition::segment(SEGMENT, 0)).expect("scan"),
            100
        );
        // The same epoch continues in a new file.
        append(&restarted, epoch, 60, Durability::Synced);
        restarted.close().expect("close");
        let again = clone.open().expect("open");
        assert_eq!(replay(&again, epoch).last(), Some(&60));
        assert_eq!(replay(&again, epoch).len(), 52);
    }
}

#[test]
fn a_crash_in_the_first_boot_leaves_a_folder_that_opens() {
    let test_folder = TestFolder::new();
    let creating = test_folder.path().join("store.creating");
    fs::create_dir_all(creating.join("keyspaces")).expect("a folder");
    fs::write(creating.join("lock"), b"").expect("a file");
    let backend = test_folder.open().expect("open");
    write(&backend, 1).expect("write");
    assert!(!creating.exists());
    backend.close().expect("close");
    assert!(!test_folder.path().join("safety").exists());
}

#[test]
fn a_first_boot_killed_before_the_first_mark_opens() {
    // Earlier builds created the file of the high-water mark first and wrote to it later.
    for content in [Vec::new(), vec![0; 4_096], vec![0; 8_192]] {
        let test_folder = TestFolder::new();
        drop(test_folder.open().expect("open"));
        fs::write(test_folder.path().join("highwater"), &content).expect("write");
        let backend = test_folder.open().expect("open");
        assert_eq!(backend.health(), Health::Ready, "{} zeros", content.len());
        write(&backend, 1).expect("write");
        backend.close().expect("close");
        // After an acknowledged write, the same file is reported as a loss.
        fs::write(test_folder.path().join("highwater"), &content).expect("write");
        let degraded = test_folder.open().expect("open");
        assert!(matches!(degraded.health(), Health::ReadOnly { .. }));
    }
}

/// Returns path, inode number and content of each log, journal file and pointer.
fn found_files(test_folder: &TestFolder) -> Vec<(PathBuf, u64, Vec<u8>)> {
    let mut found = files(test_folder.path());
    found.retain(|path| {
        let is_log = path
            .extension()
            .is_some_and(|end| end == "jnl" || end == "journal");
        is_log || path.ends_with("current")
    });
    found.sort();
    let read = |path: PathBuf| {
        let number = fs::metadata(&path).expect("metadata").ino();
        let mut content = fs::read(&path).expect("read");
        let end = content.iter().rposition(|byte| *byte != 0);
        content.truncate(end.map_or(0, |last| last + 1));
        (path, number, content)
    };
    found.into_iter().map(read).collect()
}

/// Returns files that exist only during a renewal.
fn unfinished(test_folder: &TestFolder) -> Vec<PathBuf> {
    let mut found = files(test_folder.path());
    found.retain(|path| {
        let name = path.to_string_lossy();
        name.ends_with(".new") || name.ends_with(".end") || path.ends_with("._renewed")
    });
    found
}

#[test]
fn logs_that_are_found_are_copied_before_they_are_used() {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    let epoch = backend.take(SHARD).expect("take").epoch;
    load(&backend, SEGMENT);
    load(&backend, COLD);
    for n in 1..=20 {
        append(&backend, epoch, n, Durability::Synced);
        write(&backend, n).expect("write");
    }
    for has_failed in [false, true] {
        let clone = test_folder.clone_as_after_a_crash();
        if has_failed {
            // Simulates a process that was killed after a store had failed and before it was reopened.
            for root in ["", "cold"] {
                fs::write(clone.path().join(root).join("FAILED"), "a failed sync").expect("write");
            }
        }
        let before = found_files(&clone);
        assert_eq!(before.len(), 2 + 1 + 2 * 4, "logs, a journal file, pointers");
        let restarted = clone.open().expect("open");
        let after = found_files(&clone);
        assert_eq!(before.len(), after.len());
        for (before, after) in before.iter().zip(&after) {
            let name = before.0.display();
            assert_eq!(
                (&before.0, &before.2),
                (&after.0, &after.2),
                "{name} holds the same"
            );
            let is_renewed = match before.0.extension() {
                Some(end) => end == "jnl",
                None => has_failed,
            };
            assert_eq!(before.1 != after.1, is_renewed, "whether {name} is a new file");
        }
        assert_eq!(replay(&restarted, epoch), (1..=20).collect::<Vec<_>>());
        assert_eq!(count(&restarted, ROWS).expect("scan"), 20);
        restarted.close().expect("close");
        assert_eq!(unfinished(&clone), Vec::<PathBuf>::new());
        assert!(!clone.path().join("FAILED").exists());
    }
}

#[test]
fn a_kill_while_files_are_renewed_leaves_a_folder_that_opens() {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    let epoch = backend.take(SHARD).expect("take").epoch;
    append(&backend, epoch, 1, Durability::Synced);
    write(&backend, 1).expect("write");
    let clone = test_folder.clone_as_after_a_crash();
    for (path, _, _) in found_files(&clone) {
        let mut name = path.into_os_string();
        name.push(".new");
        fs::write(name, b"half a copy").expect("write");
    }
    fs::write(clone.path().join("FAILED"), b"a failed sync").expect("write");
    fs::write(clone.path().join("store/77.jnl.new"), b"a log that is gone").expect("write");
    fs::write(clone.path().join("store/keyspaces/1/tables/._renewed"), b"").expect("write");
    let restarted = clone.open().expect("open");
    assert_eq!(restarted.health(), Health::Ready);
    assert_eq!(replay(&restarted, epoch), [1]);
    assert_eq!(count(&restarted, ROWS).expect("scan"), 1);
    restarted.close().expect("close");
    assert_eq!(unfinished(&clone), Vec::<PathBuf>::new());
}

#[test]
fn a_torn_end_is_cut() {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    let epoch = backend.take(SHARD).expect("take").epoch;
    for n in 1..=5 {
        append(&backend, epoch, n, Durability::Synced);
    }
    append(&backend, epoch, 6, Durability::Buffered);
    append(&backend, epoch, 7, Durability::Buffered);
    let whole = fs::read(test_folder.journal()).expect("read");

    // (truncate to this length, append these bytes, expected number of entries)
    let cases: [(usize, &[u8], u64); 5] = [
        (whole.len(), b"", 7),
        (whole.len(), b"half a frame", 7),
        (whole.len(), &[0; 5_000], 7),
        (whole.len() - 1, b"", 6),
        (whole.len() - 150, b"", 5),
    ];
    for (length, added, left) in cases {
        let clone = test_folder.clone_as_after_a_crash();
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

    // The first unsynced entry never reached the disk, but the second did. Neither was acknowledged as durable.
    let clone = test_folder.clone_as_after_a_crash();
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
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    let epoch = backend.take(SHARD).expect("take").epoch;
    append(&backend, epoch, 1, Durability::Synced);
    backend.cut(SHARD, epoch, SequenceNumber(2)).expect("cut");
    append(&backend, epoch, 2, Durability::Buffered);
    for length in [0, 20, 48, 60] {
        let clone = test_folder.clone_as_after_a_crash();
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
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    let epoch = backend.take(SHARD).expect("take").epoch;
    for n in 1..=5 {
        append(&backend, epoch, n, Durability::Synced);
        write(&backend, n).expect("write");
    }
    backend.close().expect("close");
    let journal = test_folder.journal();
    let file = OpenOptions::new().write(true).open(&journal).expect("open");
    let length = file.metadata().expect("metadata").len();
    file.set_len(length - 10).expect("lose the last entry");

    for _ in 0..2 {
        let degraded = test_folder.open().expect("open");
        let Health::ReadOnly { reason } = degraded.health() else {
            panic!("{:?}", degraded.health());
        };
        assert!(reason.contains("entry 5"), "{reason}");
        assert_eq!(replay(&degraded, epoch), [1, 2, 3, 4], "reads work");
        assert_eq!(count(&degraded, ROWS).expect("scan"), 5);
        let refused = write(&degraded, 6).expect_err("read-only");
        assert_eq!(refused.kind(), ErrorKind::Misconfigured);
        let next = degraded.take(SHARD).expect("readers may open the shard").epoch;
        assert!(next > epoch);
        assert!(degraded.edit(SHARD, next, 0, &[]).is_err());
    }
    let accepting = FjallOptions {
        accept_loss: true,
        ..options()
    };
    let accepted = test_folder.open_with(accepting).expect("open");
    assert_eq!(accepted.health(), Health::Ready);
    write(&accepted, 6).expect("write");
    accepted.close().expect("close");
    assert_eq!(test_folder.open().expect("open").health(), Health::Ready);
}

#[test]
fn a_forgotten_journal_is_not_missed() {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    let epoch = backend.take(SHARD).expect("take").epoch;
    append(&backend, epoch, 1, Durability::Synced);
    backend.close().expect("close");
    let backend = test_folder.open().expect("open");
    backend.forget(SHARD, epoch, SequenceNumber(2)).expect("forget");
    let clone = test_folder.clone_as_after_a_crash();
    assert_eq!(clone.open().expect("open").health(), Health::Ready);
    assert_eq!(
        fs::read_dir(test_folder.path().join("journal"))
            .expect("read")
            .count(),
        0
    );
}

#[test]
fn a_full_disk_refuses_what_takes_space_and_allows_what_frees_it() {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    let epoch = backend.take(SHARD).expect("take").epoch;
    load(&backend, SEGMENT);
    append(&backend, epoch, 1, Durability::Synced);
    backend.close().expect("close");

    let full = FjallOptions {
        free_bytes_min: u64::MAX,
        ..options()
    };
    let backend = test_folder.open_with(full).expect("open");
    assert!(matches!(backend.health(), Health::DiskLow { .. }));
    assert_eq!(
        write(&backend, 1).expect_err("full").kind(),
        ErrorKind::Unavailable
    );
    let epoch = backend.take(SHARD).expect("take").epoch;
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
    write(&test_folder.open().expect("open"), 1).expect("write");
}

#[test]
fn usage_counts_what_is_there() {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    let epoch = backend.take(SHARD).expect("take").epoch;
    assert_eq!(backend.usage().journal_bytes, 0);
    append(&backend, epoch, 1, Durability::Synced);
    load(&backend, SEGMENT);
    let usage = backend.usage();
    assert_eq!(
        usage.journal_bytes,
        fs::metadata(test_folder.journal()).expect("metadata").len()
    );
    assert!(usage.data_bytes > 100_000);
    assert!(usage.free_bytes > 0);
}

#[test]
fn rubbish_beside_the_journal_is_left_alone() {
    let test_folder = TestFolder::new();
    drop(test_folder.open().expect("open"));
    let stray = test_folder.path().join("journal").join("notes.txt");
    let mut file = fs::File::create(&stray).expect("create");
    file.write_all(b"notes").expect("write");
    drop(test_folder.open().expect("open"));
    assert!(stray.exists());
}
