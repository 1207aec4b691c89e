//! Settings of a cluster that stores the data instead of the data folder.
//!
//! They exist in every build, so that a build without the engine refuses them with a reason.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tideline_engine::backend::Acknowledged;

use super::sources::{Origin, Problem};
use super::{Config, Resolved};
use crate::error::ServerError;

/// Engine that stores the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StorageEngine {
    /// The embedded engine, in the data folder.
    #[default]
    Fjall,
    /// A Cassandra or ScyllaDB cluster.
    Cassandra,
}

impl StorageEngine {
    /// Returns the name used in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fjall => "fjall",
            Self::Cassandra => "cassandra",
        }
    }
}

impl FromStr for StorageEngine {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        [Self::Fjall, Self::Cassandra]
            .into_iter()
            .find(|engine| engine.name() == name)
            .ok_or_else(|| format!("{name:?} is neither fjall nor cassandra"))
    }
}

/// Parses `synced` or `replicated`.
pub(super) fn acknowledged_of_name(name: &str) -> Result<Acknowledged, String> {
    [Acknowledged::Synced, Acknowledged::Replicated]
        .into_iter()
        .find(|acknowledged| acknowledged.name() == name)
        .ok_or_else(|| format!("{name:?} is neither synced nor replicated"))
}

/// Settings of a cluster.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// Addresses of some nodes.
    pub contact: Vec<String>,
    /// Keyspace of the tables.
    pub keyspace: String,
    /// Data center whose nodes are used.
    pub data_center: Option<String>,
    /// Name of the user.
    pub user: Option<String>,
    /// File with the password of the user.
    pub password_file: Option<PathBuf>,
    /// True for encrypted connections.
    pub is_tls: bool,
    /// File with certificates of authorities.
    pub ca_file: Option<PathBuf>,
    /// Minimum durability of an acknowledged write.
    pub acknowledged: Acknowledged,
    /// Time after which a lease that is not renewed ends.
    pub lease: Duration,
    /// Address of this server for other processes.
    pub advertise: Option<String>,
    /// File with certificates of the authorities of the other servers.
    pub servers_ca_file: Option<PathBuf>,
    /// Longest time of one request.
    pub request_timeout: Duration,
    /// Longest time of a call with its repeated requests.
    pub call_timeout: Duration,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            contact: Vec::new(),
            keyspace: "tideline".to_owned(),
            data_center: None,
            user: None,
            password_file: None,
            is_tls: false,
            ca_file: None,
            acknowledged: Acknowledged::Synced,
            lease: Duration::from_secs(4),
            advertise: None,
            servers_ca_file: None,
            request_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(10),
        }
    }
}

impl Config {
    /// Returns the address at which other processes reach this server: the configured address, or `listen`, the address
    /// on which the server listens. The result begins with `https://` if the server has TLS.
    pub fn advertised(&self, listen: SocketAddr) -> String {
        let set = self.cluster.advertise.clone();
        let address = set.unwrap_or_else(|| listen.to_string());
        match self.tls.settings() {
            Some(_) => format!("https://{address}"),
            None => address,
        }
    }
}

impl Config {
    /// Returns a warning if the address for other processes is set to one that other machines cannot reach, although
    /// nodes of the cluster are on other machines.
    pub(super) fn loopback_warning(&self) -> Option<String> {
        let advertise = self.cluster.advertise.as_ref()?;
        (self.has_remote_nodes() && is_loopback(advertise)).then(|| {
            format!(
                "other machines cannot reach cassandra.advertise = {advertise:?}, so all processes with this keyspace \
                 must run on this machine"
            )
        })
    }

    /// Returns true if the data is in a cluster with nodes on other machines.
    fn has_remote_nodes(&self) -> bool {
        let mut contact = self.cluster.contact.iter();
        self.engine_kind == StorageEngine::Cassandra && contact.any(|node| !is_loopback(node))
    }

    /// Reads the files of the connections to the cluster, if the data is stored there.
    ///
    /// # Errors
    ///
    /// [`ServerError::Files`] if one of them cannot be read or is not valid.
    #[cfg(feature = "cassandra")]
    pub(super) fn check_cluster_files(&self) -> crate::error::Result<()> {
        if self.engine_kind != StorageEngine::Cassandra {
            return Ok(());
        }
        let at = |key: &str, error: &dyn std::fmt::Display| ServerError::Files(format!("{key}: {error}"));
        let options = crate::cluster::options(self).map_err(|error| at("cassandra.password_file", &error))?;
        options
            .check_files()
            .map_err(|error| at("cassandra.ca_file", &error))
    }

    /// There are no files, because this build has no connections to a cluster.
    #[cfg(not(feature = "cassandra"))]
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "as in builds with a cluster"
    )]
    pub(super) fn check_cluster_files(&self) -> crate::error::Result<()> {
        Ok(())
    }
}

impl Resolved {
    /// Checks the settings that only a server needs: other processes of a cluster must reach this one.
    ///
    /// # Errors
    ///
    /// [`ServerError::Config`] if the server advertises its listen address, which other machines cannot reach, although
    /// nodes of the cluster are on other machines.
    pub fn check_server(&self) -> crate::error::Result<()> {
        let config = &self.config;
        let listen = config.listen;
        let is_reached = config.cluster.advertise.is_some() || !listen.ip().to_canonical().is_loopback();
        if is_reached || !config.has_remote_nodes() {
            return Ok(());
        }
        let text = format!(
            "cassandra.advertise: processes on other machines cannot reach {listen}: set the address and port of this \
             machine, such as db-1:8490, and a listen address that they can reach (--listen); if all processes run on \
             this machine, set it to {listen}"
        );
        Err(ServerError::Config {
            problems: vec![Problem::at(self.origin("cassandra.advertise"), text)],
        })
    }

    /// Returns a problem if a flag sets a key of the cluster, or nodes are named, although the data folder stores the
    /// data.
    fn unused_cluster(&self) -> Option<Problem> {
        let is_flag = |key: &&str| matches!(self.origin(key), Origin::Flag(_));
        let flag = ["cassandra.contact", "cassandra.keyspace"]
            .into_iter()
            .find(is_flag);
        let has_contact = !self.config.cluster.contact.is_empty();
        let key = flag.or_else(|| has_contact.then_some("cassandra.contact"))?;
        let text = format!(
            "{key} has no effect unless storage.backend is \"cassandra\": add --backend cassandra to store the data in \
             the cluster, or remove the setting to store it in server.data_dir"
        );
        Some(Problem::at(self.origin(key), text))
    }

    /// Returns a problem if the settings of a cluster contradict each other.
    pub(super) fn unusable_cluster(&self) -> Option<Problem> {
        let cluster = &self.config.cluster;
        if self.config.engine_kind != StorageEngine::Cassandra {
            return self.unused_cluster();
        }
        let problem = |key: &'static str, text: String| Some(Problem::at(self.origin(key), text));
        if cfg!(not(feature = "cassandra")) {
            return problem(
                "storage.backend",
                "storage.backend: this build has no engine cassandra; build it with the feature cassandra"
                    .to_owned(),
            );
        }
        if cluster.contact.is_empty() {
            return problem(
                "cassandra.contact",
                "cassandra.contact: name some nodes of the cluster (--contact host1,host2)".to_owned(),
            );
        }
        if self.config.listen.ip().is_unspecified() && cluster.advertise.is_none() {
            return problem(
                "cassandra.advertise",
                format!(
                    "cassandra.advertise: other processes cannot reach {}; set the address and port of this machine",
                    self.config.listen
                ),
            );
        }
        if cluster.advertise.is_none() && !self.is_default("cassandra.advertise") {
            return problem(
                "cassandra.advertise",
                "cassandra.advertise is empty: set the address and port of this machine, such as db-1:8490, or remove \
                 the setting to use server.listen"
                    .to_owned(),
            );
        }
        if cluster.is_tls && cfg!(not(feature = "cassandra-tls")) {
            return problem(
                "cassandra.tls",
                "cassandra.tls: this build has no encrypted connections to a cluster; build it with the feature \
                 cassandra-tls"
                    .to_owned(),
            );
        }
        None
    }

    /// Returns a problem if only the user or only the password for a cluster is set.
    pub(super) fn incomplete_cluster_login(&self) -> Option<Problem> {
        let cluster = &self.config.cluster;
        if self.config.engine_kind != StorageEngine::Cassandra {
            return None;
        }
        let (key, missing) = match (&cluster.user, &cluster.password_file) {
            (Some(_), None) => ("cassandra.user", "cassandra.password_file"),
            (None, Some(_)) => ("cassandra.password_file", "cassandra.user"),
            _ => return None,
        };
        let text = format!("{key} needs {missing}: set both, or remove {key}");
        Some(Problem::at(self.origin(key), text))
    }
}

/// Returns true if the host of an address, with or without a port, is this machine.
fn is_loopback(address: &str) -> bool {
    let is_own = |ip: IpAddr| ip.to_canonical().is_loopback();
    if let Ok(ip) = address.parse() {
        return is_own(ip);
    }
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(is_own)
}
