//! Facts: the input of the planner, as plain values, so that the planner can be tested without a store.
//!
//! In production, facts are converted from a survey of the store.

use hashbrown::HashMap;
use tideline_engine::model::{JobKind, Policy, Schedule, SegmentId, TableId, Tier, TimeRange};
use tideline_engine::moves::manifest::WriteSpan;
use tideline_engine::moves::window::{Window, cold_boundary};
use tideline_engine::time::TrustedNow;

use crate::maintenance::{Amount, Served, TableState};

/// Level of the narrowest cold window, which is a day wide: the number of times that the width of the base window is
/// doubled.
pub const COLD_LEVEL: u8 = 3;

/// State of the store at one moment.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Trusted time, and whether expiry may use it.
    pub clock: TrustedNow,
    /// Width of the narrowest window, in nanoseconds.
    pub window_nanos: i64,
    /// Number of frozen heads (memtables) that wait to be sealed.
    pub frozen_heads: usize,
    /// Number of dropped segments whose bytes are freed after their last reader has ended.
    pub retired_segments: usize,
    /// All series tables.
    pub tables: Vec<TableFacts>,
}

/// State of a table.
#[derive(Debug, Clone)]
pub struct TableFacts {
    /// Number of the table.
    pub id: TableId,
    /// Name of the table.
    pub name: String,
    /// Policy of the table: ages, schedules and rates.
    pub policy: Policy,
    /// Time of the last policy change, nanoseconds since the epoch.
    pub policy_changed: i64,
    /// Time of creation, nanoseconds since the epoch.
    pub created: i64,
    /// Segments, in any order.
    pub segments: Vec<SegmentFacts>,
    /// True if a target with files of the table may hold outdated settings.
    pub has_unwritten_settings: bool,
}

/// State of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Id of the segment.
    pub id: SegmentId,
    /// Tier of the segment.
    pub tier: Tier,
    /// Window that contains the points of the segment.
    pub window: Window,
    /// Timestamp of the first point, nanoseconds since the epoch.
    pub first: i64,
    /// Timestamp of the last point, nanoseconds since the epoch.
    pub last: i64,
    /// Number of timelines.
    pub timelines: u64,
    /// Number of points.
    pub points: u64,
    /// Number of field values.
    pub values: u64,
    /// Number of encoded bytes.
    pub bytes: u64,
    /// Range of the writes whose points are in the segment.
    pub written: WriteSpan,
    /// Time when the files of the segment were written, by the trusted clock, in nanoseconds since the epoch; `None` =
    /// no files, or unknown.
    pub archived: Option<i64>,
    /// True if the points of the segment are also in files, which replace the segment when it leaves the cold tier.
    pub is_copied: bool,
    /// Time until which policies leave the segment in its tier, by the trusted clock, in nanoseconds since the epoch;
    /// `None` = not held.
    pub stays_until: Option<i64>,
    /// True if the segment may hold deleted points.
    pub has_deletes: bool,
    /// True if the segment is being rewritten.
    pub is_moving: bool,
}

/// Part of the history on which plans depend.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Timestamp up to which the schedule of a (table, job kind) pair was served.
    pub served: Served,
    /// Time when a segment was first found with deletes, by the trusted clock, in nanoseconds since the epoch.
    pub deletes_since: HashMap<SegmentId, i64>,
}

impl Amount {
    /// Returns the total of the given segments. The number of timelines is the largest number in one segment.
    pub fn of<'a>(segments: impl IntoIterator<Item = &'a SegmentFacts>) -> Self {
        let mut amount = Self::default();
        let mut windows = Vec::new();
        for segment in segments {
            windows.push(segment.window);
            amount.segments += 1;
            amount.timelines = amount.timelines.max(segment.timelines);
            amount.points += segment.points;
            amount.values += segment.values;
            amount.bytes += segment.bytes;
        }
        windows.sort_unstable();
        windows.dedup();
        amount.windows = windows.len() as u64;
        amount
    }
}

impl Facts {
    /// Returns the trusted time, nanoseconds since the epoch.
    pub fn now(&self) -> i64 {
        self.clock.now.nanos()
    }

    /// Returns the width of a day window in nanoseconds.
    pub(super) fn day(&self) -> i64 {
        self.window_nanos << COLD_LEVEL
    }
}

impl TableFacts {
    /// Returns the first timestamp at which points are visible.
    pub(super) fn visible_from(&self, now: i64) -> i64 {
        let age = self.policy.visible_age();
        age.map_or(i64::MIN, |age| now.saturating_sub(age))
    }

    /// Returns true if at least one point of the segment is visible. Other segments are not worth rewriting.
    pub(super) fn is_visible(&self, segment: &SegmentFacts, now: i64) -> bool {
        segment.last >= self.visible_from(now)
    }

    /// Returns the start of the day that contains the timestamp `hot_ttl` before now. All points before this start are
    /// old enough for the cold tier. `None` = the policy has no `hot_ttl`.
    pub(super) fn cold_before(&self, facts: &Facts) -> Option<i64> {
        let age = self.policy.hot_ttl?;
        Some(cold_boundary(facts.now().saturating_sub(age), facts.window_nanos))
    }

    /// Returns the time when the first points of a hot segment, those of its first day, become old enough for the
    /// cold tier; `None` = never.
    pub(super) fn cold_at(&self, segment: &SegmentFacts, base: i64) -> Option<i64> {
        let age = self.policy.hot_ttl?;
        let day = Window::of(segment.first, base, COLD_LEVEL);
        Some(day.range(base).end.saturating_add(age))
    }

    /// Returns the state of the table for queue and schedules.
    pub(crate) fn state(&self) -> TableState {
        let scheduled = [
            JobKind::Migrate,
            JobKind::Archive,
            JobKind::Expire,
            JobKind::CleanCatalog,
        ];
        TableState {
            id: self.id,
            name: self.name.clone(),
            created: self.created,
            policy_changed: self.policy_changed,
            schedules: scheduled.map(|kind| (kind, self.schedule(kind).clone())).into(),
            bytes_per_second: self.policy.move_bytes_per_second,
        }
    }

    /// Returns the schedule of a kind of jobs.
    pub(super) fn schedule(&self, kind: JobKind) -> &Schedule {
        match kind {
            JobKind::Migrate => &self.policy.migrate,
            JobKind::Archive => self
                .policy
                .archive
                .as_ref()
                .map_or(&Schedule::Continuous, |archive| &archive.schedule),
            JobKind::Expire | JobKind::CleanCatalog => &self.policy.expire,
            JobKind::Seal
            | JobKind::Fold
            | JobKind::Evict
            | JobKind::Restore
            | JobKind::Purge
            | JobKind::SweepArchive
            | JobKind::WriteSettings
            | JobKind::AttachArchive
            | JobKind::SetAttributes
            | JobKind::BuildIndex
            | JobKind::RemoveExpired
            | JobKind::Rekey
            | JobKind::SurveyRows
            | JobKind::FanOut => &Schedule::Continuous,
        }
    }
}

impl SegmentFacts {
    /// Returns the time range of the points of the segment, half-open.
    pub fn range(&self) -> TimeRange {
        TimeRange::new(self.first, self.last.saturating_add(1))
    }

    /// Returns true if a request keeps the segment in its tier for now.
    pub(super) fn is_held(&self, now: i64) -> bool {
        self.stays_until.is_some_and(|until| until > now)
    }

    /// Returns the part of the segment before a timestamp. Points, values and bytes are estimated as if the points were
    /// spread evenly; all other members are unchanged.
    pub(super) fn before(&self, at: i64) -> Self {
        let span = i128::from(self.last) - i128::from(self.first) + 1;
        let part = (i128::from(at) - i128::from(self.first)).clamp(0, span);
        let of = |count: u64| u64::try_from(i128::from(count) * part / span).unwrap_or(0);
        Self {
            points: of(self.points),
            values: of(self.values),
            bytes: of(self.bytes),
            ..self.clone()
        }
    }

    /// Returns the window of the segment in the cold tier, which is at least a day.
    pub(super) fn cold_window(&self) -> Window {
        widened(self.window, COLD_LEVEL)
    }
}

/// Returns the narrowest window of at least this level that contains a window.
pub(super) fn widened(window: Window, level: u8) -> Window {
    let mut wide = window;
    while wide.level < level {
        wide = wide.parent();
    }
    wide
}
