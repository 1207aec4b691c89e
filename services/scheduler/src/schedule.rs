//! Start of planned work by the schedule of its kind.

use tideline_engine::model::Schedule;
use tideline_engine::schedule::Timetable;

/// Returns the time from which work that is ready at `ready` may start; `None` if the schedule is invalid or has no
/// further time.
///
/// - Continuous schedule: `ready`.
/// - `ready` after `now`: the first scheduled time at or after `ready`.
/// - Otherwise: the later of `ready` and the first scheduled time after the latest of `since`. Times of `since` after
///   `now` are ignored.
///
/// `since` holds the time up to which the schedule was served, the creation of the table and the last change of its
/// policy.
pub(crate) fn begins(schedule: &Schedule, since: [Option<i64>; 3], now: i64, ready: i64) -> Option<i64> {
    let timetable = Timetable::new(schedule).ok()?;
    if timetable.is_continuous() {
        return Some(ready);
    }
    // Timestamps in the future were recorded before the clock was set back; they are ignored.
    let since = since.into_iter().flatten().filter(|at| *at <= now).max();
    // Work that becomes ready later waits for the first scheduled time from then on.
    let since = since.max((ready > now).then(|| ready.saturating_sub(1)));
    timetable
        .next_after(since.unwrap_or(i64::MIN))
        .map(|next| next.max(ready))
}
