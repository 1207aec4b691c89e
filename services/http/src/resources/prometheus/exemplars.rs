//! `/api/v1/query_exemplars`: examples of what the series of an expression counted.

use std::io::Write as _;

use axum::extract::State;
use axum::response::Response;
use tideline_openapi::prometheus::{Answer, SeriesExemplars};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::PrometheusTable;
use super::answer::{PrometheusFailures, put_notes};
use super::encode::{Form, put_comma, put_labels, put_number, put_time};
use super::parameters::Parameters;
use super::reach::selectors;
use super::run::{Asked, run};
use crate::app::App;
use crate::context::RequestId;
use crate::failure::{Failure, Result};
use crate::stream;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(exemplars_get, exemplars_post))
}

/// Parameters of a look at exemplars.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "they are described here and read by name")]
struct ExemplarParameters {
    /// The expression whose series are looked at.
    #[param(example = "rate(cpu_usage_user[5m])")]
    query: String,
    /// The first instant: seconds or RFC 3339.
    #[param(example = "2026-11-20T11:00:00Z")]
    start: Option<String>,
    /// The last instant.
    #[param(example = "2026-11-20T12:00:00Z")]
    end: Option<String>,
}

/// Find exemplars
///
/// Of every series that the expression selects. An expression that selects none has none.
#[utoipa::path(
    get, path = "/api/v1/query_exemplars", tag = "prometheus", operation_id = "prometheus_query_exemplars",
    params(ExemplarParameters),
    responses(
        (status = 200, description = "Exemplars of each series that has any", body = Answer<Vec<SeriesExemplars>>),
        PrometheusFailures
    )
)]
async fn exemplars_get(
    State(app): State<App>,
    request_id: RequestId,
    PrometheusTable(table): PrometheusTable,
    parameters: Parameters,
) -> Result<Response> {
    let range = parameters.range()?;
    if range.1 < range.0 {
        return Err(Failure::invalid(
            "end timestamp must not be before start timestamp",
        ));
    }
    let query = parameters.text("query").to_owned();
    let expr = tideline_promql::parse(&query).map_err(Failure::invalid)?;
    let selectors = selectors(&expr);
    let asked = Asked {
        request_id,
        table,
        resource: "prometheus_query_exemplars",
        question: query,
        reach: Some(range),
        time_max: app.settings.prometheus.query_timeout,
    };
    run(&app, asked, "application/json", move |running, writer| {
        let found = match selectors.is_empty() {
            true => Vec::new(),
            false => running.view.exemplars(&selectors, range)?,
        };
        let mut text = b"{\"status\":\"success\",\"data\":[".to_vec();
        for (at, series) in found.iter().enumerate() {
            put_comma(at, &mut text);
            text.extend_from_slice(b"{\"seriesLabels\":");
            put_labels(&series.labels, &mut text);
            text.extend_from_slice(b",\"exemplars\":[");
            for (at, exemplar) in series.exemplars.iter().enumerate() {
                put_comma(at, &mut text);
                text.extend_from_slice(b"{\"labels\":");
                put_labels(&exemplar.labels, &mut text);
                text.extend_from_slice(b",\"value\":");
                put_number(exemplar.value, Form::Short, &mut text);
                text.extend_from_slice(b",\"timestamp\":");
                put_time(exemplar.time, &mut text);
                text.push(b'}');
            }
            text.extend_from_slice(b"]}");
            writer.write_all(&text).map_err(stream::client_left)?;
            text.clear();
        }
        text.push(b']');
        put_notes(&[], &[], &mut text);
        writer.write_all(&text).map_err(stream::client_left)
    })
    .await
}

/// Find exemplars, as a form
#[utoipa::path(
    post, path = "/api/v1/query_exemplars", tag = "prometheus", operation_id = "prometheus_query_exemplars_form",
    request_body(
        content = String, content_type = "application/x-www-form-urlencoded",
        description = "The same parameters as a form", example = "query=cpu_usage_user&start=1795172400&end=1795176000"
    ),
    responses(
        (status = 200, description = "Exemplars of each series that has any", body = Answer<Vec<SeriesExemplars>>),
        PrometheusFailures
    )
)]
async fn exemplars_post(
    app: State<App>,
    request_id: RequestId,
    table: PrometheusTable,
    parameters: Parameters,
) -> Result<Response> {
    exemplars_get(app, request_id, table, parameters).await
}
