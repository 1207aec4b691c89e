//! The one table of all keys.

use super::Config;
use super::slot::{Range, Slot};
use super::sources::ENVIRONMENT_PREFIX;

/// Something that can be set.
#[derive(Debug)]
pub(crate) struct Key {
    /// `section.name`.
    pub(crate) path: &'static str,
    /// What it means.
    pub(crate) about: &'static str,
    /// Where its value stands.
    pub(crate) slot: fn(&mut Config) -> Slot<'_>,
    /// What it may be: in bytes, in pieces, or in milliseconds.
    pub(crate) range: Range,
    /// Whether a flag of the command line sets it.
    pub(crate) has_flag: bool,
    /// Whether its value is masked, and may stand in a file of its own.
    pub(crate) is_secret: bool,
}

impl Key {
    const fn new(path: &'static str, about: &'static str, slot: fn(&mut Config) -> Slot<'_>) -> Self {
        Self {
            path,
            about,
            slot,
            range: 0..=u64::MAX,
            has_flag: false,
            is_secret: false,
        }
    }

    const fn flagged(self) -> Self {
        Self {
            has_flag: true,
            ..self
        }
    }

    const fn secret(self) -> Self {
        Self {
            is_secret: true,
            ..self
        }
    }

    const fn within(self, least: u64, most: u64) -> Self {
        Self {
            range: least..=most,
            ..self
        }
    }

    /// The section it stands in.
    pub(crate) fn section(&self) -> &'static str {
        self.path.split_once('.').map_or("", |(section, _)| section)
    }

    /// Its name inside its section.
    pub(crate) fn name(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(_, name)| name)
    }

    /// The variable that sets it.
    pub(crate) fn variable(&self) -> String {
        format!(
            "{ENVIRONMENT_PREFIX}{}",
            self.path.to_ascii_uppercase().replace('.', "__")
        )
    }

    /// The flag that sets it, where [`Self::has_flag`]. A secret is never on a command line, where others see it.
    pub(crate) fn flag(&self) -> String {
        let file = if self.is_secret { "-file" } else { "" };
        format!("--{}{file}", self.name().replace('_', "-"))
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const HOUR_MILLIS: u64 = 3_600_000;

/// All keys, in the order of the reference; the keys of a section stand together.
pub(crate) const KEYS: &[Key] = &[
    Key::new(
        "server.listen",
        "Where it listens. Beyond 127.0.0.1 a token is needed; see auth.token.",
        |config| Slot::Address(&mut config.listen),
    )
    .flagged(),
    Key::new(
        "server.data_dir",
        "The folder that everything is kept in. It is made if it is missing. One process uses it at a time.",
        |config| Slot::Path(&mut config.data_dir),
    )
    .flagged(),
    Key::new(
        "server.insecure_public",
        "Listen beyond this machine although no token is set. Whoever reaches the port may then do everything.",
        |config| Slot::Switch(&mut config.insecure_public),
    )
    .flagged(),
    Key::new(
        "server.drain_timeout",
        "How long a stopping server waits for requests that run. Closing takes at most 1.5 s more.",
        |config| Slot::Duration(&mut config.http.drain_timeout),
    )
    .within(0, HOUR_MILLIS),
    Key::new(
        "auth.token",
        "What clients must show, as `Authorization: Bearer TOKEN`: at least 16 letters, digits or -._~+/=.\n\
         Better kept in a file of its own, which token_file names. Not set: nobody has to show anything.",
        |config| Slot::Secret(&mut config.token),
    )
    .flagged()
    .secret(),
    Key::new(
        "log.format",
        "How log lines look. They go to standard error.",
        |config| Slot::LogFormat(&mut config.log_format),
    ),
    Key::new(
        "log.level",
        "Which log lines are written.",
        |config| Slot::LogFilter(&mut config.log_filter),
    ),
    Key::new(
        "memory.max",
        "Memory that budgets and requests may take together. The budgets below (heads twice, bodies, points that wait,\n\
         caches) are set aside; requests share the rest, and one that finds no room fails: 503, or 422 where it alone is too\n\
         large. Writes go on. Budgets that are not set are lowered to fit a small value. Not set: 60 % of what the control\n\
         group or the machine grants.",
        |config| Slot::OptionalBytes64(&mut config.memory_max),
    )
    .within(64 * MIB, u64::MAX),
    Key::new(
        "http.hosts",
        "Host names and addresses, besides those of loopback, that requests may name in their Host header; `*` admits all.\n\
         Not set: any host where a token is set, otherwise loopback only, so that no web page can reach the server by DNS rebinding.",
        |config| Slot::Hosts(&mut config.http.hosts),
    ),
    Key::new(
        "http.trusted_proxies",
        "Addresses and networks of proxies in front, such as `10.0.0.0/8`. The client that they name in `Forwarded` or `X-Forwarded-For`\n\
         counts for fair shares and in the log; from any other address these headers are ignored.",
        |config| Slot::Networks(&mut config.http.trusted_proxies),
    ),
    Key::new(
        "http.body_bytes_max",
        "Largest request body, as sent.",
        |config| Slot::Bytes(&mut config.http.body_bytes_max),
    )
    .within(KIB, u64::MAX),
    Key::new(
        "http.decoded_body_bytes_max",
        "Largest request body after decompression.",
        |config| Slot::Bytes(&mut config.http.decoded_body_bytes_max),
    )
    .within(KIB, u64::MAX),
    Key::new(
        "http.bodies_in_flight_bytes_max",
        "All request bodies that are held at once; a request beyond it is refused as overload.",
        |config| Slot::Bytes(&mut config.http.bodies_in_flight_bytes_max),
    )
    .within(MIB, u64::MAX),
    Key::new(
        "http.request_bytes_max",
        "Largest JSON request that is not a write.",
        |config| Slot::Bytes(&mut config.http.request_bytes_max),
    )
    .within(KIB, u64::MAX),
    Key::new(
        "http.header_timeout",
        "How long a request head may take to arrive, and a new connection to send its first byte.",
        |config| Slot::Duration(&mut config.http.header_timeout),
    )
    .within(100, HOUR_MILLIS),
    Key::new(
        "http.idle_timeout",
        "How long a connection may lie idle between requests.",
        |config| Slot::Duration(&mut config.http.idle_timeout),
    )
    .within(100, HOUR_MILLIS),
    Key::new(
        "http.body_timeout",
        "How long a request body may make no progress.",
        |config| Slot::Duration(&mut config.http.body_timeout),
    )
    .within(100, HOUR_MILLIS),
    Key::new(
        "http.body_bytes_per_second_min",
        "The slowest request body that is read to its end, each second.",
        |config| Slot::Bytes64(&mut config.http.body_bytes_per_second_min),
    ),
    Key::new(
        "http.answer_timeout",
        "How long a client may take nothing of an answer before it is cut off.",
        |config| Slot::Duration(&mut config.http.answer_timeout),
    )
    .within(100, HOUR_MILLIS),
    Key::new(
        "http.answer_bytes_per_second_min",
        "The slowest client that may read an answer to its end, each second in which bytes wait for it, averaged over\n\
         answer_timeout. A slower one is cut off and its query ends.",
        |config| Slot::Bytes64(&mut config.http.answer_bytes_per_second_min),
    ),
    Key::new(
        "http.connections_max",
        "Connections held at once. At the limit the one that has been idle longest is closed for a new one. Lower where the\n\
         process may open few files.",
        |config| Slot::Count(&mut config.http.connections_max),
    )
    .within(1, 1_000_000),
    Key::new(
        "http.writes_in_flight_max",
        "Writes that are decoded and committed at once, each on a thread.",
        |config| Slot::Count(&mut config.http.writes_in_flight_max),
    )
    .within(1, 256),
    Key::new(
        "http.queries_in_flight_max",
        "Queries and searches that run at once, each on a thread.",
        |config| Slot::Count(&mut config.http.queries_in_flight_max),
    )
    .within(1, 256),
    Key::new(
        "http.watches_max",
        "Watches of tables (server-sent events) that are open at once.",
        |config| Slot::Count(&mut config.http.watches_max),
    )
    .within(0, 100_000),
    Key::new(
        "http.watch_bytes_per_second_max",
        "What all watches together send a second, in turn, so that they leave the cores to writers. Watches that fall behind\n\
         by more than the newest writes that are kept for them end and can begin anew.",
        |config| Slot::Bytes64(&mut config.http.watch_bytes_per_second_max),
    ),
    Key::new(
        "http.turn_timeout",
        "How long a request waits for its turn before it is refused as overload.",
        |config| Slot::Duration(&mut config.http.turn_timeout),
    )
    .within(0, HOUR_MILLIS),
    Key::new(
        "storage.head_bytes_max",
        "Unsealed points in memory at which they are sealed. Memory peaks near twice this.\n\
         Not set: 80 MiB, or 256 bytes for each timeline among them where that is more, but at most an eighth of the\n\
         memory that the control group or the machine grants, or 5/24 of memory.max.",
        |config| Slot::OptionalBytes64(&mut config.head_bytes_max),
    )
    .within(MIB, u64::MAX),
    Key::new(
        "storage.head_age_max",
        "Age of the oldest unsealed point at which all are sealed: bounds what a restart reads again.",
        |config| Slot::Duration(&mut config.engine.store.head_age_max),
    )
    .within(1_000, 168 * HOUR_MILLIS),
    Key::new(
        "storage.pending_bytes_max",
        "Decoded points that may wait to be written; beyond it writes are refused as overload.",
        |config| Slot::Bytes(&mut config.engine.store.log.pending_bytes_max),
    )
    .within(MIB, u64::MAX),
    Key::new(
        "storage.cache_bytes",
        "Cache of sealed blocks in the hot tier.",
        |config| Slot::Bytes64(&mut config.backend.cache_bytes),
    ),
    Key::new(
        "storage.cold_cache_bytes",
        "Cache of blocks in the cold tier. It is apart, so that reading old points leaves the hot cache alone.",
        |config| Slot::Bytes64(&mut config.backend.cold_cache_bytes),
    ),
    Key::new(
        "storage.cold_dir",
        "The folder of the cold tier, so that it may lie on another disk. It must be there; better not the mount\n\
         point itself but a folder in it, so that a disk that is not mounted is noticed. Not set: `cold` inside\n\
         server.data_dir. To move it: stop, move the folder with all that is in it, and set this.",
        |config| Slot::OptionalPath(&mut config.backend.cold_dir),
    ),
    Key::new(
        "storage.series_cache_bytes",
        "Cache of timelines by the text that names them in a write, for each table.",
        |config| Slot::Bytes(&mut config.engine.raw_key_cache_bytes),
    ),
    Key::new(
        "storage.free_bytes_min",
        "Free space of a disk below which it takes no more: writes, or moves to the cold tier. They resume when space\n\
         returns.",
        |config| Slot::Bytes64(&mut config.backend.free_bytes_min),
    ),
    Key::new(
        "storage.free_per_mille_min",
        "The same, in thousandths of the disk; the larger of both holds.",
        |config| Slot::Count64(&mut config.backend.free_per_mille_min),
    )
    .within(0, 1_000),
    Key::new(
        "storage.worker_threads",
        "Threads that flush and compact the hot tier; the cold one has one of its own.",
        |config| Slot::Count(&mut config.backend.worker_threads),
    )
    .within(1, 64),
    Key::new(
        "storage.open_files_max",
        "Most files that the store keeps open, a third of them for the cold tier.",
        |config| Slot::Count(&mut config.backend.open_files_max),
    )
    .within(64, 1_000_000),
    Key::new(
        "storage.accept_loss",
        "Start although writes that had been acknowledged are missing from the folder: an operator's decision,\n\
         for one start. A damaged log is cut at the damage; `lost` in the folder keeps it, with a report.",
        |config| Slot::Switch(&mut config.backend.accept_loss),
    ),
    Key::new(
        "storage.request_ttl",
        "How long the outcome of a request with an idempotency key is remembered.",
        |config| Slot::Duration(&mut config.engine.store.log.request_ttl),
    )
    .within(1_000, 168 * HOUR_MILLIS),
    Key::new(
        "storage.requests_max",
        "Most such outcomes that are remembered, oldest dropped first.",
        |config| Slot::Count(&mut config.engine.store.log.requests_max),
    ),
    Key::new(
        "tables.count_max",
        "Tables; a further one is refused.",
        |config| Slot::Count(&mut config.engine.tables.tables_max),
    )
    .within(1, 1_000_000),
    Key::new(
        "tables.timelines_per_minute",
        "New timelines that a table takes in a minute; further ones are refused as retryable. The default is twice what 100,000\n\
         machines with 100 series each bring when all send for the first time. A table's policy may set its own.",
        |config| Slot::Count64(&mut config.engine.tables.timelines_per_minute),
    )
    .within(1, u64::MAX),
    Key::new(
        "tables.identity_bytes_max",
        "Memory that the names and tags of all timelines of a table may take, removed ones included until a restart; beyond it\n\
         only known timelines are written. Not set: half of the memory that the control group or the machine grants.",
        |config| Slot::OptionalBytes64(&mut config.identity_bytes_max),
    )
    .within(MIB, u64::MAX),
    Key::new(
        "query.threads",
        "Threads that large queries of hot points share. Not set: one for each core.",
        |config| Slot::OptionalCount(&mut config.http.query.threads),
    )
    .within(1, 256),
    Key::new(
        "query.cold_threads",
        "Threads that large queries of cold points share; they yield to all others. Not set: half as many as cores.",
        |config| Slot::OptionalCount(&mut config.http.query.cold_threads),
    )
    .within(1, 256),
    Key::new(
        "query.cold_queries_max",
        "Queries of cold points that run at once; further ones wait. Not set: twice their threads.",
        |config| Slot::OptionalCount(&mut config.http.query.cold_queries_max),
    )
    .within(1, 64),
    Key::new(
        "query.cold_waiting_max",
        "Queries of cold points that wait for their turn; a further one is refused as overload.",
        |config| Slot::Count(&mut config.http.query.cold_waiting_max),
    )
    .within(0, 256),
    Key::new(
        "query.cold_read_bytes_per_second",
        "Bytes that all queries together read from the cold tier, each second. Not set: no limit.",
        |config| Slot::OptionalBytes64(&mut config.http.query.cold_read_bytes_per_second),
    )
    .within(KIB, u64::MAX),
    Key::new(
        "prometheus.lookback_delta",
        "How old a sample may be to count at an instant, for PromQL. A request may say otherwise.",
        |config| Slot::Duration(&mut config.http.prometheus.lookback_delta),
    )
    .within(1, 168 * HOUR_MILLIS),
    Key::new(
        "prometheus.samples_max",
        "Samples that a query in PromQL may hold at once.",
        |config| Slot::Count(&mut config.http.prometheus.samples_max),
    )
    .within(1, u64::MAX),
    Key::new(
        "prometheus.query_timeout",
        "How long a query in PromQL may take. A request may ask for less.",
        |config| Slot::Duration(&mut config.http.prometheus.query_timeout),
    )
    .within(1, 24 * HOUR_MILLIS),
    Key::new(
        "prometheus.delayed_name_removal",
        "Let functions take the metric name away at the end of a query only, so that series that differ by it alone stay\n\
         apart until then. A request may say otherwise.",
        |config| Slot::Switch(&mut config.http.prometheus.delayed_name_removal),
    ),
    Key::new(
        "prometheus.keep_grouped_names",
        "Let aggregations by the metric name keep it besides, as VictoriaMetrics does; implies delayed_name_removal. A\n\
         request may say otherwise.",
        |config| Slot::Switch(&mut config.http.prometheus.keep_grouped_names),
    ),
    Key::new(
        "prometheus.start_timestamps",
        "Let rates take into account when counters began, where remote write told.",
        |config| Slot::Switch(&mut config.http.prometheus.start_timestamps),
    ),
    Key::new(
        "archive.target",
        "Where tables archive to whose policy names the target `default`: s3://bucket/prefix (and what speaks S3),\n\
         gs://bucket/prefix, az://container/prefix, or file:///directory. Not set: policies name one that\n\
         archive.allowed_targets lists. To move it: copy all objects, then set this.",
        |config| Slot::OptionalText(&mut config.archive.target),
    ),
    Key::new(
        "archive.options_file",
        "A file with `name = value` lines for that target, such as endpoint, region, access_key_id and\n\
         secret_access_key. Not set: the environment (AWS_…, GOOGLE_…, AZURE_…) or the role of the machine.",
        |config| Slot::OptionalPath(&mut config.archive.options_file),
    ),
    Key::new(
        "archive.allowed_targets",
        "Addresses below which policies and requests may name targets, besides archive.target and what lies below it, such as\n\
         `s3://bucket/prefix, file:///srv/archive`. Others get 403: the server would use its own credentials for them.",
        |config| Slot::Targets(&mut config.archive.allowed_targets),
    ),
    Key::new(
        "archive.cache_bytes",
        "Memory for what was read lately of archived files: half for page indexes and footers, half for pages.",
        |config| Slot::Bytes(&mut config.archive.cache_bytes),
    )
    .within(MIB, u64::MAX),
    Key::new(
        "archive.disk_cache_bytes",
        "Disk for page indexes, footers and checksums of archived files, in server.data_dir, so that a restart need not ask\n\
         for them again. 0: none.",
        |config| Slot::Bytes64(&mut config.archive.disk_cache_bytes),
    ),
    Key::new(
        "lifecycle.purge_delay",
        "How long points that a policy has hidden are kept before their bytes are freed; until then a longer policy\n\
         shows them again.",
        |config| Slot::Duration(&mut config.scheduler.purge_delay),
    )
    .within(0, 8_760 * HOUR_MILLIS),
    Key::new(
        "lifecycle.interval",
        "Time between two looks for work in the background: what to fold, move, purge and drop.",
        |config| Slot::Duration(&mut config.scheduler.tick_interval),
    )
    .within(100, HOUR_MILLIS),
];
