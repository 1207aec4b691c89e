//! Tests of `tideline rows search` and `tideline rows search-index`: formats, order, pages, highlights, groups with
//! metrics, waits of writes and searches, completions.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::lab::Lab;

/// Creates a table with a search index over all of its columns.
fn create(lab: &Lab) {
    lab.ok(&[
        "tables",
        "create",
        "orders",
        "--key",
        "id string",
        "--column",
        "title string",
        "--column",
        "total decimal",
        "--column",
        "n u64",
        "--column",
        "site json",
    ]);
    let created = lab.ok(&[
        "rows",
        "search-index",
        "create",
        "orders",
        "all",
        "id=keyword",
        "title=text",
        "title=keyword",
        "total=keyword",
        "n=number",
        "site=geo",
        "--wait",
    ]);
    assert_eq!(created, "created search index all; it is ready\n");
}

fn put(lab: &Lab, row: &[&str]) -> Value {
    let written = lab.ok(&[&["rows", "put", "orders", "--refresh", "--json"], row].concat());
    serde_json::from_str(&written).expect("JSON")
}

fn search(lab: &Lab, rest: &[&str]) -> String {
    lab.ok(&[&["rows", "search", "orders"], rest].concat())
}

/// Returns the lines of a search, parsed: its rows, and its summary.
fn found(lab: &Lab, rest: &[&str]) -> (Vec<Value>, Value) {
    let text = search(lab, rest);
    let mut lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let end = lines.pop().expect("a summary");
    (lines, end)
}

#[test]
fn rows_are_searched_sorted_and_highlighted() {
    let lab = Lab::start();
    create(&lab);
    let written = put(
        &lab,
        &[
            "id=a",
            "title=Red wine",
            "total=18.40",
            "site={\"lat\": 52.5, \"lon\": 13.4}",
        ],
    );
    assert_eq!(written["searchable"], true, "{written}");
    put(
        &lab,
        &[
            "id=b",
            "title=Wine, red",
            "total=112",
            "site={\"lat\": 52.6, \"lon\": 13.4}",
        ],
    );
    put(&lab, &["id=c", "title=Corkscrew", "total=9.90"]);
    let words = "{\"column\": \"title\", \"text\": \"wine red\"}";
    let lines = search(
        &lab,
        &[words, "total>15", "--sort", "total:desc", "--columns", "total"],
    );
    assert_eq!(
        lines,
        "{\"key\":{\"id\":\"b\"},\"columns\":{\"total\":\"112\"}}\n{\"key\":{\"id\":\"a\"},\"columns\":{\"total\":\"18.4\"}}\n\
         {\"total\":2,\"waiting\":0,\"lag_ms\":0,\"next\":null}\n"
    );
    let near = [
        "--near",
        "site,52.61,13.4",
        "--sort",
        "id:desc",
        "--columns",
        "total",
    ];
    let (rows, _) = found(&lab, &near);
    let ids: Vec<&Value> = rows.iter().map(|row| &row["key"]["id"]).collect();
    assert_eq!(ids, ["b", "a", "c"]);
    let meters = rows[0]["distances"][0].as_f64().expect("a distance");
    assert!((1_100.0..1_125.0).contains(&meters), "{meters}");
    let table = search(&lab, &[&near[..], &["--output", "table"]].concat());
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[0], ["id", "total", "meters"]);
    assert_eq!(lines[2], ["b", "112", &format!("{meters:.1}")]);
    assert_eq!(lines[4], ["c", "9.9"]);
    let table = search(&lab, &[words, "--highlight", "--output", "table"]);
    assert!(table.contains("title: [Red] [wine]"), "{table}");
    let json: Value = serde_json::from_str(&search(&lab, &["title^=Wine", "--json"])).expect("JSON");
    assert_eq!(
        (&json["total"], &json["rows"][0]["key"]),
        (&json!(1), &json!({"id": "b"}))
    );
    let explained = search(&lab, &[words, "--sort", "total:desc", "--explain"]);
    for part in [
        "all, with 2 reads of rows",
        "wine red",
        "sort: total (keyword, descending)",
    ] {
        assert!(explained.contains(part), "{explained}");
    }
    let facets = lab.ok(&["rows", "facets", "orders", "--by", "id", "--explain"]);
    assert!(facets.contains("group: id (keyword)"), "{facets}");
    let read = [
        "rows",
        "aggregate",
        "orders",
        "--search",
        "-w",
        "n=1",
        "--explain",
        "--json",
    ];
    let aggregate: Value = serde_json::from_str(&lab.ok(&read)).expect("JSON");
    assert_eq!(aggregate["search"]["tests"][0]["access"], "values", "{aggregate}");
    let missing = lab.run(&["rows", "search", "orders", "color=red"]);
    assert!(
        missing.code == 1 && missing.err.contains("not in the search index"),
        "{missing:?}"
    );
    for wrong in [
        &["--near", "site,52"][..],
        &["--sort", "id:up"],
        &["--limit", "0"],
        &["--output", "csv"],
    ] {
        let wrong = lab.run(&[&["rows", "search", "orders"], wrong].concat());
        assert_eq!(wrong.code, 2, "{wrong:?}");
    }
}

#[test]
fn lines_have_the_rows_of_all_pages_and_a_search_waits_for_a_position() {
    let lab = Lab::start();
    create(&lab);
    let lines: String = (0..2_500)
        .map(|n| {
            format!(
                "{}\n",
                json!({"id": format!("id-{n:04}"), "n": n % 7, "total": n})
            )
        })
        .collect();
    let file = lab.file("fill.ndjson", lines);
    lab.ok(&["rows", "import", "orders", &file, "--quiet"]);
    let last = lab.ok(&["rows", "put", "orders", "id=last", "n=9", "--json"]);
    let last: Value = serde_json::from_str(&last).expect("JSON");
    let position = last["position"].as_str().expect("a position");
    let by_n = ["--sort", "n:desc", "--columns", "n"];
    let all = [&by_n[..], &["--at-least", position]].concat();
    let (rows, end) = found(&lab, &all);
    assert_eq!((&end["total"], &end["next"]), (&json!(2_501), &Value::Null));
    let ids: BTreeSet<String> = rows.iter().map(|row| row["key"].to_string()).collect();
    assert_eq!((rows.len(), ids.len()), (2_501, 2_501));
    assert!(rows.is_sorted_by_key(|row| -row["columns"]["n"].as_i64().expect("a number")));
    let (mut first, end) = found(&lab, &[&by_n[..], &["--limit", "1500"]].concat());
    assert_eq!(first.len(), 1_500);
    let next = end["next"].as_str().expect("a token");
    let (rest, end) = found(&lab, &[&by_n[..], &["--page-token", next]].concat());
    assert!(end["next"].is_null(), "{end}");
    first.extend(rest);
    assert!(first == rows, "pages");
    let file = lab.path("found.ndjson").display().to_string();
    assert_eq!(search(&lab, &["n=9", "--out", &file]), "");
    let text = std::fs::read_to_string(&file).expect("a file");
    assert!(
        text.starts_with("{\"key\":{\"id\":\"last\"}") && text.lines().count() == 2,
        "{text}"
    );
}

#[test]
fn search_indexes_are_listed_replaced_completed_and_dropped() {
    let lab = Lab::start();
    create(&lab);
    put(&lab, &["id=a", "title=Red wine", "n=3"]);
    let again = ["rows", "search-index", "create", "orders", "all", "n=number"];
    let refused = lab.run(&again);
    assert!(
        refused.code == 1 && refused.err.contains("already"),
        "{refused:?}"
    );
    let replaced = lab.ok(&[&again[..], &["--replace", "--wait", "--json"]].concat());
    let replaced: Value = serde_json::from_str(&replaced).expect("JSON");
    assert_eq!(
        (&replaced["columns"], &replaced["documents"]),
        (&json!([{"column": "n", "as": "number"}]), &json!(1))
    );
    let list = lab.ok(&["rows", "search-index", "list", "orders"]);
    assert!(
        list.contains("n=number") && list.contains("ready") && !list.contains("title=text"),
        "{list}"
    );
    lab.ok(&["rows", "delete", "orders", "id=a", "--refresh"]);
    assert_eq!(found(&lab, &[]).1["total"], 0);
    let sharded = ["rows", "search-index", "create", "orders", "all", "id=keyword"];
    let sharded = [
        &sharded[..],
        &["--shards", "3", "--routing", "id", "--replace", "--wait"],
    ]
    .concat();
    assert_eq!(lab.ok(&sharded), "created search index all; it is ready\n");
    let (_, end) = found(&lab, &["id=a"]);
    assert_eq!(end["shards"], json!({"read": 1, "total": 3}), "{end}");
    for (line, names) in [
        ("tideline rows search o", "orders\n"),
        ("tideline rows search orders --index ", "all\n"),
        ("tideline rows search-index drop orders a", "all\n"),
        ("tideline rows search orders x", ""),
    ] {
        assert_eq!(lab.ok(&["complete", "--line", line]), names, "{line}");
    }
    let wrong = lab.run(&["rows", "search-index", "create", "orders", "more", "title"]);
    assert!(wrong.code == 2 && wrong.err.contains("COLUMN=FORM"), "{wrong:?}");
    let dropped = lab.ok(&["rows", "search-index", "drop", "orders", "all"]);
    assert_eq!(dropped, "dropped search index all\n");
    assert_eq!(lab.run(&["rows", "search", "orders"]).code, 1);
}

#[test]
fn groups_are_shown_with_their_metrics() {
    let lab = Lab::start();
    create(&lab);
    for (id, title, n) in [("a", "red", "1"), ("b", "red", "2"), ("c", "blue", "5")] {
        put(
            &lab,
            &[&format!("id={id}"), &format!("title={title}"), &format!("n={n}")],
        );
    }
    let facets = |rest: &[&str]| lab.ok(&[&["rows", "facets", "orders"], rest].concat());
    let shown = facets(&["--by", "title", "--by", "n:10", "--metric", "n:sum,p50"]);
    let lines: Vec<Vec<&str>> = shown
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert!(lines[0].starts_with(&["title", "n", "rows"]), "{shown}");
    assert!(
        lines.iter().any(|line| line.starts_with(&["red", "0", "2"])),
        "{shown}"
    );
    assert!(
        lines.iter().any(|line| line.starts_with(&["blue", "0", "1"])),
        "{shown}"
    );
    let json: Value = serde_json::from_str(&facets(&["n>1", "--by", "title", "--json"])).expect("JSON");
    assert_eq!(json["rows"], 2, "{json}");
    assert_eq!(
        facets(&["n>100", "--by", "title"]).lines().count(),
        lines.len().min(3),
        "without rows"
    );
    let aggregate = |rest: &[&str]| lab.ok(&[&["rows", "aggregate", "orders"], rest].concat());
    let all = ["--by", "title", "--metric", "total:sum", "--metric", "n:max"];
    for selection in [
        &["--allow-scan"][..],
        &["--search"],
        &["--search=all", "-w", "n<100"],
    ] {
        let csv = aggregate(&[selection, &all, &["--output", "csv"]].concat());
        assert!(csv.starts_with("title,rows,sum(total),max(n)\r\n"), "{csv}");
        assert!(csv.contains("\r\nred,2,"), "{csv}");
        let table = aggregate(&[selection, &all, &["--output", "table"]].concat());
        assert_eq!(table.lines().count(), csv.lines().count() + 1, "{table}");
    }
    let lines = aggregate(&["id=a", "--metric", "n:count,p50"]);
    assert_eq!(lines.lines().count(), 2, "a group and the summary: {lines}");
    let wrong = lab.run(&["rows", "facets", "orders", "--by", "title", "--metric", "n"]);
    assert!(
        wrong.code == 2 && wrong.err.contains("items:sum,max,p95"),
        "{wrong:?}"
    );
}
