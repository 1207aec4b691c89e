//! `/v1/clock`: the time that points age by.

use axum::Json;
use axum::extract::State;
use tideline_engine::Engine;
use tideline_openapi::clock::{ClockDoubt, ClockView};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::context::RequestId;
use crate::failure::Result;
use crate::resources::{Failures, instant, whole_seconds};

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(read))
        .routes(routes!(confirm))
}

/// Read the clock
///
/// Points age by a time that follows the machine's clock only as far as it agrees with time passing. While the two
/// disagree nothing is freed.
#[utoipa::path(
    get, path = "/v1/clock", tag = "jobs", operation_id = "read_clock",
    responses((status = 200, description = "What time it is", body = ClockView), Failures)
)]
async fn read(State(app): State<App>, id: RequestId) -> Json<ClockView> {
    Json(view(&app.engine, id))
}

/// Confirm the clock
///
/// Says that the machine's clock is right: it is believed at once, and what has expired by it is freed. Look at `wall`
/// first.
#[utoipa::path(
    post, path = "/v1/clock/confirm", tag = "jobs",
    responses((status = 200, description = "What time it is now", body = ClockView), Failures)
)]
async fn confirm(State(app): State<App>, id: RequestId) -> Result<Json<ClockView>> {
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
