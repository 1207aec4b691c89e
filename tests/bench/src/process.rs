//! Resource usage of a process as Linux reports it in `/proc`: CPU time, resident memory and its peak, and
//! bytes written to storage.

use std::fs;
use std::time::Duration;

use crate::error::{BenchError, Result};

/// Clock ticks per second in `/proc/PID/stat`. Linux reports 100 to user space on all supported
/// architectures, independent of the kernel's own tick rate.
const TICKS_PER_SECOND: u64 = 100;
/// Positions of `utime` and `stime` in `/proc/PID/stat`, counted from the field after the command name.
const USER_TICKS_PLACE: usize = 11;
const SYSTEM_TICKS_PLACE: usize = 12;

/// Returns the CPU time in user space and kernel of all threads of a process, including ended threads. The
/// resolution is 10 ms.
pub(crate) fn cpu_time(pid: u32) -> Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat = read(&path)?;
    // The command name may contain spaces and parentheses; the fields after it do not.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = |place| {
        let field = fields.split_whitespace().nth(place);
        field.and_then(|field| field.parse::<u64>().ok())
    };
    match (ticks(USER_TICKS_PLACE), ticks(SYSTEM_TICKS_PLACE)) {
        (Some(user), Some(system)) => Ok(Duration::from_millis((user + system) * 1_000 / TICKS_PER_SECOND)),
        _ => Err(BenchError::Proc { path }),
    }
}

/// Returns the peak resident memory of a process since its start or the last [`forget_peak`] (`VmHWM`), in
/// bytes.
pub(crate) fn peak_resident_bytes(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = read(&path)?;
    kibibytes(&status, "VmHWM:").ok_or(BenchError::Proc { path })
}

/// Returns the current resident memory of a process (`VmRSS`), in bytes.
pub(crate) fn resident_bytes(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = read(&path)?;
    kibibytes(&status, "VmRSS:").ok_or(BenchError::Proc { path })
}

/// Resets the value of [`peak_resident_bytes`] to the current resident memory.
pub(crate) fn forget_peak(pid: u32) -> Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    fs::write(&path, "5").map_err(|source| BenchError::File {
        path: path.into(),
        source,
    })
}

/// Returns the bytes that a process has written to storage so far, in whole pages (`write_bytes`).
pub(crate) fn written_bytes(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/io");
    let io = read(&path)?;
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes:"));
    let count = line.and_then(|count| count.trim().parse().ok());
    count.ok_or(BenchError::Proc { path })
}

/// Returns the value in bytes of a line such as `VmHWM:   1234 kB`, or `None` if there is no such line.
pub(crate) fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let count: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(count * 1_024)
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).map_err(|source| BenchError::File {
        path: path.into(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_peak_begins_with_what_is_held() {
        let pid = std::process::id();
        let before = peak_resident_bytes(pid).expect("own status is readable");
        drop(std::hint::black_box(vec![1u8; 64 << 20]));
        let grown = peak_resident_bytes(pid).expect("own status is readable");
        assert!(grown >= before + (32 << 20), "{before} grew to {grown}");
        forget_peak(pid).expect("a process may forget its own peak");
        assert!(peak_resident_bytes(pid).expect("own status is readable") < grown);
        assert!(resident_bytes(pid).expect("own status is readable") < grown);
        written_bytes(pid).expect("own io is readable");
    }

    #[test]
    fn this_process_has_used_memory_and_time_does_not_go_back() {
        let pid = std::process::id();
        let before = cpu_time(pid).expect("own stat is readable");
        let sum = (0..20_000_000u64).fold(0u64, |sum, n| std::hint::black_box(sum ^ n));
        std::hint::black_box(sum);
        assert!(cpu_time(pid).expect("own stat is readable") >= before);
        assert!(peak_resident_bytes(pid).expect("own status is readable") > 1 << 20);
    }
}
