//! The accept loop: from a listener to answered requests, and back out of them in good order.
//!
//! At `connections_max` the connection that has been idle longest makes room for a new one: one of the client that has most. Where
//! all are answering requests, a few further connections are accepted that only health checks and metrics may use. Requests being
//! answered are shared fairly among clients, so one client cannot keep all connections busy.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tideline_engine::Engine;
use tideline_openapi::ErrorCode;
use tideline_scheduler::Scheduler;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::app::App;
use crate::auth;
use crate::client::{Client, Origin};
use crate::connection::{Busy, ConnectionKind, Connections, GuardedStream, ReadPace};
use crate::failure::Failure;
use crate::router::router;
use crate::settings::HttpSettings;

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

/// Answers requests on `listener` until `shutdown` ends; then takes no new connection, lets running requests finish
/// within the drain timeout, and returns. Idle connections close at once. Calls `serving` when the next connection is accepted
/// and answered at once.
///
/// Scheduler and engine stay as they are; stop the one and close the other afterwards: that waits for writes that
/// outlived the drain.
///
/// # Errors
///
/// None after the start: a failing connection ends itself, a failing accept is tried again.
pub async fn serve(
    listener: TcpListener,
    engine: Arc<Engine>,
    scheduler: Arc<Scheduler>,
    settings: HttpSettings,
    serving: impl FnOnce(),
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    let drain_timeout = settings.drain_timeout;
    let app = App::new(engine, scheduler, settings);
    let router = router(&app);
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    tracing::info!(%address, "http service started");
    serving();
    tokio::select! {
        () = accept(&listener, &app, &router, &graceful, &mut connections) => {}
        () = shutdown => {}
    }
    app.drain();
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

/// Accepts connections for ever.
async fn accept(
    listener: &TcpListener,
    app: &App,
    router: &Router,
    graceful: &GracefulShutdown,
    connections: &mut JoinSet<()>,
) {
    let limits = Places {
        ordinary: Arc::new(Semaphore::new(app.settings.connections_max)),
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
                limits.open.evict_idle(None, ConnectionKind::Ordinary);
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(ACCEPT_BACKOFF_MAX);
                continue;
            }
        };
        backoff = ACCEPT_BACKOFF_MIN;
        let client = Client::from(peer.ip());
        let (place, kind) = limits.take(client).await;
        let busy = Busy::new();
        let listed = limits.open.add(number, client, kind, busy.clone());
        let (app, router, watcher) = (app.clone(), router.clone(), graceful.watcher());
        connections.spawn(async move {
            let connection = Connection {
                stream,
                peer,
                kind,
                busy,
            };
            connection.converse(app, router, watcher).await;
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
    async fn converse(self, app: App, router: Router, watcher: Watcher) {
        let Self {
            stream,
            peer,
            kind,
            busy,
        } = self;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY");
        }
        let settings = &app.settings;
        let connections_max = settings.connections_max;
        let (evicted, answering) = (busy.clone(), app.clone());
        let stream = GuardedStream::new(
            stream,
            busy.clone(),
            settings.header_timeout,
            ReadPace {
                timeout: settings.answer_timeout,
                bytes_per_second_min: settings.answer_bytes_per_second_min,
            },
        );
        let service = service_fn(move |mut request: Request<Incoming>| {
            busy.begin();
            let origin = Origin::find(peer, request.headers(), &answering.settings.trusted_proxies);
            request.extensions_mut().insert(origin);
            let (router, busy) = (router.clone(), busy.clone());
            let is_operation = is_operation(request.uri().path());
            let share = match is_operation {
                true => None,
                false => answering.answering.try_take(origin.client(), 1),
            };
            async move {
                let answer = match kind {
                    ConnectionKind::Reserved if !is_operation => too_many_connections(connections_max),
                    ConnectionKind::Ordinary if !is_operation && share.is_none() => {
                        more_than_share(origin.client(), connections_max)
                    }
                    _ => router.oneshot(request).await?,
                };
                Ok::<_, std::convert::Infallible>(busy.until_sent(answer, share))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(settings.idle_timeout.max(settings.header_timeout))
            .max_buf_size(READ_BUFFER_BYTES_MAX)
            .max_header_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(stream), service);
        let _gauge = app.metrics.connections.count();
        tokio::select! {
            ended = watcher.watch(connection) => if let Err(error) = ended {
                tracing::debug!(%error, "connection ended");
            },
            () = evicted.evicted() => tracing::debug!("connection closed: it was idle longest and a new one needs room"),
        }
    }
}

/// Whether a path is served beyond the limit of connections.
fn is_operation(path: &str) -> bool {
    path == "/metrics" || auth::is_open(path)
}

/// The answer to other requests on a reserved connection, which ends with it.
fn too_many_connections(limit: usize) -> Response {
    refused(format!(
        "{limit} connections are open, which is the limit, and all are busy"
    ))
}

/// The answer to a request of a client that keeps more than its share of the connections busy.
fn more_than_share(client: Client, limit: usize) -> Response {
    refused(format!(
        "this client ({client}) keeps more than its share of {limit} connections busy; the rest is kept for other clients"
    ))
}

fn refused(message: String) -> Response {
    let failure = Failure::new(ErrorCode::Overloaded, message).into_response();
    ([(header::CONNECTION, "close")], failure).into_response()
}
