//! Tests of the journal entry format, and an in-memory journal for the tests of the catalog.
//!
//! The entry format is checked against golden bytes, because entries are stored on disk.

use std::cell::RefCell;

use tideline_backend::{Backend, BackendError, Shard, Stamp};

use super::*;
use crate::{CatalogOptions, MetricKind, MetricMetadata};

const TABLE: TableId = TableId(300);

/// Log without threads: checks, stores and applies an entry within the call.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    entries: RefCell<Vec<Bytes>>,
}

impl Journal {
    /// Returns a commit callback that stores each entry.
    pub(crate) fn commit(&self) -> impl Fn(CatalogChange) -> std::result::Result<(), CommitError> + '_ {
        |change| {
            check(&change)?;
            self.entries.borrow_mut().push(change.encoded().clone());
            change.apply();
            Ok(())
        }
    }

    /// Returns all entries in order.
    pub(crate) fn entries(&self) -> Vec<Bytes> {
        self.entries.borrow().clone()
    }

    pub(crate) fn replay(&self, catalog: &Catalog) {
        for entry in self.entries() {
            catalog.replay(&entry).expect("what was written");
        }
    }
}

/// Writes and syncs all rows, as a flush does.
pub(crate) fn save(
    catalog: &Catalog,
    backend: &dyn Backend,
    stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
) -> Result<()> {
    catalog.write_rows(backend, stamp)?;
    backend.sync_rows(Shard(0))?;
    catalog.rows_synced();
    Ok(())
}

/// Refuses an outdated change, as the log does.
pub(crate) fn check(change: &CatalogChange) -> std::result::Result<(), CommitError> {
    match change.is_current() {
        true => Ok(()),
        false => Err(CommitError {
            cause: "outdated".into(),
            is_not_written: true,
            is_outdated: true,
        }),
    }
}

/// Returns the error of an append with unknown outcome.
pub(crate) fn unknown() -> CommitError {
    let reason = "planned".to_owned();
    CommitError {
        cause: Box::new(BackendError::Unknown { reason }),
        is_not_written: false,
        is_outdated: false,
    }
}

pub(crate) fn options() -> CatalogOptions {
    CatalogOptions {
        source_tags: vec!["host".to_owned()],
        raw_key_budget: Arc::default(),
        unflushed: Arc::default(),
    }
}

pub(crate) fn catalog(table: TableId) -> Arc<Catalog> {
    Arc::new(Catalog::new(table, options()))
}

/// Entries are stored on disk: these bytes must remain readable forever.
#[test]
fn golden_entries() {
    let journal = Journal::default();
    let catalog = catalog(TABLE);
    catalog
        .put_search("mine", "{}", &journal.commit())
        .expect("committed");
    catalog
        .delete_search("mine", &journal.commit())
        .expect("committed");
    let metric = MetricMetadata {
        name: "up".to_owned(),
        kind: MetricKind::Gauge,
        help: "Is it up?".to_owned(),
        unit: "s".to_owned(),
    };
    catalog
        .put_metadata(&[metric], tideline_model::Timestamp::EPOCH, &journal.commit())
        .expect("committed");
    let mut golden: Vec<Vec<u8>> = vec![b"TC\x01\xac\x02\x02\x04mine\x07\x01{}".to_vec()];
    golden[0].extend_from_slice(&[86, 1, 69, 41]);
    golden.push(b"TC\x01\xac\x02\x02\x04mine\x00".to_vec());
    golden.push(b"TC\x01\xac\x02\x03\x02up\x11\x01\x02\x01sIs it up?".to_vec());
    golden[2].extend_from_slice(&[135, 35, 87, 125]);
    assert_eq!(journal.entries(), golden);
    for entry in &golden {
        assert_eq!(Catalog::table_of(entry).expect("an entry"), TABLE);
    }
}

#[test]
fn what_is_no_entry_is_refused() {
    let journal = Journal::default();
    let catalog = catalog(TABLE);
    catalog
        .put_search("mine", "{}", &journal.commit())
        .expect("committed");
    let [entry] = &journal.entries()[..] else {
        panic!("one entry");
    };
    for length in 0..entry.len() {
        // The header alone is an entry without rows.
        let is_head = length == 5;
        assert_eq!(
            catalog.replay(&entry.slice(..length)).is_ok(),
            is_head,
            "cut at {length}"
        );
    }
    let kind = 5;
    for other in [0, RowKind::Metric as u8, 4, 255] {
        let mut changed = entry.to_vec();
        changed[kind] = other;
        assert!(catalog.replay(&changed.into()).is_err(), "kind {other}");
    }
}
