//! Explanations of searches, facets and aggregates through a search index.
//!
//! Each test of the condition is evaluated alone, and then the whole condition, all of them for at most [`COUNT_TIME`].
//! No row is sorted or grouped. Rows of the table are read only to measure their sizes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tideline_engine::condition::analyzer::analyzed;
use tideline_engine::condition::operators::{Phrase, Words};
use tideline_engine::condition::{Condition, Subject, Test};
use tideline_engine::key_codec::layout::ColumnOrigin;
use tideline_engine::model::{SearchIndexSpec, Tier, TierScope};
use tideline_engine::row_search::{RowForm, RowQuery, RowTestAccess};
use tideline_engine::{Engine, WideTable};
use tideline_openapi::condition::RowFilter;
use tideline_openapi::row_aggregate::{AggregateRows, AggregatedSearch};
use tideline_openapi::row_explain::{
    AccessPath, ColumnPurpose, ExplainedColumn, ExplainedParts, ExplainedSearch, ExplainedTest,
    RowsExplained, TestAccess,
};
use tideline_openapi::row_search::{FacetRows, SearchColumnForm, SearchRows};
use tideline_openapi::timeline::SortOrder;

use super::{Sizes, explained};
use crate::condition::RowMatcher;
use crate::error::{Result, RowsError};
use crate::estimate::Estimate;
use crate::facets::Facets;
use crate::index_filter::{IndexFilter, form_of};
use crate::search::Search;
use crate::selection::Selection;
use crate::why::{NamedTest, named_tests};

/// Maximum time for which the rows of the tests and of the condition are counted.
const COUNT_TIME: Duration = Duration::from_secs(2);
/// Maximum number of rows whose sizes are measured.
const MEASURED_ROWS: usize = 20;
/// Number of rows of an aggregate above which facets are advised.
const ROW_READS_ADVISED: u64 = 100_000;

/// Rows of the table that a search reads.
#[derive(Debug, Clone, Copy)]
enum RowReads {
    /// At most this number of rows.
    Page(u64),
    /// All rows that match.
    Every,
    /// No rows.
    Nothing,
}

/// Planned use of a search index.
struct SearchUse<'u> {
    filter: &'u IndexFilter,
    condition: Option<&'u RowFilter>,
    /// Columns that are read for each row that matches: position in the index, purpose, and direction of a sort key.
    columns: Vec<(usize, ColumnPurpose, Option<SortOrder>)>,
    reads: RowReads,
    /// True if the order of the stored keys is the order of the result.
    is_by_key: bool,
}

/// Explains a search.
pub(super) fn explain_search(
    engine: &Engine,
    table: &Arc<WideTable>,
    request: &SearchRows,
    is_stopped: &dyn Fn() -> bool,
) -> Result<RowsExplained> {
    let columns = request.columns.as_deref();
    let selection = Selection::new(columns, None, None, Default::default(), engine.now())?;
    let search = Search::new(engine, table, request, &selection)?;
    let keys = search.sort_columns().zip(&request.sort);
    let search_use = SearchUse {
        filter: search.filter(),
        condition: request.filter.as_ref(),
        columns: keys
            .map(|(column, key)| {
                let order = key.order.unwrap_or(SortOrder::Ascending);
                (column, ColumnPurpose::Sort, Some(order))
            })
            .collect(),
        reads: RowReads::Page(search.limit() as u64),
        is_by_key: request.sort.is_empty(),
    };
    search_use.explain(engine, table, is_stopped)
}

/// Explains facets.
pub(super) fn explain_facets(
    engine: &Engine,
    table: &Arc<WideTable>,
    request: &FacetRows,
    is_stopped: &dyn Fn() -> bool,
) -> Result<RowsExplained> {
    let facets = Facets::new(engine, table, request)?;
    let groups = facets
        .key_columns()
        .map(|column| (column, ColumnPurpose::Group, None));
    let metrics = facets
        .metric_columns()
        .map(|column| (column, ColumnPurpose::Metric, None));
    let search_use = SearchUse {
        filter: facets.filter(),
        condition: request.filter.as_ref(),
        columns: groups.chain(metrics).collect(),
        reads: RowReads::Nothing,
        is_by_key: false,
    };
    search_use.explain(engine, table, is_stopped)
}

/// Explains an aggregate of the rows that a search finds.
pub(super) fn explain_aggregate(
    engine: &Engine,
    table: &Arc<WideTable>,
    (request, search): (&AggregateRows, &AggregatedSearch),
    is_stopped: &dyn Fn() -> bool,
) -> Result<RowsExplained> {
    let filter = IndexFilter::new(
        engine,
        table,
        search.index.as_deref(),
        request.filter.as_ref(),
        search.at_least.as_deref(),
        request.tier,
    )?;
    let search_use = SearchUse {
        filter: &filter,
        condition: request.filter.as_ref(),
        columns: Vec::new(),
        reads: RowReads::Every,
        is_by_key: false,
    };
    search_use.explain(engine, table, is_stopped)
}

impl SearchUse<'_> {
    fn explain(
        &self,
        engine: &Engine,
        table: &Arc<WideTable>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<RowsExplained> {
        let _memory = self.filter.reserve(engine)?;
        let deadline = Instant::now() + COUNT_TIME;
        let is_cut = || is_stopped() || Instant::now() >= deadline;
        let spec = self.filter.spec(table);
        let mut tests = Vec::new();
        for test in self.condition.map(named_tests).transpose()?.into_iter().flatten() {
            tests.push(self.explained_test(engine, table, spec, test, &is_cut)?);
            if is_stopped() {
                return Err(RowsError::Cancelled);
            }
        }
        let index = self.filter.index();
        let documents = index.documents_read();
        let query = RowQuery {
            root: self.filter.root(),
            sort: &[],
            after: None,
            limit: MEASURED_ROWS,
            is_stopped: &is_cut,
        };
        let page = engine.search_rows(table, index, &query)?;
        let estimate = match is_cut() {
            false => Estimate {
                count: page.total,
                low: page.total,
                high: page.total,
                scanned: 0,
                is_exact: true,
            },
            true => Estimate {
                count: documents,
                // A negated test that was stopped has passed too many rows, so even the total can be too high.
                low: 0,
                high: documents,
                scanned: 0,
                is_exact: false,
            },
        };
        let mut sizes = Sizes::default();
        for hit in &page.hits {
            if is_stopped() {
                return Err(RowsError::Cancelled);
            }
            if let Some(row) = engine.row(table, &hit.mark.key)? {
                sizes.add(table, &row);
            }
        }
        let layout = table.layout();
        let access = AccessPath::Search;
        let mut explained = explained(table, layout, access, Vec::new(), &sizes, estimate);
        explained.index = spec.map(|spec| spec.name.clone());
        explained.index_tier = self.filter.seen_tier();
        explained.parts = searched_parts(engine, table, index.tier())?;
        let tested = self.filter.matcher().map(RowMatcher::columns);
        explained.filter_columns = tested.unwrap_or_default();
        let mut stored = layout.stored().iter();
        explained.is_ordered =
            self.is_by_key && stored.all(|column| column.origin() == ColumnOrigin::Logical);
        let (waiting, lag_ms) = self.filter.backlog(engine);
        let columns = self
            .columns
            .iter()
            .map(|(column, purpose, order)| ExplainedColumn {
                column: index.index().columns()[*column].name.clone(),
                form: self.form_of(spec, *column),
                purpose: *purpose,
                order: *order,
            });
        let search = ExplainedSearch {
            documents,
            segments: index.segments_read(),
            shards: self.filter.shards_read(),
            tests,
            columns: columns.collect(),
            row_reads: match self.reads {
                RowReads::Page(limit) => limit.min(estimate.count),
                RowReads::Every => estimate.count,
                RowReads::Nothing => 0,
            },
            waiting,
            lag_ms,
            position: self.filter.position(engine).map(|position| position.to_string()),
        };
        self.advise(&search, &mut explained.advice);
        explained.search = Some(search);
        Ok(explained)
    }

    fn explained_test(
        &self,
        engine: &Engine,
        table: &Arc<WideTable>,
        spec: Option<&SearchIndexSpec>,
        (column, test): NamedTest<'_>,
        is_cut: &dyn Fn() -> bool,
    ) -> Result<ExplainedTest> {
        let index = self.filter.index();
        let alone = RowFilter(Condition::leaf(Subject::Column(column.to_owned()), test.clone()));
        let matcher = RowMatcher::for_index(engine, table, index.index(), &alone)?;
        let plan = engine.plan_row_test(table, index, matcher.root(), is_cut)?;
        let form = plan.column.map(|column| index.index().columns()[column].form);
        let words = match (test, form) {
            (
                Test::Words(Words { text, .. }) | Test::Phrase(Phrase { text, .. }),
                Some(RowForm::Text(analyzer)),
            ) => {
                let words = analyzed(analyzer, text).into_iter();
                Some(words.map(|word| word.word.into_owned()).collect())
            }
            _ => None,
        };
        Ok(ExplainedTest {
            test: serde_json::to_string(&alone).unwrap_or_default(),
            column: column.to_owned(),
            form: plan.column.map(|column| self.form_of(spec, column)),
            access: access_of(plan.access),
            words,
            terms: plan.terms,
            entries: plan.entries,
            rows: (!is_cut()).then_some(plan.rows),
        })
    }

    /// Returns the form of a column in the settings of the index.
    fn form_of(&self, spec: Option<&SearchIndexSpec>, column: usize) -> SearchColumnForm {
        match spec.and_then(|spec| spec.columns.get(column)) {
            Some(column) => column.form.into(),
            None => form_of(self.filter.index().index().columns()[column].form, false).into(),
        }
    }

    /// Adds advice on the search.
    fn advise(&self, search: &ExplainedSearch, advice: &mut Vec<String>) {
        for test in search
            .tests
            .iter()
            .filter(|test| test.access == TestAccess::TermScan)
        {
            advice.push(format!(
                "the test {} compares every text of {:?} in the index; a pattern that begins with plain characters \
                 compares only the texts with this beginning",
                test.test, test.column
            ));
        }
        if self.condition.is_none() {
            advice.push(format!(
                "the read has no condition, so it finds all {} rows of the index",
                search.documents
            ));
        }
        if matches!(self.reads, RowReads::Every) && search.row_reads > ROW_READS_ADVISED {
            advice.push(format!(
                "the aggregate reads {} rows of the table; facets read only the index, and have the functions count, sum, \
                 mean, min, max and percentile",
                search.row_reads
            ));
        }
        if search.waiting > 0 {
            advice.push(format!(
                "the index does not hold {} changes yet; give `at_least` the position of a write that the search must find",
                search.waiting
            ));
        }
    }
}

const fn access_of(access: RowTestAccess) -> TestAccess {
    match access {
        RowTestAccess::Terms => TestAccess::Terms,
        RowTestAccess::TermRange => TestAccess::TermRange,
        RowTestAccess::TermScan => TestAccess::TermScan,
        RowTestAccess::FuzzyTerms => TestAccess::FuzzyTerms,
        RowTestAccess::Values => TestAccess::Values,
        RowTestAccess::Area => TestAccess::Area,
        RowTestAccess::Presence => TestAccess::Presence,
        RowTestAccess::Nothing => TestAccess::Nothing,
    }
}

/// Returns the parts whose rows a search of these tiers finds; `None` for a table that is not divided.
fn searched_parts(engine: &Engine, table: &WideTable, tier: TierScope) -> Result<Option<ExplainedParts>> {
    if table.settings().parts.is_none() {
        return Ok(None);
    }
    let mut parts = engine.table_parts(table)?;
    parts.retain(|part| part.is_visible);
    let of = parts.len() as u64;
    parts.retain(|part| {
        // Rows of a part without a tier are only in the row buffer, which belongs to the hot tier.
        let is_hot = part.tier.is_none_or(|tier| tier == Tier::Hot);
        match tier {
            TierScope::All => true,
            TierScope::Hot => is_hot,
            TierScope::Cold => !is_hot,
        }
    });
    Ok(Some(ExplainedParts {
        read: parts.len() as u64,
        of,
        first: parts.first().map(|part| part.name.clone()),
        last: parts.last().map(|part| part.name.clone()),
    }))
}
