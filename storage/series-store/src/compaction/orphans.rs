//! Search for unreferenced objects at a target, and their removal, on request of an operator.
//!
//! Objects that this database wrote or adopted are unreferenced if no segment, reader or job of this database refers to
//! them. For other databases only their descriptions are available: objects in these descriptions are referenced.
//! Further objects of another database are reported only if the operator specifies that database and the objects are at
//! least a day old: the database may be archiving at the moment.

use std::collections::BTreeMap;
use std::collections::HashSet;

use tideline_archive::{ObjectContent, TargetObject};
use tideline_log::LogError;

use super::archive::given_up;
use super::gc::ORPHAN_AGE;
use crate::error::{Result, StoreError};
use crate::shared::Shared;

/// Number of threads that remove objects. Removing one object at a remote target takes long.
const REMOVERS: usize = 8;
/// Maximum number of objects that each thread removes between two calls of the caller's `step`.
const REMOVED_BY_EACH: usize = 16;

/// Search parameters.
#[derive(Debug, Clone)]
pub struct OrphanSearch {
    /// Target, by name or address.
    pub target: String,
    /// Database (first part of the file names) whose objects are searched. `None`: objects that this database wrote
    /// or adopted.
    pub origin: Option<String>,
}

/// Unreferenced object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// Object at the target.
    pub object: TargetObject,
    /// Reason why the object is unreferenced.
    pub reason: &'static str,
}

/// Result of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Orphans {
    /// Unreferenced objects, descriptions first. They are removed in this order, because objects without a description
    /// are not used.
    pub found: Vec<Orphan>,
    /// Number of examined objects that are referenced.
    pub named: u64,
    /// Number of objects that the search excludes, by database.
    pub others: BTreeMap<String, u64>,
    /// Number of unreferenced objects of another database that are too young to be reported in `found`. While the clock
    /// is in doubt, all unreferenced objects of another database count as too young.
    pub young: u64,
    /// Reasons why descriptions of other databases cannot be read. These descriptions and the other objects of their
    /// segments count as referenced.
    pub broken: Vec<String>,
}

impl Orphans {
    /// Returns the total bytes of the unreferenced objects.
    pub fn bytes(&self) -> u64 {
        self.found.iter().map(|orphan| orphan.object.bytes).sum()
    }
}

impl Shared {
    /// Searches a target for unreferenced objects. Changes nothing.
    pub(crate) fn find_orphans(&self, search: &OrphanSearch) -> Result<Orphans> {
        let archive = self.settings.archive.as_ref();
        let archive = archive.ok_or_else(|| StoreError::NoArchive(tideline_model::SegmentId::default()))?;
        let target = search.target.as_str();
        // Objects are listed before the names are collected, so that the names include objects written in the meantime.
        let objects = archive.objects(target).map_err(given_up)?;
        let (names, manifest) = self.named_objects()?;
        let own = manifest.common.cursor.origin;
        let own = own.map(|origin| format!("{origin:016x}"));
        let tables: Vec<_> = self.tables.read().by_id.values().cloned().collect();
        let adopted: HashSet<(String, String)> = tables
            .iter()
            .flat_map(|table| table.adopted())
            .map(|adopted| (adopted.table.as_str().to_owned(), adopted.origin))
            .collect();
        let is_own = |object: &TargetObject| {
            Some(&object.origin) == own.as_ref()
                || adopted.contains(&(object.table.clone(), object.origin.clone()))
        };
        let is_wanted = |object: &TargetObject| match &search.origin {
            Some(origin) => object.origin == *origin,
            None => is_own(object),
        };
        let theirs = objects
            .iter()
            .filter(|object| object.content.is_description() && !is_own(object));
        let described = archive.described_keys(target, theirs.map(|object| object.key.as_str()));
        let described = described.map_err(given_up)?;
        let broken: HashSet<(&str, u64)> = objects
            .iter()
            .filter(|object| described.broken.iter().any(|(key, _)| *key == object.key))
            .map(|object| (object.origin.as_str(), object.number))
            .collect();
        let newest = newest_settings(&objects);
        let age = i64::try_from(ORPHAN_AGE.as_nanos()).unwrap_or(i64::MAX);
        // While the clock is in doubt, no object is considered old.
        let now = self.log.trusted_now();
        let before = match now.doubt {
            None => now.now.nanos().saturating_sub(age),
            Some(_) => i64::MIN,
        };
        let mut orphans = Orphans {
            broken: described
                .broken
                .iter()
                .map(|(_, reason)| reason.clone())
                .collect(),
            ..Orphans::default()
        };
        for object in &objects {
            if !is_wanted(object) {
                *orphans.others.entry(object.origin.clone()).or_default() += 1;
                continue;
            }
            let is_settings = object.content == ObjectContent::Settings;
            let is_newest = is_settings && newest.contains(object.key.as_str());
            let is_broken = broken.contains(&(object.origin.as_str(), object.number));
            if described.keys.contains(&object.key) || is_newest || is_broken {
                orphans.named += 1;
            } else if is_own(object) {
                match !is_settings && names.hold(&object.key) {
                    true => orphans.named += 1,
                    false => orphans.found.push(Orphan {
                        object: object.clone(),
                        reason: reason(object.content),
                    }),
                }
            } else if names.hold(&object.key) {
                orphans.named += 1;
            } else if object.modified >= before {
                orphans.young += 1;
            } else {
                orphans.found.push(Orphan {
                    object: object.clone(),
                    reason: "no complete description of its database refers to it",
                });
            }
        }
        orphans.found.sort_by(|a, b| {
            let order = |orphan: &Orphan| !orphan.object.content.is_description();
            (order(a), &a.object.key).cmp(&(order(b), &b.object.key))
        });
        Ok(orphans)
    }

    /// Removes objects that a search has found, until `step` returns false. Returns the number and bytes of the removed
    /// objects.
    pub(crate) fn remove_orphans(
        &self,
        target: &str,
        orphans: &Orphans,
        step: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(u64, u64)> {
        let archive = self.settings.archive.as_ref();
        let archive = archive.ok_or_else(|| StoreError::NoArchive(tideline_model::SegmentId::default()))?;
        let (mut count, mut bytes) = (0, 0);
        let is_description = |orphan: &Orphan| orphan.object.content.is_description();
        // All descriptions are removed before the first file.
        for of_kind in orphans
            .found
            .chunk_by(|a, b| is_description(a) == is_description(b))
        {
            for together in of_kind.chunks(REMOVERS * REMOVED_BY_EACH) {
                if !step(count) {
                    return Ok((count, bytes));
                }
                let removed = std::thread::scope(|scope| {
                    let parts = together.chunks(REMOVED_BY_EACH);
                    let begin = parts.map(|part| {
                        let keys = part.iter().map(|orphan| orphan.object.key.as_str());
                        scope.spawn(move || archive.remove_objects(target, keys))
                    });
                    let begun: Vec<_> = begin.collect();
                    let ended = begun.into_iter().map(|remover| remover.join());
                    ended.collect::<Vec<_>>()
                });
                for outcome in removed {
                    let died = |_| StoreError::from(LogError::Closed);
                    outcome.map_err(died)?.map_err(given_up)?;
                }
                count += together.len() as u64;
                bytes += together.iter().map(|orphan| orphan.object.bytes).sum::<u64>();
            }
        }
        Ok((count, bytes))
    }
}

/// Returns the names of the objects with the newest settings of each table and database.
fn newest_settings(objects: &[TargetObject]) -> HashSet<&str> {
    let mut newest: BTreeMap<(&str, &str), &TargetObject> = BTreeMap::new();
    for object in objects
        .iter()
        .filter(|object| object.content == ObjectContent::Settings)
    {
        let of = (object.table.as_str(), object.origin.as_str());
        let known = newest.entry(of).or_insert(object);
        if known.number < object.number {
            *known = object;
        }
    }
    newest.into_values().map(|object| object.key.as_str()).collect()
}

fn reason(content: ObjectContent) -> &'static str {
    match content {
        ObjectContent::Description => "its job did not complete: no segment of this database has it",
        ObjectContent::Settings => "newer settings of the table replace it",
        ObjectContent::Points | ObjectContent::Timelines => "no segment of this database has it",
        ObjectContent::Rows | ObjectContent::Values | ObjectContent::PartDescription => {
            "no part of this database has it"
        }
    }
}
