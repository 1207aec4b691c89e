//! Copy of a data folder. fjall opens a store in the copy if the original must stay unchanged.
//!
//! fjall writes to every folder that it opens. Tables hold almost all of the data and never change, so they are
//! linked. Logs and small files are copied.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use tideline_backend::{BackendError, Result};
use xxhash_rust::xxh3::xxh3_64;

use crate::backend::JOURNAL;
use crate::files::{list, remove_folder};
use crate::safety::{SAFETY, TABLES};
use crate::store::STORE;
use crate::wal::data_end;

/// Scratch folder, outside the data folder. Dropping the value removes the scratch folder.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Creates an empty folder for a data folder, in the system's folder of temporary files. Removes a folder that a
    /// killed process left for the same data folder.
    pub(crate) fn make(folder: &Path) -> Result<Self> {
        let of = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let name = format!(
            "tideline-read-only-{:016x}",
            xxh3_64(of.as_os_str().as_encoded_bytes())
        );
        let path = std::env::temp_dir().join(name);
        remove_folder(&path)
            .and_then(|()| DirBuilder::new().mode(0o700).create(&path))
            .map_err(|error| Self::failed(&path, &error))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Copies the hot store of `folder`, and the cold store of the cold folder `cold`, if given.
    pub(crate) fn fill(&self, folder: &Path, cold: Option<&Path>) -> Result<()> {
        let copied = copy_root(folder, &self.0, Journals::Left).and_then(|()| match cold {
            Some(cold) => copy_root(cold, &self.0.join(COLD_COPY), Journals::Left),
            None => Ok(()),
        });
        copied.map_err(|error| Self::failed(&self.0, &error))
    }

    /// Returns the folder of the cold store's copy.
    pub(crate) fn cold(&self) -> PathBuf {
        self.0.join(COLD_COPY)
    }

    fn failed(path: &Path, error: &io::Error) -> BackendError {
        BackendError::Misconfigured {
            reason: format!(
                "acknowledged data seems to be missing, so the store is opened from a copy and left unchanged, but \
                 {} cannot hold the copy of its logs: {error}; set TMPDIR to a folder with enough space",
                path.display()
            ),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = remove_folder(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "a temporary folder cannot be removed");
        }
    }
}

const COLD_COPY: &str = "cold";

/// Treatment of the journals in a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Journals {
    Copied,
    Left,
}

/// Copies the files that may be written when a data folder or a cold folder is opened, and links tables.
pub(crate) fn copy_root(from: &Path, to: &Path, journals: Journals) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for path in list(from)? {
        let name = path.file_name().unwrap_or_default();
        match name.to_str() {
            Some("LOCK" | SAFETY) => {}
            Some(JOURNAL) if journals == Journals::Left => {}
            Some(folder @ (STORE | JOURNAL)) => copy_folder(&path, &to.join(folder))?,
            _ if path.is_file() => drop(fs::copy(&path, to.join(name))?),
            // Other folders are not copied, such as the search index and the cold folder.
            _ => {}
        }
    }
    Ok(())
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    let is_tables = from.file_name().is_some_and(|name| name == TABLES);
    for path in list(from)? {
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy_folder(&path, &target)?;
        } else if is_tables {
            symlink(path.canonicalize()?, target)?;
        } else if path.extension().is_some_and(|end| end == "jnl") {
            copy_log(&path, &target)?;
        } else {
            fs::copy(&path, target)?;
        }
    }
    Ok(())
}

/// Copies a log of fjall without the hole that makes up most of the file.
fn copy_log(from: &Path, to: &Path) -> io::Result<()> {
    let source = File::open(from)?;
    let end = data_end(&source)?;
    let mut copy = File::create(to)?;
    io::copy(&mut io::Read::take(&source, end), &mut copy)?;
    copy.set_len(source.metadata()?.len())
}
