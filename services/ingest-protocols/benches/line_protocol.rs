//! Throughput of the line-protocol decoder on one core, with a resolver that only counts.
//!
//! Run with `cargo bench -p tideline-ingest-protocols`. Each figure is the best of several runs over a body of 10,000
//! lines, which reduces the influence of other work on the machine.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use tideline_ingest_protocols::{DecodeOptions, line_protocol};
use tideline_model::{Ordinal, RejectReason, SeriesResolver, Timestamp};

const LINES: usize = 10_000;
const RUNS: usize = 60;

/// Resolver that numbers rows, so that only the decoder is measured.
struct CountingResolver(u32);

impl SeriesResolver for CountingResolver {
    fn resolve(&mut self, key: &[u8]) -> Result<Ordinal, RejectReason> {
        black_box(key);
        self.0 = self.0.wrapping_add(1);
        Ok(Ordinal(self.0))
    }
}

fn main() {
    // `cargo test --benches` also runs this; one run is then enough.
    let runs = if std::env::args().any(|argument| argument == "--bench") {
        RUNS
    } else {
        1
    };
    measure("cpu, 10 integers", &tsbs_cpu(), runs);
    measure("disk, 7 floats", &floats(), runs);
    measure("cpu, disk, mem in turn", &interleaved(), runs);
    measure("cpu, fields in changing order", &unsteady(), runs);
}

fn measure(name: &str, body: &str, runs: usize) {
    let options = DecodeOptions::new(Timestamp::EPOCH);
    let mut best = Duration::MAX;
    let mut values = 0;
    for _ in 0..runs {
        let start = Instant::now();
        let batch = line_protocol::decode(black_box(body.as_bytes()), options, &mut CountingResolver(0));
        best = best.min(start.elapsed());
        assert!(
            batch.rejects.is_empty() && batch.rows() == LINES,
            "{name}: {:?}",
            batch.rejects.first()
        );
        values = batch.values();
    }
    let seconds = best.as_secs_f64();
    let (megabytes, lines) = (body.len() as f64 / 1e6, LINES as f64);
    println!(
        "{name:32} {:7.0} MB/s {:6.2} M lines/s {:7.1} M values/s {:6.0} ns per line of {} bytes",
        megabytes / seconds,
        lines / 1e6 / seconds,
        values as f64 / 1e6 / seconds,
        seconds * 1e9 / lines,
        body.len() / LINES,
    );
}

const CPU_FIELDS: [&str; 10] = [
    "user",
    "system",
    "idle",
    "nice",
    "iowait",
    "irq",
    "softirq",
    "steal",
    "guest",
    "guest_nice",
];

/// Returns a pseudo-random number from 0 to 100 that depends only on `seed`.
fn percent(seed: usize) -> usize {
    (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 101
}

fn cpu_line(line: usize, first_field: usize, out: &mut String) {
    let host = line % 4_000;
    let _ = write!(
        out,
        "cpu,hostname=host_{host},region=eu-central-1,datacenter=eu-central-1a,rack={},os=Ubuntu15.10,arch=x86,\
         team=SF,service={},service_version=1,service_environment=test ",
        host % 100,
        host % 20
    );
    for field in 0..CPU_FIELDS.len() {
        let name = CPU_FIELDS[(field + first_field) % CPU_FIELDS.len()];
        let separator = if field == 0 { "" } else { "," };
        let _ = write!(out, "{separator}usage_{name}={}i", percent(line * 10 + field));
    }
    let _ = writeln!(
        out,
        " {}",
        1_451_606_400_000_000_000 + line / 4_000 * 10_000_000_000
    );
}

fn disk_line(line: usize, out: &mut String) {
    let _ = write!(out, "disk,host=host_{},path=/var,fstype=ext4 ", line % 4_000);
    for (field, name) in [
        "free",
        "used",
        "total",
        "used_percent",
        "inodes_free",
        "reads",
        "writes",
    ]
    .iter()
    .enumerate()
    {
        let separator = if field == 0 { "" } else { "," };
        let _ = write!(
            out,
            "{separator}{name}={}.{:03}",
            percent(line + field) * 977,
            percent(line * 7 + field) * 9
        );
    }
    let _ = writeln!(out, " 1451606400000000000");
}

fn tsbs_cpu() -> String {
    let mut body = String::new();
    (0..LINES).for_each(|line| cpu_line(line, 0, &mut body));
    body
}

fn floats() -> String {
    let mut body = String::new();
    (0..LINES).for_each(|line| disk_line(line, &mut body));
    body
}

fn interleaved() -> String {
    let mut body = String::new();
    for line in 0..LINES {
        match line % 3 {
            0 => cpu_line(line, 0, &mut body),
            1 => disk_line(line, &mut body),
            _ => {
                let _ = writeln!(
                    body,
                    "mem,host=host_{line} free={}i,used={}i,note=\"ok\" {line}",
                    line * 4_096,
                    line
                );
            }
        }
    }
    body
}

fn unsteady() -> String {
    let mut body = String::new();
    (0..LINES).for_each(|line| cpu_line(line, percent(line), &mut body));
    body
}
