//! Progress of the archives of series tables: points in files, and points that wait.

use tideline_engine::model::{JobKind, Tier};

use crate::archive_moves::{ArchiveMoves, Waiting};
use crate::job::JobTable;
use crate::scheduler::Scheduler;
use crate::series::plan::archive::{ArchiveProgress, standing};
use crate::series::plan::{SegmentFacts, TableFacts};

/// Archive of one series table.
#[derive(Debug, Clone, PartialEq)]
pub struct ArchiveState {
    /// Table of the archive.
    pub table: JobTable,
    /// Amounts of data that are archived or wait.
    pub standing: ArchiveProgress,
    /// Moves into the archive.
    pub moves: ArchiveMoves,
}

/// Job kinds that use the target of an archive.
const ARCHIVE_JOBS: [JobKind; 2] = [JobKind::Archive, JobKind::Evict];

impl Scheduler {
    /// Returns the state of the archive of each series table that has an archive or archived points.
    pub fn archives(&self) -> Vec<ArchiveState> {
        let facts = self.shared().models.series().work.facts();
        let has_archive = |table: &&TableFacts| {
            let is_there = |segment: &SegmentFacts| segment.is_copied || segment.tier == Tier::Archive;
            table.policy.archive.is_some() || table.segments.iter().any(is_there)
        };
        let of_table = |table: &TableFacts| {
            let standing = standing(&facts, table);
            let waiting = Waiting {
                table: table.id,
                kinds: &ARCHIVE_JOBS,
                unit: "window",
                now: facts.now(),
                since: standing.waiting_since,
                changed: table.policy_changed,
            };
            ArchiveState {
                table: table.state().named(),
                moves: self.archive_moves(&waiting),
                standing,
            }
        };
        facts.tables.iter().filter(has_archive).map(of_table).collect()
    }
}
