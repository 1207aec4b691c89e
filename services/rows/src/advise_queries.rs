//! Advice on the access paths of a sample of queries. A path is a range of the primary key, a small range whose rows
//! are tested, a secondary index for a fixed combination of columns, or a search index for free combinations.
//!
//! 1. A query is a range if it tests the first key columns for equality and the next one by bounds. The number of its
//!    rows is estimated as in [`explain`](crate::explain).
//! 2. If the range is small, the further tests of the query are applied to its rows.
//! 3. Otherwise, an index is used if its first columns are tested. If no index fits, one is advised. A secondary index
//!    is advised for queries with one combination of equalities and one range. A search index is advised for
//!    alternatives, words, patterns or areas, or if the sample has more than [`FIXED_MAX`] combinations.
//!
//! | module | holds |
//! |---|---|
//! | `missing` | definitions of the advised indexes |

mod missing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tideline_engine::indexes::Index;
use tideline_engine::key_codec::layout::KeyLayout;
use tideline_engine::key_codec::tuple::KEY_COLUMNS_MAX;
use tideline_engine::model::ColumnType;
use tideline_engine::row_search::{RowColumn, RowForm};
use tideline_engine::{Engine, WideTable};
use tideline_openapi::row_advice::{AdviseQueries, QueriesAdvised, QueryAdvice, QueryPath, SampleQuery};
use tideline_openapi::row_explain::ExplainRows;

use self::missing::{Forms, SearchIndex, SecondaryIndexes, add_sorted, add_tested, is_rising};
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
    /// Columns with other tests.
    other: BTreeSet<String>,
    /// True if the query has alternatives or negations.
    is_free: bool,
}

/// Path of a query, before the missing indexes are chosen.
enum Choice {
    Known(QueryAdvice),
    /// Key columns of a secondary index: those tested for equality, and the column of the range or of the order.
    Fixed(Vec<String>),
    Free,
}

/// Query of the sample, before the missing indexes are chosen.
struct Sample {
    choice: Choice,
    /// Columns of the query in a search index.
    forms: Forms,
    /// True if the query has alternatives, negations, words, patterns or areas.
    has_other_tests: bool,
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
    let mut samples = Vec::with_capacity(count);
    for query in &request.queries {
        if is_stopped() {
            return Err(RowsError::Cancelled);
        }
        let matcher = RowMatcher::new(engine, table, &query.filter)?;
        let mut forms = Forms::new();
        add_tested(table, matcher.root(), &mut forms);
        add_sorted(table, &query.sort, &mut forms);
        let tests = tests_of(query);
        let choice = choose(engine, table, query, &tests, is_stopped)?;
        samples.push(Sample {
            choice,
            forms,
            has_other_tests: tests.is_free || !tests.other.is_empty(),
        });
    }
    Ok(with_missing_indexes(engine, table, samples))
}

/// Returns the advice on the queries, and the definitions of the missing indexes.
fn with_missing_indexes(engine: &Engine, table: &WideTable, samples: Vec<Sample>) -> QueriesAdvised {
    let combinations: BTreeSet<Vec<String>> = samples
        .iter()
        .filter_map(|sample| match &sample.choice {
            Choice::Fixed(key) => Some(key.clone()),
            _ => None,
        })
        .collect();
    let prefers_search = combinations.len() > FIXED_MAX;
    let mut forms = Forms::new();
    for sample in &samples {
        match &sample.choice {
            Choice::Fixed(_) if !prefers_search => {}
            Choice::Fixed(_) | Choice::Free => forms.extend(sample.forms.iter().cloned()),
            Choice::Known(_) => {}
        }
    }
    let has_room = engine.room_for_search_indexes(table) > 0;
    let search = (!forms.is_empty()).then(|| SearchIndex::new(table, &forms, has_room));
    let undeclared = forms.iter().filter(|(_, form)| form.is_none());
    let mut undeclared: BTreeSet<String> = undeclared.map(|(name, _)| name.clone()).collect();
    let mut secondary = SecondaryIndexes::new(engine.room_for_indexes(table));
    let mut queries = Vec::with_capacity(samples.len());
    for sample in samples {
        queries.push(match sample.choice {
            Choice::Known(advice) => advice,
            Choice::Fixed(key) if !prefers_search => {
                undeclared.extend(key.iter().filter(|name| table.type_of(name).is_none()).cloned());
                let index = secondary.add(table, &key);
                let reason = format!(
                    "the query tests a fixed combination of columns ({})",
                    key.join(", ")
                );
                QueryAdvice {
                    path: QueryPath::SecondaryIndex,
                    reason: with_room(reason, index.is_some(), "indexes"),
                    index,
                    exists: false,
                    estimated_rows: None,
                }
            }
            Choice::Fixed(_) | Choice::Free => {
                let reason = match (sample.has_other_tests, prefers_search) {
                    (true, _) => "the query has alternatives, negations, words, patterns or areas".to_owned(),
                    (false, true) => format!(
                        "the sample tests {} combinations of columns, for which one search index is cheaper than \
                         secondary indexes",
                        combinations.len()
                    ),
                    (false, false) => format!(
                        "a secondary index needs equalities with at most one range or order, and at most \
                         {KEY_COLUMNS_MAX} columns, none of the type f64 or json"
                    ),
                };
                let is_full = search.as_ref().is_some_and(|search| search.name.is_none());
                QueryAdvice {
                    path: QueryPath::SearchIndex,
                    index: search.as_ref().and_then(|search| search.name.clone()),
                    exists: false,
                    estimated_rows: None,
                    reason: with_room(reason, !is_full, "search indexes"),
                }
            }
        });
    }
    QueriesAdvised {
        queries,
        create_indexes: secondary.definitions,
        create_search_indexes: search.and_then(|search| search.definition).into_iter().collect(),
        undeclared: undeclared.into_iter().collect(),
        request_id: String::new(),
    }
}

/// Completes the reason of an advised index: without room, the table must lose another index first.
fn with_room(reason: String, has_room: bool, kind: &str) -> String {
    match has_room {
        true => reason,
        false => format!("{reason}; the table has the maximum number of {kind}, so drop another one first"),
    }
}

impl Tests {
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
                tests.other.insert(column.to_owned());
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
            // An index of one tier has documents only for some of the times, so it is not used.
            && index.tier().is_all()
            && RowMatcher::for_index(engine, table, index.index(), &query.filter).is_ok()
            && query
                .sort
                .iter()
                .all(|name| index.index().columns().iter().any(|column| sorts_by(column, name)))
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
    let is_simple = !tests.is_free && tests.other.is_empty() && !tests.equal.is_empty();
    let key = is_simple.then(|| fixed_key(table, query, tests)).flatten();
    Ok(key.map_or(Choice::Free, Choice::Fixed))
}

/// Returns true if searches can sort by a column of an index, and the column has this name.
fn sorts_by(column: &RowColumn, name: &str) -> bool {
    column.name == name && !matches!(column.form, RowForm::Text(_) | RowForm::Geo)
}

/// Returns the key columns of a secondary index that serves a query of equalities, and of one range or order; `None` if
/// there is no such index.
fn fixed_key(table: &WideTable, query: &SampleQuery, tests: &Tests) -> Option<Vec<String>> {
    // The values of columns that are tested for equality do not affect the order.
    let mut others: BTreeSet<&String> = tests.bounds.keys().collect();
    others.extend(&query.sort);
    others.retain(|name| !tests.equal.contains_key(*name));
    let mut key: Vec<String> = tests.equal.keys().cloned().collect();
    key.sort_by_key(|name| is_rising(table, name));
    key.extend(others.iter().map(|name| (*name).clone()));
    let has_key_type = |name: &String| {
        let column_type = table.type_of(name);
        !matches!(column_type, Some(ColumnType::F64 | ColumnType::Json))
    };
    (others.len() <= 1 && key.len() <= KEY_COLUMNS_MAX && key.iter().all(has_key_type)).then_some(key)
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
