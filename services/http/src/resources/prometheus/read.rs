//! `/api/v1/read`: remote read of raw samples or chunks, for another Prometheus or `vmctl`.

use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use tideline_prometheus::RemoteRead;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::response::PrometheusFailures;
use super::run::Caller;
use crate::app::App;
use crate::body;
use crate::failure::Result;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(read))
}

/// Read samples (remote read)
///
/// The request is a snappy block of `prometheus.ReadRequest`. Depending on `accepted_response_types`, the response is a
/// snappy block of `prometheus.ReadResponse`, or a stream of `prometheus.ChunkedReadResponse`: series sorted by labels,
/// floats in XOR chunks, native histograms in chunks of float histograms, each message preceded by its length and its
/// CRC-32C.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    post, path = "/api/v1/read", tag = "prometheus", operation_id = "prometheus_read",
    request_body(
        content = Vec<u8>, content_type = "application/x-protobuf", description = "Snappy block of a ReadRequest",
        example = json!("\u{0}")
    ),
    responses(
        (status = 200, description = "The samples", content(
            (Vec<u8> = "application/x-protobuf", example = no_example),
            (Vec<u8> = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse", example = no_example)
        )),
        PrometheusFailures
    )
)]
async fn read(caller: Caller, request: Request) -> Result<Response> {
    let app = caller.app.clone();
    let received = body::receive_snappy(request, &app, body::request_limits(&app.settings)).await?;
    let read = RemoteRead::decode(&body::decode(received).await?)?;
    let is_streamed = read.is_streamed();
    let content_type = match is_streamed {
        true => "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse",
        false => "application/x-protobuf",
    };
    let time_max = app.settings.prometheus.query_timeout;
    let response = caller.transfer(&app.reads, "prometheus_read", time_max, content_type, read);
    let mut response = response.await?;
    if !is_streamed {
        let snappy = HeaderValue::from_static("snappy");
        response.headers_mut().insert(header::CONTENT_ENCODING, snappy);
    }
    Ok(response)
}

/// Returns an empty example for binary data.
fn no_example() -> &'static str {
    ""
}
