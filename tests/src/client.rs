//! A client that takes every answer as an answer: statuses are data, only a broken connection is an error.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use ureq::http::{HeaderMap, Method, Request, StatusCode};

/// The longest that one request may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);
/// The largest answer that is read.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// Speaks to one server, over connections that it keeps. Clones share them.
#[derive(Debug, Clone)]
pub struct Client {
    agent: ureq::Agent,
    address: SocketAddr,
    token: Option<String>,
}

/// No answer: refused, reset, or too late. The outcome of what was asked is unknown.
#[derive(Debug, thiserror::Error)]
#[error("{method} {path} got no answer: {source}")]
pub struct NoAnswer {
    method: String,
    path: String,
    source: Box<ureq::Error>,
}

/// An answer.
#[derive(Clone)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, as it came.
    pub body: Vec<u8>,
}

impl Client {
    /// Speaks to the server at `address`.
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

    /// The same, with a bearer token in every request.
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// Where it speaks to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// One request. `path` begins with a slash and may hold a query.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response, NoAnswer> {
        self.try_send(method, path, headers, body)
            .map_err(|source| NoAnswer {
                method: method.to_owned(),
                path: path.to_owned(),
                source: Box::new(source),
            })
    }

    /// `GET path`.
    ///
    /// # Panics
    ///
    /// When there is no answer.
    pub fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], b"")
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// `POST path` with a JSON body.
    ///
    /// # Panics
    ///
    /// When there is no answer.
    pub fn post_json(&self, path: &str, body: &Value) -> Response {
        let headers = [("content-type", "application/json")];
        self.send("POST", path, &headers, body.to_string().as_bytes())
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// `POST path` with lines of InfluxDB's line protocol.
    ///
    /// # Panics
    ///
    /// When there is no answer.
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
        let answer = if has_body {
            let request = request.body(body)?;
            self.agent.run(request)?
        } else {
            self.agent.run(request.body(())?)?
        };
        let (parts, mut body) = answer.into_parts();
        let body = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        Ok(Response {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        })
    }
}

impl Response {
    /// Whether the status is of the 2xx.
    pub fn is_success(&self) -> bool {
        StatusCode::from_u16(self.status).is_ok_and(|status| status.is_success())
    }

    /// The same answer, when it has this status.
    ///
    /// # Panics
    ///
    /// When it has another.
    #[track_caller]
    pub fn expect_status(self, status: u16) -> Self {
        assert_eq!(self.status, status, "wrong status; the answer was {self:?}");
        self
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    ///
    /// When it is none.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }

    /// A header's text; empty when it is missing.
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

/// A text as a part of a query or a form.
pub fn escaped(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}
