//! Pages of rows in key order.
//!
//! A page is merged from the first rows of the buffers and parts of one state. If a table has several parts, most of them
//! have few rows of the page or none, so only a few rows of each part are read at first, and more while the merge needs
//! them.

use bytes::Bytes;
use tideline_backend::{Direction, PageLimit};
use tideline_model::{KeyRange, TableId, TierScope};

use super::merge::{Feed, Merge, Source};
use super::{RowPage, Scope, StoredRow};
use crate::division::{ALL_PARTS, PartNumbers, PartSelection, WHOLE};
use crate::error::{Result, WideError};
use crate::groups::GroupSet;
use crate::state::{Part, State};
use crate::store::WideStore;
use crate::tables::TableRules;

/// Number and bytes of the rows that are read first from each of several parts, and the factor by which each further
/// read is larger.
const FIRST_ROWS: usize = 16;
const FIRST_BYTES: usize = 16 << 10;
const FEED_GROWTH: usize = 4;

/// Range, direction and limit of a page.
pub(crate) type Wanted<'r> = (&'r KeyRange, Direction, PageLimit);

impl WideStore {
    /// Returns a page of rows of a range in scan order, from all visible parts. The page has at most `limit.rows_max`
    /// rows, and ends after the first row that makes it exceed `limit.bytes_max`. If all rows that were read are
    /// deleted, the page is empty; more rows may follow.
    ///
    /// # Errors
    ///
    /// The errors of [`row`](Self::row).
    pub fn page(
        &self,
        table: TableId,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<RowPage> {
        self.page_of_parts(table, &PartSelection::default(), range, direction, limit)
    }

    /// Returns a page of rows like [`page`](Self::page), but only from the visible parts of a selection. Parts outside
    /// of the selection are not read.
    ///
    /// # Errors
    ///
    /// The errors of [`row`](Self::row), and [`WideError::TierNotCovered`] if the read of an index concerns a part for
    /// which the index has no entries.
    pub fn page_of_parts(
        &self,
        table: TableId,
        parts: &PartSelection,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<RowPage> {
        self.page_of_groups(table, (parts, GroupSet::ALL), range, direction, limit)
    }

    /// Returns a page of rows like [`page_of_parts`](Self::page_of_parts), but only the columns of the given groups are
    /// complete: columns of other groups may be missing.
    ///
    /// # Errors
    ///
    /// The errors of [`page_of_parts`](Self::page_of_parts).
    pub fn page_of_groups(
        &self,
        table: TableId,
        (parts, set): (&PartSelection, GroupSet),
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<RowPage> {
        let rules = self.rules(table)?;
        let visible = self.visible_parts(&rules);
        let numbers = &parts.numbers;
        let numbers = *visible.start().max(numbers.start())..=*visible.end().min(numbers.end());
        let scope = Scope::Tier(parts.tier);
        self.unexpired_page(table, &rules, (&numbers, scope, set), (range, direction, limit))
    }

    /// Returns a page like [`page`](Self::page), but also with the rows of hidden parts, and with expired rows and
    /// columns. The build of an index and deletes of ranges read these rows, because they become visible again if the
    /// table is set to keep parts longer, or if its time-to-live is extended.
    ///
    /// # Errors
    ///
    /// The errors of [`row`](Self::row).
    pub fn page_with_hidden(
        &self,
        table: TableId,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<RowPage> {
        self.page_with_hidden_of(table, &ALL_PARTS, range, direction, limit)
    }

    /// Returns a page like [`page_with_hidden`](Self::page_with_hidden), but only from the parts with these numbers.
    ///
    /// # Errors
    ///
    /// The errors of [`row`](Self::row).
    pub fn page_with_hidden_of(
        &self,
        table: TableId,
        numbers: &PartNumbers,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<RowPage> {
        let rules = self.rules(table)?;
        self.stored_page(table, &rules, numbers, Scope::All, (range, direction, limit))
    }

    /// Returns a page like [`page_with_hidden`](Self::page_with_hidden) in ascending order, but only from the parts that
    /// a search index with this scope covers, and from the parts that are about to move to a tier that it covers. The
    /// build of the index needs no other parts: if a part is marked for a move later, the move builds its documents.
    ///
    /// # Errors
    ///
    /// The errors of [`row`](Self::row).
    pub fn page_to_index(
        &self,
        table: TableId,
        tier: TierScope,
        range: &KeyRange,
        limit: PageLimit,
    ) -> Result<RowPage> {
        let rules = self.rules(table)?;
        let wanted = (range, Direction::Ascending, limit);
        self.stored_page(table, &rules, &ALL_PARTS, Scope::Indexed(tier), wanted)
    }

    fn unexpired_page(
        &self,
        table: TableId,
        rules: &TableRules,
        (parts, scope, set): (&PartNumbers, Scope, GroupSet),
        wanted: Wanted<'_>,
    ) -> Result<RowPage> {
        let expiry = self.expiry(rules);
        let page = self.stored_page_of(table, rules, parts, (scope, set), wanted)?;
        if rules.ttl.is_none() {
            return Ok(page);
        }
        let mut rows = Vec::with_capacity(page.rows.len());
        for row in page.rows {
            let row = expiry.visible_stored(row);
            rows.extend(row.map_err(|reason| WideError::Damaged { table, reason })?);
        }
        Ok(RowPage { rows, ..page })
    }

    /// Returns a page of the parts with these numbers, without dropped parts. The page includes rows that have expired.
    pub(crate) fn stored_page(
        &self,
        table: TableId,
        rules: &TableRules,
        parts: &PartNumbers,
        scope: Scope,
        wanted: Wanted<'_>,
    ) -> Result<RowPage> {
        self.stored_page_of(table, rules, parts, (scope, GroupSet::ALL), wanted)
    }

    /// Returns a page like [`stored_page`](Self::stored_page). Columns of groups that are not in `set` may be missing.
    fn stored_page_of(
        &self,
        table: TableId,
        rules: &TableRules,
        parts: &PartNumbers,
        (scope, set): (Scope, GroupSet),
        wanted: Wanted<'_>,
    ) -> Result<RowPage> {
        let (range, direction, limit) = wanted;
        let numbers = rules.kept_parts(range, parts);
        self.log.check_lease()?;
        let merge = loop {
            let state = self.state();
            if let Scope::Tier(tier) = scope {
                self.check_covered(&state, rules, &numbers, tier)?;
            }
            let merge = self.merged(&state, table, rules, (&numbers, scope, set), wanted)?;
            if !self.must_read_again(&state) {
                break merge;
            }
        };
        // If the lease has ended meanwhile, a newer owner may have freed a part before it was read.
        self.log.check_lease()?;
        let mut last = merge.horizon();
        let Merge {
            mut rows, scanned, ..
        } = merge;
        if let Some(end) = end_of_page(&rows, limit) {
            rows.truncate(end);
            last = rows.last().map(|row| row.key.clone());
        }
        Ok(RowPage {
            rows,
            scanned,
            next: last.and_then(|last| rest_of(range, &last, direction)),
        })
    }

    /// Merges the first rows of a range from the buffers and parts of one state.
    fn merged(
        &self,
        state: &State,
        table: TableId,
        rules: &TableRules,
        (numbers, scope, set): (&PartNumbers, Scope, GroupSet),
        (range, direction, limit): Wanted<'_>,
    ) -> Result<Merge> {
        let damaged = |reason| WideError::Damaged { table, reason };
        let is_read = |number: i32| match scope {
            Scope::All | Scope::Open => true,
            Scope::Tier(tier) => rules.is_read(state, (table, number), tier),
            Scope::Indexed(tier) => rules.division.is_none() || state.maintains(table, number, tier),
        };
        let buffers = state.buffers(table);
        let mut sources = Vec::with_capacity(buffers.len() + 2);
        for buffer in buffers {
            let rows = buffer.page(range, direction, limit.rows_max);
            let mut source = Source::of_buffer(buffer, rows, limit.rows_max);
            if rules.division.is_some() || !is_read(WHOLE) {
                let is_in = |key: &[u8]| {
                    let number = rules.part_of(key);
                    number.is_ok_and(|number| numbers.contains(&number) && is_read(number))
                };
                source.rows.retain(|(key, _)| is_in(key));
            }
            sources.push(source);
        }
        let parts = state.parts_of(table, numbers.clone());
        let is_open = |part: &Part| scope != Scope::Open || !part.is_closed();
        let parts: Vec<&Part> = parts
            .filter(|part| is_open(part) && is_read(part.number()))
            .collect();
        // If there are several parts, most of them have few rows of the page or none, so only their first rows are read
        // at first.
        let first = match parts.len() {
            0 | 1 => limit,
            _ => PageLimit {
                rows_max: limit.rows_max.min(FIRST_ROWS),
                bytes_max: limit.bytes_max.min(FIRST_BYTES),
            },
        };
        for part in &parts {
            let found = self.row_sources(state, rules, part, set, (range, direction, first))?;
            for (of, mut source) in found {
                source.feed = (parts.len() > 1).then_some(Feed {
                    part: of,
                    limit: first,
                });
                sources.push(source);
            }
        }
        let mut merge = Merge {
            sources,
            direction,
            versions_max: rules.versions_max,
            limit: (parts.len() > 1).then_some(limit),
            rows: Vec::new(),
            bytes: 0,
            scanned: 0,
        };
        loop {
            merge.run().map_err(damaged)?;
            let Some(horizon) = merge.horizon() else {
                return Ok(merge);
            };
            let is_full = end_of_page(&merge.rows, limit).is_some() || merge.rows.len() >= limit.rows_max;
            let was_extended = !is_full
                && merge.scanned < limit.rows_max as u64
                && self.extend(&mut merge, &horizon, range, limit)?;
            if !was_extended {
                return Ok(merge);
            }
        }
    }

    /// Reads further rows of the parts that have a source that ends at the horizon. Returns false if one of these
    /// sources cannot be read further.
    ///
    /// All sources of such a part are read again after the horizon. If only one of them was read, a row that moved
    /// from the single rows into a block since the last read could be missed.
    fn extend(&self, merge: &mut Merge, horizon: &Bytes, range: &KeyRange, limit: PageLimit) -> Result<bool> {
        let direction = merge.direction;
        let mut was_extended = false;
        for of_part in merge.sources.chunk_by_mut(Source::is_of_part_of) {
            let ends = |source: &Source| source.more_after.as_ref() == Some(horizon);
            if !of_part.iter().any(ends) {
                continue;
            }
            let Some(Feed { part, limit: before }) = of_part[0].feed else {
                return Ok(false);
            };
            let next = PageLimit {
                rows_max: limit.rows_max.min(before.rows_max * FEED_GROWTH),
                bytes_max: limit.bytes_max.min(before.bytes_max * FEED_GROWTH),
            };
            let more = match rest_of(range, horizon, direction) {
                Some(rest) => self.part_sources(&part, &rest, direction, next)?,
                None => Vec::new(),
            };
            let mut more = more.into_iter();
            for source in of_part {
                *source = Source {
                    group: source.group,
                    feed: Some(Feed { part, limit: next }),
                    ..more.next().unwrap_or_default()
                };
            }
            was_extended = true;
        }
        Ok(was_extended)
    }
}

/// Returns the number of leading rows that fit a page; `None` if all of them fit.
fn end_of_page(rows: &[StoredRow], limit: PageLimit) -> Option<usize> {
    let mut bytes = 0;
    for (at, row) in rows.iter().enumerate() {
        bytes += row.bytes();
        let count = at + 1;
        if count < rows.len() && (bytes > limit.bytes_max || count >= limit.rows_max) {
            return Some(count);
        }
    }
    None
}

/// Returns the rest of a range after a key in scan order; `None` if the rest is empty.
pub(crate) fn rest_of(range: &KeyRange, last: &[u8], direction: Direction) -> Option<KeyRange> {
    match direction {
        Direction::Ascending => range.above(last),
        Direction::Descending => range.below(last),
    }
}
