//! HTTP service of a process that does not own the data.
//!
//! It forwards every request to the owner, and handles only health checks and `/metrics` itself: it is ready while the
//! owner is reachable and ready. If the owner changes while it executes a request, the response is an error, because the
//! outcome is unknown. Errors have the form of the protocol of the request.
//!
//! While this process takes the data over, the service still listens, and refuses requests with a retryable error.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::header::ACCEPT_ENCODING;
use hyper::{Method, Request};
use parking_lot::Mutex;
use tideline_connections::forward::{FORWARDED, Forwarder, HTTPS};
use tideline_connections::shares::Shares;
use tideline_connections::{BodyReader, Client, ConnectionSettings, Listeners, Origin, Service};
use tideline_engine::model::{Clock, Timestamp};
use tideline_openapi::ErrorCode;
use tideline_openapi::operation::Readiness;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::context::{Dialect, RequestContext, RequestId, RequestIds};
use crate::failure::Failure;
use crate::followed_file::FileKind;
use crate::metrics::{self, ForwardOutcome, StandbyMetrics};
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
    /// True if this process has taken the data, and opens it.
    pub is_starting: bool,
}

/// Longest time in which the body of a refused request is read. It must be shorter than the time in which the service
/// ends while this process takes the data over.
const DISCARD_TIMEOUT: Duration = Duration::from_millis(100);
/// Longest wait for the readiness of the owner, shorter than the usual timeout of probes.
const READINESS_TIMEOUT: Duration = Duration::from_millis(500);
/// Query of a request for `/metrics` that is forwarded to the owner.
const METRICS_OF_OWNER: &str = "of=owner";
/// Maximum size of the readiness of the owner, in bytes.
const READINESS_BYTES_MAX: usize = 1 << 20;

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
        // Bodies are not stored, so they take nothing from the budget.
        bodies: BodyReader::new(
            Shares::new(1),
            settings.body_timeout,
            settings.body_bytes_per_second_min,
        ),
        metrics: Arc::default(),
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
    bodies: BodyReader,
    metrics: Arc<StandbyMetrics>,
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
        let KnownOwner {
            address,
            reason,
            is_starting,
        } = self.known.borrow_and_update().clone();
        let Some(owner) = address else {
            let reason = match is_starting {
                true => reason,
                false => format!("no process owns the data at the moment: {reason}"),
            };
            return self.refuse(request, reason).await;
        };
        if request.headers().contains_key(FORWARDED) {
            let reason = "this process does not own the data; another process has just lost or taken it";
            return self.refuse(request, reason.to_owned()).await;
        }
        let origin = Origin::of(request.extensions());
        let is_other = |now: &KnownOwner| now.address.as_ref() != Some(&owner);
        let forwarded = self.forwarder.forward(request, &owner, origin);
        tokio::select! {
            answer = forwarded => {
                self.metrics.count(match answer {
                    Ok(_) => ForwardOutcome::Answered,
                    Err(_) => ForwardOutcome::Failed,
                });
                answer.unwrap_or_else(|reason| {
                    unavailable(format!("the process at {owner} owns the data, but did not answer: {reason}"))
                })
            }
            _ = self.known.wait_for(is_other) => {
                self.metrics.count(ForwardOutcome::Failed);
                unavailable(format!(
                    "the process at {owner} lost the data while it executed the request, so its outcome is unknown"
                ))
            }
        }
    }

    /// Refuses a request that cannot be forwarded. Reads its body first, because a connection that is closed with unread
    /// bytes is reset, and the client may lose the response.
    async fn refuse(&self, request: Request<Incoming>, reason: String) -> Response {
        self.metrics.count(ForwardOutcome::NoOwner);
        let discarded = self.bodies.discard(request.map(Body::new));
        // After the timeout, the client may lose the response.
        let _ = tokio::time::timeout(DISCARD_TIMEOUT, discarded).await;
        unavailable(reason)
    }

    /// Returns the metrics of this process.
    fn metrics_text(&self, headers: &HeaderMap) -> Response {
        let has_owner = self.known.borrow().address.is_some();
        match self.metrics.render(has_owner) {
            Ok(text) => ([(CONTENT_TYPE, metrics::content_type(headers))], text).into_response(),
            Err(_) => Failure::new(ErrorCode::Internal, "metrics could not be encoded").into_response(),
        }
    }

    /// Returns the readiness of the owner.
    ///
    /// # Errors
    ///
    /// Returns the reason why requests cannot be forwarded now.
    async fn owners_readiness(
        &self,
        owner: &str,
        mut request: Request<Incoming>,
    ) -> Result<Readiness, String> {
        let origin = Origin::of(request.extensions());
        *request.method_mut() = Method::GET;
        request.headers_mut().remove(ACCEPT_ENCODING);
        let forwarded = async {
            let response = self.forwarder.forward(request, owner, origin).await?;
            let body = to_bytes(response.into_body(), READINESS_BYTES_MAX).await;
            let body = body.map_err(|error| error.to_string())?;
            serde_json::from_slice::<Readiness>(&body).map_err(|error| format!("not a readiness: {error}"))
        };
        let answered = tokio::time::timeout(READINESS_TIMEOUT, forwarded).await;
        let late = |_| format!("it did not answer within {READINESS_TIMEOUT:?}");
        let readiness = answered.map_err(late).and_then(|answered| answered);
        let readiness = readiness.map_err(|reason| {
            format!("the process at {owner} owns the data, but cannot be reached: {reason}")
        })?;
        match readiness.role.as_str() {
            "owner" => Ok(readiness),
            role => Err(format!(
                "the process at {owner} does not serve the data now; its role is {role:?}"
            )),
        }
    }

    async fn ready(&self, request: Request<Incoming>) -> Response {
        let KnownOwner {
            address,
            reason,
            is_starting,
        } = self.known.borrow().clone();
        // The request of another standby, which needs only the role of this process. It is not forwarded again.
        let is_forwarded = request.headers().contains_key(FORWARDED);
        let (reads, writes, not_ready) = match &address {
            None => (false, false, vec![reason]),
            Some(_) if is_forwarded => (true, true, Vec::new()),
            Some(owner) => match self.owners_readiness(owner, request).await {
                Ok(found) if found.reads && found.writes => (true, true, Vec::new()),
                Ok(found) => (found.reads, found.writes, found.reasons),
                Err(reason) => (false, false, vec![reason]),
            },
        };
        let is_ready = reads && writes;
        let is_clear = |owner: &String| self.has_tls && !owner.starts_with(HTTPS);
        let in_clear_text = address.as_ref().filter(|owner| is_clear(owner)).map(|owner| {
            format!(
                "requests are forwarded to the owner {owner} in clear text, because it has no certificate"
            )
        });
        let up = self.clock.monotonic().saturating_sub(self.began);
        let body = Readiness {
            status: if is_ready { "ready" } else { "not ready" }.into(),
            role: if is_starting { "starting" } else { "standby" }.into(),
            owner: address,
            reads,
            writes,
            reasons: not_ready
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
                let message = match self.known.borrow().is_starting {
                    true => "starting: this process has taken the data, and opens it",
                    false => "standby: requests are forwarded to the owner of the data",
                };
                Json(operation::alive(message)).into_response()
            }
            "/ready" => self.ready(request).await,
            "/-/healthy" => "Tideline is Healthy.\n".into_response(),
            "/metrics" if is_for_own_metrics(&request) => self.metrics_text(request.headers()),
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
        path == "/metrics" || crate::auth::is_open(path)
    }

    fn connected(&self) {}

    fn drain(&self) {}
}

/// Returns true if a request for `/metrics` reads the metrics of this process. The owner refuses other methods.
fn is_for_own_metrics<B>(request: &Request<B>) -> bool {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    is_read && request.uri().query() != Some(METRICS_OF_OWNER)
}

fn unavailable(message: String) -> Response {
    Failure::new(ErrorCode::Unavailable, message).into_response()
}
