//! Moves into archives: delays and failures, the same for all table models.
//!
//! An archive is stalled after repeated failures, or if due data waits too long without a successful move.

use tideline_engine::model::time::{NANOS_PER_DAY, NANOS_PER_SECOND, format_duration};
use tideline_engine::model::{JobKind, TableId};

use crate::job::{Job, JobState};
use crate::scheduler::Scheduler;

/// Number of consecutive failures at which an archive counts as stalled.
pub const STALLED_FAILURES: u32 = 3;
/// Time without a successful move, while data is due, after which the archive counts as stalled, nanoseconds.
pub const STALLED_AFTER: i64 = 2 * NANOS_PER_DAY;

/// Moves of the data of one table into its archive.
#[derive(Debug, Clone, PartialEq)]
pub struct ArchiveMoves {
    /// Time for which the oldest waiting data has been old enough for the archive, nanoseconds; 0 = no data waits.
    pub behind: i64,
    /// Number of failures in a row: the maximum over the parts of the work.
    pub failures: u32,
    /// Time of the next attempt while moves fail, by the trusted clock, in nanoseconds since the epoch.
    pub tried_again: Option<i64>,
    /// Last job that moved data into files, with any outcome.
    pub last_job: Option<Job>,
    /// Reason why the archive is stalled; `None` while it makes progress or no data waits.
    pub stalled: Option<String>,
}

/// Data of a table that waits to be archived.
pub(crate) struct Waiting<'a> {
    pub(crate) table: TableId,
    /// Job kinds that use the target of the archive.
    pub(crate) kinds: &'a [JobKind],
    /// Unit of the data, for users.
    pub(crate) unit: &'static str,
    /// Trusted time, in nanoseconds since the epoch.
    pub(crate) now: i64,
    /// Time when the oldest waiting data became old enough, by the trusted clock, in nanoseconds since the epoch;
    /// `None` = no data waits.
    pub(crate) since: Option<i64>,
    /// Time of the last change of the policy, by the trusted clock, in nanoseconds since the epoch.
    pub(crate) changed: i64,
}

/// Attempts to archive data that waits.
struct Attempts<'a> {
    /// Time of the last successful move, or of the policy change if that is later.
    progress: Option<i64>,
    /// True if a move may start by its schedule.
    is_due: bool,
    failures: u32,
    error: Option<&'a str>,
}

impl Scheduler {
    /// Returns the delays and failures of the moves of a table.
    pub(crate) fn archive_moves(&self, waiting: &Waiting<'_>) -> ArchiveMoves {
        let (table, now) = (waiting.table, waiting.now);
        let monotonic = self.shared().clock.monotonic();
        let state = self.shared().state.lock();
        let trouble = state.queue.worst(table, waiting.kinds, monotonic);
        let left = trouble.map(|trouble| i64::try_from(trouble.left.as_nanos()).unwrap_or(i64::MAX));
        let is_of = |job: &&Job| {
            let of = job.table.as_ref().map(|table| table.id);
            job.kind == JobKind::Archive && job.state.is_final() && of == Some(table)
        };
        let jobs = || state.journal.jobs.values().rev().filter(is_of);
        let last_job = jobs().next().cloned();
        // A restart loses the failure counts of the queue, but not the past jobs.
        let failed = jobs().take_while(|job| job.state == JobState::Failed).count();
        let failed = u32::try_from(failed).unwrap_or(u32::MAX);
        let failures = trouble.map_or(failed, |trouble| trouble.failures.max(failed));
        let done = jobs().find(|job| job.state == JobState::Done);
        let attempts = Attempts {
            progress: done.and_then(|job| job.finished).max(Some(waiting.changed)),
            is_due: state.queue.is_due(table, JobKind::Archive, now, &state.journal),
            failures,
            error: last_job.as_ref().and_then(|job| job.error.as_deref()),
        };
        ArchiveMoves {
            behind: waiting.since.map_or(0, |since| now.saturating_sub(since).max(0)),
            failures,
            tried_again: left.map(|left| now.saturating_add(left)),
            stalled: stalled(waiting, &attempts),
            last_job,
        }
    }
}

/// Returns the reason why the archive of a table is stalled; `None` if it is not stalled.
fn stalled(waiting: &Waiting<'_>, attempts: &Attempts<'_>) -> Option<String> {
    let since = waiting.since?;
    let waited = waiting.now.saturating_sub(since).max(0);
    let fails = attempts.failures >= STALLED_FAILURES;
    // A timestamp in the future was recorded before the clock was set back.
    let progress = attempts.progress.filter(|at| *at <= waiting.now);
    let idle = waiting.now.saturating_sub(since.max(progress.unwrap_or(since)));
    let is_idle = attempts.is_due && idle > STALLED_AFTER;
    if !fails && !is_idle {
        return None;
    }
    let waited = format_duration(waited - waited % (60 * NANOS_PER_SECOND));
    let failed = match (attempts.failures, attempts.error) {
        (0, _) => String::new(),
        (failures, None) => format!("; {failures} moves in a row have failed"),
        (failures, Some(error)) => format!("; {failures} moves in a row have failed, the last: {error}"),
    };
    Some(format!(
        "no progress: its oldest {} has been due for archiving for {waited}{failed}",
        waiting.unit
    ))
}
