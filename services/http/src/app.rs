//! Shared state of all handlers: the engine, the budgets and the metrics.
//!
//! Handlers get an [`App`] as their state. Engine calls block, so they run on blocking threads. Most of them need a
//! permit. Permits limit the concurrent calls of each kind and are shared fairly among clients.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tideline_access::{Principal, Tenant};
use tideline_change_stream::ChangeStreams;
use tideline_connections::{BodyReader, Permits, Share, Shares};
use tideline_engine::Engine;
use tideline_engine::find::Stop;
use tideline_engine::model::Timestamp;
use tideline_engine::runtime::MemoryAccount;
use tideline_ingest::protocols::prometheus::OtlpSettings;
use tideline_openapi::ErrorCode;
use tideline_query::{Cancel, Querier, Watch};
use tideline_scheduler::Scheduler;
use tokio::sync::Semaphore;

use crate::audit::Refusals;
use crate::audit_log::AuditLog;
use crate::context::{RequestIds, current_client, current_query, current_tenant};
use crate::failure::{Failure, Result};
use crate::feed_watching::FeedWatching;
use crate::followed_file::FileKind;
use crate::inline_reads::InlineReads;
use crate::metrics::Metrics;
use crate::running::RunningQueries;
use crate::settings::HttpSettings;
use crate::tenants::TenantStore;
use crate::tls_files::TlsFiles;
use crate::tokens::TokenStore;
use crate::watching::Watching;

/// Maximum number of concurrent changes other than writes, such as deletes and changes of tables, attributes and jobs.
/// They are rare, and each may take long.
const CHANGES_IN_FLIGHT_MAX: usize = 8;
/// Maximum number of concurrent requested jobs. Each may take minutes. More jobs would only wait for each
/// other's writes.
const REQUESTED_JOBS_IN_FLIGHT_MAX: usize = 4;

/// Number of concurrent requests of one kind per core that are divided among the clients while a tenant and other
/// clients use the service at the same time; see [`Permits::with_tenants_max`]. More requests would compete for the
/// cores, the query threads and the next commit.
const TENANT_REQUESTS_PER_CORE: usize = 2;
/// Duration from which a read of a small write is slow. A read of rows in memory takes some microseconds.
const SLOW_READ: Duration = Duration::from_micros(300);
/// Duration from which a read of a page of messages is slow. A page in memory takes about 100 microseconds.
const SLOW_PAGE: Duration = Duration::from_micros(500);
/// Maximum number of concurrent exports in a Prometheus format. Each holds several megabytes.
const EXPORTS_IN_FLIGHT_MAX: usize = 8;
/// Maximum number of concurrent remote reads.
const READS_IN_FLIGHT_MAX: usize = 16;

/// Maximum number of concurrent imports of rows. An import lasts as long as its client sends, and reserves memory.
const IMPORTS_IN_FLIGHT_MAX: usize = 16;
/// Maximum number of concurrent uploads of values. Each holds up to 8 MiB of memory.
const UPLOADS_IN_FLIGHT_MAX: usize = 8;

/// Maximum number of requests that wait without a permit, for a client that reads slowly or for work of the server.
/// Each request occupies a thread; the runtime has 512 blocking threads.
const SLOW_CLIENTS_MAX: usize = 128;
/// Maximum number of concurrent requests that wait for the end of jobs, each on a thread.
const WAITS_IN_FLIGHT_MAX: usize = 32;
/// Base number of permits for queries of cold points and for requests for rows in cold or archived parts. One permit is
/// added for each query that may wait in the querier (`cold_waiting_max` of [`HttpSettings::query`]).
const COLD_QUERIES_MAX: usize = 64;

/// Handle to the shared state of all routes. Clones share the state.
///
/// The state is a trait object to keep the build short. With a concrete type, the compiler would derive `Send` and
/// `Sync` of all engine types again for each handler, which took a third of the compile time of this crate.
#[derive(Clone)]
pub(crate) struct App(Arc<dyn AnyState>);

/// Type-erased state of the routes.
pub(crate) trait AnyState: Send + Sync {
    /// Returns the concrete state.
    fn shared(&self) -> &Shared;
}

impl AnyState for Shared {
    fn shared(&self) -> &Self {
        self
    }
}

/// Weak handle to the shared state, which does not keep the service alive.
pub(crate) struct WeakApp(Weak<dyn AnyState>);

impl WeakApp {
    /// Returns the handle; `None` if the service has ended.
    pub(crate) fn upgrade(&self) -> Option<App> {
        self.0.upgrade().map(App)
    }
}

pub(crate) struct Shared {
    /// Engine without access checks. Handlers do not use it: they get an engine from their
    /// [`Grant`](crate::grant::Grant).
    engine: Arc<Engine>,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) querier: Querier,
    pub(crate) settings: HttpSettings,
    /// Settings of the translation of OTLP metrics, shared with the decoders of requests.
    pub(crate) otlp: Arc<OtlpSettings>,
    pub(crate) metrics: Metrics,
    pub(crate) request_ids: RequestIds,
    pub(crate) refusals: Refusals,
    pub(crate) audit: AuditLog,
    pub(crate) started: Timestamp,
    /// Monotonic time at the start of the service.
    pub(crate) began: Duration,
    /// Budget of bytes for request bodies.
    pub(crate) body_bytes: Shares,
    /// Reader of request bodies within the budget `body_bytes`.
    pub(crate) bodies: BodyReader,
    /// Concurrent requests, shared fairly among clients.
    pub(crate) concurrent_requests: Shares,
    pub(crate) writes: Permits,
    /// Short reads of small writes. `None` if the engine is a cluster, whose reads take longer.
    pub(crate) inline_reads: Option<InlineReads>,
    /// Short reads of pages of messages. They are separate, because they take longer than the reads of a write.
    pub(crate) inline_pages: Option<InlineReads>,
    /// Permits for queries, searches, and those reads of the engine for which no other permits exist.
    pub(crate) queries: Permits,
    pub(crate) running: RunningQueries,
    /// Permits for exports in a Prometheus format. They are separate because an export lasts as long as its reader.
    pub(crate) exports: Permits,
    /// Permits for imports of rows. They are separate from `writes`, because an import lasts as long as its client
    /// sends.
    pub(crate) imports: Permits,
    /// Permits for uploads of values. They are separate from `writes`, because an upload lasts as long as its client
    /// sends.
    pub(crate) uploads: Permits,
    pub(crate) reads: Permits,
    /// Permits for queries of cold points and for requests for rows in cold or archived parts. They only keep these
    /// requests from occupying the permits of other queries; the querier limits how many of these requests run.
    pub(crate) cold_queries: Permits,
    /// Slots of requests that released their permit while they wait for a slow reader or for work of the server.
    pub(crate) slow_clients: Arc<Semaphore>,
    /// Permits for requests that wait for jobs.
    pub(crate) waits: Permits,
    /// Permits for watches, held while a watch is open.
    pub(crate) watches: Permits,
    pub(crate) watching: Watching,
    /// Permits for readers that wait for messages of feeds, held by a watch while it is open and by a request while it
    /// waits.
    pub(crate) feed_watches: Permits,
    pub(crate) feed_watching: Arc<FeedWatching>,
    pub(crate) change_streams: Arc<ChangeStreams>,
    pub(crate) tokens: TokenStore,
    pub(crate) tenants: TenantStore,
    /// Certificate and key of the listener; `None` without TLS.
    pub(crate) tls: Option<Arc<TlsFiles>>,
    /// Signal to requests that wait for changes; sent after each commit.
    pub(crate) change_news: tokio::sync::watch::Sender<()>,
    /// Permits for changes other than writes, such as deletes and changes of tables, attributes and jobs.
    pub(crate) changes: Permits,
    /// Permits for requested jobs. They are separate from `changes`, so that long jobs do not block short changes.
    pub(crate) requested_jobs: Permits,
    draining: AtomicBool,
}

impl std::ops::Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        self.0.shared()
    }
}

impl App {
    pub(crate) fn new(
        engine: Arc<Engine>,
        scheduler: Arc<Scheduler>,
        change_streams: Arc<ChangeStreams>,
        (tokens, tenants): (TokenStore, TenantStore),
        audit: AuditLog,
        tls: Option<Arc<TlsFiles>>,
        settings: HttpSettings,
    ) -> Self {
        let (started, began) = (engine.clock().now(), engine.clock().monotonic());
        let is_shared = engine.store().log().backend().capabilities().is_shared;
        let permits = |what, count| Permits::new(what, count, settings.turn_timeout);
        let tenants_max =
            TENANT_REQUESTS_PER_CORE * std::thread::available_parallelism().map_or(1, usize::from);
        let busy = |what, count| Permits::with_tenants_max(what, count, settings.turn_timeout, tenants_max);
        let querier = Querier::new(Arc::clone(&engine), &settings.query);
        let watching = Watching::new(engine.memory().clone(), settings.watch_bytes_per_second_max);
        engine.store().on_recent_entries(watching.waker());
        let feed_watching = Arc::new(FeedWatching::default());
        engine.store().on_recent_entries(feed_watching.waker());
        let change_news = tokio::sync::watch::Sender::new(());
        let news = change_news.clone();
        engine.store().on_recent_entries(move || {
            news.send_modify(|()| {});
        });
        let body_bytes = Shares::new(settings.bodies_in_flight_bytes_max);
        let cold_queries_max = COLD_QUERIES_MAX + settings.query.cold_waiting_max;
        Self(Arc::new(Shared {
            querier: querier.expect("the system can start threads"),
            otlp: Arc::new(settings.otlp_settings()),
            metrics: Metrics::new(),
            request_ids: RequestIds::new(started),
            refusals: Refusals::default(),
            audit,
            started,
            began,
            bodies: BodyReader::new(
                body_bytes.clone(),
                settings.body_timeout,
                settings.body_bytes_per_second_min,
            ),
            body_bytes,
            concurrent_requests: Shares::new(settings.connections_max),
            inline_reads: (!is_shared).then(|| InlineReads::new(SLOW_READ)),
            inline_pages: (!is_shared).then(|| InlineReads::new(SLOW_PAGE)),
            writes: busy("writes", settings.writes_in_flight_max),
            queries: busy("queries", settings.queries_in_flight_max),
            cold_queries: busy("queries of cold points and rows", cold_queries_max),
            exports: busy("exports", EXPORTS_IN_FLIGHT_MAX),
            imports: permits("imports of rows", IMPORTS_IN_FLIGHT_MAX),
            uploads: permits("uploads of values", UPLOADS_IN_FLIGHT_MAX),
            reads: busy("remote reads", READS_IN_FLIGHT_MAX),
            slow_clients: Arc::new(Semaphore::new(SLOW_CLIENTS_MAX)),
            waits: permits("requests that wait for jobs", WAITS_IN_FLIGHT_MAX),
            watches: permits("watches", settings.watches_max),
            watching,
            feed_watches: permits("watches of feeds", settings.feed_watches_max),
            feed_watching,
            change_streams,
            tokens,
            tenants,
            tls,
            change_news,
            changes: permits("changes", CHANGES_IN_FLIGHT_MAX),
            requested_jobs: permits("requested jobs", REQUESTED_JOBS_IN_FLIGHT_MAX),
            running: RunningQueries::default(),
            draining: AtomicBool::new(false),
            engine,
            scheduler,
            settings,
        }))
    }

    /// Returns the engine for the work of the service itself: metrics, readiness, waiting for changes,
    /// accounting of memory. This engine reaches every table, so nothing that it returns may depend on the
    /// content of a request.
    pub(crate) fn service_engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns the memory account of the request that this task handles: the account of its tenant if the tenant
    /// has a budget of memory, otherwise the account of the process.
    pub(crate) fn memory(&self) -> MemoryAccount {
        self.memory_of(current_tenant().as_deref())
    }

    /// Returns the memory account for the requests of a tenant, or for requests without a tenant.
    pub(crate) fn memory_of(&self, tenant: Option<&Tenant>) -> MemoryAccount {
        let process = self.engine.memory();
        let of_tenant = tenant.and_then(|tenant| tenant.memory(process));
        of_tenant.unwrap_or(process).clone()
    }

    /// Checks that the token of a request is still valid after the request has waited, for example for its body.
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorCode::Unauthenticated`] if the token has expired or was revoked, and with
    /// [`ErrorCode::Unavailable`] if its tenant has lost tables or was removed.
    pub(crate) fn check_valid(&self, principal: &Principal) -> Result<()> {
        let now = self.engine.clock().now();
        match principal.is_valid(now) {
            true => Ok(()),
            false if principal.is_token_valid(now) => Err(Failure::new(
                ErrorCode::Unavailable,
                "the tables of the tenant have changed while the request waited; send it again",
            )),
            false => Err(Failure::new(
                ErrorCode::Unauthenticated,
                "the token has expired or was revoked while the request waited",
            )),
        }
    }

    /// Returns the followed files whose newest version is not in use.
    pub(crate) fn files_behind(&self) -> Vec<FileKind> {
        let of_tls = self.tls.iter().flat_map(|files| files.files_behind());
        of_tls.chain(self.tokens.files_behind()).collect()
    }

    /// Returns the warnings for `/ready` about followed files and the end of the certificate.
    pub(crate) fn file_warnings(&self) -> Vec<String> {
        let behind = self.files_behind().into_iter().map(FileKind::warning);
        let now = self.engine.clock().now();
        let end = self.tls.as_ref().and_then(|files| files.end_warning(now));
        behind.chain(end).collect()
    }

    /// Returns a permit for a query if one is available without waiting, otherwise `None`.
    pub(crate) fn free_query_permit(&self) -> Option<Share> {
        self.queries.take_if_free(current_client())
    }

    /// Returns a weak handle, which does not keep the service alive.
    pub(crate) fn downgrade(&self) -> WeakApp {
        WeakApp(Arc::downgrade(&self.0))
    }

    /// Returns true if the service is shutting down.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Starts the shutdown: the service reports that it is not ready, and watches end.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.end_watches();
    }

    /// Wakes all watches, so that watches whose token is not valid any more end.
    pub(crate) fn end_watches(&self) {
        self.watching.tick_now();
        self.feed_watching.signal_all();
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").finish_non_exhaustive()
    }
}

/// Runs a search that stops if the client has disconnected or the time budget is used up. If the search was stopped and
/// fails, returns the error of `watch`.
pub(crate) fn stoppable<T>(watch: &Watch, search: impl FnOnce(Stop<'_>) -> Result<T>) -> Result<T> {
    let ended = Cell::new(None);
    let found = search(&|| {
        if let Err(error) = watch.check() {
            ended.set(Some(error));
            return true;
        }
        false
    });
    match (found, ended.into_inner()) {
        (Err(_), Some(error)) => Err(error.into()),
        (found, _) => found,
    }
}

/// Runs a call on a thread for blocking calls. A panic becomes an internal error.
pub(crate) async fn blocking<T, F>(call: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T> + Send + 'static,
{
    // The work can continue after its client has disconnected.
    let query = current_query();
    let call = move || {
        let _query = query;
        call()
    };
    match tokio::task::spawn_blocking(call).await {
        Ok(result) => result,
        Err(panicked) => {
            tracing::error!(%panicked, "a request panicked");
            Err(Failure::new(ErrorCode::Internal, "internal error"))
        }
    }
}

/// Guard that cancels the work of a request on drop. When the client disconnects, the handler is dropped, and the guard
/// with it. `None` disarms the guard.
pub(crate) struct Waiting(pub(crate) Option<Cancel>);

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(cancel) = &self.0 {
            cancel.cancel();
        }
    }
}
