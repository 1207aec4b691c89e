//! Reads of the first rows of a part: its single rows, its packed rows, and the columns of its groups.
//!
//! A row can move from the single rows into a block while both are read. The order of the reads, and a check after them,
//! ensure that no row is missed.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use tideline_backend::{Direction, PageLimit, Partition};
use tideline_model::KeyRange;

use super::ROWS_BUCKET;
use super::merge::Source;
use super::page::Wanted;
use crate::buffer::Mutations;
use crate::cold;
use crate::error::Result;
use crate::groups::GroupSet;
use crate::state::{Part, State};
use crate::store::WideStore;
use crate::tables::TableRules;

impl WideStore {
    /// Reads the first rows of a range of a part, and then the columns of these rows in the groups of `set`. Returns
    /// the sources, each with its part.
    ///
    /// The groups are read only up to the last row that was read from the part itself. Many rows may have no columns in
    /// a group, so the next row of the group could be far after this row.
    pub(super) fn row_sources(
        &self,
        state: &State,
        rules: &TableRules,
        part: &Part,
        set: GroupSet,
        (range, direction, limit): Wanted<'_>,
    ) -> Result<Vec<(Part, Source)>> {
        let main = self.part_sources(part, range, direction, limit)?;
        let ends = main.iter().filter_map(|source| source.more_after.clone());
        let last = match direction {
            Direction::Ascending => ends.min(),
            Direction::Descending => ends.max(),
        };
        let mut sources: Vec<(Part, Source)> = main.into_iter().map(|source| (*part, source)).collect();
        let within = match &last {
            Some(last) => up_to(range, last, direction),
            None => range.clone(),
        };
        for (group, of_group) in state.group_parts(rules, part, set) {
            for mut source in self.part_sources(of_group, &within, direction, limit)? {
                source.group = Some(group);
                source.more_after = source.more_after.or_else(|| last.clone());
                sources.push((*of_group, source));
            }
        }
        Ok(sources)
    }

    /// Reads the first single rows of a range of a part, and its first packed rows. Returns the source of the single
    /// rows, and then the source of the packed rows if the part has blocks.
    ///
    /// Single rows are read only up to the last packed row of the page. Single rows beyond it are not needed, and if
    /// many of them were packed recently, the engine would have to read the remains of their deletes. A row that moves
    /// into a block between the two reads could be missed. If single rows were packed meanwhile, both are therefore
    /// read again, the single rows first.
    ///
    /// The single rows of a part without single rows are not read.
    pub(super) fn part_sources(
        &self,
        part: &Part,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<Vec<Source>> {
        if self.singles.has_none(part.at.part) && !part.is_archived() {
            let mut sources = vec![Source::default()];
            if part.detail.has_blocks() {
                sources.push(self.part_source(part, true, range, direction, limit)?);
            }
            return Ok(sources);
        }
        if part.detail.has_blocks() {
            let packings = self.packings.load(Ordering::Acquire);
            let packed = self.part_source(part, true, range, direction, limit)?;
            let singles = match &packed.more_after {
                None => self.part_source(part, false, range, direction, limit)?,
                Some(last) => {
                    let before = up_to(range, last, direction);
                    let mut singles = self.part_source(part, false, &before, direction, limit)?;
                    singles.more_after.get_or_insert_with(|| last.clone());
                    singles
                }
            };
            if self.packings.load(Ordering::Acquire) == packings {
                return Ok(vec![singles, packed]);
            }
        }
        let mut sources = vec![self.part_source(part, false, range, direction, limit)?];
        if part.detail.has_blocks() {
            sources.push(self.part_source(part, true, range, direction, limit)?);
        }
        Ok(sources)
    }

    /// Reads the first single or packed rows of a range of a part.
    fn part_source(
        &self,
        part: &Part,
        is_packed: bool,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<Source> {
        let source = if part.is_archived() {
            Source::of_blocks(self.archived_page(part, range, direction, limit)?)
        } else if is_packed {
            let packed = self.blocks(part.at).page(range, direction, limit);
            Source::of_blocks(packed.map_err(|error| error.of(part.at.table))?)
        } else {
            let (backend, rows) = (self.log.backend(), Partition::part(part.at, ROWS_BUCKET));
            self.single_source(part, backend.scan(rows, range, direction, limit)?, limit)?
        };
        cold::count(part, || source.bytes());
        Ok(source)
    }

    /// Converts a page of single rows into a merge source, with the fragments of large rows joined. The source ends
    /// after the first row that makes the joined rows exceed `limit.bytes_max`.
    fn single_source(&self, part: &Part, page: tideline_backend::Page, limit: PageLimit) -> Result<Source> {
        let mut rows = VecDeque::with_capacity(page.rows.len());
        let (mut more_after, mut bytes) = (None, 0);
        let has_more = page.next.is_some();
        let mut stored = page.rows.into_iter().peekable();
        while let Some(row) = stored.next() {
            if stored.peek().is_none() && has_more {
                more_after = Some(row.key.clone());
            }
            let Some(value) = self.joined(part, &row.key, row.value)? else {
                continue;
            };
            bytes += row.key.len() + value.len();
            rows.push_back((row.key.clone(), Mutations::from_buf([value])));
            if bytes > limit.bytes_max && stored.peek().is_some() {
                more_after = Some(row.key);
                break;
            }
        }
        Ok(Source {
            rows,
            more_after,
            ..Source::default()
        })
    }
}

/// Returns the beginning of a range in scan order up to a key, inclusive.
fn up_to(range: &KeyRange, last: &[u8], direction: Direction) -> KeyRange {
    match direction {
        Direction::Ascending => KeyRange {
            start: range.start.clone(),
            end: Some([last, &[0][..]].concat()),
        },
        Direction::Descending => KeyRange {
            start: last.to_vec(),
            end: range.end.clone(),
        },
    }
}
