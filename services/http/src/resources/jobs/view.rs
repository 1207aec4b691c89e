//! Conversion of jobs for responses, and their order in lists.
//!
//! A page token encodes a position in this order, so the next page continues after the last job of the previous one.

use std::time::Duration;

use axum::Json;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tideline_openapi::job::{JobDetail, JobProgress, JobState, JobView};
use tideline_scheduler::Job;

use crate::context::RequestId;
use crate::failure::{Failure, Result};
use crate::resources::policies::amount;
use crate::resources::{instant, span, whole_seconds};

/// Returns the combined state of several jobs: the first of failed, running, paused, planned and cancelled that any of
/// the jobs has, otherwise done.
pub(super) fn together(jobs: &[Job]) -> JobState {
    let has = |state| jobs.iter().any(|job| from_state(job.state) == state);
    [
        JobState::Failed,
        JobState::Running,
        JobState::Paused,
        JobState::Planned,
        JobState::Cancelled,
    ]
    .into_iter()
    .find(|state| has(*state))
    .unwrap_or(JobState::Done)
}

/// Position of a job in a list: running jobs first, then waiting ones by ascending id, then past ones by
/// descending id. A job that starts while a client reads the pages moves to the front and can be missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ListPosition(u8, u64);

impl ListPosition {
    pub(super) fn of(job: &Job) -> Self {
        match from_state(job.state) {
            JobState::Running => Self(0, job.id),
            JobState::Planned | JobState::Paused => Self(1, job.id),
            JobState::Done | JobState::Failed | JobState::Cancelled => Self(2, u64::MAX - job.id),
        }
    }

    pub(super) fn encode(self) -> String {
        URL_SAFE_NO_PAD.encode(format!("{}.{}", self.0, self.1))
    }

    pub(super) fn decode(token: &str) -> Result<Self> {
        let read = || {
            let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
            let (part, number) = text.split_once('.')?;
            Some(Self(part.parse().ok()?, number.parse().ok()?))
        };
        read().ok_or_else(|| Failure::invalid("the page token is not valid"))
    }
}

pub(crate) fn detail(job: Job, id: RequestId) -> Json<JobDetail> {
    Json(JobDetail {
        job: view(job),
        request_id: id.into(),
    })
}

pub(crate) fn view(job: Job) -> JobView {
    JobView {
        id: job.id,
        kind: job.kind,
        table: job.table.map(|table| table.name),
        into: job.into,
        state: from_state(job.state),
        by_hand: job.by_hand,
        reason: job.reason,
        created: instant(job.created),
        due: job.due.map(instant),
        started: job.started.map(instant),
        finished: job.finished.map(instant),
        span: job.from.zip(job.to).map(span),
        tier: job.tier.into(),
        total: amount(job.total),
        done: JobProgress {
            timelines: job.done.timelines,
            points: job.done.points,
            values: job.done.values,
            bytes: job.done.bytes,
            bytes_written: job.done.bytes_written,
        },
        bytes_per_second: job.done.bytes_per_second,
        time_left: job
            .done
            .seconds_left
            .map(|seconds| whole_seconds(Duration::from_secs(seconds))),
        outcome: job.outcome,
        error: job.error,
    }
}

pub(super) fn to_state(state: JobState) -> tideline_scheduler::JobState {
    match state {
        JobState::Planned => tideline_scheduler::JobState::Planned,
        JobState::Running => tideline_scheduler::JobState::Running,
        JobState::Paused => tideline_scheduler::JobState::Paused,
        JobState::Done => tideline_scheduler::JobState::Done,
        JobState::Failed => tideline_scheduler::JobState::Failed,
        JobState::Cancelled => tideline_scheduler::JobState::Cancelled,
    }
}

fn from_state(state: tideline_scheduler::JobState) -> JobState {
    match state {
        tideline_scheduler::JobState::Planned => JobState::Planned,
        tideline_scheduler::JobState::Running => JobState::Running,
        tideline_scheduler::JobState::Paused => JobState::Paused,
        tideline_scheduler::JobState::Done => JobState::Done,
        tideline_scheduler::JobState::Failed => JobState::Failed,
        tideline_scheduler::JobState::Cancelled => JobState::Cancelled,
    }
}
