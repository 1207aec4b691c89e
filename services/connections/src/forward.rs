//! Forwarding of requests to another process that serves the same routes.
//!
//! Bodies pass through in both directions without being stored. A request is sent only once, because only its
//! client can decide to repeat it. Requests carry the tokens of their clients, so a process with TLS must present a
//! certificate of a trusted authority for the name or address at which it is reached.

use std::fmt;
use std::sync::Arc;
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
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::RwLock;

use crate::client::{Origin, Peer};
use crate::tls::{self, TlsError};

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

/// Prefix of the address of a process with TLS.
pub const HTTPS: &str = "https://";

type HttpClient = Client<HttpsConnector<HttpConnector>, Incoming>;

/// Client that forwards requests. Clones share its connections and the trusted authorities.
#[derive(Clone)]
pub struct Forwarder {
    client: Arc<RwLock<HttpClient>>,
}

impl Forwarder {
    /// Creates a client. `authorities` contains PEM certificates of the authorities that sign the certificates
    /// of processes with TLS. A self-signed certificate is its own authority. `None`: no process with TLS is
    /// trusted.
    ///
    /// # Errors
    ///
    /// Returns [`TlsError`] if the text contains no certificate or an invalid one.
    pub fn new(authorities: Option<&[u8]>) -> Result<Self, TlsError> {
        let client = Arc::new(RwLock::new(client(authorities)?));
        Ok(Self { client })
    }

    /// Replaces the trusted authorities. Requests that were sent before are not interrupted.
    ///
    /// # Errors
    ///
    /// Returns [`TlsError`] if the text contains no certificate or an invalid one; the previous authorities then
    /// stay.
    pub fn trust(&self, authorities: &[u8]) -> Result<(), TlsError> {
        *self.client.write() = client(Some(authorities))?;
        Ok(())
    }

    /// Sends a request to `target` (`host:port`, or `https://host:port` with TLS), and returns the response.
    /// With the `origin` of the request, the header `X-Forwarded-For` lists the client of the request and the
    /// proxies on the way.
    ///
    /// # Errors
    ///
    /// Returns the reason why there is no response. The request may have been executed.
    pub async fn forward(
        &self,
        mut request: Request<Incoming>,
        target: &str,
        origin: Option<Origin>,
    ) -> Result<Response, String> {
        *request.uri_mut() = at(request.uri(), target)?;
        let headers = request.headers_mut();
        remove_connection_headers(headers);
        // The header `X-Forwarded-For` lists the clients; the header `Forwarded` could contradict it.
        headers.remove(hyper::header::FORWARDED);
        headers.insert(FORWARDED, HeaderValue::from_static("1"));
        if let Some(origin) = origin {
            name_client(headers, origin)?;
        }
        let sent = self.client.read().request(request);
        let mut response = sent.await.map_err(|error| root_cause(&error))?;
        remove_connection_headers(response.headers_mut());
        Ok(response.map(Body::new))
    }
}

/// Sets the header with the clients and proxies of a request.
fn name_client(headers: &mut HeaderMap, origin: Origin) -> Result<(), String> {
    let lines = headers.get_all(FORWARDED_FOR).iter().map(HeaderValue::to_str);
    let before = lines
        .collect::<Result<Vec<_>, _>>()
        .unwrap_or_default()
        .join(", ");
    headers.remove(FORWARDED_FOR);
    // A list from a client that is not a trusted proxy is passed on, followed by the address of that client. The
    // next server reads the list from its end, so it ignores the entries before that address.
    let before = origin.forwarded().map_or(before, |client| client.to_string());
    let clients = match origin.peer() {
        Peer::Address(peer) if before.is_empty() => peer.ip().to_string(),
        Peer::Address(peer) => format!("{before}, {}", peer.ip()),
        // A process of this machine has no address.
        Peer::User(_) if origin.forwarded().is_some() => before,
        Peer::User(_) => return Ok(()),
    };
    let clients = HeaderValue::try_from(clients).map_err(|error| error.to_string())?;
    headers.insert(FORWARDED_FOR, clients);
    Ok(())
}

impl fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Forwarder")
    }
}

fn client(authorities: Option<&[u8]>) -> Result<HttpClient, TlsError> {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_nodelay(true);
    connector.enforce_http(false);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls::client_config(authorities)?)
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector);
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

/// Returns the innermost cause of an error. The outer errors only report that a connection or request failed.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Returns a URI with the path and query of `uri` at another server.
fn at(uri: &Uri, target: &str) -> Result<Uri, String> {
    let (scheme, target) = match target.strip_prefix(HTTPS) {
        Some(target) => (Scheme::HTTPS, target),
        None => (Scheme::HTTP, target),
    };
    let authority: Authority = target
        .parse()
        .map_err(|error| format!("{target:?} is no address: {error}"))?;
    let mut parts = uri.clone().into_parts();
    parts.scheme = Some(scheme);
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
        let encrypted = at(&uri, "https://db-1:8490").expect("an address");
        assert_eq!(encrypted, "https://db-1:8490/v1/tables?limit=3");
        assert!(at(&uri, "no address").is_err());
    }

    #[test]
    fn the_client_is_named_after_those_before() {
        const FOR: &str = "x-forwarded-for";
        let address = Peer::Address("192.0.2.9:7".parse().expect("an address"));
        let proxies = ["unix", "192.0.2.9"].map(|proxy| proxy.parse().expect("a proxy"));
        for (peer, proxies, before, after) in [
            (address, &[][..], &[][..], Some("192.0.2.9")),
            (address, &[], &[(FOR, "1.1.1.1")], Some("1.1.1.1, 192.0.2.9")),
            (
                address,
                &[],
                &[(FOR, "1.1.1.1"), (FOR, "2.2.2.2")],
                Some("1.1.1.1, 2.2.2.2, 192.0.2.9"),
            ),
            // A proxy adds a separate line, or uses the other header.
            (
                address,
                &proxies,
                &[(FOR, "1.1.1.1"), (FOR, "2.2.2.2")],
                Some("2.2.2.2, 192.0.2.9"),
            ),
            (
                address,
                &proxies,
                &[("forwarded", "for=3.3.3.3")],
                Some("3.3.3.3, 192.0.2.9"),
            ),
            (Peer::User(1), &[], &[(FOR, "1.1.1.1")], None),
            (Peer::User(1), &proxies, &[(FOR, "1.1.1.1")], Some("1.1.1.1")),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in before {
                headers.append(*name, HeaderValue::from_static(value));
            }
            let origin = Origin::find(peer, &headers, proxies);
            name_client(&mut headers, origin).expect("a header");
            let named = headers
                .get(FORWARDED_FOR)
                .map(|value| value.to_str().expect("text"));
            assert_eq!(named, after, "{peer}");
        }
    }
}
