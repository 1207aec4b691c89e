//! A client that is not ours: `prometheus-api-client` from PyPI asks the real binary, at the root and below the address of a
//! table.
//!
//! It needs `python3` and a package index. Without either the test says that it skipped; under `CI=true` it fails.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tideline_model::{Clock as _, SystemClock};
use tideline_tests::server::DataFolder;
use tideline_tests::{Launch, skip};

/// What is installed.
const PACKAGE: &str = "prometheus-api-client[dataframe]==0.7.2";
/// What it is made to ask.
const SCRIPT: &str = include_str!("prometheus_client.py");

#[test]
fn a_client_of_prometheus_reads_what_it_expects() {
    let python = match python() {
        Ok(python) => python,
        Err(reason) => {
            skip(&reason);
            return;
        }
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
    let asked = Command::new(python)
        .arg(&script)
        .args([&address, &end.to_string()])
        .output();
    let asked = asked.expect("python starts");
    let (said, failed) = (
        String::from_utf8_lossy(&asked.stdout),
        String::from_utf8_lossy(&asked.stderr),
    );
    print!("{PACKAGE}: {said}");
    assert!(asked.status.success(), "{said}{failed}");
}

/// The interpreter of an environment that has the package, made where it is not there yet.
fn python() -> Result<PathBuf, String> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prometheus-client");
    let python = home.join("bin/python");
    if run(
        &python,
        &["-c", "from prometheus_api_client import MetricRangeDataFrame"],
    )
    .is_ok()
    {
        return Ok(python);
    }
    run(
        Path::new("python3"),
        &["-m", "venv", "--clear", &home.to_string_lossy()],
    )?;
    run(
        &python,
        &[
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            PACKAGE,
        ],
    )?;
    Ok(python)
}

fn run(program: &Path, arguments: &[&str]) -> Result<(), String> {
    let shown = format!("{} {}", program.display(), arguments.join(" "));
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "{shown} failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Err(format!("{shown} does not start: {error}")),
    }
}
