//! How archives stand: what is in files, what waits to be, and whether it goes on.

use tideline_model::Tier;

use crate::chore::Chore;
use crate::job::{Job, JobState, JobTable};
use crate::plan::archive::{Standing, standing};
use crate::plan::{SegmentFacts, TableFacts};
use crate::scheduler::Scheduler;

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
}

/// Work that needs the target of an archive.
const CHORES: [Chore; 2] = [Chore::Archive, Chore::Evict];

impl Scheduler {
    /// How the archive of each table stands that has one, or archived points.
    pub fn archives(&self) -> Vec<ArchiveState> {
        let facts = self.shared().work.facts();
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
                job.kind == Chore::Archive && job.state.is_final() && of == Some(table.id)
            };
            let last_job = state.journal.jobs.values().rev().find(is_of).cloned();
            let has_failed = last_job.as_ref().is_some_and(|job| job.state == JobState::Failed);
            ArchiveState {
                table: JobTable {
                    id: table.id,
                    name: table.name.clone(),
                },
                behind: standing
                    .waiting_since
                    .map_or(0, |since| now.saturating_sub(since).max(0)),
                standing,
                failures: trouble.map_or(u32::from(has_failed), |trouble| trouble.failures),
                tried_again: left.map(|left| now.saturating_add(left)),
                last_job,
            }
        };
        facts.tables.iter().filter(has_archive).map(of_table).collect()
    }
}
