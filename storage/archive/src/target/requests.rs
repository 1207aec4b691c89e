//! Execution of requests: a small runtime with a limited number of requests in flight; callers wait.
//!
//! The runtime is shared by all targets and starts with the first request, so an unused archive has no threads.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Semaphore, watch};

/// Maximum number of operations in flight over all callers; further ones wait. A read of several ranges is one
/// operation.
const IN_FLIGHT_MAX: usize = 16;

/// Executor of requests for blocking callers. Its threads start with the first request.
pub(crate) struct Requests {
    runtime: Mutex<Option<Runtime>>,
    permits: Arc<Semaphore>,
    is_stopped: watch::Sender<bool>,
}

/// Reason why a request failed.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The store or the connection returned an error.
    Failed(object_store::Error),
    /// The request exceeded its time limit.
    TooLate(Duration),
    /// The archive is shutting down.
    Stopped,
}

impl From<object_store::Error> for RequestError {
    fn from(error: object_store::Error) -> Self {
        Self::Failed(error)
    }
}

impl Requests {
    pub(crate) fn new() -> Self {
        Self {
            runtime: Mutex::default(),
            permits: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            is_stopped: watch::Sender::new(false),
        }
    }

    /// Ends all requests, current and future ones.
    pub(crate) fn stop(&self) {
        self.is_stopped.send_replace(true);
    }

    /// Runs a request without a time limit. May be called on any thread, including threads of other runtimes.
    pub(crate) fn run<T, F>(&self, request: F) -> Result<T, RequestError>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        self.run_within(None, request)
    }

    /// Runs a request and gives up after `limit`. The limit includes waiting for a permit.
    pub(crate) fn run_within<T, F>(&self, limit: Option<Duration>, request: F) -> Result<T, RequestError>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        let (answer, answered) = mpsc::sync_channel(1);
        let permits = Arc::clone(&self.permits);
        let mut is_stopped = self.is_stopped.subscribe();
        self.handle()?.spawn(async move {
            let in_turn = async move {
                let _permit = permits.acquire_owned().await;
                Ok(request.await?)
            };
            let in_time = async move {
                match limit {
                    None => in_turn.await,
                    Some(limit) => match tokio::time::timeout(limit, in_turn).await {
                        Ok(outcome) => outcome,
                        Err(_) => Err(RequestError::TooLate(limit)),
                    },
                }
            };
            let outcome = tokio::select! {
                outcome = in_time => outcome,
                _ = is_stopped.wait_for(|is_stopped| *is_stopped) => Err(RequestError::Stopped),
            };
            // Sending fails only if the caller no longer waits because its thread has ended.
            let _receiver_gone = answer.send(outcome);
        });
        answered.recv().unwrap_or_else(|_| {
            Err(RequestError::Failed(object_store::Error::Generic {
                store: "archive",
                source: "the request ended without a response".into(),
            }))
        })
    }

    fn handle(&self) -> Result<Handle, RequestError> {
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
            // Waiting for the shutdown is not allowed on threads of other runtimes.
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Requests")
    }
}
