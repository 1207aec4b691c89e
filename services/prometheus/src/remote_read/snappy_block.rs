//! Remote read response in one snappy block.
//!
//! A snappy block and each message in it start with their length, so the response must be complete before its first
//! byte is written. Fragments are compressed while the response grows: only their compressed form is held, and its
//! bytes count in the memory account of the process. A block is the total length followed by independent fragments.

use std::io::Write;

use tideline_engine::runtime::{MemoryAccount, Reservation};
use tideline_promql::{PromqlError, Result};
use tideline_wire::protobuf::PutFields;
use tideline_wire::varint;

use super::message::put_labels;
use crate::failure::client_left;
use crate::transfer::SeriesFragment;

/// Maximum number of bytes that a response holds: the compressed fragments and the samples of the
/// current series.
const HELD_BYTES_MAX: usize = 256 << 20;
/// Bytes of a fragment before compression.
const FRAGMENT_BYTES: usize = 64 << 10;

/// Builder of a response.
pub(crate) struct SnappyBlock {
    encoder: snap::raw::Encoder,
    /// Output buffer of the encoder.
    buffer: Vec<u8>,
    results: Vec<Packed>,
    /// Encoded samples of the current series.
    series: Vec<u8>,
    /// Size of all compressed fragments in bytes.
    packed_bytes: usize,
    memory: Reservation,
}

/// Message in compressed fragments.
#[derive(Default)]
struct Packed {
    fragments: Vec<Box<[u8]>>,
    /// Bytes that are not compressed yet.
    rest: Vec<u8>,
    /// Number of bytes before compression.
    bytes: usize,
}

impl SnappyBlock {
    /// Returns an empty response that reserves its bytes in an account.
    pub(crate) fn new(memory: &MemoryAccount) -> Self {
        Self {
            encoder: snap::raw::Encoder::new(),
            buffer: vec![0; snap::raw::max_compress_len(FRAGMENT_BYTES)],
            results: Vec::new(),
            series: Vec::new(),
            packed_bytes: 0,
            memory: memory.open("answers of remote read"),
        }
    }

    /// Starts the result of the next query.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.pack_rest()?;
        self.results.push(Packed::default());
        Ok(())
    }

    /// Appends encoded samples of a series.
    pub(crate) fn take(&mut self, fragment: SeriesFragment<'_>) -> Result<()> {
        self.series.extend_from_slice(fragment.bytes);
        self.hold()?;
        if !fragment.is_last || self.series.is_empty() {
            return Ok(());
        }
        let mut head = Vec::new();
        put_labels(fragment.labels, &mut head);
        let mut frame = Vec::new();
        frame.put_bytes_head(1, head.len() + self.series.len());
        let series = std::mem::take(&mut self.series);
        for part in [&frame, &head, &series] {
            self.put(part)?;
        }
        // A large buffer is not reused.
        if series.capacity() <= FRAGMENT_BYTES {
            self.series = series;
            self.series.clear();
        }
        Ok(())
    }

    /// Writes the block.
    pub(crate) fn write(mut self, out: &mut dyn Write) -> Result<()> {
        self.pack_rest()?;
        let mut heads = Vec::with_capacity(self.results.len());
        let mut bytes = 0;
        for result in &self.results {
            let mut head = Vec::new();
            head.put_bytes_head(1, result.bytes);
            bytes += head.len() + result.bytes;
            heads.push(head);
        }
        let mut length = Vec::new();
        varint::put(bytes as u64, &mut length);
        out.write_all(&length).map_err(client_left)?;
        for (result, head) in std::mem::take(&mut self.results).into_iter().zip(heads) {
            let head = self.pack(&head)?;
            out.write_all(&head).map_err(client_left)?;
            for fragment in result.fragments {
                out.write_all(&fragment).map_err(client_left)?;
            }
        }
        Ok(())
    }

    /// Appends bytes to the current result.
    fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let Some(result) = self.results.last_mut() else {
                return Ok(());
            };
            let room = FRAGMENT_BYTES - result.rest.len();
            let (now, later) = bytes.split_at(bytes.len().min(room));
            result.rest.extend_from_slice(now);
            result.bytes += now.len();
            bytes = later;
            if result.rest.len() == FRAGMENT_BYTES {
                self.pack_rest()?;
            }
        }
        Ok(())
    }

    /// Compresses the bytes that are not compressed yet.
    fn pack_rest(&mut self) -> Result<()> {
        let Some(result) = self.results.last_mut() else {
            return Ok(());
        };
        let mut rest = std::mem::take(&mut result.rest);
        if rest.is_empty() {
            return Ok(());
        }
        let fragment = self.pack(&rest)?;
        self.packed_bytes += fragment.len();
        rest.clear();
        if let Some(result) = self.results.last_mut() {
            result.fragments.push(fragment);
            result.rest = rest;
        }
        self.hold()
    }

    /// Compresses at most one fragment and strips its length.
    fn pack(&mut self, bytes: &[u8]) -> Result<Box<[u8]>> {
        let packed = self.encoder.compress(bytes, &mut self.buffer);
        let packed = packed.map_err(|error| PromqlError::Storage {
            message: format!("the response could not be compressed: {error}"),
            is_overloaded: false,
        })?;
        Ok(self.buffer[varint::len(bytes.len() as u64)..packed].into())
    }

    fn hold(&mut self) -> Result<()> {
        let bytes = self.packed_bytes + self.series.capacity();
        if bytes > HELD_BYTES_MAX {
            return Err(PromqlError::Invalid(format!(
                "exceeded sample limit: the response exceeds {HELD_BYTES_MAX} bytes; read a shorter range or \
                 fewer series, or accept streamed chunks"
            )));
        }
        if bytes as u64 <= self.memory.bytes() {
            return Ok(());
        }
        let wanted = bytes.div_ceil(FRAGMENT_BYTES) * FRAGMENT_BYTES;
        let grown = self.memory.resize(wanted as u64);
        grown.map_err(|full| match full.is_retryable() {
            true => PromqlError::Storage {
                message: format!("{full}; retry later, or accept streamed chunks"),
                is_overloaded: true,
            },
            false => PromqlError::TooMany(format!("{full}; accept streamed chunks")),
        })
    }
}

#[cfg(test)]
mod tests {
    use tideline_promql::Labels;

    use super::*;

    /// Returns the block of a response with one series of the given size per result, passed in fragments. A
    /// size of 0 means no series.
    fn block(results: &[usize], memory: &MemoryAccount) -> Result<Vec<u8>> {
        let mut answer = SnappyBlock::new(memory);
        let labels = Labels::from_sorted([("__name__", "up")]);
        for bytes in results {
            answer.begin()?;
            let samples: Vec<u8> = (0..*bytes).map(|at| (at / 7 * at % 251) as u8).collect();
            let mut fragments = samples.chunks(50_000).peekable();
            while let Some(bytes) = fragments.next() {
                answer.take(SeriesFragment {
                    labels: &labels,
                    bytes,
                    is_last: fragments.peek().is_none(),
                })?;
            }
        }
        let mut block = Vec::new();
        answer.write(&mut block)?;
        Ok(block)
    }

    #[test]
    fn pieces_are_one_block() {
        let block = block(&[10, 0, 70_000, 300_000], &MemoryAccount::unlimited()).expect("it fits");
        let message = snap::raw::Decoder::new().decompress_vec(&block).expect("a block");
        let mut expected = Vec::new();
        for bytes in [10, 0, 70_000, 300_000_usize] {
            let samples: Vec<u8> = (0..bytes).map(|at| (at / 7 * at % 251) as u8).collect();
            let mut series = Vec::new();
            if bytes > 0 {
                let mut labels = Vec::new();
                put_labels(&Labels::from_sorted([("__name__", "up")]), &mut labels);
                series.put_bytes_head(1, labels.len() + bytes);
                series.extend(labels);
                series.extend(samples);
            }
            expected.put_bytes_head(1, series.len());
            expected.extend(series);
        }
        assert!(message == expected, "{} of {}", message.len(), expected.len());
    }

    #[test]
    fn an_answer_holds_no_more_than_the_account_has() {
        let memory = MemoryAccount::new(400 << 10);
        let _others = memory.reserve("others", 300 << 10).expect("there is room");
        let refused = block(&[300_000], &memory);
        assert!(
            matches!(
                refused,
                Err(PromqlError::Storage {
                    is_overloaded: true,
                    ..
                })
            ),
            "{refused:?}"
        );
    }
}
