//! Sequences are not reused after a power cut that loses writes: a cursor finds all later writes or gets an error.

use std::path::Path;

use tideline_model::{SequenceNumber, Value};
use tideline_series_store::{RecentError, SeriesStore, Settings};

use crate::fixture::{TestBackend, timeline, write};

fn write_one(store: &SeriesStore, at: i64) {
    let table = store.table("default").expect("the default table");
    let point = (timeline(1), at, vec![("value", Value::Signed(at))]);
    write(store, &table, &[point], &[timeline(1)]).expect("a write");
}

fn entries_from(store: &SeriesStore, cursor: SequenceNumber) -> Result<usize, RecentError> {
    let table = store.table("default").expect("the default table");
    store
        .recent(&table, cursor, usize::MAX)
        .map(|part| part.entries.len())
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).expect("a copy")),
        }
    }
}

/// A power cut loses entries that were not synced; here, all entries of one run. Their sequences are not used again.
#[test]
fn what_a_power_cut_took_does_not_hide_what_is_written_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let (before, test_backend) = (folder.path().join("before"), TestBackend::Fjall(folder));
    let TestBackend::Fjall(folder) = &test_backend else {
        unreachable!()
    };
    let data = folder.path().join("data");
    {
        let (store, _) = test_backend.open(&Settings::default());
        write_one(&store, 0);
        store.close().expect("a clean close");
    }
    copy(&data, &before);
    let seen = {
        let (store, _) = test_backend.open(&Settings::default());
        let begun = store.recent_end();
        (1..10).for_each(|at| write_one(&store, at));
        assert_eq!(entries_from(&store, begun), Ok(9));
        store.close().expect("a clean close");
        [begun, store.recent_end()]
    };
    // The journal and the mark of synced data are restored to their earlier state. The manifest is not, because it
    // is always synced.
    std::fs::remove_dir_all(data.join("journal")).expect("removed");
    copy(&before.join("journal"), &data.join("journal"));
    std::fs::copy(before.join("highwater"), data.join("highwater")).expect("a copy");
    let (store, _) = test_backend.open(&Settings::default());
    (100..130).for_each(|at| write_one(&store, at));
    assert_eq!(entries_from(&store, seen[0]), Ok(30));
    // A watcher that has read the lost entries gets an error instead of entries from a later position.
    assert_eq!(entries_from(&store, seen[1]), Err(RecentError::NotReached));
}
