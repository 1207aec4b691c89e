//! Files that an operator accepts to lose, in part or whole: they are kept aside, with a report.
//!
//! Nothing of a damaged log is destroyed: before it is cut, the file as it was is linked into `lost/N`, N counting the
//! acceptances, beside `REPORT`, which says file by file what is lost. The folder may be removed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::files::sync_folder;

/// The folder of everything that has been set aside.
pub(crate) const LOST: &str = "lost";
/// The file that says what is lost.
const REPORT: &str = "REPORT";

/// The folder of one acceptance.
#[derive(Debug)]
pub(crate) struct LostFolder(PathBuf);

impl LostFolder {
    /// Makes the next folder below `root` and writes the report, durably and before anything is cut.
    pub(crate) fn create(root: &Path, report: &[String]) -> io::Result<Self> {
        let lost = root.join(LOST);
        fs::create_dir_all(&lost)?;
        let mut number = 1;
        let folder = loop {
            let folder = lost.join(number.to_string());
            match fs::create_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                made => break made.map(|()| folder)?,
            }
        };
        let mut file = File::create(folder.join(REPORT))?;
        for line in report {
            tracing::error!(lost = line, "an operator accepts a loss");
            writeln!(file, "{line}")?;
        }
        file.sync_all()?;
        for folder in [&folder, &lost, root] {
            sync_folder(folder)?;
        }
        tracing::error!(folder = %folder.display(), "files that are cut are kept here; remove it when it is of no use");
        Ok(Self(folder))
    }

    /// Keeps a file that is about to be replaced or removed.
    pub(crate) fn keep(&self, file: &Path) -> io::Result<()> {
        fs::hard_link(file, self.0.join(file.file_name().unwrap_or_default()))?;
        sync_folder(&self.0)
    }
}
