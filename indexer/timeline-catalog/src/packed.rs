//! A timeline's attributes packed into one allocation.
//!
//! A map of owned strings reserves room for eleven entries and allocates each string. The packed form takes the bytes
//! of the values and five to seven more bytes per attribute. A lookup scans the preceding attributes, which are few.

use crate::Result;
use crate::attributes::Attributes;
use crate::symbols::{Symbol, SymbolTable};
use crate::value::{AttributeRef, Parts, put_value};

/// Attributes sorted by key. Each is the symbol of its key (4 bytes), then kind and value as in a row.
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

    /// Returns an owned copy.
    pub(crate) fn unpack(&self, symbols: &SymbolTable) -> Attributes {
        let all = self.iter();
        all.map(|(key, value)| (symbols.text(key).to_owned(), value.to_value()))
            .collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the packed bytes. Two attribute sets of one table are equal if and only if their bytes are equal.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}
