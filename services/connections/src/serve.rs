//! The accept loop: from a listener to answered requests, and back out of them in good order.
//!
//! At `connections_max` the connection that has been idle longest makes room for a new one: one of the client that has most. Where
//! all are answering requests, a few further connections are accepted that only health checks and metrics may use. Requests being
//! answered are shared fairly among clients, so one client cannot keep all connections busy.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::client::{Client, Network, Origin};
use crate::connection::{Busy, ConnectionKind, Connections, GuardedStream, ReadPace};
use crate::shares::Shares;

/// Bytes of a connection's read buffer. Large writes come in few pieces.
const READ_BUFFER_BYTES_MAX: usize = 256 << 10;
/// Most bytes of a request head.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;
/// Connections beyond the limit, for health checks and metrics.
const RESERVED_CONNECTIONS: usize = 16;
/// Time for an idle connection to close in favour of a new one. Passes in full only where a request came in meanwhile.
const EVICTION_WAIT: Duration = Duration::from_millis(100);
/// Evictions for a new connection that may fail in this way before it gets a reserved place.
const EVICTIONS_MAX: usize = 3;
/// The wait after an accept that failed for want of file descriptors or memory; doubles up to a second.
const ACCEPT_BACKOFF_MIN: Duration = Duration::from_millis(10);
const ACCEPT_BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Limits of connections.
#[derive(Debug, Clone)]
pub struct ConnectionSettings {
    /// Connections held at once. At the limit the one that has been idle longest is closed for a new one; where all are busy, a
    /// few more are accepted for requests that [`Service::is_operation`] admits.
    pub connections_max: usize,
    /// How long a request head may take to arrive, from its first byte, and a new connection to send that.
    pub header_timeout: Duration,
    /// How long a connection may be idle between requests.
    pub idle_timeout: Duration,
    /// How long a client may not take any of the answer before it is cut off.
    pub answer_timeout: Duration,
    /// The slowest client that may read an answer to its end, in bytes a second while bytes wait for it, averaged over
    /// `answer_timeout`.
    pub answer_bytes_per_second_min: u64,
    /// How long requests may take to finish after the shutdown signal.
    pub drain_timeout: Duration,
    /// Proxies in front: the client that they name in `Forwarded` or `X-Forwarded-For` counts for shares.
    pub trusted_proxies: Vec<Network>,
}

/// The requests of a service. Clones share its state.
pub trait Service: Clone + Send + Sync + 'static {
    /// Held while a connection is open.
    type Guard: Send;

    /// Answers a request, which has its [`Origin`] among its extensions.
    fn answer(self, request: Request<Incoming>) -> impl Future<Output = Response> + Send;

    /// Returns the answer to a request that is refused because of overload.
    fn overloaded(&self, message: String) -> Response;

    /// Whether a path is also answered on connections beyond the limit, whatever the share of its client.
    fn is_operation(&self, path: &str) -> bool;

    /// Called for each accepted connection.
    fn connected(&self) -> Self::Guard;

    /// Called once, when no further connection is accepted.
    fn drain(&self);
}

/// Answers requests on `listener` until `shutdown` ends; then accepts no new connection, lets running requests finish
/// within the drain timeout, and returns. Idle connections close at once. Calls `serving` when the next connection is accepted
/// and answered at once. `answering` bounds the connections on which a request is being answered.
///
/// # Errors
///
/// The address of the listener is unknown. Later a failing connection ends alone, and a failing accept is tried again.
pub async fn serve(
    listener: TcpListener,
    service: impl Service,
    answering: Shares,
    settings: ConnectionSettings,
    serving: impl FnOnce(),
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    let drain_timeout = settings.drain_timeout;
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    tracing::info!(%address, "http service started");
    serving();
    let shared = Arc::new(Serving {
        service,
        answering,
        settings,
    });
    tokio::select! {
        () = accept(&listener, &shared, &graceful, &mut connections) => {}
        () = shutdown => {}
    }
    shared.service.drain();
    drop(listener);
    tracing::info!(connections = connections.len(), "http service drains");
    if tokio::time::timeout(drain_timeout, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!(timeout = ?drain_timeout, "requests were still running after the drain timeout; cut off");
    }
    connections.shutdown().await;
    Ok(())
}

/// State of all connections.
struct Serving<S> {
    service: S,
    answering: Shares,
    settings: ConnectionSettings,
}

/// Accepts connections until it is dropped.
async fn accept<S: Service>(
    listener: &TcpListener,
    shared: &Arc<Serving<S>>,
    graceful: &GracefulShutdown,
    connections: &mut JoinSet<()>,
) {
    let places = Places {
        ordinary: Arc::new(Semaphore::new(shared.settings.connections_max)),
        reserved: Arc::new(Semaphore::new(RESERVED_CONNECTIONS)),
        open: Connections::default(),
    };
    let mut backoff = ACCEPT_BACKOFF_MIN;
    for number in 0.. {
        while connections.try_join_next().is_some() {}
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            // The client left before it was accepted: nothing to wait for.
            Err(error) if is_clients_fault(&error) => continue,
            Err(error) => {
                tracing::warn!(%error, wait = ?backoff, "accepting a connection failed");
                places.open.evict_idle(None, ConnectionKind::Ordinary);
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(ACCEPT_BACKOFF_MAX);
                continue;
            }
        };
        backoff = ACCEPT_BACKOFF_MIN;
        let client = Client::from(peer.ip());
        let (place, kind) = places.take(client).await;
        let busy = Busy::new();
        let listed = places.open.add(number, client, kind, busy.clone());
        let (shared, watcher) = (Arc::clone(shared), graceful.watcher());
        connections.spawn(async move {
            let connection = Connection {
                stream,
                peer,
                kind,
                busy,
            };
            connection.converse(shared, watcher).await;
            drop((listed, place));
        });
    }
}

/// The connections that may be open.
struct Places {
    ordinary: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
    open: Connections,
}

impl Places {
    /// Waits for a place: an ordinary one, if necessary of a connection that is idle, else a reserved one.
    async fn take(&self, client: Client) -> (OwnedSemaphorePermit, ConnectionKind) {
        const NEVER_CLOSED: &str = "these semaphores are never closed";
        let ordinary = || async {
            Arc::clone(&self.ordinary)
                .acquire_owned()
                .await
                .expect(NEVER_CLOSED)
        };
        let reserved = || async {
            Arc::clone(&self.reserved)
                .acquire_owned()
                .await
                .expect(NEVER_CLOSED)
        };
        for _ in 0..EVICTIONS_MAX {
            if let Ok(place) = Arc::clone(&self.ordinary).try_acquire_owned() {
                return (place, ConnectionKind::Ordinary);
            }
            if self.open.evict_idle(Some(client), ConnectionKind::Ordinary) == 0 {
                break;
            }
            // An evicted connection that has begun to answer stays open: waiting for its place alone could take as long as it.
            if let Ok(place) = tokio::time::timeout(EVICTION_WAIT, ordinary()).await {
                return (place, ConnectionKind::Ordinary);
            }
        }
        if self.reserved.available_permits() == 0 {
            self.open.evict_idle(Some(client), ConnectionKind::Reserved);
        }
        tokio::select! {
            biased;
            place = ordinary() => (place, ConnectionKind::Ordinary),
            place = reserved() => (place, ConnectionKind::Reserved),
        }
    }
}

fn is_clients_fault(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

/// An accepted connection.
struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    kind: ConnectionKind,
    busy: Busy,
}

impl Connection {
    /// Answers the requests of one connection, until it ends or has to make room while it is idle.
    async fn converse<S: Service>(self, shared: Arc<Serving<S>>, watcher: Watcher) {
        let Self {
            stream,
            peer,
            kind,
            busy,
        } = self;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY");
        }
        let settings = &shared.settings;
        let evicted = busy.clone();
        let stream = GuardedStream::new(
            stream,
            busy.clone(),
            settings.header_timeout,
            ReadPace {
                timeout: settings.answer_timeout,
                bytes_per_second_min: settings.answer_bytes_per_second_min,
            },
        );
        let answering = Arc::clone(&shared);
        let service = service_fn(move |mut request: Request<Incoming>| {
            busy.begin();
            let Serving {
                service,
                answering,
                settings,
            } = &*answering;
            let origin = Origin::find(peer, request.headers(), &settings.trusted_proxies);
            request.extensions_mut().insert(origin);
            let is_operation = service.is_operation(request.uri().path());
            let share = match is_operation {
                true => None,
                false => answering.try_take(origin.client(), 1),
            };
            let refusal = match kind {
                ConnectionKind::Reserved if !is_operation => Some(too_many(settings.connections_max)),
                ConnectionKind::Ordinary if !is_operation && share.is_none() => {
                    Some(more_than_share(origin.client(), settings.connections_max))
                }
                _ => None,
            };
            let (service, busy) = (service.clone(), busy.clone());
            async move {
                let answer = match refusal {
                    Some(message) => closing(service.overloaded(message)),
                    None => service.answer(request).await,
                };
                Ok::<_, Infallible>(busy.until_sent(answer, share))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(settings.idle_timeout.max(settings.header_timeout))
            .max_buf_size(READ_BUFFER_BYTES_MAX)
            .max_header_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(stream), service);
        let _connected = shared.service.connected();
        tokio::select! {
            ended = watcher.watch(connection) => if let Err(error) = ended {
                tracing::debug!(%error, "connection ended");
            },
            () = evicted.evicted() => tracing::debug!("connection closed: it was idle longest and a new one needs room"),
        }
    }
}

/// Message of the answer to other requests on a reserved connection, which ends with it.
fn too_many(limit: usize) -> String {
    format!("{limit} connections are open, which is the limit, and all are busy")
}

/// Message of the answer to a request of a client that keeps more than its share of the connections busy.
fn more_than_share(client: Client, limit: usize) -> String {
    format!(
        "this client ({client}) keeps more than its share of {limit} connections busy; the rest is kept for other clients"
    )
}

/// The same answer, after which the connection closes.
fn closing(mut answer: Response) -> Response {
    let close = hyper::header::HeaderValue::from_static("close");
    answer.headers_mut().insert(hyper::header::CONNECTION, close);
    answer
}
