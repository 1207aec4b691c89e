//! Prometheus' test scripts, run with two orders of series.

use std::path::PathBuf;

use tideline_promqltest::{Options, Script, run};

use super::corpus;
use super::memory::Memory;

#[test]
fn scripts_of_prometheus_pass() {
    let Some(folder) = corpus::folder() else { return };
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "test"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "there are no scripts");
    let mut failures = 0;
    for file in files {
        let script = match Script::parse(&std::fs::read_to_string(&file).unwrap()) {
            Ok(script) => script,
            Err(error) => {
                println!("{}: {error}", file.display());
                failures += 1;
                continue;
            }
        };
        for is_shuffled in [false, true] {
            let mut memory = Memory {
                is_shuffled,
                ..Memory::default()
            };
            // For the second order, one way of evaluation is sufficient.
            let options = Options {
                is_fixed_too: !is_shuffled,
                as_range_too: !is_shuffled,
                ..Options::default()
            };
            let report = run(&script, &mut memory, options);
            println!(
                "{}: {} evals, {} failures",
                file.display(),
                report.evals,
                report.failures.len()
            );
            for failure in &report.failures {
                println!("    {failure}");
            }
            failures += report.failures.len();
        }
    }
    assert_eq!(failures, 0);
}
