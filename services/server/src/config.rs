//! What can be set about a server, resolved once into a checked type.
//!
//! Four layers, each stronger than the one before: defaults, the file, the environment, flags. [`Resolved::join`]
//! is the only place that joins them; everything behind it sees a [`Config`] that is right. All keys stand in one
//! table ([`keys`]), which the parser, `config show`, `config reference` and the messages are made from.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tideline_backend_fjall::FjallOptions;
use tideline_engine::HeadBudget;
use tideline_engine::archive::{ArchiveSettings, DEFAULT_TARGET, TargetOptions, TargetPrefix};
use tideline_http::HttpSettings;

mod describe;
pub(crate) mod keys;
mod memory;
mod secret;
mod slot;
mod sources;

pub use describe::reference;
pub use memory::MemoryPlan;
pub use secret::Secret;
pub use slot::LogFormat;
pub use sources::{Origin, Problem, Sources};

use crate::error::{Result, ServerError};
use sources::Given;

/// A checked configuration. Units and defaults are those of the keys; see [`reference`].
#[derive(Debug, Clone)]
pub struct Config {
    /// Where it listens. Port 0 lets the system choose one.
    pub listen: SocketAddr,
    /// The folder that everything is kept in.
    pub data_dir: PathBuf,
    /// Listens beyond this machine although nobody has to show a token.
    pub insecure_public: bool,
    /// What a client must show, if anything.
    pub token: Option<Secret>,
    /// How log lines look.
    pub log_format: LogFormat,
    /// Which log lines are written, as a `tracing` filter.
    pub log_filter: String,
    /// The embedded store.
    pub backend: FjallOptions,
    /// Bytes of memory that budgets and requests may take together. `None`: 60 % of what the system grants.
    pub memory_max: Option<u64>,
    /// Bytes of unsealed points at which they are sealed. `None`: as many as timelines and memory suggest.
    pub head_bytes_max: Option<u64>,
    /// Bytes that the identities of a table take in memory. `None`: half of the memory.
    pub identity_bytes_max: Option<u64>,
    /// The engine, but for the folder of its index, which follows [`Self::data_dir`], and the budget of its head, which
    /// follows [`Self::head_bytes_max`].
    pub engine: tideline_engine::Settings,
    /// The archive.
    pub archive: ArchiveConfig,
    /// The work in the background.
    pub scheduler: tideline_scheduler::Settings,
    /// The HTTP service, but for the token, which is [`Self::token`].
    pub http: HttpSettings,
}

/// Where old points go that leave the store for files.
#[derive(Debug, Clone)]
pub struct ArchiveConfig {
    /// The address of the target that policies call `default`.
    pub target: Option<String>,
    /// A file with `name = value` lines: options of that target, its credentials among them.
    pub options_file: Option<PathBuf>,
    /// Addresses below which requests may name targets, besides `target`.
    pub allowed_targets: Vec<TargetPrefix>,
    /// Memory for footers and pages of files that were read lately.
    pub cache_bytes: usize,
    /// Disk for footers, inside the data folder.
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

/// A configuration that says where each value comes from.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// What holds.
    pub config: Config,
    /// By the path of the key; keys at their default are absent.
    origins: BTreeMap<&'static str, Origin>,
}

/// How long a stopping server waits for requests that run. With the time to close it stays below 5 s.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8490)),
            data_dir: PathBuf::from("./tideline-data"),
            insecure_public: false,
            token: None,
            log_format: LogFormat::Text,
            log_filter: "info".to_owned(),
            backend: FjallOptions::default(),
            memory_max: None,
            head_bytes_max: None,
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
    /// The engine's settings, with the index inside the data folder, the delay of background work, a budget of
    /// unsealed points that fits the memory, and a new memory account.
    pub fn engine_settings(&self) -> tideline_engine::Settings {
        let mut settings = tideline_engine::Settings {
            index_dir: self.data_dir.join("index"),
            purge_delay: self.scheduler.purge_delay,
            memory: self.memory_plan().account(),
            ..self.engine.clone()
        };
        settings.store.head = self.head_budget();
        let half = crate::memory::MemoryLimit::of_process().bytes / 2;
        settings.tables.identity_bytes_max = self.identity_bytes_max.unwrap_or(half);
        settings.store.log.tail_bytes_max = self.recent_bytes_max();
        settings
    }

    /// The budget of unsealed points: what is set, else what fits the memory.
    fn head_budget(&self) -> HeadBudget {
        match self.head_bytes_max {
            Some(bytes) => HeadBudget::fixed(usize::try_from(bytes).unwrap_or(usize::MAX)),
            None => HeadBudget::of_memory(self.memory_basis_bytes()),
        }
    }

    /// The archive's settings, with its folders inside the data folder.
    ///
    /// # Errors
    ///
    /// Where the file of options cannot be read.
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

    /// The HTTP service's settings, with the token.
    pub fn http_settings(&self) -> HttpSettings {
        let token = self.token.as_ref().map(Secret::guarded);
        HttpSettings {
            token,
            ..self.http.clone()
        }
    }

    /// Whether somebody on another machine could reach it.
    pub fn is_public(&self) -> bool {
        !self.listen.ip().to_canonical().is_loopback()
    }

    /// What holds although it is dangerous, for the log.
    pub fn warning(&self) -> Option<String> {
        (self.is_public() && self.token.is_none()).then(|| {
            format!(
                "ANYONE who reaches {} can read, write and delete everything: it listens beyond this machine \
                 without a token (--insecure-public)",
                self.listen
            )
        })
    }
}

impl Resolved {
    /// Joins the layers and checks the result. Reads the file, and the files that hold secrets.
    ///
    /// Every problem is found and reported, not only the first.
    pub fn join(sources: &Sources) -> Result<Self> {
        let mut problems = Vec::new();
        let mut resolved = Self {
            config: Config::default(),
            origins: BTreeMap::new(),
        };
        for given in sources.collect(&mut problems) {
            let Given { key, text, origin } = given;
            let read = (key.slot)(&mut resolved.config).read(&text, key.range.clone());
            match read {
                Ok(()) => {
                    resolved.origins.insert(key.path, origin);
                }
                Err(reason) => problems.push(Problem::at(origin, format!("{}: {reason}", key.path))),
            }
        }
        if problems.is_empty() {
            problems.extend(resolved.unsafe_listen());
            resolved.fit_memory();
            problems.extend(resolved.too_little_memory());
        }
        match problems.is_empty() {
            true => Ok(resolved),
            false => Err(ServerError::Config { problems }),
        }
    }

    /// Whether nobody has set the key with this path, such as `log.level`.
    pub fn is_default(&self, path: &str) -> bool {
        self.origin(path) == Origin::Default
    }

    /// Where the value of a key comes from.
    fn origin(&self, path: &str) -> Origin {
        self.origins.get(path).cloned().unwrap_or(Origin::Default)
    }

    fn unsafe_listen(&self) -> Option<Problem> {
        let config = &self.config;
        (config.is_public() && config.token.is_none() && !config.insecure_public).then(|| {
            Problem::at(
                self.origin("server.listen"),
                format!(
                    "{} can be reached from other machines, but no token is set: set one (--token-file), listen \
                     on 127.0.0.1, or say --insecure-public",
                    config.listen
                ),
            )
        })
    }
}

#[cfg(test)]
mod tests;
