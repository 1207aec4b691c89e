//! Key ranges for scans: by prefix, or by bounds on one column.

use std::ops::{Bound, RangeBounds};

use tideline_model::KeyRange;

use super::{ColumnOrder, KeyError, KeySchema, KeyValue};

impl KeySchema {
    /// Returns the range of all keys whose first columns have these values. `base`, such as the table id, precedes the
    /// columns of every key. An empty `prefix` selects all keys that begin with `base`.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::encode_prefix`].
    pub fn prefix_range(&self, base: &[u8], prefix: &[KeyValue<'_>]) -> Result<KeyRange, KeyError> {
        let mut start = base.to_vec();
        self.encode_prefix(prefix, &mut start)?;
        Ok(KeyRange::prefix(&start))
    }

    /// Returns the range of all keys whose first columns have the values of `prefix` and whose next column is within
    /// `bounds`. `base` precedes the columns of every key.
    ///
    /// Bounds refer to values, not to the order of keys: `3..=5` selects 3, 4 and 5 even in a descending column. For
    /// reversed or empty bounds, such as `5..3` or `5..5`, returns an empty range, whose start equals its end.
    ///
    /// # Errors
    ///
    /// [`KeyError::BoundsAfterLastColumn`] if `prefix` holds all columns. The errors of [`Self::encode_prefix`] apply
    /// to `prefix` and to `prefix` followed by a bound.
    pub fn bounds_range<'v>(
        &self,
        base: &[u8],
        prefix: &[KeyValue<'_>],
        bounds: impl RangeBounds<KeyValue<'v>>,
    ) -> Result<KeyRange, KeyError> {
        let all = self.prefix_range(base, prefix)?;
        let columns = self.columns();
        let column = columns.get(prefix.len()).ok_or(KeyError::BoundsAfterLastColumn {
            columns: columns.len(),
        })?;
        let keys_with = |value: &KeyValue<'_>| {
            let mut key = all.start.clone();
            self.encode_from(prefix.len(), std::slice::from_ref(value), base.len(), &mut key)?;
            Ok::<_, KeyError>(KeyRange::prefix(&key))
        };
        let lower = try_map_bound(bounds.start_bound(), keys_with)?;
        let upper = try_map_bound(bounds.end_bound(), keys_with)?;
        let range = range_within(column.order, &all, lower, upper);
        Ok(range.unwrap_or_else(|| KeyRange::new(all.start.clone(), all.start)))
    }
}

/// Returns the part of `all` whose column is within the bounds; `None` if it is empty. Each bound is given as the range
/// of all keys that hold its value in the column. `order` is the order of the column.
pub(crate) fn range_within(
    order: ColumnOrder,
    all: &KeyRange,
    lower: Bound<KeyRange>,
    upper: Bound<KeyRange>,
) -> Option<KeyRange> {
    let (first, last) = match order {
        ColumnOrder::Ascending => (lower, upper),
        ColumnOrder::Descending => (upper, lower),
    };
    let start = match first {
        Bound::Included(keys) => Some(keys.start),
        Bound::Excluded(keys) => keys.end,
        Bound::Unbounded => Some(all.start.clone()),
    };
    let end = match last {
        Bound::Included(keys) => keys.end,
        Bound::Excluded(keys) => Some(keys.start),
        Bound::Unbounded => all.end.clone(),
    };
    range_between(start, end)
}

/// Applies `map` to the value of a bound.
pub(crate) fn try_map_bound<T, U, E>(
    bound: Bound<T>,
    map: impl FnOnce(T) -> Result<U, E>,
) -> Result<Bound<U>, E> {
    Ok(match bound {
        Bound::Included(value) => Bound::Included(map(value)?),
        Bound::Excluded(value) => Bound::Excluded(map(value)?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

/// Returns the keys from `start` (inclusive) to `end` (exclusive); `None` if `end` is not after `start`. A `start` or
/// `end` of `None` is the position after all keys, so no key is in the range if `start` is `None`.
fn range_between(start: Option<Vec<u8>>, end: Option<Vec<u8>>) -> Option<KeyRange> {
    let start = start?;
    let is_empty = end.as_ref().is_some_and(|end| *end <= start);
    (!is_empty).then_some(KeyRange { start, end })
}
