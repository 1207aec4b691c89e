//! Attribute edits: which timeline was edited last when, and up to where rows are sure to say so.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use tideline_model::Ordinal;

use crate::packed::Packed;
use crate::types::TypeCounts;

/// The edits of a table. Each has a number of its own, and a later one a higher number.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    newest: u64,
    pub(crate) types: TypeCounts,
    of: HashMap<Ordinal, Edited>,
    by_number: BTreeMap<u64, Ordinal>,
    /// Edits whose row is being written, or whose write failed or was overtaken: they may or may not be there after a
    /// restart.
    in_doubt: BTreeMap<u64, Ordinal>,
}

/// The attributes of a timeline that was ever edited.
#[derive(Debug, Clone)]
pub(crate) struct Edited {
    pub(crate) number: u64,
    pub(crate) attributes: Packed,
}

impl Edits {
    /// The number of the newest edit.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// The newest edit of a timeline.
    pub(crate) fn of(&self, ordinal: Ordinal) -> Option<&Edited> {
        self.of.get(&ordinal)
    }

    /// Records the newest edit of a timeline.
    pub(crate) fn set(&mut self, ordinal: Ordinal, edited: Edited) {
        self.newest = self.newest.max(edited.number);
        self.by_number.insert(edited.number, ordinal);
        self.types.add(&edited.attributes);
        if let Some(before) = self.of.insert(ordinal, edited) {
            self.by_number.remove(&before.number);
            self.types.remove(&before.attributes);
        }
    }

    /// Takes all attributes of a removed timeline away. That counts as an edit, so that the index looks again when
    /// the timeline comes back.
    pub(crate) fn withdraw(&mut self, ordinal: Ordinal) {
        if self.of.contains_key(&ordinal) {
            let edited = Edited {
                number: self.newest + 1,
                attributes: Packed::default(),
            };
            self.set(ordinal, edited);
        }
    }

    /// An edit of this number may reach the row, or not.
    pub(crate) fn set_in_doubt(&mut self, ordinal: Ordinal, number: u64) {
        self.in_doubt.insert(number, ordinal);
    }

    /// No later edit may take a number that a row may say.
    pub(crate) fn pass(&mut self, number: u64) {
        self.newest = self.newest.max(number);
    }

    /// Nothing is in doubt about a timeline any more: its row was written or deleted.
    pub(crate) fn no_doubt(&mut self, ordinal: Ordinal) {
        self.in_doubt.retain(|_, doubtful| *doubtful != ordinal);
    }

    /// Timelines whose newest edit has a number above `number`.
    pub(crate) fn since(&self, number: u64) -> impl Iterator<Item = Ordinal> {
        self.numbered_since(number).map(|(_, ordinal)| ordinal)
    }

    /// The same with the numbers, which rise.
    pub(crate) fn numbered_since(&self, number: u64) -> impl Iterator<Item = (u64, Ordinal)> {
        let later = number.checked_add(1).map(|first| self.by_number.range(first..));
        later
            .into_iter()
            .flatten()
            .map(|(number, ordinal)| (*number, *ordinal))
    }

    /// The newest edit such that it and all before it are surely durable or surely undone.
    pub(crate) fn settled(&self) -> u64 {
        let first_in_doubt = self.in_doubt.keys().next();
        first_in_doubt.map_or(self.newest, |number| number - 1)
    }

    /// Resident bytes, the tree estimated.
    pub(crate) fn memory_bytes(&self) -> usize {
        /// A number, an ordinal and their place in the tree.
        const NUMBER_BYTES: usize = 24;
        let attributes: usize = self
            .of
            .values()
            .map(|edited| edited.attributes.memory_bytes())
            .sum();
        let numbers = self.by_number.len() * NUMBER_BYTES;
        self.of.allocation_size() + attributes + numbers + self.types.memory_bytes()
    }
}
