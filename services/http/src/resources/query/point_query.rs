//! Conversion of a query of the HTTP interface to a query of the querier.
//!
//! Relative times are resolved here, and contradictory options are refused.

use std::time::Duration;

use tideline_engine::model::{Tier, TimeRange, Timestamp};
use tideline_openapi::query::{Function, GroupBy, PointQuery, RankEnd, TimeOrder, WindowWidth};
use tideline_openapi::{DurationText, ErrorCode, query as wire};
use tideline_query::{
    Budget, Computation, Direction, PageToken, Percentile, Rank, RankOrder, RowOrder, Rows, Shape, Window,
};
use tideline_rows::aggregate::window_of;

use super::values;
use crate::condition::to_range;
use crate::failure::{Failure, Result};

/// Converts a query; relative times are resolved against `now`. The querier reports errors in expressions and
/// errors that depend on the table.
pub(super) fn to_point_query(query: PointQuery, now: Timestamp) -> Result<tideline_query::PointQuery> {
    let is_relative = query.is_relative();
    let after = query.page.as_deref().map(PageToken::parse).transpose()?;
    let order = match query.order {
        TimeOrder::Asc => Direction::Ascending,
        TimeOrder::Desc => Direction::Descending,
    };
    let limit = query.limit;
    let mut range = to_range(query.range, now);
    let shape = match query.aggregate {
        None => {
            if let Some(after) = after.filter(|_| is_relative) {
                range = after.range();
            }
            let sort = query.sort.map(|sort| RowOrder {
                field: sort.field,
                order: to_rank_order(sort.first),
            });
            Shape::Rows(Rows {
                order,
                limit,
                after,
                sample: query.sample,
                sort,
            })
        }
        Some(_) if query.sample.is_some() => {
            return Err(Failure::invalid(
                "sample applies to points; use a window for aggregates",
            ));
        }
        Some(_) if query.sort.is_some() => {
            return Err(Failure::invalid(
                "sort applies to points; use rank for the groups of an aggregate",
            ));
        }
        Some(_) if after.is_some() => {
            return Err(Failure::invalid(
                "aggregates have no pages; increase limit or use a shorter range",
            ));
        }
        Some(aggregate) => {
            let needs_bounds = aggregate.window.is_some() || has_rates(&aggregate);
            if needs_bounds {
                range = bounded(range, now)?;
            }
            Shape::Aggregate(to_aggregate(aggregate, &query.fields, order, limit)?)
        }
    };
    Ok(tideline_query::PointQuery {
        details: query.sample_details,
        timelines: super::to_selector(query.timelines, now)?,
        fields: query.fields,
        range,
        values: query.values.map(|condition| condition.0),
        compute: query.compute.into_iter().map(to_computation).collect(),
        tier: query.tier.into(),
        shape,
        budget: to_budget(&query.budget)?,
    })
}

/// Returns the time range and the tier (`None` = all) that a query may read.
pub(super) fn read_range(query: &PointQuery, now: Timestamp) -> (TimeRange, Option<Tier>) {
    (to_range(query.range, now), query.tier.into())
}

/// Converts a budget. A request can only lower the limits of the service: a higher limit and 0 are refused.
pub(crate) fn to_budget(requested: &wire::QueryBudget) -> Result<Budget> {
    let mut budget = Budget::default();
    let lower = |limit: &mut u64, what: &str, requested: Option<u64>| match requested {
        Some(0) => Err(Failure::invalid(format!(
            "budget.{what} is 0; it must be at least 1"
        ))),
        Some(requested) if requested > *limit => {
            let what = format!("budget.{what}");
            Err(Failure::over(ErrorCode::OverLimit, &what, *limit, requested))
        }
        Some(requested) => {
            *limit = requested;
            Ok(())
        }
        None => Ok(()),
    };
    lower(&mut budget.timelines_max, "timelines", requested.timelines)?;
    lower(&mut budget.points_max, "points", requested.points)?;
    lower(&mut budget.cells_max, "cells", requested.cells)?;
    lower(&mut budget.held_bytes_max, "memory", requested.memory)?;
    if let Some(time) = requested.time {
        let mut millis = u64::try_from(budget.time_max.as_millis()).unwrap_or(u64::MAX);
        let requested = u64::try_from(time.0).unwrap_or(0).div_ceil(1_000_000);
        lower(&mut millis, "time in milliseconds", Some(requested))?;
        budget.time_max = Duration::from_nanos(u64::try_from(time.0).unwrap_or(0));
    }
    Ok(budget)
}

/// Returns true if the aggregate contains a rate, which needs a range with a start.
fn has_rates(aggregate: &wire::Aggregate) -> bool {
    let computed = aggregate.compute.iter().cloned().map(to_computation);
    aggregate.functions.contains(&Function::Rate)
        || aggregate
            .rank
            .as_ref()
            .is_some_and(|rank| rank.by == Function::Rate)
        || computed.into_iter().any(|one| one.has_rates())
}

fn to_computation(computation: wire::Computation) -> Computation {
    Computation {
        name: computation.name,
        expression: computation.expression,
    }
}

fn to_aggregate(
    aggregate: wire::Aggregate,
    fields: &[String],
    order: Direction,
    limit: Option<u64>,
) -> Result<tideline_query::Aggregate> {
    let functions = aggregate.functions.into_iter().map(to_function);
    Ok(tideline_query::Aggregate {
        functions: functions.collect::<Result<_>>()?,
        compute: aggregate.compute.into_iter().map(to_computation).collect(),
        window: to_window(aggregate.window, aggregate.zone.as_deref(), aggregate.offset)?,
        fill: values::to_fill(aggregate.fill),
        group_by: match aggregate.group_by {
            GroupBy::Each(_) => tideline_query::GroupBy::Timeline,
            GroupBy::Tags(tags) if tags.is_empty() => tideline_query::GroupBy::Nothing,
            GroupBy::Tags(tags) => tideline_query::GroupBy::Tags(tags),
        },
        order,
        rank: aggregate.rank.map(|rank| to_rank(rank, fields)).transpose()?,
        limit,
    })
}

fn to_rank(rank: wire::Rank, fields: &[String]) -> Result<Rank> {
    let field = match (rank.field, fields) {
        (Some(field), _) => field,
        (None, [field]) => field.clone(),
        (None, _) => {
            return Err(Failure::invalid(
                "rank.field is required unless the query has exactly one field",
            ));
        }
    };
    Ok(Rank {
        function: to_function(rank.by)?,
        field,
        order: to_rank_order(rank.first),
        limit: rank.limit,
    })
}

const fn to_rank_order(first: RankEnd) -> RankOrder {
    match first {
        RankEnd::Highest => RankOrder::Highest,
        RankEnd::Lowest => RankOrder::Lowest,
    }
}

/// Converts a window; `None` without a width. Fails if there is an offset or a zone but no width.
fn to_window(
    width: Option<WindowWidth>,
    zone: Option<&str>,
    offset: Option<DurationText>,
) -> Result<Option<Window>> {
    let Some(width) = width else {
        if offset.is_some() || zone.is_some() {
            return Err(Failure::invalid("offset and zone require a window"));
        }
        return Ok(None);
    };
    Ok(Some(window_of(width, zone, offset)?))
}

/// Returns the range for windows and rates. Its end defaults to the current time. Fails if it has no start.
fn bounded(range: TimeRange, now: Timestamp) -> Result<TimeRange> {
    if range.start == i64::MIN {
        return Err(Failure::invalid("windows and rates require range.start"));
    }
    let end = if range.end == i64::MAX {
        now.nanos()
    } else {
        range.end
    };
    Ok(TimeRange::new(range.start, end))
}

fn to_function(function: Function) -> Result<tideline_query::Function> {
    use tideline_query::Function as To;
    Ok(match function {
        Function::Count => To::Count,
        Function::CountDistinct => To::CountDistinct,
        Function::Sum => To::Sum,
        Function::Mean => To::Mean,
        Function::Stddev => To::StdDev,
        Function::Min => To::Min,
        Function::Max => To::Max,
        Function::Spread => To::Spread,
        Function::Mode => To::Mode,
        Function::First => To::First,
        Function::Last => To::Last,
        Function::Delta => To::Delta,
        Function::Rate => To::Rate,
        Function::Increase => To::Increase,
        Function::Integral => To::Integral,
        Function::TimeWeightedMean => To::TimeWeightedMean,
        Function::Percentile(percent) => {
            let percentile = Percentile::new(percent);
            To::Percentile(percentile.ok_or_else(|| {
                Failure::invalid(format!("a percentile must be from 0 to 100, found {percent}"))
            })?)
        }
    })
}

#[cfg(test)]
mod tests {
    use chrono_tz::Tz;
    use tideline_engine::model::time::NANOS_PER_DAY;
    use tideline_query::WindowSpec;

    use super::*;

    fn query(json: &str) -> Result<tideline_query::PointQuery> {
        let query = serde_json::from_str(json).expect(json);
        to_point_query(query, Timestamp::from_nanos_clamped(1_000_000_000_000))
    }

    #[test]
    fn relative_ranges_stay_those_of_the_first_page() {
        let relative = query(r#"{"range":{"start":"now-10s","end":"now"}}"#).expect("valid");
        assert_eq!(relative.range, TimeRange::new(990_000_000_000, 1_000_000_000_000));
        let open = query("{}").expect("valid");
        assert_eq!(open.range, TimeRange::ALL);
    }

    #[test]
    fn days_and_weeks_of_utc_are_windows_of_one_width() {
        let window = |json: &str| {
            let json = format!(r#"{{"range":{{"start":0}},"aggregate":{{"functions":["max"],{json}}}}}"#);
            match query(&json).expect("valid").shape {
                Shape::Aggregate(shape) => shape.window.expect("a window"),
                Shape::Rows(_) => panic!("an aggregate"),
            }
        };
        let fixed = |width: i64, offset: i64| {
            Window::Fixed(WindowSpec {
                width: width * NANOS_PER_DAY,
                offset: offset * NANOS_PER_DAY,
            })
        };
        assert_eq!(window(r#""window":"3d""#), fixed(3, 0));
        assert_eq!(window(r#""window":"1w","zone":"UTC""#), fixed(7, 4));
        assert_eq!(window(r#""window":"1w","offset":"1d""#), fixed(7, 5));
        assert!(matches!(window(r#""window":"1mo""#), Window::Calendar(_)));
        let berlin = window(r#""window":"1d","zone":"Europe/Berlin""#);
        assert!(matches!(berlin, Window::Calendar(window) if window.zone == Tz::Europe__Berlin));
    }

    #[test]
    fn a_budget_lowers_what_the_service_allows() {
        let budget = query(r#"{"budget":{"time":"1500ms","timelines":7,"points":8,"cells":9,"memory":10}}"#);
        let budget = budget.expect("valid").budget;
        assert_eq!(budget.time_max, Duration::from_millis(1_500));
        assert_eq!((budget.timelines_max, budget.points_max), (7, 8));
        assert_eq!((budget.cells_max, budget.held_bytes_max), (9, 10));
        assert_eq!(budget.values_max, Budget::default().values_max);
        for (json, limit) in [
            (r#"{"budget":{"time":"121s"}}"#, 120_000),
            (r#"{"budget":{"timelines":1000001}}"#, 1_000_000),
        ] {
            let failure = query(json).expect_err(json);
            assert_eq!(failure.code, ErrorCode::OverLimit);
            assert_eq!(failure.limit.map(|(limit, _)| limit), Some(limit));
        }
    }

    #[test]
    fn windows_need_a_beginning_and_end_now() {
        let windows = query(r#"{"range":{"start":0},"aggregate":{"functions":["mean"],"window":"1m"}}"#);
        assert_eq!(windows.expect("valid").range.end, 1_000_000_000_000);
        for wrong in [
            r#"{"aggregate":{"functions":["mean"],"window":"1m"}}"#,
            r#"{"aggregate":{"functions":["rate"]}}"#,
            r#"{"aggregate":{"functions":["mean"],"offset":"1m"}}"#,
            r#"{"aggregate":{"functions":[{"percentile":100.5}]}}"#,
            r#"{"aggregate":{"functions":["mean"],"zone":"UTC"}}"#,
            r#"{"range":{"start":0},"aggregate":{"functions":["mean"],"window":"6h","zone":"Europe/Berlin"}}"#,
            r#"{"range":{"start":0},"aggregate":{"functions":["mean"],"window":"1d","zone":"Berlin"}}"#,
            r#"{"aggregate":{"functions":["mean"],"rank":{"by":"rate","field":"n"}}}"#,
            r#"{"aggregate":{"compute":[{"name":"a","expression":"rate(n) * 8"}]}}"#,
            r#"{"fields":["a","b"],"aggregate":{"functions":["mean"],"rank":{"by":"max"}}}"#,
            r#"{"timelines":{}}"#,
            r#"{"timelines":{"ids":["zz"]}}"#,
            r#"{"timelines":{"ids":[],"where":{"and":[]}}}"#,
            r#"{"page":"00"}"#,
            r#"{"sample":10,"aggregate":{"functions":["max"]}}"#,
            r#"{"budget":{"points":0}}"#,
        ] {
            assert_eq!(query(wrong).expect_err(wrong).code, ErrorCode::Invalid, "{wrong}");
        }
    }
}
