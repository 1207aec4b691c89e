//! The backend trait on a cluster: each call checks its arguments, then waits for its requests.
//!
//! Calls run on the threads of their callers; the requests run on the threads of the cluster connection.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tideline_backend::limits::{check_row, check_sorted, check_write};
use tideline_backend::*;
use tideline_model::{Clock, Durability, SequenceNumber, SystemClock, Tier};

use crate::cluster::Cluster;
use crate::error::RETRY_AFTER;
use crate::journal::Journals;
use crate::manifest::Manifests;
use crate::options::CassandraOptions;
use crate::ownership::{Leases, Owner};
use crate::rows::{Rows, WRITTEN_ONCE};
use crate::units::Units;

/// Recommended page of a long scan.
const PAGE_ADVICE: PageLimit = PageLimit {
    rows_max: 1_024,
    bytes_max: 1 << 20,
};
/// Time for which requests must have failed before the cluster counts as unreachable.
const FAILING_AFTER: Duration = Duration::from_secs(1);

/// Backend on a Cassandra or ScyllaDB cluster.
///
/// Many processes may have the keyspace open; one of them owns the shard at a time.
pub struct CassandraBackend {
    cluster: Cluster,
    /// Properties while every node syncs before it answers.
    synced: Capabilities,
    /// Properties while a node answers before it syncs, if the settings accept this.
    replicated: Capabilities,
    leases: Leases,
    /// Epochs of the shards that were taken ahead, until the next take.
    taken_ahead: Mutex<BTreeMap<Shard, Epoch>>,
    manifests: Manifests,
    journals: Journals,
    rows: Rows,
    units: Units,
    is_closed: AtomicBool,
}

impl CassandraBackend {
    /// Connects to the cluster, checks the version of its tables and its durability, and prepares all statements.
    ///
    /// # Errors
    ///
    /// - `Misconfigured` if there are no tables, or tables of another version, if the data center is not clear or the
    ///   keyspace belongs to another one, or if the cluster syncs its commit log later than
    ///   [`CassandraOptions::acknowledged`] demands;
    /// - `Unavailable` if the cluster cannot be reached.
    pub fn open(options: CassandraOptions) -> Result<Self> {
        let cluster = Cluster::open(options)?;
        let capabilities = |acknowledged| Capabilities {
            engine: "cassandra",
            acknowledged,
            is_shared: true,
            medium: Medium::Cluster,
            // A quorum has every acknowledged write, whatever durability it requests.
            buffers_writes: false,
            limits_free_space: false,
            frees_at_once: false,
            has_offline_check: false,
            page_advice: PAGE_ADVICE,
            requests_in_flight: cluster.options.requests_in_flight.max(2),
        };
        let [synced, replicated] = [Acknowledged::Synced, Acknowledged::Replicated].map(capabilities);
        let (leases, manifests, journals, rows, units) = cluster.block_on(async {
            Ok::<_, BackendError>((
                Leases::prepare(&cluster).await?,
                Manifests::prepare(&cluster).await?,
                Journals::prepare(&cluster).await?,
                Rows::prepare(&cluster).await?,
                Units::prepare(&cluster).await?,
            ))
        })?;
        Ok(Self {
            cluster,
            synced,
            replicated,
            leases,
            taken_ahead: Mutex::new(BTreeMap::new()),
            manifests,
            journals,
            rows,
            units,
            is_closed: AtomicBool::new(false),
        })
    }

    /// Returns the owner of a shard; `None` before its first [`take`](Backend::take).
    ///
    /// # Errors
    ///
    /// The errors of a read.
    pub fn owner(&self, shard: Shard) -> Result<Option<Owner>> {
        self.leases.owner(self.open_cluster()?, shard)
    }

    /// Takes a shard before its data is opened, and returns the epoch. The next [`take`](Backend::take) of the shard
    /// does not begin another epoch but renews this lease, which needs one conditional request instead of several. It
    /// fails with `Refused` if this process has lost the shard meanwhile. Later takes begin new epochs, and so does the
    /// next take if an entry was appended before it.
    ///
    /// # Errors
    ///
    /// The errors of [`take`](Backend::take).
    pub fn take_ahead(&self, shard: Shard) -> Result<Epoch> {
        let epoch = self.begin_epoch(shard)?.epoch;
        self.taken_ahead.lock().insert(shard, epoch);
        Ok(epoch)
    }

    /// Takes a shard in a new epoch.
    fn begin_epoch(&self, shard: Shard) -> Result<Lease> {
        // An owner that can write nothing would not even open the database.
        let cluster = self.writable_cluster()?;
        cluster.store_center()?;
        let lease = self.leases.take(cluster, shard)?;
        cluster.block_on(self.manifests.begin(cluster, shard, lease.epoch))?;
        self.journals
            .begin(cluster, &self.manifests, shard, lease.epoch)?;
        Ok(lease)
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Returns the cluster, unless the backend is closed.
    fn open_cluster(&self) -> Result<&Cluster> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(BackendError::Refused {
                reason: "the backend is closed".to_owned(),
            });
        }
        Ok(&self.cluster)
    }

    /// Returns the cluster, unless the backend is closed or writes would be less durable than the settings demand.
    fn writable_cluster(&self) -> Result<&Cluster> {
        let cluster = self.open_cluster()?;
        match cluster.watch().refusal() {
            None => Ok(cluster),
            Some(reason) => Err(BackendError::Unavailable {
                reason: format!("writes are refused: {reason}"),
                retry_after: RETRY_AFTER,
            }),
        }
    }

    /// Lists the unit of a partition, then writes rows of the partition.
    async fn put_rows(
        &self,
        cluster: &Cluster,
        partition: Partition,
        changes: &[RowChange],
        stamp: Stamp,
    ) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        self.units.list(cluster, partition.unit, partition.bucket).await?;
        self.rows
            .write(cluster, partition, changes, stamp.0 as i64)
            .await?;
        let sizes = changes
            .iter()
            .map(|change| change.key.len() + change.value.as_ref().map_or(0, Bytes::len));
        self.units.add_bytes(partition.unit, sizes.sum::<usize>() as u64);
        Ok(())
    }

    /// Frees all buckets of a unit, and then removes it from the list.
    fn free(&self, unit: Unit, stamp: i64) -> Result<()> {
        let cluster = self.open_cluster()?;
        cluster.block_on(async {
            let buckets = self.units.buckets(cluster, unit).await?;
            if buckets.is_empty() {
                return Ok(());
            }
            self.rows.drop(cluster, unit, &buckets, stamp).await?;
            self.units.remove(cluster, unit).await
        })
    }
}

impl Backend for CassandraBackend {
    fn capabilities(&self) -> &Capabilities {
        match self.cluster.watch().acknowledged() {
            Acknowledged::Synced => &self.synced,
            Acknowledged::Replicated => &self.replicated,
        }
    }

    fn take(&self, shard: Shard) -> Result<Lease> {
        self.writable_cluster()?;
        let ahead = self.taken_ahead.lock().remove(&shard);
        // An open replays only older epochs, so an epoch with entries must not be opened again.
        match ahead.filter(|epoch| self.journals.is_unused(shard, *epoch)) {
            Some(epoch) => self.renew(shard, epoch),
            None => self.begin_epoch(shard),
        }
    }

    fn renew(&self, shard: Shard, epoch: Epoch) -> Result<Lease> {
        let renewed = self.leases.renew(self.open_cluster()?, shard, epoch);
        if self.leases.epoch(shard).is_none() {
            // This process has lost all of its shards, and must no longer append to their journals.
            self.journals.end();
        }
        renewed
    }

    fn scan(
        &self,
        partition: Partition,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<Page> {
        let cluster = self.open_cluster()?;
        cluster.block_on(self.rows.scan(cluster, partition, range, direction, limit))
    }

    fn get(&self, partition: Partition, key: &[u8]) -> Result<Option<Bytes>> {
        let cluster = self.open_cluster()?;
        cluster.block_on(self.rows.get(cluster, partition, key))
    }

    fn scan_many(&self, ranges: &[ScanRange], limit: PageLimit) -> Result<Vec<Page>> {
        let cluster = self.open_cluster()?;
        cluster.block_on(self.rows.scan_many(cluster, ranges, limit))
    }

    fn write(
        &self,
        partition: Partition,
        changes: &[RowChange],
        stamp: Stamp,
        _durability: Durability,
    ) -> Result<()> {
        check_write(partition, changes)?;
        let cluster = self.writable_cluster()?;
        cluster.block_on(self.put_rows(cluster, partition, changes, stamp))
    }

    fn load_sorted(&self, partition: Partition, groups: &[Vec<RowChange>], stamp: Stamp) -> Result<()> {
        // The cluster determines the durability of every write, so a sorted write suffices.
        self.write_sorted(partition, groups, stamp)
    }

    fn write_sorted(&self, partition: Partition, groups: &[Vec<RowChange>], stamp: Stamp) -> Result<()> {
        check_sorted(groups)?;
        groups
            .iter()
            .try_for_each(|group| check_write(partition, group))?;
        let cluster = self.writable_cluster()?;
        cluster.block_on(async {
            for group in groups {
                self.put_rows(cluster, partition, group, stamp).await?;
            }
            Ok(())
        })
    }

    fn remove_rows(&self, partition: Partition, range: &KeyRange, stamp: Stamp) -> Result<()> {
        check_write(partition, &[])?;
        let cluster = self.writable_cluster()?;
        cluster.block_on(self.rows.remove_range(cluster, partition, range, stamp.0 as i64))
    }

    fn sync_rows(&self, _shard: Shard) -> Result<()> {
        self.open_cluster().map(|_| ())
    }

    fn load(
        &self,
        segment: SegmentRef,
        bucket: u16,
        rows: &mut dyn Iterator<Item = Result<Row>>,
    ) -> Result<()> {
        let cluster = self.writable_cluster()?;
        let partition = Partition::segment(segment, bucket);
        let mut last: Option<Bytes> = None;
        let mut bytes = 0;
        let checked = rows.map(|row| {
            let row = row?;
            check_row(&row)?;
            if last.as_ref().is_some_and(|last| *last >= row.key) {
                return Err(BackendError::Refused {
                    reason: "the keys of a load must rise".to_owned(),
                });
            }
            last = Some(row.key.clone());
            bytes += (row.key.len() + row.value.len()) as u64;
            Ok(row)
        });
        cluster.block_on(self.units.list(cluster, partition.unit, bucket))?;
        self.rows.load(cluster, partition, checked)?;
        cluster.block_on(self.units.set_bytes(cluster, partition.unit, bucket, bytes))
    }

    fn reclaim(&self, segment: SegmentRef) -> Result<()> {
        self.free(Unit::Segment(segment), WRITTEN_ONCE + 1)
    }

    fn segments(&self, shard: Shard) -> Result<Vec<SegmentRef>> {
        let cluster = self.open_cluster()?;
        cluster.block_on(self.units.segments(cluster, shard))
    }

    fn reclaim_part(&self, part: PartRef) -> Result<()> {
        // The stamp must be above the stamps of all rows of the part, even if the clock of their writer was ahead.
        let now = SystemClock.now().nanos() / 1_000;
        self.free(Unit::Part(part), now.max(self.leases.stamp_max()))
    }

    fn parts(&self, shard: Shard) -> Result<Vec<PartRef>> {
        let cluster = self.open_cluster()?;
        cluster.block_on(self.units.parts(cluster, shard))
    }

    fn buckets(&self, unit: Unit) -> Result<Vec<u16>> {
        let cluster = self.open_cluster()?;
        cluster.block_on(self.units.buckets(cluster, unit))
    }

    fn append(
        &self,
        shard: Shard,
        epoch: Epoch,
        entries: &[JournalEntry],
        _durability: Durability,
    ) -> Result<()> {
        let cluster = self.writable_cluster()?;
        cluster.block_on(self.journals.append(cluster, shard, epoch, entries))
    }

    fn sync_journal(&self, shard: Shard, epoch: Epoch) -> Result<()> {
        self.open_cluster()?;
        self.leases.check(shard, epoch).map(|_| ())
    }

    fn cut(&self, shard: Shard, epoch: Epoch, _at: SequenceNumber) -> Result<()> {
        self.open_cluster()?;
        self.journals.cut(shard, epoch)
    }

    fn epochs(&self, shard: Shard) -> Result<Vec<JournalEpoch>> {
        let cluster = self.open_cluster()?;
        self.journals.epochs(cluster, &self.manifests, shard)
    }

    fn replay(
        &self,
        shard: Shard,
        epoch: Epoch,
        from: SequenceNumber,
        visit: &mut dyn FnMut(SequenceNumber, Bytes) -> Result<()>,
    ) -> Result<()> {
        let cluster = self.open_cluster()?;
        let place = (shard, epoch, from);
        self.journals.replay(cluster, &self.manifests, place, visit)
    }

    fn close_epoch(&self, shard: Shard, epoch: Epoch, end: SequenceNumber) -> Result<()> {
        let cluster = self.open_cluster()?;
        let end = (shard, epoch, end);
        self.journals.close(cluster, &self.manifests, &self.leases, end)
    }

    fn forget(&self, shard: Shard, epoch: Epoch, to: SequenceNumber) -> Result<()> {
        let cluster = self.open_cluster()?;
        self.journals.forget(cluster, &self.manifests, (shard, epoch, to))
    }

    fn keep_history(&self, shard: Shard, epoch: Epoch, from: Option<SequenceNumber>) -> Result<()> {
        let cluster = self.open_cluster()?;
        let kept = (shard, epoch, from);
        self.journals.keep_history(cluster, &self.manifests, kept)
    }

    fn history(&self, shard: Shard) -> Result<History> {
        let cluster = self.open_cluster()?;
        self.journals.history(cluster, &self.manifests, shard)
    }

    fn read_history(&self, shard: Shard, from: SequenceNumber, bytes_max: usize) -> Result<HistoryPage> {
        let cluster = self.open_cluster()?;
        let read = (shard, from, bytes_max);
        self.journals.read_history(cluster, &self.manifests, read)
    }

    fn manifest(&self, shard: Shard) -> Result<Manifest> {
        let cluster = self.open_cluster()?;
        cluster.block_on(self.manifests.read(cluster, shard))
    }

    fn edit(
        &self,
        shard: Shard,
        epoch: Epoch,
        version: u64,
        changes: &[ManifestChange],
    ) -> Result<EditOutcome> {
        let cluster = self.writable_cluster()?;
        cluster.block_on(self.manifests.edit(cluster, shard, epoch, version, changes))
    }

    fn health(&self) -> Health {
        match self.cluster.failing() {
            Some((since, reason)) if since >= FAILING_AFTER => Health::Unreachable { reason, since },
            _ => match self.cluster.watch().refusal() {
                Some(reason) => Health::WritesRefused { reason },
                None => Health::Ready,
            },
        }
    }

    fn usage(&self) -> Usage {
        let [hot_bytes, cold_bytes] = Tier::KEPT.map(|tier| self.units.bytes(tier));
        Usage {
            data_bytes: hot_bytes + cold_bytes,
            hot_bytes,
            cold_bytes,
            journal_bytes: self.journals.bytes(),
            free_bytes: u64::MAX,
            cold_free_bytes: u64::MAX,
            ..Usage::default()
        }
    }

    fn requests(&self) -> Vec<RequestCounts> {
        self.cluster.counts().to_vec()
    }

    fn close(&self) -> Result<()> {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.journals.end();
        self.leases.end(&self.cluster)
    }
}

impl Drop for CassandraBackend {
    fn drop(&mut self) {
        // This process no longer writes, so other processes need not wait for the end of the lease.
        if let Err(error) = self.close() {
            tracing::warn!(%error, "the lease could not be given up; another process takes the data after its end");
        }
    }
}

impl fmt::Debug for CassandraBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CassandraBackend")
            .field("options", &self.cluster.options)
            .finish_non_exhaustive()
    }
}
