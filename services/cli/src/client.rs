//! HTTP client of a running server. All requests of the command line are sent through this client.
//!
//! Most bodies are JSON; forms, points, rows and values of rows have other formats. The client passes unknown JSON
//! members through and leaves their validation to the server, so that it works with servers of other versions.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use serde_json::Value;
use ureq::http::Response;
use ureq::tls::TlsConfig;
use ureq::{Agent, Body, SendBody};

mod profile;
mod tls;
mod unix;

use crate::error::{CliError, Refusal, Result};
pub use profile::bytes;
pub(crate) use profile::{ConnectionArguments, TableArguments, duration};

/// Longest time to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size, in bytes, of a response that is read as a whole. Exceptions are the responses limited by
/// [`REFUSAL_BYTES_MAX`], and successful responses to `post_within`.
pub(crate) const RESPONSE_BYTES_MAX: u64 = 1 << 30;
/// Maximum size, in bytes, of any response to `fetch`, `post_once` and `write`, and of an error response to
/// `post_within`, `get_value`, `page`, `stream`, `get_stream` and `stream_typed`.
const REFUSAL_BYTES_MAX: u64 = 4 << 20;

/// Client of one server, with the table that table commands apply to. Clones share the connections.
#[derive(Clone)]
pub(crate) struct Client {
    agent: Agent,
    /// The server as the user has given it: a URL, or the path of a Unix socket after `unix:`.
    base: String,
    /// Beginning of the URLs of requests.
    origin: String,
    authorization: Option<String>,
    table: String,
}

/// Page of rows. In CSV and Arrow, response headers contain the number of rows and the token of the next page. In
/// NDJSON, the last line contains both.
pub(crate) struct RowPage {
    pub(crate) bytes: Vec<u8>,
    /// Number of rows, from the header `Tideline-Returned`; 0 without it.
    pub(crate) rows: u64,
    /// Token of the next page, from the header `Tideline-Next`; `None` without it.
    pub(crate) next: Option<String>,
}

/// Value of a row, read as a stream.
pub(crate) struct ValueResponse {
    /// Checksum of the whole value.
    pub(crate) checksum: String,
    /// True if the response has the requested range, and not the whole value.
    pub(crate) is_partial: bool,
    /// True if the value is text.
    pub(crate) is_text: bool,
    pub(crate) reader: Box<dyn Read>,
}

/// Response with any status, read as a whole.
pub(crate) struct BufferedResponse {
    pub(crate) status: u16,
    /// Value of the header `Retry-After`; `None` if it is missing or not a number of seconds.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) text: String,
}

impl Client {
    /// Creates a client. `silence_max` is the longest time without a byte sent or received, at any point of a
    /// request.
    fn new(
        base: String,
        tls: TlsConfig,
        token: Option<&str>,
        table: String,
        connections: usize,
        silence_max: Duration,
    ) -> Self {
        let connect_timeout = CONNECT_TIMEOUT.min(silence_max);
        let config = Agent::config_builder()
            // A proxy from the environment would also receive requests to this machine, with the token.
            .proxy(None)
            .tls_config(tls)
            .timeout_connect(Some(connect_timeout))
            .timeout_recv_response(Some(silence_max))
            .timeout_per_read(Some(silence_max))
            .timeout_per_write(Some(silence_max))
            .max_idle_connections(connections)
            .max_idle_connections_per_host(connections)
            .http_status_as_error(false)
            .build();
        let (agent, origin) = match base.strip_prefix(unix::PREFIX) {
            Some(path) => {
                let connector = unix::UnixConnector(path.into());
                let agent = Agent::with_parts(config, connector, unix::NoResolver);
                (agent, unix::ORIGIN.to_owned())
            }
            None => (config.new_agent(), base.clone()),
        };
        Self {
            agent,
            base,
            origin,
            authorization: token.map(|token| format!("Bearer {token}")),
            table,
        }
    }

    /// Returns the server as the user has given it, for messages.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Returns the name of the table that table commands apply to.
    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    /// Returns the path of a resource of the table. `rest` is the part after the table's name.
    pub(crate) fn of_table(&self, rest: &str) -> String {
        format!("/v1/tables/{}{rest}", encoded(&self.table))
    }

    /// Sends GET and returns the body of a successful response.
    pub(crate) fn get(&self, path: &str) -> Result<String> {
        let request = self.signed(self.agent.get(self.url(path)));
        self.text_of(request.header("accept", "application/json").call())
    }

    /// Sends GET and returns the response, whatever its status.
    pub(crate) fn fetch(&self, path: &str) -> Result<BufferedResponse> {
        let request = self.signed(self.agent.get(self.url(path)));
        let response = request.call().map_err(|error| self.unreachable(&error))?;
        self.read(response, REFUSAL_BYTES_MAX)
    }

    /// Sends POST with a JSON body and returns the body of a successful response.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<String> {
        let request = self.signed(self.agent.post(self.url(path)));
        let request = request
            .header("content-type", "application/json")
            .header("accept", "application/json");
        self.text_of(request.send(body.to_string()))
    }

    /// Sends POST like [`post`](Self::post). Returns `None` if a successful response is longer than
    /// `bytes_max`.
    pub(crate) fn post_within(&self, path: &str, body: &Value, bytes_max: u64) -> Result<Option<String>> {
        let request = self.signed(self.agent.post(self.url(path)));
        let request = request
            .header("content-type", "application/json")
            .header("accept", "application/json");
        let response = request
            .send(body.to_string())
            .map_err(|error| self.unreachable(&error))?;
        if !response.status().is_success() {
            return Err(self.refusal(&self.read(response, REFUSAL_BYTES_MAX)?));
        }
        let body = response.into_body().into_with_config().limit(bytes_max);
        match body.read_to_string() {
            Ok(text) => Ok(Some(text)),
            Err(ureq::Error::BodyExceedsLimit(_)) => Ok(None),
            Err(error) => Err(self.unreachable(&error)),
        }
    }

    /// Sends PATCH with a JSON body and returns the body of a successful response.
    pub(crate) fn patch(&self, path: &str, body: &Value) -> Result<String> {
        self.patch_text(path, &body.to_string())
    }

    /// Sends PATCH with a body that is JSON text and returns the body of a successful response.
    pub(crate) fn patch_text(&self, path: &str, body: &str) -> Result<String> {
        let request = self.signed(self.agent.patch(self.url(path)));
        self.text_of(request.header("content-type", "application/json").send(body))
    }

    /// Sends PUT with a JSON body and returns the body of a successful response.
    pub(crate) fn put(&self, path: &str, body: &Value) -> Result<String> {
        let request = self.signed(self.agent.put(self.url(path)));
        let request = request.header("content-type", "application/json");
        self.text_of(request.send(body.to_string()))
    }

    /// Sends PUT with a body from a stream and returns the body of a successful response. `length` is the length of the
    /// stream, if it is known.
    pub(crate) fn put_stream(
        &self,
        path: &str,
        content_type: &str,
        length: Option<u64>,
        input: &mut dyn Read,
    ) -> Result<String> {
        let mut request = self.signed(self.agent.put(self.url(path)));
        request = request.header("content-type", content_type);
        if let Some(length) = length {
            request = request.header("content-length", length.to_string());
        }
        let mut input = input;
        self.text_of(request.send(SendBody::from_reader(&mut input)))
    }

    /// Requests a value of a row, or a range of it. With `tag`, the server returns the range only if the value still
    /// has this `ETag`; otherwise it returns the whole value.
    pub(crate) fn get_value(
        &self,
        path: &str,
        range: Option<&str>,
        tag: Option<&str>,
    ) -> Result<ValueResponse> {
        let mut request = self.signed(self.agent.get(self.url(path)));
        for (name, value) in [("range", range), ("if-range", tag)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let response = request.call().map_err(|error| self.unreachable(&error))?;
        if !response.status().is_success() {
            return Err(self.refusal(&self.read(response, REFUSAL_BYTES_MAX)?));
        }
        let header = |name: &str| {
            let value = response.headers().get(name);
            value.and_then(|value| value.to_str().ok()).unwrap_or_default()
        };
        Ok(ValueResponse {
            checksum: header("etag").trim_matches('"').to_owned(),
            is_partial: response.status().as_u16() == 206,
            is_text: !header("content-type").starts_with("application/octet-stream"),
            reader: Box::new(response.into_body().into_with_config().limit(u64::MAX).reader()),
        })
    }

    /// Sends POST with a form and returns the body of a successful response.
    pub(crate) fn form(&self, path: &str, fields: &[(&str, &str)]) -> Result<String> {
        let request = self.signed(self.agent.post(self.url(path)));
        let fields: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{name}={}", encoded(value)))
            .collect();
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        self.text_of(request.send(fields.join("&")))
    }

    /// Sends DELETE and returns the body of a successful response.
    pub(crate) fn delete(&self, path: &str) -> Result<String> {
        self.text_of(self.signed(self.agent.delete(self.url(path))).call())
    }

    /// Sends POST with a body that is JSON text and returns the body of a successful response.
    pub(crate) fn post_text(&self, path: &str, body: &str) -> Result<String> {
        let request = self.signed(self.agent.post(self.url(path)));
        let request = request
            .header("content-type", "application/json")
            .header("accept", "application/json");
        self.text_of(request.send(body))
    }

    /// Sends POST with a body that is JSON text and returns the response, whatever its status.
    pub(crate) fn post_once(&self, path: &str, body: &str) -> Result<BufferedResponse> {
        let request = self.signed(self.agent.post(self.url(path)));
        let request = request.header("content-type", "application/json");
        let response = request.send(body).map_err(|error| self.unreachable(&error))?;
        self.read(response, REFUSAL_BYTES_MAX)
    }

    /// Sends POST with lines of JSON and returns the body of a successful response.
    pub(crate) fn post_lines(&self, path: &str, lines: &str) -> Result<String> {
        let request = self.signed(self.agent.post(self.url(path)));
        self.text_of(request.header("content-type", "application/x-ndjson").send(lines))
    }

    /// Requests a page of rows.
    pub(crate) fn page(&self, path: &str, accept: &str, body: &str) -> Result<RowPage> {
        let request = self.signed(self.agent.post(self.url(path)));
        let request = request
            .header("content-type", "application/json")
            .header("accept", accept);
        let response = request.send(body).map_err(|error| self.unreachable(&error))?;
        if !response.status().is_success() {
            return Err(self.refusal(&self.read(response, REFUSAL_BYTES_MAX)?));
        }
        let header = |name: &str| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
        let (rows, next) = (header("tideline-returned"), header("tideline-next"));
        let body = response.into_body().into_with_config().limit(RESPONSE_BYTES_MAX);
        Ok(RowPage {
            bytes: body.read_to_vec().map_err(|error| self.unreachable(&error))?,
            rows: rows.and_then(|rows| rows.parse().ok()).unwrap_or_default(),
            next,
        })
    }

    /// Sends POST with a JSON body and returns a reader of the successful response's body.
    pub(crate) fn stream(&self, path: &str, accept: &str, body: &str) -> Result<impl Read + use<>> {
        let (_, reader) = self.stream_typed(path, accept, body)?;
        Ok(reader)
    }

    /// Sends GET and returns a reader of the successful response's body.
    pub(crate) fn get_stream(&self, path: &str, accept: &str) -> Result<impl Read + use<>> {
        let request = self
            .signed(self.agent.get(self.url(path)))
            .header("accept", accept);
        let response = request.call().map_err(|error| self.unreachable(&error))?;
        Ok(self.opened(response)?.1)
    }

    /// Sends POST like [`stream`](Self::stream), and returns the content type too.
    pub(crate) fn stream_typed(
        &self,
        path: &str,
        accept: &str,
        body: &str,
    ) -> Result<(String, impl Read + use<>)> {
        let request = self.signed(self.agent.post(self.url(path)));
        let request = request
            .header("content-type", "application/json")
            .header("accept", accept);
        let response = request.send(body).map_err(|error| self.unreachable(&error))?;
        self.opened(response)
    }

    /// Returns the content type and a reader of the body of a successful response.
    fn opened(&self, response: Response<Body>) -> Result<(String, impl Read + use<>)> {
        if !response.status().is_success() {
            return Err(self.refusal(&self.read(response, REFUSAL_BYTES_MAX)?));
        }
        let content_type = response.headers().get("content-type");
        let content_type = content_type.and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_owned();
        let reader = response.into_body().into_with_config().limit(u64::MAX).reader();
        Ok((content_type, reader))
    }

    /// Sends points and returns the response, whatever its status. After an error, the points may or may not be stored.
    pub(crate) fn write(
        &self,
        path: &str,
        content_type: &str,
        key: &str,
        body: &[u8],
    ) -> Result<BufferedResponse> {
        let request = self.signed(self.agent.post(self.url(path)));
        let request = request
            .header("content-type", content_type)
            .header("idempotency-key", key);
        let response = request.send(body).map_err(|error| self.unreachable(&error))?;
        self.read(response, REFUSAL_BYTES_MAX)
    }

    /// Parses a response body as JSON.
    pub(crate) fn parse(&self, text: &str) -> Result<Value> {
        serde_json::from_str(text).map_err(|error| self.strange(&error.to_string()))
    }

    /// Converts an error response into an error with the server's code and message.
    pub(crate) fn refusal(&self, response: &BufferedResponse) -> CliError {
        let body: Value = serde_json::from_str(&response.text).unwrap_or_default();
        let text = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
        // Routes of the Prometheus API use other member names.
        let message = text("message").or_else(|| text("error"));
        let message = message.unwrap_or_else(|| match response.text.trim() {
            "" => format!("{} sent an error without a message", self.base),
            other => other.chars().take(1_000).collect(),
        });
        CliError::Refused(Box::new(Refusal {
            status: response.status,
            code: text("code").or_else(|| text("errorType")).unwrap_or_default(),
            message,
            retryable: body["retryable"] == true,
            field: text("field"),
            request_id: text("request_id"),
            is_of_rows: false,
        }))
    }

    /// Returns the error for a response that is invalid, incomplete or too large.
    pub(crate) fn strange(&self, reason: &str) -> CliError {
        CliError::Strange {
            server: self.base.clone(),
            reason: reason.to_owned(),
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.origin)
    }

    fn signed<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.authorization {
            Some(value) => request.header("authorization", value),
            None => request,
        }
    }

    fn text_of(&self, response: std::result::Result<Response<Body>, ureq::Error>) -> Result<String> {
        let response = response.map_err(|error| self.unreachable(&error))?;
        let is_success = response.status().is_success();
        let response = self.read(response, RESPONSE_BYTES_MAX)?;
        if is_success {
            Ok(response.text)
        } else {
            Err(self.refusal(&response))
        }
    }

    fn read(&self, response: Response<Body>, bytes_max: u64) -> Result<BufferedResponse> {
        let retry_after = response.headers().get("retry-after");
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let status = response.status().as_u16();
        let body = response.into_body().into_with_config().limit(bytes_max);
        let text = body.read_to_string().map_err(|error| self.unreachable(&error))?;
        Ok(BufferedResponse {
            status,
            retry_after: retry_after.map(Duration::from_secs),
            text,
        })
    }

    fn unreachable(&self, error: &ureq::Error) -> CliError {
        if let Some(reason) = tls::failure(error) {
            return CliError::Tls {
                server: self.base.clone(),
                reason,
            };
        }
        let is_refused =
            matches!(error, ureq::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused);
        let reason = match is_refused {
            true => {
                "connection refused; choose a server by --server, TIDELINE_SERVER or a profile".to_owned()
            }
            false => error.to_string(),
        };
        CliError::Unreachable {
            server: self.base.clone(),
            reason,
        }
    }
}

/// Percent-encodes a text as a part of a path or query string.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fit_into_paths() {
        assert_eq!(encoded("a-b_c.d~1"), "a-b_c.d~1");
        assert_eq!(encoded("a/b ?ü"), "a%2Fb%20%3F%C3%BC");
    }
}
