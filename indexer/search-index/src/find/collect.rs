//! Collects the hits of a page in one pass over all matching timelines.
//!
//! Without `collapse`, a heap keeps only the hits of the page. With `collapse`, the first timeline of each tag value is
//! kept until all timelines have been visited.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use tideline_model::Ordinal;
use tideline_timeline_catalog::Entry;

use super::FindRequest;
use super::order::{Key, Ranking, SortInputs};
use crate::Result;
use crate::error::limit;
use crate::record::Seen;

/// Maximum number of hits with `collapse`: distinct values of the tag, including the missing value.
pub const COLLAPSE_VALUES_MAX: usize = 250_000;

/// Collector of the hits of one page.
pub(super) struct Collect<'a> {
    pub(super) ranking: &'a Ranking<'a>,
    limit: usize,
    after: Option<Key>,
    total: u64,
    /// True if hits after the page exist.
    more: bool,
    /// Max-heap: the last hit of the page is on top, so that a better one can replace it.
    kept: BinaryHeap<Kept>,
    groups: Option<Groups<'a>>,
}

/// First timeline of each value of the collapse tag.
struct Groups<'a> {
    tag: &'a str,
    by_value: HashMap<String, usize>,
    without: Option<usize>,
    first: Vec<Kept>,
}

/// Candidate hit.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kept {
    pub(super) key: Key,
    pub(super) ordinal: Ordinal,
    /// Number of timelines that the hit represents; 1 without `collapse`.
    pub(super) timelines: u64,
}

/// Result of the collection.
pub(super) struct Collected {
    /// Hits in order.
    pub(super) kept: Vec<Kept>,
    pub(super) total: u64,
    pub(super) hits_total: u64,
    pub(super) more: bool,
}

impl<'a> Collect<'a> {
    pub(super) fn new(request: &'a FindRequest, ranking: &'a Ranking<'a>, after: Option<Key>) -> Self {
        let groups = request.collapse.as_deref().map(|tag| Groups {
            tag,
            by_value: HashMap::new(),
            without: None,
            first: Vec::new(),
        });
        Self {
            ranking,
            limit: request.limit,
            after,
            total: 0,
            more: false,
            kept: BinaryHeap::new(),
            groups,
        }
    }

    pub(super) fn offer(&mut self, entry: &Entry<'_>, seen: Option<Seen>) -> Result<()> {
        self.total += 1;
        let sort_inputs = self.ranking.sort_inputs(entry, seen);
        match &mut self.groups {
            Some(groups) => groups.offer(self.ranking, entry, sort_inputs),
            None => {
                self.offer_alone(entry, sort_inputs);
                Ok(())
            }
        }
    }

    fn offer_alone(&mut self, entry: &Entry<'_>, sort_inputs: SortInputs) {
        let comes_after = |key: &Key| self.ranking.compare(entry, sort_inputs, key) == Ordering::Greater;
        if self.after.as_ref().is_some_and(|after| !comes_after(after)) {
            return;
        }
        if self.kept.len() == self.limit {
            self.more = true;
            if self.kept.peek().is_some_and(|worst| comes_after(&worst.key)) {
                return;
            }
            self.kept.pop();
        }
        self.kept.push(Kept {
            key: self.ranking.key(entry, sort_inputs),
            ordinal: entry.ordinal(),
            timelines: 1,
        });
    }

    pub(super) fn finish(self) -> Collected {
        let Some(groups) = self.groups else {
            return Collected {
                kept: self.kept.into_sorted_vec(),
                total: self.total,
                hits_total: self.total,
                more: self.more,
            };
        };
        let hits_total = groups.first.len() as u64;
        let mut kept = groups.first;
        if let Some(after) = &self.after {
            kept.retain(|first| first.key > *after);
        }
        kept.sort_unstable();
        let more = kept.len() > self.limit;
        kept.truncate(self.limit);
        Collected {
            kept,
            total: self.total,
            hits_total,
            more,
        }
    }
}

impl Groups<'_> {
    fn offer(&mut self, ranking: &Ranking<'_>, entry: &Entry<'_>, sort_inputs: SortInputs) -> Result<()> {
        let value = entry.tag(self.tag);
        let known = match value {
            Some(value) => self.by_value.get(value).copied(),
            None => self.without,
        };
        let Some(at) = known else {
            let at = self.first.len();
            limit(
                "values of the tag that timelines are collapsed by",
                COLLAPSE_VALUES_MAX,
                at + 1,
            )?;
            match value {
                Some(value) => {
                    self.by_value.insert(value.to_owned(), at);
                }
                None => self.without = Some(at),
            }
            self.first.push(Kept {
                key: ranking.key(entry, sort_inputs),
                ordinal: entry.ordinal(),
                timelines: 1,
            });
            return Ok(());
        };
        let first = &mut self.first[at];
        first.timelines += 1;
        if ranking.compare(entry, sort_inputs, &first.key) == Ordering::Less {
            first.key = ranking.key(entry, sort_inputs);
            first.ordinal = entry.ordinal();
        }
        Ok(())
    }
}
