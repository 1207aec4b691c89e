//! Timelines that are sought one by one: the chunks of the next ones, from all segments where few are wanted.
//!
//! Where requests travel, one call asks for many timelines in many segments, so that a read waits for few round trips.
//! Where they do not, it asks for one timeline at a time: nothing is read that a caller who stops early does not want.

use bytes::Bytes;
use tideline_backend::{Backend, Page, PageLimit, Partition, ScanRange, SegmentRef};
use tideline_key_codec::{chunk_bucket, chunks_of};
use tideline_model::{TimeRange, TimelineId};

use crate::error::Result;
use crate::manifest::Segment;

/// Rounds of requests that one call is worth: the chunks that it brings wait in memory.
const ROUNDS: usize = 4;
/// What one call brings at most; a timeline has one chunk in most segments.
const LIMIT: PageLimit = PageLimit {
    rows_max: 4_096,
    bytes_max: 4 << 20,
};

/// The chunks at hand.
#[derive(Debug, Default)]
pub(super) struct Sought {
    segments: Vec<Place>,
    /// The timelines whose chunks are at hand, rising.
    timelines: Vec<TimelineId>,
    /// Chunks, each with the number of its request: that of the timeline times the segments, plus that of the segment.
    chunks: Vec<(usize, Bytes)>,
}

/// Where a segment keeps its chunks.
#[derive(Debug, Clone, Copy)]
struct Place {
    segment: SegmentRef,
    bucket_bits: u8,
}

impl Sought {
    /// Seeks in one more segment; its number here.
    pub(super) fn add(&mut self, segment: &Segment) -> usize {
        self.segments.push(Place {
            segment: segment.reference(),
            bucket_bits: segment.bucket_bits,
        });
        self.segments.len() - 1
    }

    /// Brings the chunks of a timeline that may reach into `range`, and with them those of the next of `wanted`.
    pub(super) fn seek(
        &mut self,
        backend: &dyn Backend,
        wanted: &[TimelineId],
        id: TimelineId,
        range: TimeRange,
    ) -> Result<()> {
        if self.segments.is_empty() || self.timelines.binary_search(&id).is_ok() {
            return Ok(());
        }
        self.timelines.clear();
        self.chunks.clear();
        let next = wanted.partition_point(|other| *other < id);
        let at_once = match backend.capabilities().requests_in_flight {
            0 | 1 => 1,
            in_flight => (in_flight * ROUNDS).div_ceil(self.segments.len()),
        };
        self.timelines.push(id);
        let others = wanted[next..].iter().filter(|other| **other != id);
        self.timelines.extend(others.take(at_once - 1));
        self.fetch(backend, range)
    }

    fn fetch(&mut self, backend: &dyn Backend, range: TimeRange) -> Result<()> {
        let requests = self.timelines.iter().flat_map(|id| {
            let keys = chunks_of(*id, range);
            self.segments.iter().map(move |place| {
                let bucket = chunk_bucket(*id, place.bucket_bits);
                ScanRange {
                    partition: Partition::segment(place.segment, bucket),
                    keys: keys.clone(),
                }
            })
        });
        let mut requests: Vec<ScanRange> = requests.collect();
        let mut numbers: Vec<usize> = (0..requests.len()).collect();
        let mut is_ordered = true;
        while !requests.is_empty() {
            let pages: Vec<Page> = backend.scan_many(&requests, LIMIT)?;
            let mut left = Vec::new();
            let mut numbers_left = Vec::new();
            for ((page, request), number) in pages.into_iter().zip(requests).zip(numbers) {
                let chunks = page.rows.into_iter().map(|row| (number, row.value));
                self.chunks.extend(chunks);
                if let Some(keys) = page.next {
                    let partition = request.partition;
                    left.push(ScanRange { partition, keys });
                    numbers_left.push(number);
                }
            }
            is_ordered &= left.is_empty();
            (requests, numbers) = (left, numbers_left);
        }
        if !is_ordered {
            self.chunks.sort_by_key(|(number, _)| *number);
        }
        Ok(())
    }

    /// The chunks at hand of a timeline in a segment, in time order.
    pub(super) fn chunks(&self, id: TimelineId, segment: usize) -> impl Iterator<Item = &Bytes> {
        let timeline = self.timelines.binary_search(&id).ok();
        let number = timeline.map(|timeline| timeline * self.segments.len() + segment);
        let start = self.chunks.partition_point(|(have, _)| Some(*have) < number);
        let found = self.chunks[start..].iter();
        found
            .take_while(move |(have, _)| Some(*have) == number)
            .map(|(_, chunk)| chunk)
    }
}
