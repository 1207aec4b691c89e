//! Integrity check of a data folder that no server uses.
//!
//! All files of the store are compared with their checksums first. If the files are readable, a copy of the journals
//! and logs is opened and every row is validated. The files of search indexes are compared with their checksums.

use std::path::Path;

use tideline_backend_fjall::{Inspection, VerifyReport};
use tideline_engine::backend::{Backend, BackendError};
use tideline_engine::check::{CheckReport, check_database, check_search_indexes};

use crate::config::INDEX_FOLDER;
use crate::error::{Result, ServerError};
use crate::installation;

/// Result of a check.
#[derive(Debug, Clone, Default)]
pub struct FolderReport {
    /// Counts and findings of the files.
    pub files: VerifyReport,
    /// Counts and findings of the rows; `None` if the files are too damaged to open a store.
    pub rows: Option<CheckReport>,
    /// Description of each damage, with its location. Empty if the folder is sound.
    pub findings: Vec<String>,
}

/// Checks all data in a data folder, and in its cold folder: `cold` inside it, or `cold_dir`.
///
/// The folder is locked during the check and not modified. `scratch` is an empty folder for a copy of journals
/// and logs.
///
/// # Errors
///
/// Returns [`ServerError::Backend`] if the folder cannot be read, is not a data folder, or is in use. Damage is
/// not an error but a finding.
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
            // The copy is discarded, so a failed close does not matter.
            let _ = backend.close();
            report.findings.append(&mut rows.findings);
            let indexes = check_search_indexes(&folder.join(INDEX_FOLDER), &rows);
            report.findings.extend(indexes);
            report.rows = Some(rows);
        }
        Err(error @ (BackendError::Corrupt { .. } | BackendError::Misconfigured { .. })) => {
            let shown = error.to_string();
            // The error names the copy; the report must name the folder.
            let shown = shown.replace(&scratch.display().to_string(), &folder.display().to_string());
            if !report.findings.contains(&shown) {
                report.findings.push(shown);
            }
        }
        Err(error) => return Err(failed(error)),
    }
    report.findings.extend(installation::finding(folder));
    Ok(report)
}
