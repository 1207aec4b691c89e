//! Division of a table into parts by time: the part of each row, and the visible parts.
//!
//! The part of a row follows from a timestamp in its key. The key of an index entry holds the whole primary key, so an
//! entry is in the part of its index with the same number. A table that is not divided has one part with the number 0.
//!
//! When parts are dropped, their rows are not deleted one by one. The settings raise the number of the first part,
//! which hides the rows of lower parts at once, including rows in the row buffer and in the journal.

use std::ops::RangeInclusive;

use tideline_key_codec::layout::KeyLayout;
use tideline_model::{KeyRange, PartsSpec, TierScope};

use crate::error::Damage;

/// Numbers of parts.
pub type PartNumbers = RangeInclusive<i32>;

/// All parts of a table.
pub const ALL_PARTS: PartNumbers = i32::MIN..=i32::MAX;

/// Parts that a read concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartSelection {
    /// Bounds of the numbers of the parts.
    pub numbers: PartNumbers,
    /// Tiers of the parts.
    pub tier: TierScope,
}

impl Default for PartSelection {
    fn default() -> Self {
        Self {
            numbers: ALL_PARTS,
            tier: TierScope::All,
        }
    }
}

/// Maximum number of parts of a table.
pub const PARTS_MAX: usize = 1_000;

/// Number of an empty part that keeps the records of a table after all its other parts were dropped.
pub(crate) const RECORD: i32 = i32::MAX;

/// Number of the part of a table that is not divided.
pub(crate) const WHOLE: i32 = 0;

/// Division of a table, or of the entries of an index.
#[derive(Debug)]
pub(crate) struct Division {
    pub(crate) spec: PartsSpec,
    layout: KeyLayout,
    /// Position of the column with the time among the stored key columns.
    column: usize,
}

impl Division {
    /// Compiles the division of keys with this layout.
    ///
    /// # Errors
    ///
    /// A message if the layout does not have the column.
    pub(crate) fn new(spec: &PartsSpec, layout: KeyLayout) -> Result<Self, String> {
        let column = layout.time_column(&spec.by);
        Self::by_column(spec, layout, column)
    }

    /// Compiles the division of the entries of an index. The layout of an index does not mark the generated column of
    /// the table, so the kind of the column is not checked.
    ///
    /// # Errors
    ///
    /// A message if the layout does not have the column.
    pub(crate) fn of_entries(spec: &PartsSpec, layout: KeyLayout) -> Result<Self, String> {
        let column = layout.stored_column(&spec.by);
        Self::by_column(spec, layout, column)
    }

    fn by_column(spec: &PartsSpec, layout: KeyLayout, column: Option<usize>) -> Result<Self, String> {
        Ok(Self {
            column: column.ok_or_else(|| format!("the key has no column {:?} with a time", spec.by))?,
            spec: spec.clone(),
            layout,
        })
    }

    /// Returns the first and the last number of the parts that keys of a range can belong to.
    pub(crate) fn numbers_in(&self, range: &KeyRange) -> PartNumbers {
        let times = self.layout.times_in(range, self.column);
        let number_of = |time: i64| self.spec.every.number_of(time);
        number_of(*times.start())..=number_of(*times.end())
    }

    /// Returns the number of the part of a key.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the key has no timestamp in the position of the column.
    pub(crate) fn number_of(&self, key: &[u8]) -> Result<i32, Damage> {
        let time = self.layout.time_at(key, self.column);
        let time = time.map_err(|_| Damage("the key has no timestamp that decides its part"))?;
        Ok(self.spec.every.number_of(time.nanos()))
    }
}
