//! `/v1/tables/{table}/query`: points as they are, or values computed from them.
//!
//! The answer streams in the format that the client accepts, one file each under `query/`. Whatever can be refused is
//! refused before its first byte; what fails behind that cuts the answer off.

mod csv;
mod format;
mod json;
mod ndjson;
mod values;

use std::io::Write as _;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use tideline_engine::{Table, TimelineSelector};
use tideline_model::{Tier, TimeRange, Timestamp};
use tideline_openapi::query::{Function, GroupBy, PointAnswer, PointQuery, TimeOrder};
use tideline_openapi::{ErrorCode, query as wire};
use tideline_query::{
    AnswerSink, Budget, Cancel, Direction, PageToken, Percentile, Querier, QueryError, Rows, Selector, Shape,
    Summary, WindowSpec,
};
use tideline_search_index::Condition;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::condition::{self, to_range};
use crate::context::RequestId;
use crate::extract::{Json, Path};
use crate::failure::{Failure, Result};
use crate::resources::{QueryFailures, TablePath};
use crate::stream;

pub(crate) use self::format::{Options, put_json_text, put_json_time, put_json_value};

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(query))
}

/// Query points
///
/// Raw points of any set of timelines, paged, or aggregates of windows and groups. By `Accept`:
///
/// * `application/json` (also without the header): series with their rows, the cost at the end.
/// * `application/x-ndjson`: one flat object a row (`id`, `measurement`, `time`, tags, fields; what is missing is left
///   out), then one with `more`, `next`, `cost`, and `estimated` where a column is. A tag that is called like one of the others becomes `tag:<key>`,
///   a field `field:<name>`.
/// * `text/csv`: a header line, then a line a row (RFC 4180; no value is an empty cell, an empty text is `""`). It has
///   neither cost nor next page, and does not say which columns are estimates.
///
/// The answer streams in flat memory whatever its size; a failure after its first part cuts it off in the middle of the
/// chunked encoding. When the client leaves, the query stops.
#[utoipa::path(
    post, path = "/v1/tables/{table}/query", tag = "points",
    params(TablePath),
    request_body = PointQuery,
    responses(
        (status = 200, description = "The rows", content(
            (PointAnswer = "application/json"),
            (String = "application/x-ndjson", example = ndjson_example),
            (String = "text/csv", example = csv_example)
        )),
        QueryFailures
    )
)]
async fn query(
    State(app): State<App>,
    request_id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    headers: HeaderMap,
    Json(question): Json<PointQuery>,
) -> Result<Response> {
    let options = Options::new(&headers, question.times, question.int64, request_id)?;
    let question = to_question(question, app.engine.clock().now())?;
    let reach = Some((question.range, question.tier));
    answer(
        &app,
        table,
        reach,
        options,
        move |querier, table, cancel, sink| querier.points(table, &question, cancel, sink),
    )
    .await
}

fn ndjson_example() -> &'static str {
    "{\"measurement\":\"cpu\",\"host\":\"sim-001\",\"time\":\"2026-11-20T12:00:00Z\",\"mean(usage_user)\":41.5}\n{\"more\":false,\"next\":null,\"cost\":{\"timelines\":1,\"chunks\":1,\"points\":6,\"values\":6,\"bytes\":75,\"elapsed_ms\":0.21,\"tiers\":{\"hot\":{\"segments\":1,\"chunks\":1,\"points\":6,\"values\":6,\"bytes\":75,\"summaries\":0,\"summarized_points\":0},\"cold\":{\"segments\":0,\"chunks\":0,\"points\":0,\"values\":0,\"bytes\":0,\"summaries\":0,\"summarized_points\":0}}}}\n"
}

fn csv_example() -> &'static str {
    "measurement,host,time,mean(usage_user)\r\ncpu,sim-001,2026-11-20T12:00:00Z,41.5\r\n"
}

/// Streams what `ask` hands to its sink, when the turn of this query has come. `reach` is what it may read from segments,
/// if anything: queries of cold points have turns of their own, so that no flood of them takes those of the others.
pub(crate) async fn answer<F>(
    app: &App,
    table: String,
    reach: Option<(TimeRange, Option<Tier>)>,
    options: Options,
    ask: F,
) -> Result<Response>
where
    F: FnOnce(&Querier, &Table, &Cancel, &mut dyn AnswerSink) -> std::result::Result<Summary, QueryError>
        + Send
        + 'static,
{
    // Who asks for a table that is not there is told when the turn has come.
    let is_cold = reach
        .zip(app.engine.table(&table).ok())
        .is_some_and(|((range, tier), table)| app.querier.reaches_cold(&table, range, tier));
    let turns = if is_cold { &app.cold_queries } else { &app.queries };
    let turn = turns.take().await?;
    let cancel = Cancel::new();
    let mut waiting = Waiting(Some(cancel.clone()));
    let running = app.clone();
    let response = stream::answer(options.format.content_type(), move |writer| {
        let _turn = turn;
        let table = running.engine.table(&table)?;
        let mut sink = options.sink(&mut *writer);
        let summary = ask(&running.querier, &table, &cancel, &mut *sink)?;
        sink.end(&summary).map_err(stream::client_left)?;
        drop(sink);
        writer.flush().map_err(stream::client_left)
    })
    .await;
    // From now on a client that leaves closes the stream, and the writer meets that.
    waiting.0 = None;
    response
}

/// A client that waits for the first part of its answer. When it leaves, this is dropped, and the query stops.
struct Waiting(Option<Cancel>);

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(cancel) = &self.0 {
            cancel.cancel();
        }
    }
}

fn to_question(question: PointQuery, now: Timestamp) -> Result<tideline_query::PointQuery> {
    let is_relative = question.is_relative();
    let after = question.page.as_deref().map(PageToken::parse).transpose()?;
    let order = match question.order {
        TimeOrder::Asc => Direction::Ascending,
        TimeOrder::Desc => Direction::Descending,
    };
    let limit = question.limit;
    let mut range = to_range(question.range, now);
    let shape = match question.aggregate {
        None => {
            if let Some(after) = after.filter(|_| is_relative) {
                range = after.range();
            }
            Shape::Rows(Rows { order, limit, after })
        }
        Some(_) if after.is_some() => {
            return Err(Failure::invalid(
                "aggregates have no pages; raise limit or narrow range",
            ));
        }
        Some(aggregate) => {
            let needs_bounds = aggregate.window.is_some() || aggregate.functions.contains(&Function::Rate);
            if needs_bounds {
                range = bounded(range, now)?;
            }
            Shape::Aggregate(to_aggregate(aggregate, order, limit)?)
        }
    };
    Ok(tideline_query::PointQuery {
        timelines: to_selector(question.timelines, now)?,
        fields: question.fields,
        range,
        values: question.values.map(values::to_condition),
        tier: question.tier.into(),
        shape,
        budget: Budget::default(),
    })
}

fn to_aggregate(
    aggregate: wire::Aggregate,
    order: Direction,
    limit: Option<u64>,
) -> Result<tideline_query::Aggregate> {
    let offset = aggregate.offset.map_or(0, |offset| offset.0);
    if aggregate.window.is_none() && aggregate.offset.is_some() {
        return Err(Failure::invalid("an offset needs a window that it moves"));
    }
    Ok(tideline_query::Aggregate {
        functions: aggregate
            .functions
            .into_iter()
            .map(to_function)
            .collect::<Result<_>>()?,
        window: aggregate.window.map(|width| WindowSpec {
            width: width.0,
            offset,
        }),
        fill: values::to_fill(aggregate.fill),
        group_by: match aggregate.group_by {
            GroupBy::Each(_) => tideline_query::GroupBy::Timeline,
            GroupBy::Tags(tags) if tags.is_empty() => tideline_query::GroupBy::Nothing,
            GroupBy::Tags(tags) => tideline_query::GroupBy::Tags(tags),
        },
        order,
        limit,
    })
}

/// The range of a computation that is over time: it begins somewhere, and ends now unless it says when.
fn bounded(range: TimeRange, now: Timestamp) -> Result<TimeRange> {
    if range.start == i64::MIN {
        return Err(Failure::invalid("windows and rates need a range with a start"));
    }
    let end = if range.end == i64::MAX {
        now.nanos()
    } else {
        range.end
    };
    Ok(TimeRange::new(range.start, end))
}

/// The timelines of a question; all where it names none.
pub(crate) fn to_selector(selector: Option<wire::TimelineSelector>, now: Timestamp) -> Result<Selector> {
    let selector = selector.map(|selector| condition::to_selector(selector, now));
    Ok(match selector.transpose()? {
        None => Selector::Condition(Condition::All),
        Some(TimelineSelector::Condition(condition)) => Selector::Condition(condition),
        Some(TimelineSelector::Ids(ids)) => Selector::Ids(ids),
    })
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
                Failure::invalid(format!("a percentile is from 0 to 100, and not {percent}"))
            })?)
        }
    })
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        let code = match &error {
            QueryError::OverBudget { .. } | QueryError::TimedOut { .. } => ErrorCode::OverBudget,
            QueryError::Overloaded { .. } => ErrorCode::Overloaded,
            QueryError::Cancelled => ErrorCode::Internal,
            QueryError::Invalid(_)
            | QueryError::NoSuchField { .. }
            | QueryError::WrongType { .. }
            | QueryError::Overflow { .. }
            | QueryError::DamagedToken
            | QueryError::ForeignToken => ErrorCode::Invalid,
            QueryError::Engine(_) => {
                let QueryError::Engine(error) = error else {
                    return Self::new(ErrorCode::Internal, "internal error");
                };
                return error.into();
            }
        };
        Self {
            limit: error.limit(),
            ..Self::new(code, error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(json: &str) -> Result<tideline_query::PointQuery> {
        let question = serde_json::from_str(json).expect(json);
        to_question(question, Timestamp::from_nanos_clamped(1_000_000_000_000))
    }

    #[test]
    fn relative_ranges_stay_those_of_the_first_page() {
        let relative = question(r#"{"range":{"start":"now-10s","end":"now"}}"#).expect("valid");
        assert_eq!(relative.range, TimeRange::new(990_000_000_000, 1_000_000_000_000));
        let open = question("{}").expect("valid");
        assert_eq!(open.range, TimeRange::ALL);
    }

    #[test]
    fn windows_need_a_beginning_and_end_now() {
        let windows = question(r#"{"range":{"start":0},"aggregate":{"functions":["mean"],"window":"1m"}}"#);
        assert_eq!(windows.expect("valid").range.end, 1_000_000_000_000);
        for wrong in [
            r#"{"aggregate":{"functions":["mean"],"window":"1m"}}"#,
            r#"{"aggregate":{"functions":["rate"]}}"#,
            r#"{"aggregate":{"functions":["mean"],"offset":"1m"}}"#,
            r#"{"aggregate":{"functions":[{"percentile":100.5}]}}"#,
            r#"{"timelines":{}}"#,
            r#"{"timelines":{"ids":["zz"]}}"#,
            r#"{"timelines":{"ids":[],"where":{"and":[]}}}"#,
            r#"{"page":"00"}"#,
        ] {
            assert_eq!(
                question(wrong).expect_err(wrong).code,
                ErrorCode::Invalid,
                "{wrong}"
            );
        }
    }
}
