//! Tests of columns with separate compressions, on their way through the tiers: hot, cold, archive, and restored.
//!
//! Every kind of read returns the same result before and after each step, and after restarts. Each part has enough text
//! for dictionaries, and the statistics show that the blocks use the dictionaries. The offline check and `tideline
//! archive verify` find no damage.

use serde_json::{Value, json};
use tideline_testkit::{Random, seed};
use tideline_tests::Client;
use tideline_tests::client::escaped;

use crate::row_archive::{Lab, PATIENCE};

/// Number of rows, in two parts.
const ROWS: u64 = 2_400;
const TABLE: &str = "/v1/tables/articles";
/// Members of responses that depend on the request or on the state of a search index.
const VARYING: [&str; 4] = ["request_id", "waiting", "lag_ms", "next"];

fn post(client: &Client, path: &str, body: &Value) -> Value {
    let response = client.post_json(path, body);
    assert!(
        response.is_success(),
        "{path} {body}: {} {}",
        response.status,
        response.text()
    );
    response.json()
}

fn job(client: &Client, kind: &str) {
    post(
        client,
        "/v1/jobs",
        &json!({"kind": kind, "table": "articles", "wait": true}),
    );
}

fn alter(client: &Client, parts: &Value) {
    let body = json!({"wide": {"parts": parts}}).to_string();
    let headers = [("content-type", "application/json")];
    let sent = client.send("PATCH", TABLE, &headers, body.as_bytes());
    sent.expect("a response").expect_status(200);
}

fn create(client: &Client, has_groups: bool) {
    let groups = match has_groups {
        true => json!([{"name": "texts", "columns": ["body", "note_*"], "compression": "dense"}]),
        false => json!([]),
    };
    let table = json!({"name": "articles", "model": "wide", "wide": {
        "key": [{"name": "id", "type": "u64"}, {"name": "at", "type": "timestamp"}],
        "columns": [
            {"name": "body", "type": "string", "compression": "zstd"}, {"name": "doc", "type": "json", "compression": "zstd"},
            {"name": "note_*", "type": "string", "compression": "lz4"}, {"name": "cover", "type": "binary", "compression": "none"},
            {"name": "shelf", "type": "string"}, {"name": "pages", "type": "u64"}
        ],
        "max_versions": 2, "parts": {"by": "at", "every": "month"}, "groups": groups
    }});
    post(client, "/v1/tables", &table);
    let index = json!({"name": "by_shelf", "key": [{"name": "shelf"}], "covers": ["note_en"]});
    post(client, &format!("{TABLE}/indexes"), &index);
    let search = json!({"name": "texts", "columns": [
        {"column": "body", "as": "text"}, {"column": "shelf", "as": "keyword"}, {"column": "pages", "as": "number"}]});
    post(client, &format!("{TABLE}/search-indexes?refresh=wait"), &search);
    let build = json!({"kind": "build_index", "wait": true});
    post(client, "/v1/jobs", &build);
}

fn flush(client: &Client) {
    post(client, "/v1/jobs", &json!({"kind": "seal"}));
}

/// Returns a text of about `bytes` bytes of lines of the guide.
fn text(random: &mut Random, bytes: usize) -> String {
    let lines: Vec<&str> = include_str!("../../docs/rows.md").lines().collect();
    let mut text = String::new();
    while text.len() < bytes {
        text.push_str(random.of(&lines));
        text.push('\n');
    }
    text
}

fn key(n: u64) -> Value {
    json!({"id": n, "at": format!("2024-{:02}-07T08:00:00Z", 1 + n % 2)})
}

fn write(client: &Client, rows: &[Value]) {
    let written = post(
        client,
        &format!("{TABLE}/rows?refresh=wait"),
        &json!({"rows": rows}),
    );
    assert_eq!(written["written"], rows.len(), "{written}");
}

/// Writes rows with texts that repeat, noise, missing columns, several versions, cut values and one streamed value.
fn fill(client: &Client, random: &mut Random) {
    for first in (0..ROWS).step_by(300) {
        let rows: Vec<Value> = (first..first + 300)
            .map(|n| {
                let noise: String = (0..40).map(|_| format!("{:08x}", random.next() as u32)).collect();
                let bytes = if n % 600 == 1 { 90_000 } else { 1_000 };
                let mut columns = json!({
                    "body": text(random, bytes), "doc": {"n": n, "lines": text(random, 300)}, "cover": noise,
                    "note_en": "seen, and seen again, and seen once more", "shelf": format!("s{}", n % 7), "pages": n % 50,
                });
                if n % 5 == 0 {
                    columns["note_de"] = json!("gesehen, und wieder gesehen, und noch einmal gesehen");
                    columns["undeclared"] = json!("a column without a declaration");
                }
                if n % 11 == 0 {
                    let columns = columns.as_object_mut().expect("an object");
                    columns.remove("body");
                    columns.remove("doc");
                }
                json!({"op": "put", "key": key(n), "columns": columns})
            })
            .collect();
        write(client, &rows);
        flush(client);
    }
    let second: Vec<Value> = (0..ROWS)
        .step_by(13)
        .map(|n| json!({"op": "update", "key": key(n), "columns": {"body": text(random, 500), "note_en": "changed"}}))
        .collect();
    write(client, &second);
    let streamed = text(random, 150_000);
    let headers = [("content-type", "text/plain")];
    let path = format!("{TABLE}/blobs/body?key={}", escaped(&key(4).to_string()));
    let sent = client.send("PUT", &path, &headers, streamed.as_bytes());
    let sent = sent.expect("a response");
    assert!(sent.is_success(), "{}", sent.text());
    flush(client);
}

/// Returns the rows of all pages of a scan.
fn scanned(client: &Client, mut scan: Value) -> Value {
    let mut rows = Vec::new();
    loop {
        let page = post(client, &format!("{TABLE}/rows/scan"), &scan);
        rows.extend(page["rows"].as_array().expect("a list").clone());
        if page["next"].is_null() {
            return rows.into();
        }
        scan["page_token"] = page["next"].clone();
    }
}

/// Returns the responses of all kinds of reads, each with its name.
fn answers(client: &Client) -> Vec<(String, Value)> {
    let mut answers = Vec::new();
    for direction in ["forward", "backward"] {
        let scan = json!({"allow_scan": true, "direction": direction, "limit": 500, "versions": 2});
        answers.push((format!("scan {direction}"), scanned(client, scan)));
    }
    let few = json!({"index": "by_shelf", "prefix": {"shelf": "s3"}, "columns": ["note_en", "pages"]});
    answers.push(("scan by an index".to_owned(), scanned(client, few)));
    let condition = json!({"allow_scan": true, "where": {"column": "body", "wildcard": "*dictionary*"}, "columns": ["body"]});
    answers.push(("scan with a condition".to_owned(), scanned(client, condition)));
    let keys: Vec<Value> = [0, 1, 4, 13, 55, 601, ROWS - 1].map(key).to_vec();
    for (path, body) in [
        ("rows/get?inline_bytes=500000", json!({"keys": keys})),
        ("rows/get", json!({"keys": keys, "columns": ["doc", "cover"]})),
        (
            "rows/count",
            json!({"index": "by_shelf", "prefix": {"shelf": "s1"}}),
        ),
        (
            "rows/search",
            json!({"where": {"column": "body", "text": "compression"}, "sort": [{"column": "pages"}], "limit": 300,
                "highlight": true}),
        ),
        (
            "rows/facets",
            json!({"where": {"column": "body", "text": "table"}, "by": [{"column": "shelf"}],
                "metrics": [{"column": "pages", "functions": ["sum", "max"]}]}),
        ),
        (
            "rows/aggregate",
            json!({"allow_scan": true, "by": [{"column": "shelf"}], "metrics": [
                {"column": "body", "functions": ["min", "max", "count_distinct"]}, {"column": "pages", "functions": ["mean"]}]}),
        ),
    ] {
        answers.push((path.to_owned(), post(client, &format!("{TABLE}/{path}"), &body)));
    }
    let statement = "SELECT id, body, note_en FROM articles WHERE shelf = 's5' ORDER BY shelf, id LIMIT 50";
    answers.push((
        "SQL".to_owned(),
        post(client, "/v1/sql", &json!({"statement": statement})),
    ));
    for n in [1, 4] {
        let path = format!("{TABLE}/blobs/body?key={}", escaped(&key(n).to_string()));
        let value = client.get(&path);
        assert!(value.is_success(), "{}", value.text());
        let range = client.send("GET", &path, &[("range", "bytes=70000-80000")], b"");
        let range = range.expect("a response").expect_status(206);
        answers.push((format!("value {n}"), json!([value.text(), range.text()])));
    }
    for (_, answer) in &mut answers {
        if let Some(members) = answer.as_object_mut() {
            members.retain(|name, _| !VARYING.contains(&name.as_str()));
        }
    }
    answers
}

fn assert_same(client: &Client, expected: &[(String, Value)], context: &str) {
    // The search index of a started server opens in the background.
    let search = json!({"where": {"column": "body", "text": "table"}, "limit": 1});
    let path = format!("{TABLE}/rows/search");
    let is_open = || client.post_json(&path, &search).is_success().then_some(());
    tideline_tests::wait::until(PATIENCE, is_open).expect("the search index opens");
    let found = answers(client);
    assert_eq!(found.len(), expected.len());
    for ((name, found), (_, expected)) in found.iter().zip(expected) {
        assert!(
            found == expected,
            "{context}: the response of {name} differs:\n{found}\n{expected}"
        );
    }
}

fn tiers(client: &Client) -> Vec<String> {
    let parts = client.get(&format!("{TABLE}/parts")).expect_status(200).json();
    let parts = parts["parts"].as_array().expect("a list").iter();
    parts
        .map(|part| part["tier"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Asserts by a survey that the compressed columns are small, and that the column without compression has almost its
/// full size.
fn assert_compressed(client: &Client, context: &str) {
    job(client, "survey_rows");
    let stats = client
        .get(&format!("{TABLE}/rows/stats"))
        .expect_status(200)
        .json();
    let groups = stats["groups"].as_array().into_iter().flatten();
    let lists = std::iter::once(&stats["rows"]).chain(groups);
    let columns: Vec<&Value> = lists
        .filter_map(|list| list["columns"].as_array())
        .flatten()
        .collect();
    let ratio = |name: &str| {
        let column = columns.iter().find(|column| column["name"] == name);
        let column = column.unwrap_or_else(|| panic!("{context}: no {name} in {columns:?}"));
        let bytes = |member: &str| column[member].as_f64().unwrap_or_default();
        bytes("stored_bytes") / bytes("bytes")
    };
    assert!(ratio("body") < 0.7, "{context}: {columns:?}");
    assert!(ratio("note_en") < 0.5, "{context}: {columns:?}");
    assert!(ratio("cover") > 0.9, "{context}: {columns:?}");
}

/// Asserts that the server has made at least two dictionaries since its start, one for each part.
fn assert_dictionaries(client: &Client, context: &str) {
    let metrics = client.get("/metrics").expect_status(200).text();
    let made = metrics.lines().find_map(|line| {
        let value = line.strip_prefix("tideline_row_dictionaries_made_total ")?;
        value.parse::<f64>().ok()
    });
    let shown: Vec<&str> = metrics
        .lines()
        .filter(|line| line.contains("_dictionar"))
        .collect();
    assert!(made.is_some_and(|made| made >= 2.0), "{context}: {shown:#?}");
}

fn through_the_tiers(has_groups: bool, test: &str) {
    let mut random = Random::new(seed(test));
    let lab = Lab::new();
    let server = lab.folder.start(&lab.launch());
    let client = server.client();
    create(&client, has_groups);
    fill(&client, &mut random);
    assert_eq!(tiers(&client), ["hot", "hot"]);
    let expected = answers(&client);
    let found = expected.iter().find(|(name, _)| name == "rows/search");
    let found = found.expect("a search").1["total"].as_u64();
    assert!(found.is_some_and(|total| total > 20), "{found:?}");
    assert_compressed(&client, "hot");
    assert_dictionaries(&client, "hot");
    assert!(server.terminate().status.success());
    let report = lab.check();
    assert_eq!(report["is_sound"], true, "hot: {report}");

    let mut server = lab.folder.start(&lab.launch());
    assert_same(&server.client(), &expected, "hot, restarted");
    for (step, tier) in [
        ("migrated", "cold"),
        ("archived", "archive"),
        ("restored", "cold"),
    ] {
        let client = server.client();
        match step {
            "migrated" => {
                alter(&client, &json!({"hot": "1d"}));
                job(&client, "migrate");
            }
            "archived" => {
                alter(
                    &client,
                    &json!({"archive": {"target": "default", "after": "30d"}}),
                );
                job(&client, "archive");
            }
            _ => {
                let range = json!({"from": "2024-01-01T00:00:00Z", "to": "2024-03-01T00:00:00Z", "for": "1d", "wait": true});
                post(&client, &format!("{TABLE}/parts/restore"), &range);
            }
        }
        assert_eq!(tiers(&client), [tier, tier], "{step}");
        assert_same(&client, &expected, step);
        if tier == "cold" {
            assert_compressed(&client, step);
        }
        if step == "restored" {
            assert_dictionaries(&client, step);
        }
        assert!(server.terminate().status.success());
        let report = lab.check();
        assert_eq!(report["is_sound"], true, "{step}: {report}");
        if tier == "archive" {
            let verified = lab.verify();
            assert_eq!(verified["is_sound"], true, "{step}: {verified}");
        }
        server = lab.folder.start(&lab.launch());
        assert_same(&server.client(), &expected, &format!("{step}, restarted"));
    }
    assert!(server.terminate().status.success());
}

#[test]
fn rows_with_compressed_columns_are_the_same_in_every_tier() {
    through_the_tiers(false, "rows_with_compressed_columns_are_the_same_in_every_tier");
}

#[test]
fn compressed_columns_of_groups_are_the_same_in_every_tier() {
    through_the_tiers(true, "compressed_columns_of_groups_are_the_same_in_every_tier");
}
