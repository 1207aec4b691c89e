//! Assessment: compares the content of a data folder with the acknowledged data, before the folder is changed.
//!
//! Version files, lists, logs and journals are checked by reading them. Usually the logs alone prove that every
//! acknowledged commit exists, and nothing else is needed. Otherwise fjall opens a copy, and the counts in the copy are
//! compared with the high-water mark. If something is missing, the copy serves reads, and the folder stays unchanged.

use std::path::Path;
use std::sync::Arc;

use tideline_backend::{BackendError, Result};
use tideline_model::Tier;

use super::JOURNAL;
use crate::cold::{Cold, ColdFolderState};
use crate::copy::Scratch;
use crate::error::{During, at, from_io};
use crate::format::{FolderFormat, Format};
use crate::highwater::{HighWater, Marks, StoredMarks};
use crate::journal::Journals;
use crate::keyspace_list::KeyspaceList;
use crate::options::{FjallOptions, Setup};
use crate::shard_state::ShardState;
use crate::store::{STORE, Store, StoreLocation};
use crate::verify::{Checked, check_store};

/// Result of an assessment.
#[derive(Debug)]
pub(super) enum Assessment {
    /// All acknowledged data exists.
    Complete(Box<Sound>),
    /// Acknowledged data is missing.
    Lacking(Box<Lacking>),
}

/// Results of checks. Opening the folder uses them instead of repeating the checks.
#[derive(Debug, Default)]
pub(super) struct Sound {
    pub(super) hot: Option<Checked>,
    pub(super) cold: Option<Checked>,
    pub(super) journals: Option<Journals>,
}

/// Data of a folder that lacks acknowledged data, opened for reading from a copy.
#[derive(Debug)]
pub(super) struct Lacking {
    /// Description of the loss.
    pub(super) missing: String,
    /// Format of the copy.
    pub(super) format: Arc<FolderFormat>,
    pub(super) hot: Store,
    pub(super) cold: Cold,
    pub(super) shard_state: ShardState,
    pub(super) journals: Journals,
    pub(super) high_water: HighWater,
    pub(super) scratch: Scratch,
}

/// Assesses a folder without changing its data. Returns an error if stored bytes are damaged, or if a store that had
/// content is missing.
pub(super) fn assess(folder: &Path, options: &FjallOptions) -> Result<Assessment> {
    // A folder without a file `FORMAT` is new, or the open refuses it later.
    let Some(format) = Format::read(folder)? else {
        return Ok(Assessment::Complete(Box::default()));
    };
    // Opening the high-water mark writes nothing; the file is written only after a commit or an entry has been noted.
    let (high_water, remembered) = HighWater::open(folder).map_err(|error| mark_failed(&error))?;
    let store = folder.join(STORE);
    if !store.try_exists().map_err(at(&store))? {
        return match remembered.marks().filter(|marks| marks.commits > 0) {
            Some(marks) => Err(BackendError::corrupt(format!(
                "{} is missing, but {} commits were acknowledged",
                store.display(),
                marks.commits
            ))),
            None => Ok(Assessment::Complete(Box::default())),
        };
    }
    let hot = sound_store(folder, &listed(folder, Tier::Hot)?)?;
    let cold_root = Cold::checked_root(folder, options)?;
    let (cold, cold_keyspaces) = match ColdFolderState::of(folder, &cold_root, format)? {
        ColdFolderState::Made => {
            let list = listed(folder, Tier::Cold)?;
            (Some(sound_store(&cold_root, &list)?), list.filled())
        }
        ColdFolderState::Unmade => (None, 0),
        ColdFolderState::Missing(missing) => return Err(missing.error()),
    };
    let journals = Journals::read(&folder.join(JOURNAL))?;
    let is_proven = remembered.marks().is_some_and(|marks| {
        let loads = cold.as_ref().and_then(|cold| cold.log.commits());
        let found = Marks {
            commits: hot.log.commits().unwrap_or(0),
            cold_loads: if cold_keyspaces > 0 {
                loads.unwrap_or(0)
            } else {
                marks.cold_loads
            },
            journals: journals.marks(),
        };
        marks.missing_in(&found).is_none()
    });
    let has_cold = cold.is_some();
    let sound = |journals| {
        Assessment::Complete(Box::new(Sound {
            hot: Some(hot),
            cold,
            journals: Some(journals),
        }))
    };
    if is_proven {
        return Ok(sound(journals));
    }
    tracing::warn!("the logs do not hold every acknowledged commit; a copy of the store is checked");
    let scratch = Scratch::make(folder)?;
    scratch.fill(folder, has_cold.then_some(&*cold_root))?;
    let location = StoreLocation {
        root: scratch.path().to_owned(),
        lists: scratch.path().to_owned(),
    };
    let hot_copy = Store::unmade(location, Setup::of(Tier::Hot, options), options, folder);
    let first_commit = hot_copy.open(None)?;
    let format = Arc::new(FolderFormat::new(scratch.path(), format));
    let cold_copy = Cold::open_copy(&scratch, &cold_root, &format, has_cold, options)?;
    let mut shard_state = ShardState::read(&*hot_copy.opened()?)?;
    shard_state.check_flushed(&*hot_copy.opened()?, first_commit)?;
    let found = found(&shard_state, &cold_copy, &journals, &remembered)?;
    match missing(&remembered, &found) {
        None => {
            hot_copy.close()?;
            cold_copy.close()?;
            Ok(sound(journals))
        }
        Some(missing) => Ok(Assessment::Lacking(Box::new(Lacking {
            missing,
            format,
            hot: hot_copy,
            cold: cold_copy,
            shard_state,
            journals,
            high_water,
            scratch,
        }))),
    }
}

/// Content of an open store and its journals.
pub(super) struct Found {
    pub(super) marks: Marks,
    /// Description of missing commits: commits that were acknowledged as durable and that a keyspace lacks. `None` if
    /// no such commit is missing.
    lacking: Option<String>,
}

/// Reads the counts of an open store and the marks of its journals.
pub(super) fn found(
    shard_state: &ShardState,
    cold: &Cold,
    journals: &Journals,
    remembered: &StoredMarks,
) -> Result<Found> {
    let cold = cold.found()?;
    let remembered_loads = remembered.marks().map_or(0, |marks| marks.cold_loads);
    let in_cold = cold.as_ref().and_then(ShardState::lacking);
    let in_cold = in_cold.map(|lacking| format!("{lacking} of the cold store"));
    Ok(Found {
        marks: Marks {
            commits: shard_state.complete(),
            cold_loads: cold.map_or(remembered_loads, |cold| cold.complete()),
            journals: journals.marks(),
        },
        lacking: shard_state.lacking().map(str::to_owned).or(in_cold),
    })
}

/// Describes the missing acknowledged data; `None` if nothing is missing.
pub(super) fn missing(remembered: &StoredMarks, found: &Found) -> Option<String> {
    let missing = match remembered {
        StoredMarks::Marks(marks) => marks.missing_in(&found.marks),
        StoredMarks::Missing if found.marks == Marks::default() => None,
        StoredMarks::Missing => Some("the high-water mark itself".to_owned()),
        StoredMarks::Damaged => Some("the high-water mark, which is damaged".to_owned()),
    };
    found.lacking.clone().or(missing)
}

fn sound_store(root: &Path, list: &KeyspaceList) -> Result<Checked> {
    let checked = check_store(root, list)?;
    match checked.log.damage() {
        Some(damage) => Err(damage.error()),
        None => Ok(checked),
    }
}

fn listed(folder: &Path, tier: Tier) -> Result<KeyspaceList> {
    let list = KeyspaceList::read(folder, tier).map_err(at(folder))?;
    list.ok_or_else(|| {
        BackendError::corrupt(format!("both lists of {tier} keyspaces are missing or damaged"))
    })
}

/// Converts a failure to read or write the high-water mark.
pub(super) fn mark_failed(error: &std::io::Error) -> BackendError {
    from_io(error, "the high-water mark", During::Read)
}
