//! Layer of checks before a request is handled, and of the memory of its response.
//!
//! The checks are made in one place for all routes. A refused request has its body discarded, so that its connection can
//! be used again.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::extract::{MatchedPath, Request};
use axum::response::{IntoResponse, Response};
use tideline_access::Principal;
use tower::{Layer, Service};

use crate::app::App;
use crate::failure::Result;
use crate::grant::Granted;
use crate::observe::ResponseFuture;
use crate::routes::{Declared, Routes};
use crate::{auth, host, response_memory};

/// Layer that runs a request if its host, token, role and origin are allowed, and reserves the memory of a large
/// response. Metrics must remain available to diagnose refusals, so their memory is not reserved.
///
/// The layer stores the [`Granted`] of the request in its extensions, and the [`Originator`] in those of the response.
#[derive(Clone)]
pub(crate) struct GuardLayer {
    pub(crate) app: App,
    pub(crate) routes: Arc<Routes>,
}

/// Principal of a request, for the log. It is stored in the extensions of the response.
#[derive(Debug, Clone)]
pub(crate) struct Originator(pub(crate) Arc<Principal>);

/// Service of [`GuardLayer`].
#[derive(Clone)]
pub(crate) struct Guard<S> {
    app: App,
    routes: Arc<Routes>,
    inner: S,
}

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Guard<S> {
        Guard {
            app: self.app.clone(),
            routes: Arc::clone(&self.routes),
            inner,
        }
    }
}

impl<S> Service<Request> for Guard<S>
where
    S: Service<Request, Error = Infallible, Response: IntoResponse, Future: Send + 'static>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let app = self.app.clone();
        let mut principal = None;
        let admitted = admit(&app, &self.routes, &request, &mut principal);
        let granted = match admitted {
            Ok(granted) => granted,
            Err(failure) => {
                return Box::pin(async move {
                    app.bodies.discard(request).await;
                    let mut response = failure.into_response();
                    if let Some(principal) = principal {
                        response.extensions_mut().insert(Originator(principal));
                    }
                    Ok(response)
                });
            }
        };
        if let Some(granted) = granted {
            request.extensions_mut().insert(granted);
        }
        let is_metrics = request.uri().path() == "/metrics";
        let response = self.inner.call(request);
        Box::pin(async move {
            let Ok(response) = response.await;
            let mut response = response.into_response();
            if let Some(principal) = principal {
                response.extensions_mut().insert(Originator(principal));
            }
            match is_metrics {
                true => Ok(response),
                false => Ok(response_memory::reserve(&app, response)),
            }
        })
    }
}

/// Checks a request. Returns its grant; `None` for a route that needs no token. Sets `principal` as soon as it is known.
fn admit(
    app: &App,
    routes: &Routes,
    request: &Request,
    principal: &mut Option<Arc<Principal>>,
) -> Result<Option<Granted>> {
    host::admit(request, &app.settings)?;
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let declared = routes.declared(request.method(), path, app.settings.are_pages_open);
    if declared == Declared::Open {
        auth::refuse_other_sites(request)?;
        return Ok(None);
    }
    let found = auth::authenticate(request, &app.tokens)?;
    *principal = Some(Arc::clone(&found));
    let access = match declared {
        Declared::Action(needed) => Some(needed.grant(&found)?),
        Declared::Open | Declared::Any => None,
    };
    auth::refuse_other_sites(request)?;
    Ok(Some(Granted {
        principal: found,
        access,
    }))
}
