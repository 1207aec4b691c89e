//! In-memory backend for tests, with two behaviors.
//!
//! [`Character::Embedded`] behaves like the embedded engine, [`Character::Distributed`] like a cluster, including
//! outcomes that only a cluster has. Random faults occur only if a test enables them with a seed. A handle with its own
//! clock takes a shard with limited leases only after the owner was silent for some time; other handles take it at
//! once. A [`MemoryDisk`] outlives the backend. In the embedded character, opening the disk again simulates a restart:
//! all older handles then fail, as if their process had been killed.

mod faults;
mod journal;
mod leases;
mod rows;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use tideline_model::{Clock, Durability, SequenceNumber, Tier, Timestamp};

use crate::contract::*;
use crate::error::{BackendError, Result};
use crate::limits::{check_edit, check_older, check_row, check_write};
use crate::page::one_by_one;
use faults::Chance;
pub use faults::{AppendFault, EditFault, WriteFault};
use journal::{Found, Journal};
use leases::{MemberId, Members, Watched};
use rows::Rows;

/// Backend that stores everything in the memory of this process. Cheap to open; all calls share one lock.
///
/// # Examples
///
/// ```
/// use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
/// use tideline_backend::{Backend, Direction, KeyRange, PageLimit, Partition, RowChange, Space, Stamp};
/// use tideline_model::Durability;
///
/// let disk = MemoryDisk::new(Character::Embedded);
/// let backend = MemoryBackend::open(&disk);
/// let rows = Partition::space(Space(900), 0);
/// let change = RowChange { key: "host".into(), value: Some("web-1".into()) };
/// backend.write(rows, &[change], Stamp(1), Durability::Synced)?;
///
/// // Synced rows survive a power failure. Earlier handles of the disk do not.
/// disk.cut_power();
/// let backend = MemoryBackend::open(&disk);
/// let limit = PageLimit { rows_max: 10, bytes_max: 1 << 20 };
/// let page = backend.scan(rows, &KeyRange::ALL, Direction::Ascending, limit)?;
/// assert_eq!(page.rows[0].value, "web-1");
/// assert!(page.next.is_none(), "the scan is complete");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MemoryBackend {
    disk: Arc<MemoryDisk>,
    capabilities: Capabilities,
    /// Value of [`State::opening`] when this handle was opened; 0 after `close`. The handle is dead if the values
    /// differ.
    opening: AtomicU64,
    /// Number of pages read, which varies the length of pages.
    pages: AtomicUsize,
    /// Clock by which `take` waits for the silence of another owner; `None` if it does not wait.
    clock: Option<Arc<dyn Clock>>,
    own: Mutex<Own>,
}

/// State that belongs to one handle and is not stored on the disk.
#[derive(Default)]
struct Own {
    /// Member under which the handle last took a shard.
    member: Option<MemberId>,
    watched: Watched,
    /// Entries that the last replay of each epoch has passed to its caller, until the epoch is closed.
    found: BTreeMap<(Shard, Epoch), Found>,
}

/// Kind of engine that the backend imitates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Character {
    /// All calls take effect in call order; stamps are ignored; one handle at a time.
    Embedded,
    /// The highest stamp wins, several handles share the data, journals are freed in slots of 256 sequence numbers, and
    /// the faults of [`MemoryDisk::fail_append`], [`MemoryDisk::fail_edit`] and [`MemoryDisk::fail_write`] are
    /// possible.
    Distributed,
}

/// State that outlives a backend: rows, journals, manifests, and planned faults.
pub struct MemoryDisk {
    character: Character,
    state: Mutex<State>,
    /// Duration of each round trip, in nanoseconds.
    round_trip_nanos: AtomicU64,
    round_trips: AtomicU64,
}

/// Maximum number of requests that one call of the distributed character keeps in flight.
const REQUESTS_IN_FLIGHT: usize = 32;
/// Rows after which a page of the distributed character may end early.
const PAGE_ROWS_MIN: usize = 32;

#[derive(Default)]
struct State {
    opening: u64,
    rows: Rows,
    shards: BTreeMap<Shard, ShardState>,
    append_faults: VecDeque<AppendFault>,
    edit_faults: VecDeque<EditFault>,
    write_faults: VecDeque<WriteFault>,
    /// Writes of rows that are not applied yet.
    late_writes: Vec<LateWrite>,
    members: Members,
    /// True if an append to an older epoch is accepted: it is stored if the epoch is not closed yet, and ignored
    /// otherwise.
    accepts_stale: bool,
    is_manifest_hidden: bool,
    /// Number of further reads of the manifest that fail.
    failing_manifest_reads: u32,
    chance: Option<Chance>,
    terms: Terms,
}

struct LateWrite {
    partition: Partition,
    changes: Vec<RowChange>,
    stamp: Stamp,
    durability: Durability,
}

struct LateEdit {
    epoch: Epoch,
    version: u64,
    changes: Vec<ManifestChange>,
}

/// Terms of leases.
#[derive(Debug, Clone, Copy)]
struct Terms {
    holds: Option<Duration>,
    /// Number of stamps by which each lease raises the highest stamp.
    stamps: u64,
    is_renewal_failing: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            holds: None,
            // This number is above every wall-clock time in microseconds until the year 2112, and 64-bit stamps suffice
            // for about 4,000 leases.
            stamps: 1 << 52,
            is_renewal_failing: false,
        }
    }
}

/// Owner, manifest and journals of a shard.
#[derive(Default)]
struct ShardState {
    owner: u64,
    /// Member that owns the shard; `None` before the first take.
    member: Option<MemberId>,
    stamp_min: u64,
    stamp_max: u64,
    version: u64,
    manifest: BTreeMap<(ManifestKind, Bytes), Bytes>,
    /// Edit of unknown outcome that is not applied yet.
    late_edit: Option<LateEdit>,
    journals: BTreeMap<Epoch, Journal>,
    history: Option<KeptEntries>,
}

/// Entries that were freed for replays and are kept for readers of the history.
#[derive(Default)]
struct KeptEntries {
    /// Sequence from which all entries are kept.
    from: SequenceNumber,
    entries: BTreeMap<SequenceNumber, Bytes>,
}

impl MemoryDisk {
    /// Creates an empty disk.
    pub fn new(character: Character) -> Arc<Self> {
        Arc::new(Self {
            character,
            state: Mutex::default(),
            round_trip_nanos: AtomicU64::new(0),
            round_trips: AtomicU64::new(0),
        })
    }

    /// Sets the duration of each round trip of all later calls.
    pub fn delay_round_trips(&self, each: Duration) {
        let nanos = u64::try_from(each.as_nanos()).unwrap_or(u64::MAX);
        self.round_trip_nanos.store(nanos, Ordering::Relaxed);
    }

    /// Returns the number of round trips of all calls so far. A call that reads or changes the disk takes one round
    /// trip. `load` and `manifest` take two. `scan_many` takes one for every 32 or fewer ranges.
    pub fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::Relaxed)
    }

    /// Waits as long as `requests` concurrent requests take.
    #[allow(
        clippy::disallowed_methods,
        reason = "the time that a request travels is what is imitated"
    )]
    fn travel(&self, requests: usize) {
        let rounds = requests.div_ceil(REQUESTS_IN_FLIGHT) as u64;
        self.round_trips.fetch_add(rounds, Ordering::Relaxed);
        let nanos = self.round_trip_nanos.load(Ordering::Relaxed) * rounds;
        if nanos > 0 {
            std::thread::sleep(Duration::from_nanos(nanos));
        }
    }

    /// Limits the validity of leases to `holds`, and lets each take or renewal add only `stamps` stamps. Panics in the
    /// embedded character.
    pub fn limit_leases(&self, holds: Duration, stamps: u64) {
        self.assert_distributed("limited leases need the distributed character");
        let mut state = self.state.lock();
        state.terms.holds = Some(holds);
        state.terms.stamps = stamps;
    }

    fn assert_distributed(&self, otherwise: &str) {
        assert_eq!(self.character, Character::Distributed, "{otherwise}");
    }

    /// Applies the late appends of epochs that are not closed, the late edits that are still possible, and the late
    /// writes of rows. Drops the other late appends and edits.
    pub fn land_late(&self) {
        let mut state = self.state.lock();
        for shard in state.shards.values_mut() {
            shard.journals.values_mut().for_each(Journal::land_late);
            if let Some(edit) = shard.late_edit.take()
                && shard.may_edit(edit.epoch, edit.version)
            {
                shard.apply(&edit.changes);
            }
        }
        for late in std::mem::take(&mut state.late_writes) {
            let (stamp, durability) = (late.stamp, late.durability);
            let rows = &mut state.rows;
            rows.write(self.character, late.partition, &late.changes, stamp, durability);
        }
    }

    /// Simulates a power failure: buffered journal entries and rows that were not synced are lost, and every open
    /// handle is dead.
    pub fn cut_power(&self) {
        let mut state = self.state.lock();
        state.opening += 1;
        state.rows.cut_power();
        for shard in state.shards.values_mut() {
            shard.journals.values_mut().for_each(Journal::cut_power);
        }
    }
}

impl ShardState {
    fn take(&mut self, member: MemberId, terms: Terms) -> Lease {
        self.owner += 1;
        self.member = Some(member);
        self.stamp_min = self.stamp_max.saturating_add(1);
        // An older epoch without entries is not listed, so the new owner does not close it. It must therefore get no
        // entries later.
        self.journals.values_mut().for_each(Journal::bar_if_empty);
        for epoch in (1..self.owner).map(Epoch) {
            self.journals.entry(epoch).or_insert_with(Journal::barred);
        }
        self.lease(terms)
    }

    fn may_edit(&self, epoch: Epoch, version: u64) -> bool {
        epoch.0 == self.owner && self.owner > 0 && version == self.version
    }

    /// Applies an edit, which raises the version.
    fn apply(&mut self, changes: &[ManifestChange]) {
        for change in changes {
            match change {
                ManifestChange::Put(row) => self
                    .manifest
                    .insert((row.kind, row.name.clone()), row.detail.clone()),
                ManifestChange::Remove(kind, name) => self.manifest.remove(&(*kind, name.clone())),
            };
        }
        self.version += 1;
    }

    /// Drops a late edit if `member` is the owner that has sent it. An owner excludes its late edit before it reads or
    /// edits the manifest again.
    fn decide(&mut self, member: Option<MemberId>) {
        if member.is_some() && member == self.member {
            self.late_edit = None;
        }
    }

    /// Returns the owner's lease, extended by further stamps.
    fn lease(&mut self, terms: Terms) -> Lease {
        self.stamp_max = self.stamp_max.saturating_add(terms.stamps);
        Lease {
            epoch: Epoch(self.owner),
            stamp_min: Stamp(self.stamp_min),
            stamp_max: Stamp(self.stamp_max),
            holds: terms.holds,
        }
    }

    /// Refuses a caller that is not the owner.
    fn check_owner(&self, epoch: Epoch) -> Result<()> {
        if epoch.0 == self.owner && self.owner > 0 {
            return Ok(());
        }
        Err(BackendError::Refused {
            reason: format!("epoch {} is not the owner's, {}", epoch.0, self.owner),
        })
    }
}

impl MemoryBackend {
    /// Opens a disk. In the embedded character, all older handles of it fail from now on.
    ///
    /// The handle takes a shard at once, even from a living owner.
    pub fn open(disk: &Arc<MemoryDisk>) -> Self {
        Self::new(disk, None)
    }

    /// Opens a disk as a process that has its own clock. With leases of limited time ([`MemoryDisk::limit_leases`]),
    /// the handle takes a shard from another living owner only after the owner was silent for a lease and a quarter by
    /// this clock. Until then, the call fails as `Unavailable`.
    pub fn open_with_clock(disk: &Arc<MemoryDisk>, clock: Arc<dyn Clock>) -> Self {
        Self::new(disk, Some(clock))
    }

    fn new(disk: &Arc<MemoryDisk>, clock: Option<Arc<dyn Clock>>) -> Self {
        let embedded = disk.character == Character::Embedded;
        let opening = {
            let mut state = disk.state.lock();
            if embedded || state.opening == 0 {
                state.opening += 1;
            }
            state.opening
        };
        Self {
            disk: Arc::clone(disk),
            capabilities: Capabilities {
                engine: "memory",
                acknowledged: Acknowledged::Synced,
                is_shared: !embedded,
                medium: if embedded { Medium::Folder } else { Medium::Cluster },
                buffers_writes: embedded,
                limits_free_space: false,
                frees_at_once: true,
                has_offline_check: false,
                page_advice: PageLimit {
                    rows_max: 1_024,
                    bytes_max: 1 << 20,
                },
                requests_in_flight: if embedded { 1 } else { REQUESTS_IN_FLIGHT },
            },
            opening: AtomicU64::new(opening),
            pages: AtomicUsize::new(0),
            clock,
            own: Mutex::default(),
        }
    }

    /// Returns the state, unless this handle is closed or dead.
    fn state(&self) -> Result<MutexGuard<'_, State>> {
        self.state_after(1)
    }

    /// Returns the state after a delay for `requests` concurrent requests.
    fn state_after(&self, requests: usize) -> Result<MutexGuard<'_, State>> {
        self.disk.travel(requests);
        let state = self.disk.state.lock();
        if self.opening.load(Ordering::Acquire) != state.opening {
            return Err(BackendError::Refused {
                reason: "this handle is closed".to_owned(),
            });
        }
        Ok(state)
    }

    /// Returns the limit of a page: in the distributed character, pages of many rows end early.
    fn short(&self, limit: PageLimit) -> PageLimit {
        match self.disk.character {
            Character::Embedded => limit,
            Character::Distributed => {
                let page = self.pages.fetch_add(1, Ordering::Relaxed);
                PageLimit {
                    rows_max: limit.rows_max.min(PAGE_ROWS_MIN + page * 7 % PAGE_ROWS_MIN),
                    ..limit
                }
            }
        }
    }

    fn shard(&self, shard: Shard) -> Result<MappedMutexGuard<'_, ShardState>> {
        Ok(MutexGuard::map(self.state()?, |state| {
            state.shards.entry(shard).or_default()
        }))
    }
}

impl Backend for MemoryBackend {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn take(&self, shard: Shard) -> Result<Lease> {
        let mut state = self.state()?;
        let state = &mut *state;
        let mut own = self.own.lock();
        let own = &mut *own;
        let terms = state.terms;
        own.found.retain(|(taken, _), _| *taken != shard);
        let shard = state.shards.entry(shard).or_default();
        if let Some(other) = shard.member.filter(|member| Some(*member) != own.member) {
            match (&self.clock, terms.holds) {
                (Some(clock), Some(lease)) => {
                    state
                        .members
                        .end_silent(other, lease, &mut own.watched, clock.monotonic())?;
                }
                _ => state.members.end(other),
            }
        }
        let member = state.members.join(own.member);
        own.member = Some(member);
        Ok(shard.take(member, terms))
    }

    fn renew(&self, shard: Shard, epoch: Epoch) -> Result<Lease> {
        let mut state = self.state()?;
        let terms = state.terms;
        if terms.is_renewal_failing {
            return Err(BackendError::Unavailable {
                reason: "renewals were planned to fail".to_owned(),
                retry_after: Duration::from_secs(1),
            });
        }
        let state = &mut *state;
        let shard = state.shards.entry(shard).or_default();
        shard.check_owner(epoch)?;
        if !shard.member.is_some_and(|member| state.members.renew(member)) {
            return Err(BackendError::Refused {
                reason: format!(
                    "the lease was not renewed in time, or was given up; its epoch was {}",
                    epoch.0
                ),
            });
        }
        Ok(shard.lease(terms))
    }

    fn scan(
        &self,
        partition: Partition,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<Page> {
        let limit = self.short(limit);
        Ok(self.state()?.rows.scan(partition, range, direction, limit))
    }

    fn scan_many(&self, ranges: &[ScanRange], limit: PageLimit) -> Result<Vec<Page>> {
        let state = self.state_after(ranges.len())?;
        one_by_one(ranges, limit, |range, limit| {
            let (partition, direction, limit) = (range.partition, Direction::Ascending, self.short(limit));
            Ok(state.rows.scan(partition, &range.keys, direction, limit))
        })
    }

    fn write(
        &self,
        partition: Partition,
        changes: &[RowChange],
        stamp: Stamp,
        durability: Durability,
    ) -> Result<()> {
        check_write(partition, changes)?;
        let mut state = self.state()?;
        let fault = state.write_fault();
        match fault {
            None | Some(WriteFault::Landed) => {
                let (character, rows) = (self.disk.character, &mut state.rows);
                rows.write(character, partition, changes, stamp, durability);
            }
            Some(WriteFault::Late) => state.late_writes.push(LateWrite {
                partition,
                changes: changes.to_vec(),
                stamp,
                durability,
            }),
            Some(WriteFault::Lost) => {}
        }
        match fault {
            None => Ok(()),
            Some(fault) => Err(BackendError::Unknown {
                reason: format!("the write was planned to be {fault:?}"),
            }),
        }
    }

    fn sync_rows(&self, shard: Shard) -> Result<()> {
        self.state()?.rows.sync(shard);
        Ok(())
    }

    fn load(
        &self,
        segment: SegmentRef,
        bucket: u16,
        rows: &mut dyn Iterator<Item = Result<Row>>,
    ) -> Result<()> {
        drop(self.state()?);
        let mut loaded: Vec<Row> = Vec::new();
        for row in rows {
            let row = row?;
            check_row(&row)?;
            if loaded.last().is_some_and(|last| last.key >= row.key) {
                return Err(BackendError::Refused {
                    reason: "the keys of a load must rise".to_owned(),
                });
            }
            loaded.push(row);
        }
        self.state()?.rows.load(segment, bucket, loaded);
        Ok(())
    }

    fn reclaim(&self, segment: SegmentRef) -> Result<()> {
        self.state()?.rows.reclaim(Unit::Segment(segment));
        Ok(())
    }

    fn reclaim_part(&self, part: PartRef) -> Result<()> {
        self.state()?.rows.reclaim(Unit::Part(part));
        Ok(())
    }

    fn parts(&self, shard: Shard) -> Result<Vec<PartRef>> {
        let mut held = self.state()?.rows.parts();
        held.retain(|held| held.part.shard() == shard.0);
        Ok(held)
    }

    fn buckets(&self, unit: Unit) -> Result<Vec<u16>> {
        Ok(self.state()?.rows.buckets(unit))
    }

    fn segments(&self, shard: Shard) -> Result<Vec<SegmentRef>> {
        let mut held = self.state()?.rows.segments();
        held.retain(|held| held.segment.shard() == shard.0);
        Ok(held)
    }

    fn append(
        &self,
        shard: Shard,
        epoch: Epoch,
        entries: &[JournalEntry],
        durability: Durability,
    ) -> Result<()> {
        let mut state = self.state()?;
        let accepts_stale = state.accepts_stale;
        let owned = state.shards.entry(shard).or_default();
        if !(accepts_stale && epoch.0 < owned.owner) {
            owned.check_owner(epoch)?;
        }
        let fault = state.append_fault();
        let land_late = state.chance.as_mut().is_some_and(|chance| chance.next() % 2 == 0);
        let journals = &mut state.shards.entry(shard).or_default().journals;
        if land_late {
            journals.values_mut().for_each(Journal::land_late);
        }
        let journal = journals.entry(epoch).or_default();
        journal.check(entries)?;
        match fault {
            None | Some(AppendFault::Landed) => journal.append(entries),
            Some(AppendFault::Late) => journal.append_late(entries),
            Some(AppendFault::Lost) => {}
        }
        journal.note_durability(entries, durability);
        match fault {
            None => {
                journal.acknowledge(entries);
                Ok(())
            }
            Some(fault) => Err(BackendError::Unknown {
                reason: format!("the append was planned to be {fault:?}"),
            }),
        }
    }

    fn sync_journal(&self, shard: Shard, epoch: Epoch) -> Result<()> {
        let mut shard = self.shard(shard)?;
        shard.check_owner(epoch)?;
        shard.journals.values_mut().for_each(Journal::sync);
        Ok(())
    }

    fn cut(&self, shard: Shard, epoch: Epoch, _at: SequenceNumber) -> Result<()> {
        self.shard(shard)?.check_owner(epoch)
    }

    fn epochs(&self, shard: Shard) -> Result<Vec<JournalEpoch>> {
        let shard = self.shard(shard)?;
        let held = shard.journals.iter().filter(|(_, journal)| !journal.is_empty());
        Ok(held
            .map(|(&epoch, journal)| JournalEpoch {
                epoch,
                end: journal.end(),
            })
            .collect())
    }

    fn replay(
        &self,
        shard: Shard,
        epoch: Epoch,
        from: SequenceNumber,
        visit: &mut dyn FnMut(SequenceNumber, Bytes) -> Result<()>,
    ) -> Result<()> {
        let (entries, is_open) = match self.shard(shard)?.journals.get(&epoch) {
            Some(journal) => (journal.from(from), journal.end().is_none()),
            None => (Vec::new(), false),
        };
        if is_open {
            let sequences: BTreeSet<SequenceNumber> = entries.iter().map(|(sequence, _)| *sequence).collect();
            self.own
                .lock()
                .found
                .insert((shard, epoch), Found { from, sequences });
        }
        entries
            .into_iter()
            .try_for_each(|(sequence, value)| visit(sequence, value))
    }

    fn close_epoch(&self, shard: Shard, epoch: Epoch, end: SequenceNumber) -> Result<()> {
        let mut state = self.shard(shard)?;
        check_older(epoch, Epoch(state.owner))?;
        let found = self.own.lock().found.remove(&(shard, epoch));
        let journal = state.journals.entry(epoch).or_default();
        journal.close(end, found.as_ref())
    }

    fn forget(&self, shard: Shard, epoch: Epoch, to: SequenceNumber) -> Result<()> {
        let slot_entries = match self.disk.character {
            Character::Embedded => 1,
            Character::Distributed => 256,
        };
        let mut shard = self.shard(shard)?;
        let ShardState {
            journals, history, ..
        } = &mut *shard;
        for (_, journal) in journals.range_mut(..=epoch) {
            let forgotten = journal.forget(to, slot_entries);
            if let Some(history) = history {
                history.entries.extend(forgotten);
                history.entries = history.entries.split_off(&history.from);
            }
        }
        Ok(())
    }

    fn keep_history(&self, shard: Shard, epoch: Epoch, from: Option<SequenceNumber>) -> Result<()> {
        let mut shard = self.shard(shard)?;
        shard.check_owner(epoch)?;
        match from {
            None => shard.history = None,
            Some(from) => {
                let history = shard.history.get_or_insert_default();
                history.from = history.from.max(from);
                history.entries = history.entries.split_off(&history.from);
            }
        }
        Ok(())
    }

    fn history(&self, shard: Shard) -> Result<History> {
        let shard = self.shard(shard)?;
        let Some(history) = &shard.history else {
            return Ok(History::default());
        };
        let units = history.entries.iter().map(|(sequence, value)| HistoryUnit {
            last: *sequence,
            bytes: value.len() as u64,
            // This backend stores no times, so no entry counts as old.
            written: Timestamp::MAX,
        });
        Ok(History {
            from: Some(history.from),
            units: units.collect(),
        })
    }

    fn read_history(&self, shard: Shard, from: SequenceNumber, bytes_max: usize) -> Result<HistoryPage> {
        let shard = self.shard(shard)?;
        let from = shard
            .history
            .as_ref()
            .map_or(from, |history| from.max(history.from));
        let kept = shard.history.iter();
        let kept = kept.flat_map(|history| {
            history
                .entries
                .range(from..)
                .map(|(at, value)| (*at, value.clone()))
        });
        let journals = shard.journals.values().flat_map(|journal| journal.durable(from));
        let mut all: BTreeMap<SequenceNumber, Bytes> = kept.collect();
        all.extend(journals);
        let mut page = HistoryPage {
            from,
            is_damaged: false,
            entries: Vec::new(),
            next: from,
        };
        let mut bytes = 0;
        for (sequence, value) in all {
            if bytes >= bytes_max {
                break;
            }
            bytes += value.len().max(1);
            page.next = SequenceNumber(sequence.0 + 1);
            page.entries.push(JournalEntry { sequence, value });
        }
        Ok(page)
    }

    fn manifest(&self, shard: Shard) -> Result<Manifest> {
        let mut state = self.state()?;
        let fails = state.failing_manifest_reads > 0;
        state.failing_manifest_reads = state.failing_manifest_reads.saturating_sub(1);
        let is_hidden = state.is_manifest_hidden || fails;
        drop(state);
        if is_hidden {
            return Err(BackendError::Unavailable {
                reason: "the manifest was planned to be unreadable".to_owned(),
                retry_after: Duration::from_secs(1),
            });
        }
        let mut shard = self.shard(shard)?;
        shard.decide(self.own.lock().member);
        let rows = shard.manifest.iter().map(|((kind, name), detail)| ManifestRow {
            kind: *kind,
            name: name.clone(),
            detail: detail.clone(),
        });
        Ok(Manifest {
            epoch: Epoch(shard.owner),
            version: shard.version,
            rows: rows.collect(),
        })
    }

    fn edit(
        &self,
        shard: Shard,
        epoch: Epoch,
        version: u64,
        changes: &[ManifestChange],
    ) -> Result<EditOutcome> {
        check_edit(changes)?;
        let mut state = self.state()?;
        let fault = state.edit_fault();
        let shard = state.shards.entry(shard).or_default();
        shard.decide(self.own.lock().member);
        if !shard.may_edit(epoch, version) {
            return Ok(EditOutcome::Refused {
                epoch: Epoch(shard.owner),
                version: shard.version,
            });
        }
        match fault {
            None | Some(EditFault::Applied) => shard.apply(changes),
            Some(EditFault::Late) => {
                let changes = changes.to_vec();
                shard.late_edit = Some(LateEdit {
                    epoch,
                    version,
                    changes,
                });
            }
            Some(EditFault::Lost) => {}
        }
        match fault {
            None => Ok(EditOutcome::Applied {
                version: shard.version,
            }),
            Some(fault) => Err(BackendError::Unknown {
                reason: format!("the edit was planned to be {fault:?}"),
            }),
        }
    }

    fn health(&self) -> Health {
        Health::Ready
    }

    fn usage(&self) -> Usage {
        let Ok(state) = self.state() else {
            return Usage::default();
        };
        let journals = state.shards.values().flat_map(|shard| shard.journals.values());
        let [hot_bytes, cold_bytes] = Tier::KEPT.map(|tier| state.rows.bytes(tier));
        Usage {
            data_bytes: hot_bytes + cold_bytes,
            hot_bytes,
            cold_bytes,
            journal_bytes: journals.map(Journal::bytes).sum(),
            free_bytes: u64::MAX,
            free_bytes_min: 0,
            cold_free_bytes: u64::MAX,
            ..Usage::default()
        }
    }

    fn close(&self) -> Result<()> {
        if let Ok(mut state) = self.state() {
            let journals = state.shards.values_mut();
            journals.for_each(|shard| shard.journals.values_mut().for_each(Journal::sync));
            state.rows.sync_all();
            if let Some(member) = self.own.lock().member {
                state.members.end(member);
            }
        }
        self.opening.store(0, Ordering::Release);
        Ok(())
    }
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend")
            .field("character", &self.disk.character)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDisk")
            .field("character", &self.character)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
