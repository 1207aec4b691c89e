//! Pages of records.
//!
//! A page is read from the entries of the journal after a position, which are decoded anew for each page. A page that
//! ends inside an entry continues at the number of the change.

use std::sync::atomic::Ordering;

use tideline_engine::Engine;
use tideline_engine::changes::ChangeEntries;
use tideline_engine::model::SequenceNumber;
use tideline_engine::runtime::background;
use tideline_openapi::change::StreamSettings;

use crate::error::Result;
use crate::position::{Partition, Position};
use crate::record::{GapReason, kind_of, write_drop, write_gap, write_record};
use crate::streams::{ChangeStreams, no_stream};

/// Maximum number of records of a page.
pub const RECORDS_MAX: usize = 10_000;
/// Bytes of the journal that one step reads.
const STEP_BYTES_MAX: usize = 1 << 20;
/// Bytes of the journal after which a page ends, even without a record.
const SCANNED_BYTES_MAX: usize = 16 << 20;

/// Limits of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimits {
    /// Maximum number of records.
    pub records: usize,
    /// Bytes of records after which the page ends.
    pub bytes: usize,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self {
            records: 1_000,
            bytes: 4 << 20,
        }
    }
}

/// Page of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Records as JSON objects.
    pub records: Vec<String>,
    /// Position to continue from.
    pub next: Position,
    /// True if more of the journal can be read without waiting.
    pub has_more: bool,
}

impl ChangeStreams {
    /// Returns the changes of a partition of a stream from a position on; `None` = from the oldest change.
    ///
    /// `engine` is the database of these streams with the access of the reader: only changes that the reader may read
    /// are returned. A position before the creation of the stream begins with a gap.
    ///
    /// # Errors
    ///
    /// [`NotFound`](crate::ChangesError::NotFound) if the stream does not exist,
    /// [`Invalid`](crate::ChangesError::Invalid) for a position after the newest change,
    /// [`Rows`](crate::ChangesError::Rows) if a change cannot be encoded, and the errors of the engine.
    pub fn read(
        &self,
        engine: &Engine,
        stream: &str,
        from: Option<Position>,
        partition: Partition,
        limits: ReadLimits,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Page> {
        let (settings, oldest) = {
            let state = self.state.read();
            let found = state.get(stream).ok_or_else(|| no_stream(stream))?;
            (found.stored.settings.clone(), found.from())
        };
        let from = self.check_reached(from.unwrap_or(oldest))?;
        let mut page = PageBuilder {
            streams: self,
            engine,
            settings,
            partition,
            limits,
            page: Page {
                records: Vec::new(),
                next: from,
                has_more: true,
            },
            bytes: 0,
        };
        if from < oldest {
            page.skip_changes_before_stream(oldest);
        }
        let mut scanned = 0;
        while page.page.has_more && scanned < SCANNED_BYTES_MAX && !page.is_full() {
            if is_stopped() {
                break;
            }
            let entries = self
                .engine
                .change_entries(page.page.next.sequence, STEP_BYTES_MAX)?;
            scanned += entries
                .entries
                .iter()
                .map(|(_, entry)| entry.len())
                .sum::<usize>()
                .max(1);
            page.add(&entries)?;
        }
        self.counters
            .records
            .fetch_add(page.page.records.len() as u64, Ordering::Relaxed);
        Ok(page.page)
    }
}

struct PageBuilder<'s> {
    streams: &'s ChangeStreams,
    engine: &'s Engine,
    settings: StreamSettings,
    partition: Partition,
    limits: ReadLimits,
    page: Page,
    bytes: usize,
}

impl PageBuilder<'_> {
    fn is_full(&self) -> bool {
        self.page.records.len() >= self.limits.records || self.bytes >= self.limits.bytes
    }

    /// Moves the position to the creation of the stream. The reader has not read the changes before, even if the journal
    /// still has them for another stream.
    fn skip_changes_before_stream(&mut self, created: Position) {
        let from = self.page.next.sequence;
        match self.streams.engine.changes_between(from, created.sequence) {
            // Only numbers that a restart skipped are between the two positions.
            0 => self.page.next = created,
            _ => self.add_gap(created, GapReason::BeforeStream),
        }
    }

    /// Adds a gap, and moves the position to its end.
    fn add_gap(&mut self, end: Position, reason: GapReason) {
        let mut record = Vec::new();
        write_gap(self.page.next, end, reason, &mut record);
        self.push(record);
        self.page.next = end;
        self.streams.counters.gaps.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds the records of entries, and moves the position to the end of the entries.
    fn add(&mut self, entries: &ChangeEntries) -> Result<()> {
        let start = Position::before(entries.from);
        if start > self.page.next {
            self.add_gap(
                start,
                match entries.is_damaged {
                    true => GapReason::Damaged,
                    false => GapReason::Freed,
                },
            );
        }
        let mut decoder = self.engine.change_decoder();
        for entry in &entries.entries {
            background::yield_core();
            let sequence = entry.0;
            // The previous page may have ended inside the first entry.
            let done = match self.page.next.sequence == sequence {
                true => usize::try_from(self.page.next.change).unwrap_or(usize::MAX),
                false => 0,
            };
            let Some(changes) = decoder.decode(entry)? else {
                let dropped = decoder.dropped_tables(entry)?;
                for (number, table) in (0..).zip(&dropped).skip(done) {
                    if self.is_full() {
                        return Ok(());
                    }
                    let next = Position {
                        sequence,
                        change: number + 1,
                    };
                    // A drop concerns changes of all kinds and partitions, like a gap.
                    if let Some(table) = table
                        && ChangeStreams::has_table(&self.settings, table)
                    {
                        let mut record = Vec::new();
                        write_drop(table, next, &mut record);
                        self.push(record);
                    }
                    self.page.next = next;
                }
                self.page.next = Position::before(after(sequence));
                continue;
            };
            let table = changes.table.name().to_string();
            // The table of users of a feed table is included only if the stream also has the feed table.
            let spec = changes.table.spec();
            let has_owner = match &spec.users_of {
                Some(owner) => ChangeStreams::has_table(&self.settings, owner.as_str()),
                None => true,
            };
            if has_owner && ChangeStreams::has_table(&self.settings, &table) {
                for (number, change) in (0..).zip(&changes.changes).skip(done) {
                    if self.is_full() {
                        return Ok(());
                    }
                    let next = Position {
                        sequence,
                        change: number + 1,
                    };
                    // A removed or hidden timeline has no record, but its changes are counted.
                    if let Some(change) = change
                        && ChangeStreams::has_kind(&self.settings, kind_of(&changes, change))
                        && self.partition.has(changes.slot(change))
                    {
                        let mut record = Vec::new();
                        write_record(self.engine, &changes, change, next, &mut record)?;
                        self.push(record);
                    }
                    self.page.next = next;
                }
            }
            self.page.next = Position::before(after(sequence));
        }
        // The position also moves without entries, because some sequence numbers have no entry.
        let end = Position::before(entries.next);
        self.page.has_more = !entries.entries.is_empty() || end > self.page.next;
        self.page.next = self.page.next.max(end);
        Ok(())
    }

    fn push(&mut self, record: Vec<u8>) {
        self.bytes += record.len();
        // Records are JSON and therefore UTF-8.
        self.page
            .records
            .push(String::from_utf8(record).unwrap_or_default());
    }
}

fn after(sequence: SequenceNumber) -> SequenceNumber {
    SequenceNumber(sequence.0.saturating_add(1))
}
