//! Remote write, versions 1.0 and 2.0: `/api/v1/write`, `/api/v1/push`.
//!
//! Every response of the handler to a supported message contains the numbers of stored items, even if it is an
//! error.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tideline_ingest::{Decoder, Outcome};
use tideline_openapi::ErrorCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::samples::WriteFailures;
use super::{PrometheusTable, samples};
use crate::app::App;
use crate::body;
use crate::extract::{content_type, content_type_parameter};
use crate::failure::{Failure, Result};
use crate::grant::Grant;

/// Media type of both versions; the parameter `proto` selects the version.
const MEDIA_TYPE: &str = "application/x-protobuf";

/// Header with the number of stored samples. The two headers below contain the numbers of stored native histograms
/// and exemplars. A sender of version 2.0 treats a response without these headers as the response of a version 1.0
/// receiver that stored nothing. All responses of the handler to a supported message therefore have them, including
/// errors.
const SAMPLES_WRITTEN: HeaderName = HeaderName::from_static("x-prometheus-remote-write-samples-written");
const HISTOGRAMS_WRITTEN: HeaderName =
    HeaderName::from_static("x-prometheus-remote-write-histograms-written");
const EXEMPLARS_WRITTEN: HeaderName = HeaderName::from_static("x-prometheus-remote-write-exemplars-written");

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(write)).routes(routes!(push))
}

/// Write samples (Prometheus remote write)
///
/// Accepts versions 1.0 (`prometheus.WriteRequest`) and 2.0 (`io.prometheus.write.v2.Request`), selected by the
/// content type, compressed with snappy or zstd. A series is a timeline: its label `__name__` is the
/// measurement, and its other labels are the tags. Samples are stored in the field `value`, native histograms
/// in `histogram`, start timestamps in `_start` and exemplars in `_exemplar`. Metadata of metrics is stored
/// too. Values are stored bit for bit. Samples may be sent in any order.
///
/// Valid parts of a request are stored even if the response is 400. Repeating a request is safe: stored samples
/// are overwritten with the same values.
#[utoipa::path(
    security(("token" = ["write", "timelines"])),
    post, path = "/api/v1/write", tag = "prometheus", operation_id = "prometheus_write",
    request_body(
        content = Vec<u8>, content_type = "application/x-protobuf",
        description = "Compressed message; the parameter `proto` of the content type names its type", example = json!("\u{0}")
    ),
    responses(
        (
            status = 204, description = "All samples were stored",
            headers(
                ("X-Prometheus-Remote-Write-Samples-Written" = u64, description = "Stored samples"),
                ("X-Prometheus-Remote-Write-Histograms-Written" = u64, description = "Stored native histograms"),
                ("X-Prometheus-Remote-Write-Exemplars-Written" = u64, description = "Stored exemplars")
            )
        ),
        WriteFailures
    )
)]
async fn write(app: Grant, PrometheusTable(table): PrometheusTable, request: Request) -> Result<Response> {
    receive(&app, table, request).await
}

/// Write samples (Prometheus remote write, path of Mimir and Cortex)
///
/// Same as `/api/v1/write`.
#[utoipa::path(
    security(("token" = ["write", "timelines"])),
    post, path = "/api/v1/push", tag = "prometheus",
    request_body(
        content = Vec<u8>, content_type = "application/x-protobuf",
        description = "Compressed message; the parameter `proto` of the content type names its type", example = json!("\u{0}")
    ),
    responses(
        (status = 204, description = "All samples were stored; headers as for `/api/v1/write`"),
        WriteFailures
    )
)]
async fn push(app: Grant, PrometheusTable(table): PrometheusTable, request: Request) -> Result<Response> {
    receive(&app, table, request).await
}

/// Message type of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    /// `prometheus.WriteRequest`
    V1,
    /// `io.prometheus.write.v2.Request`
    V2,
}

async fn receive(app: &Grant, table: String, request: Request) -> Result<Response> {
    let message = match Message::of(request.headers()) {
        Ok(message) => message,
        Err(failure) => {
            app.bodies.discard(request).await;
            return Err(failure);
        }
    };
    let (counts, failure) = match store(app, message, table, request).await {
        Ok(outcome) => (outcome.samples, samples::refusal(&outcome.written)),
        Err(failure) => (Default::default(), Some(failure)),
    };
    let mut response = match failure {
        None => StatusCode::NO_CONTENT.into_response(),
        Some(failure) => failure.into_response(),
    };
    for (header, written) in [
        (SAMPLES_WRITTEN, counts.samples),
        (HISTOGRAMS_WRITTEN, counts.histograms),
        (EXEMPLARS_WRITTEN, counts.exemplars),
    ] {
        response.headers_mut().insert(header, written.into());
    }
    Ok(response)
}

async fn store(app: &Grant, message: Message, table: String, request: Request) -> Result<Outcome> {
    let received = body::receive_remote_write(request, app).await?;
    let decoder = match message {
        Message::V1 => Decoder::RemoteWriteV1,
        Message::V2 => Decoder::RemoteWriteV2,
    };
    samples::store(app, message.protocol(), table, received, decoder).await
}

impl Message {
    /// Returns the message type of a content type. Fails if the type is not supported. A missing content type means
    /// version 1.0, because the first senders of this version sent no content type.
    fn of(headers: &HeaderMap) -> Result<Self> {
        let refuse = |sent: &str| {
            Failure::new(
                ErrorCode::UnsupportedMediaType,
                format!(
                    "content type {sent:?} is not supported; use {MEDIA_TYPE} with proto=prometheus.WriteRequest or \
                     proto=io.prometheus.write.v2.Request"
                ),
            )
        };
        let sent = headers.get(header::CONTENT_TYPE).map(HeaderValue::to_str);
        let Some(sent) = sent else { return Ok(Self::V1) };
        let sent = sent.map_err(|_| refuse("?"))?;
        let essence = content_type(headers);
        if essence != MEDIA_TYPE && !essence.is_empty() {
            return Err(refuse(sent));
        }
        match content_type_parameter(headers, "proto") {
            None | Some("prometheus.WriteRequest") => Ok(Self::V1),
            Some("io.prometheus.write.v2.Request") => Ok(Self::V2),
            Some(_) => Err(refuse(sent)),
        }
    }

    /// Returns the value of the metric label `protocol`.
    fn protocol(self) -> &'static str {
        match self {
            Self::V1 => "remote_write_1",
            Self::V2 => "remote_write_2",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_type_distinguishes_the_versions() {
        let of = |sent: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(sent) = sent {
                headers.insert(
                    header::CONTENT_TYPE,
                    HeaderValue::from_str(sent).expect("visible"),
                );
            }
            Message::of(&headers).map_err(|failure| failure.code)
        };
        assert_eq!(of(None), Ok(Message::V1));
        assert_eq!(of(Some("application/x-protobuf")), Ok(Message::V1));
        assert_eq!(
            of(Some("application/x-protobuf;proto=prometheus.WriteRequest")),
            Ok(Message::V1)
        );
        assert_eq!(
            of(Some(
                "application/x-protobuf; charset=utf-8; proto=\"io.prometheus.write.v2.Request\""
            )),
            Ok(Message::V2)
        );
        for wrong in ["yolo", "application/json", "application/x-protobuf;proto=yolo"] {
            assert_eq!(of(Some(wrong)), Err(ErrorCode::UnsupportedMediaType), "{wrong}");
        }
    }
}
