//! Execution of a write with its permit, shared by all routes that accept points. The pipeline is in `tideline-ingest`.
//! Also reads the idempotency key of a request.

use std::time::Instant;

use axum::http::HeaderMap;
use tideline_ingest::{Outcome, WriteRequest};

use crate::app::blocking;
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use tideline_connections::ReceivedBody;

/// Waits for a write permit, then decompresses, decodes and commits a write on a blocking thread. `protocol` is the
/// value of the metric label `protocol`.
pub(crate) async fn write(
    app: &Grant,
    protocol: &'static str,
    received: ReceivedBody,
    request: WriteRequest,
) -> Result<Outcome> {
    let permit = app.permit(&app.writes).await?;
    let app = app.clone();
    blocking(move || {
        let _permit = permit;
        let started = Instant::now();
        let body = received.decode()?;
        let outcome = tideline_ingest::write(&app.engine, &request, body)?;
        let seconds = started.elapsed().as_secs_f64();
        app.metrics.written(protocol, &outcome.written, seconds);
        Ok(outcome)
    })
    .await
}

/// Returns the idempotency key of the client from the header `Idempotency-Key`; `None` without the header. Fails if its
/// value is not ASCII text.
pub(crate) fn request_key(headers: &HeaderMap) -> Result<Option<String>> {
    let Some(key) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let key = key
        .to_str()
        .map_err(|_| Failure::invalid("Idempotency-Key is not plain ASCII"))?;
    Ok(Some(key.to_owned()))
}
