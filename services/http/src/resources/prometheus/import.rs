//! Samples as text: `/api/v1/import/prometheus` takes exposition pages, `/api/v1/import` JSON lines.

use axum::extract::{Request, State};
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

/// The media type of metric families as messages, and the message; its parameters `proto` and `encoding` name both.
const FAMILIES: (&str, &str) = (
    "application/vnd.google.protobuf",
    "io.prometheus.client.MetricFamily",
);
pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(import_text))
        .routes(routes!(import_json_lines))
}

/// What the address says about all samples, for the document; see [`read_options`].
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "the document is made of it")]
struct ImportQuery {
    /// `name=value`: a label that every series gets, in place of its own of that name. May come many times; without a
    /// value it takes the label away.
    #[param(example = "job=nightly")]
    extra_label: Option<String>,
    /// The time of samples that have none, in milliseconds since the epoch; without it, that of their arrival.
    #[param(example = 1_795_176_000_000_i64)]
    timestamp: Option<i64>,
}

/// Import a page of metrics
///
/// What targets show to a scraper: the classic text format, or OpenMetrics with `Content-Type:
/// application/openmetrics-text`. Times are milliseconds in the first and seconds in the second; OpenMetrics ends with
/// `# EOF`, its exemplars are kept, and its `_created` lines become the start time of their metric. Help, type and
/// unit are kept as metadata.
///
/// Metric families as messages are read with `Content-Type: application/vnd.google.protobuf;
/// proto=io.prometheus.client.MetricFamily; encoding=delimited`; they hold native histograms besides.
///
/// A wrong line or metric is refused by itself, the others are stored.
#[utoipa::path(
    post, path = "/api/v1/import/prometheus", tag = "prometheus",
    params(ImportQuery),
    request_body(
        content = String, content_type = "text/plain", description = "A page, also gzip, deflate or zstd",
        example = "# TYPE jobs_total counter\njobs_total{queue=\"mail\"} 1027 1795176000000\n"
    ),
    responses(
        (status = 204, description = "All stored"),
        ImportFailures
    )
)]
async fn import_text(
    State(app): State<App>,
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
/// A line for each series: `{"metric":{"__name__":"up"},"values":[1],"timestamps":[1795176000000]}`, times in
/// milliseconds; `null` is NaN. So `vmctl` and the export of VictoriaMetrics can be read.
///
/// A wrong line is refused by its number, the others are stored.
#[utoipa::path(
    post, path = "/api/v1/import", tag = "prometheus",
    params(ImportQuery),
    request_body(
        content = String, content_type = "application/x-ndjson", description = "Lines, also gzip, deflate or zstd",
        example = "{\"metric\":{\"__name__\":\"up\",\"job\":\"node\"},\"values\":[1,0],\"timestamps\":[1795176000000,1795176015000]}\n"
    ),
    responses(
        (status = 204, description = "All stored"),
        ImportFailures
    )
)]
async fn import_json_lines(
    State(app): State<App>,
    PrometheusTable(table): PrometheusTable,
    Query(query): Query<Vec<(String, String)>>,
    request: Request,
) -> Result<StatusCode> {
    let (import, request) = options_of(&app, query, request).await?;
    let received = body::receive(request, &app, body::write_limits(&app.settings)).await?;
    let stored = samples::store(&app, "json_lines", table, received, Decoder::JsonLines(import)).await?;
    samples::refusal(&stored.written).map_or(Ok(StatusCode::NO_CONTENT), Err)
}

/// What a page is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageFormat {
    Text(TextFormat),
    /// Metric families as messages, each behind its length.
    Families,
}

/// Stores a page of any format. A failure unless all of it was stored.
pub(super) async fn store_text(
    app: &App,
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
    /// The format that a content type names. Whatever is not known to be something else is taken for the classic one:
    /// scripts seldom say what they send.
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
                    "content type {sent:?} is not read here in this form; send text/plain, \
                     application/openmetrics-text or {media_type}; proto={message}; encoding=delimited"
                ),
            )),
            _ => Ok(Self::Text(TextFormat::Classic)),
        }
    }
}

/// What the address says, with the request whose body is still to be read; where it is wrong, the body is read away.
async fn options_of(
    app: &App,
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
