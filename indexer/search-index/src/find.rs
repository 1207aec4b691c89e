//! Pages of timelines, in an order that does not depend on the index.
//!
//! The order is by the sort keys, then by timeline id. A page's token holds the key of its last timeline and a
//! hash of what was asked, so paging keeps no state: timelines that come and go between two pages neither
//! repeat nor hide others.
//!
//! Where timelines are collapsed, those with the same value of a tag are one hit: the first of them in the order stands
//! for all. The first ones are found anew for each page, so no value comes twice.

mod collect;
mod order;
mod token;

use roaring::RoaringBitmap;
use tideline_condition::{Condition, Subject};
use tideline_model::{GeoPoint, Ordinal};
use tideline_timeline_catalog::Catalog;

use crate::highlight::{Highlight, highlights};
use crate::record::SeenLookup;
use crate::{Result, SearchError, SearchIndex};

use collect::{Collect, Collected};
use order::Ranking;

pub use collect::COLLAPSE_VALUES_MAX;

/// Most timelines of a page.
pub const PAGE_TIMELINES_MAX: usize = 10_000;
/// Most sort keys.
pub const SORT_KEYS_MAX: usize = 8;
/// Timelines that are compared under one lock of the catalog.
const COMPARE_GROUP: usize = 4_096;

/// Which timelines, in which order, how many.
#[derive(Debug, Clone, Default)]
pub struct FindRequest {
    /// Which timelines.
    pub condition: Condition,
    /// Sort keys, the first one first; timelines equal in all of them come by id.
    pub sort: Vec<Sort>,
    /// The token of the page before.
    pub after: Option<String>,
    /// Most hits of the page, 1 to [`PAGE_TIMELINES_MAX`].
    pub limit: usize,
    /// The tag by which timelines are collapsed: those with the same value, or without one, are one hit.
    pub collapse: Option<String>,
    /// Whether to say which texts matched.
    pub highlight: bool,
}

/// One sort key. Missing values are lowest; then come booleans, numbers, times, texts by bytes, places by latitude. A
/// list stands where its lowest value would.
#[derive(Debug, Clone, PartialEq)]
pub struct Sort {
    /// What is compared.
    pub by: SortBy,
    /// Which end comes first.
    pub order: Order,
}

/// What timelines are sorted by.
#[derive(Debug, Clone, PartialEq)]
pub enum SortBy {
    /// The value of a subject.
    Subject(Subject),
    /// The distance of an attribute that is a geo point from a place; what has no such attribute is farthest.
    Distance {
        /// The attribute.
        key: String,
        /// The place.
        from: GeoPoint,
    },
    /// How well the words and phrases of the condition are said; those below a `Not` do not count.
    ///
    /// Each word adds, for the value that says it best, `(1 / 2 + 1 / 2n) / (1 + e)`, where the value has `n` words and `e`
    /// edits make the word. So words that are right and values that say little else come first.
    Relevance,
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
    /// The hits, in order.
    pub hits: Vec<Hit>,
    /// Timelines on all pages together.
    pub total: u64,
    /// Hits on all pages together: fewer than timelines where those are collapsed.
    pub hits_total: u64,
    /// Continues after this page; `None` on the last.
    pub next: Option<String>,
}

/// A timeline, or several that were collapsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// The timeline that comes first.
    pub ordinal: Ordinal,
    /// How many there are, this one among them.
    pub timelines: u64,
    /// Which of its texts matched; empty where that was not asked for.
    pub highlights: Vec<Highlight>,
}

impl SearchIndex {
    /// A page of the timelines that meet a condition.
    ///
    /// Costs a search and one comparison a hit, about 0.1 µs; only the page itself is kept and sorted. By relevance, each
    /// hit is read word by word, which takes microseconds.
    pub fn find(&self, catalog: &Catalog, request: &FindRequest, seen: &dyn SeenLookup) -> Result<FindPage> {
        check(request)?;
        let terms = token::terms(catalog.table(), request);
        let after = match &request.after {
            Some(token) => Some(token::decode(token, request, terms)?),
            None => None,
        };
        let matcher = self.compile(&request.condition, seen)?;
        let hits = self.matching(catalog, &matcher, seen)?;
        let ranking = Ranking::new(&request.sort, matcher.root());
        let collect = Collect::new(request, &ranking, after);
        let Collected {
            kept,
            total,
            hits_total,
            more,
        } = collected(catalog, &hits, seen, collect)?;
        let next = kept
            .last()
            .filter(|_| more)
            .map(|last| token::encode(&last.key, terms));
        // The catalog is locked for one hit at a time: what is found in texts takes its time.
        let hits = kept.into_iter().map(|kept| Hit {
            ordinal: kept.ordinal,
            timelines: kept.timelines,
            highlights: match catalog.reader().entry(kept.ordinal).filter(|_| request.highlight) {
                Some(entry) => highlights(matcher.root(), &entry),
                None => Vec::new(),
            },
        });
        Ok(FindPage {
            hits: hits.collect(),
            total,
            hits_total,
            next,
        })
    }
}

fn collected(
    catalog: &Catalog,
    hits: &RoaringBitmap,
    seen: &dyn SeenLookup,
    mut collect: Collect<'_>,
) -> Result<Collected> {
    let needs_seen = collect.ranking.needs_seen();
    let mut rest = hits.iter().map(Ordinal);
    loop {
        let group: Vec<Ordinal> = rest.by_ref().take(COMPARE_GROUP).collect();
        if group.is_empty() {
            return Ok(collect.finish());
        }
        if seen.is_stopped() {
            return Err(SearchError::Stopped);
        }
        let times = if needs_seen { seen.seen(&group) } else { Vec::new() };
        let reader = catalog.reader();
        for (at, ordinal) in group.iter().enumerate() {
            if let Some(entry) = reader.entry(*ordinal) {
                collect.offer(&entry, times.get(at).copied().flatten())?;
            }
        }
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
