//! Pages of timelines, in an order that does not depend on the index.
//!
//! The order is by the sort keys, then by timeline id. A page's token holds the key of its last timeline and a
//! hash of what was asked, so paging keeps no state: timelines that come and go between two pages neither
//! repeat nor hide others.

mod token;

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use tideline_model::{Ordinal, TimelineId};
use tideline_timeline_catalog::{AttributeValue, Catalog, Entry};

use crate::matcher::{Seen, SeenLookup};
use crate::{Condition, Result, SearchError, SearchIndex, Subject};

/// Most timelines of a page.
pub const PAGE_TIMELINES_MAX: usize = 10_000;
/// Most sort keys.
pub const SORT_KEYS_MAX: usize = 8;
/// Timelines that are compared under one lock of the catalog.
const COMPARE_GROUP: usize = 4_096;

/// Which timelines, in which order, how many.
#[derive(Debug, Clone)]
pub struct FindRequest {
    /// Which timelines.
    pub condition: Condition,
    /// Sort keys, the first one first; timelines equal in all of them come by id.
    pub sort: Vec<Sort>,
    /// The token of the page before.
    pub after: Option<String>,
    /// Most timelines of the page, 1 to [`PAGE_TIMELINES_MAX`].
    pub limit: usize,
}

/// One sort key. Missing values are lowest; then come booleans, numbers, texts by bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sort {
    /// What is compared.
    pub subject: Subject,
    /// Which end comes first.
    pub order: Order,
}

/// The direction of a sort key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Lowest first.
    #[default]
    Ascending,
    /// Highest first.
    Descending,
}

/// Part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindPage {
    /// The timelines, in order.
    pub ordinals: Vec<Ordinal>,
    /// Timelines on all pages together.
    pub total: u64,
    /// Continues after this page; `None` on the last.
    pub next: Option<String>,
}

impl SearchIndex {
    /// A page of the timelines that meet a condition.
    ///
    /// Costs a search and one comparison a hit, about 0.1 µs; only the page itself is kept and sorted.
    pub fn find(&self, catalog: &Catalog, request: &FindRequest, seen: &dyn SeenLookup) -> Result<FindPage> {
        check(request)?;
        let after = match &request.after {
            Some(token) => Some(token::decode(
                token,
                request,
                token::terms(catalog.table(), request),
            )?),
            None => None,
        };
        let hits = self.search(catalog, &request.condition, seen)?;
        let mut page = Page {
            request,
            after,
            kept: BinaryHeap::new(),
            more: false,
        };
        let needs_seen = request
            .sort
            .iter()
            .any(|sort| matches!(sort.subject, Subject::FirstSeen | Subject::LastSeen));
        let mut total = 0;
        let mut rest = hits.iter().map(Ordinal);
        loop {
            let group: Vec<Ordinal> = rest.by_ref().take(COMPARE_GROUP).collect();
            if group.is_empty() {
                break;
            }
            let times = if needs_seen { seen.seen(&group) } else { Vec::new() };
            let reader = catalog.reader();
            for (at, ordinal) in group.iter().enumerate() {
                if let Some(entry) = reader.entry(*ordinal) {
                    total += 1;
                    page.offer(&entry, times.get(at).copied().flatten());
                }
            }
        }
        let sorted = page.kept.into_sorted_vec();
        let last = sorted.last().filter(|_| page.more);
        let next = last.map(|last| token::encode(&last.key, token::terms(catalog.table(), request)));
        Ok(FindPage {
            ordinals: sorted.iter().map(|kept| kept.ordinal).collect(),
            total,
            next,
        })
    }
}

fn check(request: &FindRequest) -> Result<()> {
    let over = |what, limit, actual| Err(SearchError::OverLimit { what, limit, actual });
    if request.limit == 0 {
        return Err(SearchError::EmptyPage);
    }
    if request.limit > PAGE_TIMELINES_MAX {
        return over("timelines of a page", PAGE_TIMELINES_MAX, request.limit);
    }
    if request.sort.len() > SORT_KEYS_MAX {
        return over("sort keys", SORT_KEYS_MAX, request.sort.len());
    }
    Ok(())
}

/// The best timelines so far.
struct Page<'a> {
    request: &'a FindRequest,
    after: Option<Key>,
    /// The worst one on top, so that a better one takes its place.
    kept: BinaryHeap<Kept>,
    /// Whether timelines after the page exist.
    more: bool,
}

impl Page<'_> {
    fn offer(&mut self, entry: &Entry<'_>, seen: Option<Seen>) {
        let sort = &self.request.sort;
        let comes_after = |key: &Key| compare(sort, entry, seen, key) == Ordering::Greater;
        if self.after.as_ref().is_some_and(|after| !comes_after(after)) {
            return;
        }
        if self.kept.len() == self.request.limit {
            self.more = true;
            if self.kept.peek().is_some_and(|worst| comes_after(&worst.key)) {
                return;
            }
            self.kept.pop();
        }
        let values = sort.iter().map(|sort| {
            let value = value(&sort.subject, entry, seen).into_owned();
            Directed(value, sort.order)
        });
        let key = Key {
            values: values.collect(),
            id: entry.id(),
        };
        let ordinal = entry.ordinal();
        self.kept.push(Kept { key, ordinal });
    }
}

/// A timeline that is on the page, unless better ones follow.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Kept {
    key: Key,
    ordinal: Ordinal,
}

/// Where a timeline stands in the order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    values: Vec<Directed>,
    id: TimelineId,
}

/// A value that is compared in its sort key's direction.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Directed(SortValue<String>, Order);

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

impl Order {
    fn apply(self, ordering: Ordering) -> Ordering {
        match self {
            Self::Ascending => ordering,
            Self::Descending => ordering.reverse(),
        }
    }
}

/// Where `entry` stands beside `key`, without making a key of its own.
fn compare(sort: &[Sort], entry: &Entry<'_>, seen: Option<Seen>, key: &Key) -> Ordering {
    for (sort, theirs) in sort.iter().zip(&key.values) {
        let ours = value(&sort.subject, entry, seen);
        let ordering = sort.order.apply(ours.compare(&theirs.0));
        if ordering != Ordering::Equal {
            return ordering;
        }
    }
    entry.id().cmp(&key.id)
}

/// What is compared.
#[derive(Debug, Clone)]
pub(crate) enum SortValue<T> {
    Missing,
    Boolean(bool),
    Number(f64),
    /// Nanoseconds since the epoch.
    Time(i64),
    Id(TimelineId),
    Text(T),
}

impl<T: AsRef<str>> SortValue<T> {
    pub(crate) fn compare<U: AsRef<str>>(&self, other: &SortValue<U>) -> Ordering {
        match (self, other) {
            (Self::Boolean(a), SortValue::Boolean(b)) => a.cmp(b),
            (Self::Number(a), SortValue::Number(b)) => a.total_cmp(b),
            (Self::Time(a), SortValue::Time(b)) => a.cmp(b),
            (Self::Id(a), SortValue::Id(b)) => a.cmp(b),
            (Self::Text(a), SortValue::Text(b)) => a.as_ref().cmp(b.as_ref()),
            _ => self.rank().cmp(&other.rank()),
        }
    }

    /// The order of the kinds; also their number in a token.
    fn rank(&self) -> u8 {
        match self {
            Self::Missing => 0,
            Self::Boolean(_) => 1,
            Self::Number(_) => 2,
            Self::Time(_) => 3,
            Self::Id(_) => 4,
            Self::Text(_) => 5,
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
    pub(crate) fn into_owned(self) -> SortValue<String> {
        match self {
            Self::Missing => SortValue::Missing,
            Self::Boolean(value) => SortValue::Boolean(value),
            Self::Number(value) => SortValue::Number(value),
            Self::Time(value) => SortValue::Time(value),
            Self::Id(value) => SortValue::Id(value),
            Self::Text(value) => SortValue::Text(value.to_owned()),
        }
    }
}

/// What a subject is on one timeline.
pub(crate) fn value<'a>(subject: &Subject, entry: &Entry<'a>, seen: Option<Seen>) -> SortValue<&'a str> {
    let text = |text: Option<&'a str>| text.map_or(SortValue::Missing, SortValue::Text);
    match subject {
        Subject::Measurement => SortValue::Text(entry.measurement()),
        Subject::Source => text(entry.source()),
        Subject::Tag(key) => text(entry.tag(key)),
        Subject::Attribute(key) => match entry.attributes().and_then(|attributes| attributes.get(key)) {
            Some(AttributeValue::Text(text)) => SortValue::Text(text),
            Some(AttributeValue::Number(number)) => SortValue::Number(*number),
            Some(AttributeValue::Boolean(boolean)) => SortValue::Boolean(*boolean),
            None => SortValue::Missing,
        },
        Subject::Id => SortValue::Id(entry.id()),
        Subject::FirstSeen => seen.map_or(SortValue::Missing, |seen| SortValue::Time(seen.first.nanos())),
        Subject::LastSeen => seen.map_or(SortValue::Missing, |seen| SortValue::Time(seen.last.nanos())),
    }
}
