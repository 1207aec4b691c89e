//! Conversion of surveys of the store to facts of the planner.

use tideline_engine::model::TableModel;
use tideline_engine::moves::manifest::Segment;
use tideline_engine::moves::{Survey, TableSurvey};

use super::facts::{Facts, SegmentFacts, TableFacts};

impl From<&Survey> for Facts {
    fn from(survey: &Survey) -> Self {
        Self {
            clock: survey.now,
            window_nanos: survey.window_nanos,
            frozen_heads: survey.frozen_heads,
            retired_segments: survey.retired_segments,
            tables: survey
                .tables
                .iter()
                .filter(|table| table.table.spec().model == TableModel::Series)
                .map(TableFacts::from)
                .collect(),
        }
    }
}

impl From<&TableSurvey> for TableFacts {
    fn from(survey: &TableSurvey) -> Self {
        let table = &survey.table;
        let segments = survey.segments.iter().map(|segment| SegmentFacts {
            id: segment.segment.id,
            tier: segment.segment.tier,
            window: segment.segment.window,
            first: segment.segment.first,
            last: segment.segment.last,
            timelines: segment.segment.timelines,
            points: segment.segment.points,
            values: segment.segment.values,
            bytes: segment.segment.bytes,
            written: segment.segment.written,
            archived: files_of(&segment.segment),
            is_copied: segment.segment.copy.is_some(),
            stays_until: segment.segment.stays_until,
            has_deletes: segment.has_deletes,
            is_moving: segment.is_moving,
        });
        Self {
            id: table.id(),
            name: table.name().to_string(),
            policy: table.spec().policy.clone(),
            policy_changed: table.policy_changed(),
            created: table.created(),
            segments: segments.collect(),
            has_unwritten_settings: survey.has_unwritten_settings,
        }
    }
}

/// Returns the time when the files of a segment or of its copy were written; `None` = no files, or unknown.
fn files_of(segment: &Segment) -> Option<i64> {
    segment.parts().find_map(|part| part.archived)
}
