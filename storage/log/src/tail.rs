//! The end of the journal in memory: the newest entries as they were written, for those who watch what comes in.
//!
//! An entry is kept as the journal has it, which is at hand anyway: keeping it costs a reference, and whoever watches
//! decodes it. The oldest go first when the budget is full, so a watcher that is too slow, or away for too long, is
//! told that it has missed some. A start fills it from the journal that it replays.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tideline_model::{SequenceNumber, TableId};

/// What an entry takes beside its bytes, about: places and counts. So a flood of small ones is bounded too.
const ENTRY_BYTES: usize = 128;

/// The newest journal entries.
pub(crate) struct Tail {
    bytes_max: usize,
    entries: Mutex<Entries>,
    wakers: RwLock<Vec<Waker>>,
}

/// Called when there is something new to see. It must not block: the committer calls it.
type Waker = Box<dyn Fn() + Send + Sync>;

#[derive(Debug, Default)]
struct Entries {
    /// In the order of their sequences.
    kept: VecDeque<TailEntry>,
    bytes: usize,
    /// Every entry from here on is kept.
    from: SequenceNumber,
    /// The sequence after the newest entry.
    end: SequenceNumber,
    /// Sequences that the start passed over. The run before may have given some of them to writes that were lost unsynced.
    passed_over: Range<u64>,
}

/// An entry as the journal has it.
#[derive(Debug, Clone)]
pub struct TailEntry {
    /// Its place in the journal.
    pub sequence: SequenceNumber,
    /// The table that it was written to.
    pub table: TableId,
    /// Its bytes, which begin with the [`ModelTag`](crate::ModelTag).
    pub encoded: Bytes,
}

/// What follows a place in the journal, of one table.
#[derive(Debug, Clone)]
pub struct TailPart {
    /// Its entries, in order.
    pub entries: Vec<TailEntry>,
    /// Where to go on: nothing before it is missing from `entries`.
    pub next: SequenceNumber,
}

/// A place in the journal from which it cannot be told what followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TailError {
    /// Some of what followed is not in memory any more.
    #[error("what was written right after this cursor is not kept any more")]
    TooOld,
    /// The journal does not reach that far: the place is of another store, or of writes that were lost unsynced.
    #[error("the journal does not reach as far as this cursor")]
    NotReached,
}

impl Tail {
    /// An empty one, for entries from `from` on.
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

    /// Takes in an entry that readers see by now. [`wake`](Self::wake) tells of it.
    pub(crate) fn push(&self, entry: TailEntry) {
        self.entries.lock().push(entry, self.bytes_max);
    }

    /// Takes note that the sequences from the end up to `next` are given to no entry.
    pub(crate) fn pass_over(&self, next: SequenceNumber) {
        let mut entries = self.entries.lock();
        entries.passed_over = entries.end.0 + 1..next.0;
    }

    /// Calls everybody who wants to be told.
    pub(crate) fn wake(&self) {
        self.wakers.read().iter().for_each(|wake| wake());
    }

    pub(crate) fn on_change(&self, wake: Waker) {
        self.wakers.write().push(wake);
    }

    /// The sequence after the newest entry.
    pub(crate) fn end(&self) -> SequenceNumber {
        self.entries.lock().end
    }

    /// What was written to `table` from `from` on: at least one entry where there is any, and at most about `bytes_max`.
    pub(crate) fn read(
        &self,
        table: TableId,
        from: SequenceNumber,
        bytes_max: usize,
    ) -> Result<TailPart, TailError> {
        let state = self.entries.lock();
        if from < state.from {
            return Err(TailError::TooOld);
        }
        if from > state.end || state.passed_over.contains(&from.0) {
            return Err(TailError::NotReached);
        }
        let first = state.kept.partition_point(|entry| entry.sequence < from);
        let mut part = TailPart {
            entries: Vec::new(),
            next: state.end,
        };
        let mut bytes = 0;
        for entry in state.kept.range(first..).filter(|entry| entry.table == table) {
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

impl TailEntry {
    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.encoded.len()
    }
}

impl Entries {
    fn push(&mut self, entry: TailEntry, bytes_max: usize) {
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

    /// Drops everything kept because a sequence was given twice, as builds before this one did after a table was dropped and
    /// a crash. A cursor from before cannot be served, not even one right after the newest entry.
    fn skip_reused(&mut self) {
        self.kept.clear();
        self.bytes = 0;
        if self.from < self.end {
            self.end = SequenceNumber(self.end.0 + 1);
            self.from = self.end;
        }
    }
}

impl fmt::Debug for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tail").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(sequence: u64, table: u32, bytes: usize) -> TailEntry {
        TailEntry {
            sequence: SequenceNumber(sequence),
            table: TableId(table),
            encoded: vec![0; bytes].into(),
        }
    }

    fn read(tail: &Tail, table: u32, from: u64, bytes_max: usize) -> Result<(Vec<u64>, u64), TailError> {
        let part = tail.read(TableId(table), SequenceNumber(from), bytes_max)?;
        let sequences = part.entries.iter().map(|entry| entry.sequence.0).collect();
        Ok((sequences, part.next.0))
    }

    #[test]
    fn a_table_is_read_in_parts_and_the_rest_is_skipped() {
        let tail = Tail::new(SequenceNumber(5), 1_000);
        assert_eq!(read(&tail, 1, 5, 10), Ok((vec![], 5)));
        let entries = [(5, 1), (6, 2), (8, 1), (9, 2)].map(|(sequence, table)| entry(sequence, table, 10));
        entries.into_iter().for_each(|entry| tail.push(entry));
        assert_eq!(read(&tail, 1, 5, 10), Ok((vec![5], 8)));
        assert_eq!(read(&tail, 1, 8, 10), Ok((vec![8], 10)));
        assert_eq!(read(&tail, 2, 5, 11), Ok((vec![6, 9], 10)));
        assert_eq!(read(&tail, 3, 7, 10), Ok((vec![], 10)));
        assert_eq!(read(&tail, 1, 4, 10), Err(TailError::TooOld));
        assert_eq!(read(&tail, 1, 11, 10), Err(TailError::NotReached));
    }

    #[test]
    fn cursors_of_reused_sequences_and_of_lost_entries_are_refused() {
        let tail = Tail::new(SequenceNumber(0), 10_000);
        for sequence in [0, 1, 7, 8] {
            tail.push(entry(sequence, 1, 1));
        }
        assert_eq!(read(&tail, 1, 8, 10), Ok((vec![8], 9)));
        // A build that began again too low.
        for sequence in [2, 3] {
            tail.push(entry(sequence, 1, 1));
        }
        for cursor in [0, 2, 4, 8, 9] {
            assert_eq!(read(&tail, 1, cursor, 10), Err(TailError::TooOld), "{cursor}");
        }
        assert_eq!(read(&tail, 1, 10, 10), Ok((vec![], 10)));
        tail.pass_over(SequenceNumber(100));
        tail.push(entry(100, 1, 1));
        assert_eq!(read(&tail, 1, 10, 10), Ok((vec![100], 101)));
        for cursor in [11, 99] {
            assert_eq!(read(&tail, 1, cursor, 10), Err(TailError::NotReached), "{cursor}");
        }
        assert_eq!(read(&tail, 1, 100, 10), Ok((vec![100], 101)));
    }

    #[test]
    fn the_oldest_go_when_the_budget_is_full() {
        let tail = Tail::new(SequenceNumber(0), 25 + 2 * ENTRY_BYTES);
        (0..4).for_each(|sequence| tail.push(entry(sequence, 1, 10)));
        assert_eq!(read(&tail, 1, 1, 100), Err(TailError::TooOld));
        assert_eq!(read(&tail, 1, 2, 100), Ok((vec![2, 3], 4)));
        tail.push(entry(4, 1, 1_000));
        assert_eq!(read(&tail, 1, 4, 100), Err(TailError::TooOld));
        assert_eq!(read(&tail, 1, 5, 100), Ok((vec![], 5)));
    }
}
