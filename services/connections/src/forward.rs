//! Forwarding of requests to another process that serves the same routes.
//!
//! Bodies pass through in both directions without being stored. A request is sent once: only its client can
//! decide to repeat it.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::uri::{Authority, Scheme};
use hyper::{Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// Header of forwarded requests. A process that receives it forwards no further.
pub const FORWARDED: HeaderName = HeaderName::from_static("tideline-forwarded");
/// Header with the clients and proxies of a request.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Headers that belong to one connection.
const OF_CONNECTION: [HeaderName; 7] = [
    CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];
/// Longest time for a new connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Client that forwards requests. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Forwarder {
    client: Client<HttpConnector, Incoming>,
}

impl Default for Forwarder {
    fn default() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
        }
    }
}

impl Forwarder {
    /// Sends a request to `target` (`host:port`), and returns the response. `peer` is the client of the request; it is
    /// added to `X-Forwarded-For`.
    ///
    /// # Errors
    ///
    /// A description of why there is no response. The request may have been executed.
    pub async fn forward(
        &self,
        mut request: Request<Incoming>,
        target: &str,
        peer: Option<SocketAddr>,
    ) -> Result<Response, String> {
        *request.uri_mut() = at(request.uri(), target)?;
        let headers = request.headers_mut();
        remove_connection_headers(headers);
        // The header below names the clients; a second list of them could contradict it.
        headers.remove(hyper::header::FORWARDED);
        headers.insert(FORWARDED, HeaderValue::from_static("1"));
        if let Some(peer) = peer {
            let before = headers.get(FORWARDED_FOR).and_then(|before| before.to_str().ok());
            let clients = match before {
                Some(before) => format!("{before}, {}", peer.ip()),
                None => peer.ip().to_string(),
            };
            let clients = HeaderValue::try_from(clients).map_err(|error| error.to_string())?;
            headers.insert(FORWARDED_FOR, clients);
        }
        let response = self.client.request(request).await;
        let mut response = response.map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            cause.unwrap_or_else(|| error.to_string())
        })?;
        remove_connection_headers(response.headers_mut());
        Ok(response.map(Body::new))
    }
}

/// Returns a URI with the path and query of `uri` at another server.
fn at(uri: &Uri, target: &str) -> Result<Uri, String> {
    let authority: Authority = target
        .parse()
        .map_err(|error| format!("{target:?} is no address: {error}"))?;
    let mut parts = uri.clone().into_parts();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(authority);
    parts
        .path_and_query
        .get_or_insert(hyper::http::uri::PathAndQuery::from_static("/"));
    Uri::from_parts(parts).map_err(|error| error.to_string())
}

fn remove_connection_headers(headers: &mut HeaderMap) {
    for name in &OF_CONNECTION {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forwarded_uri_keeps_path_and_query() {
        let uri = Uri::from_static("/v1/tables?limit=3");
        let forwarded = at(&uri, "10.0.0.1:8490").expect("an address");
        assert_eq!(forwarded, "http://10.0.0.1:8490/v1/tables?limit=3");
        assert!(at(&uri, "no address").is_err());
    }
}
