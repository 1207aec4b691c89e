//! The backend trait: visibility, durability and idempotence of its calls.
//!
//! Keys and values are bytes, in unsigned byte order. Empty keys and empty values are valid. A [`Partition`] is a
//! bucket of a segment, part or key space; it is the unit of atomic writes and of scans.
//!
//! Calls block the calling thread. The embedded engine runs them on that thread; reads take microseconds. A networked
//! engine keeps several requests in flight within calls that take many rows, and retries safe requests until the
//! deadline of the call. Never call from a thread that drives an async runtime, except for bounded reads of a backend
//! without network requests ([`Capabilities::requests_in_flight`] is 1).

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use tideline_model::{Durability, GroupId, SequenceNumber, Tier, Timestamp};
pub use tideline_model::{KEY_BYTES_MAX, KeyRange, PartRef, Partition, SegmentRef, Space, Unit};

use crate::error::Result;
use crate::limits::check_sorted;
use crate::page::one_by_one;

/// Maximum length of a value, in bytes: half of the request limit of Cassandra with default settings.
pub const VALUE_BYTES_MAX: usize = 8 << 20;
/// Maximum number of changes in one [`Backend::write`].
pub const WRITE_ROWS_MAX: usize = 1_000;
/// Maximum bytes of keys and values in one [`Backend::write`].
pub const WRITE_BYTES_MAX: usize = 4 << 20;
/// Maximum bytes of name and detail of one manifest row.
pub const MANIFEST_ROW_BYTES_MAX: usize = 64 << 10;

/// Fixed range of timeline prefixes, owned by at most one process at a time. With a single process, shard 0 is the only
/// shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub u16);

/// Number of an ownership period of a shard. Each [`Backend::take`] returns a higher epoch. Owners with lower epochs
/// can then no longer append to the journal or edit the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// Ownership of a shard, possibly limited in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Epoch of the owner, higher than that of any earlier owner.
    pub epoch: Epoch,
    /// Lowest stamp that this owner may use; above every stamp that an earlier owner may have used.
    pub stamp_min: Stamp,
    /// Highest stamp that this owner may use until it renews the lease.
    pub stamp_max: Stamp,
    /// Time for which the ownership is valid, counted from the start of the call. `None`: the ownership is valid until
    /// the backend is closed, because no other process can take the shard until then.
    pub holds: Option<Duration>,
}

/// Version of a write. The highest stamp wins the whole row; of equal stamps, a delete wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub u64);

/// Order of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Lowest key first.
    Ascending,
    /// Highest key first.
    Descending,
}

/// Size limit of a page. A page ends at the latest at `rows_max` rows, and after the row that exceeds `bytes_max`. It
/// may end earlier: only [`Page::next`] shows whether the range has more rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit {
    /// Maximum number of rows; at least 1.
    pub rows_max: usize,
    /// Bytes of keys and values; the page ends after the row that exceeds them.
    pub bytes_max: usize,
}

/// Key range of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanRange {
    /// Partition to scan.
    pub partition: Partition,
    /// Keys to scan.
    pub keys: KeyRange,
}

/// Key and value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Key of the row.
    pub key: Bytes,
    /// Value of the row.
    pub value: Bytes,
}

/// One page of a scan result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Rows in scan order.
    pub rows: Vec<Row>,
    /// Remaining range; `None` if the scan is complete.
    pub next: Option<KeyRange>,
}

/// Change of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowChange {
    /// Key of the row.
    pub key: Bytes,
    /// New value; `None` deletes the row.
    pub value: Option<Bytes>,
}

/// Journal entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// Sequence number, assigned by the owner of the shard. Entries of one call must be in increasing order.
    pub sequence: SequenceNumber,
    /// Content of the entry.
    pub value: Bytes,
}

/// Epoch with entries in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalEpoch {
    /// Number of the epoch.
    pub epoch: Epoch,
    /// First sequence number after the epoch; `None` until it is closed.
    pub end: Option<SequenceNumber>,
}

/// Kind of a manifest row. The number is part of the stored form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ManifestKind {
    /// A published segment.
    Segment = 1,
    /// A stored position, such as the end of the sealed part of the journal, or the next ids to assign.
    Cursor = 3,
    // Code 4 is reserved for pins; no build has written it.
    /// A row of the job scheduler.
    Job = 5,
    /// A table with its settings.
    Table = 6,
    /// A published part: its number of buckets, and data of its table's model.
    Part = 7,
}

impl ManifestKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Segment, Self::Cursor, Self::Job, Self::Table, Self::Part];

    /// Returns the kind of a stored number; `None` if no kind has this number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }
}

/// Row of a shard's manifest, at most [`MANIFEST_ROW_BYTES_MAX`] bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestRow {
    /// Kind of the row.
    pub kind: ManifestKind,
    /// Name, unique within the kind.
    pub name: Bytes,
    /// Content of the row.
    pub detail: Bytes,
}

/// Manifest of a shard at one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Epoch of the owner at the time of the read; 0 before the first [`Backend::take`].
    pub epoch: Epoch,
    /// Version; each applied edit increases it by one.
    pub version: u64,
    /// All rows, ordered by kind, then name.
    pub rows: Vec<ManifestRow>,
}

/// Change of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManifestChange {
    /// Inserts or replaces a row.
    Put(ManifestRow),
    /// Removes a row. A missing row is not an error.
    Remove(ManifestKind, Bytes),
}

/// Known outcome of an edit. An unknown outcome is an error of kind `Unknown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditOutcome {
    /// All changes are applied and durable.
    Applied {
        /// New version of the manifest.
        version: u64,
    },
    /// Nothing has changed: the epoch is not the owner's, or the version is not the current version.
    Refused {
        /// Epoch of the current owner.
        epoch: Epoch,
        /// Current version of the manifest.
        version: u64,
    },
}

/// Entries of a journal that are kept although they are no longer needed for a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// Sequence from which all entries are kept; `None` if the journal has no history.
    pub from: Option<SequenceNumber>,
    /// Kept units, oldest first. A unit is freed as a whole.
    pub units: Vec<HistoryUnit>,
}

/// Unit of the history of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryUnit {
    /// Sequence of the last entry.
    pub last: SequenceNumber,
    /// Size on disk, in bytes.
    pub bytes: u64,
    /// Time of the last append to the unit, by the clock of the machine.
    pub written: Timestamp,
}

/// Page of the entries of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryPage {
    /// Position from which on the page is complete: the requested one, unless entries after it were freed or are
    /// damaged.
    pub from: SequenceNumber,
    /// True if entries between the requested position and `from` are damaged; false if they were freed.
    pub is_damaged: bool,
    /// Entries, by sequence.
    pub entries: Vec<JournalEntry>,
    /// Position to continue from: after the last entry, or equal to `from` at the end of the durable entries.
    pub next: SequenceNumber,
}

/// Declared properties of a backend. Use them for speed, never for correctness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// Name of the engine, as in settings.
    pub engine: &'static str,
    /// Durability of an acknowledged synced write.
    pub acknowledged: Acknowledged,
    /// True if other processes can take over the data.
    pub is_shared: bool,
    /// Medium of the data and of the journal.
    pub medium: Medium,
    /// True if a write with [`Durability::Buffered`] can be acknowledged before it is durable.
    pub buffers_writes: bool,
    /// True if writes are refused while too little disk space is free, see [`Health::DiskLow`].
    pub limits_free_space: bool,
    /// True if the disk space of freed segments and parts is free at once; false if the engine frees it later.
    pub frees_at_once: bool,
    /// True if the stored data can be checked while no process uses it.
    pub has_offline_check: bool,
    /// Recommended page size of a long scan.
    pub page_advice: PageLimit,
    /// Maximum number of requests that one call keeps in flight at once. It is 1 if the backend sends no network
    /// requests; fetching more rows than needed then saves nothing.
    pub requests_in_flight: usize,
}

/// Medium that stores the data and the journal of a backend. It determines what the latency of a write consists of, and
/// how the data is backed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// A folder of this machine. A write waits for an fsync; a copy of the folder is a backup.
    Folder,
    /// A cluster of nodes. A write waits for a quorum of the nodes; the cluster makes snapshots.
    Cluster,
}

impl Medium {
    /// Returns the name used in responses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Folder => "folder",
            Self::Cluster => "cluster",
        }
    }
}

/// Durability of a write with [`Durability::Synced`] when its call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledged {
    /// Stable storage: of this machine, or of a quorum of the nodes that store it.
    Synced,
    /// The memory of a quorum of the nodes that store it. A power failure of all of them can lose it.
    Replicated,
}

impl Acknowledged {
    /// Returns the name used in settings and responses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Synced => "synced",
            Self::Replicated => "replicated",
        }
    }
}

/// Counts of the requests of one kind to a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestCounts {
    /// `read`, `write` or `conditional`.
    pub kind: &'static str,
    /// Requests that were answered.
    pub done: u64,
    /// Requests that failed after all repetitions.
    pub failed: u64,
    /// Repetitions of requests.
    pub repeated: u64,
    /// Speculative requests: repetitions of reads that a node has not answered within the usual time.
    pub speculative: u64,
    /// Total time of the answered requests.
    pub time: Duration,
    /// Number of answered requests by their time. The request is in the bucket [`bucket_of`](Self::bucket_of) its time.
    pub times: [u64; REQUEST_BUCKETS],
}

/// Number of buckets of [`RequestCounts::times`].
pub const REQUEST_BUCKETS: usize = 17;

impl RequestCounts {
    /// Returns the longest time of a bucket: 0.25 ms for the first bucket, twice the time of the previous bucket for the
    /// others. `None` for the last bucket, which has no longest time.
    pub const fn bucket_end(bucket: usize) -> Option<Duration> {
        match bucket + 1 < REQUEST_BUCKETS {
            true => Some(Duration::from_micros(250 << bucket)),
            false => None,
        }
    }

    /// Returns the bucket of a time.
    pub fn bucket_of(time: Duration) -> usize {
        let is_within = |bucket: &usize| Self::bucket_end(*bucket).is_none_or(|end| time <= end);
        (0..REQUEST_BUCKETS)
            .find(is_within)
            .unwrap_or(REQUEST_BUCKETS - 1)
    }
}

/// Current ability of a backend to serve calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Reads and writes work.
    Ready,
    /// Reads work; `write`, `load` and `append` are refused until enough space is free, which is detected
    /// automatically. Calls that free space work, and so does `edit`.
    DiskLow {
        /// Free bytes of the data disk.
        free_bytes: u64,
        /// Bytes that must be free.
        watermark_bytes: u64,
    },
    /// Writes are refused until the backend has been reopened. The backend retries the reopening without limit.
    Poisoned {
        /// First error.
        reason: String,
        /// State of the reopening.
        reopening: Reopening,
    },
    /// The cluster has not answered for some time. Reads and writes fail until it answers again, which is detected
    /// automatically.
    Unreachable {
        /// Last error.
        reason: String,
        /// Time since the first request that failed.
        since: Duration,
    },
    /// Reads work; `take`, `write`, `write_sorted`, `load_sorted`, `remove_rows`, `load`, `append` and `edit` are refused,
    /// because a setting of the cluster has changed so that a write would be less durable than demanded. The end of this
    /// state is detected automatically.
    WritesRefused {
        /// Reason, and the required change.
        reason: String,
    },
    /// Recovery found less data than had been acknowledged. The backend is read-only until an operator decides. `take`
    /// and `close_epoch` work, so that a shard can be opened for reading, but they store nothing.
    ReadOnly {
        /// Description of the missing data.
        reason: String,
    },
}

/// State of the attempts to reopen a failed store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reopening {
    /// True if reads work. Reads work until the first attempt. After a failed attempt, reads fail as `Unavailable`
    /// until an attempt succeeds.
    pub reads: bool,
    /// True if an attempt is running; reads wait for its end.
    pub is_running: bool,
    /// Number of failed attempts.
    pub attempts: u32,
    /// Error of the last failed attempt.
    pub last_error: Option<String>,
    /// Time until the next attempt; zero while an attempt is running or due.
    pub next_in: Duration,
}

/// Sizes for `/metrics` and table statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes of both tiers on disk: `hot_bytes` plus `cold_bytes`.
    pub data_bytes: u64,
    /// Bytes of hot segments, hot parts, rows and manifests, which share a disk.
    pub hot_bytes: u64,
    /// Bytes of cold segments and parts.
    pub cold_bytes: u64,
    /// Bytes of the journal on disk.
    pub journal_bytes: u64,
    /// Free bytes of the data disk.
    pub free_bytes: u64,
    /// Free bytes of the data disk below which writes are refused; 0 without such a limit.
    pub free_bytes_min: u64,
    /// Free bytes of the disk of cold segments and parts; equal to `free_bytes` if both tiers share a disk.
    pub cold_free_bytes: u64,
    /// Usage of the cache of hot segments, hot parts, rows and manifests.
    pub hot_cache: CacheUsage,
    /// Usage of the cache of cold segments and cold parts.
    pub cold_cache: CacheUsage,
}

/// Usage of a block cache. All values are zero without a cache. The counters restart with the cache, so they can
/// decrease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheUsage {
    /// Maximum size of the cache.
    pub capacity_bytes: u64,
    /// Current size of the cache.
    pub used_bytes: u64,
    /// Requested blocks that were not in the cache.
    pub misses: u64,
    /// Bytes of the missing blocks, which were read from files.
    pub read_bytes: u64,
}

/// Storage engine of Tideline. See the [module](self) for the terms.
///
/// Every method may be called from many threads at once, unless stated otherwise. After [`close`](Backend::close) all
/// calls that return a `Result` fail as `Refused`, except `close`. [`ErrorKind`](crate::ErrorKind) lists how a caller
/// reacts to each kind of error.
pub trait Backend: Send + Sync + fmt::Debug + 'static {
    /// Returns the declared properties of this backend.
    fn capabilities(&self) -> &Capabilities;

    // --- ownership -------------------------------------------------------------------------------------

    /// Makes the caller the owner of a shard, in a new epoch that is higher than all earlier ones.
    ///
    /// Later `edit` calls with lower epochs are refused. Later `append` calls with lower epochs are refused, or add
    /// entries only to an epoch that is not closed yet. An older epoch that has no entries now gets none later. If the
    /// lease is limited in time, its owner must renew it before it expires. After it has expired, the owner must serve
    /// neither writes nor reads until a renewal succeeds, because another process may own the shard.
    ///
    /// # Errors
    ///
    /// Fails if the new epoch cannot be stored. If the error is `Unknown`, the call may have taken effect; take the
    /// shard again.
    fn take(&self, shard: Shard) -> Result<Lease>;

    /// Extends the ownership. The epoch and the lowest stamp stay the same.
    ///
    /// # Errors
    ///
    /// `Refused` if the shard has a newer owner; this is final. After any other error, the earlier end of the lease
    /// still applies.
    fn renew(&self, shard: Shard, epoch: Epoch) -> Result<Lease>;

    // --- rows ------------------------------------------------------------------------------------------

    /// Returns a page of rows in strict key order, each key once, with half-open bounds.
    ///
    /// Each row has its newest acknowledged value, or a later value that is being written. A page is one consistent
    /// snapshot; two pages need not show the same state. Rows that do not change during the scan are all returned. The
    /// next page continues after the last key; the backend keeps no state between pages.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: stored bytes are damaged.
    /// - `TooManyDead`: too many deleted rows are in the range, and the backend cannot read it in smaller parts.
    /// - `Unavailable` or `Timeout`: the engine does not respond.
    fn scan(
        &self,
        partition: Partition,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<Page>;

    /// Returns the value of a row; `None` if there is no such row.
    ///
    /// The result equals the result of a [`scan`](Self::scan) of the key. A backend overrides the method if it finds
    /// single rows faster, for example because its engine can skip files that do not hold the key.
    ///
    /// # Errors
    ///
    /// The errors of [`scan`](Self::scan).
    fn get(&self, partition: Partition, key: &[u8]) -> Result<Option<Bytes>> {
        let range = KeyRange::new(key, [key, &[0]].concat());
        let limit = PageLimit {
            rows_max: 1,
            bytes_max: 1,
        };
        let page = self.scan(partition, &range, Direction::Ascending, limit)?;
        Ok(page.rows.into_iter().next().map(|row| row.value))
    }

    /// Returns the row with the lowest key at or above `from`; `None` if there is no such row.
    ///
    /// The result equals the first row of an ascending [`scan`](Self::scan) from the key to the end of the partition. A
    /// backend overrides the method if a scan reads ahead: a page of one row also needs the next row, because it
    /// reports whether more rows follow.
    ///
    /// # Errors
    ///
    /// The errors of [`scan`](Self::scan).
    fn first(&self, partition: Partition, from: &[u8]) -> Result<Option<Row>> {
        let limit = PageLimit {
            rows_max: 1,
            bytes_max: 1,
        };
        let mut rest = Some(KeyRange {
            start: from.to_vec(),
            end: None,
        });
        while let Some(range) = rest {
            let page = self.scan(partition, &range, Direction::Ascending, limit)?;
            if let Some(first) = page.rows.into_iter().next() {
                return Ok(Some(first));
            }
            rest = page.next;
        }
        Ok(None)
    }

    /// Returns a page for each range, in the order of the ranges, all with ascending keys.
    ///
    /// Each page is the result of a [`scan`](Self::scan) of its range. A networked backend keeps several requests in
    /// flight.
    ///
    /// `limit` applies to all pages together; up to [`Capabilities::requests_in_flight`] pages may exceed it. A range
    /// that was not reached has an empty page with the whole range as [`Page::next`]. At least the first range is
    /// reached.
    ///
    /// # Errors
    ///
    /// The error of the first range that cannot be read.
    fn scan_many(&self, ranges: &[ScanRange], limit: PageLimit) -> Result<Vec<Page>> {
        let scan =
            |range: &ScanRange, limit| self.scan(range.partition, &range.keys, Direction::Ascending, limit);
        one_by_one(ranges, limit, scan)
    }

    /// Writes rows of one partition of a key space or part atomically: all or none, visible on return.
    ///
    /// [`Durability::Synced`] rows are durable on return. [`Durability::Buffered`] rows survive a kill of the process.
    /// They survive a power failure only after the next [`sync_rows`](Self::sync_rows); before that, a power failure
    /// may lose any subset of these writes.
    ///
    /// A write has at most [`WRITE_ROWS_MAX`] changes and [`WRITE_BYTES_MAX`] bytes, and each key at most once.
    /// Repeating a write with the same stamp changes nothing. The only writer of a shard must use increasing stamps;
    /// therefore a backend whose writes take effect in call order may ignore stamps.
    ///
    /// # Errors
    ///
    /// - `TooLarge`: a limit is exceeded.
    /// - `Misconfigured`: the partition is a bucket of a segment, or the backend is read-only.
    /// - `Unavailable`: the backend accepts no writes at this time.
    fn write(
        &self,
        partition: Partition,
        changes: &[RowChange],
        stamp: Stamp,
        durability: Durability,
    ) -> Result<()>;

    /// Writes groups of changes to one bucket of a part. The keys must strictly increase over all groups.
    ///
    /// Each group is a buffered [`write`](Self::write) with the limits of such a write. The groups take effect in their
    /// order; after a failure, some of the first groups may be written. No other call may write to the bucket during
    /// this call. A backend overrides the method if it writes many sorted rows faster.
    ///
    /// # Errors
    ///
    /// The errors of [`write`](Self::write), and `Refused` if the keys do not increase.
    fn write_sorted(&self, partition: Partition, groups: &[Vec<RowChange>], stamp: Stamp) -> Result<()> {
        check_sorted(groups)?;
        groups
            .iter()
            .try_for_each(|group| self.write(partition, group, stamp, Durability::Buffered))
    }

    /// Writes groups of changes like [`write_sorted`](Self::write_sorted). The rows are durable on return, without a
    /// call of [`sync_rows`](Self::sync_rows). The method is for writers that never call `sync_rows`.
    ///
    /// # Errors
    ///
    /// The errors of [`write_sorted`](Self::write_sorted). After any error, some of the groups may be written.
    fn load_sorted(&self, partition: Partition, groups: &[Vec<RowChange>], stamp: Stamp) -> Result<()> {
        check_sorted(groups)?;
        groups
            .iter()
            .try_for_each(|group| self.write(partition, group, stamp, Durability::Synced))
    }

    /// Deletes every row of a key range in one partition of a key space or part. The deletes are durable on return.
    ///
    /// A failure may leave some of the rows deleted. Rows of the range must not be written during the call. A backend
    /// overrides the method if it frees whole files, or deletes a range at once, faster than it deletes rows one by one.
    ///
    /// `stamp` must be above the stamps of the rows. A backend may keep rows with higher stamps.
    ///
    /// # Errors
    ///
    /// The errors of [`scan`](Self::scan) and [`write`](Self::write).
    fn remove_rows(&self, partition: Partition, range: &KeyRange, stamp: Stamp) -> Result<()> {
        let limit = PageLimit {
            rows_max: WRITE_ROWS_MAX,
            bytes_max: WRITE_BYTES_MAX,
        };
        let mut rest = Some(range.clone());
        while let Some(range) = rest {
            let page = self.scan(partition, &range, Direction::Ascending, limit)?;
            let delete = |row: Row| RowChange {
                key: row.key,
                value: None,
            };
            let changes: Vec<RowChange> = page.rows.into_iter().map(delete).collect();
            self.write(partition, &changes, stamp, Durability::Synced)?;
            rest = page.next;
        }
        Ok(())
    }

    /// Makes durable all buffered rows of a shard that were written before the call. A shard has only one writer of
    /// buffered rows, which must call this method before publishing anything that depends on the rows.
    ///
    /// # Errors
    ///
    /// After any error, buffered rows written since the last success may be missing after a power failure: write all of
    /// them again. Fails once as `Unknown` if the store was reopened after such rows were written.
    fn sync_rows(&self, shard: Shard) -> Result<()>;

    // --- segments --------------------------------------------------------------------------------------

    /// Writes the rows of one bucket of a new segment, in strictly increasing key order. The rows are durable on
    /// return.
    ///
    /// Readers do not use the segment until an [`edit`](Backend::edit) publishes it. A load that failed or whose
    /// outcome is unknown is abandoned: its segment id is never used again, and `reclaim` removes the remains. Rows are
    /// consumed one by one as they are written, so memory usage does not grow with their number.
    ///
    /// # Errors
    ///
    /// The first error of `rows`. `Refused` if keys do not increase, `TooLarge` if a row exceeds a limit, `Unavailable`
    /// if the disk of the tier becomes full.
    fn load(
        &self,
        segment: SegmentRef,
        bucket: u16,
        rows: &mut dyn Iterator<Item = Result<Row>>,
    ) -> Result<()>;

    /// Frees the data of a segment, lazily. Idempotent; a segment that does not exist is not an error.
    ///
    /// The caller has removed the segment from the manifest and waited for its readers.
    ///
    /// # Errors
    ///
    /// After any error, the segment may have data left: reclaim it again.
    fn reclaim(&self, segment: SegmentRef) -> Result<()>;

    /// Returns an empty group of a tier that can be reused in place of a new group.
    ///
    /// Returns `None` if there is no such group, or if new groups cost nothing. This is a hint: following it does not
    /// change any result. The same group may be returned again until something is loaded into it.
    fn spare_group(&self, _tier: Tier) -> Option<GroupId> {
        None
    }

    /// Returns the segments of a shard with stored data, published or not. Garbage collection compares them with the
    /// manifest of the shard. [The id](tideline_model::SegmentId::shard) of a segment contains its shard; segments of
    /// other shards must not be freed by this owner.
    ///
    /// # Errors
    ///
    /// Fails if the engine cannot list its segments.
    fn segments(&self, shard: Shard) -> Result<Vec<SegmentRef>>;

    // --- parts -----------------------------------------------------------------------------------------

    /// Frees the data of a part in all of its buckets, lazily. Idempotent; a part that does not exist is not an error.
    ///
    /// The caller has removed the part from the manifest, waited for its readers and ended its writes. A scan that
    /// starts after the call has returned finds no rows.
    ///
    /// # Errors
    ///
    /// After any error, the part may have data left: reclaim it again.
    fn reclaim_part(&self, part: PartRef) -> Result<()>;

    /// Reports that about `bytes` of stored values of a part were replaced or deleted. A backend whose engine reads past
    /// replaced values, and keeps them on disk, until it compacts them can compact them when it is idle.
    ///
    /// The default implementation does nothing.
    fn note_replaced(&self, _part: PartRef, _bytes: u64) {}

    /// Returns the parts of a shard with stored rows, published or not, sorted. Garbage collection compares them with
    /// the manifest of the shard. [The id](tideline_model::PartId::shard) of a part contains its shard.
    ///
    /// # Errors
    ///
    /// Fails if the engine cannot list its parts.
    fn parts(&self, shard: Shard) -> Result<Vec<PartRef>>;

    /// Returns the buckets of a segment or part that may have rows, in increasing order; every bucket with rows is
    /// among them. The result is empty for a key space, because key-codec defines the buckets of key spaces.
    ///
    /// # Errors
    ///
    /// Fails if the engine cannot list its buckets.
    fn buckets(&self, unit: Unit) -> Result<Vec<u16>>;

    // --- journal ---------------------------------------------------------------------------------------

    /// Appends entries to the journal of an epoch. At most one call at a time per shard.
    ///
    /// After `Ok`, the entries have the requested durability, and each later `replay` of the epoch returns them.
    ///
    /// # Errors
    ///
    /// - `Unknown`: the entries may be appended, now or later, until `close_epoch`. Repeat the same entries or continue
    ///   with higher sequence numbers; never reuse a sequence number for another value.
    /// - `Refused`: the epoch is not the owner's, or the sequence numbers do not increase above the acknowledged ones.
    ///   A backend that cannot check the owner in the same request accepts the call of a former owner; the caller must
    ///   check its lease after the call.
    /// - `TooLarge`: an entry exceeds [`VALUE_BYTES_MAX`].
    fn append(
        &self,
        shard: Shard,
        epoch: Epoch,
        entries: &[JournalEntry],
        durability: Durability,
    ) -> Result<()>;

    /// Makes durable all entries of the epoch that have been appended so far.
    ///
    /// # Errors
    ///
    /// `Refused` if the epoch is not the owner's. After any other error the entries may not be durable.
    fn sync_journal(&self, shard: Shard, epoch: Epoch) -> Result<()>;

    /// Marks `at` as the start of a new generation of the memtable, so that `forget` up to `at` can free whole units.
    /// This is a hint: it does not change any result.
    ///
    /// # Errors
    ///
    /// `Refused` if the epoch is not the owner's.
    fn cut(&self, shard: Shard, epoch: Epoch, at: SequenceNumber) -> Result<()>;

    /// Returns the epochs that have entries, lowest first. The owner closes those that are older than its own.
    ///
    /// # Errors
    ///
    /// Fails if the engine cannot list its epochs.
    fn epochs(&self, shard: Shard) -> Result<Vec<JournalEpoch>>;

    /// Passes the entries of an epoch with sequence numbers of at least `from` to `visit`, in increasing order.
    /// Sequence numbers may have gaps.
    ///
    /// A torn tail of the newest epoch is truncated without an error.
    ///
    /// # Errors
    ///
    /// The first error of `visit`. `Corrupt` if bytes before an intact entry are damaged.
    fn replay(
        &self,
        shard: Shard,
        epoch: Epoch,
        from: SequenceNumber,
        visit: &mut dyn FnMut(SequenceNumber, Bytes) -> Result<()>,
    ) -> Result<()>;

    /// Closes an older epoch. Entries from `end` on are not part of it, even if they are stored later. Entries before
    /// `end` that the caller's last `replay` of the epoch did not pass to `visit` are not part of it either.
    ///
    /// After the close, the result of `replay` never changes, except by `forget`. Closing again with the same end is
    /// not an error.
    ///
    /// # Errors
    ///
    /// `Refused` if the epoch was closed with another end, or is not older than the owner's.
    fn close_epoch(&self, shard: Shard, epoch: Epoch, end: SequenceNumber) -> Result<()>;

    /// Frees entries below `to` in every epoch up to and including `epoch`. Frees whole units only, so some entries may
    /// stay.
    ///
    /// # Errors
    ///
    /// After any error, some entries may not be freed; a later call frees them.
    fn forget(&self, shard: Shard, epoch: Epoch, to: SequenceNumber) -> Result<()>;

    // --- history of the journal --------------------------------------------------------------------------

    /// Keeps the entries from `from` on for [`read_history`](Self::read_history), even after `forget` has freed them
    /// for replays. Frees kept units that are entirely below `from`. `None` ends the history and frees all of it.
    ///
    /// The setting is durable: after a restart, `forget` keeps entries as before. The first call begins the history; a
    /// lower `from` in a later call brings nothing back.
    ///
    /// # Errors
    ///
    /// `Refused` if the epoch is not the owner's. After any other error the earlier setting may still apply, and some
    /// units may not be freed.
    fn keep_history(&self, shard: Shard, epoch: Epoch, from: Option<SequenceNumber>) -> Result<()>;

    /// Returns the kept units of the history. Entries that a replay still returns are not included.
    ///
    /// # Errors
    ///
    /// `Refused` after `close`.
    fn history(&self, shard: Shard) -> Result<History>;

    /// Returns durable entries of all epochs with sequence numbers of at least `from`, in increasing order. Stops after
    /// the entry at which the values total at least `bytes_max`. The entries are those of the history and those that a
    /// replay returns.
    ///
    /// # Errors
    ///
    /// An error of the engine if the entries cannot be read. Damaged bytes are not an error: see [`HistoryPage::from`].
    fn read_history(&self, shard: Shard, from: SequenceNumber, bytes_max: usize) -> Result<HistoryPage>;

    // --- manifest --------------------------------------------------------------------------------------

    /// Returns the manifest of a shard after the last edit. The result is final: an edit of unknown outcome that is
    /// missing from the result is never applied.
    ///
    /// # Errors
    ///
    /// `Unavailable` as long as the outcome of an edit is undecided.
    fn manifest(&self, shard: Shard) -> Result<Manifest>;

    /// Applies changes if the caller owns the shard and `version` is the current version. Linearizable and durable.
    ///
    /// # Errors
    ///
    /// `Unknown` if the outcome is unknown: stop serving the shard until `manifest` succeeds. `TooLarge` if a limit is
    /// exceeded.
    fn edit(
        &self,
        shard: Shard,
        epoch: Epoch,
        version: u64,
        changes: &[ManifestChange],
    ) -> Result<EditOutcome>;

    // --- operation -------------------------------------------------------------------------------------

    /// Returns the current ability to serve calls. Cheap; never blocks on the engine.
    ///
    /// Covers rows, manifests, journals, hot segments and hot parts. For cold segments and cold parts, see
    /// [`tier_health`](Backend::tier_health).
    fn health(&self) -> Health;

    /// Returns the ability to load, write and reclaim segments and parts of a tier. A tier on its own disk fails and
    /// fills up independently of the other tiers. For [`Tier::Hot`], and by default for all tiers, the result is the
    /// same as that of [`health`](Self::health).
    fn tier_health(&self, _tier: Tier) -> Health {
        self.health()
    }

    /// Returns the sizes of stored data and caches. May cost a few system calls.
    fn usage(&self) -> Usage;

    /// Returns the counts of requests since the start, by kind; empty for a backend that sends no network requests.
    fn requests(&self) -> Vec<RequestCounts> {
        Vec::new()
    }

    /// Syncs and closes the backend. Idempotent; later calls of other methods that return a `Result` fail as `Refused`.
    ///
    /// # Errors
    ///
    /// Fails if the last sync fails.
    fn close(&self) -> Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_of_a_request_is_in_one_bucket() {
        let ends: Vec<Duration> = (0..REQUEST_BUCKETS)
            .filter_map(RequestCounts::bucket_end)
            .collect();
        assert_eq!(ends.len(), REQUEST_BUCKETS - 1);
        assert_eq!(
            (ends[0], ends[ends.len() - 1]),
            (Duration::from_micros(250), Duration::from_micros(8_192_000))
        );
        for (bucket, end) in ends.into_iter().enumerate() {
            assert_eq!(RequestCounts::bucket_of(end), bucket);
            assert_eq!(
                RequestCounts::bucket_of(end + Duration::from_nanos(1)),
                bucket + 1
            );
        }
        assert_eq!(RequestCounts::bucket_of(Duration::ZERO), 0);
        assert_eq!(RequestCounts::bucket_of(Duration::MAX), REQUEST_BUCKETS - 1);
    }
}
