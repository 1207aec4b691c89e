//! Unix socket of the server, by which processes of this machine connect without TCP.
//!
//! Its file is created with the mode 660: processes of the owner and of the group can connect. Requests need tokens as on
//! every other connection.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Mode of the file. To connect, a process needs the right to write.
const MODE: u32 = 0o660;

/// Listening socket. Dropping it removes its file.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file.
    file: (u64, u64),
}

impl UnixSocket {
    /// Listens on `path`. Replaces the file of a server that has ended without removing it.
    ///
    /// # Errors
    ///
    /// Fails if another process listens there, if another kind of file is there, or if the file cannot be created.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        remove_abandoned(path)?;
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(MODE))?;
        listener.set_nonblocking(true)?;
        let file = identity(&fs::symlink_metadata(path)?);
        Ok(Self {
            listener,
            path: path.to_owned(),
            file,
        })
    }

    /// Returns another handle of the socket. Must be called in a runtime.
    pub(crate) fn listener(&self) -> io::Result<tokio::net::UnixListener> {
        let listener = self.listener.try_clone()?;
        tokio::net::UnixListener::from_std(listener)
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        // Another server may have replaced the file.
        let is_own = fs::symlink_metadata(&self.path).is_ok_and(|found| identity(&found) == self.file);
        if is_own && let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, path = %self.path.display(), "the file of the Unix socket was not removed");
        }
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn remove_abandoned(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the file is not a socket; remove it or choose another path",
        ));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another process listens there",
        )),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_abandoned_socket_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tideline.sock");
        let first = UnixSocket::bind(&path).expect("it is free");
        let mode = fs::metadata(&path).expect("it exists").permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        let refused = UnixSocket::bind(&path).expect_err("it is in use");
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        assert!(!path.exists());

        // Leaves the file of a socket behind, as a killed process does.
        drop(UnixListener::bind(&path).expect("it is free"));
        assert!(path.exists());
        let next = UnixSocket::bind(&path).expect("it is abandoned");
        fs::remove_file(&path).expect("it exists");
        let other = UnixSocket::bind(&path).expect("it is free");
        drop(next);
        assert!(path.exists(), "the file is that of another socket");
        drop(other);

        fs::write(&path, "text").expect("a file");
        UnixSocket::bind(&path).expect_err("it is no socket");
        assert_eq!(fs::read(&path).expect("it is kept"), b"text");
    }
}
