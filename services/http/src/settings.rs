//! What can be set about the HTTP service: plain values with unit and default.

use std::fmt;
use std::time::Duration;

use tideline_prometheus::Settings as PrometheusSettings;
use tideline_query::QuerySettings;

use tideline_connections::Network;

/// Settings of [`serve`](crate::serve).
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// The token that requests must bear; `None` lets everybody in. `/health`, `/ready`, `/ping` and their kin of Prometheus never ask.
    pub token: Option<Secret>,
    /// Hosts, beside loopback ones, that requests may name in `Host`, without ports; `*` admits every host. Empty: with a
    /// token every host, without one none. Default empty.
    pub hosts: Vec<String>,
    /// Proxies in front: the client that they name in `Forwarded` or `X-Forwarded-For` counts for shares and logs. Default empty.
    pub trusted_proxies: Vec<Network>,
    /// Bytes of a request body as sent. Default 32 MiB.
    pub body_bytes_max: usize,
    /// Bytes of a request body after decompression. Default 128 MiB.
    pub decoded_body_bytes_max: usize,
    /// Bytes of all request bodies that are held at once, compressed and decompressed. A request beyond it is
    /// refused as overload. Default 256 MiB.
    pub bodies_in_flight_bytes_max: usize,
    /// Bytes of a JSON request that is not a write. Default 1 MiB.
    pub request_bytes_max: usize,
    /// How long a request head may take to arrive, from its first byte, and a new connection to send that. Default 10 s.
    pub header_timeout: Duration,
    /// How long a connection may lie idle between requests. Default 60 s.
    pub idle_timeout: Duration,
    /// How long a body may make no progress. A body must also keep up [`Self::body_bytes_per_second_min`] beyond
    /// this time. Default 10 s.
    pub body_timeout: Duration,
    /// The slowest body that is read to its end, in bytes a second. Default 4 KiB.
    pub body_bytes_per_second_min: u64,
    /// How long a client may not take any of the answer before it is cut off. Default 30 s.
    pub answer_timeout: Duration,
    /// The slowest client that may read an answer to its end, in bytes a second while bytes wait for it, averaged over
    /// [`Self::answer_timeout`]. Default 4 KiB.
    pub answer_bytes_per_second_min: u64,
    /// Connections held at once. At the limit the one that has been idle longest is closed for a new one; where all are busy, a
    /// few more are accepted for health checks and metrics only. Default 10,000.
    pub connections_max: usize,
    /// Writes that are decoded and committed at once, each on a thread. Default 32.
    pub writes_in_flight_max: usize,
    /// Queries and searches that run at once, each on a thread, but for queries of cold points. Default 16.
    pub queries_in_flight_max: usize,
    /// Watches that are open at once. Default 2,048.
    pub watches_max: usize,
    /// Bytes a second that all watches together send, so that they leave the cores to writers. A watch that falls behind by
    /// more than the writes that are kept for it ends. Default 256 MiB.
    pub watch_bytes_per_second_max: u64,
    /// Threads and limits of queries; at most 64 of cold points run at once.
    pub query: QuerySettings,
    /// How Prometheus' API answers.
    pub prometheus: PrometheusSettings,
    /// How long a request waits for its turn before it is refused as overload. Default 5 s.
    pub turn_timeout: Duration,
    /// How long requests may take to finish after the shutdown signal. Default 4 s.
    pub drain_timeout: Duration,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            token: None,
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
            watch_bytes_per_second_max: 256 << 20,
            query: QuerySettings::default(),
            prometheus: PrometheusSettings::default(),
            turn_timeout: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(4),
        }
    }
}

/// A text that no log, error or debug form shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// The text is too short to be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a token has at least {} characters and no blanks", Secret::LENGTH_MIN)]
pub struct WeakSecret;

impl Secret {
    /// The shortest secret, in bytes.
    pub const LENGTH_MIN: usize = 16;

    /// Takes a secret; an empty, short or blank one is refused.
    pub fn new(secret: impl Into<String>) -> Result<Self, WeakSecret> {
        let secret = secret.into();
        if secret.len() < Self::LENGTH_MIN || secret.contains(char::is_whitespace) {
            return Err(WeakSecret);
        }
        Ok(Self(secret))
    }

    /// Whether `claimed` is this secret. Takes as long for every claim of the right length.
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
