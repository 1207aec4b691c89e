//! In-memory backend whose calls can be paused, so that a test determines the order of the steps of several threads.
//!
//! A paused call waits until the test continues it, at most 30 seconds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_backend::{
    Backend, Capabilities, Direction, EditOutcome, Epoch, Health, History, HistoryPage, JournalEntry,
    JournalEpoch, KeyRange, Lease, Manifest, ManifestChange, Page, PageLimit, PartRef, Partition, Result,
    Row, RowChange, SegmentRef, Shard, Stamp, Unit, Usage,
};
use tideline_model::{Durability, SequenceNumber};

/// Time after which a test fails because a call was not reached, or was not continued.
const PATIENCE: Duration = Duration::from_secs(30);

/// Call that can be paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// Scan of a partition, or read of one of its rows.
    Read(Partition),
    /// Write of rows of a partition.
    Write(Partition),
    /// Edit of the manifest.
    Edit,
}

impl Call {
    /// Returns true for a read of a part.
    pub(crate) fn reads(self, part: PartRef) -> bool {
        matches!(self, Self::Read(at) if at.unit == Unit::Part(part))
    }

    /// Returns true for a write of rows of a part.
    pub(crate) fn writes(self, part: PartRef) -> bool {
        matches!(self, Self::Write(at) if at.unit == Unit::Part(part))
    }
}

/// Pause of one call, before the call takes effect.
pub(crate) struct Pause {
    reached: Receiver<()>,
    go_on: Sender<()>,
}

impl Pause {
    /// Waits until the call is reached.
    pub(crate) fn wait(&self) {
        self.reached.recv_timeout(PATIENCE).expect("the call is reached");
    }

    /// Ends the pause.
    pub(crate) fn end(&self) {
        self.go_on.send(()).expect("the call is paused");
    }
}

struct PlannedPause {
    is_at: Box<dyn Fn(Call) -> bool + Send>,
    reached: Sender<()>,
    go_on: Receiver<()>,
}

/// Backend whose calls can be paused.
pub(crate) struct PausedBackend {
    backend: MemoryBackend,
    planned: Mutex<Vec<PlannedPause>>,
    /// Number of reads of each partition.
    reads: Mutex<BTreeMap<Partition, usize>>,
}

/// Opens an empty backend in memory. Returns the handle that plans pauses, and the backend to open a database with.
pub(crate) fn paused_backend() -> (Arc<PausedBackend>, Arc<dyn Backend>) {
    let disk = MemoryDisk::new(Character::Embedded);
    let backend = Arc::new(PausedBackend::new(MemoryBackend::open(&disk)));
    let opened: Arc<dyn Backend> = Arc::<PausedBackend>::clone(&backend);
    (backend, opened)
}

impl PausedBackend {
    pub(crate) fn new(backend: MemoryBackend) -> Self {
        Self {
            backend,
            planned: Mutex::default(),
            reads: Mutex::default(),
        }
    }

    /// Returns the number of scans of a partition and of reads of its rows so far.
    pub(crate) fn reads_of(&self, partition: Partition) -> usize {
        self.reads.lock().get(&partition).copied().unwrap_or_default()
    }

    /// Plans a pause of the next call for which `is_at` returns true.
    pub(crate) fn pause(&self, is_at: impl Fn(Call) -> bool + Send + 'static) -> Pause {
        let ((reached, was_reached), (go_on, may_go_on)) = (channel(), channel());
        self.planned.lock().push(PlannedPause {
            is_at: Box::new(is_at),
            reached,
            go_on: may_go_on,
        });
        Pause {
            reached: was_reached,
            go_on,
        }
    }

    fn pass(&self, call: Call) {
        let mut planned = self.planned.lock();
        let Some(at) = planned.iter().position(|pause| (pause.is_at)(call)) else {
            return;
        };
        let pause = planned.remove(at);
        drop(planned);
        pause.reached.send(()).expect("the test waits for the call");
        pause
            .go_on
            .recv_timeout(PATIENCE)
            .expect("the test ends the pause");
    }
}

impl fmt::Debug for PausedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PausedBackend")
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}

impl Backend for PausedBackend {
    fn capabilities(&self) -> &Capabilities {
        self.backend.capabilities()
    }

    fn take(&self, shard: Shard) -> Result<Lease> {
        self.backend.take(shard)
    }

    fn renew(&self, shard: Shard, epoch: Epoch) -> Result<Lease> {
        self.backend.renew(shard, epoch)
    }

    fn scan(
        &self,
        partition: Partition,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<Page> {
        *self.reads.lock().entry(partition).or_default() += 1;
        self.pass(Call::Read(partition));
        self.backend.scan(partition, range, direction, limit)
    }

    fn write(
        &self,
        partition: Partition,
        changes: &[RowChange],
        stamp: Stamp,
        durability: Durability,
    ) -> Result<()> {
        self.pass(Call::Write(partition));
        self.backend.write(partition, changes, stamp, durability)
    }

    fn sync_rows(&self, shard: Shard) -> Result<()> {
        self.backend.sync_rows(shard)
    }

    fn load(
        &self,
        segment: SegmentRef,
        bucket: u16,
        rows: &mut dyn Iterator<Item = Result<Row>>,
    ) -> Result<()> {
        self.backend.load(segment, bucket, rows)
    }

    fn reclaim(&self, segment: SegmentRef) -> Result<()> {
        self.backend.reclaim(segment)
    }

    fn segments(&self, shard: Shard) -> Result<Vec<SegmentRef>> {
        self.backend.segments(shard)
    }

    fn reclaim_part(&self, part: PartRef) -> Result<()> {
        self.backend.reclaim_part(part)
    }

    fn note_replaced(&self, part: PartRef, bytes: u64) {
        self.backend.note_replaced(part, bytes);
    }

    fn parts(&self, shard: Shard) -> Result<Vec<PartRef>> {
        self.backend.parts(shard)
    }

    fn buckets(&self, unit: Unit) -> Result<Vec<u16>> {
        self.backend.buckets(unit)
    }

    fn append(
        &self,
        shard: Shard,
        epoch: Epoch,
        entries: &[JournalEntry],
        durability: Durability,
    ) -> Result<()> {
        self.backend.append(shard, epoch, entries, durability)
    }

    fn sync_journal(&self, shard: Shard, epoch: Epoch) -> Result<()> {
        self.backend.sync_journal(shard, epoch)
    }

    fn cut(&self, shard: Shard, epoch: Epoch, at: SequenceNumber) -> Result<()> {
        self.backend.cut(shard, epoch, at)
    }

    fn epochs(&self, shard: Shard) -> Result<Vec<JournalEpoch>> {
        self.backend.epochs(shard)
    }

    fn replay(
        &self,
        shard: Shard,
        epoch: Epoch,
        from: SequenceNumber,
        visit: &mut dyn FnMut(SequenceNumber, Bytes) -> Result<()>,
    ) -> Result<()> {
        self.backend.replay(shard, epoch, from, visit)
    }

    fn close_epoch(&self, shard: Shard, epoch: Epoch, end: SequenceNumber) -> Result<()> {
        self.backend.close_epoch(shard, epoch, end)
    }

    fn forget(&self, shard: Shard, epoch: Epoch, to: SequenceNumber) -> Result<()> {
        self.backend.forget(shard, epoch, to)
    }

    fn keep_history(&self, shard: Shard, epoch: Epoch, from: Option<SequenceNumber>) -> Result<()> {
        self.backend.keep_history(shard, epoch, from)
    }

    fn history(&self, shard: Shard) -> Result<History> {
        self.backend.history(shard)
    }

    fn read_history(&self, shard: Shard, from: SequenceNumber, bytes_max: usize) -> Result<HistoryPage> {
        self.backend.read_history(shard, from, bytes_max)
    }

    fn manifest(&self, shard: Shard) -> Result<Manifest> {
        self.backend.manifest(shard)
    }

    fn edit(
        &self,
        shard: Shard,
        epoch: Epoch,
        version: u64,
        changes: &[ManifestChange],
    ) -> Result<EditOutcome> {
        self.pass(Call::Edit);
        self.backend.edit(shard, epoch, version, changes)
    }

    fn health(&self) -> Health {
        self.backend.health()
    }

    fn usage(&self) -> Usage {
        self.backend.usage()
    }

    fn close(&self) -> Result<()> {
        self.backend.close()
    }
}
