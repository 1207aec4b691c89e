//! A client that is made of `openapi.json`: `openapi-python-client` from PyPI generates it, and it writes, finds and queries
//! against the real binary.
//!
//! It needs `python3` and a package index. Without either the test reports that it skipped; under `CI=true` it fails. What is
//! generated stays in the folder of the build.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tideline_tests::corpora::workspace;
use tideline_tests::server::DataFolder;
use tideline_tests::{Launch, skip};

/// Installed packages.
const PACKAGE: &str = "openapi-python-client==0.29.1";
/// Script that uses the generated client.
const SCRIPT: &str = include_str!("openapi_client.py");

#[test]
fn a_generated_client_writes_finds_and_queries() {
    let home = match environment() {
        Ok(home) => home,
        Err(reason) => {
            skip(&reason);
            return;
        }
    };
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let document = workspace().join("openapi/openapi.json");
    let client = folder.beside("client");
    let generated = run(
        &home.join("bin/openapi-python-client"),
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
    // Content types that the generator does not know are left out with a warning; a schema that it cannot read is not.
    assert!(
        !generated.contains("ERROR") && !generated.contains("Unable to parse"),
        "{generated}"
    );
    let script = folder.beside("ask.py");
    fs::write(&script, SCRIPT).expect("the folder can be written");
    let address = format!("http://{}", server.client().address());
    let asked = run(&home.join("bin/python"), &[&script.to_string_lossy(), &address]);
    print!("{PACKAGE}: {}", asked.unwrap_or_else(|reason| panic!("{reason}")));
}

/// An environment that has the package, made where it is not there yet.
fn environment() -> Result<PathBuf, String> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("openapi-client");
    let python = home.join("bin/python");
    let is_there = "import importlib.metadata, sys; \
        sys.exit(importlib.metadata.version('openapi-python-client') != sys.argv[1])";
    let version = PACKAGE.rsplit('=').next().unwrap_or_default();
    if run(&python, &["-c", is_there, version]).is_ok() {
        return Ok(home);
    }
    run(
        Path::new("python3"),
        &["-m", "venv", "--clear", &home.to_string_lossy()],
    )?;
    let install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        PACKAGE,
    ];
    run(&python, &install)?;
    Ok(home)
}

/// Runs a program and returns its output, or the reason of its failure.
fn run(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let shown = format!("{} {}", program.display(), arguments.join(" "));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => Ok(text(&output.stdout) + &text(&output.stderr) + "\n"),
        Ok(output) => Err(format!(
            "{shown} failed: {}{}",
            text(&output.stdout),
            text(&output.stderr)
        )),
        Err(error) => Err(format!("{shown} does not start: {error}")),
    }
}
