//! Point-in-time statistics for the planner of moves and compactions.
//!
//! Segments, heads and deletes are those of one pinned state. The other values are read shortly afterwards.

use std::sync::Arc;

use tideline_log::TrustedNow;
use tideline_model::TableId;

use crate::manifest::Segment;
use crate::shared::{Shared, State};
use crate::tables::Table;

/// Statistics of all tables at one moment.
#[derive(Debug, Clone)]
pub struct Survey {
    /// Trusted time, which expiry and migration use.
    pub now: TrustedNow,
    /// Tables, sorted by id.
    pub tables: Vec<TableSurvey>,
    /// Heads that are being sealed or wait to be sealed.
    pub frozen_heads: usize,
    /// Segments that are no longer in the manifest and wait for their last reader.
    pub retired_segments: usize,
    /// Width of the narrowest window in nanoseconds.
    pub window_nanos: i64,
}

/// Statistics of one table.
#[derive(Debug, Clone)]
pub struct TableSurvey {
    /// Table with its policy.
    pub table: Arc<Table>,
    /// Segments, sorted by id.
    pub segments: Vec<SegmentSurvey>,
    /// Unsealed points.
    pub head: HeadSurvey,
    /// Bytes of segments that seals and rewrites of the table have written since the start.
    pub loaded_bytes: u64,
    /// Deletes that are not yet applied to all segments and frozen heads.
    pub deletes: usize,
    /// True if a target with files of the table may hold settings that differ from those of the table.
    pub has_unwritten_settings: bool,
}

/// Unsealed points of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeadSurvey {
    /// Rows written, including overwritten and deleted ones.
    pub points: u64,
    /// Bytes of memory.
    pub bytes: u64,
    /// Oldest and newest timestamp; `None` without points.
    pub span: Option<(i64, i64)>,
}

/// Statistics of one segment.
#[derive(Debug, Clone)]
pub struct SegmentSurvey {
    /// Segment from the manifest.
    pub segment: Arc<Segment>,
    /// True if a delete may hide points of the segment.
    pub has_deletes: bool,
    /// True if a rewrite, a drop or an eviction is using the segment.
    pub is_moving: bool,
}

impl HeadSurvey {
    fn of(state: &State, table: TableId) -> Self {
        let heads = state.frozen.iter().chain([&state.active]);
        let mut all = Self::default();
        for head in heads.filter_map(|head| head.table(table)) {
            all.points += head.points();
            all.bytes += head.bytes() as u64;
            let spans = [all.span, head.span()];
            all.span = spans
                .into_iter()
                .flatten()
                .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        }
        all
    }
}

impl Shared {
    /// Returns the statistics of this moment.
    pub(crate) fn survey(&self) -> Survey {
        self.survey_of(&self.state.read().clone())
    }

    /// Returns the statistics for a pinned state.
    pub(crate) fn survey_of(&self, state: &State) -> Survey {
        let moving = self.moving.lock().clone();
        let mut tables: Vec<Arc<Table>> = self.tables.read().by_id.values().cloned().collect();
        tables.sort_unstable_by_key(|table| table.id());
        let of_table = |table: Arc<Table>| {
            let deletes = state.deletes.of(table.id());
            let segments = state.manifest.of_table(table.id()).map(|segment| SegmentSurvey {
                has_deletes: deletes.is_some_and(|deletes| deletes.concern(segment)),
                is_moving: moving.contains(&segment.id),
                segment: Arc::clone(segment),
            });
            TableSurvey {
                segments: segments.collect(),
                head: HeadSurvey::of(state, table.id()),
                loaded_bytes: table.loaded_bytes(),
                deletes: deletes.map_or(0, |deletes| deletes.len()),
                has_unwritten_settings: self.has_unwritten_settings(&state.manifest, &table),
                table,
            }
        };
        Survey {
            now: self.log.trusted_now(),
            tables: tables.into_iter().map(of_table).collect(),
            frozen_heads: state.frozen.len(),
            retired_segments: self.retired.count(),
            window_nanos: self.settings.window_nanos,
        }
    }
}
