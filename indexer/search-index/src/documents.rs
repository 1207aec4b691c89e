//! Sets of documents of a segment: construction and intersection.
//!
//! Long posting lists are collected in an array of bits, which is filled faster than a compressed set.

use roaring::RoaringBitmap;

/// Set of documents as an array of bits.
pub(crate) struct Bits(Vec<u8>);

impl Bits {
    /// Creates an empty set for the documents of a segment.
    pub(crate) fn new(max_doc: u32) -> Self {
        Self(vec![0; max_doc as usize / 8 + 1])
    }

    pub(crate) fn set(&mut self, documents: &[u32]) {
        for document in documents {
            self.0[*document as usize / 8] |= 1 << (document % 8);
        }
    }

    pub(crate) fn into_set(self) -> RoaringBitmap {
        RoaringBitmap::from_lsb0_bytes(0, &self.0)
    }
}

/// Returns the set of all documents of a segment.
pub(crate) fn every(max_doc: u32) -> RoaringBitmap {
    let mut every = RoaringBitmap::new();
    every.insert_range(0..max_doc);
    every
}

/// Builds a set from documents in ascending order.
pub(crate) fn ascending(documents: Vec<u32>) -> RoaringBitmap {
    RoaringBitmap::from_sorted_iter(documents).expect("posting lists and their sorted unions rise strictly")
}

/// Intersects all sets; evaluates no further sets once the intersection is empty. Returns the empty set if there are no
/// sets.
pub(crate) fn all_in(
    sets: impl Iterator<Item = tantivy::Result<RoaringBitmap>>,
) -> tantivy::Result<RoaringBitmap> {
    let mut all: Option<RoaringBitmap> = None;
    for set in sets {
        let found = match all {
            Some(all) => all & set?,
            None => set?,
        };
        if found.is_empty() {
            return Ok(found);
        }
        all = Some(found);
    }
    Ok(all.unwrap_or_default())
}
