//! Damaged files: opening the folder is refused or results in a read-only backend, and a loss is never silent.
//!
//! Bytes are flipped, zeroed and cut off at offsets spread over each kind of file. An accepted loss is checked against
//! its report, and is not reported again.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tideline_backend::conformance::value_of;
use tideline_backend::{Backend, Epoch, ErrorKind, Health, Partition, SegmentRef};
use tideline_backend_fjall::{FjallOptions, verify};
use tideline_model::{Durability, SegmentId, SequenceNumber};

use crate::test_folder::*;

const ENTRIES: u64 = 30;
/// Stores of both tiers, inside a data folder.
const STORES: [&str; 2] = ["store", "cold/store"];

/// Change of a file's bytes.
type Damage<'a> = &'a dyn Fn(&mut Vec<u8>);

/// Removal of data from a data folder.
type Loss<'a> = &'a dyn Fn(&TestFolder);

/// Returns a data folder with rows, a segment in each tier and a journal, closed cleanly or as after a crash.
fn filled(is_crashed: bool) -> (TestFolder, Epoch) {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    let epoch = backend.take(SHARD).expect("take").epoch;
    load(&backend, SEGMENT);
    // Each load is counted in fjall's log. Only a batch before another batch can be recognized as damaged.
    for bucket in [6, 5, 4, 3, 2, 1, 0] {
        load_bucket(&backend, COLD, bucket);
    }
    for n in 1..=ENTRIES {
        append(&backend, epoch, n, Durability::Synced);
        write(&backend, n).expect("write");
    }
    backend.close().expect("close");
    if is_crashed {
        // The high-water mark is on the disk. The folder is cloned while the backend is open again, so that no close
        // flushes later changes.
        let backend = test_folder.open().expect("open");
        backend.health();
        return (test_folder.clone_as_after_a_crash(), epoch);
    }
    (test_folder, epoch)
}

/// Opens a damaged data folder, and checks that the damage is reported or that nothing is missing. Returns true if the
/// damage is reported.
fn assert_not_silent(test_folder: &TestFolder, epoch: Epoch, what: &str) -> bool {
    let verified = verify(test_folder.path(), None).expect("verify");
    let before = state(test_folder.path()).expect("look");
    let backend = match test_folder.open() {
        Err(error) => {
            assert!(
                matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Misconfigured),
                "{what}: {error}"
            );
            // fjall itself detects a table that cannot be opened, but may have changed files before that.
            let is_unchanged = state(test_folder.path()).expect("look") == before;
            assert!(is_unchanged || what.contains("/tables/"), "{what}");
            return true;
        }
        Ok(backend) => backend,
    };
    assert!(verified.findings.is_empty(), "{what}: {:?}", verified.findings);
    if matches!(backend.health(), Health::ReadOnly { .. }) {
        backend.close().expect("close");
        assert!(state(test_folder.path()).expect("look") == before, "{what}");
        return true;
    }
    assert_eq!(backend.health(), Health::Ready, "{what}");
    assert_eq!(
        replay(&backend, epoch),
        (1..=ENTRIES).collect::<Vec<_>>(),
        "{what}"
    );
    for (partition, rows) in [
        (ROWS, ENTRIES as usize),
        (Partition::segment(SEGMENT, 0), 100),
        (Partition::segment(COLD, 0), 100),
    ] {
        match count(&backend, partition) {
            Ok(found) => assert_eq!(found, rows, "{what}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}"),
        }
    }
    false
}

/// Applies each kind of damage at offsets spread over a file, each to a new clone. Returns the number of reported
/// damages and the number of trials.
fn damage_everywhere(
    test_folder: &TestFolder,
    epoch: Epoch,
    file: &Path,
    positions: usize,
) -> (usize, usize) {
    let content = fs::read(file).expect("read");
    let inside = file.strip_prefix(test_folder.path()).expect("inside");
    // fjall's logs are mostly a hole, in which damage has no effect.
    let end = content
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    let (mut noticed, mut trials) = (0, 0);
    for n in 0..positions {
        let at = n * end / positions;
        let kinds: [(&str, Damage<'_>); 3] = [
            ("flipped", &|bytes| bytes[at] ^= 1 << (n % 8)),
            ("zeroed", &|bytes| {
                let to = (at + 64).min(end);
                bytes[at..to].fill(0);
            }),
            ("truncated", &|bytes| bytes.truncate(at)),
        ];
        for (kind, damage) in kinds {
            let mut damaged = content.clone();
            damage(&mut damaged);
            if damaged == content {
                continue;
            }
            let clone = test_folder.clone_as_after_a_crash();
            fs::write(clone.path().join(inside), &damaged).expect("damage");
            let what = format!("{} {kind} at byte {at} of {end}", inside.display());
            noticed += usize::from(assert_not_silent(&clone, epoch, &what));
            trials += 1;
        }
    }
    (noticed, trials)
}

#[test]
fn a_damaged_journal_is_noticed() {
    let (test_folder, epoch) = filled(false);
    let (noticed, trials) = damage_everywhere(&test_folder, epoch, &test_folder.journal(), 12);
    assert_eq!(noticed, trials, "everything in it had been acknowledged");
}

#[test]
fn damaged_version_files_are_refused_and_delete_nothing() {
    let (test_folder, epoch) = filled(false);
    for store in STORES {
        let keyspaces = Path::new(store).join("keyspaces");
        let currents = files(&test_folder.path().join(&keyspaces))
            .into_iter()
            .filter(|path| path.ends_with("current"));
        let names = currents.flat_map(|current| {
            let version = fs::read(&current).expect("read")[0];
            let version = current.with_file_name(format!("v{version}"));
            [current, version]
        });
        let mut trials = 0;
        for file in names {
            let (noticed, tried) = damage_everywhere(&test_folder, epoch, &file, 3);
            assert_eq!(noticed, tried, "{}", file.display());
            trials += tried;

            let clone = test_folder.clone_as_after_a_crash();
            let damaged = clone
                .path()
                .join(file.strip_prefix(test_folder.path()).expect("inside"));
            let mut content = fs::read(&damaged).expect("read");
            content[0] ^= 1;
            fs::write(&damaged, content).expect("damage");
            let before = files(&clone.path().join(&keyspaces)).len();
            assert_eq!(clone.open().expect_err("damaged").kind(), ErrorKind::Corrupt);
            assert_eq!(files(&clone.path().join(&keyspaces)).len(), before);
        }
        assert!(trials > 30, "{trials} trials in {store}");
    }
}

#[test]
fn a_damaged_log_of_fjall_is_noticed() {
    let (test_folder, epoch) = filled(true);
    for store in STORES {
        let log = files(&test_folder.path().join(store));
        let log = log
            .iter()
            .find(|path| path.extension().is_some_and(|name| name == "jnl"));
        let (noticed, trials) = damage_everywhere(&test_folder, epoch, log.expect("a log"), 12);
        assert!(trials > 30, "{trials} trials in {store}");
        assert_eq!(noticed, trials, "everything in it had been acknowledged");
    }
}

/// Returns the options of a start at which an operator accepts a loss.
fn accepting() -> FjallOptions {
    FjallOptions {
        accept_loss: true,
        ..options()
    }
}

/// Returns the number that follows `before` in `text`.
fn number_after(text: &str, before: &str) -> u64 {
    let at = text
        .find(before)
        .unwrap_or_else(|| panic!("no {before:?} in {text}"));
    let digits: String = text[at + before.len()..]
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    digits
        .parse()
        .unwrap_or_else(|_| panic!("no number after {before:?} in {text}"))
}

/// Zeroes bytes in the middle of a file, as a failed write-back leaves them. Returns their range.
fn make_hole(path: &Path) -> (u64, u64) {
    let mut content = fs::read(path).expect("read");
    let end = content.iter().rposition(|byte| *byte != 0).expect("no hole") + 1;
    let hole = end / 2..end / 2 + (end / 4).min(200);
    content[hole.clone()].fill(0);
    fs::write(path, content).expect("damage");
    (hole.start as u64, hole.end as u64)
}

/// Checks that the range of unreadable bytes in a report covers the hole. The range also covers the records that the
/// hole damaged: less than 400 bytes on each side.
fn assert_reports_hole(report: &str, (start, end): (u64, u64)) {
    let from = number_after(report, "unreadable bytes ");
    let to = number_after(report, &format!("unreadable bytes {from} to "));
    assert!(from <= start && start - from < 400, "{start} in {report}");
    assert!(to >= end && to - end < 400, "{end} in {report}");
}

#[test]
fn a_hole_in_a_log_of_fjall_is_cut_when_the_loss_is_accepted() {
    let (test_folder, _) = filled(true);
    for (store, root) in [("store", ""), ("cold/store", "cold")] {
        let clone = test_folder.clone_as_after_a_crash();
        let whole = verify(clone.path(), None).expect("verify");
        let log = clone.path().join(store).join("0.jnl");
        let hole = make_hole(&log);
        let damaged = fs::read(&log).expect("read");
        let report = verify(clone.path(), None).expect("verify");
        assert_eq!(report.findings.len(), 1, "{report:?}");
        assert_reports_hole(&report.findings[0], hole);

        let refused = clone.open().expect_err("damaged");
        assert_eq!(refused.kind(), ErrorKind::Corrupt);
        assert!(refused.to_string().contains("accept_loss"), "{refused}");
        assert_eq!(
            fs::read(&log).expect("read"),
            damaged,
            "a refusal changes nothing"
        );

        let accepted = clone.open_with(accepting()).expect("an operator accepts");
        assert_eq!(accepted.health(), Health::Ready);
        let rows = count(&accepted, ROWS).expect("scan");
        if store == "store" {
            assert!(
                (1..ENTRIES as usize).contains(&rows),
                "{rows} rows before the hole"
            );
            for n in 1..=ENTRIES {
                let row = value_of(&accepted, ROWS, &n.to_be_bytes()).expect("get");
                assert_eq!(row.is_some(), n <= rows as u64, "row {n}, of {rows}");
            }
        } else {
            assert_eq!(rows, ENTRIES as usize);
        }
        accepted.close().expect("close");
        assert_eq!(clone.open().expect("open").health(), Health::Ready);

        let aside = clone.path().join(root).join("lost/1");
        assert_eq!(
            fs::read(aside.join("0.jnl")).expect("read"),
            damaged,
            "kept aside"
        );
        let text = fs::read_to_string(aside.join("REPORT")).expect("read");
        assert_reports_hole(&text, hole);
        let intact = number_after(&text, " hold ");
        let hit = whole.log_batches - report.log_batches - intact;
        assert!((1..=4).contains(&hit), "{hit} batches in the hole: {text}");
        let last_before = number_after(&text, "batches after sequence ");
        let first_after = number_after(&text, "intact batches, sequences ");
        assert!(last_before + hit < first_after, "{text}");
    }
}

#[test]
fn logs_after_a_hole_are_set_aside_too() {
    let (test_folder, _) = filled(true);
    let clone = test_folder.clone_as_after_a_crash();
    let store = clone.path().join("store");
    let log = fs::read(store.join("0.jnl")).expect("read");
    // The second half of the log becomes a separate log, and the first half gets a hole near its end.
    let total = verify(clone.path(), None).expect("verify").log_batches;
    let half = (log.len() / 2..log.len())
        .find(|&at| {
            fs::write(store.join("0.jnl"), &log[..at]).expect("write");
            fs::write(store.join("1.jnl"), &log[at..]).expect("write");
            let report = verify(clone.path(), None).expect("verify");
            report.findings.is_empty() && report.log_batches == total
        })
        .expect("a batch ends");
    let mut first = log[..half].to_vec();
    first[half - 40..half - 20].fill(0);
    fs::write(store.join("0.jnl"), &first).expect("damage");
    assert_eq!(clone.open().expect_err("damaged").kind(), ErrorKind::Corrupt);
    let accepted = clone.open_with(accepting()).expect("an operator accepts");
    let rows = count(&accepted, ROWS).expect("scan");
    assert!((1..ENTRIES as usize).contains(&rows), "{rows} rows");
    accepted.close().expect("close");
    let aside = clone.path().join("lost/1");
    assert_eq!(fs::read(aside.join("0.jnl")).expect("read"), first);
    assert_eq!(fs::read(aside.join("1.jnl")).expect("read"), &log[half..]);
    let text = fs::read_to_string(aside.join("REPORT")).expect("read");
    assert_eq!(text.lines().count(), 3, "{text}");
    assert_eq!(clone.open().expect("open").health(), Health::Ready);
}

#[test]
fn a_hole_in_a_journal_is_cut_when_the_loss_is_accepted() {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    let epoch = backend.take(SHARD).expect("take").epoch;
    // Three files of ten entries each, then one of another epoch.
    for n in 1..=ENTRIES {
        if n % 10 == 1 {
            backend.cut(SHARD, epoch, SequenceNumber(n)).expect("cut");
        }
        append(&backend, epoch, n, Durability::Synced);
    }
    let next = backend.take(SHARD).expect("take").epoch;
    append(&backend, next, 100, Durability::Synced);
    backend.close().expect("close");
    let mut names = files(&test_folder.path().join("journal"));
    names.sort();
    assert_eq!(names.len(), 4);

    let second = names[1].strip_prefix(test_folder.path()).expect("inside");
    let third = names[2].strip_prefix(test_folder.path()).expect("inside");
    for is_missing in [false, true] {
        let clone = test_folder.clone_as_after_a_crash();
        let path = clone.path().join(second);
        let hole = make_hole(&path);
        if is_missing {
            fs::remove_file(&path).expect("remove");
        }
        let report = verify(clone.path(), None).expect("verify");
        assert!(!report.findings.is_empty());
        let refused = clone.open().expect_err("damaged");
        assert_eq!(refused.kind(), ErrorKind::Corrupt);
        assert!(refused.to_string().contains("accept_loss"), "{refused}");

        let accepted = clone.open_with(accepting()).expect("an operator accepts");
        assert_eq!(accepted.health(), Health::Ready);
        let left = replay(&accepted, epoch);
        assert_eq!(left, (1..=left.len() as u64).collect::<Vec<_>>());
        assert_eq!(replay(&accepted, next), [100], "another epoch is another log");
        let aside = clone.path().join("lost/1");
        let text = fs::read_to_string(aside.join("REPORT")).expect("read");
        let kept = fs::read(aside.join(third.file_name().expect("a name"))).expect("read");
        assert_eq!(kept, fs::read(&names[2]).expect("read"), "kept aside");
        if is_missing {
            assert_eq!(left.len(), 10);
            assert!(text.contains("missing between"), "{text}");
        } else {
            assert!((11..20).contains(&left.len()), "{left:?}");
            assert_reports_hole(&text, hole);
            let intact = number_after(&text, " hold ");
            let hit = 20 - left.len() as u64 - intact;
            assert!((1..=4).contains(&hit), "{hit} entries in the hole: {text}");
        }
        assert!(text.contains("10 intact entries, sequences 21 to 30"), "{text}");
        accepted.close().expect("close");
        let again = clone.open().expect("open");
        assert_eq!(again.health(), Health::Ready);
        assert_eq!(replay(&again, epoch), left);
    }
}

#[test]
fn damaged_tables_are_noticed_when_they_are_read() {
    let (test_folder, epoch) = filled(false);
    for store in STORES {
        let tables = files(&test_folder.path().join(store).join("keyspaces"));
        for table in tables
            .iter()
            .filter(|path| path.parent().is_some_and(|folder| folder.ends_with("tables")))
        {
            damage_everywhere(&test_folder, epoch, table, 4);
        }
    }
}

#[test]
fn a_missing_keyspace_is_refused() {
    let (test_folder, _) = filled(false);
    for store in STORES {
        let keyspaces = Path::new(store).join("keyspaces");
        for entry in fs::read_dir(test_folder.path().join(&keyspaces)).expect("read") {
            let name = entry.expect("an entry").file_name();
            for lost in ["", "current"] {
                let clone = test_folder.clone_as_after_a_crash();
                let path = clone.path().join(&keyspaces).join(&name).join(lost);
                if lost.is_empty() {
                    fs::remove_dir_all(path).expect("remove");
                } else {
                    fs::remove_file(path).expect("remove");
                }
                assert_eq!(clone.open().expect_err("missing").kind(), ErrorKind::Corrupt);
                let report = verify(clone.path(), None).expect("verify");
                assert_eq!(report.findings.len(), 1, "{report:?}");
            }
        }
    }
}

#[test]
fn one_damaged_list_of_keyspaces_is_enough_and_two_are_not() {
    for list in ["KEYSPACES", "COLD_KEYSPACES"] {
        let (test_folder, epoch) = filled(false);
        fs::write(test_folder.path().join(list), b"damaged").expect("damage");
        assert!(!assert_not_silent(&test_folder, epoch, "one list"));
        let (test_folder, _) = filled(false);
        fs::write(test_folder.path().join(list), b"damaged").expect("damage");
        fs::remove_file(test_folder.path().join(format!("{list}.copy"))).expect("remove");
        assert_eq!(
            test_folder.open().expect_err("no list").kind(),
            ErrorKind::Corrupt
        );
        let report = verify(test_folder.path(), None).expect("verify");
        assert_eq!(report.findings.len(), 1, "{report:?}");
        let accepting = FjallOptions {
            accept_loss: true,
            ..options()
        };
        test_folder.open_with(accepting).expect("an operator accepts");
        assert!(!assert_not_silent(
            &test_folder,
            epoch,
            "nothing was lost but the list"
        ));
    }
}

#[test]
fn a_damaged_high_water_mark_is_read_only_until_accepted() {
    for damage in [None, Some(b"damaged".as_slice())] {
        let (test_folder, _) = filled(false);
        let path = test_folder.path().join("highwater");
        match damage {
            Some(content) => fs::write(&path, content).expect("damage"),
            None => fs::remove_file(&path).expect("remove"),
        }
        for _ in 0..2 {
            let degraded = test_folder.open().expect("open");
            assert!(matches!(degraded.health(), Health::ReadOnly { .. }), "{damage:?}");
        }
        let accepting = FjallOptions {
            accept_loss: true,
            ..options()
        };
        drop(test_folder.open_with(accepting).expect("open"));
        assert_eq!(test_folder.open().expect("open").health(), Health::Ready);
    }
}

#[test]
fn a_lost_store_is_not_made_anew() {
    let (test_folder, _) = filled(false);
    fs::remove_dir_all(test_folder.path().join("store")).expect("remove");
    assert_eq!(test_folder.open().expect_err("lost").kind(), ErrorKind::Corrupt);
    fs::remove_dir_all(test_folder.path().join("journal")).expect("remove");
    let backend = test_folder.open();
    let is_noticed = backend.map_or(true, |backend| backend.health() != Health::Ready);
    assert!(is_noticed, "the high-water mark remembers");
}

#[test]
fn another_format_is_refused() {
    let (test_folder, _) = filled(false);
    fs::write(test_folder.path().join("FORMAT"), "tideline-fjall 3\n").expect("write");
    assert_eq!(
        test_folder.open().expect_err("newer").kind(),
        ErrorKind::Misconfigured
    );
    fs::remove_file(test_folder.path().join("FORMAT")).expect("remove");
    assert_eq!(
        test_folder.open().expect_err("no format").kind(),
        ErrorKind::Corrupt
    );
}

#[test]
fn an_intact_folder_verifies() {
    let (test_folder, _) = filled(false);
    let report = verify(test_folder.path(), None).expect("verify");
    assert_eq!(report.findings, Vec::<String>::new());
    assert_eq!(report.keyspaces, 8, "meta, rows, manifest and one group, twice");
    assert_eq!(report.journal_entries, ENTRIES);
    assert!(report.log_batches > ENTRIES);
    let nowhere = tempfile::tempdir().expect("a folder");
    assert_eq!(
        verify(nowhere.path(), None).expect_err("no data folder").kind(),
        ErrorKind::Misconfigured
    );
}

/// Returns a folder that was closed after fjall had flushed the manifest's keyspace of each tier, but not the rows.
fn stopped_after_a_flush() -> TestFolder {
    let test_folder = TestFolder::new();
    let options = FjallOptions {
        high_water_interval: Duration::from_millis(2),
        ..options()
    };
    let backend = test_folder.open_with(options).expect("open");
    for n in 1..=ENTRIES {
        write(&backend, n).expect("write");
    }
    for kept in [SEGMENT, COLD] {
        // The group keeps another segment, so the reclaim drops tables. Freeing dropped tables flushes the manifest.
        let freed = SegmentRef {
            segment: SegmentId(kept.segment.0 + 100),
            ..kept
        };
        load(&backend, kept);
        load(&backend, freed);
        backend.reclaim(freed).expect("reclaim");
    }
    for (list, store) in ["KEYSPACES", "COLD_KEYSPACES"].into_iter().zip(STORES) {
        let list = fs::read_to_string(test_folder.path().join(list)).expect("a list");
        let number = list.lines().find_map(|line| line.strip_suffix(" manifest"));
        let keyspace = test_folder
            .path()
            .join(store)
            .join("keyspaces")
            .join(number.expect("listed"));
        let deadline = Instant::now() + Duration::from_secs(60);
        while files(&keyspace.join("tables")).is_empty() {
            assert!(Instant::now() < deadline, "{} is not flushed", keyspace.display());
            std::thread::yield_now();
        }
    }
    backend.close().expect("close");
    test_folder
}

fn log_of(test_folder: &TestFolder, store: &str) -> PathBuf {
    let logs = files(&test_folder.path().join(store)).into_iter();
    let mut logs = logs.filter(|path| path.extension().is_some_and(|name| name == "jnl"));
    logs.next().expect("a log")
}

#[test]
fn a_truncated_log_is_noticed_although_one_keyspace_was_flushed() {
    let test_folder = stopped_after_a_flush();
    for store in STORES {
        let log = log_of(&test_folder, store);
        let content = fs::read(&log).expect("read");
        let end = content
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        let inside = log.strip_prefix(test_folder.path()).expect("inside");
        for n in 0..=24 {
            let at = end * n / 24;
            let clone = test_folder.clone_as_after_a_crash();
            fs::write(clone.path().join(inside), &content[..at]).expect("truncate");
            let what = format!("{store}: log of {end} bytes ends at {at}");
            let backend = clone.open().expect("a log without damage opens");
            if backend.health() == Health::Ready {
                assert_eq!(count(&backend, ROWS).expect("scan"), ENTRIES as usize, "{what}");
                for segment in [SEGMENT, COLD] {
                    let rows = count(&backend, Partition::segment(segment, 0)).expect("scan");
                    assert_eq!(rows, 100, "{what}");
                }
            } else {
                assert!(n < 24, "{what}: nothing is missing");
                assert!(matches!(backend.health(), Health::ReadOnly { .. }), "{what}");
            }
        }
    }
}

#[test]
fn an_accepted_loss_of_one_keyspace_is_not_reported_again() {
    let test_folder = stopped_after_a_flush();
    fs::write(log_of(&test_folder, STORES[0]), b"").expect("truncate");
    let refused = write(&test_folder.open().expect("open"), 1).expect_err("read-only");
    assert!(refused.to_string().contains("keyspace rows"), "{refused}");
    let accepting = FjallOptions {
        accept_loss: true,
        ..options()
    };
    drop(test_folder.open_with(accepting).expect("an operator accepts"));
    let backend = test_folder.open().expect("open");
    assert_eq!(backend.health(), Health::Ready);
    write(&backend, 1).expect("write");
    backend.close().expect("close");
    assert_eq!(test_folder.open().expect("open").health(), Health::Ready);
}

#[test]
fn after_a_clean_stop_the_loss_of_a_buffered_entry_is_noticed() {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    let epoch = backend.take(SHARD).expect("take").epoch;
    for n in 1..=5 {
        append(&backend, epoch, n, Durability::Buffered);
    }
    backend.close().expect("close");
    let whole = fs::read(test_folder.journal()).expect("read");
    fs::write(test_folder.journal(), &whole[..whole.len() - 1]).expect("lose the last entry");
    let health = test_folder.open().expect("open").health();
    assert!(matches!(health, Health::ReadOnly { .. }), "{health:?}");
}

#[test]
fn a_folder_that_lacks_something_answers_from_a_copy_and_stays_as_it_is() {
    let (test_folder, epoch) = filled(false);
    let journal = fs::read(test_folder.journal()).expect("read");
    let losses: [(&str, Loss<'_>); 4] = [
        ("a journal without its end", &|clone| {
            fs::write(clone.journal(), &journal[..journal.len() - 10]).expect("truncate");
        }),
        ("a log without its end", &|clone| {
            let log = fs::OpenOptions::new()
                .write(true)
                .open(log_of(clone, STORES[0]))
                .expect("open");
            log.set_len(1_000).expect("truncate");
        }),
        ("no high-water mark", &|clone| {
            fs::remove_file(clone.path().join("highwater")).expect("remove");
        }),
        ("a damaged high-water mark", &|clone| {
            fs::write(clone.path().join("highwater"), b"damaged").expect("damage");
        }),
    ];
    for (what, lose) in losses {
        let clone = test_folder.clone_as_after_a_crash();
        lose(&clone);
        let before = state(clone.path()).expect("look");
        let backend = clone.open().expect("open");
        assert!(
            matches!(backend.health(), Health::ReadOnly { .. }),
            "{what}: {:?}",
            backend.health()
        );
        let owner = backend.take(SHARD).expect("take").epoch;
        assert!(owner > epoch);
        let entries = replay(&backend, epoch);
        assert!(entries.len() as u64 >= ENTRIES - 1, "{what}: {entries:?}");
        let end = SequenceNumber(ENTRIES + 1);
        backend
            .close_epoch(SHARD, epoch, end)
            .expect("without storing it");
        backend
            .close_epoch(SHARD, epoch, end)
            .expect("again, with the same end");
        for segment in [SEGMENT, COLD] {
            let rows = count(&backend, Partition::segment(segment, 0)).expect("scan");
            assert_eq!(rows, 100, "{what}");
        }
        assert_eq!(
            write(&backend, 1).expect_err("read-only").kind(),
            ErrorKind::Misconfigured
        );
        let scratch = backend.scratch().expect("a copy").to_owned();
        assert!(scratch.is_dir() && !scratch.starts_with(clone.path()));
        backend.close().expect("close");
        drop(backend);
        assert!(!scratch.exists(), "{what}");
        assert!(state(clone.path()).expect("look") == before, "{what}");
    }
}

#[test]
fn a_refused_folder_without_a_format_stays_as_it_is() {
    let (test_folder, _) = filled(false);
    fs::remove_file(test_folder.path().join("FORMAT")).expect("remove");
    fs::remove_dir_all(test_folder.path().join("store")).expect("remove");
    let before = state(&test_folder.path().join("journal")).expect("look");
    assert_eq!(
        test_folder.open().expect_err("no store").kind(),
        ErrorKind::Corrupt
    );
    assert!(state(&test_folder.path().join("journal")).expect("look") == before);
    assert!(!test_folder.path().join("FORMAT").exists());
}

#[test]
fn a_log_that_is_gone_is_noticed_although_later_ones_are_there() {
    let test_folder = TestFolder::new();
    let backend = test_folder.open().expect("open");
    let log = log_of(&test_folder, STORES[0]);
    let written = || {
        let content = fs::read(&log).expect("read");
        let end = content
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        content[..end].to_vec()
    };
    for n in 1..=10 {
        write(&backend, n).expect("write");
    }
    let first = written().len();
    for n in 11..=20 {
        write(&backend, n).expect("write");
    }
    backend.close().expect("close");
    let whole = written();
    let split = |test_folder: &TestFolder, is_first_there: bool| {
        let store = test_folder.path().join(STORES[0]);
        let first_file = store.join("0.jnl");
        match is_first_there {
            true => fs::write(first_file, &whole[..first]).expect("write"),
            false => fs::remove_file(first_file).expect("remove"),
        }
        fs::write(store.join("2.jnl"), &whole[first..]).expect("write");
    };
    let clone = test_folder.clone_as_after_a_crash();
    split(&clone, true);
    let refused = clone.open().expect_err("the log between them is gone");
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert!(refused.to_string().contains("is missing"), "{refused}");

    split(&test_folder, false);
    let health = test_folder.open().expect("open").health();
    let Health::ReadOnly { reason } = health else {
        panic!("{health:?}");
    };
    assert!(reason.contains("whose log is gone"), "{reason}");
    let accepting = FjallOptions {
        accept_loss: true,
        ..options()
    };
    drop(test_folder.open_with(accepting).expect("an operator accepts"));
    for _ in 0..2 {
        let backend = test_folder.open().expect("open");
        assert_eq!(backend.health(), Health::Ready);
        assert_eq!(count(&backend, ROWS).expect("scan"), 10);
    }
}
