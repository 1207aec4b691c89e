//! The series model of the log: reports when to freeze the head, seals frozen heads, and follows manifest edits.
//!
//! The log calls [`SeriesModel`] for its flush cycle, and after edits whose outcome was unknown at first.

use std::sync::Arc;

use tideline_backend::{ManifestRow, SegmentRef};
use tideline_log::{Flushed, LogModel, Manifest, ModelError, Pressure};
use tideline_model::{SequenceNumber, TableId};

use crate::deletes::TableDeletes;
use crate::head::Head;
use crate::manifest::ManifestState;
use crate::retired::RetiredSegment;
use crate::schema::TableSchema;
use crate::seal;
use crate::shared::{Shared, missing_in};
use crate::tables::Table;

/// Maximum memory, in head budgets, of the active head and the heads being sealed. Beyond it, writers wait.
const HEADS_MAX: usize = 2;
/// Divisor of the head budget. The active head may always use this share, even if frozen heads exceed their budget, as
/// after the replay of a long journal.
const ACTIVE_SHARE: usize = 2;

/// Model of timeline points.
#[derive(Debug)]
pub(crate) struct SeriesModel(pub(crate) Arc<Shared>);

impl LogModel for SeriesModel {
    fn pressure(&self) -> Pressure {
        let Self(shared) = self;
        let (active, frozen) = {
            let state = shared.state.read();
            (Arc::clone(&state.active), state.frozen.clone())
        };
        let budget = |head: &Head| shared.settings.head.bytes(head.timelines());
        let max = budget(&active);
        let is_old = !active.is_empty() && active.started().elapsed() >= shared.settings.head_age_max;
        if frozen.is_empty() {
            return match active.bytes() >= max || is_old {
                true => Pressure::Full,
                false => Pressure::Low,
            };
        }
        // Timelines of the frozen heads are live as well, although the active head may not have their points yet.
        let largest = frozen.iter().map(|head| budget(head)).fold(max, usize::max);
        let frozen: usize = frozen.iter().map(|head| head.bytes()).sum();
        let room = (largest * HEADS_MAX).saturating_sub(frozen);
        match active.bytes() < room.max(max / ACTIVE_SHARE) {
            true => Pressure::Low,
            false => Pressure::Over,
        }
    }

    fn is_empty(&self) -> bool {
        self.0.state.read().active.is_empty()
    }

    fn freeze(&self, next: SequenceNumber) {
        let mut state = self.0.state.write();
        let frozen = std::mem::replace(&mut state.active, Arc::new(Head::new(next)));
        frozen.end_before(next);
        state.frozen.push(frozen);
    }

    fn flush(&self, end: SequenceNumber) -> Result<Option<Box<dyn Flushed>>, ModelError> {
        let Self(shared) = self;
        let oldest = shared.state.read().frozen.first().cloned();
        let Some(head) = oldest.filter(|head| head.end() <= end) else {
            return Ok(None);
        };
        Ok(Some(Box::new(seal::seal(shared, &head)?)))
    }

    fn flushed(&self, end: SequenceNumber) {
        let mut state = self.0.state.write();
        state.frozen.retain(|head| head.end() > end);
    }

    fn tidy(&self) {
        let Self(shared) = self;
        shared.reclaim_retired();
        let is_read_only = shared.check_not_read_only().is_err();
        if !is_read_only && let Err(error) = shared.forget_done_deletes() {
            tracing::warn!(%error, "failed to remove rows of applied deletes; retrying");
        }
    }

    fn take_over(&self, manifest: &Arc<Manifest>, rows: &[ManifestRow]) -> Result<(), ModelError> {
        let next = ManifestState::of(Manifest::clone(manifest), rows)?;
        self.follow(next);
        Ok(())
    }

    fn doubt(&self, tables: &[TableId]) {
        for table in self.0.tables.read().by_id.values() {
            table.set_in_doubt(tables.contains(&table.id()));
        }
    }

    fn abandon(&self, loads: &[SegmentRef]) {
        // Files of these segments are left to garbage collection, because another attempt may write files with the same
        // names.
        let gone = |location: &SegmentRef| RetiredSegment {
            location: *location,
            files: None,
        };
        self.0.retired.add(0, loads.iter().map(gone).collect());
    }
}

impl SeriesModel {
    /// Applies a manifest that was edited without updating the state. Also does the work that the callers of the edits
    /// could not complete.
    fn follow(&self, next: ManifestState) {
        let Self(shared) = self;
        let (current, next) = (Arc::clone(&shared.state.read().manifest), Arc::new(next));
        let dropped: Vec<TableId> = current.common.tables.keys().copied().collect();
        let dropped: Vec<TableId> = dropped
            .into_iter()
            .filter(|id| !next.common.tables.contains_key(id))
            .collect();
        let deletes: Vec<Vec<SequenceNumber>> = {
            let state = shared.state.read();
            let of = |id: &TableId| state.deletes.of(*id).map(TableDeletes::sequences);
            dropped.iter().map(|id| of(id).unwrap_or_default()).collect()
        };
        {
            let mut state = shared.state.write();
            dropped.iter().for_each(|id| state.drop_table(*id));
            let sealed_to = next.common.cursor.sealed_to;
            state.frozen.retain(|head| head.end() > sealed_to);
            state.manifest = Arc::clone(&next);
        }
        shared.retired.replaced(&current);
        let gone = missing_in(&current, &next).map(RetiredSegment::of).collect();
        shared.retired.add(next.common.version, gone);
        for row in next.common.tables.values() {
            let before = current.common.tables.get(&row.id);
            let known = shared.tables.read().by_id.get(&row.id).cloned();
            match (before, known) {
                (None, None) => {
                    let table = Arc::new(Table::new(row, TableSchema::new(row.id)));
                    shared.tables.write().insert(table);
                }
                (Some(before), Some(table)) if before != row => {
                    table.set_spec(row);
                    table.set_adopted(row.adopted.clone());
                    table.latest().forget_all();
                }
                _ => {}
            }
        }
        for segment in missing_in(&next, &current) {
            shared.log.note_newest(segment.last);
            if let Some(table) = shared.tables.read().by_id.get(&segment.table) {
                // The segment may hold older or newer points of its timelines than the latest values.
                table.latest().forget_all();
            }
        }
        for (id, sequences) in dropped.into_iter().zip(deletes) {
            shared.forget_table(id, sequences);
        }
    }
}
