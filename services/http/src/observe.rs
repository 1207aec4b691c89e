//! Layer around every request: request id, metrics, log lines, and the response after a panic.
//!
//! The log contains the route template instead of the path, except for changes, because paths and query
//! strings may contain sensitive data.

use std::any::Any;
use std::time::Instant;

use axum::body::HttpBody;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tideline_openapi::ErrorCode;

use crate::app::App;
use crate::audit::{self, Changed};
use crate::context::{Dialect, REQUEST_ID, RequestContext, RequestId};
use crate::failure::{Failure, FailureNote};
use crate::metrics::RequestLabels;
use tideline_connections::{Client, Origin};

/// Route label of requests that match no route.
const UNMATCHED: &str = "unmatched";

/// Runs a request within its context; logs and counts its response. The log contains the route template and,
/// for changes, the path. It never contains the query string, which may hold a password, or the header
/// `Authorization`.
pub(crate) async fn observe(State(app): State<App>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = method_label(request.method());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or(UNMATCHED, MatchedPath::as_str).to_owned();
    let sent = request.body().size_hint().exact();
    let path = match audit::is_change(method, &route) {
        true => request.uri().path().to_owned(),
        false => String::new(),
    };
    let id = RequestId::of(request.headers(), &app.request_ids);
    let origin = Origin::of(request.extensions());
    let peer = origin.map(tracing::field::display);
    let proxy = origin
        .and_then(|origin| origin.proxy())
        .map(tracing::field::display);
    let context = RequestContext {
        id: id.clone(),
        dialect: Dialect::of_request(request.uri().path(), request.headers()),
        client: origin.map_or(Client::UNKNOWN, |origin| origin.client()),
    };
    let running = app.metrics.requests_running.count();
    let mut response = context.scope(next.run(request)).await;
    drop(running);
    if let Ok(id) = HeaderValue::from_str(id.as_str()) {
        response
            .headers_mut()
            .insert(HeaderName::from_static(REQUEST_ID), id);
    }
    let status = response.status().as_u16();
    let seconds = started.elapsed().as_secs_f64();
    let ms = seconds * 1e3;
    let bytes = response.body().size_hint().exact();
    let id = id.as_str();
    let path = match response.extensions().get::<Changed>() {
        Some(Changed(what)) => what.clone(),
        None => path,
    };
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
        None if status < 400 && !path.is_empty() => {
            let principal = if app.settings.token.is_some() {
                "token"
            } else {
                "anonymous"
            };
            // The path identifies the table or job; it does not include the query string.
            tracing::info!(target: audit::TARGET, principal, peer, proxy, method, path, status, request_id = id, "change");
        }
        None => tracing::debug!(method, route, status, ms, sent, bytes, request_id = id, "request"),
    }
    app.metrics.answered(
        RequestLabels {
            method,
            route,
            status,
        },
        seconds,
    );
    response
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
