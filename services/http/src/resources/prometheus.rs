//! What Prometheus, its agents and its clients speak.
//!
//! Every route exists twice: at the root, where it is about the default table, and below
//! `/v1/tables/{table}/prometheus`, so that the address of one table can be given to whatever wants the address of a
//! Prometheus. Both come from [`routes`]; a handler learns its table from [`PrometheusTable`].

mod answer;
mod exemplars;
mod export;
mod federate;
mod format;
mod import;
mod metadata;
mod parameters;
mod pushgateway;
mod query;
mod read;
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
use tideline_engine::model::TableName;
use utoipa::IntoParams;
use utoipa::openapi::path::{Operation, ParameterIn, PathItem};
use utoipa_axum::router::OpenApiRouter;

use crate::app::App;
use crate::failure::{self, Failure};
use crate::resources::TablePath;

/// Where the routes of one table begin.
const OF_TABLE: &str = "/v1/tables/{table}/prometheus";

/// What clients ask for to see whether anybody is there.
const HOME_OF_TABLE: &str = "/v1/tables/{table}/prometheus/";

/// Both sets of routes.
pub(crate) fn router() -> OpenApiRouter<App> {
    let mut of_table = routes();
    for item in of_table.get_openapi_mut().paths.paths.values_mut() {
        operations(item).for_each(name_table);
    }
    routes().nest(OF_TABLE, of_table).route(HOME_OF_TABLE, get(home))
}

/// Every route, as it is at the root.
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
        .merge(import::router())
        .merge(pushgateway::router())
}

/// Leads people who follow the address of a table to what is told of it.
async fn home(_: KnownTable) -> Redirect {
    Redirect::temporary("/guide/prometheus")
}

/// The operations of a path, whatever their method.
fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let all = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
    all.into_iter().flatten()
}

/// Describes an operation as that of one table: the path has one more parameter, the name of the operation says so.
fn name_table(operation: &mut Operation) {
    let parameters = operation.parameters.get_or_insert_default();
    let of_path = TablePath::into_params(|| Some(ParameterIn::Path));
    parameters.extend(of_path.into_iter().map(Into::into));
    if let Some(id) = &mut operation.operation_id {
        id.push_str("_of_table");
    }
}

/// The table that a request is about: that of its prefix, or else the default table, which always exists.
#[derive(Debug)]
pub(crate) struct PrometheusTable(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PrometheusTable {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> failure::Result<Self> {
        let parameters = match RawPathParams::from_request_parts(parts, state).await {
            Ok(parameters) => Some(parameters),
            Err(RawPathParamsRejection::MissingPathParams(_)) => None,
            // A name that cannot be read is not the name of the default table.
            Err(other) => return Err(Failure::invalid(other.body_text())),
        };
        let named = parameters.as_ref().and_then(|parameters| {
            let mut named = parameters.iter().filter(|(key, _)| *key == "table");
            named.next().map(|(_, table)| table.to_owned())
        });
        Ok(Self(named.unwrap_or_else(|| TableName::DEFAULT.to_owned())))
    }
}

/// The same for handlers that ask nothing of the table: one that is not there is refused all the same, for an address
/// that is wrong should not look right because its answer is empty.
#[derive(Debug)]
pub(crate) struct KnownTable;

impl FromRequestParts<App> for KnownTable {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> failure::Result<Self> {
        let PrometheusTable(table) = PrometheusTable::from_request_parts(parts, app).await?;
        app.engine.table(&table)?;
        Ok(Self)
    }
}
