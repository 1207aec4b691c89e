//! How much memory the process may use: the limit of its control group, or the memory of the machine.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Limit where neither a control group nor the machine tells one.
const UNKNOWN_BYTES: u64 = 4 << 30;

/// Memory that this process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimit {
    /// In bytes.
    pub bytes: u64,
    /// Where the number comes from.
    pub source: MemorySource,
}

/// Where a [`MemoryLimit`] comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemorySource {
    /// A control group of the process, or one around it: a container, a unit of systemd.
    ControlGroup,
    /// The machine has no more.
    Machine,
    /// Neither could be read; 4 GiB are assumed.
    Unknown,
}

impl MemoryLimit {
    /// The limit of this process: the lowest of its control groups (version 2 or 1), or what the machine has.
    pub fn of_process() -> Self {
        Self::below(Path::new("/"))
    }

    /// The same, where the system's files are below a folder.
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

/// `MemTotal` of `/proc/meminfo`.
fn machine_bytes(meminfo: &Path) -> Option<u64> {
    let text = fs::read_to_string(meminfo).ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}

/// The lowest limit of the process' control groups and their ancestors; `None` without a limit.
fn group_bytes(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let limits = text.lines().filter_map(|line| {
        // hierarchy:controllers:path; version 2 has neither number nor controllers.
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

/// The lowest limit of a group and those around it. In a container the path may be that outside of it; then only the
/// mount itself has a file.
fn lowest(mount: &Path, path: &str, file: &str) -> Option<u64> {
    let group: PathBuf = mount.join(path.trim_start_matches('/'));
    let around = group.ancestors().take_while(|group| group.starts_with(mount));
    // `max` is no limit, and version 1 says so with a number near 2^63, which is more than any machine has.
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
        // Inside of the container the group of the process is the mount itself.
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
        // More than the machine has is no limit.
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
