//! Polling of states that send no event, such as the readiness or the memory of another process.
//!
//! All other waits use events. The pause between two polls is a receive, with a timeout, from a channel to which
//! nothing is sent. Every wait has a timeout.

use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Polling interval.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Calls `look` until it returns a value; returns `None` after `patience`.
pub fn until<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        pause(LOOK_EVERY);
    }
}

/// Pauses for `time`, for example for a random kill time or a slow client.
pub fn pause(time: Duration) {
    let (_sender, silence) = mpsc::channel::<()>();
    let _ = silence.recv_timeout(time);
}
