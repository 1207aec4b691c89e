//! Catalog clean-up: timelines that have no point left, or were silent for too long, are taken out.

use tideline_engine::model::JobKind;
use tideline_engine::model::time::NANOS_PER_SECOND;

use super::facts::{Facts, Past, TableFacts};
use super::{begins, of_table};
use crate::maintenance::Planned;

/// Between two clean-ups of a table without a schedule, nanoseconds: a pass over a million timelines takes part of a
/// second, and a timeline without points harms nobody meanwhile.
pub const CATALOG_EVERY: i64 = 600 * NANOS_PER_SECOND;

pub(super) fn plan(facts: &Facts, table: &TableFacts, past: &Past, planned: &mut Vec<Planned>) {
    let now = facts.now();
    let served = past.served.get(&(table.id, JobKind::CleanCatalog)).copied();
    let ready = served
        .filter(|at| *at <= now)
        .map_or(now, |at| at.saturating_add(CATALOG_EVERY));
    // Silence is counted by the clock: while that is in doubt nobody has been silent.
    let at = begins(facts, table, past, JobKind::CleanCatalog, ready).filter(|_| facts.clock.doubt.is_none());
    planned.push(Planned {
        at,
        ..of_table(
            JobKind::CleanCatalog,
            table,
            "timelines without points are taken out now and then",
        )
    });
}
