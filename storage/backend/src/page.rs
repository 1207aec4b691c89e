//! Page building for scans: fills a page up to its limit, computes the remaining range, joins pages that ended early,
//! and divides one limit among many scans.
//!
//! All backends share this module, so that pages end at the same row everywhere.

use crate::contract::{Backend, Direction, KeyRange, Page, PageLimit, Partition, Row, ScanRange};
use crate::error::Result;

/// Page under construction. Check [`is_full`](PageBuilder::is_full) before each row.
#[derive(Debug)]
pub struct PageBuilder<'a> {
    range: &'a KeyRange,
    direction: Direction,
    limit: PageLimit,
    bytes: usize,
    rows: Vec<Row>,
}

impl<'a> PageBuilder<'a> {
    /// Creates an empty page of a scan of `range`.
    pub fn new(range: &'a KeyRange, direction: Direction, limit: PageLimit) -> Self {
        Self {
            range,
            direction,
            limit,
            bytes: 0,
            rows: Vec::new(),
        }
    }

    /// Returns true if the limit is reached; false for an empty page. If the page is full and the range has another
    /// row, end the page with [`partial`](Self::partial).
    pub fn is_full(&self) -> bool {
        !self.rows.is_empty() && (self.rows.len() >= self.limit.rows_max || self.bytes > self.limit.bytes_max)
    }

    /// Adds the next row in scan order.
    pub fn push(&mut self, row: Row) {
        self.bytes += row.key.len() + row.value.len();
        self.rows.push(row);
    }

    /// Returns the page of a range without further rows.
    pub fn complete(self) -> Page {
        Page {
            rows: self.rows,
            next: None,
        }
    }

    /// Returns the page of a range with further rows. The remaining range continues directly after the last row in scan
    /// order.
    pub fn partial(self) -> Page {
        let mut next = self.range.clone();
        if let Some(last) = self.rows.last() {
            match self.direction {
                Direction::Ascending => {
                    next.start.clear();
                    next.start.extend_from_slice(&last.key);
                    next.start.push(0);
                }
                Direction::Descending => next.end = Some(last.key.to_vec()),
            }
        }
        Page {
            rows: self.rows,
            next: Some(next),
        }
    }
}

/// Returns a page of a range that ends only at the limit or at the end of the range. Reads several pages if the backend
/// ends them earlier; they need not show the same state.
///
/// # Errors
///
/// The error of the first scan that fails.
pub fn scan_to_limit(
    backend: &dyn Backend,
    partition: Partition,
    range: &KeyRange,
    direction: Direction,
    limit: PageLimit,
) -> Result<Page> {
    let mut page = backend.scan(partition, range, direction, limit)?;
    let mut bytes: usize = page.rows.iter().map(bytes_of).sum();
    while let Some(rest) = page
        .next
        .take_if(|_| page.rows.len() < limit.rows_max && bytes <= limit.bytes_max)
    {
        let left = PageLimit {
            rows_max: limit.rows_max - page.rows.len(),
            bytes_max: limit.bytes_max - bytes,
        };
        let more = backend.scan(partition, &rest, direction, left)?;
        bytes += more.rows.iter().map(bytes_of).sum::<usize>();
        page.rows.extend(more.rows);
        page.next = more.next;
    }
    Ok(page)
}

fn bytes_of(row: &Row) -> usize {
    row.key.len() + row.value.len()
}

/// Scans many ranges one after another, until their pages together reach the limit. The remaining ranges get empty
/// pages.
///
/// # Errors
///
/// The error of the first scan that fails.
pub fn one_by_one(
    ranges: &[ScanRange],
    limit: PageLimit,
    mut scan: impl FnMut(&ScanRange, PageLimit) -> Result<Page>,
) -> Result<Vec<Page>> {
    let mut left = Some(limit);
    let mut pages = Vec::with_capacity(ranges.len());
    for range in ranges {
        let page = match left {
            Some(left) => scan(range, left)?,
            None => Page {
                rows: Vec::new(),
                next: Some(range.keys.clone()),
            },
        };
        left = left.and_then(|left| left.after(&page));
        pages.push(page);
    }
    Ok(pages)
}

impl PageLimit {
    /// Returns the remaining limit after a page; `None` if it is exhausted.
    pub fn after(self, page: &Page) -> Option<Self> {
        let bytes: usize = page.rows.iter().map(|row| row.key.len() + row.value.len()).sum();
        let left = Self {
            rows_max: self.rows_max.saturating_sub(page.rows.len()),
            bytes_max: self.bytes_max.checked_sub(bytes)?,
        };
        (left.rows_max > 0).then_some(left)
    }
}
