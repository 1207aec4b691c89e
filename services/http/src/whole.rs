//! Answers that are made whole before they are sent: the memory account has them until their clients have.
//!
//! Streamed answers count in their spool ([`crate::stream`]).

use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::failure::Failure;
use tideline_connections::holding;

/// Answers up to this are not counted: as many connections as may be open hold less than what the account leaves aside.
const FREE_BYTES: u64 = 64 << 10;

/// Reserves the memory of an answer of known length until it is sent, and refuses the answer where there is no room.
pub(crate) async fn reserve(State(app): State<App>, request: Request, next: Next) -> Response {
    // Metrics show why others are refused.
    let is_metrics = request.uri().path() == "/metrics";
    let answer = next.run(request).await;
    if is_metrics {
        return answer;
    }
    let Some(bytes) = answer
        .body()
        .size_hint()
        .exact()
        .filter(|bytes| *bytes > FREE_BYTES)
    else {
        return answer;
    };
    match app.engine.memory().reserve("answers that are sent whole", bytes) {
        Ok(memory) => answer.map(|body| holding(body, memory)),
        Err(full) => Failure::from(full).into_response(),
    }
}
