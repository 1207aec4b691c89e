//! Response body that keeps a value alive until it has been sent or dropped: reserved memory, a share, a
//! permit.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// Body with a value that is dropped together with it.
struct Holding<T> {
    body: Body,
    _held: T,
}

/// Returns `body` wrapped so that `held` is dropped together with it.
pub fn holding<T: Send + Unpin + 'static>(body: Body, held: T) -> Body {
    Body::new(Holding { body, _held: held })
}

impl<T: Unpin> HttpBody for Holding<T> {
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
