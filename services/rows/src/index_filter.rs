//! Selection of rows through a search index, for searches and counts.
//!
//! Searches and counts have the same members `index`, `where` and `at_least`. This module chooses the index and its
//! shards, compiles the condition, and waits until the index holds the write `at_least`.

use std::time::Instant;

use tideline_engine::condition::Node;
use tideline_engine::model::{ColumnType, SearchForm, SearchIndexSpec, SequenceNumber};
use tideline_engine::row_search::{IndexOfRows, RowForm};
use tideline_engine::runtime::Reservation;
use tideline_engine::{Engine, EngineError, WideTable};
use tideline_openapi::condition::RowFilter;
use tideline_openapi::row_search::{SearchColumnForm, ShardsRead};
use tideline_openapi::tier::RowTiers;

use crate::condition::{RowMatcher, compared};
use crate::error::{Result, RowsError};
use crate::parts::check_tier;
use crate::routing::shards_of;
use crate::search::WAIT_MAX;

/// Memory of a search per document of the shards that it reads, in bytes: the sets of documents for a few levels of the
/// condition.
const BYTES_PER_DOCUMENT: u64 = 1;

/// Forms whose values can be sorted and counted.
pub(crate) const VALUE_FORMS: &[SearchForm] = &[
    SearchForm::Keyword,
    SearchForm::Number,
    SearchForm::Time,
    SearchForm::Bool,
];
/// Forms whose values are numbers in the index.
pub(crate) const NUMBER_FORMS: &[SearchForm] = &[SearchForm::Number, SearchForm::Time];
/// Forms whose values are geo points.
pub(crate) const GEO_FORMS: &[SearchForm] = &[SearchForm::Geo];

/// Index, compiled condition, and position of the awaited write of a search or count.
#[derive(Debug)]
pub(crate) struct IndexFilter {
    index: IndexOfRows,
    matcher: Option<RowMatcher>,
    at_least: Option<SequenceNumber>,
}

impl IndexFilter {
    /// Finds the index by its name, and compiles the condition for it. `at_least` is the position of a write.
    ///
    /// # Errors
    ///
    /// [`RowsError::Invalid`] for a position that no write has returned, and the errors of [`RowMatcher::for_index`],
    /// [`Engine::search_index`] and [`IndexOfRows::in_tier`].
    pub(crate) fn new(
        engine: &Engine,
        table: &WideTable,
        index: Option<&str>,
        filter: Option<&RowFilter>,
        at_least: Option<&str>,
        tier: RowTiers,
    ) -> Result<Self> {
        let at_least = at_least.map(|text| parse_position(engine, text)).transpose()?;
        let index = engine.search_index(table, index)?;
        let id = index.id().0;
        let mut specs = table.settings().search_indexes.iter();
        let name = specs
            .find(|spec| spec.id == id)
            .map_or("", |spec| spec.name.as_str());
        check_tier(table, tier.into())?;
        let index = index.in_tier(tier.into(), name)?;
        let matcher = filter.map(|filter| RowMatcher::for_index(engine, table, index.index(), filter));
        let matcher = matcher.transpose()?;
        let shards = index.routing().zip(filter).map(|(routing, filter)| {
            let condition = compared(table, filter)?;
            Ok::<_, RowsError>(shards_of(table, routing, &condition))
        });
        Ok(Self {
            matcher,
            index: match shards.transpose()? {
                Some(shards) => index.in_shards(shards),
                None => index,
            },
            at_least,
        })
    }

    /// Waits until the index holds the write, counts the search and the use of the columns, and reserves the memory of
    /// the search. `read` is the columns that the search reads besides those of the condition, as their positions in the
    /// index.
    ///
    /// # Errors
    ///
    /// [`EngineError::SearchBehind`] if the index does not hold the write within 10 seconds, and
    /// [`EngineError::Memory`] if no memory is left.
    pub(crate) fn begin(
        &self,
        engine: &Engine,
        table: &WideTable,
        read: impl Iterator<Item = usize>,
    ) -> Result<Reservation> {
        if let Some(position) = self.at_least
            && !engine.wait_searchable(&self.index, position, Instant::now() + WAIT_MAX)
        {
            let table = table.table().name().clone();
            return Err(EngineError::SearchBehind { table }.into());
        }
        let mut used = self.matcher.as_ref().map(RowMatcher::columns).unwrap_or_default();
        let columns = self.index.index().columns();
        used.extend(read.map(|column| columns[column].name.clone()));
        self.index.note_search(&used);
        self.reserve(engine)
    }

    /// Reserves the memory of the search.
    ///
    /// # Errors
    ///
    /// [`EngineError::Memory`] if no memory is left.
    pub(crate) fn reserve(&self, engine: &Engine) -> Result<Reservation> {
        let bytes = self.index.documents_read() * BYTES_PER_DOCUMENT;
        let reserved = engine.memory().reserve("search of rows", bytes);
        Ok(reserved.map_err(EngineError::from)?)
    }

    /// Returns the settings of the index; `None` if it was dropped or replaced meanwhile.
    pub(crate) fn spec<'t>(&self, table: &'t WideTable) -> Option<&'t SearchIndexSpec> {
        let mut specs = table.settings().search_indexes.iter();
        specs.find(|spec| spec.id == self.index.id().0)
    }

    pub(crate) fn index(&self) -> &IndexOfRows {
        &self.index
    }

    /// Returns the tiers whose rows the search can find; `None` for all tiers.
    pub(crate) fn seen_tier(&self) -> Option<RowTiers> {
        let tier = RowTiers::from(self.index.tier());
        (!tier.is_all()).then_some(tier)
    }

    /// Returns the number of shards that the search reads; `None` if the index has one shard.
    pub(crate) fn shards_read(&self) -> Option<ShardsRead> {
        let routing = self.index.routing()?;
        Some(ShardsRead {
            read: self.index.shards_read() as u64,
            total: routing.shards() as u64,
        })
    }

    /// Returns the compiled condition; `None` if all rows are selected.
    pub(crate) fn matcher(&self) -> Option<&RowMatcher> {
        self.matcher.as_ref()
    }

    /// Returns the tree of the compiled condition.
    pub(crate) fn root(&self) -> &Node {
        self.matcher().map_or(&Node::All, RowMatcher::root)
    }

    /// Returns the number of changes that the index does not hold yet, and the age of the oldest of them in
    /// milliseconds.
    pub(crate) fn backlog(&self, engine: &Engine) -> (u64, u64) {
        let status = engine.search_index_status(self.index.id());
        let backlog = status.map(|(_, backlog)| backlog).unwrap_or_default();
        let age = backlog
            .age
            .map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        (backlog.changes, age)
    }

    /// Returns the position of the newest write of the table that the index holds with all writes before it; `None` if
    /// it has held none since it was opened.
    pub(crate) fn position(&self, engine: &Engine) -> Option<u64> {
        let (_, backlog) = engine.search_index_status(self.index.id())?;
        backlog.end.0.checked_sub(1)
    }

    /// Returns the position and the form of an indexed column, for the member `member` of the request. `wanted` is the
    /// form that the request names, and `possible` are the forms that support the use. If the request names no form and
    /// the column has several possible ones, prefers keyword, because keywords keep the exact order of decimals.
    ///
    /// # Errors
    ///
    /// [`RowsError::Invalid`] if the index has no such column, or if the wanted form does not support the use.
    pub(crate) fn column(
        &self,
        table: &WideTable,
        (member, name): (&str, &str),
        wanted: Option<SearchColumnForm>,
        possible: &[SearchForm],
    ) -> Result<(usize, RowForm)> {
        let wanted = wanted.map(SearchForm::from);
        if let Some(form) = wanted.filter(|form| !possible.contains(form)) {
            return Err(RowsError::Invalid(format!(
                "{member}: column {name:?} cannot be used here as {}; possible are {}",
                form.name(),
                names_of(possible)
            )));
        }
        let forms = wanted.as_ref().map_or(possible, std::slice::from_ref);
        let is_time = table.column_type(name) == Some(ColumnType::Timestamp);
        let is_possible = |form: RowForm| forms.contains(&form_of(form, is_time));
        let columns = self.index.index().columns().iter().enumerate();
        let possible = columns.filter(|(_, column)| column.name == name && is_possible(column.form));
        // If several columns have the same rank, `min_by_key` returns the first one.
        let found = possible.min_by_key(|(_, column)| column.form != RowForm::Keyword);
        let found = found.map(|(number, column)| (number, column.form));
        found.ok_or_else(|| {
            RowsError::Invalid(format!(
                "{member}: column {name:?} is not in the search index as {}",
                names_of(forms)
            ))
        })
    }
}

/// Returns the form of the settings for a form of the index. `is_time` is true for columns of timestamps.
pub(crate) fn form_of(form: RowForm, is_time: bool) -> SearchForm {
    match form {
        RowForm::Keyword => SearchForm::Keyword,
        RowForm::Text(_) => SearchForm::Text,
        RowForm::Signed if is_time => SearchForm::Time,
        RowForm::Signed | RowForm::Unsigned | RowForm::Float => SearchForm::Number,
        RowForm::Boolean => SearchForm::Bool,
        RowForm::Geo => SearchForm::Geo,
    }
}

/// Returns the names of forms for a message, such as "keyword, number, time or bool".
fn names_of(forms: &[SearchForm]) -> String {
    let names: Vec<&str> = forms.iter().map(|form| form.name()).collect();
    match &names[..] {
        [] => String::new(),
        [name] => (*name).to_owned(),
        [names @ .., last] => format!("{} or {last}", names.join(", ")),
    }
}

/// Parses the position of a write in a request.
fn parse_position(engine: &Engine, text: &str) -> Result<SequenceNumber> {
    let number: u64 = text.parse().map_err(|_| {
        RowsError::Invalid("at_least: expected the `position` that a write has returned".into())
    })?;
    let end = engine.store().recent_end().0;
    if number >= end {
        return Err(RowsError::Invalid(format!(
            "at_least: no write has the position {number}; the newest write has {}; use the `position` that a write has \
             returned",
            end.saturating_sub(1)
        )));
    }
    Ok(SequenceNumber(number))
}
