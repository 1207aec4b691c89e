//! Compression of the columns of one part that have the compression `zstd`, with the dictionaries of these columns.
//!
//! Texts change over time. So the dictionary of a column is compared with a new one after every 8 MiB of values that
//! were packed:
//!
//! 1. Of the next 4 MiB, the values of every eighth block are collected, so that the 512 KiB are spread over many keys.
//! 2. A dictionary is made from seven of eight chunks of 8 KiB. The other chunks are compressed with both dictionaries.
//! 3. If the new dictionary saves at least a tenth, it is stored under the next number. Otherwise the distance to the
//!    next comparison doubles, up to 64 MiB.
//!
//! Blocks name the number of their dictionary, so the earlier ones stay. A part in which a dictionary was replaced has
//! a manifest row of a later format.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tideline_backend::page::scan_to_limit;
use tideline_backend::{Direction, PageLimit, PartRef, Partition, RowChange};
use tideline_log::fail_points::around;
use tideline_model::{Durability, KeyRange};
use tideline_runtime::Reservation;
use zstd::dict::EncoderDictionary;
use zstd::zstd_safe::{CCtx, compress_bound};

use super::select::{MAGIC, SELECT_BYTES, select};
use super::{DICTIONARIES_BUCKET, Dictionaries, Progress, Samples, decode, encode};
use crate::block::{Packed, SegmentCodec};
use crate::blocks::BlockError;
use crate::codecs::ZSTD_LEVEL;
use crate::error::{Damage, Result};
use crate::store::WideStore;

/// Maximum number of columns of a part that have dictionaries. Further columns are compressed without one.
const COLUMNS_MAX: usize = 16;
/// Maximum number of dictionaries of a part. At the limit, dictionaries are no longer replaced.
const DICTIONARIES_MAX: u32 = 64;
/// Size of the values from which a dictionary is made, in bytes.
const SAMPLE_BYTES: usize = 512 << 10;
/// Size of a dictionary, in bytes.
const DICTIONARY_BYTES: usize = 64 << 10;
/// Size of the chunks into which collected values are cut for a comparison, in bytes: about the size of a block.
const CHUNK_BYTES: usize = 8 << 10;
/// One in this number of chunks is compressed for the comparison. The new dictionary is made from the other chunks.
const TESTED_CHUNKS: usize = 8;
/// Largest distance between two comparisons, as a multiple of the smallest one.
const DISTANCES_MAX: u64 = 8;

/// Compresses the columns of the blocks of one part that have the compression `zstd`.
pub(crate) struct ZstdColumns<'f> {
    store: &'f WideStore,
    part: PartRef,
    context: CCtx<'static>,
    /// Columns of the part by encoded name; empty until the first column is compressed.
    columns: BTreeMap<Vec<u8>, ZstdColumn>,
    /// Number of the last stored dictionary, 0 if the part has none; `None` until the dictionaries are read.
    stored: Option<u32>,
    may_replace: bool,
    has_replaced: bool,
}

/// State of one column.
struct ZstdColumn {
    encoder: Encoder,
    progress: Progress,
    /// Number of blocks since the last block whose values were collected.
    skipped: u64,
}

/// Dictionary of a column, prepared for compression.
enum Encoder {
    /// The column has no dictionary.
    Missing,
    /// The part has too many columns with dictionaries, or the memory budget is used up.
    Unused,
    Ready {
        number: u32,
        dictionary: EncoderDictionary<'static>,
        _memory: Reservation,
    },
}

impl Encoder {
    fn new(dictionaries: &Dictionaries, number: u32, content: &[u8]) -> Self {
        let dictionary = EncoderDictionary::copy(content, ZSTD_LEVEL);
        match dictionaries.reserve(dictionary.as_cdict().sizeof()) {
            Some(memory) => Self::Ready {
                number,
                dictionary,
                _memory: memory,
            },
            None => Self::Unused,
        }
    }
}

impl<'f> ZstdColumns<'f> {
    pub(crate) fn new(store: &'f WideStore, part: PartRef) -> Self {
        Self {
            store,
            part,
            context: CCtx::create(),
            columns: BTreeMap::new(),
            stored: None,
            may_replace: true,
            has_replaced: false,
        }
    }

    /// Prevents the replacement of dictionaries. Called by work that does not write the manifest row of the part.
    pub(crate) fn keep_dictionaries(&mut self) {
        self.may_replace = false;
    }

    /// Returns true if a dictionary was replaced. The manifest row of the part must record this.
    pub(crate) fn has_replaced(&self) -> bool {
        self.has_replaced
    }

    /// Makes dictionaries for the columns with enough collected values. Blocks that are packed later use them.
    ///
    /// # Errors
    ///
    /// The errors of the backend and of the log.
    pub(crate) fn make_dictionaries(&mut self) -> Result<()> {
        // A small flush packs all of its blocks at once, so it has not compressed these columns yet.
        for name in self.store.dictionaries.kept_columns(self.part.part, SAMPLE_BYTES) {
            self.add_column(&name)
                .map_err(|error| error.of(self.part.table))?;
        }
        let full = self.columns.iter().filter(|(_, column)| {
            let may_be_made = matches!(column.encoder, Encoder::Missing) || self.may_replace;
            may_be_made && column.progress.collected() >= SAMPLE_BYTES
        });
        let full: Vec<Vec<u8>> = full.map(|(name, _)| name.clone()).collect();
        for name in full {
            self.make_dictionary(&name)?;
        }
        Ok(())
    }

    fn make_dictionary(&mut self, name: &[u8]) -> Result<()> {
        let dictionaries = &self.store.dictionaries;
        let base = self.store.settings.dictionary_check_bytes;
        let Some(column) = self.columns.get_mut(name) else {
            return Ok(());
        };
        let number = self.stored.unwrap_or_default() + 1;
        let Some(_memory) = dictionaries.reserve(SELECT_BYTES + SAMPLE_BYTES) else {
            return Ok(());
        };
        let samples = column.progress.samples.take();
        let samples = samples.map_or_else(Vec::new, |samples| samples.bytes);
        column.progress.packed = 0;
        let content = match &column.encoder {
            Encoder::Missing => {
                column.progress.distance = base;
                content_of(&samples)
            }
            Encoder::Ready { dictionary, .. } if number <= DICTIONARIES_MAX => {
                let better = better_content(&mut self.context, &samples, dictionary);
                let Some(content) = better else {
                    let doubled = column.progress.distance.saturating_mul(2);
                    column.progress.distance = doubled.clamp(base, base.saturating_mul(DISTANCES_MAX));
                    return Ok(());
                };
                column.progress.distance = base;
                self.has_replaced = true;
                dictionaries.replaced.fetch_add(1, Ordering::Relaxed);
                content
            }
            Encoder::Ready { .. } | Encoder::Unused => return Ok(()),
        };
        let change = RowChange {
            key: Bytes::copy_from_slice(&number.to_be_bytes()),
            value: Some(encode(number, name, &content)),
        };
        // Blocks can become durable before other rows, so the dictionary is durable before the first of them.
        around("wide", "dictionary", || {
            self.store
                .put_part(self.part, DICTIONARIES_BUCKET, &[change], Durability::Synced)
        })?;
        self.stored = Some(number);
        dictionaries.made.fetch_add(1, Ordering::Relaxed);
        // The earlier dictionary is dropped first, so that its memory is free when memory for the new one is reserved.
        column.encoder = Encoder::Unused;
        column.encoder = Encoder::new(dictionaries, number, &content);
        Ok(())
    }

    /// Reads the dictionaries of the part. The last one of a column is used.
    fn load(&mut self) -> std::result::Result<(), BlockError> {
        let backend = self.store.log.backend().as_ref();
        let limit = PageLimit {
            rows_max: DICTIONARIES_MAX as usize + COLUMNS_MAX,
            bytes_max: usize::MAX,
        };
        let partition = Partition::part(self.part, DICTIONARIES_BUCKET);
        let found = scan_to_limit(backend, partition, &KeyRange::ALL, Direction::Ascending, limit)?;
        self.stored = Some(0);
        let mut newest: BTreeMap<&[u8], (u32, &[u8])> = BTreeMap::new();
        for row in &found.rows {
            let number = row.key[..].try_into().map(u32::from_be_bytes);
            let number = number.map_err(|_| Damage("the key of a dictionary is damaged"))?;
            let (column, content) = decode(number, &row.value)?;
            self.stored = Some(number);
            newest.insert(column, (number, content));
        }
        // After a crash, the manifest row of the part may not record the replacement yet.
        self.has_replaced = found.rows.len() > newest.len();
        for (name, (number, content)) in newest {
            let column = ZstdColumn {
                encoder: Encoder::new(&self.store.dictionaries, number, content),
                progress: self.store.dictionaries.take_progress(self.part.part, name),
                skipped: 0,
            };
            self.columns.insert(name.to_vec(), column);
        }
        Ok(())
    }

    /// Adds the state of a column, and the states of all columns with stored dictionaries.
    fn add_column(&mut self, name: &[u8]) -> std::result::Result<(), BlockError> {
        if self.stored.is_none() {
            self.load()?;
        }
        if !self.columns.contains_key(name) {
            let dictionaries = &self.store.dictionaries;
            let column = ZstdColumn {
                encoder: match self.columns.len() < COLUMNS_MAX {
                    true => Encoder::Missing,
                    false => Encoder::Unused,
                },
                progress: dictionaries.take_progress(self.part.part, name),
                skipped: 0,
            };
            self.columns.insert(name.to_vec(), column);
        }
        Ok(())
    }

    /// Compresses the values of a column of a block. `name` is the encoded name of the column.
    ///
    /// # Errors
    ///
    /// [`BlockError::Damage`] if a stored dictionary is damaged, and the errors of the backend.
    pub(crate) fn compress(
        &mut self,
        name: &[u8],
        values: &[u8],
    ) -> std::result::Result<Option<Packed>, BlockError> {
        self.add_column(name)?;
        let column = self.columns.get_mut(name);
        if let Some(column) = column {
            column.collect(self.store, values);
        }
        let mut bytes = Vec::with_capacity(compress_bound(values.len()));
        let (number, written) = match self.columns.get(name).map(|column| &column.encoder) {
            Some(Encoder::Ready {
                number, dictionary, ..
            }) => {
                let written = self
                    .context
                    .compress_using_cdict(&mut bytes, values, dictionary.as_cdict());
                (*number, written)
            }
            _ => (0, self.context.compress(&mut bytes, values, ZSTD_LEVEL)),
        };
        written.expect("the buffer takes the compressed bytes");
        bytes.shrink_to_fit();
        Ok((bytes.len() < values.len()).then_some(Packed {
            codec: SegmentCodec::Zstd,
            dictionary: number,
            bytes,
        }))
    }
}

impl ZstdColumn {
    /// Counts the values of a block, and collects them if a dictionary is to be made.
    fn collect(&mut self, store: &WideStore, values: &[u8]) {
        let base = store.settings.dictionary_check_bytes;
        self.progress.packed += values.len() as u64;
        let every = match &self.encoder {
            Encoder::Unused => return,
            Encoder::Missing => 1,
            // The values are collected evenly over half of the distance.
            Encoder::Ready { .. } if self.progress.packed >= self.progress.distance.max(base) => {
                (base / 2 / SAMPLE_BYTES as u64).max(1)
            }
            Encoder::Ready { .. } => return,
        };
        self.skipped += 1;
        if self.skipped < every {
            return;
        }
        self.skipped = 0;
        if self.progress.samples.is_none() {
            let memory = store.dictionaries.reserve(SAMPLE_BYTES);
            self.progress.samples = memory.map(|memory| Samples {
                bytes: Vec::new(),
                _memory: memory,
            });
        }
        if let Some(samples) = &mut self.progress.samples {
            let room = SAMPLE_BYTES.saturating_sub(samples.bytes.len());
            samples.bytes.extend_from_slice(&values[..room.min(values.len())]);
        }
    }
}

impl Drop for ZstdColumns<'_> {
    fn drop(&mut self) {
        for (name, column) in std::mem::take(&mut self.columns) {
            if column.progress.packed > 0 && !matches!(column.encoder, Encoder::Unused) {
                let dictionaries = &self.store.dictionaries;
                dictionaries.keep_progress(self.part.part, name, column.progress);
            }
        }
    }
}

/// Returns the content of a dictionary of collected values.
fn content_of(samples: &[u8]) -> Vec<u8> {
    let mut content = select(samples, DICTIONARY_BYTES);
    if content.starts_with(&MAGIC) {
        // Otherwise, zstd would read the content as a dictionary with tables.
        content.insert(0, 0);
    }
    content
}

/// Makes a new dictionary from collected values and compares it with the current one. Returns its content if it saves
/// at least a tenth of the compressed bytes; otherwise `None`.
fn better_content(
    context: &mut CCtx<'static>,
    samples: &[u8],
    present: &EncoderDictionary<'_>,
) -> Option<Vec<u8>> {
    let is_tested = |number: &usize| number % TESTED_CHUNKS == TESTED_CHUNKS - 1;
    let chunks = || samples.chunks(CHUNK_BYTES).enumerate();
    let mut others = Vec::with_capacity(samples.len());
    for (_, chunk) in chunks().filter(|(number, _)| !is_tested(number)) {
        others.extend_from_slice(chunk);
    }
    let content = content_of(&others);
    let new = EncoderDictionary::copy(&content, ZSTD_LEVEL);
    let mut bytes_with = |dictionary: &EncoderDictionary<'_>| -> usize {
        let tested = chunks().filter(|(number, _)| is_tested(number));
        let sizes = tested.map(|(_, chunk)| {
            let mut out = Vec::with_capacity(compress_bound(chunk.len()));
            let written = context.compress_using_cdict(&mut out, chunk, dictionary.as_cdict());
            written.expect("the buffer takes the compressed bytes")
        });
        sizes.sum()
    };
    let (before, after) = (bytes_with(present), bytes_with(&new));
    (after * 10 <= before * 9).then_some(content)
}
