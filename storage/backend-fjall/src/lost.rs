//! Files whose partial or complete loss an operator has accepted. They are kept aside with a report.
//!
//! Nothing of a damaged log is destroyed: before a file is cut, the original is linked into `lost/N`, where N counts
//! the acceptances. The file `REPORT` in the same folder lists the losses. The folder may be removed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::files::sync_folder;

/// Folder of all accepted losses.
pub(crate) const LOST: &str = "lost";
/// File that lists the losses.
const REPORT: &str = "REPORT";

/// Folder of one acceptance.
#[derive(Debug)]
pub(crate) struct LostFolder(PathBuf);

impl LostFolder {
    /// Creates the next folder in `root` and writes the report, durably and before anything is cut.
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
        tracing::error!(folder = %folder.display(), "cut files are kept in this folder; remove it when it is no longer needed");
        Ok(Self(folder))
    }

    /// Hard-links a file into the folder before the file is replaced or removed.
    pub(crate) fn keep(&self, file: &Path) -> io::Result<()> {
        fs::hard_link(file, self.0.join(file.file_name().unwrap_or_default()))?;
        sync_folder(&self.0)
    }
}
