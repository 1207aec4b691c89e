//! Attaching of archived parts of wide tables, part by part.
//!
//! Each part becomes visible with one manifest edit, after its files were verified. Attached rows have no entries in
//! secondary indexes and search indexes, so all indexes of the table are created anew before the first part is
//! attached, and are built after the last one. After a crash, the new indexes still have the state `Building`, so they
//! are built after the restart. A request that attaches nothing does not change the indexes.

use tideline_archive::rows::RowsDescription;
use tideline_model::wide::IndexState;
use tideline_model::{ColumnSpec, TableName, TableSpec, WideSpec};
use tideline_series_store::StoreError;
use tideline_wide_table::{AttachEnd, PartToAttach, WideError};

use super::plan_rows::{PlannedPart, PlannedRows};
use super::{AttachPlan, AttachProgress, AttachStop, Watch};
use crate::engine::Engine;
use crate::tables::Table;

/// Table to attach to.
struct TargetTable {
    table: Table,
    /// True if the indexes were created for this attachment, and have no entries yet.
    has_new_indexes: bool,
}

/// Counts of an attached part.
struct AttachedPart {
    rows: u64,
    /// Number of values whose contents are not in the archive.
    streamed_values: u64,
}

/// Guard that prevents the build of the indexes of a table until it is dropped. The coverage of a copy of the rows of
/// this table that runs meanwhile is not stored.
struct UnbuiltIndexes<'e> {
    engine: &'e Engine,
    name: TableName,
}

impl<'e> UnbuiltIndexes<'e> {
    fn begin(engine: &'e Engine, name: &TableName) -> Self {
        engine.unbuilt.lock().insert(name.clone());
        *engine.row_attachments.lock().entry(name.clone()).or_default() += 1;
        Self {
            engine,
            name: name.clone(),
        }
    }
}

impl Drop for UnbuiltIndexes<'_> {
    fn drop(&mut self) {
        // Counted first, so that a copy of rows finds the name or another number.
        *self
            .engine
            .row_attachments
            .lock()
            .entry(self.name.clone())
            .or_default() += 1;
        self.engine.unbuilt.lock().remove(&self.name);
        self.engine.follow_searches();
    }
}

impl Engine {
    /// Attaches the parts of a plan to one table.
    pub(super) fn attach_rows(
        &self,
        plan: &AttachPlan,
        planned: &PlannedRows,
        progress: &mut AttachProgress,
        watch: &mut Watch<'_>,
    ) -> std::result::Result<(), AttachStop> {
        if planned.parts.is_empty() && planned.adopted.is_empty() {
            return Ok(());
        }
        let _unbuilt = UnbuiltIndexes::begin(self, &planned.name);
        let mut target = self.row_table_for(plan, planned)?;
        if !planned.parts.is_empty() {
            self.forget_row_copies(target.table.points.id())?;
        }
        let mut problems = progress.problem_count;
        for part in &planned.parts {
            match self.attach_part(plan, (&mut target, part), progress, watch) {
                Ok(attached) => {
                    progress.parts_attached += 1;
                    progress.rows += attached.rows;
                    if attached.streamed_values > 0 {
                        // All files are attached, so this problem does not prevent the adoption.
                        problems += 1;
                        progress.problem(format!(
                            "table {}, part {}: {} streamed values, which are only in the database that archived their rows",
                            planned.name, part.name, attached.streamed_values
                        ));
                    }
                }
                Err(AttachStop::Problem(problem)) => {
                    progress.problem(format!("table {}, part {}: {problem}", planned.name, part.name));
                }
                Err(halt) => return Err(halt),
            }
            if !watch(progress) {
                return Err(AttachStop::Unwanted);
            }
        }
        // Garbage collection deletes adopted files without a part, so files are adopted only after all parts are
        // attached.
        if plan.own && problems == progress.problem_count && planned.is_whole {
            self.store.adopt(&target.table.points, &planned.adopted)?;
        }
        Ok(())
    }

    /// Attaches one part.
    fn attach_part(
        &self,
        plan: &AttachPlan,
        (target, part): (&mut TargetTable, &PlannedPart),
        progress: &AttachProgress,
        watch: &mut Watch<'_>,
    ) -> std::result::Result<AttachedPart, AttachStop> {
        let archive = self.archive()?;
        let described = archive
            .rows_description(&plan.target, &part.key)
            .map_err(StoreError::from)?;
        let (id, spec) = (target.table.points.id(), target.table.spec());
        let refused = |reason: String| AttachStop::Problem(format!("{}: {reason}", part.key));
        if let Some(reason) = difference(spec.wide.as_deref(), described.spec.wide.as_deref()) {
            return Err(refused(reason));
        }
        if let Some(reason) = self.rows.not_attachable(id, described.number)? {
            return Err(refused(reason));
        }
        self.verify_part(plan, &described, progress, watch)?;
        if !target.has_new_indexes {
            self.renew_indexes(target.table.name().as_str())?;
            target.has_new_indexes = true;
        }
        let to_attach = PartToAttach {
            table: id,
            target: &plan.target,
            key: &part.key,
            described: &described,
        };
        let threads = self.store.threads();
        let flush = || -> std::result::Result<(), WideError> { Ok(threads.flush()?) };
        match self.rows.attach_part(&to_attach, &flush)? {
            AttachEnd::Attached(rows) => Ok(AttachedPart {
                rows,
                streamed_values: described.streamed_values,
            }),
            AttachEnd::Refused(reason) => Err(refused(reason)),
        }
    }

    /// Reads the files of a part and compares them with their checksums. Without `verify`, only compares their sizes.
    fn verify_part(
        &self,
        plan: &AttachPlan,
        described: &RowsDescription,
        progress: &AttachProgress,
        watch: &mut Watch<'_>,
    ) -> std::result::Result<(), AttachStop> {
        let archive = self.archive()?;
        let target = plan.target.as_str();
        let missing = archive
            .missing_rows(target, described.all_files())
            .map_err(StoreError::from)?;
        if let Some(key) = missing {
            return Err(AttachStop::Problem(format!(
                "{key} is missing, or has another size than when it was written"
            )));
        }
        if !plan.verify {
            return Ok(());
        }
        for file in described.all_files() {
            archive.verify_rows_file(target, file).map_err(StoreError::from)?;
            if !watch(progress) {
                return Err(AttachStop::Unwanted);
            }
        }
        Ok(())
    }

    /// Returns the table to attach to. Creates it if it does not exist.
    fn row_table_for(
        &self,
        plan: &AttachPlan,
        planned: &PlannedRows,
    ) -> std::result::Result<TargetTable, AttachStop> {
        let Ok(table) = self.table_of_any_model(planned.name.as_str()) else {
            let spec = attached_settings(&planned.spec, &plan.target);
            if let Some(wide) = spec.wide.as_deref() {
                self.check_search_memory(&wide.search_indexes)?;
            }
            return Ok(TargetTable {
                table: self.create_attached_table(planned.name.clone(), spec)?,
                has_new_indexes: true,
            });
        };
        let spec = table.spec();
        if spec.model != planned.spec.model {
            return Err(AttachStop::Problem(format!(
                "it has the model {}, and the archive has parts of a table of the model {}; attach it under another name",
                spec.model, planned.spec.model
            )));
        }
        if let Some(reason) = difference(spec.wide.as_deref(), planned.spec.wide.as_deref()) {
            return Err(AttachStop::Problem(reason));
        }
        Ok(TargetTable {
            table,
            has_new_indexes: false,
        })
    }

    /// Replaces the indexes of a table with new ones without entries.
    fn renew_indexes(&self, name: &str) -> crate::error::Result<()> {
        let _settings = self.lock_settings();
        let table = self.table_of_rows(name)?;
        let settings = table.settings();
        if settings.indexes.is_empty() && settings.search_indexes.is_empty() {
            return Ok(());
        }
        self.change_wide(&table, unbuilt)?;
        self.store.log().notify_flusher();
        Ok(())
    }
}

/// Replaces the indexes in the settings with new ones without entries.
fn unbuilt(wide: &mut WideSpec) {
    for index in &mut wide.indexes {
        index.id = 0;
        index.state = IndexState::Building { next: String::new() };
    }
    // An index that is being rebuilt has a successor of the same name. Only the successor is kept.
    let names: Vec<String> = wide
        .search_indexes
        .iter()
        .map(|index| index.name.clone())
        .collect();
    let mut at = 0;
    wide.search_indexes.retain_mut(|index| {
        at += 1;
        index.id = 0;
        !names[at..].contains(&index.name)
    });
}

/// Returns the settings of a new table with the rows of an archive.
fn attached_settings(spec: &TableSpec, target: &str) -> TableSpec {
    let mut spec = TableSpec {
        is_system: false,
        ..spec.clone()
    };
    if let Some(wide) = spec.wide.as_deref_mut() {
        unbuilt(wide);
        // The pieces of large values stayed in the database that wrote them.
        wide.large_values = None;
        wide.cut_values = false;
        wide.codecs = false;
        // In this database, the ids of the other database belong to other tables.
        wide.groups.iter_mut().for_each(|group| group.id = 0);
        if let Some(archive) = wide.parts.as_mut().and_then(|parts| parts.archive.as_mut()) {
            target.clone_into(&mut archive.target);
        }
    }
    spec
}

/// Returns the reason why archived rows cannot belong to a table; `None` if they can.
fn difference(table: Option<&WideSpec>, archive: Option<&WideSpec>) -> Option<String> {
    let (Some(table), Some(archive)) = (table, archive) else {
        return Some("its settings have no key".to_owned());
    };
    let other = |what: &str| {
        Some(format!(
            "{what} differs from that of the archive; attach it under another name"
        ))
    };
    if table.key != archive.key {
        return other("the key of the table");
    }
    let division = |spec: &WideSpec| spec.parts.as_ref().map(|parts| (parts.by.clone(), parts.every));
    if division(table) != division(archive) {
        return other("the division of the table into parts");
    }
    // Rows store a column by its number, so names and numbers must belong together.
    let is_stored_otherwise = |column: &&ColumnSpec| {
        let named = archive.columns.iter().find(|other| other.name == column.name);
        let numbered = archive.columns.iter().find(|other| other.number == column.number);
        match (named, numbered) {
            _ if column.is_pattern() => false,
            (Some(named), _) => named.number != column.number || named.column_type != column.column_type,
            (None, numbered) => column.number != 0 && numbered.is_some(),
        }
    };
    let found = table.columns.iter().find(is_stored_otherwise);
    let removed = |column: &&ColumnSpec| {
        let is_known = table.columns.iter().any(|other| other.name == column.name);
        column.number >= table.next_column && !is_known
    };
    let found = found.or_else(|| archive.columns.iter().find(removed))?;
    other(&format!("the declaration of the column {:?}", found.name))
}
