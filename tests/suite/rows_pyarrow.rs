//! Third-party reader and writer: `pyarrow` from PyPI reads rows that the real binary exports as Arrow streams and
//! Parquet files, and writes files that it imports.
//!
//! The test needs `python3` and a package index. Without them it is skipped, or fails under `CI=true`.

use std::fs;
use std::path::Path;

use serde_json::json;
use tideline_tests::python::Environment;
use tideline_tests::server::DataFolder;
use tideline_tests::{Launch, skip};

/// Package to install.
const PACKAGE: &str = "pyarrow==26.0.1";
/// Script that reads exports and writes imports.
const SCRIPT: &str = include_str!("rows_pyarrow.py");

#[test]
fn pyarrow_reads_exports_and_its_files_are_imported() {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pyarrow");
    let python = match Environment::with(&home, PACKAGE) {
        Ok(python) => python,
        Err(reason) => {
            skip(&reason);
            return;
        }
    };
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let client = server.client();
    for name in ["source", "stream", "file"] {
        let table = json!({"name": name, "model": "wide", "wide": {
            "key": [{"name": "id", "type": "string"}, {"name": "n", "type": "u64"}],
            "columns": [
                {"name": "total", "type": "decimal"}, {"name": "at", "type": "timestamp"}, {"name": "raw", "type": "binary"},
                {"name": "paid", "type": "bool"}, {"name": "rate", "type": "f64"}, {"name": "doc", "type": "json"}
            ]
        }});
        client.post_json("/v1/tables", &table).expect_status(201);
    }
    let script = folder.beside("rows.py");
    fs::write(&script, SCRIPT).expect("the folder can be written");
    let address = format!("http://{}", client.address());
    let ended = python.run("python", &[&script.to_string_lossy(), &address]);
    println!("{PACKAGE}: {}", ended.unwrap_or_else(|reason| panic!("{reason}")));
}
