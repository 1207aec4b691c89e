//! Generator of the fleet's rows, as line protocol or as numbers.
//!
//! A fleet yields the rows of all hosts at one timestamp, then the rows of the next timestamp. It writes line
//! protocol straight into the caller's buffer, so that benchmarks measure the server and not the generator.

use crate::host::Host;
use crate::random::Random;

/// Endless sequence of rows: all hosts at the first timestamp, all hosts at the next, and so on.
///
/// Each field of each host is a random walk. It starts at a uniform value in 0..100; every step adds a normal
/// value (mean 0, deviation 1) and clamps the sum to 0..=100. The integer part is written.
///
/// Two fleets of the same [`FleetSpec`] yield the same rows. A clone continues at the same row, so a test can
/// write with one and compare with the other. A fleet takes about 300 bytes of memory per host. One core writes
/// more than 1 GB/s.
#[derive(Debug, Clone)]
pub struct Fleet {
    hosts: Vec<Host>,
    /// `measurement,tag=value,… ` of all hosts, concatenated.
    prefixes: Vec<u8>,
    /// End offset in `prefixes` of each host's prefix.
    prefix_ends: Vec<usize>,
    walks: Vec<[f64; FIELDS.len()]>,
    random: Random,
    /// Index of the host of the next row.
    next_host: usize,
    /// Timestamp of the next row, in nanoseconds since the Unix epoch.
    timestamp: i64,
    step: i64,
    /// ` timestamp\n`, the end of every row of the current timestamp.
    suffix: Vec<u8>,
}

/// Parameters of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetSpec {
    /// Seed of the random number generator; the same seed yields the same fleet.
    pub seed: u64,
    /// Number of hosts; 0 is treated as 1.
    pub hosts: u32,
    /// First timestamp, in nanoseconds since the Unix epoch.
    pub start: i64,
    /// Interval between two timestamps, in nanoseconds.
    pub step: i64,
    /// Measurement name, without characters that line protocol escapes; `cpu` from [`FleetSpec::new`].
    pub measurement: &'static str,
    /// Key and value of a tag that is written after the ten tags, without characters that line protocol
    /// escapes; `None` from [`FleetSpec::new`].
    pub mark: Option<(&'static str, &'static str)>,
}

/// Row as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Index into [`Fleet::hosts`].
    pub host: usize,
    /// Timestamp, in nanoseconds since the Unix epoch.
    pub timestamp: i64,
    /// Values in the order of [`FIELDS`], each in 0..=100.
    pub values: [i64; FIELDS.len()],
}

/// Field names, in the order in which they are written.
pub const FIELDS: [&str; 10] = [
    "usage_user",
    "usage_system",
    "usage_idle",
    "usage_nice",
    "usage_iowait",
    "usage_irq",
    "usage_softirq",
    "usage_steal",
    "usage_guest",
    "usage_guest_nice",
];

/// [`FIELDS`] as they are written in a line.
const FIELD_STARTS: [&[u8]; FIELDS.len()] = [
    b"usage_user=",
    b",usage_system=",
    b",usage_idle=",
    b",usage_nice=",
    b",usage_iowait=",
    b",usage_irq=",
    b",usage_softirq=",
    b",usage_steal=",
    b",usage_guest=",
    b",usage_guest_nice=",
];

/// Maximum number of bytes that fields and timestamp add to a prefix. Reserving them once per row avoids growing
/// the buffer within a row.
const ROW_TAIL_BYTES_MAX: usize = 256;

impl FleetSpec {
    /// Returns the parameters of a fleet with the shape of the benchmark suite: measurement `cpu`, ten tags. `start`
    /// and `step` are in nanoseconds.
    pub const fn new(seed: u64, hosts: u32, start: i64, step: i64) -> Self {
        Self {
            seed,
            hosts,
            start,
            step,
            measurement: "cpu",
            mark: None,
        }
    }
}

impl Fleet {
    /// Creates the fleet of [`FleetSpec::new`]. `start` and `step` are in nanoseconds.
    pub fn new(seed: u64, hosts: u32, start: i64, step: i64) -> Self {
        Self::from_spec(&FleetSpec::new(seed, hosts, start, step))
    }

    /// Creates the fleet described by `spec`.
    pub fn from_spec(spec: &FleetSpec) -> Self {
        let mut random = Random::new(spec.seed);
        let hosts: Vec<Host> = (0..spec.hosts.max(1))
            .map(|number| Host::draw(number, &mut random))
            .collect();
        let walks = hosts
            .iter()
            .map(|_| std::array::from_fn(|_| random.unit() * 100.0))
            .collect();
        let mut prefixes = Vec::new();
        let mut prefix_ends = Vec::with_capacity(hosts.len());
        for host in &hosts {
            push_prefix(&mut prefixes, spec, host);
            prefix_ends.push(prefixes.len());
        }
        Self {
            hosts,
            prefixes,
            prefix_ends,
            walks,
            random,
            next_host: 0,
            timestamp: spec.start,
            step: spec.step,
            suffix: suffix(spec.start),
        }
    }

    /// Returns all hosts, by number.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Returns the timestamp of the next row, in nanoseconds since the Unix epoch.
    pub const fn timestamp(&self) -> i64 {
        self.timestamp
    }

    /// Appends the next `rows` rows to `out` as line protocol with timestamps in nanoseconds. Every line, including the
    /// last, ends with a line feed.
    pub fn write_rows(&mut self, rows: usize, out: &mut Vec<u8>) {
        for _ in 0..rows {
            let host = self.next_host;
            let values = self.step_walks(host);
            let start = host.checked_sub(1).map_or(0, |before| self.prefix_ends[before]);
            let prefix = &self.prefixes[start..self.prefix_ends[host]];
            out.reserve(prefix.len() + ROW_TAIL_BYTES_MAX);
            out.extend_from_slice(prefix);
            for (field, value) in FIELD_STARTS.into_iter().zip(values) {
                out.extend_from_slice(field);
                push_percent(out, value);
            }
            out.extend_from_slice(&self.suffix);
            self.advance();
        }
    }

    /// Returns the next row as numbers, and advances past it: [`Self::write_rows`] does not write this row.
    pub fn next_row(&mut self) -> Row {
        let host = self.next_host;
        let timestamp = self.timestamp;
        let values = self.step_walks(host).map(i64::from);
        self.advance();
        Row {
            host,
            timestamp,
            values,
        }
    }

    /// Advances all walks of a host by one step and returns their integer parts.
    fn step_walks(&mut self, host: usize) -> [u8; FIELDS.len()] {
        let random = &mut self.random;
        let walks = &mut self.walks[host];
        for walk in walks.iter_mut() {
            *walk = (*walk + random.normal()).clamp(0.0, 100.0);
        }
        walks.map(|walk| walk as u8)
    }

    fn advance(&mut self) {
        self.next_host += 1;
        if self.next_host == self.hosts.len() {
            self.next_host = 0;
            self.timestamp = self.timestamp.saturating_add(self.step);
            self.suffix = suffix(self.timestamp);
        }
    }
}

fn push_prefix(out: &mut Vec<u8>, spec: &FleetSpec, host: &Host) {
    out.extend_from_slice(spec.measurement.as_bytes());
    let tags = host.tags();
    let tags = tags.iter().map(|(key, value)| (*key, value.as_str()));
    for (key, value) in tags.chain(spec.mark) {
        out.push(b',');
        out.extend_from_slice(key.as_bytes());
        out.push(b'=');
        out.extend_from_slice(value.as_bytes());
    }
    out.push(b' ');
}

fn suffix(timestamp: i64) -> Vec<u8> {
    format!(" {timestamp}\n").into_bytes()
}

/// Appends a value in 0..=100 as an integer of line protocol.
fn push_percent(out: &mut Vec<u8>, value: u8) {
    match value {
        0..10 => out.extend_from_slice(&[b'0' + value, b'i']),
        10..100 => out.extend_from_slice(&[b'0' + value / 10, b'0' + value % 10, b'i']),
        _ => out.extend_from_slice(b"100i"),
    }
}

#[cfg(test)]
mod tests;
