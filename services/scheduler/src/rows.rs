//! Maintenance of wide tables: builds of secondary indexes.
//!
//! Other work needs no plan: the log flushes the rows, and the storage engine compacts the partitions that store them.

use std::ops::ControlFlow;
use std::sync::Arc;

use tideline_engine::Engine;
use tideline_engine::indexes::{BuildEnd, BuildProgress, BuildingIndex};
use tideline_engine::model::{JobKind, TableModel};

use crate::maintenance::{
    Amount, Maintenance, Outcome, PlanSettings, Planned, SegmentCounts, Served, Slot, Survey, TableState,
    Urgency, WorkError,
};
use crate::run::Run;
use crate::throttle::JobCost;

/// Maintenance of wide tables.
pub struct Rows {
    engine: Arc<Engine>,
}

/// Survey of the wide tables at one moment.
struct RowsSurvey {
    tables: Vec<TableState>,
    building: Vec<BuildingIndex>,
}

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

impl Maintenance for Rows {
    fn model(&self) -> TableModel {
        TableModel::Wide
    }

    fn survey(&self) -> Arc<dyn Survey> {
        let mut tables = self.engine.tables();
        tables.retain(|table| table.spec().model == TableModel::Wide);
        let state = |table: &tideline_engine::Table| TableState {
            id: table.points().id(),
            name: table.name().to_string(),
            created: table.created(),
            policy_changed: table.created(),
            schedules: Vec::new(),
            bytes_per_second: None,
        };
        Arc::new(RowsSurvey {
            tables: tables.iter().map(state).collect(),
            building: self.engine.building_indexes(),
        })
    }

    fn perform(&self, work: &Planned, run: &mut Run<'_>) -> Result<Outcome, WorkError> {
        match work.kind {
            JobKind::BuildIndex => self.build(work, run),
            kind => Err(WorkError::Overtaken(format!(
                "wide tables have no jobs of the kind {}",
                kind.name()
            ))),
        }
    }

    fn while_failing(&self, kind: JobKind) -> Option<&'static str> {
        (kind == JobKind::BuildIndex).then_some("the index cannot be read")
    }
}

impl Survey for RowsSurvey {
    fn tables(&self) -> &[TableState] {
        &self.tables
    }

    fn segments(&self) -> SegmentCounts {
        SegmentCounts::default()
    }

    fn plan(&self, _served: &Served, _settings: &PlanSettings) -> Vec<Planned> {
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
        self.building.iter().filter_map(work).collect()
    }
}
