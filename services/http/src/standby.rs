//! HTTP service of a process that does not own the data.
//!
//! It forwards every request to the owner. `/health` and `/ready` are answered by the process itself: it is ready while
//! it knows an owner. A request that was sent to an owner which then lost the data is answered with an error, because its
//! outcome is unknown.

use std::io;
use std::time::{Duration, Instant};

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hyper::Request;
use hyper::body::Incoming;
use serde_json::json;
use tideline_connections::forward::{FORWARDED, Forwarder};
use tideline_connections::shares::Shares;
use tideline_connections::{ConnectionSettings, Origin, Service};
use tideline_openapi::ErrorCode;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::failure::Failure;
use crate::settings::HttpSettings;

/// What a standby knows about the owner of the data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    /// Address of the owner's HTTP service, `host:port`. `None`: there is no owner now, or it is not known.
    pub owner: Option<String>,
    /// Reason why there is no owner.
    pub reason: String,
}

/// Serves requests on `listener` by forwarding them to the owner, until `shutdown` completes. Running requests get the
/// drain timeout, but no longer than `drain_max`.
///
/// # Errors
///
/// Returns an error if the local address of the listener is not available.
pub async fn serve(
    listener: TcpListener,
    standing: watch::Receiver<Standing>,
    settings: &HttpSettings,
    drain_max: Duration,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let limits = ConnectionSettings {
        connections_max: settings.connections_max,
        header_timeout: settings.header_timeout,
        idle_timeout: settings.idle_timeout,
        answer_timeout: settings.answer_timeout,
        answer_bytes_per_second_min: settings.answer_bytes_per_second_min,
        drain_timeout: settings.drain_timeout.min(drain_max),
        trusted_proxies: settings.trusted_proxies.clone(),
    };
    let service = Standby {
        standing,
        forwarder: Forwarder::default(),
        started: Instant::now(),
    };
    let concurrent = Shares::new(settings.connections_max);
    tideline_connections::serve(listener, service, concurrent, limits, || {}, shutdown).await
}

#[derive(Debug, Clone)]
struct Standby {
    standing: watch::Receiver<Standing>,
    forwarder: Forwarder,
    started: Instant,
}

impl Standby {
    /// Sends a request to the owner, as long as it is the owner.
    async fn forward(mut self, request: Request<Incoming>) -> Response {
        let Standing { owner, reason } = self.standing.borrow_and_update().clone();
        let Some(owner) = owner else {
            return unavailable(format!("no process owns the data at the moment: {reason}"));
        };
        if request.headers().contains_key(FORWARDED) {
            return unavailable(
                "this process does not own the data; another process has just lost or taken it".into(),
            );
        }
        let peer = Origin::of(request.extensions()).map(|origin| origin.peer());
        let is_other = |now: &Standing| now.owner.as_ref() != Some(&owner);
        let forwarded = self.forwarder.forward(request, &owner, peer);
        tokio::select! {
            answer = forwarded => answer.unwrap_or_else(|reason| {
                unavailable(format!("the process at {owner} owns the data, but did not answer: {reason}"))
            }),
            _ = self.standing.wait_for(is_other) => unavailable(format!(
                "the process at {owner} lost the data while it executed the request, so its outcome is unknown"
            )),
        }
    }

    fn ready(&self) -> Response {
        let Standing { owner, reason } = self.standing.borrow().clone();
        let is_ready = owner.is_some();
        let body = json!({
            "status": if is_ready { "ready" } else { "not ready" },
            "role": "standby",
            "owner": owner,
            "reads": is_ready,
            "writes": is_ready,
            "reasons": if is_ready { Vec::new() } else { vec![reason] },
            "reopening": [],
            "up": format!("{}s", self.started.elapsed().as_secs()),
        });
        let status = match is_ready {
            true => StatusCode::OK,
            false => StatusCode::SERVICE_UNAVAILABLE,
        };
        (status, Json(body)).into_response()
    }
}

impl Service for Standby {
    type Guard = ();

    async fn handle(self, request: Request<Incoming>) -> Response {
        match request.uri().path() {
            "/health" => Json(json!({
                "name": "tideline",
                "message": "standby: requests are forwarded to the owner of the data",
                "status": "pass",
                "checks": [],
                "version": env!("CARGO_PKG_VERSION"),
            }))
            .into_response(),
            "/ready" => self.ready(),
            "/-/healthy" => "Tideline is Healthy.\n".into_response(),
            _ => self.forward(request).await,
        }
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
