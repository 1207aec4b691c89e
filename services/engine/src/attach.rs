//! Attaching an archive: segments written by another database become segments of this one, with their timelines, and
//! archived parts of wide tables become parts of this one.
//!
//! | file | part |
//! |---|---|
//! | [`plan`] | determines the segments to attach, without superseded segments |
//! | [`plan_rows`] | determines the parts of wide tables to attach |
//! | [`rows`] | attaches parts of wide tables |
//! | [`timelines`] | registers timelines and sets their attributes |
//! | this file | attaches segment by segment: first the timelines of a segment, then the locations of their rows |
//!
//! Each segment and each part becomes visible with one manifest edit. An interrupted run keeps the segments and parts
//! attached so far; a repeated request attaches the rest.

mod plan;
mod plan_rows;
mod rows;
mod timelines;

use std::sync::Arc;

use tideline_archive::{Archive, ArchiveError, Attached, Description, TimelineRun, TimelinesFile};
use tideline_model::{TableName, TableSpec};
use tideline_series_store::{Attachment, Segment, StoreError};

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::tables::Table;
pub use plan::{AttachPlan, PlannedTable};
pub use plan_rows::{PlannedPart, PlannedRows};
use timelines::NewTimelines;

/// Maximum number of problems that are listed; further problems are only counted.
const PROBLEMS_MAX: usize = 20;

/// Request to attach an archive.
#[derive(Debug, Clone)]
pub struct AttachRequest {
    /// Archive target, by name or URL.
    pub target: String,
    /// Table to attach, by its name in the archive; `None` = all tables.
    pub table: Option<TableName>,
    /// Name of that table in this database; `None` = the same name.
    pub rename: Option<TableName>,
    /// Origin whose segments are attached: the first part of their file names. `None` = all origins.
    pub origin: Option<String>,
    /// True if this database owns the files from now on and deletes them with their points or rows.
    pub own: bool,
    /// Names of the parts of a wide table to attach; empty = all. Requires `table`.
    pub parts: Vec<String>,
    /// True if the files of parts are read and compared with their checksums before the parts are attached. Otherwise
    /// only their sizes are compared.
    pub verify: bool,
}

/// Progress of attaching an archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttachProgress {
    /// Tables started so far.
    pub tables: u64,
    /// Segments to attach.
    pub segments: u64,
    /// Segments attached so far.
    pub attached: u64,
    /// New timelines registered so far.
    pub timelines: u64,
    /// Points of the segments attached so far.
    pub points: u64,
    /// Segments and parts skipped because later segments or parts hold the same points or rows.
    pub superseded: u64,
    /// Segments and parts skipped because they were attached before or written by this database.
    pub known: u64,
    /// Entries read from the timeline files; [`AttachPlan::entries`] is their total.
    pub entries: u64,
    /// Parts of wide tables to attach.
    pub parts: u64,
    /// Parts attached so far.
    pub parts_attached: u64,
    /// Rows of the parts attached so far.
    pub rows: u64,
    /// The first problems, at most 20, one sentence each.
    pub problems: Vec<String>,
    /// Total number of problems, including problems that are not listed.
    pub problem_count: u64,
}

impl AttachProgress {
    fn problem(&mut self, what: impl Into<String>) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(what.into());
        }
    }

    /// Records the end of the work on a table. Returns false if the progress callback has stopped the run.
    fn end_table(&mut self, table: &TableName, ended: std::result::Result<(), AttachStop>) -> Result<bool> {
        match ended {
            Ok(()) => Ok(true),
            Err(AttachStop::Problem(problem)) => {
                self.problem(format!("table {table}: {problem}"));
                Ok(true)
            }
            Err(AttachStop::Unwanted) => Ok(false),
            Err(AttachStop::Failed(error)) => Err(error),
        }
    }
}

/// Progress callback, called at least once per 1,000 timelines. Attaching stops when it returns false.
type Watch<'a> = dyn FnMut(&AttachProgress) -> bool + 'a;

/// Reason why attaching a segment or a table stopped.
enum AttachStop {
    /// The progress callback returned false.
    Unwanted,
    /// The segment or the table is damaged or incompatible; other segments and tables may be sound.
    Problem(String),
    /// Attaching failed as a whole.
    Failed(EngineError),
}

impl<E: Into<EngineError>> From<E> for AttachStop {
    fn from(error: E) -> Self {
        let error = error.into();
        let is_of_segment = match &error {
            EngineError::Store(StoreError::Archive(error)) => {
                !error.is_retryable() && !matches!(error, ArchiveError::BadTarget { .. })
            }
            EngineError::Store(error) => matches!(
                error,
                StoreError::StoredRow { .. }
                    | StoreError::Clash { .. }
                    | StoreError::TypeConflict(_)
                    | StoreError::NoCommonWindow
            ),
            EngineError::Invalid(_) | EngineError::OverLimit { .. } => true,
            _ => false,
        };
        match is_of_segment {
            true => Self::Problem(error.to_string()),
            false => Self::Failed(error),
        }
    }
}

impl Engine {
    /// Attaches the segments and the parts of wide tables of a plan one by one. Returns the final progress, and false
    /// if `watch` stopped the run.
    ///
    /// `watch` is called at least once per 1,000 timelines. When it returns false, the remaining segments and parts are
    /// not attached. A segment or part that is damaged or incompatible is reported as a problem, and the others are
    /// still attached. If a check of a table fails, nothing is attached to this table.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::AttachRunning`] while another call attaches an archive. Returns an error if the target
    /// cannot be reached or the store fails; segments and parts that were attached before stay attached.
    pub fn attach(&self, plan: &AttachPlan, watch: &mut Watch<'_>) -> Result<(AttachProgress, bool)> {
        let _one_at_a_time = self.attaching.try_lock().ok_or(EngineError::AttachRunning)?;
        let mut progress = AttachProgress {
            segments: plan.tables.iter().map(|table| table.keys.len() as u64).sum(),
            parts: plan.rows.iter().map(|table| table.parts.len() as u64).sum(),
            superseded: plan.superseded,
            known: plan.known,
            ..AttachProgress::default()
        };
        plan.problems
            .iter()
            .for_each(|problem| progress.problem(problem.as_str()));
        if !watch(&progress) {
            return Ok((progress, false));
        }
        for of_table in &plan.tables {
            progress.tables += 1;
            let attached = self.attach_table(plan, of_table, &mut progress, watch);
            if !progress.end_table(&of_table.name, attached)? {
                return Ok((progress, false));
            }
        }
        for of_table in &plan.rows {
            progress.tables += 1;
            let attached = self.attach_rows(plan, of_table, &mut progress, watch);
            if !progress.end_table(&of_table.name, attached)? {
                return Ok((progress, false));
            }
        }
        Ok((progress, true))
    }

    fn attach_table(
        &self,
        plan: &AttachPlan,
        planned: &PlannedTable,
        progress: &mut AttachProgress,
        watch: &mut Watch<'_>,
    ) -> std::result::Result<(), AttachStop> {
        if planned.keys.is_empty() && planned.adopted.is_empty() {
            return Ok(());
        }
        let table = self.table_for(plan, planned)?;
        let problems = progress.problem_count;
        let attachment = self.store.begin_attach(&table.points, planned.sequences_end)?;
        // Seals earlier points, so that overlaps with them can be checked segment by segment.
        self.store.seal()?;
        for segment in &planned.segments {
            self.store.check_attach(&table.points, segment)?;
        }
        let mut newcomers = NewTimelines::new(self.store.archived(&table.points));
        for key in &planned.keys {
            match self.attach_segment(plan, (&table, key, &attachment), &mut newcomers, progress, watch) {
                Ok(()) => progress.attached += 1,
                Err(AttachStop::Problem(problem)) => progress.problem(problem),
                Err(halt) => return Err(halt),
            }
            if !watch(progress) {
                return Err(AttachStop::Unwanted);
            }
        }
        if let Some(refusal) = newcomers.take_refusal() {
            progress.problem(format!("table {}: {refusal}", planned.name));
        }
        // Garbage collection deletes adopted files without a segment, so files are adopted only after all segments are
        // attached.
        if plan.own && problems == progress.problem_count && planned.is_whole {
            self.store.adopt(&table.points, &planned.adopted)?;
        }
        Ok(())
    }

    fn attach_segment(
        &self,
        plan: &AttachPlan,
        (table, key, attachment): (&Table, &str, &Attachment<'_>),
        newcomers: &mut NewTimelines,
        progress: &mut AttachProgress,
        watch: &mut Watch<'_>,
    ) -> std::result::Result<(), AttachStop> {
        let archive = self.archive()?;
        let description = archive.description(&plan.target, key).map_err(StoreError::from)?;
        let described = Segment::described(&description.segment)?;
        let mut files = description.archive.clone();
        files.attached = Some(if plan.own {
            Attached::Owned
        } else {
            Attached::Foreign
        });
        let file = archive
            .timelines(&Arc::new(files.clone()))
            .map_err(StoreError::from)?;
        take_fields(archive, table, &description)?;
        // Keeps timelines that have no points yet from being removed as empty.
        let _timelines_stay = self.keep_timelines(table)?;
        newcomers.begin();
        let mut runs = file.runs().map_err(StoreError::from)?;
        while self.register_timelines(table, &mut runs, newcomers, progress)? {
            if !watch(progress) {
                return Err(AttachStop::Unwanted);
            }
        }
        let mut slots = named(&file)?;
        let attached = attachment.attach(&described, files, &mut slots)?;
        newcomers.end();
        match attached {
            Some(segment) => {
                progress.points += segment.points;
                self.store.wake_watchers();
                Ok(())
            }
            None => Err(AttachStop::Problem(format!(
                "{key}: nothing to attach: its files are attached already, or no timeline has an identity"
            ))),
        }
    }

    /// Returns the table to attach to. Creates the table if it does not exist, and applies the settings of the
    /// archive to a table that has default settings and no data. Fails if the `source_tags` differ.
    fn table_for(&self, plan: &AttachPlan, planned: &PlannedTable) -> std::result::Result<Table, AttachStop> {
        let spec = planned.spec.as_ref().map(|spec| pointed(spec, &plan.target));
        let Ok(table) = self.table(planned.name.as_str()) else {
            let made = self.create_table(planned.name.clone(), spec.unwrap_or_default());
            return Ok(made?);
        };
        let Some(spec) = spec else {
            return Ok(table);
        };
        let is_untouched = *table.spec() == TableSpec::default() && table.catalog.is_empty();
        if is_untouched && !self.store.has_points(table.points.id()) {
            return Ok(self.alter_table(planned.name.as_str(), spec)?);
        }
        if table.spec().source_tags != spec.source_tags {
            return Err(AttachStop::Problem(format!(
                "its source_tags {:?} differ from those of the archive, {:?}; attach it under another name",
                table.spec().source_tags,
                spec.source_tags
            )));
        }
        Ok(table)
    }
}

/// Returns settings whose archive target is the one where the files were found.
fn pointed(spec: &TableSpec, target: &str) -> TableSpec {
    let mut spec = TableSpec {
        is_system: false,
        users_of: None,
        ..spec.clone()
    };
    if let Some(archive) = &mut spec.policy.archive {
        target.clone_into(&mut archive.target);
    }
    spec
}

/// Adds the fields of a segment to the schema of the table.
fn take_fields(
    archive: &Archive,
    table: &Table,
    description: &Description,
) -> std::result::Result<(), AttachStop> {
    let fields = match &description.fields {
        Some(fields) => fields.clone(),
        None => archive.fields(&description.archive).map_err(StoreError::from)?,
    };
    for (measurement, fields) in fields {
        for field in fields {
            let types = field.known_types().filter(|types| !types.is_empty());
            let types = types.ok_or_else(|| {
                let sidecar = &description.archive.sidecar;
                AttachStop::Problem(format!("{sidecar}: field {:?} has an unknown type", field.name))
            })?;
            table.points.schema().take_in(&measurement, &field.name, &types)?;
        }
    }
    Ok(())
}

/// Returns the id of each timeline that has an identity, with the extent of its rows. A timeline without an identity
/// was deleted and cannot be queried.
fn named(
    file: &TimelinesFile,
) -> std::result::Result<
    impl Iterator<Item = std::result::Result<(tideline_model::TimelineId, tideline_archive::Extent), StoreError>>,
    AttachStop,
> {
    let slot = |run: tideline_archive::Result<TimelineRun>| match run {
        Ok(run) => run.identity.is_some().then_some(Ok((run.id, run.extent))),
        Err(error) => Some(Err(error.into())),
    };
    Ok(file.runs().map_err(StoreError::from)?.filter_map(slot))
}
