//! Recent entries of the journal in memory, for watches.
//!
//! An entry is kept in its encoded form without a copy: the buffer shares the bytes with the committer. The watch
//! decodes the entry. The oldest entries are evicted when the budget is full. A watcher that is too slow, or was
//! disconnected for too long, then receives an error, because entries are missing. At a start, the buffer is filled
//! from the replayed journal.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tideline_model::{SequenceNumber, TableId};

/// Approximate memory per entry in addition to its bytes. It is counted so that the budget also bounds the number of
/// small entries.
const ENTRY_BYTES: usize = 128;

/// Buffer of the newest journal entries.
pub(crate) struct RecentEntries {
    bytes_max: usize,
    entries: Mutex<Entries>,
    wakers: RwLock<Vec<Waker>>,
}

/// Callback for new entries. The committer calls it, so it must not block.
type Waker = Box<dyn Fn() + Send + Sync>;

#[derive(Debug, Default)]
struct Entries {
    /// Kept entries, by sequence.
    kept: VecDeque<RecentEntry>,
    bytes: usize,
    /// Lowest sequence from which all entries are kept.
    from: SequenceNumber,
    /// Sequence after the newest entry.
    end: SequenceNumber,
    /// Sequences skipped at the first write of this process: the previous process may have assigned them to writes that
    /// were lost before a sync. The range excludes the end before the skip, which is a valid cursor.
    passed_over: Range<u64>,
}

/// Journal entry in its encoded form.
#[derive(Debug, Clone)]
pub struct RecentEntry {
    /// Sequence of the entry.
    pub sequence: SequenceNumber,
    /// Table of the entry.
    pub table: TableId,
    /// Encoded bytes, which begin with the [`ModelTag`](crate::ModelTag).
    pub encoded: Bytes,
}

/// Entries of one table from a sequence on.
#[derive(Debug, Clone)]
pub struct RecentPage {
    /// Entries, by sequence.
    pub entries: Vec<RecentEntry>,
    /// Sequence to continue from: `entries` holds all entries of the table from the requested sequence up to, but not
    /// including, this sequence.
    pub next: SequenceNumber,
}

/// Reason why entries cannot be read from a sequence on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecentError {
    /// The entries from this sequence on are no longer all in memory.
    #[error("data written after this cursor is not kept any more")]
    TooOld,
    /// The journal does not reach this sequence: the cursor belongs to another store, or to writes that were lost
    /// before a sync.
    #[error("the journal does not reach as far as this cursor")]
    NotReached,
}

impl RecentEntries {
    /// Creates an empty buffer for entries from `from` on.
    pub(crate) fn new(from: SequenceNumber, bytes_max: usize) -> Self {
        let entries = Entries {
            from,
            end: from,
            ..Entries::default()
        };
        Self {
            bytes_max,
            entries: Mutex::new(entries),
            wakers: RwLock::default(),
        }
    }

    /// Adds an entry that is already applied. Watchers are notified by [`wake`](Self::wake).
    pub(crate) fn push(&self, entry: RecentEntry) {
        self.entries.lock().push(entry, self.bytes_max);
    }

    /// Records that the sequences from the end up to, but not including, `next` are skipped.
    pub(crate) fn pass_over(&self, next: SequenceNumber) {
        let mut entries = self.entries.lock();
        entries.passed_over = entries.end.0 + 1..next.0;
    }

    /// Calls all wakers.
    pub(crate) fn wake(&self) {
        self.wakers.read().iter().for_each(|wake| wake());
    }

    pub(crate) fn on_change(&self, wake: Waker) {
        self.wakers.write().push(wake);
    }

    /// Returns the sequence after the newest entry.
    pub(crate) fn end(&self) -> SequenceNumber {
        self.entries.lock().end
    }

    /// Returns the entries of `table` from `from` on. Stops after the entry at which the encoded bytes of the returned
    /// entries total at least `bytes_max`. Returns no entry if `bytes_max` is 0.
    pub(crate) fn read(
        &self,
        table: TableId,
        from: SequenceNumber,
        bytes_max: usize,
    ) -> Result<RecentPage, RecentError> {
        self.read_where(|entry| entry.table == table, from, bytes_max)
    }

    /// Returns the entries of all tables, as [`read`](Self::read) returns those of one.
    pub(crate) fn read_all(&self, from: SequenceNumber, bytes_max: usize) -> Result<RecentPage, RecentError> {
        self.read_where(|_| true, from, bytes_max)
    }

    fn read_where(
        &self,
        is_wanted: impl Fn(&RecentEntry) -> bool,
        from: SequenceNumber,
        bytes_max: usize,
    ) -> Result<RecentPage, RecentError> {
        let state = self.entries.lock();
        if from < state.from {
            return Err(RecentError::TooOld);
        }
        if from > state.end || state.passed_over.contains(&from.0) {
            return Err(RecentError::NotReached);
        }
        let first = state.kept.partition_point(|entry| entry.sequence < from);
        let mut part = RecentPage {
            entries: Vec::new(),
            next: state.end,
        };
        let mut bytes = 0;
        for entry in state.kept.range(first..).filter(|entry| is_wanted(entry)) {
            if bytes >= bytes_max {
                part.next = entry.sequence;
                break;
            }
            bytes += entry.encoded.len();
            part.entries.push(entry.clone());
        }
        Ok(part)
    }
}

impl RecentEntry {
    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.encoded.len()
    }
}

impl Entries {
    fn push(&mut self, entry: RecentEntry, bytes_max: usize) {
        if entry.sequence < self.end {
            self.skip_reused();
            return;
        }
        self.end = SequenceNumber(entry.sequence.0 + 1);
        self.bytes += entry.bytes();
        self.kept.push_back(entry);
        while self.bytes > bytes_max {
            let Some(oldest) = self.kept.pop_front() else {
                break;
            };
            self.bytes -= oldest.bytes();
            self.from = SequenceNumber(oldest.sequence.0 + 1);
        }
    }

    /// Evicts everything because a sequence was used twice: earlier builds reused sequences after a crash that followed
    /// the drop of a table. No earlier cursor can be served, not even one right after the newest entry.
    fn skip_reused(&mut self) {
        self.kept.clear();
        self.bytes = 0;
        if self.from < self.end {
            self.end = SequenceNumber(self.end.0 + 1);
            self.from = self.end;
        }
    }
}

impl fmt::Debug for RecentEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecentEntries").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(sequence: u64, table: u32, bytes: usize) -> RecentEntry {
        RecentEntry {
            sequence: SequenceNumber(sequence),
            table: TableId(table),
            encoded: vec![0; bytes].into(),
        }
    }

    fn read(
        recent: &RecentEntries,
        table: u32,
        from: u64,
        bytes_max: usize,
    ) -> Result<(Vec<u64>, u64), RecentError> {
        let part = recent.read(TableId(table), SequenceNumber(from), bytes_max)?;
        let sequences = part.entries.iter().map(|entry| entry.sequence.0).collect();
        Ok((sequences, part.next.0))
    }

    #[test]
    fn a_table_is_read_in_parts_and_the_rest_is_skipped() {
        let recent = RecentEntries::new(SequenceNumber(5), 1_000);
        assert_eq!(read(&recent, 1, 5, 10), Ok((vec![], 5)));
        let entries = [(5, 1), (6, 2), (8, 1), (9, 2)].map(|(sequence, table)| entry(sequence, table, 10));
        entries.into_iter().for_each(|entry| recent.push(entry));
        assert_eq!(read(&recent, 1, 5, 10), Ok((vec![5], 8)));
        assert_eq!(read(&recent, 1, 8, 10), Ok((vec![8], 10)));
        assert_eq!(read(&recent, 2, 5, 11), Ok((vec![6, 9], 10)));
        assert_eq!(read(&recent, 3, 7, 10), Ok((vec![], 10)));
        assert_eq!(read(&recent, 1, 4, 10), Err(RecentError::TooOld));
        assert_eq!(read(&recent, 1, 11, 10), Err(RecentError::NotReached));
    }

    #[test]
    fn cursors_of_reused_sequences_and_of_lost_entries_are_refused() {
        let recent = RecentEntries::new(SequenceNumber(0), 10_000);
        for sequence in [0, 1, 7, 8] {
            recent.push(entry(sequence, 1, 1));
        }
        assert_eq!(read(&recent, 1, 8, 10), Ok((vec![8], 9)));
        // Sequences reused by an earlier build.
        for sequence in [2, 3] {
            recent.push(entry(sequence, 1, 1));
        }
        for cursor in [0, 2, 4, 8, 9] {
            assert_eq!(read(&recent, 1, cursor, 10), Err(RecentError::TooOld), "{cursor}");
        }
        assert_eq!(read(&recent, 1, 10, 10), Ok((vec![], 10)));
        recent.pass_over(SequenceNumber(100));
        recent.push(entry(100, 1, 1));
        assert_eq!(read(&recent, 1, 10, 10), Ok((vec![100], 101)));
        for cursor in [11, 99] {
            assert_eq!(
                read(&recent, 1, cursor, 10),
                Err(RecentError::NotReached),
                "{cursor}"
            );
        }
        assert_eq!(read(&recent, 1, 100, 10), Ok((vec![100], 101)));
    }

    #[test]
    fn the_oldest_go_when_the_budget_is_full() {
        let recent = RecentEntries::new(SequenceNumber(0), 25 + 2 * ENTRY_BYTES);
        (0..4).for_each(|sequence| recent.push(entry(sequence, 1, 10)));
        assert_eq!(read(&recent, 1, 1, 100), Err(RecentError::TooOld));
        assert_eq!(read(&recent, 1, 2, 100), Ok((vec![2, 3], 4)));
        recent.push(entry(4, 1, 1_000));
        assert_eq!(read(&recent, 1, 4, 100), Err(RecentError::TooOld));
        assert_eq!(read(&recent, 1, 5, 100), Ok((vec![], 5)));
    }
}
