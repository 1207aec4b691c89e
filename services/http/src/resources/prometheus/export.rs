//! `/api/v1/export`: samples as lines of JSON, in the form of VictoriaMetrics, so that scripts and `vmctl` move them.

use std::time::Duration;

use axum::response::Response;
use tideline_prometheus::{Export, Parameters};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::PrometheusFailures;
use super::run::Caller;
use crate::app::App;
use crate::failure::Result;

/// Longest duration of an export: it moves whole tables, as fast as its reader takes them.
const EXPORT_TIME_MAX: Duration = Duration::from_secs(24 * 3_600);

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(export_get, export_post))
}

/// Parameters of an export.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "they are described here and read by name")]
struct ExportParameters {
    /// A selector; may stand several times, and then one of them has to be met.
    #[param(rename = "match[]", example = "{__name__=~\"cpu_.*\",region=~\"eu-.*\"}")]
    selectors: String,
    /// The first instant: seconds or RFC 3339.
    #[param(example = "2026-11-20T11:00:00Z")]
    start: Option<String>,
    /// The last instant.
    #[param(example = "2026-11-20T12:00:00Z")]
    end: Option<String>,
    /// Most samples of a line, at most 200,000; a series with more has several lines. 100,000 where it is left out or 0.
    #[param(example = 1000)]
    max_rows_per_line: Option<u64>,
    /// Leave native histograms out, which a line cannot hold; without it, meeting one fails the export.
    #[param(example = true)]
    skip_histograms: Option<bool>,
}

/// Export samples as lines of JSON
///
/// `{"metric":{"__name__":…},"values":[…],"timestamps":[…]}`, times in milliseconds, one line a series or more, in no order.
/// `/api/v1/import` reads it back, here and at VictoriaMetrics. What is no number is `null`, the end of a series too; infinity
/// is `"Infinity"`.
///
/// The answer streams, whatever its length; eight exports run at once. It is whole, or it is cut off in the middle of its
/// chunked encoding.
#[utoipa::path(
    get, path = "/api/v1/export", tag = "prometheus", operation_id = "prometheus_export",
    params(ExportParameters),
    responses(
        (status = 200, description = "A line a series", body = String, content_type = "application/stream+json",
         example = "{\"metric\":{\"__name__\":\"up\",\"job\":\"a\"},\"values\":[1,1],\"timestamps\":[1795176000000,1795176015000]}\n"),
        PrometheusFailures
    )
)]
async fn export_get(caller: Caller, parameters: Parameters) -> Result<Response> {
    let export = Export::read(&parameters)?;
    let app = caller.app.clone();
    let content_type = "application/stream+json";
    caller
        .transfer(
            &app.exports,
            "prometheus_export",
            EXPORT_TIME_MAX,
            content_type,
            export,
        )
        .await
}

/// Export samples as lines of JSON, as a form
#[utoipa::path(
    post, path = "/api/v1/export", tag = "prometheus", operation_id = "prometheus_export_form",
    request_body(
        content = String, content_type = "application/x-www-form-urlencoded",
        description = "The same parameters as a form", example = "match%5B%5D=cpu_usage_user"
    ),
    responses(
        (status = 200, description = "A line a series", body = String, content_type = "application/stream+json",
         example = "{\"metric\":{\"__name__\":\"up\",\"job\":\"a\"},\"values\":[1,1],\"timestamps\":[1795176000000,1795176015000]}\n"),
        PrometheusFailures
    )
)]
async fn export_post(caller: Caller, parameters: Parameters) -> Result<Response> {
    export_get(caller, parameters).await
}
