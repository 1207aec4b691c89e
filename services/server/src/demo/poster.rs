//! HTTP client of the demo, which sends line protocol and queries like any agent.
//!
//! It reaches the server in its own process, over TLS if the server has a certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use tideline_server::Secret;
use ureq::Agent;
use ureq::http::Response;
use ureq::tls::TlsConfig;

use crate::failure::{Failure, Result};

/// Client of one server. Clones share the connections.
#[derive(Debug, Clone)]
pub(crate) struct Poster {
    agent: Agent,
    base: String,
    token: Option<Secret>,
    /// Certificate of the server, if it has TLS.
    certificate_file: Option<PathBuf>,
}

/// Longest time for a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

impl Poster {
    /// Creates a client of the server of this process at `base`, such as `http://127.0.0.1:8490`.
    pub(crate) fn new(base: String, token: Option<Secret>, certificate_file: Option<PathBuf>) -> Self {
        // The server is in this process and listens on this address, so its certificate need not name the address.
        let tls = TlsConfig::builder().disable_verification(true);
        let tls = tls.unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()));
        let agent = Agent::config_builder()
            .timeout_global(Some(RESPONSE_TIMEOUT))
            .http_status_as_error(false)
            .tls_config(tls.build())
            .build()
            .new_agent();
        Self {
            agent,
            base,
            token,
            certificate_file,
        }
    }

    /// Returns the file of the server's certificate, if it has TLS.
    pub(crate) fn certificate_file(&self) -> Option<&Path> {
        self.certificate_file.as_deref()
    }

    /// Returns the URL of the server.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Returns true if the server requires a token.
    pub(crate) const fn needs_token(&self) -> bool {
        self.token.is_some()
    }

    /// Writes lines with timestamps in nanoseconds. Fails unless all were stored.
    pub(crate) fn write(&self, lines: &[u8]) -> Result<()> {
        let response = self.post("/write?precision=ns", "text/plain", "application/json", lines)?;
        match response.0 {
            204 => Ok(()),
            status => Err(self.failed("/write", format!("status {status}: {}", response.1))),
        }
    }

    /// Sends a query in JSON. Fails unless the status is 200.
    pub(crate) fn query(&self, path: &str, accept: &str, query: &str) -> Result<String> {
        match self.post(path, "application/json", accept, query.as_bytes())? {
            (200, response) => Ok(response),
            (status, response) => Err(self.failed(path, format!("status {status}: {response}"))),
        }
    }

    fn post(&self, path: &str, content_type: &str, accept: &str, body: &[u8]) -> Result<(u16, String)> {
        let mut request = self
            .agent
            .post(format!("{}{path}", self.base))
            .header("content-type", content_type)
            .header("accept", accept);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {}", token.expose()));
        }
        let read = |response: Response<ureq::Body>| {
            let status = response.status().as_u16();
            Ok((status, response.into_body().read_to_string()?))
        };
        let response = request.send(body).and_then(read);
        response.map_err(|error| self.failed(path, error.to_string()))
    }

    fn failed(&self, path: &str, reason: String) -> Failure {
        Failure::Request {
            method: "POST",
            url: format!("{}{path}", self.base),
            reason,
        }
    }
}
