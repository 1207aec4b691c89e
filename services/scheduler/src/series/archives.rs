//! How archives stand: what is in files, what waits to be, and whether it goes on.

use tideline_engine::model::time::{NANOS_PER_DAY, NANOS_PER_SECOND, format_duration};
use tideline_engine::model::{JobKind, Tier};

use crate::job::{Job, JobState, JobTable};
use crate::scheduler::Scheduler;
use crate::series::plan::archive::{Standing, standing};
use crate::series::plan::{SegmentFacts, TableFacts};

/// The archive of one table.
#[derive(Debug, Clone, PartialEq)]
pub struct ArchiveState {
    /// Whose.
    pub table: JobTable,
    /// How far it has come.
    pub standing: Standing,
    /// For how long the oldest of what waits has been old enough, nanoseconds; 0 = nothing waits.
    pub behind: i64,
    /// How often moves into files have failed in a row.
    pub failures: u32,
    /// When they are tried again, trusted nanoseconds since the epoch, while they fail.
    pub tried_again: Option<i64>,
    /// The last job that moved points into files, however it ended.
    pub last_job: Option<Job>,
    /// Why the archive makes no progress, in words; `None` while it does, or nothing waits.
    pub stalled: Option<String>,
}

/// Failures in a row with which an archive makes no progress.
pub const STALLED_FAILURES: u32 = 3;
/// Points that are due wait for so long, without any move that ends well, before the archive makes no progress;
/// nanoseconds.
pub const STALLED_AFTER: i64 = 2 * NANOS_PER_DAY;

/// Work that needs the target of an archive.
const CHORES: [JobKind; 2] = [JobKind::Archive, JobKind::Evict];

impl Scheduler {
    /// How the archive of each table stands that has one, or archived points.
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
            let trouble = state.agenda.worst(table.id, &CHORES, monotonic);
            let left = trouble.map(|trouble| i64::try_from(trouble.left.as_nanos()).unwrap_or(i64::MAX));
            let is_of = |job: &&Job| {
                let of = job.table.as_ref().map(|table| table.id);
                job.kind == JobKind::Archive && job.state.is_final() && of == Some(table.id)
            };
            let jobs = || state.journal.jobs.values().rev().filter(is_of);
            let last_job = jobs().next().cloned();
            // Holds are forgotten by a restart, past jobs are not.
            let failed = jobs().take_while(|job| job.state == JobState::Failed).count();
            let failed = u32::try_from(failed).unwrap_or(u32::MAX);
            let failures = trouble.map_or(failed, |trouble| trouble.failures.max(failed));
            let done = jobs().find(|job| job.state == JobState::Done);
            let stalled = stalled(&Waiting {
                now,
                since: standing.waiting_since,
                progress: done.and_then(|job| job.finished).max(Some(table.policy_changed)),
                is_due: state
                    .agenda
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

/// Points of a table that wait to become files.
struct Waiting<'a> {
    now: i64,
    /// When the first of them became old enough.
    since: Option<i64>,
    /// When a move last ended well, or the policy was set.
    progress: Option<i64>,
    /// Whether a move may begin by its schedule.
    is_due: bool,
    failures: u32,
    error: Option<&'a str>,
}

/// Why the archive of a table makes no progress.
fn stalled(waiting: &Waiting<'_>) -> Option<String> {
    let since = waiting.since?;
    let waited = waiting.now.saturating_sub(since).max(0);
    let fails = waiting.failures >= STALLED_FAILURES;
    // An instant of the future is one of a clock that went back.
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
        "no progress: its oldest window has been old enough for files for {waited}{failed}"
    ))
}
