//! Queue of response chunks between the writer and the connection.
//!
//! The writer runs on a thread and may block; the connection must not block. The queue holds chunks that are
//! written but not yet sent, within a byte limit and the memory account.

use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tideline_runtime::{MemoryAccount, Reservation};

/// Maximum number of bytes queued per response, unless a single chunk is larger. Responses to dashboards fit.
/// For longer responses the queue only has to be large enough that writing and sending overlap.
const QUEUE_BYTES_MAX: usize = 4 << 20;

/// Queue of chunks between a writer that may block and a connection that must not.
///
/// An empty queue accepts every chunk. Otherwise a chunk must fit the byte limit of the queue and the spare room of
/// the memory account. Slow clients therefore slow down only their own responses and do not cause other requests to
/// be refused.
#[derive(Debug)]
pub struct ChunkQueue {
    queue: Mutex<Queue>,
    /// Signalled when chunks were removed or the client has disconnected.
    has_room: Condvar,
}

#[derive(Debug)]
struct Queue {
    chunks: VecDeque<Bytes>,
    bytes: usize,
    memory: Reservation,
    /// Outcome of the response once it has ended. An error is returned to the reader once.
    end: Option<io::Result<()>>,
    has_left: bool,
    /// Waker of the task that waits for a chunk or the end.
    reader: Option<Waker>,
}

/// Outcome of [`ChunkQueue::push`].
#[derive(Debug)]
pub enum Pushed {
    /// The chunk was queued.
    Kept,
    /// The queue has no room. Wait for room and push the returned chunk again.
    Full(Bytes),
    /// The client has disconnected; the chunk was dropped.
    ClientLeft,
}

impl ChunkQueue {
    /// Creates an empty queue that reserves its chunks in `memory`, except a chunk pushed while the queue is empty.
    pub fn new(memory: &MemoryAccount) -> Self {
        Self {
            queue: Mutex::new(Queue {
                chunks: VecDeque::new(),
                bytes: 0,
                memory: memory.open("answers that wait for their readers"),
                end: None,
                has_left: false,
                reader: None,
            }),
            has_room: Condvar::new(),
        }
    }

    /// Queues a chunk if there is room.
    pub fn push(&self, chunk: Bytes) -> Pushed {
        let mut queue = self.queue.lock();
        if queue.has_left {
            return Pushed::ClientLeft;
        }
        if !queue.chunks.is_empty() {
            let is_over = queue.bytes + chunk.len() > QUEUE_BYTES_MAX;
            if is_over || !queue.memory.grow_spare(chunk.len() as u64) {
                return Pushed::Full(chunk);
            }
        }
        queue.bytes += chunk.len();
        queue.chunks.push_back(chunk);
        queue.wake();
        Pushed::Kept
    }

    /// Blocks until half of the bytes that are queued now have been removed, or the client has disconnected.
    pub fn wait_for_room(&self) {
        let mut queue = self.queue.lock();
        let half = queue.bytes / 2;
        while queue.bytes > half && !queue.has_left {
            self.has_room.wait(&mut queue);
        }
    }

    /// Ends the response, with an error if it is cut off. Returns false if the client has already disconnected.
    pub fn end(&self, end: io::Result<()>) -> bool {
        let mut queue = self.queue.lock();
        queue.end = Some(end);
        queue.wake();
        !queue.has_left
    }

    /// Polls for the next chunk. After the last chunk, returns `None`.
    ///
    /// # Errors
    ///
    /// If the response was cut off, returns its error once, after the last chunk.
    pub fn poll_chunk(&self, cx: &Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let mut queue = self.queue.lock();
        if let Some(chunk) = queue.chunks.pop_front() {
            queue.bytes -= chunk.len();
            let spare = queue.memory.bytes().saturating_sub(queue.bytes as u64);
            queue.memory.shrink(spare);
            self.has_room.notify_one();
            return Poll::Ready(Some(Ok(chunk)));
        }
        match &mut queue.end {
            Some(end) => {
                let error = std::mem::replace(end, Ok(())).err();
                Poll::Ready(error.map(Err))
            }
            None => {
                queue.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Marks the client as disconnected and drops all queued chunks.
    pub fn leave(&self) {
        let mut queue = self.queue.lock();
        queue.has_left = true;
        queue.chunks.clear();
        queue.bytes = 0;
        let all = queue.memory.bytes();
        queue.memory.shrink(all);
        self.has_room.notify_one();
    }
}

impl Queue {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}
