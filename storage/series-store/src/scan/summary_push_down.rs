//! Summary push-down: buckets of chunks whose summaries replace rows, and the rows that remain to be read.
//!
//! A summary is exact for a query if all rows of its bucket are in the result, in one window, and no other write or
//! delete changes their values. It can replace the rows of a field if all of these conditions are met:
//!
//! 1. the first and last timestamp of the bucket are in the range, and in one window of the grid,
//! 2. no other fragment overlaps this time span, because it could overwrite a row,
//! 3. no delete that is pending for the fragment overlaps this time span,
//! 4. the summary of the field is known: only numbers have summaries, and a NaN makes a summary unknown.
//!
//! All other data is read row by row: all fields between these buckets, and within the buckets the fields whose
//! summaries are not known.

use tideline_chunk::{ColumnSummary, SummaryBucket};
use tideline_model::{FieldId, TimeRange};

use super::fragment::{Fragment, Wanted};

/// Maximum number of fragments in an overlap group that is read from summaries. For more fragments, checking the
/// overlaps costs more than the summaries save.
const FRAGMENTS_MAX: usize = 64;

/// Windows of an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grid {
    /// One window for the whole range.
    Whole,
    /// Windows `[offset + n·width, offset + (n+1)·width)` for every integer n, in nanoseconds since the epoch.
    Windows {
        /// Width, greater than zero.
        width: i64,
        /// Start of one of the windows.
        offset: i64,
    },
}

/// Buckets of an overlap group that are read from summaries, and the remaining rows. Reused for the next group.
#[derive(Debug, Default)]
pub(super) struct SummaryPushDown {
    spans: Vec<Span>,
    /// Index of the first span of the current fragment.
    at_hand: usize,
    rest: Vec<RemainingSpan>,
}

/// Bucket whose summaries may replace its rows.
#[derive(Debug)]
struct Span {
    fragment: usize,
    bucket: usize,
    range: TimeRange,
    points: usize,
    /// True if the summary replaces the rows in at least one field.
    stands: bool,
    /// Fields whose rows must be read nevertheless.
    raw: Vec<FieldId>,
}

/// Time span of rows to read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RemainingSpan {
    pub(super) range: TimeRange,
    /// Fields to read; `None` = all wanted fields.
    pub(super) fields: Option<Vec<FieldId>>,
}

impl Grid {
    /// Returns true if both timestamps are in one window. Returns false if the arithmetic overflows.
    fn holds(self, first: i64, last: i64) -> bool {
        match self {
            Self::Whole => true,
            Self::Windows { width, offset } => {
                let offset_in_window = first
                    .checked_sub(offset)
                    .and_then(|time| time.checked_rem_euclid(width));
                let end = offset_in_window.zip(last.checked_sub(first));
                end.and_then(|(offset_in_window, length)| offset_in_window.checked_add(length))
                    .is_some_and(|end| end < width)
            }
        }
    }
}

impl SummaryPushDown {
    /// Starts a new overlap group.
    pub(super) fn begin(&mut self) {
        self.spans.clear();
        self.at_hand = 0;
    }

    /// Collects the buckets of a fragment whose summaries may replace rows. Returns true if there is at least one such
    /// bucket.
    pub(super) fn offer(
        &mut self,
        fragments: &[Fragment],
        at: usize,
        buckets: &[SummaryBucket],
        wanted: Wanted<'_>,
        grid: Grid,
    ) -> bool {
        self.at_hand = self.spans.len();
        if fragments.len() > FRAGMENTS_MAX {
            return false;
        }
        for (number, bucket) in buckets.iter().enumerate() {
            let (first, last) = (bucket.first_timestamp, bucket.last_timestamp);
            let range = TimeRange::new(first, last.saturating_add(1));
            if wanted.range.contains(first)
                && wanted.range.contains(last)
                && grid.holds(first, last)
                && is_alone(fragments, at, range)
                && !fragments[at].is_masked_in(wanted.masks, range)
            {
                self.spans.push(Span {
                    fragment: at,
                    bucket: number,
                    range,
                    points: bucket.rows.len(),
                    stands: false,
                    raw: Vec::new(),
                });
            }
        }
        self.at_hand < self.spans.len()
    }

    /// Clears those summaries of a field of the current fragment that must not replace rows. `columns` has one list per
    /// column of the field.
    pub(super) fn settle(&mut self, field: FieldId, columns: &mut [Vec<ColumnSummary>]) {
        let mut settled = 0;
        for span in &mut self.spans[self.at_hand..] {
            empty(columns, settled, span.bucket);
            settled = span.bucket + 1;
            let is_known = |column: &Vec<ColumnSummary>| {
                column
                    .get(span.bucket)
                    .is_some_and(|summary| *summary != ColumnSummary::Unknown)
            };
            if columns.iter().all(is_known) {
                span.stands = true;
            } else {
                empty(columns, span.bucket, settled);
                span.raw.push(field);
            }
        }
        empty(columns, settled, usize::MAX);
    }

    /// Returns the number of points in each bucket whose summaries replace rows, for the current fragment.
    pub(super) fn summarized(&self) -> impl Iterator<Item = usize> {
        let standing = self.spans[self.at_hand..].iter().filter(|span| span.stands);
        standing.map(|span| span.points)
    }

    /// Returns the time spans of the overlap group that remain to be read, in time order.
    pub(super) fn rest(&mut self, fragments: &[Fragment], range: TimeRange) -> &[RemainingSpan] {
        let Self { spans, rest, .. } = self;
        rest.clear();
        let first = fragments
            .iter()
            .map(|fragment| fragment.first)
            .min()
            .unwrap_or(range.end);
        let end = fragments.iter().map(|fragment| fragment.range().end).max();
        let end = end.unwrap_or(range.start).min(range.end);
        let mut at = range.start.max(first);
        if fragments.len() > 1 {
            spans.sort_by_key(|span| span.range.start);
        }
        // Previous bucket. `is_open` is true if the last element of `rest` ends with that bucket.
        let mut before: Option<(usize, usize)> = None;
        let mut is_open = false;
        for span in spans {
            let gap = TimeRange::new(at, span.range.start);
            let follows = before == Some((span.fragment, span.bucket.wrapping_sub(1)))
                && is_alone(fragments, span.fragment, gap);
            if !follows && !gap.is_empty() {
                rest.push(RemainingSpan {
                    range: gap,
                    fields: None,
                });
                is_open = false;
            }
            let raw = std::mem::take(&mut span.raw);
            if raw.is_empty() {
                is_open = false;
            } else {
                match rest.last_mut() {
                    Some(last) if is_open && last.fields.as_ref() == Some(&raw) => {
                        last.range.end = span.range.end;
                    }
                    _ => rest.push(RemainingSpan {
                        range: span.range,
                        fields: Some(raw),
                    }),
                }
                is_open = true;
            }
            at = span.range.end;
            before = Some((span.fragment, span.bucket));
        }
        if at < end {
            rest.push(RemainingSpan {
                range: TimeRange::new(at, end),
                fields: None,
            });
        }
        rest
    }
}

/// Returns true if no fragment other than the one at index `at` overlaps a time range.
fn is_alone(fragments: &[Fragment], at: usize, range: TimeRange) -> bool {
    let mut others = fragments.iter().enumerate().filter(|(other, _)| *other != at);
    others.all(|(_, fragment)| !fragment.range().overlaps(&range))
}

/// Clears the summaries of a range of buckets.
fn empty(columns: &mut [Vec<ColumnSummary>], from: usize, to: usize) {
    for column in columns {
        let to = to.min(column.len());
        if let Some(gone) = column.get_mut(from..to) {
            gone.fill(ColumnSummary::Empty);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_holds_what_lies_inside_it_and_nothing_that_leaves_it() {
        let windows = Grid::Windows { width: 10, offset: 3 };
        for (first, last, held) in [
            (3, 12, true),
            (3, 13, false),
            (2, 3, false),
            (2, 2, true),
            (-17, -8, true),
            (-17, -7, false),
        ] {
            assert_eq!(windows.holds(first, last), held, "{first}..={last}");
        }
    }

    #[test]
    fn the_ends_of_time_are_never_summarized_wrongly() {
        let wide = Grid::Windows {
            width: i64::MAX,
            offset: 1,
        };
        assert!(!wide.holds(i64::MIN, i64::MAX));
        assert!(!wide.holds(i64::MIN, i64::MIN));
        assert!(!wide.holds(0, i64::MAX - 1));
        assert!(Grid::Whole.holds(i64::MIN, i64::MAX));
        let none = Grid::Windows { width: 0, offset: 0 };
        assert!(!none.holds(0, 0));
    }
}
