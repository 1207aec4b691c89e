//! Deleting points and timelines: invisible on return in every tier, durable, and harmless when done twice.
//!
//! What is selected is resolved first; a point written afterwards is visible, also of a timeline that was deleted: it
//! comes back without attributes. A large selection is several deletes, one after another: after an error some may be
//! done, and the same call again does the rest.

use roaring::RoaringBitmap;
use tideline_condition::Condition;
use tideline_model::{Ordinal, TimeRange, TimelineId};
use tideline_series_store::{DELETE_TIMELINES_MAX, Delete};

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::find::Stop;
use crate::suggest::Suggestion;
use crate::tables::Table;

/// Names the timelines that something is done to.
#[derive(Debug, Clone, PartialEq)]
pub enum TimelineSelector {
    /// All that meet a condition at that moment.
    Condition(Condition),
    /// These; an unknown one is an error, one named twice counts once.
    Ids(Vec<TimelineId>),
}

impl TimelineSelector {
    /// Returns the names of its condition that the table does not have.
    pub fn unknown_names(&self, table: &Table) -> Vec<Suggestion> {
        match self {
            Self::Condition(condition) => table.unknown_names(condition, &[], &[]),
            Self::Ids(_) => Vec::new(),
        }
    }
}

/// What was deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Timelines that were selected, whether or not they had points in the range.
    pub timelines: u64,
}

impl Engine {
    /// Deletes the points of timelines in a range of time. The timelines stay, with their attributes.
    ///
    /// `stop` ends the search for the timelines; once they are found, the delete is carried out. Costs one synced entry of the journal for each 65,536 timelines; bytes are freed later.
    pub fn delete_points(
        &self,
        table: &Table,
        selector: &TimelineSelector,
        range: TimeRange,
        stop: Stop<'_>,
    ) -> Result<Deleted> {
        if range.is_empty() {
            return Err(EngineError::Invalid(
                "the range of a delete holds no instant: its start must lie before its end".into(),
            ));
        }
        let ids = self.resolve_ids(table, selector, stop)?;
        for timelines in ids.chunks(DELETE_TIMELINES_MAX) {
            let delete = Delete {
                timelines: timelines.to_vec(),
                range,
                removes_timelines: false,
            };
            self.store.delete(&table.points, delete)?;
        }
        let timelines = ids.len() as u64;
        Ok(Deleted { timelines })
    }

    /// Deletes timelines: all their points in every tier, their attributes and their place in every list.
    pub fn delete_timelines(
        &self,
        table: &Table,
        selector: &TimelineSelector,
        stop: Stop<'_>,
    ) -> Result<Deleted> {
        let ids = self.resolve_ids(table, selector, stop)?;
        for timelines in ids.chunks(DELETE_TIMELINES_MAX) {
            self.remove_timelines(table, timelines.to_vec(), TimeRange::ALL)?;
            self.forget_removed(table)?;
        }
        let timelines = ids.len() as u64;
        Ok(Deleted { timelines })
    }

    /// Removes timelines, which rise, with their points in a range; [`forget_removed`](Self::forget_removed) is due
    /// before that is answered.
    pub(crate) fn remove_timelines(
        &self,
        table: &Table,
        timelines: Vec<TimelineId>,
        range: TimeRange,
    ) -> Result<()> {
        let delete = Delete {
            timelines,
            range,
            removes_timelines: true,
        };
        self.store.delete(&table.points, delete)?;
        Ok(())
    }

    /// Deletes the rows and documents of timelines that were removed.
    pub(crate) fn forget_removed(&self, table: &Table) -> Result<()> {
        self.index.notify();
        Ok(self.catalogs.save_removals(&table.catalog, self.store.stamps())?)
    }

    /// What is selected, as ordinals.
    pub fn selected(
        &self,
        table: &Table,
        selector: &TimelineSelector,
        stop: Stop<'_>,
    ) -> Result<RoaringBitmap> {
        match selector {
            TimelineSelector::Condition(condition) => self.select(table, condition, stop),
            TimelineSelector::Ids(ids) => {
                let reader = table.catalog.reader();
                let known = |id: &TimelineId| {
                    let ordinal = reader.by_id(*id).map(|ordinal| ordinal.0);
                    ordinal.ok_or_else(|| EngineError::NoSuchTimeline(id.to_string()))
                };
                ids.iter().map(known).collect()
            }
        }
    }

    /// The ids of what is selected, rising.
    fn resolve_ids(
        &self,
        table: &Table,
        selector: &TimelineSelector,
        stop: Stop<'_>,
    ) -> Result<Vec<TimelineId>> {
        let selected = self.selected(table, selector, stop)?;
        let reader = table.catalog.reader();
        let ids = selected.iter().map(|ordinal| reader.id(Ordinal(ordinal)));
        let mut ids: Vec<TimelineId> = ids.collect();
        ids.sort_unstable();
        Ok(ids)
    }
}
