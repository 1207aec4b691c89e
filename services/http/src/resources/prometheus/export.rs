//! `/api/v1/export`: samples as lines of JSON, in the form of VictoriaMetrics, so that scripts and `vmctl` move them.

use std::io::Write as _;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use tideline_promql::{Labels, PromqlError, Samples};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::PrometheusTable;
use super::answer::PrometheusFailures;
use super::encode::{Form, put_comma, put_labels, put_plain_number};
use super::parameters::{Parameters, wrong};
use super::run::{Asked, run_transfer};
use crate::app::App;
use crate::context::RequestId;
use crate::failure::{Failure, Result};

/// How long an export may take: it moves whole tables, as fast as its reader takes them.
const EXPORT_TIME_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Rows of a line where the request does not say: lines stay far below what importers read, 10 MiB.
const ROWS_DEFAULT: usize = 100_000;
/// Most rows of a line: a row takes 40 bytes at most, so lines are never longer than what importers read.
const ROWS_MAX: usize = 200_000;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(export_get, export_post))
}

/// Parameters of an export.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "they are described here and read by name")]
struct ExportParameters {
    /// A selector; may stand several times, and then one of them has to be met.
    #[param(rename = "match[]", example = "{__name__=~\"cpu_.*\",region=~\"eu-.*\"}")]
    selectors: String,
    /// The first instant: seconds or RFC 3339.
    #[param(example = "2026-11-20T11:00:00Z")]
    start: Option<String>,
    /// The last instant.
    #[param(example = "2026-11-20T12:00:00Z")]
    end: Option<String>,
    /// Most samples of a line, at most 200,000; a series with more has several lines. 100,000 where it is left out or 0.
    #[param(example = 1000)]
    max_rows_per_line: Option<u64>,
    /// Leave native histograms out, which a line cannot hold; without it, meeting one fails the export.
    #[param(example = true)]
    skip_histograms: Option<bool>,
}

/// Export samples as lines of JSON
///
/// `{"metric":{"__name__":…},"values":[…],"timestamps":[…]}`, times in milliseconds, one line a series or more, in no order.
/// `/api/v1/import` reads it back, here and at VictoriaMetrics. What is no number is `null`, the end of a series too; infinity
/// is `"Infinity"`.
///
/// The answer streams, whatever its length; eight exports run at once. It is whole, or it is cut off in the middle of its
/// chunked encoding.
#[utoipa::path(
    get, path = "/api/v1/export", tag = "prometheus", operation_id = "prometheus_export",
    params(ExportParameters),
    responses(
        (status = 200, description = "A line a series", body = String, content_type = "application/stream+json",
         example = "{\"metric\":{\"__name__\":\"up\",\"job\":\"a\"},\"values\":[1,1],\"timestamps\":[1795176000000,1795176015000]}\n"),
        PrometheusFailures
    )
)]
async fn export_get(
    State(app): State<App>,
    request_id: RequestId,
    PrometheusTable(table): PrometheusTable,
    parameters: Parameters,
) -> Result<Response> {
    if parameters.texts("match[]").next().is_none() {
        return Err(Failure::invalid("no match[] parameter provided"));
    }
    let selectors = parameters.selectors()?;
    let range = parameters.range()?;
    let rows = rows(parameters.text("max_rows_per_line"))?;
    // It is accepted because it changes nothing here: some megabytes are held, whatever is exported.
    parameters.switch("reduce_mem_usage")?;
    let skips_histograms = parameters.switch("skip_histograms")?.unwrap_or(false);
    if !matches!(parameters.text("format"), "" | "json") {
        return Err(wrong("format", "only json lines are written here"));
    }
    let asked = Asked {
        request_id,
        table,
        resource: "prometheus_export",
        question: parameters.texts("match[]").collect::<Vec<_>>().join(" or "),
        reach: Some(range),
        time_max: EXPORT_TIME_MAX,
    };
    let lines = Lines {
        rows,
        skips_histograms,
    };
    let content_type = "application/stream+json";
    run_transfer(&app.exports, &app, asked, content_type, move |running, writer| {
        let encode =
            |labels: &Labels, samples: Samples<'_>, out: &mut Vec<u8>| lines.put(labels, &samples, out);
        let mut write = |bytes: &[u8]| {
            let written = writer.write_all(bytes);
            written.map_err(|_| PromqlError::Canceled("export"))
        };
        Ok(running.view.transfer(&selectors, range, &encode, &mut write)?)
    })
    .await
}

/// Rows of a line, as a request says it.
fn rows(text: &str) -> Result<usize> {
    match text.parse() {
        _ if text.is_empty() => Ok(ROWS_DEFAULT),
        Ok(0) => Ok(ROWS_DEFAULT),
        Ok(rows) if rows <= ROWS_MAX => Ok(rows),
        Ok(_) | Err(_) => Err(wrong(
            "max_rows_per_line",
            format!("{text:?} is no number from 0 to {ROWS_MAX}"),
        )),
    }
}

/// Export samples as lines of JSON, as a form
#[utoipa::path(
    post, path = "/api/v1/export", tag = "prometheus", operation_id = "prometheus_export_form",
    request_body(
        content = String, content_type = "application/x-www-form-urlencoded",
        description = "The same parameters as a form", example = "match%5B%5D=cpu_usage_user"
    ),
    responses(
        (status = 200, description = "A line a series", body = String, content_type = "application/stream+json",
         example = "{\"metric\":{\"__name__\":\"up\",\"job\":\"a\"},\"values\":[1,1],\"timestamps\":[1795176000000,1795176015000]}\n"),
        PrometheusFailures
    )
)]
async fn export_post(
    app: State<App>,
    request_id: RequestId,
    table: PrometheusTable,
    parameters: Parameters,
) -> Result<Response> {
    export_get(app, request_id, table, parameters).await
}

/// How lines are written.
#[derive(Debug, Clone, Copy)]
struct Lines {
    rows: usize,
    skips_histograms: bool,
}

impl Lines {
    fn put(
        self,
        labels: &Labels,
        samples: &Samples<'_>,
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), PromqlError> {
        if !samples.histograms.is_empty() && !self.skips_histograms {
            return Err(PromqlError::Execution(format!(
                "{labels} has native histograms, which a line of JSON cannot hold; select without it, leave histograms out \
                 with skip_histograms=true, or use remote read"
            )));
        }
        let times = samples.times.chunks(self.rows);
        for (times, values) in times.zip(samples.values.chunks(self.rows)) {
            put_line(labels, times, values, out);
        }
        Ok(())
    }
}

fn put_line(labels: &Labels, times: &[i64], values: &[f64], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"metric\":");
    put_labels(labels, out);
    out.extend_from_slice(b",\"values\":[");
    for (at, value) in values.iter().enumerate() {
        put_comma(at, out);
        match *value {
            value if value.is_nan() => out.extend_from_slice(b"null"),
            f64::INFINITY => out.extend_from_slice(b"\"Infinity\""),
            f64::NEG_INFINITY => out.extend_from_slice(b"\"-Infinity\""),
            value => put_plain_number(value, Form::Short, out),
        }
    }
    out.extend_from_slice(b"],\"timestamps\":[");
    for (at, time) in times.iter().enumerate() {
        put_comma(at, out);
        out.extend_from_slice(itoa::Buffer::new().format(*time).as_bytes());
    }
    out.extend_from_slice(b"]}\n");
}
