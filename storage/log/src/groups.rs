//! Groups of row changes, each within the limits of a write.

use bytes::Bytes;
use tideline_backend::{RowChange, WRITE_BYTES_MAX, WRITE_ROWS_MAX};

/// Groups of changes, each within the limits of a write.
#[derive(Default)]
pub(crate) struct Groups {
    groups: Vec<Vec<RowChange>>,
    /// Bytes of the last group.
    last_bytes: usize,
    /// Bytes of all groups.
    pub(crate) bytes: usize,
}

impl Groups {
    /// Adds a change to the last group, or to a new group if the last one is full.
    pub(crate) fn push(&mut self, change: RowChange) {
        let bytes = change.key.len() + change.value.as_ref().map_or(0, Bytes::len);
        let is_full = |group: &Vec<RowChange>| {
            group.len() >= WRITE_ROWS_MAX || self.last_bytes + bytes > WRITE_BYTES_MAX
        };
        if self.groups.last().is_none_or(is_full) {
            self.groups.push(Vec::new());
            self.last_bytes = 0;
        }
        self.groups.last_mut().expect("a group").push(change);
        self.last_bytes += bytes;
        self.bytes += bytes;
    }

    /// Removes and returns all groups.
    pub(crate) fn take(&mut self) -> Vec<Vec<RowChange>> {
        std::mem::take(self).groups
    }
}
