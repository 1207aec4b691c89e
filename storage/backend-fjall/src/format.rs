//! The files `FORMAT`: which format a data folder has, and which data folder a cold folder belongs to.
//!
//! A data folder has format 1 until its first cold segment. Then it gets an id and format 2, so that no build that
//! knows nothing of a cold store opens it, and the cold folder gets the same id, so that no other folder is taken for
//! it.

use std::fmt;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;

use tideline_backend::{BackendError, Result};

use crate::error::at;
use crate::files::replace;

/// The file in the data folder and in the cold folder.
pub(crate) const FORMAT_FILE: &str = "FORMAT";
const HOT_TITLE: &str = "tideline-fjall 1\n";
const TIERED_TITLE: &str = "tideline-fjall 2\n";
const COLD_TITLE: &str = "tideline-fjall-cold 1\n";

/// What a data folder says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// It never had a cold segment.
    Hot,
    /// Its cold folder bears this id, if it has been made.
    Tiered(FolderId),
}

/// Tells data folders apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FolderId(u128);

impl FolderId {
    /// An id that no other folder has.
    pub(crate) fn fresh() -> Self {
        // The hasher's keys are the randomness of the standard library.
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
    /// Reads it; `None` if the file is not there.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>> {
        let Some(text) = read(folder)? else {
            return Ok(None);
        };
        let tiered = text.strip_prefix(TIERED_TITLE).and_then(FolderId::parse);
        match tiered {
            Some(id) => Ok(Some(Self::Tiered(id))),
            None if text == HOT_TITLE => Ok(Some(Self::Hot)),
            None => Err(unknown(folder, &text)),
        }
    }

    /// Writes it, durably.
    pub(crate) fn write(self, folder: &Path) -> Result<()> {
        let text = match self {
            Self::Hot => HOT_TITLE.to_owned(),
            Self::Tiered(id) => format!("{TIERED_TITLE}folder {id}\n"),
        };
        write(folder, &text)
    }

    /// The id that the cold folder bears.
    pub(crate) fn id(self) -> Option<FolderId> {
        match self {
            Self::Hot => None,
            Self::Tiered(id) => Some(id),
        }
    }
}

/// Whose cold folder this is; `None` if it is nobody's.
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
        reason: format!("{} has format {text:?}", folder.display()),
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
            (Format::Hot, "tideline-fjall 1\n"),
            (
                Format::Tiered(id),
                "tideline-fjall 2\nfolder 0000000000000000000000000000001f\n",
            ),
        ] {
            format.write(folder.path()).expect("write");
            assert_eq!(Format::read(folder.path()).expect("read"), Some(format));
            let written = fs::read_to_string(folder.path().join(FORMAT_FILE)).expect("read");
            assert_eq!(written, text);
            assert!(
                read_owner(folder.path()).is_err(),
                "a data folder is no cold folder"
            );
        }
        write_owner(folder.path(), id).expect("write");
        assert_eq!(read_owner(folder.path()).expect("read"), Some(id));
        assert!(
            Format::read(folder.path()).is_err(),
            "a cold folder is no data folder"
        );
        for text in [
            "",
            "tideline-fjall 2\n",
            "tideline-fjall 2\nfolder 1f\n",
            "\u{fffd}",
        ] {
            fs::write(folder.path().join(FORMAT_FILE), text).expect("write");
            assert!(Format::read(folder.path()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn ids_differ() {
        assert_ne!(FolderId::fresh(), FolderId::fresh());
    }
}
