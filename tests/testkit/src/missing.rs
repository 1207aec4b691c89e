//! Tests with missing prerequisites, such as data that is not part of the repository. They are reported on the
//! terminal, or fail under `CI=true`. Optional tests are only reported.

use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Returns true if `CI=true`, as `.ci/run` sets it: a missing prerequisite then fails its test.
pub fn is_ci() -> bool {
    std::env::var("CI").as_deref() == Ok("true")
}

/// Reports on the terminal that a test is skipped because of a missing prerequisite.
///
/// # Panics
///
/// Panics if `CI=true`.
#[track_caller]
pub fn skip(reason: &str) {
    assert!(
        !is_ci(),
        "{reason}; with CI=true this fails the test, without it the test is skipped"
    );
    report("skipped", reason);
}

/// Reports on the terminal that an optional test is not run; never fails, even under `CI=true`. `reason` names the
/// variable that enables the test.
pub fn not_run(reason: &str) {
    report("not run", reason);
}

/// Writes a line directly to standard error. The test harness hides `println!` and `eprintln!` of tests that pass,
/// but not this line.
fn report(what: &str, reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("test");
    // One write, so that lines of parallel tests do not mix. A closed terminal is not a reason to fail.
    let _ = std::io::stderr().write_all(format!("\n{what}: {test}: {reason}\n").as_bytes());
}

/// Returns the root of the workspace.
///
/// # Panics
///
/// Panics if the path of the crate has fewer than two parents.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate is two folders below the root of the workspace")
}

/// Returns the folder of a data set that is not part of the repository, or `None` after [`skip`] if the folder does not
/// exist. `TIDELINE_CORPORA` is the path of the folder of all data sets, by default `../shared/data` relative to the
/// workspace.
///
/// # Panics
///
/// Panics if the folder is missing under `CI=true`.
#[track_caller]
pub fn corpus(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("TIDELINE_CORPORA")
        .map_or_else(|| workspace().join("../shared/data"), PathBuf::from);
    let folder = root.join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    let shown = folder.display();
    skip(&format!(
        "corpus {shown} is missing; TIDELINE_CORPORA names the folder of outside data"
    ));
    None
}
