//! Memory limit of the process: the limit of its control group, or the memory of the machine.
//!
//! Budgets are derived from this limit, so a container must not be sized by the memory of its host.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Limit that is assumed if neither a control group nor the machine reports one.
const UNKNOWN_BYTES: u64 = 4 << 30;

/// Memory that this process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Limit, in bytes.
    pub bytes: u64,
    /// Source of the limit.
    pub source: MemorySource,
}

/// Source of a [`MemoryLimit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemorySource {
    /// Control group of the process or one of its ancestors, for example the group of a container or a systemd unit.
    ControlGroup,
    /// Memory of the machine.
    Machine,
    /// Neither could be read; 4 GiB are assumed.
    Unknown,
}

impl MemoryLimit {
    /// Returns the limit of this process: the lowest of its control groups (version 2 or 1), or the memory of the
    /// machine if that is lower; 4 GiB if neither can be read.
    pub fn of_process() -> Self {
        Self::below(Path::new("/"))
    }

    /// Returns the same limit as [`of_process`](Self::of_process), with `root` as the root of the file system.
    fn below(root: &Path) -> Self {
        let machine = machine_bytes(&root.join("proc/meminfo"));
        let group = group_bytes(root).filter(|bytes| machine.is_none_or(|machine| *bytes < machine));
        let (bytes, source) = match (group, machine) {
            (Some(bytes), _) => (bytes, MemorySource::ControlGroup),
            (None, Some(bytes)) => (bytes, MemorySource::Machine),
            (None, None) => (UNKNOWN_BYTES, MemorySource::Unknown),
        };
        Self { bytes, source }
    }
}

impl fmt::Display for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ControlGroup => "control group",
            Self::Machine => "machine",
            Self::Unknown => "unknown",
        })
    }
}

/// Returns `MemTotal` of `/proc/meminfo`, in bytes; `None` if it cannot be read.
fn machine_bytes(meminfo: &Path) -> Option<u64> {
    let text = fs::read_to_string(meminfo).ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}

/// Returns the lowest limit of the control groups of the process and their ancestors, or `None` without a
/// limit.
fn group_bytes(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let limits = text.lines().filter_map(|line| {
        // Format: hierarchy:controllers:path. Version 2 has no controllers.
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let mount = root.join("sys/fs/cgroup");
        match controllers {
            "" => lowest(&mount, path, "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                lowest(&mount.join("memory"), path, "memory.limit_in_bytes")
            }
            _ => None,
        }
    });
    limits.min()
}

/// Returns the lowest limit of a group and its ancestors. In a container, the path may be the path on the host; then
/// only the root of the mount contains the file. `None` without a limit.
fn lowest(mount: &Path, path: &str, file: &str) -> Option<u64> {
    let group: PathBuf = mount.join(path.trim_start_matches('/'));
    let around = group.ancestors().take_while(|group| group.starts_with(mount));
    // `max` means no limit. Version 1 has a number near 2^63 instead, which exceeds the memory of any machine.
    let limits = around.filter_map(|group| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok());
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const UNLIMITED: &str = "9223372036854771712";

    fn limit(files: &[(&str, &str)]) -> MemoryLimit {
        let root = tempfile::tempdir().expect("a folder");
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, content).expect("write");
        }
        MemoryLimit::below(root.path())
    }

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\n");

    #[test]
    fn the_lowest_group_around_the_process_counts() {
        let unit = ("proc/self/cgroup", "0::/system.slice/tideline.service\n");
        let own = "sys/fs/cgroup/system.slice/tideline.service/memory.max";
        let around = "sys/fs/cgroup/system.slice/memory.max";
        let group = |gib| MemoryLimit {
            bytes: gib * GIB,
            source: MemorySource::ControlGroup,
        };
        assert_eq!(
            limit(&[MACHINE, unit, (own, "2147483648\n"), (around, "max\n")]),
            group(2)
        );
        assert_eq!(
            limit(&[MACHINE, unit, (own, "max\n"), (around, "3221225472\n")]),
            group(3)
        );
        assert_eq!(
            limit(&[MACHINE, unit, (own, "4294967296\n"), (around, "1073741824\n")]),
            group(1)
        );
    }

    #[test]
    fn version_1_and_containers_are_understood() {
        let groups = (
            "proc/self/cgroup",
            "4:memory:/docker/0123\n3:cpu,cpuacct:/\n0::/\n",
        );
        let group = MemoryLimit {
            bytes: GIB,
            source: MemorySource::ControlGroup,
        };
        // Inside a container, the group of the process is the root of the mount.
        let mount = "sys/fs/cgroup/memory/memory.limit_in_bytes";
        assert_eq!(limit(&[MACHINE, groups, (mount, "1073741824\n")]), group);
        let own = "sys/fs/cgroup/memory/docker/0123/memory.limit_in_bytes";
        assert_eq!(
            limit(&[MACHINE, groups, (mount, UNLIMITED), (own, "1073741824\n")]),
            group
        );
        assert_eq!(
            limit(&[
                MACHINE,
                ("proc/self/cgroup", "0::/\n"),
                ("sys/fs/cgroup/memory.max", "1073741824\n")
            ]),
            group
        );
    }

    #[test]
    fn without_a_limit_the_machine_counts() {
        let machine = MemoryLimit {
            bytes: 16 * GIB,
            source: MemorySource::Machine,
        };
        let groups = ("proc/self/cgroup", "4:memory:/\n0::/\n");
        let mount = "sys/fs/cgroup/memory/memory.limit_in_bytes";
        assert_eq!(limit(&[MACHINE]), machine);
        assert_eq!(limit(&[MACHINE, groups, (mount, UNLIMITED)]), machine);
        assert_eq!(
            limit(&[MACHINE, groups, ("sys/fs/cgroup/memory.max", "max\n")]),
            machine
        );
        // A limit above the memory of the machine has no effect.
        assert_eq!(limit(&[MACHINE, groups, (mount, "1099511627776\n")]), machine);
        assert_eq!(
            limit(&[]),
            MemoryLimit {
                bytes: UNKNOWN_BYTES,
                source: MemorySource::Unknown,
            }
        );
    }

    #[test]
    fn this_process_has_a_limit() {
        assert!(MemoryLimit::of_process().bytes > 1 << 20);
    }
}
