//! Threads whose work lets other work go first.
//!
//! A low priority alone decides who gets more of a core, not who gets it first: Linux lets a running thread finish its
//! slice, up to four milliseconds, before one that has just been woken gets its turn, and that is what a request then
//! waits. So background work also offers its core every [`TURN`], at steps that are never far apart.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// For how long a background thread keeps its core while another one waits for it.
const TURN: Duration = Duration::from_micros(100);
/// Fewer values than this take less time than the look at the clock is worth.
const VALUES_PER_LOOK: usize = 1_024;
/// How much lower the priority of background threads is: beside a busy thread they get about a tenth of a core.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;
/// The lowest priority there is.
#[cfg(target_os = "linux")]
const NICENESS_MAX: i32 = 19;

thread_local! {
    /// When the turn of this thread began; `None` where its work is not background work.
    static TURN_BEGUN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Makes the calling thread one of background work, until it ends: a thread cannot get its priority back.
///
/// Where the system does not lower the priority of a single thread, only [`give_way`] makes a difference.
pub fn enter() {
    TURN_BEGUN.set(Some(Instant::now()));
    #[cfg(target_os = "linux")]
    {
        let now = rustix::process::getpriority_process(None).unwrap_or(0);
        let _refused = rustix::process::setpriority_process(None, (now + NICENESS).min(NICENESS_MAX));
    }
}

/// Lets threads that wait for a core go first, where the calling thread is one of background work and its turn is over.
///
/// Costs about a nanosecond on other threads and a look at the clock on background threads.
pub fn give_way() {
    if let Some(begun) = TURN_BEGUN.get()
        && begun.elapsed() >= TURN
    {
        std::thread::yield_now();
        TURN_BEGUN.set(Some(Instant::now()));
    }
}

/// The same after a piece of work with so many values, where it is worth a look at the clock.
pub fn give_way_after(values: usize) {
    if values >= VALUES_PER_LOOK {
        give_way();
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
                let before = TURN_BEGUN.get();
                while before.is_some_and(|begun| begun.elapsed() < TURN) {
                    std::hint::spin_loop();
                }
                give_way();
                (before, TURN_BEGUN.get())
            });
            thread.join().expect("a thread that does not panic")
        };
        assert_eq!(turn_after(|| {}), (None, None));
        let (before, after) = turn_after(enter);
        assert!(before.is_some() && after > before);
    }
}
