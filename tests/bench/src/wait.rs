//! Waiting for another process, which sends no event that this process could wait for.

use std::time::Duration;

/// Waits for a fixed time.
#[expect(
    clippy::disallowed_methods,
    reason = "the state of another process can only be polled"
)]
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
