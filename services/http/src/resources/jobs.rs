//! `/v1/jobs`: work that an operator starts.

use std::time::Instant;

use axum::Json;
use axum::extract::State;
use tideline_openapi::job::{JobKind, JobState, JobView, StartJob};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::context::RequestId;
use crate::extract::Json as JsonBody;
use crate::failure::Result;
use crate::resources::Failures;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(start))
}

/// Run a job and wait for it
///
/// `seal` moves every unsealed point into segments and brings the search index up to date. It happens by itself; ask
/// for it before a measurement or a copy of the data folder.
#[utoipa::path(
    post, path = "/v1/jobs", tag = "operation",
    request_body = StartJob,
    responses((status = 200, description = "The job is done", body = JobView), Failures)
)]
async fn start(
    State(app): State<App>,
    id: RequestId,
    JsonBody(StartJob { kind }): JsonBody<StartJob>,
) -> Result<Json<JobView>> {
    let done = app.change(move |engine| {
        let started = Instant::now();
        match kind {
            JobKind::Seal => engine.seal()?,
        }
        let stats = engine.stats().store;
        Ok(JobView {
            kind,
            state: JobState::Done,
            duration_ms: started.elapsed().as_millis() as u64,
            head_points: stats.head_points,
            segments: stats.segments as u64,
            segment_bytes: stats.segment_bytes,
            request_id: id.into(),
        })
    });
    done.await.map(Json)
}
