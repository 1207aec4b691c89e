//! Keys of the row buffer, ordered like their bytes.
//!
//! The bytes of a key are stored in its journal entry, usually outside the caches of the processor. The first bytes are
//! therefore also stored in the tree, and most comparisons end there.

use std::borrow::Borrow;
use std::cmp::Ordering;

use bytes::Bytes;

/// Number of bytes at the beginning of a key that are stored in the tree.
const HEAD_BYTES: usize = 16;

/// Key of a changed row.
#[derive(Debug)]
pub(super) struct RowKey {
    head: u128,
    bytes: Bytes,
}

/// Key that is searched for.
#[derive(Debug, Clone, Copy)]
pub(super) struct SoughtKey<'k> {
    head: u128,
    bytes: &'k [u8],
}

/// Stored keys and keys that are searched for, which are compared with each other.
pub(super) trait OrderedKey {
    /// Returns the first bytes of the key as a big-endian number, filled up with zeros.
    fn head(&self) -> u128;

    /// Returns all bytes of the key.
    fn bytes(&self) -> &[u8];
}

impl RowKey {
    pub(super) fn new(bytes: Bytes) -> Self {
        Self {
            head: head_of(&bytes),
            bytes,
        }
    }

    pub(super) fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl<'k> SoughtKey<'k> {
    pub(super) fn new(bytes: &'k [u8]) -> Self {
        Self {
            head: head_of(bytes),
            bytes,
        }
    }
}

fn head_of(bytes: &[u8]) -> u128 {
    if let Some(head) = bytes.first_chunk::<HEAD_BYTES>() {
        return u128::from_be_bytes(*head);
    }
    let mut head = [0; HEAD_BYTES];
    head[..bytes.len()].copy_from_slice(bytes);
    u128::from_be_bytes(head)
}

/// Compares two keys. Different heads have the order of the keys: if the shorter key ends before the first difference,
/// its head continues with zeros, and the longer key is above it.
fn compare(one: (u128, &[u8]), other: (u128, &[u8])) -> Ordering {
    one.0.cmp(&other.0).then_with(|| one.1.cmp(other.1))
}

impl OrderedKey for RowKey {
    fn head(&self) -> u128 {
        self.head
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl OrderedKey for SoughtKey<'_> {
    fn head(&self) -> u128 {
        self.head
    }

    fn bytes(&self) -> &[u8] {
        self.bytes
    }
}

impl Ord for RowKey {
    fn cmp(&self, other: &Self) -> Ordering {
        compare((self.head, &self.bytes), (other.head, &other.bytes))
    }
}

impl PartialOrd for RowKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RowKey {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for RowKey {}

impl Ord for dyn OrderedKey + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        compare((self.head(), self.bytes()), (other.head(), other.bytes()))
    }
}

impl PartialOrd for dyn OrderedKey + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn OrderedKey + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for dyn OrderedKey + '_ {}

impl<'k> Borrow<dyn OrderedKey + 'k> for RowKey {
    fn borrow(&self) -> &(dyn OrderedKey + 'k) {
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(tideline_testkit::proptest_config(1_000))]

        /// Keys of few different bytes, around the length of the head, so that many share their heads.
        #[test]
        fn keys_are_ordered_like_their_bytes(
            keys in proptest::collection::vec(proptest::collection::vec(0..2u8, 0..20), 2)
        ) {
            let order = keys[0].cmp(&keys[1]);
            let stored: Vec<RowKey> = keys.iter().map(|key| RowKey::new(Bytes::copy_from_slice(key))).collect();
            prop_assert_eq!(stored[0].cmp(&stored[1]), order);
            let sought = SoughtKey::new(&keys[1]);
            let one: &dyn OrderedKey = &stored[0];
            prop_assert_eq!(one.cmp(&sought as &dyn OrderedKey), order);
        }
    }
}
