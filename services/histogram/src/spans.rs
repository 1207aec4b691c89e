//! Spans: the mapping between bucket lists and bucket indices.
//!
//! [`check_layout`] checks the invariant on which all other modules rely: spans are ordered, stay within the index
//! range, and name exactly as many buckets as exist.

use thiserror::Error;

use crate::histogram::Span;

/// Limit of the magnitude of bucket indices, so that index arithmetic never overflows 32 bits. Doubles need
/// 2^19 indices at the finest schema.
pub(crate) const INDEX_MAX: i32 = 1 << 28;

/// Reason why spans and buckets do not fit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// Negative offset of a span other than the first.
    #[error("span number {number} has the negative offset {offset}")]
    NegativeOffset {
        /// Number of the span, from 1.
        number: usize,
        /// Offset of the span.
        offset: i32,
    },
    /// Span beyond the range of bucket indices, ±2^28.
    #[error("span number {number} leaves the range of bucket indices")]
    IndexOutOfRange {
        /// Number of the span, from 1.
        number: usize,
    },
    /// Number of buckets that differs from the total length of the spans.
    #[error("spans need {needed} buckets, have {found} buckets")]
    Mismatch {
        /// Number of buckets that the spans name.
        needed: u64,
        /// Number of buckets found.
        found: usize,
    },
}

/// Checks that spans do not overlap, stay within the index range and name exactly `buckets` buckets.
pub(crate) fn check_layout(spans: &[Span], buckets: usize) -> Result<(), LayoutError> {
    let (mut needed, mut index) = (0, 0);
    for (at, span) in spans.iter().enumerate() {
        let number = at + 1;
        if at > 0 && span.offset < 0 {
            return Err(LayoutError::NegativeOffset {
                number,
                offset: span.offset,
            });
        }
        needed += u64::from(span.length);
        let first = index + i64::from(span.offset);
        index = first + i64::from(span.length);
        if first < -i64::from(INDEX_MAX) || index > i64::from(INDEX_MAX) {
            return Err(LayoutError::IndexOutOfRange { number });
        }
    }
    if needed != buckets as u64 {
        return Err(LayoutError::Mismatch {
            needed,
            found: buckets,
        });
    }
    Ok(())
}

/// Iterates over the index of each bucket, in order.
pub(crate) fn indices(spans: &[Span]) -> impl Iterator<Item = i32> + '_ {
    let mut index = 0;
    spans.iter().flat_map(move |span| {
        let first = index + span.offset;
        index = first + span.length as i32;
        first..index
    })
}

/// Builder of spans from rising bucket indices.
#[derive(Debug, Default)]
pub(crate) struct SpansBuilder {
    spans: Vec<Span>,
    /// Index after the last bucket.
    end: i32,
}

impl SpansBuilder {
    /// Adds the bucket at an index above all previous ones.
    pub(crate) fn push(&mut self, index: i32) {
        match self.spans.last_mut() {
            Some(span) if index == self.end => span.length += 1,
            _ => self.spans.push(Span {
                offset: index - self.end,
                length: 1,
            }),
        }
        self.end = index + 1;
    }

    pub(crate) fn build(self) -> Vec<Span> {
        self.spans
    }
}

/// Returns the index of the bucket that contains bucket `index` in a schema that is `schemas_down` steps coarser.
pub(crate) fn coarser_index(index: i32, schemas_down: u32) -> i32 {
    ((index - 1) >> schemas_down.min(31)) + 1
}
