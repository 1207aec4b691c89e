//! Tests of `tideline sql`: statements from the command line, files and standard input; output as tables and as JSON.
//!
//! The prompt needs a terminal; its parts (splitting, completion) have unit tests.

use crate::lab::Lab;

const CREATE: &str = "CREATE TABLE orders (customer VARCHAR, placed BIGINT, total DECIMAL, PRIMARY KEY (customer, placed DESC))";

fn filled() -> Lab {
    let lab = Lab::start();
    let created = lab.ok(&["sql", CREATE]);
    assert_eq!(created, "created\n");
    let written = lab.ok(&[
        "sql",
        "UPSERT INTO orders (customer, placed, total, note) VALUES ('acme', 1, 5.32, 'one; two'), ('acme', 2, ?, NULL)",
        "--param",
        "12.5",
    ]);
    assert_eq!(written, "rows: 2 written\n");
    lab
}

#[test]
fn rows_are_a_table_or_lines_of_json() {
    let lab = filled();
    let table = lab.ok(&[
        "sql",
        "SELECT total, placed AS at, note FROM orders WHERE customer = ?",
        "--param",
        "acme",
    ]);
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[0], ["total", "at", "note"]);
    // The second line separates the header from the rows.
    assert_eq!(lines[2], ["12.5", "2"]);
    assert_eq!(lines[3], ["5.32", "1", "one;", "two"]);
    assert_eq!(lines[4], ["2", "rows"]);
    let read = lab.ok(&[
        "sql",
        "SELECT * FROM orders WHERE customer = 'acme' AND note IS NULL;",
    ]);
    assert!(read.ends_with("1 row, 2 read\n"), "{read}");
    let json = lab.ok(&[
        "sql",
        "SELECT placed FROM orders WHERE customer = 'acme' ORDER BY placed",
        "--json",
    ]);
    assert_eq!(
        json,
        "{\"placed\":1}\n{\"placed\":2}\n{\"scanned\":2,\"returned\":2,\"next\":null}\n"
    );
    let done = lab.ok(&["sql", "DROP TABLE IF EXISTS missing", "--json"]);
    assert!(
        done.starts_with("{\"done\":\"missing\",") && done.ends_with("}\n"),
        "{done}"
    );
    let described = lab.ok(&["sql", "describe orders"]);
    let head: Vec<&str> = described
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    assert_eq!(head, ["column", "type", "key", "order"]);
}

#[test]
fn many_rows_are_several_tables() {
    let lab = Lab::start();
    let values: Vec<String> = (0..2_500).map(|n| format!("({n})")).collect();
    let script = format!(
        "-- numbers\nCREATE TABLE n (n BIGINT, PRIMARY KEY (n));\nUPSERT INTO n (n) VALUES {};\n",
        values.join(", ")
    );
    let file = lab.file("numbers.sql", &script);
    assert_eq!(
        lab.ok(&["sql", "--file", &file]),
        "created\nrows: 2,500 written\n"
    );
    let all = lab.ok(&["sql", "SELECT n FROM n WHERE n >= 0"]);
    assert_eq!(all.lines().filter(|line| line.trim() == "n").count(), 3);
    assert_eq!(all.lines().count(), 2_500 + 3 * 2 + 1);
    assert!(all.ends_with("2,500 rows\n"), "{all}");
    let counted = lab.ok(&["sql", "SELECT COUNT(*) FROM n WHERE n >= 0"]);
    assert!(counted.contains("2500"), "{counted}");
}

#[test]
fn the_first_error_ends_a_file_and_names_its_statement() {
    let lab = filled();
    let script = b"SHOW TABLES;\nSELECT *\nFROM orders\nORDER BY total;\nDROP TABLE orders;";
    let ended = lab.feed(&["sql"], script);
    assert_eq!(ended.code, 1);
    assert!(
        ended.out.contains("orders") && ended.out.ends_with("1 row\n"),
        "{ended:?}"
    );
    assert!(ended.err.contains("statement 2 of 3, from line 2:"), "{ended:?}");
    assert!(
        ended.err.contains("plan_refused") && ended.err.contains("ALLOW_SCAN"),
        "{ended:?}"
    );
    assert!(lab.ok(&["sql", "SHOW TABLES"]).contains("orders"));
    let wrong = lab.run(&["sql", "SELECT * FORM orders"]);
    assert!(
        wrong.code == 1 && wrong.err.contains("line 1, column 10: expected FROM"),
        "{wrong:?}"
    );
    let refused = lab.run(&[
        "sql",
        "UPSERT INTO orders (customer, placed, total) VALUES ('a', 1, 'much')",
    ]);
    assert!(
        refused.err.contains("column \"total\" has the type decimal"),
        "{refused:?}"
    );
    assert_eq!(lab.run(&["sql", "SHOW TABLES", "--file", "x"]).code, 2);
    assert_eq!(lab.run(&["sql", "--param", "1"]).code, 2);
}
