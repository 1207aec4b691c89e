//! Merge of the rows of buffers and parts, by key.
//!
//! The sources are ordered from the newest to the oldest. A row is complete as soon as one of them determines it without
//! an older state; the sources after it are then ignored for this row.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use tideline_backend::{Direction, PageLimit};

use super::{StoredRow, resolve};
use crate::blocks::PackedRows;
use crate::buffer::{Mutations, TableBuffer};
use crate::codec;
use crate::error::Damage;
use crate::groups;
use crate::state::Part;
use crate::store::is_base;

/// Merge source: the rows of one buffer, or the single or the packed rows of a part, that are not merged yet.
#[derive(Default)]
pub(super) struct Source {
    pub(super) rows: VecDeque<(Bytes, Mutations)>,
    /// Last key that was read if more rows may follow; `None` otherwise.
    pub(super) more_after: Option<Bytes>,
    pub(super) buffer: Option<Arc<TableBuffer>>,
    /// Position from which further rows can be read during the merge; `None` if the page ends with the rows of this
    /// source.
    pub(super) feed: Option<Feed>,
    /// Position of the column group whose columns this source holds; `None` for the columns outside of groups, and for
    /// a buffer.
    pub(super) group: Option<usize>,
}

/// Rows of a part that are not read yet.
#[derive(Clone, Copy)]
pub(super) struct Feed {
    pub(super) part: Part,
    /// Limit of the last read.
    pub(super) limit: PageLimit,
}

impl Source {
    pub(super) fn of_buffer(buffer: Arc<TableBuffer>, rows: Vec<(Bytes, Mutations)>, limit: usize) -> Self {
        let is_full = rows.len() >= limit;
        Self {
            more_after: rows.last().filter(|_| is_full).map(|(key, _)| key.clone()),
            rows: rows.into(),
            buffer: Some(buffer),
            ..Self::default()
        }
    }

    /// Returns true if further rows of both sources can be read, from the same part.
    pub(super) fn is_of_part_of(&self, other: &Self) -> bool {
        let part = |source: &Self| source.feed.map(|feed| feed.part.at);
        part(self).is_some() && part(self) == part(other)
    }

    /// Returns the bytes of the keys and rows.
    pub(super) fn bytes(&self) -> usize {
        let of = |(key, rows): &(Bytes, Mutations)| key.len() + rows.iter().map(Bytes::len).sum::<usize>();
        self.rows.iter().map(of).sum()
    }

    pub(super) fn of_blocks(packed: PackedRows) -> Self {
        let rows = packed.rows.into_iter();
        Self {
            rows: rows.map(|(key, row)| (key, Mutations::from_buf([row]))).collect(),
            more_after: packed.more_after,
            ..Self::default()
        }
    }
}

/// Merge of the sources of a page. The sources are ordered from the newest to the oldest.
pub(super) struct Merge {
    pub(super) sources: Vec<Source>,
    pub(super) direction: Direction,
    pub(super) versions_max: usize,
    /// Limit of the page if there are many sources. The merge then ends at the first row that exceeds it.
    pub(super) limit: Option<PageLimit>,
    /// Merged rows in scan order.
    pub(super) rows: Vec<StoredRow>,
    /// Bytes of the merged rows.
    pub(super) bytes: usize,
    /// Number of rows that were merged, including deleted rows.
    pub(super) scanned: u64,
}

impl Merge {
    fn is_before(&self, one: &[u8], other: &[u8]) -> bool {
        match self.direction {
            Direction::Ascending => one < other,
            Direction::Descending => one > other,
        }
    }

    /// Returns the last key in scan order up to which all sources were read; `None` if all of them were read to the
    /// end.
    pub(super) fn horizon(&self) -> Option<Bytes> {
        let ends = self.sources.iter().filter_map(|source| source.more_after.clone());
        ends.reduce(|one, other| if self.is_before(&other, &one) { other } else { one })
    }

    /// Merges the rows up to the horizon.
    pub(super) fn run(&mut self) -> std::result::Result<(), Damage> {
        let horizon = self.horizon();
        let mut found = FoundRow::default();
        let mut is_over = false;
        loop {
            let heads = self.sources.iter().filter_map(|source| source.rows.front());
            let first = heads
                .map(|(key, _)| key)
                .reduce(|one, other| if self.is_before(other, one) { other } else { one });
            let Some(key) = first.cloned() else { break };
            let is_beyond = horizon
                .as_ref()
                .is_some_and(|horizon| self.is_before(horizon, &key));
            if is_beyond || is_over {
                break;
            }
            self.scanned += 1;
            found.clear();
            for source in &mut self.sources {
                found.take_from(source, &key);
            }
            if let Some(value) = found.resolve(self.versions_max)? {
                let row = StoredRow::new(key, value);
                is_over = self
                    .limit
                    .is_some_and(|limit| self.rows.len() >= limit.rows_max || self.bytes > limit.bytes_max);
                self.bytes += row.bytes();
                self.rows.push(row);
            }
        }
        Ok(())
    }
}

/// Data of one key, collected from all sources.
#[derive(Default)]
struct FoundRow {
    /// Mutations from the buffers and from the main part, from the newest to the oldest. They end with a mutation that
    /// does not depend on an older state, if there is one.
    mutations: Vec<Bytes>,
    is_complete: bool,
    /// True if the buffers determine the row without the part.
    is_buffered: bool,
    /// Columns of groups, or the marker of deleted columns, each with the position of its group.
    of_groups: SmallVec<[(usize, Bytes); 2]>,
}

impl FoundRow {
    fn clear(&mut self) {
        self.mutations.clear();
        self.of_groups.clear();
        (self.is_complete, self.is_buffered) = (false, false);
    }

    /// Takes the row with this key from the front of the next older source, if the source has it. Also records whether
    /// a deleted range of the source contains the key.
    fn take_from(&mut self, source: &mut Source, key: &Bytes) {
        let found = source.rows.pop_front_if(|(other, _)| other == key);
        if let Some(group) = source.group {
            // A single row hides a packed one.
            let is_hidden = || self.of_groups.iter().any(|(known, _)| *known == group);
            if let Some((_, found)) = found
                && !is_hidden()
            {
                self.of_groups.extend(found.into_iter().map(|row| (group, row)));
            }
            return;
        }
        if self.is_complete {
            return;
        }
        match found {
            Some((_, found)) => {
                self.is_complete = found.first().is_some_and(|first| is_base(first));
                self.mutations.extend(found.into_iter().rev());
            }
            None => {
                let buffer = source.buffer.as_ref();
                self.is_complete = buffer.is_some_and(|buffer| buffer.is_deleted(key));
            }
        }
        self.is_buffered = self.is_complete && source.buffer.is_some();
    }

    /// Returns the row; `None` if it does not exist.
    fn resolve(&mut self, versions_max: usize) -> std::result::Result<Option<Bytes>, Damage> {
        self.mutations.reverse();
        let is_stored = self.is_complete && !self.is_buffered;
        if let Some(main) = self.mutations.first_mut()
            && is_stored
            && !codec::is_delete(main)
        {
            let rows = self.of_groups.drain(..).map(|(_, row)| row);
            let rows: SmallVec<[Bytes; 2]> = rows.filter(|row| !codec::is_delete(row)).collect();
            *main = groups::join(std::mem::take(main), &rows)?;
        }
        resolve(None, &self.mutations, versions_max)
    }
}
