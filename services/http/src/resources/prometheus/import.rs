//! Imports of samples: `/api/v1/import/prometheus` accepts exposition text or `MetricFamily` messages,
//! `/api/v1/import` JSON lines.
//!
//! Both store samples with the shared write pipeline. A bad line or metric is rejected, and the valid ones are
//! stored.

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use tideline_ingest::Decoder;
use tideline_openapi::ErrorCode;
use tideline_prometheus::import::read_options;
use tideline_prometheus::{ImportOptions, TextFormat};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::samples::ImportFailures;
use super::{PrometheusTable, samples};
use crate::app::App;
use crate::body;
use crate::extract::{Query, content_type, content_type_parameter};
use crate::failure::{Failure, Result};
use crate::grant::Grant;

/// Media type of `MetricFamily` messages, and the message type. The parameters `proto` and `encoding` of the
/// media type must match if they are present.
const FAMILIES: (&str, &str) = (
    "application/vnd.google.protobuf",
    "io.prometheus.client.MetricFamily",
);
pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(import_text))
        .routes(routes!(import_json_lines))
}

/// Parameters for all samples of an import, for the OpenAPI document; see [`read_options`].
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "used only for the OpenAPI document")]
struct ImportQuery {
    /// Label as `name=value` that is added to every series; it replaces a label of the same name. An empty
    /// value removes the label. The parameter can be repeated.
    #[param(example = "job=nightly")]
    extra_label: Option<String>,
    /// Timestamp of samples that have none, in milliseconds since the epoch. Default: the time of arrival.
    #[param(example = 1_795_176_000_000_i64)]
    timestamp: Option<i64>,
}

/// Import metrics in a text format
///
/// Accepts the classic text format, or OpenMetrics with `Content-Type: application/openmetrics-text`. Timestamps are in
/// milliseconds in the classic format and in seconds in OpenMetrics. An OpenMetrics body ends with `# EOF`; its
/// exemplars are stored, and its `_created` lines become the start timestamps of their metric. Help, type and unit are
/// stored as metadata.
///
/// Also accepts `MetricFamily` messages with `Content-Type: application/vnd.google.protobuf;
/// proto=io.prometheus.client.MetricFamily; encoding=delimited`. They can contain native histograms.
///
/// A bad line or metric is rejected, and the valid ones are stored.
#[utoipa::path(
    security(("token" = ["write", "timelines"])),
    post, path = "/api/v1/import/prometheus", tag = "prometheus",
    params(ImportQuery),
    request_body(
        content = String, content_type = "text/plain", description = "Metrics; also gzip, deflate or zstd",
        example = "# TYPE jobs_total counter\njobs_total{queue=\"mail\"} 1027 1795176000000\n"
    ),
    responses(
        (status = 204, description = "All samples were stored"),
        ImportFailures
    )
)]
async fn import_text(
    app: Grant,
    PrometheusTable(table): PrometheusTable,
    Query(query): Query<Vec<(String, String)>>,
    request: Request,
) -> Result<StatusCode> {
    let (import, request) = options_of(&app, query, request).await?;
    store_text(&app, "exposition", table, import, request).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Import JSON lines (VictoriaMetrics)
///
/// Each line contains a series or a part of a series:
/// `{"metric":{"__name__":"up"},"values":[1],"timestamps":[1795176000000]}`, with timestamps in milliseconds;
/// `null` is NaN. `vmctl` and the export of VictoriaMetrics write this format.
///
/// A bad line is rejected with its number, and the valid lines are stored.
#[utoipa::path(
    security(("token" = ["write", "timelines"])),
    post, path = "/api/v1/import", tag = "prometheus",
    params(ImportQuery),
    request_body(
        content = String, content_type = "application/x-ndjson", description = "JSON lines; also gzip, deflate or zstd",
        example = "{\"metric\":{\"__name__\":\"up\",\"job\":\"node\"},\"values\":[1,0],\"timestamps\":[1795176000000,1795176015000]}\n"
    ),
    responses(
        (status = 204, description = "All samples were stored"),
        ImportFailures
    )
)]
async fn import_json_lines(
    app: Grant,
    PrometheusTable(table): PrometheusTable,
    Query(query): Query<Vec<(String, String)>>,
    request: Request,
) -> Result<StatusCode> {
    let (import, request) = options_of(&app, query, request).await?;
    let received = body::receive(request, &app, body::write_limits(&app.settings)).await?;
    let stored = samples::store(&app, "json_lines", table, received, Decoder::JsonLines(import)).await?;
    samples::refusal(&stored.written).map_or(Ok(StatusCode::NO_CONTENT), Err)
}

/// Format of an exposition body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageFormat {
    Text(TextFormat),
    /// Length-delimited `MetricFamily` messages.
    Families,
}

/// Stores an exposition body of any format. Returns an error unless all samples were stored.
pub(super) async fn store_text(
    app: &Grant,
    protocol: &'static str,
    table: String,
    import: ImportOptions,
    request: Request,
) -> Result<()> {
    let format = match PageFormat::of(request.headers()) {
        Ok(format) => format,
        Err(failure) => {
            app.bodies.discard(request).await;
            return Err(failure);
        }
    };
    let received = body::receive(request, app, body::write_limits(&app.settings)).await?;
    let decoder = match format {
        PageFormat::Text(format) => Decoder::Exposition(format, import),
        PageFormat::Families => Decoder::MetricFamilies(import),
    };
    let stored = samples::store(app, protocol, table, received, decoder).await?;
    samples::refusal(&stored.written).map_or(Ok(()), Err)
}

impl PageFormat {
    /// Returns the format of a content type. Unknown types are read as the classic text format, because
    /// scripts often send no content type or a wrong one. Other Protobuf types or parameters are an error.
    fn of(headers: &HeaderMap) -> Result<Self> {
        let (media_type, message) = FAMILIES;
        let sent = content_type(headers);
        let is = |name: &str, value: &str| {
            content_type_parameter(headers, name).is_none_or(|sent| sent.eq_ignore_ascii_case(value))
        };
        if sent == media_type && is("proto", message) && is("encoding", "delimited") {
            return Ok(Self::Families);
        }
        match sent.as_str() {
            "application/openmetrics-text" => Ok(Self::Text(TextFormat::OpenMetrics)),
            "application/vnd.google.protobuf" | "application/x-protobuf" => Err(Failure::new(
                ErrorCode::UnsupportedMediaType,
                format!(
                    "content type {sent:?} is not supported with these parameters; use text/plain, \
                     application/openmetrics-text or {media_type}; proto={message}; encoding=delimited"
                ),
            )),
            _ => Ok(Self::Text(TextFormat::Classic)),
        }
    }
}

/// Reads the options from the query string and returns them with the request. On an error, discards the body first.
async fn options_of(
    app: &Grant,
    query: Vec<(String, String)>,
    request: Request,
) -> Result<(ImportOptions, Request)> {
    match read_options(query) {
        Ok(import) => Ok((import, request)),
        Err(error) => {
            app.bodies.discard(request).await;
            Err(error.into())
        }
    }
}
