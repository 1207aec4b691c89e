//! A client of a running server: the one place of the command line that speaks HTTP to it.
//!
//! Questions and answers are plain JSON: what the server knows and this binary does not is passed on, and refused by
//! whoever understands it.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use serde_json::Value;
use ureq::http::Response;
use ureq::tls::TlsConfig;
use ureq::{Agent, Body};

mod profile;
mod tls;

use crate::error::{CliError, Refusal, Result};
pub(crate) use profile::{ConnectionArguments, TableArguments, duration};

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of an answer that is read as a whole.
pub(crate) const ANSWER_BYTES_MAX: u64 = 1 << 30;
/// Most bytes of an answer that says what went wrong.
const REFUSAL_BYTES_MAX: u64 = 4 << 20;

/// A client of one server and, where a command is about one, of a table. Clones share its connections.
#[derive(Clone)]
pub(crate) struct Client {
    agent: Agent,
    base: String,
    authorization: Option<String>,
    table: String,
}

/// An answer that was read: a success or not.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Seconds of the header `Retry-After`.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) text: String,
}

impl Client {
    /// `silence_max`: how long the server may take no byte and send none, at whatever point of a request.
    fn new(
        base: String,
        tls: TlsConfig,
        token: Option<&str>,
        table: String,
        connections: usize,
        silence_max: Duration,
    ) -> Self {
        let connect_timeout = CONNECT_TIMEOUT.min(silence_max);
        let agent = Agent::config_builder()
            // A proxy of the environment would be asked for servers of this machine too, and see the token.
            .proxy(None)
            .tls_config(tls)
            .timeout_connect(Some(connect_timeout))
            .timeout_recv_response(Some(silence_max))
            .timeout_per_read(Some(silence_max))
            .timeout_per_write(Some(silence_max))
            .max_idle_connections(connections)
            .max_idle_connections_per_host(connections)
            .http_status_as_error(false)
            .build()
            .new_agent();
        Self {
            agent,
            base,
            authorization: token.map(|token| format!("Bearer {token}")),
            table,
        }
    }

    /// Where the server is.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// The table that commands are about.
    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    /// The path of something of the table.
    pub(crate) fn of_table(&self, rest: &str) -> String {
        format!("/v1/tables/{}{rest}", encoded(&self.table))
    }

    /// Reads what is there; the text of the answer.
    pub(crate) fn get(&self, path: &str) -> Result<String> {
        let request = self.signed(self.agent.get(self.url(path)));
        self.text_of(request.header("accept", "application/json").call())
    }

    /// Reads what is there, whatever its status.
    pub(crate) fn ask(&self, path: &str) -> Result<Answer> {
        let request = self.signed(self.agent.get(self.url(path)));
        let answer = request.call().map_err(|error| self.unreachable(&error))?;
        self.read(answer, REFUSAL_BYTES_MAX)
    }

    /// Asks for something, with a body.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<String> {
        let request = self.signed(self.agent.post(self.url(path)));
        let request = request
            .header("content-type", "application/json")
            .header("accept", "application/json");
        self.text_of(request.send(body.to_string()))
    }

    /// Asks for an answer of at most so many bytes; `None` when it is longer.
    pub(crate) fn post_within(&self, path: &str, body: &Value, bytes_max: u64) -> Result<Option<String>> {
        let request = self.signed(self.agent.post(self.url(path)));
        let request = request
            .header("content-type", "application/json")
            .header("accept", "application/json");
        let answer = request
            .send(body.to_string())
            .map_err(|error| self.unreachable(&error))?;
        if !answer.status().is_success() {
            return Err(self.refusal(&self.read(answer, REFUSAL_BYTES_MAX)?));
        }
        let body = answer.into_body().into_with_config().limit(bytes_max);
        match body.read_to_string() {
            Ok(text) => Ok(Some(text)),
            Err(ureq::Error::BodyExceedsLimit(_)) => Ok(None),
            Err(error) => Err(self.unreachable(&error)),
        }
    }

    /// Changes something.
    pub(crate) fn patch(&self, path: &str, body: &Value) -> Result<String> {
        let request = self.signed(self.agent.patch(self.url(path)));
        self.text_of(
            request
                .header("content-type", "application/json")
                .send(body.to_string()),
        )
    }

    /// Puts something in its place.
    pub(crate) fn put(&self, path: &str, body: &Value) -> Result<String> {
        let request = self.signed(self.agent.put(self.url(path)));
        let request = request.header("content-type", "application/json");
        self.text_of(request.send(body.to_string()))
    }

    /// Sends a form.
    pub(crate) fn form(&self, path: &str, fields: &[(&str, &str)]) -> Result<String> {
        let request = self.signed(self.agent.post(self.url(path)));
        let fields: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{name}={}", encoded(value)))
            .collect();
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        self.text_of(request.send(fields.join("&")))
    }

    /// Takes something away.
    pub(crate) fn delete(&self, path: &str) -> Result<String> {
        self.text_of(self.signed(self.agent.delete(self.url(path))).call())
    }

    /// Asks, and hands out the answer as it comes.
    pub(crate) fn stream(&self, path: &str, accept: &str, body: &str) -> Result<impl Read + use<>> {
        let request = self.signed(self.agent.post(self.url(path)));
        let request = request
            .header("content-type", "application/json")
            .header("accept", accept);
        let answer = request.send(body).map_err(|error| self.unreachable(&error))?;
        if !answer.status().is_success() {
            return Err(self.refusal(&self.read(answer, REFUSAL_BYTES_MAX)?));
        }
        Ok(answer.into_body().into_with_config().limit(u64::MAX).reader())
    }

    /// Sends points. Whatever the server answers is an answer; an error means that its outcome is unknown.
    pub(crate) fn write(&self, path: &str, content_type: &str, key: &str, body: &[u8]) -> Result<Answer> {
        let request = self.signed(self.agent.post(self.url(path)));
        let request = request
            .header("content-type", content_type)
            .header("idempotency-key", key);
        let answer = request.send(body).map_err(|error| self.unreachable(&error))?;
        self.read(answer, REFUSAL_BYTES_MAX)
    }

    /// Reads an answer as JSON.
    pub(crate) fn parse(&self, text: &str) -> Result<Value> {
        serde_json::from_str(text).map_err(|error| self.strange(&error.to_string()))
    }

    /// An error answer in its own words.
    pub(crate) fn refusal(&self, answer: &Answer) -> CliError {
        let body: Value = serde_json::from_str(&answer.text).unwrap_or_default();
        let text = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
        // Prometheus' routes have other names for the same.
        let message = text("message").or_else(|| text("error"));
        let message = message.unwrap_or_else(|| match answer.text.trim() {
            "" => format!("{} answered without a word", self.base),
            other => other.chars().take(1_000).collect(),
        });
        CliError::Refused(Box::new(Refusal {
            status: answer.status,
            code: text("code").or_else(|| text("errorType")).unwrap_or_default(),
            message,
            retryable: body["retryable"] == true,
            field: text("field"),
            request_id: text("request_id"),
        }))
    }

    /// An answer that cannot be understood.
    pub(crate) fn strange(&self, reason: &str) -> CliError {
        CliError::Strange {
            server: self.base.clone(),
            reason: reason.to_owned(),
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn signed<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.authorization {
            Some(value) => request.header("authorization", value),
            None => request,
        }
    }

    fn text_of(&self, answer: std::result::Result<Response<Body>, ureq::Error>) -> Result<String> {
        let answer = answer.map_err(|error| self.unreachable(&error))?;
        let is_success = answer.status().is_success();
        let answer = self.read(answer, ANSWER_BYTES_MAX)?;
        if is_success {
            Ok(answer.text)
        } else {
            Err(self.refusal(&answer))
        }
    }

    fn read(&self, answer: Response<Body>, bytes_max: u64) -> Result<Answer> {
        let retry_after = answer.headers().get("retry-after");
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let status = answer.status().as_u16();
        let body = answer.into_body().into_with_config().limit(bytes_max);
        let text = body.read_to_string().map_err(|error| self.unreachable(&error))?;
        Ok(Answer {
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
        let is_nobody =
            matches!(error, ureq::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused);
        let reason = match is_nobody {
            true => {
                "nobody listens there; --server, TIDELINE_SERVER or a profile names another server".to_owned()
            }
            false => error.to_string(),
        };
        CliError::Unreachable {
            server: self.base.clone(),
            reason,
        }
    }
}

/// A text as a part of a path or of a query string.
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
