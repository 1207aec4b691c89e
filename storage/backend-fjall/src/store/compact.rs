//! Compaction of the parts of a store that is idle.
//!
//! The engine merges tables only when newer tables arrive. If most rows of a table are deleted and no writes follow, the
//! replaced blocks stay on disk, and every scan reads past them. So when much was replaced and the writes have ended,
//! all tables of the parts are merged.
//!
//! Only parts of up to [`COMPACTED_BYTES_MAX`] are merged: until the merge has ended, other merges of the parts wait, and
//! the store cannot be closed. Larger parts are merged as other writes arrive.

use std::time::Instant;

use tideline_runtime::background;

use super::Store;

/// Maximum size of the tables of parts that are merged at once, in bytes. The merge takes a few seconds.
const COMPACTED_BYTES_MAX: u64 = 512 << 20;
/// Minimum size of the replaced values, in bytes. Fewer of them are in memory.
const REPLACED_BYTES_MIN: u64 = 4 << 20;
/// Number of rounds of maintenance without a replaced value after which the writes have ended.
const QUIET_ROUNDS: u32 = 2;

/// Replaced and deleted values of parts.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    /// Size of the values since the last compaction, in bytes. Some of them are already merged away.
    bytes: u64,
    /// Number of rounds since the last report of such values.
    quiet_rounds: u32,
    is_compacting: bool,
}

impl Store {
    /// Counts values of parts that were replaced or deleted.
    pub(crate) fn note_replaced(&self, bytes: u64) {
        let mut replaced = self.replaced.lock();
        replaced.bytes = replaced.bytes.saturating_add(bytes);
        replaced.quiet_rounds = 0;
    }

    /// Counts a round of maintenance. Returns true if [`compact`](Self::compact) must be called now: the replaced values
    /// are at least half as large as the tables, and none was added for a while.
    pub(crate) fn begin_compaction(&self) -> bool {
        {
            let mut replaced = self.replaced.lock();
            replaced.quiet_rounds = replaced.quiet_rounds.saturating_add(1);
            if replaced.is_compacting
                || replaced.bytes < REPLACED_BYTES_MIN
                || replaced.quiet_rounds < QUIET_ROUNDS
            {
                return false;
            }
        }
        let Ok(Some(engine)) = self.engine() else {
            return false;
        };
        let bytes = engine.part_bytes();
        let space = self.free_space.get();
        let has_space = space.free_bytes.saturating_sub(space.watermark_bytes) > bytes;
        let mut replaced = self.replaced.lock();
        let is_due =
            replaced.bytes >= bytes / 2 && bytes <= COMPACTED_BYTES_MAX && has_space && !self.has_failed();
        if is_due {
            replaced.bytes = 0;
            replaced.is_compacting = true;
        }
        is_due
    }

    /// Merges the tables of the parts. Takes seconds. The calling thread becomes a background thread.
    pub(crate) fn compact(&self) {
        background::enter();
        let begun = Instant::now();
        if let Ok(Some(engine)) = self.engine() {
            let before = engine.part_bytes();
            match engine.compact_parts() {
                Ok(()) => {
                    let (after, took) = (engine.part_bytes(), begun.elapsed());
                    tracing::debug!(before, after, ?took, "the tables of the parts were merged");
                }
                Err(error) => tracing::warn!(%error, "the tables of the parts cannot be merged"),
            }
        }
        self.end_compaction();
    }

    /// Allows the next compaction.
    pub(crate) fn end_compaction(&self) {
        self.replaced.lock().is_compacting = false;
    }
}
