//! What every question to a table of series has in common: its turn, its budget, its client that may leave.

use std::time::{Duration, Instant};

use axum::response::Response;
use tideline_model::TimeRange;
use tideline_prometheus::SeriesView;
use tideline_query::{Budget, Cancel};

use crate::app::App;
use crate::context::RequestId;
use crate::failure::Result;
use crate::resources::query::Waiting;
use crate::running::Description;
use crate::stream::{self, AnswerWriter};

/// Nanoseconds in a millisecond.
const NANOS_PER_MILLI: i64 = 1_000_000;

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
    /// How long it may take.
    pub(super) time_max: Duration,
}

/// What a question runs on.
pub(super) struct Running<'a> {
    pub(super) view: SeriesView<'a>,
    /// How long it waited for its turn.
    pub(super) waited: Duration,
}

/// Runs `work` on a blocking thread when its turn comes, and streams what it writes. It is told to stop when the client
/// leaves.
pub(super) async fn run<F>(app: &App, asked: Asked, content_type: &'static str, work: F) -> Result<Response>
where
    F: FnOnce(&Running<'_>, &mut AnswerWriter) -> Result<()> + Send + 'static,
{
    let began = Instant::now();
    let is_cold = asked
        .reach
        .zip(app.engine.table(&asked.table).ok())
        .is_some_and(|(reach, table)| app.querier.reaches_cold(&table, to_range(reach), None));
    let turns = if is_cold { &app.cold_queries } else { &app.queries };
    let turn = turns.take().await?;
    let waited = began.elapsed();
    let cancel = Cancel::new();
    let mut waiting = Waiting(Some(cancel.clone()));
    let app = app.clone();
    let response = stream::answer(content_type, move |writer| {
        let _turn = turn;
        let table = app.engine.table(&asked.table)?;
        let description = Description {
            request_id: asked.request_id,
            table: asked.table,
            resource: asked.resource,
            question: asked.question,
        };
        let _listed = app.running.list(&app.engine, description, cancel.clone());
        let budget = Budget {
            time_max: asked.time_max,
            ..Budget::default()
        };
        let view = SeriesView::new(&app.querier, &table, budget, &cancel);
        work(&Running { view, waited }, writer)
    })
    .await;
    // From now on a client that leaves closes the stream, and the writer meets that.
    waiting.0 = None;
    response
}

/// Instants in milliseconds, both inclusive, as a range of stored points.
fn to_range((start, end): (i64, i64)) -> TimeRange {
    let start = start.saturating_mul(NANOS_PER_MILLI);
    let end = end.saturating_add(1).saturating_mul(NANOS_PER_MILLI);
    TimeRange::new(start, end.max(start))
}
