//! Creation of a store, and its opening between two checks.
//!
//! fjall deletes files that its own records do not name. So its files are checked before an open, and its keyspaces are
//! compared with the list afterwards.

use std::fs;
use std::sync::atomic::Ordering;

use tideline_backend::{BackendError, Result};
use tideline_model::{GroupId, Tier};

use super::{Slot, Store, StoreLocation, closed};
use crate::engine::Engine;
use crate::error::{During, at, from_fjall};
use crate::files::{remove_folder, replace, sync_folder};
use crate::keys::group_of;
use crate::keyspace_list::KeyspaceList;
use crate::options::Setup;
use crate::renew::{has_failed, renew_pointers};
use crate::safety::{self, SAFETY};
use crate::verify::{Checked, check_store};

/// Folder of fjall, inside a store's root.
pub(crate) const STORE: &str = "store";
/// Folder in which a store is created before it is renamed.
const STORE_CREATING: &str = "store.creating";
/// Empty file that exists once an open has used up the sequence numbers of dropped keyspaces
/// ([`Engine::pass_dropped_sequences`]). Earlier builds removed the file before they dropped a keyspace.
const NO_DROPS: &str = "NO_DROPS";

/// Reason for opening a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// The process starts, or the store has just been created.
    AtStart,
    /// The store failed in this process.
    AfterFailure,
}

impl Store {
    /// Removes the leftovers of a creation that was killed.
    pub(crate) fn remove_leftovers(&self) -> Result<()> {
        let creating = self.location.root.join(STORE_CREATING);
        remove_folder(&creating).map_err(at(&creating))
    }

    /// Creates the store in another folder and renames it, so that an incomplete store is never opened. If a kill
    /// interrupts the first milliseconds of the creation, fjall can never open that folder again.
    pub(crate) fn make(&self) -> Result<()> {
        let StoreLocation { root, lists } = &self.location;
        self.remove_leftovers()?;
        let creating = root.join(STORE_CREATING);
        let failed = |error| from_fjall(error, During::Read);
        let engine = Engine::open(&creating, &self.setup).map_err(failed)?;
        engine.sync().map_err(failed)?;
        KeyspaceList::of(self.setup.tier, engine.keyspaces())
            .write(lists)
            .map_err(at(lists))?;
        drop(engine);
        sync_folder(&creating)
            .and_then(|()| fs::rename(&creating, root.join(STORE)))
            .and_then(|()| replace(root, &[NO_DROPS], b""))
            .map_err(at(root))
    }

    /// Opens a store that has been created. `checked` is the result of an earlier check of its files. Returns the count
    /// of the first commit in its logs; `None` if the logs have no count.
    pub(crate) fn open(&self, checked: Option<Checked>) -> Result<Option<u64>> {
        let opened = open_engine(&self.location, &self.setup, Opening::AtStart, checked)?;
        let first_commit = opened.first_commit;
        let mut slot = self.slot.write();
        if matches!(*slot, Slot::Closed) {
            return Err(closed());
        }
        self.install(&mut slot, opened);
        Ok(first_commit)
    }

    /// Makes a newly opened engine the current one.
    pub(super) fn install(&self, slot: &mut Slot, opened: Opened) {
        let Opened {
            engine,
            keyspaces,
            spares,
            first_commit: _,
        } = opened;
        *self.keyspaces.lock() = keyspaces;
        *self.spares.lock() = spares.into();
        self.has_safety.store(true, Ordering::Release);
        *slot = Slot::Open(engine);
    }
}

/// Result of opening a store.
pub(super) struct Opened {
    pub(super) engine: Engine,
    pub(super) keyspaces: KeyspaceList,
    /// Groups whose keyspaces are empty. They are not listed.
    pub(super) spares: Vec<GroupId>,
    /// Count of the first commit in the logs.
    pub(super) first_commit: Option<u64>,
}

/// Opens fjall between two checks: its files are checked before the open, and its keyspaces after the open. Files
/// that an earlier failure may have left in memory only are rewritten first. A safety copy is kept during the open.
/// The maintenance thread removes the copy later, because with many groups the removal takes longer than the open
/// itself.
pub(super) fn open_engine(
    location: &StoreLocation,
    setup: &Setup,
    opening: Opening,
    checked: Option<Checked>,
) -> Result<Opened> {
    let StoreLocation { root, lists } = location;
    let tier = setup.tier;
    let store = root.join(STORE);
    let list = KeyspaceList::read(lists, tier).map_err(at(lists))?;
    if list.is_none() && !setup.accept_loss {
        return Err(BackendError::corrupt(format!(
            "both lists of {tier} keyspaces are missing or damaged"
        )));
    }
    let mut list = list.unwrap_or_else(|| KeyspaceList::of(tier, Vec::new()));
    let checked = match checked {
        Some(checked) => checked,
        None => check_store(root, &list)?,
    };
    let mut log = checked.log;
    // A missing log of the hot store is detected by the commits in its tables. For the cold store there is no such
    // check.
    if log.is_missing() && tier != Tier::Hot && !setup.accept_loss {
        return Err(BackendError::corrupt(format!(
            "the {tier} store in {} has no log; restore the folder, or start once with accept_loss to continue without \
             its content",
            store.display()
        )));
    }
    match log.damage() {
        Some(damage) if !setup.accept_loss => return Err(damage.error()),
        _ => log.cut(root, &store)?,
    }
    let first_commit = log.first_commit();
    log.renew(&store)?;
    if opening == Opening::AfterFailure || has_failed(root).map_err(at(root))? {
        renew_pointers(root, &store).map_err(at(&store))?;
    }
    safety::make(root, &store).map_err(at(&store))?;
    let engine = Engine::open(&store, setup).map_err(|error| from_fjall(error, During::Read))?;
    if !root.join(NO_DROPS).try_exists().map_err(at(root))? {
        let passed = engine.pass_dropped_sequences().and_then(|()| engine.sync());
        passed.map_err(|error| from_fjall(error, During::Read))?;
        replace(root, &[NO_DROPS], b"").map_err(at(root))?;
    }
    let opened = engine.keyspaces();
    if let Some(missing) = list.missing_in(&opened) {
        return Err(BackendError::corrupt(format!(
            "{missing} is gone; its files are in {}",
            root.join(SAFETY).display()
        )));
    }
    let spares = engine.empty_groups();
    let is_spare = |name: &str| group_of(name).is_some_and(|group| spares.contains(&group));
    if list.set(opened.into_iter().filter(|(_, name)| !is_spare(name))) {
        list.write(lists).map_err(at(lists))?;
    }
    Ok(Opened {
        engine,
        keyspaces: list,
        spares,
        first_commit,
    })
}
