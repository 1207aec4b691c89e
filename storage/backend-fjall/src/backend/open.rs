//! Opens a data folder: lock, first boot, checks, then the engine.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::{Mutex, RwLock};
use tideline_backend::{BackendError, BatchScope, Capabilities, DurabilityLevel, PageLimit, Reclaim, Result};

use super::{FjallBackend, Inner, Keeper};
use crate::engine::Engine;
use crate::error::{During, at, from_fjall, from_io};
use crate::files::{FreeSpace, list, remove_folder, replace, sync_folder};
use crate::highwater::{HighWater, Marks, Remembered};
use crate::journal::Journals;
use crate::keyspace_list::KeyspaceList;
use crate::ledger::Ledger;
use crate::lock::FolderLock;
use crate::options::FjallOptions;
use crate::safety::{self, SAFETY};
use crate::segments::GroupLocks;
use crate::verify::check_store;

/// The folder of fjall.
pub(crate) const STORE: &str = "store";
/// The folder of the journals.
pub(crate) const JOURNAL: &str = "journal";
/// The file that names the format of the data folder.
pub(crate) const FORMAT_FILE: &str = "FORMAT";
/// The content of [`FORMAT_FILE`].
const FORMAT: &str = "tideline-fjall 1\n";
/// Where the store is made before it is there.
const STORE_CREATING: &str = "store.creating";

impl FjallBackend {
    /// Opens a data folder, or makes one. Checks everything that can be checked quickly.
    ///
    /// `Misconfigured` if another process uses it or its format is unknown, `Corrupt` if stored bytes are not what
    /// was written. If less is there than was acknowledged, it opens read-only; see [`FjallOptions::accept_loss`].
    pub fn open(folder: &Path, options: FjallOptions) -> Result<Self> {
        fs::create_dir_all(folder).map_err(at(folder))?;
        let lock = FolderLock::take(folder)?;
        make_store(folder, &options)?;
        let journals = Journals::open(&folder.join(JOURNAL))?;
        let (engine, keyspaces) = open_engine(folder, &options)?;
        let ledger = Ledger::read(&engine)?;
        let (high_water, loss) = compare(folder, &ledger, &journals, &options)?;
        let inner = Arc::new(Inner {
            folder: folder.to_owned(),
            capabilities: capabilities(),
            lock: Mutex::new(Some(lock)),
            free_space: FreeSpace::new(folder, &options),
            engine: RwLock::new(Some(engine)),
            ledger: Mutex::new(ledger),
            journals,
            groups: GroupLocks::default(),
            keyspaces: Mutex::new(keyspaces),
            high_water,
            poison: Mutex::new(None),
            journal_failure: Mutex::new(None),
            has_safety: AtomicBool::new(true),
            loss: Mutex::new(loss),
            is_closed: AtomicBool::new(false),
            options,
        });
        let keeper =
            Keeper::start(&inner).map_err(|error| from_io(&error, "the keeper's thread", During::Read))?;
        Ok(Self { inner, keeper })
    }
}

fn capabilities() -> Capabilities {
    Capabilities {
        name: "fjall",
        batch_scope: BatchScope::Database,
        snapshot_reads: false,
        shared: false,
        durability: DurabilityLevel::Synced,
        reclaim: Reclaim::AtOnce,
        page_advice: PageLimit {
            rows_max: 4_096,
            bytes_max: 2 << 20,
        },
    }
}

/// Makes the store in a folder beside its place and renames it, so that a half-made one is never opened: fjall
/// refuses for ever what a kill in its first milliseconds leaves behind.
fn make_store(folder: &Path, options: &FjallOptions) -> Result<()> {
    let format = folder.join(FORMAT_FILE);
    let store = folder.join(STORE);
    let creating = folder.join(STORE_CREATING);
    let is_made = store.try_exists().map_err(at(&store))?;
    match fs::read_to_string(&format) {
        Ok(found) if found == FORMAT => {}
        Ok(found) => {
            return Err(BackendError::Misconfigured {
                reason: format!("{} has format {found:?}", folder.display()),
            });
        }
        Err(_) if is_made => {
            return Err(BackendError::corrupt(format!("{} is missing", format.display())));
        }
        Err(_) => replace(folder, &[FORMAT_FILE], FORMAT.as_bytes()).map_err(at(&format))?,
    }
    remove_folder(&creating).map_err(at(&creating))?;
    if is_made {
        return Ok(());
    }
    let journal = folder.join(JOURNAL);
    if !list(&journal).map_err(at(&journal))?.is_empty() {
        return Err(BackendError::corrupt(format!(
            "{} is missing, but there is a journal",
            store.display()
        )));
    }
    let engine = Engine::open(&creating, options).map_err(|error| from_fjall(error, During::Read))?;
    engine.sync().map_err(|error| from_fjall(error, During::Read))?;
    KeyspaceList::of(engine.keyspaces())
        .write(folder)
        .map_err(at(folder))?;
    drop(engine);
    sync_folder(&creating)
        .and_then(|()| fs::rename(&creating, &store))
        .and_then(|()| sync_folder(folder))
        .map_err(at(&store))
}

/// Opens fjall between two checks: its files before, its keyspaces after. Meanwhile a copy lies aside; the keeper
/// removes it, since that takes longer than the rest where there are many groups.
pub(super) fn open_engine(folder: &Path, options: &FjallOptions) -> Result<(Engine, KeyspaceList)> {
    let store = folder.join(STORE);
    let list = KeyspaceList::read(folder).map_err(at(folder))?;
    if list.is_none() && !options.accept_loss {
        return Err(BackendError::corrupt(
            "both lists of keyspaces are missing or damaged",
        ));
    }
    let mut list = list.unwrap_or_default();
    check_store(folder, &list)?;
    safety::make(folder, &store).map_err(at(&store))?;
    let engine = Engine::open(&store, options).map_err(|error| from_fjall(error, During::Read))?;
    let opened = engine.keyspaces();
    if let Some(missing) = list.missing_in(&opened) {
        return Err(BackendError::corrupt(format!(
            "{missing} is gone; its files are in {}",
            folder.join(SAFETY).display()
        )));
    }
    if KeyspaceList::of(opened.clone())
        .missing_in(&list.entries())
        .is_some()
    {
        list = KeyspaceList::of(opened);
        list.write(folder).map_err(at(folder))?;
    }
    Ok((engine, list))
}

/// Compares what is there with what had been acknowledged. Returns what is missing.
fn compare(
    folder: &Path,
    ledger: &Ledger,
    journals: &Journals,
    options: &FjallOptions,
) -> Result<(HighWater, Option<String>)> {
    let failed = |error| from_io(&error, "the high-water mark", During::Read);
    let (high_water, remembered) = HighWater::open(folder).map_err(failed)?;
    let mut found = Marks {
        commits: ledger.commits,
        ..Marks::default()
    };
    for journal in journals.all() {
        found.journals.extend(journal.lock().marks());
    }
    let missing = match remembered {
        Remembered::Marks(marks) => marks.missing_in(&found),
        Remembered::Missing if found == Marks::default() => {
            high_water.reset(folder, found.clone()).map_err(failed)?;
            None
        }
        Remembered::Missing => Some("the high-water mark itself".to_owned()),
        Remembered::Damaged => Some("the high-water mark, which is damaged".to_owned()),
    };
    match missing {
        Some(missing) if options.accept_loss => {
            tracing::error!(
                missing,
                "an operator accepts that something acknowledged is missing"
            );
            high_water.reset(folder, found).map_err(failed)?;
            Ok((high_water, None))
        }
        Some(missing) => {
            tracing::error!(missing, "something acknowledged is missing: read-only");
            Ok((high_water, Some(missing)))
        }
        None => Ok((high_water, None)),
    }
}
