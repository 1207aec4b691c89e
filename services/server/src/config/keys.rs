//! Table of all configuration keys.
//!
//! Parsing, `config show`, `config reference`, messages and the settings page of the guide are derived from this table.

use super::Config;
use super::slot::{Range, Slot};
use super::sources::ENVIRONMENT_PREFIX;

/// Configuration key.
#[derive(Debug)]
pub(crate) struct Key {
    /// Path of the key: `section.name`.
    pub(crate) path: &'static str,
    /// Description for users.
    pub(crate) about: &'static str,
    /// Function that returns the value in a configuration.
    pub(crate) slot: fn(&mut Config) -> Slot<'_>,
    /// Accepted range: bytes, counts or milliseconds, depending on the slot.
    pub(crate) range: Range,
    /// True if a command line flag sets the key.
    pub(crate) has_flag: bool,
    /// True if the value is masked and can be read from a separate file.
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

    /// Returns true if the value is a list.
    pub(crate) fn is_list(&self) -> bool {
        (self.slot)(&mut Config::default()).is_list()
    }

    /// Returns the section of the key.
    pub(crate) fn section(&self) -> &'static str {
        self.path.split_once('.').map_or("", |(section, _)| section)
    }

    /// Returns the name within the section.
    pub(crate) fn name(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(_, name)| name)
    }

    /// Returns the environment variable that sets the key.
    pub(crate) fn variable(&self) -> String {
        format!(
            "{ENVIRONMENT_PREFIX}{}",
            self.path.to_ascii_uppercase().replace('.', "__")
        )
    }

    /// Returns the flag that sets the key if [`Self::has_flag`]. The flag of a secret takes a file, because
    /// other users can see command lines.
    pub(crate) fn flag(&self) -> String {
        let file = if self.is_secret { "-file" } else { "" };
        format!("--{}{file}", self.name().replace('_', "-"))
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const HOUR_MILLIS: u64 = 3_600_000;

/// All keys, in the order of the reference. The keys of a section are consecutive.
pub(crate) const KEYS: &[Key] = &[
    Key::new(
        "server.listen",
        "Address to listen on. An address that other machines can reach requires a token (see auth.token) and\n\
         TLS (see http.tls).",
        |config| Slot::Address(&mut config.listen),
    )
    .flagged(),
    Key::new(
        "server.unix_socket",
        "Path of a Unix socket on which the server also listens, for processes on the same machine. Only\n\
         processes of the owner and of the group of the socket file can connect. Requests need tokens as on other\n\
         connections.",
        |config| Slot::OptionalPath(&mut config.unix_socket),
    )
    .flagged(),
    Key::new(
        "server.data_dir",
        "Folder for all data. It is created if it is missing. Only one process can use it at a time.",
        |config| Slot::Path(&mut config.data_dir),
    )
    .flagged(),
    Key::new(
        "server.insecure_public",
        "Accept connections from other machines without a token. Anyone who can connect then has full access.",
        |config| Slot::Switch(&mut config.insecure_public),
    )
    .flagged(),
    Key::new(
        "server.drain_timeout",
        "Longest time for which a stopping server waits for running requests. Closing the data takes at most 1.5\n\
         s more. Before, a server of a cluster flushes its memory for up to 5 s, and still serves meanwhile.",
        |config| Slot::Duration(&mut config.http.drain_timeout),
    )
    .within(0, HOUR_MILLIS),
    Key::new(
        "auth.token",
        "Token of the administrator, with all rights: at least 16 letters, digits or -._~+/=. If it is set, every\n\
         request needs this token or another valid one, such as one made by `tideline token create`. To keep it\n\
         out of this configuration, write it to a file and set auth.token_file to the path. The file must not be\n\
         writable by other users. Not set: no token is required, unless auth.hashes_file or auth.jwks_file is set.",
        |config| Slot::Secret(&mut config.token),
    )
    .flagged()
    .secret(),
    Key::new(
        "auth.hashes_file",
        "JSON file of token hashes, for tools that create tokens without a request to the server. The server\n\
         reads it again when it changes. The file must belong to root or to the user of the server, and must not\n\
         be writable by other users. With this setting, every request needs a token.",
        |config| Slot::OptionalPath(&mut config.http.hashes_file),
    ),
    Key::new(
        "auth.jwks_file",
        "File with the public keys (JWKS) of an identity provider. The server then accepts JSON Web Tokens of\n\
         this provider. It reads the file again when it changes. The file must belong to root or to the user of\n\
         the server, and must not be writable by other users. With this setting, every request needs a token.",
        |config| Slot::OptionalPath(&mut config.jwt.jwks_file),
    ),
    Key::new(
        "auth.jwt_issuer",
        "Issuer (`iss`) that a JSON Web Token must name. Required with auth.jwks_file.",
        |config| Slot::OptionalText(&mut config.jwt.issuer),
    ),
    Key::new(
        "auth.jwt_audience",
        "Audience (`aud`) that a JSON Web Token must name. Required with auth.jwks_file.",
        |config| Slot::OptionalText(&mut config.jwt.audience),
    ),
    Key::new(
        "auth.jwt_roles_claim",
        "Claim that contains the roles of a JSON Web Token, as a text or a list. The path of a nested claim\n\
         consists of member names with dots between them.",
        |config| Slot::Text(&mut config.jwt.roles_claim),
    ),
    Key::new(
        "auth.jwt_tables_claim",
        "Claim that contains the tables that a JSON Web Token may use: names, and prefixes followed by `*`. With\n\
         this setting, every JSON Web Token needs the claim, except those with the role admin. Not set: these\n\
         tokens are not restricted to tables.",
        |config| Slot::OptionalText(&mut config.jwt.tables_claim),
    ),
    Key::new(
        "auth.jwt_models_claim",
        "Claim that contains the models of tables that a JSON Web Token may use. With this setting, every JSON\n\
         Web Token needs the claim, except those with the role admin. Not set: these tokens are not restricted to\n\
         models.",
        |config| Slot::OptionalText(&mut config.jwt.models_claim),
    ),
    Key::new(
        "auth.jwt_timelines_claim",
        "Claim that contains the condition on the timelines that a JSON Web Token may use: a text such as\n\
         `team=x`, or a list of texts that must all hold. With this setting, every JSON Web Token needs the\n\
         claim, except those with the role admin. Not set: these tokens are not restricted to timelines.",
        |config| Slot::OptionalText(&mut config.jwt.timelines_claim),
    ),
    Key::new(
        "auth.jwt_tenants_claim",
        "Claim that contains the tenants for which requests with a JSON Web Token act: names, and prefixes\n\
         followed by `*`. With this setting, every JSON Web Token needs the claim, except those with the role\n\
         admin. Not set: these requests act for no tenant.",
        |config| Slot::OptionalText(&mut config.jwt.tenants_claim),
    ),
    Key::new(
        "auth.open_docs",
        "Serve /docs, /guide and /openapi.json without a token. They contain no data.",
        |config| Slot::Switch(&mut config.http.are_pages_open),
    ),
    Key::new(
        "log.format",
        "Format of log lines, which are written to standard error: `text`, or `json` with one object per line.",
        |config| Slot::LogFormat(&mut config.log_format),
    ),
    Key::new("log.level", "Lowest level of the log lines that are written, such as `warn`, or a filter such as\n\
         `info,tideline_http=debug`. Connection errors of the driver of a cluster are omitted unless the filter names\n\
         `scylla`.", |config| {
        Slot::LogFilter(&mut config.log_filter)
    }),
    Key::new(
        "memory.max",
        "Memory for all budgets and requests together. Reserved are twice storage.head_bytes_max, three times\n\
         storage.row_buffer_bytes, and the budgets of points that wait to be written, request bodies, recent\n\
         journal entries, caches and dictionaries. Requests share the rest: a request fails with 503 if no memory\n\
         is free, and with 422 if it needs more than the whole share. Writes continue. If the value is small,\n\
         budgets that are not set are lowered to fit. Not set: 60 % of the memory of the control group or\n\
         machine.",
        |config| Slot::OptionalBytes64(&mut config.memory_max),
    )
    .within(64 * MIB, u64::MAX),
    Key::new(
        "http.tls",
        "Permits connections in clear text from other machines. `proxy`: a proxy with TLS is in front of the\n\
         server, and only the proxy can reach the server. `off`: the server is used without TLS. Not set: an\n\
         address that other machines can reach requires a certificate.",
        |config| Slot::ClearText(&mut config.tls.clear_text),
    )
    .flagged(),
    Key::new(
        "http.tls_certificate_file",
        "PEM file with the certificate of the server, followed by those of intermediate authorities. If it is\n\
         set, all TCP connections use TLS 1.2 or 1.3. The server reads the file again when it changes. Not set:\n\
         connections in clear text.",
        |config| Slot::OptionalPath(&mut config.tls.certificate_file),
    ),
    Key::new(
        "http.tls_key_file",
        "PEM file with the private key of the certificate. The file must not be readable by all users. The server\n\
         reads it again when it changes.",
        |config| Slot::OptionalPath(&mut config.tls.key_file),
    ),
    Key::new(
        "http.hosts",
        "Host names and addresses that requests may name in their Host header, in addition to loopback; `*`\n\
         allows all. Not set: if a token is required, any host; otherwise only loopback, so that no web page can\n\
         access the server by DNS rebinding.",
        |config| Slot::Hosts(&mut config.http.hosts),
    ),
    Key::new(
        "http.trusted_proxies",
        "Addresses and networks of trusted proxies, such as `10.0.0.0/8`. The client address that a trusted proxy\n\
         sends in `Forwarded` or `X-Forwarded-For` is used for fair shares and in the log. These headers are\n\
         ignored if they are sent from another address. `unix` trusts all processes that connect by the Unix\n\
         socket.",
        |config| Slot::Proxies(&mut config.http.trusted_proxies),
    ),
    Key::new(
        "http.body_bytes_max",
        "Largest request body as sent, before decompression.",
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
        "Maximum bytes of all request bodies in memory, compressed and decompressed. Requests beyond it are\n\
         refused as overload.",
        |config| Slot::Bytes(&mut config.http.bodies_in_flight_bytes_max),
    )
    .within(MIB, u64::MAX),
    Key::new(
        "http.request_bytes_max",
        "Largest body of a request that is not a write, before and after decompression.",
        |config| Slot::Bytes(&mut config.http.request_bytes_max),
    )
    .within(KIB, u64::MAX),
    Key::new(
        "http.header_timeout",
        "Longest time in which the headers of a request must arrive, and the first byte of a new connection.",
        |config| Slot::Duration(&mut config.http.header_timeout),
    )
    .within(100, HOUR_MILLIS),
    Key::new(
        "http.idle_timeout",
        "Longest time for which a connection may be idle between requests.",
        |config| Slot::Duration(&mut config.http.idle_timeout),
    )
    .within(100, HOUR_MILLIS),
    Key::new(
        "http.body_timeout",
        "Longest time for which no byte of a request body may arrive.",
        |config| Slot::Duration(&mut config.http.body_timeout),
    )
    .within(100, HOUR_MILLIS),
    Key::new(
        "http.body_bytes_per_second_min",
        "Lowest rate at which a request body must arrive, in bytes per second. Slower bodies are refused.",
        |config| Slot::Bytes64(&mut config.http.body_bytes_per_second_min),
    ),
    Key::new(
        "http.answer_timeout",
        "Longest time for which a client may read nothing of a response. After that, it is disconnected.",
        |config| Slot::Duration(&mut config.http.answer_timeout),
    )
    .within(100, HOUR_MILLIS),
    Key::new(
        "http.answer_bytes_per_second_min",
        "Lowest rate at which a client must read a response, in bytes per second. The rate counts only while\n\
         bytes wait to be sent, and is averaged over http.answer_timeout. A slower client is disconnected and its\n\
         query ends.",
        |config| Slot::Bytes64(&mut config.http.answer_bytes_per_second_min),
    ),
    Key::new(
        "http.connections_max",
        "Maximum number of open connections. At the limit, an idle connection is closed for a new one. Lower this\n\
         value if the limit of open files of the process is low.",
        |config| Slot::Count(&mut config.http.connections_max),
    )
    .within(1, 1_000_000),
    Key::new(
        "http.writes_in_flight_max",
        "Maximum number of writes that are decoded and committed concurrently, each on a thread. Small writes do\n\
         not count while they wait for their commit.",
        |config| Slot::Count(&mut config.http.writes_in_flight_max),
    )
    .within(1, 256),
    Key::new(
        "http.queries_in_flight_max",
        "Maximum number of queries and searches that run concurrently, each on a thread. Queries of cold points\n\
         have a separate limit: query.cold_queries_max.",
        |config| Slot::Count(&mut config.http.queries_in_flight_max),
    )
    .within(1, 256),
    Key::new(
        "http.watches_max",
        "Maximum number of open watches of tables (server-sent events).",
        |config| Slot::Count(&mut config.http.watches_max),
    )
    .within(0, 100_000),
    Key::new(
        "http.feed_watches_max",
        "Maximum number of open watches of feeds and inboxes (server-sent events) and of requests that wait for\n\
         messages, together.",
        |config| Slot::Count(&mut config.http.feed_watches_max),
    )
    .within(0, 1_000_000),
    Key::new(
        "http.watch_bytes_per_second_max",
        "Maximum number of bytes per second that all watches send together, so that writers get enough CPU time.\n\
         A watch ends if it falls behind by more than the recent writes in memory; the client can start it again.",
        |config| Slot::Bytes64(&mut config.http.watch_bytes_per_second_max),
    ),
    Key::new(
        "http.turn_timeout",
        "Longest time for which a request waits for a permit to run. After that, it is refused as overload.",
        |config| Slot::Duration(&mut config.http.turn_timeout),
    )
    .within(0, HOUR_MILLIS),
    Key::new(
        "changes.retention",
        "Shortest time for which changes are kept for a change stream without a retention of its own. Changes are\n\
         freed earlier only if changes.bytes_max is reached or the disk is nearly full.",
        |config| Slot::Duration(&mut config.http.changes.retention),
    )
    .within(0, 3650 * 24 * HOUR_MILLIS),
    Key::new(
        "changes.bytes_max",
        "Maximum bytes of the journal that are kept only for change streams. Beyond it, the oldest changes are\n\
         freed, and readers that need them get a gap record instead. Not set: a tenth of the disk of the data\n\
         folder.",
        |config| Slot::OptionalBytes64(&mut config.changes_bytes_max),
    ),
    Key::new(
        "webhooks.hosts",
        "Names of the hosts to which webhooks may send, such as `hooks.example.com, *.example.com`. Not set:\n\
         webhooks are off.",
        |config| Slot::Names(&mut config.webhooks.hosts),
    ),
    Key::new(
        "webhooks.networks",
        "Networks that are not public and to which webhooks may connect, such as `10.1.0.0/16`. Not set: webhooks\n\
         connect only to public addresses.",
        |config| Slot::Networks(&mut config.http.changes.webhooks.networks),
    ),
    Key::new(
        "webhooks.timeout",
        "Longest time of a request of a webhook, including the connection and the response.",
        |config| Slot::Duration(&mut config.http.changes.webhooks.timeout),
    )
    .within(100, HOUR_MILLIS),
    Key::new(
        "webhooks.give_up_after",
        "Time after the first attempt of a delivery at which further attempts end. The delivery is then kept for\n\
         a replay.",
        |config| Slot::Duration(&mut config.http.changes.backoff.give_up_after),
    )
    .within(0, 30 * 24 * HOUR_MILLIS),
    Key::new(
        "webhooks.ca_file",
        "PEM file with certificates of authorities that webhooks trust in addition to those of the system.",
        |config| Slot::OptionalPath(&mut config.webhooks.ca_file),
    ),
    Key::new(
        "storage.backend",
        "Engine that stores the data: `fjall` in server.data_dir, or `cassandra` in a cluster (section\n\
         cassandra). With `cassandra`, server.data_dir contains only the search index and temporary files.",
        |config| Slot::StorageEngine(&mut config.engine_kind),
    )
    .flagged(),
    Key::new(
        "storage.head_bytes_max",
        "Bytes of unsealed points in memory at which these points are sealed. Memory peaks near twice this value.\n\
         Not set: the larger of 80 MiB and 256 bytes per timeline with unsealed points, but at most 5/24 of\n\
         memory.max or, if that is not set, 1/8 of the memory of the control group or machine.",
        |config| Slot::OptionalBytes64(&mut config.head_bytes_max),
    )
    .within(MIB, u64::MAX),
    Key::new(
        "storage.head_age_max",
        "Age of the oldest unsealed point, or of the oldest change of a row in memory, at which all unsealed\n\
         points are sealed and all changed rows are flushed. It limits how much of the journal a restart must\n\
         read.",
        |config| Slot::Duration(&mut config.engine.store.head_age_max),
    )
    .within(1_000, 168 * HOUR_MILLIS),
    Key::new(
        "storage.row_buffer_bytes",
        "Bytes of changed rows of wide tables in memory at which these rows are flushed. While flushes are slow,\n\
         up to twice as many bytes wait for them; beyond that, writers wait. This value also limits how much of\n\
         the journal a restart must read.",
        |config| Slot::Bytes(&mut config.engine.rows.buffer_bytes),
    )
    .within(MIB, u64::MAX),
    Key::new(
        "storage.pending_bytes_max",
        "Maximum bytes of decoded points that wait to be written. Writes beyond it are refused as overload.",
        |config| Slot::Bytes(&mut config.engine.store.log.pending_bytes_max),
    )
    .within(MIB, u64::MAX),
    Key::new(
        "storage.cache_bytes",
        "Bytes of the cache of sealed blocks of the hot tier.",
        |config| Slot::Bytes64(&mut config.backend.cache_bytes),
    ),
    Key::new(
        "storage.cold_cache_bytes",
        "Bytes of the cache of blocks of the cold tier. This cache is separate, so that reading old points does\n\
         not evict hot blocks.",
        |config| Slot::Bytes64(&mut config.backend.cold_cache_bytes),
    ),
    Key::new(
        "storage.cold_dir",
        "Folder of the cold tier, which may be on another disk. It must exist. Do not use a mount point itself\n\
         but a folder below it, so that an unmounted disk is noticed. Not set: `cold` inside server.data_dir. To\n\
         move the folder: stop the server, move the folder with its content, and change this setting.",
        |config| Slot::OptionalPath(&mut config.backend.cold_dir),
    ),
    Key::new(
        "storage.series_cache_bytes",
        "Bytes of the caches of all tables that find a timeline by its measurement and tags as written in a request.",
        |config| Slot::Bytes(&mut config.engine.raw_key_cache_bytes),
    ),
    Key::new(
        "storage.free_bytes_min",
        "Free space of a disk below which writes, or moves to the cold tier, are refused. They resume when enough\n\
         space is free again.",
        |config| Slot::Bytes64(&mut config.backend.free_bytes_min),
    ),
    Key::new(
        "storage.free_per_mille_min",
        "The same limit in thousandths of the size of the disk. The larger of both limits applies.",
        |config| Slot::Count64(&mut config.backend.free_per_mille_min),
    )
    .within(0, 1_000),
    Key::new(
        "storage.worker_threads",
        "Threads that flush and compact the hot tier. The cold tier has one additional thread.",
        |config| Slot::Count(&mut config.backend.worker_threads),
    )
    .within(1, 64),
    Key::new(
        "storage.open_files_max",
        "Maximum number of files that the store keeps open, a third of them for the cold tier.",
        |config| Slot::Count(&mut config.backend.open_files_max),
    )
    .within(64, 1_000_000),
    Key::new(
        "storage.accept_loss",
        "Start although acknowledged writes are missing from the folder. Set it only for one start, after an\n\
         operator has decided to continue without the missing data. A damaged log is cut at the damage; the\n\
         original is kept in `lost` in the folder, with a report.",
        |config| Slot::Switch(&mut config.backend.accept_loss),
    ),
    Key::new(
        "storage.request_ttl",
        "Time for which the server remembers the outcome of a request with an idempotency key.",
        |config| Slot::Duration(&mut config.engine.store.log.request_ttl),
    )
    .within(1_000, 168 * HOUR_MILLIS),
    Key::new(
        "storage.requests_max",
        "Maximum number of remembered outcomes of requests with an idempotency key. At this number, or if all\n\
         outcomes together exceed 128 MiB, the oldest are dropped.",
        |config| Slot::Count(&mut config.engine.store.log.requests_max),
    ),
    Key::new(
        "tables.count_max",
        "Maximum number of tables; further ones are refused.",
        |config| Slot::Count(&mut config.engine.tables.tables_max),
    )
    .within(1, 1_000_000),
    Key::new(
        "tables.indexes_max",
        "Maximum number of secondary indexes of a wide table; further ones are refused. Each write of a row\n\
         also writes the changed entries of all indexes.",
        |config| Slot::Count(&mut config.engine.tables.indexes_max),
    )
    .within(0, 64),
    Key::new(
        "tables.search_indexes_max",
        "Maximum number of search indexes of a wide table; further ones are refused. Each index takes a thread\n\
         and 20 MB of memory.max, or 15 MB per shard.",
        |config| Slot::Count(&mut config.engine.tables.search_indexes_max),
    )
    .within(0, 64),
    Key::new(
        "tables.timelines_per_minute",
        "Maximum number of new timelines of a table per minute; further ones are refused with a retryable error.\n\
         The default is twice the number of timelines if 100,000 machines with 100 series each send for the first\n\
         time. The policy of a table can set another limit.",
        |config| Slot::Count64(&mut config.engine.tables.timelines_per_minute),
    )
    .within(1, u64::MAX),
    Key::new(
        "tables.identity_bytes_max",
        "Maximum memory for the names and tags of all timelines of a table. Removed timelines count until a\n\
         restart. Beyond the limit, only known timelines can be written. Not set: half of the memory of the\n\
         control group or machine.",
        |config| Slot::OptionalBytes64(&mut config.identity_bytes_max),
    )
    .within(MIB, u64::MAX),
    Key::new(
        "query.threads",
        "Threads that large queries of hot points share. Not set: one per core.",
        |config| Slot::OptionalCount(&mut config.http.query.threads),
    )
    .within(1, 256),
    Key::new(
        "query.cold_threads",
        "Threads that large queries of cold points share. They run at a lower priority than all other threads.\n\
         Not set: half the number of cores.",
        |config| Slot::OptionalCount(&mut config.http.query.cold_threads),
    )
    .within(1, 256),
    Key::new(
        "query.cold_queries_max",
        "Maximum number of queries of cold points, and of requests for rows in cold or archived parts, that run\n\
         concurrently; further ones wait. Not set: twice query.cold_threads.",
        |config| Slot::OptionalCount(&mut config.http.query.cold_queries_max),
    )
    .within(1, 64),
    Key::new(
        "query.cold_waiting_max",
        "Maximum number of queries of cold points, and of requests for rows in cold or archived parts, that wait;\n\
         further ones are refused as overload.",
        |config| Slot::Count(&mut config.http.query.cold_waiting_max),
    )
    .within(0, 256),
    Key::new(
        "query.cold_read_bytes_per_second",
        "Maximum bytes per second that all queries of cold points and all requests for rows in cold or archived\n\
         parts read together. Not set: no limit.",
        |config| Slot::OptionalBytes64(&mut config.http.query.cold_read_bytes_per_second),
    )
    .within(KIB, u64::MAX),
    Key::new(
        "prometheus.lookback_delta",
        "Maximum age of a sample that a PromQL instant vector selects. A request can override it.",
        |config| Slot::Duration(&mut config.http.prometheus.lookback_delta),
    )
    .within(1, 168 * HOUR_MILLIS),
    Key::new(
        "prometheus.samples_max",
        "Maximum number of samples that a PromQL query may hold at once.",
        |config| Slot::Count(&mut config.http.prometheus.samples_max),
    )
    .within(1, u64::MAX),
    Key::new(
        "prometheus.query_timeout",
        "Longest time of a PromQL query. A request can set a shorter one.",
        |config| Slot::Duration(&mut config.http.prometheus.query_timeout),
    )
    .within(1, 24 * HOUR_MILLIS),
    Key::new(
        "prometheus.delayed_name_removal",
        "Let functions remove the metric name only at the end of a query, so that series that differ only in\n\
         their name stay separate until then. A request can override it.",
        |config| Slot::Switch(&mut config.http.prometheus.delayed_name_removal),
    ),
    Key::new(
        "prometheus.keep_grouped_names",
        "Let aggregations by the metric name keep the name, as VictoriaMetrics does. Implies\n\
         prometheus.delayed_name_removal. A request can override it.",
        |config| Slot::Switch(&mut config.http.prometheus.keep_grouped_names),
    ),
    Key::new(
        "prometheus.start_timestamps",
        "Let rates use the start timestamps of counters, if remote write or OTLP sent them.",
        |config| Slot::Switch(&mut config.http.prometheus.start_timestamps),
    ),
    Key::new(
        "otlp.translation_strategy",
        "Translation of OTLP names: UnderscoreEscapingWithSuffixes (`http.time` in ms becomes\n\
         `http_time_milliseconds`), UnderscoreEscapingWithoutSuffixes, NoUTF8EscapingWithSuffixes or\n\
         NoTranslation.",
        |config| Slot::TranslationStrategy(&mut config.http.otlp.translation_strategy),
    ),
    Key::new(
        "otlp.promote_resource_attributes",
        "Attributes of OTLP resources that become labels of every series of the resource. All attributes except\n\
         service.name, service.namespace and service.instance.id are labels of target_info. These three become\n\
         the labels job and instance of every series.",
        |config| Slot::Names(&mut config.http.otlp.promote_resource_attributes),
    ),
    Key::new(
        "otlp.promote_all_resource_attributes",
        "Let all attributes of OTLP resources become labels of every series, except otlp.ignore_resource_attributes.",
        |config| Slot::Switch(&mut config.http.otlp.promote_all_resource_attributes),
    ),
    Key::new(
        "otlp.ignore_resource_attributes",
        "Attributes of OTLP resources that do not become labels if otlp.promote_all_resource_attributes is true.",
        |config| Slot::Names(&mut config.http.otlp.ignore_resource_attributes),
    ),
    Key::new(
        "otlp.keep_identifying_resource_attributes",
        "Keep service.name, service.namespace and service.instance.id as labels of target_info.",
        |config| Slot::Switch(&mut config.http.otlp.keep_identifying_resource_attributes),
    ),
    Key::new(
        "otlp.promote_scope_metadata",
        "Let name, version, schema URL and attributes of OTLP scopes become labels that begin with otel_scope_.",
        |config| Slot::Switch(&mut config.http.otlp.promote_scope_metadata),
    ),
    Key::new(
        "otlp.convert_histograms_to_nhcb",
        "Store OTLP histograms with explicit bounds as native histograms with custom buckets instead of classic\n\
         series.",
        |config| Slot::Switch(&mut config.http.otlp.convert_histograms_to_nhcb),
    ),
    Key::new(
        "otlp.delta_temporality",
        "OTLP points with delta temporality: `refuse` them, or `store` them without conversion. Functions of\n\
         counters, such as rate, give wrong results for stored ones; use sum_over_time.",
        |config| Slot::DeltaTemporality(&mut config.http.otlp.delta_temporality),
    ),
    Key::new(
        "otlp.label_name_underscore_sanitization",
        "Prepend `key` to label names that begin with one underscore, if otlp.translation_strategy escapes names.",
        |config| Slot::Switch(&mut config.http.otlp.label_name_underscore_sanitization),
    ),
    Key::new(
        "otlp.label_name_preserve_multiple_underscores",
        "Keep adjacent underscores of label names, if otlp.translation_strategy escapes names.",
        |config| Slot::Switch(&mut config.http.otlp.label_name_preserve_multiple_underscores),
    ),
    Key::new(
        "archive.target",
        "Archive target that policies name `default`: s3://bucket/prefix (also S3-compatible services),\n\
         gs://bucket/prefix, az://container/prefix, or file:///directory. Not set: policies must name a target\n\
         that archive.allowed_targets allows. To move the archive: copy all objects, then change this setting.",
        |config| Slot::OptionalText(&mut config.archive.target),
    ),
    Key::new(
        "archive.options_file",
        "File with `name = value` lines: options of archive.target, such as endpoint, region, access_key_id and\n\
         secret_access_key. Not set: the options are taken from the environment (AWS_…, GOOGLE_…, AZURE_…) or the\n\
         role of the machine.",
        |config| Slot::OptionalPath(&mut config.archive.options_file),
    ),
    Key::new(
        "archive.allowed_targets",
        "Address prefixes under which policies and requests may name targets, such as `s3://bucket/prefix,\n\
         file:///srv/archive`. archive.target and locations below it are always allowed. Other targets are\n\
         refused with 403, because the server would use its own credentials for them.",
        |config| Slot::Targets(&mut config.archive.allowed_targets),
    ),
    Key::new(
        "archive.cache_bytes",
        "Bytes of the memory cache of archived files: half for page indexes and footers, half for pages.",
        |config| Slot::Bytes(&mut config.archive.cache_bytes),
    )
    .within(MIB, u64::MAX),
    Key::new(
        "archive.row_cache_bytes",
        "Bytes of the memory cache of archived rows of wide tables, in groups of about 1 MiB.",
        |config| Slot::Bytes(&mut config.engine.rows.archive_cache_bytes),
    )
    .within(MIB, u64::MAX),
    Key::new(
        "archive.disk_cache_bytes",
        "Bytes of the disk cache in server.data_dir for page indexes, footers and checksums of archived files, so\n\
         that a restart need not read them again. 0: no cache.",
        |config| Slot::Bytes64(&mut config.archive.disk_cache_bytes),
    ),
    Key::new(
        "lifecycle.purge_delay",
        "Time for which points hidden by a policy are kept before their bytes are freed. Until then, a policy\n\
         with longer ages makes the points visible again.",
        |config| Slot::Duration(&mut config.scheduler.purge_delay),
    )
    .within(0, 8_760 * HOUR_MILLIS),
    Key::new(
        "lifecycle.interval",
        "Interval at which the scheduler checks for background work: folding, moving, purging and\n\
         dropping.",
        |config| Slot::Duration(&mut config.scheduler.tick_interval),
    )
    .within(100, HOUR_MILLIS),
    Key::new(
        "cassandra.contact",
        "Addresses of some nodes of the cluster, as host or host:port. The server finds the other nodes through\n\
         them. Refused unless storage.backend is `cassandra`.",
        |config| Slot::Nodes(&mut config.cluster.contact),
    )
    .flagged(),
    Key::new(
        "cassandra.keyspace",
        "Keyspace of the tables, which `tideline backend schema` creates.",
        |config| Slot::Text(&mut config.cluster.keyspace),
    )
    .flagged(),
    Key::new(
        "cassandra.data_center",
        "Data center whose nodes are used, the same for all servers. Quorums are quorums of this data center.\n\
         Required if the nodes or the copies of the keyspace are in several data centers. Not set: the only one.",
        |config| Slot::OptionalText(&mut config.cluster.data_center),
    ),
    Key::new(
        "cassandra.user",
        "User name for the cluster; needs cassandra.password_file. Not set: connections without authentication.",
        |config| Slot::OptionalText(&mut config.cluster.user),
    ),
    Key::new(
        "cassandra.password_file",
        "File with the password of cassandra.user.",
        |config| Slot::OptionalPath(&mut config.cluster.password_file),
    ),
    Key::new(
        "cassandra.tls",
        "Encrypt the connections to the nodes with TLS. The certificate of each node must name the IP address of the\n\
         node. This needs a build with the feature cassandra-tls.",
        |config| Slot::Switch(&mut config.cluster.is_tls),
    ),
    Key::new(
        "cassandra.ca_file",
        "PEM file with certificates of the authorities of the nodes. Not set: the authorities of the system.",
        |config| Slot::OptionalPath(&mut config.cluster.ca_file),
    ),
    Key::new(
        "cassandra.acknowledged",
        "Durability of an acknowledged write. `synced`: on the disks of a quorum; the server starts and accepts\n\
         writes only while every node has commitlog_sync `group` or `batch`. `replicated`: at least in the memory\n\
         of a quorum.",
        |config| Slot::Acknowledged(&mut config.cluster.acknowledged),
    ),
    Key::new(
        "cassandra.lease",
        "Time after which the ownership of the data ends if the server does not renew it. After a crash, another\n\
         server takes over after 1.25 times this time.",
        |config| Slot::Duration(&mut config.cluster.lease),
    )
    .within(1_000, HOUR_MILLIS),
    Key::new(
        "cassandra.advertise",
        "Address and port at which other servers reach this one, to forward requests if it owns the data. With\n\
         TLS, the certificate must name this address. Required if server.listen is a loopback address and nodes\n\
         of the cluster are on other machines. Not set: server.listen.",
        |config| Slot::OptionalHostPort(&mut config.cluster.advertise),
    ),
    Key::new(
        "cassandra.servers_ca_file",
        "PEM file with certificates of the authorities of the other servers, for requests that are forwarded to a\n\
         server with TLS. The server reads the file again when it changes. Not set: the certificates in\n\
         http.tls_certificate_file are trusted, which is enough if all servers share a self-signed one.",
        |config| Slot::OptionalPath(&mut config.cluster.servers_ca_file),
    ),
    Key::new(
        "cassandra.request_timeout",
        "Longest time of one request to the cluster.",
        |config| Slot::Duration(&mut config.cluster.request_timeout),
    )
    .within(100, HOUR_MILLIS),
    Key::new(
        "cassandra.call_timeout",
        "Longest time for which a request to the cluster is repeated after failures.",
        |config| Slot::Duration(&mut config.cluster.call_timeout),
    )
    .within(100, HOUR_MILLIS),
];
