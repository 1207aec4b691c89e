//! Removal of the expired rows and cells of a wide table, in pages.
//!
//! Expired data is hidden from reads immediately. The removal frees its bytes some time later, so that a wrong clock or
//! a mistake in the settings can be corrected in between.

use std::ops::ControlFlow;

use tideline_log::fail_points::around;
use tideline_model::TableId;
use tideline_wide_table::WideError;

use crate::engine::Engine;
use crate::error::Result;

/// Work of a removal so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemovalProgress {
    /// Number of rows that were read.
    pub rows: u64,
    /// Bytes of these rows.
    pub bytes_read: u64,
    /// Number of rows that were removed, or of which cells were removed.
    pub removed: u64,
}

impl Engine {
    /// Removes rows and cells that expired at least [`Settings::purge_delay`](crate::engine::Settings::purge_delay)
    /// ago. Calls `proceed` after each page of rows except the last. Returns `None` if `proceed` has ended the removal;
    /// a repeated removal begins at the start of the table.
    ///
    /// # Errors
    ///
    /// Returns an error if rows cannot be read or written. A table that does not exist is not an error.
    pub fn remove_expired_rows(
        &self,
        table: TableId,
        proceed: &mut dyn FnMut(&RemovalProgress) -> ControlFlow<()>,
    ) -> Result<Option<RemovalProgress>> {
        let delay = i64::try_from(self.settings.purge_delay.as_nanos()).unwrap_or(i64::MAX);
        let mut progress = RemovalProgress::default();
        let mut from = Vec::new();
        loop {
            let step = around("row_expire", "page", || {
                self.rows
                    .remove_expired(self.store.threads(), table, &from, delay)
            });
            let step = match step {
                Err(WideError::NoTable(_)) => return Ok(Some(progress)),
                step => step?,
            };
            progress.rows += step.rows;
            progress.bytes_read += step.bytes_read;
            progress.removed += step.removed;
            let Some(next) = step.next else {
                return Ok(Some(progress));
            };
            from = next.into();
            if proceed(&progress).is_break() {
                return Ok(None);
            }
        }
    }
}
