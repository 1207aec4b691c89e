//! Third-party reader and writer: `pyarrow` from PyPI reads rows that the real binary exports as Arrow streams and
//! Parquet files, and writes files that the binary imports.

use serde_json::json;
use tideline_tests::Launch;
use tideline_tests::server::DataFolder;

use crate::python_readers::{PYARROW, PythonReader};

/// Script that reads exports and writes imports.
const SCRIPT: &str = include_str!("rows_pyarrow.py");

#[test]
fn pyarrow_reads_exports_and_its_files_are_imported() {
    let Some(python) = PythonReader::install(PYARROW) else {
        return;
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
    python.run(&folder, SCRIPT, &format!("http://{}", client.address()));
}
