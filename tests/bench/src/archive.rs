//! Benchmark group `archive`: one day of set M is moved from the cold tier into archive files and queried
//! there.
//!
//! The target is a directory next to the data folder. Moves start only on request, so that the cost of each
//! move can be measured. A second table holds ratios of counters, as host samplers send them: floats with
//! full precision.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tideline_fleet::Random;
use tideline_model::{Clock, SystemClock};

use crate::benchmark::{Benchmark, Judged, MEBIBYTE, Timing, parts};
use crate::control::{Control, moves_by_hand};
use crate::error::{BenchError, Result};
use crate::folder;
use crate::latency::{Latencies, answer_time};
use crate::load::{load, load_batches};
use crate::queries::{CheckedRequest, Queries, count};
use crate::report::{Report, Unit, Wanted};
use crate::server::Server;
use crate::set::{Kind, STEP, Set};
use crate::truth::Truth;
use crate::wanted;

/// Name of the table of ratios.
const RATIOS: &str = "ratios";
/// Number of machines that write to [`RATIOS`], and number of fields per machine.
const RATIO_HOSTS: u64 = 100;
const RATIO_FIELDS: u64 = 10;
/// Approximate number of ticks of a counter per step: 100 ticks per second on four processors.
const TICKS: usize = 4_000;
/// Number of rounds of queries that read one day of all timelines.
const DAY_ROUNDS: usize = 5;
const ONE_ROUNDS: usize = 200;

impl Benchmark {
    /// Runs the group `archive`.
    pub(crate) fn run_archive(&self, report: &mut Report) -> Result<()> {
        let set = Set::of_the_past(Kind::M, self.scale, SystemClock.now().nanos());
        let data = self.fresh_folder("M-archive", &set.to_string())?;
        let target = self.fresh_folder("M-files", "what is archived")?;
        let address = format!("file://{}", target.display());
        let settings = [("TIDELINE__ARCHIVE__TARGET", address.as_str())];
        let start = || Server::start_with(&self.server, &data, &settings);
        let mut server = start()?;
        Control::open(&server)?.set_policy(set.table, &moves_by_hand())?;
        load(server.address(), &set, self.connections)?;
        server.seal_and_settle()?;
        self.archive(&mut server, set.table, set.values(), "M", report)?;
        weigh(&data, &target, set.table, set.values(), "M", report)?;
        answer_time(&mut server.connect()?, &count(&set))?;
        self.archive_ratios(&mut server, &set, (&data, &target), report)?;
        server.stop()?;
        let truth = Truth::of(&set);
        let queries = Queries::new(&set, &truth);
        let server = start()?;
        let timing = Timing {
            name: "one field of one timeline, a day of M by minute, archived",
            rounds: ONE_ROUNDS,
            wanted: wanted::ARCHIVED_DAY,
            judged: Judged::Median,
        };
        self.time(&server, timing, report, |random| queries.one_day(random))?;
        let hours = "all fields of all timelines, a day of M by hour, archived";
        let wanted = wanted::ARCHIVED_AGGREGATE;
        rate(&server, &set, hours, wanted, report, || queries.everything(60))?;
        let rows = "the same by a quarter of an hour, from rows";
        rate(&server, &set, rows, Wanted::Nothing, report, || {
            queries.everything(15)
        })?;
        server.kill();
        self.forget(&data)?;
        if !self.keep {
            let removed = std::fs::remove_dir_all(&target);
            removed.map_err(|source| BenchError::File { path: target, source })?;
        }
        Ok(())
    }

    /// Moves a sealed table to the cold tier and then into archive files; reports the cost of the second
    /// move.
    fn archive(
        &self,
        server: &mut Server,
        table: &str,
        values: u64,
        name: &str,
        report: &mut Report,
    ) -> Result<()> {
        self.migrate(server, table)?;
        let mut control = Control::open(server)?;
        let by_hand =
            json!({"archive": {"target": "default", "after": "2h", "schedule": {"cron": "0 0 1 1 *"}}});
        control.set_policy(table, &by_hand)?;
        let (resident, before) = (server.forget_peak()?, server.cpu_time()?);
        let jobs = control.run("archive", table)?;
        let peak = server.peak_resident_bytes()?;
        server.settle()?;
        let cpu = server.cpu_time()? - before;
        let tiers = control.statistics(table)?["tiers"].take();
        if tiers["archive"]["values"] != values {
            return Err(BenchError::Wrong {
                query: "the statistics of an archived table".into(),
                difference: format!("{values} archived values expected, {tiers} found"),
            });
        }
        report.add(
            format!("archiving {name}"),
            values as f64 / cpu.as_secs_f64() / 1e6,
            Unit::MillionValuesPerCpuSecond,
            of_m(table, wanted::ARCHIVING),
        );
        report.add(
            format!("memory grown by archiving {name}"),
            peak.saturating_sub(resident) as f64 / MEBIBYTE,
            Unit::Mebibytes,
            of_m(table, wanted::ARCHIVING_MEMORY),
        );
        let written: u64 = jobs
            .iter()
            .filter_map(|job: &Value| job["done"]["bytes_written"].as_u64())
            .sum();
        report.note(format!(
            "archiving {name}: {} jobs, {:.1} MiB of files, {:.2} s of CPU until the server was idle again; peak {:.0} MiB resident",
            jobs.len(),
            written as f64 / MEBIBYTE,
            cpu.as_secs_f64(),
            peak as f64 / MEBIBYTE,
        ));
        Ok(())
    }

    /// Loads a table of counter ratios and reports the cost and the size of its archive.
    fn archive_ratios(
        &self,
        server: &mut Server,
        set: &Set,
        (data, target): (&Path, &PathBuf),
        report: &mut Report,
    ) -> Result<()> {
        Control::open(server)?.create_table(RATIOS, &moves_by_hand())?;
        let (start, steps) = (set.start, u64::from(set.steps));
        let mut random = Random::new(11);
        let mut busy = vec![TICKS / 4; (RATIO_HOSTS * RATIO_FIELDS) as usize];
        let mut step = 0;
        load_batches(server.address(), RATIOS, self.connections, move |batch| {
            // One step of all machines is only 100 rows; ten steps make a batch of useful size.
            for _ in 0..10 {
                if step < steps {
                    ratios(&mut random, &mut busy, start + step as i64 * STEP, batch);
                    step += 1;
                }
            }
        })?;
        server.seal_and_settle()?;
        let values = RATIO_HOSTS * RATIO_FIELDS * steps;
        self.archive(server, RATIOS, values, "ratios", report)?;
        weigh(data, target, RATIOS, values, "ratios", report)
    }
}

/// Returns `wanted` for the table of set M; the ratio table has no goal.
fn of_m(table: &str, wanted: Wanted) -> Wanted {
    match table {
        RATIOS => Wanted::Nothing,
        _ => wanted,
    }
}

/// Writes one step of all machines: for each field, the share of ticks used, in percent.
fn ratios(random: &mut Random, busy: &mut [usize], time: i64, out: &mut Vec<u8>) {
    let mut text = String::new();
    for (host, fields) in busy.chunks_mut(RATIO_FIELDS as usize).enumerate() {
        let total = TICKS - 5 + random.index(11);
        let _infallible = write!(text, "ratio,host=h{host}");
        for (field, ticks) in fields.iter_mut().enumerate() {
            *ticks = (*ticks + random.index(201)).clamp(100, TICKS) - 100;
            let share = 100.0 * *ticks as f64 / total as f64;
            let sign = if field == 0 { ' ' } else { ',' };
            let _infallible = write!(text, "{sign}f{field}={share}");
        }
        let _infallible = writeln!(text, " {time}");
    }
    out.extend_from_slice(text.as_bytes());
}

/// Reports the size of the archive files per value, and notes the size of the data folder.
fn weigh(
    data: &Path,
    target: &Path,
    table: &str,
    values: u64,
    name: &str,
    report: &mut Report,
) -> Result<()> {
    let files = folder::usage(&target.join(table))?;
    report.add(
        format!("files of the archive of {name}"),
        files.bytes as f64 / values as f64,
        Unit::BytesPerValue,
        of_m(table, wanted::ARCHIVE_BYTES_PER_VALUE),
    );
    let local = folder::usage(data)?;
    report.note(format!(
        "{name} archived: {}; the data folder then: {}",
        parts(&files, values as f64),
        parts(&local, values as f64),
    ));
    Ok(())
}

/// Runs a query over all values of a set [`DAY_ROUNDS`] times after a warm-up; reports the values covered per second
/// of CPU time.
fn rate<'a>(
    server: &Server,
    set: &Set,
    name: &str,
    wanted: Wanted,
    report: &mut Report,
    make: impl Fn() -> CheckedRequest<'a>,
) -> Result<()> {
    let before = server.cpu_time()?;
    let latencies = Latencies::measure(&mut server.connect()?, DAY_ROUNDS, |_| make())?;
    let cpu = server.cpu_time()? - before;
    report.add(
        name,
        (set.values() * latencies.asked as u64) as f64 / cpu.as_secs_f64() / 1e6,
        Unit::MillionValuesPerCpuSecond,
        wanted,
    );
    report.note(format!(
        "{name}: {:.1} ms at the client, {:.1} ms the first time",
        crate::benchmark::milliseconds(latencies.percentile(50)),
        crate::benchmark::milliseconds(latencies.first),
    ));
    Ok(())
}
