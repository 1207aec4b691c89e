//! Opens a data folder: lock, first boot, checks, then the engine.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use tideline_backend::{BackendError, BatchScope, Capabilities, DurabilityLevel, PageLimit, Reclaim, Result};
use tideline_model::Tier;

use super::{FjallBackend, Inner, Keeper};
use crate::cold::Cold;
use crate::error::{During, at, from_fjall, from_io};
use crate::files::list;
use crate::format::{FORMAT_FILE, Format};
use crate::highwater::{HighWater, Marks, Remembered};
use crate::journal::Journals;
use crate::ledger::Ledger;
use crate::lock::FolderLock;
use crate::options::{FjallOptions, Setup};
use crate::store::{Place, STORE, Store};

/// The folder of the journals.
pub(crate) const JOURNAL: &str = "journal";

impl FjallBackend {
    /// Opens a data folder, or makes one. Checks everything that can be checked quickly.
    ///
    /// `Misconfigured` if another process uses it, its format is unknown, or the cold folder is another's or missing;
    /// `Corrupt` if stored bytes are not what was written. If less is there than was acknowledged, it opens read-only;
    /// see [`FjallOptions::accept_loss`].
    pub fn open(folder: &Path, options: FjallOptions) -> Result<Self> {
        fs::create_dir_all(folder).map_err(at(folder))?;
        let lock = FolderLock::take(folder)?;
        let place = Place {
            root: folder.to_owned(),
            lists: folder.to_owned(),
        };
        let hot = Store::unmade(place, Setup::of(Tier::Hot, &options), &options, folder);
        let format = make_store(folder, &hot)?;
        let cold = Cold::open(folder, format, &options)?;
        let journals = Journals::open(&folder.join(JOURNAL), folder, options.accept_loss)?;
        hot.open()?;
        let mut ledger = Ledger::read(&*hot.opened()?)?;
        let (high_water, loss) = compare(folder, &hot, &mut ledger, &cold, &journals, &options)?;
        let inner = Arc::new(Inner {
            capabilities: capabilities(),
            lock: Mutex::new(Some(lock)),
            hot,
            cold,
            ledger: Mutex::new(ledger),
            journals,
            high_water,
            journal_failure: Mutex::new(None),
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

/// Checks what the folder is, and makes the hot store at a first start. A store without its format, or a journal
/// without its store, is damage.
fn make_store(folder: &Path, hot: &Store) -> Result<Format> {
    let store = folder.join(STORE);
    let is_made = store.try_exists().map_err(at(&store))?;
    let format = match Format::read(folder)? {
        Some(format) => format,
        None if is_made => {
            return Err(BackendError::corrupt(format!(
                "{} is missing",
                folder.join(FORMAT_FILE).display()
            )));
        }
        None => {
            Format::Hot.write(folder)?;
            Format::Hot
        }
    };
    hot.sweep()?;
    if is_made {
        return Ok(format);
    }
    let journal = folder.join(JOURNAL);
    if !list(&journal).map_err(at(&journal))?.is_empty() {
        return Err(BackendError::corrupt(format!(
            "{} is missing, but there is a journal",
            store.display()
        )));
    }
    hot.make()?;
    Ok(format)
}

/// Compares what is there with what had been acknowledged. Returns what is missing.
fn compare(
    folder: &Path,
    hot: &Store,
    ledger: &mut Ledger,
    cold: &Cold,
    journals: &Journals,
    options: &FjallOptions,
) -> Result<(HighWater, Option<String>)> {
    let failed = |error| from_io(&error, "the high-water mark", During::Read);
    let (high_water, remembered) = HighWater::open(folder).map_err(failed)?;
    let remembered_loads = match &remembered {
        Remembered::Marks(marks) => marks.cold_loads,
        Remembered::Missing | Remembered::Damaged => 0,
    };
    let found_loads = cold.found_loads()?;
    cold.count_from(remembered_loads)?;
    let mut found = Marks {
        commits: ledger.complete(),
        cold_loads: found_loads.unwrap_or(remembered_loads),
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
    let missing = ledger.lacking().map(str::to_owned).or(missing);
    match missing {
        Some(missing) if options.accept_loss => {
            tracing::error!(
                missing,
                "an operator accepts that something acknowledged is missing"
            );
            // Counts what is there in both keyspaces again.
            let counted = hot.opened()?.commit(ledger.next_commit().into());
            counted.map_err(|error| from_fjall(error, During::Write))?;
            found.commits = ledger.committed();
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
