//! Tests of refused statements: each error contains the reason and a remedy.
//!
//! Each test lists statements, each with a part of the expected message. The kind of the error is also checked, because
//! it determines the HTTP status.

use tideline_sql::{SqlError, parse};

use crate::support::Database;

/// Kinds of errors.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Invalid,
    Refused,
    OverLimit,
    Rows,
}

fn kind(error: &SqlError) -> Kind {
    match error {
        SqlError::Invalid { .. } => Kind::Invalid,
        SqlError::Refused { .. } => Kind::Refused,
        SqlError::OverLimit { .. } => Kind::OverLimit,
        SqlError::Rows(_) => Kind::Rows,
    }
}

#[test]
fn statements_without_a_plan_are_refused_by_name() {
    let database = Database::new();
    database.succeed("CREATE TABLE t (a BIGINT, b VARCHAR, n BIGINT, j JSON, PRIMARY KEY (a, b))");
    database.succeed("CREATE TABLE s (a VARCHAR, PRIMARY KEY (a))");
    for (statement, said) in [
        (
            "SELECT * FROM t JOIN u ON t.a = u.a WHERE a = 1",
            "JOIN is not evaluated",
        ),
        ("SELECT * FROM t, u WHERE a = 1", "JOIN is not evaluated"),
        (
            "SELECT a FROM t WHERE a = 1 GROUP BY a ORDER BY a",
            "in the order of the values of GROUP BY; omit ORDER BY",
        ),
        ("SELECT SUM(n + 1) FROM t WHERE a = 1", "SUM needs one column"),
        (
            "SELECT UPPER(b) FROM t WHERE a = 1",
            "the function UPPER is not evaluated",
        ),
        ("SELECT a FROM t WHERE a = 1 HAVING a > 1", "HAVING"),
        (
            "SELECT a FROM t WHERE a = 1 UNION SELECT a FROM t WHERE a = 2",
            "combination of several SELECT",
        ),
        ("SELECT DISTINCT n FROM t WHERE a = 1", "DISTINCT"),
        (
            "SELECT COUNT(*) FROM t WHERE a = 1 LIMIT 3",
            "omit ORDER BY and LIMIT",
        ),
        ("SELECT n + 1 FROM t WHERE a = 1", "arithmetic is not evaluated"),
        (
            "SELECT * FROM t WHERE a = (SELECT 1)",
            "subqueries are not evaluated",
        ),
        ("SELECT * FROM t WHERE a IN (SELECT 1)", "subquery"),
        ("SELECT * FROM (SELECT 1)", "subqueries are not evaluated"),
        (
            "SELECT * FROM t WHERE a = 1 AND UPPER(b) = 'X'",
            "the function UPPER is not evaluated",
        ),
        (
            "SELECT * FROM t WHERE a = 1 AND n = a",
            "compared with values only",
        ),
        ("SELECT * FROM t WHERE b = \"text\"", "texts are in single quotes"),
        ("SELECT * FROM t WHERE a = 1 AND b LIKE '%x'", "% at its end"),
        ("SELECT * FROM t WHERE a = 1 AND b LIKE 'a_c'", "% at its end"),
        (
            "SELECT * FROM t WHERE a LIKE '1%'",
            "column \"a\" has the type i64, and LIKE tests texts",
        ),
        (
            "SELECT * FROM t WHERE a = 1 AND n LIKE '1%'",
            "column \"n\" has the type i64, and LIKE tests texts",
        ),
        (
            "SELECT * FROM t WHERE a = 1 AND NOT (n LIKE '12')",
            "column \"n\" has the type i64, and LIKE tests texts",
        ),
        (
            "DELETE FROM t WHERE a = 1 AND b = 'x' AND n NOT LIKE '1%'",
            "column \"n\" has the type i64, and LIKE tests texts",
        ),
        ("SELECT * FROM t WHERE (a, b) IN ((1, 'x'))", "lists of columns"),
        ("SELECT * FROM t WHERE a = 1 OFFSET 10", "OFFSET is not evaluated"),
        (
            "SELECT * FROM t WHERE a = 1 LIMIT 10 OFFSET 10",
            "OFFSET is not evaluated",
        ),
        (
            "SELECT * FROM t WHERE a = 1 LIMIT 10, 10",
            "OFFSET is not evaluated",
        ),
        ("SELECT * FROM t WHERE n = 1", "Three ways out"),
        ("SELECT * FROM t", "Three ways out"),
        ("SELECT * FROM t WHERE b LIKE '%'", "Three ways out"),
        ("SELECT * FROM s WHERE a LIKE '%'", "Three ways out"),
        ("SELECT * FROM t WHERE b = 'x'", "first key column \"a\""),
        ("SELECT * FROM t WHERE a = 1 ORDER BY n", "rows are not sorted"),
        ("SELECT * FROM t WHERE a > 1 ORDER BY b", "in the order a, b"),
        (
            "UPDATE t SET n = 1 WHERE a = 1",
            "changes rows by their whole keys",
        ),
        ("UPDATE t SET n = 1", "add WHERE"),
        ("UPDATE t SET n = n * 2 WHERE a = 1 AND b = 'x'", "as n = n + 1"),
        (
            "UPDATE t SET b = 'y' WHERE a = 1 AND b = 'x'",
            "key column, which cannot be changed",
        ),
        ("DELETE FROM t WHERE a = 1 AND n = 1", "takes no other condition"),
        ("DELETE FROM t", "ALLOW_SCAN"),
        ("INSERT INTO t (a, b) SELECT a, b FROM t", "not copied"),
        (
            "INSERT INTO t (a, b) VALUES (1, 'x') ON DUPLICATE KEY UPDATE n = 1",
            "ON DUPLICATE KEY IGNORE",
        ),
        (
            "CREATE SEARCH INDEX i ON t (n)",
            "search indexes are not supported",
        ),
        ("CREATE UNIQUE INDEX i ON t (n)", "unique indexes"),
        ("CREATE INDEX i USING SEARCH ON t (n)", "rows search-index create"),
        (
            "CREATE INDEX i USING COLUMNAR ON t (n)",
            "export the table as Parquet",
        ),
        ("SHOW ESTIMATED ROWS FROM t", "rows count --estimate"),
        (
            "SELECT /*+ _l_versions_(2) */ * FROM t WHERE a = 1",
            "SQL reads and writes the newest version",
        ),
        (
            "UPSERT /*+ _l_ts_(1000) */ INTO t (a, b) VALUES (1, 'x')",
            "SQL reads and writes the newest version",
        ),
        (
            "SELECT * FROM t x WHERE a = 1",
            "`x` after the name of the table would be an alias",
        ),
        (
            "SELECT * FROM t AS x WHERE a = 1",
            "would be an alias of the table",
        ),
        ("ALTER TABLE t DROP COLUMN a", "column \"a\" is a key column"),
        (
            "CREATE INDEX i ON t (n) WITH (INDEX_SETTINGS = 'x')",
            "INDEX_SETTINGS\" is not supported",
        ),
        (
            "CREATE TABLE u (a BIGINT, PRIMARY KEY (a)) WITH (COMPRESSION = 'ZSTD')",
            "COMPRESSION is not supported",
        ),
        (
            "CREATE TABLE u (a VARCHAR COMPRESSION lz4, PRIMARY KEY (a))",
            "is in the primary key, so it cannot have a compression",
        ),
        (
            "CREATE TABLE u (a BIGINT, b BIGINT NOT NULL, PRIMARY KEY (a))",
            "NOT NULL is supported for key columns",
        ),
        (
            "CREATE TABLE u (a BIGINT DEFAULT 1, PRIMARY KEY (a))",
            "`DEFAULT` is not supported",
        ),
        (
            "ALTER TABLE t SET (ALLOW_RISING_KEY = TRUE)",
            "fixed when the table is created",
        ),
        ("ALTER TABLE t SET (PARTS_KEEP = '1d')", "not divided into parts"),
        ("ALTER TABLE t SET (TTL_OF = 'cell')", "set TTL as well"),
        (
            "CREATE TABLE u (a BIGINT, PRIMARY KEY (a)) WITH (TTL = 'none', TTL_OF = 'row')",
            "set TTL as well",
        ),
        (
            "ALTER TABLE t SET (PARTS_EVERY = 'day')",
            "fixed when a table is created",
        ),
        (
            "CREATE TABLE p (a TIMESTAMP PRIMARY KEY) WITH (PARTS_BY = a)",
            "needs both PARTS_BY and PARTS_EVERY",
        ),
        ("EXPLAIN DELETE FROM t WHERE a = 1", "EXPLAIN describes a SELECT"),
        (
            "SELECT /*+ INDEX(i) */ * FROM t WHERE a = 1",
            "the hint is ALLOW_SCAN",
        ),
    ] {
        let error = database.fail(statement);
        assert!(error.to_string().contains(said), "{statement}: {error}");
        assert_eq!(kind(&error), Kind::Refused, "{statement}: {error}");
    }
}

#[test]
fn statements_that_are_not_valid_name_the_place() {
    let database = Database::new();
    database.succeed(
        "CREATE TABLE t (a BIGINT, b VARCHAR, n BIGINT, j JSON, `count_*` BIGINT, PRIMARY KEY (a, b))",
    );
    for (statement, said) in [
        ("", "expected SELECT"),
        (";", "expected SELECT"),
        ("MERGE INTO t", "line 1, column 1: expected SELECT"),
        ("SELECT", "line 1"),
        ("SELECT * t", "line 1, column 10: expected FROM, found `t`"),
        (
            "SELECT * FROM t\n  WHERE a = 1 1",
            "line 2, column 15: expected the end",
        ),
        (
            "SELECT * FROM t WHERE a = 1 2",
            "line 1, column 29: expected the end of the statement, found `2`",
        ),
        ("SELECT * FROM t WHERE a = 'x", "Unterminated string literal"),
        (
            "SELECT a, a FROM t WHERE a = 1",
            "two result columns have the name \"a\"",
        ),
        ("SELECT * FROM d.t WHERE a = 1", "one part"),
        ("SELECT * FROM t WHERE a = NULL", "use IS NULL"),
        (
            "SELECT * FROM t WHERE a = 'x'",
            "key column \"a\" has the type i64; found the text \"x\"",
        ),
        ("SELECT * FROM t WHERE a = $1", "use ?"),
        ("SELECT * FROM t WHERE a = ?", "1 placeholders and 0 parameters"),
        ("SELECT * FROM t WHERE a = 1 LIMIT 0", "at least 1"),
        (
            "SELECT * FROM t WHERE a = 1; SELECT * FROM t WHERE a = 2",
            "one statement",
        ),
        ("SELECT * /*+ ALLOW_SCAN */ FROM t", "follows SELECT or DELETE"),
        (
            "UPSERT INTO t (a, b) VALUES (1, 'x') ALLOW FILTERING",
            "ALLOW_SCAN is for SELECT",
        ),
        ("UPSERT INTO t VALUES (1, 'x')", "the columns in parentheses"),
        (
            "UPSERT INTO t (a, b) VALUES (1)",
            "line 1, column 29: the row has 1 values for 2 columns",
        ),
        ("UPSERT INTO t (a, a) VALUES (1, 2)", "\"a\" is given twice"),
        (
            "UPSERT INTO t (a, b) VALUES (1, NULL)",
            "key column \"b\" cannot be NULL",
        ),
        (
            "UPSERT INTO t (a, b, j) VALUES (1, 'x', '{')",
            "not a JSON document",
        ),
        (
            "UPSERT INTO t (a, b, n) VALUES (1, 'x', X'0')",
            "pairs of hexadecimal digits",
        ),
        (
            "UPSERT INTO t (a, b, n) VALUES (1, 'x', X'01')",
            "has the type i64; found bytes",
        ),
        ("UPDATE t SET n = 1, n = 2 WHERE a = 1", "changed twice"),
        ("UPDATE t SET n = n + 1.5 WHERE a = 1", "whole number"),
        ("CREATE TABLE u (a BIGINT)", "no primary key"),
        (
            "CREATE TABLE u (a BIGINT, a BIGINT, PRIMARY KEY (a))",
            "declared twice",
        ),
        (
            "CREATE TABLE u (a BIGINT, PRIMARY KEY (b))",
            "\"b\" of the primary key is not declared",
        ),
        (
            "CREATE TABLE u (a BIGINT, PRIMARY KEY (a, a))",
            "in the primary key twice",
        ),
        (
            "CREATE TABLE u (a POINT, PRIMARY KEY (a))",
            "column \"a\": the type POINT is not supported",
        ),
        (
            "CREATE TABLE u (a VARCHAR(20), PRIMARY KEY (a))",
            "write VARCHAR alone",
        ),
        (
            "CREATE TABLE u (a BIGINT, PRIMARY KEY (spread(a)))",
            "spread is not a key modifier",
        ),
        (
            "CREATE TABLE u (a BIGINT, PRIMARY KEY (bucket(a), a))",
            "expected bucket(column, …, count)",
        ),
        (
            "CREATE TABLE u (a VARCHAR, PRIMARY KEY (generated(a)))",
            "type BIGINT",
        ),
        (
            "CREATE TABLE u (a BIGINT, PRIMARY KEY (a)) WITH (VERSIONS = 'x')",
            "VERSIONS: expected a whole number",
        ),
        ("ALTER TABLE t DROP COLUMN x", "column \"x\" is not declared"),
        (
            "ALTER TABLE t ADD n JSON",
            "column \"n\" is already declared as BIGINT",
        ),
        (
            "ALTER TABLE t ADD n BIGINT",
            "column \"n\" is already declared as BIGINT",
        ),
        (
            "CREATE INDEX i ON t (missing)",
            "neither declared nor part of the key",
        ),
        (
            "CREATE INDEX i ON t (count_a)",
            "column \"count_a\" is declared by a pattern, and the columns of an index are declared by their names",
        ),
        (
            "CREATE INDEX i USING BTREE ON t (n)",
            "expected KV, found `BTREE`",
        ),
        (
            "ALTER TABLE t RENAME TO u",
            "ADD COLUMN, DROP COLUMN, ALTER COLUMN or SET",
        ),
        ("SHOW DATABASES", "TABLES, CREATE TABLE or INDEX FROM"),
        ("DROP INDEX i", "expected ON"),
    ] {
        let error = database.fail(statement);
        assert!(error.to_string().contains(said), "{statement}: {error}");
        assert_eq!(kind(&error), Kind::Invalid, "{statement}: {error}");
    }
}

#[test]
fn errors_of_rows_are_passed_on() {
    let database = Database::new();
    database.succeed("CREATE TABLE t (a BIGINT, n BIGINT, PRIMARY KEY (a))");
    for (statement, said) in [
        ("SELECT * FROM u WHERE a = 1", "u"),
        ("SELECT * FROM `default` WHERE a = 1", "wide"),
        ("CREATE TABLE t (a BIGINT, PRIMARY KEY (a))", "t"),
        ("CREATE TABLE u (a TIMESTAMP, PRIMARY KEY (a))", "rises with time"),
        ("CREATE TABLE u (a DOUBLE, PRIMARY KEY (a))", "keys cannot hold"),
        ("SELECT * FROM t WHERE a = 1 AND n = 'x'", "has the type i64"),
    ] {
        let error = database.fail(statement);
        assert!(error.to_string().contains(said), "{statement}: {error}");
        assert_eq!(kind(&error), Kind::Rows, "{statement}: {error}");
    }
}

#[test]
fn a_select_without_a_path_gets_advice_on_an_index() {
    let database = Database::new();
    database.succeed(
        "CREATE TABLE orders (id VARCHAR, state VARCHAR, placed TIMESTAMP, total DECIMAL, score DOUBLE, n BIGINT, \
         PRIMARY KEY (hash_prefix(id, 4), id))",
    );
    database.succeed("ALTER TABLE orders ADD later BIGINT");
    database.succeed("CREATE INDEX by_state ON orders (state, placed DESC) INCLUDE (total)");
    let waits = "SELECT id FROM orders WHERE state = 'open' AND placed IS NOT NULL";
    let error = database.fail(waits).to_string();
    assert!(
        error.contains("wait until the index by_state is built"),
        "{error}"
    );
    database.succeed("CREATE INDEX by_total ON orders (total, later)");
    database.build_indexes();
    assert!(database.run(waits).is_ok());
    for (rest, said) in [
        (
            "state = 'open' ORDER BY placed DESC LIMIT 10",
            "add placed IS NOT NULL, and the index by_state serves the statement",
        ),
        ("state = 'open'", "add placed IS NOT NULL, and the index by_state"),
        (
            "total > 5",
            "add a comparison of later by =, IN or a range, and the index by_total",
        ),
        ("n = 5", "CREATE INDEX by_n ON orders (n);"),
        (
            "n > 5 AND later IN (1, 2)",
            "CREATE INDEX by_later_n ON orders (later, n);",
        ),
        (
            "n = 5 AND score > 1 ORDER BY placed DESC",
            "CREATE INDEX by_n_placed ON orders (n, placed DESC), and add placed IS NOT NULL;",
        ),
    ] {
        let error = database.fail(&format!("SELECT id FROM orders WHERE {rest}"));
        assert!(error.to_string().contains(said), "{rest}: {error}");
        assert_eq!(kind(&error), Kind::Refused, "{rest}: {error}");
    }
    // An index cannot hold these columns, or no index serves the condition.
    for rest in [
        "score = 1",
        "missing = 1",
        "placed > '2026-01-01'",
        "n <> 5",
        "n = 1 OR id = 'a'",
    ] {
        let error = database
            .fail(&format!("SELECT id FROM orders WHERE {rest}"))
            .to_string();
        assert!(error.contains("keep a table whose key"), "{rest}: {error}");
    }
    database.succeed("CREATE TABLE t (a BIGINT, b VARCHAR, n BIGINT, PRIMARY KEY (a, b))");
    let error = database
        .fail("SELECT * FROM t WHERE a = 1 ORDER BY n")
        .to_string();
    assert!(
        error.contains("or create an index by CREATE INDEX by_a_n ON t (a, n), and add n IS NOT NULL"),
        "{error}"
    );
}

#[test]
fn large_statements_are_refused_with_the_limit() {
    let long_list = vec!["1"; 2_001].join(", ");
    let ranges = vec!["1"; 300]
        .iter()
        .enumerate()
        .map(|(n, _)| n.to_string())
        .collect::<Vec<_>>()
        .join(", ");
    let database = Database::new();
    database.succeed("CREATE TABLE t (a BIGINT, b BIGINT, PRIMARY KEY (a, b))");
    let statements = [
        (
            format!(
                "SELECT * FROM t WHERE {}a = 1{}",
                "(".repeat(100),
                ")".repeat(100)
            ),
            "nested more than",
        ),
        (
            format!("SELECT * FROM t WHERE a = 1{}", " OR b = 1".repeat(1_000)),
            "use IN for many values",
        ),
        (
            format!("SELECT * FROM t WHERE a = 1{}", "::INT".repeat(1_000)),
            "more than 2000 tokens",
        ),
        (
            format!("SELECT {} FROM t", "- ".repeat(5_000)),
            "more than 2000 tokens",
        ),
        (
            format!(
                "UPSERT INTO t (a, b) VALUES {}",
                vec!["(1, 2)"; 10_001].join(", ")
            ),
            "number of rows of 10001",
        ),
        (
            format!("SELECT * FROM t WHERE a = '{}'", "x".repeat(1 << 20)),
            "length in bytes",
        ),
        (
            format!("SELECT * FROM t WHERE a IN ({ranges})"),
            "300 ranges, over the limit of 256",
        ),
    ];
    for (statement, said) in &statements {
        let error = database.fail(statement);
        assert!(error.to_string().contains(said), "{said}: {error}");
        assert_eq!(kind(&error), Kind::OverLimit, "{said}: {error}");
    }
    database.succeed("CREATE TABLE spread (p BIGINT, q BIGINT, PRIMARY KEY (bucket(q, 64), p, q))");
    let error = database.fail("SELECT * FROM spread WHERE p IN (1, 2, 3, 4, 5)");
    let said =
        "5 × 64 buckets = 320 ranges, over the limit of 256, because each combination of values has a range";
    assert!(error.to_string().contains(said), "{error}");
    // The limit applies to each expression. Complete lists in parentheses are not counted, so a long list is accepted.
    assert!(parse(&format!("SELECT * FROM t WHERE a IN ({long_list})"), &[]).is_ok());
    let keys: Vec<String> = (0..2_001).map(|a| a.to_string()).collect();
    let error = database.fail(&format!(
        "SELECT * FROM t WHERE b = 1 AND a IN ({})",
        keys.join(", ")
    ));
    assert!(
        error.to_string().contains("2001 keys, over the limit of 2000"),
        "{error}"
    );
}

#[test]
fn the_deepest_statement_fits_the_stack_of_a_thread() {
    // A server executes requests on threads with the same stack size.
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    let parsed = thread.spawn(|| {
        let deep = format!(
            "SELECT * FROM t WHERE {}a = 1{}",
            "(NOT ".repeat(14),
            ")".repeat(14)
        );
        let long = format!("SELECT * FROM t WHERE a = 1{}", " OR b = 1 AND c = 2".repeat(240));
        let mixed = format!(
            "SELECT * FROM t WHERE {}",
            "a = 1 AND (b = 2 OR ".repeat(6) + "c" + &")".repeat(6)
        );
        for statement in [deep, long, mixed] {
            parse(&statement, &[]).expect("it is within the limits");
        }
        let casts = format!("SELECT * FROM t WHERE a = 1{}", "::INT".repeat(900));
        parse(&casts, &[]).expect_err("conversions are refused");
    });
    parsed.expect("a thread").join().expect("it does not overflow");
}

#[test]
fn copies_for_many_keys_are_limited_before_they_are_made() {
    let database = Database::new();
    database.succeed("CREATE TABLE t (a BIGINT, s VARCHAR, n BIGINT, PRIMARY KEY (a))");
    let numbers: Vec<String> = (0..2_000).map(|number| number.to_string()).collect();
    let (keys, text) = (numbers.join(", "), "x".repeat(100 << 10));
    for statement in [
        format!("UPDATE t SET s = '{text}' WHERE a IN ({keys})"),
        format!("UPDATE t SET n = 1 WHERE a IN ({keys}) AND n NOT IN ({keys})"),
        format!("DELETE FROM t WHERE a IN ({keys}) AND n NOT IN ({keys})"),
    ] {
        let error = database.fail(&statement);
        let start = &statement[..20];
        assert!(error.to_string().contains("fewer keys"), "{start}: {error}");
        assert_eq!(kind(&error), Kind::OverLimit, "{start}: {error}");
    }
    database.succeed(&format!("UPDATE t SET s = '{text}' WHERE a IN (1, 2, 3)"));
    database.succeed(&format!(
        "DELETE FROM t WHERE a IN (1, 2, 3) AND n NOT IN ({keys})"
    ));
}
