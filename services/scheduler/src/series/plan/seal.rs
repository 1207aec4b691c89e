//! Seal: the store seals automatically, by size and age of its head. The planned job only serves requests.

use tideline_engine::model::{JobKind, TableModel};

use super::facts::Facts;
use crate::maintenance::Planned;

pub(super) fn plan(facts: &Facts, planned: &mut Vec<Planned>) {
    let reason = match facts.frozen_heads {
        0 => "unsealed points are sealed by size and age; on request at once".into(),
        waiting => format!("{waiting} frozen heads are being sealed; on request the active one too"),
    };
    planned.push(Planned::new(TableModel::Series, JobKind::Seal, None, reason));
}
