//! Benchmark group `million`: one million timelines with ten minutes of points at an interval of 10 s, loaded
//! into the hot tier and moved to the cold tier.
//!
//! The group runs twice: with ten fields per row like the sets S, M and C, and with one field, where only 60
//! values share the fixed cost of a timeline.

use std::path::Path;

use serde_json::Value;
use tideline_fleet::Random;
use tideline_model::{Clock, SystemClock};

use crate::benchmark::{Benchmark, MEBIBYTE, parts};
use crate::control::{Control, moves_by_hand};
use crate::error::Result;
use crate::folder;
use crate::latency::answer_time;
use crate::load::{BATCH_ROWS, load_batches};
use crate::plain::Plain;
use crate::report::{Report, Unit, Wanted};
use crate::set::{DAY, DEFAULT_TABLE, STEP, STEPS_A_MINUTE, Scale};
use crate::tiers::all_cold;
use crate::wanted;

const MINUTES: u64 = 10;
/// Age of the first row in days; recent enough to be sealed into the hot tier.
const DAYS_AGO: i64 = 3;
/// Number of queries that check single timelines.
const CHECKS: usize = 50;

impl Benchmark {
    /// Runs both variants, each on a separate server.
    pub(crate) fn run_million(&self, report: &mut Report) -> Result<()> {
        self.run_crowd("a million timelines of ten fields", &self.crowd(10), report)?;
        self.run_crowd("a million timelines of one field", &self.crowd(1), report)
    }

    /// Loads all rows in the order of their timestamps, waits for folds, measures the size, moves the points
    /// and measures again.
    fn run_crowd(&self, name: &str, plain: &Plain, report: &mut Report) -> Result<()> {
        let values = plain.values() as f64;
        let content = format!(
            "{} hosts, {} rows each, {} fields",
            plain.hosts, plain.steps, plain.fields
        );
        let (mut server, data) = self.fresh("million", &content)?;
        Control::open(&server)?.set_policy(DEFAULT_TABLE, &moves_by_hand())?;
        let before = server.cpu_time()?;
        let (mut sum, mut next) = (0, 0);
        let loaded = load_batches(server.address(), DEFAULT_TABLE, self.connections, |batch| {
            let end = plain.points().min(next + BATCH_ROWS);
            for row in next..end {
                sum += plain.write(row % plain.hosts, row / plain.hosts, batch);
            }
            next = end;
        })?;
        Control::open(&server)?.seal()?;
        server.drain()?;
        let cpu = server.cpu_time()? - before;
        report.add(
            format!("ingest of {name}"),
            values / cpu.as_secs_f64() / 1e6,
            Unit::MillionValuesPerCpuSecond,
            Wanted::Nothing,
        );
        report.note(format!(
            "{name}: {:.1} M rows, {:.2} GB of line protocol in {:.0} s by the clock, {} refusals; {:.2} s of CPU with seals \
             and folds",
            plain.points() as f64 / 1e6,
            loaded.bytes as f64 / 1e9,
            loaded.wall.as_secs_f64(),
            loaded.refusals,
            cpu.as_secs_f64(),
        ));
        let peak = server.peak_resident_bytes()?;
        self.weigh_crowd(&data, &format!("{name}, hot"), values, report)?;
        let moved = self.migrate(&mut server, DEFAULT_TABLE)?;
        let cold: Value = Control::open(&server)?.statistics(DEFAULT_TABLE)?;
        all_cold(&cold, plain.values())?;
        report.note(moved.note(name));
        self.weigh_crowd(&data, &format!("{name}, cold"), values, report)?;
        report.add(
            format!("migration of {name}"),
            values / moved.cpu.as_secs_f64() / 1e6,
            Unit::MillionValuesPerCpuSecond,
            Wanted::Nothing,
        );
        report.add(
            format!("memory grown by the migration of {name}"),
            moved.grown_bytes as f64 / MEBIBYTE,
            Unit::Mebibytes,
            wanted::MIGRATION_MEMORY,
        );
        let mut connection = server.connect()?;
        answer_time(&mut connection, &plain.count())?;
        answer_time(&mut connection, &plain.sum(sum))?;
        let mut random = Random::new(1);
        for _ in 0..CHECKS {
            answer_time(&mut connection, &plain.one_host(&mut random))?;
        }
        // The move reset the peak, so the larger of both peaks is reported.
        report.add(
            format!("peak memory of {name}"),
            server.peak_resident_bytes()?.max(peak) as f64 / MEBIBYTE,
            Unit::Mebibytes,
            wanted::MILLION_MEMORY,
        );
        server.kill();
        self.forget(&data)
    }

    fn weigh_crowd(&self, data: &Path, name: &str, values: f64, report: &mut Report) -> Result<()> {
        let usage = folder::usage(data)?;
        report.add(
            format!("disk of {name}"),
            usage.bytes as f64 / values,
            Unit::BytesPerValue,
            wanted::MILLION_BYTES_PER_VALUE,
        );
        report.note(format!("{name}: {}", parts(&usage, values)));
        Ok(())
    }

    fn crowd(&self, fields: u64) -> Plain {
        let today = SystemClock.now().nanos().div_euclid(DAY);
        Plain {
            hosts: match self.scale {
                Scale::Full => 1_000_000,
                Scale::Quick => 20_000,
            },
            fields,
            steps: MINUTES * STEPS_A_MINUTE as u64,
            start: (today - DAYS_AGO) * DAY,
            step: STEP,
            window: STEPS_A_MINUTE as u64,
            windows: MINUTES,
        }
    }
}
