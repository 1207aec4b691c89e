//! Python virtual environments for client libraries and third-party readers. Packages are installed from an index and
//! kept in the build folder; programs run in the environment.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::skip;

/// Exits with 0 if each argument such as `name==1.2` names a package that is installed in this version.
const ARE_INSTALLED: &str = "\
import importlib.metadata as metadata, sys
for package in sys.argv[1:]:
    name, version = package.split('==')
    assert metadata.version(name.split('[')[0]) == version, package";

/// Python virtual environment.
#[derive(Debug)]
pub struct Environment {
    home: PathBuf,
}

impl Environment {
    /// Returns the environment in a folder, with packages such as `name==1.2` installed; creates the environment if
    /// necessary. Returns `None` after [`skip`] if `python3` is missing or a package cannot be installed.
    ///
    /// Tests and processes that request the same folder wait for each other: an installation replaces libraries, and a
    /// program that has such a library mapped would be killed by a signal.
    ///
    /// # Panics
    ///
    /// Panics under `CI=true` instead of returning `None`.
    #[track_caller]
    pub fn with(home: &Path, packages: &[&str]) -> Option<Self> {
        Self::prepare(home, packages)
            .inspect_err(|reason| skip(reason))
            .ok()
    }

    fn prepare(home: &Path, packages: &[&str]) -> Result<Self, String> {
        let _lock = lock(home)?;
        let environment = Self {
            home: home.to_owned(),
        };
        let check = [&["-c", ARE_INSTALLED], packages].concat();
        if environment.run("python", &check).is_ok() {
            return Ok(environment);
        }
        run(
            Path::new("python3"),
            &["-m", "venv", "--clear", &home.to_string_lossy()],
        )?;
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        environment.run("python", &[&install, packages].concat())?;
        Ok(environment)
    }

    /// Runs a program of the environment and returns its standard output.
    ///
    /// # Errors
    ///
    /// Returns an error if the program cannot be started or fails; the error contains its status and all its output.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        run(&self.home.join("bin").join(program), arguments)
    }
}

/// Locks a file next to the folder until the returned file is dropped. Waits for a lock of another thread or process.
fn lock(home: &Path) -> Result<File, String> {
    let path = home.with_extension("lock");
    path.parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| File::create(&path))
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|error| format!("{} cannot be locked: {error}", path.display()))
}

fn run(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let shown = format!("{} {}", program.display(), arguments.join(" "));
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{shown} does not start: {error}"))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    match output.status.success() {
        true => Ok(printed.into_owned()),
        false => {
            let errors = String::from_utf8_lossy(&output.stderr);
            Err(format!("{shown} failed ({}): {printed}{errors}", output.status))
        }
    }
}
