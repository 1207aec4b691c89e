//! Dictionaries of columns with few distinct values.

use std::hash::Hash;

use hashbrown::HashMap;

use super::packed;

/// A dictionary is abandoned when it has more distinct values than this number plus one for every [`SEEN_PER_VALUE`]
/// values read so far. A column of distinct values therefore costs little.
const DISTINCT_MIN: usize = 256;
const SEEN_PER_VALUE: usize = 8;

/// Distinct values of a column in the order of their first use, and the index of each value.
pub(super) struct Dictionary<V> {
    pub(super) values: Vec<V>,
    indexes: Vec<u32>,
}

impl<V: Copy + Eq + Hash> Dictionary<V> {
    /// Returns the dictionary of a column; `None` if it has too many distinct values.
    pub(super) fn of(column: impl ExactSizeIterator<Item = V>) -> Option<Self> {
        let mut known: HashMap<V, u32> = HashMap::new();
        let mut of = Self {
            values: Vec::new(),
            indexes: Vec::with_capacity(column.len()),
        };
        let mut last = None;
        for (seen, value) in column.enumerate() {
            let index = match last {
                Some((before, index)) if before == value => index,
                _ => *known.entry(value).or_insert_with(|| {
                    of.values.push(value);
                    of.values.len() as u32 - 1
                }),
            };
            if of.values.len() > DISTINCT_MIN + seen / SEEN_PER_VALUE {
                return None;
            }
            of.indexes.push(index);
            last = Some((value, index));
        }
        // The dictionary is used only if it has a single entry or if each entry is used at least twice on average.
        // Otherwise the indexes would cost more than the dictionary saves.
        (of.values.len() * 2 <= of.indexes.len().max(2)).then_some(of)
    }

    /// Appends the indexes.
    pub(super) fn put_indexes(&self, page: &mut Vec<u8>) {
        let width = packed::width_of(self.values.len() as u64 - 1).max(1);
        page.push(width as u8);
        match self.values.len() {
            1 => packed::put_run(0, self.indexes.len(), page),
            _ => packed::put_packed(self.indexes.iter().map(|index| u64::from(*index)), width, page),
        }
    }
}
