//! Routes of InfluxDB 1 agents: `/write`, `/query`, `/ping`.
//!
//! Only the statements that agents send in addition to their writes are supported. Points are read with the other
//! APIs.

use std::io::{self, Write as _};

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tideline_engine::Engine;
use tideline_engine::model::{TableName, TableSpec};
use tideline_ingest::database;
use tideline_ingest::protocols::influx_query::{self, Statement};
use tideline_openapi::influx::{InfluxV1Error, QueryAnswer, ResultSeries, StatementResult};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::auth;
use crate::body;
use crate::context::current_client;
use crate::extract::{Query, content_type};
use crate::failure::{Failure, Result};
use crate::grant::{Grant, Requester};
use crate::resources::influx;
use crate::stream::{self, ResponseWriter, WriteContext};

/// Version of InfluxDB whose behaviour these routes follow. Some clients require it.
const VERSION: &str = "1.8.10";
const VERSION_HEADERS: [(HeaderName, &str); 2] = [
    (HeaderName::from_static("x-influxdb-version"), VERSION),
    (HeaderName::from_static("x-influxdb-build"), "tideline"),
];

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(write))
        .routes(routes!(query_get, query_post))
        .routes(routes!(ping))
}

/// Parameters of a write. Unknown parameters (`rp`, `consistency`, `u`, …) are ignored, as in InfluxDB.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct WriteQuery {
    /// Name of a table. Points for any other name are written to the default table with the tag `db`. Without `db`,
    /// points are written to the default table.
    #[serde(default)]
    #[param(example = "telegraf")]
    db: String,
    /// Unit of timestamps: `n` (default), `u`, `ms`, `s`, `m`, `h`.
    #[param(example = "n")]
    precision: Option<String>,
}

/// Write line protocol (InfluxDB 1)
///
/// If `db` is the name of a table, points are written to that table. For any other name they are written to the default
/// table, and each timeline gets the tag `db`; a line that already has a tag `db` keeps it unchanged. Valid lines of a
/// batch are stored even if the response is 400.
#[utoipa::path(
    security(("token" = ["write", "timelines"])),
    post, path = "/write", tag = "influx", operation_id = "influx_v1_write",
    params(WriteQuery),
    request_body(
        content = String, content_type = "text/plain", description = "Line protocol, optionally gzip-compressed",
        example = "cpu,host=web-1 usage_user=12.5 1795176000000000000\n"
    ),
    responses(
        (status = 204, description = "All points were stored"),
        (status = 400, description = "Some lines were rejected (`partial write: …`), or all (`unable to parse …`)", body = InfluxV1Error),
        (status = 401, description = "The token is missing, wrong or has expired", body = InfluxV1Error),
        (status = 413, description = "The body is too large", body = InfluxV1Error),
        (status = 415, description = "The content encoding is not supported", body = InfluxV1Error),
        (status = 422, description = "The `Idempotency-Key` was used before with another body, or `db` is a table without the model series", body = InfluxV1Error),
        (status = 503, description = "Too many concurrent requests, or the disk is nearly full; retry later", body = InfluxV1Error)
    )
)]
async fn write(app: Grant, Query(query): Query<WriteQuery>, request: Request) -> Result<Response> {
    influx::write(&app, request, "influx_v1", query.db, query.precision).await?;
    Ok((StatusCode::NO_CONTENT, VERSION_HEADERS).into_response())
}

/// Parameters of a query.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct StatementQuery {
    /// Statements, separated by semicolons.
    #[param(example = "SHOW DATABASES")]
    q: Option<String>,
}

/// Execute statements of agents (InfluxDB 1)
///
/// `SHOW DATABASES` lists the tables with the model series. `CREATE DATABASE` creates a table of the given name
/// if the name is a valid table name. The statement succeeds without a change if the table exists, or if points of
/// the default table already have the name as the value of the tag `db`. `DROP DATABASE` succeeds without a change
/// if there is no table of the given name; tables cannot be dropped this way.
#[utoipa::path(
    security(("token" = [])),
    get, path = "/query", tag = "influx",
    params(StatementQuery),
    responses(
        (status = 200, description = "One result per statement", body = QueryAnswer),
        (status = 400, description = "A statement is not supported", body = InfluxV1Error),
        (status = 401, description = "The token is missing, wrong or has expired", body = InfluxV1Error)
    )
)]
async fn query_get(
    app: Requester,
    headers: HeaderMap,
    Query(query): Query<StatementQuery>,
) -> Result<Response> {
    // Some agents create databases with GET, and a page of another site can make a browser send a GET request.
    let origin = match auth::is_foreign_page(&headers) {
        true => Origin::OtherSite,
        false => Origin::OwnSite,
    };
    respond(&app, query.q, origin).await
}

/// Execute statements of agents (InfluxDB 1), sent as a form
#[utoipa::path(
    security(("token" = [])),
    post, path = "/query", tag = "influx",
    params(StatementQuery),
    request_body(
        content = String, content_type = "application/x-www-form-urlencoded",
        description = "The same parameters as a form", example = "q=CREATE+DATABASE+%22telegraf%22"
    ),
    responses(
        (status = 200, description = "One result per statement", body = QueryAnswer),
        (status = 400, description = "A statement is not supported", body = InfluxV1Error),
        (status = 401, description = "The token is missing, wrong or has expired", body = InfluxV1Error)
    )
)]
async fn query_post(
    app: Requester,
    Query(query): Query<StatementQuery>,
    request: Request,
) -> Result<Response> {
    let is_form = content_type(request.headers()) == "application/x-www-form-urlencoded";
    let received = body::receive(request, &app, body::request_limits(&app.settings)).await?;
    let form = body::decode(received).await?;
    if query.q.is_some() || !is_form {
        return respond(&app, query.q, Origin::OwnSite).await;
    }
    let form: StatementQuery = read_form(&form)?;
    respond(&app, form.q, Origin::OwnSite).await
}

fn read_form(form: &[u8]) -> Result<StatementQuery> {
    let unreadable = || Failure::invalid("the form body is not valid UTF-8 or not valid form encoding");
    let form = std::str::from_utf8(form).map_err(|_| unreadable())?;
    let uri = format!("/?{}", form.trim()).parse().map_err(|_| unreadable())?;
    let form = axum::extract::Query::try_from_uri(&uri).map_err(|_| unreadable())?;
    Ok(form.0)
}

/// Origin of a request. A request from a page of another site must not change anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    OtherSite,
    OwnSite,
}

async fn respond(requester: &Requester, q: Option<String>, origin: Origin) -> Result<Response> {
    let app = &requester.strongest_grant()?;
    let q = q.filter(|q| !q.is_empty());
    let q = q.ok_or_else(|| Failure::invalid("missing required parameter \"q\""))?;
    let statements = influx_query::parse(&q);
    let unsupported = statements.iter().find_map(|statement| match statement {
        Statement::Unsupported { error, .. } => Some(error),
        _ => None,
    });
    if let Some(error) = unsupported {
        return Err(Failure::invalid(error));
    }
    let wanted = statements.iter().filter_map(|statement| match statement {
        Statement::CreateDatabase { name } if origin == Origin::OwnSite => Some(name.as_str()),
        _ => None,
    });
    let wanted: Vec<&str> = wanted.collect();
    let creates = !wanted.is_empty();
    if creates {
        requester.note_change(change_text(&wanted));
    }
    let (statements, creations) = create_databases(app, statements, origin).await?;
    let created: Vec<&str> = creations
        .iter()
        .filter(|creation| creation.outcome == Ok(true))
        .map(|creation| creation.name.as_str())
        .collect();
    if creates {
        // Databases that existed before are not changes.
        requester.note_change(match created.as_slice() {
            [] => String::new(),
            created => change_text(created),
        });
    }
    let context = WriteContext {
        permit: Some(app.queries.take(current_client()).await?),
        ..WriteContext::default()
    };
    let running = app.clone();
    let response = stream::respond(app, "application/json", context, move |writer| {
        write_results(&running.engine, &statements, &creations, writer).map_err(stream::client_left)
    });
    Ok((VERSION_HEADERS, response.await?).into_response())
}

/// Returns the description of the creation of databases, for its audit record.
fn change_text(names: &[&str]) -> String {
    format!("/query CREATE DATABASE {}", names.join(", "))
}

/// Outcome of a `CREATE DATABASE` statement.
struct Creation {
    statement_id: usize,
    name: String,
    /// True if a table was created, false if none was needed; on error, a human-readable reason.
    outcome: std::result::Result<bool, String>,
}

/// Executes the `CREATE DATABASE` statements before the response starts. Returns all statements and the
/// outcomes.
async fn create_databases(
    app: &Grant,
    statements: Vec<Statement>,
    origin: Origin,
) -> Result<(Vec<Statement>, Vec<Creation>)> {
    let creates = |statement: &Statement| matches!(statement, Statement::CreateDatabase { .. });
    if !statements.iter().any(creates) {
        return Ok((statements, Vec::new()));
    }
    let create = move |engine: &Engine| {
        let creations = statements.iter().enumerate();
        let creations = creations.filter_map(|(statement_id, statement)| match statement {
            Statement::CreateDatabase { name } => Some(Creation {
                statement_id,
                name: name.clone(),
                outcome: create_database(engine, name, origin),
            }),
            _ => None,
        });
        let creations = creations.collect();
        Ok((statements, creations))
    };
    match origin {
        Origin::OwnSite => app.change(create).await,
        Origin::OtherSite => app.read(create).await,
    }
}

/// Writes a [`QueryAnswer`] result by result, because a request may have thousands of statements, and each may list all
/// tables.
fn write_results(
    engine: &Engine,
    statements: &[Statement],
    creations: &[Creation],
    writer: &mut ResponseWriter,
) -> io::Result<()> {
    writer.write_all(b"{\"results\":[")?;
    let mut creations = creations.iter().peekable();
    for (statement_id, statement) in statements.iter().enumerate() {
        if statement_id > 0 {
            writer.write_all(b",")?;
        }
        let creation = creations.next_if(|creation| creation.statement_id == statement_id);
        let result = StatementResult {
            statement_id,
            series: show(engine, statement),
            error: creation
                .and_then(|creation| creation.outcome.clone().err())
                .or_else(|| refusal(engine, statement)),
        };
        serde_json::to_writer(&mut *writer, &result)?;
    }
    writer.write_all(b"]}")
}

/// Returns the result of `SHOW DATABASES`; `None` for other statements.
fn show(engine: &Engine, statement: &Statement) -> Option<Vec<ResultSeries>> {
    let Statement::ShowDatabases = statement else {
        return None;
    };
    let tables = engine.series_tables();
    let names = tables.iter().map(|table| vec![table.name().to_string()]);
    Some(vec![ResultSeries {
        name: "databases".into(),
        columns: vec!["name".into()],
        values: names.collect(),
    }])
}

/// Returns the reason why a `DROP DATABASE` statement for an existing table is refused; `None` for all other
/// statements.
fn refusal(engine: &Engine, statement: &Statement) -> Option<String> {
    match statement {
        Statement::DropDatabase { name } if engine.table_of_any_model(name).is_ok() => Some(format!(
            "{name} is a table; use DELETE /v1/tables/{name} to drop it"
        )),
        _ => None,
    }
}

/// Creates the table of a database. Returns true if the table was created, false if it exists already or is not needed;
/// on error, a human-readable reason.
///
/// No table is created if points of the default table already have the name as the value of the tag `db`. Otherwise
/// the history of the database would be split between two tables.
fn create_database(engine: &Engine, name: &str, origin: Origin) -> std::result::Result<bool, String> {
    if engine.table(name).is_ok() {
        return Ok(false);
    }
    // Without access to the default table, the token does not write to it either.
    if let Ok(default) = engine.default_table()
        && database::is_tag(engine, &default, name)
    {
        return Ok(false);
    }
    let table = TableName::new(name).map_err(|error| {
        format!("{error}; points for database {name:?} are written to the default table with the tag db")
    })?;
    if origin == Origin::OtherSite {
        return Err("creating databases is not allowed from pages of other sites".to_owned());
    }
    match engine.create_table(table, TableSpec::default()) {
        Ok(_) => Ok(true),
        // Another request created the table concurrently.
        Err(_) if engine.table(name).is_ok() => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

/// Parameters of a ping.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct PingQuery {
    /// Any value except `false` and `0` adds a body to the response to a GET.
    verbose: Option<String>,
}

/// Check that the server is running (InfluxDB 1)
///
/// Requires no token.
#[utoipa::path(
    security(()),
    get, path = "/ping", tag = "influx",
    params(PingQuery),
    responses(
        (status = 204, description = "The server is running"),
        (status = 200, description = "The server is running; its version", body = serde_json::Value, example = json!({"version": "1.8.10"}))
    )
)]
async fn ping(method: Method, Query(query): Query<PingQuery>) -> Response {
    let is_verbose = query
        .verbose
        .is_some_and(|verbose| verbose != "false" && verbose != "0");
    if is_verbose && method != Method::HEAD {
        let body = serde_json::json!({ "version": VERSION });
        return (VERSION_HEADERS, Json(body)).into_response();
    }
    (StatusCode::NO_CONTENT, VERSION_HEADERS).into_response()
}
