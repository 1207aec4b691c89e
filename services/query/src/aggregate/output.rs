//! Writes the rows of an aggregate to the sink, group by group and window by window.
//!
//! Empty windows are filled and expressions evaluated here, after all values of a group are merged.

use std::collections::BTreeSet;

use super::arithmetic::Arithmetic;
use super::scan::AggregateScan;
use crate::cutter::GroupState;
use crate::error::Result;
use crate::expression::Stack;
use crate::fill::Fill;
use crate::groups::Group;
use crate::plan::{AggregateSource, MeasurementColumns, Scope, TagBuffer};
use crate::point_query::Direction;
use crate::result::{RowSink, Series, ValueRef};

/// Number of rows between two checks of time limit and cancellation.
const ROWS_PER_CHECK: u64 = 128;

/// Writer of the rows of a result.
pub(super) struct Output<'a> {
    pub(super) scan: &'a AggregateScan<'a>,
    pub(super) scope: &'a Scope,
    pub(super) arithmetic: &'a Arithmetic,
    pub(super) order: Direction,
    pub(super) fill: Option<&'a Fill>,
    pub(super) limit: u64,
    pub(super) rows: u64,
    /// True if there was a row beyond the limit.
    pub(super) more: bool,
    pub(super) tags: TagBuffer,
    pub(super) stack: Stack,
    /// Positions of the columns with at least one estimated value.
    pub(super) estimated: BTreeSet<usize>,
    /// Positions of the columns in which some integer sum did not fit its type.
    pub(super) overflowed: BTreeSet<usize>,
    /// Indices of the accumulators whose integer sum did not fit its type in the window that was evaluated last.
    pub(super) row_overflows: Vec<usize>,
}

impl Output<'_> {
    /// Writes groups from their scanned states, up to the row limit.
    pub(super) fn groups(
        &mut self,
        groups: &[Group],
        states: Vec<Option<GroupState>>,
        sink: &mut dyn RowSink,
    ) -> Result<()> {
        for (group, state) in groups.iter().zip(states) {
            if let Some(state) = state.filter(|_| !self.more) {
                self.group(group, &state, sink)?;
            }
        }
        Ok(())
    }

    fn group(&mut self, group: &Group, state: &GroupState, sink: &mut dyn RowSink) -> Result<()> {
        let columns = self.scan.columns.of(group.measurement);
        let Some(fill) = self.fill else {
            return self.rows(group, state, None, sink);
        };
        let watch = self.scan.context.watch;
        let cells = self.scan.windows.count().saturating_mul(state.len() as u64);
        let bytes = cells.saturating_mul(size_of::<Option<ValueRef<'_>>>() as u64);
        watch.hold_limited_elsewhere(0, bytes)?;
        let filled = self.filled(fill, columns, state)?;
        if !filled.is_empty() {
            self.rows(group, state, Some(&filled), sink)?;
        }
        drop(filled);
        // After an error the query ends, which releases all of its memory.
        watch.hold_limited_elsewhere(bytes, 0)
    }

    /// Writes the rows of a group: one row per window from the values of `filled`. If `filled` is `None`, writes only
    /// the windows that have values.
    fn rows<'s>(
        &mut self,
        group: &Group,
        state: &'s GroupState,
        filled: Option<&[Vec<Option<ValueRef<'s>>>]>,
        sink: &mut dyn RowSink,
    ) -> Result<()> {
        let columns = self.scan.columns.of(group.measurement);
        let mut is_open = false;
        let mut windows = 0..self.scan.windows.count() as usize;
        let mut values = Vec::with_capacity(state.len());
        while let Some(window) = match self.order {
            Direction::Ascending => windows.next(),
            Direction::Descending => windows.next_back(),
        } {
            if let Some(filled) = filled {
                values.clear();
                values.extend(filled.iter().map(|column| column[window]));
            } else if !self.values(columns, state, window, &mut values) {
                continue;
            }
            let has_values = self
                .arithmetic
                .apply(group.measurement, &mut values, &mut self.stack);
            if !has_values && filled.is_none() && self.row_overflows.is_empty() {
                continue;
            }
            if self.rows == self.limit {
                self.more = true;
                return Ok(());
            }
            if self.rows.is_multiple_of(ROWS_PER_CHECK) {
                self.scan.context.watch.check()?;
            }
            if !is_open {
                is_open = true;
                self.open(group, sink)?;
            }
            sink.row(self.scan.windows.start(window), &values)?;
            self.rows += 1;
        }
        Ok(())
    }

    /// Returns the values of every window, column by column; empty if no window has a value or an overflow.
    fn filled<'s>(
        &mut self,
        fill: &'s Fill,
        columns: &MeasurementColumns<AggregateSource>,
        state: &'s GroupState,
    ) -> Result<Vec<Vec<Option<ValueRef<'s>>>>> {
        let windows = &self.scan.windows;
        let count = windows.count() as usize;
        let mut filled: Vec<Vec<_>> = state.iter().map(|_| Vec::with_capacity(count)).collect();
        let mut values = Vec::with_capacity(state.len());
        let mut is_empty = true;
        let mut overflows = Vec::new();
        for window in 0..count {
            is_empty &= !self.values(columns, state, window, &mut values);
            overflows.extend(self.row_overflows.iter().map(|column| (*column, window)));
            let cells = filled.iter_mut().zip(&values);
            cells.for_each(|(column, value)| column.push(*value));
        }
        if is_empty {
            return Ok(Vec::new());
        }
        for (source, column) in columns.sources.iter().zip(&mut filled) {
            fill.apply(source.function, windows, column);
        }
        // These windows have values that cannot be shown, so they must not be filled.
        for (column, window) in overflows {
            filled[column][window] = None;
        }
        self.scan.context.watch.check()?;
        Ok(filled)
    }

    /// Replaces `values` by the accumulator values of a window; returns `false` if no accumulator has a value or an
    /// overflow.
    fn values<'s>(
        &mut self,
        columns: &MeasurementColumns<AggregateSource>,
        state: &'s GroupState,
        window: usize,
        values: &mut Vec<Option<ValueRef<'s>>>,
    ) -> bool {
        values.clear();
        self.row_overflows.clear();
        for (at, (accumulator, position)) in state.iter().zip(&columns.positions).enumerate() {
            let value = accumulator.finish(window, &self.scan.windows);
            if value.is_err() {
                self.overflowed.insert(*position);
                self.row_overflows.push(at);
            }
            values.push(value.unwrap_or_default());
            if accumulator.is_estimate(window) {
                self.estimated.insert(*position);
            }
        }
        if self.row_overflows.is_empty() && values.iter().all(Option::is_none) {
            return false;
        }
        for (value, source) in values.iter_mut().zip(&columns.sources) {
            if source.function.counts() {
                value.get_or_insert(ValueRef::Unsigned(0));
            }
        }
        true
    }

    fn open(&mut self, group: &Group, sink: &mut dyn RowSink) -> Result<()> {
        let tags = match &group.timeline {
            Some(timeline) => {
                self.tags.fill(self.scan.context.table, timeline);
                self.tags.tags()
            }
            None => &group.tags,
        };
        sink.series(&Series {
            id: group.timeline.map(|timeline| timeline.id),
            measurement: &self.scope.measurements[group.measurement as usize],
            tags,
            columns: self.arithmetic.positions(group.measurement),
        })?;
        Ok(())
    }
}
