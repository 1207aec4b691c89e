//! `/federate`: latest samples, for another Prometheus to scrape.

use axum::http::{HeaderMap, header};
use axum::response::Response;
use tideline_prometheus::{Federation, Parameters, millis};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::response::PrometheusFailures;
use super::run::Caller;
use crate::app::App;
use crate::failure::Result;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(federate))
}

/// Parameter of a federation.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only described here; the handler reads it by name")]
struct FederateParameters {
    /// Selector of series. The parameter can be repeated.
    #[param(rename = "match[]", example = "{__name__=~\"cpu_.*\"}")]
    selectors: Option<String>,
}

/// Read latest samples, for another Prometheus to scrape
///
/// Returns the latest sample of each selected series in the text format, unless the sample is older than the
/// lookback delta. Native histograms with custom buckets are written as classic histograms. Other native histograms
/// are omitted, as in Prometheus, because the format cannot represent them. Names with special characters are
/// escaped according to the `Accept` header: `escaping=underscores` (the default), `dots`, `values` or
/// `allow-utf-8`.
#[utoipa::path(
    security(("token" = ["read", "timelines"])),
    get, path = "/federate", tag = "prometheus",
    params(FederateParameters),
    responses(
        (status = 200, description = "Samples", body = String, content_type = "text/plain",
         example = "# TYPE up untyped\nup{job=\"a\",instance=\"\"} 1 1795176000000\n"),
        PrometheusFailures
    )
)]
async fn federate(caller: Caller, headers: HeaderMap, parameters: Parameters) -> Result<Response> {
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let now = millis(caller.app.engine.now().nanos());
    let settings = &caller.app.settings.prometheus;
    let federation = Federation::read(&parameters, accept, settings, now)?;
    let (time_max, content_type) = (settings.query_timeout, federation.content_type());
    caller
        .respond("prometheus_federate", time_max, content_type, federation)
        .await
}
