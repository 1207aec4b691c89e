//! Packing of key ranges in which deletes and updates have left many single rows and delete markers.
//!
//! A flush merges single rows into a block only if they are many compared with the block. Deletes that are spread over
//! many blocks therefore leave delete markers, and every scan of the range reads them. A survey finds such ranges.
//! Packing removes the markers, and the rows that they hide.

use tideline_model::{KeyRange, TableId};

use crate::error::Result;
use crate::flush::TableFlush;
use crate::groups::Share;
use crate::store::WideStore;

/// Result of one step of a packing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackStep {
    /// Number of single rows that were packed.
    pub rows: u64,
    /// Number of delete markers that were removed.
    pub markers: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Key at which the next step begins; `None` at the end of the range.
    pub next: Option<Vec<u8>>,
}

impl WideStore {
    /// Packs the first single rows of a key range of a part into their blocks. Flushes wait during the step, for some
    /// tens of milliseconds. Reads and writes do not wait. Does nothing if the part does not exist, or if it is closed,
    /// because it is then being archived.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`](crate::WideError::NoTable) if the table or index does not exist,
    /// [`WideError::Damaged`](crate::WideError::Damaged) if stored bytes are damaged, and the errors of the backend and
    /// of the log.
    pub fn pack_range(&self, table: TableId, part: i32, range: &KeyRange) -> Result<PackStep> {
        let rules = self.rules(table)?;
        self.log.check_lease()?;
        self.log.check_not_read_only()?;
        let _alone = self.part_writes.lock();
        let state = self.state();
        let found = state.parts.get(&(table, part)).copied();
        let Some(found) =
            found.filter(|found| rules.keeps(part) && !found.is_closed() && found.detail.has_blocks())
        else {
            return Ok(PackStep::default());
        };
        let mut stale = Vec::new();
        TableFlush::new(self, found, (&rules, Share::Main), &mut stale).pack(range)
    }
}
