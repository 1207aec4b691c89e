//! Deletion of points and timelines. On return, a delete is durable and hides its points in every tier.
//!
//! The selection is resolved first, so timelines created later are not affected. A point written after the delete is
//! visible; if its timeline was deleted, the timeline reappears without attributes. A large selection takes several
//! deletes in sequence. After an error, some of these deletes may be done. A repeated call completes the remaining
//! ones, unless it selects removed timelines by id.

use roaring::RoaringBitmap;
use tideline_condition::Condition;
use tideline_model::{Ordinal, TimeRange, TimelineId};
use tideline_series_store::{DELETE_TIMELINES_MAX, Delete};

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::find::Stop;
use crate::suggest::Suggestion;
use crate::tables::Table;

/// Bytes of the identities of removed timelines after which another journal entry begins.
const IDENTITIES_BYTES_MAX: usize = 4 << 20;

/// Selection of timelines.
#[derive(Debug, Clone, PartialEq)]
pub enum TimelineSelector {
    /// Timelines that match the condition at the time of the call.
    Condition(Condition),
    /// Timelines by id. An unknown id is an error; a repeated one counts once.
    Ids(Vec<TimelineId>),
}

impl TimelineSelector {
    /// Returns the names in the condition that the table does not have; empty for ids.
    pub fn unknown_names(&self, table: &Table) -> Vec<Suggestion> {
        match self {
            Self::Condition(condition) => table.unknown_names(condition, &[], &[]),
            Self::Ids(_) => Vec::new(),
        }
    }
}

/// Result of a delete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Selected timelines, with or without points in the range.
    pub timelines: u64,
}

impl Engine {
    /// Deletes the points of timelines in a time range. The timelines stay, with their attributes.
    ///
    /// `stop` can end only the search for the timelines; the delete that follows is carried out. Costs one synced
    /// journal entry per 65,536 timelines. The bytes are freed later.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::Invalid`] if the range is empty, an error of [`selected`](Self::selected), or the error
    /// of the commit.
    pub fn delete_points(
        &self,
        table: &Table,
        selector: &TimelineSelector,
        range: TimeRange,
        stop: Stop<'_>,
    ) -> Result<Deleted> {
        if range.is_empty() {
            return Err(EngineError::Invalid(
                "the range of a delete is empty: its start must be before its end".into(),
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

    /// Deletes timelines with their attributes and all their points in every tier.
    ///
    /// # Errors
    ///
    /// Returns an error of [`selected`](Self::selected) or the error of the commit.
    pub fn delete_timelines(
        &self,
        table: &Table,
        selector: &TimelineSelector,
        stop: Stop<'_>,
    ) -> Result<Deleted> {
        let ids = self.resolve_ids(table, selector, stop)?;
        for timelines in ids.chunks(DELETE_TIMELINES_MAX) {
            self.remove_timelines(table, timelines, TimeRange::ALL)?;
            self.forget_removed(table)?;
        }
        let timelines = ids.len() as u64;
        Ok(Deleted { timelines })
    }

    /// Removes timelines, given in ascending order, with their points in a range. Their identities are recorded while
    /// changes are kept; this takes more than one entry if they are longer than 4 MiB. The caller must call
    /// [`forget_removed`](Self::forget_removed) before it reports success.
    ///
    /// A removal that commits while the first change stream is created has no identities, but may be a change of the
    /// stream. Restricted readers then get it only until a restart, while the catalog still knows the timelines.
    pub(crate) fn remove_timelines(
        &self,
        table: &Table,
        timelines: &[TimelineId],
        range: TimeRange,
    ) -> Result<()> {
        let remove = |timelines: &[TimelineId], identities: Vec<Vec<u8>>| {
            let delete = Delete {
                timelines: timelines.to_vec(),
                range,
                removes_timelines: true,
            };
            self.store.remove(&table.points, delete, identities)
        };
        if self.kept_changes()?.from.is_none() {
            remove(timelines, Vec::new())?;
            return Ok(());
        }
        // Readers of the changes need the identities to test conditions, also after the catalog has forgotten them.
        let mut rest = timelines;
        while !rest.is_empty() {
            let identities = identities_of(table, rest);
            let (removed, later) = rest.split_at(identities.len());
            remove(removed, identities)?;
            rest = later;
        }
        Ok(())
    }

    /// Deletes catalog rows of removed timelines, and notifies the index, which deletes their documents.
    pub(crate) fn forget_removed(&self, table: &Table) -> Result<()> {
        self.index.notify();
        Ok(self.catalogs.save_removals(&table.catalog, self.store.stamps())?)
    }

    /// Returns the ordinals of the selected timelines.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::NoSuchTimeline`] for an unknown id. Returns a search error if the condition is invalid,
    /// exceeds a limit or `stop` returned true.
    pub fn selected(
        &self,
        table: &Table,
        selector: &TimelineSelector,
        stop: Stop<'_>,
    ) -> Result<RoaringBitmap> {
        match selector {
            TimelineSelector::Condition(condition) => self.select(table, condition, stop),
            TimelineSelector::Ids(ids) => {
                let reader = table.reader();
                let known = |id: &TimelineId| {
                    let ordinal = reader.by_id(*id).map(|ordinal| ordinal.0);
                    ordinal.ok_or_else(|| EngineError::NoSuchTimeline(id.to_string()))
                };
                ids.iter().map(known).collect()
            }
        }
    }

    /// Returns the ids of the selected timelines in ascending order.
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

/// Returns the encoded identities of the first of these timelines, up to about [`IDENTITIES_BYTES_MAX`] in total, and
/// at least one. A timeline that the catalog does not have gets an empty text, which is no identity.
fn identities_of(table: &Table, timelines: &[TimelineId]) -> Vec<Vec<u8>> {
    let reader = table.catalog.reader();
    let mut bytes = 0;
    let mut identities = Vec::new();
    for id in timelines {
        let mut identity = Vec::new();
        if let Some(ordinal) = reader.known_by_id(*id) {
            reader.encode_identity(ordinal, &mut identity);
        }
        bytes += identity.len();
        identities.push(identity);
        if bytes >= IDENTITIES_BYTES_MAX {
            break;
        }
    }
    identities
}
