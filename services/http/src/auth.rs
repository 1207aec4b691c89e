//! Authentication of requests, and protection against requests from pages of other sites.
//!
//! A token is accepted in the forms of all supported protocols; `tokens` finds its principal. Without the protection, a
//! page of another site could send changes through the browser of an authorized user.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tideline_access::{Access, Action, Principal};
use tideline_openapi::ErrorCode;

use crate::context::Dialect;
use crate::failure::{Failure, Result};
use crate::tokens::TokenStore;

/// Paths without authentication: load balancers have no token, and the responses contain no sensitive data.
const OPEN_PATHS: [&str; 3] = ["/health", "/ready", "/ping"];
/// Paths of the Prometheus API at the root that need no authentication. The same paths below a table need it,
/// because they would reveal whether the table exists.
const OPEN_PROMETHEUS_PATHS: [&str; 2] = ["/-/healthy", "/-/ready"];

/// Returns the principal of a request. If the server requires no token, all requests have the same principal.
///
/// # Errors
///
/// Fails with [`ErrorCode::Unauthenticated`] if the token is missing or not valid, and with [`ErrorCode::Invalid`] if the
/// request has two headers with a token.
pub(crate) fn authenticate(request: &Request, tokens: &TokenStore) -> Result<Arc<Principal>> {
    if !tokens.is_required() {
        return Ok(tokens.anonymous());
    }
    // A proxy in front of the server could check another one of the headers than the server.
    if request.headers().get_all(header::AUTHORIZATION).iter().count() > 1 {
        return Err(Failure::invalid("the request has two headers Authorization"));
    }
    match claimed(request) {
        Some(claimed) => tokens.authenticate(&claimed),
        None => Err(Failure::new(
            ErrorCode::Unauthenticated,
            "the request has no token; send it as `Authorization: Bearer …`",
        )),
    }
}

/// Returns true if a request to a path without authentication may read data about all tables, as a request to
/// `/metrics` may.
pub(crate) fn observes_everything(request: &Request, tokens: &TokenStore) -> bool {
    authenticate(request, tokens).is_ok_and(|principal| {
        Access::new(&principal, Action::Observe).is_ok_and(|access| access.check_all().is_ok())
    })
}

pub(crate) fn is_open(path: &str) -> bool {
    OPEN_PATHS.contains(&path) || OPEN_PROMETHEUS_PATHS.contains(&path)
}

/// Returns the token that a request contains; `None` if it has none.
fn claimed(request: &Request) -> Option<Cow<'_, str>> {
    if let Some(claimed) = from_header(request.headers()) {
        return Some(claimed);
    }
    // InfluxDB 1 clients send the password in the URL.
    let uri = request.uri();
    match Dialect::of(uri.path()) {
        Dialect::InfluxV1 => password_parameter(uri.query().unwrap_or_default()).map(Cow::Owned),
        _ => None,
    }
}

/// Refuses a request with an unsafe method from a page of another site. Without this check, such a page could send
/// changes through the browser of a user. A server without a token accepts changes from every browser that reaches
/// the server. A server with a token accepts them if the browser has saved the password, because browsers send a
/// saved password automatically. Safe methods need no check, because pages of other sites cannot read the response.
pub(crate) fn refuse_other_sites(request: &Request) -> Result<()> {
    if request.method().is_safe() || is_own_site(request.headers()) {
        return Ok(());
    }
    Err(Failure::new(
        ErrorCode::Forbidden,
        "requests that change data are not allowed from pages of other sites (Origin header)",
    ))
}

/// Returns true if the request has no `Origin` header, or if the origin is the host in `Host` or
/// `X-Forwarded-Host`. A proxy may set `X-Forwarded-Host`; a page cannot.
fn is_own_site(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(origin) = text(header::ORIGIN) else {
        return !headers.contains_key(header::ORIGIN);
    };
    let Some((_, site)) = origin.split_once("://") else {
        return false;
    };
    let hosts = [
        text(header::HOST),
        text(HeaderName::from_static("x-forwarded-host")),
    ];
    hosts
        .into_iter()
        .flatten()
        .any(|host| host.eq_ignore_ascii_case(site))
}

/// Returns true if the header `Sec-Fetch-Site` marks the request as one from a page of another origin. Only
/// browsers send this header.
pub(crate) fn is_foreign_page(headers: &HeaderMap) -> bool {
    let site = headers.get(HeaderName::from_static("sec-fetch-site"));
    site.is_some_and(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"))
}

/// Returns the token of `Bearer t`, `Token t` (also `user:t`, as in InfluxDB 1.8) or the password of `Basic`;
/// `None` for a missing or invalid header.
fn from_header(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, credentials) = value.split_once(' ')?;
    let credentials = credentials.trim();
    match scheme {
        scheme if scheme.eq_ignore_ascii_case("bearer") => Some(Cow::Borrowed(credentials)),
        scheme if scheme.eq_ignore_ascii_case("token") => Some(Cow::Borrowed(
            credentials
                .split_once(':')
                .map_or(credentials, |(_, password)| password),
        )),
        scheme if scheme.eq_ignore_ascii_case("basic") => {
            let pair = String::from_utf8(STANDARD.decode(credentials).ok()?).ok()?;
            let (_, password) = pair.split_once(':')?;
            Some(Cow::Owned(password.to_owned()))
        }
        _ => None,
    }
}

/// Returns the parameter `p` of a query string; `None` if it is missing or the query string is not valid.
fn password_parameter(query: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Credentials {
        p: Option<String>,
    }
    let uri = format!("/?{query}").parse().ok()?;
    let query = axum::extract::Query::<Credentials>::try_from_uri(&uri).ok()?;
    query.0.p
}
