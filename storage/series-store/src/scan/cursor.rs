//! Cursor over the timelines of one segment during a read.
//!
//! There are two access methods, chosen once by the share of timelines that are requested. *Dense* reads the segment
//! in large pages and skips timelines that are not requested. *Sparse* seeks single timelines ([`BatchedSeeks`]).

use std::ops::RangeInclusive;

use bytes::Bytes;
use tideline_backend::{Backend, Direction, KeyRange, PageLimit, Partition, Row, SegmentRef};
use tideline_key_codec::{chunk_bucket, chunks_between, parse_chunk_key};
use tideline_model::TimelineId;

use super::batched_seeks::BatchedSeeks;
use crate::error::{Result, StoreError};
use crate::manifest::Segment;

/// Dense access is used if several timelines are requested, and if the segment has at most this many timelines per
/// requested timeline. A seek costs about as much as skipping this many chunks.
const DENSE_SHARE: u64 = 8;

/// Page limit for a single chunk.
const ONE_CHUNK: PageLimit = PageLimit {
    rows_max: 1,
    bytes_max: 1 << 20,
};

/// Cursor over one segment.
#[derive(Debug)]
pub(super) enum SegmentCursor {
    /// Dense access: the segment is read page by page.
    Dense(Box<Walk>),
    /// Sparse access: index of the segment in [`BatchedSeeks`].
    Sparse(usize),
}

/// Page-by-page iterator over the chunks of a segment.
#[derive(Debug)]
pub(crate) struct Walk {
    location: SegmentRef,
    /// Current bucket and all later buckets.
    buckets: RangeInclusive<u16>,
    /// Key range, the same in each bucket.
    keys: KeyRange,
    rows: std::vec::IntoIter<Row>,
    /// Remaining keys of the current bucket.
    next: Option<KeyRange>,
    /// Next chunk, if it was read ahead.
    ahead: Option<(TimelineId, Bytes)>,
    page: PageLimit,
}

impl SegmentCursor {
    pub(super) fn new(
        segment: &Segment,
        wanted: &[TimelineId],
        page: PageLimit,
        sought: &mut BatchedSeeks,
    ) -> Self {
        let bounds = wanted.first().zip(wanted.last());
        let is_dense = wanted.len() > 1 && wanted.len() as u64 * DENSE_SHARE >= segment.timelines;
        match bounds.filter(|_| is_dense) {
            Some((first, last)) => Self::Dense(Box::new(Walk::between(segment, *first, *last, page))),
            None => Self::Sparse(sought.add(segment)),
        }
    }

    /// Returns true for dense access.
    pub(super) fn is_dense(&self) -> bool {
        matches!(self, Self::Dense(_))
    }

    /// Passes the chunks of a timeline to `found`, in time order; with sparse access only those that may overlap the
    /// time range of the read. Dense cursors must be called with increasing ids.
    pub(super) fn chunks(
        &mut self,
        backend: &dyn Backend,
        sought: &BatchedSeeks,
        id: TimelineId,
        found: &mut impl FnMut(Bytes),
    ) -> Result<()> {
        match self {
            Self::Dense(walk) => walk.chunks(backend, id, found),
            Self::Sparse(segment) => {
                sought.chunks(id, *segment).cloned().for_each(found);
                Ok(())
            }
        }
    }
}

/// Returns true if a segment has a chunk of a timeline.
pub(crate) fn holds(backend: &dyn Backend, segment: &Segment, id: TimelineId) -> Result<bool> {
    let partition = segment.partition(id);
    let page = backend.scan(
        partition,
        &chunks_between(id, id),
        Direction::Ascending,
        ONE_CHUNK,
    )?;
    Ok(!page.rows.is_empty())
}

impl Walk {
    /// Creates an iterator over the timelines from `first` to `last`, inclusive.
    fn between(segment: &Segment, first: TimelineId, last: TimelineId, page: PageLimit) -> Self {
        let keys = chunks_between(first, last);
        let bits = segment.bucket_bits;
        Self {
            location: segment.reference(),
            buckets: chunk_bucket(first, bits)..=chunk_bucket(last, bits),
            next: Some(keys.clone()),
            keys,
            rows: Vec::new().into_iter(),
            ahead: None,
            page,
        }
    }

    /// Creates an iterator over all timelines of a segment.
    pub(crate) fn all(segment: &Segment, page: PageLimit) -> Self {
        Self::between(segment, TimelineId::MIN, TimelineId::MAX, page)
    }

    /// Returns the timeline of the next chunk; `None` after the last one.
    pub(crate) fn peek(&mut self, backend: &dyn Backend) -> Result<Option<TimelineId>> {
        if self.ahead.is_none() {
            self.ahead = self.advance(backend)?;
        }
        Ok(self.ahead.as_ref().map(|(id, _)| *id))
    }

    /// Passes the chunks of a timeline to `found`, in time order. Skips chunks of lower ids.
    pub(crate) fn chunks(
        &mut self,
        backend: &dyn Backend,
        id: TimelineId,
        found: &mut impl FnMut(Bytes),
    ) -> Result<()> {
        loop {
            let (timeline, value) = match self.ahead.take() {
                Some(ahead) => ahead,
                None => match self.advance(backend)? {
                    Some(row) => row,
                    None => return Ok(()),
                },
            };
            if timeline > id {
                self.ahead = Some((timeline, value));
                return Ok(());
            }
            if timeline == id {
                found(value);
            }
        }
    }

    fn advance(&mut self, backend: &dyn Backend) -> Result<Option<(TimelineId, Bytes)>> {
        loop {
            if let Some(row) = self.rows.next() {
                let damaged = || StoreError::StoredRow {
                    what: "chunk key",
                    reason: format!("{:02x?}", &row.key[..]),
                };
                let (id, _) = parse_chunk_key(&row.key).ok_or_else(damaged)?;
                return Ok(Some((id, row.value)));
            }
            let Some(keys) = self.next.take() else {
                return Ok(None);
            };
            let partition = Partition::segment(self.location, *self.buckets.start());
            let page = backend.scan(partition, &keys, Direction::Ascending, self.page)?;
            self.rows = page.rows.into_iter();
            self.next = page.next;
            if self.next.is_none() {
                self.buckets.next();
                self.next = (!self.buckets.is_empty()).then(|| self.keys.clone());
            }
        }
    }
}
