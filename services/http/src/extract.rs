//! Extractors whose errors use the dialect of the request.
//!
//! They replace the extractors of axum, whose error texts contain Rust terms.

use axum::extract::path::ErrorKind;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use tideline_openapi::ErrorCode;
use tideline_openapi::plain::{self, JsonFault};

use crate::app::App;
use crate::body;
use crate::failure::{Failure, Result};

/// JSON body of a request that is not a write; it may be compressed. A missing content type and the default content
/// type of curl are accepted as JSON.
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
            app.bodies.discard(request).await;
            return Err(Failure::new(
                ErrorCode::UnsupportedMediaType,
                format!("content type {content_type:?} is not supported; use application/json"),
            ));
        }
        let limits = body::request_limits(&app.settings);
        let received = body::receive(request, app, limits).await?;
        let decoded = body::decode(received).await?;
        plain::read(&decoded).map(Json).map_err(unreadable)
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
            .map_err(|error| wrong_parameter(&error.body_text()))
    }
}

/// Refuses parameters of the query string, for routes that have none. An ignored parameter would change the meaning of a
/// request without notice.
pub(crate) struct NoQuery;

impl<S: Send + Sync> FromRequestParts<S> for NoQuery {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        let query = parts.uri.query().unwrap_or_default();
        match query.split('&').find(|parameter| !parameter.is_empty()) {
            None => Ok(Self),
            Some(parameter) => {
                let name = parameter.split('=').next().unwrap_or_default();
                Err(Failure::invalid(format!(
                    "query parameters: {name:?} does not exist; the route has no query parameters"
                )))
            }
        }
    }
}

/// Parameters of the path.
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let path = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        path.map(|axum::extract::Path(path)| Self(path))
            .map_err(|error| wrong_path(&error))
    }
}

/// Converts the error of an invalid JSON body.
pub(crate) fn unreadable(fault: JsonFault) -> Failure {
    let code = match fault.limit {
        Some(_) => ErrorCode::OverLimit,
        None => ErrorCode::Invalid,
    };
    Failure {
        limit: fault.limit,
        ..Failure::new(code, fault.message)
    }
}

/// Converts the error of a query string. The text starts with a prefix of axum, which is removed.
fn wrong_parameter(text: &str) -> Failure {
    let reason = text
        .rsplit_once("query string: ")
        .map_or(text, |(_, reason)| reason);
    // The name of the parameter, if known, precedes the reason.
    Failure::invalid(match reason.split_once(": ") {
        Some((name, reason))
            if name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') =>
        {
            format!("parameter {name}: {}", plain::message(reason))
        }
        _ => format!("query parameters: {}", plain::message(reason)),
    })
}

/// Converts the error of path segments that do not have the required format.
pub(crate) fn wrong_path(error: &PathRejection) -> Failure {
    let PathRejection::FailedToDeserializePathParams(error) = error else {
        return Failure::new(ErrorCode::Internal, "internal error");
    };
    let not_of_form = |key: &str, value: &str, expected: &str| {
        let expected = plain::message(&format!("invalid type: string \"{value}\", expected {expected}"));
        format!("{key} in the path: {expected}")
    };
    Failure::invalid(match error.kind() {
        ErrorKind::ParseErrorAtKey {
            key,
            value,
            expected_type,
        } => not_of_form(key, value, expected_type),
        ErrorKind::ParseError { value, expected_type } => not_of_form("a part", value, expected_type),
        ErrorKind::InvalidUtf8InPathParam { key } => format!("{key} in the path is not valid UTF-8"),
        ErrorKind::DeserializeError { key, message, .. } => {
            format!("{key} in the path: {}", plain::message(message))
        }
        _ => "the path does not match this route; see /docs".to_owned(),
    })
}

/// Returns the content type without parameters, in lower case; empty if missing or invalid.
pub(crate) fn content_type(headers: &axum::http::HeaderMap) -> String {
    let sent = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let essence = sent.unwrap_or_default().split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

/// Returns a parameter of the content type without quotes; `None` if missing or invalid.
pub(crate) fn content_type_parameter<'a>(headers: &'a axum::http::HeaderMap, name: &str) -> Option<&'a str> {
    let sent = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    sent.split(';').skip(1).find_map(|part| {
        let (known, value) = part.split_once('=')?;
        let is_named = known.trim().eq_ignore_ascii_case(name);
        is_named.then_some(value.trim().trim_matches('"'))
    })
}
