//! `/v1/archive`: state of archives. `/v1/tables/{table}/archive/restore`: restore of archived points to the cold tier,
//! or as a copy.
//!
//! Restores run as jobs of the scheduler; the handlers start them and optionally wait for their end.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use tideline_engine::Engine;
use tideline_engine::model::TimeRange;
use tideline_engine::model::time::NANOS_PER_DAY;
use tideline_engine::moves::TableSurvey;
use tideline_openapi::archive::{
    ArchiveOverview, ArchiveTarget, PartsAtTarget, RestoreArchived, RestoredArchive, TableArchive,
    WideTableArchive,
};
use tideline_openapi::policy::ArchivePolicy;
use tideline_openapi::time::DurationText;
use tideline_openapi::wide::PartsArchive;
use tideline_scheduler::requested::copy::CopyJob;
use tideline_scheduler::{ArchiveMoves, ArchiveState, Job, JobState, RowArchiveState};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::audit_detail;
use crate::condition::to_range;
use crate::context::RequestId;
use crate::extract::{Json as JsonBody, Path};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::requested;
use crate::resources::jobs::{awaited, view};
use crate::resources::policies::amount;
use crate::resources::{Failures, TablePath, instant, whole_seconds};

/// Default time for which restored points stay in the cold tier, in nanoseconds: seven days.
const FOR_DEFAULT: i64 = 7 * NANOS_PER_DAY;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(overview))
        .routes(routes!(restore))
}

/// Read the state of archives
///
/// Returns the targets, without credentials. For each table with an archive or with archived points or rows, the
/// response contains the amounts of archived and waiting data, the waiting time, and failures of moves. Parts of
/// wide tables are in `wide_tables`. This request does not access the targets; use `tideline archive check` and
/// `verify` to check them.
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/archive", tag = "jobs",
    responses((status = 200, description = "Targets and tables", body = ArchiveOverview), Failures)
)]
async fn overview(app: Grant, id: RequestId) -> Result<Json<ArchiveOverview>> {
    let scheduler = app.scheduler.clone();
    let seen = app.clone();
    let overview = app.read(move |engine| {
        let mut states = scheduler.archives();
        states.retain(|state| seen.sees_table(&state.table.name));
        let mut rows = scheduler.row_archives();
        rows.retain(|state| seen.sees_table(state.archive.name.as_str()));
        let survey = engine.store().survey();
        let of_table = |state: &ArchiveState| {
            let found = survey
                .tables
                .iter()
                .find(|table| table.table.id() == state.table.id);
            found.map(|survey| (state.clone(), survey))
        };
        let tables: Vec<(ArchiveState, &TableSurvey)> = states.iter().filter_map(of_table).collect();
        let mut uses = TargetUses::default();
        tables.iter().for_each(|(state, survey)| uses.add(state, survey));
        rows.iter().for_each(|state| uses.add_rows(state));
        Ok(ArchiveOverview {
            targets: targets(engine, uses, seen.access.check_all().is_ok()),
            tables: tables
                .iter()
                .map(|(state, survey)| shown(state, survey))
                .collect(),
            wide_tables: rows.iter().map(shown_rows).collect(),
            request_id: id.into(),
        })
    });
    Ok(Json(overview.await?))
}

/// Archive targets, each with the tables that move data to it.
#[derive(Default)]
struct TargetUses<'s>(BTreeMap<String, Vec<(&'s str, &'s ArchiveMoves)>>);

impl<'s> TargetUses<'s> {
    fn add(&mut self, state: &'s ArchiveState, survey: &TableSurvey) {
        if let Some(policy) = &survey.table.spec().policy.archive {
            let of_target = self.0.entry(policy.target.clone()).or_default();
            of_target.push((&state.table.name, &state.moves));
        }
        let parts = survey.segments.iter().flat_map(|have| have.segment.parts());
        for files in parts.filter_map(|part| part.archive.as_ref()) {
            self.add_target(files.target());
        }
    }

    fn add_rows(&mut self, state: &'s RowArchiveState) {
        if let Some(settings) = &state.archive.settings {
            let of_target = self.0.entry(settings.target.clone()).or_default();
            of_target.push((state.archive.name.as_str(), &state.moves));
        }
        let parts = state.archive.parts.iter();
        parts.for_each(|part| self.add_target(&part.target));
    }

    fn add_target(&mut self, name: &str) {
        if !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), Vec::new());
        }
    }
}

/// Returns every target that a table refers to. With `has_all`, also returns the targets of the configuration.
/// Empty if the store has no archive.
fn targets(engine: &Engine, mut uses: TargetUses<'_>, has_all: bool) -> Vec<ArchiveTarget> {
    let Some(archive) = engine.store().archive() else {
        return Vec::new();
    };
    if has_all {
        archive.configured().for_each(|name| uses.add_target(name));
    }
    let shown = |(name, tables): (String, Vec<(&str, &ArchiveMoves)>)| {
        let opened = archive.target(&name);
        let refused = archive.check_allowed(&name).err();
        let refused =
            refused.map(|error| format!("{error}. Existing files are still read; new ones are not written"));
        let traffic = opened.as_ref().map(|target| target.traffic()).unwrap_or_default();
        let worst = tables
            .iter()
            .map(|(_, moves)| moves)
            .max_by_key(|moves| moves.failures);
        let failed = worst.filter(|moves| moves.failures > 0).and_then(|moves| {
            let job = moves.last_job.as_ref();
            let job = job.filter(|job| job.state == JobState::Failed)?;
            job.error.clone()
        });
        ArchiveTarget {
            address: opened.as_ref().ok().map(|target| target.to_string()),
            failures: worst.map_or(0, |moves| moves.failures),
            tables: tables.into_iter().map(|(table, _)| table.to_owned()).collect(),
            error: refused.or(opened.err().map(|error| error.to_string())).or(failed),
            gets: traffic.gets,
            bytes_got: traffic.bytes_got,
            puts: traffic.puts,
            bytes_put: traffic.bytes_put,
            name,
        }
    };
    uses.0.into_iter().map(shown).collect()
}

fn shown(state: &ArchiveState, survey: &TableSurvey) -> TableArchive {
    let parts = || survey.segments.iter().flat_map(|have| have.segment.parts());
    let in_files = || parts().filter(|part| part.archive.is_some());
    let files = || in_files().filter_map(|part| part.archive.as_ref());
    let ArchiveState { standing, moves, .. } = state;
    TableArchive {
        table: state.table.name.clone(),
        archive: survey
            .table
            .spec()
            .policy
            .archive
            .as_ref()
            .map(ArchivePolicy::from),
        // Includes the files of archived timelines.
        files: files().map(|files| files.count()).sum(),
        file_bytes: files().map(|files| files.bytes()).sum(),
        oldest: in_files().map(|part| part.first).min().map(instant),
        newest: in_files().map(|part| part.last).max().map(instant),
        archived: amount(standing.archived),
        copied: amount(standing.copied),
        waiting: amount(standing.waiting),
        late: amount(standing.late),
        waiting_since: standing.waiting_since.map(instant),
        behind: behind(moves),
        failures: moves.failures,
        tried_again: tried_again(moves),
        last_job: moves.last_job.clone().map(view),
        stalled: moves.stalled.clone(),
    }
}

fn shown_rows(state: &RowArchiveState) -> WideTableArchive {
    let RowArchiveState { archive, moves } = state;
    let mut targets: BTreeMap<&str, PartsAtTarget> = BTreeMap::new();
    for part in &archive.parts {
        let of_target = targets.entry(&part.target).or_insert_with(|| PartsAtTarget {
            name: part.target.clone(),
            parts: 0,
            rows: 0,
            files: 0,
            file_bytes: 0,
        });
        of_target.parts += 1;
        of_target.rows += part.rows;
        of_target.files += part.files;
        of_target.file_bytes += part.bytes;
    }
    WideTableArchive {
        table: archive.name.to_string(),
        archive: archive.settings.as_ref().map(PartsArchive::from),
        parts: archive.parts.len() as u64,
        rows: archive.sum(|part| part.rows),
        files: archive.sum(|part| part.files),
        file_bytes: archive.sum(|part| part.bytes),
        targets: targets.into_values().collect(),
        oldest: archive.span.map(|(oldest, _)| oldest.to_rfc3339()),
        newest: archive.span.map(|(_, newest)| newest.to_rfc3339()),
        waiting: archive.waiting,
        waiting_since: archive.waiting_since.map(instant),
        behind: behind(moves),
        failures: moves.failures,
        tried_again: tried_again(moves),
        last_job: moves.last_job.clone().map(view),
        stalled: moves.stalled.clone(),
    }
}

fn behind(moves: &ArchiveMoves) -> DurationText {
    whole_seconds(Duration::from_nanos(moves.behind.unsigned_abs()))
}

fn tried_again(moves: &ArchiveMoves) -> Option<String> {
    moves.tried_again.filter(|_| moves.failures > 0).map(instant)
}

/// Restore archived points
///
/// Restores the points of a time range to the cold tier, as a job of kind `restore`, which can be listed,
/// paused and cancelled under `/v1/jobs`. Whole segments are restored one after the other. They stay in the
/// cold tier for the requested time. Then policies archive them again; unchanged points are not written
/// again. If the job is cancelled or fails, the segments restored so far stay, and a repeated request
/// restores the missing ones. Queries return the same results as before, without reading from the target.
///
/// With `into`, the points of the range are copied into another table instead. That table must exist, and its
/// `write_past` and `retention` determine which points it accepts.
#[utoipa::path(
    security(("token" = ["operate"])),
    post, path = "/v1/tables/{table}/archive/restore", tag = "jobs",
    params(TablePath),
    request_body = RestoreArchived,
    responses(
        (status = 200, description = "The job has ended, or there is nothing to do", body = RestoredArchive),
        (status = 202, description = "The job is planned or running", body = RestoredArchive),
        Failures
    )
)]
async fn restore(
    app: Grant,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    JsonBody(body): JsonBody<RestoreArchived>,
) -> Result<(StatusCode, Json<RestoredArchive>)> {
    app.note_detail(audit_detail::members(&body));
    let RestoreArchived {
        range,
        lasting,
        into,
        wait,
    } = body;
    let range = to_range(range, app.engine.now());
    if range.is_empty() {
        return Err(Failure::invalid("range is empty: end is not after start"));
    }
    let (begun, until) = match (into, lasting) {
        (Some(_), Some(_)) => {
            return Err(Failure::invalid(
                "for is not allowed with into: the policy of the other table applies to the copy",
            ));
        }
        (Some(into), None) => (Some(copy(&app, table, into, range).await?), None),
        (None, lasting) => {
            let DurationText(lasting) = lasting.unwrap_or(DurationText(FOR_DEFAULT));
            let (begun, until) = bring_back(&app, table, range, lasting).await?;
            (begun, Some(until))
        }
    };
    let (status, job) = match begun {
        Some(job) => {
            let (status, job) = awaited(&app, job, wait).await?;
            (status, Some(job))
        }
        None => (StatusCode::OK, None),
    };
    Ok((
        status,
        Json(RestoredArchive {
            job: job.map(view),
            until: until.map(instant),
            request_id: id.into(),
        }),
    ))
}

/// Starts a restore of segments to the cold tier. Returns the job (`None` if no segment is in the range), and the
/// time until which the segments stay in the cold tier.
async fn bring_back(
    app: &Grant,
    table: String,
    range: TimeRange,
    lasting: i64,
) -> Result<(Option<Job>, i64)> {
    if lasting <= 0 {
        return Err(Failure::invalid(
            "for must be greater than zero, such as \"7d\"; otherwise the points are archived again at once",
        ));
    }
    let scheduler = app.scheduler.clone();
    app.change(move |engine| {
        engine.table(&table)?;
        let until = engine.store().trusted_now().now.nanos().saturating_add(lasting);
        Ok((scheduler.restore(&table, range, until)?, until))
    })
    .await
}

/// Starts a copy of points into another table.
async fn copy(app: &Grant, from: String, into: String, range: TimeRange) -> Result<Job> {
    let permit = app.permit(&app.requested_jobs).await?;
    let (running, begun) = (app.clone(), app.clone());
    let begin = move || {
        let job = CopyJob::begin(&begun.scheduler, &begun.engine, &from, &into)?;
        job.ok_or_else(|| Failure::invalid("into is the same table; name another one"))
    };
    let shown = |work: &CopyJob| work.job.job();
    requested::in_background(permit, begin, shown, move |work| {
        work.perform(&running.engine, range, &|| running.is_draining());
    })
    .await
}
