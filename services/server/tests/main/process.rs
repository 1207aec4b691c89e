//! Runs the binary as a process and reads its output.
//!
//! Both outputs are read on threads, so that a test can wait for a line without blocking the process.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tideline_tests::server::FREE_SPACE;

/// Longest wait for an expected line, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Creates a command of the binary without the `TIDELINE_` variables of the test environment.
pub(crate) fn tideline(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tideline"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDELINE_") {
            command.env_remove(name);
        }
    }
    command.envs(FREE_SPACE).args(arguments).stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub(crate) fn output(mut command: Command) -> Output {
    command.output().expect("the binary runs")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Running process; killed when dropped.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let (sender, lines) = channel();
        follow(child.stdout.take().expect("it is piped"), sender.clone());
        follow(child.stderr.take().expect("it is piped"), sender);
        Self {
            child,
            lines,
            said: Vec::new(),
        }
    }

    /// Starts `serve` on a free port and waits until it listens.
    pub(crate) fn serve(data_dir: &Path) -> (Self, SocketAddr) {
        let mut command = tideline(&["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
        command.arg(data_dir);
        let mut running = Self::start(command);
        let line = running.wait_for(|line| line.starts_with("listening on "));
        let address = line
            .trim_start_matches("listening on http://")
            .split(',')
            .next()
            .unwrap_or_default();
        let address = address.parse().expect("an address");
        (running, address)
    }

    /// Waits for a line that `is_wanted` accepts.
    pub(crate) fn wait_for(&mut self, is_wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.said.push(line.clone());
                    if is_wanted(&line) {
                        return line;
                    }
                }
                Err(reason) => panic!("{reason:?}; output:\n{}", self.said.join("\n")),
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("process ids fit");
        kill_process(Pid::from_raw(id).expect("not zero"), signal).expect("it is our child");
    }

    /// Waits until the process has ended. Returns its status, the duration of the wait, and its whole output.
    pub(crate) fn end(mut self) -> (ExitStatus, Duration, String) {
        let begun = Instant::now();
        // Both outputs are closed when the process ends.
        loop {
            match self.lines.recv_timeout(PATIENCE.saturating_sub(begun.elapsed())) {
                Ok(line) => self.said.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("still running; output:\n{}", self.said.join("\n")),
            }
        }
        let status = self.child.wait().expect("it is our child");
        (status, begun.elapsed(), self.said.join("\n"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both calls fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn follow(output: impl Read + Send + 'static, lines: Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                return;
            }
        }
    });
}
