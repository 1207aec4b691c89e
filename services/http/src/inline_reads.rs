//! Short reads on the threads of the runtime.
//!
//! A switch to a blocking thread costs more than the read of a row that is in memory. So a small write that reads rows may
//! read them on the thread of the runtime. A slow or blocked disk must not stop the other requests: only one such read
//! runs at a time, the runtime has another thread, and after a slow read all reads use blocking threads for a while.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tideline_engine::model::Clock;
use tokio::runtime::Handle;

/// Duration from which a read is slow.
const SLOW: Duration = Duration::from_micros(300);
/// Time after a slow read in which no read runs on a thread of the runtime.
const PAUSE: Duration = Duration::from_secs(1);

/// State of the short reads of all requests.
#[derive(Debug, Default)]
pub(crate) struct InlineReads {
    is_running: AtomicBool,
    /// Monotonic time in nanoseconds until which reads use blocking threads.
    paused_until: AtomicU64,
}

impl InlineReads {
    /// Runs a read on the current thread of the runtime, and returns its result. Returns `None`, without running it, if
    /// it must run on a blocking thread: another read is running, one was slow a short time ago, or the runtime has a
    /// single thread.
    pub(crate) fn run<T>(&self, clock: &dyn Clock, read: impl FnOnce() -> T) -> Option<T> {
        let begin = nanos(clock.monotonic());
        let has_other_threads =
            Handle::try_current().is_ok_and(|runtime| runtime.metrics().num_workers() > 1);
        if begin < self.paused_until.load(Ordering::Relaxed) || !has_other_threads {
            return None;
        }
        if self.is_running.swap(true, Ordering::Acquire) {
            return None;
        }
        let _running = Running(&self.is_running);
        let found = read();
        let end = nanos(clock.monotonic());
        if end.saturating_sub(begin) >= nanos(SLOW) {
            self.paused_until
                .store(end.saturating_add(nanos(PAUSE)), Ordering::Relaxed);
        }
        Some(found)
    }
}

/// Ends the read, also if it panics.
struct Running<'r>(&'r AtomicBool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tideline_engine::model::{ManualClock, Timestamp};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_slow_read_pauses_the_next_ones() {
        let clock = ManualClock::new(Timestamp::EPOCH);
        let reads = InlineReads::default();
        let run = |takes: Duration| {
            let takes = i64::try_from(takes.as_nanos()).expect("a short time");
            reads.run(&clock, || clock.advance(takes)).is_some()
        };
        assert!(run(SLOW / 2));
        assert!(run(SLOW), "the read before was fast");
        assert!(!run(SLOW), "the read before was slow");
        clock.advance(i64::try_from(PAUSE.as_nanos()).expect("a short time"));
        assert!(run(Duration::ZERO), "the pause is over");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn only_one_read_runs_at_a_time() {
        let clock = ManualClock::new(Timestamp::EPOCH);
        let reads = InlineReads::default();
        let second = reads.run(&clock, || reads.run(&clock, || ()));
        assert_eq!(second, Some(None));
        assert_eq!(reads.run(&clock, || ()), Some(()));
    }

    #[tokio::test]
    async fn a_runtime_with_a_single_thread_reads_elsewhere() {
        let clock = ManualClock::new(Timestamp::EPOCH);
        assert_eq!(InlineReads::default().run(&clock, || ()), None);
    }
}
