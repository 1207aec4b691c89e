//! List of the segments and parts that have rows.
//!
//! A unit and its bucket are listed before the first row of the bucket is written, so every row can be found and freed,
//! even if the process that wrote it has ended. Each process remembers the buckets that it has listed.
//!
//! The list also holds the bytes of loaded buckets, as they were sent. The space that copies and files take in the
//! cluster is not measured.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use scylla::statement::prepared::PreparedStatement;
use tideline_backend::{PartRef, Result, SegmentRef, Shard, Unit};
use tideline_model::{GroupId, PartId, SegmentId, TableId, Tier};

use crate::cluster::{Cluster, RequestKind};
use crate::error::unexpected;

/// Stored number of a kind of unit in the list.
const SEGMENT: i8 = 1;
const PART: i8 = 2;
/// Timestamps of the rows of the list.
const LISTED: i64 = 1;
const SIZED: i64 = 2;
const UNLISTED: i64 = 3;
/// Rows of one page of the list.
const PAGE_ROWS: i32 = 5_000;
/// Maximum number of buckets that a process remembers. At the limit it forgets all of them, and lists a bucket again
/// before the next write to it.
const REMEMBERED_MAX: usize = 1 << 20;

/// Kind of the unit, its id, and bucket.
type Bucket = (i8, i64, u16);

/// List of units.
#[derive(Debug)]
pub(crate) struct Units {
    insert: PreparedStatement,
    remove: PreparedStatement,
    all: PreparedStatement,
    buckets: PreparedStatement,
    size: PreparedStatement,
    listed: Mutex<BTreeSet<Bucket>>,
    /// Tiers and bytes of units, from the last read of the list and from the writes of this process since then.
    bytes: Mutex<BTreeMap<(i8, i64), (Tier, u64)>>,
}

impl Units {
    pub(crate) async fn prepare(cluster: &Cluster) -> Result<Self> {
        let mut all = cluster
            .prepare_read("SELECT id, place, tier, bytes FROM unit WHERE shard = ? AND kind = ?")
            .await?;
        all.set_page_size(PAGE_ROWS);
        Ok(Self {
            insert: cluster
                .prepare(
                    "INSERT INTO unit (shard, kind, id, bucket, place, tier) VALUES (?, ?, ?, ?, ?, ?) \
                     USING TIMESTAMP ?",
                )
                .await?,
            remove: cluster
                .prepare("DELETE FROM unit USING TIMESTAMP ? WHERE shard = ? AND kind = ? AND id = ?")
                .await?,
            all,
            buckets: cluster
                .prepare_read("SELECT bucket FROM unit WHERE shard = ? AND kind = ? AND id = ?")
                .await?,
            size: cluster
                .prepare(
                    "UPDATE unit USING TIMESTAMP ? SET bytes = ? \
                     WHERE shard = ? AND kind = ? AND id = ? AND bucket = ?",
                )
                .await?,
            listed: Mutex::new(BTreeSet::new()),
            bytes: Mutex::new(BTreeMap::new()),
        })
    }

    /// Lists a bucket of a unit, unless this process has listed it. Key spaces are not listed.
    pub(crate) async fn list(&self, cluster: &Cluster, unit: Unit, bucket: u16) -> Result<()> {
        let Some(listing) = Listing::of(unit) else {
            return Ok(());
        };
        let key = (listing.kind, listing.id, bucket);
        if self.listed.lock().contains(&key) {
            return Ok(());
        }
        let values = (
            listing.shard,
            listing.kind,
            listing.id,
            i32::from(bucket),
            listing.place,
            tier_number(unit.tier()),
            LISTED,
        );
        cluster.execute(RequestKind::Write, &self.insert, values).await?;
        let mut listed = self.listed.lock();
        if listed.len() >= REMEMBERED_MAX {
            listed.clear();
        }
        listed.insert(key);
        Ok(())
    }

    /// Stores the bytes of a loaded bucket.
    pub(crate) async fn set_bytes(
        &self,
        cluster: &Cluster,
        unit: Unit,
        bucket: u16,
        bytes: u64,
    ) -> Result<()> {
        let Some(listing) = Listing::of(unit) else {
            return Ok(());
        };
        let values = (
            SIZED,
            bytes as i64,
            listing.shard,
            listing.kind,
            listing.id,
            i32::from(bucket),
        );
        cluster.execute(RequestKind::Write, &self.size, values).await?;
        self.add_bytes(unit, bytes);
        Ok(())
    }

    /// Counts bytes that were written to a unit.
    pub(crate) fn add_bytes(&self, unit: Unit, bytes: u64) {
        if let Some(listing) = Listing::of(unit) {
            let mut sizes = self.bytes.lock();
            let size = sizes
                .entry((listing.kind, listing.id))
                .or_insert((unit.tier(), 0));
            size.1 += bytes;
        }
    }

    /// Returns the bytes of a tier.
    pub(crate) fn bytes(&self, tier: Tier) -> u64 {
        let sizes = self.bytes.lock();
        sizes
            .values()
            .filter(|size| size.0 == tier)
            .map(|size| size.1)
            .sum()
    }

    /// Returns the listed buckets of a unit, in increasing order.
    pub(crate) async fn buckets(&self, cluster: &Cluster, unit: Unit) -> Result<Vec<u16>> {
        let Some(listing) = Listing::of(unit) else {
            return Ok(Vec::new());
        };
        let values = (listing.shard, listing.kind, listing.id);
        let rows = cluster.rows(RequestKind::Read, &self.buckets, values).await?;
        let rows = rows.rows::<(i32,)>();
        let rows = rows.map_err(|error| unexpected("the list of buckets", error))?;
        rows.map(|row| {
            let (bucket,) = row.map_err(|error| unexpected("the list of buckets", error))?;
            u16::try_from(bucket).map_err(|error| unexpected("the list of buckets", error))
        })
        .collect()
    }

    /// Removes a unit from the list.
    pub(crate) async fn remove(&self, cluster: &Cluster, unit: Unit) -> Result<()> {
        let Some(listing) = Listing::of(unit) else {
            return Ok(());
        };
        let values = (UNLISTED, listing.shard, listing.kind, listing.id);
        cluster.execute(RequestKind::Write, &self.remove, values).await?;
        let (first, last) = (
            (listing.kind, listing.id, 0),
            (listing.kind, listing.id, u16::MAX),
        );
        self.bytes.lock().remove(&(listing.kind, listing.id));
        let mut listed = self.listed.lock();
        let own: Vec<Bucket> = listed.range(first..=last).copied().collect();
        for bucket in own {
            listed.remove(&bucket);
        }
        Ok(())
    }

    pub(crate) async fn segments(&self, cluster: &Cluster, shard: Shard) -> Result<Vec<SegmentRef>> {
        let listed = self.all(cluster, shard, SEGMENT).await?.into_iter();
        let segments = listed.map(|(id, (place, tier))| SegmentRef {
            segment: SegmentId(id as u64),
            group: GroupId(place as u64),
            tier,
        });
        Ok(segments.collect())
    }

    pub(crate) async fn parts(&self, cluster: &Cluster, shard: Shard) -> Result<Vec<PartRef>> {
        let listed = self.all(cluster, shard, PART).await?.into_iter();
        let parts = listed.map(|(id, (place, tier))| PartRef {
            part: PartId(id as u64),
            table: TableId(place as u32),
            tier,
        });
        Ok(parts.collect())
    }

    async fn all(&self, cluster: &Cluster, shard: Shard, kind: i8) -> Result<BTreeMap<i64, (i64, Tier)>> {
        type Stored = (i64, i64, i8, Option<i64>);
        let mut units = BTreeMap::new();
        let mut sizes: BTreeMap<(i8, i64), (Tier, u64)> = BTreeMap::new();
        let values = (i32::from(shard.0), kind);
        let visit = |(id, place, tier, bytes): Stored| {
            let tier = tier_of(tier)?;
            units.insert(id, (place, tier));
            let size = sizes.entry((kind, id)).or_insert((tier, 0));
            size.1 += bytes.unwrap_or(0) as u64;
            Ok(())
        };
        cluster
            .each_row(RequestKind::Read, &self.all, values, visit)
            .await?;
        let mut known = self.bytes.lock();
        for (unit, size) in sizes {
            // This process may have counted a write that is not stored yet.
            let known = known.entry(unit).or_insert(size);
            known.1 = known.1.max(size.1);
        }
        Ok(units)
    }
}

/// Row of a unit in the list.
struct Listing {
    shard: i32,
    kind: i8,
    id: i64,
    /// Group of a segment, table of a part.
    place: i64,
}

impl Listing {
    fn of(unit: Unit) -> Option<Self> {
        match unit {
            Unit::Segment(segment) => Some(Self {
                shard: i32::from(segment.segment.shard()),
                kind: SEGMENT,
                id: segment.segment.0 as i64,
                place: segment.group.0 as i64,
            }),
            Unit::Part(part) => Some(Self {
                shard: i32::from(part.part.shard()),
                kind: PART,
                id: part.part.0 as i64,
                place: i64::from(part.table.0),
            }),
            Unit::Space(_) => None,
        }
    }
}

fn tier_number(tier: Tier) -> i8 {
    match tier {
        Tier::Hot => 0,
        Tier::Cold | Tier::Archive => 1,
    }
}

fn tier_of(number: i8) -> Result<Tier> {
    match number {
        0 => Ok(Tier::Hot),
        1 => Ok(Tier::Cold),
        other => Err(unexpected("the list of units", format!("tier {other}"))),
    }
}
