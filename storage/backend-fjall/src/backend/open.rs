//! Opening of a data folder: lock, checks, creation at the first start, then the engines.
//!
//! The checks run before anything in the folder is changed. If acknowledged data is missing, the backend opens
//! read-only on a copy, unless an operator accepts the loss.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use tideline_backend::{Acknowledged, BackendError, Capabilities, Medium, PageLimit, Result};
use tideline_model::{Durability, Tier};

use super::assess::{Assessment, Lacking, assess, found, mark_failed, missing};
use super::{FjallBackend, Inner, Maintenance};
use crate::cold::Cold;
use crate::copy::Scratch;
use crate::error::{During, at, from_fjall, from_io};
use crate::files::list;
use crate::format::{FORMAT_FILE, FolderFormat, Format};
use crate::highwater::{HighWater, StoredMarks};
use crate::journal::Journals;
use crate::lock::FolderLock;
use crate::options::{FjallOptions, Setup};
use crate::shard_state::{ShardState, settle_counts};
use crate::store::{STORE, Store, StoreLocation};

/// Name of the folder of the journals, inside the data folder.
pub(crate) const JOURNAL: &str = "journal";

impl FjallBackend {
    /// Opens a data folder, and creates it if it does not exist. Checks fjall's version files and write-ahead logs, the
    /// lists of keyspaces, and the journals, but not the contents of fjall's table files.
    ///
    /// If acknowledged data is missing, the backend opens read-only; see [`FjallOptions::accept_loss`].
    ///
    /// # Errors
    ///
    /// - `Misconfigured` if another process uses the folder, its format is not supported, or the cold folder is missing
    ///   or belongs to another data folder;
    /// - `Corrupt` if stored bytes differ from the written data, or a required file is missing;
    /// - `Unavailable` if the file system fails.
    pub fn open(folder: &Path, options: FjallOptions) -> Result<Self> {
        fs::create_dir_all(folder).map_err(at(folder))?;
        let held = FolderLock::hold(folder)?;
        // If an operator accepts a loss, the folder may be changed immediately, so it is not assessed.
        let sound = match options.accept_loss {
            true => Box::default(),
            false => match assess(folder, &options)? {
                Assessment::Complete(sound) => sound,
                Assessment::Lacking(lacking) => return Self::open_read_only(*lacking, held, options),
            },
        };
        let lock = FolderLock::take(folder, held)?;
        let location = StoreLocation {
            root: folder.to_owned(),
            lists: folder.to_owned(),
        };
        let hot = Store::unmade(location, Setup::of(Tier::Hot, &options), &options, folder);
        let format = Arc::new(FolderFormat::new(folder, make_store(folder, &hot)?));
        let cold = Cold::open(folder, &format, sound.cold, &options)?;
        let journals = match sound.journals {
            Some(journals) => journals,
            None => Journals::judge(&folder.join(JOURNAL), folder, options.accept_loss)?,
        };
        journals.settle()?;
        let first_commit = hot.open(sound.hot)?;
        let mut shard_state = ShardState::read(&*hot.opened()?)?;
        shard_state.check_flushed(&*hot.opened()?, first_commit)?;
        let (high_water, loss) = compare(folder, &hot, &mut shard_state, &cold, &journals, &options)?;
        let inner = Arc::new(Inner {
            capabilities: capabilities(),
            lock: Mutex::new(Some(lock)),
            format,
            hot,
            cold,
            shard_state: Mutex::new(shard_state),
            journals,
            high_water,
            journal_failure: Mutex::new(None),
            loss: Mutex::new(loss),
            is_closed: AtomicBool::new(false),
            options,
            scratch: None,
        });
        Self::start(inner)
    }

    /// Opens the remaining data of a folder for reading, without changing anything in the folder.
    fn open_read_only(lacking: Lacking, lock: Option<FolderLock>, options: FjallOptions) -> Result<Self> {
        let missing = lacking.missing;
        tracing::error!(missing, "acknowledged data is missing: the store is read-only");
        Self::start(Arc::new(Inner {
            capabilities: capabilities(),
            lock: Mutex::new(lock),
            format: lacking.format,
            hot: lacking.hot,
            cold: lacking.cold,
            shard_state: Mutex::new(lacking.shard_state),
            journals: lacking.journals,
            high_water: lacking.high_water,
            journal_failure: Mutex::new(None),
            loss: Mutex::new(Some(missing)),
            is_closed: AtomicBool::new(false),
            options,
            scratch: Some(lacking.scratch),
        }))
    }

    fn start(inner: Arc<Inner>) -> Result<Self> {
        let maintenance = Maintenance::start(&inner)
            .map_err(|error| from_io(&error, "the maintenance thread", During::Read))?;
        Ok(Self { inner, maintenance })
    }

    /// Returns the folder for temporary files of the process while the data folder must stay unchanged; `None` if the
    /// data folder may be written to.
    pub fn scratch(&self) -> Option<&Path> {
        self.inner.scratch.as_ref().map(Scratch::path)
    }
}

fn capabilities() -> Capabilities {
    Capabilities {
        engine: "fjall",
        acknowledged: Acknowledged::Synced,
        is_shared: false,
        medium: Medium::Folder,
        buffers_writes: true,
        limits_free_space: true,
        frees_at_once: true,
        has_offline_check: true,
        page_advice: PageLimit {
            rows_max: 4_096,
            bytes_max: 2 << 20,
        },
        requests_in_flight: 1,
    }
}

/// Checks the format of the folder, and creates the hot store at a first start. A store without its format, or a
/// journal without its store, is damage.
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
        None => Format::default(),
    };
    if is_made {
        hot.remove_leftovers()?;
        return Ok(format);
    }
    let journal = folder.join(JOURNAL);
    if !list(&journal).map_err(at(&journal))?.is_empty() {
        return Err(BackendError::corrupt(format!(
            "{} is missing, but there is a journal",
            store.display()
        )));
    }
    if Format::read(folder)?.is_none() {
        format.write(folder)?;
    }
    hot.make()?;
    Ok(format)
}

/// Compares the existing data with the acknowledged data. Returns the high-water mark and a description of the missing
/// data; `None` if nothing is missing, or if an operator accepts the loss.
fn compare(
    folder: &Path,
    hot: &Store,
    shard_state: &mut ShardState,
    cold: &Cold,
    journals: &Journals,
    options: &FjallOptions,
) -> Result<(HighWater, Option<String>)> {
    let failed = |error| mark_failed(&error);
    let (high_water, remembered) = HighWater::open(folder).map_err(failed)?;
    let found = found(shard_state, cold, journals, &remembered)?;
    cold.count_from(remembered.marks().map_or(0, |marks| marks.cold_loads))?;
    let missing = missing(&remembered, &found);
    let mut found = found.marks;
    match missing {
        Some(missing) if options.accept_loss => {
            tracing::error!(missing, "an operator accepts the loss of acknowledged data");
            // Counts one more commit in all keyspaces, so that their commit counts are equal again.
            let has_parts = hot.opened()?.parts().is_some();
            let durability = Durability::Synced;
            let counted = hot
                .opened()?
                .commit(shard_state.next_commit(has_parts, durability), durability);
            counted.map_err(|error| from_fjall(error, During::Write))?;
            found.commits = shard_state.committed(has_parts, durability);
            found.cold_loads = cold.count_again()?.unwrap_or(found.cold_loads);
            // After a flush, tables hold all rows, so a missing log is no longer an error.
            let flushed = hot.opened()?.flush_rows();
            flushed.map_err(|error| from_fjall(error, During::Write))?;
            high_water.reset(folder, found).map_err(failed)?;
            Ok((high_water, None))
        }
        Some(missing) => {
            tracing::error!(missing, "acknowledged data is missing: the store is read-only");
            Ok((high_water, Some(missing)))
        }
        None => {
            if remembered == StoredMarks::Missing {
                high_water.reset(folder, found).map_err(failed)?;
            }
            settle_counts(&*hot.opened()?, shard_state)?;
            cold.settle_counts()?;
            Ok((high_water, None))
        }
    }
}
