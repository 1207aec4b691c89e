//! `/v1/clock`: the trusted clock, which determines the age of points.

use axum::Json;
use tideline_engine::Engine;
use tideline_openapi::clock::{ClockDoubt, ClockView};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::context::RequestId;
use crate::failure::Result;
use crate::grant::Grant;
use crate::resources::{Failures, instant, whole_seconds};

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(read))
        .routes(routes!(confirm))
}

/// Read the clock
///
/// The age of points is determined by a trusted clock. It follows the clock of the machine while that clock agrees
/// with the monotonic time. During a disagreement nothing is deleted because of its age.
#[utoipa::path(
    security(("token" = ["observe"])),
    get, path = "/v1/clock", tag = "jobs", operation_id = "read_clock",
    responses((status = 200, description = "The current times", body = ClockView), Failures)
)]
async fn read(app: Grant, id: RequestId) -> Json<ClockView> {
    Json(view(&app.engine, id))
}

/// Confirm the clock
///
/// Declares that the clock of the machine is correct. The clock is trusted immediately, and points that have
/// expired according to it are deleted. Check `wall` in `GET /v1/clock` first.
#[utoipa::path(
    security(("token" = ["operate"])),
    post, path = "/v1/clock/confirm", tag = "jobs",
    responses((status = 200, description = "The times after the confirmation", body = ClockView), Failures)
)]
async fn confirm(app: Grant, id: RequestId) -> Result<Json<ClockView>> {
    app.access.check_all()?;
    let scheduler = app.scheduler.clone();
    let confirmed = app.change(move |engine| {
        scheduler.confirm_clock();
        Ok(view(engine, id))
    });
    confirmed.await.map(Json)
}

fn view(engine: &Engine, id: RequestId) -> ClockView {
    let trusted = engine.store().trusted_now();
    ClockView {
        wall: instant(engine.clock().now().nanos()),
        trusted: instant(trusted.now.nanos()),
        expires_by: trusted.expire_now.map(|now| instant(now.nanos())),
        doubt: trusted.doubt.map(|doubt| ClockDoubt {
            reason: doubt.reason(),
            since: whole_seconds(doubt.since),
            steady_for: whole_seconds(doubt.steady_for),
        }),
        request_id: id.into(),
    }
}
