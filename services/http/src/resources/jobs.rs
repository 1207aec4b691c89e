//! `/v1/jobs`: work in the background, listed, run, paused, resumed and cancelled.

mod view;

use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
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
use crate::resources::{Failures, page_limit};

use self::view::{Place, to_state, together};
pub(crate) use self::view::{detail, view};

/// Jobs of a page where the request does not say.
const PAGE_DEFAULT: usize = 100;
/// Most jobs of a page.
const PAGE_MAX: usize = 1_000;
/// After so long a request that waits for jobs looks whether its client is still there, and the service.
const WAIT_SLICE: Duration = Duration::from_millis(250);

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, start))
        .routes(routes!(read))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(cancel))
}

/// The path of routes about a job.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct JobPath {
    /// Number of the job
    #[param(example = 2)]
    job: u64,
}

/// List jobs
///
/// The running ones, then waiting ones from old to new, then past ones from new to old; the last 200 are remembered.
#[utoipa::path(
    get, path = "/v1/jobs", tag = "jobs", operation_id = "list_jobs",
    params(JobQuery),
    responses((status = 200, description = "A page of jobs", body = JobList), Failures)
)]
async fn list(State(app): State<App>, id: RequestId, Query(query): Query<JobQuery>) -> Result<Json<JobList>> {
    let limit = page_limit(query.limit, PAGE_DEFAULT, PAGE_MAX)?;
    let after = query.page.as_deref().map(Place::decode).transpose()?;
    let filter = JobFilter {
        kind: query.kind,
        table: query.table,
        state: query.state.map(to_state),
    };
    let mut jobs = app.scheduler.jobs(&filter);
    jobs.sort_by_key(Place::of);
    jobs.retain(|job| after.is_none_or(|after| Place::of(job) > after));
    let more = jobs.len() > limit;
    jobs.truncate(limit);
    let next = jobs.last().filter(|_| more).map(|job| Place::of(job).encode());
    Ok(Json(JobList {
        jobs: jobs.into_iter().map(view).collect(),
        next,
        request_id: id.into(),
    }))
}

/// Run jobs
///
/// Does at once what there is to do of a kind, whatever the schedules of the tables say. It happens by itself; ask for
/// it before a measurement, a copy of the data folder, or to see the effect of a policy.
///
/// With `wait` the answer is 200 when all is done, and an error when a job failed; it comes as soon as the service stops.
/// Without it the answer is 202, and `GET /v1/jobs/{job}` tells how far a job is. A `seal` is short and is waited for
/// unless `wait` is `false`; other work may take hours and is waited for only when `wait` is `true`.
#[utoipa::path(
    post, path = "/v1/jobs", tag = "jobs",
    request_body = StartJobs,
    responses(
        (status = 200, description = "All is done, or there was nothing to do", body = StartedJobs),
        (status = 202, description = "The jobs wait for their turn, or run", body = StartedJobs),
        Failures
    )
)]
async fn start(
    State(app): State<App>,
    id: RequestId,
    JsonBody(StartJobs { kind, table, wait }): JsonBody<StartJobs>,
) -> Result<(StatusCode, Json<StartedJobs>)> {
    let begun = Instant::now();
    if kind == JobKind::Seal && table.is_some() {
        return Err(Failure::invalid("a seal is of all tables; leave table away"));
    }
    if kind == JobKind::SetAttributes {
        return Err(Failure::invalid(
            "set_attributes has to know which: POST /v1/tables/{table}/timelines/attributes begins it",
        ));
    }
    if kind == JobKind::Restore {
        return Err(Failure::invalid(
            "restore has to know what: POST /v1/tables/{table}/archive/restore begins it",
        ));
    }
    if kind == JobKind::AttachArchive {
        return Err(Failure::invalid(
            "attach_archive has to know what: POST /v1/archive/attach begins it",
        ));
    }
    let wait = wait.unwrap_or(kind == JobKind::Seal);
    let jobs = match kind {
        // It may not have to wait behind a long move, and has nothing in common with one.
        JobKind::Seal if wait => {
            let scheduler = app.scheduler.clone();
            let sealed = app.change(move |engine| Ok(scheduler.seal(|| engine.seal())?));
            vec![sealed.await?]
        }
        _ => run(&app, kind, table, wait).await?,
    };
    let state = together(&jobs);
    let stats = app.read(|engine| Ok(engine.stats().store)).await?;
    let answer = StartedJobs {
        kind,
        state,
        duration_ms: begun.elapsed().as_millis() as u64,
        jobs: jobs.into_iter().map(view).collect(),
        head_points: stats.head_points,
        segments: stats.segments as u64,
        segment_bytes: stats.segment_bytes,
        request_id: id.into(),
    };
    let status = match state {
        JobState::Planned | JobState::Running | JobState::Paused => StatusCode::ACCEPTED,
        JobState::Done | JobState::Failed | JobState::Cancelled => StatusCode::OK,
    };
    Ok((status, Json(answer)))
}

/// Read a job
#[utoipa::path(
    get, path = "/v1/jobs/{job}", tag = "jobs", operation_id = "read_job",
    params(JobPath),
    responses((status = 200, description = "The job", body = JobDetail), Failures)
)]
async fn read(
    State(app): State<App>,
    id: RequestId,
    Path(JobPath { job }): Path<JobPath>,
) -> Result<Json<JobDetail>> {
    let found = app.scheduler.job(job).ok_or(SchedulerError::NoSuchJob(job))?;
    Ok(detail(found, id))
}

/// Pause a job
///
/// Pauses all work of its kind and table, over restarts, until it is resumed; a job that somebody asked for is paused by
/// itself. A change of attributes, attaching and copying into a table cannot be paused. A running move stops where it is, and after a minute gives way to other
/// work.
#[utoipa::path(
    post, path = "/v1/jobs/{job}/pause", tag = "jobs",
    params(JobPath),
    responses(
        (status = 200, description = "The paused job", body = JobDetail),
        (status = 409, description = "It has ended, or cannot be paused", body = ErrorBody),
        Failures
    )
)]
async fn pause(
    State(app): State<App>,
    id: RequestId,
    Path(JobPath { job }): Path<JobPath>,
) -> Result<Json<JobDetail>> {
    tell(&app, id, move |scheduler| scheduler.pause(job)).await
}

/// Resume a job
///
/// Lets a paused job, and the work that was paused with it, go on.
#[utoipa::path(
    post, path = "/v1/jobs/{job}/resume", tag = "jobs",
    params(JobPath),
    responses(
        (status = 200, description = "The resumed job", body = JobDetail),
        (status = 409, description = "It is not paused", body = ErrorBody),
        Failures
    )
)]
async fn resume(
    State(app): State<App>,
    id: RequestId,
    Path(JobPath { job }): Path<JobPath>,
) -> Result<Json<JobDetail>> {
    tell(&app, id, move |scheduler| scheduler.resume(job)).await
}

/// Cancel a job
///
/// A running move leaves everything as it was; what a change of attributes, attaching or a copy has done stays. The same work is planned again
/// when its schedule comes, or after an hour.
#[utoipa::path(
    post, path = "/v1/jobs/{job}/cancel", tag = "jobs", operation_id = "cancel_job",
    params(JobPath),
    responses(
        (status = 200, description = "The job; where it runs, it ends in a moment", body = JobDetail),
        (status = 409, description = "It has ended", body = ErrorBody),
        Failures
    )
)]
async fn cancel(
    State(app): State<App>,
    id: RequestId,
    Path(JobPath { job }): Path<JobPath>,
) -> Result<Json<JobDetail>> {
    tell(&app, id, move |scheduler| scheduler.cancel(job)).await
}

/// Tells the scheduler something about a job.
async fn tell<F>(app: &App, id: RequestId, tell: F) -> Result<Json<JobDetail>>
where
    F: FnOnce(&Scheduler) -> std::result::Result<Job, SchedulerError> + Send + 'static,
{
    let scheduler = app.scheduler.clone();
    // Without a turn: it is short, and what holds the turns may be what it is to end.
    let job = blocking(move || Ok(tell(&scheduler)?)).await?;
    Ok(detail(job, id))
}

/// Runs what there is to do of a kind; with `wait` until it has ended.
async fn run(app: &App, kind: JobKind, table: Option<String>, wait: bool) -> Result<Vec<Job>> {
    let scheduler = app.scheduler.clone();
    let ids = app
        .change(move |_| Ok(scheduler.run(kind, table.as_deref())?))
        .await?;
    if !wait {
        return Ok(ids.into_iter().filter_map(|id| app.scheduler.job(id)).collect());
    }
    done(app, ids).await
}

/// Jobs when they have ended; an error where one failed.
pub(crate) async fn done(app: &App, ids: Vec<u64>) -> Result<Vec<Job>> {
    let _turn = app.waits.take(current_client()).await?;
    let mut jobs = Vec::with_capacity(ids.len());
    for id in ids {
        jobs.extend(ended(app, id).await?);
    }
    let is_failed = |job: &&Job| job.state == tideline_scheduler::JobState::Failed;
    let Some(failed) = jobs.iter().find(is_failed) else {
        return Ok(jobs);
    };
    let then = match failed.kind {
        JobKind::Restore => "and can be asked for again, what came back stays",
        _ => "and is planned again",
    };
    Err(Failure::new(
        ErrorCode::JobFailed,
        format!(
            "job {} ({}) failed {then}: {}",
            failed.id,
            failed.kind,
            failed.error.as_deref().unwrap_or("it does not say why")
        ),
    ))
}

/// A job when it has ended, or as it is when the service stops; `None` where it is forgotten already.
async fn ended(app: &App, id: u64) -> Result<Option<Job>> {
    while !app.is_draining() {
        let scheduler = app.scheduler.clone();
        let job = blocking(move || Ok(scheduler.wait(id, WAIT_SLICE))).await?;
        if job.as_ref().is_none_or(|job| job.state.is_final()) {
            return Ok(job);
        }
    }
    Ok(app.scheduler.job(id))
}
