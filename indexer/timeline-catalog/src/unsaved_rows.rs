//! Rows of named objects (searches, metrics) that changed in memory and are written by the next flush.

use std::collections::BTreeSet;

use bytes::Bytes;
use parking_lot::Mutex;
use tideline_backend::{Backend, RowChange, Space, Stamp};
use tideline_key_codec::{named_key, table_rows};
use tideline_model::{Durability, TableId};

use crate::Result;

/// Names of one key space whose rows may differ from memory.
#[derive(Debug)]
pub(crate) struct UnsavedRows {
    space: Space,
    table: TableId,
    /// Number of rows per write, chosen by the caller so that a write stays within the backend's byte limit.
    rows_per_write: usize,
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    all: BTreeSet<Box<str>>,
    /// Names that changed after the last write began.
    changed_since: BTreeSet<Box<str>>,
}

impl UnsavedRows {
    pub(crate) fn new(space: Space, table: TableId, rows_per_write: usize) -> Self {
        Self {
            space,
            table,
            rows_per_write,
            names: Mutex::default(),
        }
    }

    /// Adds names whose values have changed. If a value changes only after this call, the caller must hold a lock that
    /// the `row` callback of [`write`](Self::write) takes, until the value has changed.
    pub(crate) fn add(&self, names: impl IntoIterator<Item = Box<str>>) {
        let mut unsaved = self.names.lock();
        for name in names {
            unsaved.changed_since.insert(name.clone());
            unsaved.all.insert(name);
        }
    }

    /// Writes the rows of all names, without a sync, and returns the names. `row` returns the bytes of a row;
    /// `None` deletes it.
    pub(crate) fn write(
        &self,
        backend: &dyn Backend,
        stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
        row: impl Fn(&str) -> Option<Bytes>,
    ) -> Result<BTreeSet<Box<str>>> {
        let written = {
            let mut unsaved = self.names.lock();
            unsaved.changed_since.clear();
            unsaved.all.clone()
        };
        let (partition, _) = table_rows(self.space, self.table);
        let names: Vec<&str> = written.iter().map(|name| &**name).collect();
        for names in names.chunks(self.rows_per_write) {
            let change = |name: &&str| RowChange {
                key: named_key(self.table, name.as_bytes()).into(),
                value: row(name),
            };
            let changes: Vec<RowChange> = names.iter().map(change).collect();
            backend.write(partition, &changes, stamp()?, Durability::Buffered)?;
        }
        Ok(written)
    }

    /// Removes names whose rows are written and synced, except those that changed since.
    pub(crate) fn synced(&self, written: &BTreeSet<Box<str>>) {
        let mut unsaved = self.names.lock();
        let Names { all, changed_since } = &mut *unsaved;
        all.retain(|name| changed_since.contains(name) || !written.contains(name));
    }
}
