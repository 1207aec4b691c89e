//! Samples as text: `/api/v1/import/prometheus` takes exposition pages, `/api/v1/import` JSON lines.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use tideline_ingest_protocols::prometheus::{ImportOptions, TextFormat, decode_json_lines, decode_text};
use tideline_openapi::ErrorCode;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{PrometheusTable, samples};
use crate::app::App;
use crate::body::{self, BodyLimits};
use crate::extract::{Query, content_type};
use crate::failure::{Failure, Result};

/// Labels that a request may give to all its series.
const EXTRA_LABELS_MAX: usize = 64;

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

/// Import a page of metrics (text exposition)
///
/// What targets show to a scraper: the classic text format, or OpenMetrics with `Content-Type:
/// application/openmetrics-text`. Times are milliseconds in the first and seconds in the second; OpenMetrics ends with
/// `# EOF`, its exemplars are kept, and its `_created` lines become the start time of their metric. Help, type and
/// unit are kept as metadata.
///
/// A wrong line is refused by its number, the others are stored.
#[utoipa::path(
    post, path = "/api/v1/import/prometheus", tag = "prometheus",
    params(ImportQuery),
    request_body(
        content = String, content_type = "text/plain", description = "A page, also gzip, deflate or zstd",
        example = "# TYPE jobs_total counter\njobs_total{queue=\"mail\"} 1027 1795176000000\n"
    ),
    responses(
        (status = 204, description = "All stored"),
        (status = 400, description = "Some or all lines were wrong; the rest was stored", body = String, content_type = "text/plain", example = json!("1 stored, 1 refused\nline 2: up{: a quote is not closed\n")),
        (status = 401, description = "The token is missing or wrong", body = String, content_type = "text/plain", example = json!("the token is missing or wrong\n")),
        (status = 404, description = "There is no such table", body = String, content_type = "text/plain", example = json!("no table \"x\"\n")),
        (status = 413, description = "The body is too large", body = String, content_type = "text/plain", example = json!("body of 40000000 bytes is over the limit of 33554432\n")),
        (status = 415, description = "Content type or encoding is not read here", body = String, content_type = "text/plain", example = json!("content encoding \"br\" is not read here\n")),
        (status = 503, description = "Too much at once, or the disk is nearly full: send it again after `Retry-After`", body = String, content_type = "text/plain", example = json!("too many bytes of requests in flight\n"))
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
        (status = 400, description = "Some or all lines were wrong; the rest was stored", body = String, content_type = "text/plain", example = json!("0 stored, 1 refused\nline 1: {}: missing field `metric` at line 1 column 2\n")),
        (status = 404, description = "There is no such table", body = String, content_type = "text/plain", example = json!("no table \"x\"\n")),
        (status = 413, description = "The body is too large", body = String, content_type = "text/plain", example = json!("body of 40000000 bytes is over the limit of 33554432\n")),
        (status = 415, description = "The encoding is not read here", body = String, content_type = "text/plain", example = json!("content encoding \"br\" is not read here\n")),
        (status = 503, description = "Too much at once, or the disk is nearly full: send it again after `Retry-After`", body = String, content_type = "text/plain", example = json!("too many bytes of requests in flight\n"))
    )
)]
async fn import_json_lines(
    State(app): State<App>,
    PrometheusTable(table): PrometheusTable,
    Query(query): Query<Vec<(String, String)>>,
    request: Request,
) -> Result<StatusCode> {
    let (import, request) = options_of(&app, query, request).await?;
    let received = body::receive(request, &app, BodyLimits::writes(&app.settings)).await?;
    let stored = samples::store(
        &app,
        "json_lines",
        table,
        received,
        move |body, options, resolver, _| Ok(decode_json_lines(body, &import, options, resolver)),
    );
    stored.await?.refusal().map_or(Ok(StatusCode::NO_CONTENT), Err)
}

/// Stores a page of either format. A failure unless all of it was stored.
pub(super) async fn store_text(
    app: &App,
    protocol: &'static str,
    table: String,
    import: ImportOptions,
    request: Request,
) -> Result<()> {
    let format = match text_format(request.headers()) {
        Ok(format) => format,
        Err(failure) => {
            body::discard(request, app).await;
            return Err(failure);
        }
    };
    let received = body::receive(request, app, BodyLimits::writes(&app.settings)).await?;
    let stored = samples::store(
        app,
        protocol,
        table,
        received,
        move |body, options, resolver, _| Ok(decode_text(body, format, &import, options, resolver)),
    );
    stored.await?.refusal().map_or(Ok(()), Err)
}

/// The format that a content type names. Whatever is not known to be something else is taken for the classic one:
/// scripts seldom say what they send.
fn text_format(headers: &HeaderMap) -> Result<TextFormat> {
    match content_type(headers).as_str() {
        "application/openmetrics-text" => Ok(TextFormat::OpenMetrics),
        binary @ ("application/vnd.google.protobuf" | "application/x-protobuf") => Err(Failure::new(
            ErrorCode::UnsupportedMediaType,
            format!(
                "content type {binary:?} is not read here; send text/plain or application/openmetrics-text"
            ),
        )),
        _ => Ok(TextFormat::Classic),
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
        Err(failure) => {
            body::discard(request, app).await;
            Err(failure)
        }
    }
}

/// Reads the parameters `timestamp` and `extra_label`; others mean nothing.
fn read_options(query: Vec<(String, String)>) -> Result<ImportOptions> {
    let mut import = ImportOptions::default();
    for (name, value) in query {
        match name.as_str() {
            "timestamp" => {
                let millis = value.parse();
                let millis = millis.map_err(|_| {
                    Failure::invalid(format!("timestamp {value:?} is not a number of milliseconds"))
                })?;
                import.millis = Some(millis);
            }
            "extra_label" => {
                let Some((label, value)) = value.split_once('=').filter(|(label, _)| !label.is_empty())
                else {
                    return Err(Failure::invalid(format!(
                        "extra_label {value:?} is not of the form name=value"
                    )));
                };
                // Of one name the last counts.
                import.extra_labels.retain(|(known, _)| known != label);
                import.extra_labels.push((label.to_owned(), value.to_owned()));
            }
            _ => {}
        }
    }
    match import.extra_labels.len() {
        0..=EXTRA_LABELS_MAX => Ok(import),
        more => Err(Failure::over(
            ErrorCode::OverLimit,
            "number of extra labels",
            EXTRA_LABELS_MAX as u64,
            more as u64,
        )),
    }
}
