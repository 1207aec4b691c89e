//! Accept loop: accepts connections, limits them, serves their requests and drains them at shutdown.
//!
//! At `connections_max`, idle connections are closed in favour of new ones. Connections of the clients with the most
//! connections are closed first; among these, the connections that have been idle longest. If no connection can be
//! closed, a few further connections are accepted that only health checks and metrics may use. Concurrent requests are
//! shared fairly among clients, so that one client cannot keep all connections busy.
//!
//! At shutdown, every request that has arrived gets its response:
//!
//! 1. The connections that wait in the queues of the sockets are accepted, and the sockets are closed.
//! 2. For a short time, open connections accept one more request. Responses from now on end their connections.
//! 3. Idle connections are closed. The running requests have the rest of the drain timeout.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::client::{Client, Origin, Peer, TrustedProxy};
use crate::connection::{Busy, ConnectionKind, Connections, GuardedStream, MinimumReadRate};
use crate::listeners::{Listeners, Socket, is_clients_fault};
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
/// Time after the shutdown signal in which open connections accept one more request. Requests that were on the way at
/// the signal thus get a response. At most half of the drain timeout.
const LAST_REQUESTS: Duration = Duration::from_millis(50);

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

    /// Called once, when no further requests are accepted.
    fn drain(&self);
}

/// Serves requests on `listeners` until `shutdown` completes.
///
/// After `shutdown`, accepts no new connections, except those that are already waiting. Open connections accept one more
/// request within 50 ms; then idle ones are closed. Running requests can finish within the drain timeout.
///
/// Calls `serving` once, before the first connection is accepted. `concurrent` limits the number of requests that are
/// handled concurrently.
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
    tracing::info!(%address, "http service started");
    serving();
    let mut acceptor = Acceptor {
        slots: ConnectionSlots {
            ordinary: Arc::new(Semaphore::new(settings.connections_max)),
            reserved: Arc::new(Semaphore::new(RESERVED_CONNECTIONS)),
            open: Connections::default(),
        },
        shared: Arc::new(Serving {
            service,
            concurrent,
            settings,
            is_ending: AtomicBool::new(false),
            is_draining: watch::Sender::new(false),
        }),
        connections: JoinSet::new(),
        accepted: 0,
    };
    acceptor.accept_until(&listeners, shutdown).await;
    let shared = Arc::clone(&acceptor.shared);
    shared.is_ending.store(true, Ordering::Relaxed);
    for (socket, peer) in listeners.close() {
        acceptor.spawn(socket, peer, None);
    }
    tracing::info!(connections = acceptor.connections.len(), "http service drains");
    let last_requests = LAST_REQUESTS.min(drain_timeout / 2);
    // The time passes if connections are idle, or requests run.
    let _ = tokio::time::timeout(last_requests, acceptor.ended()).await;
    shared.service.drain();
    shared.is_draining.send_replace(true);
    if tokio::time::timeout(drain_timeout - last_requests, acceptor.ended())
        .await
        .is_err()
    {
        tracing::warn!(timeout = ?drain_timeout, "requests were still running after the drain timeout; cut off");
    }
    acceptor.connections.shutdown().await;
    Ok(())
}

/// State shared by all connections.
struct Serving<S> {
    service: S,
    concurrent: Shares,
    settings: ConnectionSettings,
    /// True after the shutdown signal. Responses then end their connections.
    is_ending: AtomicBool,
    /// True when no further requests are accepted. Idle connections, and handshakes that are not complete, then end.
    is_draining: watch::Sender<bool>,
}

/// Accepts connections, and serves each of them in a task.
struct Acceptor<S> {
    shared: Arc<Serving<S>>,
    slots: ConnectionSlots,
    connections: JoinSet<()>,
    /// Number of accepted connections.
    accepted: u64,
}

impl<S: Service> Acceptor<S> {
    /// Accepts connections until `shutdown` completes.
    async fn accept_until(&mut self, listeners: &Listeners, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        let mut backoff = ACCEPT_BACKOFF_MIN;
        loop {
            while self.connections.try_join_next().is_some() {}
            let accepted = tokio::select! {
                accepted = listeners.accept() => accepted,
                () = &mut shutdown => return,
            };
            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_clients_fault(&error) => continue,
                Err(error) => {
                    tracing::warn!(%error, wait = ?backoff, "accepting a connection failed");
                    self.slots.open.evict_idle(None, ConnectionKind::Ordinary);
                    tokio::select! {
                        () = tokio::time::sleep(backoff) => {}
                        () = &mut shutdown => return,
                    }
                    backoff = (backoff * 2).min(ACCEPT_BACKOFF_MAX);
                    continue;
                }
            };
            backoff = ACCEPT_BACKOFF_MIN;
            let slot = tokio::select! {
                slot = self.slots.take(Client::from(peer)) => Some(slot),
                () = &mut shutdown => None,
            };
            let is_last = slot.is_none();
            self.spawn(socket, peer, slot);
            if is_last {
                return;
            }
        }
    }

    /// Serves a connection in a task. At shutdown, a connection does not wait for a `slot`.
    fn spawn(&mut self, socket: Socket, peer: Peer, slot: Option<(OwnedSemaphorePermit, ConnectionKind)>) {
        let (permit, kind) = slot.unzip();
        let kind = kind.unwrap_or(ConnectionKind::Ordinary);
        let busy = Busy::new();
        let listed = self
            .slots
            .open
            .add(self.accepted, Client::from(peer), kind, busy.clone());
        self.accepted += 1;
        let shared = Arc::clone(&self.shared);
        self.connections.spawn(async move {
            let connection = Connection {
                socket,
                peer,
                kind,
                busy,
            };
            connection.converse(shared).await;
            drop((listed, permit));
        });
    }

    /// Waits until all connections have ended.
    async fn ended(&mut self) {
        while self.connections.join_next().await.is_some() {}
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

/// Accepted connection.
struct Connection {
    socket: Socket,
    peer: Peer,
    kind: ConnectionKind,
    busy: Busy,
}

impl Connection {
    /// Serves the requests of one connection until it ends, or is closed while idle.
    async fn converse<S: Service>(self, shared: Arc<Serving<S>>) {
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
            let serving = Arc::clone(&concurrent);
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
                let response = match serving.is_ending.load(Ordering::Relaxed) {
                    true => closing(response),
                    false => response,
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
        let mut connection = pin!(connection);
        let _connected = shared.service.connected();
        tokio::select! {
            // A request that has arrived is read first, so that its connection is not idle.
            biased;
            ended = connection.as_mut() => return report_end(ended),
            () = evicted.evicted() => {
                return tracing::debug!("idle connection closed to make room for a new one");
            }
            _ = is_draining.wait_for(|is_draining| *is_draining) => {}
        }
        connection.as_mut().graceful_shutdown();
        report_end(connection.await);
    }
}

fn report_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
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

#[cfg(test)]
mod tests;
