//! Work in the background, and the clock that it goes by.

use std::fmt;

use tideline_engine::model::JobKind;
use tideline_engine::model::time::NANOS_PER_SECOND;
use tideline_scheduler::{ArchiveState, JobCost, JobFilter, JobState};

use super::figures::Figures;
use crate::app::App;

const KIND: &str = "kind";

pub(super) fn put(figures: &mut Figures<'_>, app: &App) -> fmt::Result {
    let metrics = app.scheduler.metrics();
    let jobs = app.scheduler.jobs(&JobFilter::default());
    let in_state = |state: JobState| jobs.iter().filter(|job| job.state == state).count() as f64;
    let live = [JobState::Planned, JobState::Running, JobState::Paused];
    figures.gauges(
        "jobs",
        "Jobs that have not ended",
        ("state", &live.map(|state| (state.name(), in_state(state)))),
    )?;
    let ended = |state: JobState| {
        let of_state = metrics.ended.iter().filter(|((_, ended), _)| *ended == state);
        of_state.map(|(_, count)| *count).sum::<u64>() as f64
    };
    let past = [JobState::Done, JobState::Failed, JobState::Cancelled];
    figures.counters(
        "jobs_ended",
        "Jobs that ended since the start",
        ("state", &past.map(|state| (state.name(), ended(state)))),
    )?;
    let due = |kind: JobKind| metrics.due.get(&kind).copied().unwrap_or_default() as f64;
    figures.gauges(
        "jobs_due",
        "Work that may begin and waits for its turn",
        (KIND, &JobKind::ALL.map(|kind| (kind.name(), due(kind)))),
    )?;
    let moved = |figure: fn(&JobCost) -> u64| {
        let of = |kind| metrics.moved.get(&kind).map_or(0, figure) as f64;
        [JobKind::Fold, JobKind::Migrate, JobKind::Archive, JobKind::Purge]
            .map(|kind| (kind.name(), of(kind)))
    };
    figures.counters(
        "moved_points",
        "Points that moves have read",
        (KIND, &moved(|cost| cost.points_read)),
    )?;
    figures.counters(
        "moved_bytes",
        "Bytes of chunks that moves have read",
        (KIND, &moved(|cost| cost.bytes_read)),
    )?;
    archives(figures, &app.scheduler.archives())?;
    figures.gauge(
        "segments_retired",
        "Segments that wait for their last reader to be freed",
        metrics.segments_retired as f64,
    )?;
    figures.switch(
        "clock_in_doubt",
        "1 while the clock of the machine is not believed, and nothing expires",
        metrics.clock_doubt.is_some(),
    )?;
    figures.gauge(
        "clock_off_by_seconds",
        "The clock of the machine minus the time that should have come, while it is in doubt",
        metrics.clock_off_by.unwrap_or(0) as f64 / NANOS_PER_SECOND as f64,
    )
}

/// How archives stand, all tables together.
fn archives(figures: &mut Figures<'_>, archives: &[ArchiveState]) -> fmt::Result {
    let behind = archives.iter().map(|archive| archive.behind).max().unwrap_or(0);
    figures.gauge(
        "archive_behind_seconds",
        "For how long the oldest window that is old enough for files has waited to become one; 0 where none waits",
        behind as f64 / NANOS_PER_SECOND as f64,
    )?;
    let failures = archives.iter().map(|archive| archive.failures).max();
    figures.gauge(
        "archive_failures_in_a_row",
        "Failures in a row of moves into files, of the table with most of them",
        f64::from(failures.unwrap_or(0)),
    )?;
    let stalled = archives.iter().filter(|archive| archive.stalled.is_some());
    figures.gauge(
        "archive_stalled_tables",
        "Tables whose archive makes no progress: moves fail again and again, or none has ended well for two days",
        stalled.count() as f64,
    )?;
    let sum = |figure: fn(&ArchiveState) -> u64| archives.iter().map(figure).sum::<u64>() as f64;
    figures.gauge(
        "archive_waiting_points",
        "Points that are old enough for files and in none",
        sum(|archive| archive.standing.waiting.points),
    )?;
    figures.gauge(
        "archive_waiting_bytes",
        "Their bytes in the tiers before it",
        sum(|archive| archive.standing.waiting.bytes),
    )?;
    figures.gauge(
        "archive_copied_bytes",
        "Bytes in the cold tier of points that are in files as well",
        sum(|archive| archive.standing.copied.bytes),
    )
}
