//! The planner: looks at facts and says what is to be done. No I/O, no state, no clock of its own.
//!
//! Each kind of jobs has a file that plans it. [`plan`] calls them in the order in which segments are given
//! away: what expires is not rewritten, what migrates or is archived is not folded or purged, and no segment is in two plans.

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
use tideline_model::{JobKind, SegmentId, TableId, Tier, TimeRange};
use tideline_series_store::window::Window;

pub use facts::{Amount, Facts, Past, SegmentFacts, TableFacts};
pub use preview::{Boundaries, Preview, UnsealedBefore, preview};

use crate::schedule::Timetable;

/// What can be set about plans.
#[derive(Debug, Clone, Copy)]
pub struct PlanSettings {
    /// How long hidden points are kept before their bytes are freed, nanoseconds.
    pub purge_delay: i64,
}

/// A piece of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// What kind.
    pub kind: JobKind,
    /// Whose; `None` = the whole store.
    pub table: Option<TableId>,
    /// The segments that it takes, in the order of their writes.
    pub inputs: Vec<SegmentId>,
    /// The tier of what they become.
    pub tier: Tier,
    /// The window that tells it from other work of its kind.
    pub window: Option<Window>,
    /// The time that its segments' windows span.
    pub range: TimeRange,
    /// How much it takes.
    pub amount: Amount,
    /// Why, for people.
    pub reason: String,
    /// The trusted instant from which it may begin, nanoseconds since the epoch; `None` = only by hand.
    pub at: Option<i64>,
    /// How soon it should come among what may begin.
    pub urgency: Urgency,
    /// What is special about it.
    pub manner: Manner,
}

/// In which way work is done, beside what its kind says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Manner {
    /// As its kind says.
    #[default]
    Plain,
    /// The points stay in the cold tier beside their files.
    Copied {
        /// Whether they have to become one segment first, without what was deleted.
        folded: bool,
    },
    /// The points stay in the tier that they come to until this trusted instant, nanoseconds since the epoch.
    Held(i64),
    /// Points before this instant, nanoseconds since the epoch, go their way; the others stay in their tier.
    Cut(i64),
}

/// The order in which work that may begin is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// Costs nothing and frees space.
    Free,
    /// Reads suffer.
    Reads,
    /// Small and regular.
    Regular,
    /// Data is where it should not be any more.
    Moves,
    /// Deleted points wait to be freed.
    Space,
    /// The store holds too many segments.
    Crowded,
}

impl Planned {
    /// Whether it may begin.
    pub fn is_due(&self, now: i64) -> bool {
        self.at.is_some_and(|at| at <= now)
    }

    /// Whether it is work of a kind, and of a table where one is given.
    pub fn is_of(&self, kind: JobKind, table: Option<TableId>) -> bool {
        self.kind == kind && (table.is_none() || self.table == table)
    }
}

/// All work that there is, what should come first in front. Work that waits for its schedule is at the end.
pub fn plan(facts: &Facts, past: &Past, settings: &PlanSettings) -> Vec<Planned> {
    let mut planned = Vec::new();
    let mut taken = Taken::new(facts, &facts.tables);
    for table in &facts.tables {
        expire::plan(facts, table, past, settings, &mut taken, &mut planned);
        migrate::plan(facts, table, past, &mut taken, &mut planned);
        archive::plan(facts, table, past, &mut taken, &mut planned);
        fold::plan(facts, table, &mut taken, &mut planned);
        purge::plan(facts, table, past, &mut taken, &mut planned);
        catalog::plan(facts, table, past, &mut planned);
        archive::plan_sweep(facts, table, past, &mut planned);
        archive::plan_settings(facts, table, &mut planned);
    }
    fold::plan_crowded(facts, &mut taken, &mut planned);
    seal::plan(facts, &mut planned);
    let now = facts.now();
    planned.sort_by_key(|work| (!work.is_due(now), work.urgency, work.range.start));
    planned
}

/// Segments that are spoken for.
struct Taken(HashSet<SegmentId>);

impl Taken {
    /// What is being moved is nobody's, and what has expired waits to be dropped.
    fn new<'a>(facts: &Facts, tables: impl IntoIterator<Item = &'a TableFacts>) -> Self {
        let now = facts.now();
        let spoken_for = tables.into_iter().flat_map(|table| {
            let segments = table.segments.iter();
            segments.filter(move |segment| segment.is_moving || !table.is_visible(segment, now))
        });
        Self(spoken_for.map(|segment| segment.id).collect())
    }

    /// Only what has expired.
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

/// Work on segments of a table.
fn work(kind: JobKind, table: &TableFacts, segments: &[&SegmentFacts], window: Window, base: i64) -> Planned {
    let ranges = segments.iter().map(|segment| segment.window.range(base));
    let range = ranges
        .reduce(|one, other| TimeRange::new(one.start.min(other.start), one.end.max(other.end)))
        .unwrap_or(window.range(base));
    Planned {
        kind,
        table: Some(table.id),
        inputs: segments.iter().map(|segment| segment.id).collect(),
        tier: segments.first().map(|segment| segment.tier).unwrap_or_default(),
        window: Some(window),
        range,
        amount: Amount::of(segments.iter().copied()),
        reason: String::new(),
        at: None,
        urgency: Urgency::Moves,
        manner: Manner::Plain,
    }
}

/// When jobs of a kind may begin by the schedule of a table: `ready` or the first instant of the schedule after both `ready`
/// and what was served last. `None` where the schedule cannot be kept.
pub(crate) fn begins(
    facts: &Facts,
    table: &TableFacts,
    past: &Past,
    kind: JobKind,
    ready: i64,
) -> Option<i64> {
    let timetable = Timetable::new(table.schedule(kind)).ok()?;
    if timetable.is_continuous() {
        return Some(ready);
    }
    let now = facts.now();
    let served = past.served.get(&(table.id, kind)).copied();
    let since = [served, Some(table.created), Some(table.policy_changed)];
    // A clock that went back leaves instants of the future behind: they say nothing.
    let since = since.into_iter().flatten().filter(|at| *at <= now).max();
    // What is ready later waits for the first instant after that.
    let since = since.max((ready > now).then(|| ready.saturating_sub(1)));
    timetable
        .next_after(since.unwrap_or(i64::MIN))
        .map(|next| next.max(ready))
}
