//! Sampler of metrics of this machine, as line protocol.
//!
//! Values are read from the system at each sample; metrics that the system does not report are omitted.

use std::fmt::Write;

use sysinfo::{Disks, Networks, System};
use tideline_engine::model::Timestamp;

use crate::failure::{Failure, Result};

/// Sampler of processors, memory, swap, disks, networks, load and uptime.
///
/// Measurements and fields have the names that Telegraf uses, if any. Every line has the tags `host` and
/// `origin=measured`. Counters since the start of the machine are written unchanged, for queries of their `rate`.
#[derive(Debug)]
pub(crate) struct HostSampler {
    host: String,
    system: System,
    disks: Disks,
    networks: Networks,
}

/// Field value.
#[derive(Debug, Clone, Copy)]
enum Figure {
    Float(f64),
    /// Unsigned integer, written as a signed one. Values above `i64::MAX` are clamped.
    Whole(u64),
}

impl HostSampler {
    /// Creates a sampler. The CPU usage is valid only in samples that are taken at least
    /// [`sysinfo::MINIMUM_CPU_UPDATE_INTERVAL`] after the creation.
    pub(crate) fn new() -> Result<Self> {
        let failed = |error: sysinfo::Error| Failure::Sampler(error.to_string());
        let mut system = System::new().map_err(failed)?;
        system.refresh_cpu_usage();
        Ok(Self {
            host: System::host_name().unwrap_or_else(|_| "localhost".to_owned()),
            system,
            disks: Disks::new_with_refreshed_list().map_err(failed)?,
            networks: Networks::new_with_refreshed_list().map_err(failed)?,
        })
    }

    /// Returns the value of the tag `host`.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Samples all metrics. Returns the lines and their number.
    pub(crate) fn sample(&mut self, now: Timestamp) -> (String, u64) {
        self.system.refresh_cpu_usage();
        self.system.refresh_memory();
        self.disks.refresh(true);
        self.networks.refresh(true);
        let mut lines = Lines {
            host: &self.host,
            now,
            text: String::new(),
            count: 0,
        };
        lines.processors(&self.system);
        lines.memory(&self.system);
        lines.disks(&self.disks);
        lines.networks(&self.networks);
        lines.load();
        (lines.text, lines.count)
    }
}

struct Lines<'a> {
    host: &'a str,
    now: Timestamp,
    text: String,
    count: u64,
}

impl Lines<'_> {
    fn processors(&mut self, system: &System) {
        let usage = |percent: f32| [("usage_active", Figure::Float(f64::from(percent)))];
        self.line("cpu", &[("cpu", "cpu-total")], &usage(system.global_cpu_usage()));
        for (number, cpu) in system.cpus().iter().enumerate() {
            self.line("cpu", &[("cpu", &format!("cpu{number}"))], &usage(cpu.usage()));
        }
    }

    fn memory(&mut self, system: &System) {
        let total = system.total_memory();
        let memory = [
            ("total", Figure::Whole(total)),
            ("used", Figure::Whole(system.used_memory())),
            ("free", Figure::Whole(system.free_memory())),
            ("available", Figure::Whole(system.available_memory())),
            ("used_percent", percent(system.used_memory(), total)),
        ];
        self.line("mem", &[], &memory);
        let swap = [
            ("total", Figure::Whole(system.total_swap())),
            ("used", Figure::Whole(system.used_swap())),
            ("free", Figure::Whole(system.free_swap())),
        ];
        self.line("swap", &[], &swap);
    }

    fn disks(&mut self, disks: &Disks) {
        for disk in disks {
            let (total, free) = (disk.total_space(), disk.available_space());
            let used = total.saturating_sub(free);
            let (device, path) = (
                disk.name().to_string_lossy(),
                disk.mount_point().to_string_lossy(),
            );
            let fstype = disk.file_system().to_string_lossy();
            let io = disk.usage();
            self.line(
                "disk",
                &[("device", &device), ("path", &path), ("fstype", &fstype)],
                &[
                    ("total", Figure::Whole(total)),
                    ("free", Figure::Whole(free)),
                    ("used", Figure::Whole(used)),
                    ("used_percent", percent(used, total)),
                    ("read_bytes", Figure::Whole(io.total_read_bytes)),
                    ("write_bytes", Figure::Whole(io.total_written_bytes)),
                ],
            );
        }
    }

    fn networks(&mut self, networks: &Networks) {
        for (interface, network) in networks {
            self.line(
                "net",
                &[("interface", &interface.to_string_lossy())],
                &[
                    ("bytes_recv", Figure::Whole(network.total_received())),
                    ("bytes_sent", Figure::Whole(network.total_transmitted())),
                    ("packets_recv", Figure::Whole(network.total_packets_received())),
                    ("packets_sent", Figure::Whole(network.total_packets_transmitted())),
                    ("err_in", Figure::Whole(network.total_errors_on_received())),
                    ("err_out", Figure::Whole(network.total_errors_on_transmitted())),
                ],
            );
        }
    }

    fn load(&mut self) {
        let mut fields = Vec::new();
        if let Ok(load) = System::load_average() {
            fields.push(("load1", Figure::Float(load.one)));
            fields.push(("load5", Figure::Float(load.five)));
            fields.push(("load15", Figure::Float(load.fifteen)));
        }
        if let Ok(seconds) = System::uptime() {
            fields.push(("uptime", Figure::Whole(seconds)));
        }
        self.line("system", &[], &fields);
    }

    /// Appends one line. Values that are not finite and tags without a value are omitted. Without any field no
    /// line is written.
    fn line(&mut self, measurement: &str, tags: &[(&str, &str)], fields: &[(&str, Figure)]) {
        let is_number = |figure: &Figure| !matches!(figure, Figure::Float(float) if !float.is_finite());
        let fields: Vec<String> = fields
            .iter()
            .filter(|(_, figure)| is_number(figure))
            .map(|(field, figure)| match figure {
                Figure::Float(float) => format!("{field}={float}"),
                Figure::Whole(whole) => format!("{field}={}i", i64::try_from(*whole).unwrap_or(i64::MAX)),
            })
            .collect();
        if fields.is_empty() {
            return;
        }
        self.text.push_str(measurement);
        let fixed = [("host", self.host), ("origin", "measured")];
        for (key, value) in tags.iter().chain(&fixed).filter(|(_, value)| !value.is_empty()) {
            self.text.push(',');
            self.text.push_str(key);
            self.text.push('=');
            push_tag_value(&mut self.text, value);
        }
        writeln!(self.text, " {} {}", fields.join(","), self.now.nanos()).expect("infallible");
        self.count += 1;
    }
}

fn percent(part: u64, whole: u64) -> Figure {
    Figure::Float(part as f64 * 100.0 / whole as f64)
}

/// Appends a tag value with escapes. Control characters are dropped, because line protocol cannot represent
/// them.
fn push_tag_value(text: &mut String, value: &str) {
    for character in value.chars().filter(|character| !character.is_control()) {
        if matches!(character, ',' | '=' | ' ') {
            text.push('\\');
        }
        text.push(character);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines<'a>() -> Lines<'a> {
        Lines {
            host: "a host",
            now: Timestamp::from_nanos_clamped(7),
            text: String::new(),
            count: 0,
        }
    }

    #[test]
    fn a_line_is_escaped_and_complete() {
        let mut lines = lines();
        lines.line(
            "disk",
            &[("path", "/a b,c=d\n"), ("device", "")],
            &[
                ("total", Figure::Whole(u64::MAX)),
                ("used_percent", Figure::Float(12.5)),
                ("bad", percent(0, 0)),
            ],
        );
        assert_eq!(
            lines.text,
            "disk,path=/a\\ b\\,c\\=d,host=a\\ host,origin=measured total=9223372036854775807i,used_percent=12.5 7\n"
        );
        assert_eq!(lines.count, 1);
    }

    #[test]
    fn a_line_without_figures_is_not_written() {
        let mut lines = lines();
        lines.line("system", &[], &[("load1", Figure::Float(f64::NAN))]);
        assert_eq!((lines.text.as_str(), lines.count), ("", 0));
    }

    #[test]
    fn this_machine_has_figures() {
        let mut sampler = HostSampler::new().expect("the system reports figures");
        let (text, count) = sampler.sample(Timestamp::from_nanos_clamped(1));
        assert_eq!(text.lines().count() as u64, count);
        for measurement in [
            "cpu,cpu=cpu-total,host=",
            "cpu,cpu=cpu0,",
            "mem,host=",
            "system,host=",
        ] {
            assert!(text.contains(measurement), "{measurement} is not in\n{text}");
        }
    }
}
