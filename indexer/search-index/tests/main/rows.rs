//! Tests of the index over rows: searches find the rows that the condition matcher accepts, and pages equal a sorted
//! list.
//!
//! Random changes, commits and reopenings precede the searches; the condition matcher is tested by its own crate.

mod examples;
mod folders;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::select;
use tideline_condition::geo::meters_between;
use tideline_condition::json::Circle;
use tideline_condition::operators::{
    Between, Compare, Equals, Exists, Fuzzy, In, Near, NotEquals, Phrase, Prefix, Regex, Suffix, Wildcard,
    Words,
};
use tideline_condition::{Condition, ConditionError, Literal, Matcher, Record, Subject, Test, ValueRef};
use tideline_model::{GeoPoint, KeyRange, SearchAnalyzer, SearchLanguage};
use tideline_runtime::MemoryAccount;
use tideline_search_index::rows::{
    PartsShown, RowColumn, RowDocument, RowFacetKey, RowFacetQuery, RowForm, RowIndex, RowMark, RowMetric,
    RowPosition, RowQuery, RowSort, RowSortBy, RowTraits, RowsShown, SHARDS_MAX, ShardSet, Sharding,
    highlights, shard_folder,
};
use tideline_search_index::{SearchError, check_folder};

const HEAP_BYTES: usize = 15_000_000;
const TEXTS: [&str; 13] = [
    "red wines",
    "wining 東京都",
    "京都",
    "reds in 東京 wine",
    "",
    "a",
    "red",
    "Red wine",
    "white wine, dry red",
    "wine red wine",
    "web-1",
    "web-10",
    "Über",
];

/// Value of a cell of the model.
#[derive(Debug, Clone, PartialEq)]
enum Cell {
    Text(String),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Boolean(bool),
    Point(f64, f64),
}

impl Cell {
    fn value(&self) -> ValueRef<'_> {
        match self {
            Self::Text(text) => ValueRef::Text(text),
            Self::Signed(number) => ValueRef::Signed(*number),
            Self::Unsigned(number) => ValueRef::Unsigned(*number),
            Self::Float(number) => ValueRef::Float(*number),
            Self::Boolean(value) => ValueRef::Boolean(*value),
            Self::Point(lat, lon) => ValueRef::Point(GeoPoint::new(*lat, *lon).expect("a point")),
        }
    }
}

/// Columns of the tested index: name, form, and whether a row can have several values.
const COLUMNS: [(&str, RowForm, bool); 11] = [
    ("word", RowForm::Keyword, false),
    ("labels", RowForm::Keyword, true),
    ("title", RowForm::Text(SearchAnalyzer::Words), true),
    (
        "body",
        RowForm::Text(SearchAnalyzer::Language(SearchLanguage::English)),
        true,
    ),
    ("part", RowForm::Text(SearchAnalyzer::Ngram(2)), false),
    ("cjk", RowForm::Text(SearchAnalyzer::Cjk), false),
    ("count", RowForm::Signed, false),
    ("size", RowForm::Unsigned, false),
    ("price", RowForm::Float, true),
    ("open", RowForm::Boolean, false),
    ("place", RowForm::Geo, true),
];

type Cells = Vec<Vec<Cell>>;

#[derive(Debug, Clone)]
struct Row {
    key: Vec<u8>,
    time: i64,
    cells: Cells,
}

impl Row {
    /// Returns the time of the values of a column; `None` if they expire only with the row.
    fn time_of(&self, column: usize) -> Option<i64> {
        let age = (self.key.last().copied().map_or(0, i64::from) + column as i64 * 13) % 60;
        (column > 0 && !self.cells[column].is_empty()).then_some(self.time - age)
    }

    /// Returns the row without its expired cells.
    fn without_expired(&self, shown: RowsShown<'_>) -> Self {
        let mut row = self.clone();
        for (column, cells) in row.cells.iter_mut().enumerate() {
            let has_expired = |time: i64| shown.expired_at.is_some_and(|expired_at| time <= expired_at);
            if self.time_of(column).is_some_and(has_expired) {
                cells.clear();
            }
        }
        row
    }
}

/// Returns the number of the shard of a key.
fn shard_of(key: &[u8], shards: usize) -> usize {
    key.last().map_or(0, |last| usize::from(*last)) % shards
}

fn sharding(shards: usize) -> Sharding {
    Sharding::new(shards, move |key| shard_of(key, shards))
}

/// Returns the number of the part of a key.
fn part_of(key: &[u8]) -> i32 {
    key.get(1).map_or(0, |number| i32::from(*number) / 8 - 2)
}

impl RowDocument for Row {
    fn key(&self) -> &[u8] {
        &self.key
    }

    fn time(&self) -> i64 {
        self.time
    }

    fn part(&self) -> i32 {
        part_of(&self.key)
    }

    fn cell_time(&self, column: usize) -> Option<i64> {
        self.time_of(column)
    }

    fn each_value(&self, column: usize, take: &mut dyn FnMut(ValueRef<'_>)) {
        self.cells[column].iter().for_each(|cell| take(cell.value()));
    }
}

impl Record for Row {
    fn any_value(&self, subject: &Subject, mut take: impl FnMut(ValueRef<'_>) -> bool) -> bool {
        let Subject::Column(name) = subject else {
            return false;
        };
        let column = COLUMNS.iter().position(|(known, ..)| known == name);
        column.is_some_and(|column| self.cells[column].iter().any(|cell| take(cell.value())))
    }
}

fn cell(form: RowForm) -> BoxedStrategy<Cell> {
    match form {
        RowForm::Keyword | RowForm::Text(_) => select(&TEXTS[..])
            .prop_map(|text| Cell::Text(text.to_owned()))
            .boxed(),
        RowForm::Signed => select(vec![i64::MIN, -3, 0, 7, i64::MAX])
            .prop_map(Cell::Signed)
            .boxed(),
        RowForm::Unsigned => select(vec![0, 7, u64::MAX]).prop_map(Cell::Unsigned).boxed(),
        RowForm::Float => select(vec![-0.0, 0.0, 0.5, -3.0, 1e300])
            .prop_map(Cell::Float)
            .boxed(),
        RowForm::Boolean => any::<bool>().prop_map(Cell::Boolean).boxed(),
        RowForm::Geo => (-3..4_i8, -3..4_i8)
            .prop_map(|(lat, lon)| Cell::Point(f64::from(lat) * 29.0, f64::from(lon) * 59.0))
            .boxed(),
    }
}

fn cells() -> impl Strategy<Value = Cells> {
    let columns = COLUMNS.iter().map(|(_, form, has_several)| {
        let most = if *has_several { 3 } else { 1 };
        prop::collection::vec(cell(*form), 0..=most).boxed()
    });
    columns.collect::<Vec<_>>()
}

/// Change of the rows.
#[derive(Debug, Clone)]
enum Change {
    Put(u8, i64, Cells),
    Delete(u8),
    DeleteRange(u8, u8),
    DropParts(i32),
    Commit,
    Reopen,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        12 => (0..40_u8, 0..100_i64, cells()).prop_map(|(key, time, cells)| Change::Put(key, time, cells)),
        3 => (0..40_u8).prop_map(Change::Delete),
        1 => (0..40_u8, 0..40_u8).prop_map(|(from, to)| Change::DeleteRange(from.min(to), from.max(to))),
        1 => (-2..3_i32).prop_map(Change::DropParts),
        3 => Just(Change::Commit),
        1 => Just(Change::Reopen),
    ]
}

/// Selections of parts.
static PARTS: LazyLock<[PartsShown; 3]> = LazyLock::new(|| {
    [
        PartsShown::Only([-1, 1].into()),
        PartsShown::Except([0, 2].into()),
        PartsShown::Only(BTreeSet::new()),
    ]
});

fn shown() -> impl Strategy<Value = RowsShown<'static>> {
    let (expired, first) = (prop::option::of(0..100_i64), prop::option::of(-2..3_i32));
    let parts = prop::option::of(0..PARTS.len());
    let shards = prop::option::of(prop::collection::vec(0..SHARDS_MAX, 0..10));
    (expired, first, parts, shards).prop_map(|(expired_at, first_part, parts, shards)| RowsShown {
        expired_at,
        first_part,
        parts: parts.map(|parts| &PARTS[parts]),
        shards: shards.map_or(ShardSet::ALL, set_of),
    })
}

fn set_of(shards: impl IntoIterator<Item = usize>) -> ShardSet {
    let mut set = ShardSet::EMPTY;
    shards.into_iter().for_each(|shard| set.insert(shard));
    set
}

/// Returns true if searches of an index with this number of shards can find a row.
fn is_shown(row: &Row, shown: RowsShown<'_>, shards: usize) -> bool {
    shown.shards.has(shard_of(&row.key, shards))
        && shown.expired_at.is_none_or(|expired| row.time > expired)
        && shown.first_part.is_none_or(|first| part_of(&row.key) >= first)
        && shown.parts.is_none_or(|parts| match parts {
            PartsShown::Only(numbers) => numbers.contains(&part_of(&row.key)),
            PartsShown::Except(numbers) => !numbers.contains(&part_of(&row.key)),
        })
}

fn number() -> impl Strategy<Value = Literal> {
    prop_oneof![
        select(vec![i64::MIN, -3, 0, 7, i64::MAX]).prop_map(Literal::Signed),
        Just(Literal::Unsigned(u64::MAX)),
        select(vec![-0.0, 0.5, 6.5, 1e300]).prop_map(Literal::Float),
    ]
}

fn text() -> impl Strategy<Value = String> {
    select(&TEXTS[..]).prop_map(str::to_owned)
}

fn comparison(literal: &BoxedStrategy<Literal>) -> BoxedStrategy<Test> {
    let bound = || {
        let literal = literal.clone();
        prop_oneof![
            Just(None),
            literal.clone().prop_map(|literal| Some(Bound::Included(literal))),
            literal.prop_map(|literal| Some(Bound::Excluded(literal))),
        ]
    };
    prop_oneof![
        literal.clone().prop_map(|literal| Equals(literal).into()),
        literal.clone().prop_map(|literal| NotEquals(literal).into()),
        prop::collection::vec(literal.clone(), 0..3).prop_map(|literals| In(literals).into()),
        (literal.clone(), literal.clone()).prop_map(|(from, to)| Between(Box::new([from, to])).into()),
        (bound(), bound()).prop_filter_map("a bound", |(low, high)| {
            (low.is_some() || high.is_some()).then(|| {
                Compare {
                    low: low.unwrap_or(Bound::Unbounded),
                    high: high.unwrap_or(Bound::Unbounded),
                }
                .into()
            })
        }),
    ]
    .boxed()
}

fn test(form: RowForm) -> BoxedStrategy<Test> {
    let exists = any::<bool>().prop_map(|exists| Exists(exists).into());
    let in_empty_list = Just(In(Vec::new()).into());
    let tests: BoxedStrategy<Test> = match form {
        RowForm::Keyword => prop_oneof![
            3 => comparison(&text().prop_map(Literal::Text).boxed()),
            1 => text().prop_map(|text| Prefix(text).into()),
            1 => text().prop_map(|text| Suffix(text).into()),
            1 => select(vec!["*", "*e*", "w?b-*", ""]).prop_map(|glob| Wildcard(glob.into()).into()),
            1 => select(vec!["web-.*", "a|red", ".*", ""]).prop_map(|regex| Regex(regex.into()).into()),
            1 => (select(vec!["wbe-1", "rde", "a"]), 1..3_u8).prop_map(|(text, distance)| {
                Fuzzy { text: text.into(), distance }.into()
            }),
        ]
        .boxed(),
        RowForm::Text(_) => prop_oneof![
            (
                select(vec![
                    "wine", "red WINE", "wines", "東京", "in", "ed wi", "dry", "über", "wnie"
                ]),
                0..2_u8
            )
                .prop_map(|(text, distance)| {
                    Words {
                        text: text.into(),
                        distance,
                    }
                    .into()
                }),
            (
                select(vec!["red wine", "wine red", "wine", "wine red wine", "rde wine"]),
                0..3_u8
            )
                .prop_map(|(text, distance)| Phrase {
                    text: text.into(),
                    distance
                }
                .into()),
        ]
        .boxed(),
        RowForm::Signed | RowForm::Unsigned | RowForm::Float => comparison(&number().boxed()),
        RowForm::Boolean => any::<bool>()
            .prop_map(|value| Equals(Literal::Boolean(value)).into())
            .boxed(),
        RowForm::Geo => (-3..4_i8, -3..4_i8, select(vec![0.0, 1e5, 4e6, 2e7]))
            .prop_map(|(lat, lon, meters)| {
                let (lat, lon) = (f64::from(lat) * 29.0, f64::from(lon) * 59.0);
                Near(Circle { lat, lon, meters }).into()
            })
            .boxed(),
    };
    prop_oneof![12 => tests, 2 => exists, 1 => in_empty_list].boxed()
}

fn condition() -> impl Strategy<Value = Condition> {
    let leaf = (0..COLUMNS.len()).prop_flat_map(|column| {
        let (name, form, _) = COLUMNS[column];
        test(form).prop_map(move |test| Condition::leaf(Subject::Column(name.to_owned()), test))
    });
    leaf.prop_recursive(4, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Condition::And),
            prop::collection::vec(inner.clone(), 0..3).prop_map(Condition::Or),
            inner.prop_map(|inner| Condition::Not(Box::new(inner))),
        ]
    })
}

fn sort() -> impl Strategy<Value = Vec<RowSort>> {
    let sortable = [0, 1, 6, 7, 8, 9];
    let by = prop_oneof![
        6 => select(sortable.to_vec()).prop_map(RowSortBy::Column),
        1 => Just(RowSortBy::Distance(10, GeoPoint::new(29.0, 10.0).expect("a point"))),
    ];
    let key = (by, any::<bool>()).prop_map(|(by, is_descending)| RowSort { by, is_descending });
    prop::collection::vec(key, 0..3)
}

/// Compiles a condition with the analyzers of the columns.
fn compiled(condition: &Condition) -> Result<Matcher, ConditionError> {
    let analyzer_of = |subject: &Subject| {
        let of_column = COLUMNS.iter().find_map(|(name, form, _)| match form {
            RowForm::Text(analyzer) if *subject == Subject::Column((*name).to_owned()) => Some(*analyzer),
            _ => None,
        });
        of_column.unwrap_or_default()
    };
    Matcher::compile_analyzed(condition, &analyzer_of, &MemoryAccount::unlimited(), &|| false)
}

fn columns() -> Vec<RowColumn> {
    let columns = COLUMNS.iter().map(|(name, form, _)| RowColumn {
        name: (*name).to_owned(),
        form: *form,
    });
    columns.collect()
}

/// Sort value of a row in the model, comparable within one column.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
enum Sorted {
    Text(String),
    Integer(i128),
    Float(f64),
}

fn sorted_by(row: &Row, sort: &RowSort) -> Option<Sorted> {
    let (column, from) = match sort.by {
        RowSortBy::Column(column) => (column, None),
        RowSortBy::Distance(column, from) => (column, Some(from)),
    };
    let values = row.cells[column].iter().map(|cell| match (cell, from) {
        (Cell::Point(lat, lon), Some(from)) => {
            Sorted::Float(meters_between(from, GeoPoint::new(*lat, *lon).expect("a point")))
        }
        (Cell::Text(text), _) => Sorted::Text(text.clone()),
        (Cell::Signed(number), _) => Sorted::Integer((*number).into()),
        (Cell::Unsigned(number), _) => Sorted::Integer((*number).into()),
        (Cell::Float(number), _) => Sorted::Float(*number + 0.0),
        (Cell::Boolean(value), _) => Sorted::Integer((*value).into()),
        (Cell::Point(..), None) => unreachable!("points are sorted by distance"),
    });
    // If a row has several values, the first in the sort order counts; of several points, the nearest counts.
    let is_highest = sort.is_descending && from.is_none();
    values.reduce(|one, other| match (one < other) == is_highest {
        true => other,
        false => one,
    })
}

fn order(sort: &[RowSort], one: &Row, other: &Row) -> std::cmp::Ordering {
    for sort in sort {
        let ordering = match (sorted_by(one, sort), sorted_by(other, sort)) {
            (None, None) => std::cmp::Ordering::Equal,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(_), None) => std::cmp::Ordering::Less,
            (Some(one), Some(other)) => {
                let ordering = one.partial_cmp(&other).expect("comparable");
                if sort.is_descending {
                    ordering.reverse()
                } else {
                    ordering
                }
            }
        };
        if ordering.is_ne() {
            return ordering;
        }
    }
    one.key.cmp(&other.key)
}

/// Returns the keys of all pages of a search.
fn all_pages(
    index: &RowIndex,
    matcher: &Matcher,
    sort: &[RowSort],
    limit: usize,
    shown: RowsShown<'_>,
) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut after: Option<RowMark> = None;
    loop {
        let query = RowQuery {
            root: matcher.root(),
            sort,
            after: after.as_ref(),
            limit,
            is_stopped: &|| false,
        };
        let page = index.search(&query, shown).expect("a sound index");
        assert!(page.hits.len() <= limit);
        assert_eq!(page.has_more, keys.len() + page.hits.len() < page.total as usize);
        keys.extend(page.hits.iter().map(|hit| hit.mark.key.clone()));
        let Some(last) = page.hits.last().filter(|_| page.has_more) else {
            return keys;
        };
        // A mark survives its encoding in a page token.
        let encoded = serde_json::to_string(&last.mark).expect("plain data");
        after = Some(serde_json::from_str(&encoded).expect("its own form"));
    }
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(48))]

    #[test]
    fn searches_of_rows_equal_a_naive_filter_and_sort(
        changes in prop::collection::vec(change(), 1..60),
        searches in prop::collection::vec((condition(), sort(), 1..9_usize, shown()), 20),
        cells_expire in any::<bool>(),
        shards in select(vec![1, 1, 2, 3, 5]),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let traits = RowTraits { has_parts: true, cells_expire };
        let open = || {
            let opened = RowIndex::open(folder.path(), columns(), traits, sharding(shards), HEAP_BYTES);
            let (index, position) = opened.expect("a folder");
            if position.is_none() {
                index.clear().expect("a writer");
            }
            (index, position)
        };
        let (mut index, _) = open();
        let mut rows: BTreeMap<Vec<u8>, Row> = BTreeMap::new();
        let mut committed = rows.clone();
        let mut commits = 0;
        for change in changes {
            match change {
                Change::Put(key, time, cells) => {
                    let row = Row { key: vec![b'k', key], time, cells };
                    index.replace(vec![row.key.clone()], vec![index.document(&row)]).expect("a writer");
                    rows.insert(row.key.clone(), row);
                }
                Change::Delete(key) => {
                    index.replace(vec![vec![b'k', key]], Vec::new()).expect("a writer");
                    rows.remove(&vec![b'k', key]);
                }
                Change::DeleteRange(from, to) => {
                    index.delete_range(&KeyRange::new([b'k', from], [b'k', to])).expect("a writer");
                    rows.retain(|key, _| !(from..to).contains(&key[1]));
                }
                Change::DropParts(first) => {
                    index.delete_parts_before(first).expect("a writer");
                    rows.retain(|key, _| part_of(key) >= first);
                }
                Change::Commit => {
                    commits += 1;
                    index.commit(&RowPosition { end: commits, build: None }).expect("a writer");
                    committed = rows.clone();
                }
                Change::Reopen => {
                    // When a process ends, its merges end as well. In this test the process goes on, and merges would
                    // replace files while the index is opened again.
                    index.release_writer().expect("merges end");
                    drop(index);
                    let (opened, position) = open();
                    prop_assert_eq!(position.map_or(0, |position| position.end), commits);
                    index = opened;
                    rows = committed.clone();
                }
            }
        }
        for (condition, sort, limit, shown) in searches {
            // Literals of different kinds, and inverted bounds, are refused.
            let Ok(matcher) = compiled(&condition) else { continue };
            index.check(matcher.root()).expect("every column has the needed form");
            let visible = committed.values().filter(|row| is_shown(row, shown, shards));
            let visible = visible.map(|row| match cells_expire {
                true => row.without_expired(shown),
                false => row.clone(),
            });
            let mut expected: Vec<Row> = visible.filter(|row| matcher.matches(row)).collect();
            expected.sort_by(|one, other| order(&sort, one, other));
            let expected: Vec<Vec<u8>> = expected.iter().map(|row| row.key.clone()).collect();
            let found = all_pages(&index, &matcher, &sort, limit, shown);
            prop_assert_eq!(found, expected, "{:?} {:?}", condition, sort);
        }
    }
}
