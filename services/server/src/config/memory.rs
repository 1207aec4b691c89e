//! Division of the process memory: fixed budgets are set aside, requests share the rest.
//!
//! Budgets that are not configured are lowered to fit a small `memory.max`; a configuration whose budgets leave
//! too little for requests is refused.

use tideline_engine::runtime::MemoryAccount;

use super::keys::KEYS;
use super::slot::{Slot, format_bytes};
use super::sources::Problem;
use super::{Config, Resolved};
use crate::memory::MemoryLimit;

/// Default of [`Config::memory_max`], in percent of the memory of the control group or machine. The rest is for
/// catalogs, the search index, the page cache and memory that the allocator retains.
const MEMORY_PERCENT: u64 = 60;
/// Minimum memory for requests. With less, single requests of ordinary size would be refused.
const REQUESTS_BYTES_MIN: u64 = 8 << 20;
/// Budgets, each with the denominator of its largest share: a budget that is not set is lowered to this share of
/// `memory.max`, but not below the minimum of its key. Together with the heads, which take at most 5/12, and the newest
/// journal entries and dictionaries, the budgets leave about a seventh (27/192) to requests.
const SHARES: [(&str, u64); 10] = [
    ("http.bodies_in_flight_bytes_max", 8),
    ("http.decoded_body_bytes_max", 16),
    ("http.body_bytes_max", 32),
    ("storage.row_buffer_bytes", 96),
    ("storage.pending_bytes_max", 32),
    ("storage.cache_bytes", 16),
    ("storage.cold_cache_bytes", 32),
    ("storage.series_cache_bytes", 16),
    ("archive.cache_bytes", 32),
    ("archive.row_cache_bytes", 64),
];
/// Denominator of the largest share of `memory.max` for the newest journal entries.
const RECENT_PART: u64 = 32;
/// Denominator of the largest share of `memory.max` for dictionaries of compressed columns of rows.
const DICTIONARIES_PART: u64 = 48;

/// Division of [`Config::memory_max`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Total, in bytes.
    pub max_bytes: u64,
    /// Names and bytes of the parts with separate budgets.
    pub set_aside: Vec<(&'static str, u64)>,
}

impl MemoryPlan {
    /// Returns the total of all budgets, in bytes.
    pub fn set_aside_bytes(&self) -> u64 {
        let bytes = self.set_aside.iter().map(|(_, bytes)| *bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Creates the account from which requests reserve memory.
    pub fn account(&self) -> MemoryAccount {
        let account = MemoryAccount::new(self.max_bytes);
        account.set_aside(self.set_aside_bytes());
        account
    }

    /// Returns the reason if the budgets leave too little for requests, otherwise `None`.
    fn problem(&self) -> Option<String> {
        let set_aside = self.set_aside_bytes();
        if set_aside.saturating_add(REQUESTS_BYTES_MIN) <= self.max_bytes {
            return None;
        }
        let parts = self.set_aside.iter();
        let parts = parts.map(|(what, bytes)| format!("{what} {}", format_bytes(*bytes)));
        Some(format!(
            "memory.max of {} is too small: {} are set aside ({}), and requests need {} more; \
             raise memory.max or lower these budgets",
            format_bytes(self.max_bytes),
            format_bytes(set_aside),
            parts.collect::<Vec<_>>().join(", "),
            format_bytes(REQUESTS_BYTES_MIN)
        ))
    }
}

impl Config {
    /// Returns the division of the process memory.
    pub fn memory_plan(&self) -> MemoryPlan {
        let store = &self.engine.store;
        let bytes = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        MemoryPlan {
            max_bytes: self.memory_max_bytes(),
            set_aside: vec![
                // While one head is sealed, the next one fills.
                (
                    "2 × storage.head_bytes_max",
                    bytes(self.head_budget().bytes_max).saturating_mul(2),
                ),
                // Two further buffers may wait for their flush.
                (
                    "3 × storage.row_buffer_bytes",
                    bytes(self.engine.rows.buffer_bytes).saturating_mul(3),
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
                (
                    "archive.row_cache_bytes",
                    bytes(self.engine.rows.archive_cache_bytes),
                ),
                (
                    "dictionaries of compressed columns",
                    bytes(self.dictionary_bytes()),
                ),
            ],
        }
    }

    /// Returns the maximum total size, in bytes, of the newest journal entries that are kept in memory for watches.
    pub(super) fn recent_bytes_max(&self) -> usize {
        let share = usize::try_from(self.memory_max_bytes() / RECENT_PART).unwrap_or(usize::MAX);
        self.engine.store.log.tail_bytes_max.min(share)
    }

    /// Returns the maximum memory, in bytes, of the dictionaries of compressed columns of rows.
    pub(super) fn dictionary_bytes(&self) -> usize {
        let share = usize::try_from(self.memory_max_bytes() / DICTIONARIES_PART).unwrap_or(usize::MAX);
        self.engine.rows.dictionary_bytes.min(share)
    }

    /// Returns the memory for all budgets: the configured value, or a share of the control group's or machine's
    /// memory.
    pub(super) fn memory_max_bytes(&self) -> u64 {
        let granted = || MemoryLimit::of_process().bytes / 100 * MEMORY_PERCENT;
        self.memory_max.unwrap_or_else(granted)
    }

    /// Returns the memory size, in bytes, for which the default of `memory.max` equals the current value. The default
    /// head size is derived from this memory size.
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
                Slot::Bytes(setting) => {
                    *setting = (*setting).min(usize::try_from(share).unwrap_or(usize::MAX));
                }
                Slot::Bytes64(setting) => *setting = (*setting).min(share),
                _ => {}
            }
        }
    }

    /// Returns a problem if `memory.max` is too small for the budgets.
    pub(super) fn too_little_memory(&self) -> Option<Problem> {
        let problem = self.config.memory_plan().problem()?;
        Some(Problem::at(self.origin("memory.max"), problem))
    }
}
