//! Plan of one test of a condition: how the index decides the test, and the entries that it reads for it.
//!
//! A plan selects the same terms as the evaluation. It counts the entries of their posting lists, but does not read the
//! lists. A plan that is stopped is incomplete: its numbers are then lower bounds.

use std::ops::Bound;

use tantivy::postings::TermInfo;
use tideline_condition::text::{TextTest, Word};
use tideline_condition::{Node, Subject};
use tideline_model::ValueKind;

use super::super::schema::has_column;
use super::super::{Result, RowColumn, RowForm, RowIndex, RowsShown, ShardSet};
use super::{Needed, Segment, interval_terms, text_terms, word_terms};

/// Way in which an index over rows decides a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowTestAccess {
    /// Terms of the test, looked up in the dictionary of the column.
    Terms,
    /// Terms of a range of the dictionary; those that pass the test.
    TermRange,
    /// All terms of the dictionary, each of which is tested.
    TermScan,
    /// Terms within an edit distance.
    FuzzyTerms,
    /// Stored values of the column.
    Values,
    /// Cells of the area, and the points of the rows in these cells.
    Area,
    /// Rows that have a value.
    Presence,
    /// No row can pass.
    Nothing,
}

/// Plan of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowTestPlan {
    /// Way in which the index decides the test.
    pub access: RowTestAccess,
    /// Column that decides the test, as its position in the list of indexed columns; `None` if any form of the column
    /// decides it.
    pub column: Option<usize>,
    /// Number of terms whose posting lists are read, in all segments.
    pub terms: u64,
    /// Number of entries of these lists, or number of stored values that are read.
    pub entries: u64,
    /// Number of shown rows that pass.
    pub rows: u64,
}

impl RowIndex {
    /// Returns the number of segments of some shards, each of which is searched separately.
    pub fn segments_of(&self, shards: ShardSet) -> u64 {
        let searchers = self.searchers(shards);
        let segments = searchers.iter().map(|searcher| searcher.segment_readers().len());
        segments.sum::<usize>() as u64
    }

    /// Plans a test, as of the last commit, and counts the rows that pass. `test` is the compiled condition of the test
    /// alone; [`check`](Self::check) has accepted it. The plan is incomplete if `is_stopped` returns true.
    ///
    /// # Errors
    ///
    /// An error of reading the index, which must then be built again.
    pub fn plan_test(
        &self,
        test: &Node,
        shown: RowsShown<'_>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<RowTestPlan> {
        let decisive = decisive(test);
        let (access, column) = access_of(&self.columns, decisive);
        let mut plan = RowTestPlan {
            access,
            column,
            terms: 0,
            entries: 0,
            rows: 0,
        };
        let searchers = self.searchers(shown.shards);
        for reader in searchers.iter().flat_map(|searcher| searcher.segment_readers()) {
            if is_stopped() {
                break;
            }
            let segment = Segment::new(reader, &self.fields, &self.columns, shown, is_stopped);
            let (terms, entries) = segment.effort(decisive)?;
            plan.terms += terms;
            plan.entries += entries;
            plan.rows += segment.matching(test)?.len();
        }
        Ok(plan)
    }
}

/// Returns the node that decides a test. Negated tests compile to a `Not`, and `not_equals` to a presence and a `Not`.
fn decisive(test: &Node) -> &Node {
    match test {
        Node::Not(inner) => decisive(inner),
        Node::And(nodes) => nodes.last().map_or(test, decisive),
        other => other,
    }
}

/// Returns how the index decides a test, and the position of the column that decides it.
fn access_of(columns: &[RowColumn], test: &Node) -> (RowTestAccess, Option<usize>) {
    let Some((Subject::Column(name), needed)) = Needed::of(test) else {
        return (RowTestAccess::Nothing, None);
    };
    let column = match needed {
        Needed::Presence => None,
        _ => columns
            .iter()
            .position(|column| column.name == *name && needed.is_decided_by(column.form)),
    };
    let access = match test {
        Node::Text(_, TextTest::Words(words) | TextTest::Phrase(words)) => {
            match words.iter().all(|word| matches!(word, Word::Same(_))) {
                true => RowTestAccess::Terms,
                false => RowTestAccess::FuzzyTerms,
            }
        }
        Node::Text(_, TextTest::OneOf(_)) => RowTestAccess::Terms,
        Node::Text(_, TextTest::Close(_)) => RowTestAccess::FuzzyTerms,
        Node::Text(_, test) if test.literal_prefix().is_empty() => RowTestAccess::TermScan,
        Node::Text(..) => RowTestAccess::TermRange,
        Node::Area(..) => RowTestAccess::Area,
        Node::Exists(_) => RowTestAccess::Presence,
        Node::Intervals { intervals, .. } => match intervals.kind() {
            None => RowTestAccess::Nothing,
            Some(ValueKind::Number | ValueKind::Boolean) => RowTestAccess::Values,
            Some(ValueKind::String | ValueKind::Histogram) => match intervals.text_range() {
                Some(_) => RowTestAccess::TermRange,
                None => RowTestAccess::Terms,
            },
        },
        _ => RowTestAccess::Nothing,
    };
    (access, column)
}

impl Segment<'_> {
    /// Returns the number of terms whose posting lists a test reads, and the number of their entries. For a scan of a
    /// column, returns the number of its values' documents.
    fn effort(&self, test: &Node) -> tantivy::Result<(u64, u64)> {
        let infos: Vec<TermInfo> = match test {
            Node::Text(Subject::Column(name), TextTest::Words(words) | TextTest::Phrase(words)) => {
                let Some(column) = self.column(name, |form| matches!(form, RowForm::Text(_))) else {
                    return Ok((0, 0));
                };
                let of_words = word_terms(&self.terms(column.values)?, words)?;
                of_words.into_iter().flatten().collect()
            }
            Node::Text(Subject::Column(name), test) => {
                let Some(column) = self.column(name, |form| form == RowForm::Keyword) else {
                    return Ok((0, 0));
                };
                text_terms(&self.terms(column.values)?, test)?
            }
            Node::Intervals {
                subject: Subject::Column(name),
                intervals,
                ..
            } => match intervals.kind() {
                None => return Ok((0, 0)),
                Some(ValueKind::Number | ValueKind::Boolean) => return Ok((0, self.every().len())),
                Some(ValueKind::String | ValueKind::Histogram) => {
                    let Some(column) = self.column(name, |form| form == RowForm::Keyword) else {
                        return Ok((0, 0));
                    };
                    interval_terms(&self.terms(column.values)?, intervals)?
                }
            },
            Node::Area(..) => return Ok((0, self.every().len())),
            Node::Exists(Subject::Column(name)) => {
                let Some(number) = self.columns.iter().position(|column| column.name == *name) else {
                    return Ok((0, 0));
                };
                let terms = self.terms(self.fields.shape)?;
                let every = (Bound::Unbounded, Bound::Unbounded);
                terms.in_range(every, |shape| has_column(shape, number))?
            }
            _ => Vec::new(),
        };
        let entries = infos.iter().map(|info| u64::from(info.doc_freq)).sum();
        Ok((infos.len() as u64, entries))
    }
}
