//! Work in the background, and the clock that it goes by.

use std::fmt;

use tideline_model::time::NANOS_PER_SECOND;
use tideline_scheduler::{Chore, JobFilter, JobState};

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
    let of_kinds = |figure: &dyn Fn(Chore) -> f64| Chore::ALL.map(|chore| (chore.name(), figure(chore)));
    let count = |counts: &std::collections::BTreeMap<Chore, u64>, chore| {
        counts.get(&chore).copied().unwrap_or_default() as f64
    };
    figures.gauges(
        "jobs_due",
        "Work that may begin and waits for its turn",
        (KIND, &of_kinds(&|chore| count(&metrics.due, chore))),
    )?;
    let moved = |chore, figure: fn(&tideline_series_store::RewriteCost) -> u64| {
        metrics.moved.get(&chore).map_or(0, figure) as f64
    };
    figures.counters(
        "moved_points",
        "Points that rewrites have read",
        (KIND, &of_kinds(&|chore| moved(chore, |cost| cost.points_read))),
    )?;
    figures.counters(
        "moved_bytes",
        "Bytes of chunks that rewrites have read",
        (KIND, &of_kinds(&|chore| moved(chore, |cost| cost.bytes_read))),
    )?;
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
