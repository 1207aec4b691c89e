//! `/openapi.json` and `/docs`: the OpenAPI document, and its page for browsers. Both work without internet access.

use axum::Router;
use axum::http::{HeaderName, HeaderValue, header};
use axum::routing::get;
use tower_http::set_header::SetResponseHeaderLayer;
use utoipa::openapi::OpenApi;
use utoipa_swagger_ui::{Config, SwaggerUi};

use crate::app::App;

/// Policy that allows content of this service only, and no framing. The page sets inline styles and uses `data:` URLs
/// for icons; scripts are loaded from files only.
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
