//! Ranges of stored keys for a scan.
//!
//! A scan is defined by the values of the first logical columns (its *prefix*) and by bounds on the next logical
//! column. The stored keys of the scan are found column by column:
//!
//! 1. A leading bucket is computed if the prefix holds all columns that the bucket hashes. Otherwise, the scan has one
//!    range per bucket.
//! 2. Each further column is appended while the prefix holds its logical values. A scan is refused if it has values or
//!    bounds after a hash of columns that are not all in the prefix.
//! 3. The bounds apply to the column after the prefix. In a splice, they apply to the text after the values of the
//!    prefix.

use std::ops::Bound;

use tideline_model::KeyRange;

use super::columns::{Form, Splice};
use super::encode::check_length;
use super::text::{largest_of, spliced_text};
use super::{KeyLayout, LayoutError, StoredKeyColumn};
use crate::tuple::{
    KeyValue, complement, push_escaped, push_escaped_prefix, push_value, range_within, try_map_bound,
};

/// Bounds on one logical column.
type Bounds<'v> = (Bound<KeyValue<'v>>, Bound<KeyValue<'v>>);

/// Ranges of stored keys that hold the rows of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges {
    /// Non-empty ranges that do not overlap. There are several if the rows are spread over several buckets: one per
    /// bucket, in the order of the bucket numbers. The list may be empty if no value is within the bounds.
    pub ranges: Vec<KeyRange>,
    /// True if a merge of the ranges by [`KeyLayout::merge_key`] returns the rows sorted by the logical columns, where
    /// each column has the order of its stored column. False if the rows are sorted by a hash or by a reversed text.
    pub is_ordered: bool,
}

impl Ranges {
    /// Returns true if a range contains the stored key.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.ranges.iter().any(|range| range.contains(key))
    }
}

/// Bound on the texts of a spliced column.
enum TextBound {
    /// All texts are within the bound.
    All,
    /// No text is within the bound.
    Nothing,
    /// Texts from this text on, or up to this text, inclusive.
    Included(String),
    /// Texts after or before this text, exclusive.
    Excluded(String),
}

/// End of a range of values.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Lower,
    Upper,
}

impl KeyLayout {
    /// Returns the ranges of stored keys for a scan. The scan selects the rows whose first logical columns have the
    /// values of `prefix` and whose next logical column is within `bounds`. The ranges contain exactly the keys of
    /// these rows. An empty prefix and no bounds select all rows.
    ///
    /// Bounds compare values, even in a descending column. If no value is within the bounds, the result may have no
    /// ranges. A bound may be a value that its column cannot store, such as a negative padded number. Two inclusive
    /// bounds with the same value are treated as one more value of the prefix.
    ///
    /// Encodes the prefix and each bound once, for all buckets.
    ///
    /// # Errors
    ///
    /// - [`LayoutError::PrefixCount`], [`LayoutError::BoundsAfterLastColumn`] and [`LayoutError::WrongKind`] if the
    ///   values do not fit the logical columns;
    /// - [`LayoutError::BehindHash`] for values or bounds after a hash prefix whose columns are not all in `prefix`;
    /// - [`LayoutError::ReversedRange`] for bounds on a reversed column;
    /// - [`LayoutError::NegativeNumber`], [`LayoutError::NumberTooLong`] and [`LayoutError::SplicedCharacter`] for
    ///   values of `prefix` that their columns cannot hold;
    /// - [`LayoutError::TooLong`] if the values have too many bytes.
    pub fn ranges(&self, prefix: &[KeyValue<'_>], bounds: Bounds<'_>) -> Result<Ranges, LayoutError> {
        self.check_count(prefix.len())?;
        self.check_kinds(0, prefix)?;
        self.check_bounds(prefix.len(), &bounds)?;
        if let (Bound::Included(lower), Bound::Included(upper)) = &bounds
            && lower == upper
        {
            let mut longer = prefix.to_vec();
            longer.push(lower.clone());
            return match self.plan(&longer, (Bound::Unbounded, Bound::Unbounded)) {
                // No key holds the value, so no key is within the bounds.
                Err(
                    LayoutError::NegativeNumber { column, .. }
                    | LayoutError::NumberTooLong { column, .. }
                    | LayoutError::SplicedCharacter { column, .. },
                ) if column == self.logical[prefix.len()].name => Ok(self.no_ranges()),
                planned => planned,
            };
        }
        self.plan(prefix, bounds)
    }

    /// Checks the number of values of a prefix.
    pub(super) fn check_count(&self, actual: usize) -> Result<(), LayoutError> {
        let limit = self.logical.len();
        match actual <= limit {
            true => Ok(()),
            false => Err(LayoutError::PrefixCount { limit, actual }),
        }
    }

    /// Checks that the column after the prefix exists if there are bounds, and that the bounds have its type.
    fn check_bounds(&self, column: usize, bounds: &Bounds<'_>) -> Result<(), LayoutError> {
        for bound in [&bounds.0, &bounds.1] {
            let (Bound::Included(value) | Bound::Excluded(value)) = bound else {
                continue;
            };
            if column == self.logical.len() {
                return Err(LayoutError::BoundsAfterLastColumn { limit: column });
            }
            self.check_kinds(column, std::slice::from_ref(value))?;
        }
        Ok(())
    }

    /// Returns the ranges of a scan. The values of the scan must fit the logical columns.
    fn plan(&self, prefix: &[KeyValue<'_>], bounds: Bounds<'_>) -> Result<Ranges, LayoutError> {
        let is_bounded = !matches!(bounds, (Bound::Unbounded, Bound::Unbounded));
        // Number of logical columns that the scan restricts.
        let restricted = prefix.len() + usize::from(is_bounded);
        let is_fixed = |column: &StoredKeyColumn| {
            let mut hashed = column.hashed().unwrap_or_default().iter();
            hashed.all(|number| *number < prefix.len())
        };
        let mut key = Vec::new();
        let mut next = 0;
        // Stored columns of the key. A bucket that the prefix does not determine is added per range.
        let mut columns = &self.stored[..];
        let spread = self.buckets().filter(|_| !is_fixed(&self.stored[0]));
        if spread.is_some() {
            columns = &self.stored[1..];
        }
        let mut tail = None;
        for column in columns {
            if next >= restricted {
                break;
            }
            let held = match &column.form {
                Form::HashPrefix { .. } | Form::Bucket { .. } if is_fixed(column) => 0,
                Form::HashPrefix { .. } | Form::Bucket { .. } => {
                    return Err(self.behind_hash(column, next, prefix.len()));
                }
                Form::Value { .. } | Form::Reverse { .. } => 1,
                Form::Splice { splice, .. } => splice.pads.len(),
            };
            if next + held > prefix.len() {
                tail = Some(self.partial(column, &prefix[next..], next, &key, bounds)?);
                break;
            }
            self.push_column(column, prefix, &mut key)?;
            next += held;
        }
        check_length(&key)?;
        let tail = tail.unwrap_or_else(|| Some(KeyRange::prefix(&key)));
        let is_ordered = self.is_ordered(prefix.len());
        Ok(match (tail, spread) {
            (None, _) => self.no_ranges(),
            (Some(range), None) => Ranges {
                ranges: vec![range],
                is_ordered,
            },
            (Some(range), Some(count)) => Ranges {
                ranges: (0..count).map(|bucket| self.in_bucket(bucket, &range)).collect(),
                is_ordered,
            },
        })
    }

    fn no_ranges(&self) -> Ranges {
        Ranges {
            ranges: Vec::new(),
            is_ordered: true,
        }
    }

    /// Returns the range of keys of a bucket, given the range of their merge keys.
    fn in_bucket(&self, bucket: u16, merge_keys: &KeyRange) -> KeyRange {
        // The number of buckets is at most 256.
        let first = bucket as u8 ^ self.stored[0].order.mask();
        let with_bucket = |key: &[u8]| [&[first], key].concat();
        KeyRange {
            start: with_bucket(&merge_keys.start),
            end: match &merge_keys.end {
                Some(end) => Some(with_bucket(end)),
                None => KeyRange::prefix(&[first]).end,
            },
        }
    }

    /// Returns true if the merged rows of a scan are sorted by their logical columns. The first `fixed` logical columns
    /// have one value each.
    fn is_ordered(&self, fixed: usize) -> bool {
        let mut before = 0;
        self.stored.iter().all(|column| match &column.form {
            Form::Bucket { .. } => true,
            // A hash does not change the order if each hashed column precedes the hash or has one value in the scan.
            Form::HashPrefix { of, .. } => of.iter().all(|number| *number < before.max(fixed)),
            Form::Value { .. } => {
                before += 1;
                true
            }
            Form::Reverse { logical, .. } => {
                before += 1;
                *logical < fixed
            }
            Form::Splice { splice, .. } => {
                before += splice.pads.len();
                true
            }
        })
    }

    /// Returns the error for a scan that restricts a column after a hash. `next` is the number of the first logical
    /// column after the hash; `fixed` is the number of values of the prefix.
    fn behind_hash(&self, hash: &StoredKeyColumn, next: usize, fixed: usize) -> LayoutError {
        let hashed = hash.hashed().unwrap_or_default().iter();
        let missing = hashed.copied().find(|number| *number >= fixed).unwrap_or(next);
        LayoutError::BehindHash {
            column: self.logical[next].name.clone(),
            hash: hash.name.clone(),
            missing: self.logical[missing].name.clone(),
        }
    }

    /// Returns the range of the keys that begin with `key` and whose next stored column begins with `values`, followed
    /// by a value within `bounds`. Returns `None` if there are no such keys. `next` is the number of the first logical
    /// column of the stored column.
    fn partial(
        &self,
        column: &StoredKeyColumn,
        values: &[KeyValue<'_>],
        next: usize,
        key: &[u8],
        bounds: Bounds<'_>,
    ) -> Result<Option<KeyRange>, LayoutError> {
        match &column.form {
            Form::Splice { first, splice } => {
                self.partial_splice(column, splice, *first, values, key, bounds)
            }
            Form::Reverse { .. } => Err(LayoutError::ReversedRange {
                column: self.logical[next].name.clone(),
            }),
            // Hashes are never partial: they hold no logical columns.
            Form::Value { .. } | Form::HashPrefix { .. } | Form::Bucket { .. } => {
                let keys_with = |value: KeyValue<'_>| {
                    appended(column, key, |out| push_value(&value, out)).map(|key| KeyRange::prefix(&key))
                };
                let lower = try_map_bound(bounds.0, keys_with)?;
                let upper = try_map_bound(bounds.1, keys_with)?;
                Ok(range_within(column.order, &KeyRange::prefix(key), lower, upper))
            }
        }
    }

    /// Implements [`Self::partial`] for a splice, whose first logical column is `first`.
    fn partial_splice(
        &self,
        column: &StoredKeyColumn,
        splice: &Splice,
        first: usize,
        values: &[KeyValue<'_>],
        key: &[u8],
        bounds: Bounds<'_>,
    ) -> Result<Option<KeyRange>, LayoutError> {
        let mut joined = self.joined(column, values)?;
        if !values.is_empty() {
            joined.push(splice.delimiter);
        }
        let start = appended(column, key, |out| push_escaped_prefix(joined.as_bytes(), out))?;
        let pad = splice.pads[values.len()];
        let is_last = values.len() + 1 == splice.pads.len();
        let name = &self.logical[first + values.len()].name;
        let keys_with = |text: String| {
            // The text is followed by the next delimiter, or by the end of the column.
            let text = format!("{joined}{text}");
            let key = appended(column, key, |out| match is_last {
                true => push_escaped(text.as_bytes(), out),
                false => push_escaped_prefix(format!("{text}{}", splice.delimiter).as_bytes(), out),
            })?;
            Ok(KeyRange::prefix(&key))
        };
        let mut ends = Vec::with_capacity(2);
        for (side, bound) in [(Side::Lower, bounds.0), (Side::Upper, bounds.1)] {
            let bound = match text_bound(name, &bound, side, pad, splice.delimiter) {
                TextBound::Nothing => return Ok(None),
                TextBound::All => Bound::Unbounded,
                TextBound::Included(text) => Bound::Included(text),
                TextBound::Excluded(text) => Bound::Excluded(text),
            };
            ends.push(try_map_bound(bound, keys_with)?);
        }
        let (Some(upper), Some(lower)) = (ends.pop(), ends.pop()) else {
            return Ok(None);
        };
        Ok(range_within(
            column.order,
            &KeyRange::prefix(&start),
            lower,
            upper,
        ))
    }
}

/// Returns `key` followed by the bytes that `push` appends; for a descending column, these are complemented.
fn appended(
    column: &StoredKeyColumn,
    key: &[u8],
    push: impl FnOnce(&mut Vec<u8>),
) -> Result<Vec<u8>, LayoutError> {
    let mut longer = key.to_vec();
    push(&mut longer);
    if column.order.mask() != 0 {
        complement(&mut longer[key.len()..]);
    }
    check_length(&longer)?;
    Ok(longer)
}

/// Converts a bound on the values of a spliced column to a bound on its texts that selects the same rows.
fn text_bound(
    column: &str,
    bound: &Bound<KeyValue<'_>>,
    side: Side,
    pad: Option<u8>,
    delimiter: char,
) -> TextBound {
    let (value, is_included) = match bound {
        Bound::Unbounded => return TextBound::All,
        Bound::Included(value) => (value, true),
        Bound::Excluded(value) => (value, false),
    };
    let everything_if = |is_all: bool| match is_all {
        true => TextBound::All,
        false => TextBound::Nothing,
    };
    match spliced_text(column, value, pad, delimiter) {
        Ok(text) if is_included => TextBound::Included(text.into_owned()),
        Ok(text) => TextBound::Excluded(text.into_owned()),
        Err(_) => match value {
            // All characters of stored texts sort after the delimiter. `before` is the part of the bound up to its
            // first character that does not sort after the delimiter. So `before` itself sorts before the bound, and
            // longer texts that begin with `before` sort after it.
            KeyValue::String(text) => {
                let before = text.split(|character| character <= delimiter).next();
                let before = before.unwrap_or_default().to_owned();
                match side {
                    Side::Lower => TextBound::Excluded(before),
                    Side::Upper => TextBound::Included(before),
                }
            }
            KeyValue::Unsigned(number) if *number > largest_of(pad.unwrap_or_default()) => {
                everything_if(side == Side::Upper)
            }
            KeyValue::Signed(number) if *number > 0 => everything_if(side == Side::Upper),
            // The number is negative: below all stored numbers.
            _ => everything_if(side == Side::Lower),
        },
    }
}
