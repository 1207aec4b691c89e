//! What the planner looks at: plain values, so that it can be tried without a store.

use hashbrown::HashMap;
use tideline_engine::model::{JobKind, Policy, Schedule, SegmentId, TableId, Tier, TimeRange};
use tideline_engine::moves::manifest::WriteSpan;
use tideline_engine::moves::window::{Window, cold_boundary};
use tideline_engine::time::TrustedNow;

use crate::maintenance::{Amount, Served, TableState};

/// Doublings of the base window that a cold window has at least: a day.
pub const COLD_LEVEL: u8 = 3;

/// The store at one moment.
#[derive(Debug, Clone)]
pub struct Facts {
    /// What time it is, and whether expiry may go by it.
    pub clock: TrustedNow,
    /// Width of the narrowest window, in nanoseconds.
    pub window_nanos: i64,
    /// Heads that wait to be sealed.
    pub frozen_heads: usize,
    /// Segments that are gone for readers and wait for the last of them to be freed.
    pub retired_segments: usize,
    /// Every table.
    pub tables: Vec<TableFacts>,
}

/// A table.
#[derive(Debug, Clone)]
pub struct TableFacts {
    /// Its number.
    pub id: TableId,
    /// Its name.
    pub name: String,
    /// How its points age.
    pub policy: Policy,
    /// When that was last changed, nanoseconds since the epoch.
    pub policy_changed: i64,
    /// When the table was made, nanoseconds since the epoch.
    pub created: i64,
    /// Its segments, in any order.
    pub segments: Vec<SegmentFacts>,
    /// Whether a target with files of it may hold other settings than it has.
    pub has_unwritten_settings: bool,
}

/// A segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Its id.
    pub id: SegmentId,
    /// Its tier.
    pub tier: Tier,
    /// The window that its points lie in.
    pub window: Window,
    /// First instant in it.
    pub first: i64,
    /// Last instant in it.
    pub last: i64,
    /// Timelines in it.
    pub timelines: u64,
    /// Points in it.
    pub points: u64,
    /// Field values in it.
    pub values: u64,
    /// Encoded bytes of it.
    pub bytes: u64,
    /// The writes in it.
    pub written: WriteSpan,
    /// When its files were written, trusted nanoseconds since the epoch; `None` = it has none, or nobody knows.
    pub archived: Option<i64>,
    /// Whether its points are in files as well, which take its place when it leaves the cold tier.
    pub is_copied: bool,
    /// Policies leave it in its tier until then, trusted nanoseconds since the epoch.
    pub stays_until: Option<i64>,
    /// Whether it may hold deleted points.
    pub has_deletes: bool,
    /// Whether somebody is rewriting it.
    pub is_moving: bool,
}

/// What was done before now, as far as plans depend on it.
#[derive(Debug, Clone, Default)]
pub struct Past {
    /// Timestamp up to which the schedule of a (table, job kind) pair has been served.
    pub served: Served,
    /// When a segment was first seen to have deletes.
    pub deletes_since: HashMap<SegmentId, i64>,
}

impl Amount {
    /// All of some segments.
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
    /// The trusted time, nanoseconds since the epoch.
    pub fn now(&self) -> i64 {
        self.clock.now.nanos()
    }

    /// Nanoseconds of a day window.
    pub(super) fn day(&self) -> i64 {
        self.window_nanos << COLD_LEVEL
    }
}

impl TableFacts {
    /// The first instant at which points are visible.
    pub(super) fn visible_from(&self, now: i64) -> i64 {
        let age = self.policy.visible_age();
        age.map_or(i64::MIN, |age| now.saturating_sub(age))
    }

    /// Whether a point of the segment can still be seen. What cannot is not worth rewriting.
    pub(super) fn is_visible(&self, segment: &SegmentFacts, now: i64) -> bool {
        segment.last >= self.visible_from(now)
    }

    /// The instant before which all points are old enough for the cold tier, the start of a day; `None` = no point ever
    /// is.
    pub(super) fn cold_before(&self, facts: &Facts) -> Option<i64> {
        let age = self.policy.hot_ttl?;
        Some(cold_boundary(facts.now().saturating_sub(age), facts.window_nanos))
    }

    /// The instant at which the first points of a hot segment become old enough for the cold tier: those of the day of
    /// its first point; `None` = never.
    pub(super) fn cold_at(&self, segment: &SegmentFacts, base: i64) -> Option<i64> {
        let age = self.policy.hot_ttl?;
        let day = Window::of(segment.first, base, COLD_LEVEL);
        Some(day.range(base).end.saturating_add(age))
    }

    /// The table as queue and schedules need it.
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

    /// The schedule of a kind of jobs.
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
            | JobKind::SetAttributes => &Schedule::Continuous,
        }
    }
}

impl SegmentFacts {
    /// The span of its points, half-open.
    pub fn range(&self) -> TimeRange {
        TimeRange::new(self.first, self.last.saturating_add(1))
    }

    /// Whether somebody asked for it to stay in its tier for now.
    pub(super) fn is_held(&self, now: i64) -> bool {
        self.stays_until.is_some_and(|until| until > now)
    }

    /// The part of it before an instant, its counts estimated as if its points were spread evenly.
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

    /// The window that it is cold in: at least a day.
    pub(super) fn cold_window(&self) -> Window {
        widened(self.window, COLD_LEVEL)
    }
}

/// The window of at least this level around a window.
pub(super) fn widened(window: Window, level: u8) -> Window {
    let mut wide = window;
    while wide.level < level {
        wide = wide.parent();
    }
    wide
}
