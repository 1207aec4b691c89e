//! Checks a store before fjall is let near it.
//!
//! fjall stores a checksum of each version file and never reads it back, and it deletes what its version files do not
//! name. So a flipped bit there is data loss at the next open. These checks read a few kilobytes for each keyspace and
//! the logs; they run at every open. [`Inspection`] reads everything, of a store that nobody uses.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tideline_backend::{BackendError, Result};
use tideline_model::Tier;
use xxhash_rust::xxh3::xxh3_128;

use crate::backend::JOURNAL;
use crate::cold::{Cold, Standing};
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
/// The file that names a keyspace's version file: number, xxh3-128 of it, kind of checksum.
pub(crate) const CURRENT: &str = "current";
const CURRENT_BYTES: usize = 25;
/// fjall's own keyspace, which names all others.
const META: u64 = 0;

/// What [`verify`] has seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Keyspaces whose version file is what was written.
    pub keyspaces: u64,
    /// Intact batches in fjall's logs.
    pub log_batches: u64,
    /// Intact entries in the journals.
    pub journal_entries: u64,
    /// Bytes of the journals.
    pub journal_bytes: u64,
    /// Tables whose bytes are what was written; only an [`Inspection`] reads them.
    pub tables: u64,
    /// Their bytes.
    pub table_bytes: u64,
    /// Logs whose last batch is not whole: a crash leaves that, and nobody was promised that batch. Where acknowledged
    /// writes are missing, it is where to look.
    pub torn_ends: Vec<String>,
    /// What is damaged, one sentence each; empty if nothing is.
    pub findings: Vec<String>,
}

/// Checks a data folder that no process uses, and its cold folder: `cold` inside it, or `cold_dir`. Changes nothing in
/// them.
///
/// Not checked: the blocks of tables, which fjall checks whenever it reads one.
pub fn verify(folder: &Path, cold_dir: Option<&Path>) -> Result<VerifyReport> {
    Ok(verify_locked(folder, cold_dir)?.report)
}

/// What was verified, and is locked.
#[derive(Debug)]
struct Verified {
    report: VerifyReport,
    /// The folder of the cold store, if it has been made.
    cold: Option<PathBuf>,
    _locks: [Option<FolderLock>; 2],
}

fn verify_locked(folder: &Path, cold_dir: Option<&Path>) -> Result<Verified> {
    let Some(format) = Format::read(folder)? else {
        return Err(BackendError::Misconfigured {
            reason: format!("{} is no data folder", folder.display()),
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
    Ok(Verified {
        report,
        cold,
        _locks: locks,
    })
}

/// The folder of the cold store, if it has been made.
fn verify_cold(
    folder: &Path,
    cold_dir: Option<&Path>,
    format: Format,
    report: &mut VerifyReport,
) -> Result<Option<PathBuf>> {
    let cold = Cold::root(folder, cold_dir);
    let error = match Standing::of(folder, &cold, format) {
        Ok(Standing::Made) => return Ok(Some(cold)),
        Ok(Standing::Unmade) => return Ok(None),
        Ok(Standing::Missing(missing)) => missing.error(),
        Err(error) => error,
    };
    report.findings.push(error.to_string());
    Ok(None)
}

impl VerifyReport {
    /// Checks the store of a tier and adds what has been seen.
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

/// A store in which no damage has been found.
#[derive(Debug)]
pub(crate) struct Checked {
    keyspaces: u64,
    pub(crate) log: Log,
}

/// Checks version files, the presence of every listed keyspace, and fjall's log.
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
        // A keyspace that is being made or dropped has no such file yet, or no more.
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

/// Recomputes the checksum of the version file that `current` names; its path.
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
        io::ErrorKind::NotFound => damaged("names a version that is not there"),
        // Not damage: a file that cannot be opened just now may be there.
        _ => at(&path)(error),
    })?;
    if kind != [0] || checksum != xxh3_128(&content).to_le_bytes() {
        return Err(damaged("does not fit the version file"));
    }
    Ok(path)
}
