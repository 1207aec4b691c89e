//! Sequence of a run: load a set, measure its size, query it, kill the server, start it again.
//!
//! Every data folder starts empty, so that figures do not depend on earlier runs. This module measures
//! the group `spine`; the modules of the other groups add methods to [`Benchmark`].

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tideline_fleet::Random;
use tideline_model::{Clock, SystemClock};

use crate::error::{BenchError, Result};
use crate::feeds::Part;
use crate::folder::{self, Usage};
use crate::group::Group;
use crate::latency::{Latencies, answer_time};
use crate::load::load;
use crate::peer::Peer;
use crate::queries::{CheckedRequest, Queries, count};
use crate::report::{Report, Unit, Wanted};
use crate::server::Server;
use crate::set::{Kind, Scale, Set};
use crate::truth::Truth;
use crate::wanted;

/// Configuration of a run.
#[derive(Debug)]
pub(crate) struct Benchmark {
    /// Path of the server binary.
    pub(crate) server: PathBuf,
    /// Folder in which the data folders of the servers are created.
    pub(crate) folder: PathBuf,
    pub(crate) scale: Scale,
    /// Groups to measure, in this order.
    pub(crate) groups: Vec<Group>,
    /// Sets of the group `spine`, in this order.
    pub(crate) kinds: Vec<Kind>,
    /// Parts of the group `feeds`, in this order.
    pub(crate) feeds: Vec<Part>,
    /// Time for which searchable messages are sent in the group `feeds`, in seconds.
    pub(crate) searchable_seconds: u64,
    /// Number of connections that write concurrently.
    pub(crate) connections: usize,
    /// True if the data folders are kept after the run.
    pub(crate) keep: bool,
    /// Another server that receives the requests of the group `prometheus`.
    pub(crate) peer: Option<Peer>,
}

/// Name, number of rounds, goal and judged percentile of one kind of query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) name: &'static str,
    pub(crate) rounds: usize,
    pub(crate) wanted: Wanted,
    pub(crate) judged: Judged,
}

/// Percentile to which a goal applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judged {
    Median,
    Percentile99,
}

/// Number of rounds at full scale for queries that take about 1 ms.
const QUICK_ROUNDS: usize = 1_000;
/// Number of rounds at full scale for queries that read millions of values.
pub(crate) const WIDE_ROUNDS: usize = 100;
/// Divisor of the number of rounds at [`Scale::Quick`].
const QUICK_SCALE: usize = 5;
/// Size, in bytes per value, from which a part of the data folder is listed in the notes.
const SHOWN_BYTES_PER_VALUE: f64 = 0.005;
pub(crate) const MEBIBYTE: f64 = 1_048_576.0;

impl Benchmark {
    /// Runs all selected groups. Figures and notes are added to `report` as they are measured, so that an error
    /// does not lose earlier figures.
    pub(crate) fn run(&self, report: &mut Report) -> Result<()> {
        for group in &self.groups {
            match group {
                Group::Spine => self.run_spine(report)?,
                Group::Tiers => self.run_tiers(report)?,
                Group::Archive => self.run_archive(report)?,
                Group::Backfill => self.run_backfill(report)?,
                Group::Million => self.run_million(report)?,
                Group::Write => self.run_write(report)?,
                Group::Find => self.run_find(report)?,
                Group::Prometheus => self.run_prometheus(report)?,
                Group::Otlp => self.run_otlp(report)?,
                Group::Rows => self.run_rows(report)?,
                Group::Deletes => self.run_deletes(report)?,
                Group::Search => self.run_search(report)?,
                Group::Feeds => self.run_feeds(report)?,
                Group::Changes => self.run_changes(report)?,
            }
        }
        if !self.keep {
            // Fails if the folder contains other files; the folder is then kept.
            let _ = fs::remove_dir(&self.folder);
        }
        Ok(())
    }

    fn run_spine(&self, report: &mut Report) -> Result<()> {
        for kind in &self.kinds {
            match kind {
                Kind::S => self.run_s(report)?,
                Kind::M => self.run_m(report)?,
                Kind::C => self.run_c(report)?,
            }
        }
        Ok(())
    }

    fn run_s(&self, report: &mut Report) -> Result<()> {
        let set = self.set(Kind::S);
        let (server, data) = self.loaded_and_sealed(&set, report)?;
        server.stop()?;
        let truth = Truth::of(&set);
        let queries = Queries::new(&set, &truth);
        let server = Server::start(&self.server, &data)?;
        let timing = Timing {
            name: "one field by minute over all hosts of S",
            rounds: WIDE_ROUNDS,
            wanted: wanted::ALL_HOSTS_BY_MINUTE,
            judged: Judged::Median,
        };
        self.time(&server, timing, report, |random| {
            queries.all_hosts_by_minute(random)
        })?;
        server.kill();
        self.forget(&data)?;
        self.replay(&set, &queries, report)
    }

    fn run_m(&self, report: &mut Report) -> Result<()> {
        let set = self.set(Kind::M);
        let (server, data) = self.loaded_and_sealed(&set, report)?;
        server.kill();
        let truth = Truth::of(&set);
        let queries = Queries::new(&set, &truth);
        let mut server = Server::spawn(&self.server, &data)?;
        let ready = self.first_answer(&mut server, &queries, "ready after kill -9, M sealed", report)?;
        report.add(
            "ready after kill -9, M sealed",
            ready.as_secs_f64(),
            Unit::Seconds,
            wanted::READY_SEALED,
        );
        let timing = Timing {
            name: "one timeline of M, 1 h of one field by minute",
            rounds: QUICK_ROUNDS,
            wanted: wanted::ONE_TIMELINE,
            judged: Judged::Median,
        };
        self.time(&server, timing, report, |random| queries.one_timeline(random))?;
        let timing = Timing {
            name: "all fields by host and hour, 12 h of M",
            rounds: WIDE_ROUNDS,
            wanted: wanted::ALL_FIELDS_BY_HOUR,
            judged: Judged::Median,
        };
        self.time(&server, timing, report, |random| {
            queries.all_fields_by_hour(random)
        })?;
        let timing = Timing {
            name: "values over 90 of one field of all hosts, 12 h of M, as rows",
            rounds: WIDE_ROUNDS,
            wanted: wanted::HIGH_VALUES,
            judged: Judged::Median,
        };
        self.time(&server, timing, report, |random| queries.high_values(random))?;
        let timing = Timing {
            name: "top 10 of 1,000 hosts by the mean of one field, 12 h of M",
            rounds: WIDE_ROUNDS,
            wanted: wanted::TOP_HOSTS,
            judged: Judged::Median,
        };
        self.time(&server, timing, report, |random| queries.top_hosts(random))?;
        let timing = Timing {
            name: "latest of all fields of 1,000 hosts",
            rounds: QUICK_ROUNDS,
            wanted: wanted::LATEST,
            judged: Judged::Median,
        };
        self.time(&server, timing, report, |_| queries.latest())?;
        server.kill();
        self.forget(&data)
    }

    fn run_c(&self, report: &mut Report) -> Result<()> {
        let set = self.set(Kind::C);
        let (server, data) = self.loaded_and_sealed(&set, report)?;
        server.stop()?;
        let truth = Truth::of(&set);
        let queries = Queries::new(&set, &truth);
        let server = Server::start(&self.server, &data)?;
        report.add(
            "ready after SIGTERM, C sealed",
            server.age().as_secs_f64(),
            Unit::Seconds,
            Wanted::Nothing,
        );
        let tens = Timing {
            name: "two tag conditions among the timelines of C, tens of hits",
            rounds: QUICK_ROUNDS,
            wanted: wanted::SEARCH,
            judged: Judged::Percentile99,
        };
        self.time(&server, tens, report, |random| {
            queries.two_tags(["rack", "datacenter"], random)
        })?;
        let one = Timing {
            name: "two tag conditions among the timelines of C, one hit",
            ..tens
        };
        self.time(&server, one, report, |random| {
            queries.two_tags(["hostname", "region"], random)
        })?;
        server.kill();
        self.forget(&data)
    }

    /// Loads a set into a fresh folder, seals it, waits until the server is idle, reports cost and sizes, and counts
    /// the rows. The server keeps running.
    fn loaded_and_sealed(&self, set: &Set, report: &mut Report) -> Result<(Server, PathBuf)> {
        let kind = set.kind;
        let (mut server, data) = self.fresh(&kind.to_string(), &set.to_string())?;
        let before = server.cpu_time()?;
        let loaded = load(server.address(), set, self.connections)?;
        let after_load = server.cpu_time()? - before;
        server.seal_and_settle()?;
        let cpu = server.cpu_time()? - before;
        let peak = server.peak_resident_bytes()?;
        let usage = folder::usage(&data)?;
        let values = set.values() as f64;
        report.add(
            format!("ingest {kind}"),
            values / cpu.as_secs_f64() / 1e6,
            Unit::MillionValuesPerCpuSecond,
            wanted::ingest(kind),
        );
        report.add(
            format!("ingest {kind}, by the clock"),
            values / loaded.wall.as_secs_f64() / 1e6,
            Unit::MillionValuesPerSecond,
            Wanted::Nothing,
        );
        report.add(
            format!("disk {kind}"),
            usage.bytes as f64 / values,
            Unit::BytesPerValue,
            wanted::bytes_per_value(kind),
        );
        report.add(
            format!("peak memory loading {kind}"),
            peak as f64 / MEBIBYTE,
            Unit::Mebibytes,
            wanted::peak_memory(kind),
        );
        report.note(format!(
            "{kind}: CPU {:.2} s until the last acknowledgement, {:.2} s with seal and merges; {} refusals; disk: {}",
            after_load.as_secs_f64(),
            cpu.as_secs_f64(),
            loaded.refusals,
            parts(&usage, values),
        ));
        answer_time(&mut server.connect()?, &count(set))?;
        Ok((server, data))
    }

    /// Loads set S without a seal, kills the server, starts it again and counts the rows.
    fn replay(&self, set: &Set, queries: &Queries<'_>, report: &mut Report) -> Result<()> {
        let name = "ready after kill -9, S unsealed";
        let (server, data) = self.fresh("S-unsealed", &set.to_string())?;
        load(server.address(), set, self.connections)?;
        server.kill();
        let mut server = Server::spawn(&self.server, &data)?;
        let ready = self.first_answer(&mut server, queries, name, report)?;
        report.add(name, ready.as_secs_f64(), Unit::Seconds, wanted::READY_UNSEALED);
        answer_time(&mut server.connect()?, &count(set))?;
        drop(server);
        self.forget(&data)
    }

    /// Returns the time from the start of a process to its first correct query result. Afterwards all
    /// acknowledged rows are counted.
    fn first_answer(
        &self,
        server: &mut Server,
        queries: &Queries<'_>,
        name: &str,
        report: &mut Report,
    ) -> Result<Duration> {
        let mut connection = server.wait_ready()?;
        let ready = server.age();
        answer_time(&mut connection, &queries.one_timeline(&mut Random::new(1)))?;
        let (answered, cpu) = (server.age(), server.cpu_time()?);
        answer_time(&mut connection, &count(queries.set()))?;
        report.note(format!(
            "{name}: /ready after {:.3} s, a correct result after {:.3} s, for which {:.2} s of CPU were used",
            ready.as_secs_f64(),
            answered.as_secs_f64(),
            cpu.as_secs_f64(),
        ));
        Ok(answered)
    }

    /// Runs one kind of query repeatedly; reports client latencies and the server CPU time per query.
    pub(crate) fn time<'a>(
        &self,
        server: &Server,
        timing: Timing,
        report: &mut Report,
        make: impl FnMut(&mut Random) -> CheckedRequest<'a>,
    ) -> Result<()> {
        let rounds = self.rounds(timing);
        let before = server.cpu_time()?;
        let latencies = Latencies::measure(&mut server.connect()?, rounds, make)?;
        let cpu = server.cpu_time()? - before;
        for (percent, judged) in [(50, Judged::Median), (99, Judged::Percentile99)] {
            report.add(
                format!("{}, p{percent}", timing.name),
                milliseconds(latencies.percentile(percent)),
                Unit::Milliseconds,
                if judged == timing.judged {
                    timing.wanted
                } else {
                    Wanted::Nothing
                },
            );
        }
        report.add(
            format!("{}, first after start", timing.name),
            milliseconds(latencies.first),
            Unit::Milliseconds,
            Wanted::Nothing,
        );
        report.add(
            format!("{}, server CPU each", timing.name),
            milliseconds(cpu) / latencies.asked as f64,
            Unit::Milliseconds,
            Wanted::Nothing,
        );
        Ok(())
    }

    /// Returns the number of rounds at the scale of this run.
    pub(crate) const fn rounds(&self, timing: Timing) -> usize {
        match self.scale {
            Scale::Full => timing.rounds,
            Scale::Quick => timing.rounds / QUICK_SCALE,
        }
    }

    /// Starts a server on a new data folder.
    pub(crate) fn fresh(&self, name: &str, content: &str) -> Result<(Server, PathBuf)> {
        let data = self.fresh_folder(name, content)?;
        Ok((Server::start(&self.server, &data)?, data))
    }

    /// Returns the path of a folder that does not exist yet, and prints its future content; an existing folder is an
    /// error.
    pub(crate) fn fresh_folder(&self, name: &str, content: &str) -> Result<PathBuf> {
        let data = self.folder.join(name);
        if data.exists() {
            return Err(BenchError::Usage(format!(
                "{} exists; remove it or use another --data-dir (the benchmark deletes only folders that it created)",
                data.display()
            )));
        }
        eprintln!("{name}: {content}");
        Ok(data)
    }

    /// Removes the data folder and the log of a stopped server, unless the run keeps folders.
    pub(crate) fn forget(&self, data: &Path) -> Result<()> {
        if self.keep {
            return Ok(());
        }
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| BenchError::File { path, source }
        };
        fs::remove_dir_all(data).map_err(failed(data))?;
        let log = Server::log(data);
        fs::remove_file(&log).map_err(failed(&log))
    }

    pub(crate) fn set(&self, kind: Kind) -> Set {
        Set::new(kind, self.scale, SystemClock.now().nanos())
    }
}

/// Lists the parts of a data folder that take at least [`SHOWN_BYTES_PER_VALUE`], with their size in MiB and in bytes
/// per value.
pub(crate) fn parts(usage: &Usage, values: f64) -> String {
    let parts = usage.parts.iter().map(|(name, bytes)| (name, *bytes as f64));
    let parts = parts
        .filter(|(_, bytes)| bytes / values >= SHOWN_BYTES_PER_VALUE)
        .map(|(name, bytes)| {
            let (mebibytes, per_value) = (bytes / MEBIBYTE, bytes / values);
            format!("{name} {mebibytes:.1} MiB = {per_value:.3} B/value")
        });
    parts.collect::<Vec<_>>().join(", ")
}

pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
