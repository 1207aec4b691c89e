//! Context of the running request: its id, its client and the dialect of its errors.
//!
//! The context is a task-local value, so that errors anywhere in a handler get the right format and request id.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use tideline_access::{RunningQuery, Tenant};
use tideline_connections::Client;
use tideline_engine::model::Timestamp;
use tideline_ingest::protocols::prometheus::OtlpEncoding;

use crate::extract::content_type;

/// Header with the id of a request, in requests and responses.
pub(crate) const REQUEST_ID: &str = "x-request-id";

/// Longest request id that is accepted from a client, in bytes.
const CLIENT_ID_BYTES_MAX: usize = 64;

tokio::task_local! {
    static CURRENT: RequestContext;
}

/// Context of the request that this task handles.
#[derive(Debug, Clone)]
pub(crate) struct RequestContext {
    pub(crate) id: RequestId,
    pub(crate) dialect: Dialect,
    pub(crate) client: Client,
    /// Tenant for which the request acts.
    pub(crate) tenant: Option<Arc<Tenant>>,
    /// Running query that counts in the budget of the tenant.
    pub(crate) query: Option<Arc<RunningQuery>>,
}

/// Returns the client of the request that this task handles.
pub(crate) fn current_client() -> Client {
    CURRENT
        .try_with(|context| context.client)
        .unwrap_or(Client::UNKNOWN)
}

/// Returns the tenant of the request that this task handles.
pub(crate) fn current_tenant() -> Option<Arc<Tenant>> {
    CURRENT
        .try_with(|context| context.tenant.clone())
        .unwrap_or_default()
}

/// Returns the running query that counts in the budget of the tenant of this request.
pub(crate) fn current_query() -> Option<Arc<RunningQuery>> {
    CURRENT
        .try_with(|context| context.query.clone())
        .unwrap_or_default()
}

impl RequestContext {
    /// Runs the handler of a request within its context.
    pub(crate) async fn scope<T>(self, response: impl Future<Output = T>) -> T {
        CURRENT.scope(self, response).await
    }

    /// Returns the context of the running request. Outside of a request, returns a default context with the id `none`.
    pub(crate) fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_else(|_| Self {
            id: RequestId("none".into()),
            dialect: Dialect::Native,
            client: Client::UNKNOWN,
            tenant: None,
            query: None,
        })
    }
}

/// Request id, as in responses and in the log. Also an extractor.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(Arc<str>);

impl RequestId {
    /// Returns the id sent by the client if it consists of 1 to 64 ASCII letters, digits and `-_.:`,
    /// otherwise a new id.
    pub(crate) fn of(headers: &HeaderMap, ids: &RequestIds) -> Self {
        let plain = |id: &&str| {
            (1..=CLIENT_ID_BYTES_MAX).contains(&id.len())
                && id
                    .bytes()
                    .all(|c| c.is_ascii_alphanumeric() || b"-_.:".contains(&c))
        };
        let sent = headers
            .get(REQUEST_ID)
            .and_then(|id| id.to_str().ok())
            .filter(plain);
        Self(sent.map_or_else(|| ids.next().into(), Arc::from))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<RequestId> for String {
    fn from(id: RequestId) -> Self {
        id.0.as_ref().to_owned()
    }
}

impl<S: Sync> FromRequestParts<S> for RequestId {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(_: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(RequestContext::current().id)
    }
}

/// Generator of request ids. An id consists of the start time of the service and a counter.
#[derive(Debug)]
pub(crate) struct RequestIds {
    started: Timestamp,
    count: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new(started: Timestamp) -> Self {
        Self {
            started,
            count: AtomicU64::new(0),
        }
    }

    fn next(&self) -> String {
        let mut id = String::with_capacity(26);
        let millis = self.started.nanos() / 1_000_000;
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        write!(id, "{millis:x}-{count:08x}").expect("writing to a string cannot fail");
        id
    }
}

/// Protocol that determines the statuses and error bodies of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Native interface.
    Native,
    /// InfluxDB 1: `/write`, `/query`, `/ping`.
    InfluxV1,
    /// InfluxDB 2: `/api/v2/…`.
    InfluxV2,
    /// Prometheus HTTP API.
    Prometheus,
    /// Prometheus remote write: error bodies are text, and the statuses control the retries of senders.
    RemoteWrite,
    /// OTLP: error bodies are messages in the encoding of the request.
    Otlp(OtlpEncoding),
    /// All other imports and pushes of samples, such as Pushgateway and VictoriaMetrics. Error bodies are text.
    SampleImport,
}

/// Path segment after the table name in the Prometheus URLs of a table.
const PROMETHEUS_OF_TABLE: &str = "prometheus";

/// Returns the path below the root of a Prometheus API. This root is the Prometheus URL of a table or, for all paths
/// outside of `/v1/tables/`, the root of the server. Returns an empty string for other paths of a table.
pub(crate) fn within_prometheus(path: &str) -> &str {
    let Some(rest) = path.strip_prefix("/v1/tables/") else {
        return path;
    };
    let rest = rest.split_once('/').map_or("", |(_, rest)| rest);
    rest.strip_prefix(PROMETHEUS_OF_TABLE).unwrap_or_default()
}

/// Prefixes of the OTLP routes `/v1/metrics`, `/v1/logs` and `/v1/traces`.
pub(crate) const OTLP_PREFIXES: [&str; 3] = ["", "/opentelemetry", "/api/v1/otlp"];

impl Dialect {
    /// Returns the dialect of a request. OTLP errors are encoded as Protocol Buffers if the content type of the
    /// request is `application/x-protobuf`, otherwise as JSON.
    pub(crate) fn of_request(path: &str, headers: &HeaderMap) -> Self {
        match Self::of(path) {
            Self::Otlp(_) if content_type(headers) == "application/x-protobuf" => {
                Self::Otlp(OtlpEncoding::Protobuf)
            }
            dialect => dialect,
        }
    }

    /// Returns the dialect of a path.
    pub(crate) fn of(path: &str) -> Self {
        match path {
            "/write" | "/query" | "/ping" => Self::InfluxV1,
            path if path.starts_with("/api/v2/") => Self::InfluxV2,
            path => Self::of_prometheus(within_prometheus(path)),
        }
    }

    /// Returns the dialect of a path below the root of the Prometheus API.
    fn of_prometheus(path: &str) -> Self {
        match path {
            "/api/v1/write" | "/api/v1/push" => Self::RemoteWrite,
            "/federate" => Self::Prometheus,
            path if is_otlp(path) => Self::Otlp(OtlpEncoding::Json),
            path if path.starts_with("/api/v1/import") => Self::SampleImport,
            path if path.starts_with("/metrics/") => Self::SampleImport,
            path if path.starts_with("/api/v1/") => Self::Prometheus,
            _ => Self::Native,
        }
    }
}

/// Returns true for the routes of OTLP.
fn is_otlp(path: &str) -> bool {
    let is_below = |prefix: &str| {
        let rest = path.strip_prefix(prefix);
        rest.is_some_and(|rest| matches!(rest, "/v1/metrics" | "/v1/logs" | "/v1/traces"))
    };
    OTLP_PREFIXES.into_iter().any(is_below)
}
