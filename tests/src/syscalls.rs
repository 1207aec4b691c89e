//! Failing system calls: `strace` is attached to threads of a running server. A range of the calls of each thread
//! then returns an error instead of being executed.
//!
//! Threads are selected by name, because sockets, wakers of the async runtime and the accept loop use the same calls,
//! and a failing disk does not affect them.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::server::Server;

/// System calls that fail, and their error.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Calls, separated by commas.
    pub calls: &'static str,
    /// Error, such as `EIO`.
    pub error: &'static str,
    /// First and last failing call of each thread, counted from 1. With [`ENDLESS`] as the last call, all calls from
    /// the first failing one on fail.
    pub span: RangeInclusive<u32>,
}

/// End of an unlimited span.
pub const ENDLESS: u32 = u32::MAX;

/// Active fault. Dropping it ends the injection.
#[derive(Debug)]
pub struct Injection {
    strace: Child,
    calls: PathBuf,
}

/// Returns the reason why faults cannot be injected on this machine; `None` if `strace` can be run.
pub fn obstacle() -> Option<String> {
    let version = Command::new("strace").arg("-V").stdout(Stdio::null()).status();
    match version {
        Ok(status) if status.success() => None,
        Ok(status) => Some(format!("`strace -V` ends with {status}")),
        Err(error) => Some(format!("`strace` does not run: {error}")),
    }
}

impl Injection {
    /// Attaches to the threads of a server that have one of these names; strace lists the calls in the file
    /// `calls`.
    ///
    /// # Errors
    ///
    /// Returns the output of strace if it cannot be started, or if it ends before it is attached to all threads.
    ///
    /// # Panics
    ///
    /// Panics if the server has no such thread.
    pub fn begin(server: &Server, threads: &[&str], fault: &Fault, calls: &Path) -> Result<Self, String> {
        let found = threads_named(server.id(), threads);
        assert!(
            !found.is_empty(),
            "no thread of {threads:?} runs; the log:\n{}",
            server.log()
        );
        let Fault {
            calls: names,
            error,
            span,
        } = fault;
        let mut command = Command::new("strace");
        command.args(["-e", &format!("trace={names}"), "-e", "signal=none", "-e"]);
        let (first, last) = (span.start(), *span.end());
        let when = match last {
            ENDLESS => format!("{first}+"),
            _ => format!("{first}..{last}"),
        };
        command.arg(format!("inject={names}:error={error}:when={when}"));
        command.arg("-o").arg(calls);
        for id in &found {
            command.args(["-p", &id.to_string()]);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut strace = command.spawn().map_err(|error| error.to_string())?;
        let said = BufReader::new(strace.stderr.take().expect("it is piped"));
        let mut lines = said.lines().map_while(Result::ok);
        let mut heard = Vec::new();
        let mut attached = 0;
        while attached < found.len() {
            let Some(line) = lines.next() else {
                let _ended = strace.wait();
                return Err(heard.join("\n"));
            };
            attached += usize::from(line.contains("attached"));
            heard.push(line);
        }
        // Drains the pipe, because strace would block on a full one.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self {
            strace,
            calls: calls.to_owned(),
        })
    }

    /// Returns the number of calls that have failed so far.
    pub fn failed(&self) -> usize {
        let calls = fs::read_to_string(&self.calls).unwrap_or_default();
        calls.matches("(INJECTED)").count()
    }

    /// Returns the failed calls, as listed by strace.
    pub fn listed(&self) -> Vec<String> {
        let calls = fs::read_to_string(&self.calls).unwrap_or_default();
        let failed = calls.lines().filter(|line| line.contains("(INJECTED)"));
        failed.map(str::to_owned).collect()
    }

    fn detach(&mut self) {
        let id = i32::try_from(self.strace.id()).ok().and_then(Pid::from_raw);
        if let Some(id) = id.filter(|_| matches!(self.strace.try_wait(), Ok(None))) {
            // Fails only if strace has already ended with the server.
            let _ = kill_process(id, Signal::INT);
        }
        let _ended = self.strace.wait();
    }
}

impl Drop for Injection {
    fn drop(&mut self) {
        self.detach();
    }
}

/// Returns the ids of the threads with these names; threads that end during the scan are skipped.
fn threads_named(process: u32, names: &[&str]) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"))
        .into_iter()
        .flatten();
    let ids = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|id: &u32| {
        let name = fs::read_to_string(format!("/proc/{process}/task/{id}/comm")).unwrap_or_default();
        names.contains(&name.trim())
    })
    .collect()
}
