//! Runs requests: one small runtime, so many at a time, callers wait.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::mpsc;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

/// Requests of all callers that are under way at once; more wait their turn.
const IN_FLIGHT_MAX: usize = 16;

/// Drives requests for callers that block.
pub(crate) struct Requests {
    /// Always there; taken when dropped.
    runtime: Option<Runtime>,
    turns: std::sync::Arc<Semaphore>,
}

impl Requests {
    pub(crate) fn new() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(IN_FLIGHT_MAX)
            .thread_name("archive-requests")
            .enable_all()
            .build()?;
        Ok(Self {
            runtime: Some(runtime),
            turns: std::sync::Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
        })
    }

    /// Runs a request to its end. May be called on any thread, one of another runtime too.
    pub(crate) fn run<T, F>(&self, request: F) -> object_store::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        let (answer, answered) = mpsc::sync_channel(1);
        let turns = std::sync::Arc::clone(&self.turns);
        let runtime = self.runtime.as_ref().expect("it is there until dropped");
        runtime.spawn(async move {
            let _turn = turns.acquire_owned().await;
            // Whoever has asked waits for it, or is gone with its thread.
            let _nobody_waits = answer.send(request.await);
        });
        answered.recv().unwrap_or_else(|_| {
            Err(object_store::Error::Generic {
                store: "archive",
                source: "the request ended without an answer".into(),
            })
        })
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waiting for it is not allowed on threads of other runtimes.
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Requests")
    }
}
