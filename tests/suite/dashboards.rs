//! Checks of `docker/`. YAML files are valid. Compose files mount paths that exist, wait for states that services
//! reach, give containers only the tokens that they need, and start commands with flags that exist. The pipelines of the
//! OpenTelemetry Collector use only what its configuration declares. Every expression of the dashboards parses, and has
//! a result over the data of `tideline demo` and the server's own metrics, except for metrics that this machine or the
//! engine lacks. Every alert rule parses, and the server has its metrics.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};
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
/// Prefixes of metrics that are missing on a machine without disks or networks, without a cluster, without a certificate,
/// before a fan-out, and before a refusal for lack of memory.
const OPTIONAL: [&str; 6] = [
    "disk_",
    "net_",
    "tideline_cluster_",
    "tideline_feed_fan_out_lag",
    "tideline_memory_refusals",
    "tideline_tls_certificate_",
];

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
    let mut mounts = 0;
    for (file, compose) in compose_files() {
        for (name, service) in services(&compose) {
            for volume in service["volumes"].as_array().into_iter().flatten() {
                let from = volume
                    .as_str()
                    .and_then(|volume| volume.split(':').next())
                    .unwrap_or_default();
                if from.starts_with("./") {
                    assert!(
                        workspace().join("docker").join(from).exists(),
                        "{file}: {name}: {from} does not exist"
                    );
                } else {
                    assert!(
                        compose["volumes"].get(from).is_some(),
                        "{file}: {name}: the volume {from} is not declared"
                    );
                }
                mounts += 1;
            }
        }
    }
    assert!(mounts >= 19, "only {mounts} mounts were found");
}

#[test]
fn compose_waits_for_states_that_services_reach() {
    let files = compose_files();
    let mut waits = 0;
    for (file, compose) in &files {
        let services = services(compose);
        for (name, service) in &services {
            for (other, condition) in service["depends_on"].as_object().into_iter().flatten() {
                let Some(other) = services.get(other) else {
                    panic!("{file}: {name} waits for {other}, which is not declared");
                };
                match condition["condition"].as_str() {
                    Some("service_healthy") => assert!(other["healthcheck"].is_object(), "{file}: {name}"),
                    Some("service_completed_successfully") => {
                        assert_eq!(other["restart"], "no", "{file}: {name}");
                    }
                    condition => panic!("{file}: {name} waits for {condition:?}"),
                }
                waits += 1;
            }
        }
    }
    assert!(waits >= 14, "only {waits} dependencies were found");
}

#[test]
fn compose_starts_commands_with_flags_that_exist() {
    let mut flags = 0;
    for (file, compose) in compose_files() {
        for (name, service) in services(&compose) {
            let command = words(&service["command"]);
            if service["image"] != "tideline" || command.iter().any(|word| word.starts_with('$')) {
                continue;
            }
            let path = command.iter().take_while(|word| !word.starts_with("--"));
            let help = Command::new(binary()).args(path).arg("--help").output();
            let help = String::from_utf8(help.expect("the binary starts").stdout).expect("a text");
            for flag in command.iter().filter(|word| word.starts_with("--")) {
                let flag = flag.split('=').next().unwrap_or(flag);
                assert!(
                    help.split_whitespace().any(|word| word == flag),
                    "{file}: {name}: {command:?} has no flag {flag}:\n{help}"
                );
                flags += 1;
            }
        }
    }
    assert!(flags >= 9, "only {flags} flags were found");
}

#[test]
fn the_collector_declares_what_its_pipelines_use() {
    let text = fs::read_to_string(workspace().join("docker/agents/otelcol.yaml")).expect("it can be read");
    let collector = yaml::parse(&text).expect("it is YAML").swap_remove(0);
    let service = &collector["service"];
    for name in words(&service["extensions"]) {
        assert!(
            collector["extensions"].get(&name).is_some(),
            "no extension {name}"
        );
    }
    let pipelines = service["pipelines"].as_object().expect("pipelines");
    assert!(!pipelines.is_empty(), "no pipelines");
    for (pipeline, parts) in pipelines {
        assert!(
            pipeline.starts_with("metrics"),
            "only metrics are stored: {pipeline}"
        );
        for kind in ["receivers", "processors", "exporters"] {
            for name in words(&parts[kind]) {
                assert!(
                    collector[kind].get(&name).is_some(),
                    "{pipeline}: {kind} has no {name}"
                );
            }
        }
        assert_eq!(words(&parts["exporters"]), ["otlphttp"], "{pipeline}");
    }
    // The service of the compose file mounts the file and sets all of its variables.
    let files = compose_files();
    let (_, compose) = files
        .iter()
        .find(|(file, _)| file == "compose.yaml")
        .expect("the file exists");
    let services = services(compose);
    let otelcol = &services["otelcol"];
    let mounts = words(&otelcol["volumes"]);
    assert!(
        mounts
            .iter()
            .any(|mount| mount.starts_with("./agents/otelcol.yaml:")),
        "{mounts:?}"
    );
    let variables: Vec<&str> = text
        .split("${env:")
        .skip(1)
        .filter_map(|rest| rest.split([':', '}']).next())
        .collect();
    assert!(variables.len() >= 4, "{variables:?}");
    for variable in variables {
        assert!(
            otelcol["environment"][variable].is_string(),
            "{variable} is not set"
        );
    }
}

#[test]
fn each_container_gets_only_the_tokens_that_it_needs() {
    let files = compose_files();
    let (_, compose) = files
        .iter()
        .find(|(file, _)| file == "compose.yaml")
        .expect("the file exists");
    let mut uses = 0;
    for (name, service) in services(compose) {
        let has_admin_token = !words(&service["secrets"]).is_empty();
        assert_eq!(has_admin_token, name == "tideline", "{name}");
        if name == "tokens" {
            continue;
        }
        let mounts = words(&service["volumes"]);
        let mut text = service.to_string();
        for mounted in mounts.iter().filter(|mount| mount.starts_with("./")) {
            let from = mounted.split(':').next().unwrap_or_default();
            let from = workspace().join("docker").join(from);
            let files = match from.is_dir() {
                true => files_below(&from),
                false => vec![from],
            };
            let texts = files.iter().map(|file| fs::read_to_string(file).expect("a text"));
            text.extend(texts);
        }
        for role in ["writer", "reader"] {
            let is_used = text.contains(&format!("/tokens/{role}/token"));
            let is_mounted = mounts.contains(&format!("{role}-token:/tokens/{role}:ro"));
            assert_eq!(is_used, is_mounted, "{name}: {role}");
            uses += usize::from(is_used);
        }
    }
    assert!(uses >= 10, "only {uses} uses of tokens were found");
}

#[test]
fn tokens_of_containers_have_only_the_rights_of_their_role() {
    let folder = DataFolder::new();
    let tokens = folder.beside("tokens");
    fs::create_dir(&tokens).expect("the temporary folder can be written");
    let make = || {
        let made = Command::new("sh")
            .arg(workspace().join("docker/make-tokens"))
            .arg(&tokens)
            .output()
            .expect("the shell starts");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        ["writer", "reader"].map(|role| fs::read_to_string(tokens.join(role).join("token")).expect("a token"))
    };
    let made = make();
    assert_eq!(make(), made, "existing tokens stay");
    let hashes = tokens.join("hashes/tokens.json");
    let hashes = hashes.to_str().expect("a plain path");
    let server = folder.start(&Launch::default().environment("TIDELINE__AUTH__HASHES_FILE", hashes));
    let [writer, reader] = made.map(|token| server.client().with_token(&token));
    let write = |client: &Client| client.post_lines("/write?db=default", "cpu usage=1").status;
    assert_eq!((write(&writer), write(&reader)), (204, 403));
    for path in ["/metrics", "/api/v1/labels"] {
        let status = |client: &Client| client.get(path).status;
        assert_eq!((status(&writer), status(&reader)), (403, 200), "{path}");
    }
}

#[test]
fn the_nodes_of_cassandra_start_in_turn_and_sync_their_commit_log() {
    let files = compose_files();
    let (_, compose) = files
        .iter()
        .find(|(file, _)| file == "compose.cassandra.yaml")
        .expect("the file exists");
    let services = services(compose);
    let is_node = |service: &Value| {
        service["image"]
            .as_str()
            .is_some_and(|image| image.starts_with("cassandra:"))
    };
    let nodes: Vec<&String> = services
        .iter()
        .filter(|(_, service)| is_node(service))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(nodes.len(), 3, "{nodes:?}");
    // The nodes start as a chain: each node except the last is awaited by one other node.
    let awaited: BTreeSet<&String> = nodes
        .iter()
        .filter_map(|name| services[*name]["depends_on"].as_object())
        .flat_map(|others| others.keys())
        .collect();
    assert_eq!(awaited.len(), 2, "nodes join one after another");
    for name in &nodes {
        let options = services[*name]["environment"]["JVM_EXTRA_OPTS"].as_str();
        let options: BTreeSet<&str> = options.unwrap_or_default().split_whitespace().collect();
        // Without the first option, Cassandra ignores the others.
        for option in [
            "-Dcassandra.config.allow_system_properties=true",
            "-Dcassandra.settings.commitlog_sync=group",
            "-Dcassandra.settings.commitlog_sync_period=0ms",
        ] {
            assert!(options.contains(option), "{name}: {option}");
        }
    }
    let contacts: Vec<String> = nodes.iter().map(|name| format!("{name}:9042")).collect();
    let contact = format!("--contact={}", contacts.join(","));
    for (name, service) in &services {
        let words = words(&service["command"]);
        let is_client = service["image"] == "tideline" && words.first().is_none_or(|word| word != "tls");
        assert!(
            !is_client || words.contains(&contact),
            "{name} connects to all nodes"
        );
    }
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
    store_own_metrics(&client);
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
    let mut rules = 0;
    for (alert, expression) in alerts() {
        rules += 1;
        if let Err(problem) = run(&client, &expression) {
            failures.push(format!("{alert}: {expression}\n  {problem}"));
        }
        // An alert has no result without a problem, so the test checks that the server has the metrics of the alert.
        for metric in metrics_of(&expression) {
            if !names.contains(&metric) && !is_optional(&metric, &names) {
                failures.push(format!("{alert}: the server has no metric {metric}"));
            }
        }
    }
    println!(
        "{asked} expressions of dashboards, {empty} with metrics that this machine lacks, {rules} alerts"
    );
    assert!(rules >= 15, "only {rules} alerts were found");
    assert!(asked >= 60, "only {asked} expressions were found");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Stores the metrics of the server in the server, as a scraper does, with the times of three scrapes.
fn store_own_metrics(client: &Client) {
    use tideline_model::Clock as _;
    let wide =
        json!({"key": [{"name": "n", "type": "u64"}], "columns": [{"name": "note", "type": "string"}]});
    client
        .post_json(
            "/v1/tables",
            &json!({"name": "rows", "model": "wide", "wide": wide}),
        )
        .expect_status(201);
    let index = json!({"name": "all", "columns": [{"column": "note", "as": "text"}]});
    client
        .post_json("/v1/tables/rows/search-indexes?refresh=wait", &index)
        .expect_status(201);
    let row = json!({"op": "put", "key": {"n": 1}, "columns": {"note": "one"}});
    client
        .post_json("/v1/tables/rows/rows", &json!({"rows": [row]}))
        .expect_status(200);
    let chat = json!({"name": "chat", "model": "feed", "feed": {"columns": []}});
    client.post_json("/v1/tables", &chat).expect_status(201);
    client
        .post_json(
            "/v1/tables/chat/feeds/room,name=a/messages",
            &json!({"messages": [{"sender": "ann"}]}),
        )
        .expect_status(200);
    let tenant = json!({"tables": ["acme-*"]});
    client.put_json("/v1/tenants/acme", &tenant).expect_status(201);
    let now = tideline_model::SystemClock.now().nanos() / 1_000_000;
    for age in [30_000, 15_000, 0] {
        let metrics = client.get("/metrics").expect_status(200);
        let path = format!("/api/v1/import/prometheus?timestamp={}", now - age);
        let stored = client.post_lines(&path, &metrics.text());
        assert!(stored.is_success(), "{}", stored.text());
    }
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

/// Returns the compose files with their names.
fn compose_files() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for path in files_below(&workspace().join("docker")) {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with("compose.") {
            let text = fs::read_to_string(&path).expect("it can be read");
            found.push((name, yaml::parse(&text).expect("it is YAML").swap_remove(0)));
        }
    }
    assert!(found.len() >= 3, "only {} compose files were found", found.len());
    found
}

/// Returns the services of a compose file with their members, including those that they merge (`<<`).
fn services(compose: &Value) -> Map<String, Value> {
    let services = compose["services"].as_object().expect("services");
    services
        .iter()
        .map(|(name, service)| {
            let mut merged = service["<<"].as_object().cloned().unwrap_or_default();
            merged.extend(service.as_object().cloned().unwrap_or_default());
            (name.clone(), Value::Object(merged))
        })
        .collect()
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

/// Returns the name and the expression of every alert rule.
fn alerts() -> Vec<(String, String)> {
    let text = fs::read_to_string(workspace().join("docker/agents/alerts.yml")).expect("it can be read");
    let rules = yaml::parse(&text).expect("it is YAML").swap_remove(0);
    let groups = rules["groups"].as_array().expect("groups").iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().expect("rules"));
    rules
        .map(|rule| {
            for part in ["summary", "description"] {
                assert!(rule["annotations"][part].is_string(), "{rule} has no {part}");
            }
            let text = |name: &str| rule[name].as_str().expect("a text").to_owned();
            (text("alert"), text("expr"))
        })
        .collect()
}

/// Returns the names of the metrics of the server in an expression.
fn metrics_of(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let own = words.filter(|word| word.starts_with("tideline_"));
    own.map(str::to_owned).collect()
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
    words(list).into_iter().collect()
}

/// Returns the texts of a list in their order.
fn words(list: &Value) -> Vec<String> {
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
