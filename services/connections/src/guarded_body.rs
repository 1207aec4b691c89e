//! Response body that holds a value, such as reserved memory, a share or a permit, until the body has been sent or
//! dropped.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// Body with a value that is dropped together with it.
struct GuardedBody<T> {
    body: Body,
    _guard: T,
}

/// Returns `body` wrapped so that `guard` is dropped together with it.
pub fn with_guard<T: Send + Unpin + 'static>(body: Body, guard: T) -> Body {
    Body::new(GuardedBody { body, _guard: guard })
}

impl<T: Unpin> HttpBody for GuardedBody<T> {
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
