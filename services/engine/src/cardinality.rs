//! Counts of distinct names of a table, and the growth of its timelines over time.

use tideline_model::Ordinal;
use tideline_timeline_catalog::cardinality::Cardinality;

use crate::engine::Engine;
use crate::error::Result;
use crate::tables::Table;

/// Number of timelines whose first points are looked up in one call.
const GROUP_TIMELINES: usize = 4_096;

/// Distribution of the times when timelines were first seen.
///
/// A timeline is first seen at its oldest visible point, which changes when older points are added or the oldest is
/// removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Growth {
    /// Number of timelines first seen in each window, oldest window first.
    pub windows: Vec<u64>,
    /// Timelines first seen before the first window.
    pub earlier: u64,
    /// Timelines first seen at or after the end of the last window.
    pub later: u64,
    /// Timelines without a visible point.
    pub never: u64,
}

impl Engine {
    /// Counts the distinct names of each kind, and lists for each kind the `top` names with the highest counts.
    pub fn cardinality(&self, table: &Table, top: usize) -> Cardinality {
        table.reader().cardinality(top)
    }

    /// Counts the timelines first seen in each of `count` windows of `width` nanoseconds, from `start` on.
    ///
    /// Costs one look-up per timeline, mostly in memory.
    ///
    /// # Errors
    ///
    /// Returns a store error if the oldest points cannot be read.
    pub fn growth(&self, table: &Table, start: i64, width: i64, count: usize) -> Result<Growth> {
        let mut growth = Growth {
            windows: vec![0; count],
            earlier: 0,
            later: 0,
            never: 0,
        };
        let visible = table.reader().visible().clone();
        let mut rest = visible.iter().map(Ordinal);
        loop {
            let ids: Vec<_> = {
                let reader = table.reader();
                let group = rest.by_ref().take(GROUP_TIMELINES);
                group.map(|ordinal| reader.id(ordinal)).collect()
            };
            if ids.is_empty() {
                return Ok(growth);
            }
            for seen in self.store.seen(&table.points, &ids)? {
                match seen {
                    Some(seen) => growth.count(seen.first, start, width),
                    None => growth.never += 1,
                }
            }
        }
    }
}

impl Growth {
    fn count(&mut self, first: i64, start: i64, width: i64) {
        let windows = first.saturating_sub(start).div_euclid(width);
        if windows < 0 {
            self.earlier += 1;
            return;
        }
        match usize::try_from(windows)
            .ok()
            .and_then(|at| self.windows.get_mut(at))
        {
            Some(window) => *window += 1,
            None => self.later += 1,
        }
    }
}
