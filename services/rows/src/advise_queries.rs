//! Advice on the access paths of a sample of queries. A path is a range of the primary key, a small range whose rows
//! are tested, a secondary index for a fixed combination of columns, or a search index for free combinations.
//!
//! 1. A query is a range if it tests the first key columns for equality and the next one by bounds. The number of its
//!    rows is estimated as in [`explain`](crate::explain).
//! 2. If the range is small, the further tests of the query are applied to its rows.
//! 3. Otherwise, an index is used if its first columns are tested. If no index fits, one is advised. A secondary index
//!    is advised for queries with one combination of equalities and one range. A search index is advised for
//!    alternatives, words, patterns or areas, or if the sample has more than [`FIXED_MAX`] combinations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tideline_engine::indexes::Index;
use tideline_engine::key_codec::layout::KeyLayout;
use tideline_engine::model::ColumnType;
use tideline_engine::{Engine, WideTable};
use tideline_openapi::row_advice::{AdviseQueries, QueriesAdvised, QueryAdvice, QueryPath, SampleQuery};
use tideline_openapi::row_explain::ExplainRows;

use crate::condition::RowMatcher;
use crate::error::{Result, RowsError};
use crate::explain::explain;

/// Maximum number of queries of a sample.
pub const QUERIES_MAX: usize = 100;
/// Maximum number of rows of a small range.
const SMALL_ROWS: u64 = 10_000;
/// Maximum number of combinations of columns for which secondary indexes are advised; one search index is advised for
/// more.
const FIXED_MAX: usize = 4;

/// Tests of a query.
#[derive(Debug, Default)]
struct Tests {
    /// Columns tested for equality, with their values.
    equal: BTreeMap<String, Value>,
    /// Columns with bounds. The values of the bounds are stored by the names of the tests.
    bounds: BTreeMap<String, Map<String, Value>>,
    /// Columns with other tests, each with the name of a test.
    other: BTreeMap<String, String>,
    /// True if the query has alternatives or negations.
    is_free: bool,
}

/// Path of a query, before the missing indexes are chosen.
enum Choice {
    Known(QueryAdvice),
    /// Columns tested for equality, and the column of the range or of the order.
    Fixed(BTreeSet<String>, Option<String>),
    Free,
}

/// Returns the access path of each query, and the indexes that are missing for them. The request id in the result is
/// empty.
///
/// # Errors
///
/// [`RowsError::OverLimit`] for too many queries, [`RowsError::Cancelled`] if `is_stopped` returns true, and the errors
/// of [`RowMatcher::new`] and [`explain`].
pub fn advise_queries(
    engine: &Engine,
    table: &Arc<WideTable>,
    request: &AdviseQueries,
    is_stopped: &dyn Fn() -> bool,
) -> Result<QueriesAdvised> {
    let count = request.queries.len();
    if count > QUERIES_MAX {
        return Err(RowsError::over(
            "number of queries",
            QUERIES_MAX as u64,
            count as u64,
        ));
    }
    let mut choices = Vec::with_capacity(count);
    for query in &request.queries {
        if is_stopped() {
            return Err(RowsError::Cancelled);
        }
        RowMatcher::new(engine, table, &query.filter)?;
        let tests = tests_of(query);
        choices.push((choose(engine, table, query, &tests, is_stopped)?, tests));
    }
    let combinations: BTreeSet<(BTreeSet<String>, Option<String>)> = choices
        .iter()
        .filter_map(|(choice, _)| match choice {
            Choice::Fixed(equal, next) => Some((equal.clone(), next.clone())),
            _ => None,
        })
        .collect();
    let needs_search =
        combinations.len() > FIXED_MAX || choices.iter().any(|(choice, _)| matches!(choice, Choice::Free));
    let prefers_search = combinations.len() > FIXED_MAX;
    let mut result = QueriesAdvised {
        queries: Vec::with_capacity(count),
        create_indexes: Vec::new(),
        create_search_indexes: Vec::new(),
        undeclared: Vec::new(),
        request_id: String::new(),
    };
    let (mut searched, mut undeclared, mut names) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for ((choice, tests), query) in choices.into_iter().zip(&request.queries) {
        let missing = |columns: &BTreeSet<String>| -> Vec<String> {
            let unknown = columns.iter().filter(|name| table.type_of(name).is_none());
            unknown.cloned().collect()
        };
        let advice = match choice {
            Choice::Known(advice) => advice,
            Choice::Fixed(equal, next) if !prefers_search => {
                let columns: BTreeSet<String> = equal.iter().cloned().chain(next.clone()).collect();
                undeclared.extend(missing(&columns));
                let name = format!("by_{}", columns_text(&equal, next.as_ref(), "_"));
                if names.insert(name.clone()) {
                    let key = equal.iter().chain(&next).map(|name| json!({"name": name}));
                    let key: Vec<Value> = key.collect();
                    result.create_indexes.push(json!({"name": name, "key": key}));
                }
                QueryAdvice {
                    path: QueryPath::SecondaryIndex,
                    index: Some(name),
                    exists: false,
                    estimated_rows: None,
                    reason: format!(
                        "the query tests a fixed combination of columns ({})",
                        columns_text(&equal, next.as_ref(), ", ")
                    ),
                }
            }
            Choice::Fixed(..) | Choice::Free => {
                let all = tests
                    .columns()
                    .map(|(name, test)| (name.to_owned(), test.to_owned()));
                let sorted = query.sort.iter().map(|name| (name.clone(), "sort".to_owned()));
                let all: Vec<(String, String)> = all.chain(sorted).collect();
                let columns: BTreeSet<String> = all.iter().map(|(name, _)| name.clone()).collect();
                undeclared.extend(missing(&columns));
                for (name, test) in all {
                    if let Some(form) = form_of(table.type_of(&name), &test) {
                        searched.insert((name, form));
                    }
                }
                QueryAdvice {
                    path: QueryPath::SearchIndex,
                    index: Some("all".to_owned()),
                    exists: false,
                    estimated_rows: None,
                    reason: match tests.is_free || !tests.other.is_empty() {
                        true => "the query has alternatives, negations, words, patterns or areas".to_owned(),
                        false => format!(
                            "the sample tests {} combinations of columns, for which one search index is cheaper than \
                             secondary indexes",
                            combinations.len()
                        ),
                    },
                }
            }
        };
        result.queries.push(advice);
    }
    if needs_search && !searched.is_empty() {
        let columns = searched
            .into_iter()
            .map(|(column, form)| json!({"column": column, "as": form}));
        let columns: Vec<Value> = columns.collect();
        result
            .create_search_indexes
            .push(json!({"name": "all", "columns": columns}));
    }
    result.undeclared = undeclared.into_iter().collect();
    Ok(result)
}

fn columns_text(equal: &BTreeSet<String>, next: Option<&String>, separator: &str) -> String {
    let all: Vec<&str> = equal.iter().chain(next).map(String::as_str).collect();
    all.join(separator)
}

impl Tests {
    /// Returns all tested columns, each with the name of one of its tests.
    fn columns(&self) -> impl Iterator<Item = (&str, &str)> {
        let equal = self.equal.keys().map(|name| (name.as_str(), "equals"));
        let bounds = self.bounds.keys().map(|name| (name.as_str(), "gte"));
        let other = self
            .other
            .iter()
            .map(|(name, test)| (name.as_str(), test.as_str()));
        equal.chain(bounds).chain(other)
    }

    fn count(&self) -> usize {
        self.equal.len() + self.bounds.len() + self.other.len()
    }
}

fn tests_of(query: &SampleQuery) -> Tests {
    let mut tests = Tests::default();
    let condition = serde_json::to_value(&query.filter).unwrap_or_default();
    collect(&condition, &mut tests);
    tests
}

/// Adds the tests of a condition in its JSON form.
fn collect(condition: &Value, tests: &mut Tests) {
    let Some(members) = condition.as_object() else {
        return;
    };
    for (name, inner) in members {
        match (name.as_str(), inner) {
            ("and", Value::Array(inner)) => inner.iter().for_each(|inner| collect(inner, tests)),
            ("or", Value::Array(inner)) => {
                tests.is_free |= inner.len() > 1;
                inner.iter().for_each(|inner| collect(inner, tests));
            }
            ("not", inner) => {
                tests.is_free = true;
                collect(inner, tests);
            }
            _ => {}
        }
    }
    let Some(column) = members.get("column").and_then(Value::as_str) else {
        return;
    };
    for (name, value) in members.iter().filter(|(name, _)| *name != "column") {
        match (name.as_str(), value) {
            ("equals", value) => {
                tests.equal.insert(column.to_owned(), value.clone());
            }
            ("gt" | "gte" | "lt" | "lte" | "between" | "range", value) => {
                let bounds = tests.bounds.entry(column.to_owned()).or_default();
                bounds.insert(name.clone(), value.clone());
            }
            // Members that only refine a test, such as the distance of `phrase`.
            ("distance" | "edits", _) => {}
            _ => {
                tests.other.insert(column.to_owned(), name.clone());
            }
        }
    }
}

/// Chooses the path of a query.
fn choose(
    engine: &Engine,
    table: &Arc<WideTable>,
    query: &SampleQuery,
    tests: &Tests,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Choice> {
    let layout = table.layout();
    let is_key = layout
        .logical()
        .iter()
        .all(|column| tests.equal.contains_key(&column.name));
    if is_key && !tests.is_free {
        return Ok(Choice::Known(QueryAdvice {
            path: QueryPath::Key,
            index: None,
            exists: true,
            estimated_rows: Some(1),
            reason: "the query tests all key columns for equality".to_owned(),
        }));
    }
    let is_sorted = |layout: &KeyLayout| {
        let free = layout
            .logical()
            .iter()
            .filter(|column| !tests.equal.contains_key(&column.name));
        free.map(|column| &column.name)
            .zip(&query.sort)
            .all(|(own, wanted)| own == wanted)
    };
    if !tests.is_free
        && let Some((rows, used)) = range_of(engine, table, None, tests, is_stopped)?
        && (is_sorted(layout) || rows <= SMALL_ROWS)
    {
        let is_whole = used == tests.count() && is_sorted(layout);
        if is_whole || rows <= SMALL_ROWS {
            return Ok(Choice::Known(QueryAdvice {
                path: if is_whole {
                    QueryPath::KeyRange
                } else {
                    QueryPath::SmallRange
                },
                index: None,
                exists: true,
                estimated_rows: Some(rows),
                reason: match is_whole {
                    true => "the condition is a range of the primary key".to_owned(),
                    false => format!(
                        "a range of the primary key has about {rows} rows, which are few enough to test"
                    ),
                },
            }));
        }
    }
    if !tests.is_free && tests.other.is_empty() {
        // An index of one tier has entries only for some of the times, so it is not used.
        let serves = |index: &&Arc<Index>| index.is_ready() && index.tier().is_all();
        for index in table.indexes().iter().filter(serves) {
            if let Some((rows, used)) = range_of(engine, table, Some(index.name()), tests, is_stopped)?
                && (is_sorted(index.layout()) || rows <= SMALL_ROWS)
                && (used == tests.count() || rows <= SMALL_ROWS)
            {
                return Ok(Choice::Known(QueryAdvice {
                    path: QueryPath::SecondaryIndex,
                    index: Some(index.name().to_owned()),
                    exists: true,
                    estimated_rows: Some(rows),
                    reason: "the first columns of the index are tested".to_owned(),
                }));
            }
        }
    }
    for spec in &table.settings().search_indexes {
        if let Ok(index) = engine.search_index(table, Some(&spec.name))
            && RowMatcher::for_index(engine, table, index.index(), &query.filter).is_ok()
            && query
                .sort
                .iter()
                .all(|name| spec.columns.iter().any(|column| column.column == *name))
        {
            return Ok(Choice::Known(QueryAdvice {
                path: QueryPath::SearchIndex,
                index: Some(spec.name.clone()),
                exists: true,
                estimated_rows: None,
                reason: "the index holds all columns of the query".to_owned(),
            }));
        }
    }
    let is_fixed =
        !tests.is_free && tests.other.is_empty() && tests.bounds.len() <= 1 && query.sort.len() <= 1;
    let next = tests.bounds.keys().next().or(query.sort.first());
    let is_one_order = tests
        .bounds
        .keys()
        .next()
        .is_none_or(|bound| query.sort.iter().all(|name| name == bound));
    Ok(match is_fixed && is_one_order && !tests.equal.is_empty() {
        true => Choice::Fixed(tests.equal.keys().cloned().collect(), next.cloned()),
        false => Choice::Free,
    })
}

/// Returns the estimated number of rows in the range of the key or index that the tests select, and the number of tests
/// that the range uses. Returns `None` if the tests do not restrict the first column, or if the range is not valid.
fn range_of(
    engine: &Engine,
    table: &Arc<WideTable>,
    index: Option<&str>,
    tests: &Tests,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Option<(u64, usize)>> {
    let layout = match index {
        Some(index) => table.index(index)?.layout(),
        None => table.layout(),
    };
    let mut prefix = Map::new();
    let mut range = None;
    for column in layout.logical() {
        if let Some(value) = tests.equal.get(&column.name) {
            prefix.insert(column.name.clone(), value.clone());
            continue;
        }
        range = tests
            .bounds
            .get(&column.name)
            .and_then(|bounds| bounds_of(&column.name, bounds));
        break;
    }
    let used = prefix.len() + usize::from(range.is_some());
    if used == 0 {
        return Ok(None);
    }
    let mut scan = json!({"prefix": prefix});
    if let Some(range) = range {
        scan["range"] = range;
    }
    if let Some(index) = index {
        scan["index"] = index.into();
    }
    let Ok(request) = serde_json::from_value::<ExplainRows>(json!({"scan": scan})) else {
        return Ok(None);
    };
    match explain(engine, table, &request, is_stopped) {
        Ok(explained) if !explained.is_table_scan => Ok(Some((explained.estimated_rows, used))),
        // The range is not valid, for example because a hash prefix needs values of all hashed columns.
        Ok(_) | Err(RowsError::Invalid(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Converts the bounds of a column to the form of a scan; `None` if a bound has no such form.
fn bounds_of(column: &str, tests: &Map<String, Value>) -> Option<Value> {
    let mut range = json!({"column": column});
    for (name, value) in tests {
        match (name.as_str(), value) {
            ("gte", value) => range["from"] = value.clone(),
            ("gt", value) => {
                range["from"] = value.clone();
                range["from_exclusive"] = true.into();
            }
            ("lt", value) => range["to"] = value.clone(),
            ("lte", value) => {
                range["to"] = value.clone();
                range["to_inclusive"] = true.into();
            }
            ("between", Value::Array(ends)) if ends.len() == 2 => {
                range["from"] = ends[0].clone();
                range["to"] = ends[1].clone();
                range["to_inclusive"] = true.into();
            }
            _ => return None,
        }
    }
    Some(range)
}

/// Returns the form of a column in a search index that can evaluate a test; `None` for a column without a declared
/// type.
fn form_of(declared: Option<ColumnType>, test: &str) -> Option<&'static str> {
    Some(match (declared?, test) {
        (ColumnType::String | ColumnType::Json, "text" | "phrase") => "text",
        (ColumnType::Json, "near" | "box" | "polygon") => "geo",
        (ColumnType::I64 | ColumnType::U64 | ColumnType::F64, _) => "number",
        (ColumnType::Timestamp, _) => "time",
        (ColumnType::Bool, _) => "bool",
        (ColumnType::String | ColumnType::Decimal | ColumnType::Binary | ColumnType::Json, _) => "keyword",
    })
}
