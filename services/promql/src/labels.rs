//! The identity of a series: names and values, in one piece of memory.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use tideline_wire::varint;

use crate::quote::quote;

/// The label that holds the metric name.
pub const METRIC_NAME: &str = "__name__";

/// Labels of a series, sorted by name, each name once, no value empty.
///
/// All of them lie one after another in one shared piece of memory, each text behind its length, so that a copy costs a
/// counter, and comparing for equality and hashing cost one pass.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Labels(Arc<[u8]>);

/// Labels in the making: any order, the last of equal names wins, empty values leave.
#[derive(Debug, Clone, Default)]
pub struct LabelsBuilder {
    pairs: Vec<(String, String)>,
}

impl Labels {
    /// No label.
    pub fn empty() -> Self {
        Self(Arc::from([]))
    }

    /// Of pairs that are sorted by name, whose names are unique and whose values are not empty.
    pub fn from_sorted<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut bytes = Vec::with_capacity(256);
        for (name, value) in pairs {
            push_text(&mut bytes, name);
            push_text(&mut bytes, value);
        }
        Self(Arc::from(bytes))
    }

    /// The labels by rising name.
    pub fn iter(&self) -> Iter<'_> {
        Iter(&self.0)
    }

    /// The value of a label.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = RawIter(&self.0)
            .take_while(|(at, _)| *at <= name.as_bytes())
            .find_map(|(at, value)| (at == name.as_bytes()).then_some(value))?;
        Some(text(value))
    }

    /// The metric name.
    pub fn metric_name(&self) -> Option<&str> {
        self.get(METRIC_NAME)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// How many bytes they take.
    pub(crate) fn size(&self) -> usize {
        self.0.len()
    }

    /// Those whose names meet a condition.
    #[must_use]
    pub fn filtered(&self, keep: impl Fn(&str) -> bool) -> Self {
        Self::from_sorted(self.iter().filter(|(name, _)| keep(name)))
    }

    /// For changing them.
    pub fn to_builder(&self) -> LabelsBuilder {
        self.iter().collect()
    }
}

impl LabelsBuilder {
    /// Sets a label; an empty value takes it away.
    pub fn set(&mut self, name: &str, value: &str) -> &mut Self {
        match self.pairs.iter_mut().find(|(at, _)| at == name) {
            Some(pair) => pair.1 = value.to_owned(),
            None => self.pairs.push((name.to_owned(), value.to_owned())),
        }
        self
    }

    /// Takes a label away.
    pub fn remove(&mut self, name: &str) -> &mut Self {
        self.pairs.retain(|(at, _)| at != name);
        self
    }

    /// The value that is set for a label.
    pub fn get(&self, name: &str) -> Option<&str> {
        let pair = self.pairs.iter().find(|(at, _)| at == name);
        pair.map(|(_, value)| value.as_str())
    }

    /// The labels.
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

/// Labels by rising name.
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

/// As [`Iter`], in bytes: they compare as the texts do, and nobody has to look whether they are texts.
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

/// By names and values, one label after the other.
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

/// `{name="value", …}`, the metric name among them.
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
