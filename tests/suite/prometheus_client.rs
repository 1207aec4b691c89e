//! Third-party client: `prometheus-api-client` from PyPI queries the real binary, at the root and at the path
//! of a table.
//!
//! The test needs `python3` and a package index. Without them it is skipped, or fails under `CI=true`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use tideline_model::{Clock as _, SystemClock};
use tideline_testkit::python::Environment;
use tideline_tests::Launch;
use tideline_tests::server::DataFolder;

/// Package to install.
const PACKAGE: &str = "prometheus-api-client[dataframe]==0.7.2";
/// Script that runs the queries.
const SCRIPT: &str = include_str!("prometheus_client.py");

#[test]
fn a_client_of_prometheus_reads_what_it_expects() {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prometheus-client");
    let Some(python) = Environment::with(&home, &[PACKAGE]) else {
        return;
    };
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let client = server.client();
    let end = SystemClock.now().nanos() / 1_000_000_000;
    let mut lines = String::new();
    for at in 0..120 {
        let time = end - (119 - at) * 15;
        for job in ["api", "web"] {
            let labels = format!("job={job},instance=localhost:9090");
            let count = at * 3;
            writeln!(
                lines,
                "up,{labels} value=1 {time}\nrequests_total,{labels} value={count} {time}"
            )
            .expect("a string takes all");
        }
    }
    client
        .post_lines("/v1/tables/default/points?precision=s", &lines)
        .expect_status(200);
    let script = folder.beside("ask.py");
    fs::write(&script, SCRIPT).expect("the folder can be written");
    let address = format!("http://{}", client.address());
    let asked = python.run("python", &[&script.to_string_lossy(), &address, &end.to_string()]);
    println!("{PACKAGE}: {}", asked.unwrap_or_else(|reason| panic!("{reason}")));
}
