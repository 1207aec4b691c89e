//! Fail points: steps at which tests make the store fail, wait, panic or exit.
//!
//! A fail point is named `<work>.<step>.<before|after>`, such as `mig.edit.before`. Without the feature `fail-points`
//! it does nothing. The feature does not compile without debug assertions.

#[cfg(all(feature = "fail-points", not(debug_assertions)))]
compile_error!("the feature `fail-points` is for tests: it must not be part of a release build");

use tideline_backend::BackendError;

/// Passes a fail point. Does nothing without the feature `fail-points`.
///
/// # Errors
///
/// Never; with the feature `fail-points`, an injected error.
#[cfg(not(feature = "fail-points"))]
#[inline(always)]
pub fn pass<E: From<BackendError>>(_work: &str, _step: &str, _when: When) -> Result<(), E> {
    Ok(())
}

/// Position of a fail point relative to its step.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "fail-points"), allow(dead_code))]
pub enum When {
    /// Before the step: nothing of it is done.
    Before,
    /// After the step.
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

#[cfg(feature = "fail-points")]
pub use enabled::{at_round, from_environment, pass};

#[cfg(feature = "fail-points")]
mod enabled {
    use std::path::{Path, PathBuf};
    use std::sync::Once;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use tideline_backend::BackendError;

    use super::When;

    /// Passes a fail point: executes the action that the test has configured for it.
    ///
    /// # Errors
    ///
    /// [`BackendError::Unavailable`] if the test injects an error.
    pub fn pass<E: From<BackendError>>(work: &str, step: &str, when: When) -> Result<(), E> {
        let when = match when {
            When::Before => "before",
            When::After => "after",
        };
        let name = format!("{work}.{step}.{when}");
        match fail::eval(&name, |_| ()) {
            Some(()) => Err(BackendError::Unavailable {
                reason: format!("fail point {name}"),
                retry_after: Duration::ZERO,
            }
            .into()),
            None => Ok(()),
        }
    }

    /// Configures fail points from environment variables. Only the first call has an effect.
    ///
    /// | variable | action at the fail point that it names |
    /// |---|---|
    /// | `TIDELINE_FAIL_AT` | the step fails, once |
    /// | `TIDELINE_KILL_AT` | the process kills itself |
    /// | `TIDELINE_PANIC_AT` | the thread panics |
    /// | `TIDELINE_PAUSE_AT` | the thread waits until the file named by `TIDELINE_PAUSE_UNTIL` exists |
    ///
    /// Before it waits, the thread creates a file with the name of the awaited file and the suffix `.reached`.
    ///
    /// A name may end in `:N`: the action happens at the N-th passage only; without it, at the first. The fail point
    /// `thread.<name>`, such as `thread.committer`, is passed at the start of each round of a supervised thread.
    pub fn from_environment() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            if let Some((name, passage)) = variable("TIDELINE_FAIL_AT") {
                let actions = format!("{}*off->1*return->off", passage - 1);
                fail::cfg(name, &actions).expect("the actions are well-formed");
            }
            if let Some((name, passage)) = variable("TIDELINE_KILL_AT") {
                at(name, passage, || {
                    let _ = rustix::process::kill_process(
                        rustix::process::getpid(),
                        rustix::process::Signal::KILL,
                    );
                });
            }
            if let Some((name, passage)) = variable("TIDELINE_PANIC_AT") {
                let actions = format!("{}*off->1*panic->off", passage - 1);
                fail::cfg(name, &actions).expect("the actions are well-formed");
            }
            if let Some((name, passage)) = variable("TIDELINE_PAUSE_AT") {
                let until = std::env::var_os("TIDELINE_PAUSE_UNTIL").map(PathBuf::from);
                let until = until.expect("TIDELINE_PAUSE_AT needs TIDELINE_PAUSE_UNTIL");
                at(name, passage, move || wait_for(&until));
            }
        });
    }

    /// Passes the fail point at the start of a round of a supervised thread.
    pub fn at_round(thread: &'static str) {
        let _only_panics = fail::eval(&format!("thread.{thread}"), |_| ());
    }

    fn variable(name: &str) -> Option<(String, u64)> {
        let value = std::env::var(name).ok()?;
        match value.split_once(':') {
            Some((step, passage)) => Some((step.to_owned(), passage.parse().ok()?)),
            None => Some((value, 1)),
        }
    }

    fn at(name: String, passage: u64, action: impl Fn() + Send + Sync + 'static) {
        let passed = AtomicU64::new(0);
        let callback = move || {
            if passed.fetch_add(1, Ordering::SeqCst) + 1 == passage {
                action();
            }
        };
        fail::cfg_callback(name, callback).expect("a callback is always well-formed");
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
