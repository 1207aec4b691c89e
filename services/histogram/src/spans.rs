//! Where buckets lie: the indices that spans stand for.

use thiserror::Error;

use crate::histogram::Span;

/// Bucket indices lie between this and its negative, so that arithmetic on them never leaves 32 bits. Doubles
/// need 2^19 of them at the finest schema.
pub(crate) const INDEX_MAX: i32 = 1 << 28;

/// Why spans and buckets do not fit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// A span begins before the end of the one before.
    #[error("span number {number} has the negative offset {offset}")]
    NegativeOffset {
        /// Which span, from 1.
        number: usize,
        /// Its offset.
        offset: i32,
    },
    /// A bucket lies further out than any double.
    #[error("span number {number} leaves the range of bucket indices")]
    IndexOutOfRange {
        /// Which span, from 1.
        number: usize,
    },
    /// The spans name more or fewer buckets than there are.
    #[error("spans need {needed} buckets, have {found} buckets")]
    Mismatch {
        /// Buckets that the spans name.
        needed: u64,
        /// Buckets that there are.
        found: usize,
    },
}

/// Checks that spans follow one another, stay in the range of indices and name so many buckets.
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

/// The index of each bucket, in order.
pub(crate) fn indices(spans: &[Span]) -> impl Iterator<Item = i32> + '_ {
    let mut index = 0;
    spans.iter().flat_map(move |span| {
        let first = index + span.offset;
        index = first + span.length as i32;
        first..index
    })
}

/// Spans in the making, by rising indices.
#[derive(Debug, Default)]
pub(crate) struct SpansBuilder {
    spans: Vec<Span>,
    /// The index behind the last bucket.
    end: i32,
}

impl SpansBuilder {
    /// Adds the bucket at an index above all before.
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

/// The index of the bucket that holds a bucket of a finer schema.
pub(crate) fn coarser_index(index: i32, schemas_down: u32) -> i32 {
    ((index - 1) >> schemas_down.min(31)) + 1
}
