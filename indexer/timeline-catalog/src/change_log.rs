//! Log of the changes of catalog rows, from which a standby completes the timelines that it has read ahead.
//!
//! An owner whose data other processes can take over writes a record of changed rows before it writes the rows. A
//! standby reads all rows once ([`TimelinesAhead`](crate::TimelinesAhead)), and then only the records. A record has the
//! content of its rows, because reading single rows from a cluster costs more than reading all rows.
//!
//! The key of a record is the epoch of the owner and a number that increases. The log of an epoch begins empty: the owner
//! removes the records of earlier epochs. An owner of an older build writes no records, so the absence of all records of
//! an epoch shows that the rows may have changed without a record.
//!
//! When a table is dropped, a record without rows states that all rows of the table are removed. Ids of tables are never
//! reused, so no later record has rows of the table.
//!
//! A record states two numbers of its epoch:
//!
//! - Records from `kept_from` on are kept. A reader that needs an earlier record reads all rows again.
//! - The rows of all records below `written_to` are written. Rows of later records may be missing after a crash. The
//!   journal then still holds their changes.

use std::collections::{BTreeMap, VecDeque};
use std::iter::{self, Peekable};

use bytes::Bytes;
use parking_lot::Mutex;
use tideline_backend::{Backend, Epoch, KeyRange, RowChange, Stamp};
use tideline_key_codec::{catalog_changes_key, catalog_changes_partition, parse_catalog_key};
use tideline_model::{Durability, TableId, TimelineId};
use tideline_wire::varint;
use xxhash_rust::xxh3::xxh3_64;

use crate::store::{Change, bytes_of};
use crate::value::Parts;
use crate::{CatalogError, Result};

/// Version of the layout of a record.
const VERSION: u8 = 1;
/// Length of the checksum at the end of a record, in bytes.
const CHECKSUM_BYTES: usize = 4;
/// Maximum size of a record with several rows, in bytes. A backend estimates the size of a page from the rows of all key
/// spaces, so a record must not be much larger than other rows.
const RECORD_BYTES: usize = 16 << 10;
/// Size in bytes at which a write gets no further records.
const WRITE_BYTES: usize = 1 << 20;
/// Bytes of records at which the older half is removed. A standby that is behind by more reads all rows again.
const LOG_BYTES_MAX: usize = 32 << 20;

/// Table of an empty record. No table has this id.
const NO_TABLE: TableId = TableId(0);

/// Source of timestamps for rows.
type NextStamp<'a> = dyn FnMut() -> tideline_backend::Result<Stamp> + 'a;

/// Log of the changes of catalog rows, shared by all catalogs of the process. It is off until [`begin`](Self::begin).
#[derive(Debug, Default)]
pub struct ChangeLog(Mutex<Option<Writing>>);

/// Records of the current epoch.
#[derive(Debug)]
struct Writing {
    epoch: u64,
    /// Number of the next record. A number is used up even if the write of its record fails, because the record may be
    /// stored later.
    next: u64,
    kept_from: u64,
    /// Numbers and sizes of the kept records.
    kept: VecDeque<(u64, usize)>,
    kept_bytes: usize,
    /// First numbers and tables of groups of records whose rows are not written yet.
    unwritten: BTreeMap<u64, TableId>,
    /// True if the last record states that all rows are written, or if there is no record.
    is_settled: bool,
}

/// Group of records whose rows are being written.
#[derive(Debug)]
#[must_use]
pub(crate) struct Recorded(Option<u64>);

impl ChangeLog {
    /// Switches the log on. `epoch` is the epoch in which this process owns the data. Must be called before the first row
    /// of the epoch is written.
    pub fn begin(&self, epoch: Epoch) {
        *self.0.lock() = Some(Writing {
            epoch: epoch.0,
            next: 0,
            kept_from: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            unwritten: BTreeMap::new(),
            is_settled: true,
        });
    }

    /// Writes an empty record if the epoch has no record yet, so that a standby can rely on the log. Does nothing while
    /// the log is off.
    ///
    /// # Errors
    ///
    /// [`CatalogError::Backend`] if `stamp` or a write fails.
    pub fn announce(&self, backend: &dyn Backend, stamp: &mut NextStamp<'_>) -> Result<()> {
        match &mut *self.0.lock() {
            Some(writing) => writing.announce(backend, stamp),
            None => Ok(()),
        }
    }

    /// Writes records of changes that are about to be written as rows. Call [`written`](Self::written) after the rows.
    pub(crate) fn record(
        &self,
        backend: &dyn Backend,
        table: TableId,
        changes: &[Change],
        stamp: &mut NextStamp<'_>,
    ) -> Result<Recorded> {
        // The lock is held during the writes, so that a reader that has seen a record has seen all earlier ones.
        let mut log = self.0.lock();
        let Some(writing) = &mut *log else {
            return Ok(Recorded(None));
        };
        writing.announce(backend, stamp)?;
        let first = writing.next;
        writing.unwritten.insert(first, table);
        writing.put(backend, table, changes, stamp)?;
        Ok(Recorded(Some(first)))
    }

    /// Writes a record that all rows of a table are about to be removed, because the table was dropped. Call
    /// [`written`](Self::written) after their removal. No row of the table may be written during and after the call.
    pub(crate) fn record_drop(
        &self,
        backend: &dyn Backend,
        table: TableId,
        stamp: &mut NextStamp<'_>,
    ) -> Result<Recorded> {
        let mut log = self.0.lock();
        let Some(writing) = &mut *log else {
            return Ok(Recorded(None));
        };
        writing.announce(backend, stamp)?;
        // Rows of the table that an earlier call could not write are not needed any more.
        writing.unwritten.retain(|_, of| *of != table);
        let first = writing.next;
        let is_settled = writing.unwritten.is_empty();
        // Until the rows are removed, a standby that reads all rows also reads this record.
        writing.unwritten.insert(first, table);
        writing.put_without_rows(backend, table, stamp)?;
        // After a crash, no rows of this record are in doubt: the next start removes rows of tables that do not exist.
        writing.is_settled = is_settled;
        Ok(Recorded(Some(first)))
    }

    /// Marks the rows of a group of records as written.
    pub(crate) fn written(&self, recorded: &Recorded) {
        if let (Some(writing), Recorded(Some(first))) = (&mut *self.0.lock(), recorded) {
            writing.unwritten.remove(first);
        }
    }

    /// Marks the rows of all records of a table as written, after all changed rows of the table were written. This
    /// includes rows that an earlier call could not write. No row of the table may be written during the call.
    ///
    /// Writes an empty record if the last record does not state that all rows are written. Without it, the next owner
    /// would write the rows of the last records again.
    pub(crate) fn all_written(
        &self,
        backend: &dyn Backend,
        table: TableId,
        stamp: &mut NextStamp<'_>,
    ) -> Result<()> {
        let mut log = self.0.lock();
        let Some(writing) = &mut *log else {
            return Ok(());
        };
        writing.unwritten.retain(|_, of| *of != table);
        match writing.is_settled || !writing.unwritten.is_empty() {
            true => Ok(()),
            false => writing.put_without_rows(backend, NO_TABLE, stamp),
        }
    }
}

impl Writing {
    fn announce(&mut self, backend: &dyn Backend, stamp: &mut NextStamp<'_>) -> Result<()> {
        if !self.kept.is_empty() {
            return Ok(());
        }
        // Records of earlier epochs, and of another database whose rows were copied.
        backend.remove_rows(catalog_changes_partition(), &KeyRange::ALL, stamp()?)?;
        self.put_without_rows(backend, NO_TABLE, stamp)
    }

    /// Writes a record without rows: an empty record, or the drop of a table.
    fn put_without_rows(
        &mut self,
        backend: &dyn Backend,
        table: TableId,
        stamp: &mut NextStamp<'_>,
    ) -> Result<()> {
        let record = self.encode(table, &mut iter::empty().peekable());
        self.write(backend, vec![record], stamp)?;
        self.is_settled = self.unwritten.is_empty();
        Ok(())
    }

    /// Writes the records of changes.
    fn put(
        &mut self,
        backend: &dyn Backend,
        table: TableId,
        changes: &[Change],
        stamp: &mut NextStamp<'_>,
    ) -> Result<()> {
        self.is_settled = false;
        let is_full = self.kept_bytes >= LOG_BYTES_MAX;
        if is_full {
            self.keep_half();
        }
        let mut changes = changes.iter().peekable();
        let (mut records, mut bytes) = (Vec::new(), 0);
        while changes.peek().is_some() {
            let record = self.encode(table, &mut changes);
            if bytes + record.len() > WRITE_BYTES && bytes > 0 {
                self.write(backend, std::mem::take(&mut records), stamp)?;
                bytes = 0;
            }
            bytes += record.len();
            records.push(record);
        }
        self.write(backend, records, stamp)?;
        if is_full {
            // The records that were just written state that the others are not kept.
            let [start, end] = [0, self.kept_from].map(|number| catalog_changes_key(self.epoch, number));
            let range = KeyRange::new(start, end);
            backend.remove_rows(catalog_changes_partition(), &range, stamp()?)?;
        }
        Ok(())
    }

    /// Counts the older half of the records as removed.
    fn keep_half(&mut self) {
        while self.kept_bytes > LOG_BYTES_MAX / 2
            && let Some((number, bytes)) = self.kept.pop_front()
        {
            self.kept_bytes -= bytes;
            self.kept_from = number + 1;
        }
    }

    /// Encodes a record with as many changes as fit, at least one if there is one.
    fn encode<'c>(
        &self,
        table: TableId,
        changes: &mut Peekable<impl Iterator<Item = &'c Change>>,
    ) -> Vec<u8> {
        let unwritten = self.unwritten.first_key_value();
        let written_to = unwritten.map_or(self.next, |(first, _)| *first);
        let mut record = vec![VERSION];
        varint::put(self.kept_from, &mut record);
        varint::put(written_to, &mut record);
        varint::put(u64::from(table.0), &mut record);
        let header_bytes = record.len();
        let fits = |record_bytes: usize, change: &Change| {
            record_bytes == header_bytes || record_bytes + bytes_of(&change.row) <= RECORD_BYTES
        };
        while let Some(change) = changes.next_if(|&change| fits(record.len(), change)) {
            let id = parse_catalog_key(&change.row.key).map_or(TimelineId::MIN, |(_, id)| id);
            record.extend_from_slice(&id.0);
            // A row has a version and a checksum, so it is never empty.
            let value = change.row.value.as_deref().unwrap_or_default();
            varint::put(value.len() as u64, &mut record);
            record.extend_from_slice(value);
        }
        let checksum = checksum(&record);
        record.extend_from_slice(&checksum);
        record
    }

    fn write(
        &mut self,
        backend: &dyn Backend,
        records: Vec<Vec<u8>>,
        stamp: &mut NextStamp<'_>,
    ) -> Result<()> {
        let mut rows = Vec::with_capacity(records.len());
        let mut sizes = Vec::with_capacity(records.len());
        for record in records {
            let number = self.next;
            self.next += 1;
            sizes.push((number, record.len()));
            rows.push(RowChange {
                key: Bytes::copy_from_slice(&catalog_changes_key(self.epoch, number)),
                value: Some(record.into()),
            });
        }
        let partition = catalog_changes_partition();
        backend.write(partition, &rows, stamp()?, Durability::Synced)?;
        self.kept_bytes += sizes.iter().map(|(_, bytes)| bytes).sum::<usize>();
        self.kept.extend(sizes);
        Ok(())
    }
}

/// Decoded record.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    pub(crate) kept_from: u64,
    pub(crate) written_to: u64,
    pub(crate) table: TableId,
    /// Timelines with their new rows; `None` if the row is deleted.
    pub(crate) rows: Vec<(TimelineId, Option<&'a [u8]>)>,
}

impl Record<'_> {
    /// Returns true if all rows of the table are removed, because the table was dropped.
    pub(crate) fn drops_table(&self) -> bool {
        self.rows.is_empty() && self.table != NO_TABLE
    }
}

impl<'a> Record<'a> {
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self> {
        let content = bytes
            .split_last_chunk::<CHECKSUM_BYTES>()
            .filter(|(content, stored)| checksum(content) == **stored)
            .map(|(content, _)| content);
        content.and_then(read).ok_or(CatalogError::DamagedRecord)
    }
}

fn read(content: &[u8]) -> Option<Record<'_>> {
    let (&VERSION, rest) = content.split_first()? else {
        return None;
    };
    let mut parts = Parts { rest };
    let (kept_from, written_to) = (parts.number()?, parts.number()?);
    let table = TableId(u32::try_from(parts.number()?).ok()?);
    let mut rows = Vec::new();
    while !parts.rest.is_empty() {
        let id = TimelineId(parts.bytes(16)?.try_into().ok()?);
        let length = usize::try_from(parts.number()?).ok()?;
        let value = parts.bytes(length)?;
        rows.push((id, (!value.is_empty()).then_some(value)));
    }
    Some(Record {
        kept_from,
        written_to,
        table,
        rows,
    })
}

fn checksum(content: &[u8]) -> [u8; CHECKSUM_BYTES] {
    (xxh3_64(content) as u32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records are stored on disk: these bytes must remain readable forever.
    #[test]
    fn golden_record() {
        let mut golden: Vec<u8> = vec![1, 2, 0xac, 0x02, 7];
        golden.extend_from_slice(b"0123456789abcdef\x03row");
        golden.extend_from_slice(b"fedcba9876543210\x00");
        let sum = checksum(&golden);
        golden.extend_from_slice(&sum);
        let record = Record::decode(&golden).expect("golden");
        assert_eq!((record.kept_from, record.written_to), (2, 300));
        assert_eq!(record.table, TableId(7));
        let rows = [
            (TimelineId(*b"0123456789abcdef"), Some(&b"row"[..])),
            (TimelineId(*b"fedcba9876543210"), None),
        ];
        assert_eq!(record.rows, rows);
        assert!(!record.drops_table());
        for at in 0..golden.len() {
            assert!(Record::decode(&golden[..at]).is_err(), "cut at {at}");
            let mut flipped = golden.clone();
            flipped[at] ^= 1;
            assert!(Record::decode(&flipped).is_err(), "byte {at}");
        }
        for (table, drops_table) in [(0, false), (7, true)] {
            let mut golden: Vec<u8> = vec![1, 2, 0xac, 0x02, table];
            let sum = checksum(&golden);
            golden.extend_from_slice(&sum);
            let record = Record::decode(&golden).expect("golden");
            assert_eq!(record.drops_table(), drops_table, "table {table}");
        }
    }
}
