//! Waiting for something that tells nobody when it happens: another process becoming ready, its memory settling.
//!
//! Everything else waits for its event. The pause between two looks is a receive that nobody sends to, so that
//! no test sleeps through a failure: every wait has an end and says what it waited for.

use std::sync::mpsc;
use std::time::{Duration, Instant};

/// From one look to the next.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Looks until `look` yields something. `None` after `patience`.
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

/// Lets `time` pass: the random moment of a kill, the slowness of a slow client.
pub fn pause(time: Duration) {
    let (_sender, silence) = mpsc::channel::<()>();
    let _ = silence.recv_timeout(time);
}
