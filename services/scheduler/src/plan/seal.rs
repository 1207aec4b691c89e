//! Seal: the store seals by itself, by size and age of its head; here it waits to be asked for.

use tideline_model::{JobKind, Tier, TimeRange};

use super::facts::{Amount, Facts};
use super::{Manner, Planned, Urgency};

pub(super) fn plan(facts: &Facts, planned: &mut Vec<Planned>) {
    let reason = match facts.frozen_heads {
        0 => "unsealed points are sealed by size and age; by hand at once".into(),
        waiting => format!("{waiting} frozen heads are being sealed; by hand the active one too"),
    };
    planned.push(Planned {
        kind: JobKind::Seal,
        table: None,
        inputs: Vec::new(),
        tier: Tier::Hot,
        window: None,
        range: TimeRange::ALL,
        amount: Amount::default(),
        reason,
        at: None,
        urgency: Urgency::Regular,
        manner: Manner::Plain,
    });
}
