//! A timeline's attributes in memory: one allocation, whatever their number.
//!
//! A map of owned texts takes room for eleven entries and an allocation for each text; this takes the bytes of the values
//! and five or six more for each. Reading one is a walk over those before it, and they are few.

use crate::Result;
use crate::attributes::Attributes;
use crate::symbols::{Symbol, SymbolTable};
use crate::value::{AttributeRef, Parts, put_value};

/// Attributes, sorted by key: for each its key's symbol (4 bytes), then kind and value as in a row.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Packed(Box<[u8]>);

impl Packed {
    pub(crate) fn new(attributes: &Attributes, symbols: &mut SymbolTable) -> Result<Self> {
        let mut bytes = Vec::new();
        for (key, value) in attributes {
            bytes.extend_from_slice(&symbols.intern(key)?.to_bytes());
            put_value(&mut bytes, value);
        }
        Ok(Self(bytes.into()))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Symbol, AttributeRef<'_>)> {
        let mut parts = Parts { rest: &self.0 };
        std::iter::from_fn(move || {
            let symbol = parts.bytes(4)?.try_into().expect("four bytes were taken");
            let value = parts.value().expect("packed by this process");
            Some((Symbol::from_bytes(symbol), value))
        })
    }

    pub(crate) fn get(&self, key: Symbol) -> Option<AttributeRef<'_>> {
        let mut found = self.iter().filter(|(symbol, _)| *symbol == key);
        found.next().map(|(_, value)| value)
    }

    /// A copy that stands alone.
    pub(crate) fn unpack(&self, symbols: &SymbolTable) -> Attributes {
        let all = self.iter();
        all.map(|(key, value)| (symbols.text(key).to_owned(), value.to_value()))
            .collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Two of one table are equal where these are.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}
