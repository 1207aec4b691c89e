//! Starts the binary, listens to what it says, and ends it.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a process may take to say what it is expected to say, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The binary, without any setting of whoever runs the tests.
pub(crate) fn tideline(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tideline"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDELINE_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub(crate) fn output(mut command: Command) -> Output {
    command.output().expect("the binary runs")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A process that runs; killed when it goes out of scope.
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

    /// Starts `serve` on any port and waits until it listens.
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

    /// Waits for a line.
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
                Err(reason) => panic!("{reason:?}; it said:\n{}", self.said.join("\n")),
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("process ids fit");
        kill_process(Pid::from_raw(id).expect("not zero"), signal).expect("it is our child");
    }

    /// Waits until it has ended by itself. Its status, how long that took, and all it said.
    pub(crate) fn end(mut self) -> (ExitStatus, Duration, String) {
        let begun = Instant::now();
        // Both outputs close when the process ends.
        loop {
            match self.lines.recv_timeout(PATIENCE.saturating_sub(begun.elapsed())) {
                Ok(line) => self.said.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it runs on; it said:\n{}", self.said.join("\n")),
            }
        }
        let status = self.child.wait().expect("it is our child");
        (status, begun.elapsed(), self.said.join("\n"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
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
