//! Parts in fjall: one keyspace for all parts of a tier, in which each part is a range of keys.
//!
//! Rows of parts are written like rows of key spaces, in batches that are counted as commits. In the hot store, many
//! sorted rows are written by an ingestion instead: into separate tables, without memtable and write-ahead log. These
//! rows are durable when the ingestion ends. After compactions, a table may hold rows of several parts. Freeing a part
//! drops the tables that hold only rows of this part, and deletes the other rows of the part in batches.

use std::ops::Bound;

use tideline_backend::{BackendError, KeyRange, PartRef, Partition, Result, RowChange};

use crate::engine::Engine;
use crate::error::{During, from_fjall};
use crate::keys::{COMMITS, bounds, part_bounds, part_of, partition_prefix, prefixed};
use crate::segments::RECLAIM_BATCH_ROWS;

/// Writes sorted changes to a bucket of a part. All of them become visible and durable together.
pub(crate) fn load(engine: &Engine, partition: Partition, groups: &[Vec<RowChange>]) -> fjall::Result<()> {
    let Some(keyspace) = engine.parts() else {
        return Ok(());
    };
    let prefix = partition_prefix(partition);
    let mut ingestion = keyspace.start_ingestion()?;
    for change in groups.iter().flatten() {
        let key = prefixed(&prefix, &change.key);
        match &change.value {
            Some(value) => ingestion.write(key, &**value)?,
            None => ingestion.write_tombstone(key)?,
        }
    }
    ingestion.finish()
}

/// Removes every row of a part.
pub(crate) fn reclaim(engine: &Engine, part: PartRef) -> fjall::Result<()> {
    match engine.parts() {
        Some(keyspace) => engine.remove_range(&keyspace, &part_bounds(part), RECLAIM_BATCH_ROWS),
        None => Ok(()),
    }
}

/// Removes every row of a key range in one bucket of a part.
pub(crate) fn remove(engine: &Engine, partition: Partition, range: &KeyRange) -> fjall::Result<()> {
    let bounds = bounds(&partition_prefix(partition), range);
    match engine.parts().zip(bounds) {
        Some((keyspace, bounds)) => engine.remove_range(&keyspace, &bounds, RECLAIM_BATCH_ROWS),
        None => Ok(()),
    }
}

/// Returns every part that holds rows, in the order of keys. Costs one seek per part.
pub(crate) fn list(engine: &Engine) -> Result<Vec<PartRef>> {
    let mut parts = Vec::new();
    let Some(keyspace) = engine.parts() else {
        return Ok(parts);
    };
    let mut start = Bound::Unbounded;
    loop {
        let key = engine
            .first_key(&keyspace, (start, Bound::Unbounded))
            .map_err(|error| from_fjall(error, During::Read))?;
        let Some(key) = key else {
            return Ok(parts);
        };
        if &*key == COMMITS {
            start = Bound::Excluded(COMMITS.to_vec());
            continue;
        }
        let part = part_of(&key, engine.tier())
            .ok_or_else(|| BackendError::corrupt("the keyspace of parts has a short key"))?;
        parts.push(part);
        match part_bounds(part).1 {
            Bound::Excluded(next) => start = Bound::Included(next),
            _ => return Ok(parts),
        }
    }
}
