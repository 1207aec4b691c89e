//! One timeline in the head: open rows, and blocks that full runs of them were encoded into.
//!
//! Open rows lie row after row as short numbers, one *lane* for each shape ([`super::lane`]), so that taking one in
//! is a short copy. When the timeline's open rows are many enough, all its lanes become one block together: their rows
//! are sorted by time, merged by sequence, and encoded like a chunk. So the blocks of a timeline, and the open
//! rows after them, are in the order of their sequences, and the later of two always wins.

use bytes::Bytes;
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

/// The unsealed points of one timeline. There may be millions: one is a line of the processor's cache.
#[derive(Debug, Default)]
pub(crate) struct SeriesHead {
    /// Nearly every timeline has one shape for all its life: the rows of that one.
    first: Option<Lane>,
    more: Option<Box<More>>,
}

/// Parts that a timeline of one shape and few rows has no use for.
#[derive(Debug, Default)]
struct More {
    /// Rows of further shapes.
    others: Vec<Lane>,
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
    pub(crate) fn append(
        &mut self,
        row: DeltaRow<'_>,
        sequence: SequenceNumber,
        scratch: &mut Vec<u8>,
    ) -> Growth {
        let DeltaRow { group, shape, row } = row;
        let mut growth = Growth::default();
        let first = self.first.get_or_insert_with(|| Lane::new(shape));
        if first.is_of(shape) {
            growth.open = first.append(group, row, sequence, scratch);
        } else {
            let others = &mut more(&mut self.more, &mut growth).others;
            let known = others.iter().position(|lane| lane.is_of(shape));
            let at = known.unwrap_or_else(|| {
                growth.blocks += size_of::<Lane>();
                others.push(Lane::new(shape));
                others.len() - 1
            });
            growth.open = others[at].append(group, row, sequence, scratch);
        }
        if self.open_rows() >= BLOCK_ROWS {
            growth.add(self.close());
        }
        growth
    }

    /// The byte that the next row probably begins with.
    pub(crate) fn next_byte(&self) -> u8 {
        self.first.as_ref().map_or(0, Lane::next_byte)
    }

    fn lanes(&self) -> impl Iterator<Item = &Lane> {
        let others = self.more.iter().flat_map(|more| &more.others);
        self.first.iter().chain(others)
    }

    fn open_rows(&self) -> usize {
        let first = self.first.as_ref().map_or(0, Lane::rows);
        match &self.more {
            None => first,
            Some(more) => first + more.others.iter().map(Lane::rows).sum::<usize>(),
        }
    }

    /// Encodes the open rows into a block.
    pub(crate) fn close(&mut self) -> Growth {
        let Some(run) = self.open_run() else {
            return Growth::default();
        };
        let mut growth = Growth {
            closed: self.lanes().map(Lane::bytes).sum(),
            ..Growth::default()
        };
        let block = Block::encode(&run, self.sequences());
        growth.blocks += block.bytes.len() + BLOCK_OVERHEAD;
        let more = more(&mut self.more, &mut growth);
        more.blocks.push(block);
        self.first
            .iter_mut()
            .chain(&mut more.others)
            .for_each(Lane::clear);
        growth
    }

    /// Removes the points of a range. Open rows become a block first, so that a point is looked for in one form only.
    pub(crate) fn delete(&mut self, range: TimeRange) -> Result<Growth, ChunkError> {
        let mut growth = self.close();
        let Some(more) = &mut self.more else {
            return Ok(growth);
        };
        let mut kept = Vec::with_capacity(more.blocks.len());
        for block in more.blocks.drain(..) {
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
        more.blocks = kept;
        Ok(growth)
    }

    /// Gives back the memory of empty lanes.
    pub(crate) fn shrink(&mut self) {
        if let Some(more) = &mut self.more {
            more.others.retain(|lane| !lane.is_empty());
            more.others.shrink_to_fit();
        }
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        self.more.as_ref().map_or(&[], |more| &more.blocks)
    }

    /// The instants of the open rows, in no order.
    pub(crate) fn open_timestamps(&self) -> impl Iterator<Item = i64> {
        self.lanes().flat_map(|lane| lane.to_rows().run.timestamps)
    }

    pub(crate) fn pieces(&self) -> HeadPieces {
        HeadPieces {
            blocks: self.blocks().to_vec(),
            open: self.open_run(),
            open_sequences: self.sequences(),
        }
    }

    /// The open rows as one run: sorted by time, one row an instant.
    fn open_run(&self) -> Option<Run> {
        let filled = self.lanes().filter(|lane| !lane.is_empty());
        let mut rows: Vec<LaneRows> = filled.map(Lane::to_rows).collect();
        if rows.is_empty() {
            return None;
        }
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
        let spans = self.lanes().filter_map(Lane::sequences);
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

/// The further parts of a timeline, made where it has none yet.
fn more<'a>(more: &'a mut Option<Box<More>>, growth: &mut Growth) -> &'a mut More {
    more.get_or_insert_with(|| {
        growth.blocks += size_of::<More>();
        Box::default()
    })
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
