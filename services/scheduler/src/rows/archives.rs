//! Progress of the archives of wide tables: parts in files, parts that wait, and failures.

use tideline_engine::model::JobKind;
use tideline_engine::row_archives::RowArchive;

use crate::archive_moves::{ArchiveMoves, Waiting};
use crate::job::JobTable;
use crate::scheduler::Scheduler;

/// Archive of one wide table.
#[derive(Debug, Clone, PartialEq)]
pub struct RowArchiveState {
    /// Parts that are archived or wait.
    pub archive: RowArchive,
    /// Moves into the archive.
    pub moves: ArchiveMoves,
}

impl RowArchiveState {
    /// Returns the table of the archive.
    pub fn table(&self) -> JobTable {
        JobTable {
            id: self.archive.table,
            name: self.archive.name.to_string(),
        }
    }
}

impl Scheduler {
    /// Returns the state of the archive of each wide table that has an archive or archived parts.
    pub fn row_archives(&self) -> Vec<RowArchiveState> {
        let Some(rows) = self.shared().models.rows() else {
            return Vec::new();
        };
        let now = self.shared().database.trusted_now().now.nanos();
        let state = |archive: RowArchive| {
            let waiting = Waiting {
                table: archive.table,
                kinds: &[JobKind::Archive],
                unit: "part",
                now,
                since: archive.waiting_since,
                changed: archive.changed,
            };
            RowArchiveState {
                moves: self.archive_moves(&waiting),
                archive,
            }
        };
        rows.engine.row_archives().into_iter().map(state).collect()
    }
}
