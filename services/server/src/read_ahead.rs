//! Thread of a standby that keeps the timelines of the owner in memory.
//!
//! After a take-over, this process then reads only what has changed since, so the duration of the take-over does not
//! depend on the number of timelines. The thread reads all timelines once per owner, with one request at a time, and
//! afterwards the records of changes. Nothing depends on it: without its result, all timelines are read after the
//! take-over.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::Builder;
use std::time::Duration;

use tideline_engine::backend::{Backend, Epoch};
use tideline_engine::catalog::TimelinesAhead;

use crate::error::{Result, ServerError};

/// Pause between two reads of changes. At a take-over, the changes of the last pause are left to read.
const INTERVAL: Duration = Duration::from_millis(500);
/// Pause after a failed read, and before all timelines are read again because some changes are no longer stored.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Longest time for which a take-over waits for the read that the thread is executing.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Running thread. It ends when the value is dropped.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    owners: Sender<Epoch>,
    /// Last epoch that was sent to the thread.
    followed: Option<Epoch>,
    ending: Ending,
    outcome: Receiver<Option<TimelinesAhead>>,
}

/// Makes the thread end early when it is dropped.
#[derive(Debug)]
struct Ending(Arc<AtomicBool>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl ReadAhead {
    /// Starts the thread. It ends if the timelines take more than `bytes_max` bytes of memory.
    pub(crate) fn start(backend: Arc<dyn Backend>, bytes_max: u64) -> Result<Self> {
        let (owners, followed) = mpsc::channel();
        let is_ending = Arc::new(AtomicBool::new(false));
        let ending = Ending(Arc::clone(&is_ending));
        let thread = Builder::new().name("read-ahead".to_owned());
        let (ended, outcome) = mpsc::channel();
        let run = move || {
            let ahead = run(backend.as_ref(), bytes_max, &followed, &is_ending);
            // Fails if the outcome is no longer needed.
            let _ = ended.send(ahead);
        };
        thread.spawn(run).map_err(ServerError::Threads)?;
        Ok(Self {
            owners,
            followed: None,
            ending,
            outcome,
        })
    }

    /// Reads the timelines of the owner with this epoch from now on.
    pub(crate) fn follow(&mut self, owner: Epoch) {
        if self.followed != Some(owner) {
            self.followed = Some(owner);
            // Fails if the thread has ended.
            let _ = self.owners.send(owner);
        }
    }

    /// Ends the thread after this process has taken the data in the epoch `own`. Returns the timelines, unless another
    /// process has owned the data since, or not all timelines are read yet.
    pub(crate) fn end(self, own: Epoch) -> Option<TimelinesAhead> {
        let Self {
            owners,
            followed,
            ending,
            outcome,
        } = self;
        drop(ending);
        drop(owners);
        // Without the thread's response in time, or after a panic of the thread, all timelines are read.
        let ahead = outcome.recv_timeout(END_TIMEOUT).ok().flatten();
        // The engine checks this again, with the epoch in which it opens.
        let ahead = ahead.filter(|ahead| ahead.is_followed_by(own));
        if ahead.is_none() && followed.is_some() {
            tracing::info!("the timelines are not read ahead; all timelines are read");
        }
        ahead
    }
}

/// Reads the timelines of the current owner, until no further owner can be sent.
fn run(
    backend: &dyn Backend,
    bytes_max: u64,
    owners: &Receiver<Epoch>,
    is_ending: &AtomicBool,
) -> Option<TimelinesAhead> {
    let is_full = Cell::new(false);
    let note = |bytes: usize| is_full.set(bytes as u64 > bytes_max);
    let is_wanted = |bytes: usize| {
        note(bytes);
        !is_full.get() && !is_ending.load(Ordering::Acquire)
    };
    let mut owner = owners.recv().ok()?;
    let mut ahead = None;
    loop {
        ahead = advance(ahead, backend, owner, &is_wanted).unwrap_or_else(|error| {
            tracing::warn!(%error, "the timelines could not be read ahead; it is retried");
            None
        });
        if let Some(ahead) = &ahead {
            note(ahead.memory_bytes());
        }
        if is_full.get() {
            tracing::info!(
                bytes_max,
                "the timelines are too large to be read ahead; a take-over reads all of them"
            );
            return None;
        }
        let pause = if ahead.is_some() { INTERVAL } else { RETRY_AFTER };
        match owners.recv_timeout(pause) {
            Ok(next) => owner = next,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return ahead,
        }
    }
}

/// Reads all timelines if those of the owner are not read yet, and then the changes. Returns `None` if not all changes
/// are stored any more, or if `is_wanted` has ended the read of all timelines.
fn advance(
    ahead: Option<TimelinesAhead>,
    backend: &dyn Backend,
    owner: Epoch,
    is_wanted: &dyn Fn(usize) -> bool,
) -> tideline_engine::Result<Option<TimelinesAhead>> {
    // The timelines of an earlier owner are dropped first, so that they are not in memory twice.
    let mut ahead = match ahead.filter(|ahead| ahead.epoch() == owner) {
        Some(ahead) => ahead,
        None => match TimelinesAhead::read(backend, owner, is_wanted)? {
            Some(read) => {
                let (timelines, bytes) = (read.timelines(), read.memory_bytes());
                tracing::info!(timelines, bytes, "the timelines are read ahead");
                read
            }
            None => return Ok(None),
        },
    };
    let is_complete = ahead.catch_up(backend)?;
    Ok(is_complete.then_some(ahead))
}

#[cfg(test)]
mod tests {
    use tideline_engine::backend::memory::{Character, MemoryBackend, MemoryDisk};

    use super::*;

    #[test]
    fn timelines_are_read_again_for_each_owner() {
        let backend = MemoryBackend::open(&MemoryDisk::new(Character::Distributed));
        let read = |ahead, owner| {
            let ahead = advance(ahead, &backend, owner, &|_| true).expect("memory does not fail");
            ahead.expect("nothing is missing")
        };
        let ahead = read(None, Epoch(4));
        let ahead = read(Some(ahead), Epoch(4));
        assert_eq!(ahead.epoch(), Epoch(4));
        let ahead = read(Some(ahead), Epoch(6));
        assert_eq!(ahead.epoch(), Epoch(6));
        let ended = advance(Some(ahead), &backend, Epoch(8), &|_| false);
        assert!(ended.expect("memory does not fail").is_none());
    }

    #[test]
    fn the_thread_ends_without_an_owner_and_after_another_owner() {
        let disk = MemoryDisk::new(Character::Distributed);
        let backend = || Arc::new(MemoryBackend::open(&disk)) as Arc<dyn Backend>;
        let unfollowed = ReadAhead::start(backend(), u64::MAX).expect("a thread");
        assert!(unfollowed.end(Epoch(2)).is_none());
        let mut stopped = ReadAhead::start(backend(), u64::MAX).expect("a thread");
        stopped.follow(Epoch(1));
        assert!(stopped.end(Epoch(9)).is_none(), "another process owned the data");
    }
}
