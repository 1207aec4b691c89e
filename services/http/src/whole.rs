//! Answers that are made whole before they are sent: the memory account has them until their clients have.
//!
//! Streamed answers count in their spool ([`crate::stream`]).

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tideline_model::Reservation;

use crate::app::App;
use crate::failure::Failure;

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
        Ok(memory) => answer.map(|body| {
            Body::new(ReservedBody {
                body,
                _memory: memory,
            })
        }),
        Err(full) => Failure::from(full).into_response(),
    }
}

/// A body with the memory that it takes.
struct ReservedBody {
    body: Body,
    _memory: Reservation,
}

impl HttpBody for ReservedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
