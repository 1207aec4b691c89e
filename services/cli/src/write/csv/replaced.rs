//! Counts rows that have the timeline and time of another row of their file.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// Most rows of a file that are compared: 8 bytes and some room each, about 150 MB.
pub(in crate::write) const COMPARED_MAX: usize = 8 << 20;

/// Hashes of the timelines and times that were met.
#[derive(Debug, Default)]
pub(in crate::write) struct Met(Mutex<HashSet<u64>>);

/// Counts of rows that repeat or replace earlier ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::write) struct Compared {
    /// Rows that have the timeline and time of another one.
    pub(in crate::write) replaced: u64,
    /// Rows that were not compared.
    pub(in crate::write) unknown: u64,
}

impl Met {
    /// Adds rows.
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
