//! `/v1/jobs`: lists, starts, pauses, resumes and cancels background jobs.
//!
//! The scheduler starts most jobs automatically. Clients start jobs for measurements or to see the effect of
//! a policy.

mod view;

use std::time::{Duration, Instant};

use axum::Json;
use axum::http::StatusCode;
use serde::Deserialize;
use tideline_engine::model::JobKind;
use tideline_openapi::job::{JobDetail, JobList, JobQuery, JobState, StartJobs, StartedJobs};
use tideline_openapi::{ErrorBody, ErrorCode};
use tideline_scheduler::{Job, JobFilter, Scheduler, SchedulerError};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::{App, blocking};
use crate::context::{RequestId, current_client};
use crate::extract::{Json as JsonBody, Path, Query};
use crate::failure::{Failure, Result};
use crate::grant::Grant;
use crate::resources::{Failures, page_limit};

use self::view::{ListPosition, to_state, together};
pub(crate) use self::view::{detail, view};

/// Default number of jobs per page.
const PAGE_DEFAULT: usize = 100;
/// Maximum number of jobs per page.
const PAGE_MAX: usize = 1_000;
/// Interval at which a request that waits for jobs checks for a shutdown of the service. After its client has
/// disconnected, the request occupies a thread for at most this interval.
const WAIT_SLICE: Duration = Duration::from_millis(250);

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, start))
        .routes(routes!(read))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(cancel))
}

/// Path parameter of routes for a job.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct JobPath {
    /// Number of the job
    #[param(example = 2)]
    job: u64,
}

/// List jobs
///
/// Running jobs come first, then waiting ones from old to new, then past ones from new to old. At most 200 started jobs
/// are kept; the oldest past job of the most frequent kind is removed first.
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/jobs", tag = "jobs", operation_id = "list_jobs",
    params(JobQuery),
    responses((status = 200, description = "A page of jobs", body = JobList), Failures)
)]
async fn list(app: Grant, id: RequestId, Query(query): Query<JobQuery>) -> Result<Json<JobList>> {
    let limit = page_limit(query.limit, PAGE_DEFAULT, PAGE_MAX)?;
    let after = query.page.as_deref().map(ListPosition::decode).transpose()?;
    let filter = JobFilter {
        kind: query.kind,
        table: query.table,
        state: query.state.map(to_state),
    };
    let mut jobs = app.scheduler.jobs(&filter);
    jobs.retain(|job| app.sees_job(job));
    jobs.sort_by_key(ListPosition::of);
    jobs.retain(|job| after.is_none_or(|after| ListPosition::of(job) > after));
    let more = jobs.len() > limit;
    jobs.truncate(limit);
    let next = jobs
        .last()
        .filter(|_| more)
        .map(|job| ListPosition::of(job).encode());
    Ok(Json(JobList {
        jobs: jobs.into_iter().map(|job| view(app.shown(job))).collect(),
        next,
        request_id: id.into(),
    }))
}

/// Run jobs
///
/// Starts all pending work of a kind immediately, regardless of the schedules of the tables. Such work also runs
/// automatically. Start it before a measurement or a copy of the data folder, or to see the effect of a policy.
///
/// With `wait` the response is sent when all jobs have ended: 200, or an error if a job failed. If the service
/// stops first, the response is 202. Without `wait` the response is 202, and `GET /v1/jobs/{job}` reports the
/// progress of a job. A `seal` is short, so `wait` defaults to `true` for it. Other work may take hours, so
/// `wait` defaults to `false` for it.
#[utoipa::path(
    security(("token" = ["operate"])),
    post, path = "/v1/jobs", tag = "jobs",
    request_body = StartJobs,
    responses(
        (status = 200, description = "All jobs have ended, or there was nothing to do", body = StartedJobs),
        (status = 202, description = "The jobs are planned or running", body = StartedJobs),
        Failures
    )
)]
async fn start(
    app: Grant,
    id: RequestId,
    JsonBody(StartJobs { kind, table, wait }): JsonBody<StartJobs>,
) -> Result<(StatusCode, Json<StartedJobs>)> {
    let begun = Instant::now();
    if kind == JobKind::Seal && table.is_some() {
        return Err(Failure::invalid("sealing applies to all tables; omit `table`"));
    }
    let route = match kind {
        JobKind::SetAttributes => Some("/v1/tables/{table}/timelines/attributes"),
        JobKind::Restore => Some("/v1/tables/{table}/archive/restore, or …/parts/restore for rows"),
        JobKind::AttachArchive => Some("/v1/archive/attach"),
        JobKind::Rekey => Some("/v1/tables/{table}/rows/rekey"),
        _ => None,
    };
    if let Some(route) = route {
        return Err(Failure::invalid(format!(
            "{kind} needs parameters: start it with POST {route}"
        )));
    }
    match &table {
        Some(table) => drop(app.engine.table_of_any_model(table)?),
        None => app.access.check_all()?,
    }
    let of_table = table.as_ref().map(|table| format!(" of {table}"));
    app.note_change(format!("/v1/jobs {kind}{}", of_table.unwrap_or_default()));
    app.note_detail(audited(kind, table.as_deref()));
    let wait = wait.unwrap_or(kind == JobKind::Seal);
    let jobs = match kind {
        // A seal is independent of moves and must not wait for a long move.
        JobKind::Seal if wait => {
            let scheduler = app.scheduler.clone();
            let sealed = app.change(move |engine| Ok(scheduler.seal(|| engine.seal())?));
            vec![sealed.await?]
        }
        _ => run(&app, kind, table, wait).await?,
    };
    let state = together(&jobs);
    // The figures count the data of all tables, so only a token that may use all of them gets them.
    let stats = match app.access.check_all() {
        Ok(()) => Some(app.read(|engine| Ok(engine.stats().store)).await?),
        Err(_) => None,
    };
    let response = StartedJobs {
        kind,
        state,
        duration_ms: begun.elapsed().as_millis() as u64,
        jobs: jobs.into_iter().map(|job| view(app.shown(job))).collect(),
        head_points: stats.as_ref().map(|stats| stats.head_points),
        segments: stats.as_ref().map(|stats| stats.segments as u64),
        segment_bytes: stats.as_ref().map(|stats| stats.segment_bytes),
        request_id: id.into(),
    };
    let status = match state {
        JobState::Planned | JobState::Running | JobState::Paused => StatusCode::ACCEPTED,
        JobState::Done | JobState::Failed | JobState::Cancelled => StatusCode::OK,
    };
    Ok((status, Json(response)))
}

/// Read a job
#[utoipa::path(
    security(("token" = ["read"])),
    get, path = "/v1/jobs/{job}", tag = "jobs", operation_id = "read_job",
    params(JobPath),
    responses((status = 200, description = "The job", body = JobDetail), Failures)
)]
async fn read(app: Grant, id: RequestId, Path(JobPath { job }): Path<JobPath>) -> Result<Json<JobDetail>> {
    let found = app.scheduler.job(job).ok_or(SchedulerError::NoSuchJob(job))?;
    Ok(detail(app.shown(found), id))
}

/// Pause a job
///
/// Pauses all work of the same kind and table until it is resumed, also across restarts. A job started with `POST
/// /v1/jobs` is paused alone. Jobs that change attributes, attach an archive or copy points into a table cannot be
/// paused. A running move stops at its current position; after a minute it ends, so that other work can run.
#[utoipa::path(
    security(("token" = ["operate"])),
    post, path = "/v1/jobs/{job}/pause", tag = "jobs",
    params(JobPath),
    responses(
        (status = 200, description = "The paused job", body = JobDetail),
        (status = 409, description = "The job has ended or cannot be paused", body = ErrorBody),
        Failures
    )
)]
async fn pause(app: Grant, id: RequestId, Path(JobPath { job }): Path<JobPath>) -> Result<Json<JobDetail>> {
    control(&app, id, move |scheduler| scheduler.pause(job)).await
}

/// Resume a job
///
/// Resumes a paused job and the work that was paused with it.
#[utoipa::path(
    security(("token" = ["operate"])),
    post, path = "/v1/jobs/{job}/resume", tag = "jobs",
    params(JobPath),
    responses(
        (status = 200, description = "The resumed job", body = JobDetail),
        (status = 409, description = "The job is not paused", body = ErrorBody),
        Failures
    )
)]
async fn resume(app: Grant, id: RequestId, Path(JobPath { job }): Path<JobPath>) -> Result<Json<JobDetail>> {
    control(&app, id, move |scheduler| scheduler.resume(job)).await
}

/// Cancel a job
///
/// A cancelled move of points does not change what queries return. Moves of parts, changes of attributes, attaching and
/// copies keep their completed steps. Automatic work is planned again at the next time of its schedule, or after an
/// hour if it has no schedule.
#[utoipa::path(
    security(("token" = ["operate"])),
    post, path = "/v1/jobs/{job}/cancel", tag = "jobs", operation_id = "cancel_job",
    params(JobPath),
    responses(
        (status = 200, description = "The job; if it is running, it ends within a moment", body = JobDetail),
        (status = 409, description = "The job has ended", body = ErrorBody),
        Failures
    )
)]
async fn cancel(app: Grant, id: RequestId, Path(JobPath { job }): Path<JobPath>) -> Result<Json<JobDetail>> {
    control(&app, id, move |scheduler| scheduler.cancel(job)).await
}

/// Runs an operation of the scheduler on a job.
async fn control<F>(app: &Grant, id: RequestId, operation: F) -> Result<Json<JobDetail>>
where
    F: FnOnce(&Scheduler) -> std::result::Result<Job, SchedulerError> + Send + 'static,
{
    let scheduler = app.scheduler.clone();
    // Runs without a permit: the operation is short, and the job to be stopped may hold the permits.
    let job = blocking(move || Ok(operation(&scheduler)?)).await?;
    let table = job.table.as_ref().map(|table| table.name.as_str());
    app.note_detail(audited(job.kind, table));
    Ok(detail(app.shown(job), id))
}

/// Returns the kind and the table of a job for its audit record.
fn audited(kind: JobKind, table: Option<&str>) -> String {
    match table {
        Some(table) => format!("kind: {kind}; table: {table}"),
        None => format!("kind: {kind}; all tables"),
    }
}

/// Starts all pending work of a kind; with `wait`, also waits for its end.
async fn run(app: &Grant, kind: JobKind, table: Option<String>, wait: bool) -> Result<Vec<Job>> {
    let scheduler = app.scheduler.clone();
    let ids = app
        .change(move |_| Ok(scheduler.run(kind, table.as_deref())?))
        .await?;
    if !wait {
        return Ok(ids.into_iter().filter_map(|id| app.scheduler.job(id)).collect());
    }
    done(app, ids).await
}

/// Waits for the end of a requested job if `wait` is true. Returns the job, with the status of the response: 202 while
/// it is running.
pub(crate) async fn awaited(app: &Grant, mut job: Job, wait: bool) -> Result<(StatusCode, Job)> {
    if wait && let Some(ended) = done(app, vec![job.id]).await?.pop() {
        job = ended;
    }
    let status = match job.state.is_final() {
        true => StatusCode::OK,
        false => StatusCode::ACCEPTED,
    };
    Ok((status, job))
}

/// Waits for jobs and returns them, except jobs that are no longer kept. Does not wait after the service has begun to
/// stop. Returns an error if a job failed.
async fn done(app: &Grant, ids: Vec<u64>) -> Result<Vec<Job>> {
    let _permit = app.waits.take(current_client()).await?;
    let mut jobs = Vec::with_capacity(ids.len());
    for id in ids {
        jobs.extend(ended(app, id).await?);
    }
    let is_failed = |job: &&Job| job.state == tideline_scheduler::JobState::Failed;
    let Some(failed) = jobs.iter().find(is_failed) else {
        return Ok(jobs);
    };
    let then = match failed.kind {
        JobKind::Restore => "(a repeated request restores the rest; restored points and rows stay)",
        JobKind::Rekey => "(a repeated request copies the rest; copied rows stay)",
        _ => "(its work is planned again)",
    };
    Err(Failure::new(
        ErrorCode::JobFailed,
        format!(
            "job {} ({}) failed {then}: {}",
            failed.id,
            failed.kind,
            failed.error.as_deref().unwrap_or("unknown reason")
        ),
    ))
}

/// Waits for a job and returns it. When the service stops, returns the job in its current state. `None` if the job is
/// no longer kept.
async fn ended(app: &Grant, id: u64) -> Result<Option<Job>> {
    while !app.is_draining() {
        let scheduler = app.scheduler.clone();
        let job = blocking(move || Ok(scheduler.wait(id, WAIT_SLICE))).await?;
        if job.as_ref().is_none_or(|job| job.state.is_final()) {
            return Ok(job);
        }
    }
    Ok(app.scheduler.job(id))
}
