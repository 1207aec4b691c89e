//! Dictionaries of zstd: texts that are frequent in one column of a part, so that small blocks compress well.
//!
//! A block holds a few kilobytes of a column, in which words and phrases hardly repeat. A dictionary holds phrases that
//! are frequent in the column. With it, blocks of 8 KiB become about as small as blocks of 64 KiB without it.
//!
//! 1. While the first blocks of a part are packed, the values of each column with the compression `zstd` are collected
//!    ([`Progress`]). These blocks have no dictionary.
//! 2. After 512 KiB, [`select`](select::select) chooses the 64 KiB whose phrases are most frequent. The dictionary is
//!    stored in bucket 3 of the part, and synced, before the first block that uses it is written.
//! 3. From time to time, [`ZstdColumns`] compares the dictionary with a dictionary made from newer values. If the new
//!    one is clearly better, it is stored under the next number, and later blocks use it.
//! 4. A stored dictionary is never changed, and is freed together with its part. A move copies it before the blocks.
//!
//! The memory has one budget. A quarter of it is for dictionaries that are prepared for decompression. The rest is for
//! collected values, and for dictionaries that are prepared for compression; if it is used up, blocks are compressed
//! without a dictionary.

mod columns;
mod select;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tideline_backend::{Backend, PartRef, Partition};
use tideline_model::PartId;
use tideline_runtime::{MemoryAccount, Reservation};
use tideline_wire::varint;
use xxhash_rust::xxh3::xxh3_64;
use zstd::dict::DecoderDictionary;

use crate::blocks::BlockError;
use crate::error::Damage;
use crate::value::sized;

pub(crate) use columns::ZstdColumns;

/// Bucket of a part that holds dictionaries.
pub(crate) const DICTIONARIES_BUCKET: u16 = 3;
/// Format of a stored dictionary.
const FORMAT: u8 = 1;
/// Bytes of the checksum of a stored dictionary.
const CHECKSUM_BYTES: usize = 8;
/// Maximum size of a stored dictionary. A larger one is damage.
const DICTIONARY_BYTES_MAX: usize = 1 << 20;
/// Default of the memory budget, in bytes.
pub(crate) const MEMORY_BYTES: usize = 32 << 20;
/// Share of the budget for dictionaries that are prepared for decompression, as a divisor: 1 / `READS_PART`.
const READS_PART: usize = 4;
/// Typical size of a dictionary that is prepared for decompression, in bytes.
const PREPARED_BYTES: usize = 96 << 10;
/// Maximum number of columns whose values are kept between flushes.
const KEPT_SAMPLES_MAX: usize = 16;
/// Maximum number of columns whose counts are kept between flushes.
const KEPT_MAX: usize = 1_024;
/// Name of this memory in errors and metrics.
const HOLDER: &str = "dictionaries of compressed columns";

/// Dictionary of a column, prepared for decompression.
pub(crate) struct Dictionary {
    pub(crate) decoder: DecoderDictionary<'static>,
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary").finish_non_exhaustive()
    }
}

/// Weighs prepared dictionaries by their bytes.
#[derive(Debug, Clone)]
struct DictionaryBytes;

impl Weighter<(PartId, u32), Arc<Dictionary>> for DictionaryBytes {
    fn weight(&self, _: &(PartId, u32), dictionary: &Arc<Dictionary>) -> u64 {
        dictionary.decoder.as_ddict().sizeof() as u64
    }
}

/// Dictionaries that were read recently, and the state of the columns between flushes.
#[derive(Debug)]
pub(crate) struct Dictionaries {
    cached: Cache<(PartId, u32), Arc<Dictionary>, DictionaryBytes>,
    kept: Mutex<BTreeMap<(PartId, Vec<u8>), Progress>>,
    /// Memory of collected values, and of dictionaries that are prepared for compression.
    memory: MemoryAccount,
    budget_bytes: usize,
    made: AtomicU64,
    replaced: AtomicU64,
}

/// Memory and number of the dictionaries of compressed columns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DictionaryStats {
    /// Bytes in use.
    pub bytes: u64,
    /// Maximum of `bytes`.
    pub budget_bytes: u64,
    /// Number of dictionaries that were made since the start, including those that replaced another one.
    pub made: u64,
    /// Number of dictionaries that replaced another one since the start.
    pub replaced: u64,
    /// Number of times that blocks were packed without a dictionary, or no values were collected, because the budget
    /// was used up.
    pub refusals: u64,
}

/// State of one column of a part.
#[derive(Debug, Default)]
struct Progress {
    /// Values that were collected for a dictionary.
    samples: Option<Samples>,
    /// Bytes of the values that were packed since the dictionary was made or compared.
    packed: u64,
    /// Bytes of `packed` after which values are collected for a comparison; 0 until a dictionary is made or compared.
    distance: u64,
}

/// Collected values of one column.
#[derive(Debug)]
struct Samples {
    bytes: Vec<u8>,
    /// Reserved for the values.
    _memory: Reservation,
}

impl Default for Dictionaries {
    fn default() -> Self {
        Self::new(MEMORY_BYTES)
    }
}

impl Dictionaries {
    /// Creates dictionaries that use at most `budget_bytes` of memory.
    pub(crate) fn new(budget_bytes: usize) -> Self {
        let for_reads = budget_bytes / READS_PART;
        let items = (for_reads / PREPARED_BYTES).max(4);
        Self {
            cached: Cache::with_weighter(items, for_reads as u64, DictionaryBytes),
            kept: Mutex::default(),
            memory: MemoryAccount::new((budget_bytes - for_reads) as u64),
            budget_bytes,
            made: AtomicU64::new(0),
            replaced: AtomicU64::new(0),
        }
    }

    /// Returns the memory and the number of dictionaries.
    pub(crate) fn stats(&self) -> DictionaryStats {
        DictionaryStats {
            bytes: self.cached.weight() + self.memory.used_bytes(),
            budget_bytes: self.budget_bytes as u64,
            made: self.made.load(Ordering::Relaxed),
            replaced: self.replaced.load(Ordering::Relaxed),
            refusals: self.memory.refusals().values().sum(),
        }
    }

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

    /// Reserves memory for writes. If too little is free, drops the values that are kept between flushes first. Returns
    /// `None` if that does not suffice.
    fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let bytes = bytes as u64;
        let mut reserved = self.memory.open(HOLDER);
        if self.memory.used_bytes() + bytes > self.memory.limit_bytes() {
            for progress in self.kept.lock().values_mut() {
                progress.samples = None;
            }
        }
        reserved.grow(bytes).ok().map(|()| reserved)
    }

    fn take_progress(&self, part: PartId, column: &[u8]) -> Progress {
        let taken = self.kept.lock().remove(&(part, column.to_vec()));
        taken.unwrap_or_default()
    }

    /// Returns the columns of a part of which at least `bytes` of values were collected in earlier flushes.
    fn kept_columns(&self, part: PartId, bytes: usize) -> Vec<Vec<u8>> {
        let kept = self.kept.lock();
        let of_part = kept
            .range((part, Vec::new())..)
            .take_while(|((of, _), _)| *of == part);
        let full = of_part.filter(|(_, progress)| progress.collected() >= bytes);
        full.map(|((_, column), _)| column.clone()).collect()
    }

    /// Keeps the state of a column for the next flush of the part. If too many columns have collected values, drops the
    /// values of the column with the fewest. If too many columns are kept, removes the column of which the fewest bytes
    /// were packed.
    fn keep_progress(&self, part: PartId, column: Vec<u8>, progress: Progress) {
        let mut kept = self.kept.lock();
        kept.insert((part, column), progress);
        let sampled = kept.values_mut().filter(|progress| progress.samples.is_some());
        let mut sampled: Vec<&mut Progress> = sampled.collect();
        if sampled.len() > KEPT_SAMPLES_MAX
            && let Some(fewest) = sampled.iter_mut().min_by_key(|progress| progress.collected())
        {
            fewest.samples = None;
        }
        if kept.len() > KEPT_MAX {
            let fewest = kept.iter().min_by_key(|(_, progress)| progress.packed);
            if let Some(fewest) = fewest.map(|(key, _)| key.clone()) {
                kept.remove(&fewest);
            }
        }
    }
}

impl Progress {
    /// Returns the bytes of the collected values.
    fn collected(&self) -> usize {
        self.samples.as_ref().map_or(0, |samples| samples.bytes.len())
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
    fn values_that_are_kept_between_flushes_leave_room_for_dictionaries() {
        let dictionaries = Dictionaries::new(4_000);
        let samples = |bytes: usize| Progress {
            samples: dictionaries.reserve(bytes).map(|memory| Samples {
                bytes: vec![0; bytes],
                _memory: memory,
            }),
            ..Progress::default()
        };
        dictionaries.keep_progress(PartId(1), vec![1], samples(1_000));
        dictionaries.keep_progress(PartId(1), vec![2], samples(1_500));
        assert_eq!(dictionaries.stats().bytes, 2_500);
        let reserved = dictionaries.reserve(2_000).expect("the kept values are dropped");
        assert_eq!(dictionaries.stats().bytes, 2_000);
        assert!(dictionaries.reserve(1_001).is_none());
        assert_eq!(dictionaries.stats().refusals, 1);
        assert_eq!(dictionaries.take_progress(PartId(1), &[2]).collected(), 0);
        drop(reserved);
        for column in 0..=KEPT_SAMPLES_MAX as u8 {
            dictionaries.keep_progress(PartId(1), vec![column], samples(100 - usize::from(column)));
        }
        assert_eq!(
            dictionaries.stats().bytes,
            16 * 100 - 120,
            "the fewest values were dropped"
        );
    }
}
