//! Description of the machine on which the figures were measured.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::process::kibibytes;

/// Properties of the machine that affect the figures.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) model: String,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
}

impl Machine {
    /// Reads the properties of this machine; placeholders replace values that cannot be read.
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

    /// Returns the JSON form for the report.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "model": self.model,
            "cores": self.cores,
            "memory_bytes": self.memory_bytes,
            "kernel": self.kernel,
        })
    }
}

/// Returns the load average of the last minute. A value well above the benchmark's own three or four threads
/// indicates that other processes made the figures worse.
pub(crate) fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

/// Returns the short hash of the checked-out commit, followed by `+` if tracked files differ; `unknown`
/// outside a repository.
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
