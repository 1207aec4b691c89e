//! Third-party client: `opentelemetry-sdk` with its HTTP exporter from PyPI sends metrics to the real binary, at the
//! root and at the path of a table.
//!
//! The test needs `python3` and a package index. Without them it is skipped, or fails under `CI=true`.

use std::fs;
use std::path::Path;

use serde_json::json;
use tideline_testkit::python::Environment;
use tideline_tests::Launch;
use tideline_tests::server::DataFolder;

/// Package to install; it depends on the SDK of the same version.
const PACKAGE: &str = "opentelemetry-exporter-otlp-proto-http==1.45.2";
/// Script that sends metrics and reads them back.
const SCRIPT: &str = include_str!("otlp_client.py");

#[test]
fn an_opentelemetry_sdk_writes_what_promql_reads() {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("otlp-client");
    let Some(python) = Environment::with(&home, &[PACKAGE]) else {
        return;
    };
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let client = server.client();
    client
        .post_json("/v1/tables", &json!({"name": "second"}))
        .expect_status(201);
    let script = folder.beside("send.py");
    fs::write(&script, SCRIPT).expect("the folder can be written");
    let address = format!("http://{}", client.address());
    let sent = python.run("python", &[&script.to_string_lossy(), &address]);
    println!("{PACKAGE}: {}", sent.unwrap_or_else(|reason| panic!("{reason}")));
}
