//! Rows of segments, parts and key spaces.
//!
//! The three kinds of units have tables of the same form. A page is read by one request, so that it is a consistent
//! snapshot. If the request meets too many deleted rows, [`dead_rows`](crate::dead_rows) divides it. A node holds a page
//! in memory while it answers, and cannot limit the page by bytes. Each request therefore has a maximum number of rows,
//! which depends on the sizes of the rows that were last read from the table. So a page can end before its limit.

use std::borrow::Borrow;
use std::iter::once;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use scylla::serialize::SerializationError;
use scylla::serialize::row::{RowSerializationContext, SerializeRow};
use scylla::serialize::writers::RowWriter;
use scylla::statement::prepared::PreparedStatement;
use tideline_backend::page::PageBuilder;
use tideline_backend::{
    Direction, ErrorKind, KeyRange, Page, PageLimit, Partition, Result, Row, RowChange, ScanRange, Unit,
};

use crate::cluster::{Cluster, RequestKind, one_partition};
use crate::dead_rows::{self, Found};
use crate::error::unexpected;

/// Timestamp of rows that are written once.
pub(crate) const WRITTEN_ONCE: i64 = 1;
/// Target size of the response to a request for a page, in bytes.
const PAGE_BYTES: u64 = 2 << 20;
/// Maximum number of rows of a request to a table before the first row of the table is read.
const ROWS_AT_FIRST: u64 = 32;
/// Maximum number of rows of a request.
const ROWS_MAX: u64 = 5_000;
/// Maximum bytes of a batch of loaded rows.
const BATCH_BYTES: usize = 256 << 10;
/// Maximum number of rows of a batch of loaded rows.
const BATCH_ROWS: usize = 500;

/// Statements of one table of rows.
#[derive(Debug)]
struct Table {
    put: PreparedStatement,
    delete: PreparedStatement,
    delete_range: PreparedStatement,
    delete_from: PreparedStatement,
    drop: PreparedStatement,
    get: PreparedStatement,
    /// Scans with and without an upper bound, each ascending and descending.
    scans: [[PreparedStatement; 2]; 2],
    /// Recent average of the bytes of a row; 0 before the first row.
    row_bytes: AtomicU64,
}

/// Rows of all units.
#[derive(Debug)]
pub(crate) struct Rows {
    chunks: Table,
    parts: Table,
    spaces: Table,
}

/// Values of one change of a row.
#[derive(Debug)]
enum Change<'a> {
    Put(i64, i32, &'a [u8], &'a [u8]),
    Delete(i64, i32, &'a [u8]),
}

impl SerializeRow for Change<'_> {
    fn serialize(
        &self,
        context: &RowSerializationContext<'_>,
        writer: &mut RowWriter<'_>,
    ) -> std::result::Result<(), SerializationError> {
        match *self {
            Self::Put(unit, bucket, key, value) => (unit, bucket, key, value).serialize(context, writer),
            Self::Delete(unit, bucket, key) => (unit, bucket, key).serialize(context, writer),
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}

impl Table {
    async fn prepare(cluster: &Cluster, table: &str, unit: &str) -> Result<Self> {
        let place = format!("WHERE {unit} = ? AND bucket = ?");
        let scan = |end: &str, order: &str| {
            format!("SELECT key, value FROM {table} {place} AND key >= ?{end} ORDER BY key {order} LIMIT ?")
        };
        let prepared = |text: String| async move {
            let mut statement = cluster.prepare_read(&text).await?;
            // A page is read by one request; its statement has a limit.
            statement.set_page_size(i32::try_from(2 * ROWS_MAX).unwrap_or(i32::MAX));
            Ok::<_, tideline_backend::BackendError>(statement)
        };
        Ok(Self {
            put: cluster
                .prepare(&format!(
                    "INSERT INTO {table} ({unit}, bucket, key, value) VALUES (?, ?, ?, ?)"
                ))
                .await?,
            delete: cluster
                .prepare(&format!("DELETE FROM {table} {place} AND key = ?"))
                .await?,
            delete_range: cluster
                .prepare(&format!(
                    "DELETE FROM {table} USING TIMESTAMP ? {place} AND key >= ? AND key < ?"
                ))
                .await?,
            delete_from: cluster
                .prepare(&format!(
                    "DELETE FROM {table} USING TIMESTAMP ? {place} AND key >= ?"
                ))
                .await?,
            drop: cluster
                .prepare(&format!("DELETE FROM {table} USING TIMESTAMP ? {place}"))
                .await?,
            get: cluster
                .prepare_read(&format!("SELECT value FROM {table} {place} AND key = ?"))
                .await?,
            scans: [
                [
                    prepared(scan(" AND key < ?", "ASC")).await?,
                    prepared(scan(" AND key < ?", "DESC")).await?,
                ],
                [
                    prepared(scan("", "ASC")).await?,
                    prepared(scan("", "DESC")).await?,
                ],
            ],
            row_bytes: AtomicU64::new(0),
        })
    }

    /// Returns the number of rows to request, given the limit of the page.
    fn rows_to_ask(&self, limit: PageLimit) -> u64 {
        let bytes = (limit.bytes_max as u64).clamp(1, PAGE_BYTES);
        let fitting = match self.row_bytes.load(Ordering::Relaxed) {
            0 => ROWS_AT_FIRST,
            // The row that exceeds the limit belongs to the page.
            row_bytes => bytes / row_bytes + 2,
        };
        fitting
            .clamp(2, ROWS_MAX)
            .min((limit.rows_max as u64).saturating_add(1))
    }

    /// Moves the average towards the size of rows that were read.
    fn note(&self, rows: &[Row]) {
        if rows.is_empty() {
            return;
        }
        let count = rows.len() as u64;
        let bytes: usize = rows.iter().map(|row| row.key.len() + row.value.len()).sum();
        let seen = (bytes as u64 / count).max(16);
        let before = self.row_bytes.load(Ordering::Relaxed);
        // A larger average applies at once, so that only one page is too large.
        let after = if seen > before {
            seen
        } else {
            (before * 7 + seen) / 8
        };
        self.row_bytes.store(after, Ordering::Relaxed);
    }
}

impl Rows {
    pub(crate) async fn prepare(cluster: &Cluster) -> Result<Self> {
        Ok(Self {
            chunks: Table::prepare(cluster, "chunk", "segment").await?,
            parts: Table::prepare(cluster, "part_row", "part").await?,
            spaces: Table::prepare(cluster, "space_row", "space").await?,
        })
    }

    /// Returns the table of a unit, and the number of the unit in it.
    fn place(&self, unit: Unit) -> (&Table, i64) {
        match unit {
            Unit::Segment(segment) => (&self.chunks, segment.segment.0 as i64),
            Unit::Part(part) => (&self.parts, part.part.0 as i64),
            Unit::Space(space) => (&self.spaces, i64::from(space.0)),
        }
    }

    pub(crate) async fn get(
        &self,
        cluster: &Cluster,
        partition: Partition,
        key: &[u8],
    ) -> Result<Option<Bytes>> {
        let (table, unit) = self.place(partition.unit);
        let values = (unit, i32::from(partition.bucket), key);
        let rows = cluster.rows(RequestKind::Read, &table.get, values).await?;
        let row = rows.maybe_first_row::<(Bytes,)>();
        let row = row.map_err(|error| unexpected("the read of a row", error))?;
        Ok(row.map(|(value,)| value))
    }

    pub(crate) async fn scan(
        &self,
        cluster: &Cluster,
        partition: Partition,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<Page> {
        let mut builder = PageBuilder::new(range, direction, limit);
        if range.end.as_ref().is_some_and(|end| *end <= range.start) {
            return Ok(builder.complete());
        }
        let asked = self.place(partition.unit).0.rows_to_ask(limit);
        let found = match self.read(cluster, partition, range, direction, asked).await {
            Err(error) if error.kind() == ErrorKind::TooManyDead => {
                let query = move |keys: KeyRange| self.read(cluster, partition, keys, direction, asked);
                return dead_rows::scan(range, direction, limit, &query).await;
            }
            found => found?,
        };
        for row in found.rows {
            if builder.is_full() {
                return Ok(builder.partial());
            }
            builder.push(row);
        }
        Ok(match found.is_complete {
            true => builder.complete(),
            false => builder.partial(),
        })
    }

    /// Reads at most `asked` rows of a range by one request.
    async fn read(
        &self,
        cluster: &Cluster,
        partition: Partition,
        range: impl Borrow<KeyRange>,
        direction: Direction,
        asked: u64,
    ) -> Result<Found> {
        let range: &KeyRange = range.borrow();
        let (table, unit) = self.place(partition.unit);
        let statement =
            &table.scans[usize::from(range.end.is_none())][usize::from(direction == Direction::Descending)];
        let (bucket, start, limit) = (i32::from(partition.bucket), range.start.as_slice(), asked as i32);
        let answer = match &range.end {
            Some(end) => {
                let values = (unit, bucket, start, end.as_slice(), limit);
                cluster.rows(RequestKind::Read, statement, values).await?
            }
            None => {
                cluster
                    .rows(RequestKind::Read, statement, (unit, bucket, start, limit))
                    .await?
            }
        };
        let mut rows = Vec::with_capacity(answer.rows_num());
        for row in answer
            .rows::<(Bytes, Bytes)>()
            .map_err(|error| unexpected("a scan", error))?
        {
            let (key, value) = row.map_err(|error| unexpected("a scan", error))?;
            rows.push(Row { key, value });
        }
        table.note(&rows);
        let is_complete = (rows.len() as u64) < asked;
        Ok(Found { rows, is_complete })
    }

    /// Scans many ranges with several requests in flight, until their pages together reach the limit.
    pub(crate) async fn scan_many(
        &self,
        cluster: &Cluster,
        ranges: &[ScanRange],
        limit: PageLimit,
    ) -> Result<Vec<Page>> {
        let in_flight = cluster.options.requests_in_flight;
        let mut pages = Vec::with_capacity(ranges.len());
        let (mut rows_left, mut bytes_left) = (limit.rows_max, limit.bytes_max);
        for window in ranges.chunks(in_flight) {
            if rows_left == 0 || bytes_left == 0 {
                pages.extend(window.iter().map(|range| Page {
                    rows: Vec::new(),
                    next: Some(range.keys.clone()),
                }));
                continue;
            }
            let left = PageLimit {
                rows_max: rows_left,
                bytes_max: bytes_left,
            };
            let scans = window
                .iter()
                .map(|range| self.scan(cluster, range.partition, &range.keys, Direction::Ascending, left));
            let found: Vec<Page> = stream::iter(scans).buffered(in_flight).try_collect().await?;
            for page in &found {
                let bytes: usize = page.rows.iter().map(|row| row.key.len() + row.value.len()).sum();
                rows_left = rows_left.saturating_sub(page.rows.len());
                bytes_left = bytes_left.saturating_sub(bytes);
            }
            pages.extend(found);
        }
        Ok(pages)
    }

    /// Writes changes of one partition as a whole.
    pub(crate) async fn write(
        &self,
        cluster: &Cluster,
        partition: Partition,
        changes: &[RowChange],
        stamp: i64,
    ) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let (table, unit) = self.place(partition.unit);
        let bucket = i32::from(partition.bucket);
        let mut batch = one_partition(Some(stamp));
        let mut values = Vec::with_capacity(changes.len());
        for change in changes {
            match &change.value {
                Some(value) => {
                    batch.append_statement(table.put.clone());
                    values.push(Change::Put(unit, bucket, &change.key, value));
                }
                None => {
                    batch.append_statement(table.delete.clone());
                    values.push(Change::Delete(unit, bucket, &change.key));
                }
            }
        }
        cluster
            .batch(RequestKind::Write, &batch, values)
            .await
            .map(|_| ())
    }

    /// Writes rows in batches, several of them in flight.
    ///
    /// The iterator runs on the calling thread, because its rows may come from the same cluster. A second thread sends
    /// the batches. Few batches wait between the two threads, so the memory does not grow with the number of rows.
    pub(crate) fn load(
        &self,
        cluster: &Cluster,
        partition: Partition,
        rows: impl Iterator<Item = Result<Row>>,
    ) -> Result<()> {
        let in_flight = cluster.options.requests_in_flight;
        let (sender, receiver) = sync_channel::<Vec<RowChange>>(in_flight);
        thread::scope(|scope| {
            let sending = scope.spawn(move || {
                while let Ok(first) = receiver.recv() {
                    let more = receiver.try_iter().take(in_flight - 1);
                    let wave: Vec<Vec<RowChange>> = once(first).chain(more).collect();
                    let writes = wave
                        .iter()
                        .map(|batch| self.write(cluster, partition, batch, WRITTEN_ONCE));
                    let written = stream::iter(writes)
                        .buffer_unordered(in_flight)
                        .try_collect::<()>();
                    cluster.block_on(written)?;
                }
                Ok(())
            });
            let mut outcome = Ok(());
            for batch in (Batches { rows, held: None }) {
                let changes = batch.map(|rows| rows.into_iter().map(put).collect());
                match changes {
                    Ok(changes) => {
                        // The other thread ends early only after an error, which it returns.
                        if sender.send(changes).is_err() {
                            break;
                        }
                    }
                    Err(error) => {
                        outcome = Err(error);
                        break;
                    }
                }
            }
            drop(sender);
            let sent = sending.join().unwrap_or_else(|panic| resume_unwind(panic));
            outcome.and(sent)
        })
    }

    pub(crate) async fn remove_range(
        &self,
        cluster: &Cluster,
        partition: Partition,
        range: &KeyRange,
        stamp: i64,
    ) -> Result<()> {
        let (table, unit) = self.place(partition.unit);
        let (bucket, start) = (i32::from(partition.bucket), range.start.as_slice());
        match &range.end {
            Some(end) if *end <= range.start => Ok(()),
            Some(end) => {
                let values = (stamp, unit, bucket, start, end.as_slice());
                cluster
                    .execute(RequestKind::Write, &table.delete_range, values)
                    .await
                    .map(|_| ())
            }
            None => {
                let values = (stamp, unit, bucket, start);
                cluster
                    .execute(RequestKind::Write, &table.delete_from, values)
                    .await
                    .map(|_| ())
            }
        }
    }

    /// Deletes all rows of buckets of a unit with stamps up to `stamp`.
    pub(crate) async fn drop(
        &self,
        cluster: &Cluster,
        unit: Unit,
        buckets: &[u16],
        stamp: i64,
    ) -> Result<()> {
        let (table, number) = self.place(unit);
        stream::iter(buckets)
            .map(|bucket| async move {
                let values = (stamp, number, i32::from(*bucket));
                cluster
                    .execute(RequestKind::Write, &table.drop, values)
                    .await
                    .map(|_| ())
            })
            .buffer_unordered(cluster.options.requests_in_flight)
            .try_collect()
            .await
    }
}

/// Returns the change that writes a row.
fn put(row: Row) -> RowChange {
    RowChange {
        key: row.key,
        value: Some(row.value),
    }
}

/// Groups rows into batches of limited size.
struct Batches<I> {
    rows: I,
    /// Row that did not fit into the last batch.
    held: Option<Row>,
}

impl<I: Iterator<Item = Result<Row>>> Iterator for Batches<I> {
    type Item = Result<Vec<Row>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut batch: Vec<Row> = self.held.take().into_iter().collect();
        let mut bytes: usize = batch.iter().map(|row| row.key.len() + row.value.len()).sum();
        while batch.len() < BATCH_ROWS {
            let row = match self.rows.next() {
                Some(Ok(row)) => row,
                Some(Err(error)) => return Some(Err(error)),
                None => break,
            };
            bytes += row.key.len() + row.value.len();
            if bytes > BATCH_BYTES && !batch.is_empty() {
                self.held = Some(row);
                break;
            }
            batch.push(row);
        }
        (!batch.is_empty()).then_some(Ok(batch))
    }
}
