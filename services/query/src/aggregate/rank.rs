//! Ranking: selects and orders the groups by the value of a function over the whole range.
//!
//! All groups are first scanned in a single window, regardless of the windows of the result. If summaries can replace
//! points, a thousand timelines cost a thousand cells and few reads. Then the tags of the groups that can be among the
//! winners are resolved, and only the winners are scanned in the windows of the result.
//!
//! The first scan provides the result if the result has a single window and its columns include the rank value. In
//! addition, all groups must be winners, or the other columns must cost no extra reads.

use tideline_engine::Table;
use tideline_engine::model::Value;
use tideline_engine::points::ReadCost;

use super::scan::{AggregateScan, members};
use super::{CELLS_AT_ONCE_MAX, batches, no_summaries};
use crate::accumulate::Overflow;
use crate::budget::within;
use crate::compute::{Stages, no_such_field};
use crate::cutter::{AccumulatorIndices, GroupState};
use crate::error::{QueryError, Result};
use crate::groups::Groups;
use crate::plan::{AggregateSource, Columns, Scope, Wanted};
use crate::point_query::{GroupBy, PointQuery, Rank};
use crate::querier::Context;
use crate::result::ValueRef;
use crate::value_order::compare_values;
use crate::window::Windows;

/// Validated rank.
#[derive(Debug)]
pub(super) struct Ranking<'a> {
    rank: &'a Rank,
    /// Source of the rank value in each measurement that has the field.
    columns: Columns<AggregateSource>,
}

/// Winners in rank order.
pub(super) struct Ranked {
    pub(super) groups: Groups,
    /// Result states of the winners, if the first scan provided them.
    pub(super) states: Option<Vec<Option<GroupState>>>,
    pub(super) cost: ReadCost,
}

/// Parts of the query that determine the result.
#[derive(Clone, Copy)]
pub(super) struct ResultParts<'a> {
    pub(super) group_by: &'a GroupBy,
    pub(super) stages: &'a Stages,
    pub(super) columns: &'a Columns<AggregateSource>,
    /// False if the whole range is the only window.
    pub(super) has_windows: bool,
}

/// Columns of the first scan, and for each measurement the accumulator index of the rank value; `None` if the
/// measurement does not have the field.
struct FirstScan<'a> {
    columns: &'a Columns<AggregateSource>,
    indices: Vec<Option<usize>>,
    is_result: bool,
}

/// Group index and rank value; `None` if the group has no value.
type Key = (u32, Option<Value>);

impl<'a> Ranking<'a> {
    /// Returns an error if the limit is zero, the field does not exist, or the function does not support it.
    pub(super) fn new(rank: &'a Rank, scope: &Scope, table: &Table, stages: &Stages) -> Result<Self> {
        if rank.limit == Some(0) {
            return Err(QueryError::Invalid("a rank limit must be at least 1".into()));
        }
        let stored = || table.field(&rank.field);
        if stages.computed.field(&rank.field).or_else(stored).is_none() {
            return Err(no_such_field(&rank.field, table));
        }
        let fields = std::slice::from_ref(&rank.field);
        let columns =
            scope.aggregate_columns(table, Wanted::named(fields), &[rank.function], &stages.computed)?;
        Ok(Self { rank, columns })
    }

    /// Returns the maximum number of groups of the result; `usize::MAX` without a limit.
    pub(super) fn limit(&self) -> usize {
        self.rank.limit.map_or(usize::MAX, |limit| limit as usize)
    }

    /// Returns an error if there are more groups than the query may have cells. Each group has one cell during
    /// ranking.
    pub(super) fn check(context: &Context<'_>, groups: &Groups) -> Result<()> {
        let cells_max = context.watch.budget().cells_max;
        within("groups to rank", cells_max, groups.groups.len() as u64)
    }

    /// Determines the winners and removes the timelines of all other groups from the scope.
    pub(super) fn arrange(
        &self,
        context: &Context<'_>,
        query: &PointQuery,
        parts: ResultParts<'_>,
        scope: &mut Scope,
    ) -> Result<Ranked> {
        let mut groups = scope.find_groups(context.table, parts.group_by);
        Self::check(context, &groups)?;
        context.watch.hold_limited_elsewhere(0, groups.bytes())?;
        let first_scan = self.first_scan(context, parts, &groups);
        let (mut keys, mut states, cost) =
            Self::scan(context, query, parts.stages, &first_scan, scope, &groups)?;
        self.keep_candidates(&mut keys);
        let candidates: Vec<u32> = keys.iter().map(|(group, _)| *group).collect();
        scope.name_groups(context.table, parts.group_by, &mut groups, &candidates);
        keys.sort_unstable_by(|(a, x), (b, y)| {
            let group = |at: u32| &groups.groups[at as usize];
            let by_value = compare_values(x.as_ref(), y.as_ref(), self.rank.order);
            by_value.then_with(|| scope.compare_groups(group(*a), group(*b)))
        });
        keys.truncate(self.limit());
        let winners: Vec<u32> = keys.into_iter().map(|(group, _)| group).collect();
        let mut state = |group: &u32| states[*group as usize].take();
        let states = first_scan
            .is_result
            .then(|| winners.iter().map(&mut state).collect());
        Ok(Ranked {
            groups: scope.keep_groups(groups, &winners),
            states,
            cost,
        })
    }

    /// Removes the groups beyond the limit. Groups whose value equals the last value within the limit stay.
    fn keep_candidates(&self, keys: &mut Vec<Key>) {
        let limit = self.limit();
        if limit >= keys.len() {
            return;
        }
        let order = self.rank.order;
        let by_value = |(_, a): &Key, (_, b): &Key| compare_values(a.as_ref(), b.as_ref(), order);
        let (_, last, _) = keys.select_nth_unstable_by(limit - 1, by_value);
        let last = last.1.clone();
        keys.retain(|(_, value)| compare_values(value.as_ref(), last.as_ref(), order).is_le());
    }

    /// Returns the columns of the first scan: all columns of the result if the first scan can provide it (see the file
    /// header) and its cells fit into one batch; otherwise only the rank value.
    fn first_scan<'s>(
        &'s self,
        context: &Context<'_>,
        parts: ResultParts<'s>,
        groups: &Groups,
    ) -> FirstScan<'s> {
        let own = || FirstScan {
            columns: &self.columns,
            indices: vec![Some(0); self.columns.by_measurement.len()],
            is_result: false,
        };
        let columns = parts.columns;
        let cells: u64 = groups
            .groups
            .iter()
            .map(|group| columns.of(group.measurement).positions.len() as u64)
            .sum();
        if parts.has_windows || cells > CELLS_AT_ONCE_MAX.min(context.watch.budget().cells_max) {
            return own();
        }
        let reads = |columns: &Columns<AggregateSource>| {
            let sources = columns.by_measurement.iter().flat_map(|of| &of.sources);
            parts.stages.reads(sources.map(|source| source.field))
        };
        let takes_summaries = |columns| no_summaries(parts.stages, columns).is_none();
        let is_all = self.limit() >= groups.groups.len();
        let costs_the_same = reads(columns) == reads(&self.columns)
            && (takes_summaries(columns) || !takes_summaries(&self.columns));
        let indices = self.columns.by_measurement.iter().zip(&columns.by_measurement);
        let indices = indices.map(|(own, of)| match own.sources.first() {
            None => Some(None),
            Some(by) => {
                let is_by =
                    |source: &AggregateSource| (source.function, source.field) == (by.function, by.field);
                of.sources.iter().position(is_by).map(Some)
            }
        });
        match indices.collect::<Option<Vec<_>>>() {
            Some(indices) if is_all || costs_the_same => FirstScan {
                columns,
                indices,
                is_result: true,
            },
            _ => own(),
        }
    }

    /// Returns the rank value of each group, the scanned states if the first scan provides the result, and the read
    /// cost.
    fn scan(
        context: &Context<'_>,
        query: &PointQuery,
        stages: &Stages,
        first_scan: &FirstScan<'_>,
        scope: &Scope,
        groups: &Groups,
    ) -> Result<(Vec<Key>, Vec<Option<GroupState>>, ReadCost)> {
        let columns = first_scan.columns;
        let by_field: Vec<AccumulatorIndices> = columns
            .by_measurement
            .iter()
            .map(AccumulatorIndices::new)
            .collect();
        let windows = Windows::new(query.range, None)?;
        let scan = AggregateScan::new(context, query, windows.clone(), stages, columns, &by_field);
        let size = |measurement: u32| columns.of(measurement).positions.len() as u64;
        let sizes: Vec<u64> = groups
            .groups
            .iter()
            .map(|group| size(group.measurement))
            .collect();
        let mut cost = ReadCost::default();
        let mut kept = Vec::new();
        let mut keys = Vec::with_capacity(groups.groups.len());
        for batch in batches(&sizes) {
            let mut members = members(scope, groups, &batch);
            members.retain(|member| size(member.measurement) > 0);
            let (states, read) = scan.run(&batch, &members)?;
            cost.add(&read);
            for (group, state) in batch.zip(&states) {
                let measurement = groups.groups[group].measurement;
                let value = match state.as_ref().zip(first_scan.indices[measurement as usize]) {
                    Some((state, index)) => value(state, index, &windows),
                    None => None,
                };
                keys.push((group as u32, value));
            }
            if first_scan.is_result {
                kept.extend(states);
            } else {
                scan.release();
            }
        }
        Ok((keys, kept, cost))
    }
}

/// Returns the rank value of a group, if it has one.
fn value(state: &GroupState, index: usize, windows: &Windows) -> Option<Value> {
    let value = state
        .get(index)
        .map_or(Ok(None), |index| index.finish(0, windows));
    // A sum that overflows its type is ranked by its nearest double.
    let value = value.unwrap_or_else(|Overflow(nearest)| Some(ValueRef::Float(nearest)));
    value.map(|value| value.to_value())
}
