//! Searches over messages: a search over the rows of the table, limited to feeds.

use std::sync::Arc;

use serde_json::json;
use tideline_engine::feeds::FeedName;
use tideline_engine::model::feed::FEED;
use tideline_engine::{Engine, WideTable};
use tideline_openapi::condition::RowFilter;
use tideline_openapi::feed::SearchMessages;
use tideline_openapi::row_search::{SearchEnd, SearchRows};
use tideline_rows::search::Search;
use tideline_rows::{Result, RowsError, Selection};

use crate::message::MessageEncoder;
use crate::read::FEEDS_MAX;

/// Searches messages, and passes each to `take` as JSON.
///
/// # Errors
///
/// [`RowsError::OverLimit`] for too many feeds, the errors of [`Engine::feed`], and those of [`Search`].
pub fn search(
    engine: &Engine,
    table: &Arc<WideTable>,
    request: SearchMessages,
    is_stopped: &dyn Fn() -> bool,
    take: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<SearchEnd> {
    let encoder = MessageEncoder {
        columns: request.columns,
        has_feed: true,
        ..MessageEncoder::default()
    };
    let rows = SearchRows {
        index: request.index,
        filter: condition(engine, table, request.feeds.as_deref(), request.filter)?,
        sort: request.sort,
        limit: request.limit,
        highlight: request.highlight,
        at_least: request.at_least,
        page_token: request.page_token,
        ..SearchRows::default()
    };
    let selection = Selection::all(tideline_openapi::row::RowIntegers::default());
    let search = Search::new(engine, table, &rows, &selection)?;
    search.page_as(engine, table, &selection, &encoder, is_stopped, take)
}

/// Returns the condition of a search in feeds; `None` for all messages.
fn condition(
    engine: &Engine,
    table: &WideTable,
    feeds: Option<&[String]>,
    filter: Option<RowFilter>,
) -> Result<Option<RowFilter>> {
    let Some(feeds) = feeds else {
        return Ok(filter);
    };
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
        .map(|feed| engine.feed(table, &FeedName::parse(feed)));
    let ids = ids.collect::<std::result::Result<Vec<_>, _>>()?;
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let in_feeds = json!({"column": FEED, "in": ids});
    let all = match &filter {
        None => in_feeds,
        Some(filter) => json!({"and": [in_feeds, filter]}),
    };
    let parsed = serde_json::from_value(all);
    parsed
        .map(Some)
        .map_err(|error| RowsError::Invalid(error.to_string()))
}
