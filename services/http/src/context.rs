//! What is known of the running request wherever an answer is made: its id, and whose words errors take.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use tideline_connections::Client;
use tideline_engine::model::Timestamp;

/// The header that carries the id of a request, both ways.
pub(crate) const REQUEST_ID: &str = "x-request-id";

/// Longest id that is taken over from a client.
const CLIENT_ID_BYTES_MAX: usize = 64;

tokio::task_local! {
    static CURRENT: RequestContext;
}

/// The request that this task answers.
#[derive(Debug, Clone)]
pub(crate) struct RequestContext {
    pub(crate) id: RequestId,
    pub(crate) dialect: Dialect,
    pub(crate) client: Client,
}

/// Returns the client of the request that this task answers.
pub(crate) fn current_client() -> Client {
    RequestContext::current().client
}

impl RequestContext {
    /// Runs the answer of a request within its context.
    pub(crate) async fn scope<T>(self, answer: impl Future<Output = T>) -> T {
        CURRENT.scope(self, answer).await
    }

    /// The running request's; outside of any, one that says so.
    pub(crate) fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_else(|_| Self {
            id: RequestId("none".into()),
            dialect: Dialect::Native,
            client: Client::UNKNOWN,
        })
    }
}

/// Names a request in answers and in the log. Also an extractor.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(Arc<str>);

impl RequestId {
    /// What the client sent, where that is short and plain; otherwise a new one.
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

/// Makes ids: the time of the start, then a count.
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

/// Whose statuses and error bodies a route speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Our own.
    Native,
    /// InfluxDB 1: `/write`, `/query`, `/ping`.
    InfluxV1,
    /// InfluxDB 2: `/api/v2/…`.
    InfluxV2,
    /// Prometheus' HTTP API.
    Prometheus,
    /// Prometheus remote write: text, and statuses that decide what a sender sends again.
    RemoteWrite,
    /// Everything else that takes samples the way Prometheus and its kin write them: imports and pushes. Text.
    SampleImport,
}

/// What follows the name of a table in the addresses of its Prometheus.
const PROMETHEUS_OF_TABLE: &str = "prometheus";

/// A path as it is below the root of a Prometheus, be that our own root or the address of a table; empty for other
/// paths about a table.
pub(crate) fn within_prometheus(path: &str) -> &str {
    let Some(rest) = path.strip_prefix("/v1/tables/") else {
        return path;
    };
    let rest = rest.split_once('/').map_or("", |(_, rest)| rest);
    rest.strip_prefix(PROMETHEUS_OF_TABLE).unwrap_or_default()
}

impl Dialect {
    /// The dialect of a path.
    pub(crate) fn of(path: &str) -> Self {
        match path {
            "/write" | "/query" | "/ping" => Self::InfluxV1,
            path if path.starts_with("/api/v2/") => Self::InfluxV2,
            path => Self::of_prometheus(within_prometheus(path)),
        }
    }

    /// The dialect of a path below the root of a Prometheus.
    fn of_prometheus(path: &str) -> Self {
        match path {
            "/api/v1/write" | "/api/v1/push" => Self::RemoteWrite,
            "/federate" => Self::Prometheus,
            path if path.starts_with("/api/v1/import") => Self::SampleImport,
            path if path.starts_with("/metrics/") => Self::SampleImport,
            path if path.starts_with("/api/v1/") => Self::Prometheus,
            _ => Self::Native,
        }
    }
}
