//! What every question to a table of series has in common: its turn, its budget, its client that may leave.

use std::time::{Duration, Instant};

use axum::response::Response;
use tideline_model::TimeRange;
use tideline_prometheus::{NANOS_PER_MILLI, SeriesView};
use tideline_promql::ast::Expr;
use tideline_promql::{ParseError, PromqlError};
use tideline_query::{Budget, Cancel};

use super::parameters::wrong;
use crate::app::App;
use crate::context::{RequestId, current_client};
use crate::failure::Result;
use crate::running::Description;
use crate::stream::{self, AnswerWriter, Work};
use tideline_connections::Turns;

/// Up to this length an expression is parsed within a millisecond.
const PARSED_AT_ONCE_BYTES: usize = 4 << 10;
/// Bytes of a sample: its instant and its value.
const SAMPLE_BYTES: u64 = 16;

/// Parses an expression; a long one on a thread, when its turn among queries comes. Regular expressions are checked, and
/// not compiled.
pub(super) async fn parse(app: &App, text: &str) -> Result<Expr> {
    let wrong_query = |problem: ParseError| wrong("query", problem);
    if text.len() <= PARSED_AT_ONCE_BYTES {
        return tideline_promql::parse(text).map_err(wrong_query);
    }
    let text = text.to_owned();
    app.read(move |_| tideline_promql::parse(&text).map_err(wrong_query))
        .await
}

/// A question before it runs.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) request_id: RequestId,
    pub(super) table: String,
    /// The last part of the path that was asked.
    pub(super) resource: &'static str,
    /// What is shown of it while it runs.
    pub(super) question: String,
    /// The instants that it reads, in milliseconds; `None` where it reads no samples.
    pub(super) reach: Option<(i64, i64)>,
    /// How long it may take, waiting for its turn included.
    pub(super) time_max: Duration,
}

/// What a question runs on.
pub(super) struct Running<'a> {
    pub(super) view: SeriesView<'a>,
    /// How long it waited for its turn.
    pub(super) waited: Duration,
}

/// Runs `work` on a blocking thread when its turn among queries comes, and streams what it writes. It is told to stop when the client
/// leaves.
pub(super) async fn run<F>(app: &App, asked: Asked, content_type: &'static str, work: F) -> Result<Response>
where
    F: FnOnce(&Running<'_>, &mut AnswerWriter) -> Result<()> + Send + 'static,
{
    let is_cold = asked
        .reach
        .zip(app.engine.table(&asked.table).ok())
        .is_some_and(|(reach, table)| app.querier.reaches_cold(&table, to_range(reach), None));
    let turns = if is_cold { &app.cold_queries } else { &app.queries };
    run_among(turns, budget(app), app, asked, content_type, work).await
}

/// The same of what moves many samples: among its like, for it may take as long as its reader does, and without limits of
/// timelines, points and values, for what it holds does not grow with them.
pub(super) async fn run_transfer<F>(
    turns: &Turns,
    app: &App,
    asked: Asked,
    content_type: &'static str,
    work: F,
) -> Result<Response>
where
    F: FnOnce(&Running<'_>, &mut AnswerWriter) -> Result<()> + Send + 'static,
{
    let budget = Budget {
        timelines_max: u64::MAX,
        points_max: u64::MAX,
        values_max: u64::MAX,
        ..Budget::default()
    };
    run_among(turns, budget, app, asked, content_type, work).await
}

async fn run_among<F>(
    turns: &Turns,
    budget: Budget,
    app: &App,
    asked: Asked,
    content_type: &'static str,
    work: F,
) -> Result<Response>
where
    F: FnOnce(&Running<'_>, &mut AnswerWriter) -> Result<()> + Send + 'static,
{
    let began = Instant::now();
    let turn = tokio::time::timeout(asked.time_max, turns.take(current_client())).await;
    let turn = turn.map_err(|_| PromqlError::Timeout("query queue"))??;
    let waited = began.elapsed();
    let budget = Budget {
        time_max: asked.time_max.saturating_sub(waited),
        ..budget
    };
    let answering = Work {
        turn: Some(turn),
        cancel: Cancel::new(),
    };
    let (running, cancel) = (app.clone(), answering.cancel.clone());
    stream::answer(app, content_type, answering, move |writer| {
        let app = running;
        let table = app.engine.table(&asked.table)?;
        let description = Description {
            request_id: asked.request_id,
            table: asked.table,
            resource: asked.resource,
            question: asked.question,
        };
        let _listed = app.running.list(&app.engine, description, cancel.clone());
        let view = SeriesView::new(&app.querier, &table, budget, &cancel);
        work(&Running { view, waited }, writer)
    })
    .await
}

/// What a question may cost. The samples that it gathers may take as much as those that it may hold: few series of many
/// samples are gathered before they are evaluated.
fn budget(app: &App) -> Budget {
    let usual = Budget::default();
    let samples_max = app.settings.prometheus.samples_max as u64;
    Budget {
        held_bytes_max: samples_max.saturating_mul(SAMPLE_BYTES).max(usual.held_bytes_max),
        ..usual
    }
}

/// Instants in milliseconds, both inclusive, as a range of stored points.
fn to_range((start, end): (i64, i64)) -> TimeRange {
    let start = start.saturating_mul(NANOS_PER_MILLI);
    let end = end.saturating_add(1).saturating_mul(NANOS_PER_MILLI);
    TimeRange::new(start, end.max(start))
}
