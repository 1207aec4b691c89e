//! All routes, and the document that describes them. Both come from the same declarations.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tideline_openapi::ErrorCode;
use tideline_openapi::prometheus::PrometheusError;
use tideline_openapi::watch::{WatchDeleted, WatchPoints, WatchReady, WatchTimelines};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};
use tower_http::compression::{CompressionLayer, CompressionLevel};
use tower_http::set_header::SetResponseHeaderLayer;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use crate::app::App;
use crate::failure::Failure;
use crate::{auth, described, host, observe, resources, whole};

/// Smallest answer that is compressed, in bytes. Streamed answers, whose length is unknown when they begin, are larger.
const COMPRESSED_BYTES_MIN: u64 = 4 << 10;

/// What the document says about the whole.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tideline",
        description = "Time series and timelines on wide-table storage: write points, find timelines, read them back.\n\n\
            Times are RFC 3339 or integer nanoseconds, durations text such as `90s` or `30d`. Every answer carries \
            the header `X-Request-Id`. Where the service has a token, send it as `Authorization: Bearer …`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    // What events hold and what is only referred to, which no request or answer names.
    components(schemas(WatchReady, WatchPoints, WatchTimelines, WatchDeleted, PrometheusError)),
    tags(
        (name = "tables", description = "Tables and what they hold"),
        (name = "points", description = "Write and read points"),
        (name = "timelines", description = "Find and describe timelines; their names"),
        (name = "jobs", description = "The life of data: work in the background, policies tried out, the clock"),
        (name = "operation", description = "Health, readiness, metrics"),
        (name = "influx", description = "What InfluxDB agents and clients speak"),
        (
            name = "prometheus",
            description = "What Prometheus, its agents and its clients speak: at the root about the default table, \
                below `/v1/tables/{table}/prometheus` about one"
        )
    )
)]
struct Document;

/// The OpenAPI document of every route.
pub fn document() -> utoipa::openapi::OpenApi {
    routes().into_openapi()
}

/// Every route with its description: one line a resource.
fn routes() -> OpenApiRouter<App> {
    let mut routes = OpenApiRouter::with_openapi(Document::openapi())
        .merge(resources::tables::router())
        .merge(resources::statistics::router())
        .merge(resources::points::router())
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
        .merge(resources::operation::router())
        .merge(resources::influx_v1::router())
        .merge(resources::influx_v2::router())
        .merge(resources::prometheus::router());
    described::complete(routes.get_openapi_mut());
    routes
}

/// The service: every route, within the layers that all share. The outermost comes first.
///
/// All layers are added at once: each further call of `layer` boxes every route once more, and a request copies every box.
pub(crate) fn router(app: &App) -> Router {
    let (router, document) = routes().split_for_parts();
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
            from_fn_with_state(app.clone(), observe::observe),
            CatchPanicLayer::custom(observe::panicked),
            compression(),
            from_fn_with_state(app.clone(), guard),
        ))
        .with_state(app.clone())
}

/// Answers a request whose host, token and site are admitted, and counts a large answer in the memory account. One layer does
/// all of this, since each layer made of a function costs every request several allocations.
async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    let admitted = host::admit(&request, &app.settings)
        .and_then(|()| auth::require_token(&request, &app.settings))
        .and_then(|()| auth::refuse_other_sites(&request));
    match admitted {
        Ok(()) => whole::reserve(State(app), request, next).await,
        Err(failure) => {
            app.bodies.discard(request).await;
            failure.into_response()
        }
    }
}

/// Compresses answers for clients that accept it, at the fastest level. Small answers, server-sent events and images stay as
/// they are: below some kilobytes compressing costs more time than sending.
fn compression() -> CompressionLayer<impl Predicate> {
    let predicate = SizeAbove::new(COMPRESSED_BYTES_MIN)
        .and(NotForContentType::SSE)
        .and(NotForContentType::IMAGES);
    CompressionLayer::new()
        .quality(CompressionLevel::Fastest)
        .compress_when(predicate)
}

async fn not_found() -> Response {
    Failure::new(ErrorCode::NotFound, "no such route; /docs lists them").into_response()
}

async fn method_not_allowed() -> Response {
    Failure::new(
        ErrorCode::MethodNotAllowed,
        "the resource does not have this method",
    )
    .into_response()
}
