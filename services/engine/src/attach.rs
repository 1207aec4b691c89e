//! Attaching an archive: what another database has written becomes tables here, with its timelines.
//!
//! | file | part |
//! |---|---|
//! | [`plan`] | which segments there are, and which of them hold what others hold as well |
//! | [`people`] | timelines: who they are, and what was set about them |
//! | this one | segment by segment: timelines, then the places of their rows |
//!
//! A segment counts from one manifest edit on. Whatever ends the work before leaves those that are attached, and sent again
//! it goes on with the others.

mod people;
mod plan;

use std::sync::Arc;

use tideline_archive::{Archive, ArchiveError, Attached, Description, TimelineRun, TimelinesFile};
use tideline_model::{SequenceNumber, TableName, TableSpec};
use tideline_series_store::{Segment, StoreError};

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::tables::Table;
use people::Newcomers;
pub use plan::{AttachPlan, PlannedTable};

/// Most problems that are told one by one.
const PROBLEMS_MAX: usize = 20;

/// What is to be attached.
#[derive(Debug, Clone)]
pub struct AttachRequest {
    /// The target, by name or address.
    pub target: String,
    /// One table, as it is called there; without it all.
    pub table: Option<TableName>,
    /// What that one is called here.
    pub rename: Option<TableName>,
    /// Only what this database has written: the first part of the names of its objects.
    pub origin: Option<String>,
    /// Whether the files are this database's from now on: removed with their points.
    pub own: bool,
}

/// How far attaching has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttachProgress {
    /// Tables that are looked at or were.
    pub tables: u64,
    /// Segments that are to be attached.
    pub segments: u64,
    /// Those that are.
    pub attached: u64,
    /// Timelines that were not known here before.
    pub timelines: u64,
    /// Points that can be read now.
    pub points: u64,
    /// Segments that are passed over, since later ones hold the same.
    pub superseded: u64,
    /// Segments that were attached before, or are this database's own.
    pub known: u64,
    /// Entries of the files of timelines that were read; those of all segments are [`AttachPlan::entries`].
    pub entries: u64,
    /// What could not be attached, and why; the first of them.
    pub problems: Vec<String>,
    /// How many there are.
    pub problem_count: u64,
}

impl AttachProgress {
    fn problem(&mut self, what: impl Into<String>) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(what.into());
        }
    }
}

/// Asked after every few timelines whether to go on.
type Watch<'a> = dyn FnMut(&AttachProgress) -> bool + 'a;

/// Why a segment was not attached.
enum Halt {
    /// Somebody wants it to end.
    Unwanted,
    /// It is damaged or does not fit: the others may be sound.
    Problem(String),
    /// Going on is of no use now.
    Failed(EngineError),
}

impl<E: Into<EngineError>> From<E> for Halt {
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
            EngineError::Invalid(_) => true,
            _ => false,
        };
        match is_of_segment {
            true => Self::Problem(error.to_string()),
            false => Self::Failed(error),
        }
    }
}

impl Engine {
    /// Attaches what a plan says, segment by segment; `watch` is asked after every few timelines, and when it returns
    /// false the rest stays as it is. The last progress, and whether the plan was followed to its end.
    ///
    /// What is damaged or does not fit is told as a problem, and the rest goes on.
    ///
    /// # Errors
    ///
    /// Where the target cannot be reached or the store fails; what is attached stays.
    pub fn attach(&self, plan: &AttachPlan, watch: &mut Watch<'_>) -> Result<(AttachProgress, bool)> {
        let _one_at_a_time = self.attaching.try_lock().ok_or(EngineError::AttachRunning)?;
        let mut progress = AttachProgress {
            segments: plan.tables.iter().map(|table| table.keys.len() as u64).sum(),
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
            match self.attach_table(plan, of_table, &mut progress, watch) {
                Ok(()) => {}
                Err(Halt::Problem(problem)) => {
                    progress.problem(format!("table {}: {problem}", of_table.name));
                }
                Err(Halt::Unwanted) => return Ok((progress, false)),
                Err(Halt::Failed(error)) => return Err(error),
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
    ) -> std::result::Result<(), Halt> {
        if planned.keys.is_empty() && planned.adopted.is_empty() {
            return Ok(());
        }
        let table = self.table_for(plan, planned)?;
        let problems = progress.problem_count;
        let from = self.store.raise_sequences(&table.points, planned.sequences_end)?;
        // Points that were written before lie in segments then, so that it can be seen what they overlap.
        self.store.seal()?;
        for segment in &planned.segments {
            self.store.check_attach(&table.points, segment)?;
        }
        let mut newcomers = Newcomers::new(self.store.archived(&table.points));
        for key in &planned.keys {
            match self.attach_segment(plan, (&table, key, from), &mut newcomers, progress, watch) {
                Ok(()) => progress.attached += 1,
                Err(Halt::Problem(problem)) => progress.problem(problem),
                Err(halt) => return Err(halt),
            }
            if !watch(progress) {
                return Err(Halt::Unwanted);
            }
        }
        if let Some(refusal) = newcomers.take_refusal() {
            progress.problem(format!("table {}: attributes: {refusal}", planned.name));
        }
        // As long as something of it is not attached, a sweep would take it for left over.
        if plan.own && problems == progress.problem_count && planned.is_whole {
            self.store.adopt(&table.points, &planned.adopted)?;
        }
        Ok(())
    }

    fn attach_segment(
        &self,
        plan: &AttachPlan,
        (table, key, from): (&Table, &str, SequenceNumber),
        newcomers: &mut Newcomers,
        progress: &mut AttachProgress,
        watch: &mut Watch<'_>,
    ) -> std::result::Result<(), Halt> {
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
        // Nobody takes a timeline for empty before its points are there.
        let _timelines_stay = self.keep_timelines(table)?;
        newcomers.begin();
        let mut runs = file.runs().map_err(StoreError::from)?;
        while self.take_people(table, &mut runs, newcomers, progress)? {
            if !watch(progress) {
                return Err(Halt::Unwanted);
            }
        }
        let mut places = named(&file)?;
        let attached = self
            .store
            .attach(&table.points, &described, files, from, &mut places)?;
        newcomers.end();
        match attached {
            Some(segment) => {
                progress.points += segment.points;
                self.store.wake_watchers();
                Ok(())
            }
            None => Err(Halt::Problem(format!("{key}: nobody knows whose its points are"))),
        }
    }

    /// The table that segments go to, made where it is missing.
    fn table_for(&self, plan: &AttachPlan, planned: &PlannedTable) -> std::result::Result<Table, Halt> {
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
            return Err(Halt::Problem(format!(
                "its source_tags are {:?}, and those of the archive {:?}: attach it under another name",
                table.spec().source_tags,
                spec.source_tags
            )));
        }
        Ok(table)
    }
}

/// Settings whose archive is where the files were found.
fn pointed(spec: &TableSpec, target: &str) -> TableSpec {
    let mut spec = spec.clone();
    if let Some(archive) = &mut spec.policy.archive {
        target.clone_into(&mut archive.target);
    }
    spec
}

/// Makes the fields of a segment known.
fn take_fields(archive: &Archive, table: &Table, description: &Description) -> std::result::Result<(), Halt> {
    let fields = match &description.fields {
        Some(fields) => fields.clone(),
        None => archive.fields(&description.archive).map_err(StoreError::from)?,
    };
    for (measurement, fields) in fields {
        for field in fields {
            let types = field.known_types().filter(|types| !types.is_empty());
            let types = types.ok_or_else(|| {
                let sidecar = &description.archive.sidecar;
                Halt::Problem(format!("{sidecar}: field {:?} is of an unknown type", field.name))
            })?;
            table.points.schema().take_in(&measurement, &field.name, &types)?;
        }
    }
    Ok(())
}

/// The places of the runs of all timelines that have a name. What has none was deleted, and nobody could ask for it.
fn named(
    file: &TimelinesFile,
) -> std::result::Result<
    impl Iterator<Item = std::result::Result<(tideline_model::TimelineId, tideline_archive::Extent), StoreError>>,
    Halt,
> {
    let place = |run: tideline_archive::Result<TimelineRun>| match run {
        Ok(run) => run.who.is_some().then_some(Ok((run.id, run.extent))),
        Err(error) => Some(Err(error.into())),
    };
    Ok(file.runs().map_err(StoreError::from)?.filter_map(place))
}
