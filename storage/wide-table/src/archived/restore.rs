//! Restoring of a part: its rows are read from the files and stored again.
//!
//! The rows of a restored part can be written. A time until which it stays restored is stored with it; then it is archived
//! again, into new files. The old files have no part any more, and are removed with the other orphans.

use std::ops::ControlFlow;
use std::sync::Arc;

use tideline_backend::{Direction, PartRef};
use tideline_log::fail_points::around;
use tideline_model::{KeyRange, TableId, Tier};

use crate::codec;
use crate::error::Result;
use crate::flush::PackedPart;
use crate::moves::{MoveEnd, MoveProgress};
use crate::state::{Part, PartDetail};
use crate::store::WideStore;

impl WideStore {
    /// Moves a part from the archive into the cold tier, where it stays until a time, in nanoseconds since
    /// 1970-01-01T00:00:00Z. A part that is restored already stays longer, if this time is later. Calls `proceed` after
    /// each group of rows.
    ///
    /// # Errors
    ///
    /// [`WideError::NoArchive`] if the archive is switched off, [`WideError::Archive`] if a file cannot be read, and the errors
    /// of the backend and of the log. The part is then still in the archive, or restored.
    pub fn restore_part(
        self: &Arc<Self>,
        table: TableId,
        number: i32,
        until: i64,
        proceed: &mut dyn FnMut(&MoveProgress) -> ControlFlow<()>,
    ) -> Result<MoveEnd> {
        let Some(part) = self.state().parts.get(&(table, number)).copied() else {
            return Ok(MoveEnd::Gone);
        };
        if !part.is_archived() {
            self.hold_part(table, number, until)?;
            return Ok(MoveEnd::Gone);
        }
        let to = PartRef {
            part: self.log.next_part(),
            table,
            tier: Tier::Cold,
        };
        let mut progress = MoveProgress::default();
        let restored = self.copy_archived(&part, to, &mut progress, proceed);
        let end = match restored {
            Ok(Some(has_fragments)) => {
                let change = |detail: &mut PartDetail| {
                    detail.set_restored(until);
                    detail.fragments = has_fragments;
                };
                self.put_instead(number, (part.at, to), &mut |_| Ok(true), &change)
                    .map(|is_moved| match is_moved {
                        true => MoveEnd::Moved(progress),
                        false => MoveEnd::Gone,
                    })
            }
            Ok(None) => Ok(MoveEnd::Stopped),
            Err(error) => Err(error),
        };
        if matches!(end, Ok(MoveEnd::Gone | MoveEnd::Stopped)) {
            self.log.backend().reclaim_part(to)?;
        }
        end
    }

    /// Writes the rows of an archived part into a new part. Returns whether some of them are stored in fragments; `None` if
    /// the caller ended the work.
    fn copy_archived(
        &self,
        part: &Part,
        to: PartRef,
        progress: &mut MoveProgress,
        proceed: &mut dyn FnMut(&MoveProgress) -> ControlFlow<()>,
    ) -> Result<Option<bool>> {
        let mut packed = PackedPart::new(self, to);
        let mut rest = Some(KeyRange::ALL);
        while let Some(range) = rest {
            let Some(group) = self.next_group(part, &range, Direction::Ascending)? else {
                break;
            };
            for (key, row) in self.rows_of_group(part, &group)?.iter() {
                progress.values += 1;
                progress.bytes += (key.len() + row.len()) as u64;
                debug_assert!(!codec::is_head(row));
                packed.push(key.clone(), row.clone())?;
            }
            if proceed(progress).is_break() {
                return Ok(None);
            }
            rest = range.above(&group.key);
        }
        let has_fragments = around("wide_restore", "rows", || packed.finish())?;
        Ok(Some(has_fragments))
    }
}
