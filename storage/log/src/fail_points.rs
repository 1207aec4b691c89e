//! Steps at which tests make the store fail, wait or die.
//!
//! A step is named `<work>.<step>.<before|after>`, such as `mig.edit.before`. Without the feature `fail-points` a
//! step is nothing; builds without debug assertions refuse the feature.

#[cfg(all(feature = "fail-points", not(debug_assertions)))]
compile_error!("the feature `fail-points` is for tests: it must not be part of a release build");

use tideline_backend::BackendError;

/// Passes a step.
///
/// # Errors
///
/// A test asks for one.
#[cfg(not(feature = "fail-points"))]
#[inline(always)]
pub fn pass<E: From<BackendError>>(_work: &str, _step: &str, _when: When) -> Result<(), E> {
    Ok(())
}

/// On which side of the step.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "fail-points"), allow(dead_code))]
pub enum When {
    /// Nothing of it is done.
    Before,
    /// It is done.
    After,
}

/// Does a step between its two fail points.
///
/// # Errors
///
/// The step fails, or a test asks for it.
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

    /// Passes a step: does what the test has configured for it.
    ///
    /// # Errors
    ///
    /// The test asks for one.
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

    /// Configures steps once, by what the environment says.
    ///
    /// | variable | at the step that it names |
    /// |---|---|
    /// | `TIDELINE_FAIL_AT` | the step fails, once |
    /// | `TIDELINE_KILL_AT` | the process kills itself |
    /// | `TIDELINE_PANIC_AT` | the thread panics |
    /// | `TIDELINE_PAUSE_AT` | the thread waits until the file named by `TIDELINE_PAUSE_UNTIL` is there |
    ///
    /// Who waits says so by a file beside the awaited one, its name followed by `.reached`.
    ///
    /// A name may end in `:N`: at its N-th passage. Beside the steps there is `thread.<name>`: the start of a round of a
    /// supervised thread, such as `thread.committer`.
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

    /// Passes the start of a round of a supervised thread.
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
