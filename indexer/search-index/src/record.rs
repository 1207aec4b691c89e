//! A timeline as conditions read it, and the times of its points, which the index does not hold.

use tideline_condition::{Record, Subject, ValueRef};
use tideline_model::{Ordinal, Timestamp};
use tideline_timeline_catalog::{AttributeRef, Entry};

/// When the points of a timeline begin and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The time of the oldest point.
    pub first: Timestamp,
    /// The time of the newest point.
    pub last: Timestamp,
}

/// Serves a search with what the index does not hold: when timelines have points, and whether the search goes on.
/// Called for candidates only, in groups; no catalog lock is held then.
pub trait SeenLookup {
    /// One answer for each ordinal, in order; `None` where there is no point.
    fn seen(&self, ordinals: &[Ordinal]) -> Vec<Option<Seen>>;

    /// Whether the search should end, because its client has left or its time is over. Once true, it stays true. Checked
    /// after some thousand timelines or values, and before each pattern is compiled.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// An entry of the catalog with the times of its points. It has no fields.
#[derive(Clone, Copy)]
pub struct TimelineRecord<'a> {
    /// The entry.
    pub entry: &'a Entry<'a>,
    /// The times of its points; they matter only to conditions that test them.
    pub seen: Option<Seen>,
}

impl Record for TimelineRecord<'_> {
    fn any_value(&self, subject: &Subject, mut take: impl FnMut(ValueRef<'_>) -> bool) -> bool {
        let entry = self.entry;
        match subject {
            Subject::Measurement => take(ValueRef::Text(entry.measurement())),
            Subject::Source => entry.source().is_some_and(|source| take(ValueRef::Text(source))),
            Subject::Tag(key) => entry.tag(key).is_some_and(|value| take(ValueRef::Text(value))),
            Subject::Attribute(key) => match entry.attribute(key) {
                None => false,
                Some(AttributeRef::Text(text)) => take(ValueRef::Text(text)),
                Some(AttributeRef::Number(number)) => take(ValueRef::Float(number)),
                Some(AttributeRef::Boolean(boolean)) => take(ValueRef::Boolean(boolean)),
                Some(AttributeRef::Time(time)) => take(ValueRef::Time(time)),
                Some(AttributeRef::Point(point)) => take(ValueRef::Point(point)),
                Some(AttributeRef::Texts(texts)) => texts.iter().any(|text| take(ValueRef::Text(text))),
                Some(AttributeRef::Numbers(numbers)) => {
                    numbers.iter().any(|number| take(ValueRef::Float(number)))
                }
            },
            Subject::Any => texts_of(entry).any(|(_, text)| take(ValueRef::Text(text))),
            Subject::Id => take(ValueRef::Id(entry.id())),
            Subject::FirstSeen => self.seen.is_some_and(|seen| take(ValueRef::Time(seen.first))),
            Subject::LastSeen => self.seen.is_some_and(|seen| take(ValueRef::Time(seen.last))),
            Subject::Field(_) => false,
        }
    }
}

/// A property that says words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Property<'a> {
    Measurement,
    Tag(&'a str),
    Attribute(&'a str),
}

/// Everything of a timeline that says words.
pub(crate) fn texts_of<'a>(entry: &Entry<'a>) -> impl Iterator<Item = (Property<'a>, &'a str)> + use<'a> {
    let measurement = std::iter::once((Property::Measurement, entry.measurement()));
    let tags = entry.tags().map(|(key, value)| (Property::Tag(key), value));
    let attributes = entry.attributes().flat_map(|(key, value)| {
        let (one, several) = match value {
            AttributeRef::Text(text) => (Some(text), None),
            AttributeRef::Texts(texts) => (None, Some(texts.iter())),
            _ => (None, None),
        };
        let texts = one.into_iter().chain(several.into_iter().flatten());
        texts.map(move |text| (Property::Attribute(key), text))
    });
    measurement.chain(tags).chain(attributes)
}
