//! Reading of request bodies within the limits of the settings.

use std::sync::Arc;

use axum::extract::Request;
use tideline_access::Principal;
use tideline_connections::{BodyBytes, BodyError, BodyLimits, ReceivedBody};
use tideline_openapi::ErrorCode;

use crate::app::{App, blocking};
use crate::context::current_client;
use crate::failure::{Failure, Result};
use crate::grant::Granted;
use crate::settings::HttpSettings;

/// Returns the size limits of writes.
pub(crate) fn write_limits(settings: &HttpSettings) -> BodyLimits {
    BodyLimits {
        wire_bytes: settings.body_bytes_max,
        decoded_bytes: settings.decoded_body_bytes_max,
    }
}

/// Returns the size limits of requests other than writes.
pub(crate) fn request_limits(settings: &HttpSettings) -> BodyLimits {
    BodyLimits {
        wire_bytes: settings.request_bytes_max,
        decoded_bytes: settings.request_bytes_max,
    }
}

/// Reads the body of a remote write.
pub(crate) async fn receive_remote_write(request: Request, app: &App) -> Result<ReceivedBody> {
    let limits = write_limits(&app.settings);
    let principal = principal(&request);
    let received = app.bodies.receive_remote_write(request, current_client(), limits);
    counted(app, received.await?, principal)
}

/// Reads the body of a remote read.
pub(crate) async fn receive_snappy(request: Request, app: &App, limits: BodyLimits) -> Result<ReceivedBody> {
    let principal = principal(&request);
    let received = app.bodies.receive_snappy(request, current_client(), limits);
    counted(app, received.await?, principal)
}

/// Reads the body of a request other than remote write and remote read.
pub(crate) async fn receive(request: Request, app: &App, limits: BodyLimits) -> Result<ReceivedBody> {
    let principal = principal(&request);
    let received = app.bodies.receive(request, current_client(), limits);
    counted(app, received.await?, principal)
}

/// Decompresses the body of a request. Uses a blocking thread only for a compressed body.
pub(crate) async fn decode(body: ReceivedBody) -> Result<BodyBytes> {
    match body.is_compressed() {
        true => blocking(move || Ok(body.decode()?)).await,
        false => Ok(body.decode()?),
    }
}

fn principal(request: &Request) -> Option<Arc<Principal>> {
    let granted = request.extensions().get::<Granted>()?;
    Some(Arc::clone(&granted.principal))
}

/// Counts the bytes of a body, and refuses it if the token was revoked or has expired while the body arrived.
fn counted(app: &App, body: ReceivedBody, principal: Option<Arc<Principal>>) -> Result<ReceivedBody> {
    app.metrics.body_bytes.inc_by(body.sent_bytes() as u64);
    principal.map_or(Ok(()), |principal| app.check_valid(&principal))?;
    Ok(body)
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Self {
        let code = match &error {
            BodyError::UnknownEncoding { .. } => ErrorCode::UnsupportedMediaType,
            BodyError::TooLarge { .. } => ErrorCode::BodyTooLarge,
            BodyError::TooSlow { .. } => ErrorCode::BodyTooSlow,
            BodyError::Overloaded { .. } => ErrorCode::Overloaded,
            BodyError::Invalid(_) => ErrorCode::Invalid,
        };
        let limit = match &error {
            BodyError::TooLarge { limit, actual, .. } => Some((*limit, *actual)),
            _ => None,
        };
        Self {
            limit,
            ..Self::new(code, error.to_string())
        }
    }
}
