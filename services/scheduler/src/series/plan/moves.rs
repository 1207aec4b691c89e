//! Moves to the next tier: the segments of windows that are old enough, in write order.

use tideline_engine::model::time::{NANOS_PER_SECOND, format_duration};
use tideline_engine::model::{JobKind, Tier};
use tideline_engine::moves::window::Window;

use super::facts::{Facts, History, TableFacts};
use super::writes::Inputs;
use super::{Claimed, begins, work};
use crate::maintenance::{Mode, Planned, Urgency};

/// A move that starts within this time, in nanoseconds, claims its segments before folds and purges. The move also does
/// the work of a fold or purge.
const SOON: i64 = 3_600 * NANOS_PER_SECOND;

/// Kind of move.
pub(super) struct Move {
    pub(super) kind: JobKind,
    /// Target tier.
    pub(super) tier: Tier,
    /// Time that must have passed since the end of a window, nanoseconds.
    pub(super) age: i64,
    /// Name of the moved segments, for users.
    pub(super) name: &'static str,
}

/// Segments that move together.
pub(super) struct Moving<'a> {
    pub(super) window: Window,
    pub(super) inputs: Inputs<'a>,
    pub(super) waits: Option<Waits>,
    pub(super) mode: Mode,
}

/// Wait of segments that are old enough.
pub(super) struct Waits {
    /// End of the wait on the trusted clock, in nanoseconds since the epoch.
    pub(super) until: i64,
    /// Reason of the wait, for users.
    pub(super) why: String,
}

impl Move {
    /// Plans moves; each becomes one unit of work.
    pub(super) fn plan<'a>(
        &self,
        facts: &Facts,
        table: &TableFacts,
        history: &History,
        moving: impl Iterator<Item = Moving<'a>>,
        (claimed, planned): (&mut Claimed, &mut Vec<Planned>),
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
            let at = begins(facts, table, history, self.kind, ready);
            let why = waits.map_or_else(String::new, |waits| format!("; {}", waits.why));
            let (count, name) = (inputs.segments.len(), self.name);
            let reason = match mode {
                Mode::Cut(_) => {
                    format!("{count} {name} hold whole days that ended more than {age} ago{why}")
                }
                _ => format!("{count} {name} are in a window that ended more than {age} ago{why}"),
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
                claimed.take(&work);
            }
            planned.push(work);
        }
    }
}
