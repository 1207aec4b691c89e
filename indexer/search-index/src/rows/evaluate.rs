//! Evaluation of a condition tree on one segment of an index over rows, as sets of documents.
//!
//! The result of a test is a set of documents: those in the posting lists of its terms, or those that a scan over a
//! column of values finds. Inner nodes combine these sets. Every set is exact.
//!
//! | module | holds |
//! |---|---|
//! | `plan` | plan of one test, for explanations |

mod plan;

use std::collections::HashMap;
use std::ops::{Bound, RangeInclusive};

use roaring::RoaringBitmap;
use tantivy::columnar::{Column, MonotonicallyMappableToU64};
use tantivy::postings::{Postings, TermInfo};
use tantivy::schema::Field;
use tantivy::{DocSet, SegmentReader, TERMINATED};
use tideline_condition::geo::{Region, ranges};
use tideline_condition::intervals::Intervals;
use tideline_condition::text::{TextTest, Word};
use tideline_condition::{Node, Subject};
use tideline_model::ValueKind;

use super::geo::GeoColumn;
use super::schema::{ColumnFields, Fields, PART, TIME, has_column};
use super::{RowColumn, RowForm, RowsShown};
use crate::documents::{Bits, all_in, every};
use crate::terms::Terms;

pub use plan::{RowTestAccess, RowTestPlan};

/// Cost of reading the value of one document, relative to the cost of scanning one document of a column.
const READ_COST: u64 = 8;
/// Number of documents that one step of a scan over a column covers.
const SCAN_STEP: u32 = 1 << 16;
/// Number of positions of a phrase that are compared between two checks of the stop signal.
const POSITIONS_BETWEEN_CHECKS: usize = 1 << 12;

/// Class of a test. It determines which form of the column can decide the test.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needed {
    Keyword,
    Text,
    Number,
    Boolean,
    Geo,
    Presence,
}

impl Needed {
    /// Returns the tested column and the class of the test; `None` for inner nodes, and for tests that do not apply to
    /// columns.
    fn of(node: &Node) -> Option<(&Subject, Self)> {
        Some(match node {
            Node::Text(subject, TextTest::Words(_) | TextTest::Phrase(_)) => (subject, Self::Text),
            Node::Text(subject, _) => (subject, Self::Keyword),
            Node::Area(subject, _) => (subject, Self::Geo),
            Node::Exists(subject) => (subject, Self::Presence),
            Node::Intervals {
                subject,
                intervals,
                is_outside: false,
            } => {
                let needed = match intervals.kind() {
                    Some(ValueKind::Number) => Self::Number,
                    Some(ValueKind::Boolean) => Self::Boolean,
                    Some(ValueKind::String | ValueKind::Histogram) => Self::Keyword,
                    None => Self::Presence,
                };
                (subject, needed)
            }
            // No test of a column compiles to one of the last five: `not_equals` becomes a `Not`, and lists and ranges
            // of values become intervals.
            Node::All
            | Node::And(_)
            | Node::Or(_)
            | Node::Not(_)
            | Node::Intervals { is_outside: true, .. }
            | Node::OneOf(..)
            | Node::Number(..)
            | Node::Time(..)
            | Node::Ids(_) => return None,
        })
    }

    fn is_decided_by(self, form: RowForm) -> bool {
        match self {
            Self::Keyword => form == RowForm::Keyword,
            Self::Text => matches!(form, RowForm::Text(_)),
            Self::Number => form.is_number(),
            Self::Boolean => form == RowForm::Boolean,
            Self::Geo => form == RowForm::Geo,
            Self::Presence => true,
        }
    }

    /// Describes the test and the form that it needs.
    fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::Keyword => ("comparisons and patterns of texts", "keyword"),
            Self::Text => ("words and phrases", "text"),
            Self::Number => ("comparisons of numbers and times", "number or time"),
            Self::Boolean => ("comparisons of booleans", "bool"),
            Self::Geo => ("areas", "geo"),
            Self::Presence => ("presence", "any form"),
        }
    }
}

/// Returns an error message if the indexed columns cannot decide a test of the tree.
pub(super) fn check(columns: &[RowColumn], node: &Node) -> Result<(), String> {
    match node {
        Node::All => return Ok(()),
        Node::And(nodes) | Node::Or(nodes) => {
            return nodes.iter().try_for_each(|node| check(columns, node));
        }
        Node::Not(node) => return check(columns, node),
        _ => {}
    }
    let Some((Subject::Column(name), needed)) = Needed::of(node) else {
        return Err("a test or property that rows do not have".to_owned());
    };
    let mut forms = columns.iter().filter(|column| column.name == *name).peekable();
    if forms.peek().is_none() {
        let mut known: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        known.dedup();
        return Err(format!(
            "column {name:?} is not in the search index; it has the columns {}",
            known.join(", ")
        ));
    }
    if forms.any(|column| needed.is_decided_by(column.form)) {
        return Ok(());
    }
    let (tests, form) = needed.describe();
    Err(format!(
        "column {name:?} is not indexed for {tests}; index it as {form}"
    ))
}

/// Documents of a segment.
pub(super) struct Segment<'a> {
    reader: &'a SegmentReader,
    fields: &'a Fields,
    columns: &'a [RowColumn],
    shown: RowsShown<'a>,
    is_stopped: &'a dyn Fn() -> bool,
}

impl<'a> Segment<'a> {
    /// Creates the evaluation of a segment.
    pub(super) fn new(
        reader: &'a SegmentReader,
        fields: &'a Fields,
        columns: &'a [RowColumn],
        shown: RowsShown<'a>,
        is_stopped: &'a dyn Fn() -> bool,
    ) -> Self {
        Self {
            reader,
            fields,
            columns,
            shown,
            is_stopped,
        }
    }

    /// Returns the documents that match a tree, are not deleted, and are shown. The result is incomplete if the search
    /// is stopped.
    pub(super) fn matching(&self, root: &Node) -> tantivy::Result<RoaringBitmap> {
        let mut found = self.evaluate(root)?;
        if let Some(alive) = self.reader.alive_bitset() {
            let deleted: RoaringBitmap = found
                .iter()
                .filter(|document| alive.is_deleted(*document))
                .collect();
            found -= deleted;
        }
        if let Some(expired_at) = self.shown.expired_at {
            self.hide(&mut found, TIME, expired_at)?;
        }
        if let (Some(first), Some(_)) = (self.shown.first_part, self.fields.part) {
            self.hide(&mut found, PART, i64::from(first) - 1)?;
        }
        if let (Some(parts), Some(_)) = (self.shown.parts, self.fields.part) {
            let numbers = self.reader.fast_fields().i64(PART)?;
            let hidden = with_value(&found, &numbers, |number| !parts.has(number));
            found -= hidden;
        }
        Ok(found)
    }

    /// Removes the documents whose value of a field is at most `last`. Removes all documents if the search is stopped.
    fn hide(&self, found: &mut RoaringBitmap, field: &str, last: i64) -> tantivy::Result<()> {
        let values = self.reader.fast_fields().i64(field)?;
        *found -= match self.is_few(found) {
            true => with_value(found, &values, |value| value <= last),
            false => self.scan(&values, i64::MIN..=last),
        };
        if (self.is_stopped)() {
            // The stopped scan has missed documents.
            found.clear();
        }
        Ok(())
    }

    /// Returns all documents, including deleted and expired documents.
    fn every(&self) -> RoaringBitmap {
        every(self.reader.max_doc())
    }

    /// Returns true if reading the values of the documents costs less than scanning a column.
    fn is_few(&self, documents: &RoaringBitmap) -> bool {
        documents.len() * READ_COST < u64::from(self.reader.max_doc())
    }

    /// Returns the documents that match a tree, including deleted and expired documents, which
    /// [`matching`](Self::matching) removes from the final result. A value that has expired individually counts as
    /// missing.
    fn evaluate(&self, node: &Node) -> tantivy::Result<RoaringBitmap> {
        if (self.is_stopped)() {
            return Ok(RoaringBitmap::new());
        }
        Ok(match node {
            Node::All => self.every(),
            Node::And(nodes) => self.all_of(nodes)?,
            Node::Or(nodes) => {
                let mut any = RoaringBitmap::new();
                for node in nodes {
                    any |= self.evaluate(node)?;
                }
                any
            }
            Node::Not(node) => self.every() - self.evaluate(node)?,
            Node::Text(Subject::Column(name), test) => self.text(name, test)?,
            Node::Area(Subject::Column(name), region) => self.area(name, region)?,
            Node::Exists(Subject::Column(name)) => self.present(name)?,
            Node::Intervals {
                subject: Subject::Column(name),
                intervals,
                is_outside: false,
            } => self.intervals(name, intervals)?,
            // `check` refuses these tests.
            Node::Text(..)
            | Node::Area(..)
            | Node::Exists(_)
            | Node::Intervals { .. }
            | Node::OneOf(..)
            | Node::Number(..)
            | Node::Time(..)
            | Node::Ids(_) => RoaringBitmap::new(),
        })
    }

    /// Returns the intersection. Evaluates tests of terms first. Once few documents are left, numbers are read document
    /// by document instead of by a scan of the column.
    fn all_of(&self, nodes: &[Node]) -> tantivy::Result<RoaringBitmap> {
        let is_scan = |node: &&Node| match node {
            Node::Intervals { intervals, .. } => intervals.kind() != Some(ValueKind::String),
            Node::Area(..) => true,
            _ => false,
        };
        let (scans, others): (Vec<&Node>, Vec<&Node>) = nodes.iter().partition(is_scan);
        let mut all = self.every();
        for node in others.into_iter().chain(scans) {
            if all.is_empty() {
                break;
            }
            match node {
                Node::Intervals {
                    subject: Subject::Column(name),
                    intervals,
                    is_outside: false,
                } if self.is_few(&all) => all = self.within(&all, name, intervals)?,
                node => all &= self.evaluate(node)?,
            }
        }
        Ok(all)
    }

    /// Returns the documents of a set that have a number in one of the intervals. Reads only the values of these
    /// documents.
    fn within(
        &self,
        documents: &RoaringBitmap,
        name: &str,
        intervals: &Intervals,
    ) -> tantivy::Result<RoaringBitmap> {
        let column = match intervals.kind() {
            Some(ValueKind::Number) => self.column(name, RowForm::is_number),
            _ => None,
        };
        let Some(column) = column else {
            return Ok(documents & self.intervals(name, intervals)?);
        };
        let values = self.reader.fast_fields();
        let found = match column.form {
            RowForm::Unsigned => {
                let has = |value| intervals.has_unsigned(value);
                with_value(documents, &values.u64(&column.name)?, has)
            }
            RowForm::Float => {
                let has = |value| intervals.has_float(value);
                with_value(documents, &values.f64(&column.name)?, has)
            }
            _ => {
                let has = |value| intervals.has_signed(value);
                with_value(documents, &values.i64(&column.name)?, has)
            }
        };
        self.without_expired(column, found)
    }

    /// Removes the documents whose value of a column has expired.
    fn without_expired(
        &self,
        column: &ColumnFields,
        mut found: RoaringBitmap,
    ) -> tantivy::Result<RoaringBitmap> {
        if let (Some(times), Some(expired_at)) = (&column.times, self.shown.expired_at) {
            self.hide(&mut found, &times.name, expired_at)?;
        }
        Ok(found)
    }

    /// Returns the fields of a column in one of the forms.
    fn column(&self, name: &str, is_form: impl Fn(RowForm) -> bool) -> Option<&'a ColumnFields> {
        let mut columns = self.columns.iter().zip(&self.fields.columns);
        let found = columns.find(|(column, _)| column.name == name && is_form(column.form));
        found.map(|(_, fields)| fields)
    }

    /// Returns the documents with a value in a column.
    fn present(&self, name: &str) -> tantivy::Result<RoaringBitmap> {
        let Some(number) = self.columns.iter().position(|column| column.name == name) else {
            return Ok(RoaringBitmap::new());
        };
        let terms = self.terms(self.fields.shape)?;
        let every = (Bound::Unbounded, Bound::Unbounded);
        let found = terms.documents(&terms.in_range(every, |shape| has_column(shape, number))?)?;
        self.without_expired(&self.fields.columns[number], found)
    }

    fn terms(&self, field: Field) -> tantivy::Result<Terms<'a>> {
        Terms::open(self.reader, field, self.is_stopped)
    }

    fn text(&self, name: &str, test: &TextTest) -> tantivy::Result<RoaringBitmap> {
        match test {
            TextTest::Words(words) | TextTest::Phrase(words) => {
                let Some(column) = self.column(name, |form| matches!(form, RowForm::Text(_))) else {
                    return Ok(RoaringBitmap::new());
                };
                let terms = self.terms(column.values)?;
                let words = word_terms(&terms, words)?;
                let all = all_in(words.iter().map(|infos| terms.documents(infos)))?;
                let all = self.without_expired(column, all)?;
                match test {
                    TextTest::Phrase(_) if words.len() > 1 => phrase(&terms, &words, &all, self.is_stopped),
                    _ => Ok(all),
                }
            }
            test => {
                let Some(column) = self.column(name, |form| form == RowForm::Keyword) else {
                    return Ok(RoaringBitmap::new());
                };
                let terms = self.terms(column.values)?;
                let infos = text_terms(&terms, test)?;
                self.without_expired(column, terms.documents(&infos)?)
            }
        }
    }

    fn intervals(&self, name: &str, intervals: &Intervals) -> tantivy::Result<RoaringBitmap> {
        let column = match intervals.kind() {
            // Without values, there are no intervals: an empty list matches no row.
            None => return Ok(RoaringBitmap::new()),
            Some(ValueKind::Number) => self.column(name, RowForm::is_number),
            Some(ValueKind::Boolean) => self.column(name, |form| form == RowForm::Boolean),
            Some(ValueKind::String | ValueKind::Histogram) => {
                self.column(name, |form| form == RowForm::Keyword)
            }
        };
        let Some(column) = column else {
            return Ok(RoaringBitmap::new());
        };
        let values = self.reader.fast_fields();
        let mut found = RoaringBitmap::new();
        match column.form {
            RowForm::Signed => {
                let values = values.i64(&column.name)?;
                for (low, high) in intervals.signed() {
                    found |= self.scan(&values, *low..=*high);
                }
            }
            RowForm::Unsigned => {
                let values = values.u64(&column.name)?;
                for (low, high) in intervals.unsigned() {
                    found |= self.scan(&values, *low..=*high);
                }
            }
            RowForm::Float => {
                let values = values.f64(&column.name)?;
                for (low, high) in intervals.floats() {
                    found |= self.scan(&values, low + 0.0..=high + 0.0);
                }
            }
            RowForm::Boolean => {
                let values = values.bool(&column.name)?;
                for value in [false, true] {
                    if intervals.has_boolean(value) {
                        found |= self.scan(&values, value..=value);
                    }
                }
            }
            RowForm::Keyword => {
                let terms = self.terms(column.values)?;
                let infos = interval_terms(&terms, intervals)?;
                found = terms.documents(&infos)?;
            }
            RowForm::Text(_) | RowForm::Geo => {}
        }
        self.without_expired(column, found)
    }

    fn area(&self, name: &str, region: &Region) -> tantivy::Result<RoaringBitmap> {
        let Some(column) = self.column(name, |form| form == RowForm::Geo) else {
            return Ok(RoaringBitmap::new());
        };
        let cells = self.reader.fast_fields().u64(&column.name)?;
        let geo = GeoColumn::open(self.reader, column)?;
        let mut candidates = RoaringBitmap::new();
        for (first, last) in ranges(&region.rectangles()) {
            candidates |= self.scan(&cells, first..=last);
        }
        let is_inside = |document: &u32| geo.points(*document).any(|point| region.contains(point));
        self.without_expired(column, candidates.iter().filter(is_inside).collect())
    }

    /// Returns the documents with a value in a range. The result is incomplete if the search is stopped.
    fn scan<T: MonotonicallyMappableToU64>(
        &self,
        values: &Column<T>,
        range: RangeInclusive<T>,
    ) -> RoaringBitmap {
        // A scan for values outside the range of the column would return wrong documents. The bits are compared,
        // because every comparison with NaN is false, and NaN can be the bound of a column.
        let (min, max) = (values.min_value(), values.max_value());
        let lower = |one: T, other: T| {
            if one.to_u64() <= other.to_u64() {
                one
            } else {
                other
            }
        };
        let higher = |one: T, other: T| {
            if one.to_u64() >= other.to_u64() {
                one
            } else {
                other
            }
        };
        let (low, high) = (higher(min, *range.start()), lower(max, *range.end()));
        if low.to_u64() > high.to_u64() {
            return RoaringBitmap::new();
        }
        let mut step = Vec::new();
        let end = self.reader.max_doc();
        let mut bits = Bits::new(end);
        let mut from = 0;
        while from < end && !(self.is_stopped)() {
            let to = end.min(from.saturating_add(SCAN_STEP));
            step.clear();
            values.get_docids_for_value_range(low..=high, from..to, &mut step);
            bits.set(&step);
            from = to;
        }
        bits.into_set()
    }
}

/// Returns the terms of each word of a text search.
fn word_terms(terms: &Terms<'_>, words: &[Word]) -> tantivy::Result<Vec<Vec<TermInfo>>> {
    let of_word = |word: &Word| match word {
        Word::Same(word) => terms.known([word]),
        Word::Close(close) => terms.close(b"", close, |_| true),
    };
    words.iter().map(of_word).collect()
}

/// Returns the terms of a keyword column that pass a test of whole texts.
fn text_terms(terms: &Terms<'_>, test: &TextTest) -> tantivy::Result<Vec<TermInfo>> {
    match test {
        TextTest::OneOf(texts) => terms.known(texts),
        TextTest::Close(close) => terms.close(b"", close, |_| true),
        test => {
            let literal = test.literal_prefix().as_bytes();
            terms.with_prefix(literal, |text| test.matches_bytes(text))
        }
    }
}

/// Returns the terms of a keyword column that are in intervals of texts.
fn interval_terms(terms: &Terms<'_>, intervals: &Intervals) -> tantivy::Result<Vec<TermInfo>> {
    match intervals.text_range() {
        None => terms.known(intervals.texts()),
        Some((from, to)) => {
            let range = (from.map(str::as_bytes), to.map(str::as_bytes));
            terms.in_range(range, |_| true)
        }
    }
}

/// Returns the documents of a set that have a passing value. Reads the values document by document.
fn with_value<T: PartialOrd + Copy + std::fmt::Debug + Send + Sync + 'static>(
    documents: &RoaringBitmap,
    values: &Column<T>,
    passes: impl Fn(T) -> bool,
) -> RoaringBitmap {
    let has_value = |document: &u32| values.values_for_doc(*document).any(&passes);
    documents.iter().filter(has_value).collect()
}

/// Returns the documents of `candidates` in which the words follow each other. A word consists of one or more terms.
/// Returns no documents if the search is stopped.
fn phrase(
    terms: &Terms<'_>,
    words: &[Vec<TermInfo>],
    candidates: &RoaringBitmap,
    is_stopped: &dyn Fn() -> bool,
) -> tantivy::Result<RoaringBitmap> {
    // For each document, the positions after each match of the words so far, in increasing order.
    let mut ends: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut positions = Vec::new();
    let mut compared = 0_usize;
    for (number, word) in words.iter().enumerate() {
        let mut next: HashMap<u32, Vec<u32>> = HashMap::new();
        for info in word {
            let mut postings = terms.positions(info)?;
            let mut document = postings.doc();
            while document != TERMINATED {
                let before = ends.get(&document);
                if candidates.contains(document) && (number == 0 || before.is_some()) {
                    postings.positions(&mut positions);
                    let after = next.entry(document).or_default();
                    for position in &positions {
                        compared += 1;
                        if compared.is_multiple_of(POSITIONS_BETWEEN_CHECKS) && is_stopped() {
                            return Ok(RoaringBitmap::new());
                        }
                        if before.is_none_or(|before| before.binary_search(position).is_ok()) {
                            after.push(position + 1);
                        }
                    }
                }
                document = postings.advance();
            }
        }
        next.retain(|_, after| !after.is_empty());
        for after in next.values_mut() {
            // The positions of several terms are not in order.
            after.sort_unstable();
            after.dedup();
        }
        ends = next;
    }
    Ok(ends.into_keys().collect())
}
