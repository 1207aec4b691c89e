//! Reply of the committer to the writer of one entry.
//!
//! A writer waits for the reply on its thread, or as a future: a server with thousands of small writes in flight then
//! needs no thread for each of them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::{Condvar, Mutex};
use tideline_model::SequenceNumber;

use crate::error::Result;
use crate::log::Log;

/// Entry that was sent to the committer and whose outcome is not known yet. As a future, it returns the sequence of the
/// entry, or the errors of [`LogThreads::commit`](crate::LogThreads::commit).
#[derive(Debug)]
pub struct Submitted {
    slot: Arc<Slot>,
    log: Arc<Log>,
}

/// Sender of one reply. If it is dropped without a reply, the writer gets the error that the log has ended.
#[derive(Debug)]
pub(crate) struct Replier(Arc<Slot>);

#[derive(Debug, Default)]
struct Slot {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
enum State {
    /// Not replied yet; no future waits, but a thread may wait.
    #[default]
    Open,
    /// Not replied yet; the future waits.
    Awaited(Waker),
    Replied(Result<SequenceNumber>),
    /// The committer has ended without a reply.
    Lost,
}

/// Returns both ends of a reply.
pub(crate) fn reply(log: &Arc<Log>) -> (Replier, Submitted) {
    let slot = Arc::<Slot>::default();
    let submitted = Submitted {
        slot: Arc::clone(&slot),
        log: Arc::clone(log),
    };
    (Replier(slot), submitted)
}

impl Replier {
    /// Sends the reply. Does nothing if the caller no longer waits.
    pub(crate) fn answer(&self, result: Result<SequenceNumber>) {
        self.0.set(State::Replied(result));
    }
}

impl Drop for Replier {
    fn drop(&mut self) {
        let is_open = matches!(*self.0.state.lock(), State::Open | State::Awaited(_));
        if is_open {
            self.0.set(State::Lost);
        }
    }
}

impl Slot {
    fn set(&self, state: State) {
        let before = std::mem::replace(&mut *self.state.lock(), state);
        match before {
            State::Awaited(waker) => waker.wake(),
            _ => {
                self.changed.notify_one();
            }
        }
    }
}

impl Submitted {
    /// Waits on the current thread until the entry is committed.
    pub(crate) fn wait(self) -> Result<SequenceNumber> {
        let mut state = self.slot.state.lock();
        while matches!(*state, State::Open | State::Awaited(_)) {
            self.slot.changed.wait(&mut state);
        }
        let replied = std::mem::replace(&mut *state, State::Lost);
        drop(state);
        self.outcome(replied)
    }

    fn outcome(&self, state: State) -> Result<SequenceNumber> {
        match state {
            State::Replied(result) => result,
            _ => Err(self.log.ended()),
        }
    }
}

impl Future for Submitted {
    type Output = Result<SequenceNumber>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.slot.state.lock();
        if matches!(*state, State::Open | State::Awaited(_)) {
            *state = State::Awaited(context.waker().clone());
            return Poll::Pending;
        }
        let replied = std::mem::replace(&mut *state, State::Lost);
        drop(state);
        Poll::Ready(self.outcome(replied))
    }
}
