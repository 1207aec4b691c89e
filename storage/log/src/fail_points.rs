//! Fail points: positions in the code at which tests make the store fail, wait, panic or exit.
//!
//! A fail point is named `<work>.<step>.<before|after>`, such as `mig.edit.before`. Builds with debug assertions have
//! fail points, so that a development build and the tests share their compiled crates. In other builds a fail point is
//! an empty function.

use tideline_backend::BackendError;

/// Passes a fail point. Does nothing in builds without debug assertions.
///
/// # Errors
///
/// Never returns an error in builds without debug assertions. In other builds, returns the error that a test injects.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn pass<E: From<BackendError>>(_work: &str, _step: &str, _when: When) -> Result<(), E> {
    Ok(())
}

/// Position of a fail point relative to its step.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(debug_assertions), allow(dead_code))]
pub enum When {
    /// Before the step begins.
    Before,
    /// After the step has succeeded.
    After,
}

/// Executes a step between its two fail points.
///
/// # Errors
///
/// The errors of the step, or [`BackendError::Unavailable`] if a test injects one.
pub fn around<T, E: From<BackendError>>(
    work: &str,
    step: &str,
    body: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    pass(work, step, When::Before)?;
    let done = body()?;
    pass(work, step, When::After)?;
    Ok(done)
}

#[cfg(debug_assertions)]
pub use enabled::{at_round, from_environment, pass};

#[cfg(debug_assertions)]
mod enabled {
    use std::path::{Path, PathBuf};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use tideline_backend::BackendError;

    use super::When;

    /// Fail points of this process; unset in every process that no test has configured.
    static CONFIGURED: OnceLock<Vec<FailPoint>> = OnceLock::new();

    /// Action at one passage of one fail point.
    struct FailPoint {
        name: String,
        /// Number of passages before the one at which the action happens.
        skipped: u64,
        passed: AtomicU64,
        action: Action,
    }

    enum Action {
        Fail,
        Kill,
        Panic,
        /// Waits until the file exists.
        Pause(PathBuf),
    }

    /// Passes a fail point: executes the action that the test has configured for it.
    ///
    /// # Errors
    ///
    /// [`BackendError::Unavailable`] if the test injects an error.
    ///
    /// # Panics
    ///
    /// If the test injects a panic.
    pub fn pass<E: From<BackendError>>(work: &str, step: &str, when: When) -> Result<(), E> {
        let Some(configured) = CONFIGURED.get() else {
            return Ok(());
        };
        let when = match when {
            When::Before => "before",
            When::After => "after",
        };
        reach(configured, &format!("{work}.{step}.{when}")).map_err(E::from)
    }

    /// Configures fail points from environment variables. Only the first call that finds such a variable has an effect.
    ///
    /// | variable | action at the fail point that it names |
    /// |---|---|
    /// | `TIDELINE_FAIL_AT` | the step fails |
    /// | `TIDELINE_KILL_AT` | the process kills itself |
    /// | `TIDELINE_PANIC_AT` | the thread panics |
    /// | `TIDELINE_PAUSE_AT` | the thread waits until the file named by `TIDELINE_PAUSE_UNTIL` exists |
    ///
    /// Before it waits, the thread creates a file with the name of the awaited file and the suffix `.reached`.
    ///
    /// The action happens at the first passage of the fail point only. If the name ends in `:N`, it happens at the N-th
    /// passage only. The fail point `thread.<name>`, such as `thread.committer`, is passed at the start of each round
    /// of a supervised thread.
    ///
    /// # Panics
    ///
    /// If N is not a number above 0, or if `TIDELINE_PAUSE_AT` is set without `TIDELINE_PAUSE_UNTIL`.
    pub fn from_environment() {
        let mut configured = Vec::new();
        let mut configure = |variable: &str, action: fn() -> Action| {
            let Ok(value) = std::env::var(variable) else {
                return;
            };
            let (name, passage) = value.split_once(':').unwrap_or((&value, "1"));
            let passage: u64 = passage.parse().expect("the passage is a number");
            configured.push(FailPoint {
                name: name.to_owned(),
                skipped: passage.checked_sub(1).expect("passages are counted from 1"),
                passed: AtomicU64::new(0),
                action: action(),
            });
        };
        configure("TIDELINE_FAIL_AT", || Action::Fail);
        configure("TIDELINE_KILL_AT", || Action::Kill);
        configure("TIDELINE_PANIC_AT", || Action::Panic);
        configure("TIDELINE_PAUSE_AT", || {
            let until = std::env::var_os("TIDELINE_PAUSE_UNTIL");
            Action::Pause(
                until
                    .expect("TIDELINE_PAUSE_AT needs TIDELINE_PAUSE_UNTIL")
                    .into(),
            )
        });
        if !configured.is_empty() {
            // A second server in the same process keeps the fail points of the first.
            let _ = CONFIGURED.set(configured);
        }
    }

    /// Passes the fail point at the start of a round of a supervised thread. An injected error has no effect.
    ///
    /// # Panics
    ///
    /// If the test injects a panic.
    pub fn at_round(thread: &'static str) {
        if let Some(configured) = CONFIGURED.get() {
            let _only_panics = reach(configured, &format!("thread.{thread}"));
        }
    }

    /// Counts a passage of a fail point, and executes the actions that are configured for this passage.
    fn reach(configured: &[FailPoint], name: &str) -> Result<(), BackendError> {
        for point in configured.iter().filter(|point| point.name == name) {
            if point.passed.fetch_add(1, Ordering::SeqCst) != point.skipped {
                continue;
            }
            match &point.action {
                Action::Fail => {
                    return Err(BackendError::Unavailable {
                        reason: format!("fail point {name}"),
                        retry_after: Duration::ZERO,
                    });
                }
                Action::Kill => {
                    let _ = rustix::process::kill_process(
                        rustix::process::getpid(),
                        rustix::process::Signal::KILL,
                    );
                }
                Action::Panic => panic!("fail point {name}"),
                Action::Pause(until) => wait_for(until),
            }
        }
        Ok(())
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a paused process is woken from outside, by a file"
    )]
    fn wait_for(file: &Path) {
        let mut reached = file.as_os_str().to_owned();
        reached.push(".reached");
        std::fs::write(reached, b"").expect("the folder of TIDELINE_PAUSE_UNTIL can be written");
        while !file.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
