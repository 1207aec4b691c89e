//! The accept loop: from a listener to answered requests, and back out of them in good order.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tideline_engine::Engine;
use tideline_scheduler::Scheduler;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::app::App;
use crate::connection::{Busy, GuardedStream};
use crate::router::router;
use crate::settings::HttpSettings;

/// Bytes of a connection's read buffer. Large writes come in few pieces.
const READ_BUFFER_BYTES_MAX: usize = 256 << 10;
/// Most bytes of a request head.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;
/// The wait after an accept that failed for want of file descriptors or memory; doubles up to a second.
const ACCEPT_BACKOFF_MIN: Duration = Duration::from_millis(10);
const ACCEPT_BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Answers requests on `listener` until `shutdown` ends; then takes no new connection, lets running requests finish
/// within the drain timeout, and returns. Idle connections close at once.
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
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    let drain_timeout = settings.drain_timeout;
    let app = App::new(engine, scheduler, settings);
    let router = router(&app);
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    tracing::info!(%address, "http service started");
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
    let places = Arc::new(Semaphore::new(app.settings.connections_max));
    let mut backoff = ACCEPT_BACKOFF_MIN;
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                backoff = ACCEPT_BACKOFF_MIN;
                let (app, router, watcher) = (app.clone(), router.clone(), graceful.watcher());
                connections.spawn(async move {
                    converse(stream, app, router, watcher).await;
                    drop(place);
                });
            }
            // The client left before it was accepted: nothing to wait for.
            Err(error) if is_clients_fault(&error) => {}
            Err(error) => {
                tracing::warn!(%error, wait = ?backoff, "accepting a connection failed");
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(ACCEPT_BACKOFF_MAX);
            }
        }
    }
}

fn is_clients_fault(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

/// Answers the requests of one connection.
async fn converse(stream: TcpStream, app: App, router: Router, watcher: Watcher) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    let settings = &app.settings;
    let busy = Busy::default();
    let stream = GuardedStream::new(
        stream,
        busy.clone(),
        settings.header_timeout,
        settings.answer_timeout,
    );
    let service = service_fn(move |request: Request<Incoming>| {
        busy.begin();
        let (router, busy) = (router.clone(), busy.clone());
        async move {
            let answer = router.oneshot(request).await?;
            Ok::<_, std::convert::Infallible>(busy.until_sent(answer))
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
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "connection ended");
    }
}
