//! Searches of rows through a search index.
//!
//! The index yields the keys of a page in the order of the search. Each row is then read, and tested again: a row that
//! was changed since the index was updated is returned only if it still matches.

use std::time::{Duration, Instant};

use tideline_engine::condition::Node;
use tideline_engine::model::SequenceNumber;
use tideline_engine::row_search::{
    Highlight, IndexOfRows, RowForm, RowHit, RowMark, RowQuery, RowSort, RowSortBy,
};
use tideline_engine::runtime::Reservation;
use tideline_engine::{Engine, EngineError, WideTable};
use tideline_openapi::row_search::{RowHighlight, RowSortKey, SearchEnd, SearchRows};
use tideline_openapi::timeline::{SortOrder, TextSpan};

use crate::condition::RowMatcher;
use crate::error::{Result, RowsError};
use crate::read::damaged;
use crate::selection::{RowEncoder as _, Selection};
use crate::token;

/// Default number of rows of a page.
pub const SEARCH_ROWS: usize = 20;
/// Maximum number of rows of a page.
pub const SEARCH_ROWS_MAX: usize = 1_000;
/// Maximum number of sort keys.
pub const SORT_KEYS_MAX: usize = 8;
/// Maximum time that a search waits for a write.
pub const WAIT_MAX: Duration = Duration::from_secs(10);
/// Memory of a search per document of its index, in bytes: sets of documents of a few levels of the condition.
const BYTES_PER_DOCUMENT: u64 = 1;

/// Planned search.
#[derive(Debug)]
pub struct Search {
    index: IndexOfRows,
    matcher: Option<RowMatcher>,
    sort: Vec<RowSort>,
    after: Option<RowMark>,
    limit: usize,
    has_highlights: bool,
    at_least: Option<SequenceNumber>,
    /// Bytes that identify the request in page tokens.
    terms: Vec<u8>,
}

impl Search {
    /// Plans a search.
    ///
    /// # Errors
    ///
    /// [`RowsError::Invalid`] if a column of the condition or of the order is not in the index in a form that supports
    /// it, or if the token belongs to another request; [`RowsError::OverLimit`] for too many rows or sort keys; and the
    /// errors of [`RowMatcher::for_index`] and [`Engine::search_index`].
    pub fn new(
        engine: &Engine,
        table: &WideTable,
        request: &SearchRows,
        selection: &Selection,
    ) -> Result<Self> {
        let limit = request.limit.unwrap_or(SEARCH_ROWS);
        if limit == 0 {
            return Err(RowsError::Invalid("limit is 0; it must be at least 1".into()));
        }
        if limit > SEARCH_ROWS_MAX {
            return Err(RowsError::over("limit", SEARCH_ROWS_MAX as u64, limit as u64));
        }
        if request.sort.len() > SORT_KEYS_MAX {
            return Err(RowsError::over(
                "number of sort keys",
                SORT_KEYS_MAX as u64,
                request.sort.len() as u64,
            ));
        }
        let at_least = request.at_least.as_deref().map(parse_position).transpose()?;
        let index = engine.search_index(table, request.index.as_deref())?;
        let matcher = request
            .filter
            .as_ref()
            .map(|filter| RowMatcher::for_index(engine, table, index.index(), filter))
            .transpose()?;
        let sort = request.sort.iter().map(|key| sort_of(&index, key));
        let sort = sort.collect::<Result<Vec<_>>>()?;
        let mut terms = table.table().points().id().0.to_le_bytes().to_vec();
        for part in [
            serde_json::to_vec(&request.filter).unwrap_or_default(),
            serde_json::to_vec(&request.sort).unwrap_or_default(),
            selection.terms().to_vec(),
        ] {
            terms.extend_from_slice(&(part.len() as u64).to_le_bytes());
            terms.extend_from_slice(&part);
        }
        let after = match &request.page_token {
            Some(text) => {
                let mark = token::decode(&terms, text)?;
                let mark = serde_json::from_slice(&mark);
                Some(mark.map_err(|_| RowsError::Invalid("page_token is damaged".into()))?)
            }
            None => None,
        };
        Ok(Self {
            index,
            matcher,
            sort,
            after,
            limit,
            has_highlights: request.highlight,
            at_least,
            terms,
        })
    }

    /// Reads the page, and passes each row to `take` as JSON.
    ///
    /// # Errors
    ///
    /// [`RowsError::Cancelled`] if `is_stopped` returns true, [`EngineError::SearchBehind`] if the index does not reach
    /// the requested position in time, [`EngineError::Memory`] if no memory is left, and the errors of
    /// [`Engine::search_rows`] and of `take`.
    pub fn page(
        &self,
        engine: &Engine,
        table: &WideTable,
        selection: &Selection,
        is_stopped: &dyn Fn() -> bool,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<SearchEnd> {
        wait(
            engine,
            table,
            &self.index,
            self.at_least,
            Instant::now() + WAIT_MAX,
        )?;
        let _memory = memory(engine, &self.index)?;
        let root = self.matcher.as_ref().map_or(&Node::All, RowMatcher::root);
        let page = engine.search_rows(
            table,
            &self.index,
            &RowQuery {
                root,
                sort: &self.sort,
                after: self.after.as_ref(),
                limit: self.limit,
                expired_at: None,
                is_stopped,
            },
        )?;
        let mut json = Vec::new();
        for hit in &page.hits {
            if is_stopped() {
                return Err(RowsError::Cancelled);
            }
            json.clear();
            if self.write_hit(engine, table, hit, selection, &mut json)? {
                take(&json)?;
            }
        }
        if is_stopped() {
            return Err(RowsError::Cancelled);
        }
        let last = page.hits.last().filter(|_| page.has_more);
        let mark = last.map(|last| serde_json::to_vec(&last.mark).unwrap_or_default());
        let (waiting, lag_ms) = backlog(engine, &self.index);
        Ok(SearchEnd {
            total: page.total,
            waiting,
            lag_ms,
            next: mark.map(|mark| token::encode(&self.terms, &mark)),
        })
    }

    /// Appends a row as JSON. Returns false, with nothing appended, if the row does not match any more.
    fn write_hit(
        &self,
        engine: &Engine,
        table: &WideTable,
        hit: &RowHit,
        selection: &Selection,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let key = &hit.mark.key;
        let Some(row) = engine.row(table, key)? else {
            return Ok(false);
        };
        let columns = row.columns().map_err(|reason| damaged(table, reason))?;
        let matcher = self.matcher.as_ref();
        if !matcher.is_none_or(|matcher| matcher.matches(table.layout(), key, Some(&columns))) {
            return Ok(false);
        }
        selection.write_row(table, key, &columns, None, out)?;
        let highlights = match (self.has_highlights, matcher) {
            (true, Some(matcher)) => matcher.highlights(table.layout(), key, &columns),
            _ => Vec::new(),
        };
        if !hit.distances.is_empty() {
            add_member(out, "distances", &hit.distances);
        }
        if !highlights.is_empty() {
            let highlights: Vec<RowHighlight> = highlights.into_iter().map(shown).collect();
            add_member(out, "highlights", &highlights);
        }
        Ok(true)
    }
}

/// Returns the number of changes that an index does not hold yet, and the milliseconds since the oldest of them.
pub fn backlog(engine: &Engine, index: &IndexOfRows) -> (u64, u64) {
    let status = engine.search_index_status(index.id());
    let backlog = status.map(|(_, backlog)| backlog).unwrap_or_default();
    let age = backlog
        .age
        .map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
    (backlog.changes, age)
}

/// Waits until an index holds the changes up to a position; returns at once without a position.
///
/// # Errors
///
/// [`EngineError::SearchBehind`] if the index does not reach the position before the deadline.
pub(crate) fn wait(
    engine: &Engine,
    table: &WideTable,
    index: &IndexOfRows,
    position: Option<SequenceNumber>,
    deadline: Instant,
) -> Result<()> {
    match position {
        Some(position) if !engine.wait_searchable(index, position, deadline) => {
            Err(EngineError::SearchBehind {
                table: table.table().name().clone(),
            }
            .into())
        }
        _ => Ok(()),
    }
}

/// Reserves the memory of a search.
///
/// # Errors
///
/// [`EngineError::Memory`] if no memory is left.
pub(crate) fn memory(engine: &Engine, index: &IndexOfRows) -> Result<Reservation> {
    let bytes = index.index().documents() * BYTES_PER_DOCUMENT;
    let reserved = engine.memory().reserve("search of rows", bytes);
    Ok(reserved.map_err(EngineError::from)?)
}

/// Returns the position in a request.
pub(crate) fn parse_position(text: &str) -> Result<SequenceNumber> {
    let number = text.parse().map_err(|_| {
        RowsError::Invalid("at_least: expected the `position` that a write has returned".into())
    });
    number.map(SequenceNumber)
}

fn sort_of(index: &IndexOfRows, key: &RowSortKey) -> Result<RowSort> {
    let is_possible = |form: RowForm| match key.near {
        Some(_) => form == RowForm::Geo,
        None => !matches!(form, RowForm::Geo | RowForm::Text(_)),
    };
    // Keywords keep the exact order of decimals, which numbers do not.
    let columns = index.index().columns().iter().enumerate();
    let possible = columns.filter(|(_, column)| column.name == key.column && is_possible(column.form));
    let column = possible.max_by_key(|(_, column)| column.form == RowForm::Keyword);
    let column = column.map(|(number, _)| number);
    let column = column.ok_or_else(|| {
        let forms = match key.near {
            Some(_) => "geo",
            None => "keyword, number, time or bool",
        };
        RowsError::Invalid(format!(
            "sort: column {:?} is not in the search index as {forms}",
            key.column
        ))
    })?;
    let by = match key.near {
        None => RowSortBy::Column(column),
        Some(place) => {
            let point = tideline_engine::model::GeoPoint::new(place.lat, place.lon);
            let point = point.ok_or_else(|| {
                RowsError::Invalid("sort: near needs a lat within ±90 and a lon within ±180 degrees".into())
            })?;
            RowSortBy::Distance(column, point)
        }
    };
    Ok(RowSort {
        by,
        is_descending: key.order == Some(SortOrder::Descending),
    })
}

fn shown(highlight: Highlight) -> RowHighlight {
    let spans = highlight.spans.into_iter().map(|span| TextSpan {
        start: span.start,
        end: span.end,
    });
    let column = match highlight.subject {
        tideline_engine::condition::Subject::Column(name) => name,
        _ => String::new(),
    };
    RowHighlight {
        column,
        text: highlight.text,
        spans: spans.collect(),
    }
}

/// Adds a member to the JSON object at the end of `out`.
fn add_member(out: &mut Vec<u8>, name: &str, value: &impl serde::Serialize) {
    if out.pop_if(|last| *last == b'}').is_some() {
        out.extend_from_slice(format!(",\"{name}\":").as_bytes());
        out.extend_from_slice(&serde_json::to_vec(value).unwrap_or_default());
        out.push(b'}');
    }
}
