//! Benchmark group `backfill`: five years of 100 timelines, all points written in random order.
//!
//! The order is a computed permutation, so that no list of points is kept in memory.

use tideline_fleet::Random;
use tideline_model::{Clock, SystemClock};

use crate::benchmark::{Benchmark, MEBIBYTE, parts};
use crate::control::Control;
use crate::error::Result;
use crate::folder;
use crate::latency::answer_time;
use crate::load::{BATCH_ROWS, load_batches};
use crate::plain::Plain;
use crate::report::{Report, Unit, Wanted};
use crate::set::{DAY, DEFAULT_TABLE, HOUR, MINUTE, Scale};
use crate::wanted;

/// Pseudo-random permutation of the integers below a power of two.
#[derive(Debug, Clone, Copy)]
struct Shuffle {
    bits: u32,
}

/// Odd multipliers, because multiplication by an odd number is a permutation modulo a power of two. Multiplication
/// mixes the low bits poorly, so [`Shuffle::at`] also shifts.
const MULTIPLIERS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];

const HOSTS: u64 = 100;
const YEARS: i64 = 5;
const DAYS_A_YEAR: i64 = 365;
/// Number of queries that check windows of one host.
const CHECKS: usize = 50;

impl Benchmark {
    /// Loads five years in random order, waits for all folds, and checks counts and sums.
    pub(crate) fn run_backfill(&self, report: &mut Report) -> Result<()> {
        let plain = self.years();
        let values = plain.points() as f64;
        let content = format!(
            "{HOSTS} hosts, {} rows each over {YEARS} years in random order, one field",
            plain.steps
        );
        let (mut server, data) = self.fresh("backfill", &content)?;
        let before = server.cpu_time()?;
        let mut sum = 0;
        let (shuffle, mut next) = (Shuffle::over(plain.points()), 0);
        let loaded = load_batches(server.address(), DEFAULT_TABLE, self.connections, |batch| {
            let mut rows = 0;
            while rows < BATCH_ROWS && next < shuffle.len() {
                let place = shuffle.at(next);
                next += 1;
                if place < plain.points() {
                    sum += plain.write(place % HOSTS, place / HOSTS, batch);
                    rows += 1;
                }
            }
        })?;
        let after_load = server.cpu_time()? - before;
        Control::open(&server)?.seal()?;
        server.drain()?;
        let cpu = server.cpu_time()? - before;
        let statistics = Control::open(&server)?.statistics(DEFAULT_TABLE)?;
        let segments = statistics["segments"].as_f64().unwrap_or(f64::NAN);
        report.add(
            "segments after backfill",
            segments,
            Unit::Segments,
            wanted::BACKFILL_SEGMENTS,
        );
        report.add(
            "backfill, folds included",
            values / cpu.as_secs_f64() / 1e6,
            Unit::MillionValuesPerCpuSecond,
            wanted::BACKFILL,
        );
        let peak = server.peak_resident_bytes()? as f64 / MEBIBYTE;
        report.add(
            "peak memory of backfill",
            peak,
            Unit::Mebibytes,
            wanted::BACKFILL_MEMORY,
        );
        let usage = folder::usage(&data)?;
        report.add(
            "disk after backfill",
            usage.bytes as f64 / values,
            Unit::BytesPerValue,
            Wanted::Nothing,
        );
        let rewritten = Control::open(&server)?.metric("tideline_rewrite_loaded_bytes_total")?;
        report.note(format!(
            "backfill: {:.1} M points in {:.0} s by the clock, {} refusals; CPU {:.2} s until the last acknowledgement, \
             {:.2} s with seals and folds, which loaded {:.1} MiB; disk: {}",
            values / 1e6,
            loaded.wall.as_secs_f64(),
            loaded.refusals,
            after_load.as_secs_f64(),
            cpu.as_secs_f64(),
            rewritten / MEBIBYTE,
            parts(&usage, values),
        ));
        let mut connection = server.connect()?;
        answer_time(&mut connection, &plain.count())?;
        answer_time(&mut connection, &plain.sum(sum))?;
        let mut random = Random::new(1);
        for _ in 0..CHECKS {
            answer_time(&mut connection, &plain.one_host(&mut random))?;
        }
        server.kill();
        self.forget(&data)
    }

    /// Returns a set that covers the five years before today: one point per host and minute, or per host and hour at
    /// [`Scale::Quick`].
    fn years(&self) -> Plain {
        let today = SystemClock.now().nanos().div_euclid(DAY) * DAY;
        let span = YEARS * DAYS_A_YEAR * DAY;
        let (step, window) = match self.scale {
            Scale::Full => (MINUTE, HOUR),
            Scale::Quick => (HOUR, DAY),
        };
        Plain {
            hosts: HOSTS,
            fields: 1,
            steps: (span / step) as u64,
            start: today - span,
            step,
            window: (window / step) as u64,
            windows: 24,
        }
    }
}

impl Shuffle {
    /// Returns a permutation of at least `len` integers; the caller must skip integers of `len` or more.
    const fn over(len: u64) -> Self {
        Self {
            bits: len.next_power_of_two().trailing_zeros(),
        }
    }

    const fn len(self) -> u64 {
        1 << self.bits
    }

    /// Returns the integer at a position of the permutation.
    fn at(self, place: u64) -> u64 {
        MULTIPLIERS.into_iter().fold(place, |mixed, multiplier| {
            let mixed = mixed.wrapping_mul(multiplier) & (self.len() - 1);
            mixed ^ (mixed >> (self.bits / 2).max(1))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_yields_each_number_once() {
        for len in [1, 2, 5, 1_000, 4_096] {
            let shuffle = Shuffle::over(len);
            let mut numbers: Vec<u64> = (0..shuffle.len()).map(|place| shuffle.at(place)).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, (0..shuffle.len()).collect::<Vec<_>>());
        }
    }
}
