//! Keys of the row buffer, ordered like their bytes.
//!
//! The bytes of a key are stored in its journal entry, usually outside the caches of the processor. The first bytes are
//! therefore also stored in the tree, and most comparisons end there.

use std::cmp::Ordering;

use bytes::Bytes;

/// Number of bytes at the beginning of a key that are stored in the tree.
const HEAD_BYTES: usize = 16;

/// Key of a changed row. A key that is only searched for borrows its bytes.
#[derive(Debug)]
pub(crate) struct RowKey<'k> {
    /// First bytes of the key as a big-endian number, filled up with zeros.
    head: u128,
    bytes: KeyBytes<'k>,
}

#[derive(Debug)]
enum KeyBytes<'k> {
    Shared(Bytes),
    Borrowed(&'k [u8]),
}

impl<'k> RowKey<'k> {
    pub(super) fn shared(bytes: Bytes) -> Self {
        Self {
            head: head_of(&bytes),
            bytes: KeyBytes::Shared(bytes),
        }
    }

    pub(super) fn borrowed(bytes: &'k [u8]) -> Self {
        Self {
            head: head_of(bytes),
            bytes: KeyBytes::Borrowed(bytes),
        }
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

fn head_of(bytes: &[u8]) -> u128 {
    if let Some(head) = bytes.first_chunk::<HEAD_BYTES>() {
        return u128::from_be_bytes(*head);
    }
    let mut head = [0; HEAD_BYTES];
    head[..bytes.len()].copy_from_slice(bytes);
    u128::from_be_bytes(head)
}

impl Ord for RowKey<'_> {
    /// Different heads have the order of the keys: if the shorter key ends before the first difference, its head
    /// continues with zeros, and the longer key is above it.
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

        /// Keys of few different bytes, around the length of the head, so that many share their heads.
        #[test]
        fn keys_are_ordered_like_their_bytes(
            one in proptest::collection::vec(0..2u8, 0..20),
            other in proptest::collection::vec(0..2u8, 0..20),
        ) {
            let stored = RowKey::shared(Bytes::from(one.clone()));
            prop_assert_eq!(stored.cmp(&RowKey::borrowed(&other)), one.cmp(&other));
        }
    }
}
