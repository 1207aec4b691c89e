//! Programs of others, started and ended by their process ids.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

/// A program that is about to be started.
#[derive(Debug)]
pub struct Program(Command);

/// One that runs; it is killed when this is dropped.
#[derive(Debug)]
pub struct Running(Child);

impl Program {
    /// The program of this path; what it says goes nowhere.
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

    /// Starts it.
    ///
    /// # Panics
    ///
    /// When there is no such program.
    pub fn start(mut self) -> Running {
        Running(
            self.0
                .spawn()
                .unwrap_or_else(|error| panic!("{:?}: {error}", self.0)),
        )
    }

    /// Runs it to its end.
    ///
    /// # Panics
    ///
    /// When there is no such program.
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

/// An address on loopback that nobody listens on.
///
/// # Panics
///
/// When there is none.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("loopback has a free port")
}
