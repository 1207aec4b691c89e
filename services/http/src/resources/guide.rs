//! `/guide`: the pages of the guide, from `tideline_guide`.

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use tideline_guide::CONTENT_SECURITY_POLICY;
use tideline_openapi::ErrorCode;
use tower_http::set_header::SetResponseHeaderLayer;

use crate::app::App;
use crate::failure::Failure;

pub(crate) fn router() -> Router<App> {
    Router::new()
        .route("/", get(async || Redirect::temporary("/guide/index")))
        .route("/guide", get(async || Redirect::permanent("/guide/index")))
        .route("/guide/", get(async || Redirect::permanent("/guide/index")))
        .route("/guide/{file}", get(file))
        .layer(SetResponseHeaderLayer::if_not_present(
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(CONTENT_SECURITY_POLICY),
        ))
}

async fn file(Path(name): Path<String>) -> Response {
    match tideline_guide::file(&name) {
        Some(file) => ([(header::CONTENT_TYPE, file.content_type)], file.text.as_ref()).into_response(),
        None => Failure::new(
            ErrorCode::NotFound,
            "the guide has no such page; see /guide/index",
        )
        .into_response(),
    }
}
