//! Attribute edits of a table: the newest edit of each timeline, the resulting attributes, and the settled edit
//! counter.
//!
//! Each edit has a number. Followers such as the search index read the timelines that were edited after a given number.
//! An edit with unknown outcome holds the settled counter back until it is certain whether a restart restores the edit.

use std::collections::{BTreeMap, BTreeSet};

use roaring::RoaringBitmap;
use tideline_model::Ordinal;

use crate::attribute_sets::{AttributeSets, SetNumber};
use crate::packed::Packed;
use crate::types::TypeCounts;

/// The edits of a table. Numbers start at 1; a later edit has a higher number.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    newest: u64,
    pub(crate) types: TypeCounts,
    sets: AttributeSets,
    /// Number of the newest edit per timeline, indexed by ordinal; 0 = never edited.
    numbers: Vec<u64>,
    /// Attribute set per timeline, indexed by ordinal.
    has: Vec<SetNumber>,
    /// All edits sorted by number. Entries that a later edit of the timeline has replaced are skipped on reading.
    by_number: Vec<(u64, Ordinal)>,
    /// Number of replaced entries in `by_number`.
    replaced: usize,
    /// Edits that are being committed, edits whose commit failed with unknown outcome, and edits whose number a removal
    /// has used. After a restart these edits may be absent, or present under another number.
    in_doubt: BTreeMap<u64, Ordinal>,
    /// Edits of `in_doubt`, sorted by timeline.
    doubtful: BTreeSet<(Ordinal, u64)>,
    /// During journal replay: timelines whose newest edit was found in the journal.
    confirmed: RoaringBitmap,
}

/// An edit, and the attributes of the timeline after it.
#[derive(Debug)]
pub(crate) struct Edited {
    pub(crate) number: u64,
    pub(crate) attributes: Packed,
}

/// Newest edit of a timeline, and its attributes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Newest<'a> {
    pub(crate) number: u64,
    pub(crate) attributes: &'a Packed,
}

/// Slack of the compaction threshold: `by_number` is compacted when the number of replaced entries exceeds half
/// of all entries by more than this number.
const REPLACED_MIN: usize = 64;

impl Edits {
    /// Returns the highest number that was given to an edit or reserved by [`pass`](Self::pass); 0 if there is
    /// no such number.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// Returns the newest edit of a timeline; `None` if it was never edited.
    pub(crate) fn of(&self, ordinal: Ordinal) -> Option<Newest<'_>> {
        let at = ordinal.0 as usize;
        let number = self.numbers.get(at).copied().filter(|number| *number > 0)?;
        let attributes = self.sets.get(self.has[at]);
        Some(Newest { number, attributes })
    }

    /// Returns the number of the newest edit of a timeline; 0 = never edited.
    pub(crate) fn number_of(&self, ordinal: Ordinal) -> u64 {
        self.numbers.get(ordinal.0 as usize).copied().unwrap_or(0)
    }

    /// Records the newest edit of a timeline.
    pub(crate) fn set(&mut self, ordinal: Ordinal, edited: Edited) {
        let number = edited.number;
        self.put(ordinal, edited);
        debug_assert!(self.by_number.last().is_none_or(|(last, _)| *last < number));
        self.by_number.push((number, ordinal));
        if self.replaced > self.by_number.len() / 2 + REPLACED_MIN {
            let numbers = &self.numbers;
            self.by_number
                .retain(|(number, ordinal)| numbers[ordinal.0 as usize] == *number);
            self.replaced = 0;
        }
    }

    /// Records an edit from a row or the journal, in any order; call [`loaded`](Self::loaded) after the last one.
    pub(crate) fn load(&mut self, ordinal: Ordinal, edited: Edited) {
        self.by_number.push((edited.number, ordinal));
        self.put(ordinal, edited);
    }

    /// Ends loading. Called after all rows are loaded, and again after the whole journal is replayed.
    pub(crate) fn loaded(&mut self) {
        let numbers = &self.numbers;
        self.by_number
            .retain(|(number, ordinal)| numbers[ordinal.0 as usize] == *number);
        self.by_number.sort_unstable();
        // A row that was loaded again has the same number.
        self.by_number.dedup();
        self.replaced = 0;
        self.confirmed.clear();
    }

    /// Marks the newest edit of a timeline as found in the replayed journal. Also called just before that edit is
    /// recorded.
    pub(crate) fn confirm(&mut self, ordinal: Ordinal) {
        self.confirmed.insert(ordinal.0);
    }

    /// Replays a removal. If an earlier entry of the journal holds the newest edit of the timeline, the timeline
    /// becomes unedited, as if newly registered.
    ///
    /// An edit that only a row holds is kept. It was made after the removal, because older rows are deleted before a
    /// removal is acknowledged.
    pub(crate) fn forget_confirmed(&mut self, ordinal: Ordinal) {
        if self.confirmed.remove(ordinal.0) {
            self.unload(ordinal);
        }
    }

    /// Makes a timeline unedited, as if newly registered. Has no effect on a timeline that was never edited.
    pub(crate) fn unload(&mut self, ordinal: Ordinal) {
        let at = ordinal.0 as usize;
        let Some(number) = self.numbers.get_mut(at) else {
            return;
        };
        if std::mem::take(number) > 0 {
            self.replaced += 1;
            self.types.remove(self.sets.get(self.has[at]));
            self.sets
                .remove(std::mem::replace(&mut self.has[at], SetNumber::EMPTY));
        }
    }

    fn put(&mut self, ordinal: Ordinal, edited: Edited) {
        let at = ordinal.0 as usize;
        if at >= self.numbers.len() {
            self.numbers.resize(at + 1, 0);
            self.has.resize(at + 1, SetNumber::EMPTY);
        }
        self.newest = self.newest.max(edited.number);
        self.types.add(&edited.attributes);
        if std::mem::replace(&mut self.numbers[at], edited.number) > 0 {
            self.replaced += 1;
            self.types.remove(self.sets.get(self.has[at]));
        }
        let set = self.sets.add(edited.attributes);
        self.sets.remove(std::mem::replace(&mut self.has[at], set));
    }

    /// Removes all attributes of a removed timeline. This counts as an edit, so that the index reads the timeline again
    /// when it becomes visible again. Has no effect on a timeline that was never edited.
    pub(crate) fn withdraw(&mut self, ordinal: Ordinal) {
        if self.of(ordinal).is_some() {
            let edited = Edited {
                number: self.newest + 1,
                attributes: Packed::default(),
            };
            self.set(ordinal, edited);
        }
    }

    /// Assigns a new edit number to the current attributes of a timeline.
    pub(crate) fn renumber(&mut self, ordinal: Ordinal) {
        let attributes = self.of(ordinal).map(|newest| newest.attributes.clone());
        let edited = Edited {
            number: self.newest + 1,
            attributes: attributes.unwrap_or_default(),
        };
        self.set(ordinal, edited);
    }

    /// Marks an edit as in doubt: it may or may not reach the journal.
    pub(crate) fn set_in_doubt(&mut self, ordinal: Ordinal, number: u64) {
        self.in_doubt.insert(number, ordinal);
        self.doubtful.insert((ordinal, number));
    }

    /// Ends the doubt about an edit: it is in the journal, or never will be.
    pub(crate) fn settle(&mut self, ordinal: Ordinal, number: u64) {
        self.in_doubt.remove(&number);
        self.doubtful.remove(&(ordinal, number));
    }

    /// Reserves the numbers up to `number`, because the journal may contain them.
    pub(crate) fn pass(&mut self, number: u64) {
        self.newest = self.newest.max(number);
    }

    /// Ends all doubts about a timeline after its row was written with the newest edit, or deleted. A restart ignores
    /// journal entries of this timeline up to its newest edit.
    pub(crate) fn no_doubt(&mut self, ordinal: Ordinal) {
        let newest = self.number_of(ordinal);
        while let Some(doubt) = self.doubtful.range((ordinal, 0)..=(ordinal, newest)).next() {
            let (_, number) = *doubt;
            self.settle(ordinal, number);
        }
    }

    /// Iterates over the timelines whose newest edit has a number above `number`.
    pub(crate) fn since(&self, number: u64) -> impl Iterator<Item = Ordinal> {
        self.numbered_since(number).map(|(_, ordinal)| ordinal)
    }

    /// Iterates like [`since`](Self::since), with the edit numbers, in ascending order.
    pub(crate) fn numbered_since(&self, number: u64) -> impl Iterator<Item = (u64, Ordinal)> {
        let later = self.by_number.partition_point(|(have, _)| *have <= number);
        let later = self.by_number[later..].iter().copied();
        later.filter(|(number, ordinal)| self.numbers[ordinal.0 as usize] == *number)
    }

    /// Returns the highest number such that all edits up to it are certainly durable or certainly undone.
    pub(crate) fn settled(&self) -> u64 {
        let first_in_doubt = self.in_doubt.keys().next();
        first_in_doubt.map_or(self.newest, |number| number - 1)
    }

    /// Returns the bytes of all attributes. Attributes that several timelines share count once.
    pub(crate) fn attribute_bytes(&self) -> usize {
        self.sets.bytes()
    }

    /// Returns the resident bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.numbers.capacity() * size_of::<u64>()
            + self.has.capacity() * size_of::<SetNumber>()
            + self.by_number.capacity() * size_of::<(u64, Ordinal)>()
            + self.sets.memory_bytes()
            + self.types.memory_bytes()
    }
}
