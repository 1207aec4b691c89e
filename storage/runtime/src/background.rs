//! CPU priority of background threads.
//!
//! A low priority determines the share of a core, but not which thread runs first. Linux lets a running thread finish
//! its time slice, up to four milliseconds, before it runs a thread that has just woken up; a request waits that long.
//! Background work therefore calls [`yield_core`] often, which yields the core about every 100 µs. Work that others
//! wait for, such as a flush, does the same with a normal priority, so that it gets its full share of the cores.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Time after which a background thread yields its core.
const SLICE: Duration = Duration::from_micros(100);
/// Smallest number of processed values for which reading the clock pays off.
const VALUES_PER_CLOCK_READ: usize = 1_024;
/// Increment of the niceness of background threads. Next to a busy thread they then get about a tenth of a core.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;
/// Highest niceness (lowest priority).
#[cfg(target_os = "linux")]
const NICENESS_MAX: i32 = 19;

thread_local! {
    /// Time of [`enter`], [`share`] or the last yield of this thread; `None` if it is not a background thread.
    static SLICE_STARTED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Makes the calling thread a background thread until the thread ends. Without privileges, the thread cannot raise its
/// priority again.
///
/// On systems that cannot lower the priority of a single thread, only [`yield_core`] has an effect.
pub fn enter() {
    share();
    #[cfg(target_os = "linux")]
    {
        let now = rustix::process::getpriority_process(None).unwrap_or(0);
        let _refused = rustix::process::setpriority_process(None, (now + NICENESS).min(NICENESS_MAX));
    }
}

/// Makes the calling thread a background thread of normal priority until the thread ends: only [`yield_core`] has an
/// effect.
pub fn share() {
    SLICE_STARTED.set(Some(Instant::now()));
}

/// Returns true if the calling thread is a background thread.
pub fn is_background() -> bool {
    SLICE_STARTED.get().is_some()
}

/// Yields the core if the calling thread is a background thread and has not yielded for at least 100 µs. The time since
/// [`enter`] or [`share`] counts before the first yield.
///
/// On a background thread, a call costs one clock read, or two if it yields. On any other thread, it costs about a
/// nanosecond.
pub fn yield_core() {
    if let Some(begun) = SLICE_STARTED.get()
        && begun.elapsed() >= SLICE
    {
        std::thread::yield_now();
        SLICE_STARTED.set(Some(Instant::now()));
    }
}

/// Calls [`yield_core`] after a unit of work, unless its number of `values` is too small to justify a clock read.
pub fn yield_core_after(values: usize) {
    if values >= VALUES_PER_CLOCK_READ {
        yield_core();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_begins_anew_only_on_background_threads() {
        let turn_after = |prepare: fn()| {
            let thread = std::thread::spawn(move || {
                prepare();
                let before = SLICE_STARTED.get();
                while before.is_some_and(|begun| begun.elapsed() < SLICE) {
                    std::hint::spin_loop();
                }
                yield_core();
                (before, SLICE_STARTED.get())
            });
            thread.join().expect("a thread that does not panic")
        };
        assert_eq!(turn_after(|| {}), (None, None));
        for prepare in [enter, share] {
            let (before, after) = turn_after(prepare);
            assert!(before.is_some() && after > before);
        }
    }
}
