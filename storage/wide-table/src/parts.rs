//! Parts of divided tables: lists of parts for users, and the limit on their number.
//!
//! A read may access every part in its time range, so the number of parts is limited.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;

use tideline_model::{KeyRange, TableId, Tier, Timestamp};

use crate::buffer::TableBuffer;
use crate::division::{ALL_PARTS, PARTS_MAX, PartNumbers, PartSelection, RECORD};
use crate::error::{Damage, Result, WideError};
use crate::state::{Part, PartKey};
use crate::store::WideStore;
use crate::tables::TableRules;

/// Part of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredPart {
    /// Number of the part; see [`PartPeriod`](tideline_model::PartPeriod).
    pub number: i32,
    /// True if reads cover the part. A part that is not visible is older than the setting `keep` allows, and is dropped
    /// later.
    pub is_visible: bool,
    /// True if rows of the part can be written.
    pub is_writable: bool,
    /// Tier that stores the part; `None` if its rows are only in the row buffer.
    pub tier: Option<Tier>,
    /// Time until which a restored part is not archived again, in nanoseconds since 1970-01-01T00:00:00Z; `None` if the
    /// part was not restored or this time has passed.
    pub held_until: Option<i64>,
}

/// First parts of a divided table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstParts {
    /// Number of the first part that reads cover.
    pub visible: i32,
    /// Number of the first part that was not dropped.
    pub kept: i32,
}

impl WideStore {
    /// Returns the number of the first part of a table that is visible now, and the number of the first part that was
    /// not dropped. Returns `None` if the table is not divided.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table does not exist.
    pub fn first_parts(&self, table: TableId) -> Result<Option<FirstParts>> {
        let rules = self.rules(table)?;
        let visible = self.visible_parts(&rules);
        Ok(rules.parts().map(|parts| FirstParts {
            visible: *visible.start(),
            kept: parts.first,
        }))
    }

    /// Returns the number of stored parts of a table.
    pub fn part_count(&self, table: TableId) -> usize {
        let state = self.state();
        let parts = state.parts_of(table, ALL_PARTS);
        parts.filter(|part| part.number() != RECORD).count()
    }

    /// Returns the parts of a divided table that have rows, flushed or not, in the order of their numbers. Empty for a
    /// table that is not divided. Takes time linear in the number of buffered rows.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table does not exist, and [`WideError::Damaged`] if a buffered key is damaged.
    pub fn parts(&self, table: TableId) -> Result<Vec<StoredPart>> {
        let rules = self.rules(table)?;
        if rules.division.is_none() {
            return Ok(Vec::new());
        }
        let state = self.state();
        let mut numbers: BTreeSet<i32> = state.parts_of(table, ALL_PARTS).map(Part::number).collect();
        for buffer in state.buffers(table) {
            let buffered = numbers_in(&buffer, &rules);
            numbers.extend(buffered.map_err(|reason| WideError::Damaged { table, reason })?);
        }
        numbers.retain(|number| rules.keeps(*number) && *number != RECORD);
        let (visible, writable_from) = (self.visible_parts(&rules), self.writable_from(&rules));
        let now = self.log.trusted_now().now.nanos();
        let part = |number| {
            let stored = state.parts.get(&(table, number));
            let is_open = number >= writable_from || stored.is_some_and(|part| part.is_held(now));
            StoredPart {
                number,
                is_visible: visible.contains(&number),
                is_writable: visible.contains(&number) && is_open && !stored.is_some_and(Part::is_closed),
                tier: stored.map(|part| part.detail.tier),
                held_until: stored
                    .and_then(|part| part.detail.held_until)
                    .filter(|until| now < *until),
            }
        };
        Ok(numbers.into_iter().map(part).collect())
    }

    /// Returns the numbers, ascending, of the selected parts that a read accesses. The read covers the given ranges of
    /// a table or index.
    ///
    /// # Errors
    ///
    /// The errors of [`parts`](Self::parts).
    pub fn parts_read(
        &self,
        table: TableId,
        selected: &PartSelection,
        ranges: &[KeyRange],
    ) -> Result<Vec<i32>> {
        let rules = self.rules(table)?;
        let reached: Vec<PartNumbers> = ranges
            .iter()
            .map(|range| rules.kept_parts(range, &selected.numbers))
            .collect();
        let state = self.state();
        let parts = self.parts(table)?.into_iter().filter(|part| part.is_visible);
        let parts = parts.filter(|part| rules.is_read(&state, (table, part.number), selected.tier));
        let read = parts.filter(|part| reached.iter().any(|numbers| numbers.contains(&part.number)));
        Ok(read.map(|part| part.number).collect())
    }

    /// Returns an error if a range reaches a part whose rows can no longer be written.
    ///
    /// # Errors
    ///
    /// [`WideError::PartClosed`] or [`WideError::PartArchived`] if there is such a part, and the errors of
    /// [`parts`](Self::parts).
    pub(crate) fn check_open(&self, table: TableId, rules: &TableRules, range: &KeyRange) -> Result<()> {
        let Some(division) = &rules.division else {
            return Ok(());
        };
        let first = self.writable_from(rules);
        let reached = rules.kept_parts(range, &ALL_PARTS);
        let state = self.state();
        let mut attaching = state.attaching.iter();
        let is_attaching = attaching.any(|(of, number)| *of == table && reached.contains(number));
        if is_attaching || state.parts_of(table, reached.clone()).any(Part::is_closed) {
            return Err(WideError::PartArchived(table));
        }
        if first == i32::MIN {
            return Ok(());
        }
        let now = self.log.trusted_now().now.nanos();
        let is_held = |number| {
            state
                .parts
                .get(&(table, number))
                .is_some_and(|part| part.is_held(now))
        };
        let is_closed = |number: i32| number < first && reached.contains(&number) && !is_held(number);
        if self.parts(table)?.iter().any(|part| is_closed(part.number)) {
            let before = Timestamp::from_nanos_clamped(division.spec.every.start_of(first));
            return Err(WideError::PartClosed { table, before });
        }
        Ok(())
    }

    /// Returns false if a row in this part would exceed the maximum number of parts of its table.
    pub(crate) fn open_part(&self, table: TableId, rules: &TableRules, number: i32) -> Result<bool> {
        self.with_written_parts(table, |numbers| {
            if numbers.contains(&number) {
                return true;
            }
            numbers.retain(|number| rules.keeps(*number));
            let is_open = numbers.len() < PARTS_MAX;
            if is_open {
                numbers.insert(number);
            }
            is_open
        })
    }

    /// Calls `take` with the numbers of the parts that rows were written to. They may include parts for which every
    /// write was refused. The first call for a table takes time linear in the number of buffered rows.
    pub(crate) fn with_written_parts<T>(
        &self,
        table: TableId,
        take: impl FnOnce(&mut BTreeSet<i32>) -> T,
    ) -> Result<T> {
        let mut written = self.written_parts.lock();
        if !written.contains_key(&table) {
            let tables = self.tables();
            written.retain(|table, _| tables.contains(*table));
        }
        let numbers = match written.entry(table) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let parts = self.parts(table)?;
                unknown.insert(parts.iter().map(|part| part.number).collect())
            }
        };
        Ok(take(numbers))
    }

    /// Returns true if the row buffer has changes of a part of a table or index.
    pub(crate) fn is_buffered(&self, (table, number): PartKey) -> Result<bool> {
        let rules = self.rules(table)?;
        let damaged = |reason| WideError::Damaged { table, reason };
        let mut is_found = false;
        for buffer in self.state().buffers(table) {
            is_found |= numbers_in(&buffer, &rules).map_err(damaged)?.contains(&number);
        }
        Ok(is_found)
    }
}

/// Returns the numbers of the parts that the changed rows of a buffer belong to.
fn numbers_in(buffer: &TableBuffer, rules: &TableRules) -> std::result::Result<BTreeSet<i32>, Damage> {
    let mut numbers = BTreeSet::new();
    buffer.each_row(&mut |key, _| {
        numbers.insert(rules.part_of(key.bytes())?);
        Ok(())
    })?;
    Ok(numbers)
}
