//! Threads that help with work that consists of independent items, such as the first pages of many key ranges.
//!
//! The calling thread processes items itself, and idle helpers take some of them. A caller never waits for a helper
//! that is busy with the work of another caller: under load, each thread processes its own items.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::background;

/// Threads that process items of other threads. The default has no threads.
#[derive(Debug, Default)]
pub struct Helpers {
    /// The threads; `None` if the number is 0.
    pool: Option<ThreadPool>,
    /// Number of threads that process no items.
    idle: AtomicUsize,
}

impl Helpers {
    /// Starts `count` threads with names that begin with `name`. With 0, callers process all their items themselves.
    ///
    /// # Errors
    ///
    /// Returns an error if a thread cannot be started.
    pub fn start(name: &'static str, count: usize) -> io::Result<Self> {
        let pool = || {
            ThreadPoolBuilder::new()
                .num_threads(count)
                .thread_name(move |number| format!("{name}-{number}"))
                .build()
        };
        Ok(Self {
            pool: (count > 0).then(pool).transpose().map_err(io::Error::other)?,
            idle: AtomicUsize::new(count),
        })
    }

    /// Calls `work` once for each item, and returns when all calls have returned. The calling thread and idle helpers
    /// share the items. Items are begun in their order. A background thread gets no help, because helpers have normal
    /// priority.
    ///
    /// Wakes a thread per helper, so an item should take longer than that. `work` must not call this function.
    ///
    /// # Panics
    ///
    /// Panics if `work` panics.
    pub fn for_each<T: Send>(&self, items: &mut [T], work: impl Fn(&mut T) + Sync) {
        let wanted = match background::is_background() {
            true => 0,
            false => items.len().saturating_sub(1),
        };
        let rest = Mutex::new(items.iter_mut());
        let next = || rest.lock().unwrap_or_else(PoisonError::into_inner).next();
        let process = || {
            while let Some(item) = next() {
                work(item);
            }
        };
        let Some(pool) = &self.pool else { return process() };
        let helping = self.take_idle(wanted);
        if helping == 0 {
            return process();
        }
        pool.in_place_scope(|scope| {
            for _ in 0..helping {
                scope.spawn(|_| {
                    let _busy = Busy(&self.idle);
                    process();
                });
            }
            process();
        });
    }

    /// Marks up to `wanted` idle threads as busy. Returns their number.
    fn take_idle(&self, wanted: usize) -> usize {
        let taken = |idle: usize| Some(idle - idle.min(wanted));
        let before = self.idle.fetch_update(Ordering::AcqRel, Ordering::Acquire, taken);
        before.map_or(0, |idle| idle.min(wanted))
    }
}

/// Marks a thread as idle again when dropped, also after a panic.
struct Busy<'h>(&'h AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    fn helpers(count: usize) -> Helpers {
        Helpers::start("helper", count).expect("threads start")
    }

    #[test]
    fn each_item_is_processed_once_by_any_number_of_threads() {
        for count in [0, 1, 3] {
            let helpers = helpers(count);
            let mut items: Vec<u64> = (0..1_000).collect();
            helpers.for_each(&mut items, |item| *item += 1);
            assert_eq!(items, (1..=1_000).collect::<Vec<u64>>());
            helpers.for_each(&mut [], |item: &mut u64| *item += 1);
        }
    }

    #[test]
    fn idle_helpers_process_items_at_the_same_time() {
        let helpers = helpers(2);
        let all = Barrier::new(3);
        let mut threads = [None; 3];
        helpers.for_each(&mut threads, |id| {
            all.wait();
            *id = Some(thread::current().id());
        });
        let threads: HashSet<_> = threads.into_iter().flatten().collect();
        assert_eq!(threads.len(), 3);
    }

    #[test]
    fn a_caller_does_not_wait_for_busy_helpers() {
        let helpers = helpers(1);
        let (busy, done) = (Barrier::new(3), Barrier::new(3));
        thread::scope(|scope| {
            scope.spawn(|| {
                helpers.for_each(&mut [(), ()], |()| {
                    busy.wait();
                    done.wait();
                });
            });
            busy.wait();
            let own = thread::current().id();
            let mut threads = [None; 4];
            helpers.for_each(&mut threads, |id| *id = Some(thread::current().id()));
            assert_eq!(threads, [Some(own); 4]);
            done.wait();
        });
    }

    #[test]
    fn background_threads_get_no_help() {
        let helpers = helpers(1);
        let threads = thread::scope(|scope| {
            let in_background = scope.spawn(|| {
                background::share();
                let mut threads = [None; 4];
                helpers.for_each(&mut threads, |id| *id = Some(thread::current().id()));
                (thread::current().id(), threads)
            });
            in_background.join().expect("a thread that does not panic")
        });
        assert_eq!(threads.1, [Some(threads.0); 4]);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_costs_no_helper() {
        let helpers = helpers(1);
        let both = Barrier::new(2);
        let run = || {
            helpers.for_each(&mut [0, 1], |_| {
                both.wait();
                panic!("of a test");
            });
        };
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
        assert_eq!(helpers.idle.load(Ordering::Acquire), 1);
    }
}
