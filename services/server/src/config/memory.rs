//! Division of the memory of the process: budgets are set aside, the rest is for requests.

use tideline_engine::runtime::MemoryAccount;

use super::keys::KEYS;
use super::slot::{Slot, format_bytes};
use super::sources::Problem;
use super::{Config, Resolved};
use crate::memory::MemoryLimit;

/// Percent of the memory of the control group or the machine that [`Config::memory_max`] is where it is not set. The rest is
/// for catalogs, the search index, the page cache and what the allocator keeps.
const MEMORY_PERCENT: u64 = 60;
/// Least memory for requests: less would refuse single ones of ordinary size.
const REQUESTS_BYTES_MIN: u64 = 8 << 20;
/// Budgets that are at most this part of `memory.max` unless they are set. With the heads, which are 5/12 of it at most, they
/// leave a fifth to requests.
const SHARES: [(&str, u64); 8] = [
    ("http.bodies_in_flight_bytes_max", 8),
    ("http.decoded_body_bytes_max", 16),
    ("http.body_bytes_max", 32),
    ("storage.pending_bytes_max", 32),
    ("storage.cache_bytes", 16),
    ("storage.cold_cache_bytes", 32),
    ("storage.series_cache_bytes", 16),
    ("archive.cache_bytes", 32),
];
/// The journal's newest entries are at most this part of `memory.max`.
const RECENT_PART: u64 = 32;

/// The division of [`Config::memory_max`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPlan {
    /// All of it.
    pub max_bytes: u64,
    /// Parts with a budget of their own, and their bytes.
    pub set_aside: Vec<(&'static str, u64)>,
}

impl MemoryPlan {
    /// Bytes that have budgets of their own.
    pub fn set_aside_bytes(&self) -> u64 {
        let bytes = self.set_aside.iter().map(|(_, bytes)| *bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// The account that requests reserve memory from.
    pub fn account(&self) -> MemoryAccount {
        let account = MemoryAccount::new(self.max_bytes);
        account.set_aside(self.set_aside_bytes());
        account
    }

    /// Why the division is not possible, if it is not.
    fn problem(&self) -> Option<String> {
        let set_aside = self.set_aside_bytes();
        if set_aside.saturating_add(REQUESTS_BYTES_MIN) <= self.max_bytes {
            return None;
        }
        let parts = self.set_aside.iter();
        let parts = parts.map(|(what, bytes)| format!("{what} {}", format_bytes(*bytes)));
        Some(format!(
            "memory.max of {} is too little: {} are set aside ({}), and requests need {} more; raise memory.max or lower \
             these budgets",
            format_bytes(self.max_bytes),
            format_bytes(set_aside),
            parts.collect::<Vec<_>>().join(", "),
            format_bytes(REQUESTS_BYTES_MIN)
        ))
    }
}

impl Config {
    /// Divides the memory of the process.
    pub fn memory_plan(&self) -> MemoryPlan {
        let store = &self.engine.store;
        let bytes = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        MemoryPlan {
            max_bytes: self.memory_max_bytes(),
            set_aside: vec![
                // While a head is sealed, the next one fills.
                (
                    "2 × storage.head_bytes_max",
                    bytes(self.head_budget().bytes_max).saturating_mul(2),
                ),
                ("storage.pending_bytes_max", bytes(store.log.pending_bytes_max)),
                ("recent journal entries", bytes(self.recent_bytes_max())),
                (
                    "http.bodies_in_flight_bytes_max",
                    bytes(self.http.bodies_in_flight_bytes_max),
                ),
                ("storage.cache_bytes", self.backend.cache_bytes),
                ("storage.cold_cache_bytes", self.backend.cold_cache_bytes),
                (
                    "storage.series_cache_bytes",
                    bytes(self.engine.raw_key_cache_bytes),
                ),
                ("archive.cache_bytes", bytes(self.archive.cache_bytes)),
            ],
        }
    }

    /// Bytes of the journal's newest entries that are kept for watches.
    pub(super) fn recent_bytes_max(&self) -> usize {
        let share = usize::try_from(self.memory_max_bytes() / RECENT_PART).unwrap_or(usize::MAX);
        self.engine.store.log.tail_bytes_max.min(share)
    }

    /// Memory that the budgets of the process may take together: what is set, else a share of what the system grants.
    pub(super) fn memory_max_bytes(&self) -> u64 {
        let granted = || MemoryLimit::of_process().bytes / 100 * MEMORY_PERCENT;
        self.memory_max.unwrap_or_else(granted)
    }

    /// Memory of a machine on which `memory.max` would be the default: what the default of the head follows.
    pub(super) fn memory_basis_bytes(&self) -> u64 {
        match self.memory_max {
            Some(max) => max / MEMORY_PERCENT * 100,
            None => MemoryLimit::of_process().bytes,
        }
    }
}

impl Resolved {
    /// Lowers budgets that are not set to their share of a small `memory.max`.
    pub(super) fn fit_memory(&mut self) {
        let max = self.config.memory_max_bytes();
        for (path, part) in SHARES {
            let key = KEYS.iter().find(|key| key.path == path);
            let Some(key) = key.filter(|_| self.is_default(path)) else {
                continue;
            };
            let share = (max / part).max(*key.range.start());
            match (key.slot)(&mut self.config) {
                Slot::Bytes(place) => *place = (*place).min(usize::try_from(share).unwrap_or(usize::MAX)),
                Slot::Bytes64(place) => *place = (*place).min(share),
                _ => {}
            }
        }
    }

    /// The problem of a `memory.max` below what is set aside.
    pub(super) fn too_little_memory(&self) -> Option<Problem> {
        let problem = self.config.memory_plan().problem()?;
        Some(Problem::at(self.origin("memory.max"), problem))
    }
}
