//! Supervision of threads that the database depends on.
//!
//! A panic in such a thread ends its work, and may leave shared state half changed. Writers would then wait for a
//! commit, a seal or a reopening that never happens. The supervisor therefore records the first such panic and calls
//! its listeners. Waiting calls then return an error, further writes are rejected, and the server exits. The next start
//! recovers all acknowledged data.
//!
//! The components of one process share one supervisor, which each component receives in its settings. Without a
//! listener that exits the process, the process continues after a panic.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

/// Starter of long-lived threads that records the first panic among them. Clones share one record.
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

/// Panic of a supervised thread.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {thread} thread panicked: {reason}")]
pub struct ThreadFailure {
    /// Name of the thread.
    pub thread: &'static str,
    /// Panic message.
    pub reason: String,
}

/// Handle of a supervised thread. Dropping it detaches the thread.
#[derive(Debug, Default)]
pub struct SupervisedThread(Mutex<Option<JoinHandle<()>>>);

impl Supervisor {
    /// Starts a thread that runs `work`. A panic in `work` becomes the failure of this supervisor, unless an earlier
    /// panic is recorded.
    ///
    /// # Errors
    ///
    /// Returns the error of the operating system if it cannot create a thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use tideline_runtime::Supervisor;
    ///
    /// let supervisor = Supervisor::default();
    /// let thread = supervisor.spawn("flusher", || panic!("the disk is gone"))?;
    /// thread.join();
    /// let failure = supervisor.failure().ok_or("the panic is recorded")?;
    /// assert_eq!(failure.to_string(), "the flusher thread panicked: the disk is gone");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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

    /// Returns the first panic of a supervised thread, if any.
    pub fn failure(&self) -> Option<&ThreadFailure> {
        self.0.failure.get()
    }

    /// Registers a listener that is called once, after the first panic, on the thread that panicked. If a panic is
    /// already recorded, calls the listener immediately, on the calling thread.
    ///
    /// When a listener is called, the panicked thread has released all its locks. The listener must not wait for that
    /// thread.
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

    /// Sets the function that [`round`](Self::round) calls with the thread name. Tests set a function that panics. Only
    /// the first call has an effect.
    pub fn on_round(&self, hook: impl Fn(&'static str) + Send + Sync + 'static) {
        let _first_stays = self.0.round_hook.set(Box::new(hook));
    }

    fn fail(&self, thread: &'static str, panic: &(dyn Any + Send)) {
        let reason = panic_message(panic).to_owned();
        if self.0.failure.set(ThreadFailure { thread, reason }).is_err() {
            return;
        }
        // The failure is set before the lock is taken, so a listener registered later is called immediately.
        let listeners = std::mem::take(&mut *locked(&self.0.listeners));
        for listener in listeners {
            if let Some(failure) = self.failure() {
                // A panicking listener must not prevent the calls of later listeners.
                let _panicked = catch_unwind(AssertUnwindSafe(|| listener(failure)));
            }
        }
    }
}

impl SupervisedThread {
    /// Waits until the thread has ended. Only the first call waits; later calls return at once.
    pub fn join(&self) {
        let thread = locked(&self.0).take();
        if let Some(thread) = thread {
            // The thread catches a panic of its work, so `join` does not report one.
            let _ended = thread.join();
        }
    }
}

/// Locks `mutex`, ignoring poisoning.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the panic message, or a placeholder if it is not text.
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
