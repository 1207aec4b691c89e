//! Files of an operator that the server reads again when they change: token hashes, keys of an identity provider,
//! certificates.
//!
//! A user who can write such a file can give access to others, so the server refuses a file that other users can
//! write. A file with a secret must not be readable by users outside its group either.

use std::fs::{self, File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Largest file, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Mode bits with which users other than the owner can write a file.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Mode bit with which every user can read a file.
const READABLE_BY_ALL: u32 = 0o004;

/// File with the state in which it was last read.
#[derive(Debug)]
pub(crate) struct FollowedFile {
    path: PathBuf,
    is_secret: bool,
    /// Also the state of a file that was refused, so that it is reported once. `None` if there was no file.
    last: Option<Stamp>,
}

/// State of a file. A file that was replaced or written has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    mode: u32,
}

impl FollowedFile {
    /// Reads a file for the first time, with `parse`.
    ///
    /// # Errors
    ///
    /// Fails with the reason, which begins with the path, if the file cannot be read, other users can write it, it is
    /// larger than 16 MiB, or `parse` refuses it.
    pub(crate) fn open<T>(
        path: &Path,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<(Self, T), String> {
        Self::open_as(path, false, parse)
    }

    /// Reads a file with a secret like [`open`](Self::open).
    ///
    /// # Errors
    ///
    /// Also fails if every user can read the file.
    pub(crate) fn open_secret<T>(
        path: &Path,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<(Self, T), String> {
        Self::open_as(path, true, parse)
    }

    fn open_as<T>(
        path: &Path,
        is_secret: bool,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<(Self, T), String> {
        let (stamp, bytes) = read(path, is_secret)?;
        let parsed = parse(&bytes).map_err(|reason| format!("{}: {reason}", path.display()))?;
        let file = Self {
            path: path.to_owned(),
            is_secret,
            last: Some(stamp),
        };
        Ok((file, parsed))
    }

    /// Reads the file again if it has changed. Returns `None` if it has not changed, or if it is refused, which is logged.
    pub(crate) fn follow<T>(&mut self, parse: impl FnOnce(&[u8]) -> Result<T, String>) -> Option<T> {
        let current = fs::metadata(&self.path).ok().map(|metadata| Stamp::of(&metadata));
        if self.last == current {
            return None;
        }
        self.last = current;
        let parsed = read(&self.path, self.is_secret).and_then(|(stamp, bytes)| {
            self.last = Some(stamp);
            parse(&bytes).map_err(|reason| format!("{}: {reason}", self.path.display()))
        });
        match parsed {
            Ok(parsed) => {
                tracing::info!(path = %self.path.display(), "a changed file was read");
                Some(parsed)
            }
            Err(reason) => {
                tracing::warn!(%reason, "a changed file is refused; its last valid content stays");
                None
            }
        }
    }
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            mode: metadata.mode(),
        }
    }
}

fn read(path: &Path, is_secret: bool) -> Result<(Stamp, Vec<u8>), String> {
    let at = |reason: String| format!("{}: {reason}", path.display());
    let failed = |error: std::io::Error| at(error.to_string());
    // Another kind of file could block or be endless.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(at("this is not a regular file".to_owned()));
    }
    // The checks apply to the opened file, so a rename cannot replace the file between the checks and the read.
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(at(format!(
            "other users can write this file (mode {:o}), and could give themselves access; set it to 600 or 644",
            metadata.mode() & 0o777
        )));
    }
    if is_secret && metadata.mode() & READABLE_BY_ALL != 0 {
        return Err(at(format!(
            "every user can read this file (mode {:o}), which holds a secret; set it to 600 or 640",
            metadata.mode() & 0o777
        )));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(at(format!("the file is larger than {FILE_BYTES_MAX} bytes")));
    }
    Ok((Stamp::of(&metadata), bytes))
}
