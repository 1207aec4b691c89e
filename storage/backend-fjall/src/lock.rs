//! Folder lock: only one process uses a data folder, and only one uses a cold folder.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use tideline_backend::{BackendError, Result};

use crate::error::at;

/// Lock of a folder, held until the value is dropped. The system releases it when the process exits.
#[derive(Debug)]
pub(crate) struct FolderLock {
    _file: File,
}

const LOCK_FILE: &str = "LOCK";

impl FolderLock {
    /// Locks a folder without changing anything in it. Returns `None` if the folder has no lock file, because it was
    /// never opened.
    pub(crate) fn hold(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(LOCK_FILE);
        match File::open(&path) {
            Ok(file) => Self::lock(file, folder).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at(&path)(error)),
        }
    }

    /// Locks the file `LOCK` in a folder, unless `held` is its lock, and writes the id of this process into it.
    pub(crate) fn take(folder: &Path, held: Option<Self>) -> Result<Self> {
        let path = folder.join(LOCK_FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(at(&path))?;
        let lock = match held {
            Some(held) => held,
            None => Self::lock(file.try_clone().map_err(at(&path))?, folder)?,
        };
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(at(&path))?;
        Ok(lock)
    }

    fn lock(mut file: File, folder: &Path) -> Result<Self> {
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            let holder = match file.read_to_string(&mut holder) {
                Ok(_) if !holder.trim().is_empty() => format!("process {}", holder.trim()),
                _ => "another process".to_owned(),
            };
            return Err(BackendError::Misconfigured {
                reason: format!("{holder} is using {}", folder.display()),
            });
        }
        Ok(Self { _file: file })
    }
}
