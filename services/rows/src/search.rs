//! Searches of rows through a search index.
//!
//! The index returns the keys of a page in the order of the search. Each row is then read and tested again. A row that
//! has changed since the index was updated is returned only if it still matches.

use std::time::Duration;

use tideline_engine::model::TierScope;
use tideline_engine::row_search::{Highlight, RowHit, RowMark, RowQuery, RowSort, RowSortBy};
use tideline_engine::rows::{GroupSet, Mutation};
use tideline_engine::{Engine, WideTable};
use tideline_openapi::row_search::{RowHighlight, RowSortKey, SearchEnd, SearchRows};
use tideline_openapi::tier::RowTiers;
use tideline_openapi::timeline::{SortOrder, TextSpan};

use crate::error::{Result, RowsError};
use crate::index_filter::{GEO_FORMS, IndexFilter, VALUE_FORMS};
use crate::read::{damaged, tested_groups};
use crate::selection::{RowEncoder, Selection};
use crate::token;

/// Default number of rows of a page.
pub const SEARCH_ROWS: usize = 20;
/// Maximum number of rows of a page.
pub const SEARCH_ROWS_MAX: usize = 1_000;
/// Maximum number of sort keys.
pub const SORT_KEYS_MAX: usize = 8;
/// Maximum number of rows that a search with a [`RowGuard`] reads for a page, and for its total.
pub const GUARDED_ROWS_MAX: u64 = 100_000;
/// Maximum time for which a search waits until the index holds a write.
pub const WAIT_MAX: Duration = Duration::from_secs(10);

/// Minimum number of rows that a search with a guard takes from the index at once.
const GUARDED_STEP: usize = 100;

/// Function that receives the stored key and the columns of a row, and returns true if a search may show the row.
pub type RowGuard<'g> = &'g dyn Fn(&[u8], &Mutation<'_>) -> Result<bool>;

/// Planned search.
#[derive(Debug)]
pub struct Search {
    filter: IndexFilter,
    sort: Vec<RowSort>,
    after: Option<RowMark>,
    limit: usize,
    has_highlights: bool,
    /// Bytes that identify the request in page tokens.
    terms: Vec<u8>,
}

impl Search {
    /// Plans a search.
    ///
    /// # Errors
    ///
    /// [`RowsError::Invalid`] if a column of the condition or of the order is not in the index, or not in a suitable
    /// form, or if the token belongs to another request; [`RowsError::OverLimit`] for too many rows or sort keys; and
    /// the errors of [`RowMatcher::for_index`](crate::condition::RowMatcher::for_index) and [`Engine::search_index`].
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
        let filter = IndexFilter::new(
            engine,
            table,
            request.index.as_deref(),
            request.filter.as_ref(),
            request.at_least.as_deref(),
            request.tier,
        )?;
        let sort = request.sort.iter().map(|key| sort_of(&filter, table, key));
        let sort = sort.collect::<Result<Vec<_>>>()?;
        let mut terms = table.table().points().id().0.to_le_bytes().to_vec();
        if !request.tier.is_all() {
            terms.extend_from_slice(TierScope::from(request.tier).name().as_bytes());
        }
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
                let mark = token::decode_search(&terms, text)?;
                let mark = serde_json::from_slice(&mark);
                Some(mark.map_err(|_| RowsError::Invalid("page_token is damaged".into()))?)
            }
            None => None,
        };
        Ok(Self {
            filter,
            sort,
            after,
            limit,
            has_highlights: request.highlight,
            terms,
        })
    }

    /// Returns the index, with the condition.
    pub(crate) fn filter(&self) -> &IndexFilter {
        &self.filter
    }

    /// Iterates over the columns of the sort keys, as their positions in the index.
    pub(crate) fn sort_columns(&self) -> impl Iterator<Item = usize> {
        self.sort.iter().map(|sort| match sort.by {
            RowSortBy::Column(column) | RowSortBy::Distance(column, _) => column,
        })
    }

    /// Returns the maximum number of rows of the page.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Reads the page and passes each row to `take` as JSON.
    ///
    /// # Errors
    ///
    /// The errors of [`page_as`](Self::page_as).
    pub fn page(
        &self,
        engine: &Engine,
        table: &WideTable,
        selection: &Selection,
        is_stopped: &dyn Fn() -> bool,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<SearchEnd> {
        self.page_as(engine, table, selection, selection, is_stopped, take)
    }

    /// Reads the page, and passes each row to `take` in the form of `encoder`, which needs the columns of `selection`.
    /// The form must be a JSON object.
    ///
    /// # Errors
    ///
    /// [`RowsError::Cancelled`] if `is_stopped` returns true,
    /// [`SearchBehind`](tideline_engine::EngineError::SearchBehind) if the index does not reach the requested position
    /// in time, [`Memory`](tideline_engine::EngineError::Memory) if no memory is left, and the errors of
    /// [`Engine::search_rows`] and of `take`.
    pub fn page_as(
        &self,
        engine: &Engine,
        table: &WideTable,
        selection: &Selection,
        encoder: &dyn RowEncoder,
        is_stopped: &dyn Fn() -> bool,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<SearchEnd> {
        let _memory = self.filter.begin(engine, table, self.sort_columns())?;
        let page = engine.search_rows(
            table,
            self.filter.index(),
            &RowQuery {
                root: self.filter.root(),
                sort: &self.sort,
                after: self.after.as_ref(),
                limit: self.limit,
                is_stopped,
            },
        )?;
        let mut json = Vec::new();
        let groups = self.groups(engine, table, selection);
        engine.admit_reads(table, page.hits.iter().map(|hit| &hit.mark.key[..]))?;
        for hit in &page.hits {
            if is_stopped() {
                return Err(RowsError::Cancelled);
            }
            json.clear();
            let mut write =
                |columns: &Mutation<'_>| self.write_hit(table, (hit, columns), encoder, &mut json);
            if self.with_match(engine, table, (&hit.mark.key, groups), None, &mut write)? {
                take(&json)?;
            }
        }
        if is_stopped() {
            return Err(RowsError::Cancelled);
        }
        let last = page.hits.last().filter(|_| page.has_more);
        Ok(self.end(engine, page.total, last.map(|last| &last.mark)))
    }

    /// Returns the columns of the condition and of the order. `request` is the request for which the search was
    /// planned.
    pub fn columns<'r>(&'r self, request: &'r SearchRows) -> impl Iterator<Item = String> + 'r {
        let tested = self.filter.matcher().map(|matcher| matcher.columns());
        let sorted = request.sort.iter().map(|key| key.column.clone());
        tested.into_iter().flatten().chain(sorted)
    }

    /// Reads the page like [`page_as`](Self::page_as), but passes only the rows that a guard allows. Also returns the
    /// number of these rows on all pages; `None` if more than [`GUARDED_ROWS_MAX`] rows match. Hidden rows have no
    /// effect on the result: the total does not count them, and the token of the next page is the position of a
    /// returned row.
    ///
    /// # Errors
    ///
    /// [`RowsError::OverLimit`] if a page needs more than [`GUARDED_ROWS_MAX`] rows, and the errors of
    /// [`page_as`](Self::page_as) and of the guard.
    pub fn guarded_page(
        &self,
        engine: &Engine,
        table: &WideTable,
        (selection, encoder): (&Selection, &dyn RowEncoder),
        guard: RowGuard<'_>,
        is_stopped: &dyn Fn() -> bool,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<(SearchEnd, Option<u64>)> {
        let _memory = self.filter.begin(engine, table, self.sort_columns())?;
        let groups = self.groups(engine, table, selection);
        let total = self.guarded_total(engine, table, (groups, guard), is_stopped)?;
        let mut after = self.after.clone();
        let (mut json, mut returned, mut read) = (Vec::new(), 0, 0);
        let mut last = None;
        let has_more = 'pages: loop {
            let query = RowQuery {
                root: self.filter.root(),
                sort: &self.sort,
                after: after.as_ref(),
                limit: self.limit.max(GUARDED_STEP),
                is_stopped,
            };
            let page = engine.search_rows(table, self.filter.index(), &query)?;
            for hit in &page.hits {
                if is_stopped() {
                    return Err(RowsError::Cancelled);
                }
                if read == GUARDED_ROWS_MAX {
                    let what = "number of rows that a page of a search reads";
                    return Err(RowsError::over(what, GUARDED_ROWS_MAX, read + 1));
                }
                read += 1;
                json.clear();
                let mut write =
                    |columns: &Mutation<'_>| self.write_hit(table, (hit, columns), encoder, &mut json);
                if !self.with_match(engine, table, (&hit.mark.key, groups), Some(guard), &mut write)? {
                    continue;
                }
                if returned == self.limit {
                    break 'pages true;
                }
                take(&json)?;
                returned += 1;
                last = Some(hit.mark.clone());
            }
            if is_stopped() {
                return Err(RowsError::Cancelled);
            }
            match page.hits.last().filter(|_| page.has_more) {
                Some(hit) => after = Some(hit.mark.clone()),
                None => break false,
            }
        };
        let mark = last.as_ref().filter(|_| has_more);
        Ok((self.end(engine, total.unwrap_or_default(), mark), total))
    }

    /// Counts the rows that match and that a guard allows; `None` if more than [`GUARDED_ROWS_MAX`] rows match.
    fn guarded_total(
        &self,
        engine: &Engine,
        table: &WideTable,
        (groups, guard): (GroupSet, RowGuard<'_>),
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Option<u64>> {
        let (mut total, mut read) = (Ok(0), 0);
        let mut count = |key: &[u8]| {
            read += 1;
            if read > GUARDED_ROWS_MAX {
                return false;
            }
            let seen = self.with_match(engine, table, (key, groups), Some(guard), &mut |_| Ok(()));
            total = match (&total, seen) {
                (Ok(total), Ok(is_seen)) => Ok(total + u64::from(is_seen)),
                (_, Err(error)) => Err(error),
                (Err(_), Ok(_)) => return false,
            };
            total.is_ok()
        };
        engine.search_keys(
            table,
            self.filter.index(),
            self.filter.root(),
            is_stopped,
            &mut count,
        )?;
        if is_stopped() {
            return Err(RowsError::Cancelled);
        }
        let total = total?;
        Ok((read <= GUARDED_ROWS_MAX).then_some(total))
    }

    /// Returns the column groups that the search reads, and notes its use of columns.
    fn groups(&self, engine: &Engine, table: &WideTable, selection: &Selection) -> GroupSet {
        selection.note(engine, table, self.filter.matcher());
        let groups = selection.groups(table);
        groups.union(tested_groups(table, self.filter.matcher(), None))
    }

    /// Returns the summary of a page. `mark` is the position of its last row if more rows follow.
    fn end(&self, engine: &Engine, total: u64, mark: Option<&RowMark>) -> SearchEnd {
        let mark = mark.map(|mark| serde_json::to_vec(mark).unwrap_or_default());
        let (waiting, lag_ms) = self.filter.backlog(engine);
        SearchEnd {
            total,
            waiting,
            lag_ms,
            tier: self.filter.seen_tier(),
            shards: self.filter.shards_read(),
            next: mark.map(|mark| token::encode(&self.terms, &mark)),
        }
    }

    /// Reads a row with these column groups, and passes its columns to `take`. Returns false without a call if the row
    /// does not match any more, or if the guard does not allow it.
    fn with_match(
        &self,
        engine: &Engine,
        table: &WideTable,
        (key, groups): (&[u8], GroupSet),
        guard: Option<RowGuard<'_>>,
        take: &mut dyn FnMut(&Mutation<'_>) -> Result<()>,
    ) -> Result<bool> {
        let Some(row) = engine.row_of_groups(table, key, groups)? else {
            return Ok(false);
        };
        let columns = row.columns().map_err(|reason| damaged(table, reason))?;
        let matcher = self.filter.matcher();
        if !matcher.is_none_or(|matcher| matcher.matches(table.layout(), key, Some(&columns))) {
            return Ok(false);
        }
        if let Some(guard) = guard
            && !guard(key, &columns)?
        {
            return Ok(false);
        }
        take(&columns)?;
        Ok(true)
    }

    /// Appends a row as JSON.
    fn write_hit(
        &self,
        table: &WideTable,
        (hit, columns): (&RowHit, &Mutation<'_>),
        encoder: &dyn RowEncoder,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let key = &hit.mark.key;
        encoder.write_row(table, key, columns, None, out)?;
        let highlights = match (self.has_highlights, self.filter.matcher()) {
            (true, Some(matcher)) => matcher.highlights(table.layout(), key, columns),
            _ => Vec::new(),
        };
        if !hit.distances.is_empty() {
            add_member(out, "distances", &hit.distances);
        }
        if !highlights.is_empty() {
            let highlights: Vec<RowHighlight> = highlights.into_iter().map(shown).collect();
            add_member(out, "highlights", &highlights);
        }
        Ok(())
    }
}

/// Returns true if a search can find only rows of parts in the cold tier or in the archive: by its tier, or because its
/// index covers only these rows. `index` may be `None` if the table has only one index.
pub fn finds_only_cold(table: &WideTable, index: Option<&str>, tier: RowTiers) -> bool {
    match tier {
        RowTiers::Cold => true,
        RowTiers::Hot => false,
        RowTiers::All => {
            let mut indexes = table.settings().search_indexes.iter();
            let found = indexes.find(|spec| index.is_none_or(|name| spec.name == name));
            found.is_some_and(|spec| spec.tier == TierScope::Cold)
        }
    }
}

fn sort_of(filter: &IndexFilter, table: &WideTable, key: &RowSortKey) -> Result<RowSort> {
    let possible = match key.near {
        Some(_) => GEO_FORMS,
        None => VALUE_FORMS,
    };
    let (column, _) = filter.column(table, ("sort", &key.column), key.form, possible)?;
    let by = match key.near {
        None => RowSortBy::Column(column),
        Some(point) => {
            let point = tideline_engine::model::GeoPoint::new(point.lat, point.lon);
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
