//! Examples of the committed OpenAPI document: every endpoint has an example, and each example returns a documented
//! success status. The documentation page loads nothing from other hosts.

use std::fs;

use serde_json::{Map, Value, json};
use tideline_fleet::{Fleet, FleetSpec};
use tideline_model::{Clock as _, SystemClock};
use tideline_tests::client::escaped;
use tideline_tests::corpora::workspace;
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Launch};

/// Ids that the server assigned. They replace those of the examples.
struct Ids {
    /// Id of a timeline.
    timeline: String,
    /// Sequence number of a message.
    message: String,
    /// Id of a token.
    token: String,
}

/// Token of the server of the examples.
const TOKEN: &str = "token-of-the-examples";

/// Request in the document.
struct Example {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: String,
    /// Documented success statuses.
    statuses: Vec<u16>,
}

#[test]
fn every_example_of_the_document_works() {
    let text =
        fs::read_to_string(workspace().join("openapi/openapi.json")).expect("the document is committed");
    let document: Value = serde_json::from_str(&text).expect("the document is JSON");
    let folder = DataFolder::new();
    let target = format!("file://{}", folder.beside("files").display());
    let launch = Launch::default().environment("TIDELINE__ARCHIVE__TARGET", &target);
    let launch = launch.environment("TIDELINE__WEBHOOKS__HOSTS", "localhost");
    archive_metrics(&launch);
    let server = folder.start(&launch.environment("TIDELINE__AUTH__TOKEN", TOKEN));
    let client = server.client().with_token(TOKEN);
    let served = client.get("/openapi.json").expect_status(200).json();
    assert_eq!(served, document, "openapi/openapi.json is stale");
    let ids = Ids {
        timeline: fill(&client),
        message: send_messages(&client),
        token: create_token(&client),
    };
    let mut examples = Vec::new();
    let mut silent = Vec::new();
    for (path, operations) in document["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            match examples_of(&document, method, path, operation, &ids) {
                Ok(found) => examples.extend(found),
                Err(missing) => silent.push(format!("{method} {path}: {missing}")),
            }
        }
    }
    // PUT requests run first, because other examples use the objects that they create; deletes run last, those of the
    // innermost objects first.
    examples.sort_by_key(|example| match example.method.as_str() {
        "PUT" => (0, 0),
        "DELETE" => (2, -(example.path.matches('/').count() as i64)),
        _ => (1, 0),
    });
    assert!(
        examples.len() > 20,
        "the document shows {} requests",
        examples.len()
    );
    let failed: Vec<String> = examples
        .iter()
        .filter_map(|example| example.fails(&client))
        .collect();
    println!("{} examples, {} failed", examples.len(), failed.len());
    assert!(
        silent.is_empty(),
        "endpoints without an example:\n{}",
        silent.join("\n")
    );
    assert!(
        failed.is_empty(),
        "examples that do not work:\n{}",
        failed.join("\n")
    );
}

#[test]
fn the_documentation_page_works_without_the_internet() {
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let client = server.client();
    let mut path = "/docs".to_owned();
    let mut page = client.get(&path);
    for _ in 0..3 {
        if !(300..400).contains(&page.status) {
            break;
        }
        path = page.header("location").to_owned();
        page = client.get(&path);
    }
    let html = page.expect_status(200).text();
    assert!(html.contains("<html"), "{html}");
    let mut loaded = 0;
    for link in links(&html) {
        let is_ours = !link.contains("://") && !link.starts_with("//");
        assert!(is_ours || link.starts_with("data:"), "the page loads {link}");
        if link.starts_with("data:") {
            continue;
        }
        let base = path.trim_end_matches("index.html").trim_end_matches('/');
        let target = match link.strip_prefix('/') {
            Some(_) => link.clone(),
            None => format!("{base}/{}", link.trim_start_matches("./")),
        };
        client.get(&target).expect_status(200);
        loaded += 1;
    }
    assert!(loaded > 0, "the page loads its parts: {html}");
}

/// Archives a table `metrics` with another server.
fn archive_metrics(launch: &Launch) {
    let folder = DataFolder::new();
    let server = folder.start(launch);
    let client = server.client();
    let policy = json!({"archive": {"target": "default", "after": "8d"}});
    let table = json!({"name": "metrics", "policy": policy});
    client.post_json("/v1/tables", &table).expect_status(201);
    client
        .post_lines(
            "/v1/tables/metrics/points?precision=s",
            "cpu,host=old usage_user=1.5 1700000000",
        )
        .expect_status(200);
    for job in [
        json!({"kind": "seal"}),
        json!({"kind": "archive", "table": "metrics", "wait": true}),
    ] {
        client.post_json("/v1/jobs", &job).expect_status(200);
    }
    assert!(server.terminate().status.success());
}

/// Writes a small fleet and the machines that the examples use, and creates the wide tables of the examples with a
/// search index. Returns the id of one timeline.
fn fill(client: &Client) -> String {
    let now = SystemClock.now().nanos();
    let step = 10_000_000_000;
    let spec = FleetSpec {
        seed: 1,
        hosts: 12,
        start: now - 100 * step,
        step,
        measurement: "cpu",
        mark: None,
    };
    let mut lines = Vec::new();
    Fleet::from_spec(&spec).write_rows(12 * 90, &mut lines);
    let mut lines = String::from_utf8(lines).expect("line protocol is text");
    for instant in 0..90 {
        let time = now - instant * step;
        for host in ["sim-001", "sim-002", "web-1", "web-2"] {
            let value = (instant * 7) % 100;
            lines.push_str(&format!(
                "cpu,host={host},region=eu-west usage_user={value}.5,usage_system=2.5,processes=210i {time}\n"
            ));
            lines.push_str(&format!("mem,host={host},region=eu-west used=17i {time}\n"));
        }
    }
    client.post_lines("/write", &lines).expect_status(204);
    let orders = json!({"name": "orders", "model": "wide", "wide": {
        "key": [{"name": "customer", "type": "string"}, {"name": "placed", "type": "timestamp"}],
        "columns": [
            {"name": "total", "type": "decimal"}, {"name": "title", "type": "string"}, {"name": "state", "type": "string"}
        ],
        "parts": {"by": "placed", "every": "month"}
    }});
    client.post_json("/v1/tables", &orders).expect_status(201);
    let index = json!({"name": "all", "columns": [
        {"column": "title", "as": "text"}, {"column": "state", "as": "keyword"}, {"column": "total", "as": "keyword"},
        {"column": "total", "as": "number"}, {"column": "placed", "as": "time"}
    ]});
    client
        .post_json("/v1/tables/orders/search-indexes?refresh=wait", &index)
        .expect_status(201);
    let by_time = json!({"name": "orders_by_time", "model": "wide", "wide": {
        "key": [
            {"name": "spread", "bucket": {"of": ["placed"], "count": 4}},
            {"name": "placed", "type": "timestamp"},
            {"name": "customer", "type": "string"}
        ]
    }});
    client.post_json("/v1/tables", &by_time).expect_status(201);
    let found = client
        .post_json(
            "/v1/tables/default/timelines/search",
            &json!({"where": {"tag": "host", "equals": "sim-001"}}),
        )
        .expect_status(200);
    found.json()["timelines"][0]["id"]
        .as_str()
        .expect("it is found")
        .to_owned()
}

/// Creates the feed table of the examples with a search index, and the feeds that they read. Returns the sequence number
/// of a message.
fn send_messages(client: &Client) -> String {
    let chat = json!({"name": "chat", "model": "feed", "feed": {
        "columns": [{"name": "text", "type": "string"}], "parts": {"every": "month"}, "inboxes": {"push_max": 500}
    }});
    client.post_json("/v1/tables", &chat).expect_status(201);
    let index = json!({"name": "messages", "columns": [
        {"column": "feed", "as": "keyword"}, {"column": "text", "as": "text"}
    ]});
    client
        .post_json("/v1/tables/chat/search-indexes?refresh=wait", &index)
        .expect_status(201);
    let messages = json!({"messages": [{"columns": {"text": "Lunch?"}}]});
    let mut sequence = String::new();
    for feed in [
        "room,name=garden",
        "outbox,author=ann",
        "outbox,author=bea",
        "room,name=lobby",
    ] {
        let sent = client.post_json(&format!("/v1/tables/chat/feeds/{feed}/messages"), &messages);
        let sent = sent.expect_status(200).json();
        sequence = plain(&sent["messages"][0]["sequence"]);
    }
    sequence
}

/// Creates a token and returns its id.
fn create_token(client: &Client) -> String {
    let created = client.post_json("/v1/tokens", &json!({"name": "grafana", "roles": ["reader"]}));
    plain(&created.expect_status(201).json()["id"])
}

/// Returns the requests of an operation, one per example body; the error describes a missing example.
fn examples_of(
    document: &Value,
    method: &str,
    path: &str,
    operation: &Value,
    ids: &Ids,
) -> Result<Vec<Example>, String> {
    let mut target = path.to_owned();
    let mut query = Vec::new();
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap_or_default();
        let example = match name {
            "id" => Some(json!(ids.timeline)),
            "token" => Some(json!(ids.token)),
            "sequence" if parameter["in"] == "path" => Some(json!(ids.message)),
            _ => example_of(document, parameter).or_else(|| example_of(document, &parameter["schema"])),
        };
        match (parameter["in"].as_str(), example) {
            (Some("path"), Some(example)) => {
                target = target.replace(&format!("{{{name}}}"), &plain(&example));
            }
            (Some("path"), None) => return Err(format!("no example of {name}")),
            (Some("query"), Some(example)) => query.push(format!("{name}={}", escaped(&plain(&example)))),
            _ => {}
        }
    }
    if !query.is_empty() {
        target = format!("{target}?{}", query.join("&"));
    }
    let statuses: Vec<u16> = operation["responses"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(status, _)| status.parse().ok())
        .filter(|status| (200..300).contains(status))
        .collect();
    let example = |headers: Vec<(String, String)>, body: String| Example {
        method: method.to_uppercase(),
        path: target.clone(),
        headers,
        body,
        statuses: statuses.clone(),
    };
    let Some(contents) = operation["requestBody"]["content"].as_object() else {
        return Ok(vec![example(Vec::new(), String::new())]);
    };
    let mut found = Vec::new();
    for (content_type, content) in contents {
        // JSON cannot contain Arrow and Parquet files. Their tests are in `services/http/tests/main/rows_import.rs`.
        if content_type.starts_with("application/vnd.apache.") {
            continue;
        }
        let bodies = bodies_of(document, content);
        if bodies.is_empty() {
            return Err(format!("no example of a body as {content_type}"));
        }
        let headers = vec![("content-type".to_owned(), content_type.clone())];
        found.extend(bodies.iter().map(|body| example(headers.clone(), plain(body))));
    }
    Ok(found)
}

/// Returns the example bodies of a content, or of its schema.
fn bodies_of(document: &Value, content: &Value) -> Vec<Value> {
    let named: Vec<Value> = content["examples"]
        .as_object()
        .into_iter()
        .flat_map(Map::values)
        .filter_map(|example| example.get("value").cloned())
        .collect();
    if !named.is_empty() {
        return named;
    }
    let own = example_of(document, content);
    own.or_else(|| example_of(document, &content["schema"]))
        .into_iter()
        .collect()
}

/// Returns the example of a parameter, content or schema; follows one reference.
fn example_of(document: &Value, holder: &Value) -> Option<Value> {
    let holder = match holder["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#'))?,
        None => holder,
    };
    let first = || holder["examples"].as_array()?.first().cloned();
    holder.get("example").cloned().or_else(first)
}

/// Returns a text unchanged and any other value as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Example {
    /// Returns the path of the request. A path that pauses, resumes or cancels a job gets the id of a
    /// suitable job instead of the example id.
    fn path_now(&self, client: &Client) -> String {
        let parts: Vec<&str> = self.path.split('/').collect();
        let ["", "v1", "jobs", _, verb] = parts.as_slice() else {
            return self.path.clone();
        };
        // A job that the preceding example has paused can be resumed.
        let state = if *verb == "resume" { "paused" } else { "planned" };
        let found = client.get(&format!("/v1/jobs?state={state}"));
        let found = found.expect_status(200).json();
        let id = &found["jobs"][0]["id"];
        format!("/v1/jobs/{id}/{verb}")
    }

    /// Sends the request; returns a description of the failure, if any.
    fn fails(&self, client: &Client) -> Option<String> {
        let headers: Vec<(&str, &str)> = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let request = format!("{} {} {}", self.method, self.path, self.body);
        if self.method == "DELETE" {
            // Creates a table of this name, in case the example deletes a table that no other example has created.
            let name = self.path.rsplit('/').next().unwrap_or_default();
            let _ = client.post_json("/v1/tables", &json!({"name": name}));
        }
        let path = self.path_now(client);
        match client.send(&self.method, &path, &headers, self.body.as_bytes()) {
            Ok(answer) if self.statuses.contains(&answer.status) => None,
            Ok(answer) => Some(format!(
                "{request}\n  expected one of {:?}: {answer:?}",
                self.statuses
            )),
            Err(error) => Some(format!("{request}\n  {error}")),
        }
    }
}

/// Returns the values of all `src` and `href` attributes of a page.
fn links(html: &str) -> Vec<String> {
    let mut found = Vec::new();
    for attribute in ["src=\"", "href=\""] {
        for part in html.split(attribute).skip(1) {
            let link = part.split('"').next().unwrap_or_default();
            found.push(link.to_owned());
        }
    }
    found
}
