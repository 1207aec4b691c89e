//! Checks of `docker/`: YAML files are valid, mounts exist, and every expression of the dashboards parses and
//! has a result over the data of `tideline demo`, except for metrics that this machine lacks.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tideline_tests::client::escaped;
use tideline_tests::corpora::workspace;
use tideline_tests::server::{DataFolder, binary};
use tideline_tests::{Client, Launch, yaml};

/// Dashboard variables and the values that replace them in these tests.
const VARIABLES: [(&str, &str); 8] = [
    ("$__rate_interval", "5m"),
    ("$__interval", "1m"),
    ("$__range", "1h"),
    ("${region:regex}", ".*"),
    ("$region", ".*"),
    ("$environment", ".*"),
    ("$host", ".*"),
    ("$__all", ".*"),
];
/// Prefixes of metrics that are missing on a machine without disks or networks.
const OPTIONAL: [&str; 2] = ["disk_", "net_"];

#[test]
fn configurations_are_yaml() {
    let mut files = 0;
    for path in files_below(&workspace().join("docker")) {
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
        if matches!(end, "yaml" | "yml") {
            let text = fs::read_to_string(&path).expect("it can be read");
            let documents = yaml::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert!(
                documents.iter().all(Value::is_object),
                "{} has a document that is not an object",
                path.display()
            );
            files += 1;
        }
    }
    println!("{files} files of YAML");
    assert!(files >= 10, "only {files} files were found");
}

#[test]
fn compose_mounts_what_is_there() {
    let text = fs::read_to_string(workspace().join("docker/compose.yaml")).expect("it can be read");
    let compose = yaml::parse(&text).expect("it is YAML").swap_remove(0);
    let mut mounts = 0;
    for (name, service) in compose["services"].as_object().expect("services") {
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let from = volume
                .as_str()
                .and_then(|volume| volume.split(':').next())
                .unwrap_or_default();
            if from.starts_with("./") {
                assert!(
                    workspace().join("docker").join(from).exists(),
                    "{name}: {from} does not exist"
                );
                mounts += 1;
            } else {
                assert!(
                    compose["volumes"].get(from).is_some(),
                    "{name}: the volume {from} is not declared"
                );
            }
        }
    }
    assert!(mounts >= 8, "only {mounts} mounts were found");
}

#[test]
fn every_expression_of_a_dashboard_has_an_answer() {
    let folder = DataFolder::new();
    // Two runs, because rates need two samples, and one run may store only one sample of this machine's metrics.
    for _ in 0..2 {
        let demo = Command::new(binary())
            .args([
                "demo",
                "--once",
                "--hosts",
                "40",
                "--listen",
                "127.0.0.1:0",
                "--data-dir",
            ])
            .arg(folder.path())
            .output()
            .expect("the demo starts");
        assert!(demo.status.success(), "{}", String::from_utf8_lossy(&demo.stderr));
    }
    let server = folder.start(&Launch::default());
    let client = server.client();
    let names = texts(
        &client
            .get("/api/v1/label/__name__/values")
            .expect_status(200)
            .json()["data"],
    );
    let (mut asked, mut empty, mut failures) = (0, 0, Vec::new());
    for (place, expression) in expressions() {
        asked += 1;
        match run(&client, &expression) {
            Err(problem) => failures.push(format!("{place}: {expression}\n  {problem}")),
            Ok(0) if is_optional(&expression, &names) => empty += 1,
            Ok(0) => failures.push(format!(
                "{place}: {expression}\n  has no result over the data of the demo"
            )),
            Ok(_) => {}
        }
    }
    println!("{asked} expressions of dashboards, {empty} with metrics that this machine lacks");
    assert!(asked >= 20, "only {asked} expressions were found");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Returns the number of series of an expression over the last 15 minutes.
fn run(client: &Client, expression: &str) -> Result<usize, String> {
    use tideline_model::Clock as _;
    let now = tideline_model::SystemClock.now().nanos() / 1_000_000_000;
    // The range ends in the future, so that points of the current second are before the last step.
    let (start, end) = (now - 900, now + 15);
    let form = format!("query={}&start={start}&end={end}&step=15", escaped(expression));
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    let response = client
        .send("POST", "/api/v1/query_range", &headers, form.as_bytes())
        .map_err(|error| error.to_string())?;
    if response.status != 200 {
        return Err(format!("{}: {}", response.status, response.text()));
    }
    let response = response.json();
    if let Some(warnings) = response.get("warnings") {
        return Err(format!("warns: {warnings}"));
    }
    Ok(response["data"]["result"].as_array().map_or(0, Vec::len))
}

/// Returns true if an expression uses metrics that this machine lacks.
fn is_optional(expression: &str, names: &BTreeSet<String>) -> bool {
    OPTIONAL
        .iter()
        .any(|prefix| expression.contains(prefix) && !names.iter().any(|name| name.starts_with(prefix)))
}

/// Returns every expression of every dashboard with its file name; variables are replaced.
fn expressions() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for path in files_below(&workspace().join("docker")) {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let text = fs::read_to_string(&path).unwrap_or_default();
        let is_grafana = path.extension().is_some_and(|end| end == "json");
        let documents = match is_grafana {
            true => vec![serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))],
            false if path.components().any(|part| part.as_os_str() == "perses") => {
                yaml::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
            }
            false => continue,
        };
        for document in &documents {
            collect(document, &mut |expression| {
                found.push((name.clone(), filled(expression)));
            });
        }
    }
    found
}

/// Passes each expression to `take`. Expressions have the keys `expr` (Grafana panels), `query` (Grafana
/// variables, Perses panels) and `matchers` (Perses variables).
fn collect(value: &Value, take: &mut dyn FnMut(&str)) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, take)),
        Value::Object(members) => {
            for (key, member) in members {
                match (key.as_str(), member) {
                    ("expr" | "query", Value::String(text)) => match text.strip_prefix("label_values(") {
                        Some(rest) => take(rest.rsplit_once(',').map_or(rest, |(selector, _)| selector)),
                        None => take(text),
                    },
                    ("matchers", Value::Array(selectors)) => {
                        selectors.iter().filter_map(Value::as_str).for_each(&mut *take);
                    }
                    (_, member) => collect(member, take),
                }
            }
        }
        _ => {}
    }
}

fn filled(expression: &str) -> String {
    VARIABLES
        .iter()
        .fold(expression.to_owned(), |text, (name, value)| {
            text.replace(name, value)
        })
}

fn texts(list: &Value) -> BTreeSet<String> {
    let texts = list.as_array().into_iter().flatten();
    texts.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder can be read").flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => files.extend(files_below(&path)),
            false => files.push(path),
        }
    }
    files.sort();
    files
}
