//! `/v1/archive`: state of archives. `/v1/tables/{table}/archive/restore`: restore of archived points to the cold tier,
//! or as a copy.
//!
//! Restores run as jobs of the scheduler; the handlers start them and optionally wait for their end.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use tideline_engine::Engine;
use tideline_engine::model::TimeRange;
use tideline_engine::model::time::NANOS_PER_DAY;
use tideline_engine::moves::TableSurvey;
use tideline_openapi::archive::{
    ArchiveOverview, ArchiveTarget, RestoreArchived, RestoredArchive, TableArchive,
};
use tideline_openapi::policy::ArchivePolicy;
use tideline_openapi::time::DurationText;
use tideline_scheduler::requested::copy::CopyJob;
use tideline_scheduler::{ArchiveState, Job, JobState};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::condition::to_range;
use crate::context::{RequestId, current_client};
use crate::extract::{Json as JsonBody, Path};
use crate::failure::{Failure, Result};
use crate::requested;
use crate::resources::jobs::{done, view};
use crate::resources::policies::amount;
use crate::resources::{Failures, TablePath, instant, whole_seconds};

/// Default time for which restored points stay in the cold tier.
const FOR_DEFAULT: i64 = 7 * NANOS_PER_DAY;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(overview))
        .routes(routes!(restore))
}

/// Read the state of archives
///
/// Returns the targets, without credentials. For each table with an archive policy or archived points, the
/// response contains the amounts of archived and waiting points, the waiting time, and failures of moves.
/// This request does not access the targets; use `tideline archive check` and `verify` to check them.
#[utoipa::path(
    get, path = "/v1/archive", tag = "jobs",
    responses((status = 200, description = "Targets and tables", body = ArchiveOverview), Failures)
)]
async fn overview(State(app): State<App>, id: RequestId) -> Result<Json<ArchiveOverview>> {
    let scheduler = app.scheduler.clone();
    let overview = app.read(move |engine| {
        let states = scheduler.archives();
        let survey = engine.store().survey();
        let of_table = |state: &ArchiveState| {
            let found = survey
                .tables
                .iter()
                .find(|table| table.table.id() == state.table.id);
            found.map(|survey| (state.clone(), survey))
        };
        let tables: Vec<(ArchiveState, &TableSurvey)> = states.iter().filter_map(of_table).collect();
        Ok(ArchiveOverview {
            targets: targets(engine, &tables),
            tables: tables
                .iter()
                .map(|(state, survey)| shown(state, survey))
                .collect(),
            request_id: id.into(),
        })
    });
    Ok(Json(overview.await?))
}

/// Returns every target that the configuration, a policy or an archived segment refers to; empty if the store has no
/// archive.
fn targets(engine: &Engine, tables: &[(ArchiveState, &TableSurvey)]) -> Vec<ArchiveTarget> {
    let Some(archive) = engine.store().archive() else {
        return Vec::new();
    };
    let configured = archive.configured().map(|name| (name.to_owned(), Vec::new()));
    let mut named: BTreeMap<String, Vec<&ArchiveState>> = configured.collect();
    for (state, survey) in tables {
        let policy = survey
            .table
            .spec()
            .policy
            .archive
            .as_ref()
            .map(|policy| policy.target.clone());
        if let Some(target) = &policy {
            named.entry(target.clone()).or_default().push(state);
        }
        let parts = survey.segments.iter().flat_map(|have| have.segment.parts());
        for files in parts.filter_map(|part| part.archive.as_ref()) {
            if !named.contains_key(files.target()) {
                named.insert(files.target().to_owned(), Vec::new());
            }
        }
    }
    let shown = |(name, states): (String, Vec<&ArchiveState>)| {
        let opened = archive.target(&name);
        let refused = archive.check_allowed(&name).err();
        let refused =
            refused.map(|error| format!("{error}. Existing files are still read; new ones are not written"));
        let traffic = opened.as_ref().map(|target| target.traffic()).unwrap_or_default();
        let worst = states.iter().max_by_key(|state| state.failures);
        let failed = worst.filter(|state| state.failures > 0).and_then(|state| {
            let job = state
                .last_job
                .as_ref()
                .filter(|job| job.state == JobState::Failed)?;
            job.error.clone()
        });
        ArchiveTarget {
            address: opened.as_ref().ok().map(|target| target.to_string()),
            tables: states.iter().map(|state| state.table.name.clone()).collect(),
            failures: worst.map_or(0, |state| state.failures),
            error: refused.or(opened.err().map(|error| error.to_string())).or(failed),
            gets: traffic.gets,
            bytes_got: traffic.bytes_got,
            puts: traffic.puts,
            bytes_put: traffic.bytes_put,
            name,
        }
    };
    named.into_iter().map(shown).collect()
}

fn shown(state: &ArchiveState, survey: &TableSurvey) -> TableArchive {
    let parts = || survey.segments.iter().flat_map(|have| have.segment.parts());
    let in_files = || parts().filter(|part| part.archive.is_some());
    let files = || in_files().filter_map(|part| part.archive.as_ref());
    let standing = &state.standing;
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
        behind: whole_seconds(Duration::from_nanos(state.behind.unsigned_abs())),
        failures: state.failures,
        tried_again: state.tried_again.filter(|_| state.failures > 0).map(instant),
        last_job: state.last_job.clone().map(view),
        stalled: state.stalled.clone(),
    }
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
    State(app): State<App>,
    id: RequestId,
    Path(TablePath { table }): Path<TablePath>,
    JsonBody(RestoreArchived {
        range,
        lasting,
        into,
        wait,
    }): JsonBody<RestoreArchived>,
) -> Result<(StatusCode, Json<RestoredArchive>)> {
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
    let job = match begun {
        Some(job) if wait => done(&app, vec![job.id]).await?.pop(),
        begun => begun,
    };
    let is_over = job.as_ref().is_none_or(|job| job.state.is_final());
    let status = if is_over {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
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
async fn bring_back(app: &App, table: String, range: TimeRange, lasting: i64) -> Result<(Option<Job>, i64)> {
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
async fn copy(app: &App, from: String, into: String, range: TimeRange) -> Result<Job> {
    let permit = app.requested_jobs.take(current_client()).await?;
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
