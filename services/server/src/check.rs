//! Checks a data folder that no server uses: every byte against its checksum, then every row for what it means.

use std::path::Path;

use tideline_backend_fjall::{Inspection, VerifyReport};
use tideline_engine::backend::{Backend, BackendError};
use tideline_engine::check::{CheckReport, check_database};

use crate::error::{Result, ServerError};

/// What was seen in a data folder.
#[derive(Debug, Clone, Default)]
pub struct FolderReport {
    /// Files.
    pub files: VerifyReport,
    /// Rows; `None` where the files are so damaged that no store can be opened from them.
    pub rows: Option<CheckReport>,
    /// What is damaged, one sentence each, with its place. Empty if the folder is sound.
    pub findings: Vec<String>,
}

/// Reads everything in a data folder, and in its cold folder: `cold` inside it, or `cold_dir`. Changes nothing in them,
/// and keeps servers away while it reads. `scratch` is an empty folder that takes a copy of journals and logs.
///
/// An error means that the folder could not be read: it is none of ours, or in use.
pub fn check_folder(folder: &Path, cold_dir: Option<&Path>, scratch: &Path) -> Result<FolderReport> {
    let failed = |source: BackendError| ServerError::Backend {
        data_dir: folder.to_owned(),
        source,
    };
    let inspection = Inspection::of(folder, cold_dir).map_err(failed)?;
    let mut report = FolderReport {
        files: inspection.report().clone(),
        ..FolderReport::default()
    };
    report.findings.append(&mut report.files.findings);
    match inspection.open_copy(scratch) {
        Ok(backend) => {
            let mut rows = check_database(&backend);
            // Nothing of the copy is kept.
            let _ = backend.close();
            report.findings.append(&mut rows.findings);
            report.rows = Some(rows);
        }
        Err(error @ (BackendError::Corrupt { .. } | BackendError::Misconfigured { .. })) => {
            let shown = error.to_string();
            // The store says where its copy lies; the reader knows the folder.
            let shown = shown.replace(&scratch.display().to_string(), &folder.display().to_string());
            if !report.findings.contains(&shown) {
                report.findings.push(shown);
            }
        }
        Err(error) => return Err(failed(error)),
    }
    Ok(report)
}
