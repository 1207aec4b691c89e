//! Settings of the HTTP service.
//!
//! They are plain values with units and defaults; the server fills them from its configuration.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tideline_access::jwt::JwtSettings;
use tideline_change_stream::ChangeSettings;
use tideline_ingest::protocols::prometheus::OtlpSettings;
use tideline_prometheus::Settings as PrometheusSettings;
use tideline_query::QuerySettings;

use tideline_connections::TrustedProxy;

use crate::hashes_file::HashesFile;
use crate::jwks_file::JwksFile;
use crate::tls_files::{AuthoritiesFile, TlsFiles};

/// Settings of [`serve`](crate::serve).
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// Token with the role `admin`. Requests must contain this token or another valid one. Without this token,
    /// [`Self::hashes_file`] and [`Self::jwt`], requests need no token.
    /// `/health`, `/ready`, `/ping`, and at the root `/-/healthy` and `/-/ready`, never require a token.
    pub token: Option<Secret>,
    /// File of token hashes. With it, requests must contain a token. Default `None`.
    pub hashes_file: Option<PathBuf>,
    /// Tokens of an identity provider. With them, requests must contain a token. Default `None`.
    pub jwt: Option<JwtFileSettings>,
    /// Certificate and key of the listener. They are read again when they change. `None`: connections in clear text.
    pub tls: Option<TlsSettings>,
    /// File (PEM) with the authorities of the other servers of a cluster, which this server trusts when it forwards
    /// requests to one with TLS. It is read again when it changes. `None`: only the certificates of [`Self::tls`] are
    /// trusted, so that all servers can share one.
    pub servers_ca_file: Option<PathBuf>,
    /// Warnings about the configuration, which `/ready` lists in addition to its reasons. Default empty.
    pub warnings: Vec<String>,
    /// True if the guide and the OpenAPI document can be read without a token. Default true.
    pub are_pages_open: bool,
    /// Hosts, without ports, that requests may name in `Host` in addition to loopback hosts; `*` allows every
    /// host. If the list is empty, every host is allowed with a token, and only loopback hosts without a token.
    /// Default empty.
    pub hosts: Vec<String>,
    /// Trusted proxies. The client that they name in `Forwarded` or `X-Forwarded-For` is used for fair shares and in
    /// the log. Default empty.
    pub trusted_proxies: Vec<TrustedProxy>,
    /// Maximum size of a request body as sent, in bytes. Default 32 MiB.
    pub body_bytes_max: usize,
    /// Maximum size of a request body after decompression, in bytes. Default 128 MiB.
    pub decoded_body_bytes_max: usize,
    /// Maximum size of all request bodies held at once, compressed and decompressed, in bytes. Requests over the limit
    /// are refused as overload. Default 256 MiB.
    pub bodies_in_flight_bytes_max: usize,
    /// Maximum size of the body of a request that is not a write, as sent and after decompression, in bytes.
    /// Default 1 MiB.
    pub request_bytes_max: usize,
    /// Longest time from the first byte of a request head to its end, and from a new connection to its first byte.
    /// Default 10 s.
    pub header_timeout: Duration,
    /// Longest idle time of a connection between requests. Default 60 s.
    pub idle_timeout: Duration,
    /// Longest time without progress of a request body. A body may take longer in total only if it arrives at
    /// [`Self::body_bytes_per_second_min`] or more. Default 10 s.
    pub body_timeout: Duration,
    /// Lowest rate of a request body, in bytes per second; [`Self::body_timeout`] is granted in addition. Slower bodies
    /// are refused. Default 4 KiB.
    pub body_bytes_per_second_min: u64,
    /// Longest time in which a client reads no byte of a response before the connection is closed. Default 30 s.
    pub answer_timeout: Duration,
    /// Lowest rate at which a client may read a response, in bytes per second while bytes are pending, averaged over
    /// [`Self::answer_timeout`]. Slower connections are closed. Default 4 KiB.
    pub answer_bytes_per_second_min: u64,
    /// Maximum number of open connections. At the limit, an idle connection is closed for a new one. If no idle
    /// connection can be closed, a few more connections are accepted, only for health checks and metrics.
    /// Default 10,000.
    pub connections_max: usize,
    /// Maximum number of concurrent writes, each on a thread. Small writes do not count while they wait for their commit.
    /// Default 32.
    pub writes_in_flight_max: usize,
    /// Maximum number of concurrent queries and searches, each on a thread. Queries of cold points and requests for
    /// rows in cold or archived parts have a separate limit. Default 16.
    pub queries_in_flight_max: usize,
    /// Maximum number of open watches. Default 2,048.
    pub watches_max: usize,
    /// Maximum number of open watches of feeds and inboxes, and of requests that wait for messages. Default 8,192.
    pub feed_watches_max: usize,
    /// Maximum number of bytes per second that all watches send together. The limit leaves processor time to
    /// writers. A watch ends if it falls behind by more than the writes kept in memory. Default 256 MiB.
    pub watch_bytes_per_second_max: u64,
    /// Threads and limits of queries. The service admits at most 64 + `cold_waiting_max` concurrent queries of cold
    /// points and requests for rows in cold or archived parts.
    pub query: QuerySettings,
    /// Settings of change streams.
    pub changes: ChangeSettings,
    /// Settings of the Prometheus API.
    pub prometheus: PrometheusSettings,
    /// Settings of the translation of OTLP metrics, except the interval of `target_info`, which is half of the lookback
    /// of [`Self::prometheus`].
    pub otlp: OtlpSettings,
    /// Longest time that a request waits for a permit before it is refused as overload. Default 5 s.
    pub turn_timeout: Duration,
    /// Longest time that running requests may take after the shutdown signal. Default 4 s.
    pub drain_timeout: Duration,
}

/// Files of the certificate and of the key of the listener, as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// File of the certificate, with the certificates of intermediate authorities after it.
    pub certificate_file: PathBuf,
    /// File of the private key.
    pub key_file: PathBuf,
}

/// Settings of JSON Web Tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtFileSettings {
    /// File with the public keys of the identity provider (JWKS).
    pub jwks_file: PathBuf,
    /// Requirements of the tokens, and the claims with roles and scope.
    pub claims: JwtSettings,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            token: None,
            hashes_file: None,
            jwt: None,
            tls: None,
            servers_ca_file: None,
            warnings: Vec::new(),
            are_pages_open: true,
            hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            body_bytes_max: 32 << 20,
            decoded_body_bytes_max: 128 << 20,
            bodies_in_flight_bytes_max: 256 << 20,
            request_bytes_max: 1 << 20,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(10),
            body_bytes_per_second_min: 4 << 10,
            answer_timeout: Duration::from_secs(30),
            answer_bytes_per_second_min: 4 << 10,
            connections_max: 10_000,
            writes_in_flight_max: 32,
            queries_in_flight_max: 16,
            watches_max: 2_048,
            feed_watches_max: 8_192,
            watch_bytes_per_second_max: 256 << 20,
            query: QuerySettings::default(),
            changes: ChangeSettings::default(),
            prometheus: PrometheusSettings::default(),
            otlp: OtlpSettings::default(),
            turn_timeout: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(4),
        }
    }
}

impl HttpSettings {
    /// Reads the files that the settings name: token hashes, keys of an identity provider, certificates. A standby reads
    /// the first two only when it takes over the data.
    ///
    /// # Errors
    ///
    /// Returns the reason if one of them cannot be read, can be written by other users, or is not valid.
    pub fn check_files(&self) -> Result<(), String> {
        self.hashes_file.as_deref().map(HashesFile::open).transpose()?;
        if let Some(jwt) = &self.jwt {
            JwksFile::open(&jwt.jwks_file, jwt.claims.clone())?;
        }
        self.tls.as_ref().map(TlsFiles::open).transpose()?;
        AuthoritiesFile::open(self).map(drop)
    }

    /// Returns true if requests must contain a token.
    pub fn requires_token(&self) -> bool {
        self.token.is_some() || self.hashes_file.is_some() || self.jwt.is_some()
    }

    /// Returns the settings of OTLP with the interval of `target_info`, which is half of the lookback delta. As
    /// in Prometheus, a query at the time of a point then finds a sample of `target_info`.
    pub(crate) fn otlp_settings(&self) -> OtlpSettings {
        OtlpSettings {
            target_info_interval: self.prometheus.lookback_delta / 2,
            ..self.otlp.clone()
        }
    }
}

/// Secret text that is never shown in logs, errors or debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Error: the text is not a valid secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a token needs at least {} characters and no white space", Secret::LENGTH_MIN)]
pub struct WeakSecret;

impl Secret {
    /// Length of the shortest secret, in bytes.
    pub const LENGTH_MIN: usize = 16;

    /// Creates a secret.
    ///
    /// # Errors
    ///
    /// Returns [`WeakSecret`] if the text has fewer than [`Self::LENGTH_MIN`] bytes or contains white space.
    pub fn new(secret: impl Into<String>) -> Result<Self, WeakSecret> {
        let secret = secret.into();
        if secret.len() < Self::LENGTH_MIN || secret.contains(char::is_whitespace) {
            return Err(WeakSecret);
        }
        Ok(Self(secret))
    }

    /// Returns true if `claimed` is this secret. Runs in constant time for all texts of the right length.
    pub(crate) fn is(&self, claimed: &str) -> bool {
        use subtle::ConstantTimeEq;
        self.0.as_bytes().ct_eq(claimed.as_bytes()).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_long_and_never_shown() {
        assert_eq!(Secret::new("short"), Err(WeakSecret));
        assert_eq!(Secret::new("with blanks in the midst"), Err(WeakSecret));
        let settings = HttpSettings {
            token: Some(Secret::new("0123456789abcdef").expect("long enough")),
            ..HttpSettings::default()
        };
        assert!(!format!("{settings:?}").contains("0123"));
        let token = settings.token.expect("just set");
        assert!(token.is("0123456789abcdef") && !token.is("0123456789abcdeg") && !token.is(""));
    }
}
