//! One timeline in the head: its open rows, and the blocks into which they are encoded.
//!
//! Open rows are stored row by row as variable-length numbers, separately per shape ([`super::open_rows`]), so that
//! adding a row is a short copy. When the timeline has enough open rows, the open rows of all shapes are encoded
//! together as one block: the rows are sorted by time, merged by sequence, and encoded like a chunk. The blocks of a
//! timeline, and the open rows after them, are therefore in sequence order, and the later write always wins.

use bytes::Bytes;
use tideline_chunk::{Chunk, ChunkError, Run, SequenceSpan, encode_chunk};
use tideline_model::{SequenceNumber, TimeRange};

use super::Growth;
use super::open_rows::{OpenRows, UnpackedRows};
use crate::deletes::remove_rows;
use crate::merge::{Part, Priority, merge};
use crate::sharding::DeltaRow;

/// Number of open rows that form a block: one full block of the codec.
const BLOCK_ROWS: usize = 128;
/// Memory of a block in bytes in addition to its encoding.
const BLOCK_OVERHEAD: usize = size_of::<Block>() + 32;

/// Unsealed points of one timeline. There may be millions of timelines; each takes one cache line.
#[derive(Debug, Default)]
pub(crate) struct SeriesHead {
    /// Open rows of the first shape. Nearly every timeline has only one shape.
    first: Option<OpenRows>,
    more: Option<Box<More>>,
}

/// State that a timeline with one shape and few rows does not need.
#[derive(Debug, Default)]
struct More {
    /// Open rows of further shapes.
    others: Vec<OpenRows>,
    blocks: Vec<Block>,
}

/// Copy of the points of a timeline for a reader, oldest write first.
#[derive(Debug)]
pub(crate) struct HeadFragments {
    pub(crate) blocks: Vec<Block>,
    pub(crate) open: Option<Run>,
    pub(crate) open_sequences: SequenceSpan,
}

/// Encoded run of rows.
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
        let first = self.first.get_or_insert_with(|| OpenRows::new(shape));
        if first.is_of(shape) {
            growth.open = first.append(group, row, sequence, scratch);
        } else {
            let others = &mut more(&mut self.more, &mut growth).others;
            let known = others.iter().position(|open| open.is_of(shape));
            let at = known.unwrap_or_else(|| {
                growth.blocks += size_of::<OpenRows>();
                others.push(OpenRows::new(shape));
                others.len() - 1
            });
            growth.open = others[at].append(group, row, sequence, scratch);
        }
        if self.open_rows() >= BLOCK_ROWS {
            growth.add(self.close());
        }
        growth
    }

    /// Returns the byte that the next row of the first shape will overwrite first; 0 if that shape has no spare
    /// capacity.
    pub(crate) fn next_byte(&self) -> u8 {
        self.first.as_ref().map_or(0, OpenRows::next_byte)
    }

    fn open_rows_by_shape(&self) -> impl Iterator<Item = &OpenRows> {
        let others = self.more.iter().flat_map(|more| &more.others);
        self.first.iter().chain(others)
    }

    fn open_rows(&self) -> usize {
        let first = self.first.as_ref().map_or(0, OpenRows::rows);
        match &self.more {
            None => first,
            Some(more) => first + more.others.iter().map(OpenRows::rows).sum::<usize>(),
        }
    }

    /// Encodes the open rows into a block. Does nothing without open rows.
    pub(crate) fn close(&mut self) -> Growth {
        let Some(run) = self.open_run() else {
            return Growth::default();
        };
        let mut growth = Growth {
            closed: self.open_rows_by_shape().map(OpenRows::bytes).sum(),
            ..Growth::default()
        };
        let block = Block::encode(&run, self.sequences());
        growth.blocks += block.bytes.len() + BLOCK_OVERHEAD;
        let more = more(&mut self.more, &mut growth);
        more.blocks.push(block);
        self.first
            .iter_mut()
            .chain(&mut more.others)
            .for_each(OpenRows::clear);
        growth
    }

    /// Removes the points of a time range. Open rows are encoded into a block first, so that only one form has to be
    /// searched.
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

    /// Removes further shapes without open rows, and frees their memory.
    pub(crate) fn shrink(&mut self) {
        if let Some(more) = &mut self.more {
            more.others.retain(|open| !open.is_empty());
            more.others.shrink_to_fit();
        }
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        self.more.as_ref().map_or(&[], |more| &more.blocks)
    }

    /// Returns the timestamps of the open rows, in unspecified order.
    pub(crate) fn open_timestamps(&self) -> impl Iterator<Item = i64> {
        self.open_rows_by_shape()
            .flat_map(|open| open.to_rows().run.timestamps)
    }

    pub(crate) fn fragments(&self) -> HeadFragments {
        HeadFragments {
            blocks: self.blocks().to_vec(),
            open: self.open_run(),
            open_sequences: self.sequences(),
        }
    }

    /// Returns the open rows as one run, sorted by time, with distinct timestamps; `None` without open rows.
    fn open_run(&self) -> Option<Run> {
        let filled = self.open_rows_by_shape().filter(|open| !open.is_empty());
        let mut rows: Vec<UnpackedRows> = filled.map(OpenRows::to_rows).collect();
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
        let spans = self.open_rows_by_shape().filter_map(OpenRows::sequences);
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

/// Returns the further state of a timeline. Creates it if it does not exist.
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
