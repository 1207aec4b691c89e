//! Surveys of wide tables: sizes and delete markers of their stored rows, and packing of ranges with many markers.
//!
//! A survey reads the stored rows of a table and of its secondary indexes once, in the background. Requests return the
//! result of the last survey, so their cost does not depend on the size of the table. A survey is lost when the process
//! stops.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tideline_key_codec::layout::KeyLayout;
use tideline_model::{KeyRange, TableId};
use tideline_series_store::StoreError;
pub use tideline_wide_table::survey::{
    COLUMNS_LISTED, ColumnSize, PARTITIONS_LISTED, PartitionSize, RowSurvey, SurveyedRange,
};

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::tables::Table;
use crate::wide_table::WideTable;

/// Share of delete markers among the rows and delete markers of a range, above which the range is packed. Flushes alone
/// keep the share below 0.2, because they pack a block when a quarter of its rows have changed.
pub const MARKER_RATIO_MAX: f64 = 0.05;
/// Minimum number of delete markers of a table or index. With fewer markers, no range is packed.
pub const PACKED_MARKERS_MIN: u64 = 100;
/// Size of a partition, in bytes, above which a warning is given for its table.
pub const PARTITION_BYTES_WARNED: u64 = 8 << 30;
/// Time from the start of the process to the first survey of a table, so that surveys do not slow down a start. Up to
/// [`FIRST_SURVEY_SPREAD`] seconds are added, so that not all tables are due at once.
const FIRST_SURVEY_AFTER: Duration = Duration::from_secs(30);
/// Number of seconds over which the first surveys of the tables are spread.
const FIRST_SURVEY_SPREAD: u32 = 30;
/// Minimum time between two surveys of a table that has changed.
const SURVEY_EVERY_MIN: Duration = Duration::from_secs(600);
/// Minimum time between two surveys of a table that had no stored rows, such as a new table that is being filled.
const SURVEY_EMPTY_EVERY: Duration = Duration::from_secs(30);
/// Maximum time between two surveys of a table that has changed.
const SURVEY_EVERY_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Time between two surveys as a multiple of the duration of a survey, so that surveys take about 1 % of a thread.
const SURVEY_EVERY_FACTOR: u32 = 100;

/// Survey of the entries of a secondary index.
#[derive(Debug, Clone, PartialEq)]
pub struct SurveyedIndex {
    /// Name of the index.
    pub name: String,
    /// Its entries.
    pub entries: RowSurvey,
}

/// Survey of the columns of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct SurveyedGroup {
    /// Name of the group.
    pub name: String,
    /// Columns of the rows that are stored in the group.
    pub rows: RowSurvey,
}

/// Survey of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct TableSurvey {
    /// Trusted time at the end, in nanoseconds since the epoch.
    pub at: i64,
    /// Duration, including pauses.
    pub took: Duration,
    /// Number of changes of the table between the start of the process and the beginning of the survey.
    pub changes: u64,
    /// True if the row buffer had changes of the table at the beginning. The survey does not count them.
    pub has_buffered: bool,
    /// Rows of the table, without the columns of groups.
    pub rows: RowSurvey,
    /// Columns of the groups, in the order of the settings.
    pub groups: Vec<SurveyedGroup>,
    /// Entries of the secondary indexes.
    pub indexes: Vec<SurveyedIndex>,
    /// Number of delete markers of the table and its indexes that packing has removed since the start of the process.
    pub markers_packed: u64,
}

impl TableSurvey {
    /// Returns the bytes of the rows, including the columns of groups, as they are passed to the storage engine.
    pub fn stored_bytes(&self) -> u64 {
        let groups = self.groups.iter().map(|group| &group.rows);
        groups.chain([&self.rows]).map(|survey| survey.stored_bytes).sum()
    }

    /// Returns the bytes of the rows, and of the entries of the secondary indexes.
    pub fn all_bytes(&self) -> u64 {
        let entries = self.indexes.iter().map(|index| index.entries.stored_bytes);
        self.stored_bytes() + entries.sum::<u64>()
    }
}

/// Last surveys by table.
#[derive(Debug, Default)]
pub(crate) struct RowSurveys(Mutex<BTreeMap<TableId, Arc<TableSurvey>>>);

/// Work of a survey so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SurveyProgress {
    /// Number of rows and entries that were counted.
    pub rows: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Number of ranges that were packed.
    pub ranges_packed: u64,
    /// Number of delete markers that were removed.
    pub markers_packed: u64,
}

/// Function that is called after each step, and can end the work.
pub type ProceedSurvey<'p> = dyn FnMut(&SurveyProgress) -> ControlFlow<()> + 'p;

impl Engine {
    /// Returns the last survey of a table since the start of the process; `None` without one.
    pub fn row_survey(&self, table: TableId) -> Option<Arc<TableSurvey>> {
        self.row_surveys.0.lock().get(&table).cloned()
    }

    /// Returns the last survey of a table since the start of the process; `None` without one, and for a table that is
    /// restricted to some timelines.
    pub fn survey_of(&self, table: &Table) -> Option<Arc<TableSurvey>> {
        match table.restriction {
            None => self.row_survey(table.points().id()),
            Some(_) => None,
        }
    }

    /// Returns the earliest time of the next survey of a table, in nanoseconds since the epoch; `None` if the last one
    /// has counted all changes. The first survey is due half a minute to a minute after the start, because most
    /// statistics of rows are unknown until then.
    pub fn next_row_survey(&self, table: TableId) -> Option<i64> {
        let Some(last) = self.row_survey(table) else {
            let spread = Duration::from_secs(u64::from(table.0 % FIRST_SURVEY_SPREAD));
            let left = (FIRST_SURVEY_AFTER + spread).saturating_sub(self.clock.monotonic());
            let left = i64::try_from(left.as_nanos()).unwrap_or(i64::MAX);
            return Some(self.store.trusted_now().now.nanos().saturating_add(left));
        };
        let has_flushed = || last.has_buffered && !self.rows.has_buffered(table);
        if self.rows.changes_of(table) == last.changes && !has_flushed() {
            return None;
        }
        let every_min = match last.rows.rows {
            0 => SURVEY_EMPTY_EVERY,
            _ => SURVEY_EVERY_MIN,
        };
        let every = last.took * SURVEY_EVERY_FACTOR;
        let every = every.clamp(every_min, SURVEY_EVERY_MAX);
        let every = i64::try_from(every.as_nanos()).unwrap_or(i64::MAX);
        Some(last.at.saturating_add(every))
    }

    /// Surveys the stored rows of a table, the columns of its groups and the entries of its indexes, and packs the
    /// ranges whose share of delete markers is above [`MARKER_RATIO_MAX`]. A table or index with packed ranges is
    /// surveyed again. Calls `proceed` after each step. Returns `None` if `proceed` has ended the survey.
    ///
    /// # Errors
    ///
    /// Returns an error if rows cannot be read or written. A table that does not exist is not an error.
    pub fn survey_rows(
        &self,
        table: TableId,
        proceed: &mut ProceedSurvey<'_>,
    ) -> Result<Option<SurveyProgress>> {
        let mut progress = SurveyProgress::default();
        match self.survey_table(table, &mut progress, proceed) {
            Err(EngineError::Store(StoreError::TableDropped(_))) => Ok(Some(progress)),
            Err(error) => Err(error),
            Ok(ControlFlow::Break(())) => Ok(None),
            Ok(ControlFlow::Continue(())) => Ok(Some(progress)),
        }
    }

    fn survey_table(
        &self,
        id: TableId,
        progress: &mut SurveyProgress,
        proceed: &mut ProceedSurvey<'_>,
    ) -> Result<ControlFlow<()>> {
        let tables = self.known_tables();
        let found = tables.iter().find(|table| table.points().id() == id);
        let Some(found) = found.filter(|table| table.spec().model.has_rows()) else {
            return Ok(ControlFlow::Continue(()));
        };
        let table = self.known_rows(found.name().as_str())?;
        let begun = Instant::now();
        let changes = self.rows.changes_of(id);
        let has_buffered = self.rows.has_buffered(id);
        let ControlFlow::Continue(rows) = self.survey_and_pack(id, table.layout(), progress, proceed)? else {
            return Ok(ControlFlow::Break(()));
        };
        let mut groups = Vec::new();
        for group in &table.settings().groups {
            let id = TableId(group.id);
            let ControlFlow::Continue(rows) = self.survey_and_pack(id, table.layout(), progress, proceed)?
            else {
                return Ok(ControlFlow::Break(()));
            };
            groups.push(SurveyedGroup {
                name: group.name.clone(),
                rows,
            });
        }
        let mut indexes = Vec::new();
        for index in table.indexes() {
            let surveyed = self.survey_and_pack(index.id(), index.layout(), progress, proceed)?;
            let ControlFlow::Continue(entries) = surveyed else {
                return Ok(ControlFlow::Break(()));
            };
            indexes.push(SurveyedIndex {
                name: index.name().to_owned(),
                entries,
            });
        }
        let mut survey = TableSurvey {
            at: self.store.trusted_now().now.nanos(),
            took: begun.elapsed(),
            changes,
            has_buffered,
            rows,
            groups,
            indexes,
            markers_packed: progress.markers_packed,
        };
        self.note_growth(&table, &survey);
        let mut surveys = self.row_surveys.0.lock();
        surveys.retain(|known, _| tables.iter().any(|table| table.points().id() == *known));
        survey.markers_packed += surveys.get(&id).map_or(0, |before| before.markers_packed);
        surveys.insert(id, Arc::new(survey));
        Ok(ControlFlow::Continue(()))
    }

    /// Surveys a table or index. If ranges were packed, surveys it again.
    fn survey_and_pack(
        &self,
        id: TableId,
        layout: &KeyLayout,
        progress: &mut SurveyProgress,
        proceed: &mut ProceedSurvey<'_>,
    ) -> Result<ControlFlow<(), RowSurvey>> {
        let ControlFlow::Continue(survey) = self.survey_once(id, layout, progress, proceed)? else {
            return Ok(ControlFlow::Break(()));
        };
        let packed_before = progress.ranges_packed;
        // Packing needs some space before it frees more.
        let ranges = match self.check_writable() {
            Ok(()) => ranges_to_pack(&survey),
            Err(_) => Vec::new(),
        };
        for (part, range) in ranges {
            let end = range.end.clone();
            let mut rest = Some(range);
            while let Some(left) = rest {
                let step = self.rows.pack_range(id, part, &left)?;
                progress.markers_packed += step.markers;
                progress.bytes_read += step.bytes_read;
                let next = step.next.map(|start| KeyRange {
                    start,
                    end: end.clone(),
                });
                rest = next.filter(|next| !next.is_empty());
                if proceed(progress).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            progress.ranges_packed += 1;
        }
        if progress.ranges_packed == packed_before {
            return Ok(ControlFlow::Continue(survey));
        }
        self.survey_once(id, layout, progress, proceed)
    }

    fn survey_once(
        &self,
        id: TableId,
        layout: &KeyLayout,
        progress: &mut SurveyProgress,
        proceed: &mut ProceedSurvey<'_>,
    ) -> Result<ControlFlow<(), RowSurvey>> {
        let mut survey = self.rows.begin_survey(id, layout.clone())?;
        loop {
            let step = self.rows.survey_step(&mut survey)?;
            progress.rows += step.rows;
            progress.bytes_read += step.bytes_read;
            if step.is_done {
                return Ok(ControlFlow::Continue(survey.finish()));
            }
            if proceed(progress).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    /// Returns the bytes of the row buffer that belong to a table.
    pub fn buffered_row_bytes(&self, table: &WideTable) -> u64 {
        let stats = self.rows.stats();
        let of_table = stats.tables.get(&table.table().points().id());
        of_table.map_or(0, |stats| stats.buffered_bytes)
    }
}

/// Returns the ranges with many delete markers, each with the number of its part. Neighboring ranges are joined.
fn ranges_to_pack(survey: &RowSurvey) -> Vec<(i32, KeyRange)> {
    let mut joined: Vec<(i32, KeyRange)> = Vec::new();
    if survey.markers < PACKED_MARKERS_MIN {
        return joined;
    }
    let ends = survey.ranges.iter().skip(1).map(Some).chain([None]);
    for (range, next) in survey.ranges.iter().zip(ends) {
        if range.marker_ratio() <= MARKER_RATIO_MAX {
            continue;
        }
        let next = next.filter(|next| next.part == range.part);
        let end = next.map(|next| next.start.clone());
        match joined.last_mut() {
            Some((part, last)) if *part == range.part && last.end.as_ref() == Some(&range.start) => {
                last.end = end;
            }
            _ => {
                let start = range.start.clone();
                joined.push((range.part, KeyRange { start, end }));
            }
        }
    }
    joined
}
