//! Random statements must return the same results as a naive model. The model stores rows in a sorted map and evaluates
//! conditions in three-valued logic.
//!
//! Each key design is tested with a separate table. Conditions are random trees over key columns and other columns.
//! Indexes are created and dropped between the statements. The statements therefore use all access paths, and the
//! result must not depend on the path.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Value, json};
use tideline_sql::SqlError;
use tideline_sql::run::read::Extent;
use tideline_testkit::{Random, rounds, seeds};

use crate::support::{Database, Done};

/// Primary keys of the columns a (text), b (integer) and c (integer).
const KEYS: [&str; 7] = [
    "a, b, c",
    "a DESC, b, c DESC",
    "bucket(b, 4), b, a, c",
    "hash_prefix(a, 2), a, b DESC, c",
    "splice(a, pad(b, 2)) DESC, c",
    "reverse(a), bucket_of, b, c",
    "a, hash_prefix(a, 1), c, b",
];

/// Indexes; most of their columns outside of the primary key are n (integer) and s (text).
const INDEXES: [&str; 7] = [
    "(n)",
    "(s, n DESC) INCLUDE (free)",
    "(n DESC, s) INCLUDE ALL",
    "(bucket(n, 3), n)",
    "(hash_prefix(s, 2), s, c)",
    "(reverse(s)) INCLUDE (n)",
    "(s DESC, b, n)",
];

/// Row of the model: its values by column. A column without a value is missing.
type Row = BTreeMap<&'static str, Value>;

const COLUMNS: [&str; 6] = ["a", "b", "c", "n", "s", "free"];

fn is_text(column: &str) -> bool {
    matches!(column, "a" | "s")
}

fn value(random: &mut Random, column: &str) -> Value {
    match is_text(column) {
        true => json!(random.of(&["x", "xy", "y", "z"])),
        false => json!(random.below(5)),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => format!("'{text}'"),
        other => other.to_string(),
    }
}

/// Condition of the model.
enum Condition {
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
    Compare(&'static str, &'static str, Value),
    In(&'static str, Vec<Value>),
    Between(&'static str, Value, Value),
    Like(&'static str, String),
    IsNull(&'static str),
}

impl Condition {
    fn random(random: &mut Random, depth: u64) -> Self {
        let inner = |random: &mut Random| {
            (0..2 + random.below(2))
                .map(|_| Self::random(random, depth - 1))
                .collect()
        };
        match random.below(if depth == 0 { 6 } else { 10 }) {
            0 => {
                let column = random.of(&COLUMNS);
                Self::In(
                    column,
                    (0..1 + random.below(3)).map(|_| value(random, column)).collect(),
                )
            }
            1 => {
                let column = random.of(&COLUMNS);
                Self::Between(column, value(random, column), value(random, column))
            }
            2 => Self::Like(
                random.of(&["a", "s"]),
                random.of(&["x%", "%", "xy%", "x"]).to_owned(),
            ),
            3 => Self::IsNull(random.of(&COLUMNS)),
            4 | 5 => {
                let column = random.of(&COLUMNS);
                Self::Compare(
                    column,
                    random.of(&["=", "<>", "<", "<=", ">", ">="]),
                    value(random, column),
                )
            }
            6 | 7 => Self::And(inner(random)),
            8 => Self::Or(inner(random)),
            _ => Self::Not(Box::new(Self::random(random, depth - 1))),
        }
    }

    /// Returns a random condition that is likely to select keys or ranges.
    fn of_key(random: &mut Random) -> Self {
        let mut all = Vec::new();
        for column in ["a", "b", "c"] {
            match random.below(5) {
                0 | 1 => all.push(Self::Compare(column, "=", value(random, column))),
                2 => all.push(Self::In(column, (0..2).map(|_| value(random, column)).collect())),
                3 => all.push(Self::Compare(
                    column,
                    random.of(&["<", "<=", ">", ">="]),
                    value(random, column),
                )),
                _ => {}
            }
        }
        if all.is_empty() || random.is(40) {
            all.push(Self::random(random, 1));
        }
        Self::And(all)
    }

    fn text(&self) -> String {
        let join = |list: &[Self], word: &str| {
            let texts: Vec<String> = list.iter().map(Self::text).collect();
            format!("({})", texts.join(word))
        };
        match self {
            Self::And(list) => join(list, " AND "),
            Self::Or(list) => join(list, " OR "),
            Self::Not(inner) => format!("NOT ({})", inner.text()),
            Self::Compare(column, operator, value) => format!("{column} {operator} {}", text(value)),
            Self::In(column, values) => {
                let values: Vec<String> = values.iter().map(text).collect();
                format!("{column} IN ({})", values.join(", "))
            }
            Self::Between(column, low, high) => format!("{column} BETWEEN {} AND {}", text(low), text(high)),
            Self::Like(column, pattern) => format!("{column} LIKE '{pattern}'"),
            Self::IsNull(column) => format!("{column} IS NULL"),
        }
    }

    /// Returns whether the condition is true; `None` if this is unknown.
    fn truth(&self, row: &Row) -> Option<bool> {
        let order = |column: &str, value: &Value| Some(compare(row.get(column)?, value));
        match self {
            Self::And(list) => decided(list, row, false),
            Self::Or(list) => decided(list, row, true),
            Self::Not(inner) => inner.truth(row).map(|truth| !truth),
            Self::Compare(column, operator, value) => order(column, value).map(|order| match *operator {
                "=" => order.is_eq(),
                "<>" => order.is_ne(),
                "<" => order.is_lt(),
                "<=" => order.is_le(),
                ">" => order.is_gt(),
                _ => order.is_ge(),
            }),
            Self::In(column, values) => {
                let found = row.get(column)?;
                Some(values.iter().any(|value| compare(found, value).is_eq()))
            }
            Self::Between(column, low, high) => {
                Some(order(column, low)?.is_ge() && order(column, high)?.is_le())
            }
            Self::Like(column, pattern) => {
                let text = row.get(column)?.as_str()?;
                Some(match pattern.strip_suffix('%') {
                    Some(prefix) => text.starts_with(prefix),
                    None => text == pattern,
                })
            }
            Self::IsNull(column) => Some(!row.contains_key(column)),
        }
    }

    fn holds(&self, row: &Row) -> bool {
        self.truth(row) == Some(true)
    }
}

/// Returns whether a list of conditions is true, under three-valued logic. One condition with the value `decisive`
/// decides the result: false for `AND`, true for `OR`.
fn decided(list: &[Condition], row: &Row, decisive: bool) -> Option<bool> {
    let truths: Vec<Option<bool>> = list.iter().map(|inner| inner.truth(row)).collect();
    match truths.contains(&Some(decisive)) {
        true => Some(decisive),
        false if truths.contains(&None) => None,
        false => Some(!decisive),
    }
}

fn compare(one: &Value, other: &Value) -> Ordering {
    match (one.as_str(), other.as_str()) {
        (Some(one), Some(other)) => one.cmp(other),
        _ => one.as_i64().cmp(&other.as_i64()),
    }
}

/// Key of a row in the model.
fn key_of(row: &Row) -> [String; 3] {
    ["a", "b", "c"].map(|column| row[column].to_string())
}

struct Model {
    database: Database,
    rows: BTreeMap<[String; 3], Row>,
}

impl Model {
    fn new(key: &str) -> Self {
        let database = Database::new();
        let key = key.replace(" bucket_of,", "");
        database.succeed(&format!(
            "CREATE TABLE t (a VARCHAR, b BIGINT, c BIGINT, n BIGINT, s VARCHAR, PRIMARY KEY ({key}))"
        ));
        Self {
            database,
            rows: BTreeMap::new(),
        }
    }

    fn upsert(&mut self, random: &mut Random) {
        let others: Vec<&'static str> = ["n", "s", "free"].into_iter().filter(|_| random.is(60)).collect();
        let columns: Vec<&'static str> = ["a", "b", "c"].into_iter().chain(others).collect();
        let mut texts = Vec::new();
        for _ in 0..1 + random.below(3) {
            let values: Vec<Value> = columns
                .iter()
                .map(
                    |column| match matches!(*column, "n" | "s" | "free") && random.is(15) {
                        true => Value::Null,
                        false => value(random, column),
                    },
                )
                .collect();
            let listed: Vec<String> = values.iter().map(text).collect();
            texts.push(format!("({})", listed.join(", ")));
            let given: Row = columns.iter().copied().zip(values).collect();
            let row = self.rows.entry(key_of(&given)).or_default();
            for (column, value) in given {
                match value {
                    Value::Null => row.remove(column),
                    value => row.insert(column, value),
                };
            }
        }
        let word = random.of(&["UPSERT", "INSERT"]);
        self.database.succeed(&format!(
            "{word} INTO t ({}) VALUES {}",
            columns.join(", "),
            texts.join(", ")
        ));
    }

    fn update(&mut self, random: &mut Random) {
        let keys: Row = ["a", "b", "c"]
            .into_iter()
            .map(|column| (column, value(random, column)))
            .collect();
        let more = random.is(50).then(|| Condition::random(random, 1));
        let by = random.below(7) as i64 - 3;
        let set = value(random, "s");
        let condition = keys
            .iter()
            .map(|(column, value)| format!("{column} = {}", text(value)));
        let mut condition: Vec<String> = condition.collect();
        condition.extend(more.as_ref().map(Condition::text));
        let statement = format!(
            "UPDATE t SET n = n + {by}, s = {}, free = NULL WHERE {}",
            text(&set),
            condition.join(" AND ")
        );
        let row = self.rows.get_mut(&key_of(&keys));
        let row = row.filter(|row| more.as_ref().is_none_or(|more| more.holds(row)));
        let done = self
            .database
            .run(&statement)
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
        let Done::Written(counts) = done else {
            panic!("{statement}: {done:?}")
        };
        assert_eq!(counts.written, u64::from(row.is_some()), "{statement}");
        if let Some(row) = row {
            let sum = row.get("n").and_then(Value::as_i64).unwrap_or(0) + by;
            row.insert("n", json!(sum));
            row.insert("s", set);
            row.remove("free");
        }
    }

    /// Drops an index and creates another one with the same name.
    fn index(&self, random: &mut Random) {
        let name = random.of(&["i", "j"]);
        let (scope, index) = (random.of(&["", "LOCAL "]), random.of(&INDEXES));
        self.database
            .succeed(&format!("DROP INDEX IF EXISTS {name} ON t"));
        match self
            .database
            .run(&format!("CREATE {scope}INDEX {name} ON t {index}"))
        {
            Ok(_) => self.database.build_indexes(),
            // The key of a local index begins with the partition columns. It can therefore neither list one of them
            // again nor begin with a bucket, so some of these indexes are refused.
            Err(_) if !scope.is_empty() => {}
            Err(error) => panic!("CREATE INDEX {name} ON t {index}: {error}"),
        }
    }

    fn delete(&mut self, random: &mut Random) {
        let condition = Condition::of_key(random);
        let statement = format!("DELETE FROM t WHERE {}", condition.text());
        match self.database.run(&statement) {
            Ok(_) => self.rows.retain(|_, row| !condition.holds(row)),
            Err(SqlError::Refused { .. }) => {}
            Err(error) => panic!("{statement}: {error}"),
        }
    }

    /// Compares the groups of a statement with the groups of the expected rows.
    fn groups(&self, random: &mut Random, expected: &[&Row], from: &str) {
        let key = random.of(&["a", "b", "n"]);
        let statement = format!(
            "SELECT /*+ ALLOW_SCAN */ COUNT(*) AS amount, {key}, SUM(n) AS total, MAX(n) AS highest {from} GROUP BY {key}"
        );
        let mut groups: BTreeMap<String, (u64, Option<i64>, Option<i64>)> = BTreeMap::new();
        for row in expected {
            let value = row.get(key).cloned().unwrap_or_default();
            let group = groups.entry(value.to_string()).or_default();
            group.0 += 1;
            if let Some(n) = row.get("n").and_then(Value::as_i64) {
                group.1 = Some(group.1.unwrap_or(0) + n);
                group.2 = group.2.max(Some(n));
            }
        }
        let rows = self.database.rows(&statement).into_iter();
        let found: BTreeMap<String, (u64, Option<i64>, Option<i64>)> = rows
            .map(|row| {
                let amount = row["amount"].as_u64().expect("a count");
                (
                    row[key].to_string(),
                    (amount, row["total"].as_i64(), row["highest"].as_i64()),
                )
            })
            .collect();
        assert_eq!(found, groups, "{statement}");
    }

    fn select(&self, random: &mut Random) {
        let condition = match random.is(60) {
            true => Condition::of_key(random),
            false => Condition::random(random, 3),
        };
        let expected: Vec<&Row> = self.rows.values().filter(|row| condition.holds(row)).collect();
        let from = format!("FROM t WHERE {}", condition.text());
        let counted = self
            .database
            .rows(&format!("SELECT /*+ ALLOW_SCAN */ COUNT(*) {from}"));
        assert_eq!(counted, [json!({"count": expected.len()})], "{from}");
        self.groups(random, &expected, &from);
        let order: Vec<(&str, bool)> = (0..random.below(4))
            .map(|_| (random.of(&["a", "b", "c", "n"]), random.is(50)))
            .collect();
        let items: Vec<String> = order
            .iter()
            .map(|(column, down)| format!("{column} {}", if *down { "DESC" } else { "ASC" }))
            .collect();
        let by = if order.is_empty() {
            String::new()
        } else {
            format!(" ORDER BY {}", items.join(", "))
        };
        let limit = random.is(30).then(|| 1 + random.below(8));
        let limit_text = limit.map_or_else(String::new, |limit| format!(" LIMIT {limit}"));
        let statement = format!("SELECT /*+ ALLOW_SCAN */ * {from}{by}{limit_text}");
        let rows = match self.database.run(&statement) {
            Ok(Done::Rows(rows, _)) => rows,
            // No access path has this order. Without `ORDER BY`, the statement must succeed.
            Err(SqlError::Refused { .. }) if !order.is_empty() => {
                self.database.rows(&format!("SELECT /*+ ALLOW_SCAN */ * {from}"));
                return;
            }
            other => panic!("{statement}: {other:?}"),
        };
        let before = |one: &Value, other: &Value| {
            let orders = order.iter().map(|(column, down)| {
                let order = compare(&one[column], &other[column]);
                if *down { order.reverse() } else { order }
            });
            orders.fold(Ordering::Equal, Ordering::then)
        };
        assert!(
            rows.windows(2).all(|pair| before(&pair[0], &pair[1]).is_le()),
            "{statement}: {rows:?}"
        );
        let wanted = limit.map_or(expected.len(), |limit| expected.len().min(limit as usize));
        assert_eq!(rows.len(), wanted, "{statement}");
        let mut all: Vec<Value> = expected.iter().map(|row| json!(row)).collect();
        // With a limit, the returned rows must be the first rows in the order.
        if let (Some(last), true) = (rows.last(), !order.is_empty()) {
            let fewer = all.iter().filter(|row| before(row, last).is_lt()).count();
            assert!(fewer <= rows.len(), "{statement}: {rows:?}");
        }
        for row in &rows {
            let place = all.iter().position(|other| other == row);
            all.remove(place.unwrap_or_else(|| {
                panic!(
                    "{statement}: {row} is not expected once; of the model: {:?}",
                    self.rows
                        .get(&["a", "b", "c"].map(|column| row[column].to_string()))
                )
            }));
        }
    }
}

#[test]
fn random_statements_give_the_results_of_the_model() {
    for (seed, key) in
        seeds("random_statements", rounds("TIDELINE_SQL_ROUNDS", 21, 300) as u64).zip(KEYS.iter().cycle())
    {
        let mut random = Random::new(seed);
        let mut model = Model::new(key);
        println!("PRIMARY KEY ({key}), seed {seed}");
        for _ in 0..150 {
            match random.below(11) {
                10 => model.index(&mut random),
                0..=3 => model.upsert(&mut random),
                4 => model.update(&mut random),
                5 => model.delete(&mut random),
                _ => model.select(&mut random),
            }
        }
    }
}

#[test]
fn pages_are_the_whole_result() {
    let database = Database::new();
    database.succeed("CREATE TABLE t (a BIGINT, b VARCHAR, PRIMARY KEY (bucket(a, 8), a))");
    let values: Vec<String> = (0..2_500).map(|a| format!("({a}, 'v{}')", a % 3)).collect();
    database.succeed(&format!("UPSERT INTO t (a, b) VALUES {}", values.join(", ")));
    let pages = |statement: &str, parameters: &[Value]| {
        let (mut rows, mut token, mut count) = (Vec::new(), None::<String>, 0);
        loop {
            let done = database.run_with(statement, parameters, Extent::Page(token.as_deref()));
            let Ok(Done::Rows(page, end)) = done else {
                panic!("{statement}: {done:?}")
            };
            assert_eq!(end.returned, page.len() as u64);
            rows.extend(page);
            count += 1;
            match end.next {
                Some(next) => token = Some(next),
                None => return (rows, count),
            }
        }
    };
    let (rows, count) = pages("SELECT a FROM t WHERE a >= ? ORDER BY a DESC", &[json!(100)]);
    let expected: Vec<Value> = (100..2_500).rev().map(|a| json!({"a": a})).collect();
    assert_eq!((rows, count), (expected, 3));
    let (rows, count) = pages("SELECT a FROM t WHERE a >= 0 AND b = 'v1' LIMIT 600", &[]);
    assert_eq!((rows.len(), count), (600, 1));
    let (rows, count) = pages("SELECT a FROM t WHERE a >= 0 LIMIT 1500", &[]);
    assert_eq!(
        (rows.len(), count, &rows[1_499]),
        (1_500, 2, &json!({"a": 1_499}))
    );
    let (rows, _) = pages("SELECT COUNT(*) FROM t WHERE a > 10 AND a < 20", &[]);
    assert_eq!(rows, [json!({"count": 9})]);

    let first = database.run_with("SELECT a FROM t WHERE a >= 1", &[], Extent::Page(None));
    let Ok(Done::Rows(_, end)) = first else {
        panic!("{first:?}")
    };
    let token = end.next.expect("more rows follow");
    for other in [
        "SELECT a FROM t WHERE a >= 2",
        "SELECT a, b FROM t WHERE a >= 1",
        "SELECT a FROM t WHERE a IN (1)",
    ] {
        let refused = database.run_with(other, &[], Extent::Page(Some(&token)));
        let error = refused.expect_err("a token fits one statement").to_string();
        assert!(error.contains("page_token"), "{other}: {error}");
    }
}

#[test]
fn rows_of_a_statement_are_independent_unless_it_must_fail() {
    let database = Database::new();
    database.succeed("CREATE TABLE t (a BIGINT, b BIGINT, n BIGINT, PRIMARY KEY (a, b))");
    database.succeed("UPSERT INTO t (a, b, n) VALUES (1, 1, 1), (1, 2, 2), (1, 3, 3)");
    let counts = |statement: &str| match database.run(statement) {
        Ok(Done::Written(counts)) => [counts.written, counts.condition_failed, counts.not_applied],
        other => panic!("{statement}: {other:?}"),
    };
    // All rows are in one partition, but each row is updated independently of the others.
    assert_eq!(
        counts("UPDATE t SET n = n + 10 WHERE a = 1 AND b IN (1, 2, 3, 4) AND n >= 2"),
        [2, 2, 0]
    );
    assert_eq!(
        counts("INSERT INTO t (a, b) VALUES (1, 3), (1, 5), (1, 5), (2, 1) ON DUPLICATE KEY IGNORE"),
        [2, 2, 0]
    );
    assert_eq!(
        counts("INSERT INTO t (a, b) VALUES (1, 3), (1, 6), (3, 1) ON DUPLICATE KEY ERROR"),
        [1, 1, 1]
    );
    assert_eq!(
        counts("DELETE FROM t WHERE a = 1 AND b IN (1, 2, 3) AND n > 10"),
        [2, 1, 0]
    );
    let rows = database.rows("SELECT /*+ ALLOW_SCAN */ * FROM t");
    let expected = [
        json!({"a": 1, "b": 1, "n": 1}),
        json!({"a": 1, "b": 5}),
        json!({"a": 2, "b": 1}),
        json!({"a": 3, "b": 1}),
    ];
    assert_eq!(rows, expected);
}
