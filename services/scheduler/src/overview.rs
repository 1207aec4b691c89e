//! Combined survey of all table models, taken at about the same time: a common list of tables and a common plan.

use std::sync::Arc;

use tideline_engine::model::TableId;
use tideline_engine::time::TrustedNow;

use crate::database::Database;
use crate::maintenance::{PlanSettings, Planned, SegmentCounts, Served, Survey, TableState, sort};
use crate::models::Models;
use crate::scheduler::SchedulerError;

/// Surveys of the tables of all models.
pub(crate) struct Overview {
    /// Trusted time, read after the surveys, so that work that is due in a survey is also due at this time.
    pub(crate) clock: TrustedNow,
    surveys: Vec<Arc<dyn Survey>>,
}

impl Overview {
    /// Surveys every model.
    pub(crate) fn take(database: &dyn Database, models: &Models) -> Self {
        let surveys = models.all().iter().map(|model| model.survey()).collect();
        Self {
            surveys,
            clock: database.trusted_now(),
        }
    }

    /// Returns the trusted time, nanoseconds since the epoch.
    pub(crate) fn now(&self) -> i64 {
        self.clock.now.nanos()
    }

    /// Returns all tables.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &TableState> {
        self.surveys.iter().flat_map(|survey| survey.tables())
    }

    /// Returns a table by number; `None` if it does not exist.
    pub(crate) fn table(&self, id: TableId) -> Option<&TableState> {
        self.tables().find(|table| table.id == id)
    }

    /// Returns a table by name; [`SchedulerError::NoSuchTable`] if it does not exist.
    pub(crate) fn named(&self, name: &str) -> Result<&TableState, SchedulerError> {
        let found = self.tables().find(|table| table.name == name);
        found.ok_or_else(|| SchedulerError::NoSuchTable(name.to_owned()))
    }

    /// Plans the work of all models. Sorts due work before other work, then by urgency, then by the age of the data.
    pub(crate) fn plan(&self, served: &Served, settings: &PlanSettings) -> Vec<Planned> {
        let plans = self.surveys.iter().map(|survey| survey.plan(served, settings));
        let mut planned: Vec<Planned> = plans.flatten().collect();
        sort(&mut planned, self.now());
        planned
    }

    /// Counts the segments of all tables.
    pub(crate) fn segments(&self) -> SegmentCounts {
        let counts = self.surveys.iter().map(|survey| survey.segments());
        counts.fold(SegmentCounts::default(), |sum, counts| SegmentCounts {
            published: sum.published + counts.published,
            retired: sum.retired + counts.retired,
        })
    }
}
