//! `/v1/tables/{table}/archive`: archived points come back into the cold tier.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use tideline_openapi::archive::{RestoreArchived, RestoredArchive};
use tideline_openapi::time::DurationText;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::condition::to_range;
use crate::context::RequestId;
use crate::extract::{Json as JsonBody, Path};
use crate::failure::{Failure, Result};
use crate::resources::jobs::{done, view};
use crate::resources::{Failures, TablePath, instant};

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(restore))
}

/// Bring archived points back
///
/// Into the cold tier, as a job of kind `restore` that `/v1/jobs` lists, pauses and cancels. Whole segments come back, one
/// after the other, and policies leave them there for as long as is asked for; then they leave again, without being
/// written anew where their points are the same. What has come back stays when the job is cancelled or fails, and asked
/// for again the rest comes. Queries answer as before, without the target.
#[utoipa::path(
    post, path = "/v1/tables/{table}/archive/restore", tag = "jobs",
    params(TablePath),
    request_body = RestoreArchived,
    responses(
        (status = 200, description = "It is done, or there is nothing to do", body = RestoredArchive),
        (status = 202, description = "The job waits for its turn, or runs", body = RestoredArchive),
        Failures
    )
)]
async fn restore(
    State(app): State<App>,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    JsonBody(RestoreArchived {
        range,
        lasting: DurationText(lasting),
        wait,
    }): JsonBody<RestoreArchived>,
) -> Result<(StatusCode, Json<RestoredArchive>)> {
    if lasting <= 0 {
        return Err(Failure::invalid(
            "for is not above zero: what comes back would leave again at once; write an age such as \"7d\"",
        ));
    }
    let range = to_range(range, app.engine.clock().now());
    if range.is_empty() {
        return Err(Failure::invalid("range is empty: end is not after start"));
    }
    let scheduler = app.scheduler.clone();
    let (begun, until) = app
        .change(move |engine| {
            engine.table(&table)?;
            let until = engine.store().trusted_now().now.nanos().saturating_add(lasting);
            Ok((scheduler.restore(&table, range, until)?, until))
        })
        .await?;
    let job = match begun {
        Some(job) if wait => done(&app, vec![job.id]).await?.pop(),
        begun => begun,
    };
    let is_over = job.as_ref().is_none_or(|job| job.state.is_final());
    let status = if is_over {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    Ok((
        status,
        Json(RestoredArchive {
            job: job.map(view),
            until: instant(until),
            request_id: id.into(),
        }),
    ))
}
