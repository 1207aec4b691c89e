//! Python virtual environments for client libraries. Packages are installed from an index and kept in the build
//! folder; programs run in the environment.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Python virtual environment.
#[derive(Debug)]
pub struct Environment {
    home: PathBuf,
}

impl Environment {
    /// Returns the environment in a folder, with a package such as `name==1.2` installed; creates it if
    /// necessary.
    ///
    /// # Errors
    ///
    /// Returns an error if `python3` is missing or the package cannot be installed.
    pub fn with(home: &Path, package: &str) -> Result<Self, String> {
        let environment = Self {
            home: home.to_owned(),
        };
        let is_there = "import importlib.metadata, sys; sys.exit(importlib.metadata.version(sys.argv[1]) != sys.argv[2])";
        let (name, version) = package.split_once("==").unwrap_or((package, ""));
        let name = name.split('[').next().unwrap_or(name);
        if environment
            .run("python", &["-c", is_there, name, version])
            .is_ok()
        {
            return Ok(environment);
        }
        run(
            Path::new("python3"),
            &["-m", "venv", "--clear", &home.to_string_lossy()],
        )?;
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        environment.run("python", &[&install[..], &[package]].concat())?;
        Ok(environment)
    }

    /// Runs a program of the environment and returns its output.
    ///
    /// # Errors
    ///
    /// Returns an error if the program cannot be started or fails; the error contains its output.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        run(&self.home.join("bin").join(program), arguments)
    }
}

fn run(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let shown = format!("{} {}", program.display(), arguments.join(" "));
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{shown} does not start: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let printed = text(&output.stdout) + &text(&output.stderr);
    match output.status.success() {
        true => Ok(printed),
        false => Err(format!("{shown} failed: {printed}")),
    }
}
