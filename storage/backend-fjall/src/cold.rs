//! The store of cold segments and parts, and its folder: inside the data folder, or on another disk.
//!
//! It is made for the first cold segment or part. The steps are ordered so that a kill between any two leaves a folder that
//! opens: the data folder gets its id, the cold folder gets the same, the store is made aside, its list of keyspaces
//! is written, the store is renamed to its place. Only then is anything put into it. So a list that names more than
//! rows and manifest proves that there was a whole store, and without one the start is refused: its disk is not mounted, or it has been
//! moved.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tideline_backend::{BackendError, Result, Row, SegmentRef};
use tideline_model::{Durability, Tier};

use crate::copy::Scratch;
use crate::engine::{Change, Engine};
use crate::error::at;
use crate::format::{FolderFormat, FolderId, Format, read_owner, write_owner};
use crate::highwater::HighWater;
use crate::keyspace_list::KeyspaceList;
use crate::ledger::{Ledger, settle_counts};
use crate::lock::FolderLock;
use crate::options::{FjallOptions, Setup};
use crate::store::{EngineGuard, Place, STORE, Store};
use crate::verify::Checked;

/// The cold folder, unless another is named.
const COLD: &str = "cold";

/// The store of cold segments and parts.
#[derive(Debug)]
pub(crate) struct Cold {
    pub(crate) store: Store,
    /// The format of the data folder.
    format: Arc<FolderFormat>,
    root: PathBuf,
    /// The lock of the cold folder, once it is used. Locked itself while the store is made.
    lock: Mutex<Option<FolderLock>>,
    /// Counts loads, and writes to parts. Locked while one is counted.
    ledger: Mutex<Ledger>,
}

/// How a cold folder is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// There is no store, and nothing is missed.
    Unmade,
    /// There is a store, and it is this data folder's.
    Made,
    /// There is no store, but there was one with something in it.
    Missing(Missing),
}

/// What is known of a store that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Missing {
    root: PathBuf,
    /// How many keyspaces of segments or parts were in it; `None` if their list is damaged.
    keyspaces: Option<usize>,
}

impl Cold {
    /// The cold folder of a data folder.
    pub(crate) fn root(data_folder: &Path, cold_dir: Option<&Path>) -> PathBuf {
        cold_dir.map_or_else(|| data_folder.join(COLD), Path::to_owned)
    }

    /// The cold folder of a data folder, which is there if the settings name one.
    pub(crate) fn checked_root(data_folder: &Path, options: &FjallOptions) -> Result<PathBuf> {
        let root = Self::root(data_folder, options.cold_dir.as_deref());
        if options.cold_dir.is_some() && !root.is_dir() {
            return Err(BackendError::Misconfigured {
                reason: format!(
                    "the cold folder {} is not there: make it, or mount its disk",
                    root.display()
                ),
            });
        }
        Ok(root)
    }

    /// Opens a copy of the store in `scratch`, if it has been made, and keeps other processes away from `root`.
    pub(crate) fn open_copy(
        scratch: &Scratch,
        root: &Path,
        format: &Arc<FolderFormat>,
        is_made: bool,
        options: &FjallOptions,
    ) -> Result<Self> {
        let place = Place {
            root: scratch.cold(),
            lists: scratch.path().to_owned(),
        };
        let lock = match is_made {
            true => FolderLock::hold(root)?,
            false => None,
        };
        let disk = if root.is_dir() { root } else { scratch.path() };
        let cold = Self {
            store: Store::unmade(place, Setup::of(Tier::Cold, options), options, disk),
            format: Arc::clone(format),
            root: scratch.cold(),
            lock: Mutex::new(lock),
            ledger: Mutex::new(Ledger::of(Tier::Cold)),
        };
        if is_made {
            cold.store.open(None)?;
        }
        Ok(cold)
    }

    /// Opens the store, if it has been made, and whose files have perhaps been `checked` already. Refuses a folder that
    /// is another's, and the lack of one that had something in it.
    pub(crate) fn open(
        data_folder: &Path,
        format: &Arc<FolderFormat>,
        checked: Option<Checked>,
        options: &FjallOptions,
    ) -> Result<Self> {
        let root = Self::checked_root(data_folder, options)?;
        let is_named = options.cold_dir.is_some();
        let mut standing = Standing::of(data_folder, &root, format.get())?;
        if let Standing::Missing(missing) = &standing {
            if !options.accept_loss {
                return Err(missing.error());
            }
            tracing::error!(error = %missing.error(), "an operator accepts that cold segments are missing");
            KeyspaceList::of(Tier::Cold, Vec::new())
                .write(data_folder)
                .map_err(at(data_folder))?;
            standing = Standing::Unmade;
        }
        let is_made = standing == Standing::Made;
        let disk = if is_named { &root } else { data_folder };
        let place = Place {
            root: root.clone(),
            lists: data_folder.to_owned(),
        };
        let lock = (is_named || is_made)
            .then(|| FolderLock::take(&root, None))
            .transpose()?;
        let cold = Self {
            store: Store::unmade(place, Setup::of(Tier::Cold, options), options, disk),
            format: Arc::clone(format),
            root,
            lock: Mutex::new(lock),
            ledger: Mutex::new(Ledger::of(Tier::Cold)),
        };
        if is_made {
            cold.store.sweep()?;
            cold.store.open(checked)?;
        }
        Ok(cold)
    }

    /// Loads one bucket of a segment. The first load makes the store.
    ///
    /// Loads are counted in the store before they begin, and remembered in the data folder when they are done: so a
    /// store that is older than what was acknowledged is noticed, and a crash between the two is no such case.
    pub(crate) fn load(
        &self,
        segment: SegmentRef,
        bucket: u16,
        rows: &mut dyn Iterator<Item = Result<Row>>,
        high_water: &HighWater,
    ) -> Result<()> {
        self.require_made()?;
        let number = self.commit(&*self.store.opened()?, Vec::new(), Durability::Synced)?;
        self.store.load(segment, bucket, rows)?;
        high_water.note_cold_load(number);
        Ok(())
    }

    /// Writes rows of parts. The first write makes the store. It is counted as a load is, in the batch of the rows.
    pub(crate) fn write_part(
        &self,
        rows: Vec<Change>,
        durability: Durability,
        high_water: &HighWater,
    ) -> Result<()> {
        self.require_made()?;
        let engine = self.store.opened()?;
        self.store.begin_parts(&engine)?;
        let number = self.commit(&engine, rows, durability)?;
        if durability == Durability::Synced {
            high_water.note_cold_load(number);
        }
        Ok(())
    }

    /// Makes buffered rows durable.
    pub(crate) fn sync_rows(&self, high_water: &HighWater) -> Result<()> {
        let number = self.ledger.lock().commits();
        self.store.sync_rows()?;
        self.ledger.lock().note_durable(number);
        high_water.note_cold_load(number);
        Ok(())
    }

    /// The count of loads and writes so far, all of them durable after a close.
    pub(crate) fn counted(&self) -> u64 {
        self.ledger.lock().commits()
    }

    /// Commits changes and counts them; the count.
    fn commit(&self, engine: &Engine, mut changes: Vec<Change>, durability: Durability) -> Result<u64> {
        let mut ledger = self.ledger.lock();
        if durability == Durability::Synced && ledger.has_buffered() {
            engine.sync().map_err(|error| self.store.failed(error))?;
            let counted = ledger.commits();
            ledger.note_durable(counted);
        }
        let has_parts = engine.parts().is_some();
        changes.extend(ledger.next_commit(has_parts, durability));
        engine
            .commit(changes, durability)
            .map_err(|error| self.store.failed(error))?;
        if durability == Durability::Buffered {
            self.store.note_buffered();
        }
        Ok(ledger.committed(has_parts, durability))
    }

    /// The counts that the store holds, where they matter: where nothing is left, nothing can be missing.
    pub(crate) fn found(&self) -> Result<Option<Ledger>> {
        match self.store.engine()? {
            Some(engine) if self.store.filled() > 0 => Ok(Some(Ledger::read(&engine)?)),
            _ => Ok(None),
        }
    }

    /// Continues the count where the data folder or the store has stopped, whichever has more.
    pub(crate) fn count_from(&self, remembered: u64) -> Result<()> {
        let mut ledger = match self.store.engine()? {
            Some(engine) => Ledger::read(&engine)?,
            None => Ledger::of(Tier::Cold),
        };
        ledger.count_from(remembered);
        *self.ledger.lock() = ledger;
        Ok(())
    }

    /// Counts again in all keyspaces where they differ without a loss.
    pub(crate) fn settle_counts(&self) -> Result<()> {
        match self.store.engine()? {
            Some(engine) => settle_counts(&engine, &mut self.ledger.lock()),
            None => Ok(()),
        }
    }

    /// Counts in all keyspaces again, after a loss that was accepted; the count. `None` if there is no store.
    pub(crate) fn count_again(&self) -> Result<Option<u64>> {
        let engine = self.store.engine()?;
        let commit = |engine: EngineGuard<'_>| self.commit(&engine, Vec::new(), Durability::Synced);
        engine.map(commit).transpose()
    }

    /// Syncs and closes.
    pub(crate) fn close(&self) -> Result<()> {
        let closed = self.store.close();
        *self.lock.lock() = None;
        closed
    }

    /// Makes the store if it has not been made.
    fn require_made(&self) -> Result<()> {
        if self.store.engine()?.is_some() {
            return Ok(());
        }
        let mut lock = self.lock.lock();
        if self.store.engine()?.is_some() {
            return Ok(());
        }
        let root = &self.root;
        let id = self.format.require_id()?;
        match fs::create_dir(root) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(at(root)(error)),
            _ => {}
        }
        if lock.is_none() {
            *lock = Some(FolderLock::take(root, None)?);
        }
        match read_owner(root)? {
            None => write_owner(root, id)?,
            Some(owner) => check_owner(root, owner, Some(id))?,
        }
        self.store.make()?;
        self.store.open(None)?;
        tracing::info!(folder = %root.display(), "the store of cold segments has been made");
        Ok(())
    }
}

impl Standing {
    /// Looks at a cold folder, and at what the data folder remembers of it. An error if it is another's.
    pub(crate) fn of(data_folder: &Path, root: &Path, format: Format) -> Result<Self> {
        let owner = read_owner(root)?;
        if let Some(owner) = owner {
            check_owner(root, owner, format.id)?;
        }
        let store = root.join(STORE);
        match (owner, store.try_exists().map_err(at(&store))?) {
            (Some(_), true) => return Ok(Self::Made),
            (None, true) => {
                return Err(BackendError::corrupt(format!(
                    "{} does not say whose it is",
                    root.display()
                )));
            }
            (_, false) => {}
        }
        let failed = at(data_folder);
        let list = KeyspaceList::read(data_folder, Tier::Cold).map_err(&failed)?;
        let keyspaces = list.map(|list| list.filled());
        let has_list = KeyspaceList::is_there(data_folder, Tier::Cold).map_err(&failed)?;
        if keyspaces == Some(0) || !has_list {
            return Ok(Self::Unmade);
        }
        Ok(Self::Missing(Missing {
            root: root.to_owned(),
            keyspaces,
        }))
    }
}

impl Missing {
    /// What is wrong, and what to do about it.
    pub(crate) fn error(&self) -> BackendError {
        let keyspaces = self.keyspaces.map(|keyspaces| keyspaces.to_string());
        BackendError::Misconfigured {
            reason: format!(
                "the cold folder {} has no store, but {} keyspaces of segments or parts were in one: is its disk mounted, \
                 has it been moved?",
                self.root.display(),
                keyspaces.as_deref().unwrap_or("an unknown number of")
            ),
        }
    }
}

fn check_owner(root: &Path, owner: FolderId, own: Option<FolderId>) -> Result<()> {
    if own == Some(owner) {
        return Ok(());
    }
    let own = own.map_or_else(
        || "which has none yet".to_owned(),
        |own| format!("which has {own}"),
    );
    Err(BackendError::Misconfigured {
        reason: format!(
            "{} is the cold folder of data folder {owner}, not of this one, {own}",
            root.display()
        ),
    })
}
