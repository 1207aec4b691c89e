//! What the figures were measured on.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::process::kibibytes;

/// The machine, as far as it matters for the figures.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) model: String,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
}

impl Machine {
    /// Looks at this machine. What cannot be found out is said to be unknown.
    pub(crate) fn here() -> Self {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == "model name").then(|| value.trim().to_owned())
        });
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            model: model.unwrap_or_else(|| "unknown CPU".into()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kibibytes(&memory, "MemTotal:").unwrap_or(0),
            kernel: kernel.trim().to_owned(),
        }
    }

    /// For a report that programs read.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "model": self.model,
            "cores": self.cores,
            "memory_bytes": self.memory_bytes,
            "kernel": self.kernel,
        })
    }
}

/// How many processes have wanted a core over the last minute: well above the benchmark's own three or four, somebody
/// else was at work and the figures are worse than they need be.
pub(crate) fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

/// The commit that the working folder stands on, with `+` where files differ from it; `unknown` outside a repository.
pub(crate) fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else {
        return "unknown".into();
    };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => commit + "+",
    }
}
