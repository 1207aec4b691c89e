//! Metrics of background jobs, archives and the clock.
//!
//! Values are sums over all tables, except delays and consecutive failures of archives, which are the values of
//! the worst table. Archives of wide tables also have values per table.

use std::fmt;

use tideline_engine::model::JobKind;
use tideline_engine::model::time::NANOS_PER_SECOND;
use tideline_scheduler::{ArchiveState, JobCost, JobFilter, JobState, RowArchiveState};

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
        "Ended jobs since the start of the service",
        ("state", &past.map(|state| (state.name(), ended(state)))),
    )?;
    let due = |kind: JobKind| metrics.due.get(&kind).copied().unwrap_or_default() as f64;
    figures.gauges(
        "jobs_due",
        "Pending jobs that are due",
        (KIND, &JobKind::ALL.map(|kind| (kind.name(), due(kind)))),
    )?;
    let moved = |figure: fn(&JobCost) -> u64| {
        let of = |kind| metrics.moved.get(&kind).map_or(0, figure) as f64;
        [JobKind::Fold, JobKind::Migrate, JobKind::Archive, JobKind::Purge]
            .map(|kind| (kind.name(), of(kind)))
    };
    figures.counters(
        "moved_points",
        "Points read by moves between tiers",
        (KIND, &moved(|cost| cost.points_read)),
    )?;
    figures.counters(
        "moved_bytes",
        "Bytes of chunks read by moves between tiers",
        (KIND, &moved(|cost| cost.bytes_read)),
    )?;
    let (archives, rows) = (app.scheduler.archives(), app.scheduler.row_archives());
    archived(figures, &archives, &rows)?;
    figures.gauge(
        "segments_retired",
        "Deleted segments that a reader still uses",
        metrics.segments_retired as f64,
    )?;
    figures.switch(
        "clock_in_doubt",
        "1 while the clock of the machine is in doubt; nothing expires then",
        metrics.clock_doubt.is_some(),
    )?;
    figures.gauge(
        "clock_off_by_seconds",
        "Clock of the machine minus the expected time, while the clock is in doubt",
        metrics.clock_off_by.unwrap_or(0) as f64 / NANOS_PER_SECOND as f64,
    )
}

/// Writes the state of archives over all tables.
fn archived(figures: &mut Figures<'_>, archives: &[ArchiveState], rows: &[RowArchiveState]) -> fmt::Result {
    let moves = || {
        let of_rows = rows.iter().map(|state| &state.moves);
        archives.iter().map(|state| &state.moves).chain(of_rows)
    };
    let behind = moves().map(|moves| moves.behind).max().unwrap_or(0);
    figures.gauge(
        "archive_behind_seconds",
        "Time that the oldest window or part due for archiving has waited; 0 if none waits",
        behind as f64 / NANOS_PER_SECOND as f64,
    )?;
    let failures = moves().map(|moves| moves.failures).max();
    figures.gauge(
        "archive_failures_in_a_row",
        "Consecutive archiving failures of the table with the most",
        f64::from(failures.unwrap_or(0)),
    )?;
    let stalled = moves().filter(|moves| moves.stalled.is_some());
    figures.gauge(
        "archive_stalled_tables",
        "Tables whose archiving makes no progress: it fails repeatedly or has not succeeded for two days",
        stalled.count() as f64,
    )?;
    let sum = |figure: fn(&ArchiveState) -> u64| archives.iter().map(figure).sum::<u64>() as f64;
    figures.gauge(
        "archive_waiting_points",
        "Points due for archiving that are not archived yet",
        sum(|archive| archive.standing.waiting.points),
    )?;
    figures.gauge(
        "archive_waiting_bytes",
        "Bytes of these points in the other tiers",
        sum(|archive| archive.standing.waiting.bytes),
    )?;
    figures.gauge(
        "archive_copied_bytes",
        "Bytes in the cold tier of points that are also archived",
        sum(|archive| archive.standing.copied.bytes),
    )?;
    archived_rows(figures, rows)
}

/// Function that returns one of the figures of the archive of a wide table.
type RowFigure = fn(&RowArchiveState) -> f64;

/// Writes the state of the archives of wide tables, per table.
fn archived_rows(figures: &mut Figures<'_>, rows: &[RowArchiveState]) -> fmt::Result {
    let families: [(&str, &str, RowFigure); 6] = [
        (
            "row_archived_parts",
            "Parts of wide tables in the archive",
            |state| state.archive.parts.len() as f64,
        ),
        (
            "row_archived_rows",
            "Rows in the files of archived parts",
            |state| state.archive.sum(|part| part.rows) as f64,
        ),
        ("row_archived_files", "Files of archived parts", |state| {
            state.archive.sum(|part| part.files) as f64
        }),
        (
            "row_archived_bytes",
            "Bytes of the files of archived parts",
            |state| state.archive.sum(|part| part.bytes) as f64,
        ),
        (
            "row_archive_waiting_parts",
            "Parts that are old enough for the archive and not archived yet",
            |state| state.archive.waiting as f64,
        ),
        (
            "row_archive_failures_in_a_row",
            "Consecutive failures of archiving parts",
            |state| f64::from(state.moves.failures),
        ),
    ];
    for (name, help, figure) in families {
        let values = rows
            .iter()
            .map(|state| (state.archive.name.as_str(), figure(state)));
        let values: Vec<(&str, f64)> = values.collect();
        figures.gauges(name, help, ("table", &values))?;
    }
    Ok(())
}
