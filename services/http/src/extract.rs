//! Extractors whose refusals speak the dialect of the request.

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use tideline_openapi::ErrorCode;

use crate::app::App;
use crate::body::{self, BodyLimits};
use crate::failure::{Failure, Result};

/// A JSON body of a request that is not a write; it may be compressed. A missing content type counts as JSON, and so
/// does the one that curl sends by itself.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self> {
        let content_type = content_type(request.headers());
        let is_json = matches!(
            content_type.as_str(),
            "" | "application/json" | "application/x-www-form-urlencoded"
        );
        if !is_json {
            body::discard(request, app).await;
            return Err(Failure::new(
                ErrorCode::UnsupportedMediaType,
                format!("content type {content_type:?} is not read here; send application/json"),
            ));
        }
        let limits = BodyLimits::requests(&app.settings);
        let received = body::receive(request, app, limits).await?;
        let decoded = received.decode_small().await?;
        serde_json::from_slice(&decoded)
            .map(Json)
            .map_err(Failure::invalid)
    }
}

/// Parameters of the query string.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        let query = axum::extract::Query::<T>::try_from_uri(&parts.uri);
        query
            .map(|axum::extract::Query(query)| Self(query))
            .map_err(|error| Failure::invalid(error.body_text()))
    }
}

/// Parameters of the path.
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let path = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        path.map(|axum::extract::Path(path)| Self(path))
            .map_err(|error| Failure::invalid(error.body_text()))
    }
}

/// The content type without its parameters, in lower case; empty when missing or unreadable.
pub(crate) fn content_type(headers: &axum::http::HeaderMap) -> String {
    let sent = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let essence = sent.unwrap_or_default().split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

/// A parameter of the content type, without quotes; `None` where it is missing or unreadable.
pub(crate) fn content_type_parameter<'a>(headers: &'a axum::http::HeaderMap, name: &str) -> Option<&'a str> {
    let sent = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    sent.split(';').skip(1).find_map(|part| {
        let (known, value) = part.split_once('=')?;
        let is_named = known.trim().eq_ignore_ascii_case(name);
        is_named.then_some(value.trim().trim_matches('"'))
    })
}
