//! Counts rows that have the same timeline and time as an earlier row of their file.
//!
//! Rows are compared by hash. The number of stored hashes is limited, to bound memory.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// Maximum number of hashes stored per file. With the overhead of the set, this number of 8-byte hashes takes about
/// 150 MB.
pub(in crate::write) const COMPARED_MAX: usize = 8 << 20;

/// Hashes of the timelines and times seen so far.
#[derive(Debug, Default)]
pub(in crate::write) struct Met(Mutex<HashSet<u64>>);

/// Counts of compared rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::write) struct Compared {
    /// Number of rows that have the timeline and time of an earlier row.
    pub(in crate::write) replaced: u64,
    /// Number of rows whose hash was neither found nor stored, because the limit was reached.
    pub(in crate::write) unknown: u64,
}

impl Met {
    /// Adds rows by hash, and returns their counts.
    pub(super) fn add(&self, hashes: &[u64]) -> Compared {
        let mut met = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut compared = Compared::default();
        for hash in hashes {
            if met.contains(hash) {
                compared.replaced += 1;
            } else if met.len() == COMPARED_MAX {
                compared.unknown += 1;
            } else {
                met.insert(*hash);
            }
        }
        compared
    }
}
