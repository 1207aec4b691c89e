//! Objects at targets that nothing names: what a crash or a failure has left behind.
//!
//! One that is younger than a day is left alone, and so is every one that another database has written and this one has not
//! adopted.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use tideline_archive::layout::file_name;
use tideline_archive::{Archive, ArchiveCopy, ArchiveError};
use tideline_model::TableId;

use super::archive::{given_up, target_of};
use crate::error::{Result, StoreError};
use crate::shared::{Shared, State};
use crate::tables::Table;

/// How long an object that nothing names is left alone: somebody may be about to name it.
const ORPHAN_AGE: Duration = Duration::from_secs(24 * 3_600);

impl Shared {
    /// Removes objects of a table, and of tables that are gone, that a crash or a failure has left behind; how many.
    ///
    /// It looks wherever files of this database may be: at all targets that a segment, a policy or the configuration
    /// names. A target that fails does not keep it from the others.
    pub(crate) fn sweep_archive(&self, table: TableId) -> Result<u64> {
        // Files that nothing names may have been named by what is missing.
        self.check_not_read_only()?;
        let Some(archive) = &self.settings.archive else {
            return Ok(0);
        };
        let now = self.trusted_now();
        if now.doubt.is_some() {
            // How old an object is cannot be said: one that is being written may look like an orphan.
            return Ok(0);
        }
        let state = self.state.read().clone();
        let tables = self.tables.read().by_id.clone();
        let found = tables.get(&table).ok_or(StoreError::TableDropped(table))?;
        let kept = self.named_files(&state);
        let age = i64::try_from(ORPHAN_AGE.as_nanos()).unwrap_or(i64::MAX);
        // By the last part of their names, which are nobody else's: two targets may be one place, or lie in each other.
        let keys = kept.iter().flat_map(|files| files.keys());
        let mut sweep = Sweep {
            archive,
            names: keys.map(file_name).collect(),
            before: now.now.nanos().saturating_sub(age),
            swept: 0,
            failure: None,
        };
        if let Some(own) = state.manifest.cursor.origin {
            let own = format!("{own:016x}");
            for target in targets(archive, &tables, &kept) {
                sweep.gone_tables(&target, &tables, &own);
                sweep.table(&target, found.name().as_str(), &own);
            }
        }
        for adopted in found.adopted() {
            sweep.table(&adopted.target, adopted.table.as_str(), &adopted.origin);
        }
        sweep.outcome()
    }

    /// The files of all segments, those of readers that are not done, and those whose removal is to be tried again.
    fn named_files(&self, state: &State) -> Vec<Arc<ArchiveCopy>> {
        let tables = state.manifest.segments.values();
        let segments = tables.flat_map(|of_table| of_table.values());
        let parts = segments.flat_map(|segment| segment.parts());
        let mut kept: Vec<_> = parts.filter_map(|part| part.archive.clone()).collect();
        kept.extend(self.retired.files());
        kept.extend(self.files_to_remove.all());
        kept
    }
}

/// Every place where files of this database may be.
fn targets(
    archive: &Archive,
    tables: &HashMap<TableId, Arc<Table>>,
    kept: &[Arc<ArchiveCopy>],
) -> Vec<String> {
    let mut targets: Vec<String> = kept.iter().map(|files| files.target.clone()).collect();
    targets.extend(tables.values().filter_map(|table| target_of(table)));
    targets.extend(archive.configured().map(str::to_owned));
    targets.sort_unstable();
    targets.dedup();
    targets
}

/// One look at all targets.
struct Sweep<'a> {
    archive: &'a Archive,
    /// What must stay.
    names: HashSet<&'a str>,
    /// Only what was written before this instant goes.
    before: i64,
    swept: u64,
    failure: Option<ArchiveError>,
}

impl Sweep<'_> {
    /// Sweeps the folders of tables that this database has no more.
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

    /// Sweeps what one database has written of one table.
    fn table(&mut self, target: &str, table: &str, origin: &str) {
        let is_named = |name: &str| self.names.contains(name);
        match self.archive.sweep(target, table, origin, self.before, &is_named) {
            Ok(removed) => self.swept += removed,
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: ArchiveError) {
        self.failure.get_or_insert(error);
    }

    fn outcome(self) -> Result<u64> {
        match self.failure {
            Some(error) => Err(given_up(error)),
            None => Ok(self.swept),
        }
    }
}
