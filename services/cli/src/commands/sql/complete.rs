//! Completion of keywords, tables and columns.
//!
//! Names are requested from the server when they are needed for the first time, and again after a statement that
//! changes tables.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::json;

use crate::client::Client;

/// Keywords that are completed.
const KEYWORDS: [&str; 53] = [
    "ADD",
    "ALLOW FILTERING",
    "ALTER TABLE",
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BIGINT",
    "BOOLEAN",
    "BY",
    "COLUMN",
    "COUNT(*)",
    "CREATE TABLE",
    "DECIMAL",
    "DELETE FROM",
    "DESC",
    "DESCRIBE",
    "DOUBLE",
    "DROP TABLE",
    "DUPLICATE KEY",
    "ERROR",
    "EXISTS",
    "EXPLAIN SELECT",
    "FALSE",
    "FROM",
    "IF",
    "IGNORE",
    "IN",
    "INSERT INTO",
    "INTO",
    "IS",
    "JSON",
    "KEY",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "ON DUPLICATE KEY",
    "OR",
    "ORDER BY",
    "PRIMARY KEY",
    "SELECT",
    "SET",
    "SHOW TABLES",
    "TIMESTAMP",
    "TRUE",
    "UPDATE",
    "UPSERT INTO",
    "VALUES",
    "VARBINARY",
    "VARCHAR",
    "WHERE",
    "WITH",
];
/// Words that precede the name of a table.
const BEFORE_TABLES: [&str; 6] = ["FROM", "INTO", "UPDATE", "TABLE", "DESCRIBE", "DESC"];

/// Cache of the names of tables and columns of the server.
pub(super) struct Names {
    client: Client,
    tables: RefCell<Option<Vec<String>>>,
    columns: RefCell<BTreeMap<String, Vec<String>>>,
}

impl Names {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            tables: RefCell::default(),
            columns: RefCell::default(),
        }
    }

    /// Discards the cached names.
    pub(super) fn forget(&self) {
        self.tables.take();
        self.columns.take();
    }

    fn tables(&self) -> Vec<String> {
        let mut known = self.tables.borrow_mut();
        known
            .get_or_insert_with(|| self.listed("SHOW TABLES", "table"))
            .clone()
    }

    fn columns(&self, table: &str) -> Vec<String> {
        let mut known = self.columns.borrow_mut();
        let listed = || self.listed(&format!("DESCRIBE `{table}`"), "column");
        known.entry(table.to_owned()).or_insert_with(listed).clone()
    }

    /// Runs a statement and returns the values of one column of its result; an empty list after an error.
    fn listed(&self, statement: &str, column: &str) -> Vec<String> {
        let response = self.client.post("/v1/sql", &json!({"statement": statement}));
        let response = response
            .and_then(|text| self.client.parse(&text))
            .unwrap_or_default();
        let rows = response["rows"].as_array().into_iter().flatten();
        rows.filter_map(|row| row[column].as_str().map(str::to_owned))
            .collect()
    }

    /// Returns the offset of the word at the cursor, and its completions.
    pub(super) fn complete(&self, line: &str, cursor: usize) -> (usize, Vec<String>) {
        let before = line.get(..cursor).unwrap_or(line);
        complete(before, line, &|| self.tables(), &|table| self.columns(table))
    }
}

/// Completes the word at the end of `before`, which is the beginning of `line`.
fn complete(
    before: &str,
    line: &str,
    tables: &dyn Fn() -> Vec<String>,
    columns: &dyn Fn(&str) -> Vec<String>,
) -> (usize, Vec<String>) {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let start = before
        .char_indices()
        .rev()
        .take_while(|(_, character)| is_word(*character))
        .last()
        .map_or(before.len(), |(at, _)| at);
    let typed = &before[start..];
    let words: Vec<&str> = before[..start].split(|character| !is_word(character)).collect();
    let previous = words.iter().rev().find(|word| !word.is_empty());
    let is_table =
        previous.is_some_and(|word| BEFORE_TABLES.iter().any(|other| other.eq_ignore_ascii_case(word)));
    let mut found: Vec<String> = Vec::new();
    let known = tables();
    if is_table {
        found.extend(known.into_iter().filter(|name| name.starts_with(typed)));
    } else {
        let mentioned = line.split(|character| !is_word(character) && character != '-');
        let mentioned: Vec<&str> = mentioned
            .filter(|word| known.iter().any(|table| table == word))
            .collect();
        let names = mentioned.iter().flat_map(|table| columns(table));
        found.extend(names.filter(|name| name.starts_with(typed) && name.chars().all(is_word)));
        let upper = typed.to_uppercase();
        let keywords = KEYWORDS.iter().filter(|_| !typed.is_empty());
        found.extend(
            keywords
                .filter(|word| word.starts_with(&upper))
                .map(|word| (*word).to_owned()),
        );
    }
    found.sort();
    found.dedup();
    (start, found)
}

/// Returns true if a statement changes tables or columns.
pub(super) fn changes_tables(statement: &str) -> bool {
    let first = statement.split_whitespace().next().unwrap_or_default();
    ["CREATE", "ALTER", "DROP"]
        .iter()
        .any(|word| word.eq_ignore_ascii_case(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(line: &str) -> Vec<String> {
        let tables = || vec!["orders".to_owned(), "files".to_owned()];
        let columns = |table: &str| match table {
            "orders" => vec!["customer".to_owned(), "count".to_owned(), "c*".to_owned()],
            _ => vec!["path".to_owned()],
        };
        let (before, after) = line.split_once('|').expect("a cursor");
        complete(before, &format!("{before}{after}"), &tables, &columns).1
    }

    #[test]
    fn keywords_tables_and_columns_are_completed() {
        for (line, expected) in [
            ("sel|", vec!["SELECT"]),
            ("SELECT * FROM |", vec!["files", "orders"]),
            ("SELECT * FROM or|", vec!["orders"]),
            ("UPSERT INTO f|", vec!["files"]),
            (
                "SELECT c| FROM orders",
                vec!["COLUMN", "COUNT(*)", "CREATE TABLE", "count", "customer"],
            ),
            ("SELECT * FROM orders WHERE cu|", vec!["customer"]),
            ("SELECT * FROM files WHERE cu|", vec![]),
            ("SELECT * FROM orders WHERE |", vec!["count", "customer"]),
        ] {
            assert_eq!(completed(line), expected, "{line}");
        }
    }
}
