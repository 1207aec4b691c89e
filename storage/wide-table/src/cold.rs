//! Reads of old rows: which requests reach parts in the cold tier or in the archive, and how much was read there.
//!
//! Requests for old rows run apart from the others, and their rate can be limited, so that they do not delay reads of new
//! rows. A read counts its bytes for its thread. The request takes this count between two rows, and waits.

use std::cell::Cell;

use tideline_model::{KeyRange, TableId, Tier};

use crate::division::PartNumbers;
use crate::error::{Result, WideError};
use crate::state::Part;
use crate::store::WideStore;

thread_local! {
    static READ: Cell<u64> = const { Cell::new(0) };
}

/// Returns the bytes of keys and rows that this thread has read from parts in the cold tier and in the archive since the last
/// call.
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
    /// Returns true if ranges of keys reach a visible part with one of these numbers in the cold tier or in the archive. `table`
    /// is a table or an index, and `rows` the table of its rows.
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

    /// Returns true if a key of a table belongs to a part in the cold tier or in the archive.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table does not exist, and [`WideError::Damaged`] if a key is not one of the table.
    pub fn has_cold_keys(&self, table: TableId, keys: &[Vec<u8>]) -> Result<bool> {
        let rules = self.rules(table)?;
        let state = self.state();
        for key in keys {
            let number = rules.part_of(key);
            let number = number.map_err(|reason| WideError::Damaged { table, reason })?;
            let part = state.parts.get(&(table, number));
            if part.is_some_and(|part| part.detail.tier != Tier::Hot) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
