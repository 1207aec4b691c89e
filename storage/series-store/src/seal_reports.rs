//! Reports of completed seals, kept until the scheduler lists them as jobs.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tideline_model::{TableId, TimeRange};

use crate::manifest::Segment;

/// Maximum number of kept reports. It equals the default number of past jobs in the scheduler. Older reports are
/// discarded.
const WAITING_MAX: usize = 200;

/// Report of a completed seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SealReport {
    /// Start time by the trusted clock, in nanoseconds since the epoch.
    pub started: i64,
    /// Duration of the seal.
    pub duration: Duration,
    /// Number of segments that the seal added.
    pub segments: u64,
    /// Distinct windows of these segments.
    pub windows: u64,
    /// Lower bound of the number of timelines: the sum, over all tables, of the largest number of timelines in one
    /// segment.
    pub timelines: u64,
    /// Points in the segments.
    pub points: u64,
    /// Field values in the segments.
    pub values: u64,
    /// Bytes of the segments.
    pub bytes: u64,
    /// Time range of the points; `None` without points.
    pub range: Option<TimeRange>,
}

impl SealReport {
    /// Creates a report. The segments of each table must be adjacent.
    pub(crate) fn of(started: i64, duration: Duration, segments: &[Segment]) -> Self {
        let mut report = Self {
            started,
            duration,
            segments: segments.len() as u64,
            ..Self::default()
        };
        let mut windows: Vec<_> = segments.iter().map(|segment| segment.window).collect();
        windows.sort_unstable();
        windows.dedup();
        report.windows = windows.len() as u64;
        let mut of_table: Option<(TableId, u64)> = None;
        for segment in segments {
            report.points += segment.points;
            report.values += segment.values;
            report.bytes += segment.bytes;
            let range = segment.range();
            report.range = Some(report.range.map_or(range, |all| joined(all, range)));
            let known = of_table.filter(|(table, _)| *table == segment.table);
            let most = known.map_or(0, |(_, most)| most);
            report.timelines += segment.timelines.saturating_sub(most);
            of_table = Some((segment.table, most.max(segment.timelines)));
        }
        report
    }
}

fn joined(a: TimeRange, b: TimeRange) -> TimeRange {
    TimeRange::new(a.start.min(b.start), a.end.max(b.end))
}

/// Reports that were not taken yet.
#[derive(Debug, Default)]
pub(crate) struct SealReports(Mutex<VecDeque<SealReport>>);

impl SealReports {
    /// Adds a report.
    pub(crate) fn add(&self, report: SealReport) {
        let mut waiting = self.0.lock();
        if waiting.len() == WAITING_MAX {
            waiting.pop_front();
        }
        waiting.push_back(report);
    }

    /// Removes and returns all reports, oldest first.
    pub(crate) fn take(&self) -> Vec<SealReport> {
        self.0.lock().drain(..).collect()
    }
}
