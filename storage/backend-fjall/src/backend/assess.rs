//! Compares what a data folder holds with what had been acknowledged, before anything in it is changed.
//!
//! Version files, lists, logs and journals are checked by reading them. Where the logs alone prove that every
//! acknowledged commit is there, which is the usual case, that is all. Otherwise fjall opens a copy, and the counts in it
//! are compared: if something is missing, the copy is what serves reads, and the folder stays as it is.

use std::path::Path;
use std::sync::Arc;

use tideline_backend::{BackendError, Result};
use tideline_model::Tier;

use super::JOURNAL;
use crate::cold::{Cold, Standing};
use crate::copy::Scratch;
use crate::error::{During, at, from_io};
use crate::format::{FolderFormat, Format};
use crate::highwater::{HighWater, Marks, Remembered};
use crate::journal::Journals;
use crate::keyspace_list::KeyspaceList;
use crate::ledger::Ledger;
use crate::options::{FjallOptions, Setup};
use crate::store::{Place, STORE, Store};
use crate::verify::{Checked, check_store};

/// The result of an assessment.
#[derive(Debug)]
pub(super) enum Assessment {
    /// Everything acknowledged is there.
    Complete(Box<Sound>),
    /// Something acknowledged is missing.
    Lacking(Box<Lacking>),
}

/// Results of checks, which the open need not repeat.
#[derive(Debug, Default)]
pub(super) struct Sound {
    pub(super) hot: Option<Checked>,
    pub(super) cold: Option<Checked>,
    pub(super) journals: Option<Journals>,
}

/// A folder that lacks something acknowledged, open for reading from a copy.
#[derive(Debug)]
pub(super) struct Lacking {
    /// Description of the loss.
    pub(super) missing: String,
    /// That of the copy.
    pub(super) format: Arc<FolderFormat>,
    pub(super) hot: Store,
    pub(super) cold: Cold,
    pub(super) ledger: Ledger,
    pub(super) journals: Journals,
    pub(super) high_water: HighWater,
    pub(super) scratch: Scratch,
}

/// Assesses a folder. Changes nothing in it. An error if stored bytes are not what was written.
pub(super) fn assess(folder: &Path, options: &FjallOptions) -> Result<Assessment> {
    // A folder without format or store is either new or refused by the open.
    let Some(format) = Format::read(folder)? else {
        return Ok(Assessment::Complete(Box::default()));
    };
    // Nothing is written to the mark before something is noted.
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
    let (cold, cold_keyspaces) = match Standing::of(folder, &cold_root, format)? {
        Standing::Made => {
            let list = listed(folder, Tier::Cold)?;
            (Some(sound_store(&cold_root, &list)?), list.filled())
        }
        Standing::Unmade => (None, 0),
        Standing::Missing(missing) => return Err(missing.error()),
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
    tracing::warn!("the logs do not hold every acknowledged commit: a copy of the store is compared");
    let scratch = Scratch::make(folder)?;
    scratch.fill(folder, has_cold.then_some(&*cold_root))?;
    let place = Place {
        root: scratch.path().to_owned(),
        lists: scratch.path().to_owned(),
    };
    let hot_copy = Store::unmade(place, Setup::of(Tier::Hot, options), options, folder);
    let first_commit = hot_copy.open(None)?;
    let format = Arc::new(FolderFormat::new(scratch.path(), format));
    let cold_copy = Cold::open_copy(&scratch, &cold_root, &format, has_cold, options)?;
    let mut ledger = Ledger::read(&*hot_copy.opened()?)?;
    ledger.check_flushed(&*hot_copy.opened()?, first_commit)?;
    let found = found(&ledger, &cold_copy, &journals, &remembered)?;
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
            ledger,
            journals,
            high_water,
            scratch,
        }))),
    }
}

/// Contents of an open store and its journals.
pub(super) struct Found {
    pub(super) marks: Marks,
    /// Description of what one keyspace lacks and another has.
    lacking: Option<String>,
}

/// Reads what an open store and its journals hold.
pub(super) fn found(
    ledger: &Ledger,
    cold: &Cold,
    journals: &Journals,
    remembered: &Remembered,
) -> Result<Found> {
    let cold = cold.found()?;
    let remembered_loads = remembered.marks().map_or(0, |marks| marks.cold_loads);
    let in_cold = cold.as_ref().and_then(Ledger::lacking);
    let in_cold = in_cold.map(|lacking| format!("{lacking} of the cold store"));
    Ok(Found {
        marks: Marks {
            commits: ledger.complete(),
            cold_loads: cold.map_or(remembered_loads, |cold| cold.complete()),
            journals: journals.marks(),
        },
        lacking: ledger.lacking().map(str::to_owned).or(in_cold),
    })
}

/// Describes the loss; `None` without one.
pub(super) fn missing(remembered: &Remembered, found: &Found) -> Option<String> {
    let missing = match remembered {
        Remembered::Marks(marks) => marks.missing_in(&found.marks),
        Remembered::Missing if found.marks == Marks::default() => None,
        Remembered::Missing => Some("the high-water mark itself".to_owned()),
        Remembered::Damaged => Some("the high-water mark, which is damaged".to_owned()),
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

/// The kind of a failure to read or write the mark.
pub(super) fn mark_failed(error: &std::io::Error) -> BackendError {
    from_io(error, "the high-water mark", During::Read)
}
