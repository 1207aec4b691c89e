//! Random sequences of tokens: parsing and planning return a result or an error, and never panic.
//!
//! The fuzz target `sql` tests the same property with arbitrary text.

use proptest::prelude::*;
use tideline_sql::SqlError;

use crate::support::Database;

/// Pieces of statements, each of one or more tokens.
const WORDS: &[&str] = &[
    "SELECT",
    "EXPLAIN",
    "UPSERT",
    "INTO",
    "UPDATE",
    "DELETE",
    "CREATE",
    "TABLE",
    "ALTER",
    "SHOW",
    "TABLES",
    "DESCRIBE",
    "FROM",
    "WHERE",
    "ORDER BY",
    "LIMIT",
    "SET",
    "VALUES",
    "AND",
    "OR",
    "NOT",
    "IN",
    "BETWEEN",
    "LIKE",
    "IS NULL",
    "PRIMARY KEY",
    "WITH",
    "ADD",
    "DROP",
    "COLUMN",
    "BIGINT",
    "VARCHAR",
    "COUNT(*)",
    "CASE",
    "CAST",
    "t",
    "u",
    "a",
    "b",
    "`c*`",
    "*",
    "(",
    ")",
    ",",
    "=",
    "<>",
    "<",
    ">=",
    "-",
    "+",
    "1",
    "2.5",
    "'x'",
    "'%'",
    "X'00'",
    "NULL",
    "TRUE",
    ";",
    "?",
    "DESC",
    "AS",
    "/*+ ALLOW_SCAN */",
    "ALLOW FILTERING",
    "ON DUPLICATE KEY IGNORE",
    "bucket(a, 4)",
    "pad(a, 3)",
    "VERSIONS",
    "[",
    "]",
    "{",
    "}",
    ".",
    "::",
    "INTERVAL",
];

/// Beginnings of statements. The random words that follow are parsed in the middle of the grammar.
const STARTS: &[&str] = &[
    "",
    "SELECT * FROM t WHERE a = 1 AND",
    "SELECT /*+ ALLOW_SCAN */ * FROM u WHERE",
    "SELECT a FROM t WHERE a = 1 ORDER BY",
    "UPSERT INTO t (a, b) VALUES (1,",
    "UPDATE t SET n =",
    "DELETE FROM u WHERE a IN ('x') AND",
    "CREATE TABLE v (a BIGINT, PRIMARY KEY (",
    "ALTER TABLE t SET (",
];

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(24))]

    #[test]
    fn noise_is_never_a_panic(
        statements in prop::collection::vec(
            (prop::sample::select(STARTS), prop::collection::vec(prop::sample::select(WORDS), 0..24)),
            200,
        )
    ) {
        let database = Database::new();
        database.succeed("CREATE TABLE t (a BIGINT, b VARCHAR, n BIGINT, PRIMARY KEY (a, b DESC))");
        database.succeed("CREATE TABLE u (a VARCHAR, b BIGINT, PRIMARY KEY (bucket(a, 4), a, b))");
        for (start, words) in statements {
            let statement = format!("{start} {}", words.join(" "));
            if let Err(error @ SqlError::Invalid { .. }) = database.run(&statement) {
                prop_assert!(!error.to_string().is_empty(), "{}", statement);
            }
        }
    }
}
