//! Segments in fjall: one keyspace per group, in which each segment is a range of keys.
//!
//! A load is an ingestion: sorted rows are written to tables of 64 MiB, one table after the other, without memtable and
//! write-ahead log. Ingestions of one keyspace run one at a time. fjall's log is locked only while the end of the last
//! table is written. Commits to the same store wait for that time; commits to the other store do not wait. Freeing a
//! segment drops the tables that hold only rows of the segment, and deletes the segment's remaining rows in batches.
//! The next round of maintenance deletes the files of the tables. The group of a keyspace without rows is offered for
//! new segments.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use fjall::Keyspace;
use parking_lot::Mutex;
use tideline_backend::limits::check_row;
use tideline_backend::{BackendError, KeyRange, Partition, Result, Row, SegmentRef};
use tideline_model::{GroupId, SegmentId, Tier};

use crate::engine::Engine;
use crate::error::{During, from_fjall};
use crate::keys::{bounds, partition_prefix, prefixed, segment_bounds, segment_of};

/// Number of rows in a batch of deletes.
pub(crate) const RECLAIM_BATCH_ROWS: usize = 1_000;

/// Locks of groups: loads and reclaims of one group run one at a time.
#[derive(Debug, Default)]
pub(crate) struct GroupLocks {
    locks: Mutex<HashMap<GroupId, Arc<Mutex<()>>>>,
}

impl GroupLocks {
    /// Returns the lock of a group.
    pub(crate) fn of(&self, group: GroupId) -> Arc<Mutex<()>> {
        Arc::clone(self.locks.lock().entry(group).or_default())
    }
}

/// Failure of a load, by its effect on the store.
pub(crate) enum LoadError {
    /// The rows were invalid, or their source failed. The rows loaded before are in the store.
    Rows(BackendError),
    /// fjall failed. Tables that no version file names may remain until the store is opened again.
    Store(fjall::Error),
}

/// Loads one bucket of a segment into its group's keyspace. The rows are durable on return. The caller holds the
/// group's lock.
pub(crate) fn load(
    keyspace: &Keyspace,
    segment: SegmentRef,
    bucket: u16,
    rows: &mut dyn Iterator<Item = Result<Row>>,
) -> std::result::Result<(), LoadError> {
    let prefix = partition_prefix(Partition::segment(segment, bucket));
    let mut ingestion = keyspace.start_ingestion().map_err(LoadError::Store)?;
    let mut last: Option<Vec<u8>> = None;
    let mut failure = None;
    for row in rows {
        match row.and_then(|row| checked(row, &prefix, last.as_deref())) {
            Ok((key, value)) => {
                ingestion
                    .write(key.as_slice(), &*value)
                    .map_err(LoadError::Store)?;
                last = Some(key);
            }
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    // The ingestion is also finished after a failure: tables of a dropped ingestion would remain until the next open.
    ingestion.finish().map_err(LoadError::Store)?;
    failure.map_or(Ok(()), |error| Err(LoadError::Rows(error)))
}

/// Returns the complete key and the value of a row, and checks that the key is above the last key.
fn checked(row: Row, prefix: &[u8], last: Option<&[u8]>) -> Result<(Vec<u8>, Bytes)> {
    check_row(&row)?;
    let key = prefixed(prefix, &row.key);
    if last.is_some_and(|last| last >= key.as_slice()) {
        return Err(BackendError::Refused {
            reason: "the keys of a load must rise".to_owned(),
        });
    }
    Ok((key, row.value))
}

/// Removes the rows of a failed load from a group that has other segments. The caller holds the group's lock.
pub(crate) fn remove_bucket(
    engine: &Engine,
    keyspace: &Keyspace,
    segment: SegmentRef,
    bucket: u16,
) -> fjall::Result<()> {
    let prefix = partition_prefix(Partition::segment(segment, bucket));
    let range = bounds(&prefix, &KeyRange::ALL).expect("everything is not nothing");
    engine.remove_range(keyspace, &range, RECLAIM_BATCH_ROWS)
}

/// Removes everything from the keyspace of a group. The caller holds the group's lock.
pub(crate) fn remove_all(engine: &Engine, keyspace: &Keyspace) -> fjall::Result<()> {
    engine.remove_range(
        keyspace,
        &(Bound::Unbounded, Bound::Unbounded),
        RECLAIM_BATCH_ROWS,
    )
}

/// Frees a segment if its group has other segments. Otherwise returns true: the caller then empties the whole keyspace.
/// The caller holds the group's lock.
pub(crate) fn reclaim(engine: &Engine, keyspace: &Keyspace, segment: SegmentId) -> fjall::Result<bool> {
    let range = segment_bounds(segment);
    let before = (
        Bound::Unbounded,
        Bound::Excluded(segment.0.to_be_bytes().to_vec()),
    );
    let after = match &range.1 {
        Bound::Excluded(next) => Some((Bound::Included(next.clone()), Bound::Unbounded)),
        _ => None,
    };
    let mut others = [Some(before), after].into_iter().flatten();
    let is_shared = others.try_fold(false, |found, range| {
        Ok::<_, fjall::Error>(found || engine.first_key(keyspace, range)?.is_some())
    })?;
    if is_shared {
        engine.remove_range(keyspace, &range, RECLAIM_BATCH_ROWS)?;
    }
    Ok(!is_shared)
}

/// Returns every segment of a tier that holds rows, by group, then segment. Costs one seek per segment.
pub(crate) fn list(engine: &Engine, tier: Tier) -> Result<Vec<SegmentRef>> {
    let failed = |error| from_fjall(error, During::Read);
    let mut segments = Vec::new();
    for (group, keyspace) in engine.groups() {
        let mut start = Bound::Unbounded;
        while let Some(key) = engine
            .first_key(&keyspace, (start, Bound::Unbounded))
            .map_err(failed)?
        {
            let segment = segment_of(&key)
                .ok_or_else(|| BackendError::corrupt(format!("group {group} has a short key")))?;
            segments.push(SegmentRef { segment, group, tier });
            match segment_bounds(segment).1 {
                Bound::Excluded(next) => start = Bound::Included(next),
                _ => break,
            }
        }
    }
    segments.sort_unstable_by_key(|held| (held.group, held.segment));
    Ok(segments)
}
