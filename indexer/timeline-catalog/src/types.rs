//! Value type of each attribute key in a table.
//!
//! Types are neither declared nor stored; they are counted from the current values. A key can therefore change its
//! type once no other timeline has it, and a store that was written before the type check opens unchanged.

use hashbrown::HashMap;

use crate::attributes::AttributeType;
use crate::packed::Packed;
use crate::symbols::{Symbol, SymbolTable};
use crate::{CatalogError, Result};

/// Number of timelines per type.
type Counts = [u32; AttributeType::ALL.len()];

/// Attribute key of a table, with the types of its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedKey {
    /// Attribute key.
    pub key: String,
    /// Types of its values with the number of timelines of each. There is more than one type only in stores that were
    /// written before the type check.
    pub types: Vec<(AttributeType, u32)>,
}

/// Number of timelines per key and value type.
#[derive(Debug, Default)]
pub(crate) struct TypeCounts {
    by_key: HashMap<Symbol, Counts>,
}

impl TypeCounts {
    /// Adds the attributes of one timeline.
    pub(crate) fn add(&mut self, attributes: &Packed) {
        for (key, value) in attributes.iter() {
            self.by_key.entry(key).or_default()[value.kind() as usize] += 1;
        }
    }

    /// Removes the attributes of one timeline, which must have been added.
    pub(crate) fn remove(&mut self, attributes: &Packed) {
        for (key, value) in attributes.iter() {
            if let Some(counts) = self.by_key.get_mut(&key) {
                counts[value.kind() as usize] -= 1;
                if counts.iter().all(|count| *count == 0) {
                    self.by_key.remove(&key);
                }
            }
        }
    }

    /// Rejects a value of type `given` if other timelines have the key, but no other timeline has it with this type.
    /// `own` is the type of the timeline's current value.
    pub(crate) fn check(
        &self,
        symbols: &SymbolTable,
        key: &str,
        own: Option<AttributeType>,
        given: AttributeType,
    ) -> Result<()> {
        let symbol = symbols.get(key);
        let Some(counts) = symbol.and_then(|symbol| self.by_key.get(&symbol)) else {
            return Ok(());
        };
        let others = |kind: AttributeType| counts[kind as usize] - u32::from(own == Some(kind));
        let usual = AttributeType::ALL
            .into_iter()
            .max_by_key(|kind| others(*kind))
            .filter(|kind| others(*kind) > 0);
        match usual {
            Some(has) if others(given) == 0 => Err(CatalogError::MixedAttribute {
                key: key.to_owned(),
                has: has.name(),
                timelines: others(has),
                given: given.name(),
            }),
            _ => Ok(()),
        }
    }

    /// Returns true if a timeline has this key.
    pub(crate) fn has(&self, key: Symbol) -> bool {
        self.by_key.contains_key(&key)
    }

    /// Returns all keys in byte order.
    pub(crate) fn keys(&self, symbols: &SymbolTable) -> Vec<CountedKey> {
        let counted = |(key, counts): (&Symbol, &Counts)| {
            let types = AttributeType::ALL.into_iter();
            let types = types.map(|kind| (kind, counts[kind as usize]));
            CountedKey {
                key: symbols.text(*key).to_owned(),
                types: types.filter(|(_, count)| *count > 0).collect(),
            }
        };
        let mut keys: Vec<CountedKey> = self.by_key.iter().map(counted).collect();
        keys.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        keys
    }

    /// Returns the resident bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.by_key.allocation_size()
    }
}
