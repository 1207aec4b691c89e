//! File `auth.token_file`, which contains the token of the administrator, and the users who can read and write it.
//!
//! A user who can write the file can set another token and get all rights. A new installation therefore does not start
//! with a file that other users can write. An installation of an earlier release, which did not check the file, gets a
//! warning. A file that every user can read is common in containers, so it is only a warning in the log.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::sources::Problem;
use super::{Config, Resolved};
use crate::installation::{self, TOKEN_FILE_RULE};

/// Mode bits with which users other than the owner can write a file.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Mode bit with which every user can read a file.
const READABLE_BY_ALL: u32 = 0o004;

/// File from which the token was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenFile {
    path: PathBuf,
    /// Permission bits.
    mode: u32,
}

impl TokenFile {
    /// Reads a file. Returns also its content, without line breaks at the end.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, is not a regular file or is not UTF-8.
    pub(super) fn read(path: &Path) -> io::Result<(Self, String)> {
        // Another kind of file could block or be endless.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::other("this is not a regular file"));
        }
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        text.truncate(text.trim_end_matches(['\r', '\n']).len());
        let read = Self {
            path: path.to_owned(),
            mode: metadata.mode() & 0o777,
        };
        Ok((read, text))
    }

    /// Returns a description of the problem if other users can write the file.
    fn writable(&self) -> Option<String> {
        (self.mode & WRITABLE_BY_OTHERS != 0).then(|| {
            format!(
                "auth.token_file: {} can be written by its group or by other users (mode {:o}), who could give themselves \
                 all rights; set its mode to 600 or 640",
                self.path.display(),
                self.mode
            )
        })
    }
}

impl Config {
    /// Returns a warning about a file that other users can write in an installation of an earlier release, if it
    /// applies.
    pub(super) fn writable_token_file_warning(&self) -> Option<String> {
        let reason = self.token_file.as_ref()?.writable()?;
        installation::is_earlier(&self.data_dir, TOKEN_FILE_RULE)
            .then(|| format!("{reason}; the next major version does not start with such a file"))
    }

    /// Returns the same warning for `/ready`, which everyone can read, without the path and the mode of the file.
    pub(super) fn writable_token_file_note(&self) -> Option<String> {
        self.writable_token_file_warning().map(|_| {
            "auth.token_file: other users can write the file, as the log describes; the next major version does not start \
             with such a file"
                .to_owned()
        })
    }

    /// Returns a warning about a file that every user can read, if it applies.
    pub(super) fn readable_token_file_warning(&self) -> Option<String> {
        let TokenFile { path, mode } = self.token_file.as_ref()?;
        (mode & READABLE_BY_ALL != 0).then(|| {
            format!(
                "auth.token_file: every user of this machine can read {} (mode {mode:o}), and has all rights with its \
                 token; make the user of the server its owner, and set its mode to 600",
                path.display()
            )
        })
    }
}

impl Resolved {
    /// Returns a problem if other users can write the file of the token in a new installation, otherwise `None`.
    pub(super) fn writable_token_file(&self) -> Option<Problem> {
        let reason = self.config.token_file.as_ref()?.writable()?;
        (!installation::is_earlier(&self.config.data_dir, TOKEN_FILE_RULE))
            .then(|| Problem::at(self.origin("auth.token"), reason))
    }
}
