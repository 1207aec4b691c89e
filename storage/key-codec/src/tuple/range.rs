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
    /// Bounds refer to values, not to the order of keys: `3..=5` selects 3, 4 and 5 in a descending column as well. For
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
        let (first, last) = match column.order {
            ColumnOrder::Ascending => (bounds.start_bound(), bounds.end_bound()),
            ColumnOrder::Descending => (bounds.end_bound(), bounds.start_bound()),
        };
        let keys_with = |value: &KeyValue<'_>| {
            let mut key = all.start.clone();
            self.encode_from(prefix.len(), std::slice::from_ref(value), base.len(), &mut key)?;
            Ok::<_, KeyError>(KeyRange::prefix(&key))
        };
        let start = match first {
            Bound::Included(value) => Some(keys_with(value)?.start),
            Bound::Excluded(value) => keys_with(value)?.end,
            Bound::Unbounded => Some(all.start.clone()),
        };
        let end = match last {
            Bound::Included(value) => keys_with(value)?.end,
            Bound::Excluded(value) => Some(keys_with(value)?.start),
            Bound::Unbounded => all.end,
        };
        Ok(range_between(start, end).unwrap_or_else(|| KeyRange::new(all.start.clone(), all.start)))
    }
}

/// Returns the keys from `start` (inclusive) to `end` (exclusive); `None` if `end` is not after `start`. A `start` or
/// `end` of `None` is the position after all keys, so no key is in the range if `start` is `None`.
fn range_between(start: Option<Vec<u8>>, end: Option<Vec<u8>>) -> Option<KeyRange> {
    let start = start?;
    let is_empty = end.as_ref().is_some_and(|end| *end <= start);
    (!is_empty).then_some(KeyRange { start, end })
}
