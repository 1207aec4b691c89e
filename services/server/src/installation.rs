//! Data folder of an installation: its creation, its age, and the kind of server that uses it.
//!
//! Servers of a cluster and servers with the embedded engine do not share folders: each would delete the search index of
//! the other.
//!
//! A rule is a requirement that earlier releases did not have: TLS for an installation that listens beyond this machine,
//! and a token file that other users cannot write. Installations of releases without a rule start with a warning until
//! the next major version. A release writes the number of its newest rule to a file in each new data folder, before
//! anything else; the folders of releases without rules lack this file.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Rule that an installation that listens beyond this machine needs TLS.
pub(crate) const TLS_RULE: u32 = 1;
/// Rule that other users must not be able to write the token file.
pub(crate) const TOKEN_FILE_RULE: u32 = 2;

/// File in each data folder that a release with rules has created.
const MARK: &str = "installation";
/// Content of the file: the number of the newest rule, which a later release may raise.
const RULES: &str = "rules 2\n";
/// Content of the file of a release with the first rule only.
const EARLIER_RULES: &str = "rules 1\n";
/// Folder of the data of the embedded engine.
pub(crate) const STORE: &str = "store";
/// Lock file of a server of a cluster. One process at a time holds the lock.
pub(crate) const CLUSTER_LOCK: &str = "cluster.lock";
/// Files that show that a server has used a data folder.
const EARLIER: [&str; 2] = [STORE, CLUSTER_LOCK];

/// Creates the folder if it is missing, accessible only to its owner. An existing folder keeps its mode. A folder that
/// no server has used is marked as new.
///
/// # Errors
///
/// An error of the file system.
pub(crate) fn prepare(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // While no server has used the folder, the mark is written again, because a crash may have left it empty.
    if EARLIER.iter().any(|name| folder.join(name).exists()) {
        return Ok(());
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(folder.join(MARK))?;
    file.write_all(RULES.as_bytes())?;
    // Without the file, the installation would count as one of an earlier release.
    file.sync_all()?;
    File::open(folder)?.sync_all()
}

/// Refuses a folder for the embedded engine if a server of a cluster uses it now, or has used it and no data of the
/// embedded engine is in it. `tideline backend copy` can put such data into a folder that a server of a cluster has
/// used.
///
/// # Errors
///
/// An error that names the reason and what to do, or an error of the file system.
pub(crate) fn refuse_cluster_folder(folder: &Path) -> io::Result<()> {
    check_unused(folder)?;
    if folder.join(STORE).try_exists()? || !folder.join(CLUSTER_LOCK).try_exists()? {
        return Ok(());
    }
    Err(io::Error::other(
        "a server of a cluster has used it, and it has no data of the embedded engine: to serve the data of the \
         cluster, start with --backend cassandra; otherwise name another folder (--data-dir)",
    ))
}

/// Refuses a folder that a server of a cluster uses now.
///
/// # Errors
///
/// An error that names the reason and what to do, or an error of the file system.
pub(crate) fn check_unused(folder: &Path) -> io::Result<()> {
    match File::open(folder.join(CLUSTER_LOCK)) {
        Ok(file) => try_lock(&file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Locks the lock file of a server of a cluster.
pub(crate) fn try_lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(io::Error::other(
            "a running server of a cluster uses it: name another folder (--data-dir)",
        )),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Returns true if a release without this rule made this data folder. A folder that cannot be read counts as such a
/// folder; a server cannot use it.
pub(crate) fn is_earlier(folder: &Path, rule: u32) -> bool {
    let exists = |name: &str| folder.join(name).try_exists().unwrap_or(true);
    EARLIER.into_iter().any(exists) && rules_of(folder) < rule
}

/// Returns the number of the newest rule of the release that made a folder; 0 without a mark. A mark that cannot be read,
/// or that a crash has left empty, counts as a mark of the first release that wrote one.
fn rules_of(folder: &Path) -> u32 {
    let path = folder.join(MARK);
    if !path.try_exists().unwrap_or(false) {
        return 0;
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    let number = text.trim_end().strip_prefix("rules ");
    number.and_then(|number| number.parse().ok()).unwrap_or(TLS_RULE)
}

/// Returns a description of the damage if the mark exists but cannot be read, or if its content differs from what
/// this release and earlier releases write.
pub(crate) fn finding(folder: &Path) -> Option<String> {
    let path = folder.join(MARK);
    let read = fs::read_to_string(&path);
    let reason = match read {
        Ok(text) if text == RULES || text == EARLIER_RULES => return None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Ok(_) => format!("expected {RULES:?}"),
        Err(error) => error.to_string(),
    };
    Some(format!("{}: {reason}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_new_unless_a_server_has_used_it_before() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in EARLIER {
            let (new, earlier) = (folder.path().join("new").join(name), folder.path().join(name));
            assert!(!is_earlier(&new, TOKEN_FILE_RULE));
            prepare(&new).expect("a folder");
            fs::create_dir(new.join(name)).expect("a folder");
            assert!(!is_earlier(&new, TOKEN_FILE_RULE));
            prepare(&new).expect("it exists");
            assert!(!is_earlier(&new, TOKEN_FILE_RULE));

            fs::create_dir_all(earlier.join(name)).expect("a folder");
            assert!(is_earlier(&earlier, TLS_RULE));
            prepare(&earlier).expect("it exists");
            assert!(is_earlier(&earlier, TLS_RULE), "it stays one");
        }
    }

    #[test]
    fn the_embedded_engine_does_not_use_the_folder_of_a_server_of_a_cluster() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        refuse_cluster_folder(folder).expect("no server has used it");
        refuse_cluster_folder(&folder.join("missing")).expect("no server has used it");

        let held = File::create(folder.join(CLUSTER_LOCK)).expect("a file");
        try_lock(&held).expect("no other process holds it");
        let refused = refuse_cluster_folder(folder).expect_err("a server uses it");
        assert!(refused.to_string().contains("a running server"), "{refused}");
        drop(held);
        check_unused(folder).expect("the server has ended");
        let refused = refuse_cluster_folder(folder).expect_err("a server has used it");
        assert!(refused.to_string().contains("--backend cassandra"), "{refused}");

        // The target of a copy.
        fs::create_dir(folder.join(STORE)).expect("a folder");
        refuse_cluster_folder(folder).expect("it has data of the embedded engine");
    }

    #[test]
    fn a_folder_has_the_rules_of_the_release_that_made_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        fs::create_dir(folder.join("store")).expect("a folder");
        for (mark, is_before_tls, is_before_token_file) in [
            (EARLIER_RULES, false, true),
            (RULES, false, false),
            ("rules 3\n", false, false),
            ("", false, true),
        ] {
            fs::write(folder.join(MARK), mark).expect("a mark");
            assert_eq!(is_earlier(folder, TLS_RULE), is_before_tls, "{mark:?}");
            assert_eq!(
                is_earlier(folder, TOKEN_FILE_RULE),
                is_before_token_file,
                "{mark:?}"
            );
            let is_known = [EARLIER_RULES, RULES].contains(&mark);
            assert_eq!(finding(folder).is_none(), is_known, "{mark:?}");
        }
    }
}
