//! Sort keys of timelines: extraction, comparison and direction.
//!
//! A timeline is compared with a stored key without building its own key, because most timelines of a large result
//! are rejected by that comparison.

use std::cmp::Ordering;

use tideline_condition::geo::meters_between;
use tideline_condition::{Node, Subject};
use tideline_model::TimelineId;
use tideline_timeline_catalog::{AttributeRef, Entry};

use super::{Sort, SortBy, SortDirection};
use crate::record::Seen;
use crate::relevance::QueryWords;

/// Sort keys and the words that relevance is computed for.
pub(super) struct Ranking<'a> {
    pub(super) sort: &'a [Sort],
    query: Option<QueryWords<'a>>,
}

/// Times of the points of a timeline, and its relevance score.
#[derive(Clone, Copy)]
pub(super) struct SortInputs {
    seen: Option<Seen>,
    score: f64,
}

/// Sort key of a timeline.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) values: Vec<Directed>,
    pub(super) id: TimelineId,
}

/// Value that is compared in the direction of its sort key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Directed(pub(super) SortValue<String>, pub(super) SortDirection);

impl Ord for Directed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.1.apply(self.0.compare(&other.0))
    }
}

impl PartialOrd for Directed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl SortDirection {
    fn apply(self, ordering: Ordering) -> Ordering {
        match self {
            Self::Ascending => ordering,
            Self::Descending => ordering.reverse(),
        }
    }
}

impl<'a> Ranking<'a> {
    pub(super) fn new(sort: &'a [Sort], root: &'a Node) -> Self {
        let by_relevance = sort.iter().any(|sort| sort.by == SortBy::Relevance);
        Self {
            sort,
            query: by_relevance.then(|| QueryWords::of(root)),
        }
    }

    pub(super) fn needs_seen(&self) -> bool {
        let is_time =
            |sort: &Sort| matches!(sort.by, SortBy::Subject(Subject::FirstSeen | Subject::LastSeen));
        self.sort.iter().any(is_time)
    }

    /// Returns the number of words that are compared with the texts of each timeline.
    pub(super) fn words(&self) -> usize {
        self.query.as_ref().map_or(0, QueryWords::words)
    }

    pub(super) fn sort_inputs(&self, entry: &Entry<'_>, seen: Option<Seen>) -> SortInputs {
        let score = self.query.as_ref().map_or(0.0, |query| query.score(entry));
        SortInputs { seen, score }
    }

    pub(super) fn key(&self, entry: &Entry<'_>, sort_inputs: SortInputs) -> Key {
        let values = self.sort.iter().map(|sort| {
            let value = sorted_by(&sort.by, entry, sort_inputs).into_owned();
            Directed(value, sort.order)
        });
        Key {
            values: values.collect(),
            id: entry.id(),
        }
    }

    /// Compares `entry` with `key` without building the key of the entry.
    pub(super) fn compare(&self, entry: &Entry<'_>, sort_inputs: SortInputs, key: &Key) -> Ordering {
        for (sort, theirs) in self.sort.iter().zip(&key.values) {
            let ours = sorted_by(&sort.by, entry, sort_inputs);
            let ordering = sort.order.apply(ours.compare(&theirs.0));
            if ordering != Ordering::Equal {
                return ordering;
            }
        }
        entry.id().cmp(&key.id)
    }
}

/// Value of a sort key.
#[derive(Debug, Clone)]
pub(super) enum SortValue<T> {
    Missing,
    Boolean(bool),
    Number(f64),
    /// Nanoseconds since the epoch.
    Time(i64),
    Id(TimelineId),
    Text(T),
    /// Latitude and longitude.
    Point(f64, f64),
}

impl<T: AsRef<str>> SortValue<T> {
    pub(super) fn compare<U: AsRef<str>>(&self, other: &SortValue<U>) -> Ordering {
        match (self, other) {
            (Self::Boolean(a), SortValue::Boolean(b)) => a.cmp(b),
            (Self::Number(a), SortValue::Number(b)) => a.total_cmp(b),
            (Self::Time(a), SortValue::Time(b)) => a.cmp(b),
            (Self::Id(a), SortValue::Id(b)) => a.cmp(b),
            (Self::Text(a), SortValue::Text(b)) => a.as_ref().cmp(b.as_ref()),
            (Self::Point(a, b), SortValue::Point(c, d)) => a.total_cmp(c).then(b.total_cmp(d)),
            _ => self.rank().cmp(&other.rank()),
        }
    }

    /// Returns the rank of the type, which is also its number in a page token.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Missing => 0,
            Self::Boolean(_) => 1,
            Self::Number(_) => 2,
            Self::Time(_) => 3,
            Self::Id(_) => 4,
            Self::Text(_) => 5,
            Self::Point(..) => 6,
        }
    }
}

impl PartialEq for SortValue<String> {
    fn eq(&self, other: &Self) -> bool {
        self.compare(other) == Ordering::Equal
    }
}

impl Eq for SortValue<String> {}

impl SortValue<&str> {
    pub(super) fn into_owned(self) -> SortValue<String> {
        match self {
            Self::Missing => SortValue::Missing,
            Self::Boolean(value) => SortValue::Boolean(value),
            Self::Number(value) => SortValue::Number(value),
            Self::Time(value) => SortValue::Time(value),
            Self::Id(value) => SortValue::Id(value),
            Self::Text(value) => SortValue::Text(value.to_owned()),
            Self::Point(latitude, longitude) => SortValue::Point(latitude, longitude),
        }
    }
}

/// Returns the value of a sort key for one timeline.
fn sorted_by<'a>(by: &SortBy, entry: &Entry<'a>, sort_inputs: SortInputs) -> SortValue<&'a str> {
    match by {
        SortBy::Subject(subject) => value(subject, entry, sort_inputs.seen),
        SortBy::Relevance => SortValue::Number(sort_inputs.score),
        SortBy::Distance { key, from } => SortValue::Number(match entry.attribute(key) {
            Some(AttributeRef::Point(point)) => meters_between(*from, point),
            _ => f64::INFINITY,
        }),
    }
}

/// Returns the value of a subject for one timeline.
fn value<'a>(subject: &Subject, entry: &Entry<'a>, seen: Option<Seen>) -> SortValue<&'a str> {
    let text = |text: Option<&'a str>| text.map_or(SortValue::Missing, SortValue::Text);
    match subject {
        Subject::Measurement => SortValue::Text(entry.measurement()),
        Subject::Source => text(entry.source()),
        Subject::Tag(key) => text(entry.tag(key)),
        Subject::Attribute(key) => match entry.attribute(key) {
            Some(AttributeRef::Text(text)) => SortValue::Text(text),
            Some(AttributeRef::Number(number)) => SortValue::Number(number),
            Some(AttributeRef::Boolean(boolean)) => SortValue::Boolean(boolean),
            Some(AttributeRef::Time(time)) => SortValue::Time(time.nanos()),
            Some(AttributeRef::Point(point)) => SortValue::Point(point.latitude(), point.longitude()),
            Some(AttributeRef::Texts(texts)) => text(texts.iter().min()),
            Some(AttributeRef::Numbers(numbers)) => {
                let lowest = numbers.iter().min_by(f64::total_cmp);
                lowest.map_or(SortValue::Missing, SortValue::Number)
            }
            None => SortValue::Missing,
        },
        Subject::Any | Subject::Field(_) | Subject::Column(_) => SortValue::Missing,
        Subject::Id => SortValue::Id(entry.id()),
        Subject::FirstSeen => seen.map_or(SortValue::Missing, |seen| SortValue::Time(seen.first.nanos())),
        Subject::LastSeen => seen.map_or(SortValue::Missing, |seen| SortValue::Time(seen.last.nanos())),
    }
}
