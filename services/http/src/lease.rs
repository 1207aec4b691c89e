//! Layer that refuses requests while this process does not own the data.
//!
//! The lease is checked before and after each handler, and before each part of a response is sent: a process that was
//! paused for longer than its lease must not send what it has read before. Most reads of the engine check the lease
//! themselves. Lists that are kept in memory, such as those of tables, tokens and jobs, do not.
//!
//! If no other process can take over the data, the layer does nothing.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::{MatchedPath, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tower::{Layer, Service};

use crate::app::App;
use crate::auth;
use crate::failure::{Failure, Result};
use crate::guard::Observation;
use crate::observe::ResponseFuture;
use crate::routes::PAGES;

/// Routes about the process itself, in addition to health checks and pages.
const OF_PROCESS: [&str; 2] = ["/metrics", "/v1/backend"];
/// Continuation of the error of a request that was executed although the lease has ended.
const ENDED_MEANWHILE: &str = "; it ended while the request was executed, so the outcome is unknown";

/// Layer that responds with 503 while this process does not own the data. Health checks, metrics, the guarantees of the
/// backend and pages are always served.
#[derive(Clone)]
pub(crate) struct LeaseLayer {
    app: App,
    /// True if other processes can take over the data.
    is_shared: bool,
}

/// Service of [`LeaseLayer`].
#[derive(Clone)]
pub(crate) struct Leased<S> {
    app: App,
    is_shared: bool,
    inner: S,
}

impl LeaseLayer {
    pub(crate) fn new(app: &App) -> Self {
        let backend = app.service_engine().store().log().backend();
        Self {
            app: app.clone(),
            is_shared: backend.capabilities().is_shared,
        }
    }
}

impl<S> Layer<S> for LeaseLayer {
    type Service = Leased<S>;

    fn layer(&self, inner: S) -> Leased<S> {
        Leased {
            app: self.app.clone(),
            is_shared: self.is_shared,
            inner,
        }
    }
}

impl<S> Service<Request> for Leased<S>
where
    S: Service<Request, Response = Response, Error = Infallible, Future = ResponseFuture>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        if !self.is_shared || is_of_process(&request) {
            return self.inner.call(request);
        }
        let app = self.app.clone();
        if let Err(failure) = check(&app) {
            // The handler has not begun, so the request has changed nothing.
            if let Some(observation) = request.extensions().get::<Observation>() {
                observation.set_change(String::new());
            }
            return Box::pin(async move {
                app.bodies.discard(request).await;
                Ok(failure.into_response())
            });
        }
        let response = self.inner.call(request);
        Box::pin(async move {
            let Ok(response) = response.await;
            Ok(match check(&app) {
                Ok(()) => response.map(|body| {
                    let check = move || check(&app);
                    Body::new(CheckedBody { body, check })
                }),
                // This error does not depend on the data.
                Err(_) if response.status().is_server_error() => response,
                Err(mut failure) => {
                    failure.message.push_str(ENDED_MEANWHILE);
                    failure.into_response()
                }
            })
        })
    }
}

/// Returns true if the response to a request does not depend on the data.
fn is_of_process(request: &Request) -> bool {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    path.is_some_and(|path| OF_PROCESS.contains(&path) || PAGES.contains(&path) || auth::is_open(path))
}

fn check(app: &App) -> Result<()> {
    Ok(app.service_engine().check_lease()?)
}

/// Body that ends with an error, so that the client detects an incomplete response, when `check` fails.
struct CheckedBody<C> {
    body: Body,
    check: C,
}

impl<C: Fn() -> Result<()> + Unpin> HttpBody for CheckedBody<C> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        frame.map(|frame| {
            let frame = frame?;
            let checked = (self.check)().map_err(|Failure { message, .. }| io::Error::other(message));
            Some(frame.and_then(|frame| checked.map(|()| frame).map_err(axum::Error::new)))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use http_body_util::BodyExt;
    use tideline_openapi::ErrorCode;
    use tokio::sync::mpsc;

    use super::*;
    use crate::stream;

    #[tokio::test]
    async fn a_stream_ends_with_an_error_when_the_lease_has_ended() {
        let (parts, received) = mpsc::channel(2);
        let is_owner = Arc::new(AtomicBool::new(true));
        let still = Arc::clone(&is_owner);
        let check = move || match still.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(Failure::new(ErrorCode::Unavailable, "the lease has expired")),
        };
        let mut body = CheckedBody {
            body: stream::live("text/plain", received).into_body(),
            check,
        };
        for part in ["first", "second"] {
            parts.send(Ok(part.into())).await.expect("there is room");
        }
        let frame = body.frame().await.expect("a part").expect("an owner");
        assert_eq!(frame.into_data().expect("data"), "first");
        // The second part was read before the lease ended.
        is_owner.store(false, Ordering::Relaxed);
        let error = body.frame().await.expect("an end").expect_err("not an owner");
        assert_eq!(error.to_string(), "the lease has expired");
    }
}
