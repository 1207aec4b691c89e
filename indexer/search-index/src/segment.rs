//! Evaluation of a condition tree on one tantivy segment, as sets of documents.
//!
//! Each leaf becomes the set of documents in the posting lists of its terms; inner nodes combine these sets. This
//! module leaves two kinds of nodes undecided:
//!
//! - times of first and last points, and the word order of phrases, because the index does not hold them;
//! - the remaining nodes of an `And` once few documents are left in an upper bound, because verifying few
//!   documents is cheaper than reading long lists.
//!
//! The result is therefore a *bound*: a superset ([`Bound::Upper`]) or subset ([`Bound::Lower`]) of the matching
//! documents, with a flag that is true if the set is exact. Documents between the two bounds are verified against the
//! catalog entries.

mod ranges;
mod words;

use std::collections::HashMap;
use std::sync::Arc;

use roaring::RoaringBitmap;
use tantivy::columnar::ColumnValues;
use tantivy::postings::TermInfo;
use tantivy::{Searcher, SegmentReader};
use tideline_condition::text::TextTest;
use tideline_condition::{Node, Subject};
use tideline_model::{Ordinal, TableId, TimelineId};

use crate::documents::ascending;
use crate::mapping::{Fields, KEY_FIELD, Keyed, Token, names_of, ordered_time, ordinal_of};
use crate::terms::Terms;

use ranges::number_bits;

/// Number of documents whose keys are read in one call.
const KEY_GROUP: usize = 256;
/// If a partial result of an `And` has at most this number of documents of a segment, the evaluation of an upper bound
/// skips the remaining nodes. The documents are then verified one by one. Reading a list costs about 1 ns per document,
/// verifying about 0.5 µs per document.
const VERIFY_DOCUMENTS_MAX: u64 = 256;
/// Maximum number of values whose list lengths are sampled to estimate the total length for all values.
const SAMPLED_VALUES: usize = 32;

/// Direction in which a set may be inexact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Superset: contains every document that matches.
    Upper,
    /// Subset: every document in it matches.
    Lower,
}

/// A set of documents of a segment, as a bound.
#[derive(Debug)]
pub(crate) struct Bounded {
    pub(crate) documents: RoaringBitmap,
    /// True if the set contains exactly the matching documents.
    pub(crate) exact: bool,
}

impl Bounded {
    fn exact(documents: RoaringBitmap) -> Self {
        let exact = true;
        Self { documents, exact }
    }
}

/// Documents of one table in a segment.
pub(crate) struct SegmentView<'a> {
    table: TableId,
    source_tags: &'a [String],
    /// Ordinals of the visible timelines whose ids occur in the tree.
    ids: &'a HashMap<TimelineId, Ordinal>,
    segment: &'a SegmentReader,
    terms: Terms<'a>,
    keys: Arc<dyn ColumnValues<u64>>,
    /// All documents of the table, including deleted ones.
    all: RoaringBitmap,
    /// Stop signal; results of a stopped search are discarded.
    is_stopped: &'a dyn Fn() -> bool,
}

impl<'a> SegmentView<'a> {
    pub(crate) fn open(
        segment: &'a SegmentReader,
        fields: Fields,
        table: TableId,
        source_tags: &'a [String],
        ids: &'a HashMap<TimelineId, Ordinal>,
        is_stopped: &'a dyn Fn() -> bool,
    ) -> tantivy::Result<Self> {
        let terms = Terms::open(segment, fields.tokens, is_stopped)?;
        let keys = segment.fast_fields().u64(KEY_FIELD)?.first_or_default_col(0);
        let mut view = Self {
            table,
            source_tags,
            ids,
            segment,
            terms,
            keys,
            all: RoaringBitmap::new(),
            is_stopped,
        };
        view.all = view.term(&Token::table(table))?;
        Ok(view)
    }

    /// Appends the ordinals of the documents that are not deleted.
    pub(crate) fn add_ordinals(&self, documents: &RoaringBitmap, ordinals: &mut Vec<u32>) {
        let alive = self.segment.alive_bitset();
        let is_alive = |document: &u32| alive.is_none_or(|alive| alive.is_alive(*document));
        let mut living = documents.iter().filter(is_alive);
        let mut group = Vec::with_capacity(KEY_GROUP);
        let mut keys = [0; KEY_GROUP];
        loop {
            group.clear();
            group.extend(living.by_ref().take(KEY_GROUP));
            if group.is_empty() {
                return;
            }
            let keys = &mut keys[..group.len()];
            self.keys.get_vals(&group, keys);
            ordinals.extend(keys.iter().map(|key| ordinal_of(*key)));
        }
    }

    /// Returns a bound of the documents that match a tree.
    pub(crate) fn evaluate(&self, node: &Node, bound: Bound) -> tantivy::Result<Bounded> {
        if (self.is_stopped)() {
            return Ok(Bounded::exact(RoaringBitmap::new()));
        }
        Ok(match node {
            Node::All => Bounded::exact(self.all.clone()),
            Node::And(nodes) => self.all_of(nodes, bound)?,
            Node::Or(nodes) => {
                let mut any = Bounded::exact(RoaringBitmap::new());
                for node in nodes {
                    let one = self.evaluate(node, bound)?;
                    any.documents |= one.documents;
                    any.exact &= one.exact;
                }
                any
            }
            Node::Not(node) => {
                let opposite = match bound {
                    Bound::Upper => Bound::Lower,
                    Bound::Lower => Bound::Upper,
                };
                let mut inner = self.evaluate(node, opposite)?;
                inner.documents = &self.all - inner.documents;
                inner
            }
            Node::Text(subject, test) => self.text(subject, test, bound)?,
            Node::OneOf(Subject::Attribute(key), literals) => {
                let tokens = literals
                    .iter()
                    .filter_map(|literal| Token::of_literal(self.table, key, literal));
                Bounded::exact(self.terms(tokens)?)
            }
            Node::Number(Subject::Attribute(key), range) => {
                let prefix = Token::attribute_numbers(self.table, key);
                Bounded::exact(self.ordered(&prefix, number_bits(range))?)
            }
            Node::Time(Subject::Attribute(key), range) => {
                let prefix = Token::attribute_times(self.table, key);
                let last = range.end.checked_sub(1).filter(|last| range.start <= *last);
                let bits = last.map(|last| (ordered_time(range.start), ordered_time(last)));
                Bounded::exact(self.ordered(&prefix, bits)?)
            }
            Node::Area(Subject::Attribute(key), region) => Bounded::exact(self.within(key, region)?),
            Node::Exists(subject) => Bounded::exact(self.exists(subject)?),
            Node::Ids(ids) => Bounded::exact(self.identified(ids)),
            Node::Time(..) => Bounded {
                documents: match bound {
                    Bound::Upper => self.all.clone(),
                    Bound::Lower => RoaringBitmap::new(),
                },
                exact: false,
            },
            // Only attributes have non-text values; timelines have no fields.
            Node::OneOf(..) | Node::Number(..) | Node::Area(..) | Node::Intervals { .. } => {
                Bounded::exact(RoaringBitmap::new())
            }
        })
    }

    /// Returns the intersection, evaluating the most selective node first.
    fn all_of(&self, nodes: &[Node], bound: Bound) -> tantivy::Result<Bounded> {
        let mut by_cost = Vec::with_capacity(nodes.len());
        for node in nodes {
            by_cost.push((self.estimate(node)?, node));
        }
        by_cost.sort_by_key(|(cost, _)| *cost);
        let mut all = Bounded::exact(self.all.clone());
        for (_, node) in by_cost {
            let few = all.documents.len() <= VERIFY_DOCUMENTS_MAX;
            if all.documents.is_empty() {
                break;
            }
            if few && bound == Bound::Upper {
                all.exact = false;
                break;
            }
            let one = self.evaluate(node, bound)?;
            all.documents &= one.documents;
            all.exact &= one.exact;
        }
        Ok(all)
    }

    /// Estimates the number of documents in the posting lists of a node. For a node without an estimate, returns more
    /// than the number of all documents. Only the evaluation order of an `And` depends on the result.
    fn estimate(&self, node: &Node) -> tantivy::Result<u64> {
        let every = u64::from(self.segment.max_doc());
        Ok(match node {
            Node::Text(subject, TextTest::OneOf(values)) => {
                let sampled = &values[..values.len().min(SAMPLED_VALUES)];
                let mut listed = 0;
                for value in sampled {
                    listed += self.listed(subject, value)?;
                }
                every.min(listed * values.len() as u64 / sampled.len().max(1) as u64)
            }
            Node::Text(subject, TextTest::Words(query)) => self.documents_with_estimate(subject, query)?,
            Node::Ids(ids) => ids.len() as u64,
            Node::Time(Subject::FirstSeen | Subject::LastSeen, _) => u64::MAX / 2,
            Node::Text(..)
            | Node::OneOf(..)
            | Node::Number(..)
            | Node::Time(..)
            | Node::Area(..)
            | Node::Intervals { .. } => every + 1,
            Node::And(nodes) => {
                let costs = nodes.iter().map(|node| self.estimate(node));
                costs
                    .collect::<tantivy::Result<Vec<_>>>()?
                    .into_iter()
                    .min()
                    .unwrap_or(every)
            }
            Node::Or(nodes) => {
                let costs = nodes.iter().map(|node| self.estimate(node));
                let costs = costs.collect::<tantivy::Result<Vec<_>>>()?;
                costs.into_iter().fold(0, u64::saturating_add)
            }
            Node::Not(_) | Node::Exists(_) => every + 2,
            Node::All => u64::MAX / 2,
        })
    }

    /// Estimates the number of documents with a value. Returns the number of all documents of the segment for the empty
    /// value, which documents without the property match too.
    fn listed(&self, subject: &Subject, value: &str) -> tantivy::Result<u64> {
        let prefixes = match subject {
            _ if value.is_empty() => return Ok(u64::from(self.segment.max_doc())),
            Subject::Measurement => {
                let infos = self.of_measurements(&|measurement| measurement == value)?;
                return Ok(infos.iter().map(|info| u64::from(info.doc_freq)).sum());
            }
            Subject::Source => {
                let tags = self.source_tags.iter();
                tags.map(|key| Token::tag_values(self.table, key)).collect()
            }
            Subject::Tag(key) => vec![Token::tag_values(self.table, key)],
            Subject::Attribute(key) => vec![Token::attribute_texts(self.table, key)],
            _ => Vec::new(),
        };
        let mut listed = 0;
        for prefix in prefixes {
            listed += self.frequency(&with_value(prefix, value))?;
        }
        Ok(listed)
    }

    fn frequency(&self, token: &Token) -> tantivy::Result<u64> {
        let info = self.terms.get(&token.0)?;
        Ok(info.map_or(0, |info| u64::from(info.doc_freq)))
    }

    fn text(&self, subject: &Subject, test: &TextTest, bound: Bound) -> tantivy::Result<Bounded> {
        let mut found = match subject {
            Subject::Source => return self.source(test, bound),
            Subject::Any => return self.anywhere(test, bound),
            Subject::Measurement => Bounded::exact(self.measured(&|text| test.matches(text))?),
            Subject::Tag(key) => self.keyed(Keyed::Tag(key), test, bound)?,
            Subject::Attribute(key) => self.keyed(Keyed::Attribute(key), test, bound)?,
            // These subjects have no text tests.
            Subject::Id | Subject::FirstSeen | Subject::LastSeen | Subject::Field(_) | Subject::Column(_) => {
                return Ok(Bounded::exact(RoaringBitmap::new()));
            }
        };
        let may_be_missing = !matches!(subject, Subject::Measurement);
        if may_be_missing && test.matches("") {
            found.documents |= &self.all - self.exists(subject)?;
        }
        Ok(found)
    }

    /// Evaluates a test of the source: the value of the first source tag that a document has.
    fn source(&self, test: &TextTest, bound: Bound) -> tantivy::Result<Bounded> {
        let mut found = Bounded::exact(RoaringBitmap::new());
        let mut undecided = self.all.clone();
        for key in self.source_tags {
            if undecided.is_empty() {
                break;
            }
            let having = self.tagged(key)? & &undecided;
            let passing = self.keyed(Keyed::Tag(key), test, bound)?;
            found.documents |= passing.documents & &having;
            found.exact &= passing.exact;
            undecided -= having;
        }
        if test.matches("") {
            found.documents |= undecided;
        }
        Ok(found)
    }

    fn exists(&self, subject: &Subject) -> tantivy::Result<RoaringBitmap> {
        match subject {
            Subject::Measurement | Subject::Any | Subject::Id => Ok(self.all.clone()),
            Subject::FirstSeen | Subject::LastSeen | Subject::Field(_) | Subject::Column(_) => {
                Ok(RoaringBitmap::new())
            }
            Subject::Tag(key) => self.tagged(key),
            Subject::Attribute(key) => {
                let keys = Token::attribute_keys(self.table);
                self.passing(&keys, "", &|rest| names_of(rest).any(|name| name == key))
            }
            Subject::Source => {
                let mut found = RoaringBitmap::new();
                for key in self.source_tags {
                    found |= self.tagged(key)?;
                }
                Ok(found)
            }
        }
    }

    /// Returns the documents that have a tag with this key.
    fn tagged(&self, key: &str) -> tantivy::Result<RoaringBitmap> {
        let shapes = Token::shapes(self.table);
        self.passing(&shapes, "", &|rest| {
            names_of(rest).skip(1).any(|name| name == key)
        })
    }

    /// Returns the documents whose measurement passes.
    fn measured(&self, passes: &dyn Fn(&str) -> bool) -> tantivy::Result<RoaringBitmap> {
        self.terms.documents(&self.of_measurements(passes)?)
    }

    fn of_measurements(&self, passes: &dyn Fn(&str) -> bool) -> tantivy::Result<Vec<TermInfo>> {
        let shapes = Token::shapes(self.table);
        self.infos(&shapes, "", &|rest| names_of(rest).next().is_some_and(passes))
    }

    /// Returns the documents with a term that consists of `prefix` and a value that passes the test.
    fn values(&self, prefix: &Token, test: &TextTest) -> tantivy::Result<RoaringBitmap> {
        if let TextTest::OneOf(values) = test {
            let tokens = values.iter().map(|value| with_value(prefix.clone(), value));
            return self.terms(tokens);
        }
        self.passing(prefix, test.literal_prefix(), &|value| test.matches_bytes(value))
    }

    /// Returns the documents with a term that consists of `prefix` and a value that begins with `literal` and passes.
    /// Tests every value in the dictionary that begins with `literal`.
    fn passing(
        &self,
        prefix: &Token,
        literal: &str,
        passes: &dyn Fn(&[u8]) -> bool,
    ) -> tantivy::Result<RoaringBitmap> {
        self.terms.documents(&self.infos(prefix, literal, passes)?)
    }

    /// Returns the terms that [`passing`](Self::passing) selects.
    fn infos(
        &self,
        prefix: &Token,
        literal: &str,
        passes: &dyn Fn(&[u8]) -> bool,
    ) -> tantivy::Result<Vec<TermInfo>> {
        let begun = with_value(prefix.clone(), literal);
        let passes = |token: &[u8]| passes(&token[prefix.0.len()..]);
        self.terms.with_prefix(&begun.0, passes)
    }

    fn term(&self, token: &Token) -> tantivy::Result<RoaringBitmap> {
        self.terms.documents(self.terms.get(&token.0)?.as_slice())
    }

    fn terms(&self, tokens: impl Iterator<Item = Token>) -> tantivy::Result<RoaringBitmap> {
        let infos = self.terms.known(tokens.map(|token| token.0))?;
        self.terms.documents(&infos)
    }

    /// Returns the documents of these timelines, by a scan over every key of the segment. A condition whose top level
    /// requires ids does not reach this code; it is evaluated on the catalog.
    fn identified(&self, ids: &[TimelineId]) -> RoaringBitmap {
        let known = ids.iter().filter_map(|id| self.ids.get(id));
        let wanted: RoaringBitmap = known.map(|ordinal| ordinal.0).collect();
        let mut found = Vec::new();
        for document in 0..self.segment.max_doc() {
            if wanted.contains(ordinal_of(self.keys.get_val(document))) {
                found.push(document);
            }
        }
        ascending(found) & &self.all
    }
}

/// Returns the ordinals of a table's timelines whose document has attributes.
pub(crate) fn with_attributes(
    searcher: &Searcher,
    fields: Fields,
    table: TableId,
) -> tantivy::Result<RoaringBitmap> {
    let ids = HashMap::new();
    let mut ordinals = Vec::new();
    for segment in searcher.segment_readers() {
        let view = SegmentView::open(segment, fields, table, &[], &ids, &|| false)?;
        let described = view.passing(&Token::attribute_keys(table), "", &|_| true)?;
        view.add_ordinals(&described, &mut ordinals);
    }
    Ok(ordinals.into_iter().collect())
}

fn with_value(mut prefix: Token, value: &str) -> Token {
    prefix.0.extend_from_slice(value.as_bytes());
    prefix
}
