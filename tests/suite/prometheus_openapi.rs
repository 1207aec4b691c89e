//! Conformance to the OpenAPI document of Prometheus: every operation except remote read, remote write and OTLP is
//! requested with its examples, at the root and at the path of a table. The document is not in the repository; see
//! `tests/README.md`.

use std::fs;

use serde_json::{Value, json};
use tideline_tests::client::escaped;
use tideline_tests::corpora::corpus;
use tideline_tests::schema::violations;
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Launch, Response, yaml};

/// Base paths of the operations.
const BASES: [&str; 2] = ["/api/v1", "/v1/tables/default/prometheus/api/v1"];
/// Unsupported operations, with the reason. They must return an error in the form of the document.
const ABSENT: [(&str, &str); 12] = [
    ("/search/metric_names", "an experiment behind a flag"),
    ("/search/label_names", "an experiment behind a flag"),
    ("/search/label_values", "an experiment behind a flag"),
    ("/scrape_pools/config", "nothing is scraped"),
    ("/targets/relabel_steps", "nothing is scraped"),
    ("/status/tsdb/blocks", "there are no blocks"),
    ("/status/self_metrics", "/metrics has these figures"),
    (
        "/admin/tsdb/delete_series",
        "our own routes delete, and respect policies",
    ),
    ("/admin/tsdb/clean_tombstones", "there are no tombstones"),
    ("/admin/tsdb/snapshot", "archives replace them"),
    ("/features", "would make Grafana use what is missing"),
    ("/notifications/live", "there are no notifications"),
];
/// Operations that are not requested. Their bodies are Protocol Buffers, for which the document has no examples. Errors
/// of OTLP have the form of OTLP, not the form of the document.
const BINARY: [&str; 3] = ["/read", "/write", "/otlp/v1/metrics"];

/// Request of the document.
struct Case {
    method: String,
    path: String,
    query: String,
    form: Option<String>,
    /// True if a Prometheus without rules refuses the request too.
    is_refused: bool,
}

#[test]
fn answers_hold_to_the_document_of_prometheus() {
    let Some(folder) = corpus("prometheus-openapi") else {
        return;
    };
    let text = fs::read_to_string(folder.join("openapi_3.1.yaml")).expect("the document can be read");
    let document = yaml::parse(&text).expect("the document is YAML").swap_remove(0);
    let data = DataFolder::new();
    let server = data.start(&Launch::default());
    let client = server.client();
    fill(&client);
    let (mut cases, mut full, mut failures) = (0, 0, Vec::new());
    for (path, operations) in document["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            let is_absent = ABSENT.iter().any(|(absent, _)| absent == path);
            if BINARY.contains(&path.as_str()) {
                continue;
            }
            for case in cases_of(method, path, operation) {
                for base in BASES {
                    cases += 1;
                    let answer = case.send(&client, base);
                    let problems = check(&document, operation, &answer, is_absent || case.is_refused);
                    full += usize::from(holds_data(&answer));
                    let request = format!("{method} {base}{} ?{} {:?}", case.path, case.query, case.form);
                    failures.extend(
                        problems
                            .into_iter()
                            .map(|problem| format!("{request}\n  {problem}")),
                    );
                }
            }
        }
    }
    println!(
        "{cases} requests of Prometheus' OpenAPI document, {full} responses with data, {} failures",
        failures.len()
    );
    assert!(cases > 150, "only {cases} cases");
    assert!(full > 40, "only {full} responses have data");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Writes the series that the examples query, up to the time in the examples and up to now.
fn fill(client: &Client) {
    let mut lines = String::new();
    let now = tideline_now();
    for end in [1_767_361_020, now] {
        for at in 0..300 {
            let time = end - at * 15;
            for job in ["prometheus", "node"] {
                let count = time % 100_000;
                lines.push_str(&format!(
                    "up,job={job},instance=localhost:9090 value=1 {time}\n\
                     prometheus_http_requests_total,job={job},handler=/api/v1/query value={count} {time}\n\
                     process_start_time_seconds,job={job} value=1.7e9 {time}\n"
                ));
            }
        }
    }
    client
        .post_lines("/v1/tables/default/points?precision=s", &lines)
        .expect_status(200);
}

fn tideline_now() -> i64 {
    use tideline_model::Clock as _;
    tideline_model::SystemClock.now().nanos() / 1_000_000_000
}

/// Returns one request per example of a form. For an operation without forms, returns a request with the required
/// parameters, one with all parameters, one per example of an optional parameter, and one per further example of a
/// required parameter.
fn cases_of(method: &str, path: &str, operation: &Value) -> Vec<Case> {
    let path = path.replace("{name}", "job");
    let case = |query: Vec<String>, form: Option<String>| Case {
        method: method.to_uppercase(),
        path: path.clone(),
        is_refused: query.iter().any(|pair| pair.starts_with("group_next_token=")),
        query: query.join("&"),
        form,
    };
    let forms =
        operation["requestBody"]["content"]["application/x-www-form-urlencoded"]["examples"].as_object();
    if let Some(forms) = forms {
        let form = |example: &Value| {
            let members = example["value"].as_object().into_iter().flatten();
            members
                .flat_map(|(name, value)| pairs(name, value))
                .collect::<Vec<_>>()
                .join("&")
        };
        return forms
            .values()
            .map(|example| case(Vec::new(), Some(form(example))))
            .collect();
    }
    let (mut needed, mut all, mut single) = (Vec::new(), Vec::new(), Vec::new());
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap_or_default();
        let examples = parameter["examples"].as_object();
        let examples: Vec<Vec<String>> = examples
            .into_iter()
            .flat_map(|examples| examples.values())
            .map(|example| pairs(name, &example["value"]))
            .collect();
        let Some(first) = examples.first() else {
            continue;
        };
        all.extend(first.clone());
        if parameter["required"] == true {
            needed.extend(first.clone());
            single.extend(examples.into_iter().skip(1));
        } else {
            single.extend(examples);
        }
    }
    let mut cases = vec![case(needed.clone(), None), case(all, None)];
    cases.extend(
        single
            .into_iter()
            .map(|pairs| case([needed.clone(), pairs].concat(), None)),
    );
    cases
}

/// Formats a value as query parameters; a list becomes several parameters of the same name.
fn pairs(name: &str, value: &Value) -> Vec<String> {
    let one = |value: &Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{}={}", escaped(name), escaped(&text))
    };
    match value {
        Value::Array(values) => values.iter().map(one).collect(),
        value => vec![one(value)],
    }
}

impl Case {
    fn send(&self, client: &Client, base: &str) -> Response {
        let path = format!("{base}{}?{}", self.path, self.query);
        let headers: &[(&str, &str)] = match self.form {
            Some(_) => &[("content-type", "application/x-www-form-urlencoded")],
            None => &[],
        };
        let body = self.form.as_deref().unwrap_or_default();
        client
            .send(&self.method, &path, headers, body.as_bytes())
            .expect("a response")
    }
}

fn holds_data(answer: &Response) -> bool {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let data = &body["data"];
    let list = data["result"].as_array().or_else(|| data.as_array());
    list.is_some_and(|list| !list.is_empty())
}

fn check(document: &Value, operation: &Value, answer: &Response, is_refused: bool) -> Vec<String> {
    let status = answer.status;
    if (status == 200) == is_refused {
        return vec![format!("status {status}: {}", answer.text())];
    }
    let name = if status == 200 { "200" } else { "default" };
    let schema = &operation["responses"][name]["content"]["application/json"]["schema"];
    if schema.is_null() {
        return vec![format!("the document has no schema for {name}")];
    }
    if answer.header("content-type") != "application/json" {
        return vec![format!("content type {:?}", answer.header("content-type"))];
    }
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_else(|_| json!(answer.text()));
    violations(document, schema, &body)
}
