//! Maintenance of wide tables: builds of secondary indexes, moves of parts between tiers, surveys, and removal of
//! expired rows, of large values without a row and of files without a part. The maintenance also writes the messages of
//! feed tables, which are rows, to inboxes (fan-out), and completes interrupted joins.
//!
//! Other work needs no plan: the log flushes the rows, and the storage engine compacts the partitions that store them.

pub mod archives;

use std::fmt::Write as _;
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

use tideline_engine::Engine;
use tideline_engine::expired_rows::RemovalProgress;
use tideline_engine::fan_outs::TableFanOuts;
use tideline_engine::indexes::{BuildEnd, BuildProgress, BuildingIndex};
use tideline_engine::large::LargeProgress;
use tideline_engine::model::time::{NANOS_PER_DAY, NANOS_PER_SECOND, format_duration};
use tideline_engine::model::{JobKind, TableId, TableModel, Tier};
use tideline_engine::parts::DuePart;
use tideline_engine::row_surveys::SurveyProgress;
use tideline_engine::rows::{MoveEnd, MoveProgress};
use tideline_message_feed::fan_out::{FanOutProgress, fan_out};
use tideline_rows::RowsError;

use crate::maintenance::{
    Amount, Maintenance, NOTHING_CHANGED, Outcome, PlanSettings, Planned, SegmentCounts, Served, Slot,
    Survey, TableState, Urgency, WorkError,
};
use crate::run::Run;
use crate::schedule::begins;
use crate::throttle::JobCost;

/// Maintenance of wide tables.
pub struct Rows {
    engine: Arc<Engine>,
}

/// Survey of the wide tables at one moment.
struct RowsSurvey {
    tables: Vec<TableState>,
    building: Vec<BuildingIndex>,
    /// Parts that are old enough for another tier.
    due: Vec<DuePart>,
    /// Tables with parts in the archive, or whose parts move there.
    archived: Vec<TableId>,
    /// Tables with regular removals. The number is the shortest time-to-live in nanoseconds: of the rows, of the parts,
    /// or [`UNNAMED_KEPT`] for large values.
    expiring: Vec<(TableId, i64)>,
    /// Tables with the earliest time of their next survey; `None` if they have not changed since the last one.
    surveys: Vec<(TableId, Option<i64>)>,
    /// Feed tables with inboxes.
    fan_outs: Vec<TableFanOuts>,
    /// Trusted time of the survey, nanoseconds since the epoch; `None` while the clock is in doubt.
    now: Option<i64>,
}

/// Number of removals per time-to-live of a table, within the limits of [`REMOVAL_EVERY`]. Expired data is therefore
/// removed within about a tenth of its time-to-live.
const REMOVALS_PER_TTL: i64 = 10;
/// Minimum and maximum interval between two removals, in nanoseconds.
const REMOVAL_EVERY: RangeInclusive<i64> = 600 * NANOS_PER_SECOND..=NANOS_PER_DAY;
/// Interval between two searches for files that belong to no part, in nanoseconds.
const ORPHANS_EVERY: i64 = NANOS_PER_DAY;
/// Maximum time for which large values without a row are kept, in nanoseconds. The time is long because each removal
/// reads one row per large value.
const UNNAMED_KEPT: i64 = 10 * 3_600 * NANOS_PER_SECOND;

/// Age of the oldest waiting message at which a fan-out starts, in nanoseconds. Inboxes show a message even before its
/// fan-out, so a longer time only makes their reads slower, and a shorter time starts a job for few messages.
const FAN_OUT_AGE: i64 = 60 * NANOS_PER_SECOND;
/// Minimum time between two fan-outs of a table, in nanoseconds, in which other jobs can start.
const FAN_OUT_EVERY: i64 = 10 * NANOS_PER_SECOND;

impl Rows {
    /// Creates the maintenance of the wide tables of a database.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Builds the index for which `work` was planned.
    fn build(&self, work: &Planned, run: &mut Run<'_>) -> Result<Outcome, WorkError> {
        let mut building = self.engine.building_indexes().into_iter();
        let building = building.find(|building| Some(slot_of(building)) == work.slot);
        let gone = || WorkError::Overtaken("the index was dropped, or is ready already".to_owned());
        let building = building.ok_or_else(gone)?;
        let mut step = |progress: &BuildProgress| -> ControlFlow<()> { run.step(&cost_of(progress)) };
        match self.engine.build_index(&building, &mut step)? {
            BuildEnd::Ready(progress) => {
                run.part_done(&cost_of(&progress));
                Ok(Outcome::done(format!(
                    "index {} is ready: {} rows and {} bytes read, {} bytes written",
                    building.name, progress.rows, progress.bytes_read, progress.bytes_written
                )))
            }
            BuildEnd::Stopped => Err(WorkError::GivenUp),
            BuildEnd::Gone => Err(gone()),
        }
    }

    /// Removes expired rows, old parts, and large values without a row from the table of the work.
    fn remove_expired(&self, work: &Planned, run: &mut Run<'_>) -> Result<Outcome, WorkError> {
        let Some(table) = work.table else {
            return Err(WorkError::Overtaken("the work has no table".to_owned()));
        };
        let cost = |progress: &RemovalProgress| JobCost {
            bytes_read: progress.bytes_read,
            ..JobCost::default()
        };
        let mut step = |progress: &RemovalProgress| -> ControlFlow<()> { run.step(&cost(progress)) };
        let parts = self.engine.drop_old_parts(table)?;
        let has_ttl = self.engine.has_row_ttl(table);
        let removed = match has_ttl {
            true => self.engine.remove_expired_rows(table, &mut step)?,
            false => Some(RemovalProgress::default()),
        };
        let removed = removed.ok_or(WorkError::GivenUp)?;
        run.part_done(&cost(&removed));
        let values = self.remove_values(table, run)?;
        let mut done = Vec::new();
        if has_ttl {
            done.push(format!(
                "{} of {} rows had expired and were removed",
                removed.removed, removed.rows
            ));
        }
        if let Some(values) = &values {
            done.push(format!(
                "{} large values that are not needed on the disks were removed, and {} with {} bytes are kept",
                values.removed, values.values, values.bytes
            ));
        }
        if parts > 0 || done.is_empty() {
            done.push(format!("{parts} old parts were dropped"));
        }
        let values = values.map_or(0, |values| values.removed);
        Ok(Outcome::round(removed.removed + parts + values, done.join("; ")))
    }

    /// Removes the large values that no row refers to; `None` if the table has never had large values.
    fn remove_values(&self, table: TableId, run: &mut Run<'_>) -> Result<Option<LargeProgress>, WorkError> {
        if !self.engine.has_large_values(table) {
            return Ok(None);
        }
        let cost = |progress: &LargeProgress| JobCost {
            bytes_read: progress.bytes_read,
            ..JobCost::default()
        };
        let mut step = |progress: &LargeProgress| -> ControlFlow<()> { run.step(&cost(progress)) };
        let removed = self.engine.remove_unnamed_values(table, &mut step)?;
        let removed = removed.ok_or(WorkError::GivenUp)?;
        run.part_done(&cost(&removed));
        Ok(Some(removed))
    }
}

impl Rows {
    /// Moves the part of the work into the cold tier or the archive.
    fn move_part(&self, work: &Planned, run: &mut Run<'_>) -> Result<Outcome, WorkError> {
        let slot = work.slot.and_then(|slot| i32::try_from(slot.index).ok());
        let (Some(table), Some(number)) = (work.table, slot) else {
            return Err(WorkError::Overtaken("the work has no part".to_owned()));
        };
        let mut step = |progress: &MoveProgress| -> ControlFlow<()> { run.step(&cost_of_move(progress)) };
        let (moved, what) = match work.tier {
            Tier::Archive => (self.engine.archive_table_part(table, number, &mut step)?, "rows"),
            tier => (
                self.engine.move_table_part(table, number, tier, &mut step)?,
                "stored values",
            ),
        };
        match moved {
            MoveEnd::Moved(progress) => {
                run.part_done(&cost_of_move(&progress));
                Ok(Outcome::done(format!(
                    "{} {what} with {} bytes moved into the tier {}",
                    progress.values,
                    progress.bytes,
                    work.tier.name()
                )))
            }
            MoveEnd::Stopped => Err(WorkError::GivenUp),
            MoveEnd::Gone => Err(WorkError::Overtaken(
                "the part was dropped, restored or moved already".to_owned(),
            )),
            MoveEnd::Unready => Err(WorkError::Failed(
                "a search index of the tier cold is not ready to take the rows of the part".to_owned(),
            )),
            MoveEnd::Busy => Err(WorkError::Failed(
                "the part is being written faster than it is copied".to_owned(),
            )),
        }
    }
}

impl Rows {
    /// Writes the waiting messages of a feed table to the inboxes of the members.
    fn fan_out(&self, work: &Planned, run: &mut Run<'_>) -> Result<Outcome, WorkError> {
        let mut tables = self.engine.tables().into_iter();
        let table = tables.find(|table| Some(table.points().id()) == work.table);
        let table = table.and_then(|table| self.engine.feed_table(table.name().as_str()).ok());
        let table = table.ok_or_else(|| WorkError::Overtaken("the table was dropped".to_owned()))?;
        let cost = |progress: &FanOutProgress| JobCost {
            timelines: progress.feeds + progress.joins,
            points_read: progress.entries,
            bytes_read: progress.bytes_read,
            points_written: progress.entries,
            ..JobCost::default()
        };
        let mut total = None;
        let mut step = |progress: &FanOutProgress| -> ControlFlow<()> {
            if total.replace(progress.total) != Some(progress.total) {
                let amount = Amount {
                    timelines: work.amount.timelines,
                    points: progress.total,
                    ..Amount::default()
                };
                run.set_extent(amount, None);
            }
            run.step(&cost(progress))
        };
        let written = match fan_out(&self.engine, &table, &mut step) {
            Ok(written) => written,
            Err(RowsError::Cancelled) => return Err(WorkError::GivenUp),
            Err(error) => return Err(WorkError::Failed(error.to_string())),
        };
        run.part_done(&cost(&written));
        let mut text = format!(
            "{} messages of {} feeds were written to inboxes: {} entries",
            written.messages, written.feeds, written.entries
        );
        if written.joins > 0 {
            let _ = write!(text, "; {} interrupted joins are complete", written.joins);
        }
        if written.skipped > 0 {
            let _ = write!(
                text,
                "; {} entries are missing, because their parts are closed for writes",
                written.skipped
            );
        }
        Ok(Outcome::round(written.messages + written.joins, text))
    }
}

impl Rows {
    /// Removes the files of a table that belong to no part.
    fn remove_orphans(&self, work: &Planned) -> Result<Outcome, WorkError> {
        let Some(table) = work.table else {
            return Err(WorkError::Overtaken("the work has no table".to_owned()));
        };
        let removed = self.engine.store().sweep_archive(table)?;
        Ok(Outcome::round(
            removed,
            format!("{removed} files removed that belong to no part"),
        ))
    }
}

fn cost_of_move(progress: &MoveProgress) -> JobCost {
    JobCost {
        bytes_read: progress.bytes,
        bytes_written: progress.bytes,
        ..JobCost::default()
    }
}

impl Rows {
    /// Surveys the rows of the table of the work, and packs ranges with many delete markers.
    fn survey_rows(&self, work: &Planned, run: &mut Run<'_>) -> Result<Outcome, WorkError> {
        let Some(table) = work.table else {
            return Err(WorkError::Overtaken("the work has no table".to_owned()));
        };
        let cost = |progress: &SurveyProgress| JobCost {
            bytes_read: progress.bytes_read,
            ..JobCost::default()
        };
        let mut step = |progress: &SurveyProgress| -> ControlFlow<()> { run.step(&cost(progress)) };
        let surveyed = self.engine.survey_rows(table, &mut step)?;
        let surveyed = surveyed.ok_or(WorkError::GivenUp)?;
        run.part_done(&cost(&surveyed));
        let text = match surveyed.ranges_packed {
            0 => format!("{} rows and index entries surveyed", surveyed.rows),
            ranges => format!(
                "{} rows and index entries surveyed; {ranges} key ranges packed, which removed {} delete markers",
                surveyed.rows, surveyed.markers_packed
            ),
        };
        Ok(Outcome::round(surveyed.markers_packed, text))
    }
}

fn cost_of(progress: &BuildProgress) -> JobCost {
    JobCost {
        bytes_read: progress.bytes_read,
        bytes_written: progress.bytes_written,
        ..JobCost::default()
    }
}

/// Returns the slot of a build, so that a failed build delays only the builds of the same index.
fn slot_of(building: &BuildingIndex) -> Slot {
    Slot {
        level: 0,
        index: i64::from(building.index.0),
    }
}

/// The tables of the survey are wide tables, and feed tables, whose messages are rows.
impl Maintenance for Rows {
    fn model(&self) -> TableModel {
        TableModel::Wide
    }

    fn survey(&self) -> Arc<dyn Survey> {
        let mut tables = self.engine.tables();
        tables.retain(|table| table.spec().model.has_rows());
        let expiring = |table: &tideline_engine::Table| {
            let spec = table.spec();
            let wide = spec.wide.as_ref()?;
            let ttl = wide.ttl.map(|ttl| ttl.after);
            let keep = wide.parts.as_ref().and_then(|parts| parts.keep);
            let unnamed = wide.large_values.map(|_| UNNAMED_KEPT);
            let shortest = ttl.into_iter().chain(keep).chain(unnamed).min()?;
            Some((table.points().id(), shortest))
        };
        let now = self.engine.store().trusted_now();
        Arc::new(RowsSurvey {
            tables: tables.iter().map(state_of).collect(),
            building: self.engine.building_indexes(),
            archived: {
                let archived = tables
                    .iter()
                    .filter(|table| self.engine.has_archived_parts(table));
                archived.map(|table| table.points().id()).collect()
            },
            expiring: tables.iter().filter_map(expiring).collect(),
            due: match now.doubt {
                None => self.engine.due_parts(now.now.nanos()),
                Some(_) => Vec::new(),
            },
            surveys: tables
                .iter()
                .map(|table| table.points().id())
                .map(|table| (table, self.engine.next_row_survey(table)))
                .collect(),
            fan_outs: self.engine.fan_outs(),
            now: now.doubt.is_none().then(|| now.now.nanos()),
        })
    }

    fn perform(&self, work: &Planned, run: &mut Run<'_>) -> Result<Outcome, WorkError> {
        match work.kind {
            JobKind::BuildIndex => self.build(work, run),
            JobKind::Migrate | JobKind::Archive => self.move_part(work, run),
            JobKind::SweepArchive => self.remove_orphans(work),
            JobKind::RemoveExpired => self.remove_expired(work, run),
            JobKind::SurveyRows => self.survey_rows(work, run),
            JobKind::FanOut => self.fan_out(work, run),
            kind => Err(WorkError::Overtaken(format!(
                "wide tables have no jobs of the kind {}",
                kind.name()
            ))),
        }
    }

    fn while_failing(&self, kind: JobKind) -> Option<&'static str> {
        match kind {
            JobKind::BuildIndex => Some("the index cannot be read"),
            JobKind::Archive => Some("the rows stay where they are"),
            JobKind::FanOut => Some("inboxes show the messages, which are read from their feeds"),
            _ => None,
        }
    }

    fn after_cancel(&self, work: &Planned, _completed: &JobCost) -> &'static str {
        left_by_cancelled(work.kind)
    }
}

/// Returns the state of a table for queue and schedules.
fn state_of(table: &tideline_engine::Table) -> TableState {
    let spec = table.spec();
    let parts = spec.wide.as_ref().and_then(|wide| wide.parts.as_ref());
    let schedules = parts.into_iter().flat_map(|parts| {
        let archive = parts.archive.as_ref().map(|archive| &archive.schedule);
        let archive = archive.map(|schedule| (JobKind::Archive, schedule));
        let others = [
            (JobKind::Migrate, &parts.migrate),
            (JobKind::RemoveExpired, &parts.expire),
        ];
        others.into_iter().chain(archive)
    });
    TableState {
        id: table.points().id(),
        name: table.name().to_string(),
        created: table.created(),
        policy_changed: table.points().policy_changed(),
        schedules: schedules
            .map(|(kind, schedule)| (kind, schedule.clone()))
            .collect(),
        bytes_per_second: parts.and_then(|parts| parts.move_bytes_per_second),
    }
}

/// Returns the effects of cancelled work of a kind that stay, for users.
fn left_by_cancelled(kind: JobKind) -> &'static str {
    match kind {
        JobKind::BuildIndex => "the index keeps its entries, and its next build continues after them",
        JobKind::Migrate => {
            "the rows stay in their tier; entries of indexes and columns of groups may have moved, and the next move \
             continues with the rest"
        }
        JobKind::Archive => {
            "the part was not archived; it may have moved into the cold tier, and may be closed for writes"
        }
        JobKind::RemoveExpired => "removed rows, cells, parts and large values stay removed",
        JobKind::SurveyRows => "the statistics were not changed; packed key ranges stay packed",
        JobKind::FanOut => {
            "written entries stay; inboxes show the other messages, which are read from their feeds"
        }
        _ => NOTHING_CHANGED,
    }
}

impl Survey for RowsSurvey {
    fn tables(&self) -> &[TableState] {
        &self.tables
    }

    fn segments(&self) -> SegmentCounts {
        SegmentCounts::default()
    }

    fn plan(&self, served: &Served, _settings: &PlanSettings) -> Vec<Planned> {
        let work = |building: &BuildingIndex| {
            let table = self.tables.iter().find(|table| table.id == building.table)?;
            let reason = format!("index {} does not have all rows of the table yet", building.name);
            Some(Planned {
                slot: Some(slot_of(building)),
                amount: Amount::default(),
                at: Some(table.created),
                urgency: Urgency::Reads,
                ..Planned::new(
                    TableModel::Wide,
                    JobKind::BuildIndex,
                    Some(building.table),
                    reason,
                )
            })
        };
        let mut planned: Vec<Planned> = self.building.iter().filter_map(work).collect();
        planned.extend(self.due.iter().map(|part| {
            let kind = match part.tier {
                Tier::Archive => JobKind::Archive,
                Tier::Hot | Tier::Cold => JobKind::Migrate,
            };
            let reason = format!(
                "part {} ended more than {} ago",
                part.name,
                format_duration(part.age)
            );
            Planned {
                slot: Some(Slot {
                    level: 1,
                    index: i64::from(part.number),
                }),
                tier: part.tier,
                at: self.begins(part.table, kind, served, part.since),
                urgency: Urgency::Moves,
                ..Planned::new(TableModel::Wide, kind, Some(part.table), reason)
            }
        }));
        for table in &self.archived {
            let served = served.get(&(*table, JobKind::SweepArchive)).copied();
            let at = self.now.map(|now| match served.filter(|at| *at <= now) {
                Some(served) => served.saturating_add(ORPHANS_EVERY),
                None => now,
            });
            planned.push(Planned {
                at,
                urgency: Urgency::Regular,
                ..Planned::new(
                    TableModel::Wide,
                    JobKind::SweepArchive,
                    Some(*table),
                    "files that belong to no part are removed once a day",
                )
            });
        }
        for (table, ttl) in &self.expiring {
            let every = (ttl / REMOVALS_PER_TTL).clamp(*REMOVAL_EVERY.start(), *REMOVAL_EVERY.end());
            let last = served.get(&(*table, JobKind::RemoveExpired)).copied();
            // Expiry is measured by the clock, so no removal starts while the clock is in doubt.
            let at = self.now.and_then(|now| {
                let ready = match last.filter(|at| *at <= now) {
                    // A schedule replaces the interval.
                    Some(last) if !self.is_scheduled(*table, JobKind::RemoveExpired) => {
                        last.saturating_add(every)
                    }
                    _ => now,
                };
                self.begins(*table, JobKind::RemoveExpired, served, ready)
            });
            planned.push(Planned {
                at,
                urgency: Urgency::Space,
                ..Planned::new(
                    TableModel::Wide,
                    JobKind::RemoveExpired,
                    Some(*table),
                    "expired rows, old parts, and large values without a row are removed regularly",
                )
            });
        }
        for (table, at) in &self.surveys {
            // The interval is measured by the clock, so no survey starts while the clock is in doubt.
            planned.push(Planned {
                at: self.now.and(*at),
                ..Planned::new(
                    TableModel::Wide,
                    JobKind::SurveyRows,
                    Some(*table),
                    "the rows have changed since the last statistics",
                )
            });
        }
        planned.extend(
            self.fan_outs
                .iter()
                .filter_map(|table| self.plan_fan_out(table, served)),
        );
        planned
    }
}

impl RowsSurvey {
    fn table(&self, id: TableId) -> Option<&TableState> {
        self.tables.iter().find(|table| table.id == id)
    }

    /// Returns true if jobs of a kind start at the times of a schedule.
    fn is_scheduled(&self, table: TableId, kind: JobKind) -> bool {
        self.table(table)
            .is_some_and(|table| !table.schedule(kind).is_continuous())
    }

    /// Returns the time from which work that is ready at `ready` may start by its schedule; `None` if the table was
    /// dropped, the clock is in doubt, or the schedule has no further time.
    fn begins(&self, table: TableId, kind: JobKind, served: &Served, ready: i64) -> Option<i64> {
        let state = self.table(table)?;
        let since = [
            served.get(&(table, kind)).copied(),
            Some(state.created),
            Some(state.policy_changed),
        ];
        begins(state.schedule(kind), since, self.now?, ready)
    }

    /// Plans the fan-out of a table; `None` if no message waits and no join was interrupted.
    fn plan_fan_out(&self, table: &TableFanOuts, served: &Served) -> Option<Planned> {
        let reason = match (table.is_complete, table.feeds, table.joins) {
            (true, 0, 0) => return None,
            (true, feeds, 0) => format!("messages of {feeds} feeds are not in all inboxes yet"),
            (true, 0, joins) => format!("{joins} interrupted joins are not complete yet"),
            (true, feeds, joins) => format!(
                "messages of {feeds} feeds are not in all inboxes yet, and {joins} interrupted joins are not complete yet"
            ),
            (false, ..) => {
                "the messages that waited before the start of the server, and interrupted joins, are looked up"
                    .to_owned()
            }
        };
        let served = served.get(&(table.table, JobKind::FanOut)).copied();
        // A served time in the future was recorded before the clock was set back.
        let served = served.filter(|at| self.now.is_none_or(|now| *at <= now));
        let created = self.tables.iter().find(|known| known.id == table.table)?.created;
        let oldest = table.oldest.filter(|_| table.is_complete && table.joins == 0);
        let at = oldest.map_or(created, |oldest| oldest.saturating_add(FAN_OUT_AGE));
        let rested = served.map_or(created, |served| served.saturating_add(FAN_OUT_EVERY));
        Some(Planned {
            amount: Amount {
                timelines: (table.feeds + table.joins) as u64,
                ..Amount::default()
            },
            at: Some(at.max(rested)),
            urgency: Urgency::Reads,
            ..Planned::new(TableModel::Wide, JobKind::FanOut, Some(table.table), reason)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelled_work_that_keeps_completed_steps_is_not_reported_as_undone() {
        for (kind, left) in [
            (JobKind::BuildIndex, "continues after them"),
            (JobKind::Migrate, "may have moved"),
            (JobKind::Archive, "may be closed for writes"),
            (JobKind::RemoveExpired, "stay removed"),
            (JobKind::SurveyRows, "stay packed"),
            (JobKind::FanOut, "entries stay"),
        ] {
            let text = left_by_cancelled(kind);
            assert!(text.contains(left), "{kind}: {text}");
        }
        // This work has no steps between which it can be cancelled.
        assert_eq!(left_by_cancelled(JobKind::SweepArchive), NOTHING_CHANGED);
    }
}
