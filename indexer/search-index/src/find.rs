//! Pages of timelines in an order that does not depend on the index.
//!
//! Timelines are ordered by the sort keys, then by timeline id. A page token holds the key of the last timeline of
//! the page and a hash of the request, so paging is stateless. If timelines are added or removed between two pages, no
//! other timeline is repeated or skipped.
//!
//! With `collapse`, timelines with the same value of a tag form one hit, represented by their first timeline in the
//! order. The representatives are determined again for each page. A value can occur twice only if its representative
//! changes or is removed between two pages.

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

/// Maximum number of hits per page.
pub const PAGE_TIMELINES_MAX: usize = 10_000;
/// Maximum number of sort keys.
pub const SORT_KEYS_MAX: usize = 8;
/// Number of timelines that are compared under one lock of the catalog. Divided by the number of words of a sort by
/// relevance, because writes wait for the lock.
const COMPARE_GROUP: usize = 4_096;

/// Condition, order and size of a page.
#[derive(Debug, Clone, Default)]
pub struct FindRequest {
    /// Condition on the timelines.
    pub condition: Condition,
    /// Sort keys, most significant first. Ties are broken by id.
    pub sort: Vec<Sort>,
    /// [`FindPage::next`] of the previous page; `None` for the first page.
    pub after: Option<String>,
    /// Maximum number of hits of the page, 1 to [`PAGE_TIMELINES_MAX`].
    pub limit: usize,
    /// Tag by which timelines are collapsed. Timelines with the same value form one hit; all timelines without the tag
    /// form one hit.
    pub collapse: Option<String>,
    /// True to return the texts that matched the condition.
    pub highlight: bool,
}

/// One sort key. Missing values are lowest, followed by booleans, numbers, times, ids, texts by bytes, and points by
/// latitude, then longitude. A list is sorted by its lowest value.
#[derive(Debug, Clone, PartialEq)]
pub struct Sort {
    /// Quantity to sort by.
    pub by: SortBy,
    /// Direction of this sort key.
    pub order: SortDirection,
}

/// Quantity that timelines are sorted by.
#[derive(Debug, Clone, PartialEq)]
pub enum SortBy {
    /// Value of a subject.
    Subject(Subject),
    /// Distance of a geo point attribute from a reference point. Timelines without such an attribute are farthest.
    Distance {
        /// Attribute key.
        key: String,
        /// Reference point.
        from: GeoPoint,
    },
    /// Relevance for the words and phrases of the condition. Tests below a `Not` do not count.
    ///
    /// Each word adds the maximum of `(1 / 2 + 1 / 2n) / (1 + e)` over all values. `n` is the number of words in the
    /// value, and `e` the edit distance to the closest word of the value. Exact words and short values therefore score
    /// higher.
    Relevance,
}

/// Direction of a sort key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortDirection {
    /// Lowest first.
    #[default]
    Ascending,
    /// Highest first.
    Descending,
}

/// One page of a search result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindPage {
    /// Hits, in order.
    pub hits: Vec<Hit>,
    /// Total number of timelines on all pages.
    pub total: u64,
    /// Total number of hits on all pages; less than `total` if a hit has several collapsed timelines.
    pub hits_total: u64,
    /// Token of the next page; `None` on the last page.
    pub next: Option<String>,
}

/// A timeline, or several collapsed timelines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// First timeline of the hit.
    pub ordinal: Ordinal,
    /// Number of timelines that the hit represents, including the first one.
    pub timelines: u64,
    /// Texts that matched the condition; empty unless requested.
    pub highlights: Vec<Highlight>,
}

impl SearchIndex {
    /// Returns a page of the timelines that match a condition.
    ///
    /// Costs a search, plus one comparison of about 0.1 µs per timeline. Only the hits of the page are kept and sorted;
    /// with `collapse`, one timeline per value is kept. A sort by relevance reads each timeline word by word, which
    /// takes microseconds per timeline.
    ///
    /// # Errors
    ///
    /// [`SearchError::EmptyPage`] or [`SearchError::OverLimit`] for an invalid limit or too many sort keys or collapse
    /// values; [`SearchError::DamagedToken`] or [`SearchError::ForeignToken`] for an invalid page token; otherwise the
    /// errors of [`search`](Self::search).
    pub fn find(&self, catalog: &Catalog, request: &FindRequest, seen: &dyn SeenLookup) -> Result<FindPage> {
        check(request)?;
        let terms = token::terms(catalog.table(), request);
        let after = match &request.after {
            Some(token) => Some(token::decode(token, request, terms)?),
            None => None,
        };
        let matcher = self.compile(catalog, &request.condition, seen)?;
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
        let mut hits = Vec::with_capacity(kept.len());
        for kept in kept {
            if request.highlight && seen.is_stopped() {
                return Err(SearchError::Stopped);
            }
            // Locks the catalog for one hit at a time, because matching the texts takes long.
            let highlights = match catalog.reader().entry(kept.ordinal).filter(|_| request.highlight) {
                Some(entry) => highlights(matcher.root(), &entry),
                None => Vec::new(),
            };
            hits.push(Hit {
                ordinal: kept.ordinal,
                timelines: kept.timelines,
                highlights,
            });
        }
        Ok(FindPage {
            hits,
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
    let locked = (COMPARE_GROUP / collect.ranking.words().max(1)).max(1);
    let mut rest = hits.iter().map(Ordinal);
    loop {
        let group: Vec<Ordinal> = rest.by_ref().take(COMPARE_GROUP).collect();
        if group.is_empty() {
            return Ok(collect.finish());
        }
        let times = if needs_seen { seen.seen(&group) } else { Vec::new() };
        for (number, part) in group.chunks(locked).enumerate() {
            if seen.is_stopped() {
                return Err(SearchError::Stopped);
            }
            let reader = catalog.reader();
            for (at, ordinal) in (number * locked..).zip(part) {
                if let Some(entry) = reader.entry(*ordinal) {
                    collect.offer(&entry, times.get(at).copied().flatten())?;
                }
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
