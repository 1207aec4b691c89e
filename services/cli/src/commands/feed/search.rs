//! `tideline feed search`: finds messages through a search index.
//!
//! Words are tested on all columns that the index holds as `text`, so the command requests the columns of the index
//! first.

use clap::Args;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::shown::{MessagePage, OutputArguments, PagedRequest};
use super::{FeedTable, ViewerArgument};
use crate::client::Client;
use crate::commands::rows::body::Body;
use crate::commands::rows::index::ordered;
use crate::commands::rows::tree;
use crate::condition::joined_text;
use crate::error::{CliError, Result};
use crate::output;

pub(super) const EXAMPLES: &str = "\
Examples:
  tideline feed search chat lunch noon --highlight
  tideline feed search chat lunch --feed room,name=lobby --feed room,name=garden --sort sequence:desc
  tideline feed search chat sender=ann 'sequence>1795700000000000000' --output ndjson
  tideline feed search chat '{\"column\": \"text\", \"phrase\": \"lunch at noon\"}'

All tested columns must be in the search index, and `feed` with --feed. Create one by
`tideline rows search-index create chat messages feed=keyword sender=keyword text=text`.";

/// Characters that make an argument a condition instead of a word.
const CONDITION_MARKS: [char; 4] = ['=', '<', '>', '{'];

/// Arguments of `feed search`.
#[derive(Debug, Args)]
pub(crate) struct SearchArguments {
    #[command(flatten)]
    table: FeedTable,
    /// Words that one text column of the index must contain, or conditions on indexed columns, such as sender=ann, n>5
    /// or a JSON tree; messages must match all
    #[arg(value_name = "WORD|CONDITION")]
    terms: Vec<String>,
    /// Feed to search: its id, or its type and tags; may be repeated [default: all feeds]
    #[arg(long = "feed", value_name = "FEED")]
    feeds: Vec<String>,
    /// Search index [default: the only one of the table]
    #[arg(long, value_name = "NAME")]
    index: Option<String>,
    /// Sort by a column, lowest first, or highest first with NAME:desc; may be repeated [default: by feed and sequence
    /// number]
    #[arg(long, value_name = "NAME")]
    sort: Vec<String>,
    /// Return the texts that matched, with the positions of the matches
    #[arg(long)]
    highlight: bool,
    /// Find inbox entries too, which refer to messages of other feeds
    #[arg(long)]
    inbox_entries: bool,
    /// Wait until the search finds the write with this `position`, at most 10 seconds
    #[arg(long, value_name = "POSITION")]
    at_least: Option<String>,
    /// Continue after the page that printed this token; the conditions, the order and the columns must be the same
    #[arg(long, value_name = "TOKEN")]
    page_token: Option<String>,
    #[command(flatten)]
    viewer: ViewerArgument,
    #[command(flatten)]
    output: OutputArguments,
}

impl SearchArguments {
    /// Returns the body of a request, without its limit.
    fn body(&self, client: &Client) -> Result<Body> {
        let (conditions, words): (Vec<String>, Vec<String>) = self
            .terms
            .iter()
            .cloned()
            .partition(|term| term.contains(CONDITION_MARKS));
        let mut trees: Vec<Box<RawValue>> = tree(&conditions)?.into_iter().collect();
        if !words.is_empty() {
            let columns = text_columns(client, self.index.as_deref())?;
            let condition = to_raw_value(&word_condition(&columns, &words.join(" ")));
            trees.push(condition.map_err(|error| CliError::usage(error.to_string()))?);
        }
        let mut body = Body::default();
        if let Some(tree) = joined_text(trees) {
            body.insert_text("where", tree);
        }
        if !self.feeds.is_empty() {
            body.insert("feeds".into(), json!(self.feeds));
        }
        let sort = self.sort.iter().map(|text| {
            Ok(match ordered(text)? {
                (name, true) => json!({"column": name, "order": "descending"}),
                (name, false) => json!({"column": name}),
            })
        });
        let sort = sort.collect::<Result<Vec<Value>>>()?;
        if !sort.is_empty() {
            body.insert("sort".into(), sort.into());
        }
        if !self.output.columns.is_empty() {
            body.insert("columns".into(), json!(self.output.columns));
        }
        for (name, is_set) in [
            ("highlight", self.highlight),
            ("inbox_entries", self.inbox_entries),
        ] {
            if is_set {
                body.insert(name.into(), true.into());
            }
        }
        for (name, text) in [
            ("index", &self.index),
            ("at_least", &self.at_least),
            ("page_token", &self.page_token),
            ("as", &self.viewer.principal),
        ] {
            if let Some(text) = text {
                body.insert(name.into(), text.as_str().into());
            }
        }
        Ok(body)
    }
}

/// Returns the columns that an index holds as `text`. Without a name, the table must have exactly one index.
fn text_columns(client: &Client, index: Option<&str>) -> Result<Vec<String>> {
    let list = client.parse(&client.get(&client.of_table("/search-indexes"))?)?;
    let indexes = list["search_indexes"].as_array().into_iter().flatten();
    let mut indexes = indexes.filter(|found| index.is_none_or(|name| found["name"] == name));
    let found = match (indexes.next(), index) {
        (Some(found), _) => found,
        (None, Some(name)) => {
            return Err(CliError::usage(format!(
                "table {} has no search index {name}",
                client.table()
            )));
        }
        (None, None) => {
            return Err(CliError::usage(format!(
                "table {0} has no search index; create one by `tideline rows search-index create {0}`",
                client.table()
            )));
        }
    };
    let name = output::member(found, "name");
    // A second index of the same name is the replacement that is being built.
    if index.is_none() && indexes.any(|other| other["name"] != found["name"]) {
        return Err(CliError::usage(format!(
            "table {} has several search indexes; choose one with --index",
            client.table()
        )));
    }
    let columns = found["columns"].as_array().into_iter().flatten();
    let columns = columns.filter(|column| column["as"] == "text");
    let columns: Vec<String> = columns.map(|column| output::member(column, "column")).collect();
    match columns.is_empty() {
        false => Ok(columns),
        true => Err(CliError::usage(format!(
            "search index {name} has no column as text; use a condition such as sender=ann instead of words"
        ))),
    }
}

/// Returns the condition that at least one of the columns contains all words.
fn word_condition(columns: &[String], words: &str) -> Value {
    let mut tests: Vec<Value> = columns
        .iter()
        .map(|column| json!({"column": column, "text": words}))
        .collect();
    match tests.len() {
        1 => tests.remove(0),
        _ => json!({"or": tests}),
    }
}

/// Search that continues page by page.
struct MessageSearch<'a> {
    client: &'a Client,
    body: Body,
    /// Number of messages of the pages so far.
    found: u64,
}

impl PagedRequest for MessageSearch<'_> {
    fn send(&self, limit: Option<u64>) -> Result<String> {
        let mut body = self.body.clone();
        if let Some(limit) = limit {
            body.insert("limit".into(), limit.into());
        }
        let path = self.client.of_table("/feeds/messages/search");
        self.client.post_text(&path, &body.to_string())
    }

    fn take(&mut self, response: &str) -> Result<MessagePage> {
        #[derive(Deserialize)]
        struct Response {
            messages: Vec<Box<RawValue>>,
            total: Option<u64>,
            waiting: u64,
            next: Option<String>,
        }
        let page: Response =
            serde_json::from_str(response).map_err(|error| self.client.strange(&error.to_string()))?;
        if let Some(next) = &page.next {
            self.body.insert("page_token".into(), next.as_str().into());
            self.body.remove("at_least");
        }
        self.found += page.messages.len() as u64;
        let found = output::count(self.found);
        let mut note = match page.total {
            Some(total) => format!("{found} of {}", output::count(total)),
            None => format!("{found}; more than 100,000 messages match"),
        };
        if page.waiting > 0 {
            note.push_str(&format!(
                "; {} changes are not included yet",
                output::count(page.waiting)
            ));
        }
        Ok(MessagePage {
            messages: page.messages,
            end: json!({"total": page.total, "waiting": page.waiting, "next": page.next}),
            continuation: page.next.map(|next| format!("--page-token {next}")),
            note,
        })
    }
}

/// Searches and shows the messages.
pub(super) fn run(arguments: &SearchArguments) -> Result<()> {
    let client = arguments.table.client()?;
    let mut request = MessageSearch {
        client: &client,
        body: arguments.body(&client)?,
        found: 0,
    };
    arguments
        .output
        .show(&mut request, arguments.table.connection.json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_tested_on_all_texts() {
        let columns = ["title", "text"].map(str::to_owned);
        assert_eq!(
            word_condition(&columns[..1], "red wine"),
            json!({"column": "title", "text": "red wine"})
        );
        assert_eq!(
            word_condition(&columns, "wine"),
            json!({"or": [{"column": "title", "text": "wine"}, {"column": "text", "text": "wine"}]})
        );
    }
}
