//! Layer of checks before a request is handled, and of the memory of its response.
//!
//! The checks are made in one place for all routes. A refused request has its body discarded, so that its connection can
//! be used again.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use tideline_access::{Action, Principal, RunningQuery, Tenant};
use tideline_connections::{Client, with_guard};
use tower::{Layer, Service};

use crate::app::App;
use crate::audit_log::cut;
use crate::context::RequestContext;
use crate::failure::{Failure, Result};
use crate::grant::Granted;
use crate::observe::ResponseFuture;
use crate::routes::{Declared, Routes};
use crate::{auth, host, response_memory};

/// Layer that runs a request if its host, token, role and origin are allowed, and reserves the memory of a large
/// response. Metrics must remain available to diagnose refusals, so their memory is not reserved.
///
/// The layer stores the [`Granted`] of the request in its extensions, and its principal in the [`Observation`] that
/// `observe` has stored there.
#[derive(Clone)]
pub(crate) struct GuardLayer {
    pub(crate) app: App,
    pub(crate) routes: Arc<Routes>,
}

/// Error of a request without a tenant.
pub(crate) const UNNAMED_TENANT: &str =
    "the token may act for several tenants; name the tenant of the request in the header X-Scope-OrgID";
/// Route of SQL statements.
const SQL: &str = "/v1/sql";
/// Suffixes of operator routes that store data with a `POST`.
const STORING: [&str; 5] = ["/rekey", "/indexes", "/search-indexes", "/restore", "/attach"];
/// Route of a saved search, which a `PUT` stores.
const SAVED_SEARCH: &str = "/v1/tables/{table}/searches/{name}";
/// Suffixes of routes whose requests can last as long as their clients stay connected: watches, and reads that can
/// wait for new data. Such reads have separate limits.
const WAITING: [&str; 5] = ["/watch", "/messages", "/messages/count", "/inbox", "/records"];

/// Properties of a request that `observe` records, available as soon as they are known. Stored in the extensions
/// of the request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observation(Arc<Facts>);

#[derive(Debug, Default)]
struct Facts {
    principal: OnceLock<Arc<Principal>>,
    change: Mutex<Option<String>>,
    detail: Mutex<Option<String>>,
}

impl Observation {
    /// Returns the principal; `None` if the request was refused before it was known.
    pub(crate) fn principal(&self) -> Option<&Arc<Principal>> {
        self.0.principal.get()
    }

    fn set_principal(&self, principal: &Arc<Principal>) {
        self.0.principal.get_or_init(|| Arc::clone(principal));
    }

    /// Returns the description of the change that the request makes, if its handler has given one.
    pub(crate) fn change(&self) -> Option<String> {
        self.0.change.lock().clone()
    }

    /// Sets the description of the change before the request makes the change. Replaces an earlier description,
    /// and the description that follows from the route. An empty text means that the request has changed
    /// nothing.
    pub(crate) fn set_change(&self, change: String) {
        *self.0.change.lock() = Some(change);
    }

    /// Returns what the change changes, if the handler has described it.
    pub(crate) fn detail(&self) -> Option<String> {
        self.0.detail.lock().clone()
    }

    /// Sets the text that describes what the change changes. Replaces an earlier text. A long text is cut, and an empty
    /// one describes nothing.
    pub(crate) fn set_detail(&self, mut detail: String) {
        cut(&mut detail);
        *self.0.detail.lock() = Some(detail).filter(|detail| !detail.is_empty());
    }
}

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
        if let Some((observation, principal)) =
            request.extensions().get::<Observation>().zip(principal.as_ref())
        {
            observation.set_principal(principal);
        }
        let (granted, query) = match admitted {
            Ok((granted, query)) => (granted, query.map(Arc::new)),
            Err(failure) => {
                return Box::pin(async move {
                    app.bodies.discard(request).await;
                    Ok(failure.into_response())
                });
            }
        };
        // All requests of a tenant count as requests of one client, whatever their addresses.
        let tenant = principal
            .as_ref()
            .and_then(|principal| principal.tenant())
            .cloned();
        if let Some(granted) = granted {
            request.extensions_mut().insert(granted);
        }
        let is_metrics = request.uri().path() == "/metrics";
        let response = self.inner.call(request);
        let running = query.clone();
        Box::pin(async move {
            let Ok(response) = match &tenant {
                None => response.await,
                Some(tenant) => {
                    let context = RequestContext {
                        client: Client::of_tenant(tenant.number()),
                        tenant: Some(Arc::clone(tenant)),
                        query: running,
                        ..RequestContext::current()
                    };
                    context.scope(response).await
                }
            };
            let response = response.into_response();
            // The query of a tenant runs until its response is sent, and until its blocking work has ended.
            let response = match query {
                Some(query) => response.map(|body| with_guard(body, query)),
                None => response,
            };
            match is_metrics {
                true => Ok(response),
                false => Ok(response_memory::reserve(
                    &app.memory_of(tenant.as_deref()),
                    response,
                )),
            }
        })
    }
}

/// Checks a request. Returns its grant (`None` for a route that needs no token), and the query that counts in
/// the budget of its tenant, if any. Sets `principal` as soon as it is known.
fn admit(
    app: &App,
    routes: &Routes,
    request: &Request,
    principal: &mut Option<Arc<Principal>>,
) -> Result<(Option<Granted>, Option<RunningQuery>)> {
    host::admit(request, &app.settings)?;
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let declared = routes.declared(request.method(), path, app.settings.are_pages_open);
    if declared == Declared::Open {
        auth::refuse_other_sites(request)?;
        return Ok((None, None));
    }
    let found = auth::authenticate(request, &app.tokens)?;
    *principal = Some(Arc::clone(&found));
    let found = app.tenants.of_request(found, request.headers())?;
    *principal = Some(Arc::clone(&found));
    let access = match declared {
        Declared::Action(_) if found.needs_tenant() => return Err(Failure::invalid(UNNAMED_TENANT)),
        Declared::Action(needed) => Some(needed.grant(&found)?),
        Declared::Open | Declared::Any => None,
    };
    auth::refuse_other_sites(request)?;
    let query = match found.tenant() {
        Some(tenant) => admit_to_budgets(app, tenant, declared, (request.method(), path))?,
        None => None,
    };
    let granted = Granted {
        principal: found,
        access,
    };
    Ok((Some(granted), query))
}

/// Returns true if a request of an operator stores data.
fn stores(method: &Method, path: &str) -> bool {
    method == Method::POST && STORING.iter().any(|end| path.ends_with(end))
        || method == Method::PUT && path == SAVED_SEARCH
}

fn can_wait(path: &str) -> bool {
    WAITING.iter().any(|end| path.ends_with(end))
}

/// Checks the budgets of the tenant of a request, before its body is read.
fn admit_to_budgets(
    app: &App,
    tenant: &Tenant,
    declared: Declared,
    (method, path): (&Method, Option<&str>),
) -> Result<Option<RunningQuery>> {
    let action = match declared {
        Declared::Action(needed) => Some(needed.action),
        // SQL statements can read. The handler checks the budgets of writes when it has parsed a statement that
        // writes.
        Declared::Any if path == Some(SQL) => Some(Action::Read),
        Declared::Any | Declared::Open => None,
    };
    let now = app.service_engine().clock().monotonic();
    let only_removes = method == Method::DELETE || path.is_some_and(|path| path.ends_with("/delete"));
    match action {
        Some(Action::Write) => {
            tenant.check_writes(now, only_removes)?;
            Ok(None)
        }
        Some(Action::Operate) if path.is_some_and(|path| stores(method, path)) => {
            tenant.check_writes(now, false)?;
            Ok(None)
        }
        Some(Action::Read) => {
            tenant.check_reads(now)?;
            let is_query = !path.is_some_and(can_wait);
            Ok(is_query.then(|| tenant.begin_query()).transpose()?)
        }
        _ => Ok(None),
    }
}
