//! Benchmark group `tiers`: one day of M is loaded into the hot tier, moved to the cold tier, measured and
//! queried.
//!
//! The set begins at midnight UTC three days ago. Moves start only on request, so that the cost of a move can be
//! measured; the server schedules all other work.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tideline_model::{Clock, SystemClock};

use crate::benchmark::{Benchmark, Judged, MEBIBYTE, Timing, WIDE_ROUNDS, parts};
use crate::control::{Control, moves_by_hand};
use crate::error::{BenchError, Result};
use crate::folder;
use crate::journal::JournalWatch;
use crate::latency::answer_time;
use crate::load::load;
use crate::queries::{Queries, count};
use crate::report::{Report, Unit, Wanted};
use crate::server::Server;
use crate::set::{Kind, Set};
use crate::truth::Truth;
use crate::wanted;

/// Cost of moving a table.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) cpu: Duration,
    /// Growth of resident memory during the move, at its peak.
    pub(crate) grown_bytes: u64,
    /// The jobs, as reported after their end.
    jobs: Vec<Value>,
}

impl Benchmark {
    /// Runs the group `tiers`: figures of both tiers, and the interference of moves and cold queries with
    /// other work.
    pub(crate) fn run_tiers(&self, report: &mut Report) -> Result<()> {
        let set = Set::of_the_past(Kind::M, self.scale, SystemClock.now().nanos());
        let (server, data) = self.live_through(&set, report)?;
        server.stop()?;
        let truth = Truth::of(&set);
        let queries = Queries::new(&set, &truth);
        let mut server = Server::start(&self.server, &data)?;
        answer_time(&mut server.connect()?, &count(&set))?;
        let timing = Timing {
            name: "all fields by host and hour, 12 h of M, cold",
            rounds: WIDE_ROUNDS,
            wanted: wanted::ALL_FIELDS_BY_HOUR_COLD,
            judged: Judged::Median,
        };
        self.time(&server, timing, report, |random| {
            queries.all_fields_by_hour(random)
        })?;
        self.run_beside(&mut server, &queries, report)?;
        server.kill();
        self.forget(&data)
    }

    /// Loads, seals, moves and measures a set in a fresh folder. The server keeps running.
    fn live_through(&self, set: &Set, report: &mut Report) -> Result<(Server, std::path::PathBuf)> {
        let (mut server, data) = self.fresh("M-tiers", &set.to_string())?;
        let journal = JournalWatch::begin(&data);
        Control::open(&server)?.set_policy(set.table, &moves_by_hand())?;
        load(server.address(), set, self.connections)?;
        server.seal_and_settle()?;
        let hot = Control::open(&server)?.statistics(set.table)?;
        let moved = self.migrate(&mut server, set.table)?;
        let cold = Control::open(&server)?.statistics(set.table)?;
        all_cold(&cold, set.values())?;
        report.add(
            "migration of M",
            set.values() as f64 / moved.cpu.as_secs_f64() / 1e6,
            Unit::MillionValuesPerCpuSecond,
            wanted::MIGRATION,
        );
        report.add(
            "memory grown by the migration of M",
            moved.grown_bytes as f64 / MEBIBYTE,
            Unit::Mebibytes,
            wanted::MIGRATION_MEMORY,
        );
        report.note(moved.note("M"));
        self.weigh(&data, set, &hot, &cold, report)?;
        let written = server.written_bytes()?;
        amplification(&mut server, &cold, (written, journal.end()), report)?;
        answer_time(&mut server.connect()?, &count(set))?;
        Ok((server, data))
    }

    /// Sets a policy under which all points of a table are old enough for the cold tier, moves them and waits until the
    /// server is idle.
    pub(crate) fn migrate(&self, server: &mut Server, table: &str) -> Result<Moved> {
        let mut control = Control::open(server)?;
        let resident = server.forget_peak()?;
        let before = server.cpu_time()?;
        control.set_policy(table, &json!({ "hot_ttl": "1h" }))?;
        let jobs = control.run("migrate", table)?;
        server.settle()?;
        Ok(Moved {
            cpu: server.cpu_time()? - before,
            grown_bytes: server.peak_resident_bytes()?.saturating_sub(resident),
            jobs,
        })
    }

    fn weigh(&self, data: &Path, set: &Set, hot: &Value, cold: &Value, report: &mut Report) -> Result<()> {
        let usage = folder::usage(data)?;
        let values = set.values() as f64;
        report.add(
            "disk M, cold",
            usage.bytes as f64 / values,
            Unit::BytesPerValue,
            wanted::COLD_BYTES_PER_VALUE,
        );
        let per_value = |bytes: &Value| bytes.as_f64().unwrap_or(f64::NAN) / values;
        report.note(format!(
            "M: chunks and keys {:.3} B/value while hot in {} segments, {:.3} B/value cold in {}; disk: {}",
            per_value(&hot["tiers"]["hot"]["bytes"]),
            hot["tiers"]["hot"]["segments"],
            per_value(&cold["tiers"]["cold"]["bytes"]),
            cold["tiers"]["cold"]["segments"],
            parts(&usage, values),
        ));
        Ok(())
    }
}

impl Moved {
    /// Describes the moved data and the cost of the move.
    pub(crate) fn note(&self, name: &str) -> String {
        let sum = |figure: fn(&Value) -> &Value| {
            let figures = self.jobs.iter().map(|job| figure(job).as_u64().unwrap_or(0));
            figures.sum::<u64>()
        };
        let mebibytes = |bytes: u64| bytes as f64 / MEBIBYTE;
        format!(
            "migration of {name}: {} jobs, {} segments, {} values; {:.1} MiB read, {:.1} MiB written, {:.2} s of CPU until \
             the server was idle again",
            self.jobs.len(),
            sum(|job| &job["total"]["segments"]),
            sum(|job| &job["done"]["values"]),
            mebibytes(sum(|job| &job["done"]["bytes"])),
            mebibytes(sum(|job| &job["done"]["bytes_written"])),
            self.cpu.as_secs_f64(),
        )
    }
}

/// Reports the write amplification in two ways: as counted by the operating system and by the server.
fn amplification(
    server: &mut Server,
    cold: &Value,
    (written, journal): (u64, u64),
    report: &mut Report,
) -> Result<()> {
    let stored = cold["tiers"]["cold"]["bytes"].as_f64().unwrap_or(f64::NAN);
    let mut control = Control::open(server)?;
    let sealed = control.metric("tideline_seal_loaded_bytes_total")?;
    let rewritten = control.metric("tideline_rewrite_loaded_bytes_total")?;
    let without_journal = written.saturating_sub(journal) as f64;
    report.add(
        "write amplification over the life of M",
        without_journal / stored,
        Unit::BytesPerByte,
        wanted::WRITE_AMPLIFICATION,
    );
    report.add(
        "write amplification of M, loads of segments only",
        (sealed + rewritten) / stored,
        Unit::BytesPerByte,
        Wanted::Nothing,
    );
    report.note(format!(
        "write amplification of M: write_bytes of the process {:.1} MiB less {:.1} MiB that its journal files grew to, over \
         {:.1} MiB of cold chunks and keys; seals loaded {:.1} MiB, rewrites {:.1} MiB",
        written as f64 / MEBIBYTE,
        journal as f64 / MEBIBYTE,
        stored / MEBIBYTE,
        sealed / MEBIBYTE,
        rewritten / MEBIBYTE,
    ));
    Ok(())
}

/// Returns an error unless a table holds `values` values in the cold tier and none in the hot tier or in
/// memory.
pub(crate) fn all_cold(statistics: &Value, values: u64) -> Result<()> {
    let tiers = &statistics["tiers"];
    if tiers["hot"]["values"] == 0 && tiers["head"]["points"] == 0 && tiers["cold"]["values"] == values {
        return Ok(());
    }
    Err(BenchError::Wrong {
        query: "the statistics of a moved table".into(),
        difference: format!("{values} cold values expected, {tiers} found"),
    })
}
