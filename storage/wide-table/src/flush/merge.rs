//! Merge of the packed rows, the single rows and the changes of a span, in key order.

use std::collections::VecDeque;

use bytes::Bytes;
use tideline_backend::Row;

use crate::buffer::Mutations;

/// Stored rows and unflushed changes of one key.
#[derive(Debug)]
pub(crate) struct MergedRow {
    pub(crate) key: Bytes,
    /// Row in a block.
    pub(crate) packed: Option<Bytes>,
    /// Single row, head of a large row, or marker of a deleted row. It hides the packed row.
    pub(crate) single: Option<Bytes>,
    /// Changes that are being flushed, oldest first.
    pub(crate) changes: Option<Mutations>,
}

/// Iterator that merges three sources, which are sorted by key.
pub(crate) struct MergedRows<'m> {
    packed: &'m [(Bytes, Bytes)],
    singles: VecDeque<Row>,
    changes: VecDeque<(Bytes, Mutations)>,
}

impl<'m> MergedRows<'m> {
    pub(crate) fn new(
        packed: &'m [(Bytes, Bytes)],
        singles: Vec<Row>,
        changes: VecDeque<(Bytes, Mutations)>,
    ) -> Self {
        Self {
            packed,
            singles: singles.into(),
            changes,
        }
    }
}

impl Iterator for MergedRows<'_> {
    type Item = MergedRow;

    fn next(&mut self) -> Option<MergedRow> {
        let packed = self.packed.first().map(|(key, _)| key);
        let single = self.singles.front().map(|row| &row.key);
        let changed = self.changes.front().map(|(key, _)| key);
        let key = [packed, single, changed].into_iter().flatten().min()?.clone();
        let packed = match self.packed.split_first() {
            Some(((first, row), rest)) if *first == key => {
                self.packed = rest;
                Some(row.clone())
            }
            _ => None,
        };
        let single = self.singles.pop_front_if(|row| row.key == key);
        let changes = self.changes.pop_front_if(|(other, _)| *other == key);
        Some(MergedRow {
            key,
            packed,
            single: single.map(|row| row.value),
            changes: changes.map(|(_, changes)| changes),
        })
    }
}
