//! Keys of the row buffer, ordered like their bytes.
//!
//! The bytes of a key are stored in its journal entry, usually outside the caches of the processor. The first bytes are
//! therefore also stored in the tree, and most comparisons end there. Most keys of a table begin with the same bytes, in
//! which they do not differ. The tree therefore has a *prefix*, and stores the bytes after it.

use std::cmp::Ordering;

use bytes::Bytes;

/// Number of bytes of a head: a class and the bytes of a key.
const HEAD_BYTES: usize = 16;
/// Position of the class in a head.
const CLASS_SHIFT: u32 = 120;

/// Class of a key that is below all keys with the prefix.
const BELOW: u8 = 0;
/// Class of a key that begins with the prefix.
const WITH_PREFIX: u8 = 1;
/// Class of a key that is above all keys with the prefix.
const ABOVE: u8 = 2;

/// Key of a changed row. A key that is only searched for borrows its bytes. Only keys that were created for the same
/// prefix can be compared.
#[derive(Debug)]
pub(crate) struct RowKey<'k> {
    /// Big-endian number of a byte with the class of the key, and of the first 15 bytes of the key, filled up with
    /// zeros. If the key begins with the prefix, these are the bytes after the prefix.
    head: u128,
    bytes: KeyBytes<'k>,
}

#[derive(Debug)]
enum KeyBytes<'k> {
    Shared(Bytes),
    Borrowed(&'k [u8]),
}

impl<'k> RowKey<'k> {
    pub(super) fn shared(prefix: &[u8], bytes: Bytes) -> Self {
        Self {
            head: head_of(prefix, &bytes),
            bytes: KeyBytes::Shared(bytes),
        }
    }

    pub(super) fn borrowed(prefix: &[u8], bytes: &'k [u8]) -> Self {
        Self {
            head: head_of(prefix, bytes),
            bytes: KeyBytes::Borrowed(bytes),
        }
    }

    /// Returns the same key for another prefix.
    pub(super) fn with_prefix(mut self, prefix: &[u8]) -> Self {
        self.head = head_of(prefix, self.bytes());
        self
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            KeyBytes::Shared(bytes) => bytes,
            KeyBytes::Borrowed(bytes) => bytes,
        }
    }

    /// Returns the bytes. Copies them only if the key borrows them.
    pub(crate) fn to_bytes(&self) -> Bytes {
        match &self.bytes {
            KeyBytes::Shared(bytes) => bytes.clone(),
            KeyBytes::Borrowed(bytes) => Bytes::copy_from_slice(bytes),
        }
    }
}

fn head_of(prefix: &[u8], bytes: &[u8]) -> u128 {
    let (class, rest) = match bytes.strip_prefix(prefix) {
        Some(rest) => (WITH_PREFIX, rest),
        None if bytes < prefix => (BELOW, bytes),
        None => (ABOVE, bytes),
    };
    let first = match rest.first_chunk::<HEAD_BYTES>() {
        Some(first) => u128::from_be_bytes(*first),
        None => {
            let mut first = [0; HEAD_BYTES];
            first[..rest.len()].copy_from_slice(rest);
            u128::from_be_bytes(first)
        }
    };
    u128::from(class) << CLASS_SHIFT | first >> 8
}

impl Ord for RowKey<'_> {
    /// Different heads have the order of the keys. A key of a lower class is below all keys of a higher class. Within a
    /// class, the bytes decide: if the shorter key ends before the first difference, its head continues with zeros, and
    /// the longer key is above it.
    fn cmp(&self, other: &Self) -> Ordering {
        self.head
            .cmp(&other.head)
            .then_with(|| self.bytes().cmp(other.bytes()))
    }
}

impl PartialOrd for RowKey<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RowKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for RowKey<'_> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(tideline_testkit::proptest_config(1_000))]

        /// Keys of few different bytes, around the length of the head, so that many share their heads. Some begin with
        /// the prefix, and some end within it.
        #[test]
        fn keys_are_ordered_like_their_bytes(
            prefix in proptest::collection::vec(0..3u8, 0..4),
            (one_begins, other_begins) in any::<(bool, bool)>(),
            one in proptest::collection::vec(0..3u8, 0..20),
            other in proptest::collection::vec(0..3u8, 0..20),
        ) {
            let key = |begins, rest: Vec<u8>| if begins { [prefix.clone(), rest].concat() } else { rest };
            let (one, other) = (key(one_begins, one), key(other_begins, other));
            let stored = RowKey::shared(&prefix, Bytes::from(one.clone()));
            prop_assert_eq!(stored.cmp(&RowKey::borrowed(&prefix, &other)), one.cmp(&other));
            let moved = RowKey::shared(&[1, 1], Bytes::from(one.clone())).with_prefix(&prefix);
            prop_assert_eq!(moved.cmp(&RowKey::borrowed(&prefix, &other)), one.cmp(&other));
        }
    }
}
