//! Where data from outside lies. None of it is part of the repository.
//!
//! `TIDELINE_CORPORA` names the folder; without it, it is `../shared/data` beside the workspace. Under `CI=true`
//! a missing corpus fails its test, elsewhere the test says that it skipped.

use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the tests' folder lies in the workspace")
}

/// The folder of one corpus, or `None` when it is not here and need not be.
///
/// # Panics
///
/// When it is missing under `CI=true`.
pub fn corpus(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("TIDELINE_CORPORA")
        .map_or_else(|| workspace().join("../shared/data"), PathBuf::from);
    let folder = root.join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    let shown = folder.display();
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "corpus {shown} is missing and CI=true"
    );
    println!("skipped: corpus {shown} is not here; TIDELINE_CORPORA names another place");
    None
}
