//! Rows of the fleet, in order, as line protocol or as numbers.

use crate::host::Host;
use crate::random::Random;

/// A fleet that never ends: all hosts at the first instant, all hosts at the next, and so on.
///
/// Each field of each host is a random walk: it starts anywhere in 0..100, and every step adds a normal number
/// (mean 0, deviation 1) and is kept within 0..=100. What is written is the whole part.
///
/// Two fleets of the same [`FleetSpec`] give the same rows; a clone goes on from the same place, so that a test can
/// write with one and compare with the other. Memory is about 300 bytes a host. One core writes more than 1 GB/s.
#[derive(Debug, Clone)]
pub struct Fleet {
    hosts: Vec<Host>,
    /// `measurement,tag=value,… ` of all hosts, one after the other.
    prefixes: Vec<u8>,
    /// Where the prefix of each host ends.
    prefix_ends: Vec<usize>,
    walks: Vec<[f64; FIELDS.len()]>,
    random: Random,
    /// The host of the next row.
    next_host: usize,
    /// The instant of the next row, in nanoseconds.
    timestamp: i64,
    step: i64,
    /// ` timestamp\n`, as every row of this instant ends.
    suffix: Vec<u8>,
}

/// What a fleet is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetSpec {
    /// The same seed gives the same fleet.
    pub seed: u64,
    /// Machines; at least 1, and 0 is taken as 1.
    pub hosts: u32,
    /// The first instant, in nanoseconds since the Unix epoch.
    pub start: i64,
    /// From one instant to the next, in nanoseconds.
    pub step: i64,
    /// The measurement, without characters that line protocol escapes. Default `cpu`.
    pub measurement: &'static str,
    /// A tag that is written after the ten, key and value without characters that line protocol escapes. Default
    /// none.
    pub mark: Option<(&'static str, &'static str)>,
}

/// One row, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Which host: a place in [`Fleet::hosts`].
    pub host: usize,
    /// Nanoseconds since the Unix epoch.
    pub timestamp: i64,
    /// The values in the order of [`FIELDS`], 0..=100.
    pub values: [i64; FIELDS.len()],
}

/// The fields, in the order in which they are written.
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

/// The same as they stand in a line.
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

/// Most bytes that fields and timestamp add to a prefix: room is made for whole rows, never for pieces.
const ROW_TAIL_BYTES_MAX: usize = 256;

impl FleetSpec {
    /// A fleet as the benchmark suite shapes it: measurement `cpu`, ten tags.
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
    /// The fleet of [`FleetSpec::new`]: times in nanoseconds.
    pub fn new(seed: u64, hosts: u32, start: i64, step: i64) -> Self {
        Self::from_spec(&FleetSpec::new(seed, hosts, start, step))
    }

    /// The fleet of `spec`.
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

    /// The machines, by number.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The instant of the next row, in nanoseconds since the Unix epoch.
    pub const fn timestamp(&self) -> i64 {
        self.timestamp
    }

    /// Appends the next `rows` rows to `out` as line protocol with nanoseconds, one line each, the last with its
    /// line feed too.
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

    /// The next row in numbers; it takes the place of one that [`Self::write_rows`] would have written.
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

    /// Moves all walks of a host by one step.
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

/// Appends a value of 0..=100 as an integer of line protocol.
fn push_percent(out: &mut Vec<u8>, value: u8) {
    match value {
        0..10 => out.extend_from_slice(&[b'0' + value, b'i']),
        10..100 => out.extend_from_slice(&[b'0' + value / 10, b'0' + value % 10, b'i']),
        _ => out.extend_from_slice(b"100i"),
    }
}

#[cfg(test)]
mod tests;
