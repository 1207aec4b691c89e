//! Errors of requests, and their mapping to the statuses and bodies of each dialect.
//!
//! All errors become a [`Failure`] first. The status depends only on the error code and the dialect, so all
//! routes of a protocol use the same statuses; see [`status`]. There are two exceptions: failed PromQL
//! queries, see [`QueryFault`], and conditions in the headers of an upload, see `resources::blobs`.

use std::fmt;
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tideline_access::{Denied, OverBudget};
use tideline_connections::NoPermit;
use tideline_engine::condition::PatternError;
use tideline_engine::error::CLOCK_WAIT;
use tideline_engine::model::WaitsFor;
use tideline_engine::runtime::MemoryFull;
use tideline_engine::{EngineError, ErrorKind, WriteOutcome};
use tideline_ingest::WriteError;
use tideline_ingest::protocols::IngestError;
use tideline_ingest::protocols::prometheus::OtlpEncoding;
use tideline_openapi::influx::{InfluxV1Error, InfluxV2Error};
use tideline_openapi::otlp::RpcStatus;
use tideline_openapi::points::Reject;
use tideline_openapi::prometheus::PrometheusError;
use tideline_openapi::{ErrorBody, ErrorCode, plain};
use tideline_scheduler::SchedulerError;
use tideline_wire::protobuf::PutFields;

use crate::context::{Dialect, RequestContext, RequestId};
use crate::resources::prometheus::otlp;

/// Maximum size of an error text in a header, in bytes.
const HEADER_TEXT_BYTES_MAX: usize = 1_024;
/// Retry delay of a native write with points that were rejected by the limit of new timelines. The limit applies to a
/// sliding minute, in steps of ten seconds.
const GROWTH_WAIT: Duration = Duration::from_secs(5);
/// Retry delay of other protocols for points that were rejected by the limit of new timelines. After this delay, some
/// of the timelines of the last minute no longer count.
const GROWTH_RETRY_AFTER: Duration = Duration::from_secs(10);
const INFLUX_ERROR: HeaderName = HeaderName::from_static("x-influxdb-error");

/// Result of a handler.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Error of a request. Converted to a response in the dialect of the running request.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
    /// Limit that was exceeded, and the actual value; `None` for other errors.
    pub(crate) limit: Option<(u64, u64)>,
    /// Delay before a retry; `None` with a retryable code means one second.
    pub(crate) retry_after: Option<Duration>,
    /// Reasons of the first rejected lines of a write.
    pub(crate) rejects: Vec<Reject>,
    /// Error class of the Prometheus API, if the code does not determine it.
    pub(crate) fault: Option<QueryFault>,
}

/// Error classes of the Prometheus API for a failed expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueryFault {
    /// The expression cannot be evaluated on these series, or it needs too many samples.
    Execution,
    /// The query timed out.
    Timeout,
    /// The query was cancelled.
    Canceled,
}

impl QueryFault {
    fn status(self) -> StatusCode {
        match self {
            Self::Execution => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Timeout => StatusCode::SERVICE_UNAVAILABLE,
            Self::Canceled => StatusCode::from_u16(499).expect("it has three digits"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Execution => "execution",
            Self::Timeout => "timeout",
            Self::Canceled => "canceled",
        }
    }
}

/// Log information about a failed request; an extension of the response.
#[derive(Debug, Clone)]
pub(crate) struct FailureNote {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            limit: None,
            retry_after: None,
            rejects: Vec::new(),
            fault: None,
        }
    }

    /// Creates the error of an invalid request.
    pub(crate) fn invalid(message: impl fmt::Display) -> Self {
        Self::new(ErrorCode::Invalid, message.to_string())
    }

    /// Creates the error of an exceeded limit.
    pub(crate) fn over(code: ErrorCode, what: &str, limit: u64, actual: u64) -> Self {
        Self {
            limit: Some((limit, actual)),
            ..Self::new(code, format!("{what} of {actual} is over the limit of {limit}"))
        }
    }

    /// Converts to a native response. `body` creates its body, which may have more members than an error body.
    pub(crate) fn with_body<B: serde::Serialize>(self, body: impl FnOnce(Self) -> B) -> Response {
        let status = status(self.code, Dialect::Native);
        let note = FailureNote {
            code: self.code,
            message: self.message.clone(),
        };
        let mut response = (status, Json(body(self))).into_response();
        response.extensions_mut().insert(note);
        response
    }

    /// Converts to the error body of the native interface.
    pub(crate) fn into_body(self, id: RequestId) -> ErrorBody {
        ErrorBody {
            code: self.code,
            retryable: self.is_retryable(),
            message: self.message,
            limit: self.limit.map(|(limit, _)| limit),
            actual: self.limit.map(|(_, actual)| actual),
            request_id: id.into(),
            rejects: self.rejects,
        }
    }

    /// Creates the error of a write that stored no point. `rejects` holds the rejects that the response lists.
    pub(crate) fn none_stored(message: String, outcome: &WriteOutcome, rejects: Vec<Reject>) -> Self {
        let (code, wait) = match outcome.retryable == outcome.rejected {
            _ if outcome.first_waiting_for(WaitsFor::Clock).is_some() => (ErrorCode::Unavailable, CLOCK_WAIT),
            true => (ErrorCode::TooManyTimelines, GROWTH_WAIT),
            false => (ErrorCode::AllRejected, GROWTH_WAIT),
        };
        Self {
            rejects,
            retry_after: (outcome.retryable > 0).then_some(wait),
            ..Self::new(code, message)
        }
    }

    /// Creates the error of a write with retryable rejects, for protocols whose status applies to the whole request.
    pub(crate) fn later(outcome: &WriteOutcome, what: &str) -> Self {
        let (code, wait, reason) = match outcome.first_waiting_for(WaitsFor::Clock) {
            Some(reason) => (ErrorCode::Unavailable, CLOCK_WAIT, reason.to_string()),
            None => {
                let reason = outcome.first_waiting_for(WaitsFor::Room);
                // The stored outcome of a repeated write may lack the first reason.
                let reason = reason.map_or_else(|| "too many new timelines".to_owned(), ToString::to_string);
                (ErrorCode::TooManyTimelines, GROWTH_RETRY_AFTER, reason)
            }
        };
        Self {
            retry_after: Some(wait),
            ..Self::new(
                code,
                format!("{} {what} were rejected temporarily: {reason}", outcome.retryable),
            )
        }
    }

    /// Returns true if repeating the same request can help.
    pub(crate) fn is_retryable(&self) -> bool {
        self.retry_after.is_some()
            || matches!(
                self.code,
                ErrorCode::Overloaded
                    | ErrorCode::TooManyTimelines
                    | ErrorCode::DiskFull
                    | ErrorCode::Unavailable
                    | ErrorCode::BodyTooSlow
            )
    }
}

impl From<OverBudget> for Failure {
    fn from(refused: OverBudget) -> Self {
        Self {
            retry_after: Some(refused.retry_after),
            ..Self::new(ErrorCode::RateLimited, refused.to_string())
        }
    }
}

impl From<NoPermit> for Failure {
    fn from(refused: NoPermit) -> Self {
        Self::new(ErrorCode::Overloaded, refused.to_string())
    }
}

impl From<PatternError> for Failure {
    fn from(error: PatternError) -> Self {
        let code = match error.limit() {
            Some(_) => ErrorCode::OverLimit,
            None => ErrorCode::Invalid,
        };
        Self {
            limit: error.limit(),
            ..Self::new(code, error.to_string())
        }
    }
}

/// Returns the HTTP status of an error code in a dialect. The choice follows the behaviour of senders. InfluxDB agents
/// drop a batch after almost every 4xx status, so their dialects use 4xx only for requests that fail again when
/// repeated. The exception is 429 in InfluxDB 2.
pub(crate) fn status(code: ErrorCode, dialect: Dialect) -> StatusCode {
    use Dialect::{InfluxV1, InfluxV2, Native, Otlp, Prometheus, RemoteWrite, SampleImport};
    match (code, dialect) {
        (ErrorCode::Invalid | ErrorCode::OverLimit, _) => StatusCode::BAD_REQUEST,
        (ErrorCode::AllRejected, Native) => StatusCode::UNPROCESSABLE_ENTITY,
        (ErrorCode::AllRejected, _) => StatusCode::BAD_REQUEST,
        // vmagent retries a request forever after a 413.
        (ErrorCode::BodyTooLarge, RemoteWrite) => StatusCode::BAD_REQUEST,
        (ErrorCode::BodyTooLarge, _) => StatusCode::PAYLOAD_TOO_LARGE,
        (ErrorCode::BodyTooSlow, Native | Prometheus) => StatusCode::REQUEST_TIMEOUT,
        (ErrorCode::BodyTooSlow, InfluxV1 | InfluxV2 | RemoteWrite | SampleImport | Otlp(_)) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        (ErrorCode::UnsupportedMediaType, _) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        (ErrorCode::NotAcceptable, _) => StatusCode::NOT_ACCEPTABLE,
        (ErrorCode::Unauthenticated, _) => StatusCode::UNAUTHORIZED,
        (ErrorCode::Forbidden, _) => StatusCode::FORBIDDEN,
        (ErrorCode::NotFound, _) => StatusCode::NOT_FOUND,
        (ErrorCode::Gone, _) => StatusCode::GONE,
        (ErrorCode::RangeNotSatisfiable, _) => StatusCode::RANGE_NOT_SATISFIABLE,
        (ErrorCode::MethodNotAllowed, _) => StatusCode::METHOD_NOT_ALLOWED,
        (ErrorCode::ConditionFailed, _) | (ErrorCode::Conflict, Native) => StatusCode::CONFLICT,
        (ErrorCode::Conflict, _) => StatusCode::SERVICE_UNAVAILABLE,
        (ErrorCode::TooManyTimelines, Native | InfluxV2 | Prometheus) => StatusCode::TOO_MANY_REQUESTS,
        // Prometheus retries after a 429 only if it is configured to do so.
        // Older OTLP SDKs for Python repeat a request after 503, but not after 429.
        (ErrorCode::TooManyTimelines, InfluxV1 | RemoteWrite | SampleImport | Otlp(_)) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        (ErrorCode::RateLimited, _) => StatusCode::TOO_MANY_REQUESTS,
        (ErrorCode::Overloaded | ErrorCode::Unavailable, _) => StatusCode::SERVICE_UNAVAILABLE,
        (ErrorCode::DiskFull, Native) => StatusCode::INSUFFICIENT_STORAGE,
        (ErrorCode::DiskFull, _) => StatusCode::SERVICE_UNAVAILABLE,
        (
            ErrorCode::IdempotencyKeyReused
            | ErrorCode::OverBudget
            | ErrorCode::PlanRefused
            | ErrorCode::WrongModel,
            _,
        ) => StatusCode::UNPROCESSABLE_ENTITY,
        // The OTLP collector drops a batch after 500.
        (ErrorCode::Internal | ErrorCode::JobFailed, Otlp(_)) => StatusCode::SERVICE_UNAVAILABLE,
        (ErrorCode::Internal | ErrorCode::JobFailed, _) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Returns the error code of the InfluxDB 2 API.
fn influx_v2_code(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::Invalid
        | ErrorCode::AllRejected
        | ErrorCode::OverLimit
        | ErrorCode::RangeNotSatisfiable
        | ErrorCode::NotAcceptable => "invalid",
        ErrorCode::BodyTooLarge => "request too large",
        ErrorCode::UnsupportedMediaType => "unsupported media type",
        ErrorCode::Unauthenticated => "unauthorized",
        ErrorCode::Forbidden => "forbidden",
        ErrorCode::NotFound | ErrorCode::Gone => "not found",
        ErrorCode::MethodNotAllowed => "method not allowed",
        ErrorCode::ConditionFailed
        | ErrorCode::IdempotencyKeyReused
        | ErrorCode::OverBudget
        | ErrorCode::PlanRefused
        | ErrorCode::WrongModel => "unprocessable entity",
        ErrorCode::TooManyTimelines | ErrorCode::RateLimited => "too many requests",
        ErrorCode::Conflict
        | ErrorCode::BodyTooSlow
        | ErrorCode::Overloaded
        | ErrorCode::DiskFull
        | ErrorCode::Unavailable => "unavailable",
        ErrorCode::Internal | ErrorCode::JobFailed => "internal error",
    }
}

/// Returns the error type of the Prometheus API.
fn prometheus_error_type(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::Invalid
        | ErrorCode::AllRejected
        | ErrorCode::ConditionFailed
        | ErrorCode::OverLimit
        | ErrorCode::BodyTooLarge
        | ErrorCode::BodyTooSlow
        | ErrorCode::IdempotencyKeyReused
        | ErrorCode::UnsupportedMediaType
        | ErrorCode::Unauthenticated
        | ErrorCode::Forbidden
        | ErrorCode::MethodNotAllowed
        | ErrorCode::RangeNotSatisfiable
        | ErrorCode::PlanRefused
        | ErrorCode::WrongModel => "bad_data",
        ErrorCode::NotFound | ErrorCode::Gone => "not_found",
        ErrorCode::NotAcceptable => "not_acceptable",
        ErrorCode::Conflict => "canceled",
        ErrorCode::OverBudget => "execution",
        ErrorCode::TooManyTimelines
        | ErrorCode::RateLimited
        | ErrorCode::Overloaded
        | ErrorCode::DiskFull
        | ErrorCode::Unavailable => "unavailable",
        ErrorCode::Internal | ErrorCode::JobFailed => "internal",
    }
}

/// Returns the gRPC code of an error that is sent with the given HTTP status.
fn rpc_code(code: ErrorCode, status: StatusCode) -> i32 {
    match code {
        _ if status == StatusCode::SERVICE_UNAVAILABLE => 14,
        ErrorCode::Unauthenticated => 16,
        ErrorCode::Forbidden => 7,
        ErrorCode::NotFound | ErrorCode::Gone => 5,
        ErrorCode::MethodNotAllowed => 12,
        ErrorCode::BodyTooLarge | ErrorCode::OverLimit | ErrorCode::OverBudget => 8,
        _ => 3,
    }
}

/// Returns a response with a `google.rpc.Status { 1: int32 code, 2: string message }`.
fn rpc_status_body(code: i32, message: String, encoding: OtlpEncoding) -> Response {
    let body = match encoding {
        OtlpEncoding::Protobuf => {
            let mut body = Vec::new();
            body.put_int(1, code.into());
            body.put_text(2, &message);
            body
        }
        OtlpEncoding::Json => {
            serde_json::to_vec(&RpcStatus { code, message }).expect("a text always serialises")
        }
    };
    ([(header::CONTENT_TYPE, otlp::media_type(encoding))], body).into_response()
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let RequestContext { id, dialect, .. } = RequestContext::current();
        let fault = self.fault.filter(|_| dialect == Dialect::Prometheus);
        let status = fault.map_or_else(|| status(self.code, dialect), QueryFault::status);
        let is_otlp = matches!(dialect, Dialect::Otlp(_));
        let retryable = self.is_retryable() || (is_otlp && status == StatusCode::SERVICE_UNAVAILABLE);
        let note = FailureNote {
            code: self.code,
            message: self.message.clone(),
        };
        let retry_after = retryable.then(|| self.retry_after.unwrap_or(Duration::from_secs(1)));
        let mut response = match dialect {
            Dialect::Native => Json(self.into_body(id)).into_response(),
            Dialect::InfluxV1 => influx_v1_body(&self.message),
            Dialect::InfluxV2 => Json(InfluxV2Error {
                code: influx_v2_code(self.code).into(),
                message: self.message,
            })
            .into_response(),
            Dialect::Prometheus => Json(PrometheusError {
                status: "error".into(),
                error_type: fault
                    .map_or_else(|| prometheus_error_type(self.code), QueryFault::name)
                    .into(),
                error: self.message,
            })
            .into_response(),
            Dialect::Otlp(encoding) => rpc_status_body(rpc_code(self.code, status), self.message, encoding),
            Dialect::RemoteWrite | Dialect::SampleImport => format!("{}\n", self.message).into_response(),
        };
        *response.status_mut() = status;
        let headers = response.headers_mut();
        if let Some(after) = retry_after {
            let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, seconds.max(1).into());
        }
        if status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"tideline\", Basic realm=\"tideline\"");
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        response.extensions_mut().insert(note);
        response
    }
}

/// Returns a response with a JSON body and a trailing newline. A header contains the first 1,024 characters of
/// the message, with `?` for characters that are not printable ASCII.
fn influx_v1_body(message: &str) -> Response {
    let error = InfluxV1Error {
        error: message.to_owned(),
    };
    let mut body = serde_json::to_vec(&error).expect("a text always serialises");
    body.push(b'\n');
    let mut response = ([(header::CONTENT_TYPE, "application/json")], body).into_response();
    let visible = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
    let text: String = message.chars().take(HEADER_TEXT_BYTES_MAX).map(visible).collect();
    if let Ok(text) = HeaderValue::from_str(&text) {
        response.headers_mut().insert(INFLUX_ERROR, text);
    }
    response
}

impl From<MemoryFull> for Failure {
    fn from(full: MemoryFull) -> Self {
        let code = match (full.is_retryable(), &full.owner) {
            (true, None) => ErrorCode::Overloaded,
            // The memory is held by other requests of the same tenant.
            (true, Some(_)) => ErrorCode::RateLimited,
            (false, _) => ErrorCode::OverBudget,
        };
        Self {
            limit: Some((full.limit_bytes, full.held_bytes)),
            ..Self::new(code, full.to_string())
        }
    }
}

impl From<Denied> for Failure {
    fn from(denied: Denied) -> Self {
        Self::new(ErrorCode::Forbidden, denied.to_string())
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        if let EngineError::Memory(full) = error {
            return full.into();
        }
        let code = match error.kind() {
            ErrorKind::Invalid => ErrorCode::Invalid,
            ErrorKind::Forbidden => ErrorCode::Forbidden,
            ErrorKind::OverLimit => ErrorCode::OverLimit,
            ErrorKind::NotFound => ErrorCode::NotFound,
            ErrorKind::Gone => ErrorCode::Gone,
            ErrorKind::WrongModel => ErrorCode::WrongModel,
            ErrorKind::Conflict => ErrorCode::Conflict,
            ErrorKind::KeyReused => ErrorCode::IdempotencyKeyReused,
            ErrorKind::Overloaded => ErrorCode::Overloaded,
            ErrorKind::RateLimited => ErrorCode::RateLimited,
            ErrorKind::DiskFull => ErrorCode::DiskFull,
            ErrorKind::Unavailable => ErrorCode::Unavailable,
            ErrorKind::Internal => ErrorCode::Internal,
        };
        Self {
            limit: error.limit(),
            retry_after: error.is_retryable().then(|| error.retry_after()).flatten(),
            ..Self::new(code, error.to_string())
        }
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Engine(error) => error.into(),
            WriteError::Body(IngestError::Json { line, column, reason }) => {
                let reason = plain::message(&reason);
                Self::invalid(IngestError::Json { line, column, reason })
            }
            error => Self::invalid(error),
        }
    }
}

impl From<SchedulerError> for Failure {
    fn from(error: SchedulerError) -> Self {
        let code = match &error {
            SchedulerError::NoSuchJob(_) | SchedulerError::NoSuchTable(_) => ErrorCode::NotFound,
            SchedulerError::Ended { .. } | SchedulerError::NotPaused(_) | SchedulerError::RequestedJob(_) => {
                ErrorCode::Conflict
            }
            SchedulerError::Unsealed(_) => ErrorCode::Internal,
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_never_drop_what_could_be_stored_later() {
        for code in [
            ErrorCode::BodyTooSlow,
            ErrorCode::Conflict,
            ErrorCode::Overloaded,
            ErrorCode::DiskFull,
            ErrorCode::Unavailable,
        ] {
            for dialect in [
                Dialect::InfluxV1,
                Dialect::InfluxV2,
                Dialect::RemoteWrite,
                Dialect::SampleImport,
                Dialect::Otlp(OtlpEncoding::Json),
            ] {
                assert_eq!(status(code, dialect), 503, "{code:?} {dialect:?}");
            }
        }
        // InfluxDB 2 agents retry after 429, InfluxDB 1 agents do not.
        assert_eq!(status(ErrorCode::TooManyTimelines, Dialect::InfluxV1), 503);
        assert_eq!(status(ErrorCode::TooManyTimelines, Dialect::InfluxV2), 429);
        assert_eq!(status(ErrorCode::DiskFull, Dialect::Native), 507);
        assert_eq!(status(ErrorCode::AllRejected, Dialect::Native), 422);
        assert_eq!(status(ErrorCode::AllRejected, Dialect::InfluxV1), 400);
        // All senders of samples give up on 400. vmagent never gives up on 413; Prometheus gives up on 429.
        assert_eq!(status(ErrorCode::AllRejected, Dialect::RemoteWrite), 400);
        assert_eq!(status(ErrorCode::BodyTooLarge, Dialect::RemoteWrite), 400);
        assert_eq!(status(ErrorCode::TooManyTimelines, Dialect::RemoteWrite), 503);
        assert_eq!(status(ErrorCode::BodyTooLarge, Dialect::SampleImport), 413);
        // An OTLP sender may repeat a request only after 429, 502, 503 and 504.
        let otlp = Dialect::Otlp(OtlpEncoding::Protobuf);
        assert_eq!(status(ErrorCode::Internal, otlp), 503);
        assert_eq!(status(ErrorCode::TooManyTimelines, otlp), 503);
        assert_eq!(status(ErrorCode::BodyTooLarge, otlp), 413);
        assert_eq!(status(ErrorCode::AllRejected, otlp), 400);
        assert_eq!(status(ErrorCode::NotFound, otlp), 404);
    }

    #[test]
    fn the_guide_lists_the_status_of_each_code() {
        let page = include_str!("../../../docs/errors.md");
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        let mut found = 0;
        for row in rows {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let code = serde_json::Value::from(cells[1].trim_matches('`'));
            let code: ErrorCode = serde_json::from_value(code).expect(row);
            assert_eq!(status(code, Dialect::Native).as_str(), cells[2], "{row}");
            found += 1;
        }
        assert!(found >= 20, "{found} rows");
    }

    #[tokio::test]
    async fn each_dialect_has_its_own_body() {
        let full = || EngineError::DiskFull {
            free_bytes: 1,
            watermark_bytes: 2,
        };
        for (path, status, member) in [
            ("/write", 503, "error"),
            ("/api/v2/write", 503, "message"),
            ("/v1/tables/default/points", 507, "request_id"),
            ("/api/v1/query", 503, "errorType"),
            ("/v1/tables/x/prometheus/api/v1/query", 503, "errorType"),
        ] {
            let context = RequestContext {
                dialect: Dialect::of(path),
                ..RequestContext::current()
            };
            let response = context
                .scope(async { Failure::from(full()).into_response() })
                .await;
            assert_eq!(response.status(), status, "{path}");
            assert_eq!(response.headers()[header::RETRY_AFTER], "5", "{path}");
            let body = axum::body::to_bytes(response.into_body(), 10_000)
                .await
                .expect("a body");
            let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
            assert!(body[member].is_string(), "{path}: {body}");
        }
    }

    #[tokio::test]
    async fn senders_of_samples_read_plain_text() {
        for path in [
            "/api/v1/write",
            "/api/v1/push",
            "/api/v1/import/prometheus",
            "/metrics/job/a",
            "/v1/tables/x/prometheus/api/v1/write",
        ] {
            let context = RequestContext {
                dialect: Dialect::of(path),
                ..RequestContext::current()
            };
            let response = context
                .scope(async { Failure::invalid("what was wrong").into_response() })
                .await;
            assert_eq!(response.status(), 400, "{path}");
            let body = axum::body::to_bytes(response.into_body(), 100)
                .await
                .expect("a body");
            assert_eq!(body, "what was wrong\n", "{path}");
        }
    }
}
