//! Third-party programs, started and stopped by process id.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

/// Program to be started.
#[derive(Debug)]
pub struct Program(Command);

/// Running program; dropping it kills the process.
#[derive(Debug)]
pub struct Running(Child);

impl Program {
    /// Creates a command for the program at this path; its output is discarded.
    pub fn new(path: &Path) -> Self {
        let mut command = Command::new(path);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command)
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(mut self, argument: impl AsRef<std::ffi::OsStr>) -> Self {
        self.0.arg(argument);
        self
    }

    /// Starts the program.
    ///
    /// # Panics
    ///
    /// Panics if the program cannot be started.
    pub fn start(mut self) -> Running {
        Running(
            self.0
                .spawn()
                .unwrap_or_else(|error| panic!("{:?}: {error}", self.0)),
        )
    }

    /// Runs the program and waits for its end.
    ///
    /// # Panics
    ///
    /// Panics if the program cannot be started.
    pub fn run(mut self) -> ExitStatus {
        let status = self.0.status();
        status.unwrap_or_else(|error| panic!("{:?}: {error}", self.0))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a free loopback address.
///
/// # Panics
///
/// Panics if there is no free port.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("loopback has a free port")
}
