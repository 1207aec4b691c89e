//! Scripts of Prometheus' own PromQL tests, run against the service over HTTP.
//!
//! Samples are sent by remote write into a separate table; each `clear` creates a new table. Queries use the path of
//! the current table. Every `eval` and every `expect` is checked.

mod http;

use std::path::PathBuf;
use std::time::Instant;

use tideline_promqltest::{Options, Script, run};
use tideline_tests::corpora::corpus;
use tideline_tests::server::DataFolder;
use tideline_tests::{Launch, rounds};

use self::http::OverHttp;

/// Number of scripts in the corpus.
const SCRIPTS: usize = 21;

#[test]
fn scripts_of_prometheus_pass() {
    let Some(folder) = corpus("promqltest") else {
        return;
    };
    let only = std::env::var("TIDELINE_SCRIPT").unwrap_or_default();
    let scripts = scripts(&folder);
    assert_eq!(scripts.len(), SCRIPTS, "scripts of the corpus");
    let options = Options {
        // The tests of the promql crate run these variants too, so they run here only in the slow run.
        is_fixed_too: rounds("TIDELINE_ALL_WAYS", 0, 1) > 0,
        as_range_too: rounds("TIDELINE_ALL_WAYS", 0, 1) > 0,
        has_listed_histograms: true,
    };
    let folder = DataFolder::new();
    let launch = Launch::default()
        .environment("TIDELINE__PROMETHEUS__DELAYED_NAME_REMOVAL", "true")
        .environment("TIDELINE__PROMETHEUS__START_TIMESTAMPS", "true");
    let server = folder.start(&launch);
    let mut target = OverHttp::new(server.client());
    let (mut evals, mut failures) = (0, 0);
    for path in scripts {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !name.contains(&only) {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a script can be read");
        let script = Script::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let begun = Instant::now();
        let report = run(&script, &mut target, options);
        let took = begun.elapsed();
        println!(
            "{name}: {} evals, {} fail, {took:.1?}",
            report.evals,
            report.failures.len()
        );
        for failure in &report.failures {
            println!("{name} {failure}");
        }
        evals += report.evals;
        failures += report.failures.len();
    }
    println!("{evals} evals of Prometheus' scripts, {failures} fail");
    assert_eq!(failures, 0, "of {evals} evals");
    assert!(evals > 0, "no script has {only:?} in its name");
}

fn scripts(folder: &std::path::Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).expect("the corpus can be listed");
    let files = files.map(|file| file.expect("the corpus can be listed").path());
    let mut scripts: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|end| end == "test"))
        .collect();
    scripts.sort();
    scripts
}
