//! Life cycle of a server: start, wait, stop.
//!
//! A stop is bounded in time, so that a process manager need not kill the process. Data acknowledged as synced
//! is safe in every case; the next start recovers it from the journal.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use tideline_backend_fjall::FjallBackend;
use tideline_engine::Engine;
use tideline_engine::archive::Archive;
use tideline_engine::backend::Backend;
use tideline_engine::catalog::TimelinesAhead;
use tideline_engine::model::{Clock, Timestamp};
use tideline_engine::runtime::{Helpers, Supervisor, ThreadFailure};
use tideline_http::Listeners;
use tideline_scheduler::{Models, Scheduler};
use tokio::net::TcpListener;
#[cfg(feature = "cassandra")]
use tokio::runtime::Handle;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::descriptors;
use crate::error::{Result, ServerError};
use crate::installation;
use crate::memory::MemoryLimit;
use crate::unix_socket::UnixSocket;

/// Running server. Dropping it without [`Self::wait`] has the effect of a kill: acknowledged data is safe, but
/// nothing is closed.
pub struct Server {
    address: SocketAddr,
    engine: Arc<Engine>,
    scheduler: Arc<Scheduler>,
    runtime: Runtime,
    stop: Stop,
    /// Supervisor of the threads of backend, store, index and scheduler.
    supervisor: Supervisor,
    /// Task that ends when the server no longer listens and all requests have ended, at the latest after the
    /// drain timeout.
    serving: JoinHandle<io::Result<()>>,
    /// Longest time from the stop request until the database is closed.
    end_timeout: Duration,
    /// Removes the file of the Unix socket at the end.
    unix: Option<UnixSocket>,
}

/// Handle to stop a [`Server`], from any thread and any number of times.
#[derive(Debug, Clone)]
pub struct Stop(watch::Sender<Option<StopRequest>>);

/// Time and source of a stop request.
#[derive(Debug, Clone, Copy)]
struct StopRequest {
    /// Time of the first request.
    first: Instant,
    /// True if a signal or the caller has requested the stop; false if only the server itself has.
    is_external: bool,
}

/// Maximum number of threads that help to read rows.
const HELPERS_MAX: usize = 31;
/// Time for background work to stop and the engine to close, in addition to the rest of the drain timeout.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Longest time for which a stopping server flushes its memory before the next owner of the data takes over. The server
/// still serves during that time, which is in addition to the drain timeout.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time in which the lease of the data is given up if the database has not closed in time.
const GIVE_UP_TIMEOUT: Duration = Duration::from_secs(1);
/// Time to wait for threads whose work is no longer needed.
const THREADS_TIMEOUT: Duration = Duration::from_millis(200);
/// Exit status if the process does not end in time after a thread has panicked.
const EXIT_FAILED: i32 = 1;
/// Exit status after a second signal.
const EXIT_IMPATIENT: i32 = 130;

impl Server {
    /// Listens, opens the database, starts background work, and serves. From the call on, SIGTERM and SIGINT stop the
    /// server, and a second signal ends the process immediately.
    ///
    /// Connections that arrive while the database opens have to wait. Blocks until the server accepts requests;
    /// must not be called from async code.
    ///
    /// # Errors
    ///
    /// Returns a [`ServerError`] if threads cannot be started, the address is not available, the data folder cannot be
    /// created or belongs to a server of a cluster, the store, the archive or the database cannot be opened, or serving
    /// ends immediately.
    pub fn start(config: &Config, clock: Arc<dyn Clock>) -> Result<Self> {
        let data_dir = &config.data_dir;
        Self::start_on(config, clock, |supervisor| {
            installation::refuse_cluster_folder(data_dir).map_err(|source| ServerError::DataDir {
                data_dir: data_dir.clone(),
                source,
            })?;
            let mut options = config.backend.clone();
            options.supervisor = supervisor.clone();
            let backend = FjallBackend::open(data_dir, options).map_err(|source| ServerError::Backend {
                data_dir: data_dir.clone(),
                source,
            })?;
            // A damaged folder is not modified: temporary data of the process is written elsewhere.
            let scratch = backend.scratch().map(Path::to_owned);
            Ok((Arc::new(backend), scratch))
        })
    }

    /// Starts a server like [`start`](Self::start), on the backend that `open` returns. `open` also returns the
    /// folder for temporary data of the process if that is not the data folder.
    ///
    /// # Errors
    ///
    /// Returns the errors of `start` and of `open`.
    pub fn start_on(
        config: &Config,
        clock: Arc<dyn Clock>,
        open: impl FnOnce(&Supervisor) -> Result<(Arc<dyn Backend>, Option<PathBuf>)>,
    ) -> Result<Self> {
        Self::start_in(Process::begin(config)?, config, clock, None, open)
    }

    /// Starts a server in a process that already listens, and that may have read timelines ahead.
    pub(crate) fn start_in(
        process: Process,
        config: &Config,
        clock: Arc<dyn Clock>,
        ahead: Option<TimelinesAhead>,
        open: impl FnOnce(&Supervisor) -> Result<(Arc<dyn Backend>, Option<PathBuf>)>,
    ) -> Result<Self> {
        let listeners = process.listeners(config)?;
        let Process {
            runtime,
            stop,
            address,
            files_max,
            unix,
            ..
        } = process;
        let supervisor = Supervisor::default();
        #[cfg(debug_assertions)]
        {
            tideline_engine::fail_points::from_environment();
            supervisor.on_round(tideline_engine::fail_points::at_round);
        }
        let end_timeout = config.http.drain_timeout.saturating_add(CLOSE_TIMEOUT);
        let stop_on_failure = stop.clone();
        supervisor.on_failure(move |failure| end_after(failure, &stop_on_failure, end_timeout));
        installation::prepare(&config.data_dir).map_err(|source| ServerError::DataDir {
            data_dir: config.data_dir.clone(),
            source,
        })?;
        let (backend, scratch) = open(&supervisor)?;
        let end_timeout = match backend.capabilities().is_shared {
            true => end_timeout.saturating_add(FLUSH_TIMEOUT),
            false => end_timeout,
        };
        let engine = Arc::new(open_engine(
            config,
            clock,
            &supervisor,
            (backend, ahead),
            scratch.as_deref(),
        )?);
        let mut scheduling = config.scheduler.clone();
        scheduling.supervisor = supervisor.clone();
        let scheduler = Arc::new(Scheduler::start(
            Arc::clone(&engine) as _,
            Models::of_engine(&engine),
            scheduling,
        ));
        let mut http = config.http_settings();
        let webhooks = config.webhook_settings();
        http.changes.webhooks = webhooks.map_err(|reason| ServerError::Webhooks { reason })?;
        http.connections_max =
            descriptors::connections_max(http.connections_max, files_max, config.backend.open_files_max);
        let (begun, has_begun) = mpsc::channel();
        let serving = runtime.spawn(tideline_http::serve(
            listeners,
            Arc::clone(&engine),
            Arc::clone(&scheduler),
            http,
            move || {
                // Fails only if this start has already ended.
                let _ = begun.send(());
            },
            stop_after_flush(stop.clone(), Arc::downgrade(&engine)),
        ));
        if has_begun.recv().is_err() {
            let end = runtime
                .block_on(serving)
                .map_err(io::Error::other)
                .and_then(|end| end);
            // The service reads stored state when it begins, which fails without the lease.
            engine.check_lease().map_err(|source| ServerError::Engine {
                data_dir: config.data_dir.clone(),
                source,
            })?;
            let reason = end.map_or_else(|error| error.to_string(), |()| "it ended immediately".to_owned());
            return Err(ServerError::Serve { reason });
        }
        let warmed = Arc::downgrade(&engine);
        // The thread is detached: it holds no reference to the engine between its steps, and closing the
        // database ends it. It mostly reads ahead, so nothing depends on it. It starts when the service serves, because
        // the first requests need the cores more.
        let warmer = std::thread::Builder::new().name("warmer".to_owned());
        warmer
            .spawn(move || Engine::warm(&warmed))
            .map_err(ServerError::Threads)?;
        Ok(Self {
            address,
            engine,
            scheduler,
            runtime,
            stop,
            supervisor,
            serving,
            end_timeout,
            unix,
        })
    }

    /// Returns the listen address, including the port that the system chose for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a handle to stop the server.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Returns the engine.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Serves until a stop is requested, then waits for running requests, cancels background work, and closes
    /// the database.
    ///
    /// After the stop request, this takes at most the drain timeout plus 1.7 s, by default less than 5 s. If other
    /// processes can take over the data, the server first flushes its memory for up to 5 s, and still serves meanwhile.
    /// If the database then does not close in time, for example because the flush still runs, the server gives up the
    /// lease without closing, which takes up to 1 s more. If the storage is slow, the last audit records and the positions
    /// of webhooks can take up to 6 s more. Data acknowledged as synced is safe, even if this returns an error.
    ///
    /// # Errors
    ///
    /// Returns [`ServerError::Thread`] after a panic in a thread that the database depends on, and
    /// [`ServerError::Serve`] if listening ended without a stop request. Also returns an error if the database does not
    /// close cleanly or in time.
    pub fn wait(self) -> Result<()> {
        let Self {
            engine,
            scheduler,
            runtime,
            stop,
            supervisor,
            serving,
            end_timeout,
            unix,
            ..
        } = self;
        let end = runtime.block_on(serving);
        drop(unix);
        let served = match end {
            Ok(Ok(())) if stop.is_requested() => Ok(()),
            Ok(Ok(())) => Err("it no longer listens".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let left = end_timeout.saturating_sub(stop.elapsed());
        let unclosed = Arc::downgrade(&engine);
        let closed = close(scheduler, engine, left.max(CLOSE_TIMEOUT));
        // A process that has failed does not give up its lease: the next owner takes over when the lease has ended.
        if matches!(closed, Err(ServerError::CloseTimeout(_))) && stop.is_requested_externally() {
            give_up(&unclosed);
        }
        runtime.shutdown_timeout(THREADS_TIMEOUT);
        if let Some(failure) = supervisor.failure() {
            return Err(ServerError::Thread(failure.clone()));
        }
        served.map_err(|reason| ServerError::Serve { reason }).and(closed)
    }
}

/// Process that listens, and stops on signals.
pub(crate) struct Process {
    pub(crate) runtime: Runtime,
    pub(crate) stop: Stop,
    pub(crate) address: SocketAddr,
    pub(crate) listener: std::net::TcpListener,
    pub(crate) unix: Option<UnixSocket>,
    files_max: Option<u64>,
}

impl Process {
    /// Starts the threads of the runtime, handles signals from now on, and listens.
    pub(crate) fn begin(config: &Config) -> Result<Self> {
        let files_max = descriptors::raise_limit();
        let runtime = Builder::new_multi_thread()
            .enable_all()
            .thread_name("tideline")
            .build()
            .map_err(ServerError::Threads)?;
        let stop = Stop::new();
        runtime
            .block_on(async { stop_on_signals(&stop) })
            .map_err(ServerError::Threads)?;
        let listening = |source| ServerError::Listen {
            address: config.listen,
            source,
        };
        let listener = runtime
            .block_on(TcpListener::bind(config.listen))
            .and_then(TcpListener::into_std)
            .map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;
        let bind = |path: &PathBuf| UnixSocket::bind(path).map_err(listening_on(path));
        let unix = config.unix_socket.as_ref().map(bind).transpose()?;
        Ok(Self {
            runtime,
            stop,
            address,
            listener,
            unix,
            files_max,
        })
    }

    /// Duplicates the handles of the listening sockets.
    pub(crate) fn listeners(&self, config: &Config) -> Result<Listeners> {
        let _in_runtime = self.runtime.enter();
        let listener = self.listener.try_clone().and_then(TcpListener::from_std);
        let listener = listener.map_err(|source| ServerError::Listen {
            address: config.listen,
            source,
        })?;
        let listeners = Listeners::from(listener);
        match (&self.unix, &config.unix_socket) {
            (Some(unix), Some(path)) => {
                let unix = unix.listener().map_err(listening_on(path))?;
                Ok(listeners.with_unix(unix))
            }
            _ => Ok(listeners),
        }
    }
}

fn listening_on(path: &Path) -> impl FnOnce(io::Error) -> ServerError {
    |source| ServerError::ListenUnix {
        path: path.to_owned(),
        source,
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Server")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Stop {
    /// Creates a handle without a request.
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Returns a handle on which the first SIGTERM or SIGINT requests a stop. A second signal ends the process
    /// immediately.
    ///
    /// The handle is for work that runs without a server. A thread waits for the signals until the process ends.
    ///
    /// # Errors
    ///
    /// [`ServerError::Threads`] if the thread cannot be started.
    pub fn on_signals() -> Result<Self> {
        let stop = Self::new();
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ServerError::Threads)?;
        runtime
            .block_on(async { stop_on_signals(&stop) })
            .map_err(ServerError::Threads)?;
        let wait = move || runtime.block_on(std::future::pending::<()>());
        let thread = thread::Builder::new().name("signals".to_owned());
        thread.spawn(wait).map_err(ServerError::Threads)?;
        Ok(stop)
    }

    /// Requests the stop and returns immediately.
    pub fn request(&self) {
        self.request_as(true);
    }

    /// Requests the stop from within the server, because the server cannot continue.
    pub(crate) fn request_by_server(&self) {
        self.request_as(false);
    }

    fn request_as(&self, is_external: bool) {
        self.0.send_if_modified(|requested| {
            let is_first = requested.is_none();
            let request = requested.get_or_insert_with(|| StopRequest {
                first: Instant::now(),
                is_external,
            });
            request.is_external |= is_external;
            is_first
        });
    }

    /// Returns true if a stop was requested.
    pub fn is_requested(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Returns true if a signal or [`request`](Self::request) has requested a stop, so that the process is expected to
    /// end. The server itself also stops after it has lost its data, or after a panic.
    pub fn is_requested_externally(&self) -> bool {
        self.0.borrow().is_some_and(|request| request.is_external)
    }

    /// Waits for a stop request, at most for `time`. `runtime` runs the timer.
    #[cfg(feature = "cassandra")]
    pub(crate) fn wait_at_most(&self, time: Duration, runtime: &Handle) {
        // The outcome is in the value of the channel.
        let _ = runtime.block_on(async { tokio::time::timeout(time, self.requested()).await });
    }

    /// Returns the time since the first stop request; zero without a request.
    fn elapsed(&self) -> Duration {
        self.0
            .borrow()
            .map_or(Duration::ZERO, |request| request.first.elapsed())
    }

    /// Waits for a stop request.
    pub(crate) fn requested(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut requested = self.0.subscribe();
        async move {
            // Fails only if no sender is left, so that no stop can be requested any more.
            let _ = requested.wait_for(Option::is_some).await;
        }
    }
}

/// Earliest plausible system time: 2026-01-01T00:00:00Z. A machine with an empty clock battery starts in 1970 or 2000,
/// and on a first start there is no other evidence of a wrong clock.
const CLOCK_FLOOR: i64 = 1_767_225_600_000_000_000;

/// Ends the process after a panic in a thread that the database depends on. Running requests get their responses, new
/// writes are refused, and the next start recovers all acknowledged data. If the stop takes too long, the process is
/// ended immediately.
fn end_after(failure: &ThreadFailure, stop: &Stop, timeout: Duration) {
    let ThreadFailure { thread, reason } = failure;
    tracing::error!(
        thread,
        reason,
        "a thread that the database depends on has panicked; the process ends and must be restarted"
    );
    stop.request_by_server();
    let timeout = timeout
        .saturating_add(CLOSE_TIMEOUT)
        .saturating_add(THREADS_TIMEOUT);
    let forced = thread::Builder::new()
        .name("tideline-end".to_owned())
        .spawn(move || {
            let (_kept, silence) = mpsc::channel::<()>();
            let _timed_out = silence.recv_timeout(timeout);
            tracing::error!(?timeout, "the process did not end in time; ending it now");
            std::process::exit(EXIT_FAILED);
        });
    if forced.is_err() {
        std::process::exit(EXIT_FAILED);
    }
}

/// Returns the number of threads that help to read rows: with the thread of the request, one per core, or one per
/// network request that may be in flight.
fn helper_count(requests_in_flight: usize) -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    (cores.max(requests_in_flight) - 1).min(HELPERS_MAX)
}

fn open_engine(
    config: &Config,
    clock: Arc<dyn Clock>,
    supervisor: &Supervisor,
    (backend, ahead): (Arc<dyn Backend>, Option<TimelinesAhead>),
    scratch: Option<&Path>,
) -> Result<Engine> {
    let archive = config.archive_settings().map(|mut archive| {
        if let Some(scratch) = scratch {
            archive.temporary = scratch.join("archive");
            archive.disk_cache = None;
        }
        archive
    });
    let archive = archive.and_then(Archive::open);
    let archive = archive.and_then(|archive| archive.default_target().map(|_| archive));
    let archive = archive.map_err(ServerError::Archive)?;
    let mut settings = config.engine_settings();
    let memory = MemoryLimit::of_process();
    let head_bytes_max = settings.store.head.bytes_max;
    tracing::info!(
        memory_bytes = memory.bytes,
        source = %memory.source,
        max_bytes = settings.memory.whole_bytes(),
        requests_bytes_max = settings.memory.limit_bytes(),
        head_bytes_max,
        "memory limit"
    );
    settings.store.archive = Some(Arc::new(archive));
    settings.store.log.clock_floor = Timestamp::from_nanos_clamped(CLOCK_FLOOR);
    settings.store.accept_loss = config.backend.accept_loss;
    if let Some(scratch) = scratch {
        settings.index_dir = scratch.join("index");
    }
    settings.store.log.supervisor = supervisor.clone();
    let in_flight = backend.capabilities().requests_in_flight;
    let helpers = Helpers::start("row-reads", helper_count(in_flight)).map_err(ServerError::Threads)?;
    settings.helpers = Arc::new(helpers);
    let begun = Instant::now();
    let engine =
        Engine::open_ahead(backend, clock, settings, ahead).map_err(|source| ServerError::Engine {
            data_dir: config.data_dir.clone(),
            source,
        })?;
    let stats = engine.stats();
    tracing::info!(
        took = ?begun.elapsed(),
        tables = stats.tables,
        timelines = stats.timelines,
        replayed_entries = stats.replayed.entries,
        "the database is open"
    );
    for (table, reason) in engine.tables_without_target() {
        tracing::warn!(%table, reason, "archiving of this table is paused; archived files are still read");
    }
    Ok(engine)
}

/// Stops the server on the first SIGTERM or SIGINT, and ends the process on the second.
fn stop_on_signals(stop: &Stop) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = stop.clone();
    tokio::spawn(async move {
        let name = either(&mut terminate, &mut interrupt).await;
        tracing::info!("{name}: stopping; send it again to end immediately");
        stop.request();
        let name = either(&mut terminate, &mut interrupt).await;
        tracing::warn!("{name} again: ending immediately");
        std::process::exit(EXIT_IMPATIENT);
    });
    Ok(())
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

/// Waits for a stop request, and then flushes the memory if another process can take over the data. The next owner then
/// replays only the few entries that are committed after the flush has begun.
///
/// After an error or the timeout, the next owner replays more entries.
async fn stop_after_flush(stop: Stop, engine: Weak<Engine>) {
    stop.requested().await;
    // A server that stops by itself has lost the data, or has failed.
    let Some(engine) = engine.upgrade().filter(|_| stop.is_requested_externally()) else {
        return;
    };
    let store = engine.store();
    if !store.backend().capabilities().is_shared || store.log().check_lease().is_err() {
        return;
    }
    let begun = Instant::now();
    let flush = tokio::task::spawn_blocking(move || engine.store().seal());
    match tokio::time::timeout(FLUSH_TIMEOUT, flush).await {
        Ok(Ok(Ok(()))) => tracing::info!(took = ?begun.elapsed(), "the memory is flushed for the next owner"),
        Ok(Ok(Err(error))) => tracing::warn!(%error, "the flush for the next owner failed"),
        Ok(Err(error)) => tracing::error!(%error, "the flush for the next owner panicked"),
        Err(_) => {
            tracing::warn!(timeout = ?FLUSH_TIMEOUT, "the flush for the next owner did not end in time");
        }
    }
}

/// Interrupts waits for archive targets, stops background work, and closes the engine. The work runs in a separate
/// thread, so that a store that hangs cannot block the end of the process: after `timeout`, an error is returned.
fn close(scheduler: Arc<Scheduler>, engine: Arc<Engine>, timeout: Duration) -> Result<()> {
    let (done, closed) = mpsc::channel();
    thread::Builder::new()
        .name("tideline-close".to_owned())
        .spawn(move || {
            // Jobs and queries that wait for an archive target are not interrupted otherwise.
            engine.store().stop_archive();
            scheduler.stop();
            let outcome = engine.close();
            drop((scheduler, engine));
            // After the timeout, the receiver is dropped and the outcome is not needed.
            let _ = done.send(outcome);
        })
        .map_err(ServerError::Threads)?;
    match closed.recv_timeout(timeout) {
        Ok(outcome) => outcome.map_err(ServerError::Close),
        Err(_) => Err(ServerError::CloseTimeout(timeout)),
    }
}

/// Gives up the lease of a database that has not closed in time, so that the next owner need not wait for its end. Does
/// nothing if no other process can take over the data.
///
/// Work that still runs, such as a flush, has no effect after the next owner has taken the data: its edits are refused,
/// because they name the epoch of this process.
fn give_up(engine: &Weak<Engine>) {
    let is_shared = |engine: &Arc<Engine>| engine.store().backend().capabilities().is_shared;
    let Some(engine) = engine.upgrade().filter(is_shared) else {
        return;
    };
    let (done, given_up) = mpsc::channel();
    let end = move || {
        let store = engine.store();
        store
            .log()
            .end_lease("the process ends, and the database did not close in time");
        // After the timeout, the receiver is dropped and the outcome is not needed.
        let _ = done.send(store.backend().close());
    };
    // If the thread cannot be started, the sender is dropped.
    let _thread = thread::Builder::new()
        .name("tideline-give-up".to_owned())
        .spawn(end);
    match given_up.recv_timeout(GIVE_UP_TIMEOUT) {
        Ok(Ok(())) => tracing::info!("the lease is given up; the next owner replays what is not flushed"),
        Ok(Err(error)) => tracing::warn!(%error, "the lease could not be given up"),
        Err(error) => {
            tracing::warn!(%error, timeout = ?GIVE_UP_TIMEOUT, "the lease could not be given up in time");
        }
    }
}
