//! Tests of the planner on tables of segments, by cases and by simulation.

mod archive;
mod cases;
mod simulated;
mod simulation;

use std::time::Duration;

use tideline_engine::model::time::{NANOS_PER_DAY, NANOS_PER_SECOND};
use tideline_engine::model::{Policy, SegmentId, TableId, Tier, Timestamp};
use tideline_engine::moves::manifest::{WriteRank, WriteSpan};
use tideline_engine::moves::window::Window;
use tideline_engine::time::TrustedNow;

use super::{Facts, SegmentFacts, TableFacts};
use crate::maintenance::PlanSettings;

pub(super) const HOUR: i64 = 3_600 * NANOS_PER_SECOND;
pub(super) const DAY: i64 = NANOS_PER_DAY;
/// Width of the narrowest window.
pub(super) const BASE: i64 = 3 * HOUR;
pub(super) const SETTINGS: PlanSettings = PlanSettings { purge_delay: DAY };
/// The first midnight of 2027.
pub(super) const START: i64 = 1_798_761_600 * NANOS_PER_SECOND;

pub(super) fn trusted(now: i64) -> TrustedNow {
    let now = Timestamp::from_nanos_clamped(now);
    TrustedNow {
        now,
        expire_now: Some(now),
        doubt: None,
        is_set: true,
        settled: None,
    }
}

pub(super) fn facts(now: i64, tables: Vec<TableFacts>) -> Facts {
    Facts {
        clock: trusted(now),
        window_nanos: BASE,
        frozen_heads: 0,
        retired_segments: 0,
        tables,
    }
}

pub(super) fn table(policy: Policy, segments: Vec<SegmentFacts>) -> TableFacts {
    TableFacts {
        id: TableId(1),
        name: "default".into(),
        policy,
        policy_changed: START - 365 * DAY,
        created: START - 365 * DAY,
        segments,
        has_unwritten_settings: false,
    }
}

/// Creates a segment that fills a window and was sealed at `sequence`.
pub(super) fn segment(id: u64, tier: Tier, window: Window, sequence: u64, bytes: u64) -> SegmentFacts {
    let range = window.range(BASE);
    SegmentFacts {
        id: SegmentId(id),
        tier,
        window,
        first: range.start,
        last: range.end - 1,
        timelines: 10,
        points: bytes,
        values: bytes,
        bytes,
        written: WriteSpan::of(WriteRank { sequence, seal: id }),
        archived: None,
        is_copied: false,
        stays_until: None,
        has_deletes: false,
        is_moving: false,
    }
}

/// Returns the window of a level that contains the time `nanos` after the start.
pub(super) fn window(level: u8, nanos: i64) -> Window {
    Window::of(START + nanos, BASE, level)
}

pub(super) fn hour_of_doubt() -> tideline_engine::time::ClockDoubt {
    tideline_engine::time::ClockDoubt {
        since: Duration::from_secs(3_600),
        off_by: 400 * DAY,
        steady_for: Duration::from_secs(3_600),
    }
}
