//! Waiting for another process, which has no event that this one could await.

use std::time::Duration;

/// Waits for a fixed time.
#[expect(
    clippy::disallowed_methods,
    reason = "the state of another process can only be polled"
)]
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
