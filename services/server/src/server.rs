//! A running server: started, waited for, stopped.

use std::fmt;
use std::fs::DirBuilder;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tideline_backend_fjall::FjallBackend;
use tideline_engine::Engine;
use tideline_engine::archive::Archive;
use tideline_engine::backend::Backend;
use tideline_engine::model::{Clock, Timestamp};
use tideline_engine::runtime::{Supervisor, ThreadFailure};
use tideline_scheduler::{Models, Scheduler};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::descriptors;
use crate::error::{Result, ServerError};
use crate::memory::MemoryLimit;

/// A server that answers. Dropping it without [`Self::wait`] ends it as a kill would: safe, but not clean.
pub struct Server {
    address: SocketAddr,
    engine: Arc<Engine>,
    scheduler: Arc<Scheduler>,
    runtime: Runtime,
    stop: Stop,
    /// Supervises the threads of backend, store, index and scheduler.
    supervisor: Supervisor,
    /// Ends when the server does not listen any more and all requests have been answered.
    serving: JoinHandle<io::Result<()>>,
    /// From being asked to stop to the end.
    end_timeout: Duration,
}

/// Asks a [`Server`] to stop, from any thread and any number of times.
#[derive(Debug, Clone)]
pub struct Stop(watch::Sender<Option<Instant>>);

/// How long background work may take to stop, and the engine to close, beside what requests have left of their time.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(1_500);
/// How long threads that still work for nobody are waited for.
const THREADS_TIMEOUT: Duration = Duration::from_millis(200);
/// Exit status if the process does not end in time after a thread has panicked.
const EXIT_FAILED: i32 = 1;
/// Exit status after a second signal: somebody did not want to wait.
const EXIT_IMPATIENT: i32 = 130;

impl Server {
    /// Listens, opens the database, begins background work, and serves. From now on SIGTERM and SIGINT stop it, and a
    /// second one ends the process at once.
    ///
    /// Connections that come while the database opens wait. Blocks until it answers; not to be called from async
    /// code.
    pub fn start(config: &Config, clock: Arc<dyn Clock>) -> Result<Self> {
        let data_dir = &config.data_dir;
        Self::start_on(config, clock, |supervisor| {
            let mut options = config.backend.clone();
            options.supervisor = supervisor.clone();
            let backend = FjallBackend::open(data_dir, options).map_err(|source| ServerError::Backend {
                data_dir: data_dir.clone(),
                source,
            })?;
            // A damaged folder is left as it is: what the process writes for itself goes elsewhere.
            let scratch = backend.scratch().map(Path::to_owned);
            Ok((Arc::new(backend), scratch))
        })
    }

    /// As [`start`](Self::start), on the backend that `open` opens; with the folder for what the process writes for itself,
    /// where that is not the data folder.
    ///
    /// # Errors
    ///
    /// As `start`, and those of `open`.
    pub fn start_on(
        config: &Config,
        clock: Arc<dyn Clock>,
        open: impl FnOnce(&Supervisor) -> Result<(Arc<dyn Backend>, Option<PathBuf>)>,
    ) -> Result<Self> {
        let files_max = descriptors::raise_limit();
        let runtime = Builder::new_multi_thread()
            .enable_all()
            .thread_name("tideline")
            .build()
            .map_err(ServerError::Threads)?;
        let stop = Stop(watch::Sender::new(None));
        runtime
            .block_on(async { stop_on_signals(&stop) })
            .map_err(ServerError::Threads)?;
        let listening = |source| ServerError::Listen {
            address: config.listen,
            source,
        };
        let listener = runtime
            .block_on(TcpListener::bind(config.listen))
            .map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;
        let supervisor = Supervisor::default();
        #[cfg(feature = "fail-points")]
        {
            tideline_engine::fail_points::from_environment();
            supervisor.on_round(tideline_engine::fail_points::at_round);
        }
        let end_timeout = config.http.drain_timeout.saturating_add(CLOSE_TIMEOUT);
        let stop_on_failure = stop.clone();
        supervisor.on_failure(move |failure| end_after(failure, &stop_on_failure, end_timeout));
        make_private(&config.data_dir).map_err(|source| ServerError::DataDir {
            data_dir: config.data_dir.clone(),
            source,
        })?;
        let (backend, scratch) = open(&supervisor)?;
        let engine = Arc::new(open_engine(
            config,
            clock,
            &supervisor,
            backend,
            scratch.as_deref(),
        )?);
        let mut scheduling = config.scheduler.clone();
        scheduling.supervisor = supervisor.clone();
        let scheduler = Arc::new(Scheduler::start(
            Arc::clone(&engine) as _,
            Models::new(Arc::clone(&engine) as _),
            scheduling,
        ));
        let ahead = Arc::downgrade(&engine);
        // Detached: it keeps nothing alive between its steps, and closing the database ends it. Nothing depends on it:
        // what it has not read ahead is read when it is needed.
        let warmer = std::thread::Builder::new().name("warmer".to_owned());
        warmer
            .spawn(move || Engine::warm(&ahead))
            .map_err(ServerError::Threads)?;
        let mut http = config.http_settings();
        http.connections_max =
            descriptors::connections_max(http.connections_max, files_max, config.backend.open_files_max);
        let (begun, has_begun) = mpsc::channel();
        let serving = runtime.spawn(tideline_http::serve(
            listener,
            Arc::clone(&engine),
            Arc::clone(&scheduler),
            http,
            move || {
                // Fails only when this start has ended already.
                let _ = begun.send(());
            },
            stop.asked(),
        ));
        if has_begun.recv().is_err() {
            let end = runtime
                .block_on(serving)
                .map_err(io::Error::other)
                .and_then(|end| end);
            let reason = end.map_or_else(|error| error.to_string(), |()| "it ended at once".to_owned());
            return Err(ServerError::Serve { reason });
        }
        Ok(Self {
            address,
            engine,
            scheduler,
            runtime,
            stop,
            supervisor,
            serving,
            end_timeout,
        })
    }

    /// Where it listens, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What asks it to stop.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Serves until it is asked to stop, then lets running requests end, gives up background work, and closes the
    /// database.
    ///
    /// Returns within the drain timeout and 1.7 s of being asked, so by default within 5 s. What was acknowledged as
    /// synced is safe whatever this returns.
    ///
    /// # Errors
    ///
    /// Also ends, with [`ServerError::Thread`], after a panic in a thread that the database depends upon.
    pub fn wait(self) -> Result<()> {
        let Self {
            engine,
            scheduler,
            runtime,
            stop,
            supervisor,
            serving,
            end_timeout,
            ..
        } = self;
        let end = runtime.block_on(serving);
        let served = match end {
            Ok(Ok(())) if stop.is_asked() => Ok(()),
            Ok(Ok(())) => Err("it no longer listens".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let left = end_timeout.saturating_sub(stop.asked_for());
        let closed = close(scheduler, engine, left.max(CLOSE_TIMEOUT));
        runtime.shutdown_timeout(THREADS_TIMEOUT);
        if let Some(failure) = supervisor.failure() {
            return Err(ServerError::Thread(failure.clone()));
        }
        served.map_err(|reason| ServerError::Serve { reason }).and(closed)
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
    /// Asks. Returns at once.
    pub fn ask(&self) {
        self.0.send_if_modified(|asked| {
            let is_first = asked.is_none();
            asked.get_or_insert_with(Instant::now);
            is_first
        });
    }

    /// Whether somebody has asked.
    pub fn is_asked(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// How long ago somebody first asked.
    fn asked_for(&self) -> Duration {
        self.0.borrow().map_or(Duration::ZERO, |asked| asked.elapsed())
    }

    /// Resolves when somebody has asked.
    fn asked(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut asked = self.0.subscribe();
        async move {
            // Fails only when no sender is left, and then nobody can ask any more.
            let _ = asked.wait_for(Option::is_some).await;
        }
    }
}

/// 2026-01-01T00:00:00Z, before this program was made: a machine whose battery is empty starts in 1970 or 2000. Where that is
/// a first start, nothing else shows that its clock is wrong.
const CLOCK_FLOOR: i64 = 1_767_225_600_000_000_000;

/// Ends the process after a panic in a thread that the database depends upon: requests that run get their replies, new
/// writes are refused, and the next start recovers everything acknowledged. If that takes too long, it ends at once.
fn end_after(failure: &ThreadFailure, stop: &Stop, timeout: Duration) {
    let ThreadFailure { thread, reason } = failure;
    tracing::error!(
        thread,
        reason,
        "a thread that the database depends upon panicked; the process ends, restart it"
    );
    stop.ask();
    let timeout = timeout
        .saturating_add(CLOSE_TIMEOUT)
        .saturating_add(THREADS_TIMEOUT);
    let forced = thread::Builder::new()
        .name("tideline-end".to_owned())
        .spawn(move || {
            let (_kept, silence) = mpsc::channel::<()>();
            let _timed_out = silence.recv_timeout(timeout);
            tracing::error!(?timeout, "the process did not end in time; ending at once");
            std::process::exit(EXIT_FAILED);
        });
    if forced.is_err() {
        std::process::exit(EXIT_FAILED);
    }
}

fn open_engine(
    config: &Config,
    clock: Arc<dyn Clock>,
    supervisor: &Supervisor,
    backend: Arc<dyn Backend>,
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
    let engine = Engine::open(backend, clock, settings).map_err(|source| ServerError::Engine {
        data_dir: config.data_dir.clone(),
        source,
    })?;
    for (table, reason) in engine.tables_without_target() {
        tracing::warn!(%table, reason, "nothing more of this table is archived; what is in files there is still read");
    }
    Ok(engine)
}

/// Makes the folder if it is missing, for nobody but its owner. One that is there keeps its mode: somebody chose it.
fn make_private(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Stops on the first SIGTERM or SIGINT, ends the process on the second.
fn stop_on_signals(stop: &Stop) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = stop.clone();
    tokio::spawn(async move {
        let name = either(&mut terminate, &mut interrupt).await;
        tracing::info!("{name}: stopping; once more to end at once");
        stop.ask();
        let name = either(&mut terminate, &mut interrupt).await;
        tracing::warn!("{name} again: ending at once");
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

/// Stops background work and whoever waits for a target of the archive, then closes, in a thread of its own, so that a store that hangs cannot hold the process.
fn close(scheduler: Arc<Scheduler>, engine: Arc<Engine>, timeout: Duration) -> Result<()> {
    let (done, closed) = mpsc::channel();
    thread::Builder::new()
        .name("tideline-close".to_owned())
        .spawn(move || {
            // A job, or a question, that waits for a target would not hear of it otherwise.
            engine.store().stop_archive();
            scheduler.stop();
            let outcome = engine.close();
            drop((scheduler, engine));
            // Nobody listens after the timeout, and then the outcome is of no use.
            let _ = done.send(outcome);
        })
        .map_err(ServerError::Threads)?;
    match closed.recv_timeout(timeout) {
        Ok(outcome) => outcome.map_err(ServerError::Close),
        Err(_) => Err(ServerError::CloseTimeout(timeout)),
    }
}
