//! Maintenance of wide tables. They have no planned work: the log flushes their rows, and the storage engine compacts the
//! part in which they are stored.

use std::sync::Arc;

use tideline_engine::Engine;
use tideline_engine::model::TableModel;

use crate::maintenance::{
    Maintenance, Outcome, PlanSettings, Planned, SegmentCounts, Served, Survey, TableState, WorkError,
};
use crate::run::Run;

/// Maintenance of wide tables.
pub struct Rows {
    engine: Arc<Engine>,
}

/// Survey of the wide tables at one moment.
struct RowsSurvey(Vec<TableState>);

impl Rows {
    /// Creates the maintenance of the wide tables of a database.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
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
        Arc::new(RowsSurvey(tables.iter().map(state).collect()))
    }

    fn perform(&self, work: &Planned, _run: &mut Run<'_>) -> Result<Outcome, WorkError> {
        Err(WorkError::Overtaken(format!(
            "wide tables have no jobs of the kind {}",
            work.kind.name()
        )))
    }
}

impl Survey for RowsSurvey {
    fn tables(&self) -> &[TableState] {
        &self.0
    }

    fn segments(&self) -> SegmentCounts {
        SegmentCounts::default()
    }

    fn plan(&self, _served: &Served, _settings: &PlanSettings) -> Vec<Planned> {
        Vec::new()
    }
}
