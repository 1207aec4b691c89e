//! Python packages from PyPI that read and write the files of row tables.
//!
//! The tests that use them need `python3` and a package index. Without them they are skipped, or fail under `CI=true`.

use std::fs;
use std::path::Path;

use tideline_testkit::python::Environment;
use tideline_tests::server::DataFolder;

/// Arrow and Parquet library.
pub(super) const PYARROW: &str = "pyarrow==26.0.1";
/// Database that queries Parquet files.
pub(super) const DUCKDB: &str = "duckdb==2.0.1";

/// Package in a separate environment.
pub(super) struct PythonReader {
    package: &'static str,
    environment: Environment,
}

impl PythonReader {
    /// Installs a package. Returns `None` if the test is to be skipped.
    pub(super) fn install(package: &'static str) -> Option<Self> {
        let name = package.split("==").next().unwrap_or(package);
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let environment = Environment::with(&home, &[package])?;
        Some(Self { package, environment })
    }

    /// Runs a script with one argument, and prints its output.
    ///
    /// # Panics
    ///
    /// Panics if the script fails.
    pub(super) fn run(&self, folder: &DataFolder, script: &str, argument: &str) {
        let file = folder.beside("script.py");
        fs::write(&file, script).expect("the folder can be written");
        let ended = self
            .environment
            .run("python", &[&file.to_string_lossy(), argument]);
        println!(
            "{}: {}",
            self.package,
            ended.unwrap_or_else(|reason| panic!("{reason}"))
        );
    }
}
