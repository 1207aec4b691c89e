//! Writes a chunk: timestamps, summaries and bodies behind a directory, then the checksum.

use tideline_runtime::background;

use super::directory::Entry;
use super::{ChunkError, MAGIC, PREFIX_BYTES, SequenceSpan, VERSION, VERSION_PLAIN, checksum};
use crate::column::ColumnEncoder;
use crate::presence::{Presence, PresenceView};
use crate::run::Run;
use crate::summaries::SummaryEncoder;
use crate::wire::{put_bytes, put_varint};

/// How much work an encoder puts into fewer bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Effort {
    /// Bit-packing only: about two nanoseconds a value to write, one to read, and any few rows are read alone.
    #[default]
    Fast,
    /// Entropy coding where it is smaller: ten to twenty nanoseconds a value to write, three to five to read, and
    /// rows are read from the start of their frame of 2,048.
    Tight,
}

/// What an encoder may choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChunkOptions {
    /// How hard it tries.
    pub effort: Effort,
    /// The width in nanoseconds of the buckets that numbers are summed up in, aligned to the epoch; `None` for
    /// no summaries. They are left out of chunks of fewer than 128 rows, and where a bucket holds fewer than 16 on
    /// average.
    pub summaries: Option<i64>,
}

/// Writes chunks; keeps its buffers from one to the next.
#[derive(Debug, Default)]
pub struct ChunkEncoder {
    columns: ColumnEncoder,
    summaries: SummaryEncoder,
    directory: Vec<u8>,
    bodies: Vec<u8>,
}

/// Appends `run` to `out` as one chunk of version 1, whose points came with `sequences`.
///
/// Fails, with `out` as it was, when [`Run::check`] does or the sequences are out of order. Costs about two
/// nanoseconds a value, and two or three allocations however many columns there are.
pub fn encode_chunk(run: &Run, sequences: SequenceSpan, out: &mut Vec<u8>) -> Result<(), ChunkError> {
    ChunkEncoder::default().encode(run, sequences, &ChunkOptions::default(), out)
}

impl ChunkEncoder {
    /// Appends `run` to `out` as one chunk, whose points came with `sequences`.
    ///
    /// A chunk that needs nothing newer is of version 1. Fails, with `out` as it was, when [`Run::check`] does,
    /// the sequences are out of order, or the width of buckets is not positive.
    pub fn encode(
        &mut self,
        run: &Run,
        sequences: SequenceSpan,
        options: &ChunkOptions,
        out: &mut Vec<u8>,
    ) -> Result<(), ChunkError> {
        run.check()?;
        let span = sequences
            .highest
            .0
            .checked_sub(sequences.lowest.0)
            .ok_or(ChunkError::Malformed("its sequences are out of order"))?;
        if options.summaries.is_some_and(|width| width <= 0) {
            return Err(ChunkError::Malformed("the width of its buckets is not positive"));
        }
        let summaries = self.encode_parts(run, options);

        let start = out.len();
        out.reserve(PREFIX_BYTES + 32 + self.directory.len() + self.bodies.len());
        out.extend_from_slice(&MAGIC);
        let is_plain = summaries == 0 && !self.columns.integers.wrote_coded();
        out.push(if is_plain { VERSION_PLAIN } else { VERSION });
        out.extend_from_slice(&[0; 4]);
        put_varint(run.rows() as u64, out);
        put_varint(run.columns.len() as u64, out);
        put_varint(sequences.lowest.0, out);
        put_varint(span, out);
        if !is_plain {
            put_varint(summaries as u64, out);
        }
        put_bytes(&self.directory, out);
        out.extend_from_slice(&self.bodies);
        let content = start + PREFIX_BYTES;
        let sum = checksum(&out[content..]);
        out[content - sum.len()..content].copy_from_slice(&sum);
        Ok(())
    }

    /// Fills `directory`, and `bodies` with timestamps, summaries and bodies; returns the bytes of the summaries.
    fn encode_parts(&mut self, run: &Run, options: &ChunkOptions) -> usize {
        let (encoder, bodies) = (&mut self.columns, &mut self.bodies);
        encoder.integers.allow_coding(options.effort == Effort::Tight);
        self.directory.clear();
        self.directory.reserve(4 * run.columns.len());
        bodies.clear();
        let is_regular = encoder
            .timestamps
            .encode_rising(&run.timestamps, &mut encoder.integers, bodies);
        let start = bodies.len();
        if let Some(width) = options.summaries {
            self.summaries.encode(run, is_regular, width, bodies);
        }
        let summaries = bodies.len() - start;

        let mut previous = 0;
        for column in &run.columns {
            let start = bodies.len();
            if let Presence::Some(bitmap) = &column.presence {
                PresenceView::encode(bitmap, bodies);
            }
            encoder.encode(&column.values, bodies);
            background::give_way_after(run.rows());
            let entry = Entry {
                field: column.field,
                value_type: column.values.value_type(),
                is_sparse: matches!(column.presence, Presence::Some(_)),
                length: bodies.len() - start,
            };
            entry.put(previous, &mut self.directory);
            previous = column.field.0;
        }
        summaries
    }
}
