//! Binding of the router to `tideline_connections`, which accepts connections and enforces their limits.
//!
//! Also starts the background tasks of the service: writing audit records, storing the times of the last use of
//! tokens, ending requests with replaced secrets, reloading changed files of token hashes, keys and the certificate,
//! freeing old changes, measuring tenants, and delivering webhooks.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use tideline_change_stream::ChangeStreams;
use tideline_connections::{ConnectionSettings, Listeners, Service};
use tideline_engine::Engine;
use tideline_engine::audit_table::AuditRecord;
use tideline_openapi::ErrorCode;
use tideline_scheduler::Scheduler;
use tokio::task::spawn_blocking;
use tokio::time::MissedTickBehavior;
use tower::ServiceExt;

use crate::app::{App, WeakApp};
use crate::audit_log::AuditLog;
use crate::auth;
use crate::failure::Failure;
use crate::metrics::Counted;
use crate::router::router;
use crate::settings::HttpSettings;
use crate::tenants::TenantStore;
use crate::tls_files::TlsFiles;
use crate::tokens::TokenStore;

/// Interval at which changes that no stream needs are freed.
const KEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which the times of the last use of tokens are stored.
const USES_INTERVAL: Duration = Duration::from_secs(60);

/// Longest time for which a stop waits until these times are stored.
const LAST_USES_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest time for which a stop waits until the positions of webhooks are stored.
const POSITIONS_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval at which requests end whose secret was replaced by a rotation and is not valid any more.
const SECRETS_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which the counts of refused requests are recorded.
const REFUSALS_INTERVAL: Duration = Duration::from_secs(60);

/// Interval at which the stored data of tenants is measured.
const MEASURE_INTERVAL: Duration = Duration::from_secs(10);

/// Interval at which the files of token hashes, of keys and of the certificate are compared with their last state.
pub(crate) const FILES_INTERVAL: Duration = Duration::from_secs(1);

/// Serves requests on `listeners` until `shutdown` completes. Then accepts no new connections, waits for running
/// requests up to the drain timeout, and returns. Idle connections are closed after 50 ms. Calls `serving` as soon as
/// connections are accepted.
///
/// Does not stop the scheduler or close the engine. The caller does so afterwards; closing the engine waits for writes
/// that are still running after the drain timeout.
///
/// # Errors
///
/// Returns an error if the local address of the listener is not available, or the state of change streams, the
/// stored tokens and tenants, the files of token hashes and of keys, or the certificate cannot be read.
pub async fn serve(
    listeners: impl Into<Listeners>,
    engine: Arc<Engine>,
    scheduler: Arc<Scheduler>,
    settings: HttpSettings,
    serving: impl FnOnce(),
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let of_tls = settings.tls.clone();
    let tls = spawn_blocking(move || of_tls.map(|files| TlsFiles::open(&files)).transpose()).await;
    let tls = tls
        .map_err(io::Error::other)?
        .map_err(io::Error::other)?
        .map(Arc::new);
    let limits = ConnectionSettings {
        tls: tls.as_ref().map(|files| files.tls()),
        connections_max: settings.connections_max,
        header_timeout: settings.header_timeout,
        idle_timeout: settings.idle_timeout,
        answer_timeout: settings.answer_timeout,
        answer_bytes_per_second_min: settings.answer_bytes_per_second_min,
        drain_timeout: settings.drain_timeout,
        trusted_proxies: settings.trusted_proxies.clone(),
    };
    let (of_streams, changes) = (Arc::clone(&engine), settings.changes.clone());
    let streams = spawn_blocking(move || ChangeStreams::open(of_streams, changes)).await;
    let streams = streams.map_err(io::Error::other)?.map_err(io::Error::other)?;
    let (of_tokens, of_settings) = (Arc::clone(&engine), settings.clone());
    let stores = move || {
        let tokens = TokenStore::open(Arc::clone(&of_tokens), &of_settings)?;
        Ok((tokens, TenantStore::open(of_tokens)?))
    };
    let stores = spawn_blocking(stores).await;
    let stores = stores
        .map_err(io::Error::other)?
        .map_err(|failure: Failure| io::Error::other(failure.message))?;
    let (audit, writer) = AuditLog::new(engine.clock().now());
    tokio::spawn(writer.run(Arc::clone(&engine)));
    let streams = Arc::new(streams);
    let app = App::new(engine, scheduler, streams, stores, audit, tls.clone(), settings);
    tokio::spawn(at_intervals(app.downgrade(), REFUSALS_INTERVAL, |app| {
        app.audit.flush_refusals();
    }));
    tokio::spawn(at_intervals(app.downgrade(), USES_INTERVAL, keep_uses));
    if app.tokens.is_required() {
        tokio::spawn(at_intervals(app.downgrade(), SECRETS_INTERVAL, |app| {
            if app.tokens.end_replaced_secrets() {
                app.end_watches();
            }
        }));
    }
    if app.settings.hashes_file.is_some() || app.settings.jwt.is_some() {
        tokio::spawn(at_intervals(app.downgrade(), FILES_INTERVAL, follow_files));
    }
    if let Some(files) = tls {
        let follow = move |app: &App| files.follow(app.service_engine().clock().now());
        tokio::spawn(at_intervals(app.downgrade(), FILES_INTERVAL, follow));
    }
    tokio::spawn(at_intervals(app.downgrade(), KEEP_INTERVAL, keep_changes));
    tokio::spawn(at_intervals(app.downgrade(), MEASURE_INTERVAL, |app| {
        app.tenants.measure();
    }));
    let webhooks = Arc::downgrade(&app.change_streams);
    tokio::spawn(tideline_change_stream::delivery::deliver(
        webhooks,
        app.change_news.subscribe(),
    ));
    let router = router(&app);
    let concurrent_requests = app.concurrent_requests.clone();
    let served = tideline_connections::serve(
        listeners.into(),
        Routed {
            app: app.clone(),
            router,
        },
        concurrent_requests,
        limits,
        serving,
        shutdown,
    )
    .await;
    // At the same time, because the stop waits for both.
    tokio::join!(keep_last_uses(&app), store_webhook_positions(&app));
    app.audit.close().await;
    served
}

/// Runs work on a blocking thread at each interval, until the service is dropped.
async fn at_intervals(app: WeakApp, interval: Duration, work: impl Fn(&App) + Clone + Send + Sync + 'static) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(app) = app.upgrade() else { return };
        let work = work.clone();
        if let Err(panicked) = spawn_blocking(move || work(&app)).await {
            tracing::error!(%panicked, "background work of the service panicked");
        }
    }
}

/// Frees changes that no change stream needs.
fn keep_changes(app: &App) {
    if let Err(error) = app.change_streams.keep() {
        tracing::warn!(%error, "changes that no stream needs could not be freed; the next round tries again");
    }
}

/// Stores the times of the last use of tokens.
fn keep_uses(app: &App) {
    if let Err(failure) = app.tokens.keep_uses() {
        tracing::debug!(
            message = failure.message,
            "the times of the last use of tokens could not be stored; it is retried"
        );
    }
}

/// Stores the times of the last use of tokens before the server stops. The stop waits for a short time only, because the
/// times are not worth more.
async fn keep_last_uses(app: &App) {
    let kept = app.clone();
    let storing = spawn_blocking(move || kept.tokens.keep_last_uses());
    match tokio::time::timeout(LAST_USES_TIMEOUT, storing).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(failure))) => tracing::debug!(
            message = failure.message,
            "the times of the last use of tokens could not be stored before the stop"
        ),
        Ok(Err(panicked)) => {
            tracing::error!(%panicked, "storing the times of the last use of tokens panicked");
        }
        Err(_) => {
            tracing::debug!("the times of the last use of tokens were not stored in time before the stop");
        }
    }
}

/// Stores the positions up to which webhooks have read, before the server stops. Without this, they read some changes again
/// after the next start, so the stop waits for a short time only.
async fn store_webhook_positions(app: &App) {
    let streams = Arc::clone(&app.change_streams);
    let storing = spawn_blocking(move || streams.store_positions());
    match tokio::time::timeout(POSITIONS_TIMEOUT, storing).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => {
            tracing::warn!(%error, "the positions of webhooks could not be stored before the stop");
        }
        Ok(Err(panicked)) => tracing::error!(%panicked, "storing the positions of webhooks panicked"),
        Err(_) => tracing::warn!("the positions of webhooks were not stored in time before the stop"),
    }
}

/// Reads the files of token hashes and of keys again after changes.
fn follow_files(app: &App) {
    let changed = app.tokens.follow_files();
    for file in &changed {
        let now = app.service_engine().clock().now();
        app.audit.note(AuditRecord {
            principal: Some("a file of the configuration".to_owned()),
            ..AuditRecord::of_change(now, "READ", (*file).to_owned())
        });
    }
    if !changed.is_empty() {
        app.end_watches();
    }
}

/// Router of all routes, with the shared state.
#[derive(Debug, Clone)]
struct Routed {
    app: App,
    router: Router,
}

impl Service for Routed {
    type Guard = Counted;

    async fn handle(self, request: Request<Incoming>) -> Response {
        match self.router.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    fn overloaded(&self, message: String) -> Response {
        Failure::new(ErrorCode::Overloaded, message).into_response()
    }

    fn is_operation(&self, path: &str) -> bool {
        path == "/metrics" || auth::is_open(path)
    }

    fn connected(&self) -> Counted {
        self.app.metrics.connections.count()
    }

    fn drain(&self) {
        self.app.drain();
    }
}
