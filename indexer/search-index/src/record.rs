//! A timeline as input of a condition, and the times of its points, which the index does not hold.

use tideline_condition::{Record, Subject, ValueRef};
use tideline_model::{Ordinal, Timestamp};
use tideline_timeline_catalog::{AttributeRef, Entry};

/// Times of the first and last point of a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Time of the oldest point.
    pub first: Timestamp,
    /// Time of the newest point.
    pub last: Timestamp,
}

/// Source of data that the index does not hold: the times of points, and the stop signal of the search. Times are
/// requested in groups, only for candidates and hits, and only if the condition or the sort order needs them. No
/// catalog lock is held during a call.
pub trait SeenLookup {
    /// Returns one value per ordinal, in order; `None` if the timeline has no points.
    fn seen(&self, ordinals: &[Ordinal]) -> Vec<Option<Seen>>;

    /// Returns true if the search should stop, because its client disconnected or its time limit was exceeded. Once
    /// true, it must stay true. Called every few thousand timelines or values, and before each pattern is compiled.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Catalog entry with the times of its points. Field subjects have no values in this record.
#[derive(Clone, Copy)]
pub struct TimelineRecord<'a> {
    /// Catalog entry.
    pub entry: &'a Entry<'a>,
    /// Times of the points of the timeline; used only by conditions on first or last seen.
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
            Subject::Field(_) | Subject::Column(_) => false,
        }
    }
}

/// A property that contains words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Property<'a> {
    Measurement,
    Tag(&'a str),
    Attribute(&'a str),
}

/// Iterates over all texts of a timeline with their properties.
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
