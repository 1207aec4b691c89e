//! Names of a table (measurements, tag keys and the values of each key) with their timeline counts.
//!
//! Only visible timelines are counted. The sorted lists of measurements and of the values of each key are built on
//! first use and then maintained incrementally. A page of a long list therefore costs a binary search instead of a
//! sort.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::symbols::{Symbol, SymbolTable};

/// A name and its number of timelines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedName {
    /// The measurement, tag key or tag value.
    pub name: String,
    /// Number of timelines with this name; at least 1.
    pub timelines: u32,
}

/// Filter and page of a name listing. Names are listed in byte order.
#[derive(Debug, Clone, Copy, Default)]
pub struct NameSelection<'a> {
    /// Prefix of the listed names; empty = all.
    pub prefix: &'a str,
    /// Only names after this one are listed: the last name of the previous page.
    pub after: Option<&'a str>,
    /// Maximum number of names.
    pub limit: usize,
}

/// A name whose text is looked up on demand.
#[derive(Debug, Clone, Copy)]
pub struct NameRef<'a> {
    symbols: &'a SymbolTable,
    symbol: Symbol,
}

/// Name counts of a table.
#[derive(Debug, Default)]
pub(crate) struct NameCounts {
    pub(crate) measurements: Counts,
    pub(crate) tags: HashMap<Symbol, TagCount>,
}

/// Counts of one tag key.
#[derive(Debug, Default)]
pub(crate) struct TagCount {
    timelines: u32,
    pub(crate) values: Counts,
}

/// Number of timelines per name, and the names in byte order for listings.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    of: HashMap<Symbol, u32>,
    order: Mutex<NameOrder>,
}

/// Names in byte order: sorted by the first listing, then maintained incrementally.
#[derive(Debug, Default)]
struct NameOrder {
    /// Sorted names; may include names without timelines. `None` until the first listing.
    sorted: Option<Arc<Vec<Symbol>>>,
    /// Names not yet merged into `sorted`, unordered; may include names that are already there.
    new: Vec<Symbol>,
}

/// Slack of two thresholds. All names are sorted again, instead of merged, in either of two cases:
/// - There are more new names than sorted names plus this number.
/// - There are more sorted names than twice the names with timelines plus this number.
const NEW_NAMES_MAX: usize = 1_024;

impl NameCounts {
    /// Adds one timeline.
    pub(crate) fn add(&mut self, measurement: Symbol, tags: impl Iterator<Item = (Symbol, Symbol)>) {
        self.measurements.add(measurement);
        for (key, value) in tags {
            let tag = self.tags.entry(key).or_default();
            tag.timelines += 1;
            tag.values.add(value);
        }
    }

    /// Removes one timeline, which must have been added.
    pub(crate) fn remove(&mut self, measurement: Symbol, tags: impl Iterator<Item = (Symbol, Symbol)>) {
        self.measurements.remove(measurement);
        for (key, value) in tags {
            let Some(tag) = self.tags.get_mut(&key) else {
                continue;
            };
            tag.timelines -= 1;
            tag.values.remove(value);
            if tag.timelines == 0 {
                self.tags.remove(&key);
            }
        }
    }

    /// Returns the resident bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let values = self.tags.values().map(|tag| tag.values.memory_bytes());
        self.measurements.memory_bytes() + self.tags.allocation_size() + values.sum::<usize>()
    }
}

impl Counts {
    fn add(&mut self, name: Symbol) {
        let count = self.of.entry(name).or_insert(0);
        *count += 1;
        if *count == 1 {
            self.order.get_mut().note(name);
        }
    }

    /// Subtracts one timeline from a name. A name without timelines is removed.
    fn remove(&mut self, name: Symbol) {
        if let Some(count) = self.of.get_mut(&name) {
            *count -= 1;
            if *count == 0 {
                self.of.remove(&name);
            }
        }
    }

    /// Returns the number of names.
    pub(crate) fn len(&self) -> usize {
        self.of.len()
    }

    /// Returns true if a timeline has this name.
    pub(crate) fn contains(&self, name: Symbol) -> bool {
        self.of.contains_key(&name)
    }

    /// Returns the number of timelines with this name.
    pub(crate) fn count(&self, name: Symbol) -> u64 {
        self.of.get(&name).copied().unwrap_or(0).into()
    }

    /// Iterates over all names and their timeline counts, unordered.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Symbol, u32)> {
        self.of.iter().map(|(name, count)| (*name, *count))
    }

    /// Iterates over all names and their timeline counts in byte order.
    ///
    /// The first call sorts the names, about 10 ms for 200,000. Later calls cost one hash lookup per name.
    pub(crate) fn in_order<'a>(
        &'a self,
        symbols: &'a SymbolTable,
    ) -> impl Iterator<Item = (NameRef<'a>, u32)> + 'a {
        let sorted = self.sorted(symbols);
        let each = (0..sorted.len()).map(move |at| sorted[at]);
        each.filter_map(move |symbol| {
            let count = self.of.get(&symbol)?;
            Some((NameRef { symbols, symbol }, *count))
        })
    }

    /// Returns the selected names. Costs one hash lookup per returned name, plus the first sort as for
    /// [`in_order`](Self::in_order).
    pub(crate) fn select(&self, symbols: &SymbolTable, selection: &NameSelection<'_>) -> Vec<CountedName> {
        let sorted = self.sorted(symbols);
        let first = sorted.partition_point(|name| {
            let text = symbols.text(*name);
            text < selection.prefix || selection.after.is_some_and(|after| text <= after)
        });
        let rest = sorted[first..].iter();
        let counted = rest
            .map(|symbol| (symbols.text(*symbol), symbol))
            .take_while(|(text, _)| text.starts_with(selection.prefix))
            .filter_map(|(text, symbol)| {
                Some(CountedName {
                    name: text.to_owned(),
                    timelines: *self.of.get(symbol)?,
                })
            });
        counted.take(selection.limit).collect()
    }

    /// Sorts the names in advance, so that the first listing does not sort them.
    pub(crate) fn sort(&self, symbols: &SymbolTable) {
        self.sorted(symbols);
    }

    fn sorted(&self, symbols: &SymbolTable) -> Arc<Vec<Symbol>> {
        let mut order = self.order.lock();
        let NameOrder { sorted, new } = &mut *order;
        let new = std::mem::take(new);
        let now = match sorted.take() {
            None => Arc::new(symbols.sorted(self.of.keys().copied().collect())),
            Some(sorted) if sorted.len() > 2 * self.of.len() + NEW_NAMES_MAX => {
                Arc::new(symbols.sorted(self.of.keys().copied().collect()))
            }
            Some(sorted) if new.is_empty() => sorted,
            Some(sorted) => Arc::new(merged(symbols, &sorted, &symbols.sorted(new))),
        };
        *sorted = Some(Arc::clone(&now));
        now
    }

    fn memory_bytes(&self) -> usize {
        let order = self.order.lock();
        let sorted = order.sorted.as_ref().map_or(0, |sorted| sorted.capacity());
        self.of.allocation_size() + (sorted + order.new.capacity()) * size_of::<Symbol>()
    }
}

impl NameOrder {
    fn note(&mut self, name: Symbol) {
        let Some(sorted) = &self.sorted else { return };
        if self.new.len() > sorted.len() + NEW_NAMES_MAX {
            *self = Self::default();
        } else {
            self.new.push(name);
        }
    }
}

impl<'a> NameRef<'a> {
    /// Returns the text of the name.
    pub fn text(&self) -> &'a str {
        self.symbols.text(self.symbol)
    }
}

/// Merges two sorted lists and drops duplicates. Costs a binary search per name in `new`, and a copy.
fn merged(symbols: &SymbolTable, sorted: &[Symbol], new: &[Symbol]) -> Vec<Symbol> {
    let mut all = Vec::with_capacity(sorted.len() + new.len());
    let mut rest = sorted;
    for name in new {
        let text = symbols.text(*name);
        let before = rest.partition_point(|have| symbols.text(*have) < text);
        all.extend_from_slice(&rest[..before]);
        rest = &rest[before..];
        if rest.first() != Some(name) && all.last() != Some(name) {
            all.push(*name);
        }
    }
    all.extend_from_slice(rest);
    all
}

/// Returns the selected names in byte order.
///
/// Compares every name and sorts the matching names, so `counts` should be small.
pub(crate) fn select(
    symbols: &SymbolTable,
    counts: impl Iterator<Item = (Symbol, u32)>,
    selection: &NameSelection<'_>,
) -> Vec<CountedName> {
    let mut found: Vec<(&str, u32)> = counts
        .map(|(symbol, timelines)| (symbols.text(symbol), timelines))
        .filter(|(name, _)| name.starts_with(selection.prefix))
        .filter(|(name, _)| selection.after.is_none_or(|after| *name > after))
        .collect();
    found.sort_unstable();
    found.truncate(selection.limit);
    let counted = |(name, timelines): (&str, u32)| CountedName {
        name: name.to_owned(),
        timelines,
    };
    found.into_iter().map(counted).collect()
}

impl TagCount {
    /// Returns the number of timelines with this key.
    pub(crate) fn timelines(&self) -> u32 {
        self.timelines
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Small deterministic random number generator.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % end
        }
    }

    #[test]
    fn names_come_in_order_whatever_is_added_and_removed_between_lists() {
        for seed in tideline_testkit::seeds("names", 20) {
            let mut numbers = Numbers(seed);
            let (mut symbols, mut counts) = (SymbolTable::new(), Counts::default());
            let mut naive: BTreeMap<String, u32> = BTreeMap::new();
            for step in 0..6_000 {
                let name = match numbers.below(3) {
                    0 => format!("{}", numbers.below(3_000)),
                    1 => format!("a rather long common beginning {}", numbers.below(3_000)),
                    _ => "a\0".repeat(numbers.below(9) as usize),
                };
                let symbol = symbols.intern(&name).expect("far from full");
                if numbers.below(3) > 0 {
                    counts.add(symbol);
                    *naive.entry(name).or_default() += 1;
                } else if let Some(count) = naive.get_mut(&name) {
                    counts.remove(symbol);
                    *count -= 1;
                    naive.retain(|_, count| *count > 0);
                }
                if step % 500 == 499 || numbers.below(1_000) == 0 {
                    let listed: Vec<(&str, u32)> = counts
                        .in_order(&symbols)
                        .map(|(name, count)| (name.text(), count))
                        .collect();
                    let expected: Vec<(&str, u32)> = naive
                        .iter()
                        .map(|(name, count)| (name.as_str(), *count))
                        .collect();
                    assert_eq!(listed, expected, "seed {seed}, step {step}");
                    let selection = NameSelection {
                        prefix: "a r",
                        after: Some("a rather long common beginning 2"),
                        limit: 5,
                    };
                    let page: Vec<(String, u32)> = counts
                        .select(&symbols, &selection)
                        .into_iter()
                        .map(|counted| (counted.name, counted.timelines))
                        .collect();
                    let wanted = naive.iter().filter(|(name, _)| {
                        name.starts_with(selection.prefix)
                            && selection.after.is_none_or(|after| name.as_str() > after)
                    });
                    let wanted: Vec<(String, u32)> = wanted
                        .take(5)
                        .map(|(name, count)| (name.clone(), *count))
                        .collect();
                    assert_eq!(page, wanted, "seed {seed}, step {step}");
                }
            }
        }
    }
}
