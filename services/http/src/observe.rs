//! Layer around every request: request id, metrics, log lines, and the response after a panic.
//!
//! The log contains the route template instead of the path, except for changes, because paths and query
//! strings may contain sensitive data.

use std::any::Any;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::HttpBody;
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use tideline_access::Principal;
use tideline_engine::audit_table::AuditRecord;
use tideline_engine::backend::Acknowledged;
use tideline_openapi::ErrorCode;
use tower::{Layer, Service};

use crate::app::App;
use crate::audit;
use crate::audit_log::{Refusal, code_name};
use crate::context::{Dialect, REQUEST_ID, RequestContext, RequestId};
use crate::failure::{Failure, FailureNote};
use crate::guard::Observation;
use crate::metrics::RequestLabels;
use tideline_connections::{Client, Origin};

/// Route label of requests that match no route.
const UNMATCHED: &str = "unmatched";

/// Header of every response of a server whose acknowledged writes are not synced.
const ACKNOWLEDGED: HeaderName = HeaderName::from_static("tideline-acknowledged");

/// Layer that runs requests within their context, and logs and counts their responses. The log contains the route
/// template and, for changes, the path. It never contains the query string, which may hold a password, or the header
/// `Authorization`.
///
/// The service of the layer calls the inner one directly. A function as a layer (`axum::middleware::from_fn`) would clone
/// and box all inner services for each request.
#[derive(Clone)]
pub(crate) struct ObserveLayer(pub(crate) App);

/// Future of a service of this crate that handles requests.
pub(crate) type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

/// Service of [`ObserveLayer`].
#[derive(Clone)]
pub(crate) struct Observe<S> {
    app: App,
    inner: S,
}

impl<S> Layer<S> for ObserveLayer {
    type Service = Observe<S>;

    fn layer(&self, inner: S) -> Observe<S> {
        let app = self.0.clone();
        Observe { app, inner }
    }
}

impl<S> Service<Request> for Observe<S>
where
    S: Service<Request, Error = Infallible, Response: IntoResponse, Future: Send + 'static>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let app = self.app.clone();
        let observed = Observed::new(&app, &request);
        request
            .extensions_mut()
            .insert(observed.change.observation.clone());
        let response = self.inner.call(request);
        Box::pin(async move {
            let running = app.metrics.requests_running.count();
            let Ok(response) = observed.context.clone().scope(response).await;
            drop(running);
            let (response, record) = observed.answered(&app, response.into_response());
            if let Some(record) = record {
                app.audit.write(record).await;
            }
            Ok(response)
        })
    }
}

/// Request whose response is logged and counted.
struct Observed {
    context: RequestContext,
    started: Instant,
    route: String,
    /// Size of the request body in bytes, if the client has declared it.
    sent: Option<u64>,
    change: RunningChange,
}

impl Observed {
    fn new(app: &App, request: &Request) -> Self {
        let started = Instant::now();
        let method = method_label(request.method());
        let route = request.extensions().get::<MatchedPath>();
        let route = route.map_or(UNMATCHED, MatchedPath::as_str).to_owned();
        let origin = Origin::of(request.extensions());
        let context = RequestContext {
            id: RequestId::of(request.headers(), &app.request_ids),
            dialect: Dialect::of_request(request.uri().path(), request.headers()),
            client: origin.map_or(Client::UNKNOWN, |origin| origin.client()),
            tenant: None,
            query: None,
        };
        let change = RunningChange {
            app: app.clone(),
            method,
            path: match audit::is_change(method, &route) {
                true => request.uri().path().to_owned(),
                false => String::new(),
            },
            origin,
            observation: Observation::default(),
            id: context.id.clone(),
            is_answered: false,
        };
        Self {
            context,
            started,
            route,
            sent: request.body().size_hint().exact(),
            change,
        }
    }

    /// Logs and counts the response, and adds the request id to its headers. Also returns the record of a change.
    fn answered(self, app: &App, mut response: Response) -> (Response, Option<AuditRecord>) {
        if let Ok(id) = HeaderValue::from_str(self.context.id.as_str()) {
            response
                .headers_mut()
                .insert(HeaderName::from_static(REQUEST_ID), id);
        }
        let acknowledged = app
            .service_engine()
            .store()
            .log()
            .backend()
            .capabilities()
            .acknowledged;
        if acknowledged == Acknowledged::Replicated {
            let name = HeaderValue::from_static(Acknowledged::Replicated.name());
            response.headers_mut().insert(ACKNOWLEDGED, name);
        }
        let seconds = self.started.elapsed().as_secs_f64();
        self.log(app, &response, seconds);
        let Self {
            route, mut change, ..
        } = self;
        let status = response.status().as_u16();
        let code = response.extensions().get::<FailureNote>().map(|note| note.code);
        let record = change.answered(&route, status, code);
        app.metrics.answered(
            RequestLabels {
                method: change.method,
                route,
                status,
            },
            seconds,
        );
        (response, record)
    }

    /// Logs the response.
    fn log(&self, app: &App, response: &Response, seconds: f64) {
        let RunningChange { method, origin, .. } = &self.change;
        let (route, sent, id) = (&self.route, self.sent, self.context.id.as_str());
        let peer = origin.map(tracing::field::display);
        let proxy = origin
            .and_then(|origin| origin.proxy())
            .map(tracing::field::display);
        let status = response.status().as_u16();
        let ms = seconds * 1e3;
        let bytes = response.body().size_hint().exact();
        match response.extensions().get::<FailureNote>() {
            Some(FailureNote { code, message }) if status >= 500 => {
                tracing::warn!(
                    method,
                    route,
                    status,
                    ms,
                    sent,
                    bytes,
                    request_id = id,
                    ?code,
                    message,
                    "request"
                );
            }
            Some(FailureNote { code, message }) => {
                tracing::debug!(
                    method,
                    route,
                    status,
                    ms,
                    sent,
                    bytes,
                    peer,
                    proxy,
                    request_id = id,
                    ?code,
                    message,
                    "request"
                );
                if let Some(count) = app.refusals.count(status, *code, Instant::now()) {
                    tracing::info!(
                        count,
                        method,
                        route,
                        status,
                        ?code,
                        message,
                        peer,
                        proxy,
                        request_id = id,
                        "refused"
                    );
                }
            }
            None => tracing::debug!(method, route, status, ms, sent, bytes, request_id = id, "request"),
        }
    }
}

/// Running request that may make a change. If its client disconnects before the response, the change may still be
/// executed, and it is recorded without an outcome.
struct RunningChange {
    app: App,
    method: &'static str,
    /// Path of a change; otherwise empty.
    path: String,
    origin: Option<Origin>,
    observation: Observation,
    id: RequestId,
    is_answered: bool,
}

impl RunningChange {
    /// Ends the guard, and logs and counts a change or a refusal. Returns the record of a change.
    fn answered(&mut self, route: &str, status: u16, code: Option<ErrorCode>) -> Option<AuditRecord> {
        self.is_answered = true;
        let path = self.description();
        match (status, code) {
            // A failed change may still have had an effect.
            (..400 | 500.., _) if !path.is_empty() => Some(self.record(path, Some(status), code)),
            (400..500, Some(code)) if !path.is_empty() || matches!(status, 401 | 403 | 429) => {
                let principal = self.observation.principal();
                let refusal = Refusal {
                    principal: principal.map(|principal| principal.label()),
                    tenant: principal.and_then(|principal| tenant_of(principal)),
                    client: self.origin.map(|origin| origin.client().to_string()),
                    proxy: proxy_of(self.origin),
                    method: self.method,
                    route: route.to_owned(),
                    status,
                    code,
                };
                let now = self.app.service_engine().clock().now();
                self.app.audit.count(refusal, now);
                None
            }
            _ => None,
        }
    }

    /// Returns the description of the change; empty for a request that changes nothing.
    fn description(&mut self) -> String {
        let path = std::mem::take(&mut self.path);
        self.observation.change().unwrap_or(path)
    }

    /// Logs a change, and returns its record. `status` is `None` if the client has disconnected before the response.
    fn record(&self, path: String, status: Option<u16>, code: Option<ErrorCode>) -> AuditRecord {
        let (method, id) = (self.method, self.id.as_str());
        let principal = self.observation.principal();
        let shown = principal.map(tracing::field::display);
        let peer = self.origin.map(tracing::field::display);
        let proxy = proxy_of(self.origin);
        let shown_proxy = proxy.as_ref().map(tracing::field::display);
        let detail = self.observation.detail();
        // The path identifies the table or job; it does not include the query string.
        tracing::info!(target: audit::TARGET, principal = shown, peer, proxy = shown_proxy, method, path, detail, status, request_id = id, "change");
        AuditRecord {
            principal: principal.map(|principal| principal.label()),
            tenant: principal.and_then(|principal| tenant_of(principal)),
            client: self.origin.map(|origin| origin.to_string()),
            proxy,
            status,
            code: code.map(code_name),
            request_id: Some(id.to_owned()),
            detail,
            ..AuditRecord::of_change(self.app.service_engine().clock().now(), method, path)
        }
    }
}

impl Drop for RunningChange {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let path = self.description();
        if !path.is_empty() {
            self.app.audit.note(self.record(path, None, None));
        }
    }
}

fn tenant_of(principal: &Principal) -> Option<String> {
    let tenant = principal.tenant()?;
    Some(tenant.record().name.clone())
}

fn proxy_of(origin: Option<Origin>) -> Option<String> {
    Some(origin?.proxy()?.to_string())
}

/// Returns the label of a method. Unknown methods share one label, so that clients cannot create labels.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// Creates the response to a request whose handler panicked.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature is fixed by the layer"
)]
pub(crate) fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = text.unwrap_or("no text"), "a request panicked");
    Failure::new(ErrorCode::Internal, "internal error").into_response()
}
