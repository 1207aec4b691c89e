//! The part of an answer that is written and not yet sent.

use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tideline_runtime::{MemoryAccount, Reservation};

/// Bytes of an answer that are kept for its client. Answers of dashboards fit; of longer ones it is enough that reading and
/// sending go on beside each other.
const SPOOL_BYTES_MAX: usize = 4 << 20;

/// A queue of chunks between a writer that may block and a connection that may not.
///
/// One chunk always has room. More are kept as far as the memory account has plenty of room, so that slow readers make
/// answers wait, and never refuse the memory of others.
#[derive(Debug)]
pub struct Spool {
    queue: Mutex<Queue>,
    /// Signalled when chunks were taken, or the client has left.
    has_room: Condvar,
}

#[derive(Debug)]
struct Queue {
    chunks: VecDeque<Bytes>,
    bytes: usize,
    memory: Reservation,
    /// Outcome of the answer once it has ended; the error is given to the client once.
    end: Option<io::Result<()>>,
    has_left: bool,
    /// Waits for a chunk or the end.
    reader: Option<Waker>,
}

/// The outcome of offering a chunk.
#[derive(Debug)]
pub enum Pushed {
    /// The chunk waits for the client.
    Kept,
    /// There is no room for it: wait, and offer it again.
    Full(Bytes),
    /// The client has left; the chunk is dropped.
    ClientLeft,
}

impl Spool {
    /// An empty one, whose chunks count in an account.
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

    /// Keeps a chunk, if there is room.
    pub fn push(&self, chunk: Bytes) -> Pushed {
        let mut queue = self.queue.lock();
        if queue.has_left {
            return Pushed::ClientLeft;
        }
        if !queue.chunks.is_empty() {
            let is_over = queue.bytes + chunk.len() > SPOOL_BYTES_MAX;
            if is_over || !queue.memory.grow_spare(chunk.len() as u64) {
                return Pushed::Full(chunk);
            }
        }
        queue.bytes += chunk.len();
        queue.chunks.push_back(chunk);
        queue.wake();
        Pushed::Kept
    }

    /// Blocks until half of what is kept now was taken, or the client has left.
    pub fn wait_for_room(&self) {
        let mut queue = self.queue.lock();
        let half = queue.bytes / 2;
        while queue.bytes > half && !queue.has_left {
            self.has_room.wait(&mut queue);
        }
    }

    /// Ends the answer, well or by an error that cuts it off. Returns false if the client has left before.
    pub fn end(&self, end: io::Result<()>) -> bool {
        let mut queue = self.queue.lock();
        queue.end = Some(end);
        queue.wake();
        !queue.has_left
    }

    /// The next chunk, once there is one; `None` after the last.
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

    /// The client takes no more chunks.
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
