//! Files of an operator that the server reads again when they change: token hashes, keys of an identity provider,
//! certificates.
//!
//! A user who can write such a file can give access to others, so the server refuses a file that other users can
//! write. A file that decides about access must also belong to root or to the user of the process, because the owner of
//! a file can change it. A file with a secret must not be readable by users outside its group.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::geteuid;

/// Largest file, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Mode bits with which users other than the owner can write a file.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Mode bit with which every user can read a file.
const READABLE_BY_ALL: u32 = 0o004;

/// Requirements of a followed file. Other users must not be able to write any of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guarded {
    /// No further requirement.
    No,
    /// Owned by root or by the user of the process.
    Owner,
    /// Not readable by users outside the group of the file.
    Secret,
}

/// Purpose of a followed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// Certificate of the listener.
    Certificate,
    /// Private key of the listener.
    Key,
    /// Hashes of tokens.
    Hashes,
    /// Keys of an identity provider.
    Jwks,
    /// Authorities of the other servers of a cluster.
    Authorities,
}

impl FileKind {
    /// Kinds that have a metric. A standby has no metrics.
    pub(crate) const WITH_METRIC: [Self; 4] = [Self::Certificate, Self::Key, Self::Hashes, Self::Jwks];

    /// Returns the value of the label `file` of metrics.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::Key => "key",
            Self::Hashes => "hashes",
            Self::Jwks => "jwks",
            Self::Authorities => "authorities",
        }
    }

    /// Returns the setting that names the file.
    const fn setting(self) -> &'static str {
        match self {
            Self::Certificate => "http.tls_certificate_file",
            Self::Key => "http.tls_key_file",
            Self::Hashes => "auth.hashes_file",
            Self::Jwks => "auth.jwks_file",
            Self::Authorities => "cassandra.servers_ca_file",
        }
    }

    /// Returns the warning for `/ready` about a file whose newest version is not in use. It contains neither the path nor
    /// the reason, because `/ready` needs no token.
    pub(crate) fn warning(self) -> String {
        format!(
            "{}: the newest version of the file is not in use, because it is refused or cannot be read; the previous one \
             stays in use. The log has the reason",
            self.setting()
        )
    }
}

/// File with the state in which it was last read.
#[derive(Debug)]
pub(crate) struct FollowedFile {
    path: PathBuf,
    guarded: Guarded,
    /// State of the file when it was last read or refused. A refused file is therefore reported once. A failed read
    /// does not change the state, so the file is read again.
    last: Stamp,
    /// True if the last version that was read was refused.
    is_refused: bool,
    /// Reason why the file could not be read the last time, so that it is reported once.
    unread: Option<String>,
    behind: Behind,
}

/// Flag that the newest version of a file is not in use. It is read without the file, so that a reader does not wait
/// while the file is read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Behind(Arc<AtomicBool>);

impl Behind {
    /// Returns true if the newest version of the file is not in use.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
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
        Self::open_as(path, Guarded::No, parse)
    }

    /// Reads a file that decides about access like [`open`](Self::open).
    ///
    /// # Errors
    ///
    /// Also fails if the file belongs to another user than root and the user of the process.
    pub(crate) fn open_owned<T>(
        path: &Path,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<(Self, T), String> {
        Self::open_as(path, Guarded::Owner, parse)
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
        Self::open_as(path, Guarded::Secret, parse)
    }

    fn open_as<T>(
        path: &Path,
        guarded: Guarded,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<(Self, T), String> {
        let (stamp, bytes) = read(path, guarded).map_err(|error| match error {
            ReadError::Refused(reason) | ReadError::Unread(reason) => reason,
        })?;
        let parsed = parse(&bytes).map_err(|reason| format!("{}: {reason}", path.display()))?;
        let file = Self {
            path: path.to_owned(),
            guarded,
            last: stamp,
            is_refused: false,
            unread: None,
            behind: Behind::default(),
        };
        Ok((file, parsed))
    }

    /// Returns true if the newest version of the file is not in use, because it was refused or could not be read.
    pub(crate) fn is_behind(&self) -> bool {
        self.behind.is_set()
    }

    /// Returns the flag that is set while the newest version of the file is not in use.
    pub(crate) fn behind(&self) -> Behind {
        self.behind.clone()
    }

    /// Reads the file again if it has changed. Returns `None` if it has not changed, if it is refused, or if it could
    /// not be read. The last two are logged; a file that could not be read is read again by the next call.
    pub(crate) fn follow<T>(&mut self, parse: impl FnOnce(&[u8]) -> Result<T, String>) -> Option<T> {
        self.follow_with(read, parse)
    }

    /// Follows the file like [`follow`](Self::follow), and reads it with `read`.
    fn follow_with<T>(
        &mut self,
        read: impl FnOnce(&Path, Guarded) -> Result<(Stamp, Vec<u8>), ReadError>,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Option<T> {
        let parsed = self.read_changed(read, parse);
        let is_behind = self.is_refused || self.unread.is_some();
        self.behind.0.store(is_behind, Ordering::Relaxed);
        parsed
    }

    fn read_changed<T>(
        &mut self,
        read: impl FnOnce(&Path, Guarded) -> Result<(Stamp, Vec<u8>), ReadError>,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Option<T> {
        let current = fs::metadata(&self.path).ok().map(|metadata| Stamp::of(&metadata));
        if current == Some(self.last) {
            self.unread = None;
            return None;
        }
        let before = self.last;
        self.last = current.unwrap_or(before);
        let parsed = read(&self.path, self.guarded).and_then(|(stamp, bytes)| {
            self.last = stamp;
            parse(&bytes).map_err(|reason| ReadError::Refused(format!("{}: {reason}", self.path.display())))
        });
        let reported = self.unread.take();
        match parsed {
            Ok(parsed) => {
                tracing::info!(path = %self.path.display(), "a changed file was read");
                self.is_refused = false;
                Some(parsed)
            }
            Err(ReadError::Refused(reason)) => {
                tracing::warn!(%reason, "a changed file is refused; its last valid content stays");
                self.is_refused = true;
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

impl Guarded {
    /// Checks the owner and the mode of a file for a process of this user. Returns the reason for a refusal.
    fn check(self, owner: u32, mode: u32, user: u32) -> Result<(), String> {
        if mode & WRITABLE_BY_OTHERS != 0 {
            return Err(format!(
                "other users can write this file (mode {mode:o}), and could give themselves access; set it to 600 or 644"
            ));
        }
        if self == Self::Owner && owner != 0 && owner != user {
            return Err(format!(
                "this file belongs to the user {owner}, who could give others access; make root or the user of the server \
                 ({user}) its owner"
            ));
        }
        if self == Self::Secret && mode & READABLE_BY_ALL != 0 {
            return Err(format!(
                "every user can read this file (mode {mode:o}), which holds a secret; set it to 600 or 640"
            ));
        }
        Ok(())
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

fn read(path: &Path, guarded: Guarded) -> Result<(Stamp, Vec<u8>), ReadError> {
    let refused = |reason: String| ReadError::Refused(format!("{}: {reason}", path.display()));
    let failed = |error: io::Error| ReadError::Unread(format!("{}: {error}", path.display()));
    // Another kind of file could block or be endless.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(refused("this is not a regular file".to_owned()));
    }
    // The checks apply to the opened file, so a rename cannot replace the file between the checks and the read.
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    guarded
        .check(metadata.uid(), metadata.mode() & 0o777, geteuid().as_raw())
        .map_err(refused)?;
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
    fn owner_and_mode_of_a_file_are_checked() {
        let user = 1_000;
        for (guarded, owner, mode, is_accepted) in [
            (Guarded::No, 7, 0o644, true),
            (Guarded::No, user, 0o664, false),
            (Guarded::No, user, 0o602, false),
            (Guarded::Owner, user, 0o644, true),
            (Guarded::Owner, 0, 0o644, true),
            (Guarded::Owner, 7, 0o644, false),
            (Guarded::Owner, 7, 0o600, false),
            (Guarded::Owner, user, 0o620, false),
            (Guarded::Secret, 7, 0o640, true),
            (Guarded::Secret, user, 0o644, false),
        ] {
            let checked = guarded.check(owner, mode, user);
            assert_eq!(
                checked.is_ok(),
                is_accepted,
                "{guarded:?} {owner} {mode:o}: {checked:?}"
            );
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
        let behind = file.behind();
        for _ in 0..2 {
            let unread = ReadError::Unread("too many open files".to_owned());
            assert_eq!(file.follow_with(|_, _| Err(unread), parse), None);
        }
        assert!(file.is_behind() && behind.is_set());
        assert_eq!(file.follow(parse).as_deref(), Some("newer"));
        assert_eq!(file.follow(parse), None, "it has not changed");
        assert!(!file.is_behind() && !behind.is_set());
        // A refused file is read again only after it has changed.
        write("refused");
        assert_eq!(file.follow(parse), None);
        assert_eq!(file.follow_with(|_, _| panic!("it is read again"), parse), None);
        assert!(file.is_behind());
        // A file that does not exist for a while is read again.
        fs::remove_file(&path).expect("removed");
        assert_eq!(file.follow(parse), None);
        write("newest");
        assert!(file.is_behind());
        assert_eq!(file.follow(parse).as_deref(), Some("newest"));
        assert!(!file.is_behind());
        // A file that is back unchanged is in use again without a read.
        let away = folder.path().join("away");
        fs::rename(&path, &away).expect("renamed");
        assert_eq!(file.follow(parse), None);
        assert!(file.is_behind());
        fs::rename(&away, &path).expect("renamed");
        file.follow(parse);
        assert!(!file.is_behind());
    }
}
