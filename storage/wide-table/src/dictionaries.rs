//! Dictionaries of zstd: texts that are frequent in one column of a part, so that small blocks compress well.
//!
//! A block holds a few kilobytes of a column, in which words and phrases hardly repeat. A dictionary holds such phrases.
//! With it, blocks of 8 KiB become about as small as blocks of 64 KiB without it.
//!
//! 1. While the first blocks of a part are packed, the values of each column with the compression `zstd` are collected
//!    ([`Samples`]). These blocks have no dictionary.
//! 2. After 512 KiB, [`select`] chooses the 64 KiB whose phrases are most frequent. The dictionary is stored in bucket 3
//!    of the part, and synced, before the first block that uses it is written.
//! 3. A dictionary is never changed, and is freed together with its part. A move copies it before the blocks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use tideline_backend::{Backend, Direction, PageLimit, PartRef, Partition, RowChange};
use tideline_log::fail_points::around;
use tideline_model::{Durability, KeyRange, PartId};
use tideline_wire::varint;
use xxhash_rust::xxh3::xxh3_64;
use zstd::bulk::Compressor;
use zstd::dict::DecoderDictionary;

use crate::block::{Packed, SegmentCodec};
use crate::blocks::BlockError;
use crate::codecs::ZSTD_LEVEL;
use crate::error::{Damage, Result};
use crate::store::WideStore;
use crate::value::sized;

/// Bucket of a part that holds dictionaries.
pub(crate) const DICTIONARIES_BUCKET: u16 = 3;
/// Format of a stored dictionary.
const FORMAT: u8 = 1;
/// Bytes of the checksum of a stored dictionary.
const CHECKSUM_BYTES: usize = 8;
/// Maximum number of dictionaries of a part: one per column. Further columns are compressed without a dictionary.
const DICTIONARIES_MAX: usize = 16;
/// Size of the values from which a dictionary is made, in bytes.
const SAMPLE_BYTES: usize = 512 << 10;
/// Size of a dictionary, in bytes.
const DICTIONARY_BYTES: usize = 64 << 10;
/// Maximum size of a stored dictionary. A larger one is damage.
const DICTIONARY_BYTES_MAX: usize = 1 << 20;
/// Maximum number of dictionaries that are kept in memory for reads.
const CACHED_MAX: usize = 64;
/// Maximum number of columns whose samples are kept between flushes.
const KEPT_SAMPLES_MAX: usize = 16;

/// Dictionary of a column, prepared for decompression.
pub(crate) struct Dictionary {
    pub(crate) decoder: DecoderDictionary<'static>,
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary").finish_non_exhaustive()
    }
}

/// Dictionaries that were read recently, and the values that were collected for new ones.
#[derive(Debug)]
pub(crate) struct Dictionaries {
    cached: Cache<(PartId, u32), Arc<Dictionary>>,
    samples: Mutex<BTreeMap<(PartId, Vec<u8>), Samples>>,
}

impl Default for Dictionaries {
    fn default() -> Self {
        Self {
            cached: Cache::new(CACHED_MAX),
            samples: Mutex::default(),
        }
    }
}

/// Values of one column, collected for a dictionary.
#[derive(Debug, Default)]
struct Samples(Vec<u8>);

impl Dictionaries {
    /// Returns a dictionary of a part.
    ///
    /// # Errors
    ///
    /// [`BlockError::Damage`] if the dictionary is missing or damaged, and the errors of the backend.
    pub(crate) fn get(
        &self,
        backend: &dyn Backend,
        part: PartRef,
        number: u32,
    ) -> std::result::Result<Arc<Dictionary>, BlockError> {
        let key = (part.part, number);
        if let Some(known) = self.cached.get(&key) {
            return Ok(known);
        }
        let stored = backend.get(Partition::part(part, DICTIONARIES_BUCKET), &number.to_be_bytes())?;
        let stored = stored.ok_or(Damage("a dictionary of a block is missing"))?;
        let (_, content) = decode(number, &stored)?;
        let dictionary = Arc::new(Dictionary {
            decoder: DecoderDictionary::copy(content),
        });
        self.cached.insert(key, Arc::clone(&dictionary));
        Ok(dictionary)
    }

    fn take_samples(&self, part: PartId, column: &[u8]) -> Samples {
        let taken = self.samples.lock().remove(&(part, column.to_vec()));
        taken.unwrap_or_default()
    }

    /// Keeps the samples of a column for the next flush of the part. If there are too many, the smallest ones are
    /// dropped.
    fn keep_samples(&self, part: PartId, column: Vec<u8>, samples: Samples) {
        let mut kept = self.samples.lock();
        kept.insert((part, column), samples);
        while kept.len() > KEPT_SAMPLES_MAX {
            let smallest = kept.iter().min_by_key(|(_, samples)| samples.0.len());
            let Some(smallest) = smallest.map(|(key, _)| key.clone()) else {
                return;
            };
            kept.remove(&smallest);
        }
    }
}

/// Returns the stored form of a dictionary.
fn encode(number: u32, column: &[u8], content: &[u8]) -> Bytes {
    let mut out = vec![FORMAT];
    varint::put(column.len() as u64, &mut out);
    out.extend_from_slice(column);
    out.extend_from_slice(content);
    let checksum = checksum_of(number, &out);
    out.extend_from_slice(&checksum);
    out.into()
}

/// Decodes a stored dictionary to the encoded name of its column and its content.
fn decode(number: u32, stored: &[u8]) -> std::result::Result<(&[u8], &[u8]), Damage> {
    let (body, checksum) = stored
        .split_last_chunk::<CHECKSUM_BYTES>()
        .ok_or(Damage("a dictionary is cut off"))?;
    if stored.len() > DICTIONARY_BYTES_MAX || *checksum != checksum_of(number, body) {
        return Err(Damage("the checksum of a dictionary is wrong"));
    }
    let mut rest = body
        .strip_prefix(&[FORMAT])
        .ok_or(Damage("a dictionary has a format that this build does not know"))?;
    let column = sized(&mut rest)?;
    Ok((column, rest))
}

/// Returns the checksum of a dictionary. It depends on the number, so that exchanged dictionaries are detected.
fn checksum_of(number: u32, body: &[u8]) -> [u8; CHECKSUM_BYTES] {
    xxh3_64(body).wrapping_add(u64::from(number)).to_le_bytes()
}

/// Compresses the columns of the blocks of one part that have the compression `zstd`.
pub(crate) struct ZstdColumns<'f> {
    store: &'f WideStore,
    part: PartRef,
    plain: Option<Compressor<'static>>,
    /// Columns of the part by encoded name; empty until the first column is compressed.
    columns: BTreeMap<Vec<u8>, ZstdColumn>,
    /// Number of stored dictionaries; `None` until they were read.
    stored: Option<u32>,
}

/// State of one column.
enum ZstdColumn {
    /// Values are collected for a dictionary.
    Collecting(Samples),
    /// The column has a dictionary.
    Ready(u32, Compressor<'static>),
    /// The part has too many dictionaries.
    Without,
}

impl<'f> ZstdColumns<'f> {
    pub(crate) fn new(store: &'f WideStore, part: PartRef) -> Self {
        Self {
            store,
            part,
            plain: None,
            columns: BTreeMap::new(),
            stored: None,
        }
    }

    /// Makes dictionaries of the columns of which enough values were collected. Blocks that are packed later use them.
    ///
    /// # Errors
    ///
    /// The errors of the backend and of the log.
    pub(crate) fn make_dictionaries(&mut self) -> Result<()> {
        for (name, column) in &mut self.columns {
            let ZstdColumn::Collecting(samples) = column else {
                continue;
            };
            if samples.0.len() < SAMPLE_BYTES {
                continue;
            }
            let number = self.stored.unwrap_or_default() + 1;
            let mut content = select(&samples.0, DICTIONARY_BYTES);
            if content.starts_with(&MAGIC) {
                // Otherwise, zstd would read the content as a dictionary with tables.
                content.insert(0, 0);
            }
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
            *column = ZstdColumn::Ready(number, compressor(&content));
        }
        Ok(())
    }

    /// Reads the dictionaries of the part.
    fn load(&mut self) -> std::result::Result<(), BlockError> {
        let backend = self.store.log.backend();
        let limit = PageLimit {
            rows_max: DICTIONARIES_MAX,
            bytes_max: usize::MAX,
        };
        let partition = Partition::part(self.part, DICTIONARIES_BUCKET);
        let found = backend.scan(partition, &KeyRange::ALL, Direction::Ascending, limit)?;
        self.stored = Some(0);
        for row in found.rows {
            let number = row.key[..].try_into().map(u32::from_be_bytes);
            let number = number.map_err(|_| Damage("the key of a dictionary is damaged"))?;
            let (column, content) = decode(number, &row.value)?;
            self.stored = Some(number);
            self.columns
                .insert(column.to_vec(), ZstdColumn::Ready(number, compressor(content)));
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
        if self.stored.is_none() {
            self.load()?;
        }
        if !self.columns.contains_key(name) {
            let column = match self.columns.len() < DICTIONARIES_MAX {
                true => ZstdColumn::Collecting(self.store.dictionaries.take_samples(self.part.part, name)),
                false => ZstdColumn::Without,
            };
            self.columns.insert(name.to_vec(), column);
        }
        let (number, compressor) = match self.columns.get_mut(name) {
            Some(ZstdColumn::Ready(number, compressor)) => (*number, compressor),
            column => {
                if let Some(ZstdColumn::Collecting(samples)) = column {
                    let room = SAMPLE_BYTES.saturating_sub(samples.0.len());
                    samples.0.extend_from_slice(&values[..room.min(values.len())]);
                }
                let plain = self.plain.get_or_insert_with(|| compressor(&[]));
                (0, plain)
            }
        };
        let bytes = compressor
            .compress(values)
            .expect("memory takes the compressed bytes");
        Ok((bytes.len() < values.len()).then_some(Packed {
            codec: SegmentCodec::Zstd,
            dictionary: number,
            bytes,
        }))
    }
}

impl Drop for ZstdColumns<'_> {
    fn drop(&mut self) {
        for (name, column) in std::mem::take(&mut self.columns) {
            if let ZstdColumn::Collecting(samples) = column
                && !samples.0.is_empty()
            {
                self.store
                    .dictionaries
                    .keep_samples(self.part.part, name, samples);
            }
        }
    }
}

/// Returns a compressor with a dictionary; an empty one is no dictionary.
fn compressor(dictionary: &[u8]) -> Compressor<'static> {
    Compressor::with_dictionary(ZSTD_LEVEL, dictionary).expect("a context of a supported level is created")
}

/// Length of the phrases that are counted, in bytes.
const PHRASE_BYTES: usize = 8;
/// Length of a piece of the samples that is taken as a whole, in bytes.
const PIECE_BYTES: usize = 256;
/// First bytes of a dictionary of zstd that has tables.
const MAGIC: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];
/// Number of counters of phrases; a power of two.
const COUNTERS: usize = 1 << 20;

/// Selects the pieces of `samples` whose phrases are most frequent, up to `bytes_max` bytes. The best pieces are at the
/// end, where zstd refers to them with small offsets.
///
/// 1. Each phrase of 8 bytes is counted.
/// 2. The samples are divided into as many epochs as the dictionary has pieces. Of each epoch, the piece is taken whose
///    new phrases have the highest sum of counts; a phrase that an earlier piece contains no longer counts.
///
/// This is the idea of COVER (Liao, Petri, Moffat, Wirth: "Effective Construction of Relative Lempel-Ziv Dictionaries",
/// 2016), which zstd's own trainer also uses.
fn select(samples: &[u8], bytes_max: usize) -> Vec<u8> {
    let phrase_of = |phrase: &[u8]| xxh3_64(phrase) as usize % COUNTERS;
    let mut counts = vec![0_u32; COUNTERS];
    for phrase in samples.windows(PHRASE_BYTES) {
        counts[phrase_of(phrase)] += 1;
    }
    let pieces: Vec<&[u8]> = samples.chunks_exact(PIECE_BYTES).collect();
    let epochs = (bytes_max / PIECE_BYTES).clamp(1, pieces.len().max(1));
    let mut taken: Vec<(u64, &[u8])> = Vec::with_capacity(epochs);
    for epoch in pieces.chunks((pieces.len() / epochs).max(1)) {
        let scored = epoch.iter().map(|piece| {
            let phrases = piece.windows(PHRASE_BYTES);
            // A phrase that occurs once is of no use.
            let score: u64 = phrases
                .map(|phrase| u64::from(counts[phrase_of(phrase)].saturating_sub(1)))
                .sum();
            (score, *piece)
        });
        if let Some(best) = scored.max_by_key(|(score, _)| *score) {
            for phrase in best.1.windows(PHRASE_BYTES) {
                counts[phrase_of(phrase)] = 0;
            }
            taken.push(best);
        }
    }
    taken.sort_by_key(|(score, _)| *score);
    let surplus = taken.len().saturating_sub(bytes_max / PIECE_BYTES);
    taken.drain(..surplus);
    taken
        .iter()
        .flat_map(|(_, piece)| piece.iter().copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_form_of_a_dictionary_never_changes() {
        let stored = encode(2, &[4], b"content");
        let body = [1, 1, 4, b'c', b'o', b'n', b't', b'e', b'n', b't'];
        assert_eq!(stored[..10], body);
        assert_eq!(stored[10..], (xxh3_64(&body) + 2).to_le_bytes());
        assert_eq!(decode(2, &stored), Ok((&[4][..], &b"content"[..])));
        assert!(decode(1, &stored).is_err());
        for at in 0..stored.len() {
            let mut damaged = stored.to_vec();
            damaged[at] ^= 1;
            assert!(decode(2, &damaged).is_err(), "{at}");
            assert!(decode(2, &stored[..at]).is_err(), "{at}");
        }
    }

    #[test]
    fn frequent_phrases_are_selected() {
        // Each piece is either noise or the same sentence with a number.
        let mut state = 1_u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let mut samples = Vec::new();
        for number in 0..400 {
            let mut piece = match number % 4 {
                0 => format!("The quick brown fox number {number} jumps over the lazy dog. ")
                    .repeat(4)
                    .into_bytes(),
                _ => (0..PIECE_BYTES).map(|_| noise()).collect(),
            };
            piece.resize(PIECE_BYTES, b' ');
            samples.extend(piece);
        }
        let selected = select(&samples, 16 * PIECE_BYTES);
        assert_eq!(selected.len(), 16 * PIECE_BYTES);
        let last = &selected[15 * PIECE_BYTES..];
        assert!(last.starts_with(b"The quick brown fox number"));
        assert!(select(&samples[..100], 1_000).is_empty());
    }
}
