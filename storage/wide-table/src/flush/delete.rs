//! Deletion of the stored rows of a range: single rows, packed rows, and fragments.

use tideline_backend::{Direction, PageLimit, RowChange, WRITE_BYTES_MAX, WRITE_ROWS_MAX};
use tideline_model::KeyRange;

use super::TableFlush;
use super::packer::size;
use crate::codec;
use crate::error::Result;

impl TableFlush<'_> {
    /// Deletes the stored rows of a range and their fragments. Takes time linear in the number of these rows.
    pub(super) fn delete_range(&mut self, range: &KeyRange) -> Result<()> {
        if self.part.detail.has_fragments() {
            // This also deletes fragments whose heads an interrupted flush has already deleted.
            self.store.delete_fragments_in(self.part.at, range)?;
        }
        let limit = PageLimit {
            rows_max: WRITE_ROWS_MAX,
            bytes_max: WRITE_BYTES_MAX / 2,
        };
        let mut rest = Some(range.clone());
        while let Some(range) = rest {
            let page = self.singles(&range, limit)?;
            for row in page.rows {
                if codec::is_head(&row.value) {
                    self.store.delete_fragments(self.part.at, &row.key, None)?;
                }
                self.writer.put_single(row.key, None)?;
            }
            self.writer.write_singles()?;
            rest = page.next;
        }
        if self.part.detail.has_blocks() {
            self.delete_packed(range)?;
        }
        Ok(())
    }

    /// Deletes the packed rows of a range.
    fn delete_packed(&mut self, range: &KeyRange) -> Result<()> {
        let table = self.part.at.table;
        let limit = PageLimit {
            rows_max: WRITE_ROWS_MAX,
            bytes_max: WRITE_BYTES_MAX / 2,
        };
        let mut rest = Some(KeyRange {
            start: range.start.clone(),
            end: None,
        });
        while let Some(from) = rest {
            let page = self.blocks().scan(&from, Direction::Ascending, limit);
            let page = page.map_err(|error| error.of(table))?;
            let mut changes = Vec::new();
            let mut is_over = false;
            for block in page.rows {
                let opened = self.open(&block)?;
                is_over = !range.contains(&block.key);
                if range.contains(opened.first) && range.contains(&block.key) {
                    changes.push(RowChange {
                        key: block.key.clone(),
                        value: None,
                    });
                } else {
                    let mut rows = opened.all_rows().map_err(|reason| self.damaged(reason))?;
                    rows.retain(|(key, _)| !range.contains(key));
                    if rows.len() < opened.rows {
                        let value = self.packer.block(&rows)?;
                        self.note_small(&block.key, rows.iter().map(size).sum());
                        changes.push(RowChange {
                            key: block.key.clone(),
                            value,
                        });
                    }
                }
                if is_over {
                    break;
                }
            }
            self.writer.put_blocks_now(&changes)?;
            rest = page.next.filter(|_| !is_over);
        }
        Ok(())
    }
}
