//! Generated client: `openapi-python-client` from PyPI generates a client from `openapi.json`. The client writes,
//! searches and queries against the real binary.
//!
//! The test needs `python3` and a package index. Without them it is skipped, or fails under `CI=true`. The
//! Python environment is kept in the build folder.

use std::fs;
use std::path::Path;

use tideline_testkit::python::Environment;
use tideline_tests::Launch;
use tideline_tests::corpora::workspace;
use tideline_tests::server::DataFolder;

/// Package to install.
const PACKAGE: &str = "openapi-python-client==0.29.1";
/// Script that uses the generated client.
const SCRIPT: &str = include_str!("openapi_client.py");

#[test]
fn a_generated_client_writes_finds_and_queries() {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("openapi-client");
    let Some(python) = Environment::with(&home, &[PACKAGE]) else {
        return;
    };
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let document = workspace().join("openapi/openapi.json");
    let client = folder.beside("client");
    let generated = python.run(
        "openapi-python-client",
        &[
            "generate",
            "--path",
            &document.to_string_lossy(),
            "--output-path",
            &client.to_string_lossy(),
            "--meta",
            "none",
        ],
    );
    let generated = generated.unwrap_or_else(|reason| panic!("{reason}"));
    // The generator omits unknown content types with a warning; a schema that it cannot read is an error.
    assert!(
        !generated.contains("ERROR") && !generated.contains("Unable to parse"),
        "{generated}"
    );
    let script = folder.beside("ask.py");
    fs::write(&script, SCRIPT).expect("the folder can be written");
    let address = format!("http://{}", server.client().address());
    let asked = python.run("python", &[&script.to_string_lossy(), &address]);
    println!("{PACKAGE}: {}", asked.unwrap_or_else(|reason| panic!("{reason}")));
}
