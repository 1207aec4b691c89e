//! Encodes a chunk: directory, timestamps, summaries and bodies.
//!
//! All sections are encoded into reusable buffers first, because the header contains their lengths. The checksum is
//! computed last.

use tideline_runtime::background;

use super::directory::Entry;
use super::{ChunkError, MAGIC, PREFIX_BYTES, SequenceSpan, VERSION, VERSION_PLAIN, checksum};
use crate::column::ColumnEncoder;
use crate::presence::{Presence, PresenceView};
use crate::run::Run;
use crate::summaries::SummaryEncoder;
use crate::wire::{put_bytes, put_varint};

/// Trade-off between encoding speed and size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Effort {
    /// Bit-packing only. Costs about two nanoseconds per value to write and one to read. Each block of 128 rows can be
    /// read independently.
    #[default]
    Fast,
    /// Entropy coding, if it reduces the size of a column. Costs ten to twenty nanoseconds per value to write and
    /// three to five to read. To read a row, its frame of 2,048 rows is decoded from the start.
    Tight,
}

/// Options of [`ChunkEncoder::encode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChunkOptions {
    /// Trade-off between speed and size.
    pub effort: Effort,
    /// Width in nanoseconds of the summary buckets, which are aligned to the epoch; `None` for no summaries. Summaries
    /// are omitted if the chunk has fewer than 128 rows or no numeric column, or if the buckets have fewer than 16 rows
    /// on average.
    pub summaries: Option<i64>,
}

/// Encoder of chunks with reusable buffers.
#[derive(Debug, Default)]
pub struct ChunkEncoder {
    columns: ColumnEncoder,
    summaries: SummaryEncoder,
    directory: Vec<u8>,
    bodies: Vec<u8>,
}

/// Appends `run` to `out` as one chunk of version 1. `sequences` is the range of journal sequences of its points.
///
/// Costs about two nanoseconds per value, and two or three allocations regardless of the number of columns.
///
/// # Errors
///
/// [`ChunkError::Malformed`] or [`ChunkError::TooLarge`] if [`Run::check`] fails or the sequences are out of order;
/// `out` is then unchanged.
pub fn encode_chunk(run: &Run, sequences: SequenceSpan, out: &mut Vec<u8>) -> Result<(), ChunkError> {
    ChunkEncoder::default().encode(run, sequences, &ChunkOptions::default(), out)
}

impl ChunkEncoder {
    /// Appends `run` to `out` as one chunk. `sequences` is the range of journal sequences of its points.
    ///
    /// The chunk has version 1 unless it needs a feature of version 2.
    ///
    /// # Errors
    ///
    /// [`ChunkError::Malformed`] or [`ChunkError::TooLarge`] if [`Run::check`] fails, the sequences are out of
    /// order, or the bucket width is not positive; `out` is then unchanged.
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
            return Err(ChunkError::Malformed("summary bucket width is not positive"));
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

    /// Encodes the directory into `directory`, and timestamps, summaries and column bodies into `bodies`. Returns the
    /// size of the summaries in bytes.
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
            background::yield_core_after(run.rows());
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
