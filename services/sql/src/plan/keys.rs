//! Conditions on key columns, and the access path derived from them.
//!
//! For each key column, the path uses at most one list of values, one lower bound and one upper bound. Further
//! conditions on the column remain in the filter. A path therefore never omits a row that matches the conditions.

use std::ops::Bound;
use std::sync::Arc;

use tideline_engine::WideTable;
use tideline_engine::indexes::Index;
use tideline_engine::key_codec::layout::{KeyLayout, KeyProduct, LayoutError, Ranges};
use tideline_engine::key_codec::tuple::{KeyKind, KeyValue};
use tideline_rows::read::KEYS_MAX;
use tideline_rows::value::type_of;

use super::filter::like_refused;
use super::{AccessPath, FoundKey, RANGES_MAX, reads_everything};
use crate::error::{Result, SqlError};
use crate::literal::{Literal, LiteralValue};
use crate::statement::{ColumnTest, Comparison, Name, Predicate};

/// Bound of a key column, with the number of the condition that sets it; `None` if the column has no bound.
type KeyBound = Option<(usize, Bound<KeyValue<'static>>)>;

/// Conditions on one key column.
#[derive(Debug, Default)]
struct KeyTests {
    /// List of values, with the number of the condition that gives it; `None` if the column has no list.
    list: Option<(usize, Vec<KeyValue<'static>>)>,
    lower: KeyBound,
    upper: KeyBound,
}

impl KeyTests {
    fn has_bounds(&self) -> bool {
        self.lower.is_some() || self.upper.is_some()
    }
}

/// Conditions of a statement, divided into those that the access path guarantees and those in the filter.
#[derive(Debug)]
pub struct Access {
    /// Index whose key the path uses; `None` for the primary key.
    index: Option<Arc<Index>>,
    conditions: Vec<Predicate>,
    /// Conditions of each key column.
    tests: Vec<KeyTests>,
    /// Number of leading key columns whose lists the path uses.
    pub lists: usize,
    /// True if the path also uses the bounds of the following key column.
    pub is_bounded: bool,
    /// Reason why the path could not use more key columns.
    reason: Option<String>,
    ranges: Option<Ranges>,
}

impl Access {
    /// Chooses the access path for a condition.
    ///
    /// # Errors
    ///
    /// [`SqlError::Invalid`] for values that do not have the type of their key column, and [`SqlError::OverLimit`] for
    /// too many ranges.
    pub fn new(table: &WideTable, condition: Option<Predicate>) -> Result<Self> {
        let conditions = condition.map_or_else(Vec::new, Predicate::into_conjuncts);
        Self::of(table, None, conditions)
    }

    /// Chooses the access path for the same conditions with the key of an index.
    ///
    /// # Errors
    ///
    /// The errors of [`new`](Self::new).
    pub fn with_index(&self, table: &WideTable, index: &Arc<Index>) -> Result<Self> {
        Self::of(table, Some(index), self.conditions.clone())
    }

    fn of(table: &WideTable, index: Option<&Arc<Index>>, conditions: Vec<Predicate>) -> Result<Self> {
        let layout = index.map_or(table.layout(), |index| index.layout());
        let logical = layout.logical();
        let mut tests: Vec<KeyTests> = logical.iter().map(|_| KeyTests::default()).collect();
        for (number, condition) in conditions.iter().enumerate() {
            let Predicate::Test(column, test) = condition else {
                continue;
            };
            if let Some(position) = logical.iter().position(|key| key.name == column.text) {
                tests[position].add(number, column, test, logical[position].kind)?;
            }
        }
        let mut access = Self {
            index: index.cloned(),
            conditions,
            tests,
            lists: 0,
            is_bounded: false,
            reason: None,
            ranges: None,
        };
        access.choose(layout)?;
        Ok(access)
    }

    /// Returns the conditions that are joined by `AND`.
    pub fn conditions(&self) -> &[Predicate] {
        &self.conditions
    }

    /// Returns the index whose key the path uses; `None` for the primary key.
    pub fn index(&self) -> Option<&Arc<Index>> {
        self.index.as_ref()
    }

    /// Returns the layout of the key that the path uses.
    pub fn layout<'a>(&'a self, table: &'a WideTable) -> &'a KeyLayout {
        self.index.as_ref().map_or(table.layout(), |index| index.layout())
    }

    /// Returns true if the conditions restrict the key, so that the path does not read the whole table.
    pub fn is_restricted(&self) -> bool {
        self.ranges.is_some() || self.is_whole_key()
    }

    /// Returns twice the number of key columns with lists, plus 1 if the next column has bounds. With a higher number,
    /// the path is likely to read fewer rows.
    pub fn restrictions(&self) -> usize {
        2 * self.lists + usize::from(self.is_bounded)
    }

    fn choose(&mut self, layout: &KeyLayout) -> Result<()> {
        let longest = self.tests.iter().take_while(|tests| tests.list.is_some()).count();
        self.lists = longest;
        if longest == self.tests.len() {
            return Ok(());
        }
        for lists in (0..=longest).rev() {
            for is_bounded in [true, false] {
                if is_bounded && !self.tests[lists].has_bounds() || lists == 0 && !is_bounded {
                    continue;
                }
                match self.ranges_of(layout, lists, is_bounded) {
                    Ok(ranges) => {
                        (self.lists, self.is_bounded, self.ranges) = (lists, is_bounded, Some(ranges));
                        return Ok(());
                    }
                    Err(error @ (LayoutError::BehindHash { .. } | LayoutError::ReversedRange { .. })) => {
                        self.reason.get_or_insert(error.to_string());
                    }
                    Err(LayoutError::ProductTooLarge {
                        factors,
                        actual,
                        limit,
                    }) => return Err(too_many_ranges(&factors, lists, actual, limit)),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        self.lists = 0;
        Ok(())
    }

    fn product(
        &self,
        layout: &KeyLayout,
        lists: usize,
        limit: u64,
    ) -> std::result::Result<KeyProduct<'static>, LayoutError> {
        let values = self.tests[..lists]
            .iter()
            .filter_map(|tests| Some(tests.list.as_ref()?.1.clone()));
        layout.product(&values.collect::<Vec<_>>(), limit)
    }

    /// Returns the ranges of all combinations of the values in the first `lists` lists. If `is_bounded` is true, the
    /// bounds of the next column restrict each range.
    fn ranges_of(
        &self,
        layout: &KeyLayout,
        lists: usize,
        is_bounded: bool,
    ) -> std::result::Result<Ranges, LayoutError> {
        let bound = |bound: &KeyBound| match bound {
            Some((_, bound)) if is_bounded => bound.clone(),
            _ => Bound::Unbounded,
        };
        let mut all = Ranges {
            ranges: Vec::new(),
            is_ordered: true,
        };
        let product = self.product(layout, lists, RANGES_MAX)?;
        for prefix in &product {
            let next = &self.tests[lists];
            let ranges = layout.ranges(&prefix, (bound(&next.lower), bound(&next.upper)))?;
            // Each combination of values has one range per bucket.
            let buckets = ranges.ranges.len();
            let actual = product.count().checked_mul(buckets as u64);
            if actual.is_none_or(|actual| actual > RANGES_MAX) {
                return Err(LayoutError::ProductTooLarge {
                    factors: product.factors().chain([buckets]).collect(),
                    actual,
                    limit: RANGES_MAX,
                });
            }
            all.ranges.extend(ranges.ranges);
            all.is_ordered &= ranges.is_ordered;
        }
        Ok(all)
    }

    /// Returns the path. `statement` is the name of the statement for error messages.
    ///
    /// # Errors
    ///
    /// [`SqlError::Refused`] if the path is the whole table and `allow_scan` is false; also errors for values that
    /// their key columns cannot hold, and for more than [`KEYS_MAX`] keys.
    pub fn path(&self, table: &WideTable, allow_scan: bool, statement: &str) -> Result<AccessPath> {
        if let Some(ranges) = &self.ranges {
            return Ok(AccessPath::Ranges(ranges.clone()));
        }
        if self.is_whole_key() {
            return Ok(AccessPath::Keys(self.keys(table)?));
        }
        match allow_scan {
            true => Ok(AccessPath::Table(
                self.layout(table)
                    .ranges(&[], (Bound::Unbounded, Bound::Unbounded))?,
            )),
            false => Err(reads_everything(table, statement, self.reason(), None)),
        }
    }

    /// Returns the reason why the path could not use more key columns; `None` if there is no such reason.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Returns true if the path uses a list of values for every key column.
    pub fn is_whole_key(&self) -> bool {
        self.lists == self.tests.len()
    }

    /// Returns the keys of all combinations of the listed values, sorted by their stored form without the bucket.
    fn keys(&self, table: &WideTable) -> Result<Vec<FoundKey>> {
        let layout = table.layout();
        let product = self.product(layout, self.lists, KEYS_MAX)?;
        let mut keys = Vec::new();
        for values in &product {
            let mut stored = Vec::new();
            layout.encode(&values, &mut stored)?;
            keys.push(FoundKey { stored, values });
        }
        keys.sort_by(|one, other| layout.merge_key(&one.stored).cmp(layout.merge_key(&other.stored)));
        Ok(keys)
    }

    /// Returns true if all rows of the path have the same value of a key column.
    pub fn is_fixed(&self, column: usize) -> bool {
        column < self.lists
            && self.tests[column]
                .list
                .as_ref()
                .is_some_and(|(_, values)| values.len() == 1)
    }

    /// Returns the conditions that the path guarantees.
    pub fn decided(&self) -> Vec<&Predicate> {
        self.split().0
    }

    /// Returns the conditions that the path does not guarantee.
    pub fn filter(&self) -> Vec<&Predicate> {
        self.split().1
    }

    fn split(&self) -> (Vec<&Predicate>, Vec<&Predicate>) {
        let mut decided: Vec<usize> = self.tests[..self.lists]
            .iter()
            .filter_map(|tests| Some(tests.list.as_ref()?.0))
            .collect();
        if let Some(next) = self.tests.get(self.lists).filter(|_| self.is_bounded) {
            decided.extend(next.lower.iter().chain(&next.upper).map(|(number, _)| *number));
        }
        let numbered = self.conditions.iter().enumerate();
        let (decided, filter): (Vec<_>, Vec<_>) = numbered.partition(|(number, _)| decided.contains(number));
        let conditions = |list: Vec<(usize, _)>| list.into_iter().map(|(_, condition)| condition).collect();
        (conditions(decided), conditions(filter))
    }
}

impl KeyTests {
    /// Adds a condition on the column, unless no access path can use it.
    fn add(&mut self, number: usize, column: &Name, test: &ColumnTest, kind: KeyKind) -> Result<()> {
        let key = |value: &Literal| value.to_key(&column.text, kind);
        match test {
            ColumnTest::Prefix(..) | ColumnTest::SameText(..) if kind != KeyKind::String => {
                return Err(like_refused(column, type_of(kind)));
            }
            ColumnTest::Compare(Comparison::Equal, value) | ColumnTest::SameText(value, false) => {
                self.list(number, vec![key(value)?]);
            }
            ColumnTest::In(values, false) => {
                let mut keys: Vec<KeyValue<'static>> = Vec::with_capacity(values.len());
                let mut encoded = std::collections::HashSet::new();
                for value in values {
                    let value = key(value)?;
                    if encoded.insert(format!("{value:?}")) {
                        keys.push(value);
                    }
                }
                self.list(number, keys);
            }
            ColumnTest::Compare(comparison, value) => match comparison {
                Comparison::Less => self.bounds(number, None, Some(Bound::Excluded(key(value)?))),
                Comparison::LessOrEqual => self.bounds(number, None, Some(Bound::Included(key(value)?))),
                Comparison::Greater => self.bounds(number, Some(Bound::Excluded(key(value)?)), None),
                Comparison::GreaterOrEqual => self.bounds(number, Some(Bound::Included(key(value)?)), None),
                Comparison::Equal | Comparison::NotEqual => {}
            },
            ColumnTest::Between(ends, false) => {
                let [lower, upper] = [key(&ends[0])?, key(&ends[1])?];
                self.bounds(number, Some(Bound::Included(lower)), Some(Bound::Included(upper)));
            }
            // Every text has the empty prefix, so an empty prefix restricts nothing.
            ColumnTest::Prefix(text, false) if !text.is_empty() => {
                let upper = after_prefix(text).map(|text| Bound::Excluded(KeyValue::String(text.into())));
                self.bounds(
                    number,
                    Some(Bound::Included(KeyValue::String(text.clone().into()))),
                    upper,
                );
            }
            _ => {}
        }
        Ok(())
    }

    fn list(&mut self, number: usize, values: Vec<KeyValue<'static>>) {
        if self.list.is_none() {
            self.list = Some((number, values));
        }
    }

    /// Adds bounds. If a condition has two bounds, either both are added or none, because the filter consists of whole
    /// conditions.
    fn bounds(
        &mut self,
        number: usize,
        lower: Option<Bound<KeyValue<'static>>>,
        upper: Option<Bound<KeyValue<'static>>>,
    ) {
        let is_free = |given: &Option<_>, known: &KeyBound| given.is_none() || known.is_none();
        if !is_free(&lower, &self.lower) || !is_free(&upper, &self.upper) {
            return;
        }
        if let Some(lower) = lower {
            self.lower = Some((number, lower));
        }
        if let Some(upper) = upper {
            self.upper = Some((number, upper));
        }
    }
}

/// Returns the smallest text that is larger than all texts with a prefix; `None` if no such text exists.
pub(super) fn after_prefix(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        let next = match last {
            '\u{d7ff}' => Some('\u{e000}'),
            last => char::from_u32(u32::from(last) + 1),
        };
        if let Some(next) = next {
            text.push(next);
            return Some(text);
        }
    }
    None
}

/// Creates a text literal with the position of the name `like`.
pub(super) fn text_literal(text: String, like: &Name) -> Literal {
    Literal {
        value: LiteralValue::Text(text),
        at: like.at,
        is_parameter: false,
    }
}

/// Returns the error of `IN` lists that select too many ranges. `factors` are the lengths of the lists, and then the
/// number of buckets, if each combination of the `lists` values has a range in each bucket.
fn too_many_ranges(factors: &[usize], lists: usize, actual: Option<u64>, limit: u64) -> SqlError {
    let (lengths, buckets) = factors.split_at(lists.min(factors.len()));
    let mut product: Vec<String> = lengths.iter().map(usize::to_string).collect();
    let in_buckets = match buckets {
        [buckets] if *buckets > 1 => {
            product.push(format!("{buckets} buckets"));
            ", because each combination of values has a range in each bucket"
        }
        _ => "",
    };
    let actual = actual.unwrap_or(u64::MAX);
    let product = match product.len() {
        ..=1 => String::new(),
        _ => format!("{} = ", product.join(" × ")),
    };
    SqlError::OverLimit {
        message: format!(
            "the lists of IN select {product}{actual} ranges, over the limit of {limit}{in_buckets}; give a value of \
             every key column, or shorten a list"
        ),
        limit,
        actual,
    }
}
