//! Seal: the store seals by itself, by size and age of its head; here it waits to be asked for.

use tideline_engine::model::{JobKind, TableModel};

use super::facts::Facts;
use crate::maintenance::Planned;

pub(super) fn plan(facts: &Facts, planned: &mut Vec<Planned>) {
    let reason = match facts.frozen_heads {
        0 => "unsealed points are sealed by size and age; by hand at once".into(),
        waiting => format!("{waiting} frozen heads are being sealed; by hand the active one too"),
    };
    planned.push(Planned::new(TableModel::Series, JobKind::Seal, None, reason));
}
