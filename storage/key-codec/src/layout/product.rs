//! Cartesian product of lists of key values.
//!
//! The number of keys is computed before any key is built, so that an oversized request is refused cheaply.

use std::collections::HashSet;

use super::{KeyLayout, LayoutError};
use crate::tuple::KeyValue;

/// Combinations of one value per list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyProduct<'v> {
    /// Lists without repeated values.
    lists: Vec<Vec<KeyValue<'v>>>,
    count: u64,
}

/// Iterator over the combinations of a [`KeyProduct`]; the last list varies fastest.
#[derive(Debug, Clone)]
pub struct Combinations<'p, 'v> {
    product: &'p KeyProduct<'v>,
    /// Position in each list.
    positions: Vec<usize>,
    left: u64,
}

impl KeyLayout {
    /// Returns the product of one list of values per logical column, for the first `lists.len()` columns. If there is
    /// a list for every column, a combination is a complete key; otherwise it is a prefix. Repeated values of a list
    /// are removed. `limit` is the maximum number of combinations; `u64::MAX` allows every number that fits 64 bits.
    ///
    /// # Errors
    ///
    /// - [`LayoutError::PrefixCount`] and [`LayoutError::WrongKind`] if the lists do not fit the logical columns;
    /// - [`LayoutError::ProductTooLarge`] if there are more combinations than `limit`, or more than `u64::MAX`.
    pub fn product<'v>(
        &self,
        lists: &[Vec<KeyValue<'v>>],
        limit: u64,
    ) -> Result<KeyProduct<'v>, LayoutError> {
        self.check_count(lists.len())?;
        for (number, list) in lists.iter().enumerate() {
            for value in list {
                self.check_kinds(number, std::slice::from_ref(value))?;
            }
        }
        let lists: Vec<Vec<KeyValue<'v>>> = lists.iter().map(|list| without_repeated(list)).collect();
        let factors: Vec<usize> = lists.iter().map(Vec::len).collect();
        match product_of(&factors) {
            Some(count) if count <= limit => Ok(KeyProduct { lists, count }),
            actual => Err(LayoutError::ProductTooLarge {
                factors,
                actual,
                limit,
            }),
        }
    }
}

impl<'v> KeyProduct<'v> {
    /// Returns the number of combinations. It is 0 if a list is empty, and 1 if there are no lists.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of different values of each list.
    pub fn factors(&self) -> impl Iterator<Item = usize> {
        self.lists.iter().map(Vec::len)
    }

    /// Returns an iterator over the combinations. The values of each list keep their order.
    pub fn iter(&self) -> Combinations<'_, 'v> {
        Combinations {
            product: self,
            positions: vec![0; self.lists.len()],
            left: self.count,
        }
    }
}

impl<'p, 'v> IntoIterator for &'p KeyProduct<'v> {
    type Item = Vec<KeyValue<'v>>;
    type IntoIter = Combinations<'p, 'v>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'v> Iterator for Combinations<'_, 'v> {
    type Item = Vec<KeyValue<'v>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let lists = &self.product.lists;
        let values = lists.iter().zip(&self.positions);
        let combination = values.map(|(list, position)| list[*position].clone()).collect();
        // Advances the position in the last list. A list that is exhausted restarts and advances the list before it.
        for (position, list) in self.positions.iter_mut().zip(lists).rev() {
            *position += 1;
            if *position < list.len() {
                break;
            }
            *position = 0;
        }
        Some(combination)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left);
        (left.unwrap_or(usize::MAX), left.ok())
    }
}

fn without_repeated<'v>(list: &[KeyValue<'v>]) -> Vec<KeyValue<'v>> {
    let mut seen = HashSet::new();
    list.iter().filter(|value| seen.insert(*value)).cloned().collect()
}

/// Multiplies numbers; `None` if the product exceeds 64 bits.
fn product_of(factors: &[usize]) -> Option<u64> {
    if factors.contains(&0) {
        return Some(0);
    }
    factors.iter().try_fold(1_u64, |product, factor| {
        product.checked_mul(u64::try_from(*factor).ok()?)
    })
}
