//! The files `FORMAT`: the format of a data folder, and the data folder that a cold folder belongs to.
//!
//! A new data folder has format 1. The format is raised before data is stored that earlier builds cannot read, so
//! that those builds refuse the folder:
//!
//! - Before the first cold segment or cold part, the data folder gets an id, and format 2 unless it has format 3. The
//!   cold folder gets the same id, so that no other folder is mistaken for it.
//! - Before the first part, hot or cold, the data folder gets format 3, with or without an id.

use std::fmt;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use tideline_backend::{BackendError, Result};

use crate::error::at;
use crate::files::replace;

/// File in the data folder and in the cold folder.
pub(crate) const FORMAT_FILE: &str = "FORMAT";
const HOT_TITLE: &str = "tideline-fjall 1\n";
const TIERED_TITLE: &str = "tideline-fjall 2\n";
const PARTS_TITLE: &str = "tideline-fjall 3\n";
const COLD_TITLE: &str = "tideline-fjall-cold 1\n";

/// Format of a data folder. The default is the format of a new folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Format {
    /// Id of the folder, shared with its cold folder; `None` until cold data is stored.
    pub(crate) id: Option<FolderId>,
    /// True if the folder may hold parts, or a manifest that names parts.
    pub(crate) has_parts: bool,
}

/// Format of an open data folder. The format is raised before data is stored that earlier builds cannot read.
#[derive(Debug)]
pub(crate) struct FolderFormat {
    folder: PathBuf,
    format: Mutex<Format>,
}

/// Random id of a data folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FolderId(u128);

impl FolderId {
    /// Creates a random id.
    pub(crate) fn fresh() -> Self {
        // The keys of the hasher are the only randomness in the standard library.
        let random = || u128::from(RandomState::new().hash_one(std::process::id()));
        Self(random() << 64 | random())
    }

    fn parse(line: &str) -> Option<Self> {
        let digits = line.strip_prefix("folder ")?.strip_suffix('\n')?;
        let id = Self(u128::from_str_radix(digits, 16).ok()?);
        (id.to_string() == digits).then_some(id)
    }
}

impl fmt::Display for FolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Format {
    /// Reads the format; `None` if the file does not exist.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>> {
        let Some(text) = read(folder)? else {
            return Ok(None);
        };
        let format = if text == HOT_TITLE {
            Some(Self::default())
        } else if let Some(id) = text.strip_prefix(TIERED_TITLE) {
            FolderId::parse(id).map(|id| Self {
                id: Some(id),
                has_parts: false,
            })
        } else {
            text.strip_prefix(PARTS_TITLE).and_then(|id| {
                let id = match id {
                    "" => None,
                    id => Some(FolderId::parse(id)?),
                };
                Some(Self { id, has_parts: true })
            })
        };
        format.map(Some).ok_or_else(|| unknown(folder, &text))
    }

    /// Writes the format, durably.
    pub(crate) fn write(self, folder: &Path) -> Result<()> {
        let title = match (self.id, self.has_parts) {
            (None, false) => HOT_TITLE,
            (Some(_), false) => TIERED_TITLE,
            (_, true) => PARTS_TITLE,
        };
        let id = self.id.map_or_else(String::new, |id| format!("folder {id}\n"));
        write(folder, &format!("{title}{id}"))
    }
}

impl FolderFormat {
    /// Creates the state of a data folder with this format.
    pub(crate) fn new(folder: &Path, format: Format) -> Self {
        Self {
            folder: folder.to_owned(),
            format: Mutex::new(format),
        }
    }

    /// Returns the current format.
    pub(crate) fn get(&self) -> Format {
        *self.format.lock()
    }

    /// Returns the id of the folder. Creates and stores one if it has none.
    pub(crate) fn require_id(&self) -> Result<FolderId> {
        let mut format = self.format.lock();
        if let Some(id) = format.id {
            return Ok(id);
        }
        let id = FolderId::fresh();
        let raised = Format {
            id: Some(id),
            ..*format
        };
        raised.write(&self.folder)?;
        *format = raised;
        Ok(id)
    }

    /// Raises the format so that earlier builds refuse the folder, which is about to hold parts.
    pub(crate) fn require_parts(&self) -> Result<()> {
        let mut format = self.format.lock();
        if format.has_parts {
            return Ok(());
        }
        let raised = Format {
            has_parts: true,
            ..*format
        };
        raised.write(&self.folder)?;
        *format = raised;
        Ok(())
    }
}

/// Returns the id of the data folder that a cold folder belongs to; `None` if the cold folder has no file `FORMAT`.
pub(crate) fn read_owner(cold: &Path) -> Result<Option<FolderId>> {
    let Some(text) = read(cold)? else {
        return Ok(None);
    };
    let id = text.strip_prefix(COLD_TITLE).and_then(FolderId::parse);
    id.map(Some).ok_or_else(|| unknown(cold, &text))
}

/// Makes a folder the cold folder of a data folder, durably.
pub(crate) fn write_owner(cold: &Path, id: FolderId) -> Result<()> {
    write(cold, &format!("{COLD_TITLE}folder {id}\n"))
}

fn read(folder: &Path) -> Result<Option<String>> {
    let path = folder.join(FORMAT_FILE);
    match fs::read(&path) {
        Ok(content) => Ok(Some(String::from_utf8_lossy(&content).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(&path)(error)),
    }
}

fn write(folder: &Path, text: &str) -> Result<()> {
    replace(folder, &[FORMAT_FILE], text.as_bytes()).map_err(at(&folder.join(FORMAT_FILE)))
}

fn unknown(folder: &Path, text: &str) -> BackendError {
    BackendError::Misconfigured {
        reason: format!("{} has the unsupported format {text:?}", folder.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_read_back_and_nothing_else_does() {
        let folder = tempfile::tempdir().expect("a folder");
        let id = FolderId(0x1f);
        assert_eq!(Format::read(folder.path()).expect("read"), None);
        for (format, text) in [
            ((None, false), "tideline-fjall 1\n"),
            (
                (Some(id), false),
                "tideline-fjall 2\nfolder 0000000000000000000000000000001f\n",
            ),
            ((None, true), "tideline-fjall 3\n"),
            (
                (Some(id), true),
                "tideline-fjall 3\nfolder 0000000000000000000000000000001f\n",
            ),
        ] {
            let (id, has_parts) = format;
            let format = Format { id, has_parts };
            format.write(folder.path()).expect("write");
            assert_eq!(Format::read(folder.path()).expect("read"), Some(format));
            let written = fs::read_to_string(folder.path().join(FORMAT_FILE)).expect("read");
            assert_eq!(written, text);
            assert!(
                read_owner(folder.path()).is_err(),
                "a data folder is not a cold folder"
            );
        }
        write_owner(folder.path(), id).expect("write");
        assert_eq!(read_owner(folder.path()).expect("read"), Some(id));
        assert!(
            Format::read(folder.path()).is_err(),
            "a cold folder is not a data folder"
        );
        for text in [
            "",
            "tideline-fjall 2\n",
            "tideline-fjall 2\nfolder 1f\n",
            "tideline-fjall 3\nfolder 1f\n",
            "tideline-fjall 4\n",
            "\u{fffd}",
        ] {
            fs::write(folder.path().join(FORMAT_FILE), text).expect("write");
            assert!(Format::read(folder.path()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_format_only_rises() {
        let folder = tempfile::tempdir().expect("a folder");
        let format = FolderFormat::new(folder.path(), Format::default());
        let id = format.require_id().expect("an id");
        format.require_parts().expect("parts");
        assert_eq!(format.require_id().expect("the same id"), id);
        let (id, has_parts) = (Some(id), true);
        assert_eq!(format.get(), Format { id, has_parts });
        assert_eq!(Format::read(folder.path()).expect("read"), Some(format.get()));
        let other = FolderFormat::new(folder.path(), Format::default());
        other.require_parts().expect("parts");
        other.require_id().expect("an id");
        assert_eq!(Format::read(folder.path()).expect("read"), Some(other.get()));
    }

    #[test]
    fn ids_differ() {
        assert_ne!(FolderId::fresh(), FolderId::fresh());
    }
}
