//! Trace of a row in the search indexes of its table: shows whether each index holds the current state of the row, and
//! which values it omits.
//!
//! A document stores the time of its row. If this time is older than the row, the index has not replaced the document
//! yet.

use std::sync::Arc;

use tideline_condition::ValueRef;
use tideline_model::{SearchColumnSpec, SearchForm, TableId, Tier, TierScope};
use tideline_search_index::rows::{KEYWORD_BYTES_MAX, RowDocument, RowForm};
use tideline_wide_table::{SearchBacklog, StoredRow, WideError};

use super::document::Sources;
use super::{IndexPhase, IndexState};
use crate::engine::Engine;
use crate::error::Result;
use crate::wide_table::WideTable;

/// State of a row in a search index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchTrace {
    /// Name of the index. An index and its replacement have the same name.
    pub index: String,
    /// Phase of the index.
    pub phase: IndexPhase,
    /// Changes that the index does not hold yet.
    pub backlog: SearchBacklog,
    /// Time of the row in its document as of the last commit; `None` without a document, or if the index is not open.
    pub document: Option<i64>,
    /// Tier of the row, and the tiers that the index covers, if the tier of the row is not among them; `None`
    /// otherwise.
    pub other_tier: Option<(Tier, TierScope)>,
    /// Indexed columns with a value that the index does not hold.
    pub left_out: Vec<LeftOut>,
}

/// Column with a value that a search index does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Name of the column.
    pub column: String,
    /// Form of the column in the index.
    pub form: SearchForm,
    /// True if the value is a keyword that is too long; false if it has another type.
    pub is_too_long: bool,
}

impl Engine {
    /// Returns the state of a row in each search index of its table. `row` is the visible row; `None` if reads do not
    /// return it.
    ///
    /// # Errors
    ///
    /// Returns a store error if the row is damaged, and
    /// [`EngineError::SearchNotReady`](crate::EngineError::SearchNotReady) if an index is damaged; it is then built
    /// again.
    pub fn trace_searches(
        &self,
        table: &Arc<WideTable>,
        key: &[u8],
        row: Option<&StoredRow>,
    ) -> Result<Vec<SearchTrace>> {
        let specs = &table.settings().search_indexes;
        let states = self.row_searches.states(specs);
        let tier = self.rows.tier_of(table.table().points().id(), key)?;
        let mut traces = Vec::with_capacity(specs.len());
        for (spec, state) in specs.iter().zip(states) {
            let sources = Sources::new(Arc::clone(table), &spec.columns);
            let backlog = self.rows.search_backlog(TableId(spec.id));
            let mut trace = SearchTrace {
                index: spec.name.clone(),
                phase: state.as_ref().map_or(IndexPhase::Opening, |state| state.phase()),
                backlog: backlog.unwrap_or_default(),
                document: None,
                other_tier: (!spec.tier.has(tier)).then_some((tier, spec.tier)),
                left_out: Vec::new(),
            };
            if let Some(state) = state {
                trace.document = self.document_time(table, &state, key)?;
                if let (Some(row), Some(index)) = (row, state.index.get()) {
                    let forms: Vec<RowForm> = index.columns().iter().map(|column| column.form).collect();
                    trace.left_out = left_out(&sources, row, &spec.columns, &forms)?;
                }
            }
            traces.push(trace);
        }
        Ok(traces)
    }

    fn document_time(&self, table: &WideTable, state: &Arc<IndexState>, key: &[u8]) -> Result<Option<i64>> {
        let Some(index) = state.index.get() else {
            return Ok(None);
        };
        index.time_of(key).map_err(|error| {
            let index = Arc::clone(state).with(Arc::clone(index));
            self.damaged_search(table, &index, &error)
        })
    }
}

/// Returns the indexed columns with a value that the index does not hold.
fn left_out(
    sources: &Sources,
    row: &StoredRow,
    columns: &[SearchColumnSpec],
    forms: &[RowForm],
) -> Result<Vec<LeftOut>> {
    let table = sources.table_id();
    let decoded = sources.row(row);
    let decoded = decoded.map_err(|reason| WideError::Damaged { table, reason })?;
    let mut all = Vec::new();
    for (number, (column, form)) in columns.iter().zip(forms).enumerate() {
        let (mut is_missing, mut is_too_long) = (false, false);
        decoded.each_value(number, &mut |value| {
            if !form.holds(value) {
                is_missing = true;
                is_too_long |= *form == RowForm::Keyword
                    && matches!(value, ValueRef::Text(text) if text.len() > KEYWORD_BYTES_MAX);
            }
        });
        if is_missing {
            all.push(LeftOut {
                column: column.column.clone(),
                form: column.form,
                is_too_long,
            });
        }
    }
    Ok(all)
}
