//! `/openapi.json` and `/docs`: the description of the interface, also for people. Works without the internet.

use axum::Router;
use axum::http::{HeaderName, HeaderValue, header};
use axum::routing::get;
use tower_http::set_header::SetResponseHeaderLayer;
use utoipa::openapi::OpenApi;
use utoipa_swagger_ui::{Config, SwaggerUi};

use crate::app::App;

/// Everything from this service, nothing framed. The page sets styles on its elements and draws its icons from data
/// addresses; scripts come from files only.
const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; \
     img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

pub(crate) fn router(document: OpenApi) -> Router<App> {
    let page = Router::from(SwaggerUi::new("/docs").config(Config::from("/openapi.json")));
    let header =
        |name: HeaderName, value| SetResponseHeaderLayer::overriding(name, HeaderValue::from_static(value));
    page.route("/openapi.json", get(async || axum::Json(document)))
        .layer(header(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY))
        .layer(header(header::X_FRAME_OPTIONS, "DENY"))
        .layer(header(header::REFERRER_POLICY, "no-referrer"))
}
