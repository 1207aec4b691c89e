//! Router of all routes, and the OpenAPI document. The routes of the API and the document are created from the same
//! declarations.
//!
//! The order of the layers matters: a request is observed first, then refused if this process does not own the data, then
//! admitted, then handled.

use std::sync::Arc;

use axum::Router;
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use tideline_openapi::ErrorCode;
use tideline_openapi::feed::WatchedMessages;
use tideline_openapi::otlp::RpcStatus;
use tideline_openapi::prometheus::PrometheusError;
use tideline_openapi::watch::{WatchDeleted, WatchPoints, WatchReady, WatchResume, WatchTimelines};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};
use tower_http::compression::{CompressionLayer, CompressionLevel};
use tower_http::set_header::SetResponseHeaderLayer;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use crate::app::App;
use crate::failure::Failure;
use crate::guard::GuardLayer;
use crate::lease::LeaseLayer;
use crate::observe::ObserveLayer;
use crate::routes::Routes;
use crate::{described, observe, resources};

/// Smallest response that is compressed, in bytes. Streamed responses have no known length and are compressed
/// at any size.
const COMPRESSED_BYTES_MIN: u64 = 4 << 10;

/// Head of the OpenAPI document.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tideline",
        description = "Time series, wide rows and message feeds on wide-table storage: write points, rows and messages, find them \
            by conditions, read them back.\n\n\
            Timestamps are RFC 3339 strings or integer nanoseconds; durations are strings such as `90s` or \
            `30d`. Every response has the header `X-Request-Id`. If the service requires tokens, send one \
            as `Authorization: Bearer …`. The security requirement of each operation names the action that one of the \
            roles of the token must allow.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    // Schemas that no request or response refers to directly: contents of events, and errors of other dialects.
    components(schemas(WatchedMessages, WatchReady, WatchResume, WatchPoints, WatchTimelines, WatchDeleted, PrometheusError, RpcStatus)),
    tags(
        (name = "tables", description = "Tables and their contents"),
        (name = "points", description = "Write and read points"),
        (name = "rows", description = "Write and read rows of wide tables"),
        (name = "feeds", description = "Send, read, search and watch messages; members, inboxes, users"),
        (name = "timelines", description = "Find and describe timelines; list measurements, tags, fields"),
        (name = "changes", description = "Change streams: the changes of all tables, consumer groups"),
        (name = "jobs", description = "Data lifecycle: background jobs, policy previews, the clock"),
        (name = "access", description = "Tokens, their roles and scopes"),
        (name = "operation", description = "Health, readiness, metrics, engine"),
        (name = "influx", description = "Compatibility with InfluxDB agents and clients"),
        (
            name = "prometheus",
            description = "Compatibility with Prometheus, its agents and its clients: at the root for the \
                default table, below `/v1/tables/{table}/prometheus` for the table in the path"
        )
    )
)]
struct Document;

/// Returns the OpenAPI document of all routes.
///
/// # Examples
///
/// ```
/// let document = serde_json::to_value(tideline_http::document())?;
/// let query = &document["paths"]["/v1/tables/{table}/query"]["post"];
/// assert!(query["summary"].is_string());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn document() -> utoipa::openapi::OpenApi {
    routes().into_openapi()
}

/// Returns all routes of the API with their OpenAPI descriptions.
fn routes() -> OpenApiRouter<App> {
    let mut routes = OpenApiRouter::with_openapi(Document::openapi())
        .merge(resources::tables::router())
        .merge(resources::statistics::router())
        .merge(resources::points::router())
        .merge(resources::rows::router())
        .merge(resources::feeds::router())
        .merge(resources::changes::router())
        .merge(resources::blobs::router())
        .merge(resources::indexes::router())
        .merge(resources::parts::router())
        .merge(resources::advice::router())
        .merge(resources::search_indexes::router())
        .merge(resources::sql::router())
        .merge(resources::query::router())
        .merge(resources::latest::router())
        .merge(resources::watch::router())
        .merge(resources::queries::router())
        .merge(resources::timelines::router())
        .merge(resources::facets::router())
        .merge(resources::searches::router())
        .merge(resources::archive::router())
        .merge(resources::bulk::router())
        .merge(resources::attach::router())
        .merge(resources::orphans::router())
        .merge(resources::cardinality::router())
        .merge(resources::names::router())
        .merge(resources::jobs::router())
        .merge(resources::policies::router())
        .merge(resources::clock::router())
        .merge(resources::tenants::router())
        .merge(resources::audit::router())
        .merge(resources::tokens::router())
        .merge(resources::operation::router())
        .merge(resources::influx_v1::router())
        .merge(resources::influx_v2::router())
        .merge(resources::prometheus::router());
    described::complete(routes.get_openapi_mut());
    routes
}

/// Creates the service: all routes with their common layers, the outermost first.
///
/// All layers are added in one call: each further call of `layer` boxes every route again, and a request clones every
/// box.
pub(crate) fn router(app: &App) -> Router {
    let (router, document) = routes().split_for_parts();
    let actions = Routes::of(&document);
    router
        .merge(resources::docs::router(document))
        .merge(resources::guide::router())
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer((
            SetResponseHeaderLayer::if_not_present(
                header::X_CONTENT_TYPE_OPTIONS,
                HeaderValue::from_static("nosniff"),
            ),
            ObserveLayer(app.clone()),
            CatchPanicLayer::custom(observe::panicked),
            compression(),
            LeaseLayer::new(app),
            GuardLayer {
                app: app.clone(),
                routes: Arc::new(actions),
            },
        ))
        .with_state(app.clone())
}

/// Returns the layer that compresses responses for clients that accept it, at the fastest level. Small responses are
/// not compressed, because compressing a few kilobytes takes longer than sending them. Server-sent events and images
/// are not compressed either.
fn compression() -> CompressionLayer<impl Predicate> {
    let predicate = SizeAbove::new(COMPRESSED_BYTES_MIN)
        .and(NotForContentType::SSE)
        .and(NotForContentType::IMAGES)
        // Responses with a value of a row have this header. They stay uncompressed, so that their length and requested
        // ranges are those of the stored value.
        .and(|_: StatusCode, _: Version, headers: &HeaderMap, _: &Extensions| {
            !headers.contains_key(header::ACCEPT_RANGES)
        });
    CompressionLayer::new()
        .quality(CompressionLevel::Fastest)
        .compress_when(predicate)
}

async fn not_found() -> Response {
    Failure::new(ErrorCode::NotFound, "no such route; see /docs").into_response()
}

async fn method_not_allowed() -> Response {
    Failure::new(
        ErrorCode::MethodNotAllowed,
        "the method is not allowed for this path; see /docs",
    )
    .into_response()
}
