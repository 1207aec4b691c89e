//! Catalog clean-up: removes timelines that have neither visible points nor attributes, or were silent for too long.

use tideline_engine::model::JobKind;
use tideline_engine::model::time::NANOS_PER_SECOND;

use super::facts::{Facts, History, TableFacts};
use super::{begins, of_table};
use crate::maintenance::Planned;

/// Minimum interval between clean-ups of a table, nanoseconds. A pass over a million timelines takes a fraction of a
/// second, and timelines without points do no harm meanwhile.
pub const CATALOG_EVERY: i64 = 600 * NANOS_PER_SECOND;

pub(super) fn plan(facts: &Facts, table: &TableFacts, history: &History, planned: &mut Vec<Planned>) {
    let now = facts.now();
    let served = history.served.get(&(table.id, JobKind::CleanCatalog)).copied();
    let ready = served
        .filter(|at| *at <= now)
        .map_or(now, |at| at.saturating_add(CATALOG_EVERY));
    // Silence is measured by the clock, so no clean-up starts while the clock is in doubt.
    let at =
        begins(facts, table, history, JobKind::CleanCatalog, ready).filter(|_| facts.clock.doubt.is_none());
    planned.push(Planned {
        at,
        ..of_table(
            JobKind::CleanCatalog,
            table,
            "timelines without points are removed regularly",
        )
    });
}
