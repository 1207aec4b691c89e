//! Files of an operator that the server reads again when they change: token hashes, keys of an identity provider,
//! certificates.
//!
//! A user who can write such a file can give access to others, so the server refuses a file that other users can
//! write. A file with a secret must not be readable by users outside its group either.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
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
    /// State of the file when it was last read or refused. A refused file is therefore reported once. A failed read
    /// does not change the state, so the file is read again.
    last: Stamp,
    /// Reason why the file could not be read the last time, so that it is reported once.
    unread: Option<String>,
}

/// Reason why a file has no valid content.
#[derive(Debug)]
enum ReadError {
    /// The file is not acceptable until it changes.
    Refused(String),
    /// The system could not read the file. The cause can disappear without a change of the file.
    Unread(String),
}

/// State of a file. It changes when the file is replaced or written.
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
        let (stamp, bytes) = read(path, is_secret).map_err(|error| match error {
            ReadError::Refused(reason) | ReadError::Unread(reason) => reason,
        })?;
        let parsed = parse(&bytes).map_err(|reason| format!("{}: {reason}", path.display()))?;
        let file = Self {
            path: path.to_owned(),
            is_secret,
            last: stamp,
            unread: None,
        };
        Ok((file, parsed))
    }

    /// Reads the file again if it has changed. Returns `None` if it has not changed, if it is refused, or if it could
    /// not be read. The last two are logged; a file that could not be read is read again by the next call.
    pub(crate) fn follow<T>(&mut self, parse: impl FnOnce(&[u8]) -> Result<T, String>) -> Option<T> {
        self.follow_with(read, parse)
    }

    /// Follows the file like [`follow`](Self::follow), and reads it with `read`.
    fn follow_with<T>(
        &mut self,
        read: impl FnOnce(&Path, bool) -> Result<(Stamp, Vec<u8>), ReadError>,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Option<T> {
        let current = fs::metadata(&self.path).ok().map(|metadata| Stamp::of(&metadata));
        if current == Some(self.last) {
            self.unread = None;
            return None;
        }
        let before = self.last;
        self.last = current.unwrap_or(before);
        let parsed = read(&self.path, self.is_secret).and_then(|(stamp, bytes)| {
            self.last = stamp;
            parse(&bytes).map_err(|reason| ReadError::Refused(format!("{}: {reason}", self.path.display())))
        });
        let reported = self.unread.take();
        match parsed {
            Ok(parsed) => {
                tracing::info!(path = %self.path.display(), "a changed file was read");
                Some(parsed)
            }
            Err(ReadError::Refused(reason)) => {
                tracing::warn!(%reason, "a changed file is refused; its last valid content stays");
                None
            }
            Err(ReadError::Unread(reason)) => {
                self.last = before;
                if reported.as_ref() != Some(&reason) {
                    tracing::warn!(%reason, "a changed file could not be read yet; its last valid content stays");
                }
                self.unread = Some(reason);
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

fn read(path: &Path, is_secret: bool) -> Result<(Stamp, Vec<u8>), ReadError> {
    let refused = |reason: String| ReadError::Refused(format!("{}: {reason}", path.display()));
    let failed = |error: io::Error| ReadError::Unread(format!("{}: {error}", path.display()));
    // Another kind of file could block or be endless.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(refused("this is not a regular file".to_owned()));
    }
    // The checks apply to the opened file, so a rename cannot replace the file between the checks and the read.
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(refused(format!(
            "other users can write this file (mode {:o}), and could give themselves access; set it to 600 or 644",
            metadata.mode() & 0o777
        )));
    }
    if is_secret && metadata.mode() & READABLE_BY_ALL != 0 {
        return Err(refused(format!(
            "every user can read this file (mode {:o}), which holds a secret; set it to 600 or 640",
            metadata.mode() & 0o777
        )));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(refused(format!("the file is larger than {FILE_BYTES_MAX} bytes")));
    }
    Ok((Stamp::of(&metadata), bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn parse(bytes: &[u8]) -> Result<String, String> {
        match String::from_utf8_lossy(bytes).into_owned() {
            refused if refused == "refused" => Err("this is refused".to_owned()),
            text => Ok(text),
        }
    }

    #[test]
    fn a_changed_file_that_could_not_be_read_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let write = |text: &str| {
            fs::write(&path, text).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
        };
        write("old");
        let (mut file, old) = FollowedFile::open(&path, parse).expect("valid");
        assert_eq!(old, "old");
        write("newer");
        for _ in 0..2 {
            let unread = ReadError::Unread("too many open files".to_owned());
            assert_eq!(file.follow_with(|_, _| Err(unread), parse), None);
        }
        assert_eq!(file.follow(parse).as_deref(), Some("newer"));
        assert_eq!(file.follow(parse), None, "it has not changed");
        // A refused file is read again only after it has changed.
        write("refused");
        assert_eq!(file.follow(parse), None);
        assert_eq!(file.follow_with(|_, _| panic!("it is read again"), parse), None);
        // A file that does not exist for a while is read again.
        fs::remove_file(&path).expect("removed");
        assert_eq!(file.follow(parse), None);
        write("newest");
        assert_eq!(file.follow(parse).as_deref(), Some("newest"));
    }
}
