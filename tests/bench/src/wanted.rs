//! Goals of the benchmark figures on a machine with two cores. S, M and C are the data sets of the module `set`.
//!
//! The comment of each goal states the unit, the statistic if there is one, and the measured work. The measuring
//! modules assign the goals to figures.

use crate::report::Wanted;
use crate::set::Kind;

/// Returns the goal for millions of values per second of server CPU time, from the first byte until the server is idle
/// after a seal.
pub(crate) fn ingest(kind: Kind) -> Wanted {
    Wanted::AtLeast(match kind {
        Kind::S | Kind::M => 4.0,
        Kind::C => 2.0,
    })
}

/// Returns the goal for bytes on disk per value, measured over the whole data folder.
pub(crate) fn bytes_per_value(kind: Kind) -> Wanted {
    Wanted::AtMost(match kind {
        Kind::S => 0.75,
        Kind::M => 0.55,
        Kind::C => 6.0,
    })
}

/// Returns the goal for mebibytes of resident memory while loading.
pub(crate) fn peak_memory(kind: Kind) -> Wanted {
    match kind {
        Kind::S => Wanted::Nothing,
        Kind::M => Wanted::AtMost(500.0),
        Kind::C => Wanted::AtMost(700.0),
    }
}

/// Seconds from the start after `kill -9` to the first correct result; all points of M are sealed.
pub(crate) const READY_SEALED: Wanted = Wanted::AtMost(0.5);
/// Seconds from the start after `kill -9` to the first correct result; the points of S are unsealed, so that the
/// journal is replayed.
pub(crate) const READY_UNSEALED: Wanted = Wanted::AtMost(1.0);
/// Milliseconds at the client, median: one hour of one field of one timeline of M, by minute.
pub(crate) const ONE_TIMELINE: Wanted = Wanted::AtMost(0.4);
/// Milliseconds, median: one field by minute over all hosts of S.
pub(crate) const ALL_HOSTS_BY_MINUTE: Wanted = Wanted::AtMost(25.0);
/// Milliseconds, median: all ten fields by host and hour, twelve hours of M.
pub(crate) const ALL_FIELDS_BY_HOUR: Wanted = Wanted::AtMost(100.0);
/// Milliseconds, median: all values above 90 of one field of all hosts, over twelve hours of M, as rows.
pub(crate) const HIGH_VALUES: Wanted = Wanted::AtMost(150.0);
/// Milliseconds, median: the ten of 1,000 hosts with the highest mean of one field over twelve hours of M.
pub(crate) const TOP_HOSTS: Wanted = Wanted::AtMost(15.0);
/// Milliseconds, median: latest values of all fields of 1,000 hosts.
pub(crate) const LATEST: Wanted = Wanted::AtMost(3.0);
/// Milliseconds, 99th percentile: two tag conditions among the timelines of C.
pub(crate) const SEARCH: Wanted = Wanted::AtMost(3.0);
/// Bytes on disk per value of M over the whole data folder, after all points were moved to the cold tier.
pub(crate) const COLD_BYTES_PER_VALUE: Wanted = Wanted::AtMost(0.38);
/// Millions of values moved to the cold tier per second of server CPU time.
pub(crate) const MIGRATION: Wanted = Wanted::AtLeast(15.0);
/// Mebibytes by which resident memory may grow during a move.
pub(crate) const MIGRATION_MEMORY: Wanted = Wanted::AtMost(256.0);
/// Bytes written per byte in the cold tier at the end, without the journal.
pub(crate) const WRITE_AMPLIFICATION: Wanted = Wanted::AtMost(4.0);
/// Milliseconds, median: all ten fields by host and hour, over twelve hours of M in the cold tier.
pub(crate) const ALL_FIELDS_BY_HOUR_COLD: Wanted = Wanted::AtMost(40.0);
/// Ingest rate during a move, in percent of the rate without a move.
pub(crate) const INGEST_BESIDE_MOVE: Wanted = Wanted::AtLeast(85.0);
/// 99th percentile of hot queries during a move, as a multiple of the percentile without a move.
pub(crate) const QUERIES_BESIDE_MOVE: Wanted = Wanted::AtMost(1.5);
/// 99th percentile of hot queries during cold queries, as a multiple of the percentile without cold queries.
pub(crate) const BESIDE_FLOOD: Wanted = Wanted::AtMost(1.5);
/// Bytes per value of M in archive files, all files included.
pub(crate) const ARCHIVE_BYTES_PER_VALUE: Wanted = Wanted::AtMost(0.5);
/// Millions of values archived per second of server CPU time.
pub(crate) const ARCHIVING: Wanted = Wanted::AtLeast(10.0);
/// Mebibytes by which resident memory may grow during archiving.
pub(crate) const ARCHIVING_MEMORY: Wanted = Wanted::AtMost(512.0);
/// Milliseconds, median: one field of one timeline over a day, by minute, from a file whose footer is cached.
pub(crate) const ARCHIVED_DAY: Wanted = Wanted::AtMost(5.0);
/// Millions of archived values that an aggregate over all timelines reads per second of server CPU time.
pub(crate) const ARCHIVED_AGGREGATE: Wanted = Wanted::AtLeast(50.0);
/// Number of segments after a backfill of five years in random order.
pub(crate) const BACKFILL_SEGMENTS: Wanted = Wanted::AtMost(1_000.0);
/// Millions of values of the backfill per second of server CPU time, including folds.
pub(crate) const BACKFILL: Wanted = Wanted::AtLeast(1.0);
/// Mebibytes of resident memory during the backfill; the same limit as for loading M.
pub(crate) const BACKFILL_MEMORY: Wanted = Wanted::AtMost(500.0);
/// Bytes on disk per value of a set of one million timelines.
pub(crate) const MILLION_BYTES_PER_VALUE: Wanted = Wanted::AtMost(3.0);
/// Mebibytes of resident memory with a million timelines, while loading and moving.
pub(crate) const MILLION_MEMORY: Wanted = Wanted::AtMost(1_024.0);
/// Rate of `tideline write` in percent of the rate of the plain loader.
pub(crate) const WRITE_COMMAND: Wanted = Wanted::AtLeast(90.0);
/// Milliseconds, 99th percentile, among a million timelines: two `equals` conditions and one `in` condition.
pub(crate) const FIND_EQUALS: Wanted = Wanted::AtMost(3.0);
/// Milliseconds, 99th percentile, among a million timelines: a prefix, a wildcard, a regular expression, a range
/// or an area, with up to 1,000 hits.
pub(crate) const FIND_PATTERN: Wanted = Wanted::AtMost(15.0);
/// Milliseconds, 99th percentile, among a million timelines: the first page of a text search for words with a wrong
/// letter.
pub(crate) const FIND_TEXT: Wanted = Wanted::AtMost(20.0);
/// Milliseconds, 99th percentile, among a million timelines: counts by a tag with 200,000 values.
pub(crate) const FIND_FACET: Wanted = Wanted::AtMost(30.0);
/// Milliseconds, 99th percentile, among a million timelines: a page of the values of a tag with 200,000 values.
pub(crate) const FIND_VALUES: Wanted = Wanted::AtMost(20.0);
/// Thousands of timelines indexed per second of CPU time.
pub(crate) const FIND_BUILD: Wanted = Wanted::AtLeast(100.0);
/// Bytes of the index on disk per timeline.
pub(crate) const FIND_DISK: Wanted = Wanted::AtMost(200.0);
/// Bytes of resident memory of the server per timeline, after a start.
pub(crate) const FIND_MEMORY: Wanted = Wanted::AtMost(500.0);
/// Millions of samples by remote write per second of server CPU time, from the first byte until seals and folds have
/// ended.
pub(crate) const REMOTE_WRITE: Wanted = Wanted::AtLeast(2.0);
/// Millions of OTLP data points per second of server CPU time, from the first byte until seals and folds have ended.
pub(crate) const OTLP: Wanted = Wanted::AtLeast(1.0);
/// Milliseconds, median: the rates of 1,000 counters in groups, over six hours in steps of one minute.
pub(crate) const RATES: Wanted = Wanted::AtMost(60.0);
/// Milliseconds at the client, median: an instant query for one series.
pub(crate) const ONE_SERIES: Wanted = Wanted::AtMost(0.5);
/// Milliseconds, median: 1,000 series selected by two regular expressions among a million.
pub(crate) const SERIES: Wanted = Wanted::AtMost(50.0);
/// Thousands of rows per second, one row of ten columns per request over 64 connections, synced.
pub(crate) const ROWS_SINGLE: Wanted = Wanted::AtLeast(20.0);
/// Microseconds of server CPU time per row, one row per request without a condition.
pub(crate) const ROWS_SINGLE_CPU: Wanted = Wanted::AtMost(45.0);
/// Milliseconds, 99th percentile: one row per request, with or without a condition.
pub(crate) const ROWS_SINGLE_P99: Wanted = Wanted::AtMost(6.0);
/// Thousands of conditional rows per second, one per request.
pub(crate) const ROWS_CONDITIONAL: Wanted = Wanted::AtLeast(15.0);
/// Thousands of rows in batches of 1,000 per second of server CPU time, until the last acknowledgement.
pub(crate) const ROWS_ACKNOWLEDGED: Wanted = Wanted::AtLeast(150.0);
/// Thousands of rows in batches of 1,000 per second of server CPU time, flushed and compacted.
pub(crate) const ROWS_DRAINED: Wanted = Wanted::AtLeast(100.0);
/// Rows per second of server CPU time with one covering index, in percent of the rate without an index.
pub(crate) const ROWS_INDEXED: Wanted = Wanted::AtLeast(60.0);
/// Milliseconds at the client, median: a row by its key.
pub(crate) const ROWS_READ_P50: Wanted = Wanted::AtMost(0.25);
/// Milliseconds at the client, 99th percentile: a row by its key.
pub(crate) const ROWS_READ_P99: Wanted = Wanted::AtMost(1.0);
/// Millions of scanned rows per second of server CPU time, as NDJSON.
pub(crate) const ROWS_SCAN_NDJSON: Wanted = Wanted::AtLeast(0.25);
/// Millions of scanned rows per second of server CPU time, as Arrow.
pub(crate) const ROWS_SCAN_ARROW: Wanted = Wanted::AtLeast(0.6);
/// Median latency of a page over 16 buckets, as a multiple of the median latency of a page over one range.
pub(crate) const ROWS_BUCKETS: Wanted = Wanted::AtMost(2.0);
/// Disk usage of rows, as a multiple of the size of their compressed NDJSON export (zstd, level 3).
pub(crate) const ROWS_DISK: Wanted = Wanted::AtMost(1.2);
/// Mebibytes of resident memory while writing rows in batches.
pub(crate) const ROWS_MEMORY: Wanted = Wanted::AtMost(700.0);
/// Median latency of reads after most rows were deleted, as a multiple of the median latency before the deletes.
pub(crate) const ROWS_DELETED: Wanted = Wanted::AtMost(1.2);
/// Seconds until ready after a kill with rows in the row buffer.
pub(crate) const ROWS_READY: Wanted = Wanted::AtMost(2.0);
/// Thousands of rows per second of server CPU time: batches of 1,000 rows with a search index of five columns, until
/// they are flushed and indexed.
pub(crate) const SEARCH_WRITES: Wanted = Wanted::AtLeast(25.0);
/// Seconds, longest during the writes of [`SEARCH_WRITES`]: time from a write until searches find it.
pub(crate) const SEARCH_LAG: Wanted = Wanted::AtMost(3.0);
/// Bytes on disk per row: search index of five short columns.
pub(crate) const SEARCH_DISK: Wanted = Wanted::AtMost(60.0);
/// Milliseconds at the client, 99th percentile: search of ten million rows by three conditions, page of 20.
pub(crate) const SEARCH_P99: Wanted = Wanted::AtMost(30.0);
/// Milliseconds at the client, 99th percentile: counts of a million rows by 1,000 values.
pub(crate) const SEARCH_FACETS: Wanted = Wanted::AtMost(40.0);
/// Thousands of messages per second, one of 200 bytes per request over 64 connections, synced.
pub(crate) const FEEDS_SINGLE: Wanted = Wanted::AtLeast(18.0);
/// Microseconds of server CPU time per message, one per request.
pub(crate) const FEEDS_SINGLE_CPU: Wanted = Wanted::AtMost(50.0);
/// Milliseconds, 99th percentile: one message per request.
pub(crate) const FEEDS_SINGLE_P99: Wanted = Wanted::AtMost(8.0);
/// Thousands of messages in batches of 100 per second of server CPU time, until the last acknowledgement.
pub(crate) const FEEDS_ACKNOWLEDGED: Wanted = Wanted::AtLeast(150.0);
/// Thousands of messages in batches of 100 per second of server CPU time, flushed and compacted.
pub(crate) const FEEDS_DRAINED: Wanted = Wanted::AtLeast(80.0);
/// Thousands of inbox entries of a group of 1,000 per second of server CPU time, flushed and compacted.
pub(crate) const FEEDS_ENTRIES: Wanted = Wanted::AtLeast(250.0);
/// Thousands of inbox entries that the job `fan_out` writes per second of server CPU time, flushed and compacted.
pub(crate) const FEEDS_JOB: Wanted = Wanted::AtLeast(250.0);
/// Thousands of messages per second of server CPU time: batches of 100 with a search index, flushed and indexed.
pub(crate) const FEEDS_SEARCHABLE: Wanted = Wanted::AtLeast(15.0);
/// Seconds, longest during the writes of [`FEEDS_SEARCHABLE`]: time from a message until searches find it.
pub(crate) const FEEDS_SEARCH_LAG: Wanted = Wanted::AtMost(3.0);
/// Bytes on disk of the search index of messages per byte of their texts.
pub(crate) const FEEDS_SEARCH_DISK: Wanted = Wanted::AtMost(0.8);
/// Milliseconds, median: a message of an author with a million followers who pull it.
pub(crate) const FEEDS_PULLED: Wanted = Wanted::AtMost(5.0);
/// Milliseconds, 99th percentile: the 50 conversations of a user, in a store of a million messages.
pub(crate) const FEEDS_CONVERSATIONS: Wanted = Wanted::AtMost(3.0);
/// Milliseconds, median: 100 messages after a cursor.
pub(crate) const FEEDS_PAGE: Wanted = Wanted::AtMost(0.4);
/// Bytes on disk per message with a text of 200 bytes: 0.55 bytes per byte of the text, plus 40 bytes.
pub(crate) const FEEDS_DISK: Wanted = Wanted::AtMost(150.0);
/// Bytes on disk per inbox entry.
pub(crate) const FEEDS_ENTRY_DISK: Wanted = Wanted::AtMost(16.0);
/// Milliseconds from the acknowledgement of a message to its receipt by a watch, 99th percentile, at 2,000 messages per
/// second and with 10,000 watches that each follow a separate feed.
pub(crate) const FEEDS_WATCHED: Wanted = Wanted::AtMost(50.0);
/// Mebibytes of resident memory of the server with the watches of [`FEEDS_WATCHED`].
pub(crate) const FEEDS_WATCHED_MEMORY: Wanted = Wanted::AtMost(1_024.0);
/// Milliseconds, median, from the acknowledgement of a message to its last receipt by 10,000 watches.
pub(crate) const FEEDS_BROADCAST: Wanted = Wanted::AtMost(400.0);
/// 99th percentile of other writers during the messages of [`FEEDS_BROADCAST`], as a multiple of the percentile without
/// these messages.
pub(crate) const FEEDS_BROADCAST_WRITERS: Wanted = Wanted::AtMost(2.0);
/// Thousands of records of rows per second of server CPU time, read by one consumer in pages of 1,000.
pub(crate) const CHANGES_READ: Wanted = Wanted::AtLeast(150.0);
/// Milliseconds from the acknowledgement of a row to the receipt by a reader that waits, 99th percentile.
pub(crate) const CHANGES_WAIT: Wanted = Wanted::AtMost(30.0);
/// CPU time of writing and sealing the set S with a stream, as a multiple of the CPU time without a stream.
pub(crate) const CHANGES_COST: Wanted = Wanted::AtMost(1.03);
