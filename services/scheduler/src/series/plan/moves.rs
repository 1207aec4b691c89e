//! Moves to the next tier: the segments of windows that are old enough, in the order of their writes.

use tideline_engine::model::time::{NANOS_PER_SECOND, format_duration};
use tideline_engine::model::{JobKind, Tier};
use tideline_engine::moves::window::Window;

use super::facts::{Facts, Past, TableFacts};
use super::writes::Inputs;
use super::{Taken, begins, work};
use crate::maintenance::{Mode, Planned, Urgency};

/// A move that begins within this time keeps its segments from folds and purges: it does their work too. Nanoseconds.
const SOON: i64 = 3_600 * NANOS_PER_SECOND;

/// A kind of move.
pub(super) struct Move {
    pub(super) kind: JobKind,
    /// Where to.
    pub(super) tier: Tier,
    /// How long ago a window must have ended, nanoseconds.
    pub(super) age: i64,
    /// What is moved, for people.
    pub(super) name: &'static str,
}

/// Segments that go together.
pub(super) struct Moving<'a> {
    pub(super) window: Window,
    pub(super) inputs: Inputs<'a>,
    pub(super) waits: Option<Waits>,
    pub(super) mode: Mode,
}

/// Why something that is old enough does not move yet.
pub(super) struct Waits {
    /// Trusted nanoseconds since the epoch.
    pub(super) until: i64,
    /// For people.
    pub(super) why: String,
}

impl Move {
    /// Plans the moves of windows, each in as many as the order of writes asks for.
    pub(super) fn plan<'a>(
        &self,
        facts: &Facts,
        table: &TableFacts,
        past: &Past,
        moving: impl Iterator<Item = Moving<'a>>,
        (taken, planned): (&mut Taken, &mut Vec<Planned>),
    ) {
        let age = format_duration(self.age);
        for Moving {
            window,
            inputs,
            waits,
            mode,
        } in moving
        {
            let ready = waits.as_ref().map_or(facts.now(), |waits| waits.until);
            let at = begins(facts, table, past, self.kind, ready);
            let why = waits.map_or_else(String::new, |waits| format!("; {}", waits.why));
            let (count, name) = (inputs.segments.len(), self.name);
            let reason = match mode {
                Mode::Cut(_) => {
                    format!("{count} {name} hold whole days that ended more than {age} ago{why}")
                }
                _ => format!("{count} {name} lie in a window that ended more than {age} ago{why}"),
            };
            let work = Planned {
                tier: self.tier,
                reason,
                at,
                urgency: Urgency::Moves,
                mode,
                ..work(self.kind, table, &inputs.segments, window, facts.window_nanos)
            };
            if at.is_some_and(|at| at <= facts.now().saturating_add(SOON)) {
                taken.take(&work);
            }
            planned.push(work);
        }
    }
}
