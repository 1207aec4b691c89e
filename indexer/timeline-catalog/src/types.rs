//! Which type each attribute key has in a table: that of the values it has now.
//!
//! Nothing is declared and nothing is stored: the types are counted from the values. So a key can change its type once
//! no other timeline has it, and a store from before types were kept apart opens as it is.

use hashbrown::HashMap;

use crate::attributes::AttributeType;
use crate::packed::Packed;
use crate::symbols::{Symbol, SymbolTable};
use crate::{CatalogError, Result};

/// How many timelines there are of each type.
type Counts = [u32; AttributeType::ALL.len()];

/// An attribute key that a table has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedKey {
    /// The key.
    pub key: String,
    /// Its types, with the number of timelines of each; more than one only in stores of before types were kept apart.
    pub types: Vec<(AttributeType, u32)>,
}

/// How many timelines give each key a value of each type.
#[derive(Debug, Default)]
pub(crate) struct TypeCounts {
    by_key: HashMap<Symbol, Counts>,
}

impl TypeCounts {
    /// Counts the attributes of one more timeline.
    pub(crate) fn add(&mut self, attributes: &Packed) {
        for (key, value) in attributes.iter() {
            self.by_key.entry(key).or_default()[value.kind() as usize] += 1;
        }
    }

    /// Counts one timeline less, with what was added for it.
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

    /// Refuses a value of type `given` for a key to which other timelines give another type only. `own` is the type that
    /// the timeline's own value has now.
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

    /// Whether a timeline has this key.
    pub(crate) fn has(&self, key: Symbol) -> bool {
        self.by_key.contains_key(&key)
    }

    /// Every key, in byte order.
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

    /// Resident bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.by_key.allocation_size()
    }
}
