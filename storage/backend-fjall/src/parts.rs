//! Parts in fjall: one keyspace for all parts of a tier, in which each part is a range of keys.
//!
//! Rows of parts are written like rows of key spaces, in batches that are counted as commits. A table may hold rows of
//! several parts. Freeing a part drops the tables that hold only its rows, and deletes its other rows in batches.

use std::ops::Bound;

use tideline_backend::{BackendError, PartRef, Result};

use crate::engine::Engine;
use crate::error::{During, from_fjall};
use crate::keys::{COMMITS, part_bounds, part_of};
use crate::segments::RECLAIM_BATCH_ROWS;

/// Removes every row of a part.
pub(crate) fn reclaim(engine: &Engine, part: PartRef) -> fjall::Result<()> {
    match engine.parts() {
        Some(keyspace) => engine.remove_range(&keyspace, &part_bounds(part), RECLAIM_BATCH_ROWS),
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
