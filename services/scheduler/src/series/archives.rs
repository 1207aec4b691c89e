//! Progress of archives: points in files, points that wait, and failures.
//!
//! An archive is stalled after repeated failures, or if due points wait too long without a successful move.

use tideline_engine::model::time::{NANOS_PER_DAY, NANOS_PER_SECOND, format_duration};
use tideline_engine::model::{JobKind, Tier};

use crate::job::{Job, JobState, JobTable};
use crate::scheduler::Scheduler;
use crate::series::plan::archive::{ArchiveProgress, standing};
use crate::series::plan::{SegmentFacts, TableFacts};

/// Archive of one table.
#[derive(Debug, Clone, PartialEq)]
pub struct ArchiveState {
    /// Table of the archive.
    pub table: JobTable,
    /// Amounts of data that are archived or wait.
    pub standing: ArchiveProgress,
    /// Time for which the oldest waiting points have been old enough for the archive, nanoseconds; 0 = no points wait.
    pub behind: i64,
    /// Number of failures in a row: the maximum over moves into files and removals from the cold tier.
    pub failures: u32,
    /// Time of the next attempt while moves fail, by the trusted clock, in nanoseconds since the epoch.
    pub tried_again: Option<i64>,
    /// Last job that moved points into files, with any outcome.
    pub last_job: Option<Job>,
    /// Reason why the archive is stalled; `None` while it makes progress or no points wait.
    pub stalled: Option<String>,
}

/// Number of failures in a row from which an archive is stalled.
pub const STALLED_FAILURES: u32 = 3;
/// Time for which due points wait without a successful move before the archive is stalled, nanoseconds.
pub const STALLED_AFTER: i64 = 2 * NANOS_PER_DAY;

/// Job kinds that use the target of an archive.
const ARCHIVE_JOBS: [JobKind; 2] = [JobKind::Archive, JobKind::Evict];

impl Scheduler {
    /// Returns the state of the archive of each table that has an archive or archived points.
    pub fn archives(&self) -> Vec<ArchiveState> {
        let facts = self.shared().models.series().work.facts();
        let now = facts.now();
        let has_archive = |table: &&TableFacts| {
            let is_there = |segment: &SegmentFacts| segment.is_copied || segment.tier == Tier::Archive;
            table.policy.archive.is_some() || table.segments.iter().any(is_there)
        };
        let monotonic = self.shared().clock.monotonic();
        let state = self.shared().state.lock();
        let of_table = |table: &TableFacts| {
            let standing = standing(&facts, table);
            let trouble = state.queue.worst(table.id, &ARCHIVE_JOBS, monotonic);
            let left = trouble.map(|trouble| i64::try_from(trouble.left.as_nanos()).unwrap_or(i64::MAX));
            let is_of = |job: &&Job| {
                let of = job.table.as_ref().map(|table| table.id);
                job.kind == JobKind::Archive && job.state.is_final() && of == Some(table.id)
            };
            let jobs = || state.journal.jobs.values().rev().filter(is_of);
            let last_job = jobs().next().cloned();
            // A restart loses the failure counts of the queue, but not the past jobs.
            let failed = jobs().take_while(|job| job.state == JobState::Failed).count();
            let failed = u32::try_from(failed).unwrap_or(u32::MAX);
            let failures = trouble.map_or(failed, |trouble| trouble.failures.max(failed));
            let done = jobs().find(|job| job.state == JobState::Done);
            let stalled = stalled(&Waiting {
                now,
                since: standing.waiting_since,
                progress: done.and_then(|job| job.finished).max(Some(table.policy_changed)),
                is_due: state
                    .queue
                    .is_due(table.id, JobKind::Archive, now, &state.journal),
                failures,
                error: last_job.as_ref().and_then(|job| job.error.as_deref()),
            });
            ArchiveState {
                table: table.state().named(),
                behind: standing
                    .waiting_since
                    .map_or(0, |since| now.saturating_sub(since).max(0)),
                standing,
                failures,
                tried_again: left.map(|left| now.saturating_add(left)),
                last_job,
                stalled,
            }
        };
        facts.tables.iter().filter(has_archive).map(of_table).collect()
    }
}

/// Points of a table that wait to be archived.
struct Waiting<'a> {
    now: i64,
    /// Time when the first of these points became old enough, by the trusted clock, in nanoseconds since the epoch;
    /// `None` = no points wait.
    since: Option<i64>,
    /// Time of the last successful move, or of the policy change if that is later.
    progress: Option<i64>,
    /// True if a move may start by its schedule.
    is_due: bool,
    failures: u32,
    error: Option<&'a str>,
}

/// Returns the reason why the archive of a table is stalled; `None` if it is not stalled.
fn stalled(waiting: &Waiting<'_>) -> Option<String> {
    let since = waiting.since?;
    let waited = waiting.now.saturating_sub(since).max(0);
    let fails = waiting.failures >= STALLED_FAILURES;
    // A timestamp in the future was recorded before the clock was set back.
    let progress = waiting.progress.filter(|at| *at <= waiting.now);
    let idle = waiting.now.saturating_sub(since.max(progress.unwrap_or(since)));
    let is_idle = waiting.is_due && idle > STALLED_AFTER;
    if !fails && !is_idle {
        return None;
    }
    let waited = format_duration(waited - waited % (60 * NANOS_PER_SECOND));
    let failed = match (waiting.failures, waiting.error) {
        (0, _) => String::new(),
        (failures, None) => format!("; {failures} moves in a row have failed"),
        (failures, Some(error)) => format!("; {failures} moves in a row have failed, the last: {error}"),
    };
    Some(format!(
        "no progress: its oldest window has been due for archiving for {waited}{failed}"
    ))
}
