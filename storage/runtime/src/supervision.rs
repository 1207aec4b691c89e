//! Threads that the database depends upon, under one supervisor.
//!
//! A panic in such a thread may leave shared state half changed, and its work undone for good: writers would wait for
//! a commit, a seal or a reopening that never comes. So the supervisor records the first such panic and calls its
//! listeners: waiting callers return an error, further writes are refused, and the server ends the process. The next
//! start recovers everything that was acknowledged.
//!
//! The components of one process share one supervisor; it is passed to each with its settings. Without a listener
//! that ends the process, the failure is only recorded.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

/// Starts long-lived threads and records the first of them that panics. Clones share one record.
#[derive(Clone, Default)]
pub struct Supervisor(Arc<Inner>);

#[derive(Default)]
struct Inner {
    failure: OnceLock<ThreadFailure>,
    listeners: Mutex<Vec<Listener>>,
    round_hook: OnceLock<RoundHook>,
}

type Listener = Box<dyn FnOnce(&ThreadFailure) + Send>;
type RoundHook = Box<dyn Fn(&'static str) + Send + Sync>;

/// The panic of a supervised thread.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {thread} thread panicked: {reason}")]
pub struct ThreadFailure {
    /// Name of the thread.
    pub thread: &'static str,
    /// Message of the panic.
    pub reason: String,
}

/// The handle of a supervised thread. Dropping it detaches the thread.
#[derive(Debug, Default)]
pub struct SupervisedThread(Mutex<Option<JoinHandle<()>>>);

impl Supervisor {
    /// Starts a thread. If `work` panics, that is the failure of this supervisor, unless there was one before.
    ///
    /// # Errors
    ///
    /// If the system has no thread left.
    pub fn spawn(
        &self,
        name: &'static str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<SupervisedThread> {
        let supervisor = self.clone();
        let builder = thread::Builder::new().name(name.to_owned());
        let thread = builder.spawn(move || {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
                supervisor.fail(name, &*panic);
            }
        })?;
        Ok(SupervisedThread(Mutex::new(Some(thread))))
    }

    /// The first panic of a supervised thread.
    pub fn failure(&self) -> Option<&ThreadFailure> {
        self.0.failure.get()
    }

    /// Calls `listener` once after the first panic, on the thread that panicked; at once if there was one already.
    ///
    /// Everything that the thread had locked is unlocked by then. The listener must not wait for that thread.
    pub fn on_failure(&self, listener: impl FnOnce(&ThreadFailure) + Send + 'static) {
        let mut listeners = locked(&self.0.listeners);
        match self.failure() {
            None => listeners.push(Box::new(listener)),
            Some(failure) => {
                drop(listeners);
                listener(failure);
            }
        }
    }

    /// Marks the start of a unit of work of a thread: a group of writes, a seal, a tick. Costs one load unless a test
    /// has set a hook.
    pub fn round(&self, thread: &'static str) {
        if let Some(hook) = self.0.round_hook.get() {
            hook(thread);
        }
    }

    /// Sets the function that [`round`](Self::round) calls with the name of the thread. For tests, which make a thread
    /// panic there; the first hook stays.
    pub fn on_round(&self, hook: impl Fn(&'static str) + Send + Sync + 'static) {
        let _first_stays = self.0.round_hook.set(Box::new(hook));
    }

    fn fail(&self, thread: &'static str, panic: &(dyn Any + Send)) {
        let reason = panic_message(panic).to_owned();
        if self.0.failure.set(ThreadFailure { thread, reason }).is_err() {
            return;
        }
        // Set before the lock: a listener that comes later sees the failure itself.
        let listeners = std::mem::take(&mut *locked(&self.0.listeners));
        for listener in listeners {
            if let Some(failure) = self.failure() {
                // A broken listener must not keep the others from being called.
                let _panicked = catch_unwind(AssertUnwindSafe(|| listener(failure)));
            }
        }
    }
}

impl SupervisedThread {
    /// Waits until the thread has ended. Repeatable.
    pub fn join(&self) {
        let thread = locked(&self.0).take();
        if let Some(thread) = thread {
            // A panic was caught inside and is recorded.
            let _ended = thread.join();
        }
    }
}

/// The lock, whatever became of a thread that held it.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The message of a panic, as far as it is text.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Supervisor")
            .field("failure", &self.failure())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_first_panic_is_recorded_and_every_listener_is_called_once() {
        let supervisor = Supervisor::default();
        let (sender, heard) = mpsc::channel();
        let early = sender.clone();
        supervisor.on_failure(|_| panic!("a broken listener"));
        supervisor.on_failure(move |failure| early.send(failure.to_string()).expect("it is heard"));
        let sound = supervisor.spawn("sound", || {}).expect("a thread");
        sound.join();
        assert_eq!(supervisor.failure(), None);
        let first = supervisor.spawn("sealer", || panic!("number {}", 1));
        first.expect("a thread").join();
        let second = supervisor.spawn("committer", || panic!("number two"));
        let second = second.expect("a thread");
        second.join();
        second.join();
        supervisor.on_failure(move |failure| sender.send(failure.to_string()).expect("it is heard"));
        let expected = "the sealer thread panicked: number 1";
        assert_eq!(heard.iter().collect::<Vec<_>>(), [expected, expected]);
        assert_eq!(
            supervisor.failure().map(ToString::to_string).as_deref(),
            Some(expected)
        );
    }

    #[test]
    fn rounds_reach_the_hook() {
        let supervisor = Supervisor::default();
        supervisor.round("committer");
        let (sender, heard) = mpsc::channel();
        supervisor.on_round(move |thread| sender.send(thread).expect("it is heard"));
        supervisor.clone().round("sealer");
        assert_eq!(heard.recv(), Ok("sealer"));
    }
}
