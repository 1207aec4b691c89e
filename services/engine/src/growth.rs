//! Limits of new timelines per table, and the tag that causes the growth.
//!
//! A table limits its new timelines per minute, by its own policy or by the settings, and the bytes of its identities
//! in memory. New timelines are counted in slots of 10 s. The current slot and the six before it are counted, so that
//! no period of 60 seconds exceeds the limit. While the table has its own limit or has reached the limit per minute,
//! each slot keeps a sketch per tag key, for at most 32 keys. The sketch counts the new tag values of timelines,
//! admitted or not. A refusal contains the key with the most new values.
//!
//! A sketch is a HyperLogLog (Flajolet et al. 2007) of 1,024 registers: about 3 % error, nearly exact below 100.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tideline_model::TableName;
use tideline_model::reject::{GrowingTag, GrowthCause, IdentitiesFull, TimelineGrowth};
use xxhash_rust::xxh3::xxh3_64;

/// Width of a slot.
const SLOT_SECONDS: u64 = 10;
/// Number of slots counted: a full minute and the current slot.
const SLOTS: u64 = 60 / SLOT_SECONDS + 1;
/// The bytes of identities are measured again after a growth by 1/64 of the measured timelines.
const MEASURED_SHARE: u64 = 64;
/// Minimum number of new timelines between two measurements of the bytes of identities.
const MEASURED_TIMELINES_MIN: u64 = 1_024;
/// Approximate bytes of a timeline in addition to its names.
const IDENTITY_BYTES: u64 = 64;
/// Maximum number of tag keys with a sketch per slot. All sketches of a growing table take at most 224 KiB.
const KEYS_MAX: usize = 32;
/// Number of hash bits that select a register.
const REGISTER_BITS: u32 = 10;
const REGISTERS: usize = 1 << REGISTER_BITS;

/// Limits of tables. The defaults are far above the needs of a regular fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableLimits {
    /// New timelines of a table per minute, unless its policy sets another limit. Default 20,000,000: twice the number
    /// of new timelines if 100,000 machines with 100 series each send for the first time.
    pub timelines_per_minute: u64,
    /// Maximum bytes of the identities of a table in memory. Default 16 GiB; the server's default is half of the memory
    /// of its control group or machine.
    pub identity_bytes_max: u64,
    /// Maximum number of tables. Default 1,000.
    pub tables_max: usize,
    /// Maximum number of secondary indexes of a wide table. Default 16. Each write of a row also writes the changed
    /// entries of all indexes.
    pub indexes_max: usize,
    /// Maximum number of search indexes of a wide table, not counting indexes that are being replaced. Default 4. Each
    /// takes a thread, and memory from the account of the process.
    pub search_indexes_max: usize,
    /// Maximum bytes of the saved searches of all tables, which are in memory. Default 256 MiB; the server's default is
    /// at most 1/32 of the memory of its control group or machine. A tenant may use a tenth of it.
    pub saved_search_bytes_max: u64,
}

impl Default for TableLimits {
    fn default() -> Self {
        Self {
            timelines_per_minute: 20_000_000,
            identity_bytes_max: 16 << 30,
            tables_max: 1_000,
            indexes_max: 16,
            search_indexes_max: 4,
            saved_search_bytes_max: 256 << 20,
        }
    }
}

/// New timelines of one table in the last minute, and the size of all its identities.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    state: Mutex<State>,
    refused: AtomicU64,
    oversized: AtomicU64,
    identities: Mutex<IdentityBytes>,
}

/// Bytes of the identities of a table: the last measurement plus the additions since.
#[derive(Debug, Default)]
struct IdentityBytes {
    /// Measured bytes plus the additions since; 0 until the first measurement after the start.
    bytes: u64,
    /// Number of timelines that may be added before the next measurement.
    left: u64,
}

#[derive(Debug, Default)]
struct State {
    /// At most [`SLOTS`] slots, in ascending order.
    slots: Vec<Slot>,
    /// Last refusal and the monotonic second of the refusal. It is cached because the search for the tag with the most
    /// new values is slow.
    last_refusal: Option<(u64, Arc<TimelineGrowth>)>,
}

#[derive(Debug)]
struct Slot {
    /// Monotonic time in units of the slot width.
    number: u64,
    admitted: u64,
    values: HashMap<Box<str>, Sketch>,
}

impl Growth {
    /// Admits one more timeline, or returns the reason for refusing it. `novel` holds the tags whose values are new;
    /// `now` is monotonic.
    pub(crate) fn admit(
        &self,
        now: Duration,
        limit: u64,
        table: &TableName,
        novel: &[(&str, &str)],
    ) -> Result<(), Arc<TimelineGrowth>> {
        let mut state = self.state.lock();
        state.note(now.as_secs() / SLOT_SECONDS, novel);
        if state.admitted() < limit {
            if let Some(slot) = state.slots.last_mut() {
                slot.admitted += 1;
            }
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(state.refusal(now.as_secs(), limit, table))
    }

    /// Counts an added timeline.
    pub(crate) fn note(&self, now: Duration) {
        let mut state = self.state.lock();
        state.slot_at(now.as_secs() / SLOT_SECONDS).admitted += 1;
    }

    /// Returns true if the last minute has reached the limit of new timelines.
    pub(crate) fn is_full(&self, now: Duration, limit: u64) -> bool {
        let mut state = self.state.lock();
        state.slot_at(now.as_secs() / SLOT_SECONDS);
        state.admitted() >= limit
    }

    /// Returns true if the identities of a table have reached their limit. `measure` returns the number of timelines
    /// and the bytes of their identities. Its cost grows with that number. Therefore the first call measures, and a
    /// later call measures only if 1/64 of that number, and at least 1,024 timelines, have been added since.
    pub(crate) fn is_oversized(&self, limit: u64, measure: impl FnOnce() -> (u64, u64)) -> bool {
        let is_due = self.identities.lock().left == 0;
        // The lock is released for the measurement, which takes other locks.
        let measured = is_due.then(measure);
        let mut identities = self.identities.lock();
        if let Some((timelines, bytes)) = measured {
            *identities = IdentityBytes {
                bytes,
                left: (timelines / MEASURED_SHARE).max(MEASURED_TIMELINES_MIN),
            };
        }
        identities.bytes >= limit
    }

    /// Counts the identity of an added timeline.
    pub(crate) fn note_identity(&self, bytes: usize) {
        let mut identities = self.identities.lock();
        identities.bytes += bytes as u64 + IDENTITY_BYTES;
        identities.left = identities.left.saturating_sub(1);
    }

    /// Counts a refused timeline. Returns the reason why the oversized table accepts no new timelines.
    pub(crate) fn oversize(&self, limit: u64, table: &TableName) -> IdentitiesFull {
        self.oversized.fetch_add(1, Ordering::Relaxed);
        IdentitiesFull {
            table: table.clone(),
            bytes: self.identities.lock().bytes,
            limit,
        }
    }

    /// Returns the number of timelines refused since the start by the size limit.
    pub(crate) fn oversized(&self) -> u64 {
        self.oversized.load(Ordering::Relaxed)
    }

    /// Returns the number of timelines refused since the start by the limit per minute.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl State {
    fn admitted(&self) -> u64 {
        self.slots.iter().map(|slot| slot.admitted).sum()
    }

    /// Returns the slot with this number, or the newest slot if that has a higher number. Drops slots that are not
    /// counted any more.
    fn slot_at(&mut self, number: u64) -> &mut Slot {
        self.slots.retain(|slot| slot.number + SLOTS > number);
        if self.slots.last().is_none_or(|slot| slot.number < number) {
            self.slots.push(Slot {
                number,
                admitted: 0,
                values: HashMap::new(),
            });
        }
        self.slots.last_mut().expect("one was pushed if there was none")
    }

    fn note(&mut self, number: u64, novel: &[(&str, &str)]) {
        let slot = self.slot_at(number);
        for (key, value) in novel {
            if let Some(sketch) = slot.values.get_mut(*key) {
                sketch.add(value);
            } else if slot.values.len() < KEYS_MAX {
                slot.values.entry((*key).into()).or_default().add(value);
            }
        }
    }

    /// Returns the refusal of this second; it is computed once per second and limit. It contains the tag with the most
    /// new values, if new values were recorded.
    fn refusal(&mut self, second: u64, limit: u64, table: &TableName) -> Arc<TimelineGrowth> {
        if let Some((refused_at, refusal)) = &self.last_refusal
            && (*refused_at, refusal.limit) == (second, limit)
        {
            return Arc::clone(refusal);
        }
        let mut together: HashMap<&str, Sketch> = HashMap::new();
        for (key, sketch) in self.slots.iter().flat_map(|slot| &slot.values) {
            together.entry(key).or_default().merge(sketch);
        }
        let counted = together.iter().map(|(key, sketch)| (sketch.count(), *key));
        let refusal = Arc::new(TimelineGrowth {
            table: table.clone(),
            limit,
            cause: match counted.max() {
                Some((values, key)) => GrowthCause::Tag(GrowingTag {
                    key: key.into(),
                    values,
                }),
                None => GrowthCause::Combinations,
            },
        });
        self.last_refusal = Some((second, Arc::clone(&refusal)));
        refusal
    }
}

/// Estimator of the number of distinct texts.
#[derive(Debug)]
struct Sketch {
    registers: Box<[u8; REGISTERS]>,
}

impl Default for Sketch {
    fn default() -> Self {
        Self {
            registers: Box::new([0; REGISTERS]),
        }
    }
}

impl Sketch {
    fn add(&mut self, text: &str) {
        let hash = xxh3_64(text.as_bytes());
        let register = &mut self.registers[(hash >> (64 - REGISTER_BITS)) as usize];
        let rank = ((hash << REGISTER_BITS).leading_zeros() + 1).min(64 - REGISTER_BITS + 1) as u8;
        *register = rank.max(*register);
    }

    fn merge(&mut self, other: &Self) {
        for (ours, theirs) in self.registers.iter_mut().zip(other.registers.iter()) {
            *ours = (*theirs).max(*ours);
        }
    }

    fn count(&self) -> u64 {
        let registers = REGISTERS as f64;
        let alpha = 0.7213 / (1.0 + 1.079 / registers);
        let sum: f64 = self.registers.iter().map(|rank| (-f64::from(*rank)).exp2()).sum();
        let estimate = alpha * registers * registers / sum;
        let zeros = self.registers.iter().filter(|rank| **rank == 0).count() as f64;
        let few = estimate <= 2.5 * registers && zeros > 0.0;
        let estimate = if few {
            registers * (registers / zeros).ln()
        } else {
            estimate
        };
        estimate.round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TableName {
        TableName::new("t").expect("valid")
    }

    #[test]
    fn a_sketch_is_nearly_right() {
        for count in [0u64, 1, 2, 10, 100, 1_000, 20_000, 300_000] {
            let mut sketch = Sketch::default();
            for value in 0..count {
                sketch.add(&format!("pod-{value}"));
                sketch.add(&format!("pod-{value}"));
            }
            let allowed = if count <= 10 { 0 } else { count / 10 };
            assert!(
                sketch.count().abs_diff(count) <= allowed,
                "{count}: {}",
                sketch.count()
            );
        }
    }

    #[test]
    fn no_minute_takes_more_than_the_limit() {
        let growth = Growth::default();
        let mut admitted = Vec::new();
        for second in 0..400u64 {
            for _ in 0..3 {
                if growth
                    .admit(Duration::from_secs(second), 20, &table(), &[])
                    .is_ok()
                {
                    admitted.push(second);
                }
            }
        }
        assert!(admitted.len() >= 100, "a minute later there is room again");
        for start in 0..340 {
            let within = admitted.iter().filter(|at| (start..start + 60).contains(*at));
            assert!(within.count() <= 20, "from second {start}");
        }
        assert_eq!(growth.refused() as usize, 1_200 - admitted.len());
    }

    #[test]
    fn keys_without_end_cost_no_more_memory() {
        let growth = Growth::default();
        for key in 0..1_000 {
            let key = format!("key-{key}");
            let _ = growth.admit(Duration::ZERO, 1, &table(), &[(&key, "value")]);
        }
        assert_eq!(growth.state.lock().slots[0].values.len(), KEYS_MAX);
    }
}
