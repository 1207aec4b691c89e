//! Short reads on the threads of the runtime.
//!
//! A switch to a blocking thread costs more than the read of a row that is in memory. So a small request that reads rows
//! may read them on the thread of the runtime. A slow or blocked disk must not stop the other requests: only one such read
//! runs at a time, the runtime has another thread, and after a slow read all reads use blocking threads for a while.
//!
//! On a busy machine, a read can also take long because the system runs other threads meanwhile. A blocking thread would
//! not help then, so such a read is not slow. The counters of the thread distinguish the two: a thread that waits for a
//! disk or a lock gives up its core.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tideline_engine::model::Clock;
use tokio::runtime::Handle;

/// Ratio of the pause after a slow read to the duration of the read. Slow reads therefore occupy a thread of the runtime
/// for at most one twentieth of the time.
const PAUSE_RATIO: u32 = 20;
/// Maximum duration of the pause after a slow read.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// State of the short reads of all requests.
#[derive(Debug)]
pub(crate) struct InlineReads {
    /// Duration from which a read is slow.
    slow: Duration,
    is_running: AtomicBool,
    /// Monotonic time in nanoseconds until which reads use blocking threads.
    paused_until: AtomicU64,
}

impl InlineReads {
    /// Creates the state. A read that waits or computes is slow from the duration `slow`.
    pub(crate) const fn new(slow: Duration) -> Self {
        Self {
            slow,
            is_running: AtomicBool::new(false),
            paused_until: AtomicU64::new(0),
        }
    }

    /// Runs a read on the current thread of the runtime, and returns its result. Returns `None`, without running it, if
    /// it must run on a blocking thread: another read is running, one was slow a short time ago, or the runtime has a
    /// single thread.
    pub(crate) fn run<T>(&self, clock: &dyn Clock, read: impl FnOnce() -> T) -> Option<T> {
        self.run_measured(clock, &ThreadUse::now, read)
    }

    /// Runs a read like [`run`](Self::run). `thread_use` returns the counters of the current thread.
    fn run_measured<T>(
        &self,
        clock: &dyn Clock,
        thread_use: &dyn Fn() -> Option<ThreadUse>,
        read: impl FnOnce() -> T,
    ) -> Option<T> {
        let begin = clock.monotonic();
        let has_other_threads =
            Handle::try_current().is_ok_and(|runtime| runtime.metrics().num_workers() > 1);
        if nanos(begin) < self.paused_until.load(Ordering::Relaxed) || !has_other_threads {
            return None;
        }
        if self.is_running.swap(true, Ordering::Acquire) {
            return None;
        }
        let _running = Running(&self.is_running);
        let before = thread_use();
        let found = read();
        let end = clock.monotonic();
        let duration = end.saturating_sub(begin);
        if duration >= self.slow && self.is_slow(before, thread_use()) {
            let pause = duration.saturating_mul(PAUSE_RATIO).min(PAUSE_MAX);
            self.paused_until
                .store(nanos(end.saturating_add(pause)), Ordering::Relaxed);
        }
        Some(found)
    }

    /// Returns true if a read of a long duration was slow: the thread has waited, or has computed for a long time.
    /// Without counters, each such read is slow.
    fn is_slow(&self, before: Option<ThreadUse>, after: Option<ThreadUse>) -> bool {
        let (Some(before), Some(after)) = (before, after) else {
            return true;
        };
        after.waits != before.waits || after.computed.saturating_sub(before.computed) >= self.slow
    }
}

/// Counters of a thread since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ThreadUse {
    /// Number of times that the thread has waited, for example for a disk or a lock.
    waits: i64,
    /// Time in which a core has executed the thread.
    computed: Duration,
}

impl ThreadUse {
    /// Returns the counters of the current thread; `None` if the system does not have them.
    #[cfg(target_os = "linux")]
    fn now() -> Option<Self> {
        use nix::sys::resource::{UsageWho, getrusage};
        use nix::sys::time::TimeVal;

        let time = |time: TimeVal| {
            let micros = time
                .tv_sec()
                .saturating_mul(1_000_000)
                .saturating_add(time.tv_usec());
            Duration::from_micros(u64::try_from(micros).unwrap_or_default())
        };
        let used = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
        Some(Self {
            waits: used.voluntary_context_switches() + used.major_page_faults(),
            computed: time(used.user_time()) + time(used.system_time()),
        })
    }

    /// Returns `None`: only Linux has these counters.
    #[cfg(not(target_os = "linux"))]
    const fn now() -> Option<Self> {
        None
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
    use std::cell::Cell;

    use tideline_engine::model::{ManualClock, Timestamp};

    use super::*;

    const SLOW: Duration = Duration::from_micros(300);
    const IDLE: ThreadUse = ThreadUse {
        waits: 0,
        computed: Duration::ZERO,
    };

    fn advance(clock: &ManualClock, by: Duration) {
        clock.advance(i64::try_from(by.as_nanos()).expect("a short time"));
    }

    /// Runs a read that takes some time, in which the counters of the thread rise.
    fn run(reads: &InlineReads, clock: &ManualClock, takes: Duration, rise: Option<ThreadUse>) -> bool {
        let used = Cell::new(rise.map(|_| IDLE));
        let read = || {
            advance(clock, takes);
            used.set(rise);
        };
        reads.run_measured(clock, &|| used.get(), read).is_some()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_slow_read_pauses_the_next_ones_in_proportion() {
        let waits = ThreadUse { waits: 1, ..IDLE };
        let computes = ThreadUse {
            computed: SLOW,
            ..IDLE
        };
        // Without counters, the duration decides.
        for rise in [Some(waits), Some(computes), None] {
            let clock = ManualClock::new(Timestamp::EPOCH);
            let reads = InlineReads::new(SLOW);
            assert!(run(&reads, &clock, SLOW / 2, rise));
            assert!(run(&reads, &clock, SLOW, rise), "the read before was fast");
            assert!(!run(&reads, &clock, SLOW, rise), "the read before was slow");
            advance(&clock, SLOW * (PAUSE_RATIO - 1));
            assert!(!run(&reads, &clock, SLOW, rise), "the pause is not over");
            advance(&clock, SLOW);
            assert!(run(&reads, &clock, PAUSE_MAX, rise), "the pause is over");
            assert!(!run(&reads, &clock, SLOW, rise), "the read before was slow");
            advance(&clock, PAUSE_MAX);
            assert!(
                run(&reads, &clock, Duration::ZERO, rise),
                "a pause has a maximum duration"
            );
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_read_is_not_slow_because_its_thread_did_not_run() {
        let clock = ManualClock::new(Timestamp::EPOCH);
        let reads = InlineReads::new(SLOW);
        let computes = ThreadUse {
            computed: SLOW / 2,
            ..IDLE
        };
        assert!(run(&reads, &clock, SLOW * 10, Some(computes)));
        assert!(run(&reads, &clock, SLOW * 10, Some(IDLE)));
        assert!(run(&reads, &clock, SLOW, Some(IDLE)));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_that_waits_raises_its_counter() {
        let before = ThreadUse::now().expect("Linux has the counters");
        let (_sender, receiver) = std::sync::mpsc::channel::<()>();
        let received = receiver.recv_timeout(Duration::from_millis(2));
        received.expect_err("nothing is sent");
        let after = ThreadUse::now().expect("Linux has the counters");
        assert!(after.waits > before.waits, "{before:?} {after:?}");
        assert!(after.computed >= before.computed, "{before:?} {after:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn only_one_read_runs_at_a_time() {
        let clock = ManualClock::new(Timestamp::EPOCH);
        let reads = InlineReads::new(SLOW);
        let second = reads.run(&clock, || reads.run(&clock, || ()));
        assert_eq!(second, Some(None));
        assert_eq!(reads.run(&clock, || ()), Some(()));
    }

    #[tokio::test]
    async fn a_runtime_with_a_single_thread_reads_elsewhere() {
        let clock = ManualClock::new(Timestamp::EPOCH);
        assert_eq!(InlineReads::new(SLOW).run(&clock, || ()), None);
    }
}
