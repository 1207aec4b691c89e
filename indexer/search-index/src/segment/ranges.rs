//! Numbers, times and points on one segment: evaluated as ranges of the term dictionary, because the bytes of their
//! terms sort like the values.

use std::ops::Bound;

use roaring::RoaringBitmap;
use tideline_condition::geo::{Region, ranges};
use tideline_condition::operators::NumberRange;

use super::SegmentView;
use crate::mapping::{Token, ordered, point_of};

impl SegmentView<'_> {
    /// Returns the documents with a term that consists of `prefix` and bits within an inclusive range.
    pub(super) fn ordered(&self, prefix: &Token, bits: Option<(u64, u64)>) -> tantivy::Result<RoaringBitmap> {
        let Some((first, last)) = bits else {
            return Ok(RoaringBitmap::new());
        };
        let [first, last] = [first, last].map(|bits| [&prefix.0[..], &bits.to_be_bytes()].concat());
        let range = (Bound::Included(&first[..]), Bound::Included(&last[..]));
        self.terms.documents(&self.terms.in_range(range, |_| true)?)
    }

    /// Returns the documents whose point is in a region. Scans the ranges of the dictionary that may contain such
    /// points.
    pub(super) fn within(&self, key: &str, region: &Region) -> tantivy::Result<RoaringBitmap> {
        let prefix = Token::attribute_points(self.table, key);
        let is_inside =
            |token: &[u8]| point_of(&token[prefix.0.len()..]).is_some_and(|point| region.contains(point));
        let mut infos = Vec::new();
        for (first, last) in ranges(&region.rectangles()) {
            let first = [&prefix.0[..], &first.to_be_bytes()].concat();
            // The cell number is followed by 16 bytes of coordinates.
            let last = [&prefix.0[..], &last.to_be_bytes(), &[u8::MAX; 16]].concat();
            let range = (Bound::Included(&first[..]), Bound::Included(&last[..]));
            infos.append(&mut self.terms.in_range(range, is_inside)?);
        }
        self.terms.documents(&infos)
    }
}

/// Converts a range of numbers to an inclusive range of bits; `None` if the range is empty or a bound is NaN.
pub(super) fn number_bits(range: &NumberRange) -> Option<(u64, u64)> {
    let first = match range.low {
        Bound::Unbounded => 0,
        Bound::Included(number) => ordered(number),
        Bound::Excluded(number) => ordered(number).checked_add(1)?,
    };
    let last = match range.high {
        Bound::Unbounded => u64::MAX,
        Bound::Included(number) => ordered(number),
        Bound::Excluded(number) => ordered(number).checked_sub(1)?,
    };
    let is_comparable =
        |bound: Bound<f64>| !matches!(bound, Bound::Included(n) | Bound::Excluded(n) if n.is_nan());
    let holds = first <= last && is_comparable(range.low) && is_comparable(range.high);
    holds.then_some((first, last))
}
