//! Who may ask: whoever bears the token, however a client of the protocol carries it; and no page of another site
//! through the browser of somebody who may.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tideline_openapi::ErrorCode;

use crate::context::Dialect;
use crate::failure::{Failure, Result};
use crate::settings::{HttpSettings, Secret};

/// Paths that answer everybody: a load balancer has no token, and they tell nothing worth hiding.
const OPEN_PATHS: [&str; 3] = ["/health", "/ready", "/ping"];
/// Likewise those of Prometheus at the root. Those below a table reveal whether it exists.
const OPEN_PROMETHEUS_PATHS: [&str; 2] = ["/-/healthy", "/-/ready"];

/// Admits a request when there is no token, its path is open, or it bears the token.
pub(crate) fn require_token(request: &Request, settings: &HttpSettings) -> Result<()> {
    let Some(token) = &settings.token else {
        return Ok(());
    };
    if is_open(request.uri().path()) || bears(token, request) {
        return Ok(());
    }
    Err(Failure::new(
        ErrorCode::Unauthenticated,
        "the token is missing or wrong",
    ))
}

pub(crate) fn is_open(path: &str) -> bool {
    OPEN_PATHS.contains(&path) || OPEN_PROMETHEUS_PATHS.contains(&path)
}

fn bears(token: &Secret, request: &Request) -> bool {
    if let Some(claimed) = from_header(request.headers()) {
        return token.is(&claimed);
    }
    // InfluxDB 1 clients put the password into the address.
    let uri = request.uri();
    Dialect::of(uri.path()) == Dialect::InfluxV1
        && password_parameter(uri.query().unwrap_or_default()).is_some_and(|claimed| token.is(&claimed))
}

/// Refuses what a page of another site asks a browser to change: without a token the browser's place in the network is
/// all it takes, and with one the browser adds the password by itself. Reading needs no guard, for no answer lets
/// another site see it.
pub(crate) fn refuse_other_sites(request: &Request) -> Result<()> {
    if request.method().is_safe() || is_own_site(request.headers()) {
        return Ok(());
    }
    Err(Failure::new(
        ErrorCode::Forbidden,
        "pages of other sites may not ask for this",
    ))
}

/// Whether the page that asks, if one does, came from the host that it asks. A proxy in between names that host in
/// `X-Forwarded-Host`, which no page can set.
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

/// Returns true if a browser marks the request as one of a page of another site. Agents other than browsers send no mark.
pub(crate) fn is_foreign_page(headers: &HeaderMap) -> bool {
    let site = headers.get(HeaderName::from_static("sec-fetch-site"));
    site.is_some_and(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"))
}

/// `Bearer t`, `Token t` (also `user:t`, as InfluxDB 1.8 has it) or the password of `Basic`.
fn from_header(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, credentials) = value.split_once(' ')?;
    let credentials = credentials.trim();
    let password = |pair: &str| pair.split_once(':').map(|(_, password)| password.to_owned());
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" => Some(credentials.to_owned()),
        "token" => Some(password(credentials).unwrap_or_else(|| credentials.to_owned())),
        "basic" => {
            let pair = STANDARD.decode(credentials).ok()?;
            password(&String::from_utf8(pair).ok()?)
        }
        _ => None,
    }
}

/// The parameter `p` of a query string.
fn password_parameter(query: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Credentials {
        p: Option<String>,
    }
    let uri = format!("/?{query}").parse().ok()?;
    let query = axum::extract::Query::<Credentials>::try_from_uri(&uri).ok()?;
    query.0.p
}
