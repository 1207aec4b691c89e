//! Maintenance of series tables: seals, folds, moves between tiers, archive, purges, expiry, catalog.
//!
//! The store performs every change of segments, and refuses work of an outdated plan. A rewrite that ends early leaves
//! everything unchanged.
//!
//! | module | holds |
//! |---|---|
//! | [`plan`] | planner: derives work from facts, with one file for each kind of jobs; preview of a policy |
//! | `perform` | execution of one unit of work |
//! | `moves` | work that reads and writes segments |
//! | `seals` | seals of the store, as jobs |
//! | `requests` | restore of archived points, preview of a policy |
//! | [`archives`] | progress of archives |
//! | [`work`] | trait of the database, implemented by the engine |

pub mod archives;
mod moves;
mod perform;
pub mod plan;
mod requests;
mod seals;
pub mod work;

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tideline_engine::model::{JobKind, SegmentId, TableModel};

use self::plan::{Facts, History, TableFacts};
pub use self::work::SeriesWork;
use crate::maintenance::{
    Maintenance, NOTHING_CHANGED, Outcome, PlanSettings, Planned, SegmentCounts, Served, Survey, TableState,
    Unplanned, WorkError,
};
use crate::run::Run;
use crate::throttle::JobCost;

/// Maintenance of series tables.
pub(crate) struct Series {
    work: Arc<dyn SeriesWork>,
    /// Time when each segment was first found with deletes, by the trusted clock, in nanoseconds since the epoch.
    deletes_since: Mutex<HashMap<SegmentId, i64>>,
}

/// Survey of the series tables at one moment.
struct SeriesSurvey {
    facts: Facts,
    tables: Vec<TableState>,
    deletes_since: HashMap<SegmentId, i64>,
}

impl Series {
    pub(crate) fn new(work: Arc<dyn SeriesWork>) -> Self {
        Self {
            work,
            deletes_since: Mutex::default(),
        }
    }

    /// Records which segments have deletes now. Returns the time when each of these segments was first found with
    /// deletes.
    fn deletes_since(&self, facts: &Facts) -> HashMap<SegmentId, i64> {
        let segments = facts.tables.iter().flat_map(|table| &table.segments);
        let deleted = segments.filter(|segment| segment.has_deletes);
        let mut known = self.deletes_since.lock();
        let since = |id| known.get(&id).copied().unwrap_or(facts.now());
        let deletes_since: HashMap<SegmentId, i64> =
            deleted.map(|segment| (segment.id, since(segment.id))).collect();
        known.clone_from(&deletes_since);
        deletes_since
    }
}

impl Maintenance for Series {
    fn model(&self) -> TableModel {
        TableModel::Series
    }

    fn survey(&self) -> Arc<dyn Survey> {
        let facts = self.work.facts();
        Arc::new(SeriesSurvey {
            deletes_since: self.deletes_since(&facts),
            tables: facts.tables.iter().map(TableFacts::state).collect(),
            facts,
        })
    }

    fn perform(&self, work: &Planned, run: &mut Run<'_>) -> Result<Outcome, WorkError> {
        self.perform(work, run)
    }

    fn take_unplanned(&self) -> Vec<Unplanned> {
        self.unplanned_seals()
    }

    fn while_failing(&self, kind: JobKind) -> Option<&'static str> {
        matches!(kind, JobKind::Archive | JobKind::Evict).then_some("the cold tier keeps the points")
    }

    fn after_cancel(&self, work: &Planned, completed: &JobCost) -> &'static str {
        match work.kind {
            JobKind::Restore => "restored points stay",
            // The segments were merged before the copy into files, which did not complete.
            JobKind::Archive if *completed != JobCost::default() => {
                "no points were archived; their merged segment stays in the cold tier"
            }
            _ => NOTHING_CHANGED,
        }
    }
}

impl Survey for SeriesSurvey {
    fn tables(&self) -> &[TableState] {
        &self.tables
    }

    fn segments(&self) -> SegmentCounts {
        let tables = self.facts.tables.iter();
        SegmentCounts {
            published: tables.map(|table| table.segments.len() as u64).sum(),
            retired: self.facts.retired_segments as u64,
        }
    }

    fn plan(&self, served: &Served, settings: &PlanSettings) -> Vec<Planned> {
        let history = History {
            served: served.clone(),
            deletes_since: self.deletes_since.clone(),
        };
        plan::plan(&self.facts, &history, settings)
    }
}
