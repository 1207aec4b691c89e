//! Interned text: stores each distinct measurement, tag key and tag value of a table once, under a four-byte number.
//!
//! Names and values repeat across timelines, so a timeline holds symbols instead of texts. Symbols are never removed.
//! Their number, and the total length of all texts in bytes, must stay below 2³².

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{CatalogError, Result};

/// Number of an interned text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Symbol(u32);

impl Symbol {
    /// Returns the bytes that [`from_bytes`](Self::from_bytes) reads.
    pub(crate) fn to_bytes(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }

    pub(crate) fn from_bytes(bytes: [u8; 4]) -> Self {
        Self(u32::from_le_bytes(bytes))
    }
}

/// Two-way map between texts and symbols. Symbols are dense and never removed.
#[derive(Debug)]
pub(crate) struct SymbolTable {
    /// All texts, concatenated.
    text: String,
    /// End offset of each symbol's text.
    ends: Vec<u32>,
    by_text: HashTable<Symbol>,
    /// Random per process, so that a client cannot craft tags that collide in the hash table.
    seed: u64,
}

impl SymbolTable {
    pub(crate) fn new() -> Self {
        Self {
            text: String::new(),
            ends: Vec::new(),
            by_text: HashTable::new(),
            seed: process_seed(),
        }
    }

    /// Returns the symbol of `text`; adds it if it is new.
    pub(crate) fn intern(&mut self, text: &str) -> Result<Symbol> {
        if let Some(symbol) = self.get(text) {
            return Ok(symbol);
        }
        let full = CatalogError::Full("distinct names and values");
        let Ok(end) = u32::try_from(self.text.len() + text.len()) else {
            return Err(full);
        };
        let symbol = Symbol(u32::try_from(self.ends.len()).map_err(|_| full)?);
        self.text.push_str(text);
        self.ends.push(end);
        let (all, ends, seed) = (&self.text, &self.ends, self.seed);
        let hasher = |symbol: &Symbol| xxh3_64_with_seed(slice(all, ends, *symbol).as_bytes(), seed);
        self.by_text.insert_unique(hasher(&symbol), symbol, hasher);
        Ok(symbol)
    }

    /// Returns the symbol of `text` if it is interned.
    pub(crate) fn get(&self, text: &str) -> Option<Symbol> {
        let hash = xxh3_64_with_seed(text.as_bytes(), self.seed);
        self.by_text
            .find(hash, |symbol| self.text(*symbol) == text)
            .copied()
    }

    /// Returns the text of a symbol of this table.
    pub(crate) fn text(&self, symbol: Symbol) -> &str {
        slice(&self.text, &self.ends, symbol)
    }

    /// Sorts symbols by the bytes of their texts.
    ///
    /// Reads the texts in memory order and compares the eight bytes after their common prefix. The texts are read
    /// again only if those bytes are equal.
    pub(crate) fn sorted(&self, mut symbols: Vec<Symbol>) -> Vec<Symbol> {
        symbols.sort_unstable();
        let mut texts = symbols.iter().map(|symbol| self.text(*symbol).as_bytes());
        let first = texts.next().unwrap_or_default();
        let common = texts.fold(first.len(), |common, text| {
            let pairs = first[..common].iter().zip(text);
            pairs.take_while(|(one, other)| one == other).count()
        });
        let mut keyed: Vec<(u64, Symbol)> = symbols
            .into_iter()
            .map(|symbol| (eight_bytes(&self.text(symbol).as_bytes()[common..]), symbol))
            .collect();
        keyed.sort_unstable_by(|(a, one), (b, other)| {
            a.cmp(b).then_with(|| self.text(*one).cmp(self.text(*other)))
        });
        keyed.into_iter().map(|(_, symbol)| symbol).collect()
    }

    /// Returns the resident bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<u32>() + self.by_text.allocation_size()
    }
}

fn slice<'a>(text: &'a str, ends: &[u32], symbol: Symbol) -> &'a str {
    let at = symbol.0 as usize;
    let start = if at == 0 { 0 } else { ends[at - 1] as usize };
    &text[start..ends[at] as usize]
}

/// Returns the first eight bytes as a big-endian number, padded with zeros.
fn eight_bytes(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    let length = bytes.len().min(8);
    first[..length].copy_from_slice(&bytes[..length]);
    u64::from_be_bytes(first)
}

/// Returns a random seed that differs in each process and cannot be guessed from outside.
pub(crate) fn process_seed() -> u64 {
    RandomState::new().hash_one(0u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_symbol_and_reads_back() {
        let mut symbols = SymbolTable::new();
        let texts: Vec<String> = (0..1_000).map(|n| format!("host-{}", n % 700)).collect();
        let interned: Vec<Symbol> = texts
            .iter()
            .map(|text| symbols.intern(text).expect("far from full"))
            .collect();
        for (text, symbol) in texts.iter().zip(&interned) {
            assert_eq!(symbols.text(*symbol), text);
            assert_eq!(symbols.get(text), Some(*symbol));
        }
        assert_eq!(interned[..300], interned[700..]);
        assert_eq!(symbols.get("absent"), None);
        assert_eq!(symbols.ends.len(), 700);
    }
}
