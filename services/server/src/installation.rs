//! Data folder of an installation: its creation, and its age.
//!
//! An installation that listens beyond this machine needs TLS. Earlier releases did not require it, so their
//! installations start with a warning until the next major version. A release with this rule writes a file to each new
//! data folder before anything else; the folders of earlier releases lack this file.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// File in each data folder that a release with the rule has created.
const MARK: &str = "installation";
/// Content of the file: the number of the rules, which a later release may raise.
const RULES: &str = "rules 1\n";
/// Files that show that a server has used a data folder: `store` of the embedded engine, `cluster.lock` of a server of
/// a cluster.
const EARLIER: [&str; 2] = ["store", "cluster.lock"];

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

/// Returns true if an earlier release made this data folder. A folder that cannot be read counts as such a folder; a
/// server cannot use it.
pub(crate) fn is_earlier(folder: &Path) -> bool {
    let exists = |name: &str| folder.join(name).try_exists().unwrap_or(true);
    EARLIER.into_iter().any(exists) && !folder.join(MARK).try_exists().unwrap_or(false)
}

/// Returns a description of the damage if the mark exists but cannot be read, or if its content differs from the
/// written content.
pub(crate) fn finding(folder: &Path) -> Option<String> {
    let path = folder.join(MARK);
    let read = fs::read_to_string(&path);
    let reason = match read {
        Ok(text) if text == RULES => return None,
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
            assert!(!is_earlier(&new));
            prepare(&new).expect("a folder");
            fs::create_dir(new.join(name)).expect("a folder");
            assert!(!is_earlier(&new));
            prepare(&new).expect("it exists");
            assert!(!is_earlier(&new));

            fs::create_dir_all(earlier.join(name)).expect("a folder");
            assert!(is_earlier(&earlier));
            prepare(&earlier).expect("it exists");
            assert!(is_earlier(&earlier), "it stays one");
        }
    }
}
