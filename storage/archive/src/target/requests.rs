//! Runs requests: one small runtime, so many at a time, callers wait.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Semaphore, watch};

/// Requests of all callers that are under way at once; more wait their turn.
const IN_FLIGHT_MAX: usize = 16;

/// Drives requests for callers that block. Its threads start with the first request.
pub(crate) struct Requests {
    runtime: Mutex<Option<Runtime>>,
    turns: Arc<Semaphore>,
    is_stopped: watch::Sender<bool>,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The store, or the way to it, says so.
    Failed(object_store::Error),
    /// It took longer than its caller would wait.
    TooLate(Duration),
    /// Everything stops.
    Stopped,
}

impl From<object_store::Error> for NoAnswer {
    fn from(error: object_store::Error) -> Self {
        Self::Failed(error)
    }
}

impl Requests {
    pub(crate) fn new() -> Self {
        Self {
            runtime: Mutex::default(),
            turns: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            is_stopped: watch::Sender::new(false),
        }
    }

    /// Ends all requests, those that are under way and those that come.
    pub(crate) fn stop(&self) {
        self.is_stopped.send_replace(true);
    }

    /// Runs a request to its end, however long that takes. May be called on any thread, one of another runtime too.
    pub(crate) fn run<T, F>(&self, request: F) -> Result<T, NoAnswer>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        self.run_within(None, request)
    }

    /// Runs a request, and gives it up where it takes longer; waiting for its turn counts.
    pub(crate) fn run_within<T, F>(&self, limit: Option<Duration>, request: F) -> Result<T, NoAnswer>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        let (answer, answered) = mpsc::sync_channel(1);
        let turns = Arc::clone(&self.turns);
        let mut is_stopped = self.is_stopped.subscribe();
        self.handle()?.spawn(async move {
            let in_turn = async move {
                let _turn = turns.acquire_owned().await;
                Ok(request.await?)
            };
            let in_time = async move {
                match limit {
                    None => in_turn.await,
                    Some(limit) => match tokio::time::timeout(limit, in_turn).await {
                        Ok(outcome) => outcome,
                        Err(_) => Err(NoAnswer::TooLate(limit)),
                    },
                }
            };
            let outcome = tokio::select! {
                outcome = in_time => outcome,
                _ = is_stopped.wait_for(|is_stopped| *is_stopped) => Err(NoAnswer::Stopped),
            };
            // Whoever has asked waits for it, or is gone with its thread.
            let _nobody_waits = answer.send(outcome);
        });
        answered.recv().unwrap_or_else(|_| {
            Err(NoAnswer::Failed(object_store::Error::Generic {
                store: "archive",
                source: "the request ended without an answer".into(),
            }))
        })
    }

    fn handle(&self) -> Result<Handle, NoAnswer> {
        let mut runtime = self.runtime.lock();
        if let Some(runtime) = &*runtime {
            return Ok(runtime.handle().clone());
        }
        let started = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(IN_FLIGHT_MAX)
            .thread_name("archive-requests")
            .enable_all()
            .build();
        let started = started.map_err(|error| object_store::Error::Generic {
            store: "archive",
            source: error.into(),
        })?;
        Ok(runtime.insert(started).handle().clone())
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.get_mut().take() {
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
