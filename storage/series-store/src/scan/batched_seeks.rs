//! Batched seeks of single timelines in all segments with sparse access.
//!
//! If the backend is remote, one call fetches the chunks of several timelines in many segments, so a read waits for
//! few round trips. If the backend is local, one call fetches one timeline, so no chunk is read unnecessarily when the
//! caller stops early.

use bytes::Bytes;
use tideline_backend::{Backend, Page, PageLimit, Partition, ScanRange, SegmentRef};
use tideline_key_codec::{chunk_bucket, chunks_of};
use tideline_model::{TimeRange, TimelineId};

use crate::error::Result;
use crate::manifest::Segment;

/// Number of rounds of concurrent requests per call. The fetched chunks are held in memory until they are used.
const ROUNDS: usize = 4;
/// Maximum result of one request. A timeline has one chunk in most segments.
const LIMIT: PageLimit = PageLimit {
    rows_max: 4_096,
    bytes_max: 4 << 20,
};

/// Fetched chunks.
#[derive(Debug, Default)]
pub(super) struct BatchedSeeks {
    segments: Vec<SegmentLocation>,
    /// Timelines whose chunks are fetched, in increasing order.
    timelines: Vec<TimelineId>,
    /// Chunks with their request numbers: index of the timeline × number of segments + index of the segment.
    chunks: Vec<(usize, Bytes)>,
}

/// Location of the chunks of a segment.
#[derive(Debug, Clone, Copy)]
struct SegmentLocation {
    segment: SegmentRef,
    bucket_bits: u8,
}

impl BatchedSeeks {
    /// Adds a segment. Returns its index.
    pub(super) fn add(&mut self, segment: &Segment) -> usize {
        self.segments.push(SegmentLocation {
            segment: segment.reference(),
            bucket_bits: segment.bucket_bits,
        });
        self.segments.len() - 1
    }

    /// Fetches the chunks of a timeline that may overlap `range`, together with those of the next timelines in
    /// `wanted`. Does nothing if the chunks of the timeline are already fetched.
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
            self.segments.iter().map(move |location| {
                let bucket = chunk_bucket(*id, location.bucket_bits);
                ScanRange {
                    partition: Partition::segment(location.segment, bucket),
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

    /// Returns the fetched chunks of a timeline in a segment, in time order.
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
