//! Searches over messages: a search over the rows of the table, limited to feeds.
//!
//! Inbox entries are rows too. A search in all feeds omits them by a condition on the column that only entries have, if
//! the index has this column and the request does not test it.
//!
//! A search on behalf of a user reads each match, because the index has neither the lists of a message nor the blocks
//! of the user. So its pages, its total and its tokens do not depend on hidden messages.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use serde_json::json;
use tideline_engine::condition::{Condition, Subject};
use tideline_engine::feeds::FeedName;
use tideline_engine::model::TimelineId;
use tideline_engine::model::feed::{EXCEPT, FEED, SOURCE, TO};
use tideline_engine::rows::Mutation;
use tideline_engine::{Engine, WideTable};
use tideline_openapi::condition::RowFilter;
use tideline_openapi::feed::SearchMessages;
use tideline_openapi::row_search::{SearchEnd, SearchRows};
use tideline_rows::search::Search;
use tideline_rows::{Result, RowsError, Selection};

use crate::message::{MessageEncoder, key_of, newest};
use crate::read::FEEDS_MAX;
use crate::viewer::{Viewer, owner_of, readable_feed};

/// Searches messages, and passes each to `take` as JSON. Also returns the number of matches on all pages; `None` if a
/// search on behalf of a user has too many matches to test all of them.
///
/// # Errors
///
/// [`RowsError::OverLimit`] for too many feeds, the errors of [`Engine::feed`] and [`Viewer::new`], and those of
/// [`Search`].
pub fn search(
    engine: &Engine,
    table: &Arc<WideTable>,
    request: SearchMessages,
    is_stopped: &dyn Fn() -> bool,
    take: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<(SearchEnd, Option<u64>)> {
    let user = request.principal.as_deref();
    let encoder = MessageEncoder {
        columns: request.columns,
        has_feed: true,
        ..MessageEncoder::default()
    };
    let omits_entries = request.feeds.is_none()
        && user.is_none()
        && !request.inbox_entries
        && can_omit_entries(table, request.index.as_deref(), request.filter.as_ref());
    let rows = SearchRows {
        index: request.index,
        filter: condition(
            engine,
            table,
            (request.feeds.as_deref(), user, omits_entries),
            request.filter,
        )?,
        sort: request.sort,
        limit: request.limit,
        highlight: request.highlight,
        at_least: request.at_least,
        page_token: request.page_token,
        ..SearchRows::default()
    };
    let selection = Selection::all(tideline_openapi::row::RowIntegers::default());
    let search = Search::new(engine, table, &rows, &selection)?;
    let Some(user) = user else {
        let end = search.page_as(engine, table, &selection, &encoder, is_stopped, take)?;
        let total = end.total;
        return Ok((end, Some(total)));
    };
    let viewer = Viewer::new(engine, table, user)?;
    // A condition on the readers of a message would reveal them.
    if let Some(list) = search.columns(&rows).find(|name| [TO, EXCEPT].contains(&&**name)) {
        return Err(RowsError::Invalid(format!(
            "where and sort: a search on behalf of a user does not have column {list:?}; omit the column, or `as`"
        )));
    }
    let open = RefCell::new(HashMap::new());
    let is_open = |feed: TimelineId| -> Result<bool> {
        if let Some(is_open) = open.borrow().get(&feed) {
            return Ok(*is_open);
        }
        let is_open = owner_of(engine, table, feed)?.is_none_or(|of| of == user);
        open.borrow_mut().insert(feed, is_open);
        Ok(is_open)
    };
    let guard = |key: &[u8], message: &Mutation<'_>| {
        // The entry of an inbox refers to a message, which is found in its feed.
        let is_entry = newest(table, message, SOURCE).is_some();
        Ok(!is_entry && viewer.sees(table, message) && is_open(key_of(table, key)?.0)?)
    };
    search.guarded_page(engine, table, (&selection, &encoder), &guard, is_stopped, take)
}

/// Returns true if a search in all feeds can omit inbox entries: the index has the column that only entries have, and
/// the condition of the request neither tests this column nor selects feeds.
fn can_omit_entries(table: &WideTable, index: Option<&str>, filter: Option<&RowFilter>) -> bool {
    let indexes = table.settings().search_indexes.iter();
    let mut indexes = indexes.filter(|spec| index.is_none_or(|name| spec.name == name));
    table.feed().inboxes.is_some()
        && indexes.all(|spec| spec.columns.iter().any(|column| column.column == SOURCE))
        && !filter.is_some_and(|filter| tests_source(&filter.0))
}

/// Returns true if a condition tests the feed of a message, or the column that only inbox entries have.
fn tests_source(condition: &Condition) -> bool {
    match condition {
        Condition::All | Condition::Saved(_) => false,
        Condition::And(parts) | Condition::Or(parts) => parts.iter().any(tests_source),
        Condition::Not(part) => tests_source(part),
        Condition::Leaf { subject, .. } => {
            matches!(subject, Subject::Column(name) if [FEED, SOURCE].contains(&name.as_str()))
        }
    }
}

/// Returns the condition of a search in feeds on behalf of a user, if there is one; `None` for all messages.
/// `omits_entries` is true for a search in all feeds without inbox entries.
fn condition(
    engine: &Engine,
    table: &WideTable,
    (feeds, user, omits_entries): (Option<&[String]>, Option<&str>, bool),
    filter: Option<RowFilter>,
) -> Result<Option<RowFilter>> {
    let added = match feeds {
        Some(feeds) => in_feeds(engine, table, (feeds, user))?,
        None if omits_entries => json!({"column": SOURCE, "exists": false}),
        None => return Ok(filter),
    };
    let added = serde_json::from_value::<RowFilter>(added);
    let added = added.map_err(|error| RowsError::Invalid(error.to_string()))?;
    // A `Value` does not keep all digits of a number, so the conditions are joined without one.
    Ok(Some(match filter {
        None => added,
        Some(RowFilter(filter)) => RowFilter(Condition::And(vec![added.0, filter])),
    }))
}

/// Returns the condition on the feeds of a search.
fn in_feeds(
    engine: &Engine,
    table: &WideTable,
    (feeds, user): (&[String], Option<&str>),
) -> Result<serde_json::Value> {
    if feeds.len() > FEEDS_MAX {
        return Err(RowsError::over(
            "number of feeds",
            FEEDS_MAX as u64,
            feeds.len() as u64,
        ));
    }
    if feeds.is_empty() {
        return Err(RowsError::Invalid(
            "feeds is empty; name a feed, or omit it to search all".to_owned(),
        ));
    }
    let ids = feeds
        .iter()
        .map(|feed| readable_feed(engine, table, &FeedName::parse(feed), user));
    let ids = ids.collect::<Result<Vec<_>>>()?;
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    Ok(json!({"column": FEED, "in": ids}))
}
