//! `/v1/tables/{table}/query`: raw points, or values computed from them.
//!
//! The response is streamed in the format that the client accepts (`tideline_results`). Errors that can be detected in
//! advance are returned before the first byte; a later error aborts the response.

mod batch;
mod explain;
mod point_query;
mod values;

use std::panic::{AssertUnwindSafe, catch_unwind};

use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tideline_engine::condition::Condition;
use tideline_engine::model::{Tier, TimeRange, Timestamp};
use tideline_engine::{Table, TimelineSelector};
use tideline_openapi::query::{PointAnswer, PointQuery};
use tideline_openapi::{ErrorCode, query as wire};
use tideline_query::{Cancel, Querier, QueryError, RowSink, Selector, Summary};
use tideline_results::{ResultFormat, ResultOptions};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::condition;
use crate::context::{RequestId, current_client};
use crate::extract::{Json, Path};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::resources::{QueryFailures, TablePath};
use crate::running::Description;
use crate::saved_search;
use crate::stream::{self, WriteContext};

pub(crate) use self::point_query::to_budget;

/// Initial capacity for the response to a small query, in bytes.
const SMALL_RESPONSE_BYTES: usize = 4 << 10;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(query))
        .routes(routes!(batch::batch))
        .routes(routes!(explain::explain))
}

/// Query points
///
/// Returns raw points of the selected timelines, with paging, or aggregates of windows and groups. The `Accept` header
/// selects the format:
///
/// * `application/json` (the default): series with their rows, followed by the cost.
/// * `application/x-ndjson`: one flat object per row (`id`, `measurement`, `time`, tags, fields; missing values are
///   omitted), then one object with `more`, `next` and `cost`, and with `estimated` and `overflowed` if they apply to a
///   column. A tag with the name of another member is renamed to `tag:<key>`, a field to `field:<name>`.
/// * `text/csv`: a header line, then one line per row (RFC 4180; a missing value is an empty cell, an empty string is
///   `""`). It contains neither the cost nor a token for the next page, and it does not mark estimated columns.
/// * `application/vnd.apache.arrow.stream` and `application/vnd.apache.parquet`: the same columns with types.
///   Timestamps are UTC nanoseconds. A column with both integers and floats has doubles; a column with values
///   of different kinds has strings. The metadata of a Parquet file contains `more`, `next` and `cost` in
///   `tideline.summary`, and the columns that are tags in `tideline.columns`; `tideline write` uses them to
///   import the file. An Arrow stream contains neither.
///
/// Without a `limit`, CSV, Arrow and Parquet contain all rows; if there are more rows than a response may have, the
/// query fails.
///
/// The response is streamed with bounded memory, regardless of its size. An error after the first part aborts the
/// response in the middle of the chunked encoding. If the client disconnects, the query stops.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    post, path = "/v1/tables/{table}/query", tag = "points",
    params(TablePath),
    request_body = PointQuery,
    responses(
        (status = 200, description = "The result of the query", content(
            (PointAnswer = "application/json"),
            (String = "application/x-ndjson", example = ndjson_example),
            (String = "text/csv", example = csv_example),
            (Vec<u8> = "application/vnd.apache.arrow.stream", example = columnar_example),
            (Vec<u8> = "application/vnd.apache.parquet", example = columnar_example)
        )),
        QueryFailures
    )
)]
async fn query(
    app: Grant,
    request_id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    headers: HeaderMap,
    Json(mut query): Json<PointQuery>,
) -> Result<Response> {
    let options = ResultOptions {
        format: accepted_format(&headers)?,
        times: query.times,
        integers: query.int64,
        plan: query.plan,
        request_id: request_id.clone().into(),
        has_limit: query.limit.is_some() || query.sort.is_some(),
    };
    let description = describe(request_id, &table, "query", &query);
    query.timelines = saved_search::expand_optional(&app, &table, query.timelines)?;
    let query = point_query::to_point_query(query, app.engine.now())?;
    if let Some(response) = run_small(&app, &description, &options, &query)? {
        return Ok(response);
    }
    let read_range = Some((query.range, query.tier));
    respond(
        &app,
        description,
        read_range,
        options,
        move |querier, table, cancel, sink| querier.points(table, &query, cancel, sink),
    )
    .await
}

fn ndjson_example() -> &'static str {
    "{\"measurement\":\"cpu\",\"host\":\"sim-001\",\"time\":\"2026-11-20T12:00:00Z\",\"mean(usage_user)\":41.5}\n{\"more\":false,\"next\":null,\"cost\":{\"timelines\":1,\"chunks\":1,\"points\":6,\"values\":6,\"bytes\":75,\"elapsed_ms\":0.21,\"tiers\":{\"hot\":{\"segments\":1,\"chunks\":1,\"points\":6,\"values\":6,\"bytes\":75,\"summaries\":0,\"summarized_points\":0},\"cold\":{\"segments\":0,\"chunks\":0,\"points\":0,\"values\":0,\"bytes\":0,\"summaries\":0,\"summarized_points\":0}}}}\n"
}

fn columnar_example() -> &'static str {
    "measurement: string, host: string, time: timestamp[ns, UTC], mean(usage_user): double"
}

fn csv_example() -> &'static str {
    "measurement,host,time,mean(usage_user)\r\ncpu,sim-001,2026-11-20T12:00:00Z,41.5\r\n"
}

/// Waits for a permit, runs `run` on a blocking thread, and streams the output of its sink. `read_range` is the time
/// range and tier that the query may read from segments; `None` if it reads no segments. Queries of cold points have
/// separate permits, so that they cannot block other queries.
pub(crate) async fn respond<F>(
    app: &Grant,
    description: Description,
    read_range: Option<(TimeRange, Option<Tier>)>,
    options: ResultOptions,
    run: F,
) -> Result<Response>
where
    F: FnOnce(&Querier, &Table, &Cancel, &mut dyn RowSink) -> std::result::Result<Summary, QueryError>
        + Send
        + 'static,
{
    // A missing table is reported later, when the request has a permit.
    let is_cold = read_range
        .zip(app.engine.table(&description.table).ok())
        .is_some_and(|((range, tier), table)| app.querier.reaches_cold(&table, range, tier));
    let permits = if is_cold { &app.cold_queries } else { &app.queries };
    let permit = permits.take(current_client()).await?;
    let context = WriteContext {
        permit: Some(permit),
        cancel: Cancel::new(),
    };
    let (running, cancel) = (app.clone(), context.cancel.clone());
    stream::respond(app, options.format.content_type(), context, move |writer| {
        let table = running.engine.table(&description.table)?;
        let _listed = running.running.list(&running.engine, description, cancel.clone());
        let mut sink = options.clone().sink(&mut *writer);
        let summary = run(&running.querier, &table, &cancel, &mut *sink)?;
        check_complete(&options, &summary)?;
        sink.end(&summary).map_err(stream::client_left)
    })
    .await
}

/// Runs a small query on this thread, because switching to another thread and back would take longer than the
/// query. Returns `None` if the query is not small, no permit is free, the table does not exist, or the query
/// exceeded its limits, timed out or got no memory. Then the query must run in the normal way.
fn run_small(
    app: &Grant,
    description: &Description,
    options: &ResultOptions,
    query: &tideline_query::PointQuery,
) -> Result<Option<Response>> {
    let Ok(table) = app.engine.table(&description.table) else {
        return Ok(None);
    };
    let Some((small, _permit)) = app.querier.as_small(&table, query).zip(app.free_query_permit()) else {
        return Ok(None);
    };
    let cancel = Cancel::new();
    let _listed = app.running.list(&app.engine, description.clone(), cancel.clone());
    let mut whole = Vec::with_capacity(SMALL_RESPONSE_BYTES);
    let answered = catch_unwind(AssertUnwindSafe(|| {
        let mut sink = options.clone().sink(&mut whole);
        let summary = app.querier.points(&table, &small, &cancel, &mut *sink)?;
        let ended = check_complete(options, &summary);
        Ok::<_, QueryError>(ended.and_then(|()| sink.end(&summary).map_err(stream::client_left)))
    }));
    match answered {
        Ok(Ok(ended)) => {
            ended?;
            let content_type = options.format.content_type();
            Ok(Some(
                ([(header::CONTENT_TYPE, content_type)], whole).into_response(),
            ))
        }
        // The query exceeded the limits of a small query, timed out because the machine is busy, or got no memory.
        Ok(Err(QueryError::OverBudget { .. } | QueryError::TimedOut { .. } | QueryError::Memory(_))) => {
            Ok(None)
        }
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(stream::panicked()),
    }
}

/// Returns the format that the client prefers among the supported ones. Fails if it accepts none of them.
pub(crate) fn accepted_format(headers: &HeaderMap) -> Result<ResultFormat> {
    let accept = headers.get_all(header::ACCEPT).iter();
    ResultFormat::accepted(accept.filter_map(|value| value.to_str().ok())).ok_or_else(|| {
        Failure::new(
            ErrorCode::NotAcceptable,
            format!(
                "none of the accepted content types is supported; use {}",
                ResultFormat::ACCEPTED
            ),
        )
    })
}

/// Fails if the client does not accept JSON, for a resource that has no other format.
pub(crate) fn check_accepts_json(headers: &HeaderMap) -> Result<()> {
    let accept = headers.get_all(header::ACCEPT).iter();
    let mut ranges = accept
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .peekable();
    let is_json = |range| ResultFormat::accepted(std::iter::once(range)) == Some(ResultFormat::Json);
    if ranges.peek().is_none() || ranges.any(is_json) {
        return Ok(());
    }
    Err(Failure::new(
        ErrorCode::NotAcceptable,
        "none of the accepted content types is supported; use application/json",
    ))
}

/// Returns an error if rows are missing although the request set no limit and the format has no next page.
fn check_complete(options: &ResultOptions, summary: &Summary) -> Result<()> {
    if !options.is_incomplete(summary) {
        return Ok(());
    }
    Err(Failure::new(
        ErrorCode::OverBudget,
        format!(
            "the result has more rows than the limit of {}, and this format has no next page; use a shorter \
             range, a limit or JSON",
            summary.rows
        ),
    ))
}

/// Returns the entry of a query in the registry of running queries.
pub(crate) fn describe(
    request_id: RequestId,
    table: &str,
    resource: &'static str,
    query: &impl Serialize,
) -> Description {
    Description {
        request_id,
        table: table.to_owned(),
        resource,
        text: serde_json::to_string(query).unwrap_or_default(),
    }
}

/// Converts the selector of a query; `None` selects all timelines.
pub(crate) fn to_selector(selector: Option<wire::TimelineSelector>, now: Timestamp) -> Result<Selector> {
    let selector = selector.map(|selector| condition::to_selector(selector, now));
    Ok(match selector.transpose()? {
        None => Selector::Condition(Condition::All),
        Some(TimelineSelector::Condition(condition)) => Selector::Condition(condition),
        Some(TimelineSelector::Ids(ids)) => Selector::Ids(ids),
    })
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        let code = match &error {
            QueryError::OverBudget { .. } | QueryError::TimedOut { .. } => ErrorCode::OverBudget,
            QueryError::Overloaded { .. } => ErrorCode::Overloaded,
            QueryError::Cancelled => ErrorCode::Conflict,
            QueryError::Invalid(_)
            | QueryError::NoSuchField { .. }
            | QueryError::WrongType { .. }
            | QueryError::DamagedToken
            | QueryError::ForeignToken => ErrorCode::Invalid,
            QueryError::Memory(full) => return full.clone().into(),
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
