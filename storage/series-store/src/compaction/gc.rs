//! Removal of unreferenced objects at targets, left behind by a crash or a failure.
//!
//! Objects younger than a day are kept, and so are objects of other databases that this database has not adopted.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use tideline_archive::layout::named;
use tideline_archive::{Archive, ArchiveCopy, ArchiveError};
use tideline_model::{SegmentId, TableId};

use super::archive::{given_up, target_of};
use crate::error::{Result, StoreError};
use crate::manifest::ManifestState;
use crate::shared::Shared;
use crate::tables::Table;

/// Minimum age at which an unreferenced object is removed. A job may still be about to reference a younger object.
pub(super) const ORPHAN_AGE: Duration = Duration::from_secs(24 * 3_600);

impl Shared {
    /// Removes unreferenced objects of a table, and of dropped tables. Returns their number; `0` without an archive or
    /// while the clock is in doubt.
    ///
    /// Searches all targets that segments, policies or the configuration refer to, and the targets of the adopted
    /// objects of the table. A failing target does not prevent the removal at other targets.
    pub(crate) fn sweep_archive(&self, table: TableId) -> Result<u64> {
        // In a damaged database, missing rows may have referenced these files.
        self.check_not_read_only()?;
        let Some(archive) = &self.settings.archive else {
            return Ok(0);
        };
        let now = self.log.trusted_now();
        if now.doubt.is_some() {
            // Without a reliable clock the age of objects is unknown. An object that is being written could be
            // mistaken for an orphan.
            return Ok(0);
        }
        let tables = self.tables.read().by_id.clone();
        let found = tables.get(&table).ok_or(StoreError::TableDropped(table))?;
        let age = i64::try_from(ORPHAN_AGE.as_nanos()).unwrap_or(i64::MAX);
        let (names, manifest) = self.named_objects()?;
        let mut collection = GarbageCollection {
            archive,
            names: &names,
            before: now.now.nanos().saturating_sub(age),
            removed: 0,
            failure: None,
        };
        if let Some(own) = manifest.common.cursor.origin {
            let own = format!("{own:016x}");
            for target in targets(archive, &tables, &names) {
                collection.gone_tables(&target, &tables, &own);
                collection.table(&target, found.name().as_str(), &own);
            }
        }
        for adopted in found.adopted() {
            collection.table(&adopted.target, adopted.table.as_str(), &adopted.origin);
        }
        collection.outcome()
    }

    /// Collects the objects of all segments, of retired segments that may have readers, of jobs that run or whose
    /// outcome is in doubt, of other models, and of pending removals. Also returns the manifest that references these
    /// segments.
    ///
    /// Every other object that this database wrote or adopted is unreferenced if it was listed before the call or is
    /// at least [`ORPHAN_AGE`] old.
    pub(super) fn named_objects(&self) -> Result<(NamedObjects, Arc<ManifestState>)> {
        let mut names = NamedObjects {
            // This set is read before the manifest, because the manifest references the output of a job once the job
            // has ended.
            writing: self.archiving.lock().clone(),
            ..NamedObjects::default()
        };
        for doubt in &*self.in_doubt.lock() {
            names.writing.insert(doubt.location.segment);
        }
        // The manifest is read before the lists below, because segments move from the manifest to these lists.
        let manifest = Arc::clone(&self.state.read().manifest);
        let tables = manifest.segments.values();
        let segments = tables.flat_map(|of_table| of_table.values());
        for part in segments.flat_map(|segment| segment.parts()) {
            if let Some(files) = &part.archive {
                let copy = self.read_files(part.reference(), files)?;
                names.take(&copy);
            }
        }
        for (location, files) in self
            .retired
            .waiting(|gone| Some((gone.location, gone.files.clone()?)))
        {
            let copy = self.read_files(location, &files)?;
            names.take(&copy);
        }
        if let Some(others) = self.other_objects.get() {
            let others = others().map_err(StoreError::OtherObjects)?;
            others.keys.iter().for_each(|key| names.add(key));
            names.targets.extend(others.targets);
            // Parts and segments have ids from one range.
            names.writing.extend(others.writing.into_iter().map(SegmentId));
        }
        for objects in self.files_to_remove.all() {
            names.targets.insert(objects.target.clone());
            objects.keys.iter().for_each(|key| names.add(key));
        }
        Ok((names, manifest))
    }
}

/// Objects at targets that another model of the database uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OtherObjects {
    /// Targets, by name or address.
    pub targets: Vec<String>,
    /// Object names.
    pub keys: Vec<String>,
    /// Ids in the names of objects that are being written, or whose publication has an unknown outcome.
    pub writing: Vec<u64>,
}

/// Function that returns the objects of another model, or the reason why they are not known.
pub type OtherObjectsOf = Box<dyn Fn() -> std::result::Result<OtherObjects, String> + Send + Sync>;

/// Referenced objects.
#[derive(Debug, Default)]
pub(super) struct NamedObjects {
    /// Number and checksum of each object. The pair is unique across objects. Targets therefore need not be compared,
    /// even if two targets are the same location or nested.
    names: HashSet<(u64, u128)>,
    /// Segments and parts whose files are being written, and those whose edit has an unknown outcome.
    writing: HashSet<SegmentId>,
    /// Targets of the objects in `names`.
    targets: HashSet<String>,
}

impl NamedObjects {
    fn take(&mut self, copy: &ArchiveCopy) {
        if !self.targets.contains(&copy.target) {
            self.targets.insert(copy.target.clone());
        }
        copy.keys().for_each(|key| self.add(key));
    }

    fn add(&mut self, key: &str) {
        self.names.extend(named(key).and_then(|object| object.identity()));
    }

    /// Returns true if an object is referenced or may soon be referenced. Objects whose names cannot be parsed count as
    /// referenced.
    pub(super) fn hold(&self, key: &str) -> bool {
        let Some((object, identity)) = named(key).and_then(|object| Some((object, object.identity()?)))
        else {
            return true;
        };
        self.names.contains(&identity) || self.writing.contains(&SegmentId(object.number))
    }
}

/// Returns all targets that may have files of this database.
fn targets(archive: &Archive, tables: &HashMap<TableId, Arc<Table>>, names: &NamedObjects) -> Vec<String> {
    let mut targets: Vec<String> = names.targets.iter().cloned().collect();
    targets.extend(tables.values().filter_map(|table| target_of(table)));
    targets.extend(archive.configured().map(str::to_owned));
    targets.sort_unstable();
    targets.dedup();
    targets
}

/// Garbage collection at all targets.
struct GarbageCollection<'a> {
    archive: &'a Archive,
    /// Objects that must stay.
    names: &'a NamedObjects,
    /// Only objects written before this time are removed.
    before: i64,
    removed: u64,
    failure: Option<ArchiveError>,
}

impl GarbageCollection<'_> {
    /// Removes unreferenced objects from the folders of tables that this database does not have.
    fn gone_tables(&mut self, target: &str, tables: &HashMap<TableId, Arc<Table>>, own: &str) {
        let at_target = match self.archive.tables(target) {
            Ok(at_target) => at_target,
            Err(error) => return self.fail(error),
        };
        let is_here = |name: &str| tables.values().any(|table| table.name().as_str() == name);
        for name in at_target.iter().filter(|name| !is_here(name)) {
            self.table(target, name, own);
        }
    }

    /// Removes unreferenced objects of one table and one database.
    fn table(&mut self, target: &str, table: &str, origin: &str) {
        let is_named = |key: &str| self.names.hold(key);
        match self
            .archive
            .remove_orphans(target, table, origin, self.before, &is_named)
        {
            Ok(removed) => self.removed += removed,
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: ArchiveError) {
        self.failure.get_or_insert(error);
    }

    fn outcome(self) -> Result<u64> {
        match self.failure {
            Some(error) => Err(given_up(error)),
            None => Ok(self.removed),
        }
    }
}
