//! Which names a table has: measurements, tag keys and the values of each key, with how many timelines bear
//! them. Only visible timelines count.

use hashbrown::HashMap;

use crate::symbols::{Symbol, SymbolTable};

/// A name and the number of timelines that bear it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedName {
    /// The measurement, tag key or tag value.
    pub name: String,
    /// Timelines that bear it; at least 1.
    pub timelines: u32,
}

/// Which names a list shows. They come in byte order.
#[derive(Debug, Clone, Copy, Default)]
pub struct NameSelection<'a> {
    /// Names begin with this; empty = all.
    pub prefix: &'a str,
    /// Names come after this one: the last of the page before.
    pub after: Option<&'a str>,
    /// Most names.
    pub limit: usize,
}

/// Counts of a table.
#[derive(Debug, Default)]
pub(crate) struct NameCounts {
    pub(crate) measurements: Counts,
    pub(crate) tags: HashMap<Symbol, TagCount>,
}

/// One tag key.
#[derive(Debug, Default)]
pub(crate) struct TagCount {
    timelines: u32,
    pub(crate) values: Counts,
}

/// How many timelines bear each symbol.
pub(crate) type Counts = HashMap<Symbol, u32>;

impl NameCounts {
    /// Counts one more timeline.
    pub(crate) fn add(&mut self, measurement: Symbol, tags: impl Iterator<Item = (Symbol, Symbol)>) {
        *self.measurements.entry(measurement).or_default() += 1;
        for (key, value) in tags {
            let tag = self.tags.entry(key).or_default();
            tag.timelines += 1;
            *tag.values.entry(value).or_default() += 1;
        }
    }

    /// Counts one timeline less, with what was added for it.
    pub(crate) fn remove(&mut self, measurement: Symbol, tags: impl Iterator<Item = (Symbol, Symbol)>) {
        count_down(&mut self.measurements, measurement);
        for (key, value) in tags {
            let Some(tag) = self.tags.get_mut(&key) else {
                continue;
            };
            tag.timelines -= 1;
            count_down(&mut tag.values, value);
            if tag.timelines == 0 {
                self.tags.remove(&key);
            }
        }
    }

    /// Resident bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let values = self.tags.values().map(|tag| tag.values.allocation_size());
        self.measurements.allocation_size() + self.tags.allocation_size() + values.sum::<usize>()
    }
}

/// A name that nobody bears any more is gone from the list.
fn count_down(counts: &mut Counts, name: Symbol) {
    if let Some(count) = counts.get_mut(&name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&name);
        }
    }
}

/// The selected ones of `counts`.
///
/// Costs a look at each of them, and a sort of those that are returned.
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
    if found.len() > selection.limit {
        found.select_nth_unstable(selection.limit);
        found.truncate(selection.limit);
    }
    found.sort_unstable();
    let counted = |(name, timelines): (&str, u32)| CountedName {
        name: name.to_owned(),
        timelines,
    };
    found.into_iter().map(counted).collect()
}

impl TagCount {
    /// Timelines that have this key.
    pub(crate) fn timelines(&self) -> u32 {
        self.timelines
    }
}
