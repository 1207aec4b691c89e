//! Tests of `SELECT` with functions, `GROUP BY` and `TIME_WINDOW`.
//!
//! The tests of `tideline-rows` compare the functions with a naive model. The random statements of `model.rs` also use
//! groups.

use serde_json::{Value, json};

use crate::support::Database;

fn database() -> Database {
    let database = Database::new();
    database.succeed(
        "CREATE TABLE t (shop VARCHAR, at TIMESTAMP, total DECIMAL, items BIGINT, note VARCHAR, PRIMARY KEY (shop, at))",
    );
    database.succeed(
        "UPSERT INTO t (shop, at, total, items, note) VALUES \
         ('north', '2026-10-31 22:30:00', 5.30, 2, 'a'), ('north', '2026-10-31 23:30:00', 0.05, 1, 'a'), \
         ('north', '2026-11-20 12:00:00', 12, 7, 'b'), ('south', '2026-11-20 12:00:00', NULL, 3, NULL)",
    );
    database
}

#[test]
fn rows_are_grouped_by_columns_and_windows() {
    let database = database();
    let rows = |statement: &str| -> Vec<Value> { database.rows(statement) };
    assert_eq!(
        rows("SELECT /*+ ALLOW_SCAN */ shop, COUNT(*), SUM(total), AVG(items) AS mean FROM t GROUP BY shop"),
        [
            json!({"shop": "north", "count": 3, "sum(total)": "17.35", "mean": 10.0 / 3.0}),
            json!({"shop": "south", "count": 1, "sum(total)": null, "mean": 3.0}),
        ]
    );
    // Without GROUP BY, all rows form one group, even if there are no rows.
    assert_eq!(
        rows("SELECT COUNT(*) AS n, COUNT(total) AS m, MAX(at) AS last FROM t WHERE shop = 'none'"),
        [json!({"n": 0, "m": 0, "last": null})]
    );
    assert_eq!(
        rows(
            "SELECT COUNT(DISTINCT note) AS notes, PERCENTILE(items, 50) AS p50, SPREAD(items) AS spread, \
              MODE(note) AS mode, FIRST(items) AS first, LAST(items) AS last, STDDEV_POP(items) AS deviation \
              FROM t WHERE shop = 'north' AND at IN ('2026-10-31 22:30:00', '2026-10-31 23:30:00')"
        ),
        [json!({"notes": 1, "p50": 1.5, "spread": 1, "mode": "a", "first": 2, "last": 1, "deviation": 0.5})]
    );
    let months = "SELECT TIME_WINDOW('1mo', at, 'Europe/Berlin') AS month, note, SUM(total) AS total FROM t \
                  WHERE shop = 'north' GROUP BY month, note";
    let expected = [
        json!({"month": "2026-09-30T22:00:00Z", "note": "a", "total": "5.3"}),
        json!({"month": "2026-10-31T23:00:00Z", "note": "a", "total": "0.05"}),
        json!({"month": "2026-10-31T23:00:00Z", "note": "b", "total": "12"}),
    ];
    assert_eq!(rows(months), expected);
    let spelled = "SELECT TIME_WINDOW('1mo', at, 'Europe/Berlin') AS month, note, SUM(total) AS total FROM t \
                   WHERE shop = 'north' GROUP BY TIME_WINDOW('1mo', at, 'Europe/Berlin'), note LIMIT 2";
    assert_eq!(rows(spelled), expected[..2]);
    // The groups are formed by a key that is not a result column.
    assert_eq!(
        rows("SELECT /*+ ALLOW_SCAN */ COUNT(*) AS n FROM t GROUP BY note").len(),
        3
    );
}

#[test]
fn statements_with_groups_that_make_no_sense_are_refused() {
    let database = database();
    for (statement, said) in [
        (
            "SELECT shop, COUNT(*) FROM t WHERE shop = 'a'",
            "add it to GROUP BY",
        ),
        (
            "SELECT note, shop FROM t WHERE shop = 'a' GROUP BY shop",
            "\"note\" is neither in GROUP BY",
        ),
        (
            "SELECT * FROM t WHERE shop = 'a' GROUP BY shop",
            "SELECT * has no groups",
        ),
        (
            "SELECT shop FROM t WHERE shop = 'a' GROUP BY COUNT(*)",
            "cannot be its key",
        ),
        (
            "SELECT TIME_WINDOW('1x', at) AS w FROM t WHERE shop = 'a' GROUP BY w",
            "the width is a text such as",
        ),
        (
            "SELECT TIME_WINDOW(at) AS w FROM t WHERE shop = 'a' GROUP BY w",
            "expected a width, a column",
        ),
        (
            "SELECT TIME_WINDOW('1d', items) AS w FROM t WHERE shop = 'a' GROUP BY w",
            "only columns of timestamps",
        ),
        (
            "SELECT TIME_WINDOW('1d', at, 'Mars') AS w FROM t WHERE shop = 'a' GROUP BY w",
            "not a valid time zone",
        ),
        ("SELECT SUM(note) FROM t WHERE shop = 'a'", "which has no sum"),
        (
            "SELECT SUM(other) FROM t WHERE shop = 'a'",
            "neither declared nor part of the key",
        ),
        (
            "SELECT PERCENTILE(items) FROM t WHERE shop = 'a'",
            "a number from 0 to 100",
        ),
        (
            "SELECT PERCENTILE(items, 101) FROM t WHERE shop = 'a'",
            "0 to 100",
        ),
        (
            "SELECT COUNT(*), COUNT(*) FROM t WHERE shop = 'a'",
            "two result columns have the name",
        ),
        ("SELECT shop, COUNT(*) FROM t GROUP BY shop", "Three ways out"),
    ] {
        let error = database.run(statement).expect_err(statement).to_string();
        assert!(error.contains(said), "{statement}: {error}");
    }
}
