//! A million timelines: ten minutes at ten seconds, one field a row, loaded hot and moved to the cold tier.

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
/// How many days ago the first row lies: young enough to be sealed into the hot tier.
const DAYS_AGO: i64 = 3;
/// Questions that check single timelines.
const CHECKS: usize = 50;

impl Benchmark {
    /// Loads all rows of a million machines, instant by instant, waits for folds, weighs, moves, weighs again.
    pub(crate) fn run_million(&self, report: &mut Report) -> Result<()> {
        let plain = self.crowd();
        let values = plain.points() as f64;
        let content = format!("{} hosts, {} rows each, one field", plain.hosts, plain.steps);
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
            "ingest of a million timelines",
            values / cpu.as_secs_f64() / 1e6,
            Unit::MillionValuesPerCpuSecond,
            Wanted::Nothing,
        );
        report.note(format!(
            "a million: {:.1} M rows of one field, {:.2} GB of line protocol in {:.0} s by the clock, {} refusals; {:.2} s of \
             CPU with seals and folds",
            values / 1e6,
            loaded.bytes as f64 / 1e9,
            loaded.wall.as_secs_f64(),
            loaded.refusals,
            cpu.as_secs_f64(),
        ));
        let peak = server.peak_resident_bytes()?;
        self.weigh_million(&data, &plain, "hot", report)?;
        let moved = self.migrate(&mut server, DEFAULT_TABLE)?;
        let cold: Value = Control::open(&server)?.statistics(DEFAULT_TABLE)?;
        all_cold(&cold, plain.points())?;
        report.note(moved.note("a million timelines"));
        self.weigh_million(&data, &plain, "cold", report)?;
        report.add(
            "migration of a million timelines",
            values / moved.cpu.as_secs_f64() / 1e6,
            Unit::MillionValuesPerCpuSecond,
            Wanted::Nothing,
        );
        report.add(
            "memory grown by the migration of a million timelines",
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
        // The move has made the peak begin anew.
        report.add(
            "peak memory of a million timelines",
            server.peak_resident_bytes()?.max(peak) as f64 / MEBIBYTE,
            Unit::Mebibytes,
            wanted::MILLION_MEMORY,
        );
        server.kill();
        self.forget(&data)
    }

    fn weigh_million(
        &self,
        data: &std::path::Path,
        plain: &Plain,
        tier: &str,
        report: &mut Report,
    ) -> Result<()> {
        let usage = folder::usage(data)?;
        let values = plain.points() as f64;
        report.add(
            format!("disk of a million timelines, {tier}"),
            usage.bytes as f64 / values,
            Unit::BytesPerValue,
            wanted::MILLION_BYTES_PER_VALUE,
        );
        report.note(format!("a million, {tier}: {}", parts(&usage, values)));
        Ok(())
    }

    fn crowd(&self) -> Plain {
        let today = SystemClock.now().nanos().div_euclid(DAY);
        Plain {
            hosts: match self.scale {
                Scale::Full => 1_000_000,
                Scale::Quick => 20_000,
            },
            steps: MINUTES * STEPS_A_MINUTE as u64,
            start: (today - DAYS_AGO) * DAY,
            step: STEP,
            window: STEPS_A_MINUTE as u64,
            windows: MINUTES,
        }
    }
}
