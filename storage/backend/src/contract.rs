//! The backend trait: what is visible when, what is durable when, what may be repeated.
//!
//! Keys and values are bytes; order is unsigned byte order. An empty key is a key, an empty value is a value.
//! A [`Partition`] is a bucket of a segment, of a part or of a key space; it is the unit of atomic writes and of scans.
//!
//! Calls block the calling thread. The embedded engine answers in microseconds on it; a networked one sends
//! its requests from there, keeps several in flight inside the calls that take many rows, and repeats what is
//! safe to repeat until its deadline. Never call from a thread that drives an async runtime, except for bounded reads of a backend whose
//! requests do not travel ([`Capabilities::requests_in_flight`] is 1).

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use tideline_model::{Durability, GroupId, SequenceNumber, Tier};
pub use tideline_model::{KEY_BYTES_MAX, KeyRange, PartRef, Partition, SegmentRef, Space, Unit};

use crate::error::Result;
use crate::page::one_by_one;

/// Longest value, in bytes: half of what a stock Cassandra takes in one request.
pub const VALUE_BYTES_MAX: usize = 8 << 20;
/// Most changes in one [`Backend::write`].
pub const WRITE_ROWS_MAX: usize = 1_000;
/// Most bytes, keys and values together, in one [`Backend::write`].
pub const WRITE_BYTES_MAX: usize = 4 << 20;
/// Most bytes, name and detail together, of one manifest row.
pub const MANIFEST_ROW_BYTES_MAX: usize = 64 << 10;

/// A fixed range of timeline prefixes with one owner at a time. A single process owns the one shard, 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub u16);

/// Counts the owners of a shard; each start takes a higher one. A lower epoch can change nothing any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// The ownership of a shard, for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Higher than that of any owner before.
    pub epoch: Epoch,
    /// The lowest stamp that this owner may give: above every one that an earlier owner may have given.
    pub stamp_min: Stamp,
    /// The highest stamp that this owner may give, until the lease is renewed.
    pub stamp_max: Stamp,
    /// How long the ownership holds, counted from before the call was sent. `None` = until the backend is closed, because
    /// nobody else can take the shard before.
    pub holds: Option<Duration>,
}

/// Orders writes of one row: the highest stamp wins the whole row, a delete wins a tie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub u64);

/// The order of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Lowest key first.
    Ascending,
    /// Highest key first.
    Descending,
}

/// Where a page ends: at `rows_max`, or after the row that passes `bytes_max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit {
    /// Most rows; at least 1.
    pub rows_max: usize,
    /// Bytes of keys and values after which the page ends.
    pub bytes_max: usize,
}

/// A range of the keys of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanRange {
    /// The partition.
    pub partition: Partition,
    /// The keys.
    pub keys: KeyRange,
}

/// One key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
}

/// Part of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Rows in scan order.
    pub rows: Vec<Row>,
    /// What is left of the range; `None` when the scan is complete.
    pub next: Option<KeyRange>,
}

/// A change of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowChange {
    /// The key.
    pub key: Bytes,
    /// The new value; `None` deletes.
    pub value: Option<Bytes>,
}

/// One journal entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// Its place. The owner counts; appended in rising order within a call.
    pub sequence: SequenceNumber,
    /// Its bytes.
    pub value: Bytes,
}

/// An epoch whose journal still holds entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalEpoch {
    /// The epoch.
    pub epoch: Epoch,
    /// First sequence that is not part of it, once it is closed.
    pub end: Option<SequenceNumber>,
}

/// What a manifest row describes. The number is part of the stored form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ManifestKind {
    /// A published segment.
    Segment = 1,
    /// A position: how far the journal is sealed, next ids.
    Cursor = 3,
    // 4 was set aside for pins; no build has written one.
    /// A planned or running move.
    Job = 5,
    /// A table and its settings.
    Table = 6,
    /// A published part: how many buckets it has, and what its table's model records of it.
    Part = 7,
}

impl ManifestKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Segment, Self::Cursor, Self::Job, Self::Table, Self::Part];

    /// The kind of a stored number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }
}

/// One row of a shard's manifest. Small: at most [`MANIFEST_ROW_BYTES_MAX`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestRow {
    /// What it describes.
    pub kind: ManifestKind,
    /// Its name within the kind.
    pub name: Bytes,
    /// Its content.
    pub detail: Bytes,
}

/// A shard's manifest at one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The owner's epoch when it was read.
    pub epoch: Epoch,
    /// Rises by one with each applied edit.
    pub version: u64,
    /// All rows, by kind, then name.
    pub rows: Vec<ManifestRow>,
}

/// One change of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManifestChange {
    /// Adds or replaces a row.
    Put(ManifestRow),
    /// Removes a row; a missing one is no error.
    Remove(ManifestKind, Bytes),
}

/// What became of an edit. An outcome that could not be found out is an error of kind `Unknown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditOutcome {
    /// All changes are in, durably; the manifest is now at `version`.
    Applied {
        /// The new version.
        version: u64,
    },
    /// Nothing changed: somebody else owns the shard, or the version was not the seen one.
    Refused {
        /// The owner's epoch.
        epoch: Epoch,
        /// The manifest's version.
        version: u64,
    },
}

/// What a backend declares about itself. Use it to be faster, never to be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// A good page for a long scan.
    pub page_advice: PageLimit,
    /// Requests that one call has under way at once: 1 where none of them travels, so that nothing is won by asking for more
    /// than is needed at the moment.
    pub requests_in_flight: usize,
}

/// Whether the backend can keep its promises now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Reads and writes work.
    Ready,
    /// Reads work; `write`, `load` and `append` are refused until space returns, which is noticed by itself. What
    /// frees space works, and so does `edit`.
    DiskLow {
        /// Bytes free on the data disk.
        free_bytes: u64,
        /// Bytes that must be free.
        watermark_bytes: u64,
    },
    /// Writes are refused until the backend has been reopened. It tries that forever.
    Poisoned {
        /// What happened first.
        reason: String,
        /// How far the reopening is.
        reopening: Reopening,
    },
    /// Less was recovered than had been acknowledged: read-only until an operator decides. `take` and
    /// `close_epoch` work, so that a shard can be opened for reading, but nothing is stored.
    ReadOnly {
        /// What is missing.
        reason: String,
    },
}

/// The attempts to reopen a failed store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reopening {
    /// Whether reads are still answered. They are until the first attempt; after a failed one they are refused as
    /// `Unavailable` until an attempt succeeds.
    pub reads: bool,
    /// Whether an attempt is running; reads wait for its end.
    pub is_running: bool,
    /// Attempts that have failed.
    pub attempts: u32,
    /// Error of the last one.
    pub last_error: Option<String>,
    /// Time until the next one; zero while one is running or due.
    pub next_in: Duration,
}

/// Sizes, for `/metrics` and table statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes of segments, parts and rows on disk: the sum of both tiers.
    pub data_bytes: u64,
    /// Bytes of hot segments and parts, and of rows and manifests, which are stored with them.
    pub hot_bytes: u64,
    /// Bytes of cold segments and parts.
    pub cold_bytes: u64,
    /// Bytes of the journal on disk.
    pub journal_bytes: u64,
    /// Bytes free on the data disk.
    pub free_bytes: u64,
    /// Bytes free on the disk of cold segments; the same number when both tiers share one.
    pub cold_free_bytes: u64,
    /// The cache of hot segments and rows.
    pub hot_cache: CacheUsage,
    /// The cache of cold segments.
    pub cold_cache: CacheUsage,
}

/// A cache of blocks, and what had to be read although there is one. All zero where there is none. Counts begin anew
/// when the cache does, so they may fall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheUsage {
    /// Most bytes that it may hold.
    pub capacity_bytes: u64,
    /// Bytes that it holds.
    pub used_bytes: u64,
    /// Blocks that were asked for and were not in it.
    pub misses: u64,
    /// Bytes of these blocks: what has been read from the files.
    pub read_bytes: u64,
}

/// An engine that keeps Tideline's bytes. See the module's first page for the words.
///
/// Every method may be called from many threads at once, unless it says otherwise.
pub trait Backend: Send + Sync + fmt::Debug + 'static {
    /// What this backend declares.
    fn capabilities(&self) -> &Capabilities;

    // --- ownership -------------------------------------------------------------------------------------

    /// Makes the caller the owner of a shard, in an epoch that is higher than any before.
    ///
    /// From then on `append` and `edit` of lower epochs are refused. Where a lease holds for a while only, its owner renews it
    /// in time. Once it has run out, the owner answers neither writes nor reads until a renewal succeeds: another process
    /// may own the shard.
    fn take(&self, shard: Shard) -> Result<Lease>;

    /// Prolongs the ownership, with the same epoch and lowest stamp.
    ///
    /// # Errors
    ///
    /// `Refused` when the shard has a newer owner: that is final. After any other error the lease holds as long as before.
    fn renew(&self, shard: Shard, epoch: Epoch) -> Result<Lease>;

    // --- rows ------------------------------------------------------------------------------------------

    /// A page of rows: strict key order, half-open bounds, each key once. Each row has its newest acknowledged value, or a later
    /// one that is being written.
    ///
    /// A page is of one moment; two pages need not be. Rows that do not change during the scan are all seen.
    /// The next page continues from the last key, never from state kept by the backend.
    fn scan(
        &self,
        partition: Partition,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<Page>;

    /// A page of each of many ranges, in the order of the ranges, all with rising keys: what [`scan`](Self::scan) would
    /// answer for each, with several requests under way where requests travel.
    ///
    /// `limit` is for all pages together, and up to [`Capabilities::requests_in_flight`] pages may pass it. A range that was
    /// not reached has an empty page that continues with all of the range; at least the first range is reached.
    ///
    /// # Errors
    ///
    /// The error of the first range that cannot be read.
    fn scan_many(&self, ranges: &[ScanRange], limit: PageLimit) -> Result<Vec<Page>> {
        let scan =
            |range: &ScanRange, limit| self.scan(range.partition, &range.keys, Direction::Ascending, limit);
        one_by_one(ranges, limit, scan)
    }

    /// Writes rows of one partition of a key space or part: all or nothing, visible on return, never seen in part.
    ///
    /// [`Durability::Synced`] rows are durable on return. [`Durability::Buffered`] rows survive a kill of the process, and a power
    /// cut after the next [`sync_rows`](Self::sync_rows); until then a power cut may take any of these writes and leave others.
    ///
    /// At most [`WRITE_ROWS_MAX`] changes and [`WRITE_BYTES_MAX`] bytes, each key at most once. The same write with the same stamp
    /// again changes nothing. The one writer of a shard submits stamps that rise; a backend whose writes take
    /// effect in call order may therefore ignore them.
    fn write(
        &self,
        partition: Partition,
        changes: &[RowChange],
        stamp: Stamp,
        durability: Durability,
    ) -> Result<()>;

    /// Makes all buffered rows of a shard durable that were written before the call. Called by the one writer of buffered rows
    /// of the shard, before it publishes what relies on them.
    ///
    /// # Errors
    ///
    /// After any error, buffered rows that were written since the last success may be missing after a power cut: write all of
    /// them again. `Unknown` once after the store was reopened with such rows in it.
    fn sync_rows(&self, shard: Shard) -> Result<()>;

    // --- segments --------------------------------------------------------------------------------------

    /// Fills one bucket of a new segment with rows in strictly rising key order; durable on return.
    ///
    /// Nobody looks at the segment until an [`edit`](Backend::edit) publishes it. A load that failed or whose
    /// outcome is unknown is given up: its segment id is never used, and `reclaim` removes the remains.
    /// An error from `rows` ends the load and is returned. Rows are taken one by one as they are written, so memory
    /// does not grow with their number. A load may end itself as `Unavailable` when the disk of its tier fills up.
    fn load(
        &self,
        segment: SegmentRef,
        bucket: u16,
        rows: &mut dyn Iterator<Item = Result<Row>>,
    ) -> Result<()>;

    /// Frees what a segment holds, lazily; may be repeated; a segment that does not exist is no error.
    ///
    /// The caller has removed it from the manifest and waited for its readers.
    fn reclaim(&self, segment: SegmentRef) -> Result<()>;

    /// A group of a tier that held segments once and holds none now, to load the next new group's segments into; `None`
    /// without one, and where a group costs nothing. A hint: using it or not changes no result. It may be returned
    /// again until something is loaded into it.
    fn spare_group(&self, _tier: Tier) -> Option<GroupId> {
        None
    }

    /// The segments of a shard that hold bytes here, published or not: what a sweep compares with the shard's manifest. A
    /// segment is of the shard that [its id](SegmentId::shard) names: those of other owners are not for this one to free.
    fn segments(&self, shard: Shard) -> Result<Vec<SegmentRef>>;

    // --- parts -----------------------------------------------------------------------------------------

    /// Frees what a part holds in all of its buckets, lazily; may be repeated; a part that does not exist is no error.
    ///
    /// The caller has removed it from the manifest, waited for its readers and ended its writes. A scan that starts after the
    /// call has returned finds nothing in it.
    fn reclaim_part(&self, part: PartRef) -> Result<()>;

    /// The parts of a shard that hold rows here, published or not, sorted: what a sweep compares with the shard's manifest.
    /// A part is of the shard that [its id](PartId::shard) names.
    fn parts(&self, shard: Shard) -> Result<Vec<PartRef>>;

    // --- journal ---------------------------------------------------------------------------------------

    /// Appends entries to the journal of an epoch. One call at a time for each shard.
    ///
    /// After `Ok` every entry is in each later `replay` of the epoch, with the durability asked for. After
    /// `Unknown` it may be, now or later, until `close_epoch`: repeat the same entries or go on with higher
    /// sequences, but never give a sequence another value. Sequences that do not rise above the acknowledged ones
    /// are `Refused`, as is every epoch but the owner's.
    fn append(
        &self,
        shard: Shard,
        epoch: Epoch,
        entries: &[JournalEntry],
        durability: Durability,
    ) -> Result<()>;

    /// Makes all entries appended so far durable.
    fn sync_journal(&self, shard: Shard, epoch: Epoch) -> Result<()>;

    /// Says that entries from `at` on belong to a new head generation, so that `forget` up to `at` can free
    /// whole units. A hint: it changes no answer.
    fn cut(&self, shard: Shard, epoch: Epoch, at: SequenceNumber) -> Result<()>;

    /// Epochs that still have entries, lowest first.
    fn epochs(&self, shard: Shard) -> Result<Vec<JournalEpoch>>;

    /// Hands the entries of an epoch from `from` on to `visit`, in rising order; holes are possible.
    ///
    /// Damage before an intact entry is `Corrupt`; a torn tail of the newest epoch is cut silently.
    fn replay(
        &self,
        shard: Shard,
        epoch: Epoch,
        from: SequenceNumber,
        visit: &mut dyn FnMut(SequenceNumber, Bytes) -> Result<()>,
    ) -> Result<()>;

    /// Ends an older epoch: entries from `end` on are not part of it, whenever they land. Again with the same end
    /// is no error; another end, or the owner's own epoch, is `Refused`.
    ///
    /// After it, the answer of `replay` never changes (but for `forget`).
    fn close_epoch(&self, shard: Shard, epoch: Epoch, end: SequenceNumber) -> Result<()>;

    /// Frees entries below `to` in every epoch up to and including `epoch`, in whole units: some may stay.
    fn forget(&self, shard: Shard, epoch: Epoch, to: SequenceNumber) -> Result<()>;

    // --- manifest --------------------------------------------------------------------------------------

    /// The manifest of a shard, as of the last edit. Final: an edit of unknown outcome that is not in it never will be. As
    /// long as that cannot be said, the call fails as `Unavailable`.
    fn manifest(&self, shard: Shard) -> Result<Manifest>;

    /// Applies changes if the caller owns the shard and has seen its current version. Linearizable, durable.
    ///
    /// An error of kind `Unknown` means that the outcome could not be found out: stop serving the shard until
    /// `manifest` says.
    fn edit(
        &self,
        shard: Shard,
        epoch: Epoch,
        version: u64,
        changes: &[ManifestChange],
    ) -> Result<EditOutcome>;

    // --- operation -------------------------------------------------------------------------------------

    /// Whether promises can be kept now. Cheap; never blocks on the engine.
    ///
    /// It covers the hot segments and parts only: see [`tier_health`](Backend::tier_health).
    fn health(&self) -> Health;

    /// Whether segments and parts of a tier can be loaded, written and reclaimed now. A tier on a disk of its own fails and fills up by
    /// itself, and hinders nothing else. For [`Tier::Hot`], and where tiers share everything, it is
    /// [`health`](Backend::health).
    fn tier_health(&self, _tier: Tier) -> Health {
        self.health()
    }

    /// Sizes. May cost a few system calls.
    fn usage(&self) -> Usage;

    /// Syncs and closes; every later call fails as `Refused`. Idempotent.
    fn close(&self) -> Result<()>;
}
