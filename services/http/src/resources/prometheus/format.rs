//! `/api/v1/format_query` and `/api/v1/parse_query`: an expression laid out, and as a tree.

use axum::response::Response;
use tideline_openapi::prometheus::{Answer, Anything};
use tideline_promql::ast::Expr;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::KnownTable;
use super::answer::{PrometheusFailures, success};
use super::parameters::{Parameters, wrong};
use crate::app::App;
use crate::failure::Result;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(format_get, format_post))
        .routes(routes!(parse_get, parse_post))
}

/// The parameter of both.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it is described here and read by name")]
struct ExpressionParameters {
    /// The expression.
    #[param(example = "sum by(region)(rate(cpu_usage_user[5m]))")]
    query: String,
}

/// Lay out an expression
///
/// Over several lines where it is long.
#[utoipa::path(
    get, path = "/api/v1/format_query", tag = "prometheus", operation_id = "prometheus_format_query",
    params(ExpressionParameters),
    responses((status = 200, description = "The text", body = Answer<String>), PrometheusFailures)
)]
async fn format_get(_: KnownTable, parameters: Parameters) -> Result<Response> {
    Ok(success(tideline_promql::pretty(&read(&parameters)?)))
}

/// Lay out an expression, as a form
#[utoipa::path(
    post, path = "/api/v1/format_query", tag = "prometheus", operation_id = "prometheus_format_query_form",
    request_body(
        content = String, content_type = "application/x-www-form-urlencoded",
        description = "The same parameter as a form", example = "query=sum(up)by(job)"
    ),
    responses((status = 200, description = "The text", body = Answer<String>), PrometheusFailures)
)]
async fn format_post(table: KnownTable, parameters: Parameters) -> Result<Response> {
    format_get(table, parameters).await
}

/// Take an expression apart
///
/// The tree that editors of queries work on.
#[utoipa::path(
    get, path = "/api/v1/parse_query", tag = "prometheus", operation_id = "prometheus_parse_query",
    params(ExpressionParameters),
    responses((status = 200, description = "The tree", body = Answer<Anything>), PrometheusFailures)
)]
async fn parse_get(_: KnownTable, parameters: Parameters) -> Result<Response> {
    Ok(success(tideline_promql::to_json(&read(&parameters)?)))
}

/// Take an expression apart, as a form
#[utoipa::path(
    post, path = "/api/v1/parse_query", tag = "prometheus", operation_id = "prometheus_parse_query_form",
    request_body(
        content = String, content_type = "application/x-www-form-urlencoded",
        description = "The same parameter as a form", example = "query=up%20%3D%3D%200"
    ),
    responses((status = 200, description = "The tree", body = Answer<Anything>), PrometheusFailures)
)]
async fn parse_post(table: KnownTable, parameters: Parameters) -> Result<Response> {
    parse_get(table, parameters).await
}

fn read(parameters: &Parameters) -> Result<Expr> {
    tideline_promql::parse(parameters.text("query")).map_err(|problem| wrong("query", problem))
}
