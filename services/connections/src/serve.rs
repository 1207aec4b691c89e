//! Accept loop: accepts connections, limits them, serves their requests and drains them at shutdown.
//!
//! At `connections_max`, idle connections are closed in favour of new ones. Connections of the clients with the most
//! connections are closed first; among these, the connections that have been idle longest. If no connection can be
//! closed, a few further connections are accepted that only health checks and metrics may use. Concurrent requests are
//! shared fairly among clients, so that one client cannot keep all connections busy.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::client::{Client, Origin, Peer, TrustedProxy};
use crate::connection::{Busy, ConnectionKind, Connections, GuardedStream, MinimumReadRate};
use crate::listeners::{Listeners, Socket};
use crate::shares::Shares;
use crate::tls::{Tls, Transport};

/// Maximum size of the read buffer of a connection, in bytes. A large buffer lets large writes arrive in few parts.
const READ_BUFFER_BYTES_MAX: usize = 256 << 10;
/// Maximum size of a request head, in bytes.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Maximum number of headers of a request.
const HEADERS_MAX: usize = 64;
/// Number of connections accepted beyond the limit, for health checks and metrics.
const RESERVED_CONNECTIONS: usize = 16;
/// Longest wait for an idle connection to close in favour of a new one. The full time passes only if a request has
/// arrived on that connection meanwhile.
const EVICTION_WAIT: Duration = Duration::from_millis(100);
/// Maximum number of evictions that are tried for a new connection before it may get a reserved permit.
const EVICTIONS_MAX: usize = 3;
/// First wait after a failed accept, for example for lack of file descriptors. The wait doubles up to
/// [`ACCEPT_BACKOFF_MAX`].
const ACCEPT_BACKOFF_MIN: Duration = Duration::from_millis(10);
const ACCEPT_BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Limits of connections.
#[derive(Debug, Clone)]
pub struct ConnectionSettings {
    /// Maximum number of open connections. At the limit an idle connection is closed for a new one. If no idle
    /// connection can be closed, a few more connections are accepted for requests that
    /// [`Service::is_operation`] admits.
    pub connections_max: usize,
    /// Longest time from the first byte of a request head to its end, and from the accept of a new connection to its
    /// first byte.
    pub header_timeout: Duration,
    /// Longest idle time of a connection between requests.
    pub idle_timeout: Duration,
    /// Longest time in which a client reads no byte of a response before it is disconnected.
    pub answer_timeout: Duration,
    /// Minimum read rate of a response, in bytes per second. It is averaged over `answer_timeout` and counts
    /// only while bytes wait to be sent.
    pub answer_bytes_per_second_min: u64,
    /// Longest time for running requests to finish after the shutdown signal.
    pub drain_timeout: Duration,
    /// Trusted proxies. Fair shares apply to the client that such a proxy sends in `Forwarded` or `X-Forwarded-For`.
    pub trusted_proxies: Vec<TrustedProxy>,
    /// Certificate and key of TCP connections; `None` for connections in clear text.
    pub tls: Option<Tls>,
}

/// Handler of requests. Clones share its state.
pub trait Service: Clone + Send + Sync + 'static {
    /// Guard that is held while a connection is open.
    type Guard: Send;

    /// Handles a request, which has its [`Origin`] among its extensions, and returns the response.
    fn handle(self, request: Request<Incoming>) -> impl Future<Output = Response> + Send;

    /// Returns the response to a request that is refused because of overload.
    fn overloaded(&self, message: String) -> Response;

    /// Returns true if requests to `path` are also served on connections beyond the limit, regardless of the client's
    /// share.
    fn is_operation(&self, path: &str) -> bool;

    /// Called for each accepted connection.
    fn connected(&self) -> Self::Guard;

    /// Called once, when no further connections are accepted.
    fn drain(&self);
}

/// Serves requests on `listeners` until `shutdown` completes.
///
/// After `shutdown`, accepts no new connections, closes idle ones immediately, and lets running requests finish
/// within the drain timeout. Calls `serving` once, before the first connection is accepted. `concurrent` limits
/// the number of requests that are handled concurrently.
///
/// # Errors
///
/// Returns an error if the listener's address cannot be read. Later errors are not returned: a failed connection
/// does not affect other connections, and a failed accept is retried.
pub async fn serve(
    listeners: Listeners,
    service: impl Service,
    concurrent: Shares,
    settings: ConnectionSettings,
    serving: impl FnOnce(),
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let address = listeners.tcp().local_addr()?;
    let drain_timeout = settings.drain_timeout;
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    tracing::info!(%address, "http service started");
    serving();
    let shared = Arc::new(Serving {
        service,
        concurrent,
        settings,
        is_draining: watch::Sender::new(false),
    });
    tokio::select! {
        () = accept(&listeners, &shared, &graceful, &mut connections) => {}
        () = shutdown => {}
    }
    shared.service.drain();
    shared.is_draining.send_replace(true);
    drop(listeners);
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

/// State shared by all connections.
struct Serving<S> {
    service: S,
    concurrent: Shares,
    settings: ConnectionSettings,
    /// True after the shutdown signal. Handshakes that are not complete then end.
    is_draining: watch::Sender<bool>,
}

/// Accepts connections until the future is dropped.
async fn accept<S: Service>(
    listeners: &Listeners,
    shared: &Arc<Serving<S>>,
    graceful: &GracefulShutdown,
    connections: &mut JoinSet<()>,
) {
    let slots = ConnectionSlots {
        ordinary: Arc::new(Semaphore::new(shared.settings.connections_max)),
        reserved: Arc::new(Semaphore::new(RESERVED_CONNECTIONS)),
        open: Connections::default(),
    };
    let mut backoff = ACCEPT_BACKOFF_MIN;
    for number in 0.. {
        while connections.try_join_next().is_some() {}
        let (socket, peer) = match listeners.accept().await {
            Ok(accepted) => accepted,
            // The client disconnected before its connection was accepted. The next accept needs no wait.
            Err(error) if is_clients_fault(&error) => continue,
            Err(error) => {
                tracing::warn!(%error, wait = ?backoff, "accepting a connection failed");
                slots.open.evict_idle(None, ConnectionKind::Ordinary);
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(ACCEPT_BACKOFF_MAX);
                continue;
            }
        };
        backoff = ACCEPT_BACKOFF_MIN;
        let client = Client::from(peer);
        let (permit, kind) = slots.take(client).await;
        let busy = Busy::new();
        let listed = slots.open.add(number, client, kind, busy.clone());
        let (shared, watcher) = (Arc::clone(shared), graceful.watcher());
        connections.spawn(async move {
            let connection = Connection {
                socket,
                peer,
                kind,
                busy,
            };
            connection.converse(shared, watcher).await;
            drop((listed, permit));
        });
    }
}

/// Permits of open connections, and the list of open connections.
struct ConnectionSlots {
    ordinary: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
    open: Connections,
}

impl ConnectionSlots {
    /// Waits for a permit: an ordinary permit, if necessary the permit of an evicted idle connection, otherwise
    /// a reserved permit.
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
            if let Ok(permit) = Arc::clone(&self.ordinary).try_acquire_owned() {
                return (permit, ConnectionKind::Ordinary);
            }
            if self.open.evict_idle(Some(client), ConnectionKind::Ordinary) == 0 {
                break;
            }
            // An evicted connection that has started a request stays open, perhaps for as long as the request
            // runs.
            if let Ok(permit) = tokio::time::timeout(EVICTION_WAIT, ordinary()).await {
                return (permit, ConnectionKind::Ordinary);
            }
        }
        if self.reserved.available_permits() == 0 {
            self.open.evict_idle(Some(client), ConnectionKind::Reserved);
        }
        tokio::select! {
            biased;
            permit = ordinary() => (permit, ConnectionKind::Ordinary),
            permit = reserved() => (permit, ConnectionKind::Reserved),
        }
    }
}

fn is_clients_fault(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

/// Accepted connection.
struct Connection {
    socket: Socket,
    peer: Peer,
    kind: ConnectionKind,
    busy: Busy,
}

impl Connection {
    /// Serves the requests of one connection until it ends or is evicted while idle.
    async fn converse<S: Service>(self, shared: Arc<Serving<S>>, watcher: Watcher) {
        let Self {
            socket,
            peer,
            kind,
            busy,
        } = self;
        let settings = &shared.settings;
        let evicted = busy.clone();
        let mut is_draining = shared.is_draining.subscribe();
        let transport = tokio::select! {
            transport = shake_hands(socket, settings) => transport,
            () = evicted.evicted() => return,
            _ = is_draining.wait_for(|is_draining| *is_draining) => return,
        };
        let stream = match transport {
            Ok(stream) => stream,
            Err(error) => return tracing::debug!(%error, %peer, "TLS handshake failed"),
        };
        let stream = GuardedStream::new(
            stream,
            busy.clone(),
            settings.header_timeout,
            MinimumReadRate {
                timeout: settings.answer_timeout,
                bytes_per_second_min: settings.answer_bytes_per_second_min,
            },
        );
        let concurrent = Arc::clone(&shared);
        let service = service_fn(move |mut request: Request<Incoming>| {
            busy.begin();
            let Serving {
                service,
                concurrent,
                settings,
                ..
            } = &*concurrent;
            let origin = Origin::find(peer, request.headers(), &settings.trusted_proxies);
            request.extensions_mut().insert(origin);
            let is_operation = service.is_operation(request.uri().path());
            let share = match is_operation {
                true => None,
                false => concurrent.try_take(origin.client(), 1),
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
                let response = match refusal {
                    Some(message) => closing(service.overloaded(message)),
                    None => service.handle(request).await,
                };
                Ok::<_, Infallible>(busy.until_sent(response, share))
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
            () = evicted.evicted() => tracing::debug!("idle connection closed to make room for a new one"),
        }
    }
}

/// Returns the stream of a connection. With TLS, the handshake of a TCP connection must end within the timeout
/// of a request head.
async fn shake_hands(socket: Socket, settings: &ConnectionSettings) -> io::Result<Transport> {
    let stream = match socket {
        Socket::Tcp(stream) => stream,
        Socket::Unix(stream) => return Ok(Transport::Unix(stream)),
    };
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "setting TCP_NODELAY failed");
    }
    let Some(tls) = &settings.tls else {
        return Ok(Transport::Clear(stream));
    };
    let accepted = tokio::time::timeout(settings.header_timeout, tls.accept(stream)).await;
    let accepted = accepted.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "it took too long"))?;
    Ok(Transport::Encrypted(Box::new(accepted?)))
}

/// Returns the message that refuses a request on a reserved connection. The connection closes afterwards.
fn too_many(limit: usize) -> String {
    format!("{limit} connections are open, which is the limit, and all are busy")
}

/// Returns the message for a request of a client that exceeds its share of concurrent requests.
fn more_than_share(client: Client, limit: usize) -> String {
    format!(
        "this client ({client}) keeps more than its share of {limit} connections busy; \
         the rest is kept for other clients"
    )
}

/// Adds `Connection: close`, so that the connection closes after the response.
fn closing(mut response: Response) -> Response {
    let close = hyper::header::HeaderValue::from_static("close");
    response.headers_mut().insert(hyper::header::CONNECTION, close);
    response
}
