//! Where the summaries of chunks may stand for their rows, and what is then left to read.
//!
//! A summary is exact for a query when all rows of its bucket count, in one window, and nothing else does. So it
//! may stand for them where
//!
//! 1. the bucket's first and last instant lie in the range, and in one window of the grid,
//! 2. no other piece reaches between these instants: it could overwrite a row,
//! 3. no delete that the piece has not behind it reaches there,
//! 4. and, field by field, it is known: text and booleans have no summaries, and a NaN makes one unknown.
//!
//! Everything else is read row by row: the stretches between such buckets in all fields, and inside them the fields
//! that are not known.

use tideline_chunk::{ColumnSummary, SummaryBucket};
use tideline_model::{FieldId, TimeRange};

use super::piece::{Piece, Wanted};

/// Clusters of more pieces are merged as a whole: to look between so many would cost more than it saves.
const PIECES_MAX: usize = 64;

/// The windows of an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grid {
    /// The whole range is one.
    Whole,
    /// `[offset + n·width, offset + (n+1)·width)` for every integer n, in nanoseconds since the epoch.
    Windows {
        /// Width, above zero.
        width: i64,
        /// Where one of them begins.
        offset: i64,
    },
}

/// What is read of a cluster from summaries, and what is not; kept from one cluster to the next.
#[derive(Debug, Default)]
pub(super) struct Cover {
    spans: Vec<Span>,
    /// Where the spans of the piece at hand begin.
    at_hand: usize,
    rest: Vec<Stretch>,
}

/// The instants of a bucket whose summaries may stand for its rows.
#[derive(Debug)]
struct Span {
    piece: usize,
    bucket: usize,
    range: TimeRange,
    points: usize,
    /// Whether they do so in some field.
    stands: bool,
    /// The fields whose rows must be read all the same.
    raw: Vec<FieldId>,
}

/// Rows to read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) range: TimeRange,
    /// `None` = all that are wanted.
    pub(super) fields: Option<Vec<FieldId>>,
}

impl Grid {
    /// Whether one window holds two instants, and so all between them. `false` also where arithmetic ends.
    fn holds(self, first: i64, last: i64) -> bool {
        match self {
            Self::Whole => true,
            Self::Windows { width, offset } => {
                let place = first
                    .checked_sub(offset)
                    .and_then(|time| time.checked_rem_euclid(width));
                let end = place.zip(last.checked_sub(first));
                end.and_then(|(place, length)| place.checked_add(length))
                    .is_some_and(|end| end < width)
            }
        }
    }
}

impl Cover {
    /// Begins with another cluster.
    pub(super) fn begin(&mut self) {
        self.spans.clear();
        self.at_hand = 0;
    }

    /// Takes the buckets of a piece whose summaries may stand for rows; whether there is one.
    pub(super) fn offer(
        &mut self,
        pieces: &[Piece],
        at: usize,
        buckets: &[SummaryBucket],
        wanted: Wanted<'_>,
        grid: Grid,
    ) -> bool {
        self.at_hand = self.spans.len();
        if pieces.len() > PIECES_MAX {
            return false;
        }
        for (number, bucket) in buckets.iter().enumerate() {
            let (first, last) = (bucket.first_timestamp, bucket.last_timestamp);
            let range = TimeRange::new(first, last.saturating_add(1));
            if wanted.range.contains(first)
                && wanted.range.contains(last)
                && grid.holds(first, last)
                && is_alone(pieces, at, range)
                && !pieces[at].is_masked_in(wanted.masks, range)
            {
                self.spans.push(Span {
                    piece: at,
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

    /// Decides about a field of the piece at hand: empties the summaries, one list a column, that must not stand for
    /// rows.
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

    /// Points of each bucket of the piece at hand whose summaries stand for rows.
    pub(super) fn summarized(&self) -> impl Iterator<Item = usize> {
        let standing = self.spans[self.at_hand..].iter().filter(|span| span.stands);
        standing.map(|span| span.points)
    }

    /// What is left to read of the cluster, in the order of time.
    pub(super) fn rest(&mut self, pieces: &[Piece], range: TimeRange) -> &[Stretch] {
        let Self { spans, rest, .. } = self;
        rest.clear();
        let first = pieces.iter().map(|piece| piece.first).min().unwrap_or(range.end);
        let end = pieces.iter().map(|piece| piece.range().end).max();
        let end = end.unwrap_or(range.start).min(range.end);
        let mut at = range.start.max(first);
        if pieces.len() > 1 {
            spans.sort_by_key(|span| span.range.start);
        }
        // The bucket before, and whether the last stretch ends with it.
        let mut before: Option<(usize, usize)> = None;
        let mut is_open = false;
        for span in spans {
            let gap = TimeRange::new(at, span.range.start);
            let follows = before == Some((span.piece, span.bucket.wrapping_sub(1)))
                && is_alone(pieces, span.piece, gap);
            if !follows && !gap.is_empty() {
                rest.push(Stretch {
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
                    _ => rest.push(Stretch {
                        range: span.range,
                        fields: Some(raw),
                    }),
                }
                is_open = true;
            }
            at = span.range.end;
            before = Some((span.piece, span.bucket));
        }
        if at < end {
            rest.push(Stretch {
                range: TimeRange::new(at, end),
                fields: None,
            });
        }
        rest
    }
}

/// Whether no other piece reaches into a range.
fn is_alone(pieces: &[Piece], at: usize, range: TimeRange) -> bool {
    let mut others = pieces.iter().enumerate().filter(|(other, _)| *other != at);
    others.all(|(_, piece)| !piece.range().overlaps(&range))
}

/// Empties the summaries of some buckets.
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
