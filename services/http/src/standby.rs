//! HTTP service of a process that does not own the data.
//!
//! It forwards every request to the owner, and handles only health checks itself: it is ready while there is an owner. If
//! the owner changes while it executes a request, the response is an error, because the outcome is unknown. Errors have
//! the form of the protocol of the request.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hyper::Request;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tideline_connections::forward::{FORWARDED, Forwarder, HTTPS};
use tideline_connections::shares::Shares;
use tideline_connections::{Client, ConnectionSettings, Listeners, Origin, Service};
use tideline_engine::model::{Clock, Timestamp};
use tideline_openapi::ErrorCode;
use tideline_openapi::operation::Readiness;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::context::{Dialect, RequestContext, RequestId, RequestIds};
use crate::failure::Failure;
use crate::followed_file::FileKind;
use crate::resources::{operation, whole_seconds};
use crate::serve::FILES_INTERVAL;
use crate::settings::HttpSettings;
use crate::tls_files::{AuthoritiesFile, TlsFiles};

/// Owner of the data, as far as it is known to a standby.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownOwner {
    /// Address of the owner's HTTP service, `host:port`, or `https://host:port` with TLS. `None` if there is no
    /// owner now, or the owner is not known.
    pub address: Option<String>,
    /// Reason why there is no owner.
    pub reason: String,
}

/// Serves requests on `listeners` by forwarding them to the owner, until `shutdown` completes. Running requests get the
/// drain timeout, but no longer than `drain_max`.
///
/// # Errors
///
/// Returns an error if the local address of the listener is not available, or a certificate cannot be read.
pub async fn serve(
    listeners: impl Into<Listeners>,
    known: watch::Receiver<KnownOwner>,
    settings: &HttpSettings,
    clock: Arc<dyn Clock>,
    drain_max: Duration,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let of_files = settings.clone();
    let files = spawn_blocking(move || Files::open(&of_files)).await;
    let files = files.map_err(io::Error::other)?.map_err(io::Error::other)?;
    let files = Arc::new(files);
    let limits = ConnectionSettings {
        connections_max: settings.connections_max,
        header_timeout: settings.header_timeout,
        idle_timeout: settings.idle_timeout,
        answer_timeout: settings.answer_timeout,
        answer_bytes_per_second_min: settings.answer_bytes_per_second_min,
        drain_timeout: settings.drain_timeout.min(drain_max),
        trusted_proxies: settings.trusted_proxies.clone(),
        tls: files.tls.as_ref().map(TlsFiles::tls),
    };
    let started = clock.now();
    let service = Standby {
        known,
        forwarder: files.authorities.forwarder(),
        request_ids: Arc::new(RequestIds::new(started)),
        warnings: settings.warnings.clone(),
        files: Arc::clone(&files),
        has_tls: settings.tls.is_some(),
        started,
        began: clock.monotonic(),
        clock: Arc::clone(&clock),
    };
    let concurrent = Shares::new(settings.connections_max);
    let served = tideline_connections::serve(listeners.into(), service, concurrent, limits, || {}, shutdown);
    tokio::select! {
        served = served => served,
        never = follow(files, clock) => match never {},
    }
}

/// Files of a standby with certificates.
#[derive(Debug)]
struct Files {
    tls: Option<TlsFiles>,
    authorities: AuthoritiesFile,
    /// Warnings for `/ready`, updated when the files were followed, so that a request never waits for a file.
    warnings: Mutex<Vec<String>>,
}

impl Files {
    fn open(settings: &HttpSettings) -> Result<Self, String> {
        Ok(Self {
            tls: settings.tls.as_ref().map(TlsFiles::open).transpose()?,
            authorities: AuthoritiesFile::open(settings)?,
            warnings: Mutex::default(),
        })
    }

    fn follow(&self, now: Timestamp) {
        if let Some(tls) = &self.tls {
            tls.follow(now);
        }
        self.authorities.follow();
        let of_tls = self.tls.iter().flat_map(TlsFiles::files_behind);
        let behind = of_tls.chain(self.authorities.file_behind());
        let end = self.tls.as_ref().and_then(|tls| tls.end_warning(now));
        *self.warnings.lock() = behind.map(FileKind::warning).chain(end).collect();
    }
}

/// Reads the files again when they change.
async fn follow(files: Arc<Files>, clock: Arc<dyn Clock>) -> Infallible {
    loop {
        tokio::time::sleep(FILES_INTERVAL).await;
        let (files, now) = (Arc::clone(&files), clock.now());
        if let Err(panicked) = spawn_blocking(move || files.follow(now)).await {
            tracing::error!(%panicked, "reading changed certificates panicked");
        }
    }
}

#[derive(Debug, Clone)]
struct Standby {
    known: watch::Receiver<KnownOwner>,
    forwarder: Forwarder,
    request_ids: Arc<RequestIds>,
    /// Warnings about the configuration.
    warnings: Vec<String>,
    files: Arc<Files>,
    /// True if clients reach this process over TLS.
    has_tls: bool,
    clock: Arc<dyn Clock>,
    started: Timestamp,
    /// Monotonic time of the start.
    began: Duration,
}

impl Standby {
    /// Forwards a request to the owner, as long as it remains the owner.
    async fn forward(mut self, request: Request<Incoming>) -> Response {
        let KnownOwner { address, reason } = self.known.borrow_and_update().clone();
        let Some(owner) = address else {
            return unavailable(format!("no process owns the data at the moment: {reason}"));
        };
        if request.headers().contains_key(FORWARDED) {
            return unavailable(
                "this process does not own the data; another process has just lost or taken it".into(),
            );
        }
        let origin = Origin::of(request.extensions());
        let is_other = |now: &KnownOwner| now.address.as_ref() != Some(&owner);
        let forwarded = self.forwarder.forward(request, &owner, origin);
        tokio::select! {
            answer = forwarded => answer.unwrap_or_else(|reason| {
                unavailable(format!("the process at {owner} owns the data, but did not answer: {reason}"))
            }),
            _ = self.known.wait_for(is_other) => unavailable(format!(
                "the process at {owner} lost the data while it executed the request, so its outcome is unknown"
            )),
        }
    }

    fn ready(&self) -> Response {
        let KnownOwner { address, reason } = self.known.borrow().clone();
        let is_ready = address.is_some();
        let is_clear = |owner: &String| self.has_tls && !owner.starts_with(HTTPS);
        let in_clear_text = address.as_ref().filter(|owner| is_clear(owner)).map(|owner| {
            format!(
                "requests are forwarded to the owner {owner} in clear text, because it has no certificate"
            )
        });
        let up = self.clock.monotonic().saturating_sub(self.began);
        let body = Readiness {
            status: if is_ready { "ready" } else { "not ready" }.into(),
            role: "standby".into(),
            owner: address,
            reads: is_ready,
            writes: is_ready,
            reasons: (!is_ready)
                .then_some(reason)
                .into_iter()
                .chain(in_clear_text)
                .chain(self.warnings.clone())
                .chain(self.files.warnings.lock().clone())
                .collect(),
            reopening: Vec::new(),
            started: self.started.to_rfc3339(),
            up: String::from(whole_seconds(up)),
            request_id: RequestContext::current().id.into(),
        };
        let status = match is_ready {
            true => StatusCode::OK,
            false => StatusCode::SERVICE_UNAVAILABLE,
        };
        (status, Json(body)).into_response()
    }

    async fn respond(self, request: Request<Incoming>) -> Response {
        match request.uri().path() {
            "/health" => {
                let message = "standby: requests are forwarded to the owner of the data";
                Json(operation::alive(message)).into_response()
            }
            "/ready" => self.ready(),
            "/-/healthy" => "Tideline is Healthy.\n".into_response(),
            _ => self.forward(request).await,
        }
    }
}

impl Service for Standby {
    type Guard = ();

    async fn handle(self, request: Request<Incoming>) -> Response {
        let origin = Origin::of(request.extensions());
        let context = RequestContext {
            id: RequestId::of(request.headers(), &self.request_ids),
            dialect: Dialect::of_request(request.uri().path(), request.headers()),
            client: origin.map_or(Client::UNKNOWN, |origin| origin.client()),
            tenant: None,
            query: None,
        };
        context.scope(self.respond(request)).await
    }

    fn overloaded(&self, message: String) -> Response {
        Failure::new(ErrorCode::Overloaded, message).into_response()
    }

    fn is_operation(&self, path: &str) -> bool {
        crate::auth::is_open(path)
    }

    fn connected(&self) {}

    fn drain(&self) {}
}

fn unavailable(message: String) -> Response {
    Failure::new(ErrorCode::Unavailable, message).into_response()
}
