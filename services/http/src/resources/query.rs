//! `/v1/tables/{table}/query`: points as they are, or values computed from them.
//!
//! The answer streams in the format that the client accepts, one file each under `query/`. Whatever can be refused is
//! refused before its first byte; what fails behind that cuts the answer off.

mod batch;
mod columnar;
mod csv;
mod explain;
mod flat;
mod format;
mod json;
mod ndjson;
mod question;
mod values;

use std::panic::{AssertUnwindSafe, catch_unwind};

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tideline_condition::Condition;
use tideline_engine::{Table, TimelineSelector};
use tideline_model::{Tier, TimeRange, Timestamp};
use tideline_openapi::query::{PointAnswer, PointQuery};
use tideline_openapi::{ErrorCode, query as wire};
use tideline_query::{AnswerSink, Cancel, Querier, QueryError, Selector, Summary};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::condition;
use crate::context::RequestId;
use crate::extract::{Json, Path};
use crate::failure::{Failure, Result};
use crate::resources::{QueryFailures, TablePath};
use crate::running::Description;
use crate::saved;
use crate::stream::{self, Work};

pub(crate) use self::format::{Options, put_json_time, put_json_value};
pub(crate) use self::json::put_series_head;
pub(crate) use self::question::to_budget;

/// Initial capacity for the answer of a small question, in bytes.
const SMALL_ANSWER_BYTES: usize = 4 << 10;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(query))
        .routes(routes!(batch::batch))
        .routes(routes!(explain::explain))
}

/// Query points
///
/// Raw points of any set of timelines, paged, or aggregates of windows and groups. By `Accept`:
///
/// * `application/json` (also without the header): series with their rows, the cost at the end.
/// * `application/x-ndjson`: one flat object a row (`id`, `measurement`, `time`, tags, fields; what is missing is left
///   out), then one with `more`, `next`, `cost`, and `estimated` and `overflowed` where a column is. A tag that is called like one of the others becomes `tag:<key>`,
///   a field `field:<name>`.
/// * `text/csv`: a header line, then a line a row (RFC 4180; no value is an empty cell, an empty text is `""`). It has
///   neither cost nor next page, and does not say which columns are estimates.
/// * `application/vnd.apache.arrow.stream` and `application/vnd.apache.parquet`: the same columns, typed: times in nanoseconds
///   of UTC, numbers of several types as doubles, values of several kinds as texts. A Parquet file keeps `more`, `next` and
///   `cost` as its metadata `tideline.summary`, and in `tideline.columns` which columns are tags, by which `tideline write`
///   reads it back; a stream of Arrow has neither.
///
/// CSV, Arrow and Parquet without a `limit` hold all rows: where there are more than an answer may have, they fail.
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
            (String = "text/csv", example = csv_example),
            (Vec<u8> = "application/vnd.apache.arrow.stream", example = columnar_example),
            (Vec<u8> = "application/vnd.apache.parquet", example = columnar_example)
        )),
        QueryFailures
    )
)]
async fn query(
    State(app): State<App>,
    request_id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    headers: HeaderMap,
    Json(mut question): Json<PointQuery>,
) -> Result<Response> {
    let options = Options::new(
        &headers,
        question.times,
        question.int64,
        question.plan,
        request_id.clone(),
    )?
    .limited(question.limit.is_some() || question.sort.is_some());
    let description = describe(request_id, &table, "query", &question);
    question.timelines = saved::expand_optional(&app, &table, question.timelines)?;
    let question = question::to_question(question, app.engine.now())?;
    if let Some(answer) = answer_at_once(&app, &description, &options, &question)? {
        return Ok(answer);
    }
    let reach = Some((question.range, question.tier));
    answer(
        &app,
        description,
        reach,
        options,
        move |querier, table, cancel, sink| querier.points(table, &question, cancel, sink),
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

/// Streams what `ask` hands to its sink, when the turn of this query has come. `reach` is what it may read from segments,
/// if anything: queries of cold points have turns of their own, so that no flood of them takes those of the others.
pub(crate) async fn answer<F>(
    app: &App,
    description: Description,
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
        .zip(app.engine.table(&description.table).ok())
        .is_some_and(|((range, tier), table)| app.querier.reaches_cold(&table, range, tier));
    let turns = if is_cold { &app.cold_queries } else { &app.queries };
    let turn = turns.take().await?;
    let work = Work {
        turn: Some(turn),
        cancel: Cancel::new(),
    };
    let (running, cancel) = (app.clone(), work.cancel.clone());
    stream::answer(app, options.format.content_type(), work, move |writer| {
        let table = running.engine.table(&description.table)?;
        let _listed = running.running.list(&running.engine, description, cancel.clone());
        let mut sink = options.clone().sink(&mut *writer);
        let summary = ask(&running.querier, &table, &cancel, &mut *sink)?;
        options.check_whole(&summary)?;
        sink.end(&summary).map_err(stream::client_left)
    })
    .await
}

/// Answers a small question on this thread, where a turn is free: to wake another thread and to be woken by it would take longer
/// than the question does. `None` where it is not small, or turns out not to be.
fn answer_at_once(
    app: &App,
    description: &Description,
    options: &Options,
    question: &tideline_query::PointQuery,
) -> Result<Option<Response>> {
    let Ok(table) = app.engine.table(&description.table) else {
        return Ok(None);
    };
    let Some((small, _turn)) = app.querier.as_small(&table, question).zip(app.free_query_turn()) else {
        return Ok(None);
    };
    let cancel = Cancel::new();
    let _listed = app.running.list(&app.engine, description.clone(), cancel.clone());
    let mut whole = Vec::with_capacity(SMALL_ANSWER_BYTES);
    let answered = catch_unwind(AssertUnwindSafe(|| {
        let mut sink = options.clone().sink(&mut whole);
        let summary = app.querier.points(&table, &small, &cancel, &mut *sink)?;
        let ended = options.check_whole(&summary);
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
        // Its cost is beyond that of a small one, or its time was over because the machine is busy.
        Ok(Err(QueryError::OverBudget { .. } | QueryError::TimedOut { .. } | QueryError::Memory(_))) => {
            Ok(None)
        }
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(stream::panicked()),
    }
}

/// What a query is listed as while it runs.
pub(crate) fn describe(
    request_id: RequestId,
    table: &str,
    resource: &'static str,
    question: &impl Serialize,
) -> Description {
    Description {
        request_id,
        table: table.to_owned(),
        resource,
        question: serde_json::to_string(question).unwrap_or_default(),
    }
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
