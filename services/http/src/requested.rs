//! Requested jobs that run in the background, because their clients do not wait for the end. A job is started and
//! run by the same thread, so every listed job has a thread.

use tideline_connections::Permit;
use tideline_openapi::ErrorCode;
use tideline_scheduler::Job;
use tokio::sync::oneshot;

use crate::failure::{Failure, Result};

/// Starts a job and runs it on a blocking thread; returns the job as soon as it is started, or the error of `begin`.
/// `job` extracts the job from the result of `begin`. `permit` is held until the job ends.
pub(crate) async fn in_background<W: 'static>(
    permit: Permit,
    begin: impl FnOnce() -> Result<W> + Send + 'static,
    job: fn(&W) -> Job,
    perform: impl FnOnce(W) + Send + 'static,
) -> Result<Job> {
    let (sender, receiver) = oneshot::channel();
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        // The result is dropped if the client has disconnected.
        match begin() {
            Ok(work) => {
                let _gone = sender.send(Ok(job(&work)));
                perform(work);
            }
            Err(failure) => {
                let _gone = sender.send(Err(failure));
            }
        }
    });
    let never = |_| Failure::new(ErrorCode::Internal, "internal error");
    receiver.await.map_err(never)?
}
