//! Checks of a store before fjall opens it.
//!
//! fjall stores a checksum of each version file but never verifies the checksum. It deletes files that its version
//! files do not name. So a flipped bit in a version file causes data loss at the next open. These checks run at every
//! open and read a few kilobytes per keyspace, and the logs. [`Inspection`] reads all files of a data folder that no
//! process uses.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tideline_backend::{BackendError, Result};
use tideline_model::Tier;
use xxhash_rust::xxh3::xxh3_128;

use crate::backend::JOURNAL;
use crate::cold::{Cold, ColdFolderState};
use crate::error::at;
use crate::files::list;
use crate::format::Format;
use crate::journal;
use crate::keyspace_list::KeyspaceList;
use crate::lock::FolderLock;
use crate::store::STORE;
use crate::wal::{self, Log};

mod inspect;

pub use inspect::Inspection;

/// fjall's folder of keyspaces.
pub(crate) const KEYSPACES: &str = "keyspaces";
/// File that names the version file of a keyspace: number, xxh3-128 of the version file, kind of checksum.
pub(crate) const CURRENT: &str = "current";
const CURRENT_BYTES: usize = 25;
/// Number of fjall's own keyspace, which names all other keyspaces.
const META: u64 = 0;

/// Result of [`verify`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Number of keyspaces with an intact version file. A store with a missing keyspace or a damaged version file
    /// counts as 0.
    pub keyspaces: u64,
    /// Number of intact batches in fjall's logs.
    pub log_batches: u64,
    /// Number of intact entries in the usable journal files.
    pub journal_entries: u64,
    /// Size of the journals, in bytes.
    pub journal_bytes: u64,
    /// Number of tables with a correct checksum. Only an [`Inspection`] reads tables.
    pub tables: u64,
    /// Size of these tables, in bytes.
    pub table_bytes: u64,
    /// Descriptions of logs with an incomplete last batch. A crash may leave such a log; the batch was then not
    /// acknowledged as durable. A damaged last batch has the same form, so missing acknowledged writes may have been in
    /// it.
    pub torn_ends: Vec<String>,
    /// Description of the damage, one sentence per item; empty if nothing is damaged.
    pub findings: Vec<String>,
}

/// Checks a data folder that no process uses, and its cold folder: `cold` inside it, or `cold_dir`. Changes nothing in
/// them.
///
/// The blocks of tables are not checked here; fjall checks each block that it reads.
///
/// # Errors
///
/// `Misconfigured` if `folder` is not a data folder, has an unsupported format, or is in use, or if its cold folder is
/// in use. An error of the file system if the format, a list or a lock file cannot be read. Damage and other unreadable
/// files are not errors: the report lists them.
pub fn verify(folder: &Path, cold_dir: Option<&Path>) -> Result<VerifyReport> {
    Ok(verify_locked(folder, cold_dir)?.report)
}

/// Result of a verification whose folders stay locked.
#[derive(Debug)]
struct Verified {
    report: VerifyReport,
    /// Folder of the cold store, if it has been created.
    cold: Option<PathBuf>,
    _locks: [Option<FolderLock>; 2],
}

fn verify_locked(folder: &Path, cold_dir: Option<&Path>) -> Result<Verified> {
    let Some(format) = Format::read(folder)? else {
        return Err(BackendError::Misconfigured {
            reason: format!("{} is not a data folder", folder.display()),
        });
    };
    let lock = FolderLock::hold(folder)?;
    let mut report = VerifyReport::default();
    let list = KeyspaceList::read(folder, Tier::Hot).map_err(at(folder))?;
    report.store(folder, list, Tier::Hot);
    let mut locks = [lock, None];
    let mut cold = None;
    if let Some(root) = verify_cold(folder, cold_dir, format, &mut report)? {
        locks[1] = FolderLock::hold(&root)?;
        let list = KeyspaceList::read(folder, Tier::Cold).map_err(at(folder))?;
        report.store(&root, list, Tier::Cold);
        cold = Some(root);
    }
    match journal::survey(&folder.join(JOURNAL)) {
        Ok(survey) => {
            report.journal_entries = survey.entries;
            report.journal_bytes = survey.bytes;
            report.findings.extend(survey.findings());
        }
        Err(error) => report.findings.push(error.to_string()),
    }
    match journal::history_findings(&folder.join(journal::HISTORY), &folder.join(JOURNAL)) {
        Ok(findings) => report.findings.extend(findings),
        Err(error) => report.findings.push(error.to_string()),
    }
    Ok(Verified {
        report,
        cold,
        _locks: locks,
    })
}

/// Returns the folder of the cold store, if it has been created. Adds a finding if the store is missing or the folder
/// is not valid.
fn verify_cold(
    folder: &Path,
    cold_dir: Option<&Path>,
    format: Format,
    report: &mut VerifyReport,
) -> Result<Option<PathBuf>> {
    let cold = Cold::root(folder, cold_dir);
    let error = match ColdFolderState::of(folder, &cold, format) {
        Ok(ColdFolderState::Made) => return Ok(Some(cold)),
        Ok(ColdFolderState::Unmade) => return Ok(None),
        Ok(ColdFolderState::Missing(missing)) => missing.error(),
        Err(error) => error,
    };
    report.findings.push(error.to_string());
    Ok(None)
}

impl VerifyReport {
    /// Checks the store of a tier and adds the results.
    fn store(&mut self, root: &Path, list: Option<KeyspaceList>, tier: Tier) {
        let list = list.unwrap_or_else(|| {
            self.findings
                .push(format!("the list of {tier} keyspaces is missing or damaged"));
            KeyspaceList::of(tier, Vec::new())
        });
        match check_store(root, &list) {
            Ok(checked) => {
                self.keyspaces += checked.keyspaces;
                self.log_batches += checked.log.batches;
                self.torn_ends.extend(checked.log.torn_end());
                self.findings
                    .extend(checked.log.damage().map(ToString::to_string));
            }
            Err(error) => self.findings.push(error.to_string()),
        }
    }
}

/// Result of the checks of a store without damage outside its log.
#[derive(Debug)]
pub(crate) struct Checked {
    keyspaces: u64,
    pub(crate) log: Log,
}

/// Checks the version files, the presence of every listed keyspace, and fjall's log.
pub(crate) fn check_store(root: &Path, expected: &KeyspaceList) -> Result<Checked> {
    let store = root.join(STORE);
    let keyspaces = store.join(KEYSPACES);
    for number in expected.numbers().chain([META]) {
        let path = keyspaces.join(number.to_string());
        if !path.join(CURRENT).try_exists().map_err(at(&path))? {
            return Err(BackendError::corrupt(format!("{} is missing", path.display())));
        }
    }
    let mut count = 0;
    for path in list(&keyspaces).map_err(at(&keyspaces))? {
        // A keyspace that is being created or dropped does not have this file.
        if path.join(CURRENT).try_exists().map_err(at(&path))? {
            check_version(&path)?;
            count += 1;
        }
    }
    Ok(Checked {
        keyspaces: count,
        log: wal::check(&store)?,
    })
}

/// Verifies the checksum of the version file that the file `current` names. Returns the path of the version file.
fn check_version(keyspace: &Path) -> Result<PathBuf> {
    let current_path = keyspace.join(CURRENT);
    let current = fs::read(&current_path).map_err(at(&current_path))?;
    let damaged = |what: &str| BackendError::corrupt(format!("{} {what}", current_path.display()));
    let current: [u8; CURRENT_BYTES] = current.try_into().map_err(|_| damaged("has a wrong length"))?;
    let (version, checksum) = current.split_at(8);
    let (checksum, kind) = checksum.split_at(16);
    let version = version
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte));
    let path = keyspace.join(format!("v{version}"));
    let content = fs::read(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => damaged("names a version file that does not exist"),
        // Not damage: a file that cannot be opened now may still exist.
        _ => at(&path)(error),
    })?;
    if kind != [0] || checksum != xxh3_128(&content).to_le_bytes() {
        return Err(damaged("does not match the version file"));
    }
    Ok(path)
}
