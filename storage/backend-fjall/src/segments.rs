//! Segments in fjall: a keyspace for each group, in which each segment is a range of keys.
//!
//! A load is an ingestion: sorted rows become tables at once, past memtable and write-ahead log. Ingestions of one
//! keyspace take turns. When no row of a group is left its keyspace is dropped whole, else the segment's own tables
//! are, which is nearly always everything it has.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use fjall::Keyspace;
use parking_lot::Mutex;
use tideline_backend::limits::check_row;
use tideline_backend::{BackendError, Partition, Result, Row, SegmentRef};
use tideline_model::{GroupId, SegmentId, Tier};

use crate::engine::Engine;
use crate::error::{During, from_fjall};
use crate::keys::{partition_prefix, prefixed, segment_bounds, segment_of};

/// Rows of one batch of deletes.
const RECLAIM_BATCH_ROWS: usize = 1_000;

/// One lock for each group: loads and reclaims of it take turns.
#[derive(Debug, Default)]
pub(crate) struct GroupLocks {
    locks: Mutex<HashMap<GroupId, Arc<Mutex<()>>>>,
}

impl GroupLocks {
    /// The lock of a group.
    pub(crate) fn of(&self, group: GroupId) -> Arc<Mutex<()>> {
        Arc::clone(self.locks.lock().entry(group).or_default())
    }
}

/// Whether a failure may have left the store changed.
pub(crate) enum LoadError {
    /// The rows were wrong, or their source failed.
    Rows(BackendError),
    /// fjall failed.
    Store(fjall::Error),
}

/// Loads one bucket of a segment into its group's keyspace. The caller holds the group's lock. Returns the number of
/// rows.
pub(crate) fn load(
    keyspace: &Keyspace,
    segment: SegmentRef,
    bucket: u16,
    rows: &mut dyn Iterator<Item = Result<Row>>,
) -> std::result::Result<u64, LoadError> {
    let prefix = partition_prefix(Partition::segment(segment, bucket));
    let mut ingestion = keyspace.start_ingestion().map_err(LoadError::Store)?;
    let mut last: Option<Vec<u8>> = None;
    let mut count = 0;
    for row in rows {
        let row = row.map_err(LoadError::Rows)?;
        check_row(&row).map_err(LoadError::Rows)?;
        let key = prefixed(&prefix, &row.key);
        if last.as_ref().is_some_and(|last| *last >= key) {
            return Err(LoadError::Rows(BackendError::Refused {
                reason: "the keys of a load must rise".to_owned(),
            }));
        }
        ingestion
            .write(key.as_slice(), &*row.value)
            .map_err(LoadError::Store)?;
        last = Some(key);
        count += 1;
    }
    ingestion.finish().map_err(LoadError::Store)?;
    Ok(count)
}

/// Frees a segment. The caller holds the group's lock. Returns whether the group's keyspace was emptied and is to
/// be dropped.
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

/// Every segment that holds rows, by group, then segment. One seek each.
pub(crate) fn list(engine: &Engine) -> Result<Vec<SegmentRef>> {
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
            segments.push(SegmentRef {
                segment,
                group,
                tier: Tier::Hot,
            });
            match segment_bounds(segment).1 {
                Bound::Excluded(next) => start = Bound::Included(next),
                _ => break,
            }
        }
    }
    segments.sort_unstable_by_key(|held| (held.group, held.segment));
    Ok(segments)
}
