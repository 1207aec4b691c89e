//! One timeline in the head: open rows, and blocks that full runs of them were encoded into.
//!
//! Open rows lie row after row as short numbers, one *lane* for each shape ([`super::lane`]), so that taking one in
//! is a short copy. When the timeline's open rows are many enough, all its lanes become one block together: their rows
//! are sorted by time, merged by sequence, and encoded like a chunk. So the blocks of a timeline, and the open
//! rows after them, are in the order of their sequences, and the later of two always wins.

use bytes::Bytes;
use smallvec::SmallVec;
use tideline_chunk::{Chunk, ChunkError, Run, SequenceSpan, encode_chunk};
use tideline_model::{SequenceNumber, TimeRange};

use super::Growth;
use super::lane::{Lane, LaneRows};
use crate::deletes::remove_rows;
use crate::merge::{Part, Priority, merge};
use crate::sharding::DeltaRow;

/// Open rows of one timeline that make a block: one full block of the codec.
const BLOCK_ROWS: usize = 128;
/// Bytes that a block costs beside its encoding.
const BLOCK_OVERHEAD: usize = size_of::<Block>() + 32;

/// The unsealed points of one timeline.
#[derive(Debug, Default)]
pub(crate) struct SeriesHead {
    /// Nearly every timeline has one shape for all its life, so the first lies here.
    lanes: SmallVec<[Lane; 1]>,
    open_rows: usize,
    blocks: Vec<Block>,
}

/// What a reader takes with it: oldest write first.
#[derive(Debug)]
pub(crate) struct HeadPieces {
    pub(crate) blocks: Vec<Block>,
    pub(crate) open: Option<Run>,
    pub(crate) open_sequences: SequenceSpan,
}

/// An encoded run of rows.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub(crate) bytes: Bytes,
    pub(crate) first: i64,
    pub(crate) last: i64,
}

impl SeriesHead {
    /// Adds one row of a group.
    pub(crate) fn append(&mut self, row: DeltaRow<'_>, sequence: SequenceNumber) -> Growth {
        let DeltaRow { group, shape, row } = row;
        let mut growth = Growth::default();
        let lane = match self.lanes.iter_mut().position(|lane| lane.is_of(shape)) {
            Some(at) => &mut self.lanes[at],
            None => {
                if !self.lanes.is_empty() {
                    growth.blocks += size_of::<Lane>();
                }
                self.lanes.push(Lane::new(shape));
                self.lanes.last_mut().expect("just pushed")
            }
        };
        growth.open = lane.append(group, row, sequence);
        growth.opened_rows = 1;
        self.open_rows += 1;
        if self.open_rows >= BLOCK_ROWS {
            growth.add(self.close());
        }
        growth
    }

    /// The byte behind which the next row probably goes.
    pub(crate) fn last_byte(&self) -> u8 {
        self.lanes.first().map_or(0, Lane::last_byte)
    }

    /// Encodes the open rows into a block.
    pub(crate) fn close(&mut self) -> Growth {
        let Some(run) = self.open_run() else {
            return Growth::default();
        };
        let closed = self.lanes.iter().map(Lane::bytes).sum();
        let block = Block::encode(&run, self.sequences());
        let blocks = block.bytes.len() + BLOCK_OVERHEAD;
        self.blocks.push(block);
        self.lanes.iter_mut().for_each(Lane::clear);
        let closed_rows = std::mem::take(&mut self.open_rows);
        Growth {
            closed,
            blocks,
            closed_rows,
            ..Growth::default()
        }
    }

    /// Removes the points of a range. Open rows become a block first, so that a point is looked for in one form only.
    pub(crate) fn delete(&mut self, range: TimeRange) -> Result<Growth, ChunkError> {
        let mut growth = self.close();
        let mut kept = Vec::with_capacity(self.blocks.len());
        for block in self.blocks.drain(..) {
            if !TimeRange::new(block.first, block.last + 1).overlaps(&range) {
                kept.push(block);
                continue;
            }
            growth.dropped += block.bytes.len() + BLOCK_OVERHEAD;
            let chunk = Chunk::open_trusted(&block.bytes)?;
            let mut run = chunk.to_run()?;
            if remove_rows(&mut run, range) {
                let block = Block::encode(&run, chunk.sequences());
                growth.blocks += block.bytes.len() + BLOCK_OVERHEAD;
                kept.push(block);
            }
        }
        self.blocks = kept;
        Ok(growth)
    }

    /// Gives back the memory of empty lanes.
    pub(crate) fn shrink(&mut self) {
        self.lanes.retain(|lane| !lane.is_empty());
        self.lanes.shrink_to_fit();
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The instants of the open rows, in no order.
    pub(crate) fn open_timestamps(&self) -> impl Iterator<Item = i64> {
        self.lanes.iter().flat_map(|lane| lane.to_rows().run.timestamps)
    }

    pub(crate) fn pieces(&self) -> HeadPieces {
        HeadPieces {
            blocks: self.blocks.clone(),
            open: self.open_run(),
            open_sequences: self.sequences(),
        }
    }

    /// The open rows as one run: sorted by time, one row an instant.
    fn open_run(&self) -> Option<Run> {
        if self.open_rows == 0 {
            return None;
        }
        let filled = self.lanes.iter().filter(|lane| !lane.is_empty());
        let mut rows: Vec<LaneRows> = filled.map(Lane::to_rows).collect();
        if let [only] = rows.as_mut_slice()
            && only.is_sorted
        {
            return Some(std::mem::take(&mut only.run));
        }
        let parts: Vec<Part<'_>> = rows
            .iter()
            .map(|rows| Part {
                run: &rows.run,
                priority: Priority::Rows(&rows.sequences),
            })
            .collect();
        Some(merge(&parts))
    }

    fn sequences(&self) -> SequenceSpan {
        let spans = self.lanes.iter().filter_map(Lane::sequences);
        let all = spans.reduce(|all, more| SequenceSpan {
            lowest: all.lowest.min(more.lowest),
            highest: all.highest.max(more.highest),
        });
        all.unwrap_or(SequenceSpan {
            lowest: SequenceNumber(0),
            highest: SequenceNumber(0),
        })
    }
}

impl Block {
    fn encode(run: &Run, sequences: SequenceSpan) -> Self {
        let mut bytes = Vec::new();
        encode_chunk(run, sequences, &mut bytes).expect("open rows are few and merged into a run");
        let first = run.timestamps.first().copied().unwrap_or_default();
        let last = run.timestamps.last().copied().unwrap_or_default();
        bytes.shrink_to_fit();
        Self {
            bytes: bytes.into(),
            first,
            last,
        }
    }
}
