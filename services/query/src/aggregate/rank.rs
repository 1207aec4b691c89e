//! Which groups are answered, and in which order, by the value of a function over the whole range.
//!
//! Every group is swept in one window, whatever the windows of the answer: where summaries can stand for points, a
//! thousand timelines cost a thousand cells and few reads. Only the winners are then read by window.

use std::cmp::Ordering;

use tideline_engine::Table;
use tideline_model::Value;
use tideline_series_store::ReadCost;

use super::batches;
use super::sweep::{Sweep, members};
use crate::accumulate::Overflow;
use crate::accumulate::scalar::Scalar;
use crate::budget::within;
use crate::compute::{Stages, no_such_field};
use crate::cutter::Lanes;
use crate::error::{QueryError, Result};
use crate::plan::{Groups, Scope};
use crate::querier::Context;
use crate::question::{GroupBy, PointQuery, Rank, RankOrder};
use crate::window::Windows;

/// Puts the groups into the order of a rank, and leaves out those behind its limit, with their timelines.
pub(super) fn arrange(
    context: &Context<'_>,
    query: &PointQuery,
    group_by: &GroupBy,
    rank: &Rank,
    stages: &Stages,
    scope: &mut Scope,
) -> Result<(Groups, ReadCost)> {
    check(rank, context.table, stages)?;
    let groups = scope.groups(context.table, group_by);
    let cells_max = context.watch.budget().cells_max;
    within("groups to rank", cells_max, groups.groups.len() as u64)?;
    let (mut keys, cost) = keys(context, query, rank, stages, scope, &groups)?;
    keys.sort_by(|(a, x), (b, y)| compare(x.as_ref(), y.as_ref(), rank.order).then(a.cmp(b)));
    let limit = rank.limit.map_or(usize::MAX, |limit| limit as usize);
    keys.truncate(limit);
    let winners: Vec<u32> = keys.into_iter().map(|(group, _)| group).collect();
    Ok((scope.keep_groups(groups, &winners), cost))
}

/// Refuses a limit of nothing, and a field that nobody knows.
pub(super) fn check(rank: &Rank, table: &Table, stages: &Stages) -> Result<()> {
    if rank.limit == Some(0) {
        return Err(QueryError::Invalid("a rank has a limit of at least 1".into()));
    }
    let stored = || table.points().schema().field(&rank.field);
    match stages.computed.field(&rank.field).or_else(stored) {
        Some(_) => Ok(()),
        None => Err(no_such_field(&rank.field, table)),
    }
}

/// A group and its value, if it has one.
type Key = (u32, Option<Value>);

/// The value of each group.
fn keys(
    context: &Context<'_>,
    query: &PointQuery,
    rank: &Rank,
    stages: &Stages,
    scope: &Scope,
    groups: &Groups,
) -> Result<(Vec<Key>, ReadCost)> {
    let fields = std::slice::from_ref(&rank.field);
    let columns = scope.aggregate_columns(context.table, fields, &[rank.function], &stages.computed)?;
    let by_field: Vec<Lanes> = columns.by_measurement.iter().map(Lanes::new).collect();
    let windows = Windows::new(query.range, None)?;
    let sweep = Sweep::new(context, query, windows.clone(), stages, &columns, &by_field);
    let sizes: Vec<u64> = groups
        .groups
        .iter()
        .map(|group| columns.of(group.measurement).positions.len() as u64)
        .collect();
    let mut cost = ReadCost::default();
    let mut keys = Vec::with_capacity(groups.groups.len());
    for batch in batches(&sizes) {
        let mut members = members(scope, groups, &batch);
        members.retain(|member| !columns.of(member.measurement).positions.is_empty());
        let (states, read) = sweep.run(&batch, &members)?;
        cost.add(&read);
        for (group, state) in batch.zip(states) {
            let lane = state.as_ref().and_then(|state| state.first());
            let value = lane.map_or(Ok(None), |lane| lane.finish(0, &windows));
            let value = value.map_err(|Overflow(value_type)| QueryError::Overflow {
                column: columns.names[0].clone(),
                window: query.range.start,
                value_type,
            })?;
            keys.push((group as u32, value.map(|value| value.to_value())));
        }
        context.watch.release();
    }
    Ok((keys, cost))
}

/// Numbers by their exact values, then booleans, then texts, each in the asked order; then NaN, then what has no value,
/// in either order.
fn compare(a: Option<&Value>, b: Option<&Value>, order: RankOrder) -> Ordering {
    let place = |value: Option<&Value>| match value {
        Some(Value::Float(value)) if value.is_nan() => 3,
        Some(Value::Float(_) | Value::Signed(_) | Value::Unsigned(_)) => 0,
        Some(Value::Boolean(_)) => 1,
        Some(Value::String(_)) => 2,
        None => 4,
    };
    let by_value = match (a, b) {
        (Some(Value::String(a)), Some(Value::String(b))) => a.cmp(b),
        _ => match (a.and_then(scalar), b.and_then(scalar)) {
            (Some(a), Some(b)) if place(Some(&a.to_value())) < 3 => a.compare_values(b),
            _ => Ordering::Equal,
        },
    };
    place(a).cmp(&place(b)).then(match order {
        RankOrder::Lowest => by_value,
        RankOrder::Highest => by_value.reverse(),
    })
}

fn scalar(value: &Value) -> Option<Scalar> {
    Some(match value {
        Value::Float(value) => Scalar::Float(*value),
        Value::Signed(value) => Scalar::Signed(*value),
        Value::Unsigned(value) => Scalar::Unsigned(*value),
        Value::Boolean(value) => Scalar::Boolean(*value),
        Value::String(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_place_in_both_orders() {
        let text = |text: &str| Some(Value::String(text.into()));
        let rising = [
            Some(Value::Float(f64::NEG_INFINITY)),
            Some(Value::Signed(-3)),
            Some(Value::Float(2.5)),
            Some(Value::Signed(9_007_199_254_740_992)),
            Some(Value::Unsigned(9_007_199_254_740_993)),
            Some(Value::Boolean(false)),
            Some(Value::Boolean(true)),
            text("a"),
            text("b"),
            Some(Value::Float(f64::NAN)),
            None,
        ];
        let sorted = |order| {
            let mut values: Vec<usize> = (0..rising.len()).rev().collect();
            values.sort_by(|a, b| compare(rising[*a].as_ref(), rising[*b].as_ref(), order));
            values
        };
        assert_eq!(sorted(RankOrder::Lowest), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(sorted(RankOrder::Highest), [4, 3, 2, 1, 0, 6, 5, 8, 7, 9, 10]);
        let (one, same) = (Some(Value::Signed(1)), Some(Value::Float(1.0)));
        assert!(compare(one.as_ref(), same.as_ref(), RankOrder::Highest).is_eq());
        let minus = Some(Value::Float(-0.0));
        let zero = Some(Value::Float(0.0));
        assert!(compare(minus.as_ref(), zero.as_ref(), RankOrder::Lowest).is_eq());
    }
}
