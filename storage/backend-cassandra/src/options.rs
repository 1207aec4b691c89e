//! Settings of a connection to a cluster.
//!
//! The server resolves them from its configuration; the defaults fit a cluster in one data center.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tideline_backend::Acknowledged;

use crate::tls;

/// Settings of a connection to a cluster.
#[derive(Clone)]
pub struct CassandraOptions {
    /// Addresses of some nodes, as `host` or `host:port`; the driver finds the other nodes. At least one.
    pub contact: Vec<String>,
    /// Keyspace of the tables.
    pub keyspace: String,
    /// Data center whose nodes are used. `None`: the only one; several are refused.
    pub data_center: Option<String>,
    /// Name of the user; `None` if the cluster requires none.
    pub user: Option<String>,
    /// Password of the user.
    pub password: Option<String>,
    /// True for encrypted connections.
    pub is_tls: bool,
    /// File with certificates (PEM) of the authorities of the nodes. `None`: the authorities of the system.
    pub ca_file: Option<PathBuf>,
    /// Minimum durability of an acknowledged write. `Synced` needs nodes that sync their commit log before they
    /// answer; with default settings, a node syncs it every ten seconds.
    pub acknowledged: Acknowledged,
    /// Time for which this process owns the shard without a renewal. After a crash, another process takes the shard
    /// over after a quarter more than this time.
    pub lease: Duration,
    /// Address at which other processes reach the HTTP service of this process; stored with the lease.
    pub advertise: String,
    /// Longest time of one request to the cluster.
    pub request_timeout: Duration,
    /// Longest time of a call with all its repeated requests.
    pub call_timeout: Duration,
    /// Number of requests that one call keeps in flight.
    pub requests_in_flight: usize,
}

impl Default for CassandraOptions {
    fn default() -> Self {
        Self {
            contact: Vec::new(),
            keyspace: "tideline".to_owned(),
            data_center: None,
            user: None,
            password: None,
            is_tls: false,
            ca_file: None,
            acknowledged: Acknowledged::Synced,
            lease: Duration::from_secs(4),
            advertise: String::new(),
            request_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(10),
            requests_in_flight: 16,
        }
    }
}

impl CassandraOptions {
    /// Reads the file of certificate authorities, if the connections are encrypted.
    ///
    /// # Errors
    ///
    /// [`BackendError::Misconfigured`](tideline_backend::BackendError::Misconfigured) if the file cannot be read, holds
    /// no valid certificate, or if this build has no encrypted connections.
    pub fn check_files(&self) -> tideline_backend::Result<()> {
        match self.is_tls {
            true => tls::check(self.ca_file.as_deref()),
            false => Ok(()),
        }
    }
}

impl fmt::Debug for CassandraOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CassandraOptions")
            .field("contact", &self.contact)
            .field("keyspace", &self.keyspace)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "(masked)"))
            .finish_non_exhaustive()
    }
}

/// Replication of a new keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replication {
    /// The same number of copies without regard to data centers, for one data center or a test.
    Simple(u8),
    /// Number of copies in each named data center.
    DataCenters(Vec<(String, u8)>),
}

impl FromStr for Replication {
    type Err = String;

    /// Parses `3`, or `dc1:3,dc2:3`.
    fn from_str(text: &str) -> Result<Self, String> {
        let copies = |text: &str| match text.parse::<u8>() {
            Ok(copies @ 1..) => Ok(copies),
            _ => Err(format!("{text:?} is not a number of copies from 1 to 255")),
        };
        if !text.contains(':') {
            return copies(text).map(Self::Simple);
        }
        let centers = text.split(',').map(|part| match part.split_once(':') {
            Some((name, count)) if is_name(name) => Ok((name.to_owned(), copies(count)?)),
            _ => Err(format!("{part:?} is not DATA_CENTRE:COPIES")),
        });
        centers.collect::<Result<_, _>>().map(Self::DataCenters)
    }
}

/// Returns true for names that need no quotes and cannot end a quoted text.
pub(crate) fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=48).contains(&text.len()) && text.bytes().all(is_plain)
}

/// Returns true for names of keyspaces that can be used in statements without quotes.
pub(crate) fn is_keyspace(text: &str) -> bool {
    is_name(text)
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replication_is_a_number_or_a_list_of_data_centres() {
        assert_eq!("3".parse(), Ok(Replication::Simple(3)));
        let two = vec![("east".to_owned(), 3), ("west".to_owned(), 2)];
        assert_eq!("east:3,west:2".parse(), Ok(Replication::DataCenters(two)));
        for wrong in ["", "0", "256", "east", "east:0", "a'b:3", ":3"] {
            assert!(wrong.parse::<Replication>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn keyspaces_are_plain_names() {
        for right in ["tideline", "t1", "a_b"] {
            assert!(is_keyspace(right), "{right}");
        }
        for wrong in ["", "1a", "Tideline", "a b", "a\"b", &"x".repeat(49)] {
            assert!(!is_keyspace(wrong), "{wrong}");
        }
    }
}
