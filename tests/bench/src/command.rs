//! Throughput of `tideline write` compared with a plain loader.
//!
//! Loader and command alternately send the same rows, each time to a fresh server: the loader sends prepared
//! batches from memory, and the command reads a file. Rates are per second of wall-clock time. Both run on the
//! same machine as the server and share its CPUs.

use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::benchmark::Benchmark;
use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::latency::answer_time;
use crate::load::{BATCH_ROWS, load_batches};
use crate::queries::count;
use crate::report::{Report, Unit, Wanted};
use crate::set::{DEFAULT_TABLE, Kind, Scale, Set};
use crate::wanted;

/// Number of rounds of each of the two writers.
const ROUNDS: usize = 3;
/// Number of rows per machine of set M; the rows of all machines take about 500 MB.
const STEPS: u32 = 1_500;
/// Name of the line protocol file.
const FILE: &str = "write.lp";

impl Benchmark {
    /// Runs the group `write`: loader and command alternately.
    pub(crate) fn run_write(&self, report: &mut Report) -> Result<()> {
        let set = Set {
            steps: match self.scale {
                Scale::Full => STEPS,
                Scale::Quick => STEPS / 10,
            },
            ..self.set(Kind::M)
        };
        let file = self.folder.join(FILE);
        let batches = make_file(&set, &file)?;
        let bytes: usize = batches.iter().map(Vec::len).sum();
        let name = format!(
            "{:.0} MB of line protocol, {} rows",
            bytes as f64 / 1e6,
            set.rows()
        );
        let mut rates: [Vec<f64>; 2] = Default::default();
        for round in 1..=ROUNDS {
            for (at, by) in ["loader", "command"].into_iter().enumerate() {
                let (server, data) = self.fresh(&format!("write-{by}-{round}"), &name)?;
                let took = match by {
                    "loader" => self.send(server.address(), &batches)?,
                    _ => self.command(server.address(), &file)?,
                };
                rates[at].push(bytes as f64 / 1e6 / took.as_secs_f64());
                answer_time(&mut server.connect()?, &count(&set))?;
                server.kill();
                self.forget(&data)?;
            }
        }
        if !self.keep {
            fs::remove_file(&file).map_err(at(&file))?;
        }
        let [plain, command] = rates.map(median);
        report.note(format!(
            "{name}: {plain:.0} MB/s by the loader, {command:.0} MB/s by `tideline write`, medians of {ROUNDS} in turn"
        ));
        report.add(
            "`tideline write`, by the clock",
            command,
            Unit::MegabytesPerSecond,
            Wanted::Nothing,
        );
        report.add(
            "`tideline write`, relative to the plain loader",
            command / plain * 100.0,
            Unit::Percent,
            wanted::WRITE_COMMAND,
        );
        Ok(())
    }

    /// Sends batches from memory; returns the time until the last acknowledgement.
    fn send(&self, address: SocketAddr, batches: &[Vec<u8>]) -> Result<Duration> {
        let mut next = batches.iter();
        let loaded = load_batches(address, DEFAULT_TABLE, self.connections, |batch| {
            if let Some(made) = next.next() {
                batch.extend_from_slice(made);
            }
        })?;
        Ok(loaded.wall)
    }

    /// Runs the command with its default settings; returns its duration.
    fn command(&self, address: SocketAddr, file: &Path) -> Result<Duration> {
        let failed = |source| BenchError::Start {
            path: self.server.clone(),
            source,
        };
        let begun = Instant::now();
        let child = Command::new(&self.server)
            .args(["write", "--quiet", "--server", &format!("http://{address}")])
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let id = child.id();
        interrupt::guard(id);
        let ended = child.wait_with_output();
        interrupt::release(id);
        let (took, ended) = (begun.elapsed(), ended.map_err(failed)?);
        if ended.status.success() {
            return Ok(took);
        }
        Err(BenchError::Ended {
            status: ended.status.to_string(),
            log: String::from_utf8_lossy(&ended.stderr).into_owned(),
        })
    }
}

/// Writes the rows of a set to a file; returns the same rows as batches.
fn make_file(set: &Set, path: &Path) -> Result<Vec<Vec<u8>>> {
    let mut file = File::create(path).map_err(at(path))?;
    let mut fleet = set.fleet();
    let mut left = set.rows();
    let mut batches = Vec::new();
    while left > 0 {
        let rows = left.min(BATCH_ROWS);
        let mut batch = Vec::new();
        fleet.write_rows(rows as usize, &mut batch);
        file.write_all(&batch).map_err(at(path))?;
        batches.push(batch);
        left -= rows;
    }
    file.sync_all().map_err(at(path))?;
    Ok(batches)
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn at(path: &Path) -> impl Fn(std::io::Error) -> BenchError + '_ {
    move |source| BenchError::File {
        path: path.to_owned(),
        source,
    }
}
