//! Attribute edits: which timeline was edited last when, what it has since, and up to where a restart is sure to say so.

use std::collections::{BTreeMap, BTreeSet};

use roaring::RoaringBitmap;
use tideline_model::Ordinal;

use crate::attribute_sets::{AttributeSets, SetNumber};
use crate::packed::Packed;
use crate::types::TypeCounts;

/// The edits of a table. Each has a number of its own above zero, and a later one a higher number.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    newest: u64,
    pub(crate) types: TypeCounts,
    sets: AttributeSets,
    /// The number of the newest edit of each timeline, by ordinal; 0 = never edited.
    numbers: Vec<u64>,
    /// What each timeline has, by ordinal.
    has: Vec<SetNumber>,
    /// All edits in the order of their numbers; those that a later one has replaced are passed over.
    by_number: Vec<(u64, Ordinal)>,
    /// How many of `by_number` are replaced.
    replaced: usize,
    /// Edits that are on their way through the log, that failed there, or whose number a removal took: they may or may not
    /// be there after a restart, or under another number.
    in_doubt: BTreeMap<u64, Ordinal>,
    /// The same by timeline.
    doubtful: BTreeSet<(Ordinal, u64)>,
    /// While the journal is replayed: timelines whose newest edit was met in it.
    confirmed: RoaringBitmap,
}

/// An edit, and the attributes that a timeline has by it.
#[derive(Debug)]
pub(crate) struct Edited {
    pub(crate) number: u64,
    pub(crate) attributes: Packed,
}

/// The newest edit of a timeline, and what it has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Newest<'a> {
    pub(crate) number: u64,
    pub(crate) attributes: &'a Packed,
}

/// Up to this many replaced edits are not worth a pass.
const REPLACED_MIN: usize = 64;

impl Edits {
    /// The number of the newest edit.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// The newest edit of a timeline.
    pub(crate) fn of(&self, ordinal: Ordinal) -> Option<Newest<'_>> {
        let at = ordinal.0 as usize;
        let number = self.numbers.get(at).copied().filter(|number| *number > 0)?;
        let attributes = self.sets.get(self.has[at]);
        Some(Newest { number, attributes })
    }

    /// The number of the newest edit of a timeline; 0 = never edited.
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

    /// Records an edit that a row or the journal says; they come in no order, and [`loaded`](Self::loaded) ends them.
    pub(crate) fn load(&mut self, ordinal: Ordinal, edited: Edited) {
        self.by_number.push((edited.number, ordinal));
        self.put(ordinal, edited);
    }

    /// All rows have been read, or all of the journal.
    pub(crate) fn loaded(&mut self) {
        self.by_number.sort_unstable();
        self.confirmed.clear();
    }

    /// The newest edit of a timeline was met in the journal that is replayed, or will be recorded next.
    pub(crate) fn confirm(&mut self, ordinal: Ordinal) {
        self.confirmed.insert(ordinal.0);
    }

    /// Follows a removal in the journal that is replayed: a timeline whose newest edit was met before it has never been
    /// edited, as if it were registered anew.
    ///
    /// An edit that only a row says stays. It is of after the removal: rows of before are deleted before a removal is
    /// answered.
    pub(crate) fn forget_confirmed(&mut self, ordinal: Ordinal) {
        if !self.confirmed.remove(ordinal.0) {
            return;
        }
        let at = ordinal.0 as usize;
        if std::mem::take(&mut self.numbers[at]) > 0 {
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

    /// Takes all attributes of a removed timeline away. That counts as an edit, so that the index looks again when
    /// the timeline comes back.
    pub(crate) fn withdraw(&mut self, ordinal: Ordinal) {
        if self.of(ordinal).is_some() {
            let edited = Edited {
                number: self.newest + 1,
                attributes: Packed::default(),
            };
            self.set(ordinal, edited);
        }
    }

    /// Gives what a timeline has the number of a new edit.
    pub(crate) fn renumber(&mut self, ordinal: Ordinal) {
        let attributes = self.of(ordinal).map(|newest| newest.attributes.clone());
        let edited = Edited {
            number: self.newest + 1,
            attributes: attributes.unwrap_or_default(),
        };
        self.set(ordinal, edited);
    }

    /// An edit of this number may reach the journal, or not.
    pub(crate) fn set_in_doubt(&mut self, ordinal: Ordinal, number: u64) {
        self.in_doubt.insert(number, ordinal);
        self.doubtful.insert((ordinal, number));
    }

    /// It is known what became of an edit: it is in the journal, or never will be.
    pub(crate) fn settle(&mut self, ordinal: Ordinal, number: u64) {
        self.in_doubt.remove(&number);
        self.doubtful.remove(&(ordinal, number));
    }

    /// No later edit may take a number that the journal may say.
    pub(crate) fn pass(&mut self, number: u64) {
        self.newest = self.newest.max(number);
    }

    /// A timeline's row was written with its newest edit, or deleted: a restart passes over what the journal may say of
    /// edits up to that one.
    pub(crate) fn no_doubt(&mut self, ordinal: Ordinal) {
        let newest = self.number_of(ordinal);
        while let Some(doubt) = self.doubtful.range((ordinal, 0)..=(ordinal, newest)).next() {
            let (_, number) = *doubt;
            self.settle(ordinal, number);
        }
    }

    /// Timelines whose newest edit has a number above `number`.
    pub(crate) fn since(&self, number: u64) -> impl Iterator<Item = Ordinal> {
        self.numbered_since(number).map(|(_, ordinal)| ordinal)
    }

    /// The same with the numbers, which rise.
    pub(crate) fn numbered_since(&self, number: u64) -> impl Iterator<Item = (u64, Ordinal)> {
        let later = self.by_number.partition_point(|(have, _)| *have <= number);
        let later = self.by_number[later..].iter().copied();
        later.filter(|(number, ordinal)| self.numbers[ordinal.0 as usize] == *number)
    }

    /// The newest edit such that it and all before it are surely durable or surely undone.
    pub(crate) fn settled(&self) -> u64 {
        let first_in_doubt = self.in_doubt.keys().next();
        first_in_doubt.map_or(self.newest, |number| number - 1)
    }

    /// Resident bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.numbers.capacity() * size_of::<u64>()
            + self.has.capacity() * size_of::<SetNumber>()
            + self.by_number.capacity() * size_of::<(u64, Ordinal)>()
            + self.sets.memory_bytes()
            + self.types.memory_bytes()
    }
}
