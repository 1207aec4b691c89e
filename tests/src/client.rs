//! HTTP client that returns every response, of any status. Only a missing response is an error.
//!
//! The client follows no redirects and uses no proxy.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use ureq::http::{HeaderMap, Method, Request, StatusCode};

/// Time limit of one request; a slower request fails with [`NoResponse`].
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum size of a response body, in bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// Client of one server. Clones share its connection pool.
#[derive(Debug, Clone)]
pub struct Client {
    agent: ureq::Agent,
    address: SocketAddr,
    token: Option<String>,
}

/// Missing response, for example because the connection was refused, reset or timed out. The outcome of the request is
/// unknown.
#[derive(Debug, thiserror::Error)]
#[error("{method} {path} got no response: {source}")]
pub struct NoResponse {
    method: String,
    path: String,
    source: Box<ureq::Error>,
}

/// HTTP response.
#[derive(Clone)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Response headers.
    pub headers: HeaderMap,
    /// Response body, as received.
    pub body: Vec<u8>,
}

impl Client {
    /// Returns a client of the server at `address`.
    pub fn new(address: SocketAddr) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(PATIENCE))
            .allow_non_standard_methods(true)
            .proxy(None)
            .build();
        let agent = config.new_agent();
        Self {
            agent,
            address,
            token: None,
        }
    }

    /// Returns the client with a bearer token in every request.
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends one request. `path` begins with a slash and may contain a query string.
    ///
    /// # Errors
    ///
    /// Returns [`NoResponse`] if no complete response is received within 60 s, its body exceeds 1 GiB, or the method,
    /// the path or a header is invalid.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response, NoResponse> {
        self.try_send(method, path, headers, body)
            .map_err(|source| NoResponse {
                method: method.to_owned(),
                path: path.to_owned(),
                source: Box::new(source),
            })
    }

    /// Sends `GET path`.
    ///
    /// # Panics
    ///
    /// Panics if no response is received.
    pub fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], b"")
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Sends `POST path` with a JSON body.
    ///
    /// # Panics
    ///
    /// Panics if no response is received.
    pub fn post_json(&self, path: &str, body: &Value) -> Response {
        let headers = [("content-type", "application/json")];
        self.send("POST", path, &headers, body.to_string().as_bytes())
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Sends `PUT path` with a JSON body.
    ///
    /// # Panics
    ///
    /// Panics if no response is received.
    pub fn put_json(&self, path: &str, body: &Value) -> Response {
        let headers = [("content-type", "application/json")];
        self.send("PUT", path, &headers, body.to_string().as_bytes())
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Sends `POST path` with lines of InfluxDB line protocol.
    ///
    /// # Panics
    ///
    /// Panics if no response is received.
    pub fn post_lines(&self, path: &str, lines: &str) -> Response {
        let headers = [("content-type", "text/plain; charset=utf-8")];
        self.send("POST", path, &headers, lines.as_bytes())
            .unwrap_or_else(|error| panic!("{error}"))
    }

    fn try_send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response, ureq::Error> {
        let uri = format!("http://{}{path}", self.address);
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| ureq::Error::BadUri(method.into()))?;
        let has_body = !body.is_empty() || matches!(method, Method::POST | Method::PUT | Method::PATCH);
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = if has_body {
            let request = request.body(body)?;
            self.agent.run(request)?
        } else {
            self.agent.run(request.body(())?)?
        };
        let (parts, mut body) = response.into_parts();
        let body = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        Ok(Response {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        })
    }
}

impl Response {
    /// Returns true if the status is 2xx.
    pub fn is_success(&self) -> bool {
        StatusCode::from_u16(self.status).is_ok_and(|status| status.is_success())
    }

    /// Returns the response if it has this status.
    ///
    /// # Panics
    ///
    /// Panics if the status differs.
    #[track_caller]
    pub fn expect_status(self, status: u16) -> Self {
        assert_eq!(self.status, status, "wrong status; the response was {self:?}");
        self
    }

    /// Returns the body as text; invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Parses the body as JSON.
    ///
    /// # Panics
    ///
    /// Panics if the body is not valid JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("not JSON ({error}): {self:?}"))
    }

    /// Returns the text of a header; empty if it is missing or not ASCII.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        let start: String = text.chars().take(2_000).collect();
        write!(f, "{} {:?} {start}", self.status, self.headers)
    }
}

/// Percent-encodes a text for a query string or a form.
pub fn escaped(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}
