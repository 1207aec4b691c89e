//! A wall clock that a test sets, through a file.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tideline_model::{Clock, Timestamp};

/// Names the file. It holds the nanoseconds, as text, that the clock is ahead of the real one; put it in place whole,
/// by a rename. While it cannot be read the clock goes on as before.
const VARIABLE: &str = "TIDELINE_TEST_CLOCK";
/// How long an offset that was read holds.
const REREAD_AFTER: Duration = Duration::from_millis(10);

/// The clock under another one, with its wall time moved. Monotonic time stays as it is.
#[derive(Debug)]
struct TestClock {
    real: Arc<dyn Clock>,
    file: PathBuf,
    read: Mutex<Reading>,
}

/// An offset, and when it was read.
#[derive(Debug, Default)]
struct Reading {
    offset: i64,
    at: Option<Duration>,
}

/// The clock that the environment asks for: `real`, or that one moved.
pub(crate) fn from_environment(real: Arc<dyn Clock>) -> Arc<dyn Clock> {
    match std::env::var_os(VARIABLE) {
        None => real,
        Some(file) => Arc::new(TestClock {
            real,
            file: file.into(),
            read: Mutex::default(),
        }),
    }
}

impl TestClock {
    fn offset(&self) -> i64 {
        let now = self.real.monotonic();
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.at.is_none_or(|at| now.saturating_sub(at) >= REREAD_AFTER) {
            read.at = Some(now);
            let text = std::fs::read_to_string(&self.file);
            if let Some(offset) = text.ok().and_then(|text| text.trim().parse().ok()) {
                read.offset = offset;
            }
        }
        read.offset
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        self.real.now().saturating_add(self.offset())
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic()
    }
}

#[cfg(test)]
mod tests {
    use tideline_model::ManualClock;

    use super::*;

    #[test]
    fn the_file_moves_the_wall_clock_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let start = Timestamp::from_nanos_clamped(1_000_000_000);
        let real = Arc::new(ManualClock::new(start));
        let clock = TestClock {
            real: Arc::clone(&real) as Arc<dyn Clock>,
            file: folder.path().join("offset"),
            read: Mutex::default(),
        };
        assert_eq!(clock.now(), start, "there is no file yet");
        let monotonic = clock.monotonic();
        for (text, offset) in [("-5\n", -5), ("no number", -5), ("7", 7)] {
            std::fs::write(&clock.file, text).expect("a file in it");
            real.advance(10_000_000);
            assert_eq!(clock.now().nanos() - real.now().nanos(), offset, "{text}");
        }
        assert_eq!(clock.monotonic() - monotonic, Duration::from_millis(30));
    }
}
