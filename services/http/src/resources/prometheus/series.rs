//! `/api/v1/series`, `/api/v1/labels`, `/api/v1/label/{name}/values`: which series there are, and what they are called.

use std::io::Write as _;

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use tideline_openapi::prometheus::Answer;
use tideline_prometheus::Listed;
use tideline_promql::{Labels, Matcher, PromqlError};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::PrometheusTable;
use super::answer::{PrometheusFailures, TRUNCATED, put_notes};
use super::encode::{put_comma, put_labels};
use super::escaping::unescape;
use super::parameters::{Parameters, wrong};
use super::run::{Asked, Running, run};
use crate::app::App;
use crate::context::RequestId;
use crate::extract::Path;
use crate::failure::{Failure, Result};
use crate::stream;
use tideline_results::put_json_text;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(series_get, series_post))
        .routes(routes!(labels_get, labels_post))
        .routes(routes!(label_values))
}

/// Parameters of a look at series.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "they are described here and read by name")]
struct SeriesParameters {
    /// A selector; may stand several times, and then one of them has to be met. `/series` needs one.
    #[param(rename = "match[]", example = "cpu_usage_user{region=~\"eu-.*\"}")]
    selectors: Option<String>,
    /// Only series with samples from here: seconds or RFC 3339.
    #[param(example = "2026-11-20T11:00:00Z")]
    start: Option<String>,
    /// Only series with samples up to here.
    #[param(example = "2026-11-20T12:00:00Z")]
    end: Option<String>,
    /// Most entries of the answer; 0 for all.
    #[param(example = 100)]
    limit: Option<u64>,
}

/// Find series
#[utoipa::path(
    get, path = "/api/v1/series", tag = "prometheus", operation_id = "prometheus_series",
    params(SeriesParameters),
    responses(
        (status = 200, description = "Labels of each series", body = Answer<Vec<std::collections::BTreeMap<String, String>>>),
        PrometheusFailures
    )
)]
async fn series_get(
    State(app): State<App>,
    request_id: RequestId,
    table: PrometheusTable,
    parameters: Parameters,
) -> Result<Response> {
    if parameters.texts("match[]").next().is_none() {
        return Err(Failure::invalid("no match[] parameter provided"));
    }
    // Here, and here alone, Prometheus names the parameter.
    let named = |failure: Failure| wrong("match[]", failure.message);
    parameters.selectors().map_err(named)?;
    let look = Look::of(&parameters)?;
    list(
        &app,
        request_id,
        table,
        "prometheus_series",
        look,
        |running, look| running.view.series(&look.selectors, look.range, look.limit),
    )
    .await
}

/// Find series, as a form
#[utoipa::path(
    post, path = "/api/v1/series", tag = "prometheus", operation_id = "prometheus_series_form",
    request_body(
        content = String, content_type = "application/x-www-form-urlencoded",
        description = "The same parameters as a form", example = "match%5B%5D=cpu_usage_user&limit=10"
    ),
    responses(
        (status = 200, description = "Labels of each series", body = Answer<Vec<std::collections::BTreeMap<String, String>>>),
        PrometheusFailures
    )
)]
async fn series_post(
    app: State<App>,
    request_id: RequestId,
    table: PrometheusTable,
    parameters: Parameters,
) -> Result<Response> {
    series_get(app, request_id, table, parameters).await
}

/// List label names
#[utoipa::path(
    get, path = "/api/v1/labels", tag = "prometheus", operation_id = "prometheus_labels",
    params(SeriesParameters),
    responses((status = 200, description = "Names, sorted", body = Answer<Vec<String>>), PrometheusFailures)
)]
async fn labels_get(
    State(app): State<App>,
    request_id: RequestId,
    table: PrometheusTable,
    parameters: Parameters,
) -> Result<Response> {
    let look = Look::of(&parameters)?;
    list(
        &app,
        request_id,
        table,
        "prometheus_labels",
        look,
        |running, look| running.view.label_names(&look.selectors, look.range, look.limit),
    )
    .await
}

/// List label names, as a form
#[utoipa::path(
    post, path = "/api/v1/labels", tag = "prometheus", operation_id = "prometheus_labels_form",
    request_body(
        content = String, content_type = "application/x-www-form-urlencoded",
        description = "The same parameters as a form", example = "match%5B%5D=cpu_usage_user"
    ),
    responses((status = 200, description = "Names, sorted", body = Answer<Vec<String>>), PrometheusFailures)
)]
async fn labels_post(
    app: State<App>,
    request_id: RequestId,
    table: PrometheusTable,
    parameters: Parameters,
) -> Result<Response> {
    labels_get(app, request_id, table, parameters).await
}

/// The path of the route about a label.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct LabelPath {
    /// The label; a name that is no plain word may be escaped, as `U__…`.
    #[param(example = "region")]
    name: String,
}

/// List values of a label
///
/// A label that no series has gives an empty list.
#[utoipa::path(
    get, path = "/api/v1/label/{name}/values", tag = "prometheus",
    params(LabelPath, SeriesParameters),
    responses((status = 200, description = "Values, sorted", body = Answer<Vec<String>>), PrometheusFailures)
)]
async fn label_values(
    State(app): State<App>,
    request_id: RequestId,
    table: PrometheusTable,
    Path(LabelPath { name }): Path<LabelPath>,
    parameters: Parameters,
) -> Result<Response> {
    let look = Look::of(&parameters)?;
    let name = unescape(&name).unwrap_or(name);
    if name.is_empty() {
        return Err(Failure::invalid("invalid label name: \"\""));
    }
    list(
        &app,
        request_id,
        table,
        "prometheus_label_values",
        look,
        move |running, look| {
            running
                .view
                .label_values(&name, &look.selectors, look.range, look.limit)
        },
    )
    .await
}

/// What series are looked at.
#[derive(Debug)]
struct Look {
    selectors: Vec<Vec<Matcher>>,
    /// `None` for all of time, which costs no look at when series were written.
    range: Option<(i64, i64)>,
    limit: Option<usize>,
    /// What is shown of the request while it runs.
    question: String,
}

impl Look {
    fn of(parameters: &Parameters) -> Result<Self> {
        let limit = parameters.limit()?;
        let range = parameters.range()?;
        let has_range = !(parameters.text("start").is_empty() && parameters.text("end").is_empty());
        Ok(Self {
            selectors: parameters.selectors()?,
            range: has_range.then_some(range),
            limit,
            question: parameters.texts("match[]").collect::<Vec<_>>().join(" or "),
        })
    }
}

/// An entry of a list.
trait Entry {
    fn put(&self, out: &mut Vec<u8>);
}

impl Entry for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_json_text(self, out);
    }
}

impl Entry for Labels {
    fn put(&self, out: &mut Vec<u8>) {
        put_labels(self, out);
    }
}

async fn list<T, F>(
    app: &App,
    request_id: RequestId,
    PrometheusTable(table): PrometheusTable,
    resource: &'static str,
    look: Look,
    find: F,
) -> Result<Response>
where
    T: Entry,
    F: FnOnce(&Running<'_>, &Look) -> std::result::Result<Listed<T>, PromqlError> + Send + 'static,
{
    let asked = Asked {
        request_id,
        table,
        resource,
        question: look.question.clone(),
        reach: None,
        time_max: app.settings.prometheus.query_timeout,
    };
    run(app, asked, "application/json", move |running, writer| {
        let Listed { items, is_cut } = find(running, &look)?;
        let mut text = b"{\"status\":\"success\",\"data\":[".to_vec();
        for (at, item) in items.iter().enumerate() {
            put_comma(at, &mut text);
            item.put(&mut text);
            writer.write_all(&text).map_err(stream::client_left)?;
            text.clear();
        }
        text.push(b']');
        let warnings = is_cut.then(|| TRUNCATED.to_owned());
        put_notes(warnings.as_slice(), &[], &mut text);
        writer.write_all(&text).map_err(stream::client_left)
    })
    .await
}
