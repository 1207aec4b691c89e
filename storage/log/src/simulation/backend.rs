//! Connection of one simulated process to the shared disk.
//!
//! Before and after each call, the connection lets the world run steps of other processes, as if the request took that
//! time or the process was paused. A killed process gets an error from every call. A process that is cut off gets an
//! error before the request reaches the disk. A response can be lost after the request took effect.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use tideline_backend::memory::MemoryBackend;
use tideline_backend::{
    Backend, BackendError, Capabilities, Direction, EditOutcome, Epoch, Health, History, HistoryPage,
    JournalEntry, JournalEpoch, KeyRange, Lease, Manifest, ManifestChange, Page, PageLimit, PartRef,
    Partition, Result, Row, RowChange, SegmentRef, Shard, Stamp, Unit, Usage,
};
use tideline_model::{Durability, SequenceNumber};

use super::world::{Life, World};

/// Connection of a process.
#[derive(Debug)]
pub(super) struct Connection {
    /// Handle of the disk, without interruptions and faults of the network.
    pub(super) disk: MemoryBackend,
    world: Weak<World>,
    life: OnceLock<Weak<Life>>,
}

impl Connection {
    pub(super) fn new(disk: MemoryBackend, world: &Arc<World>) -> Self {
        Self {
            disk,
            world: Arc::downgrade(world),
            life: OnceLock::new(),
        }
    }

    /// Sets the process of the connection. Called once.
    pub(super) fn set_life(&self, life: &Arc<Life>) {
        let set = self.life.set(Arc::downgrade(life));
        set.expect("a connection has one process");
    }

    fn ends(&self) -> Result<(Arc<World>, Arc<Life>)> {
        let life = self.life.get().and_then(Weak::upgrade);
        let ends = self.world.upgrade().zip(life).filter(|(_, life)| life.is_alive());
        ends.ok_or_else(|| BackendError::Refused {
            reason: "the process was killed".to_owned(),
        })
    }

    /// Sends a request to the disk.
    fn call<T>(&self, name: &str, request: impl FnOnce(&MemoryBackend) -> Result<T>) -> Result<T> {
        let (world, life) = self.ends()?;
        world.interrupt(&life, name, "before");
        self.ends()?;
        let lost = |what: &str| BackendError::Unknown {
            reason: format!("{what} of {name} was lost"),
        };
        if world.is_cut_off(&life) {
            return Err(lost("the request"));
        }
        let answer = request(&self.disk);
        let is_late = world.interrupt(&life, name, "after");
        self.ends()?;
        if answer.is_ok() && world.loses_answer(&life, is_late) {
            return Err(lost("the answer"));
        }
        answer
    }

    /// Sends a request whose response is never lost: a real backend repeats the request until it gets a response, or
    /// needs no network request.
    fn call_without_loss<T>(
        &self,
        name: &str,
        request: impl FnOnce(&MemoryBackend) -> Result<T>,
    ) -> Result<T> {
        let (world, life) = self.ends()?;
        world.interrupt(&life, name, "before");
        self.ends()?;
        request(&self.disk)
    }
}

impl Backend for Connection {
    fn capabilities(&self) -> &Capabilities {
        self.disk.capabilities()
    }

    fn take(&self, shard: Shard) -> Result<Lease> {
        self.call("take", |disk| {
            let lease = disk.take(shard)?;
            if let Some(world) = self.world.upgrade() {
                world.ledger.lock().take(lease.epoch);
            }
            Ok(lease)
        })
    }

    fn renew(&self, shard: Shard, epoch: Epoch) -> Result<Lease> {
        self.call("renew", |disk| disk.renew(shard, epoch))
    }

    fn scan(
        &self,
        partition: Partition,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<Page> {
        self.call("scan", |disk| disk.scan(partition, range, direction, limit))
    }

    fn write(
        &self,
        partition: Partition,
        changes: &[RowChange],
        stamp: Stamp,
        durability: Durability,
    ) -> Result<()> {
        let (world, life) = self.ends()?;
        world.note_stamp(&life, stamp);
        self.call("write", |disk| disk.write(partition, changes, stamp, durability))
    }

    fn sync_rows(&self, shard: Shard) -> Result<()> {
        self.call("sync_rows", |disk| disk.sync_rows(shard))
    }

    fn load(
        &self,
        segment: SegmentRef,
        bucket: u16,
        rows: &mut dyn Iterator<Item = Result<Row>>,
    ) -> Result<()> {
        self.call("load", |disk| disk.load(segment, bucket, rows))
    }

    fn reclaim(&self, segment: SegmentRef) -> Result<()> {
        self.call("reclaim", |disk| disk.reclaim(segment))
    }

    fn segments(&self, shard: Shard) -> Result<Vec<SegmentRef>> {
        self.call("segments", |disk| disk.segments(shard))
    }

    fn buckets(&self, unit: Unit) -> Result<Vec<u16>> {
        self.call("buckets", |disk| disk.buckets(unit))
    }

    fn reclaim_part(&self, part: PartRef) -> Result<()> {
        self.call("reclaim_part", |disk| disk.reclaim_part(part))
    }

    fn note_replaced(&self, part: PartRef, bytes: u64) {
        self.disk.note_replaced(part, bytes);
    }

    fn parts(&self, shard: Shard) -> Result<Vec<PartRef>> {
        self.call("parts", |disk| disk.parts(shard))
    }

    fn append(
        &self,
        shard: Shard,
        epoch: Epoch,
        entries: &[JournalEntry],
        durability: Durability,
    ) -> Result<()> {
        self.call("append", |disk| disk.append(shard, epoch, entries, durability))
    }

    fn sync_journal(&self, shard: Shard, epoch: Epoch) -> Result<()> {
        self.call("sync_journal", |disk| disk.sync_journal(shard, epoch))
    }

    fn cut(&self, shard: Shard, epoch: Epoch, at: SequenceNumber) -> Result<()> {
        self.call_without_loss("cut", |disk| disk.cut(shard, epoch, at))
    }

    fn epochs(&self, shard: Shard) -> Result<Vec<JournalEpoch>> {
        self.call("epochs", |disk| disk.epochs(shard))
    }

    fn replay(
        &self,
        shard: Shard,
        epoch: Epoch,
        from: SequenceNumber,
        visit: &mut dyn FnMut(SequenceNumber, Bytes) -> Result<()>,
    ) -> Result<()> {
        self.call("replay", |disk| disk.replay(shard, epoch, from, visit))
    }

    fn close_epoch(&self, shard: Shard, epoch: Epoch, end: SequenceNumber) -> Result<()> {
        self.call("close_epoch", |disk| disk.close_epoch(shard, epoch, end))
    }

    fn forget(&self, shard: Shard, epoch: Epoch, to: SequenceNumber) -> Result<()> {
        self.call("forget", |disk| disk.forget(shard, epoch, to))
    }

    fn keep_history(&self, shard: Shard, epoch: Epoch, from: Option<SequenceNumber>) -> Result<()> {
        self.call("keep_history", |disk| disk.keep_history(shard, epoch, from))
    }

    fn history(&self, shard: Shard) -> Result<History> {
        self.call("history", |disk| disk.history(shard))
    }

    fn read_history(&self, shard: Shard, from: SequenceNumber, bytes_max: usize) -> Result<HistoryPage> {
        self.call("read_history", |disk| disk.read_history(shard, from, bytes_max))
    }

    fn manifest(&self, shard: Shard) -> Result<Manifest> {
        let read = self.call("manifest", |disk| disk.manifest(shard));
        // A read has no unknown outcome.
        read.map_err(|error| match error {
            BackendError::Unknown { reason } => BackendError::Unavailable {
                reason,
                retry_after: Duration::ZERO,
            },
            error => error,
        })
    }

    fn edit(
        &self,
        shard: Shard,
        epoch: Epoch,
        version: u64,
        changes: &[ManifestChange],
    ) -> Result<EditOutcome> {
        self.call("edit", |disk| disk.edit(shard, epoch, version, changes))
    }

    fn health(&self) -> Health {
        self.disk.health()
    }

    fn usage(&self) -> Usage {
        self.disk.usage()
    }

    fn close(&self) -> Result<()> {
        self.disk.close()
    }
}
