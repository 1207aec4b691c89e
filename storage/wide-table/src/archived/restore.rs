//! Restoring of a part: its rows are read from the files and stored in the engine again.
//!
//! The rows of a restored part can be written. The part stores the time until which it stays restored. After this time,
//! it is archived again, into new files. The old files no longer belong to a part, and the removal of orphaned files
//! deletes them. Before the rows, the streamed values are stored again, as pieces with their former ids.

use std::ops::ControlFlow;
use std::sync::Arc;

use tideline_backend::{Direction, PartRef};
use tideline_log::fail_points::around;
use tideline_model::{KeyRange, TableId, Tier};

use crate::codec;
use crate::error::{Result, WideError};
use crate::flush::{PackedPart, PackedRows};
use crate::groups::Share;
use crate::moves::{GroupParts, MoveEnd, MoveProgress};
use crate::state::{Part, PartDetail};
use crate::store::WideStore;
use crate::tables::TableRules;

impl WideStore {
    /// Moves a part from the archive into the cold tier, where it stays until the time `until`, in nanoseconds since
    /// 1970-01-01T00:00:00Z. If the part is already restored, the later of both times applies. Calls `proceed` after
    /// each group of rows.
    ///
    /// # Errors
    ///
    /// [`WideError::NoArchive`] if the archive is switched off, [`WideError::Archive`] if a file cannot be read,
    /// [`WideError::LargeGone`] if the part has streamed values and the settings of the table have no id for large
    /// values, and the errors of the backend and of the log. The part is then still in the archive, or restored.
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
        let _restoring = self.begin_restore(&part);
        let mut progress = MoveProgress::default();
        if !self.restore_values(&part, &mut progress, proceed)? {
            return Ok(MoveEnd::Stopped);
        }
        let rules = self.rules(table)?;
        let part_of = |table| PartRef {
            part: self.log.next_part(),
            table,
            tier: Tier::Cold,
        };
        let to: Vec<PartRef> = std::iter::once(table)
            .chain(rules.groups.ids())
            .map(part_of)
            .collect();
        to.iter().for_each(|to| self.singles.begin(to.part));
        let restored = self.copy_archived(&part, (&rules, &to), &mut progress, proceed);
        let end = match restored {
            Ok(Some(rows)) => self
                .end_restore(&part, &to, &rows, until)
                .map(|is_moved| match is_moved {
                    true => MoveEnd::Moved(progress),
                    false => MoveEnd::Gone,
                }),
            Ok(None) => Ok(MoveEnd::Stopped),
            Err(error) => Err(error),
        };
        if matches!(end, Ok(MoveEnd::Gone | MoveEnd::Stopped)) {
            for to in to {
                self.singles.forget(to.part);
                self.log.backend().reclaim_part(to)?;
            }
        }
        end
    }

    /// Publishes the restored part, and the new parts of its column groups, in place of the archived part. The first
    /// element of `to` and of `rows` is for the part itself; the others are for the groups.
    fn end_restore(
        self: &Arc<Self>,
        archived: &Part,
        to: &[PartRef],
        rows: &[PackedRows],
        until: i64,
    ) -> Result<bool> {
        let change = |detail: &mut PartDetail| {
            detail.set_restored(until);
            detail.fragments = rows[0].has_fragments;
            // The database that archived the part may have had other column groups, so the recorded sizes may be too
            // small.
            detail.row_bytes_max = detail.row_bytes_max.max(rows[0].bytes_max as u64);
            detail.note_column(rows[0].bytes_max);
            if rows[0].has_replaced_dictionaries {
                detail.set_replaced_dictionaries();
            }
        };
        let of_groups = std::iter::zip(to, rows).skip(1);
        let of_groups = of_groups
            .filter(|(_, rows)| rows.bytes_max > 0)
            .map(|(at, rows)| {
                let mut detail = PartDetail::new(at.table, archived.detail.number, at.tier);
                detail.fragments = rows.has_fragments;
                detail.row_bytes_max = rows.bytes_max as u64;
                detail.column_bytes_max = None;
                self.versions.record(&mut detail);
                if rows.has_replaced_dictionaries {
                    detail.set_replaced_dictionaries();
                }
                Part { at: *at, detail }
            });
        let of_groups: Vec<Part> = of_groups.collect();
        let groups = (archived.number(), GroupParts::Add(&of_groups));
        self.put_instead(groups, (archived.at, to[0]), &mut |_| Ok(true), &change)
    }

    /// Writes the rows of an archived part into a new part, and the columns of groups into further new parts. Returns
    /// the sizes of the rows of each new part; `None` if the caller stopped the work.
    fn copy_archived(
        &self,
        part: &Part,
        (rules, to): (&TableRules, &[PartRef]),
        progress: &mut MoveProgress,
        proceed: &mut dyn FnMut(&MoveProgress) -> ControlFlow<()>,
    ) -> Result<Option<Vec<PackedRows>>> {
        let groups = (0..).map(Share::Group);
        let shares = std::iter::once(Share::Main).chain(groups);
        let mut shares: Vec<(Share, PackedPart<'_>)> = shares
            .zip(to)
            .map(|(share, to)| (share, PackedPart::new(self, *to, (rules, share))))
            .collect();
        let mut rest = Some(KeyRange::ALL);
        while let Some(range) = rest {
            let Some(group) = self.next_group(part, &range, Direction::Ascending)? else {
                break;
            };
            for (key, row) in self.rows_of_group(part, &group)?.iter() {
                progress.values += 1;
                progress.bytes += (key.len() + row.len()) as u64;
                debug_assert!(!codec::is_head(row));
                for (share, packed) in &mut shares {
                    let table = part.at.table;
                    let cut = rules.groups.cut(row, *share);
                    let cut = cut.map_err(|reason| WideError::Damaged { table, reason })?;
                    if let Some(cut) = cut.filter(|cut| !codec::is_delete(cut)) {
                        packed.push(key.clone(), cut)?;
                    }
                }
            }
            if proceed(progress).is_break() {
                return Ok(None);
            }
            rest = range.above(&group.key);
        }
        let finish = |(_, packed): (Share, PackedPart<'_>)| packed.finish();
        let rows = around("wide_restore", "rows", || {
            shares.into_iter().map(finish).collect()
        });
        rows.map(Some)
    }
}
