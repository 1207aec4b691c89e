//! Load of a wide table in the last minute: rows written and read, and the key ranges with most of the load.
//!
//! Keys are sampled: a slot of 5 s keeps at most 128 keys of written rows and as many of rows read. A request costs one
//! short lock, and a copy of a key only if it is sampled. The distance between two sampled rows is random, so that a
//! regular order of keys does not bias the sample. Its mean doubles when a slot is full.
//!
//! Memory is bounded: about 3,000 keys of at most 256 bytes per busy table.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;

use crate::engine::Engine;
use crate::wide_table::WideTable;

/// Width of a slot.
const SLOT_SECONDS: u64 = 5;
/// Number of slots kept: one minute.
const SLOTS: u64 = 60 / SLOT_SECONDS;
/// Maximum number of sampled keys of a slot and kind.
const SAMPLES_MAX: usize = 128;
/// Maximum length of a sampled key. Longer keys are not sampled, because a part of a key cannot be decoded.
const KEY_BYTES_MAX: usize = 256;
/// Minimum number of rows in the last minute. Below it, no range is hot.
const BUSY_MIN: u64 = 1_000;
/// Minimum number of sampled keys of a hot range, so that no range is hot by chance.
const HOT_SAMPLES_MIN: usize = 16;
/// Multiple of the fair share above which a partition is hot.
const HOT_SHARES: f64 = 4.0;
/// Share above which a partition is hot, however few partitions there are.
const HOT_SHARE: f64 = 0.5;
/// Keys count as rising if at least this share of the keys of a slot is above all keys of the previous slot.
const RISING_SHARE: f64 = 0.9;
/// Minimum number of sampled keys of a slot. Slots with fewer keys are ignored in the test for rising keys.
const RISING_SAMPLES_MIN: usize = 8;
/// Maximum number of partitions in a report.
const PARTITIONS_MAX: usize = 20;

/// Kind of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowAccess {
    /// Rows written.
    Write,
    /// Rows read.
    Read,
}

/// Load of one kind in the last minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccessLoad {
    /// Number of requests.
    pub requests: u64,
    /// Number of rows.
    pub rows: u64,
}

/// Key range with much of the load.
#[derive(Debug, Clone, PartialEq)]
pub struct HotRows {
    /// First sampled key.
    pub first: Vec<u8>,
    /// Last sampled key.
    pub last: Vec<u8>,
    /// True for one partition; false for the end of the table, to which all writes go.
    pub is_partition: bool,
    /// Share of the rows written, 0 to 1.
    pub share_of_writes: f64,
    /// Share of the rows read, 0 to 1.
    pub share_of_reads: f64,
}

/// Load of a table in the last minute.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TableLoad {
    /// Writes.
    pub writes: AccessLoad,
    /// Reads.
    pub reads: AccessLoad,
    /// True if keys rise: nearly every write has a higher key than all earlier writes.
    pub are_keys_rising: bool,
    /// Hot ranges, busiest first.
    pub hot: Vec<HotRows>,
}

impl TableLoad {
    /// Returns the number of requests per second.
    pub fn requests_per_second(&self) -> f64 {
        (self.writes.requests + self.reads.requests) as f64 / (SLOTS * SLOT_SECONDS) as f64
    }
}

impl Engine {
    /// Returns the load of a table in the last minute. The fair share of a partition is its share under an even load.
    /// The number of partitions is the number in the last survey or the number of sampled partitions, whichever is
    /// higher.
    pub fn row_load(&self, table: &WideTable) -> TableLoad {
        let survey = self.row_survey(table.table().points().id());
        let partitions = survey.map_or(0, |survey| survey.rows.partition_count);
        let partition_of = |key: &[u8]| {
            let length = table.layout().partition_len(key).unwrap_or(key.len());
            key[..length].to_vec()
        };
        let load = &table.table().activity.row_load;
        load.report(self.clock.monotonic(), partitions, &partition_of)
    }

    /// Counts rows that a request writes or reads. `key_of` returns the key of a row by its number.
    pub(crate) fn note_rows<'k>(
        &self,
        table: &WideTable,
        access: RowAccess,
        count: usize,
        key_of: impl Fn(usize) -> &'k [u8],
    ) {
        let load = &table.table().activity.row_load;
        load.note(self.clock.monotonic(), access, count, key_of);
    }
}

/// Sampled load of one table.
#[derive(Debug, Default)]
pub(crate) struct RowLoad(Mutex<VecDeque<Slot>>);

#[derive(Debug)]
struct Slot {
    /// Monotonic time in units of the slot width.
    number: u64,
    writes: Sample,
    reads: Sample,
}

#[derive(Debug)]
struct Sample {
    load: AccessLoad,
    /// Number of the row that is sampled next.
    next: u64,
    /// Mean distance between two sampled rows.
    stride: u64,
    keys: Vec<Box<[u8]>>,
    random: u64,
}

impl Sample {
    fn new(seed: u64) -> Self {
        Self {
            load: AccessLoad::default(),
            next: 0,
            stride: 1,
            keys: Vec::new(),
            // Xorshift needs a seed other than 0.
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    fn note<'k>(&mut self, count: usize, key_of: impl Fn(usize) -> &'k [u8]) {
        let first = self.load.rows;
        self.load.requests += 1;
        self.load.rows += count as u64;
        while self.next < self.load.rows {
            let key = key_of((self.next - first) as usize);
            if key.len() <= KEY_BYTES_MAX {
                self.keys.push(key.into());
            }
            if self.keys.len() >= SAMPLES_MAX {
                self.thin();
            }
            let stride = self.stride;
            self.next += 1 + self.below(2 * stride - 1);
        }
    }

    /// Drops each key with a probability of one half, and doubles the mean distance.
    fn thin(&mut self) {
        let keys = std::mem::take(&mut self.keys);
        for key in keys {
            if self.below(2) == 0 {
                self.keys.push(key);
            }
        }
        self.stride *= 2;
    }
}

impl RowLoad {
    fn note<'k>(&self, now: Duration, access: RowAccess, count: usize, key_of: impl Fn(usize) -> &'k [u8]) {
        if count == 0 {
            return;
        }
        let mut slots = self.0.lock();
        advance(&mut slots, now.as_secs() / SLOT_SECONDS);
        if let Some(slot) = slots.back_mut() {
            match access {
                RowAccess::Write => slot.writes.note(count, key_of),
                RowAccess::Read => slot.reads.note(count, key_of),
            }
        }
    }

    fn report(&self, now: Duration, partitions: u64, partition_of: &dyn Fn(&[u8]) -> Vec<u8>) -> TableLoad {
        let mut slots = self.0.lock();
        let number = now.as_secs() / SLOT_SECONDS;
        slots.retain(|slot| slot.number + SLOTS > number);
        let total = |of: &dyn Fn(&Slot) -> AccessLoad| {
            slots
                .iter()
                .map(of)
                .fold(AccessLoad::default(), |all, load| AccessLoad {
                    requests: all.requests + load.requests,
                    rows: all.rows + load.rows,
                })
        };
        let (writes, reads) = (total(&|slot| slot.writes.load), total(&|slot| slot.reads.load));
        let written = weights(slots.iter().map(|slot| &slot.writes), partition_of);
        let read = weights(slots.iter().map(|slot| &slot.reads), partition_of);
        let rising = rising(&slots);
        drop(slots);
        let mut hot: BTreeMap<Vec<u8>, HotRows> = BTreeMap::new();
        for (load, found, is_write) in [(writes, &written, true), (reads, &read, false)] {
            if load.rows < BUSY_MIN {
                continue;
            }
            let count = partitions.max(found.len() as u64).max(1);
            let limit = (HOT_SHARES / count as f64).min(HOT_SHARE);
            for (partition, weight) in found {
                let share = weight.rows / load.rows as f64;
                if share <= limit || weight.samples < HOT_SAMPLES_MIN {
                    continue;
                }
                let range = hot.entry(partition.clone()).or_insert_with(|| HotRows {
                    first: weight.first.clone(),
                    last: weight.last.clone(),
                    is_partition: true,
                    share_of_writes: 0.0,
                    share_of_reads: 0.0,
                });
                match is_write {
                    true => range.share_of_writes = share.min(1.0),
                    false => range.share_of_reads = share.min(1.0),
                }
            }
        }
        let mut hot: Vec<HotRows> = hot.into_values().collect();
        let busy = |range: &HotRows| range.share_of_writes.max(range.share_of_reads);
        hot.sort_by(|one, other| busy(other).total_cmp(&busy(one)));
        hot.truncate(PARTITIONS_MAX);
        let rising = rising.filter(|_| writes.rows >= BUSY_MIN);
        let are_keys_rising = rising.is_some();
        if let Some((first, last)) = rising {
            hot.insert(
                0,
                HotRows {
                    first,
                    last,
                    is_partition: false,
                    share_of_writes: 1.0,
                    share_of_reads: 0.0,
                },
            );
        }
        TableLoad {
            writes,
            reads,
            are_keys_rising,
            hot,
        }
    }
}

/// Begins the slot with this number unless it has begun, and drops old slots.
fn advance(slots: &mut VecDeque<Slot>, number: u64) {
    if slots.back().is_some_and(|slot| slot.number >= number) {
        return;
    }
    slots.retain(|slot| slot.number + SLOTS > number);
    slots.push_back(Slot {
        number,
        writes: Sample::new(2 * number + 1),
        reads: Sample::new(2 * number + 2),
    });
}

/// Estimated number of rows of a partition.
struct Weight {
    rows: f64,
    samples: usize,
    first: Vec<u8>,
    last: Vec<u8>,
}

/// Returns the estimated number of rows by partition.
fn weights<'s>(
    samples: impl Iterator<Item = &'s Sample>,
    partition_of: &dyn Fn(&[u8]) -> Vec<u8>,
) -> BTreeMap<Vec<u8>, Weight> {
    let mut weights: BTreeMap<Vec<u8>, Weight> = BTreeMap::new();
    for sample in samples {
        let each = sample.load.rows as f64 / sample.keys.len().max(1) as f64;
        for key in &sample.keys {
            let weight = weights.entry(partition_of(key)).or_insert_with(|| Weight {
                rows: 0.0,
                samples: 0,
                first: key.to_vec(),
                last: key.to_vec(),
            });
            weight.rows += each;
            weight.samples += 1;
            if key[..] < weight.first[..] {
                weight.first = key.to_vec();
            }
            if key[..] > weight.last[..] {
                weight.last = key.to_vec();
            }
        }
    }
    weights
}

/// Returns the first and last key of the newest slot if the keys of writes rise. For this, at least three slots must
/// have enough samples, and in each pair of neighboring slots, nearly all keys of the later slot must be above all
/// keys of the earlier slot.
fn rising(slots: &VecDeque<Slot>) -> Option<(Vec<u8>, Vec<u8>)> {
    let keys: Vec<&Vec<Box<[u8]>>> = slots
        .iter()
        .map(|slot| &slot.writes.keys)
        .filter(|keys| keys.len() >= RISING_SAMPLES_MIN)
        .collect();
    let is_above = |pair: &[&Vec<Box<[u8]>>]| {
        let highest = pair[0].iter().max();
        let above = pair[1].iter().filter(|key| Some(*key) > highest).count();
        above as f64 >= RISING_SHARE * pair[1].len() as f64
    };
    if keys.len() < 3 || !keys.windows(2).all(is_above) {
        return None;
    }
    let newest = keys.last()?;
    Some((newest.iter().min()?.to_vec(), newest.iter().max()?.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the load of 60 seconds with a hundred written rows per second. `key_of` returns the key of a row by its
    /// number.
    fn load_of(key_of: impl Fn(u64) -> Vec<u8>) -> TableLoad {
        let load = RowLoad::default();
        for number in 0..6_000_u64 {
            let key = key_of(number);
            load.note(Duration::from_millis(number * 10), RowAccess::Write, 1, |_| &key);
        }
        load.report(Duration::from_secs(59), 0, &|key| key[..2].to_vec())
    }

    fn spread(number: u64) -> Vec<u8> {
        let hash = xxhash_rust::xxh3::xxh3_64(&number.to_le_bytes());
        hash.to_be_bytes().to_vec()
    }

    #[test]
    fn an_even_load_has_no_hot_range() {
        let load = load_of(spread);
        assert_eq!((load.writes.rows, load.writes.requests), (6_000, 6_000));
        assert!(load.hot.is_empty() && !load.are_keys_rising, "{load:?}");
        assert!((load.requests_per_second() - 100.0).abs() < 1.0);
    }

    #[test]
    fn a_partition_with_much_of_the_load_is_named_with_its_share() {
        let load = load_of(|number| match number % 10 {
            ..4 => vec![7, 7, (number % 256) as u8],
            _ => spread(number),
        });
        let [hot] = load.hot.as_slice() else {
            panic!("{load:?}");
        };
        assert!(hot.is_partition && hot.first.starts_with(&[7, 7]) && hot.last.starts_with(&[7, 7]));
        assert!((0.33..0.47).contains(&hot.share_of_writes), "{hot:?}");
    }

    #[test]
    fn rising_keys_are_found_and_end_with_the_minute() {
        let load = load_of(|number| number.to_be_bytes().to_vec());
        assert!(load.are_keys_rising && !load.hot[0].is_partition, "{load:?}");
        let old = RowLoad::default();
        for number in 0..6_000_u64 {
            let key = number.to_be_bytes();
            old.note(Duration::from_millis(number * 10), RowAccess::Write, 1, |_| &key);
        }
        let later = old.report(Duration::from_secs(200), 0, &|key| key.to_vec());
        assert_eq!(later, TableLoad::default());
    }

    #[test]
    fn memory_is_bounded_whatever_the_number_of_rows() {
        let load = RowLoad::default();
        let keys: Vec<[u8; 8]> = (0..10_000_u64).map(u64::to_be_bytes).collect();
        for second in 0..600 {
            for access in [RowAccess::Write, RowAccess::Read] {
                load.note(Duration::from_secs(second), access, keys.len(), |number| {
                    &keys[number]
                });
            }
        }
        let slots = load.0.lock();
        assert!(slots.len() as u64 <= SLOTS);
        for slot in slots.iter() {
            assert!(slot.writes.keys.len() <= SAMPLES_MAX && slot.writes.keys.len() > SAMPLES_MAX / 8);
        }
    }

    #[test]
    fn a_small_load_has_no_hot_range() {
        let load = RowLoad::default();
        for number in 0..999_u64 {
            load.note(Duration::from_millis(number), RowAccess::Read, 1, |_| &[7, 7]);
        }
        assert!(
            load.report(Duration::from_secs(1), 0, &|key| key.to_vec())
                .hot
                .is_empty()
        );
    }
}
