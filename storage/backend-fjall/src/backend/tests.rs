//! What happens by itself after a failure, which cannot be brought about from outside.

use tideline_backend::{ErrorKind, Space};

use super::*;

const SHARD: Shard = Shard(0);
const ROWS: Partition = Partition::space(Space(1), 0);

fn open(folder: &tempfile::TempDir) -> FjallBackend {
    let options = FjallOptions {
        free_bytes_min: 0,
        free_per_mille_min: 0,
        // The tests are the keeper.
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
    backend.write(ROWS, &[change], Stamp(1))
}

#[test]
fn a_poisoned_store_refuses_writes_and_reopens_by_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = open(&folder);
    let epoch = backend.take(SHARD).expect("take");
    write(&backend, "before").expect("write");
    backend.inner.hot.poison("a failed sync");
    assert!(matches!(backend.health(), Health::Poisoned { .. }));
    assert_eq!(
        write(&backend, "k").expect_err("poisoned").kind(),
        ErrorKind::Unavailable
    );
    assert!(backend.get(ROWS, b"before").expect("reads work").is_some());
    backend.inner.tick();
    assert_eq!(backend.health(), Health::Ready);
    write(&backend, "after").expect("write");
    let outcome = backend.edit(SHARD, epoch, 0, &[]).expect("still the owner");
    assert_eq!(outcome, EditOutcome::Applied { version: 1 });
    backend.close().expect("close");
    let reopened = open(&folder);
    assert_eq!(reopened.health(), Health::Ready);
    assert!(reopened.get(ROWS, b"after").expect("get").is_some());
}

#[test]
fn a_store_that_cannot_be_reopened_is_given_up_after_some_tries() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = open(&folder);
    write(&backend, "k").expect("write");
    let list = folder.path().join("KEYSPACES");
    let copy = folder.path().join("KEYSPACES.copy");
    let kept = std::fs::read(&list).expect("read");
    std::fs::write(&list, b"damaged").expect("damage");
    std::fs::write(&copy, b"damaged").expect("damage");
    backend.inner.hot.poison("a failed sync");
    backend.inner.tick();
    assert!(matches!(backend.health(), Health::Poisoned { .. }));
    let read = backend.get(ROWS, b"k");
    assert_eq!(read.expect_err("not open").kind(), ErrorKind::Unavailable);
    std::fs::write(&list, kept).expect("repair");
    backend.inner.hot.try_now();
    backend.inner.tick();
    assert_eq!(backend.health(), Health::Ready);
    assert!(backend.get(ROWS, b"k").expect("get").is_some());
}

#[test]
fn a_broken_journal_refuses_appends_and_heals_by_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = open(&folder);
    let epoch = backend.take(SHARD).expect("take");
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
    let crate::highwater::Remembered::Marks(marks) = remembered else {
        panic!("{remembered:?}");
    };
    assert_eq!(marks.commits, 3);
}
