//! Errands that go on by themselves: begun and done on one thread, so that a client who leaves early leaves no job behind
//! that nobody does.

use tideline_openapi::ErrorCode;
use tideline_scheduler::Job;
use tokio::sync::oneshot;

use crate::app::Turn;
use crate::failure::{Failure, Result};

/// Work that has a job.
pub(crate) trait Begun {
    /// The job as it is now.
    fn job(&self) -> Job;
}

/// Begins an errand and does it; the answer is its job, as soon as it has one. `turn` is held to its end.
pub(crate) async fn send_off<W: Begun>(
    turn: Turn,
    begin: impl FnOnce() -> Result<W> + Send + 'static,
    perform: impl FnOnce(W) + Send + 'static,
) -> Result<Job> {
    let (tell, told) = oneshot::channel();
    tokio::task::spawn_blocking(move || {
        let _turn = turn;
        match begin() {
            Ok(work) => {
                let _asked_no_more = tell.send(Ok(work.job()));
                perform(work);
            }
            Err(failure) => {
                let _asked_no_more = tell.send(Err(failure));
            }
        }
    });
    let never = |_| Failure::new(ErrorCode::Internal, "internal error");
    told.await.map_err(never)?
}
