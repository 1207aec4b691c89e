//! OTLP over HTTP: metrics at `/v1/metrics`, `/opentelemetry/v1/metrics` and `/api/v1/otlp/v1/metrics`.
//!
//! Exporters append `/v1/metrics` to a base address. The first path applies if the base address is the root of the
//! server; the other two are the paths of VictoriaMetrics and Prometheus. Responses have the content type of the
//! request without parameters, because the collector compares the header as a text.
//!
//! Logs and traces have routes too, which refuse them. The response is 404, because no sender retries after a 404. The
//! collector and current SDKs retry only after 429, 502, 503 and 504. Older SDKs for Python retry after every 5xx,
//! which rules out 501.

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tideline_connections::BodyLimits;
use tideline_ingest::protocols::prometheus::OtlpEncoding;
use tideline_ingest::{Decoder, Outcome};
use tideline_openapi::ErrorCode;
use tideline_openapi::otlp::{ExportMetricsPartialSuccess, ExportMetricsServiceResponse, RpcStatus};
use tideline_wire::protobuf::PutFields;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{PrometheusTable, samples};
use crate::app::App;
use crate::body;
use crate::context::OTLP_PREFIXES;
use crate::extract::content_type;
use crate::failure::{Failure, Result};
use crate::grant::{Grant, Requester};

/// Maximum size of a body after decompression, in bytes; the limit of the protocol.
const BODY_BYTES_MAX: usize = 64 << 20;
/// Maximum number of rejects that a message lists.
const REJECTS_SHOWN_MAX: usize = 10;

/// Returns the media type of an encoding.
pub(crate) fn media_type(encoding: OtlpEncoding) -> &'static str {
    match encoding {
        OtlpEncoding::Protobuf => "application/x-protobuf",
        OtlpEncoding::Json => "application/json",
    }
}

pub(crate) fn router() -> OpenApiRouter<App> {
    let mut router = OpenApiRouter::new()
        .routes(routes!(metrics))
        .routes(routes!(metrics_below_opentelemetry))
        .routes(routes!(metrics_below_otlp));
    for prefix in OTLP_PREFIXES {
        for signal in ["logs", "traces"] {
            let path = format!("{prefix}/v1/{signal}");
            let refuse = move |app: Requester, request: Request| refuse(app, signal, request);
            router = router.route(&path, post(refuse));
        }
    }
    router
}

/// Write metrics (OTLP)
///
/// Accepts an `ExportMetricsServiceRequest` as Protocol Buffers or JSON, with gzip, deflate, zstd or without
/// compression. Data points become samples as in Prometheus: a counter `http.requests` is the series
/// `http_requests_total`, `service.name` is the label `job`, and the attributes of a resource are the labels of
/// `target_info`. Settings in the section `otlp` select the translation.
///
/// Valid data points are stored, and `partialSuccess` reports the rejected ones. If all data points are rejected, the
/// response is 400. Repeating a request is safe: stored samples are overwritten with the same values.
#[utoipa::path(
    security(("token" = ["write", "timelines"])),
    post, path = "/v1/metrics", tag = "prometheus", operation_id = "otlp_metrics",
    request_body(
        description = "Metrics",
        content(
            (serde_json::Value = "application/json", example = json!({"resourceMetrics": [{
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]},
                "scopeMetrics": [{"metrics": [{"name": "queue.length", "gauge": {"dataPoints": [
                    {"timeUnixNano": "1795176000000000000", "asDouble": 7}
                ]}}]}]
            }]})),
            (Vec<u8> = "application/x-protobuf", example = json!(""))
        )
    ),
    responses(
        (status = 200, description = "The data points were stored; `partialSuccess` counts those that were not", body = ExportMetricsServiceResponse),
        (status = 400, description = "The body is not valid, or all data points were rejected; do not repeat it", body = RpcStatus),
        (status = 503, description = "Overload, or a failure of the storage; repeat after `Retry-After`", body = RpcStatus)
    )
)]
async fn metrics(app: Grant, PrometheusTable(table): PrometheusTable, request: Request) -> Result<Response> {
    receive(&app, table, request).await
}

/// Write metrics (OTLP, path of VictoriaMetrics)
///
/// Same as `/v1/metrics`.
#[utoipa::path(
    security(("token" = ["write", "timelines"])),
    post, path = "/opentelemetry/v1/metrics", tag = "prometheus", operation_id = "otlp_metrics_below_opentelemetry",
    request_body(content = Vec<u8>, content_type = "application/x-protobuf", description = "Metrics", example = json!("")),
    responses(
        (status = 200, description = "The data points were stored; `partialSuccess` counts those that were not", body = ExportMetricsServiceResponse)
    )
)]
async fn metrics_below_opentelemetry(
    app: Grant,
    PrometheusTable(table): PrometheusTable,
    request: Request,
) -> Result<Response> {
    receive(&app, table, request).await
}

/// Write metrics (OTLP, path of Prometheus)
///
/// Same as `/v1/metrics`.
#[utoipa::path(
    security(("token" = ["write", "timelines"])),
    post, path = "/api/v1/otlp/v1/metrics", tag = "prometheus", operation_id = "otlp_metrics_below_otlp",
    request_body(content = Vec<u8>, content_type = "application/x-protobuf", description = "Metrics", example = json!("")),
    responses(
        (status = 200, description = "The data points were stored; `partialSuccess` counts those that were not", body = ExportMetricsServiceResponse)
    )
)]
async fn metrics_below_otlp(
    app: Grant,
    PrometheusTable(table): PrometheusTable,
    request: Request,
) -> Result<Response> {
    receive(&app, table, request).await
}

async fn receive(app: &Grant, table: String, request: Request) -> Result<Response> {
    let sent = content_type(request.headers());
    let known = [OtlpEncoding::Protobuf, OtlpEncoding::Json];
    let Some(encoding) = known.into_iter().find(|known| media_type(*known) == sent) else {
        app.bodies.discard(request).await;
        let message = format!(
            "content type {sent:?} is not supported; use {} or {}",
            media_type(OtlpEncoding::Protobuf),
            media_type(OtlpEncoding::Json)
        );
        return Err(Failure::new(ErrorCode::UnsupportedMediaType, message));
    };
    let limits = body::write_limits(&app.settings);
    let limits = BodyLimits {
        decoded_bytes: limits.decoded_bytes.min(BODY_BYTES_MAX),
        ..limits
    };
    let received = body::receive(request, app, limits).await?;
    let decoder = Decoder::Otlp(encoding, app.otlp.clone());
    let outcome = samples::store(app, protocol(encoding), table, received, decoder).await?;
    let answer = match partial_success(&outcome)? {
        None => ExportMetricsServiceResponse::default(),
        Some((rejected, error_message)) if encoding == OtlpEncoding::Protobuf => {
            return Ok(respond(encoding, partial_message(rejected, &error_message)));
        }
        Some((rejected, error_message)) => ExportMetricsServiceResponse {
            partial_success: Some(ExportMetricsPartialSuccess {
                rejected_data_points: rejected.to_string(),
                error_message,
            }),
        },
    };
    Ok(match encoding {
        OtlpEncoding::Protobuf => respond(encoding, Vec::new()),
        OtlpEncoding::Json => respond(
            encoding,
            serde_json::to_vec(&answer).expect("texts always serialise"),
        ),
    })
}

/// Refuses a signal that the database does not store.
async fn refuse(app: Requester, signal: &'static str, request: Request) -> Failure {
    app.bodies.discard(request).await;
    Failure::new(
        ErrorCode::NotFound,
        format!("{signal} are not stored, only metrics; remove the exporter of {signal} from the sender"),
    )
}

fn respond(encoding: OtlpEncoding, body: Vec<u8>) -> Response {
    let media_type = HeaderValue::from_static(media_type(encoding));
    (StatusCode::OK, [(header::CONTENT_TYPE, media_type)], body).into_response()
}

/// Returns the value of the metric label `protocol`.
fn protocol(encoding: OtlpEncoding) -> &'static str {
    match encoding {
        OtlpEncoding::Protobuf => "otlp",
        OtlpEncoding::Json => "otlp_json",
    }
}

/// Returns the number of rejected data points and the reasons; `None` if everything was stored.
///
/// # Errors
///
/// Fails if parts were rejected and nothing was stored, or if rejected data points can be stored later; in the
/// second case the sender must repeat the request.
fn partial_success(outcome: &Outcome) -> Result<Option<(u64, String)>> {
    let written = &outcome.written;
    if written.rejected == 0 {
        return Ok(None);
    }
    if written.retryable > 0 {
        return Err(Failure::later(written, "data points"));
    }
    let points = outcome.data_points;
    let mut message = match points.rejected {
        0 => "all data points stored; rejected parts:".to_owned(),
        rejected => format!("{rejected} of {} data points rejected:", points.sent),
    };
    for (number, reject) in written.rejects.iter().take(REJECTS_SHOWN_MAX).enumerate() {
        message.push_str(if number > 0 { "; " } else { " " });
        if !reject.excerpt.is_empty() {
            message.push_str(&reject.excerpt);
            message.push_str(": ");
        }
        message.push_str(&reject.reason.to_string());
    }
    if written.rejects.len() > REJECTS_SHOWN_MAX {
        message.push_str("; and more");
    }
    match written.points {
        0 => Err(Failure::new(ErrorCode::AllRejected, message)),
        _ => Ok(Some((points.rejected, message))),
    }
}

/// Encodes `ExportMetricsServiceResponse { 1: ExportMetricsPartialSuccess { 1: int64, 2: string } }`.
fn partial_message(rejected: u64, message: &str) -> Vec<u8> {
    let (mut partial, mut out) = (Vec::new(), Vec::new());
    partial.put_uint(1, rejected);
    partial.put_text(2, message);
    out.put_bytes(1, &partial);
    out
}
