//! `/api/v1/export`: export of samples as VictoriaMetrics JSON lines, for scripts and `vmctl`.

use std::time::Duration;

use axum::response::Response;
use tideline_prometheus::{Export, Parameters};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::response::PrometheusFailures;
use super::run::Caller;
use crate::app::App;
use crate::failure::Result;

/// Longest duration of an export: it may transfer whole tables, as fast as its reader allows.
const EXPORT_TIME_MAX: Duration = Duration::from_secs(24 * 3_600);

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(export_get, export_post))
}

/// Parameters of an export.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only described here; the handler reads them by name")]
struct ExportParameters {
    /// Selector of series. The parameter can be repeated; a series must match at least one selector.
    #[param(rename = "match[]", example = "{__name__=~\"cpu_.*\",region=~\"eu-.*\"}")]
    selectors: String,
    /// Start of the time range, inclusive: seconds or RFC 3339.
    #[param(example = "2026-11-20T11:00:00Z")]
    start: Option<String>,
    /// End of the time range, inclusive.
    #[param(example = "2026-11-20T12:00:00Z")]
    end: Option<String>,
    /// Maximum number of samples per line, up to 200,000; a series with more samples has several lines. Default
    /// 100,000; 0 selects the default.
    #[param(example = 1000)]
    max_rows_per_line: Option<u64>,
    /// True to omit native histograms, which this format cannot represent. If it is false, the export fails at the
    /// first native histogram.
    #[param(example = true)]
    skip_histograms: Option<bool>,
}

/// Export samples as JSON lines
///
/// Each line has the form `{"metric":{"__name__":…},"values":[…],"timestamps":[…]}` with timestamps in
/// milliseconds. There are one or more lines per series, in no particular order. `/api/v1/import` reads this
/// format, here and in VictoriaMetrics. NaN and stale markers are `null`; infinity is `"Infinity"`.
///
/// The response is streamed, regardless of its length; at most eight exports run at once. After an error, the response
/// is aborted in the middle of its chunked encoding, so clients can detect an incomplete export.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/export", tag = "prometheus", operation_id = "prometheus_export",
    params(ExportParameters),
    responses(
        (status = 200, description = "One or more lines per series", body = String, content_type = "application/stream+json",
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

/// Export samples as JSON lines, with the parameters as a form
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    post, path = "/api/v1/export", tag = "prometheus", operation_id = "prometheus_export_form",
    request_body(
        content = String, content_type = "application/x-www-form-urlencoded",
        description = "The same parameters as a form", example = "match%5B%5D=cpu_usage_user"
    ),
    responses(
        (status = 200, description = "One or more lines per series", body = String, content_type = "application/stream+json",
         example = "{\"metric\":{\"__name__\":\"up\",\"job\":\"a\"},\"values\":[1,1],\"timestamps\":[1795176000000,1795176015000]}\n"),
        PrometheusFailures
    )
)]
async fn export_post(caller: Caller, parameters: Parameters) -> Result<Response> {
    export_get(caller, parameters).await
}
