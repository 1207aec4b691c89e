//! The planner: derives work from facts, without I/O or state. The current time is one of the facts.
//!
//! Each kind of jobs has a file that plans it. Planned work claims its segments, so that a segment belongs to one unit
//! of work only. [`plan`] calls the functions of these files in the order of precedence: expired segments are not
//! rewritten, and segments that migrate or are archived within an hour are not folded or purged.

pub mod archive;
pub mod catalog;
pub mod expire;
pub mod facts;
pub mod fold;
pub mod migrate;
mod moves;
pub mod preview;
pub mod purge;
pub(crate) mod restore;
pub mod seal;
mod survey;
#[cfg(test)]
mod tests;
mod writes;

use hashbrown::HashSet;
use tideline_engine::model::{JobKind, SegmentId, TableModel, TimeRange};
use tideline_engine::moves::window::Window;

pub use facts::{Facts, History, SegmentFacts, TableFacts};
pub use preview::{Boundaries, Preview, UnsealedBefore, preview};

use crate::maintenance::{Amount, PlanSettings, Planned, Slot, Urgency, sort};
use crate::schedule;

/// Returns all pending work, most urgent first. Work that waits for its schedule is at the end.
pub fn plan(facts: &Facts, history: &History, settings: &PlanSettings) -> Vec<Planned> {
    let mut planned = Vec::new();
    let mut claimed = Claimed::new(facts, &facts.tables);
    for table in &facts.tables {
        expire::plan(facts, table, history, settings, &mut claimed, &mut planned);
        migrate::plan(facts, table, history, &mut claimed, &mut planned);
        archive::plan(facts, table, history, &mut claimed, &mut planned);
        fold::plan(facts, table, &mut claimed, &mut planned);
        purge::plan(facts, table, history, &mut claimed, &mut planned);
        catalog::plan(facts, table, history, &mut planned);
        archive::plan_gc(facts, table, history, &mut planned);
        archive::plan_settings(facts, table, &mut planned);
    }
    fold::plan_crowded(facts, &mut claimed, &mut planned);
    seal::plan(facts, &mut planned);
    sort(&mut planned, facts.now());
    planned
}

/// Segments that are not available for further work.
struct Claimed(HashSet<SegmentId>);

impl Claimed {
    /// Creates the set of the segments that are being rewritten and of the expired segments, which wait to be dropped.
    fn new<'a>(facts: &Facts, tables: impl IntoIterator<Item = &'a TableFacts>) -> Self {
        let now = facts.now();
        let spoken_for = tables.into_iter().flat_map(|table| {
            let segments = table.segments.iter();
            segments.filter(move |segment| segment.is_moving || !table.is_visible(segment, now))
        });
        Self(spoken_for.map(|segment| segment.id).collect())
    }

    /// Creates the set of expired segments only.
    fn expired(now: i64, table: &TableFacts) -> Self {
        let segments = table.segments.iter();
        let expired = segments.filter(|segment| !table.is_visible(segment, now));
        Self(expired.map(|segment| segment.id).collect())
    }

    fn holds(&self, segment: &SegmentFacts) -> bool {
        self.0.contains(&segment.id)
    }

    fn take(&mut self, work: &Planned) {
        self.0.extend(work.inputs.iter().copied());
    }
}

/// Creates work on segments of a table.
fn work(kind: JobKind, table: &TableFacts, segments: &[&SegmentFacts], window: Window, base: i64) -> Planned {
    let ranges = segments.iter().map(|segment| segment.window.range(base));
    let range = ranges
        .reduce(|one, other| TimeRange::new(one.start.min(other.start), one.end.max(other.end)))
        .unwrap_or(window.range(base));
    Planned {
        inputs: segments.iter().map(|segment| segment.id).collect(),
        tier: segments.first().map(|segment| segment.tier).unwrap_or_default(),
        slot: Some(window.into()),
        range,
        amount: Amount::of(segments.iter().copied()),
        urgency: Urgency::Moves,
        ..of_table(kind, table, "")
    }
}

/// Creates work on a table, without segments.
fn of_table(kind: JobKind, table: &TableFacts, reason: &str) -> Planned {
    Planned::new(TableModel::Series, kind, Some(table.id), reason)
}

impl From<Window> for Slot {
    fn from(window: Window) -> Self {
        Self {
            level: window.level,
            index: window.index,
        }
    }
}

/// Returns the time from which jobs of a kind may start by the schedule of a table if they are ready at `ready`; see
/// [`schedule::begins`]. `None` if the schedule is invalid or has no further time.
fn begins(facts: &Facts, table: &TableFacts, history: &History, kind: JobKind, ready: i64) -> Option<i64> {
    let served = history.served.get(&(table.id, kind)).copied();
    let since = [served, Some(table.created), Some(table.policy_changed)];
    schedule::begins(table.schedule(kind), since, facts.now(), ready)
}
