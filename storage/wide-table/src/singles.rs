//! Parts without single rows, so that reads of these parts read only their blocks.
//!
//! A part without single rows is common: a bulk write fills whole blocks. Whether a part has single rows is not stored.
//! A new part has none. The first write of a single row removes the part from the set, *before* the row is written, and
//! the part never returns to the set. Parts that existed at the start of the process are not in the set.
//!
//! A reader may find a part in the set although a single row is written immediately afterwards. Such a row comes from a
//! flush that was not published when the reader took its [`State`](crate::state::State). Either the reader overlays the
//! generation of the flush, or it reads again, because the generation was frozen during the read. The result is
//! therefore the same as if the reader had read the single rows just before the write.

use hashbrown::HashSet;
use parking_lot::RwLock;
use tideline_backend::RowChange;
use tideline_model::PartId;

use crate::read::ROWS_BUCKET;

/// Parts that certainly have no single rows.
#[derive(Debug, Default)]
pub(crate) struct AbsentSingles(RwLock<HashSet<PartId>>);

impl AbsentSingles {
    /// Adds a new part. Nothing was written to the part yet, and its id was never used before.
    pub(crate) fn begin(&self, part: PartId) {
        self.0.write().insert(part);
    }

    /// Removes a part if one of the changes of a bucket puts a single row. Called before the changes are written.
    pub(crate) fn note<'c>(
        &self,
        part: PartId,
        bucket: u16,
        mut changes: impl Iterator<Item = &'c RowChange>,
    ) {
        let is_put = bucket == ROWS_BUCKET && changes.any(|change| change.value.is_some());
        if is_put && self.has_none(part) {
            self.0.write().remove(&part);
        }
    }

    /// Removes a part that is freed.
    pub(crate) fn forget(&self, part: PartId) {
        self.0.write().remove(&part);
    }

    /// Returns true if the part certainly has no single row.
    pub(crate) fn has_none(&self, part: PartId) -> bool {
        self.0.read().contains(&part)
    }
}
