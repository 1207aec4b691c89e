//! Agents of the demo: two threads that post line protocol, for the real machine and for the simulated fleet.
//!
//! Both write over HTTP like real agents, and count acknowledged points in the shared progress.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tideline_engine::model::time::NANOS_PER_SECOND;
use tideline_engine::model::{Clock, Timestamp};
use tideline_fleet::{Fleet, FleetSpec};

use super::host::HostSampler;
use super::poster::Poster;
use super::progress::Progress;

/// Interval between two samples of this machine.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);
/// Interval between two rows of a simulated host, in nanoseconds; the same as in the benchmark suite.
const FLEET_STEP: i64 = 10 * NANOS_PER_SECOND;
/// Length of the fleet's history at the start, in nanoseconds.
const FLEET_PAST: i64 = 3_600 * NANOS_PER_SECOND;
/// Maximum rows per request while the fleet catches up, unless the fleet has more hosts.
const BATCH_ROWS: u32 = 5_000;
/// Wait after a failed write.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Posts metrics of this machine until the progress is stopped. A sample whose write fails is dropped, because the
/// next one is newer.
pub(crate) fn sample_host(mut sampler: HostSampler, clock: &dyn Clock, poster: &Poster, progress: &Progress) {
    let mut pause = sysinfo::MINIMUM_CPU_UPDATE_INTERVAL;
    while progress.pause(pause) {
        let (lines, points) = sampler.sample(clock.now());
        match poster.write(lines.as_bytes()) {
            Ok(()) => {
                progress.measured.fetch_add(points, Ordering::Relaxed);
            }
            Err(error) => progress.fail(error.to_string()),
        }
        pause = SAMPLE_INTERVAL;
    }
}

/// Creates the simulated fleet, starting one hour before `now`. The measurement is `fleet_cpu`, and every line has the
/// tag `origin=simulated` to distinguish it from real data.
pub(crate) fn fleet(seed: u64, hosts: u32, now: Timestamp) -> Fleet {
    let start = now.nanos() - FLEET_PAST;
    Fleet::from_spec(&FleetSpec {
        measurement: "fleet_cpu",
        mark: Some(("origin", "simulated")),
        ..FleetSpec::new(seed, hosts, start - start.rem_euclid(FLEET_STEP), FLEET_STEP)
    })
}

/// Posts the fleet's history, then new rows as they are due, until the progress is stopped. Failed writes are retried,
/// so that the fleet has no gaps. If the folder already contains points of the same hour, the new values replace them.
pub(crate) fn simulate(mut fleet: Fleet, clock: &dyn Clock, poster: &Poster, progress: &Progress) {
    let hosts = fleet.hosts().len();
    let batch_steps = (BATCH_ROWS as usize / hosts).max(1);
    let mut lines = Vec::new();
    loop {
        let ahead = fleet.timestamp() - clock.now().nanos();
        if ahead > 0 {
            progress.has_caught_up.store(true, Ordering::Relaxed);
            if !progress.pause(Duration::from_nanos(ahead.unsigned_abs())) {
                return;
            }
            continue;
        }
        let due = usize::try_from(-ahead / FLEET_STEP).map_or(1, |steps| steps + 1);
        let rows = due.min(batch_steps) * hosts;
        lines.clear();
        fleet.write_rows(rows, &mut lines);
        while let Err(error) = poster.write(&lines) {
            progress.fail(error.to_string());
            if !progress.pause(RETRY_PAUSE) {
                return;
            }
        }
        progress.simulated.fetch_add(rows as u64, Ordering::Relaxed);
        if !progress.pause(Duration::ZERO) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fleet_is_marked_and_the_same_for_the_same_seed() {
        let now = Timestamp::from_nanos_clamped(1_700_000_003_500_000_000);
        let mut first = Vec::new();
        fleet(42, 3, now).write_rows(4, &mut first);
        let mut second = Vec::new();
        fleet(42, 3, now).write_rows(4, &mut second);
        assert_eq!(first, second);
        let text = String::from_utf8(first).expect("line protocol is text");
        assert!(
            text.lines()
                .all(|line| line.starts_with("fleet_cpu,") && line.contains(",origin=simulated "))
        );
        assert!(
            text.lines()
                .take(3)
                .all(|line| line.ends_with(" 1699996400000000000")),
            "{text}"
        );
        assert!(text.ends_with(" 1699996410000000000\n"), "{text}");
    }
}
