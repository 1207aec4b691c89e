//! What there is, at one moment, for whoever plans moves.

use std::sync::Arc;

use tideline_log::TrustedNow;
use tideline_model::TableId;

use crate::manifest::Segment;
use crate::shared::{Shared, State};
use crate::tables::Table;

/// The facts that plans are made from.
#[derive(Debug, Clone)]
pub struct Survey {
    /// The time that expiry and migration go by.
    pub now: TrustedNow,
    /// Every table, by number.
    pub tables: Vec<TableSurvey>,
    /// Heads that wait to be sealed or are being sealed.
    pub frozen_heads: usize,
    /// Segments that are out of the manifest and wait for their last reader.
    pub retired_segments: usize,
    /// Width of the narrowest window, in nanoseconds.
    pub window_nanos: i64,
}

/// The facts of one table.
#[derive(Debug, Clone)]
pub struct TableSurvey {
    /// The table, with its policy.
    pub table: Arc<Table>,
    /// Its segments, by id.
    pub segments: Vec<SegmentSurvey>,
    /// Its unsealed points.
    pub head: HeadSurvey,
    /// Bytes that seals and rewrites of the table have loaded since the start.
    pub loaded_bytes: u64,
    /// Deletes that some segment or frozen head still has to be cleared of.
    pub deletes: usize,
    /// Whether a target with files of the table may hold other settings than the table has.
    pub has_unwritten_settings: bool,
}

/// The unsealed points of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeadSurvey {
    /// Rows taken in, overwritten and deleted ones included.
    pub points: u64,
    /// Bytes of memory.
    pub bytes: u64,
    /// The oldest and the newest instant.
    pub span: Option<(i64, i64)>,
}

/// The facts of one segment.
#[derive(Debug, Clone)]
pub struct SegmentSurvey {
    /// The segment.
    pub segment: Arc<Segment>,
    /// Whether a delete may hide points of it.
    pub has_deletes: bool,
    /// Whether a rewrite is at work on it.
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
    /// The facts of this moment.
    pub(crate) fn survey(&self) -> Survey {
        self.survey_of(&self.state.read().clone())
    }

    /// The facts of the moment of a state.
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
