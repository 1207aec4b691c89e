//! Number of distinct names of a table, and the most frequent names: measurements and tags with the most timelines, tag
//! keys with the most values.
//!
//! The result shows which tags cause the most timelines. It is computed on request from the name counts, without
//! reading the timelines.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::names::CountedName;
use crate::reader::CatalogReader;

/// Number of distinct names, and the most frequent names of each kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cardinality {
    /// Number of visible timelines.
    pub timelines: u64,
    /// Number of distinct measurements.
    pub measurements: u64,
    /// Measurements with the most timelines, largest first.
    pub top_measurements: Vec<CountedName>,
    /// Number of distinct tag keys.
    pub tag_keys: u64,
    /// Tag keys with the most values, largest first.
    pub top_tag_keys: Vec<CountedKeyValues>,
    /// Number of distinct pairs of tag key and value.
    pub tag_values: u64,
    /// Tags with the most timelines, largest first.
    pub top_tag_values: Vec<CountedTag>,
}

/// A tag key and its number of values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedKeyValues {
    /// Tag key.
    pub key: String,
    /// Number of distinct values.
    pub values: u64,
    /// Number of timelines with this key.
    pub timelines: u32,
}

/// A tag and its number of timelines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedTag {
    /// Tag key.
    pub key: String,
    /// Tag value.
    pub value: String,
    /// Number of timelines with this tag.
    pub timelines: u32,
}

impl CatalogReader<'_> {
    /// Counts names and returns the `top` most frequent names of each kind. Ties are broken by byte order.
    ///
    /// Takes time in proportion to the number of distinct names, and memory in proportion to `top`.
    pub fn cardinality(&self, top: usize) -> Cardinality {
        let (names, symbols) = (self.names(), &self.state.symbols);
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
            timelines: self.visible().len(),
            measurements: names.measurements.len() as u64,
            top_measurements: measurements.take().map(measured).collect(),
            tag_keys: names.tags.len() as u64,
            top_tag_keys: keys.take().map(keyed).collect(),
            tag_values,
            top_tag_values: values.take().map(tagged).collect(),
        }
    }
}

/// Collector of the `size` largest items.
struct Top<N, T> {
    size: usize,
    /// Min-heap: the smallest kept item is on top.
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

    /// Returns the kept items, largest first.
    fn take(self) -> impl Iterator<Item = (N, T)> {
        let sorted = self.kept.into_sorted_vec().into_iter();
        sorted.map(|Reverse((count, Reverse(named)))| (count, named))
    }
}
