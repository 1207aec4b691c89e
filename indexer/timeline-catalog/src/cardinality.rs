//! How many different names a table has, and which of them the most timelines bear.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::names::CountedName;
use crate::reader::CatalogReader;

/// How many names there are, and the largest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cardinality {
    /// Visible timelines.
    pub timelines: u64,
    /// Different measurements.
    pub measurements: u64,
    /// Those with the most timelines, the largest first.
    pub top_measurements: Vec<CountedName>,
    /// Different tag keys.
    pub tag_keys: u64,
    /// Those with the most values, the largest first.
    pub top_tag_keys: Vec<CountedKeyValues>,
    /// Different pairs of tag key and value.
    pub tag_values: u64,
    /// Those with the most timelines, the largest first.
    pub top_tag_values: Vec<CountedTag>,
}

/// A tag key and how many values it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedKeyValues {
    /// The key.
    pub key: String,
    /// Different values.
    pub values: u64,
    /// Timelines that have it.
    pub timelines: u32,
}

/// A tag and how many timelines bear it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedTag {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Timelines that bear it.
    pub timelines: u32,
}

impl CatalogReader<'_> {
    /// Counts names, and finds the `top` largest of each kind; among equals the first in byte order.
    ///
    /// Costs a look at each distinct tag value; memory goes by `top`.
    pub fn cardinality(&self, top: usize) -> Cardinality {
        let (names, symbols) = (&self.state.names, &self.state.symbols);
        let mut measurements = Top::new(top);
        for (name, timelines) in names.measurements.iter() {
            measurements.offer(timelines, symbols.text(name));
        }
        let (mut keys, mut values, mut tag_values) = (Top::new(top), Top::new(top), 0);
        for (key, tag) in &names.tags {
            let text = symbols.text(*key);
            tag_values += tag.values.len() as u64;
            keys.offer(tag.values.len() as u64, (text, tag.timelines()));
            for (value, timelines) in tag.values.iter() {
                values.offer(timelines, (text, symbols.text(value)));
            }
        }
        let measured = |(timelines, name): (u32, &str)| CountedName {
            name: name.to_owned(),
            timelines,
        };
        let keyed = |(values, (key, timelines)): (u64, (&str, u32))| CountedKeyValues {
            key: key.to_owned(),
            values,
            timelines,
        };
        let tagged = |(timelines, (key, value)): (u32, (&str, &str))| CountedTag {
            key: key.to_owned(),
            value: value.to_owned(),
            timelines,
        };
        Cardinality {
            timelines: self.state.visible.len(),
            measurements: names.measurements.len() as u64,
            top_measurements: measurements.take().map(measured).collect(),
            tag_keys: names.tags.len() as u64,
            top_tag_keys: keys.take().map(keyed).collect(),
            tag_values,
            top_tag_values: values.take().map(tagged).collect(),
        }
    }
}

/// The largest of many.
struct Top<N, T> {
    size: usize,
    /// The least of them on top.
    kept: BinaryHeap<Reverse<(N, Reverse<T>)>>,
}

impl<N: Ord + Copy, T: Ord> Top<N, T> {
    fn new(size: usize) -> Self {
        let kept = BinaryHeap::new();
        Self { size, kept }
    }

    fn offer(&mut self, count: N, named: T) {
        self.kept.push(Reverse((count, Reverse(named))));
        if self.kept.len() > self.size {
            self.kept.pop();
        }
    }

    /// The largest first.
    fn take(self) -> impl Iterator<Item = (N, T)> {
        let sorted = self.kept.into_sorted_vec().into_iter();
        sorted.map(|Reverse((count, Reverse(named)))| (count, named))
    }
}
