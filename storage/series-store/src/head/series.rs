//! One timeline in the head: open rows, and blocks that full runs of them were encoded into.
//!
//! Open rows lie row after row in 64-bit words, one *lane* for each shape, so that taking one in is a short
//! copy. When the timeline's open rows are many enough, all its lanes become one block together: their rows
//! are sorted by time, merged by sequence, and encoded like a chunk. So the blocks of a timeline, and the open
//! rows after them, are in the order of their sequences, and the later of two always wins.

use std::sync::Arc;

use bytes::Bytes;
use tideline_chunk::{Chunk, ChunkError, DeltaGroup, Presence, Run, RunColumn, SequenceSpan, encode_chunk};
use tideline_model::batch::StringColumn;
use tideline_model::{ColumnData, SequenceNumber, TimeRange, ValueType};

use super::Growth;
use crate::deletes::remove_rows;
use crate::merge::{Part, Priority, merge};
use crate::schema::Shape;
use crate::sharding::ShardedGroup;

/// Open rows of one timeline that make a block: one full block of the codec.
const BLOCK_ROWS: usize = 128;
/// Words before the values of a row: its timestamp and its sequence.
const ROW_HEADER: usize = 2;
/// Rows that a lane has room for at first; doubled as it grows.
const LANE_ROWS_MIN: usize = 4;
/// Bytes that a block costs beside its encoding.
const BLOCK_OVERHEAD: usize = size_of::<Block>() + 32;

/// The unsealed points of one timeline.
#[derive(Debug, Default)]
pub(crate) struct SeriesHead {
    lanes: Vec<Lane>,
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

/// Open rows of one shape.
#[derive(Debug)]
struct Lane {
    shape: Arc<Shape>,
    /// Rows of `ROW_HEADER + fields` words. A string is its start and length in `text`, 32 bits each.
    words: Vec<u64>,
    text: String,
}

impl SeriesHead {
    /// Adds one row of a group.
    pub(crate) fn append(
        &mut self,
        group: &ShardedGroup<'_>,
        row: usize,
        sequence: SequenceNumber,
    ) -> Growth {
        let (group, shape) = (group.group, group.shape);
        let mut growth = Growth::default();
        let lane = match self
            .lanes
            .iter_mut()
            .position(|lane| Arc::ptr_eq(&lane.shape, shape))
        {
            Some(at) => &mut self.lanes[at],
            None => {
                growth.blocks += size_of::<Lane>();
                self.lanes.push(Lane {
                    shape: Arc::clone(shape),
                    words: Vec::new(),
                    text: String::new(),
                });
                self.lanes.last_mut().expect("just pushed")
            }
        };
        growth.open = lane.append(group, row, sequence);
        self.open_rows += 1;
        if self.open_rows >= BLOCK_ROWS {
            growth.add(self.close());
        }
        growth
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
        self.open_rows = 0;
        Growth {
            closed,
            blocks,
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
        self.lanes.retain(|lane| !lane.words.is_empty());
        self.lanes.shrink_to_fit();
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The instants of the open rows, in no order.
    pub(crate) fn open_timestamps(&self) -> impl Iterator<Item = i64> {
        self.lanes
            .iter()
            .flat_map(|lane| lane.rows().map(|row| row[0] as i64))
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
        let mut filled = self.lanes.iter().filter(|lane| !lane.words.is_empty());
        if let (Some(lane), None) = (filled.next(), filled.next())
            && lane.is_sorted()
        {
            return Some(lane.to_run());
        }
        let lanes = self.lanes.iter().filter(|lane| !lane.words.is_empty());
        let runs: Vec<(Run, Vec<u64>)> = lanes.map(|lane| (lane.to_run(), lane.sequences())).collect();
        let parts: Vec<Part<'_>> = runs
            .iter()
            .map(|(run, sequences)| Part {
                run,
                priority: Priority::Rows(sequences),
            })
            .collect();
        Some(merge(&parts))
    }

    fn sequences(&self) -> SequenceSpan {
        let mut span: Option<(u64, u64)> = None;
        for sequence in self.lanes.iter().flat_map(Lane::sequences) {
            let (lowest, highest) = span.unwrap_or((sequence, sequence));
            span = Some((lowest.min(sequence), highest.max(sequence)));
        }
        let (lowest, highest) = span.unwrap_or_default();
        SequenceSpan {
            lowest: SequenceNumber(lowest),
            highest: SequenceNumber(highest),
        }
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

impl Lane {
    fn stride(&self) -> usize {
        ROW_HEADER + self.shape.fields.len()
    }

    fn rows(&self) -> impl Iterator<Item = &[u64]> {
        self.words.chunks_exact(self.stride())
    }

    fn bytes(&self) -> usize {
        self.words.len() * size_of::<u64>() + self.text.len()
    }

    fn clear(&mut self) {
        self.words.clear();
        self.text.clear();
    }

    fn append(&mut self, group: &DeltaGroup, row: usize, sequence: SequenceNumber) -> usize {
        let before = self.bytes();
        if self.words.len() == self.words.capacity() {
            let rows = (self.words.len() / self.stride()).max(LANE_ROWS_MIN);
            self.words.reserve_exact(rows * self.stride());
        }
        self.words.push(group.timestamps[row] as u64);
        self.words.push(sequence.0);
        for column in &group.columns {
            let word = match column {
                ColumnData::Float(values) => values[row].to_bits(),
                ColumnData::Signed(values) => values[row] as u64,
                ColumnData::Unsigned(values) => values[row],
                ColumnData::Boolean(values) => u64::from(values[row]),
                ColumnData::String(values) => {
                    let start = self.text.len() as u64;
                    self.text.push_str(values.get(row));
                    start << 32 | (self.text.len() as u64 - start)
                }
            };
            self.words.push(word);
        }
        self.bytes() - before
    }

    fn sequences(&self) -> Vec<u64> {
        self.rows().map(|row| row[1]).collect()
    }

    /// Whether the rows are already what a run has to be: in time order, one an instant.
    fn is_sorted(&self) -> bool {
        let mut previous = i64::MIN;
        self.rows()
            .all(|row| std::mem::replace(&mut previous, row[0] as i64) < row[0] as i64)
    }

    /// The rows as they came: not sorted.
    fn to_run(&self) -> Run {
        let timestamps = self.rows().map(|row| row[0] as i64).collect();
        let column = |(at, (field, value_type)): (usize, &(_, ValueType))| {
            let words = self.rows().map(|row| row[ROW_HEADER + at]);
            let values = match value_type {
                ValueType::Float => ColumnData::Float(words.map(f64::from_bits).collect()),
                ValueType::Signed => ColumnData::Signed(words.map(|word| word as i64).collect()),
                ValueType::Unsigned => ColumnData::Unsigned(words.collect()),
                ValueType::Boolean => ColumnData::Boolean(words.map(|word| word != 0).collect()),
                ValueType::String => {
                    ColumnData::String(words.map(|word| self.string(word)).collect::<StringColumn>())
                }
            };
            RunColumn {
                field: *field,
                presence: Presence::All,
                values,
            }
        };
        let mut columns: Vec<RunColumn> = self.shape.fields.iter().enumerate().map(column).collect();
        columns.sort_unstable_by_key(|column| (column.field, column.values.value_type().code()));
        Run { timestamps, columns }
    }

    fn string(&self, word: u64) -> &str {
        let start = (word >> 32) as usize;
        &self.text[start..start + (word & u64::from(u32::MAX)) as usize]
    }
}
