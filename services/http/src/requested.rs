//! Requested jobs whose client does not wait for the end. One thread begins and performs a job, so a job that is listed always has
//! a thread.

use tideline_connections::Turn;
use tideline_openapi::ErrorCode;
use tideline_scheduler::Job;
use tokio::sync::oneshot;

use crate::failure::{Failure, Result};

/// Begins a job and performs it; returns the job as soon as there is one. `job` returns it from what was begun. `turn` is held to
/// the end.
pub(crate) async fn in_background<W: 'static>(
    turn: Turn,
    begin: impl FnOnce() -> Result<W> + Send + 'static,
    job: fn(&W) -> Job,
    perform: impl FnOnce(W) + Send + 'static,
) -> Result<Job> {
    let (tell, told) = oneshot::channel();
    tokio::task::spawn_blocking(move || {
        let _turn = turn;
        // A client that has left is told nothing.
        match begin() {
            Ok(work) => {
                let _gone = tell.send(Ok(job(&work)));
                perform(work);
            }
            Err(failure) => {
                let _gone = tell.send(Err(failure));
            }
        }
    });
    let never = |_| Failure::new(ErrorCode::Internal, "internal error");
    told.await.map_err(never)?
}
