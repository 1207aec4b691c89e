//! Deduplicated attribute sets: machines of one rack, team or site often have the same attributes.
//!
//! A timeline stores the four-byte number of its set. A set that only one timeline uses costs about thirty bytes more
//! than its contents.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::packed::Packed;

/// Number of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetNumber(u32);

/// All attribute sets of a table.
#[derive(Debug)]
pub(crate) struct AttributeSets {
    /// The first set is empty and always present.
    sets: Vec<Set>,
    by_content: HashTable<SetNumber>,
    free: Vec<SetNumber>,
    hasher: DefaultHashBuilder,
    /// Bytes of the attributes of all sets.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Set {
    attributes: Packed,
    timelines: u32,
}

impl SetNumber {
    /// Number of the empty set.
    pub(crate) const EMPTY: Self = Self(0);
}

impl Default for AttributeSets {
    fn default() -> Self {
        Self {
            sets: vec![Set::default()],
            by_content: HashTable::new(),
            free: Vec::new(),
            hasher: DefaultHashBuilder::default(),
            bytes: 0,
        }
    }
}

impl AttributeSets {
    pub(crate) fn get(&self, set: SetNumber) -> &Packed {
        &self.sets[set.0 as usize].attributes
    }

    /// Adds one timeline with these attributes and returns the number of its set.
    pub(crate) fn add(&mut self, attributes: Packed) -> SetNumber {
        if attributes.is_empty() {
            return SetNumber::EMPTY;
        }
        let Self {
            sets,
            by_content,
            free,
            hasher,
            bytes,
        } = self;
        let hash = hasher.hash_one(attributes.bytes());
        if let Some(known) = by_content.find(hash, |set| sets[set.0 as usize].attributes == attributes) {
            sets[known.0 as usize].timelines += 1;
            return *known;
        }
        *bytes += attributes.bytes().len();
        let added = Set {
            attributes,
            timelines: 1,
        };
        let number = match free.pop() {
            Some(number) => {
                sets[number.0 as usize] = added;
                number
            }
            None => {
                sets.push(added);
                SetNumber(u32::try_from(sets.len() - 1).expect("a table has fewer than 2³² timelines"))
            }
        };
        by_content.insert_unique(hash, number, |set| {
            hasher.hash_one(sets[set.0 as usize].attributes.bytes())
        });
        number
    }

    /// Removes one timeline from a set. A set without timelines is freed.
    pub(crate) fn remove(&mut self, set: SetNumber) {
        if set == SetNumber::EMPTY {
            return;
        }
        let removed = &mut self.sets[set.0 as usize];
        removed.timelines -= 1;
        if removed.timelines > 0 {
            return;
        }
        let attributes = std::mem::take(&mut removed.attributes);
        self.bytes -= attributes.bytes().len();
        let hash = self.hasher.hash_one(attributes.bytes());
        if let Ok(known) = self.by_content.find_entry(hash, |have| *have == set) {
            known.remove();
        }
        self.free.push(set);
    }

    /// Returns the bytes of the attributes of all sets. Attributes that several timelines share count once.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the resident bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
            + self.sets.capacity() * size_of::<Set>()
            + self.by_content.allocation_size()
            + self.free.capacity() * size_of::<SetNumber>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::{AttributeValue, Attributes};
    use crate::symbols::SymbolTable;

    #[test]
    fn a_set_is_kept_once_and_goes_with_its_last_timeline() {
        let mut symbols = SymbolTable::new();
        let mut packed = |text: &str| {
            let value = AttributeValue::Text(text.to_owned());
            let attributes = Attributes::from([("owner".to_owned(), value)]);
            Packed::new(&attributes, &mut symbols).expect("far from full")
        };
        let one = packed("a").bytes().len();
        let mut sets = AttributeSets::default();
        let numbers: Vec<SetNumber> = (0..100).map(|n| sets.add(packed(["a", "b"][n % 2]))).collect();
        assert_eq!(sets.sets.len(), 3, "both sets and the empty one");
        assert_eq!(sets.bytes(), 2 * one);
        assert_eq!(sets.get(numbers[7]), &packed("b"));
        assert_eq!(sets.add(Packed::default()), SetNumber::EMPTY);
        for number in numbers.iter().step_by(2) {
            sets.remove(*number);
        }
        assert_eq!(sets.get(numbers[1]), &packed("b"), "others stay");
        assert_eq!(sets.bytes(), one);
        let next = sets.add(packed("c"));
        assert_eq!(next, numbers[0], "a free number is taken again");
        assert_eq!((sets.sets.len(), sets.by_content.len()), (3, 2));
        assert_ne!(sets.add(packed("a")), next);
    }
}
