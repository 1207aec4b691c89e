//! Spans of blocks: the heads of blocks in which rows were searched and not found.
//!
//! A *span* is a range of keys that belong to one block. A read that finds the block of a key, but not its row, notes
//! the span from the key to the key of the block, with the filter of the block. A later read of another absent key in
//! the span then needs no block. Writes of new rows to a table with indexes read many such keys.
//!
//! # Why a span stays valid
//!
//! A span states which keys have no packed row. Its [`State`](crate::state::State) holds the spans, and a reader uses
//! only the spans of the state that it reads.
//!
//! - A flush changes only rows of frozen generations, until it is published. Readers of the state overlay these
//!   generations. A row that a generation deletes or replaces is not read from the part. An update of a row has the
//!   same result whether the part already contains it or not. So the reader may use a span from before, during or after
//!   the writes of the flush.
//! - Blocks that are split or joined before the publication only move rows to other blocks. The statement about the
//!   keys stays true.
//! - A publication that drops generations, and every replacement of parts, begins a state without spans.
//! - A read notes a span only if no generation was frozen during the read. Otherwise, the block could lack or contain
//!   rows of a generation that the reader does not overlay.
//! - Single rows also move into blocks without a publication. Their removal from the single rows raises the number of
//!   packings first, when the blocks are durable. A reader loads this number after it has found no single row. If the
//!   number is still that of the span, the row was not moved since the block of the span was read.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::RwLock;
use tideline_model::PartId;

use crate::block::BlockKeys;

/// Maximum memory for the spans of a state, in bytes. If they need more, all of them are dropped.
const BYTES_MAX: usize = 4 << 20;
/// Estimated memory of a span in addition to its keys and its filter, in bytes.
const SPAN_BYTES: usize = 200;

/// Spans of the blocks of all parts of a state.
#[derive(Debug, Default)]
pub(crate) struct Spans(RwLock<KnownSpans>);

/// Spans that were noted at one number of packings.
#[derive(Debug, Default)]
struct KnownSpans {
    packings: u64,
    bytes: usize,
    parts: HashMap<PartId, PartSpans>,
}

/// Spans of one part.
#[derive(Debug, Default)]
struct PartSpans {
    /// Spans by the keys of their blocks.
    blocks: BTreeMap<Bytes, BlockSpan>,
    /// Lowest known key that is above all blocks; `None` if unknown.
    above: Option<Box<[u8]>>,
}

/// Keys from `from` to the key of a block, both inclusive.
#[derive(Debug)]
struct BlockSpan {
    from: Box<[u8]>,
    keys: BlockKeys,
}

/// Span that a read has found.
#[derive(Debug)]
pub(crate) struct FoundSpan {
    /// Number of packings before the block was read.
    pub(crate) packings: u64,
    /// Key and head of the first block at or above the key that was read; `None` if there is no such block.
    pub(crate) block: Option<(Bytes, BlockKeys)>,
}

impl Spans {
    /// Returns true if a part has no packed row with this key. `packings` is the number of packings, loaded after the
    /// key was not found in the single rows.
    pub(crate) fn is_absent(&self, part: PartId, key: &[u8], packings: u64) -> bool {
        let known = self.0.read();
        if known.packings != packings {
            return false;
        }
        let Some(spans) = known.parts.get(&part) else {
            return false;
        };
        if spans.above.as_ref().is_some_and(|above| above[..] <= *key) {
            return true;
        }
        let from_key: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Included(key), Bound::Unbounded);
        let found = spans.blocks.range::<[u8], _>(from_key).next();
        found.is_some_and(|(_, span)| span.from[..] <= *key && !span.keys.may_contain(key))
    }

    /// Adds the span in which a key was searched. The read of the key must have been complete: no generation was frozen
    /// and no flush was published during the read.
    pub(crate) fn add(&self, part: PartId, key: &[u8], found: FoundSpan) {
        let mut known = self.0.write();
        if found.packings < known.packings {
            return;
        }
        if found.packings > known.packings || known.bytes > BYTES_MAX {
            *known = KnownSpans {
                packings: found.packings,
                ..KnownSpans::default()
            };
        }
        let spans = known.parts.entry(part).or_default();
        let bytes = match found.block {
            None => match &spans.above {
                Some(above) if above[..] <= *key => 0,
                above => {
                    let before = above.as_ref().map_or(0, |above| above.len());
                    spans.above = Some(key.into());
                    (key.len() + SPAN_BYTES).saturating_sub(before)
                }
            },
            // A known span that covers the key is kept: it is wider.
            Some((last, _)) if spans.blocks.get(&last).is_some_and(|span| span.from[..] <= *key) => 0,
            Some((last, keys)) => {
                let bytes = last.len() + key.len() + keys.bytes() + SPAN_BYTES;
                let span = BlockSpan {
                    from: key.into(),
                    keys,
                };
                let before = spans.blocks.insert(last.clone(), span);
                let of = |span: BlockSpan| last.len() + span.from.len() + span.keys.bytes() + SPAN_BYTES;
                bytes.saturating_sub(before.map_or(0, of))
            }
        };
        known.bytes += bytes;
    }
}
