//! One segment during a read: a forward walk over timelines in id order.
//!
//! Two ways to the next timeline, chosen once from how many of the segment's timelines are wanted: *dense*
//! reads the segment in large pages and skips what is not wanted; *sparse* seeks timelines ([`Sought`]).

use std::ops::RangeInclusive;

use bytes::Bytes;
use tideline_backend::{Backend, Direction, KeyRange, PageLimit, Partition, Row, SegmentRef};
use tideline_key_codec::{chunk_bucket, chunks_between, parse_chunk_key};
use tideline_model::TimelineId;

use super::sought::Sought;
use crate::error::{Result, StoreError};
use crate::manifest::Segment;

/// Dense where at least one in this many of a segment's timelines is wanted: a seek costs about as much as
/// passing over that many chunks.
const DENSE_SHARE: u64 = 8;

/// The first chunk that there is.
const ONE_CHUNK: PageLimit = PageLimit {
    rows_max: 1,
    bytes_max: 1 << 20,
};

/// The place of a read in one segment.
#[derive(Debug)]
pub(super) enum SegmentCursor {
    /// It is read through.
    Dense(Box<Walk>),
    /// Its number among the segments in which timelines are sought.
    Sparse(usize),
}

/// A walk in pages: the rows at hand and what is left.
#[derive(Debug)]
pub(crate) struct Walk {
    place: SegmentRef,
    /// The bucket at hand and those after it.
    buckets: RangeInclusive<u16>,
    /// All of it, in each bucket.
    keys: KeyRange,
    rows: std::vec::IntoIter<Row>,
    /// Keys of the bucket at hand that are left.
    next: Option<KeyRange>,
    /// A row that belongs to a later timeline than the one just asked for.
    ahead: Option<(TimelineId, Bytes)>,
    page: PageLimit,
}

impl SegmentCursor {
    pub(super) fn new(
        segment: &Segment,
        wanted: &[TimelineId],
        page: PageLimit,
        sought: &mut Sought,
    ) -> Self {
        let bounds = wanted.first().zip(wanted.last());
        let is_dense = wanted.len() > 1 && wanted.len() as u64 * DENSE_SHARE >= segment.timelines;
        match bounds.filter(|_| is_dense) {
            Some((first, last)) => Self::Dense(Box::new(Walk::between(segment, *first, *last, page))),
            None => Self::Sparse(sought.add(segment)),
        }
    }

    /// Whether it reads the segment through.
    pub(super) fn is_dense(&self) -> bool {
        matches!(self, Self::Dense(_))
    }

    /// Hands out the chunks of a timeline that may reach into the range of the read, in time order: those that were
    /// sought, or those that the walk comes to. Dense cursors are asked in rising order of ids.
    pub(super) fn chunks(
        &mut self,
        backend: &dyn Backend,
        sought: &Sought,
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

/// Whether a segment has a chunk of a timeline.
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
    /// A walk from one timeline to another, which is included.
    fn between(segment: &Segment, first: TimelineId, last: TimelineId, page: PageLimit) -> Self {
        let keys = chunks_between(first, last);
        let bits = segment.bucket_bits;
        Self {
            place: segment.reference(),
            buckets: chunk_bucket(first, bits)..=chunk_bucket(last, bits),
            next: Some(keys.clone()),
            keys,
            rows: Vec::new().into_iter(),
            ahead: None,
            page,
        }
    }

    /// A walk over all of a segment.
    pub(crate) fn all(segment: &Segment, page: PageLimit) -> Self {
        Self::between(segment, TimelineId::MIN, TimelineId::MAX, page)
    }

    /// The timeline of the next chunk; `None` after the last.
    pub(crate) fn peek(&mut self, backend: &dyn Backend) -> Result<Option<TimelineId>> {
        if self.ahead.is_none() {
            self.ahead = self.advance(backend)?;
        }
        Ok(self.ahead.as_ref().map(|(id, _)| *id))
    }

    /// Hands out the chunks of a timeline, in time order; those of lower ids are passed over.
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
            let partition = Partition::segment(self.place, *self.buckets.start());
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
