//! Tests of attaching archived parts of wide tables. An empty server that has only the archive returns the same rows,
//! by scans and by indexes, after restores, and with other tables present. The tests also cover kills before and after
//! each step, and archives that cannot be attached.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Launch};

use crate::row_archive::{
    Lab, PATIENCE, ROWS, Work, alter, check_of, check_rows, create, files_below, row, tiers,
};

/// Archive whose server has ended, with the settings of its table.
struct Source {
    lab: Lab,
    /// Settings of the table.
    settings: Value,
}

impl Source {
    /// Archives a table with two old parts, then kills the server.
    fn new() -> Self {
        let lab = Lab::new();
        let server = lab.folder.start(&lab.launch());
        let client = server.client();
        create(&client);
        // A column that is declared later is stored by its name.
        alter(
            &client,
            &json!({"wide": {"add_columns": [{"name": "color", "type": "string"}]}}),
        );
        Work::Archive.prepare(&client);
        assert!(Work::Archive.start(&client));
        let settings = client.get("/v1/tables/orders").json();
        server.kill();
        Self { lab, settings }
    }

    /// Returns the origin of the files: the first part of their names.
    fn origin(&self) -> String {
        let file = files_below(&self.lab.files, "json").pop().expect("a description");
        let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
        name.rsplitn(3, '-').last().unwrap_or_default().to_owned()
    }

    /// Returns options of another server with the same target.
    fn launch(&self) -> Launch {
        self.lab.launch()
    }
}

/// Attaches and waits for the end; returns the last line of the response.
fn attach(client: &Client, body: &Value) -> Value {
    let response = client.post_json("/v1/archive/attach", body).expect_status(200);
    let text = response.text();
    serde_json::from_str(text.lines().last().expect("a line")).expect("JSON")
}

fn build_indexes(client: &Client) {
    let build = json!({"kind": "build_index", "wait": true});
    client.post_json("/v1/jobs", &build).expect_status(200);
}

/// Waits until all search indexes are built. A build that could not read an archived file tries again after a second.
fn await_search_indexes(client: &Client) {
    let built = tideline_tests::wait::until(PATIENCE, || {
        let indexes = client
            .get("/v1/tables/orders/search-indexes")
            .expect_status(200)
            .json();
        let mut indexes = indexes["search_indexes"].as_array().expect("a list").iter();
        indexes.all(|index| index["status"] == "ready").then_some(())
    });
    assert!(built.is_some(), "the search indexes are built");
}

/// Returns the number of rows that a search finds, once the search index is built.
fn found(client: &Client) -> Value {
    let search = json!({"index": "all", "where": {"column": "state", "equals": "open"}, "limit": 1});
    let total = tideline_tests::wait::until(PATIENCE, || {
        let response = client.post_json("/v1/tables/orders/rows/search", &search);
        response.is_success().then(|| response.json()["total"].clone())
    });
    total.expect("the search index is built")
}

/// Returns the settings of a table that an attachment takes over.
fn kept_settings(table: &Value) -> Value {
    let mut wide = table["wide"].clone();
    wide["parts"]["archive"]["target"] = json!("default");
    wide
}

#[test]
fn an_empty_machine_reads_archived_rows() {
    let source = Source::new();
    let folder = DataFolder::new();
    let server = folder.start(&source.launch());
    let client = server.client();
    let first = attach(
        &client,
        &json!({"target": "default", "table": "orders", "parts": ["2024-02"]}),
    );
    assert_eq!(
        (&first["parts_attached"], &first["problem_count"]),
        (&json!(1), &json!(0)),
        "{first}"
    );
    let last = attach(&client, &json!({"target": "default"}));
    assert_eq!(
        (
            &last["done"],
            &last["parts"],
            &last["parts_attached"],
            &last["rows"],
            &last["known"]
        ),
        (&json!(true), &json!(1), &json!(1), &json!(ROWS / 2), &json!(1)),
        "{last}"
    );
    assert_eq!(last["problem_count"], 0, "{last}");
    build_indexes(&client);
    check_rows(&client, "attached");
    assert_eq!(found(&client), json!(ROWS / 3));
    let table = client.get("/v1/tables/orders").json();
    assert_eq!(kept_settings(&table), kept_settings(&source.settings));

    // A repeated request changes nothing.
    let again = attach(&client, &json!({"target": "default"}));
    assert_eq!(
        (&again["parts"], &again["known"]),
        (&json!(0), &json!(2)),
        "{again}"
    );
    check_rows(&client, "attached again");
    let jobs = client.get("/v1/jobs?kind=attach_archive").json();
    let outcome = jobs["jobs"][1]["outcome"].as_str().unwrap_or_default().to_owned();
    assert!(outcome.contains("1 of 1 parts with 1500 rows"), "{jobs}");

    // The files of the other server are not orphans, even in a search that names the origin of the other server.
    let search = json!({"target": "default", "origin": source.origin(), "remove": true});
    let orphans = client.post_json("/v1/archive/orphans", &search);
    let orphans = orphans.expect_status(200).json();
    assert_eq!(
        (&orphans["objects"], &orphans["young"]),
        (&json!(0), &json!(0)),
        "{orphans}"
    );
    assert!(orphans["named"].as_u64() >= Some(4), "{orphans}");

    server.kill();
    let server = folder.start(&source.launch());
    let client = server.client();
    check_rows(&client, "attached, and opened again after a kill");
    assert_eq!(tiers(&client), ["archive", "archive"]);

    // Restored parts can be written.
    assert!(Work::Restore.start(&client));
    assert_eq!(tiers(&client), ["cold", "cold"]);
    check_rows(&client, "attached, then restored");
    let update = json!({"rows": [{"op": "update", "key": row(8)["key"], "columns": row(8)["columns"]}]});
    let written = client
        .post_json("/v1/tables/orders/rows", &update)
        .expect_status(200);
    assert_eq!(written.json()["written"], 1, "{}", written.text());
    check_rows(&client, "attached, restored, then written");
    assert!(server.terminate().status.success());
    let report = check_of(&folder);
    assert_eq!(report["is_sound"], true, "{report}");
}

/// Each database assigns the ids of its tables, indexes and column groups independently. The ids that the source used
/// therefore belong to other tables here.
#[test]
fn attached_rows_and_those_of_other_tables_stay_apart() {
    const OTHERS: u64 = 14;
    let source = Source::new();
    let folder = DataFolder::new();
    let server = folder.start(&source.launch());
    let client = server.client();
    let key = json!({"n": 8, "at": "2024-01-07T08:00:00Z"});
    for other in 0..OTHERS {
        let table = json!({"name": format!("other-{other}"), "model": "wide", "wide": {
            "key": [{"name": "n", "type": "u64"}, {"name": "at", "type": "timestamp"}],
            "parts": {"by": "at", "every": "month"}
        }});
        client.post_json("/v1/tables", &table).expect_status(201);
        let rows = json!({"rows": [{"op": "put", "key": key, "columns": {"other": other}}]});
        client
            .post_json(&format!("/v1/tables/other-{other}/rows"), &rows)
            .expect_status(200);
    }
    let attached = attach(&client, &json!({"target": "default"}));
    assert_eq!(attached["parts_attached"], 2, "{attached}");
    build_indexes(&client);
    assert!(Work::Restore.start(&client));
    let update = json!({"rows": [{"op": "update", "key": row(8)["key"], "columns": row(8)["columns"]}]});
    client
        .post_json("/v1/tables/orders/rows", &update)
        .expect_status(200);
    client
        .post_json("/v1/jobs", &json!({"kind": "seal"}))
        .expect_status(200);
    check_rows(&client, "attached beside other tables");
    for other in 0..OTHERS {
        let scan = format!("/v1/tables/other-{other}/rows/scan");
        let scanned = client.post_json(&scan, &json!({"allow_scan": true}));
        let expected = json!([{"key": key, "columns": {"other": other}}]);
        assert_eq!(scanned.expect_status(200).json()["rows"], expected);
        let path = format!("/v1/tables/other-{other}");
        let dropped = client.send("DELETE", &path, &[], b"").expect("a response");
        assert!(dropped.is_success(), "{}", dropped.text());
    }
    check_rows(&client, "after the other tables were dropped");
    assert!(server.terminate().status.success());
    let report = check_of(&folder);
    assert_eq!(report["is_sound"], true, "{report}");
}

#[test]
fn a_part_is_attached_or_not_whatever_step_is_cut() {
    let source = Source::new();
    for point in [
        "wide_archive.index.before:1",
        "wide_archive.index.after:2",
        "wide_attach.edit.before:1",
        "wide_attach.edit.after:1",
        "wide_attach.edit.before:2",
        "wide_attach.edit.after:2",
    ] {
        let folder = DataFolder::new();
        let server = folder.start(&source.launch().environment("TIDELINE_KILL_AT", point));
        let headers = [("content-type", "application/json")];
        let sent = server.client().send(
            "POST",
            "/v1/archive/attach",
            &headers,
            br#"{"target": "default", "verify": false}"#,
        );
        assert!(
            !sent.is_ok_and(|response| response.text().contains("\"done\":true")),
            "{point}"
        );
        server.expect_killed(point);

        let server = folder.start(&source.launch());
        let client = server.client();
        let known = match point {
            "wide_attach.edit.after:2" => 2,
            "wide_archive.index.after:2" | "wide_attach.edit.after:1" | "wide_attach.edit.before:2" => 1,
            _ => 0,
        };
        assert_eq!(tiers(&client), vec!["archive"; known], "{point}");
        let count = json!({"allow_scan": true});
        let counted = client.post_json("/v1/tables/orders/rows/count", &count);
        let counted = counted.expect_status(200).json();
        assert_eq!(counted["count"], ROWS / 2 * known as u64, "{point}");
        let last = attach(&client, &json!({"target": "default"}));
        assert_eq!(
            (&last["known"], &last["problem_count"]),
            (&json!(known), &json!(0)),
            "{point}: {last}"
        );
        build_indexes(&client);
        check_rows(&client, point);
        assert_eq!(found(&client), json!(ROWS / 3), "{point}");
        assert!(server.terminate().status.success());
        let report = check_of(&folder);
        assert_eq!(report["is_sound"], true, "{point}: {report}");
    }
}

#[test]
fn damaged_and_missing_files_are_refused_by_name_and_the_rest_is_attached() {
    let source = Source::new();
    let files = files_below(&source.lab.files, "parquet");
    assert_eq!(files.len(), 2, "{files:?}");
    let key = |file: &Path| {
        let key = file
            .strip_prefix(&source.lab.files)
            .expect("it is below the target");
        key.to_string_lossy().into_owned()
    };
    let sound = fs::read(&files[0]).expect("it is read");
    let mut flipped = sound.clone();
    flipped[sound.len() / 3] ^= 4;
    let folder = DataFolder::new();
    let server = folder.start(&source.launch());
    let client = server.client();
    for damaged in [Some(&flipped[..]), Some(&sound[..sound.len() - 1]), None] {
        match damaged {
            Some(content) => fs::write(&files[0], content).expect("it is written"),
            None => fs::remove_file(&files[0]).expect("it is removed"),
        }
        let last = attach(&client, &json!({"target": "default"}));
        assert_eq!(
            (&last["done"], &last["problem_count"]),
            (&json!(true), &json!(1)),
            "{last}"
        );
        assert!(last["problems"].to_string().contains(&key(&files[0])), "{last}");
        assert_eq!(tiers(&client), ["archive"], "the other part is attached");
    }
    // If the files are not verified, a read finds the damage.
    fs::write(&files[0], &flipped).expect("it is written");
    let last = attach(&client, &json!({"target": "default", "verify": false}));
    assert_eq!(
        (&last["parts_attached"], &last["problem_count"]),
        (&json!(1), &json!(0)),
        "{last}"
    );
    let scan = json!({"allow_scan": true, "limit": 10_000});
    let failed = client.post_json("/v1/tables/orders/rows/scan", &scan);
    assert_eq!(failed.status, 500, "{}", failed.text());
    assert!(failed.text().contains(&key(&files[0])), "{}", failed.text());
    fs::write(&files[0], &sound).expect("it is written");
    build_indexes(&client);
    await_search_indexes(&client);
    check_rows(&client, "put back");
    // A damaged description.
    let description = files_below(&source.lab.files, "json").remove(0);
    let mut content = fs::read(&description).expect("it is read");
    content[9] ^= 1;
    fs::write(&description, &content).expect("it is written");
    let elsewhere = DataFolder::new();
    let server = elsewhere.start(&source.launch());
    let last = attach(&server.client(), &json!({"target": "default"}));
    assert_eq!(
        (&last["parts_attached"], &last["problem_count"]),
        (&json!(1), &json!(1)),
        "{last}"
    );
    assert!(
        last["problems"].to_string().contains(&key(&description)),
        "{last}"
    );
}

#[test]
fn what_does_not_fit_the_table_is_refused() {
    let source = Source::new();
    let folder = DataFolder::new();
    let server = folder.start(&source.launch());
    let client = server.client();
    for (body, status, says) in [
        (
            json!({"target": "default", "parts": ["2024-01"]}),
            400,
            "set `table`",
        ),
        (
            json!({"target": "default", "table": "orders", "parts": ["2023-01"]}),
            404,
            "holds no part \\\"2023-01\\\"",
        ),
        (
            json!({"target": "default", "origin": "none"}),
            404,
            "holds no archive of origin",
        ),
    ] {
        let response = client
            .post_json("/v1/archive/attach", &body)
            .expect_status(status);
        assert!(response.text().contains(says), "{body}: {}", response.text());
    }
    let wide = |key: Value, columns: Value, every: &str| json!({"key": [key, {"name": "at", "type": "timestamp"}], "columns": columns, "parts": {"by": "at", "every": every}});
    let n = json!({"name": "n", "type": "u64"});
    let columns = json!([{"name": "total", "type": "decimal"}]);
    for (name, table, says) in [
        ("points", json!({}), "has the model series"),
        (
            "keys",
            wide(json!({"name": "m", "type": "u64"}), json!([]), "month"),
            "the key of the table differs",
        ),
        (
            "days",
            wide(n.clone(), json!([]), "day"),
            "the division of the table into parts differs",
        ),
        (
            "columns",
            wide(n, columns, "month"),
            "the declaration of the column \\\"total\\\" differs",
        ),
    ] {
        let mut body = json!({"name": name});
        if table["key"].is_array() {
            body = json!({"name": name, "model": "wide", "wide": table});
        }
        client.post_json("/v1/tables", &body).expect_status(201);
        let last = attach(
            &client,
            &json!({"target": "default", "table": "orders", "as": name}),
        );
        assert_eq!(
            (&last["parts_attached"], &last["problem_count"]),
            (&json!(0), &json!(1)),
            "{last}"
        );
        assert!(last["problems"].to_string().contains(says), "{name}: {last}");
    }
    // If the table already has rows in a part, the part is not attached, and its rows and index entries stay unchanged.
    attach(
        &client,
        &json!({"target": "default", "table": "orders", "parts": ["2024-01"]}),
    );
    build_indexes(&client);
    alter(&client, &json!({"wide": {"parts": {"archive": null}}}));
    client
        .post_json("/v1/tables/orders/rows", &json!({"rows": [row(1)]}))
        .expect_status(200);
    let last = attach(&client, &json!({"target": "default"}));
    assert_eq!(
        (&last["parts_attached"], &last["problem_count"]),
        (&json!(0), &json!(1)),
        "{last}"
    );
    assert!(
        last["problems"]
            .to_string()
            .contains("has rows in this part already"),
        "{last}"
    );
    let counted = client.post_json("/v1/tables/orders/rows/count", &json!({"allow_scan": true}));
    assert_eq!(counted.expect_status(200).json()["count"], ROWS / 2 + 1);
    let count = json!({"index": "all", "prefix": {"state": "done"}});
    let counted = client.post_json("/v1/tables/orders/rows/count", &count);
    assert_eq!(counted.expect_status(200).json()["count"], ROWS / 3 + 1);
}

#[test]
fn owned_files_are_removed_with_their_part() {
    let source = Source::new();
    let folder = DataFolder::new();
    let server = folder.start(&source.launch());
    let client = server.client();
    let last = attach(&client, &json!({"target": "default", "own": true}));
    assert_eq!(last["problem_count"], 0, "{last}");
    let shared = json!({"target": "default", "table": "orders", "as": "other"});
    let refused = client.post_json("/v1/archive/attach", &shared);
    assert_eq!(refused.status, 409, "{}", refused.text());
    let drop = json!({"before": "2024-02-01T00:00:00Z"});
    client
        .post_json("/v1/tables/orders/parts/drop", &drop)
        .expect_status(200);
    client
        .post_json("/v1/jobs", &json!({"kind": "seal"}))
        .expect_status(200);
    let removed = tideline_tests::wait::until(PATIENCE, || {
        let orphans = client.post_json(
            "/v1/archive/orphans",
            &json!({"target": "default", "remove": true}),
        );
        (orphans.json()["removed"] == 2).then_some(())
    });
    assert!(
        removed.is_some(),
        "the file and the description of the dropped part are removed"
    );
    let left = files_below(&source.lab.files, "parquet");
    assert_eq!(left.len(), 1, "{left:?}");
}

/// The owner of files deletes files that it does not need. Conflicting parts are not attached, so this server does not
/// become the owner of their files.
#[test]
fn files_of_conflicting_parts_are_not_owned() {
    let source = Source::new();
    let second = DataFolder::new();
    let server = second.start(&source.launch());
    create(&server.client());
    Work::Archive.prepare(&server.client());
    assert!(Work::Archive.start(&server.client()));
    server.kill();
    let files = files_below(&source.lab.files, "parquet").len();

    let folder = DataFolder::new();
    let server = folder.start(&source.launch());
    let client = server.client();
    let last = attach(&client, &json!({"target": "default", "own": true}));
    assert_eq!(
        (&last["parts_attached"], &last["problem_count"]),
        (&json!(0), &json!(2)),
        "{last}"
    );
    let search = json!({"target": "default", "remove": true});
    let orphans = client.post_json("/v1/archive/orphans", &search);
    let orphans = orphans.expect_status(200).json();
    assert_eq!(
        (&orphans["objects"], &orphans["young"]),
        (&json!(0), &json!(0)),
        "{orphans}"
    );
    assert_eq!(files_below(&source.lab.files, "parquet").len(), files);
}
