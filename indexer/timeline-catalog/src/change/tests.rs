//! Entries of the journal: their bytes, and a journal in memory for the tests of the catalog.

use std::cell::RefCell;

use tideline_backend::{Backend, BackendError, Stamp};
use tideline_log::SHARD;

use super::*;
use crate::{CatalogOptions, MetricKind, MetricMetadata};

const TABLE: TableId = TableId(300);

/// A log without threads: it checks, keeps and applies an entry in the call.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    entries: RefCell<Vec<Bytes>>,
}

impl Journal {
    /// Commits each entry.
    pub(crate) fn commit(&self) -> impl Fn(Box<dyn LogEntry>) -> tideline_log::Result<SequenceNumber> + '_ {
        |entry| {
            entry.check()?;
            let mut entries = self.entries.borrow_mut();
            let sequence = SequenceNumber(entries.len() as u64);
            entries.push(entry.encoded().clone());
            entry.apply(sequence).map_err(LogError::Model)?;
            Ok(sequence)
        }
    }

    /// All entries, in order.
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
    backend.sync_rows(SHARD)?;
    catalog.rows_synced();
    Ok(())
}

/// An append of which it is not known whether it happened.
pub(crate) fn unknown() -> LogError {
    let reason = "planned".to_owned();
    LogError::Backend(BackendError::Unknown { reason })
}

pub(crate) fn options() -> CatalogOptions {
    CatalogOptions {
        source_tags: vec!["host".to_owned()],
        raw_key_cache_bytes: 0,
        unflushed: Arc::default(),
    }
}

pub(crate) fn catalog(table: TableId) -> Arc<Catalog> {
    Arc::new(Catalog::new(table, options()))
}

/// Entries are on disk: these bytes must be read for ever.
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
        // The head alone is an entry without rows.
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
