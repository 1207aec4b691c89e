//! Detection of requests that reach parts in the cold tier or in the archive, and a count of the bytes that they read
//! there.
//!
//! Requests for old rows are run separately from other requests, and their rate can be limited, so that they do not
//! delay reads of new rows. A read adds its bytes to a counter of its thread. Between two rows, the request takes the
//! counter and waits as the limit requires.

use std::cell::Cell;

use tideline_model::{KeyRange, TableId, Tier};

use crate::division::{ALL_PARTS, PartNumbers};
use crate::error::{Result, WideError};
use crate::state::Part;
use crate::store::WideStore;

thread_local! {
    static READ: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of bytes of keys and rows that this thread has read from parts in the cold tier and in the
/// archive since the last call.
pub fn take_cold_bytes() -> u64 {
    READ.take()
}

/// Counts bytes that were read from a part, unless it is in the hot tier.
pub(crate) fn count(part: &Part, bytes: impl FnOnce() -> usize) {
    if part.detail.tier != Tier::Hot {
        READ.set(READ.get().saturating_add(bytes() as u64));
    }
}

impl WideStore {
    /// Returns true if a stored part of a table is in the cold tier or in the archive.
    pub fn has_cold_parts(&self, table: TableId) -> bool {
        let state = self.state();
        let mut parts = state.parts_of(table, ALL_PARTS);
        parts.any(|part| part.detail.tier != Tier::Hot)
    }

    /// Returns true if one of the key ranges reaches a visible part that is in the cold tier or in the archive and
    /// whose number is in `numbers`. `table` is a table or an index, and `rows` is the table that contains the rows.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table does not exist.
    pub fn reaches_cold(
        &self,
        (table, rows): (TableId, TableId),
        numbers: &PartNumbers,
        ranges: &[KeyRange],
    ) -> Result<bool> {
        let rules = self.rules(table)?;
        if rules.division.is_none() {
            return Ok(false);
        }
        let (state, visible) = (self.state(), self.visible_parts(&rules));
        let is_old = |part: &Part| part.detail.tier != Tier::Hot && visible.contains(&part.number());
        Ok(ranges.iter().any(|range| {
            let reached = rules.kept_parts(range, numbers);
            let parts = [table, rows].into_iter();
            let mut parts = parts.flat_map(|id| state.parts_of(id, reached.clone()));
            parts.any(is_old)
        }))
    }

    /// Returns true if a range of keys of a table reaches a stored part whose number is in `numbers`.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table does not exist.
    pub fn reaches_parts(&self, table: TableId, range: &KeyRange, numbers: &PartNumbers) -> Result<bool> {
        let (rules, state) = (self.rules(table)?, self.state());
        let reached = rules.kept_parts(range, numbers);
        Ok(!reached.is_empty() && state.parts_of(table, reached).next().is_some())
    }

    /// Returns the number of the part of a key.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table does not exist, and [`WideError::Damaged`] if the key is not a valid key of
    /// the table.
    pub fn part_number(&self, table: TableId, key: &[u8]) -> Result<i32> {
        let number = self.rules(table)?.part_of(key);
        number.map_err(|reason| WideError::Damaged { table, reason })
    }

    /// Returns true if a key of a table belongs to a visible part in the cold tier or in the archive.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table does not exist, and [`WideError::Damaged`] if a key is not a valid key of
    /// the table.
    pub fn has_cold_keys(&self, table: TableId, keys: &[Vec<u8>]) -> Result<bool> {
        let rules = self.rules(table)?;
        let (state, visible) = (self.state(), self.visible_parts(&rules));
        for key in keys {
            let number = rules.part_of(key);
            let number = number.map_err(|reason| WideError::Damaged { table, reason })?;
            let part = state.parts.get(&(table, number));
            if part.is_some_and(|part| part.detail.tier != Tier::Hot && visible.contains(&number)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
