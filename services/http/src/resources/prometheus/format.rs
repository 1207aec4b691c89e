//! `/api/v1/format_query` and `/api/v1/parse_query`: a PromQL expression as formatted text, and as a syntax tree.

use axum::response::Response;
use tideline_openapi::prometheus::{Answer, Anything};
use tideline_prometheus::parameters::parse_query;
use tideline_prometheus::{Expr, Parameters, pretty, to_json};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::KnownTable;
use super::response::{PrometheusFailures, success};
use crate::app::App;
use crate::failure::Result;
use crate::grant::Grant;

/// Longest expression, in bytes, that is parsed on the thread of the request. Parsing it takes less than a millisecond.
const PARSED_AT_ONCE_BYTES: usize = 4 << 10;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(format_get, format_post))
        .routes(routes!(parse_get, parse_post))
}

/// Parameter of both routes.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only described here; the handler reads it by name")]
struct ExpressionParameters {
    /// PromQL expression.
    #[param(example = "sum by(region)(rate(cpu_usage_user[5m]))")]
    query: String,
}

/// Format an expression
///
/// Long expressions are split into several lines.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/format_query", tag = "prometheus", operation_id = "prometheus_format_query",
    params(ExpressionParameters),
    responses((status = 200, description = "The expression", body = Answer<String>), PrometheusFailures)
)]
async fn format_get(app: Grant, _: KnownTable, parameters: Parameters) -> Result<Response> {
    let expr = parse(&app, parameters.text("query")).await?;
    Ok(success(pretty(&expr)))
}

/// Format an expression, with the parameter as a form
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    post, path = "/api/v1/format_query", tag = "prometheus", operation_id = "prometheus_format_query_form",
    request_body(
        content = String, content_type = "application/x-www-form-urlencoded",
        description = "The same parameter as a form", example = "query=sum(up)by(job)"
    ),
    responses((status = 200, description = "The expression", body = Answer<String>), PrometheusFailures)
)]
async fn format_post(app: Grant, table: KnownTable, parameters: Parameters) -> Result<Response> {
    format_get(app, table, parameters).await
}

/// Parse an expression
///
/// Returns the syntax tree that query editors use.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/api/v1/parse_query", tag = "prometheus", operation_id = "prometheus_parse_query",
    params(ExpressionParameters),
    responses((status = 200, description = "The syntax tree", body = Answer<Anything>), PrometheusFailures)
)]
async fn parse_get(app: Grant, _: KnownTable, parameters: Parameters) -> Result<Response> {
    let expr = parse(&app, parameters.text("query")).await?;
    Ok(success(to_json(&expr)))
}

/// Parse an expression, with the parameter as a form
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    post, path = "/api/v1/parse_query", tag = "prometheus", operation_id = "prometheus_parse_query_form",
    request_body(
        content = String, content_type = "application/x-www-form-urlencoded",
        description = "The same parameter as a form", example = "query=up%20%3D%3D%200"
    ),
    responses((status = 200, description = "The syntax tree", body = Answer<Anything>), PrometheusFailures)
)]
async fn parse_post(app: Grant, table: KnownTable, parameters: Parameters) -> Result<Response> {
    parse_get(app, table, parameters).await
}

/// Parses an expression. A long one needs a query permit and is parsed on a blocking thread.
pub(super) async fn parse(app: &Grant, text: &str) -> Result<Expr> {
    if text.len() <= PARSED_AT_ONCE_BYTES {
        return Ok(parse_query(text)?);
    }
    let text = text.to_owned();
    app.read(move |_| Ok(parse_query(&text)?)).await
}
