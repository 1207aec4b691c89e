//! Life of a server whose data is in a cluster.
//!
//! 1. *Connect*, and try again while the cluster cannot be reached.
//! 2. *Stand by*: forward requests to the owner of the data, until this process can take the data.
//! 3. *Open* the database. Until it is open, the service of the standby answers health checks and refuses other requests.
//! 4. *Own*: serve like a server with an embedded engine.
//!
//! A server that loses the data, because it was paused for longer than its lease, ends with
//! [`ServerError::OwnershipLost`]. The process then replaces itself by a new one, so that no state of the data remains
//! in memory. If a stop was requested, the process ends instead.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, io, thread};

use tideline_backend_cassandra::{CassandraBackend, CassandraOptions};
use tideline_engine::ErrorKind as EngineErrorKind;
use tideline_engine::backend::{Backend, BackendError, Epoch, ErrorKind, Shard};
use tideline_engine::catalog::TimelinesAhead;
use tideline_engine::model::Clock;
use tideline_http::standby::{self, KnownOwner};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::config::{Config, INDEX_FOLDER};
use crate::error::{Result, ServerError};
use crate::installation::{self, CLUSTER_LOCK, STORE};
use crate::read_ahead::ReadAhead;
use crate::server::{Process, Server, Stop};

/// The shard with all data.
const SHARD: Shard = Shard(0);
/// File with the epoch in which this folder's search index was written.
const EPOCH_FILE: &str = "epoch";
/// Pause after a failed connection.
const RECONNECT_AFTER: Duration = Duration::from_secs(1);
/// Longest wait between two attempts to take the data.
const RETRY_MAX: Duration = Duration::from_millis(250);
/// Interval at which an owner checks whether it lost the data.
const LOSS_INTERVAL: Duration = Duration::from_millis(100);
/// Denominator of the share of `memory.max` that timelines of a standby may take. The timelines of an owner have a
/// higher limit of their own.
const AHEAD_PART: u64 = 4;
/// Longest time for which the service of a standby finishes its requests after it has ended.
const HAND_OVER: Duration = Duration::from_millis(200);

/// Server that owns the data of a cluster.
#[derive(Debug)]
pub struct Owner {
    server: Server,
    is_lost: Arc<AtomicBool>,
    /// Ends the thread that watches the lease.
    watching: mpsc::Sender<()>,
    /// Keeps other processes out of the data folder.
    _lock: File,
}

/// Outcome of [`start`].
#[derive(Debug)]
pub enum Started {
    /// The server owns the data and serves.
    Owner(Box<Owner>),
    /// A stop was requested before the server served.
    Stopped,
}

/// Returns the options of the backend.
///
/// # Errors
///
/// [`ServerError::PasswordFile`] if the password file cannot be read.
pub fn options(config: &Config) -> Result<CassandraOptions> {
    let cluster = &config.cluster;
    let password = cluster.password_file.as_ref().map(|file| {
        let read = fs::read_to_string(file);
        read.map(|text| text.trim_end_matches(['\n', '\r']).to_owned())
            .map_err(|source| ServerError::PasswordFile {
                file: file.clone(),
                source,
            })
    });
    Ok(CassandraOptions {
        contact: cluster.contact.clone(),
        keyspace: cluster.keyspace.clone(),
        data_center: cluster.data_center.clone(),
        user: cluster.user.clone(),
        password: password.transpose()?,
        is_tls: cluster.is_tls,
        ca_file: cluster.ca_file.clone(),
        acknowledged: cluster.acknowledged,
        lease: cluster.lease,
        advertise: config.advertised(config.listen),
        request_timeout: cluster.request_timeout,
        call_timeout: cluster.call_timeout,
        ..CassandraOptions::default()
    })
}

/// Listens, stands by until this process owns the data, and starts to serve. `listening` is called with the address as
/// soon as the process listens.
///
/// # Errors
///
/// Returns the errors of [`Server::start`], and errors of the cluster that a retry cannot fix, such as missing tables.
/// Returns [`ServerError::OwnershipLost`] if another process took the data before this process had opened it, or if the
/// cluster did not respond during that time. If a stop was requested, it returns [`Started::Stopped`] instead.
pub fn start(config: &Config, clock: Arc<dyn Clock>, listening: impl FnOnce(SocketAddr)) -> Result<Started> {
    let process = Process::begin(config)?;
    listening(process.address);
    let lock = lock(&config.data_dir)?;
    let mut options = options(config)?;
    // With port 0, the system chose the port.
    options.advertise = config.advertised(process.address);
    let standing = Standing::begin(config, &process, Arc::clone(&clock))?;
    let runtime = process.runtime.handle();
    let ahead_bytes_max = config.memory_plan().max_bytes / AHEAD_PART;
    let taken = take_data(&options, &standing.known, &process.stop, runtime, ahead_bytes_max);
    let (backend, before, ahead) = match taken {
        Ok(Some(taken)) if !standing.serving.is_finished() => taken,
        other => {
            // The service then has the last handles of the sockets, so new connections are refused as soon as it ends.
            drop((process.listener, process.unix));
            standing.end(runtime)?;
            return other.map(|_| Started::Stopped);
        }
    };
    standing.known.send_replace(KnownOwner {
        address: None,
        reason: "this process has taken the data, and opens it".to_owned(),
        is_starting: true,
    });
    discard_foreign_index(&config.data_dir, before).map_err(data_dir(config))?;
    let stop = process.stop.clone();
    let opened = Arc::clone(&backend);
    let runtime = runtime.clone();
    let server = Server::start_in(process, config, clock, ahead, |_| {
        Ok((opened as Arc<dyn Backend>, None))
    });
    let server = match server {
        // An expired lease is an error of this kind, too.
        Err(ServerError::Engine { source, .. }) if source.kind() == EngineErrorKind::Unavailable => {
            tracing::warn!(error = %source, "the data could not be opened");
            return after_loss(&stop, Ok(Started::Stopped));
        }
        server => server?,
    };
    if standing.serving.is_finished() {
        // The service has failed, and has requested a stop.
        let failed = standing.end(&runtime);
        let stopped = server.wait();
        return failed.and(stopped).map(|()| Started::Stopped);
    }
    // Both services listen on the same sockets, so no connection is refused in between.
    drop(standing);
    let epoch = server.engine().store().log().epoch();
    fs::write(config.data_dir.join(EPOCH_FILE), epoch.0.to_string()).map_err(data_dir(config))?;
    let (watching, ended) = mpsc::channel();
    let is_lost = Arc::new(AtomicBool::new(false));
    let (engine, lost) = (Arc::downgrade(server.engine()), Arc::clone(&is_lost));
    let watch = move || {
        while ended.recv_timeout(LOSS_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
            let Some(engine) = engine.upgrade() else { return };
            if engine.store().log().is_lease_lost() {
                lost.store(true, Ordering::Release);
                stop.request_by_server();
                return;
            }
        }
    };
    let thread = thread::Builder::new().name("ownership".to_owned());
    thread.spawn(watch).map_err(ServerError::Threads)?;
    Ok(Started::Owner(Box::new(Owner {
        server,
        is_lost,
        watching,
        _lock: lock,
    })))
}

impl Owner {
    /// Returns the server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Returns a handle to stop the server.
    pub fn stop(&self) -> Stop {
        self.server.stop()
    }

    /// Serves until a stop is requested, like [`Server::wait`], or until another process owns the data.
    ///
    /// # Errors
    ///
    /// [`ServerError::OwnershipLost`] if another process owns the data and no stop was requested; the errors of
    /// [`Server::wait`].
    pub fn wait(self) -> Result<()> {
        let stop = self.server.stop();
        let outcome = self.server.wait();
        // Fails if the thread has ended.
        let _ = self.watching.send(());
        match self.is_lost.load(Ordering::Acquire) {
            true => after_loss(&stop, outcome),
            false => outcome,
        }
    }
}

/// Returns the outcome of a process that has lost the data: `stopped` if a stop was requested, because the process must
/// not begin again then; otherwise [`ServerError::OwnershipLost`].
fn after_loss<T>(stop: &Stop, stopped: Result<T>) -> Result<T> {
    match stop.is_requested_externally() {
        true => stopped,
        false => Err(ServerError::OwnershipLost),
    }
}

/// Service of a process that does not serve the data yet. Dropping it ends the service, and lets its requests finish.
struct Standing {
    known: watch::Sender<KnownOwner>,
    /// Ends the service when it is dropped.
    end: oneshot::Sender<()>,
    /// Task of the service. If it fails, the process stops.
    serving: JoinHandle<io::Result<()>>,
}

impl Standing {
    fn begin(config: &Config, process: &Process, clock: Arc<dyn Clock>) -> Result<Self> {
        let listeners = process.listeners(config)?;
        let (known, seen) = watch::channel(KnownOwner {
            address: None,
            reason: "this process is connecting to the cluster".to_owned(),
            is_starting: false,
        });
        let (end, ended) = oneshot::channel::<()>();
        let (settings, stop) = (config.http_settings(), process.stop.clone());
        let serving = process.runtime.spawn(async move {
            let ended = async {
                // The sender is dropped without a value.
                let _ = ended.await;
            };
            let served = standby::serve(listeners, seen, &settings, clock, HAND_OVER, ended).await;
            if served.is_err() {
                stop.request_by_server();
            }
            served
        });
        Ok(Self { known, end, serving })
    }

    /// Ends the service, and waits until it has ended. Returns its error if it has failed.
    fn end(self, runtime: &Handle) -> Result<()> {
        drop(self.end);
        let served = runtime.block_on(self.serving).map_err(io::Error::other);
        let reason = |error: io::Error| ServerError::Serve {
            reason: error.to_string(),
        };
        served.and_then(|served| served).map_err(reason)
    }
}

/// Backend with the taken data, the previous epoch, and the timelines that were read ahead.
type TakenData = (Arc<CassandraBackend>, Epoch, Option<TimelinesAhead>);

/// Connects, and takes the data as soon as it has no live owner. Meanwhile, reads up to `ahead_bytes_max` bytes of
/// timelines ahead. Returns `None` after a stop request.
fn take_data(
    options: &CassandraOptions,
    known: &watch::Sender<KnownOwner>,
    stop: &Stop,
    runtime: &Handle,
    ahead_bytes_max: u64,
) -> Result<Option<TakenData>> {
    let failed = |source| ServerError::Cluster {
        keyspace: options.keyspace.clone(),
        source,
    };
    let stand = |address: Option<String>, reason: String| {
        let now = KnownOwner {
            address,
            reason,
            is_starting: false,
        };
        known.send_if_modified(|before| {
            let is_new = *before != now;
            if is_new {
                tracing::info!(owner = now.address, reason = now.reason, "standing by");
                *before = now;
            }
            is_new
        });
    };
    let backend = loop {
        if stop.is_requested() {
            return Ok(None);
        }
        match CassandraBackend::open(options.clone()) {
            Ok(backend) => break Arc::new(backend),
            Err(error) if error.kind().is_retryable() => {
                stand(None, error.to_string());
                stop.wait_at_most(RECONNECT_AFTER, runtime);
            }
            Err(error) => return Err(failed(error)),
        }
    };
    let mut ahead = ReadAhead::start(Arc::clone(&backend) as Arc<dyn Backend>, ahead_bytes_max)?;
    loop {
        if stop.is_requested() {
            return Ok(None);
        }
        match take_once(&backend, &options.advertise, &stand, &mut ahead) {
            Ok(before) => {
                let ahead = ahead.end(Epoch(before.0 + 1));
                return Ok(Some((backend, before, ahead)));
            }
            Err(BackendError::Unavailable { retry_after, .. }) => {
                stop.wait_at_most(retry_after.min(RETRY_MAX), runtime);
            }
            Err(error) if error.kind().is_retryable() => stop.wait_at_most(RETRY_MAX, runtime),
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Tries to take the data. Returns the previous epoch. `own` is the advertised address of this process. While another
/// process owns the data, `ahead` reads its timelines.
fn take_once(
    backend: &CassandraBackend,
    own: &str,
    stand: &impl Fn(Option<String>, String),
    ahead: &mut ReadAhead,
) -> std::result::Result<Epoch, BackendError> {
    let owner = backend
        .owner(SHARD)
        .inspect_err(|error| stand(None, error.to_string()))?;
    // The epoch of `owner` may be outdated, because another process may have owned the data since that read.
    // The engine opens in the same epoch, so a take-over needs the conditional requests of one take only.
    let taken = backend.take_ahead(SHARD).map(|epoch| Epoch(epoch.0 - 1));
    if let Err(error) = &taken {
        let living = owner.filter(|owner| !owner.is_dead && error.kind() == ErrorKind::Unavailable);
        if let Some(owner) = &living {
            ahead.follow(owner.epoch);
        }
        let address = living
            .map(|owner| owner.address)
            .filter(|address| !address.is_empty());
        let (address, reason) = forwarded_to(address, own, error.to_string());
        stand(address, reason);
    }
    taken
}

/// Returns the address to which requests are forwarded, and the reason why this process does not own the data. Requests
/// are not forwarded to `own`, the address of this process, because this process would forward them again.
fn forwarded_to(owner: Option<String>, own: &str, reason: String) -> (Option<String>, String) {
    match owner {
        Some(address) if address == own => {
            let reason = format!(
                "{reason}, but {own} is the address of this process: either a previous run of this process still has \
                 the lease, which then ends within seconds, or another process advertises the same address; set \
                 cassandra.advertise to a different address for each process"
            );
            (None, reason)
        }
        owner => (owner, reason),
    }
}

/// Locks the data folder for this process. Fails if the folder has an embedded store.
fn lock(folder: &Path) -> Result<File> {
    let at = |source| ServerError::DataDir {
        data_dir: folder.to_owned(),
        source,
    };
    installation::prepare(folder).map_err(at)?;
    if folder.join(STORE).exists() {
        return Err(at(io::Error::other(
            "it has the data of an embedded engine, which a cluster does not read: name another folder (--data-dir)",
        )));
    }
    let file = File::create(folder.join(CLUSTER_LOCK)).map_err(at)?;
    installation::try_lock(&file).map_err(at)?;
    Ok(file)
}

/// Deletes a search index that was written before other processes changed the data. The index is built again from the
/// data.
fn discard_foreign_index(folder: &Path, before: Epoch) -> io::Result<()> {
    let index = folder.join(INDEX_FOLDER);
    let own = fs::read_to_string(folder.join(EPOCH_FILE)).ok();
    let is_own = own.and_then(|text| text.trim().parse().ok()) == Some(before.0);
    if is_own || !index.exists() {
        return Ok(());
    }
    tracing::info!("another process has owned the data since; the search index is built again");
    fs::remove_dir_all(index)
}

fn data_dir(config: &Config) -> impl Fn(io::Error) -> ServerError {
    |source| ServerError::DataDir {
        data_dir: config.data_dir.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_does_not_forward_requests_to_itself() {
        let owner = |address: &str| {
            let reason = format!("the process at {address} owns the data");
            forwarded_to(Some(address.to_owned()), "127.0.0.1:8490", reason)
        };
        assert_eq!(owner("db-2:8490").0.as_deref(), Some("db-2:8490"));
        let (address, reason) = owner("127.0.0.1:8490");
        assert_eq!(address, None);
        assert!(
            reason.contains("address of this process") && reason.contains("cassandra.advertise"),
            "{reason}"
        );
        let dead = forwarded_to(None, "127.0.0.1:8490", "it is dead".to_owned());
        assert_eq!(dead, (None, "it is dead".to_owned()));
    }

    #[test]
    fn a_requested_stop_survives_the_loss_of_the_data() {
        let is_stopped = |stop: &Stop| match after_loss(stop, Ok(())) {
            Ok(()) => true,
            Err(error) => {
                assert!(matches!(error, ServerError::OwnershipLost), "{error}");
                false
            }
        };
        let stop = Stop::new();
        stop.request_by_server();
        assert!(stop.is_requested());
        assert!(!is_stopped(&stop), "the process begins again as a standby");
        stop.request();
        assert!(is_stopped(&stop), "a signal arrived after the loss");
        let stop = Stop::new();
        stop.request();
        stop.request_by_server();
        assert!(is_stopped(&stop), "a signal arrived before the loss");
    }
}
