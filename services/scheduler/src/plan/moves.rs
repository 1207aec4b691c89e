//! Moves to the next tier: the segments of windows that are old enough, in the order of their writes.

use tideline_model::Tier;
use tideline_model::time::{NANOS_PER_SECOND, format_duration};
use tideline_series_store::window::Window;

use super::facts::{Facts, Past, TableFacts};
use super::writes::Inputs;
use super::{Planned, Taken, Urgency, begins, work};
use crate::chore::Chore;

/// A move that begins within this time keeps its segments from folds and purges: it does their work too. Nanoseconds.
const SOON: i64 = 3_600 * NANOS_PER_SECOND;

/// A kind of move.
pub(super) struct Move {
    pub(super) chore: Chore,
    /// Where to.
    pub(super) tier: Tier,
    /// How long ago a window must have ended, nanoseconds.
    pub(super) age: i64,
    /// What is moved, for people.
    pub(super) name: &'static str,
}

impl Move {
    /// Plans the moves of windows, each in as many as the order of writes asks for.
    pub(super) fn plan<'a>(
        &self,
        facts: &Facts,
        table: &TableFacts,
        past: &Past,
        windows: impl Iterator<Item = (Window, Vec<Inputs<'a>>)>,
        (taken, planned): (&mut Taken, &mut Vec<Planned>),
    ) {
        let at = begins(facts, table, past, self.chore, facts.now());
        let is_soon = at.is_some_and(|at| at <= facts.now().saturating_add(SOON));
        let age = format_duration(self.age);
        for (window, runs) in windows {
            for run in runs {
                let work = Planned {
                    tier: self.tier,
                    reason: format!(
                        "{} {} lie in a window that ended more than {age} ago",
                        run.segments.len(),
                        self.name
                    ),
                    at,
                    urgency: Urgency::Moves,
                    ..work(self.chore, table, &run.segments, window, facts.window_nanos)
                };
                if is_soon {
                    taken.take(&work);
                }
                planned.push(work);
            }
        }
    }
}
