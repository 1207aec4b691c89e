//! Rows of named objects (searches, metrics) that changed in memory and are written by the next flush.
//!
//! Values may change while a flush runs. A name stays in the set until a row with its newest value is durable.

use std::collections::BTreeSet;

use bytes::Bytes;
use parking_lot::{Mutex, RwLockWriteGuard};
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

    /// Adds names whose values are changed under the write lock `_values`. The caller holds the lock until the values
    /// have changed, and the `row` callback of [`write`](Self::write) locks the same values for reading. Otherwise, a
    /// concurrent write could write the row of the old value, and [`synced`](Self::synced) would remove the name.
    pub(crate) fn add<T>(
        &self,
        _values: &mut RwLockWriteGuard<'_, T>,
        names: impl IntoIterator<Item = Box<str>>,
    ) {
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

    /// Removes names whose rows are written and synced, except names that changed since.
    pub(crate) fn synced(&self, written: &BTreeSet<Box<str>>) {
        let mut unsaved = self.names.lock();
        let Names { all, changed_since } = &mut *unsaved;
        all.retain(|name| changed_since.contains(name) || !written.contains(name));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use parking_lot::RwLock;
    use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};

    use super::*;

    /// Asserts that `apply` adds no name before it holds the write lock of `values`.
    pub(crate) fn assert_added_under_lock<T: Send + Sync>(
        values: &RwLock<T>,
        unsaved: &UnsavedRows,
        apply: impl FnOnce() + Send,
    ) {
        std::thread::scope(|scope| {
            let reading = values.read();
            scope.spawn(apply);
            // No further reader is admitted once `apply` waits for the write lock.
            while values.try_read().is_some() {
                std::thread::yield_now();
            }
            let backend = MemoryBackend::open(&MemoryDisk::new(Character::Embedded));
            let written = unsaved.write(&backend, &mut || Ok(Stamp(1)), |_| None);
            assert_eq!(
                written.expect("written"),
                BTreeSet::new(),
                "the value has not changed yet"
            );
            drop(reading);
        });
        assert_eq!(unsaved.names.lock().all.len(), 1);
    }
}
