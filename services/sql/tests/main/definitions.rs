//! Tests of `SHOW CREATE TABLE`: the returned statement creates the same table.
//!
//! The tables have all types and key modifiers. Values of all types are written, read back and compared. The last test
//! covers the settings that are noted before a table is created or altered.

use std::cell::RefCell;

use serde_json::{Value, json};
use tideline_engine::model::TableSpec;
use tideline_sql::run::read::Extent;
use tideline_sql::run::table::change;
use tideline_sql::{Statement, parse};

use crate::support::{Database, Done};

/// Creates a table and drops it. Creates it again with the statement that `SHOW CREATE TABLE` has returned, and returns
/// this statement.
fn shown(create: &str) -> String {
    let database = Database::new();
    database.succeed(create);
    let statement = |database: &Database| {
        let rows = database.rows("SHOW CREATE TABLE t");
        rows[0]["statement"].as_str().expect("a text").to_owned()
    };
    let first = statement(&database);
    let columns = database.rows("DESCRIBE t");
    database.succeed("DROP TABLE t");
    database.succeed(&first);
    assert_eq!(statement(&database), first);
    assert_eq!(database.rows("DESCRIBE t"), columns);
    first
}

#[test]
fn a_shown_table_is_created_again() {
    let all_types = shown(
        "CREATE TABLE t (a STRING, b INT, c UNSIGNED, d FLOAT, e BOOL, f BLOB, g NUMERIC, h JSON, i TIMESTAMP, j TEXT, \
         k SMALLINT, l INTEGER UNSIGNED, m DOUBLE PRECISION, `order by` CHAR, `x``y` BIGINT, `c?d*` TINYINT, \
         PRIMARY KEY (c, e DESC, f, g, i, a))",
    );
    for part in [
        "c BIGINT UNSIGNED",
        "d DOUBLE",
        "`order by` VARCHAR",
        "`x``y` BIGINT",
        "`c?d*` BIGINT",
        "e DESC",
    ] {
        assert!(all_types.contains(part), "{part}: {all_types}");
    }
    let modifiers = shown(
        "CREATE TABLE t (a VARCHAR, b BIGINT, c VARCHAR, id BIGINT, bucket BIGINT, PRIMARY KEY (bucket(a, id, 16), \
         hash_prefix(a, b, 4) AS spread DESC, splice(a, pad(b, 8), '!') DESC, reverse(c), generated(id), bucket)) \
         WITH (versions = 4, version_guard = '90m', allow_rising_key = true, durability = 'buffered')",
    );
    assert!(
        modifiers.ends_with(
            "PRIMARY KEY (bucket(a, id, 16) AS bucket_2, hash_prefix(a, b, 4) AS spread DESC, splice(a, pad(b, 8), '!') \
             DESC, reverse(c), generated(id), bucket)\n) WITH (VERSIONS = 4, VERSION_GUARD = '1h30m', ALLOW_RISING_KEY = \
             TRUE, DURABILITY = 'buffered')"
        ),
        "{modifiers}"
    );
    let expiring = shown("CREATE TABLE t (a BIGINT PRIMARY KEY) WITH (TTL = 864000, TTL_OF = 'cell')");
    assert!(
        expiring.ends_with("WITH (TTL = '10d', TTL_OF = 'cell')"),
        "{expiring}"
    );
    let divided = shown(
        "CREATE TABLE t (a BIGINT, at TIMESTAMP, PRIMARY KEY (a, at)) WITH (parts_by = at, parts_every = 'Month', \
         PARTS_KEEP = '365d')",
    );
    assert!(
        divided.ends_with("WITH (PARTS_BY = at, PARTS_EVERY = 'month', PARTS_KEEP = '365d')"),
        "{divided}"
    );
    let scheduled = shown(
        "CREATE TABLE t (a BIGINT, at TIMESTAMP, PRIMARY KEY (a, at)) WITH (PARTS_BY = at, PARTS_EVERY = 'month', \
         PARTS_JOBS = '{\"migrate\": {\"cron\": \"0 3 * * *\"}, \"expire\": {\"cron\": \"0 5 * * *\", \"time_zone\": \
         \"Europe/Berlin\"}, \"move_bytes_per_second\": 33554432}')",
    );
    assert!(
        scheduled.ends_with(
            "PARTS_MIGRATE_SCHEDULE = '0 3 * * *', PARTS_EXPIRE_SCHEDULE = '0 5 * * * in Europe/Berlin', PARTS_MOVE_RATE = \
             33554432)"
        ),
        "{scheduled}"
    );
    let grouped = shown(
        "CREATE TABLE t (a BIGINT PRIMARY KEY, b VARCHAR) WITH (groups = '[{\"columns\": [\"b\", \"it''s*\"], \"name\": \"texts\"}]')",
    );
    assert!(
        grouped.ends_with(r#"WITH (GROUPS = '[{"name":"texts","columns":["b","it''s*"]}]')"#),
        "{grouped}"
    );
    let limited = shown(
        "CREATE TABLE t (a BIGINT, at TIMESTAMP, PRIMARY KEY (a, at)) WITH (PARTS_BY = at, PARTS_EVERY = 'month', \
         LIMITS = '[{\"reads_per_second\": 50}, {\"older_than\": \"30d\", \"writes_per_second\": 5}]')",
    );
    assert!(
        limited
            .ends_with(r#"LIMITS = '[{"reads_per_second":50},{"older_than":"30d","writes_per_second":5}]')"#),
        "{limited}"
    );
    let compressed = shown(
        "CREATE TABLE t (a BIGINT PRIMARY KEY, b VARCHAR COMPRESSION 'ZSTD', c VARBINARY compression none, d VARCHAR \
         COMPRESSION auto, `e*` JSON COMPRESSION lz4)",
    );
    assert!(
        compressed.contains(
            "  b VARCHAR COMPRESSION zstd,\n  c VARBINARY COMPRESSION none,\n  d VARCHAR,\n  `e*` JSON COMPRESSION lz4,"
        ),
        "{compressed}"
    );
    assert_eq!(
        shown("CREATE TABLE t (a BIGINT PRIMARY KEY)"),
        "CREATE TABLE t (\n  a BIGINT,\n  PRIMARY KEY (a)\n)"
    );
}

#[test]
fn the_schedules_and_the_rate_of_parts_are_altered() {
    let database = Database::new();
    database.succeed(
        "CREATE TABLE t (a BIGINT, at TIMESTAMP, PRIMARY KEY (a, at)) WITH (PARTS_BY = at, PARTS_EVERY = 'day', \
         PARTS_JOBS = '{\"expire\": {\"cron\": \"0 5 * * *\"}}')",
    );
    let statement = || {
        let rows = database.rows("SHOW CREATE TABLE t");
        rows[0]["statement"].as_str().expect("a text").to_owned()
    };
    database.succeed(r#"ALTER TABLE t SET (PARTS_JOBS = '{"migrate": {"cron": "0 3 * * *"}}')"#);
    let altered = statement();
    assert!(
        altered.ends_with("PARTS_EVERY = 'day', PARTS_MIGRATE_SCHEDULE = '0 3 * * *')"),
        "{altered}"
    );
    // Settings with names change only their own value, and other settings change none of them.
    database.succeed(
        "ALTER TABLE t SET (PARTS_EXPIRE_SCHEDULE = '0 5 * * * in Asia/Tokyo', PARTS_MOVE_RATE = 9)",
    );
    database.succeed("ALTER TABLE t SET (PARTS_KEEP = '365d', PARTS_MIGRATE_SCHEDULE = '0 4 * * *')");
    let altered = statement();
    assert!(
        altered.ends_with(
            "PARTS_KEEP = '365d', PARTS_MIGRATE_SCHEDULE = '0 4 * * *', PARTS_EXPIRE_SCHEDULE = '0 5 * * * in Asia/Tokyo', \
             PARTS_MOVE_RATE = 9)"
        ),
        "{altered}"
    );
    for (setting, said) in [
        ("PARTS_MIGRATE_SCHEDULE = 'every night'", "parts.migrate: "),
        (
            "PARTS_EXPIRE_SCHEDULE = '0 3 * * * in berlin'",
            "did you mean Europe/Berlin?",
        ),
        ("PARTS_ARCHIVE_SCHEDULE = '0 3 * * *'", "needs an archive"),
        ("PARTS_MOVE_RATE = 0", "at least 1"),
        ("PARTS_MOVE_RATE = '1MiB'", "a number of bytes per second"),
    ] {
        let error = database.fail(&format!("ALTER TABLE t SET ({setting})"));
        assert!(error.to_string().contains(said), "{setting}: {error}");
    }
    database.succeed("ALTER TABLE t SET (PARTS_MIGRATE_SCHEDULE = 'continuous', PARTS_MOVE_RATE = 'none')");
    let altered = statement();
    assert!(
        altered.ends_with("PARTS_KEEP = '365d', PARTS_EXPIRE_SCHEDULE = '0 5 * * * in Asia/Tokyo')"),
        "{altered}"
    );
    for (jobs, said) in [
        (r#"{"migrate": {"cron": "every night"}}"#, "parts.migrate: "),
        (r#"{"expire": {"cron": "0 0 30 2 *"}}"#, "never comes"),
        (
            r#"{"archive_schedule": {"cron": "0 3 * * *"}}"#,
            "needs an archive",
        ),
        (r#"{"move_bytes_per_second": 0}"#, "at least 1"),
        (r#"{"moves": 1}"#, "PARTS_JOBS: expected a JSON object"),
    ] {
        let error = database.fail(&format!("ALTER TABLE t SET (PARTS_JOBS = '{jobs}')"));
        assert!(error.to_string().contains(said), "{jobs}: {error}");
    }
    database.succeed("ALTER TABLE t SET (PARTS_JOBS = '{}', PARTS_KEEP = 'none')");
    let altered = statement();
    assert!(
        altered.ends_with("WITH (PARTS_BY = at, PARTS_EVERY = 'day')"),
        "{altered}"
    );
}

#[test]
fn statements_of_lindorm_with_words_that_have_no_effect_are_accepted() {
    let database = Database::new();
    database.succeed("CREATE TABLE t (a BIGINT, n BIGINT, CONSTRAINT pk PRIMARY KEY (a))");
    database.succeed("CREATE INDEX i USING KV ON t (n)");
    database.build_indexes();
    database.succeed("UPSERT INTO t (a, n) VALUES (1, 5), (2, 6)");
    assert_eq!(
        database.rows("SELECT COUNT(1) FROM t WHERE n > 5"),
        [json!({"count": 1})]
    );
    assert_eq!(
        database.rows("SELECT a id, n `the n` FROM t WHERE a = 1"),
        [json!({"id": 1, "the n": 5})]
    );
    let named = shown("CREATE TABLE t (CONSTRAINT BIGINT PRIMARY KEY, n BIGINT)");
    assert!(named.contains("PRIMARY KEY (CONSTRAINT)"), "{named}");
}

#[test]
fn the_compression_of_a_column_is_altered() {
    let database = Database::new();
    database.succeed("CREATE TABLE t (a BIGINT PRIMARY KEY, b VARCHAR, c VARCHAR COMPRESSION zstd)");
    database.succeed(
        "ALTER TABLE t ALTER COLUMN b SET COMPRESSION lz4, ALTER c SET COMPRESSION = 'auto', ADD d JSON COMPRESSION none",
    );
    let statement = database.rows("SHOW CREATE TABLE t")[0]["statement"].to_string();
    assert!(
        statement.contains(r"b VARCHAR COMPRESSION lz4,\n  c VARCHAR,\n  d JSON COMPRESSION none,"),
        "{statement}"
    );
}

#[test]
fn values_of_all_types_are_written_and_compared() {
    let database = Database::new();
    database.succeed(
        "CREATE TABLE t (id BIGINT, s VARCHAR, i BIGINT, u BIGINT UNSIGNED, f DOUBLE, o BOOLEAN, b VARBINARY, d DECIMAL, \
         j JSON, t TIMESTAMP, PRIMARY KEY (id))",
    );
    database.succeed(
        "UPSERT INTO t (id, s, i, u, f, o, b, d, j, t, free) VALUES (1, 'é''x', -9223372036854775808, \
         18446744073709551615, 1e-3, TRUE, X'00fF', 12345678901234567890.0123456789, '[{\"type\": \"json\", \"value\": 1}]', \
         '2026-11-20 12:00:00.5', X'01')",
    );
    let row = json!({"id": 1, "s": "é'x", "i": i64::MIN, "u": u64::MAX, "f": 0.001, "o": true, "b": "AP8=",
        "d": "12345678901234567890.0123456789", "j": {"type": "json", "value": [{"type": "json", "value": 1}]},
        "t": "2026-11-20T12:00:00.500Z", "free": {"type": "binary", "value": "AQ=="}});
    let mut found = database.rows("SELECT * FROM t WHERE id = 1");
    // The document has the syntax of a typed value, so it is expected in the typed form. If the found row contains it
    // in the plain form, the test converts it.
    if found[0]["j"].is_array() {
        found[0]["j"] = json!({"type": "json", "value": found[0]["j"]});
    }
    assert_eq!(found, [row]);
    for (condition, is_met) in [
        ("s LIKE 'é''%'", true),
        ("s NOT LIKE 'é%'", false),
        ("i < -9223372036854775807", true),
        ("u > 9223372036854775807", true),
        ("f = .001", true),
        ("o", true),
        ("NOT o", false),
        ("o IS NOT NULL AND o = TRUE", true),
        ("b = X'00ff'", true),
        ("b >= X'00'", true),
        ("b > X'01'", false),
        ("d > 12345678901234567890.0123456788", true),
        ("d NOT BETWEEN -1 AND 2", true),
        ("t < '2026-11-20T12:00:00.500000001Z'", true),
        ("t = TIMESTAMP '2026-11-20 12:00:00.5'", true),
        ("j IS NULL", false),
        ("missing = 1 OR NOT missing = 1", false),
        ("missing IS NULL AND i NOT IN (1, 2)", true),
    ] {
        let found = database.rows(&format!("SELECT id FROM t WHERE id = 1 AND ({condition})"));
        let expected: Vec<Value> = if is_met {
            vec![json!({"id": 1})]
        } else {
            Vec::new()
        };
        assert_eq!(found, expected, "{condition}");
    }
}

#[test]
fn a_parameter_with_a_type_is_compared_with_key_columns_and_other_columns() {
    let database = Database::new();
    database.succeed("CREATE TABLE t (id BIGINT, n DECIMAL, PRIMARY KEY (id))");
    database.succeed("CREATE INDEX by_n ON t (n)");
    database.build_indexes();
    let typed = |name: &str, value: Value| json!({"type": name, "value": value});
    let id = |id: i64| typed("i64", json!(id));
    let decimal = |digits: &str| typed("decimal", json!(digits));
    for (number, digits) in [(1, "1.5"), (2, "1234567890123456.76"), (3, "1234567890123456.77")] {
        let values = [id(number), decimal(digits), decimal(digits)];
        let written = database.run_with(
            "UPSERT INTO t (id, n, free) VALUES (?, ?, ?)",
            &values,
            Extent::All,
        );
        assert!(matches!(written, Ok(Done::Written(_))), "{written:?}");
    }
    for (condition, parameters, expected) in [
        ("id = ?", vec![id(2)], vec![2]),
        ("id > ?", vec![id(1)], vec![2, 3]),
        ("id IN (?, ?)", vec![id(1), json!(3)], vec![1, 3]),
        ("n = ?", vec![decimal("1.50")], vec![1]),
        ("n > ?", vec![decimal("1234567890123456.76")], vec![3]),
        ("id > ? AND free = ?", vec![id(0), decimal("1.5")], vec![1]),
        (
            "id > ? AND free > ?",
            vec![id(0), decimal("1234567890123456.76")],
            vec![3],
        ),
        ("id > ? AND free > ?", vec![id(0), typed("f64", json!(0))], vec![]),
    ] {
        let statement = format!("SELECT id FROM t WHERE {condition}");
        let Ok(Done::Rows(rows, _)) = database.run_with(&statement, &parameters, Extent::All) else {
            panic!("{statement} {parameters:?}");
        };
        let expected: Vec<Value> = expected.into_iter().map(|id: i64| json!({"id": id})).collect();
        assert_eq!(rows, expected, "{condition} {parameters:?}");
    }
    for (condition, parameter, said) in [
        ("id = ?", decimal("1"), "found a value of type decimal"),
        ("id = 1 AND n > ?", id(1), "found a value of type i64"),
        ("id = ?", json!([1]), "give one value"),
        ("id = ?", json!({"type": "i64"}), "give one value"),
    ] {
        let statement = format!("SELECT id FROM t WHERE {condition}");
        let refused = database.run_with(&statement, &[parameter], Extent::All);
        let error = refused.expect_err("it is refused").to_string();
        assert!(error.contains(said), "{condition}: {error}");
    }
}

#[test]
fn a_change_of_settings_is_noted_before_it_is_made() {
    let database = Database::new();
    let noted = RefCell::new(Vec::new());
    let run = |text: &str| {
        let Ok(Statement::Change(statement)) = parse(text, &[]) else {
            panic!("{text}: no change of a table");
        };
        let changed = change(database.engine(), *statement, &|before, after| {
            let ttl = |spec: &TableSpec| spec.wide.as_ref().is_some_and(|rows| rows.ttl.is_some());
            let current = database.engine().table_of_any_model("t").ok();
            let current = current.map(|table| ttl(&table.spec()));
            noted.borrow_mut().push((before.map(ttl), ttl(after), current));
        });
        (changed.is_ok(), noted.take())
    };
    let create = "CREATE TABLE t (a BIGINT PRIMARY KEY)";
    assert_eq!(run(create), (true, vec![(None, false, None)]));
    let create = "CREATE TABLE IF NOT EXISTS t (a BIGINT PRIMARY KEY)";
    assert_eq!(run(create), (true, vec![]), "nothing is changed");
    let alter = "ALTER TABLE t SET (TTL = '30d')";
    assert_eq!(run(alter), (true, vec![(Some(false), true, Some(false))]));
    let alter = "ALTER TABLE t DROP COLUMN missing";
    assert_eq!(run(alter), (false, vec![]), "the statement is refused");
    assert_eq!(run("DROP TABLE t"), (true, vec![]));
}
