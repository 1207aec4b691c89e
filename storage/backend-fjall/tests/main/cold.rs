//! The cold store: its creation, its folder, refused opens, and its independence of the hot store.
//!
//! The tests delete, move and exchange folders between two opens, and check the refusals and the readable data.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc;

use bytes::Bytes;
use tideline_backend::{Backend, BackendError, ErrorKind, Health, Partition, Row, SegmentRef, Shard};
use tideline_backend_fjall::{FjallBackend, FjallOptions, verify};
use tideline_model::{Durability, GroupId, SegmentId, SequenceNumber, Tier};

use crate::test_folder::*;

const ACCEPTING: fn() -> FjallOptions = || FjallOptions {
    accept_loss: true,
    ..options()
};

fn cold_segment(segment: u64) -> SegmentRef {
    SegmentRef {
        segment: SegmentId(segment),
        ..COLD
    }
}

fn in_folder(cold: &TestFolder) -> FjallOptions {
    FjallOptions {
        cold_dir: Some(cold.path().to_owned()),
        ..options()
    }
}

fn rows_of(backend: &FjallBackend, segment: SegmentRef) -> usize {
    count(backend, Partition::segment(segment, 0)).expect("scan")
}

/// Returns a data folder with a segment in each tier, and its separate cold folder.
fn filled() -> (TestFolder, TestFolder) {
    let (test_folder, cold) = (TestFolder::new(), TestFolder::new());
    let backend = test_folder.open_with(in_folder(&cold)).expect("open");
    load(&backend, SEGMENT);
    load(&backend, COLD);
    backend.close().expect("close");
    (test_folder, cold)
}

fn refusal(test_folder: &TestFolder, options: FjallOptions) -> BackendError {
    test_folder.open_with(options).expect_err("a refusal")
}

/// Returns the disk space of a folder, in bytes.
fn occupied(folder: &Path) -> u64 {
    let blocks = files(folder)
        .into_iter()
        .map(|path| fs::metadata(path).expect("metadata").blocks());
    blocks.sum::<u64>() * 512
}

#[test]
fn a_folder_of_format_1_opens_and_is_kept_until_the_first_cold_segment() {
    let test_folder = TestFolder::unpack(include_bytes!("../../golden/format-1.folder"));
    let shard = Shard(0);
    for _ in 0..2 {
        assert_eq!(
            verify(test_folder.path(), None).expect("verify").findings,
            Vec::<String>::new()
        );
        let backend = test_folder.open().expect("open");
        assert_eq!(backend.health(), Health::Ready);
        assert_eq!(count(&backend, ROWS).expect("scan"), 20);
        assert_eq!(rows_of(&backend, SEGMENT), 10);
        assert_eq!(backend.segments(SHARD).expect("segments"), [SEGMENT]);
        assert_eq!(backend.manifest(shard).expect("manifest").rows.len(), 1);
        let epochs = backend.epochs(shard).expect("epochs");
        assert_eq!(replay(&backend, epochs[0].epoch), [1, 2, 3, 4, 5]);
        assert_eq!(backend.usage().cold_bytes, 0);
        backend.reclaim(COLD).expect("there is nothing");
        backend.close().expect("close");
        let format = fs::read_to_string(test_folder.path().join("FORMAT")).expect("read");
        assert_eq!(format, "tideline-fjall 1\n");
        assert!(!test_folder.path().join("cold").exists());
    }
    let backend = test_folder.open().expect("open");
    load(&backend, COLD);
    backend.close().expect("close");
    let format = fs::read_to_string(test_folder.path().join("FORMAT")).expect("read");
    assert!(format.starts_with("tideline-fjall 2\nfolder "), "{format}");
    let backend = test_folder.open().expect("open");
    assert_eq!(backend.segments(SHARD).expect("segments"), [SEGMENT, COLD]);
    assert_eq!(rows_of(&backend, COLD), 100);
    assert_eq!(count(&backend, ROWS).expect("scan"), 20);
}

#[test]
fn both_tiers_are_there_after_a_crash() {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    load(&backend, SEGMENT);
    load(&backend, COLD);
    load(&backend, cold_segment(7));
    backend.reclaim(COLD).expect("reclaim");
    for _ in 0..2 {
        let clone = test_folder.clone_as_after_a_crash();
        let restarted = clone.open().expect("open");
        assert_eq!(restarted.health(), Health::Ready);
        assert_eq!(
            restarted.segments(SHARD).expect("segments"),
            [SEGMENT, cold_segment(7)]
        );
        load(&restarted, cold_segment(8));
        restarted.close().expect("close");
        let again = clone.open().expect("open");
        assert_eq!(rows_of(&again, cold_segment(8)), 100);
        assert_eq!(rows_of(&again, SEGMENT), 100);
    }
}

#[test]
fn an_empty_cold_store_costs_next_to_nothing() {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    let before = backend.usage();
    load(&backend, COLD);
    backend.reclaim(COLD).expect("reclaim");
    assert_eq!(backend.segments(SHARD).expect("segments"), []);
    let usage = backend.usage();
    assert!(usage.cold_bytes < 64 << 10, "{usage:?}");
    assert!(usage.hot_bytes < before.hot_bytes + (64 << 10), "{usage:?}");
    backend.close().expect("close");
    let bytes = occupied(&test_folder.path().join("cold"));
    assert!(bytes < 256 << 10, "{bytes}");
}

#[test]
fn a_kill_while_it_is_made_leaves_a_folder_that_opens() {
    let (test_folder, cold) = filled();
    let format = fs::read(test_folder.path().join("FORMAT")).expect("read");
    let owner = fs::read(cold.path().join("FORMAT")).expect("read");
    // Steps completed before the kill.
    for step in 0..=4 {
        let fresh = TestFolder::new();
        let backend = fresh.open().expect("open");
        load(&backend, SEGMENT);
        backend.close().expect("close");
        let made = fresh.path().join("cold");
        if step >= 1 {
            fs::write(fresh.path().join("FORMAT"), &format).expect("write");
        }
        if step >= 2 {
            fs::create_dir(&made).expect("a folder");
            fs::write(made.join("LOCK"), b"").expect("write");
            fs::write(made.join("FORMAT.new"), b"tide").expect("write");
        }
        if step >= 3 {
            fs::write(made.join("FORMAT"), &owner).expect("write");
            fs::create_dir_all(made.join("store.creating/keyspaces")).expect("a folder");
            fs::write(made.join("store.creating/lock"), b"").expect("write");
        }
        if step >= 4 {
            for name in ["COLD_KEYSPACES", "COLD_KEYSPACES.copy"] {
                // As written before the rename: the list names no group.
                let empty = empty_list();
                fs::write(fresh.path().join(name), empty).expect("write");
            }
        }
        assert_eq!(
            verify(fresh.path(), None).expect("verify").findings,
            Vec::<String>::new(),
            "step {step}"
        );
        for _ in 0..2 {
            let backend = fresh.open().expect("open");
            assert_eq!(
                backend.segments(SHARD).expect("segments"),
                [SEGMENT],
                "step {step}"
            );
            backend.close().expect("close");
        }
        let backend = fresh.open().expect("open");
        load(&backend, COLD);
        backend.close().expect("close");
        assert!(!made.join("store.creating").exists());
        let backend = fresh.open().expect("open");
        assert_eq!(rows_of(&backend, COLD), 100, "step {step}");
    }
}

/// Returns the list of a cold store that was created and is empty.
fn empty_list() -> Vec<u8> {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    load(&backend, COLD);
    backend.reclaim(COLD).expect("reclaim");
    backend.close().expect("close");
    fs::read(test_folder.path().join("COLD_KEYSPACES")).expect("read")
}

#[test]
fn a_cold_folder_that_is_gone_is_missed() {
    let (test_folder, cold) = filled();
    let elsewhere = TestFolder::new();
    fs::rename(cold.path(), elsewhere.path().join("moved")).expect("unmount");
    let options = in_folder(&cold);
    let refused = refusal(&test_folder, options.clone());
    assert_eq!(refused.kind(), ErrorKind::Misconfigured);
    assert!(refused.to_string().contains("mount its disk"), "{refused}");

    // The mount point exists, but its disk is not mounted.
    fs::create_dir(cold.path()).expect("a folder");
    for options in [options.clone(), crate::test_folder::options()] {
        let refused = refusal(&test_folder, options);
        assert_eq!(refused.kind(), ErrorKind::Misconfigured);
        assert!(
            refused.to_string().contains("1 keyspaces of segments or parts"),
            "{refused}"
        );
    }
    let report = verify(test_folder.path(), Some(cold.path())).expect("verify");
    assert_eq!(report.findings.len(), 1, "{report:?}");
    assert_eq!(
        fs::read_dir(cold.path()).expect("read").count(),
        0,
        "nothing is made"
    );

    let moved = FjallOptions {
        cold_dir: Some(elsewhere.path().join("moved")),
        ..options
    };
    let backend = test_folder
        .open_with(moved.clone())
        .expect("it may be moved as a whole");
    assert_eq!(rows_of(&backend, COLD), 100);
    load(&backend, cold_segment(7));
    backend.close().expect("close");
    let backend = test_folder.open_with(moved).expect("open");
    assert_eq!(
        backend.segments(SHARD).expect("segments"),
        [SEGMENT, COLD, cold_segment(7)]
    );
}

#[test]
fn the_loss_of_the_cold_folder_can_be_accepted() {
    let (test_folder, cold) = filled();
    for entry in fs::read_dir(cold.path()).expect("read") {
        let path = entry.expect("an entry").path();
        let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
    }
    let accepting = FjallOptions {
        accept_loss: true,
        ..in_folder(&cold)
    };
    assert_eq!(
        refusal(&test_folder, in_folder(&cold)).kind(),
        ErrorKind::Misconfigured
    );
    let backend = test_folder.open_with(accepting).expect("an operator accepts");
    assert_eq!(backend.health(), Health::Ready);
    assert_eq!(backend.segments(SHARD).expect("segments"), [SEGMENT]);
    backend.close().expect("close");
    let backend = test_folder.open_with(in_folder(&cold)).expect("for good");
    load(&backend, cold_segment(9));
    backend.close().expect("close");
    let backend = test_folder.open_with(in_folder(&cold)).expect("open");
    assert_eq!(
        backend.segments(SHARD).expect("segments"),
        [SEGMENT, cold_segment(9)]
    );
}

#[test]
fn the_folder_of_another_is_refused() {
    let (test_folder, cold) = filled();
    let (other, _other_cold) = filled();
    for options in [
        in_folder(&cold),
        FjallOptions {
            accept_loss: true,
            ..in_folder(&cold)
        },
    ] {
        let refused = refusal(&other, options);
        assert_eq!(refused.kind(), ErrorKind::Misconfigured);
        assert!(refused.to_string().contains("is the cold folder of"), "{refused}");
    }
    let fresh = TestFolder::new();
    assert_eq!(refusal(&fresh, in_folder(&cold)).kind(), ErrorKind::Misconfigured);
    let backend = fresh.open().expect("without it");
    backend.close().expect("close");

    for data_folder in [&test_folder, &fresh] {
        let refused = refusal(&fresh, in_folder(data_folder));
        assert_eq!(
            refused.kind(),
            ErrorKind::Misconfigured,
            "a data folder is no cold folder"
        );
    }
    fs::remove_file(cold.path().join("FORMAT")).expect("remove");
    for options in [in_folder(&cold), ACCEPTING()] {
        let options = FjallOptions {
            cold_dir: Some(cold.path().to_owned()),
            ..options
        };
        assert_eq!(
            refusal(&test_folder, options).kind(),
            ErrorKind::Corrupt,
            "a store without an owner"
        );
    }
}

#[test]
fn two_data_folders_cannot_use_one_cold_folder_at_once() {
    let (test_folder, cold) = filled();
    let clone = test_folder.clone_as_after_a_crash();
    let backend = test_folder.open_with(in_folder(&cold)).expect("open");
    let refused = refusal(&clone, in_folder(&cold));
    assert_eq!(refused.kind(), ErrorKind::Misconfigured);
    assert!(refused.to_string().contains("is using"), "{refused}");
    assert_eq!(
        verify(clone.path(), Some(cold.path()))
            .expect_err("in use")
            .kind(),
        ErrorKind::Misconfigured
    );
    backend.close().expect("close");
    clone.open_with(in_folder(&cold)).expect("free after close");
}

#[test]
fn an_older_copy_of_the_cold_folder_is_read_only() {
    let (test_folder, cold) = filled();
    let older = cold.clone_as_after_a_crash();
    let backend = test_folder.open_with(in_folder(&cold)).expect("open");
    load(&backend, cold_segment(7));
    backend.close().expect("close");
    let degraded = test_folder.open_with(in_folder(&older)).expect("open");
    for tier in Tier::KEPT {
        let Health::ReadOnly { reason } = degraded.tier_health(tier) else {
            panic!("{:?}", degraded.tier_health(tier));
        };
        assert!(reason.contains("1 of 2 loads"), "{reason}");
    }
    drop(degraded);
    let backend = test_folder.open_with(in_folder(&cold)).expect("open");
    assert_eq!(backend.health(), Health::Ready);
    backend.close().expect("close");
    let accepting = FjallOptions {
        accept_loss: true,
        ..in_folder(&older)
    };
    drop(test_folder.open_with(accepting).expect("open"));
    let backend = test_folder.open_with(in_folder(&older)).expect("open");
    assert_eq!(backend.health(), Health::Ready);
    load(&backend, cold_segment(8));
}

#[test]
fn where_nothing_cold_is_left_nothing_can_be_missing() {
    let (test_folder, cold) = filled();
    let older = cold.clone_as_after_a_crash();
    let backend = test_folder.open_with(in_folder(&cold)).expect("open");
    load(&backend, cold_segment(7));
    for segment in [COLD, cold_segment(7)] {
        backend.reclaim(segment).expect("reclaim");
    }
    backend.close().expect("close");
    let empty = TestFolder::new();
    let backend = test_folder
        .open_with(in_folder(&empty))
        .expect("an empty folder will do");
    assert_eq!(backend.health(), Health::Ready);
    load(&backend, cold_segment(8));
    backend.close().expect("close");
    let again = test_folder.open_with(in_folder(&empty)).expect("open");
    assert_eq!(again.health(), Health::Ready);
    assert_eq!(rows_of(&again, cold_segment(8)), 100);
    drop(again);
    assert!(matches!(
        test_folder
            .open_with(in_folder(&older))
            .map(|backend| backend.health()),
        Err(BackendError::Corrupt { .. }) | Ok(Health::ReadOnly { .. })
    ));
}

#[test]
fn caches_are_apart() {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    load(&backend, SEGMENT);
    load(&backend, COLD);
    assert_eq!(rows_of(&backend, SEGMENT), 100);
    let before = backend.usage();
    assert_eq!(rows_of(&backend, COLD), 100);
    let after = backend.usage();
    assert_eq!(rows_of(&backend, COLD), 100);
    assert_eq!(backend.usage(), after, "nothing is read twice");
    assert_eq!(after.hot_cache, before.hot_cache);
    assert_eq!(before.cold_cache.misses, 0);
    assert!(after.cold_cache.misses > 0, "{after:?}");
    assert!(after.cold_cache.read_bytes > 100_000, "{after:?}");
    assert!(after.cold_cache.used_bytes > 100_000, "{after:?}");
    assert_eq!(after.cold_cache.capacity_bytes, options().cold_cache_bytes);
    assert_eq!(after.hot_cache.capacity_bytes, options().cache_bytes);
    backend.reclaim(COLD).expect("reclaim");
    assert_eq!(backend.usage().cold_cache.misses, after.cold_cache.misses);
}

#[test]
fn a_failed_load_leaves_no_tables_behind() {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    for (kept, failed) in [(SEGMENT, 50), (COLD, 51)] {
        load(&backend, kept);
        let before = backend.usage().data_bytes;
        let failed = SegmentRef {
            segment: SegmentId(failed),
            ..kept
        };
        let mut rows = (0..2_000_u64).map(|n| match n {
            1_999 => Err(BackendError::corrupt("the source of rows failed")),
            n => Ok(Row {
                key: Bytes::copy_from_slice(&n.to_be_bytes()),
                value: Bytes::from(vec![n as u8; 10_000]),
            }),
        });
        let refused = backend.load(failed, 0, &mut rows).expect_err("the rows' error");
        assert_eq!(refused.kind(), ErrorKind::Corrupt);
        let after = backend.usage().data_bytes;
        assert!(after < before + 100_000, "{before} {after}");
        assert_eq!(rows_of(&backend, failed), 0);
        assert_eq!(rows_of(&backend, kept), 100);
    }
    backend.close().expect("close");
    for store in ["store", "cold/store"] {
        let bytes = occupied(&test_folder.path().join(store).join("keyspaces"));
        assert!(bytes < 300 << 10, "{bytes} bytes in {store}");
    }
}

#[test]
fn a_close_ends_a_load() {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    load(&backend, COLD);
    let (started, has_started) = mpsc::channel();
    std::thread::scope(|scope| {
        let backend = &backend;
        let loading = scope.spawn(move || {
            let mut rows = (0_u64..).map(|n| {
                if n == 300 {
                    started.send(()).expect("the test waits");
                }
                Ok(Row {
                    key: Bytes::copy_from_slice(&n.to_be_bytes()),
                    value: Bytes::from(vec![n as u8; 10_000]),
                })
            });
            backend.load(cold_segment(7), 0, &mut rows)
        });
        has_started.recv().expect("the load runs");
        backend.close().expect("close");
        let ended = loading.join().expect("no panic").expect_err("it was ended");
        assert_eq!(ended.kind(), ErrorKind::Refused);
    });
    let again = test_folder.open().expect("open");
    assert_eq!(again.health(), Health::Ready);
    assert_eq!(rows_of(&again, COLD), 100);
    again.reclaim(cold_segment(7)).expect("a sweep frees the rest");
    assert_eq!(again.segments(SHARD).expect("segments"), [COLD]);
}

#[test]
fn hot_and_cold_may_have_groups_of_one_number() {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    let hot = SegmentRef {
        segment: SegmentId(1),
        group: GroupId(1),
        tier: Tier::Hot,
    };
    let cold = SegmentRef {
        tier: Tier::Cold,
        ..hot
    };
    load(&backend, hot);
    assert_eq!(rows_of(&backend, cold), 0);
    load(&backend, cold);
    backend.reclaim(hot).expect("reclaim");
    assert_eq!(backend.segments(SHARD).expect("segments"), [cold]);
    assert_eq!(rows_of(&backend, cold), 100);
}

#[test]
fn hot_writes_go_on_while_a_cold_load_waits() {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    let epoch = backend.take(SHARD).expect("take").epoch;
    let mut sequence = 0;
    let mut rows = (0..3_u64).map(|n| {
        // Between two rows of the load, all other operations succeed.
        sequence += 1;
        append(&backend, epoch, sequence, Durability::Synced);
        write(&backend, sequence).expect("write");
        let edited = backend.edit(SHARD, epoch, n, &[]);
        edited.expect("edit");
        let hot = SegmentRef {
            segment: SegmentId(100 + n),
            ..SEGMENT
        };
        load(&backend, hot);
        backend.reclaim(hot).expect("reclaim");
        Ok(Row {
            key: Bytes::copy_from_slice(&n.to_be_bytes()),
            value: Bytes::from_static(b"cold"),
        })
    });
    backend.load(COLD, 0, &mut rows).expect("load");
    assert_eq!(rows_of(&backend, COLD), 3);
    backend.forget(SHARD, epoch, SequenceNumber(2)).expect("forget");
}
