//! Makes a store, and opens it between two checks.

use std::fs;
use std::sync::atomic::Ordering;

use tideline_backend::{BackendError, Result};
use tideline_model::{GroupId, Tier};

use super::{Place, Slot, Store, closed};
use crate::engine::Engine;
use crate::error::{During, at, from_fjall};
use crate::files::{remove_folder, replace, sync_folder};
use crate::keys::group_of;
use crate::keyspace_list::KeyspaceList;
use crate::options::Setup;
use crate::renew::{has_failed, renew_pointers};
use crate::safety::{self, SAFETY};
use crate::verify::{Checked, check_store};

/// The folder of fjall, inside a store's root.
pub(crate) const STORE: &str = "store";
/// Where the store is made before it is there.
const STORE_CREATING: &str = "store.creating";
/// An empty file that exists from the first open on that has passed the sequence numbers of dropped keyspaces
/// ([`Engine::pass_dropped_sequences`]). Earlier builds dropped keyspaces, and removed the file before they did.
const NO_DROPS: &str = "NO_DROPS";

/// Why a store is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// The process starts, or the store has just been made.
    AtStart,
    /// It failed in this process.
    AfterFailure,
}

impl Store {
    /// Removes what a making that was killed has left.
    pub(crate) fn sweep(&self) -> Result<()> {
        let creating = self.place.root.join(STORE_CREATING);
        remove_folder(&creating).map_err(at(&creating))
    }

    /// Makes the store in a folder beside its place and renames it, so that a half-made one is never opened: fjall
    /// refuses for ever what a kill in its first milliseconds leaves behind.
    pub(crate) fn make(&self) -> Result<()> {
        let Place { root, lists } = &self.place;
        self.sweep()?;
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

    /// Opens a store that has been made, and whose files have perhaps been `checked` already. Returns the first commit
    /// that its logs hold.
    pub(crate) fn open(&self, checked: Option<Checked>) -> Result<Option<u64>> {
        let opened = open_engine(&self.place, &self.setup, Opening::AtStart, checked)?;
        let first_commit = opened.first_commit;
        let mut slot = self.slot.write();
        if matches!(*slot, Slot::Closed) {
            return Err(closed());
        }
        self.install(&mut slot, opened);
        Ok(first_commit)
    }

    /// Puts a freshly opened engine in place.
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

/// A store that has just been opened.
pub(super) struct Opened {
    pub(super) engine: Engine,
    pub(super) keyspaces: KeyspaceList,
    /// Groups whose keyspaces are empty; they are not listed.
    pub(super) spares: Vec<GroupId>,
    /// The first commit that the logs hold.
    pub(super) first_commit: Option<u64>,
}

/// Opens fjall between two checks: its files before, its keyspaces after. What an earlier failure may have left in
/// memory only is written anew before. Meanwhile a copy lies aside; the keeper removes it, since that takes longer than
/// the rest where there are many groups.
pub(super) fn open_engine(
    place: &Place,
    setup: &Setup,
    opening: Opening,
    checked: Option<Checked>,
) -> Result<Opened> {
    let Place { root, lists } = place;
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
    // The hot store compares the commits that its tables hold; the cold one has nothing else to notice it by.
    if log.is_missing() && tier != Tier::Hot && !setup.accept_loss {
        return Err(BackendError::corrupt(format!(
            "the {tier} store in {} has no log; restore the folder, or start once with accept_loss, which goes on without \
             what was in it",
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
