//! Server configuration, resolved once into a validated type.
//!
//! There are four layers, each overriding the one before: defaults, the file, the environment, flags.
//! [`Resolved::join`] is the only function that merges them, so that all other code gets a valid [`Config`].
//! All keys are defined in one table ([`keys`]), from which the parser, `config show`, `config reference` and
//! messages are derived.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tideline_backend_fjall::FjallOptions;
use tideline_engine::HeadBudget;
use tideline_engine::archive::{ArchiveSettings, DEFAULT_TARGET, TargetOptions, TargetPrefix};
use tideline_http::{ChangeSettings, HostPattern, HttpSettings, WebhookSettings};

mod cluster;
mod describe;
mod jwt;
pub(crate) mod keys;
mod memory;
mod secret;
mod slot;
mod sources;
mod tls;
mod token_file;

pub use cluster::{ClusterConfig, StorageEngine};
pub use describe::reference;
pub use jwt::JwtConfig;
pub use memory::MemoryPlan;
pub use secret::Secret;
pub use slot::LogFormat;
pub use sources::{Origin, Problem, Sources};
pub use tls::{ClearText, TlsConfig};
pub use token_file::TokenFile;

use crate::error::{Result, ServerError};
use sources::Given;

/// Validated configuration. [`reference`] lists the units and defaults of the keys.
#[derive(Debug, Clone)]
pub struct Config {
    /// Address to listen on. With port 0, the system chooses a free port.
    pub listen: SocketAddr,
    /// Path of the Unix socket, if the server listens on one in addition.
    pub unix_socket: Option<PathBuf>,
    /// Folder for all data, except the cold tier if `storage.cold_dir` is set.
    pub data_dir: PathBuf,
    /// True to allow listening beyond this machine without a token.
    pub insecure_public: bool,
    /// Token that clients must send, if any.
    pub token: Option<Secret>,
    /// File from which the token was read, if it was.
    pub token_file: Option<TokenFile>,
    /// Format of log lines.
    pub log_format: LogFormat,
    /// `tracing` filter of log lines.
    pub log_filter: String,
    /// Engine that stores the data.
    pub engine_kind: StorageEngine,
    /// Settings of a cluster, if it stores the data.
    pub cluster: ClusterConfig,
    /// Settings of JSON Web Tokens.
    pub jwt: JwtConfig,
    /// Settings of TLS.
    pub tls: TlsConfig,
    /// Settings of the embedded store.
    pub backend: FjallOptions,
    /// Bytes of memory for all budgets and requests. `None`: 60 % of the memory of the control group or
    /// machine.
    pub memory_max: Option<u64>,
    /// Total size of the unsealed points, in bytes, at which they are sealed. `None`: derived from the number of
    /// timelines and the memory.
    pub head_bytes_max: Option<u64>,
    /// Bytes of the journal that are kept only for change streams. `None`: a tenth of the disk of the data folder.
    pub changes_bytes_max: Option<u64>,
    /// Settings of webhooks that are checked when the server starts; the others are in [`Self::http`].
    pub webhooks: WebhookConfig,
    /// Bytes of memory for the identities of a table. `None`: half of the memory of the control group or machine.
    pub identity_bytes_max: Option<u64>,
    /// Settings of the engine. Those that depend on other keys are set by [`Self::engine_settings`].
    pub engine: tideline_engine::Settings,
    /// Settings of the archive.
    pub archive: ArchiveConfig,
    /// Settings of background work.
    pub scheduler: tideline_scheduler::Settings,
    /// Settings of the HTTP service, except the token, which is [`Self::token`].
    pub http: HttpSettings,
}

/// Settings of webhooks.
#[derive(Debug, Clone, Default)]
pub struct WebhookConfig {
    /// Names and patterns of allowed hosts.
    pub hosts: Vec<String>,
    /// File with further certificates.
    pub ca_file: Option<PathBuf>,
}

/// Settings of the archive, which stores old points as files.
#[derive(Debug, Clone)]
pub struct ArchiveConfig {
    /// Address of the target that policies name `default`.
    pub target: Option<String>,
    /// File with `name = value` lines: options of that target, including its credentials.
    pub options_file: Option<PathBuf>,
    /// Address prefixes under which requests may name targets, in addition to `target`.
    pub allowed_targets: Vec<TargetPrefix>,
    /// Bytes of memory for footers and pages of recently read files.
    pub cache_bytes: usize,
    /// Bytes of disk for footers, inside the data folder; 0 = no cache.
    pub disk_cache_bytes: u64,
}

impl Default for ArchiveConfig {
    fn default() -> Self {
        Self {
            target: None,
            options_file: None,
            allowed_targets: Vec::new(),
            cache_bytes: 64 << 20,
            disk_cache_bytes: 1 << 30,
        }
    }
}

/// Configuration with the origin of each value.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The merged configuration.
    pub config: Config,
    /// Origins by the path of the key. Keys that are not set are absent.
    origins: BTreeMap<&'static str, Origin>,
}

/// Name of the folder of all search indexes, in the data folder.
pub(crate) const INDEX_FOLDER: &str = "index";
/// Default of `server.drain_timeout`. With this default, a stop takes less than 5 s, including the time to close the
/// database.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8490)),
            unix_socket: None,
            data_dir: PathBuf::from("./tideline-data"),
            insecure_public: false,
            token: None,
            token_file: None,
            log_format: LogFormat::Text,
            log_filter: "info".to_owned(),
            engine_kind: StorageEngine::default(),
            cluster: ClusterConfig::default(),
            jwt: JwtConfig::default(),
            tls: TlsConfig::default(),
            backend: FjallOptions::default(),
            memory_max: None,
            head_bytes_max: None,
            changes_bytes_max: None,
            webhooks: WebhookConfig::default(),
            identity_bytes_max: None,
            engine: tideline_engine::Settings::new(PathBuf::new()),
            archive: ArchiveConfig::default(),
            scheduler: tideline_scheduler::Settings::default(),
            http: HttpSettings {
                drain_timeout: DRAIN_TIMEOUT,
                ..HttpSettings::default()
            },
        }
    }
}

impl Config {
    /// Returns the engine's settings, including those that depend on other keys: the index folder inside the
    /// data folder, the purge delay, budgets that fit the memory, and a new memory account.
    pub fn engine_settings(&self) -> tideline_engine::Settings {
        let mut settings = tideline_engine::Settings {
            index_dir: self.data_dir.join(INDEX_FOLDER),
            purge_delay: self.scheduler.purge_delay,
            memory: self.memory_plan().account(),
            ..self.engine.clone()
        };
        settings.store.head = self.head_budget();
        let memory = crate::memory::MemoryLimit::of_process().bytes;
        let tables = &mut settings.tables;
        tables.identity_bytes_max = self.identity_bytes_max.unwrap_or(memory / 2);
        tables.saved_search_bytes_max = tables.saved_search_bytes_max.min(memory / 32);
        settings.store.log.tail_bytes_max = self.recent_bytes_max();
        settings.rows.dictionary_bytes = self.dictionary_bytes();
        settings
    }

    /// Returns the budget of unsealed points: the configured one, or one that fits the memory.
    fn head_budget(&self) -> HeadBudget {
        match self.head_bytes_max {
            Some(bytes) => HeadBudget::fixed(usize::try_from(bytes).unwrap_or(usize::MAX)),
            None => HeadBudget::of_memory(self.memory_basis_bytes()),
        }
    }

    /// Returns the archive's settings, with its folders inside the data folder.
    ///
    /// # Errors
    ///
    /// Returns an error if the options file cannot be read or is invalid.
    pub fn archive_settings(&self) -> tideline_engine::archive::Result<ArchiveSettings> {
        let folder = self.data_dir.join("archive");
        let ArchiveConfig {
            target,
            options_file,
            allowed_targets,
            cache_bytes,
            disk_cache_bytes,
        } = &self.archive;
        let mut settings = ArchiveSettings::new(folder.join("temporary"));
        settings.footers_bytes_max = *cache_bytes / 2;
        settings.pages_bytes_max = *cache_bytes - settings.footers_bytes_max;
        settings.disk_cache = (*disk_cache_bytes > 0).then(|| (folder.join("footers"), *disk_cache_bytes));
        settings.allowed = Some(allowed_targets.clone());
        if let Some(target) = target {
            let options = options_file.as_deref().map(TargetOptions::read).transpose()?;
            let named = (target.clone(), options.unwrap_or_default());
            settings.targets.insert(DEFAULT_TARGET.to_owned(), named);
        }
        Ok(settings)
    }

    /// Returns the HTTP service's settings, with the token.
    pub fn http_settings(&self) -> HttpSettings {
        let token = self.token.as_ref().map(Secret::guarded);
        let tenth = || {
            let disk = rustix::fs::statvfs(&self.data_dir).ok()?;
            Some(disk.f_blocks.saturating_mul(disk.f_frsize) / 10)
        };
        let bytes_max = self.changes_bytes_max.or_else(tenth);
        let changes = ChangeSettings {
            bytes_max: bytes_max.unwrap_or(ChangeSettings::default().bytes_max),
            ..self.http.changes.clone()
        };
        HttpSettings {
            token,
            jwt: self.jwt.settings(),
            tls: self.tls.settings(),
            servers_ca_file: self.cluster.servers_ca_file.clone(),
            warnings: [
                self.clear_text_warning(),
                self.writable_token_file_note(),
                self.loopback_warning(),
            ]
            .into_iter()
            .flatten()
            .collect(),
            changes,
            ..self.http.clone()
        }
    }

    /// Reads the files that the configuration names for the HTTP service and for webhooks. The options file of the
    /// archive, and the password and certificate files for the connection to a cluster, are read only when the store is
    /// opened.
    ///
    /// # Errors
    ///
    /// [`ServerError::Files`] if one of them cannot be read or is not valid.
    pub fn check_files(&self) -> Result<()> {
        let checked = self.http_settings().check_files();
        let checked = checked.and_then(|()| self.webhook_settings().map(drop));
        let checked = checked.and_then(|()| {
            let archive = self.archive_settings().map(drop);
            archive.map_err(|error| format!("archive.options_file: {error}"))
        });
        checked.map_err(ServerError::Files)?;
        self.check_cluster_files()
    }

    /// Returns the settings of webhooks.
    ///
    /// # Errors
    ///
    /// A description of a host pattern that is not valid, or of a file that cannot be read.
    pub fn webhook_settings(&self) -> std::result::Result<WebhookSettings, String> {
        let hosts = self.webhooks.hosts.iter().map(|host| {
            let parsed = host.parse::<HostPattern>();
            parsed.map_err(|error| format!("webhooks.hosts: {host:?}: {error}"))
        });
        let extra_roots_pem = match &self.webhooks.ca_file {
            None => Vec::new(),
            Some(file) => {
                let read = std::fs::read(file);
                read.map_err(|error| format!("webhooks.ca_file: {}: {error}", file.display()))?
            }
        };
        Ok(WebhookSettings {
            hosts: hosts.collect::<std::result::Result<_, _>>()?,
            extra_roots_pem,
            ..self.http.changes.webhooks.clone()
        })
    }

    /// Returns true if requests must contain a token.
    pub fn requires_token(&self) -> bool {
        self.token.is_some() || self.http.hashes_file.is_some() || self.jwt.jwks_file.is_some()
    }

    /// Returns true if other machines can connect to the listen address.
    pub fn is_public(&self) -> bool {
        !self.listen.ip().to_canonical().is_loopback()
    }

    /// Returns the scheme of the addresses of the server.
    pub fn scheme(&self) -> &'static str {
        match self.tls.settings() {
            Some(_) => "https",
            None => "http",
        }
    }

    /// Returns warnings for the log about dangerous settings.
    pub fn warnings(&self) -> Vec<String> {
        let open = (self.is_public() && !self.requires_token()).then(|| {
            format!(
                "ANYONE who can connect to {} can read, write and delete everything: the server listens \
                 beyond this machine without a token (--insecure-public)",
                self.listen
            )
        });
        let off = (self.is_public() && self.tls.clear_text == Some(ClearText::Off)).then(|| {
            format!(
                "connections to {} are in clear text (http.tls = \"off\"), so tokens and data can be read on the way",
                self.listen
            )
        });
        [
            open,
            off,
            self.clear_text_warning(),
            self.writable_token_file_warning(),
            self.readable_token_file_warning(),
            self.loopback_warning(),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl Resolved {
    /// Merges the layers and validates the result. Reads the file, and the files that contain secrets.
    ///
    /// # Errors
    ///
    /// Returns [`ServerError::Config`] with all unreadable files, unknown keys and invalid values. If none of these
    /// is found, it contains the contradictions between keys: a public address without a token or TLS, OTLP lists,
    /// archive options or nodes of a cluster without effect, a user of a cluster without a password, and too little
    /// memory. It then also contains a file of the token that other users can write.
    pub fn join(sources: &Sources) -> Result<Self> {
        let mut problems = Vec::new();
        let mut resolved = Self {
            config: Config::default(),
            origins: BTreeMap::new(),
        };
        for given in sources.collect(&mut problems) {
            let Given {
                key,
                text,
                origin,
                file,
            } = given;
            let read = (key.slot)(&mut resolved.config).read(&text, key.range.clone());
            match read {
                Ok(()) => {
                    resolved.origins.insert(key.path, origin);
                    if key.is_secret {
                        resolved.config.token_file = file;
                    }
                }
                Err(reason) => problems.push(Problem::at(origin, format!("{}: {reason}", key.path))),
            }
        }
        if problems.is_empty() {
            problems.extend(resolved.unsafe_listen());
            problems.extend(resolved.writable_token_file());
            problems.extend(resolved.contradictory_promotion());
            problems.extend(resolved.unused_archive_options());
            problems.extend(resolved.unusable_cluster());
            problems.extend(resolved.incomplete_cluster_login());
            problems.extend(resolved.incomplete_jwt());
            problems.extend(resolved.unusable_tls());
            problems.extend(resolved.clear_text());
            resolved.fit_memory();
            problems.extend(resolved.too_little_memory());
        }
        match problems.is_empty() {
            true => Ok(resolved),
            false => Err(ServerError::Config { problems }),
        }
    }

    /// Returns true if no layer above the defaults sets the key with this path, such as `log.level`.
    pub fn is_default(&self, path: &str) -> bool {
        self.origin(path) == Origin::Default
    }

    /// Returns the origin of the value of a key.
    fn origin(&self, path: &str) -> Origin {
        self.origins.get(path).cloned().unwrap_or(Origin::Default)
    }

    /// Returns a problem if the list of promoted or of ignored resource attributes is set but has no effect, otherwise
    /// `None`. Prometheus refuses such a configuration too.
    fn contradictory_promotion(&self) -> Option<Problem> {
        let otlp = &self.config.http.otlp;
        let all = otlp.promote_all_resource_attributes;
        let (key, list, advice) = match all {
            true => (
                "otlp.promote_resource_attributes",
                &otlp.promote_resource_attributes,
                "has no effect if otlp.promote_all_resource_attributes is true: remove one of them",
            ),
            false => (
                "otlp.ignore_resource_attributes",
                &otlp.ignore_resource_attributes,
                "has no effect unless otlp.promote_all_resource_attributes is true: set that, or remove the list",
            ),
        };
        (!list.is_empty()).then(|| Problem::at(self.origin(key), format!("{key} {advice}")))
    }

    /// Returns a problem if there are options of an archive target, but no target; otherwise `None`.
    fn unused_archive_options(&self) -> Option<Problem> {
        let archive = &self.config.archive;
        (archive.options_file.is_some() && archive.target.is_none()).then(|| {
            let text =
                "archive.options_file has no effect without archive.target: set that, or remove the file";
            Problem::at(self.origin("archive.options_file"), text.to_owned())
        })
    }

    fn unsafe_listen(&self) -> Option<Problem> {
        let config = &self.config;
        (config.is_public() && !config.requires_token() && !config.insecure_public).then(|| {
            Problem::at(
                self.origin("server.listen"),
                format!(
                    "{} can be reached from other machines, but no token is set: set one (--token-file), listen \
                     on 127.0.0.1, or use --insecure-public",
                    config.listen
                ),
            )
        })
    }
}

#[cfg(test)]
mod tests;
