//! Labels, the identity of a series, stored in one shared allocation.
//!
//! A copy costs one increment of a reference count. Comparison and hashing take one pass over contiguous bytes.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use tideline_wire::varint;

use crate::quote::quote;

/// Name of the label that holds the metric name.
pub const METRIC_NAME: &str = "__name__";

/// Labels of a series: sorted by name, names unique, values not empty.
///
/// Names and values are concatenated in one shared allocation, each text after its length. A clone increments
/// a reference count; equality and hashing take one pass.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Labels(Arc<[u8]>);

/// Builder of labels, in any order. If a name is set twice, the last value is used. Empty values are removed.
#[derive(Debug, Clone, Default)]
pub struct LabelsBuilder {
    pairs: Vec<(String, String)>,
}

impl Labels {
    /// Returns the empty set of labels.
    pub fn empty() -> Self {
        Self(Arc::from([]))
    }

    /// Creates labels from pairs. The pairs must be sorted by name, with unique names and nonempty values;
    /// this is not checked.
    pub fn from_sorted<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut bytes = Vec::with_capacity(256);
        for (name, value) in pairs {
            push_text(&mut bytes, name);
            push_text(&mut bytes, value);
        }
        Self(Arc::from(bytes))
    }

    /// Iterates over names and values, by rising name.
    pub fn iter(&self) -> Iter<'_> {
        Iter(&self.0)
    }

    /// Returns the value of a label; `None` if the label is missing.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = RawIter(&self.0)
            .take_while(|(at, _)| *at <= name.as_bytes())
            .find_map(|(at, value)| (at == name.as_bytes()).then_some(value))?;
        Some(text(value))
    }

    /// Returns the metric name; `None` without one.
    pub fn metric_name(&self) -> Option<&str> {
        self.get(METRIC_NAME)
    }

    /// Returns true if there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of labels; linear cost.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.0.len()
    }

    /// Returns the labels whose names satisfy a predicate.
    #[must_use]
    pub fn filtered(&self, keep: impl Fn(&str) -> bool) -> Self {
        Self::from_sorted(self.iter().filter(|(name, _)| keep(name)))
    }

    /// Copies the labels to a builder.
    pub fn to_builder(&self) -> LabelsBuilder {
        self.iter().collect()
    }
}

impl LabelsBuilder {
    /// Sets a label. A label with an empty value is omitted from the built labels.
    pub fn set(&mut self, name: &str, value: &str) -> &mut Self {
        match self.pairs.iter_mut().find(|(at, _)| at == name) {
            Some(pair) => pair.1 = value.to_owned(),
            None => self.pairs.push((name.to_owned(), value.to_owned())),
        }
        self
    }

    /// Removes a label.
    pub fn remove(&mut self, name: &str) -> &mut Self {
        self.pairs.retain(|(at, _)| at != name);
        self
    }

    /// Returns the value of a label, which may be empty; `None` if the label was not set.
    pub fn get(&self, name: &str) -> Option<&str> {
        let pair = self.pairs.iter().find(|(at, _)| at == name);
        pair.map(|(_, value)| value.as_str())
    }

    /// Builds the labels.
    pub fn build(mut self) -> Labels {
        self.pairs.retain(|(_, value)| !value.is_empty());
        self.pairs.sort_by(|a, b| a.0.cmp(&b.0));
        Labels::from_sorted(
            self.pairs
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        )
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for LabelsBuilder {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Self {
        let mut builder = Self::default();
        for (name, value) in pairs {
            builder.set(name, value);
        }
        builder
    }
}

/// Iterator over labels by rising name.
#[derive(Debug, Clone)]
pub struct Iter<'a>(&'a [u8]);

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        Some((text(take_bytes(&mut self.0)), text(take_bytes(&mut self.0))))
    }
}

/// Iterator like [`Iter`] over raw bytes. Raw bytes compare like the texts and need no UTF-8 validation.
struct RawIter<'a>(&'a [u8]);

impl<'a> Iterator for RawIter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        Some((take_bytes(&mut self.0), take_bytes(&mut self.0)))
    }
}

fn push_text(bytes: &mut Vec<u8>, text: &str) {
    varint::put(text.len() as u64, bytes);
    bytes.extend_from_slice(text.as_bytes());
}

fn take_bytes<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let length = varint::take(bytes).expect("labels are whole") as usize;
    let (text, rest) = bytes.split_at(length);
    *bytes = rest;
    text
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("only texts are put in")
}

/// Compares label by label: first the name, then the value.
impl Ord for Labels {
    fn cmp(&self, other: &Self) -> Ordering {
        RawIter(&self.0).cmp(RawIter(&other.0))
    }
}

impl PartialOrd for Labels {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Writes `{name="value", …}`, including the metric name.
impl fmt::Display for Labels {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("{")?;
        for (at, (name, value)) in self.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(out, "{comma}{name}={}", quote(value))?;
        }
        out.write_str("}")
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}
