//! Layer of checks before a request is handled, and of the memory of its response.

use std::convert::Infallible;
use std::task::{Context, Poll};

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use tower::{Layer, Service};

use crate::app::App;
use crate::observe::ResponseFuture;
use crate::{auth, host, response_memory};

/// Layer that runs a request if its host, token and origin are allowed, and reserves the memory of a large response.
/// Metrics must remain available to diagnose refusals, so their memory is not reserved.
#[derive(Clone)]
pub(crate) struct GuardLayer(pub(crate) App);

/// Service of [`GuardLayer`].
#[derive(Clone)]
pub(crate) struct Guard<S> {
    app: App,
    inner: S,
}

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Guard<S> {
        let app = self.0.clone();
        Guard { app, inner }
    }
}

impl<S> Service<Request> for Guard<S>
where
    S: Service<Request, Error = Infallible, Response: IntoResponse, Future: Send + 'static>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let app = self.app.clone();
        let admitted = host::admit(&request, &app.settings)
            .and_then(|()| auth::require_token(&request, &app.settings))
            .and_then(|()| auth::refuse_other_sites(&request));
        if let Err(failure) = admitted {
            return Box::pin(async move {
                app.bodies.discard(request).await;
                Ok(failure.into_response())
            });
        }
        let is_metrics = request.uri().path() == "/metrics";
        let response = self.inner.call(request);
        Box::pin(async move {
            let Ok(response) = response.await;
            let response = response.into_response();
            match is_metrics {
                true => Ok(response),
                false => Ok(response_memory::reserve(&app, response)),
            }
        })
    }
}
