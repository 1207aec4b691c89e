//! Sequences that runs have skipped before their first entries.
//!
//! The number of entries between two sequences is the difference of the sequences without the skipped ones.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Maximum number of leaps that are stored. The cursor is written with each flush, so the list is short. Sequences of
/// older leaps count as entries.
const LEAPS_MAX: usize = 32;

/// The last ranges of sequences that runs have skipped, oldest first. The stored form is a list of pairs: the first
/// skipped sequence, and the first sequence of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Leaps {
    /// The first `count` ranges are used; the others are empty.
    ranges: [(u64, u64); LEAPS_MAX],
    count: usize,
}

impl Leaps {
    /// Returns true if no leap is stored.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds the sequences that a run skips. They follow the entries of all earlier runs, so earlier leaps that they
    /// overlap were made by runs of which no entry is left.
    pub(crate) fn add(&mut self, skipped: Range<u64>) {
        while self.count > 0 && self.ranges[self.count - 1].1 > skipped.start {
            self.count -= 1;
            let (start, _) = self.ranges[self.count];
            self.ranges[self.count] = (0, 0);
            if start < skipped.start {
                // The entries before this leap and the sequences after it belong together.
                return self.add(start..skipped.end);
            }
        }
        if skipped.is_empty() {
            return;
        }
        if self.count == LEAPS_MAX {
            self.ranges.rotate_left(1);
            self.count -= 1;
        }
        self.ranges[self.count] = (skipped.start, skipped.end);
        self.count += 1;
    }

    /// Returns the number of skipped sequences in a range.
    pub fn skipped(&self, range: Range<u64>) -> u64 {
        let overlap = |&(start, end): &(u64, u64)| end.min(range.end).saturating_sub(start.max(range.start));
        self.ranges[..self.count].iter().map(overlap).sum()
    }
}

impl From<Vec<(u64, u64)>> for Leaps {
    fn from(stored: Vec<(u64, u64)>) -> Self {
        let mut leaps = Self::default();
        for (start, end) in stored {
            leaps.add(start..end);
        }
        leaps
    }
}

impl From<Leaps> for Vec<(u64, u64)> {
    fn from(leaps: Leaps) -> Self {
        leaps.ranges[..leaps.count].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_sequences_are_counted_once() {
        let mut leaps = Leaps::default();
        assert_eq!((leaps.is_empty(), leaps.skipped(0..1_000)), (true, 0));
        leaps.add(10..110);
        leaps.add(115..215);
        assert_eq!(leaps.skipped(0..1_000), 200);
        assert_eq!(leaps.skipped(20..120), 95);
        assert_eq!(leaps.skipped(110..115), 0);
        // Two runs whose entries were lost.
        leaps.add(150..400);
        assert_eq!(leaps.skipped(0..1_000), 100 + 285);
        leaps.add(10..500);
        assert_eq!(leaps, Leaps::from(vec![(10, 500)]));
    }

    #[test]
    fn the_newest_leaps_are_stored() {
        let mut leaps = Leaps::default();
        for run in 0..40 {
            leaps.add(run * 100..run * 100 + 90);
        }
        let stored = Vec::from(leaps);
        assert_eq!((stored.len(), stored[0]), (LEAPS_MAX, (800, 890)));
        let text = serde_json::to_string(&leaps).expect("numbers");
        assert!(text.starts_with("[[800,890],"), "{text}");
        assert_eq!(serde_json::from_str::<Leaps>(&text).expect("a list"), leaps);
        assert_eq!(leaps.skipped(0..u64::MAX), 32 * 90);
    }
}
