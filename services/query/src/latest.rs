//! The newest value of each field of any set of timelines.

use tideline_model::{FieldId, TimeRange};
use tideline_series_store::{LatestField, LatestRow, ReadCost};

use crate::answer::{AnswerSink, Header, QueryCost, Series, Summary, ValueRef};
use crate::budget::{Budget, rows_limit};
use crate::error::{QueryError, Result};
use crate::plan::{Scope, TagBuffer};
use crate::querier::Context;
use crate::question::Selector;
use crate::token::{PageToken, terms_hash};

/// A question for newest values.
#[derive(Debug, Clone)]
pub struct LatestQuery {
    /// Which timelines.
    pub timelines: Selector,
    /// Names of the wanted fields; empty = all. A name that the table has never seen is an error.
    pub fields: Vec<String>,
    /// Most timelines of this page; `None` = as many as the budget allows rows.
    pub limit: Option<u64>,
    /// The token that ended the page before.
    pub after: Option<PageToken>,
    /// What the query may cost. Points are not counted: most values are at hand in memory.
    pub budget: Budget,
}

/// Answers a query for newest values: a series for each timeline, in the order of their ids.
///
/// Fields may have been written at different times. A series has a row for each instant at which one of its
/// fields was last written, newest first; each field has its value in one of them.
///
/// A timeline that was written since the start costs a look into memory; any other reads its newest chunks, the
/// first time that it is asked for.
pub(crate) fn run(context: &Context<'_>, query: &LatestQuery, sink: &mut dyn AnswerSink) -> Result<Summary> {
    let Context { table, watch, .. } = context;
    let terms = terms_hash(&(table.points().id(), &query.timelines, &query.fields, "latest"));
    if query.after.is_some_and(|after| after.terms != terms) {
        return Err(QueryError::ForeignToken);
    }
    let limit = rows_limit("timelines asked for", watch.budget(), query.limit)?;
    let mut scope = Scope::select(context.engine, table, &query.timelines, watch)?;
    let columns = scope.row_columns(table, &query.fields)?;
    scope.retain_with_columns(&columns);
    sink.begin(&Header {
        is_by_timeline: true,
        tags: if sink.needs_tags() {
            scope.tag_keys(table)
        } else {
            Vec::new()
        },
        columns: columns.names.clone(),
    })?;
    let schema = table.points().schema();
    let expected: Vec<Vec<FieldId>> = scope
        .measurements
        .iter()
        .map(|name| schema.fields_of(name))
        .collect();
    let done = query.after.map_or(0, |after| {
        scope
            .timelines
            .partition_point(|timeline| timeline.id <= after.id)
    });
    let mut tags = TagBuffer::default();
    let mut cost = ReadCost::default();
    let (mut timelines, mut rows, mut last, mut more) = (0, 0, None, false);
    for timeline in &scope.timelines[done..] {
        watch.check()?;
        let measurement = timeline.measurement as usize;
        let latest = context
            .engine
            .store()
            .latest(table.points(), timeline.id, &expected[measurement])?;
        cost.timelines += 1;
        let columns = columns.of(timeline.measurement);
        let found: Vec<Option<&LatestField>> = columns
            .sources
            .iter()
            .map(|field| field_of(&latest, *field))
            .collect();
        let mut times: Vec<i64> = found.iter().flatten().map(|field| field.timestamp).collect();
        if times.is_empty() {
            continue;
        }
        if timelines == limit {
            more = true;
            break;
        }
        cost.values += times.len() as u64;
        times.sort_unstable_by(|a, b| b.cmp(a));
        times.dedup();
        tags.fill(table, timeline);
        sink.series(&Series {
            id: Some(timeline.id),
            measurement: &scope.measurements[measurement],
            tags: tags.tags(),
            columns: &columns.positions,
        })?;
        for time in times {
            let values: Vec<Option<ValueRef<'_>>> = found
                .iter()
                .map(|field| field.filter(|field| field.timestamp == time))
                .map(|field| field.map(|field| (&field.value).into()))
                .collect();
            sink.row(time, &values)?;
            rows += 1;
        }
        timelines += 1;
        last = Some(timeline.id);
    }
    let next = last.filter(|_| more);
    Ok(Summary {
        rows,
        more,
        next: next.map(|id| PageToken::new(id, 0, TimeRange::ALL, terms).to_string()),
        cost: QueryCost::new(cost, watch.elapsed()),
    })
}

/// The newest value of a field; a row of newest values is in field order.
fn field_of(latest: &LatestRow, field: FieldId) -> Option<&LatestField> {
    let found = latest.binary_search_by_key(&field, |found| found.field);
    found.ok().map(|at| &latest[at])
}
