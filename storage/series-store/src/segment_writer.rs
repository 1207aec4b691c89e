//! Writes the chunks of one segment: splits runs, encodes them for their tier, and counts them.
//!
//! Timelines must be added in id order and the runs of one timeline in time order, which is the order of the keys.

use bytes::Bytes;
use tideline_backend::Row;
use tideline_chunk::{ChunkEncoder, ChunkOptions, Effort, Run, SequenceSpan};
use tideline_key_codec::{CHUNK_KEY_BYTES, chunk_key};
use tideline_model::time::NANOS_PER_SECOND;
use tideline_model::{Tier, TimelineId};

use crate::error::{Result, StoreError};
use crate::manifest::SegmentTotals;
use crate::merge::slice;

/// Maximum encoded size in bytes of a chunk with several rows. Larger runs, which can occur with long text, are
/// split in halves.
const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Encoded size in bytes at which a block of chunks is full. It is slightly below the size at which a vector would
/// double.
const BLOCK_BYTES: usize = (1 << 20) - (16 << 10);
/// Bucket width of cold summaries in nanoseconds. The windows of dashboards over long ranges are multiples of an
/// hour.
const SUMMARY_WIDTH: i64 = 3_600 * NANOS_PER_SECOND;
/// Number of machines recorded per segment: those with the most bytes.
const LARGEST_SOURCES: usize = 4;

/// Returns the maximum number of rows per chunk of a tier.
///
/// Hot chunks have enough rows for the best compression, but few enough that a narrow read decodes little. The limit
/// of the cold and archive tiers exceeds the 8,640 rows of a day with one point every ten seconds.
pub(crate) const fn chunk_rows_max(tier: Tier) -> usize {
    match tier {
        Tier::Hot => 4_096,
        Tier::Cold | Tier::Archive => 12_288,
    }
}

/// Encoder of runs into the chunks of one segment.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    options: ChunkOptions,
    rows_max: usize,
    encoder: ChunkEncoder,
    /// Full blocks of chunks that wait to be taken.
    full: Vec<Block>,
    /// Current block.
    block: Block,
    totals: SegmentTotals,
    timeline: Option<TimelineId>,
    /// Bytes of the chunks of the current machine, including keys.
    source_bytes: u64,
}

/// Concatenated chunks in one allocation.
#[derive(Debug, Default)]
struct Block {
    /// Timeline, first timestamp and end offset in `encoded` of each chunk.
    chunks: Vec<(TimelineId, i64, usize)>,
    encoded: Vec<u8>,
}

impl SegmentWriter {
    /// Creates a writer for an empty segment.
    pub(crate) fn new(tier: Tier) -> Self {
        let options = match tier {
            Tier::Hot => ChunkOptions {
                effort: Effort::Fast,
                summaries: None,
            },
            Tier::Cold | Tier::Archive => ChunkOptions {
                effort: Effort::Tight,
                summaries: Some(SUMMARY_WIDTH),
            },
        };
        Self {
            options,
            rows_max: chunk_rows_max(tier),
            encoder: ChunkEncoder::default(),
            full: Vec::new(),
            block: Block::default(),
            totals: SegmentTotals::default(),
            timeline: None,
            source_bytes: 0,
        }
    }

    /// Adds a run of a timeline as chunks of similar length.
    pub(crate) fn add(&mut self, id: TimelineId, run: &Run, sequences: SequenceSpan) -> Result<()> {
        let rows = run.rows();
        if rows == 0 {
            return Ok(());
        }
        self.begin(id);
        let length = rows.div_ceil(rows.div_ceil(self.rows_max));
        if length == rows {
            return self.encode(id, run, sequences);
        }
        (0..rows)
            .step_by(length)
            .try_for_each(|from| self.encode(id, &slice(run, from..rows.min(from + length)), sequences))
    }

    /// Returns true if nothing was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.totals.chunks == 0
    }

    /// Returns the counts of the content so far. The largest machines do not include the current one.
    pub(crate) fn totals_so_far(&self) -> &SegmentTotals {
        &self.totals
    }

    /// Returns the counts of the content so far, including the largest machines.
    pub(crate) fn totals(&mut self) -> SegmentTotals {
        self.end_source();
        self.totals.clone()
    }

    /// Takes the chunks added since the last call, in key order.
    pub(crate) fn take_rows(&mut self) -> impl Iterator<Item = Row> + use<> {
        let full = std::mem::take(&mut self.full);
        let last = std::mem::take(&mut self.block);
        full.into_iter().chain([last]).flat_map(Block::into_rows)
    }

    fn begin(&mut self, id: TimelineId) {
        if self.timeline == Some(id) {
            return;
        }
        self.totals.timelines += 1;
        if self.timeline.is_some_and(|before| machine(before) != machine(id)) {
            self.end_source();
        }
        self.timeline = Some(id);
    }

    fn end_source(&mut self) {
        let bytes = std::mem::take(&mut self.source_bytes);
        let largest = &mut self.totals.largest_sources;
        let Some(id) = self.timeline.filter(|_| bytes > 0) else {
            return;
        };
        let at = largest.partition_point(|(_, have)| *have >= bytes);
        if at < LARGEST_SOURCES {
            largest.insert(at, (format!("{:016x}", machine(id)), bytes));
            largest.truncate(LARGEST_SOURCES);
        }
    }

    fn encode(&mut self, id: TimelineId, run: &Run, sequences: SequenceSpan) -> Result<()> {
        let Block { chunks, encoded } = &mut self.block;
        let start = encoded.len();
        self.encoder
            .encode(run, sequences, &self.options, encoded)
            .map_err(|cause| StoreError::chunk(id, cause))?;
        let bytes = encoded.len() - start;
        if bytes > CHUNK_BYTES_MAX && run.rows() > 1 {
            encoded.truncate(start);
            let half = run.rows() / 2;
            self.encode(id, &slice(run, 0..half), sequences)?;
            return self.encode(id, &slice(run, half..run.rows()), sequences);
        }
        let (first, last) = (run.timestamps[0], run.timestamps[run.rows() - 1]);
        chunks.push((id, first, encoded.len()));
        if encoded.len() >= BLOCK_BYTES {
            self.full.push(std::mem::take(&mut self.block));
        }
        let stored = (CHUNK_KEY_BYTES + bytes) as u64;
        self.source_bytes += stored;
        let totals = &mut self.totals;
        totals.count((first, last), run.rows() as u64, run.values() as u64);
        totals.chunks += 1;
        totals.bytes += stored;
        Ok(())
    }
}

impl Block {
    fn into_rows(self) -> impl Iterator<Item = Row> {
        let encoded = Bytes::from(self.encoded);
        let mut start = 0;
        self.chunks.into_iter().map(move |(id, first, end)| Row {
            key: Bytes::copy_from_slice(&chunk_key(id, first)),
            value: encoded.slice(std::mem::replace(&mut start, end)..end),
        })
    }
}

/// Returns the part of an id that all timelines of a machine share.
fn machine(id: TimelineId) -> u64 {
    u64::from_be_bytes(*id.0.first_chunk().expect("an id is sixteen bytes"))
}
