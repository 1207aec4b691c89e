//! Store of cold segments and parts, and its folder: inside the data folder, or on another disk.
//!
//! The store is created before the first cold segment or part is stored. The steps are ordered so that the folder
//! still opens if the process is killed between any two of them:
//!
//! 1. The data folder gets its id.
//! 2. The cold folder gets the same id.
//! 3. The store is created under another name.
//! 4. The list of its keyspaces is written.
//! 5. The store gets its final name.
//!
//! Data is stored only after the last step. So a list that names more than the keyspaces of rows and manifest proves
//! that a complete store existed. If such a list exists without a store, the start is refused: the disk of the store is
//! not mounted, or the cold folder was moved.

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
use crate::lock::FolderLock;
use crate::options::{FjallOptions, Setup};
use crate::shard_state::{ShardState, settle_counts};
use crate::store::{EngineGuard, STORE, Store, StoreLocation};
use crate::verify::Checked;

/// Name of the cold folder, unless the options name another one.
const COLD: &str = "cold";

/// Store of cold segments and parts.
#[derive(Debug)]
pub(crate) struct Cold {
    pub(crate) store: Store,
    /// Format of the data folder.
    format: Arc<FolderFormat>,
    root: PathBuf,
    /// Lock of the cold folder; `None` until the folder is used. The mutex is held while the store is created.
    lock: Mutex<Option<FolderLock>>,
    /// Counts of loads and of writes to parts. Locked while a load or write is counted.
    shard_state: Mutex<ShardState>,
}

/// State of a cold folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ColdFolderState {
    /// No store exists, and none is expected.
    Unmade,
    /// The store exists and belongs to this data folder.
    Made,
    /// No store exists, although a store with content is expected.
    Missing(Missing),
}

/// Description of a missing store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Missing {
    root: PathBuf,
    /// Number of keyspaces of groups and parts that were in the store; `None` if their list is damaged.
    keyspaces: Option<usize>,
}

impl Cold {
    /// Returns the path of a data folder's cold folder.
    pub(crate) fn root(data_folder: &Path, cold_dir: Option<&Path>) -> PathBuf {
        cold_dir.map_or_else(|| data_folder.join(COLD), Path::to_owned)
    }

    /// Returns the path of a data folder's cold folder. Returns an error if the options name a folder that does not
    /// exist.
    pub(crate) fn checked_root(data_folder: &Path, options: &FjallOptions) -> Result<PathBuf> {
        let root = Self::root(data_folder, options.cold_dir.as_deref());
        if options.cold_dir.is_some() && !root.is_dir() {
            return Err(BackendError::Misconfigured {
                reason: format!(
                    "the cold folder {} does not exist: create it, or mount its disk",
                    root.display()
                ),
            });
        }
        Ok(root)
    }

    /// Opens the copy of the store in `scratch` and locks `root` against other processes, if the store has been
    /// created.
    pub(crate) fn open_copy(
        scratch: &Scratch,
        root: &Path,
        format: &Arc<FolderFormat>,
        is_made: bool,
        options: &FjallOptions,
    ) -> Result<Self> {
        let location = StoreLocation {
            root: scratch.cold(),
            lists: scratch.path().to_owned(),
        };
        let lock = match is_made {
            true => FolderLock::hold(root)?,
            false => None,
        };
        let disk = if root.is_dir() { root } else { scratch.path() };
        let cold = Self {
            store: Store::unmade(location, Setup::of(Tier::Cold, options), options, disk),
            format: Arc::clone(format),
            root: scratch.cold(),
            lock: Mutex::new(lock),
            shard_state: Mutex::new(ShardState::of(Tier::Cold)),
        };
        if is_made {
            cold.store.open(None)?;
        }
        Ok(cold)
    }

    /// Opens the store, if it has been created. `checked` is the result of an earlier check of its files. Refuses a
    /// folder that belongs to another data folder. Also refuses a missing store that had content, unless an operator
    /// accepts the loss.
    pub(crate) fn open(
        data_folder: &Path,
        format: &Arc<FolderFormat>,
        checked: Option<Checked>,
        options: &FjallOptions,
    ) -> Result<Self> {
        let root = Self::checked_root(data_folder, options)?;
        let is_named = options.cold_dir.is_some();
        let mut standing = ColdFolderState::of(data_folder, &root, format.get())?;
        if let ColdFolderState::Missing(missing) = &standing {
            if !options.accept_loss {
                return Err(missing.error());
            }
            tracing::error!(error = %missing.error(), "an operator accepts the loss of cold segments");
            KeyspaceList::of(Tier::Cold, Vec::new())
                .write(data_folder)
                .map_err(at(data_folder))?;
            standing = ColdFolderState::Unmade;
        }
        let is_made = standing == ColdFolderState::Made;
        let disk = if is_named { &root } else { data_folder };
        let location = StoreLocation {
            root: root.clone(),
            lists: data_folder.to_owned(),
        };
        let lock = (is_named || is_made)
            .then(|| FolderLock::take(&root, None))
            .transpose()?;
        let cold = Self {
            store: Store::unmade(location, Setup::of(Tier::Cold, options), options, disk),
            format: Arc::clone(format),
            root,
            lock: Mutex::new(lock),
            shard_state: Mutex::new(ShardState::of(Tier::Cold)),
        };
        if is_made {
            cold.store.remove_leftovers()?;
            cold.store.open(checked)?;
        }
        Ok(cold)
    }

    /// Loads one bucket of a segment. The first load creates the store.
    ///
    /// A load is counted in the store before it begins, and in the data folder after it is complete. So a store that
    /// lacks acknowledged loads is detected, and a crash between the two counts is not reported as a loss.
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

    /// Writes rows of parts. The first write creates the store. Like a load, a write is counted; the count is in the
    /// same batch as the rows.
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

    /// Makes durable all rows of parts that were written with [`Durability::Buffered`].
    pub(crate) fn sync_rows(&self, high_water: &HighWater) -> Result<()> {
        let number = self.shard_state.lock().commits();
        self.store.sync_rows()?;
        self.shard_state.lock().note_durable(number);
        high_water.note_cold_load(number);
        Ok(())
    }

    /// Returns the count of loads and of writes to parts. After a close, all counted loads and writes are durable.
    pub(crate) fn counted(&self) -> u64 {
        self.shard_state.lock().commits()
    }

    /// Commits changes and counts them. Returns the count.
    fn commit(&self, engine: &Engine, mut changes: Vec<Change>, durability: Durability) -> Result<u64> {
        let mut shard_state = self.shard_state.lock();
        if durability == Durability::Synced && shard_state.has_buffered() {
            engine.sync().map_err(|error| self.store.failed(error))?;
            let counted = shard_state.commits();
            shard_state.note_durable(counted);
        }
        let has_parts = engine.parts().is_some();
        changes.extend(shard_state.next_commit(has_parts, durability));
        engine
            .commit(changes, durability)
            .map_err(|error| self.store.failed(error))?;
        if durability == Durability::Buffered {
            self.store.note_buffered();
        }
        Ok(shard_state.committed(has_parts, durability))
    }

    /// Returns the counts in the store; `None` if the store holds no groups or parts, because then no data can be
    /// missing.
    pub(crate) fn found(&self) -> Result<Option<ShardState>> {
        match self.store.engine()? {
            Some(engine) if self.store.filled() > 0 => Ok(Some(ShardState::read(&engine)?)),
            _ => Ok(None),
        }
    }

    /// Continues counting from `remembered` or from the count of the store, whichever is higher.
    pub(crate) fn count_from(&self, remembered: u64) -> Result<()> {
        let mut shard_state = match self.store.engine()? {
            Some(engine) => ShardState::read(&engine)?,
            None => ShardState::of(Tier::Cold),
        };
        shard_state.count_from(remembered);
        *self.shard_state.lock() = shard_state;
        Ok(())
    }

    /// Counts one more commit in all keyspaces if their counts differ, but no commit is missing that was acknowledged
    /// as durable.
    pub(crate) fn settle_counts(&self) -> Result<()> {
        match self.store.engine()? {
            Some(engine) => settle_counts(&engine, &mut self.shard_state.lock()),
            None => Ok(()),
        }
    }

    /// Counts one more commit in all keyspaces, after an accepted loss. Returns the count; `None` if there is no store.
    pub(crate) fn count_again(&self) -> Result<Option<u64>> {
        let engine = self.store.engine()?;
        let commit = |engine: EngineGuard<'_>| self.commit(&engine, Vec::new(), Durability::Synced);
        engine.map(commit).transpose()
    }

    /// Syncs and closes the store.
    pub(crate) fn close(&self) -> Result<()> {
        let closed = self.store.close();
        *self.lock.lock() = None;
        closed
    }

    /// Creates the store if it has not been created.
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
        tracing::info!(folder = %root.display(), "the store of cold segments has been created");
        Ok(())
    }
}

impl ColdFolderState {
    /// Compares a cold folder with the records in the data folder. Returns an error if the cold folder belongs to
    /// another data folder, or if it has a store but does not name its data folder.
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
                    "{} has a store, but no file FORMAT that names its data folder",
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
    /// Returns an error that describes the fault and its remedy.
    pub(crate) fn error(&self) -> BackendError {
        let keyspaces = self.keyspaces.map(|keyspaces| keyspaces.to_string());
        BackendError::Misconfigured {
            reason: format!(
                "the cold folder {} has no store, but {} keyspaces of segments or parts are expected: mount its disk, \
                 or set the folder to which it was moved",
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
        || "which has no id yet".to_owned(),
        |own| format!("which has the id {own}"),
    );
    Err(BackendError::Misconfigured {
        reason: format!(
            "{} is the cold folder of data folder {owner}, not of this one, {own}",
            root.display()
        ),
    })
}
