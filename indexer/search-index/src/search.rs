//! Search evaluation: hits of the committed index, corrected by the catalog changes that the index does not contain
//! yet.
//!
//! 1. Take a snapshot: a tantivy searcher, and the position that its documents reflect.
//! 2. Determine from the catalog which timelines are *fresh* (visible without a document, or edited since that
//!    position) and which have been removed.
//! 3. Compute an upper bound of the hits from the index, without the edited and removed timelines. If the bound is not
//!    exact and is large, also compute a lower bound.
//! 4. Verify the timelines between the bounds, and all fresh timelines, against the catalog entries.
//!
//! If a condition requires certain ids, only the timelines with these ids are verified. All timelines are verified if
//! the index is not open yet, fails, or was built with other analyzers.
//!
//! The catalog is read after the snapshot is taken, so no timeline can be missed between the two.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use roaring::RoaringBitmap;
use tantivy::Searcher;
use tideline_condition::text::TextTest;
use tideline_condition::{Matcher, Node};
use tideline_model::{Ordinal, TableId, TimelineId};
use tideline_timeline_catalog::Catalog;

use crate::mapping::Fields;
use crate::positions::{Difference, Positions};
use crate::record::{SeenLookup, TimelineRecord};
use crate::segment::{Bound, SegmentView};

/// Number of timelines that are verified under one lock of the catalog. Divided by the number of tests, because writes
/// wait for the lock. Verifying them takes about a millisecond.
const VERIFY_GROUP: usize = 2_048;
/// Maximum number of candidates that are verified without computing a lower bound first.
const VERIFY_AT_ONCE_MAX: u64 = 2_048;

/// State of the index that searches read: documents, and the position that they reflect.
pub(crate) struct Snapshot {
    pub(crate) searcher: Searcher,
    pub(crate) fields: Fields,
    /// Positions of the tables whose catalog has been compared with the index.
    pub(crate) positions: Positions,
}

/// Failure of the index; the caller triggers a rebuild.
#[derive(Debug)]
pub(crate) struct IndexFault(pub(crate) String);

/// Returns all visible timelines that match a condition, and the failure of the index, if any.
pub(crate) fn search(
    snapshot: Option<&Snapshot>,
    catalog: &Catalog,
    matcher: &Matcher,
    seen: &dyn SeenLookup,
) -> (RoaringBitmap, Option<IndexFault>) {
    if let Some(ids) = matcher.root().required_ids() {
        let named = resolve(catalog, ids.iter().copied());
        let candidates = named.values().map(|ordinal| ordinal.0).collect();
        return (verify(catalog, matcher, seen, &candidates), None);
    }
    let position = snapshot.and_then(|snapshot| snapshot.positions.get(&catalog.table()));
    let position = position.filter(|position| position.serves(matcher.root()));
    let (Some(snapshot), Some(position)) = (snapshot, position) else {
        let every = catalog.reader().visible().clone();
        return (verify(catalog, matcher, seen, &every), None);
    };
    let Difference { new, edited, gone } = position.difference(&catalog.reader());
    let wrong = &edited | &gone;
    let bounds = catch_unwind(AssertUnwindSafe(|| {
        committed(snapshot, catalog, matcher.root(), seen)
    }));
    let fault = match bounds {
        Ok(Ok(Bounds { upper, lower })) => {
            let lower = lower - &wrong;
            let candidates = ((upper - wrong) - &lower) | new | edited;
            return (lower | verify(catalog, matcher, seen, &candidates), None);
        }
        Ok(Err(error)) => IndexFault(error.to_string()),
        Err(_) => IndexFault("panic while searching".to_owned()),
    };
    let every = catalog.reader().visible().clone();
    (verify(catalog, matcher, seen, &every), Some(fault))
}

/// Bounds from the index: `upper` contains all hits, and `lower` only hits.
struct Bounds {
    upper: RoaringBitmap,
    lower: RoaringBitmap,
}

fn committed(
    snapshot: &Snapshot,
    catalog: &Catalog,
    root: &Node,
    seen: &dyn SeenLookup,
) -> tantivy::Result<Bounds> {
    let ids = resolve(catalog, named_ids(root).into_iter());
    let source_tags = catalog.reader().source_tags().to_vec();
    let table = catalog.table();
    let is_stopped = || seen.is_stopped();
    let views: Vec<SegmentView<'_>> = views(snapshot, table, &source_tags, &ids, &is_stopped)?;
    let (upper, exact) = bound(&views, root, Bound::Upper)?;
    if exact {
        let lower = upper.clone();
        return Ok(Bounds { upper, lower });
    }
    let lower = if upper.len() <= VERIFY_AT_ONCE_MAX {
        RoaringBitmap::new()
    } else {
        bound(&views, root, Bound::Lower)?.0
    };
    Ok(Bounds { upper, lower })
}

fn views<'a>(
    snapshot: &'a Snapshot,
    table: TableId,
    source_tags: &'a [String],
    ids: &'a HashMap<TimelineId, Ordinal>,
    is_stopped: &'a dyn Fn() -> bool,
) -> tantivy::Result<Vec<SegmentView<'a>>> {
    let segments = snapshot.searcher.segment_readers().iter();
    segments
        .map(|segment| SegmentView::open(segment, snapshot.fields, table, source_tags, ids, is_stopped))
        .collect()
}

/// Returns the ordinals of a bound over all segments, and true if the bound is exact.
fn bound(views: &[SegmentView<'_>], root: &Node, bound: Bound) -> tantivy::Result<(RoaringBitmap, bool)> {
    let mut ordinals = Vec::new();
    let mut exact = true;
    for view in views {
        let bounded = view.evaluate(root, bound)?;
        view.add_ordinals(&bounded.documents, &mut ordinals);
        exact &= bounded.exact;
    }
    // The documents of a segment are nearly sorted by ordinal, so the sort is fast.
    ordinals.sort_unstable();
    ordinals.dedup();
    let ordinals = RoaringBitmap::from_sorted_iter(ordinals).expect("just sorted, each one once");
    Ok((ordinals, exact))
}

/// Returns all ids in the tree.
fn named_ids(node: &Node) -> Vec<TimelineId> {
    match node {
        Node::Ids(ids) => ids.clone(),
        Node::And(nodes) | Node::Or(nodes) => nodes.iter().flat_map(named_ids).collect(),
        Node::Not(node) => named_ids(node),
        _ => Vec::new(),
    }
}

fn resolve(catalog: &Catalog, ids: impl Iterator<Item = TimelineId>) -> HashMap<TimelineId, Ordinal> {
    let reader = catalog.reader();
    ids.filter_map(|id| Some((id, reader.by_id(id)?))).collect()
}

/// Returns the candidates that match the condition, evaluated one by one. The result is incomplete if the search is
/// stopped.
fn verify(
    catalog: &Catalog,
    matcher: &Matcher,
    lookup: &dyn SeenLookup,
    candidates: &RoaringBitmap,
) -> RoaringBitmap {
    let needs_seen = matcher.needs_seen();
    let locked = (VERIFY_GROUP / tests_in(matcher.root()).max(1)).max(1);
    let mut found = RoaringBitmap::new();
    let mut rest = candidates.iter().map(Ordinal);
    loop {
        let group: Vec<Ordinal> = rest.by_ref().take(VERIFY_GROUP).collect();
        if group.is_empty() || lookup.is_stopped() {
            return found;
        }
        let seen = if needs_seen {
            lookup.seen(&group)
        } else {
            Vec::new()
        };
        for (number, part) in group.chunks(locked).enumerate() {
            if lookup.is_stopped() {
                return found;
            }
            let reader = catalog.reader();
            for (at, ordinal) in (number * locked..).zip(part) {
                let seen = seen.get(at).copied().flatten();
                let entry = reader.entry(*ordinal);
                if entry.is_some_and(|entry| matcher.matches(&TimelineRecord { entry: &entry, seen })) {
                    found.insert(ordinal.0);
                }
            }
        }
    }
}

/// Returns the number of tests in a tree; each word counts as a test.
fn tests_in(node: &Node) -> usize {
    match node {
        Node::And(nodes) | Node::Or(nodes) => nodes.iter().map(tests_in).sum(),
        Node::Not(node) => tests_in(node),
        Node::Text(_, TextTest::Words(words) | TextTest::Phrase(words)) => words.len(),
        _ => 1,
    }
}
