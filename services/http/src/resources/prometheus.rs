//! Routes of Prometheus, its agents and its clients.
//!
//! Every route exists twice: at the root for the default table, and below `/v1/tables/{table}/prometheus` for the table
//! in the path. The address of one table can therefore be used wherever the URL of a Prometheus server is expected.
//! Both sets are created by [`routes`]; a handler gets its table from [`PrometheusTable`].

mod exemplars;
mod export;
mod federate;
mod format;
mod import;
mod metadata;
pub(crate) mod otlp;
mod parameters;
mod pushgateway;
mod query;
mod read;
mod response;
mod run;
mod samples;
mod series;
mod status;
mod targets;
mod tsdb;
mod write;

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::response::Redirect;
use axum::routing::get;
use tideline_access::Action;
use utoipa::IntoParams;
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::security::SecurityRequirement;
use utoipa_axum::router::OpenApiRouter;

use crate::app::App;
use crate::failure::{self, Failure};
use crate::grant::{Grant, Granted, default_table};
use crate::resources::TablePath;
use crate::routes::{Declared, declaration, operations_mut};

/// Prefix of the routes of one table.
const OF_TABLE: &str = "/v1/tables/{table}/prometheus";

/// Path that clients request to check whether a server exists.
const HOME_OF_TABLE: &str = "/v1/tables/{table}/prometheus/";

/// Returns both sets of routes.
pub(crate) fn router() -> OpenApiRouter<App> {
    let mut of_table = routes();
    for item in of_table.get_openapi_mut().paths.paths.values_mut() {
        operations_mut(item).for_each(|(_, operation)| name_table(operation));
    }
    routes().nest(OF_TABLE, of_table).route(HOME_OF_TABLE, get(home))
}

/// Returns every route with its path at the root.
fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .merge(query::routes())
        .merge(exemplars::routes())
        .merge(series::routes())
        .merge(metadata::routes())
        .merge(format::routes())
        .merge(status::routes())
        .merge(tsdb::routes())
        .merge(targets::routes())
        .merge(federate::routes())
        .merge(read::routes())
        .merge(export::routes())
        .merge(write::router())
        .merge(otlp::router())
        .merge(import::router())
        .merge(pushgateway::router())
}

/// Redirects browsers from the address of a table to the guide.
async fn home(_: KnownTable) -> Redirect {
    Redirect::temporary("/guide/prometheus")
}

/// Changes the description of an operation for the routes of one table: adds the path parameter, a suffix to the
/// operation id, and an action to a route that needs no token at the root.
fn name_table(operation: &mut Operation) {
    let parameters = operation.parameters.get_or_insert_default();
    let of_path = TablePath::into_params(|| Some(ParameterIn::Path));
    parameters.extend(of_path.into_iter().map(Into::into));
    if let Some(id) = &mut operation.operation_id {
        id.push_str("_of_table");
    }
    // Without a token, the route would reveal whether the table exists.
    if declaration(operation) == Some(Declared::Open) {
        let requirement = SecurityRequirement::new("token", [Action::Read.name()]);
        operation.security = Some(vec![requirement]);
    }
}

/// Table of a request: the table in the path, otherwise the default table, which always exists.
#[derive(Debug)]
pub(crate) struct PrometheusTable(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PrometheusTable {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> failure::Result<Self> {
        let parameters = match RawPathParams::from_request_parts(parts, state).await {
            Ok(parameters) => Some(parameters),
            Err(RawPathParamsRejection::MissingPathParams(_)) => None,
            // An unreadable name must not select the default table.
            Err(other) => return Err(Failure::invalid(other.body_text())),
        };
        let named = parameters.as_ref().and_then(|parameters| {
            let mut named = parameters.iter().filter(|(key, _)| *key == "table");
            named.next().map(|(_, table)| table.to_owned())
        });
        Ok(Self(named.unwrap_or_else(|| default_table(parts).to_owned())))
    }
}

/// Extractor that checks that the table exists, for handlers that do not read from the table. Without the
/// check, a wrong address would return an empty result instead of an error.
#[derive(Debug)]
pub(crate) struct KnownTable;

impl FromRequestParts<App> for KnownTable {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> failure::Result<Self> {
        let PrometheusTable(table) = PrometheusTable::from_request_parts(parts, app).await?;
        // A route that needs no token has no grant. It is at the root, and the default table always exists.
        if parts.extensions.get::<Granted>().is_none() {
            return Ok(Self);
        }
        let grant = Grant::from_request_parts(parts, app).await?;
        grant.engine.table(&table)?;
        Ok(Self)
    }
}
