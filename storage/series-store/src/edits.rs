//! Edits of the manifest: one at a time, and the state in memory follows what is durable.
//!
//! 1. *Settle*: where the outcome of an earlier edit is open, read the manifest. As long as that fails nothing is edited.
//! 2. *Edit*: alter a copy, submit the same as rows.
//! 3. *Follow*: the copy becomes the manifest of new snapshots.
//!
//! A backend that cannot say whether an edit was made leaves its outcome *open*. Then the manifest is read back at once;
//! where that fails too, the sealer and each later edit try again. Until then a table that the edit makes or drops is *in
//! doubt*: its writes are refused as retryable, since an acknowledged one would vanish with a table that is dropped already.
//! The manifest that is found replaces the state in memory as a whole: tables, segments, settings and the journal's cursor.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hashbrown::HashSet;
use tideline_backend::{BackendError, EditOutcome, ErrorKind, ManifestChange};
use tideline_model::{SegmentId, SequenceNumber, TableId, TableName};

use crate::deletes::{self, TableDeletes};
use crate::error::{Result, StoreError};
use crate::manifest::{ManifestState, Segment};
use crate::retired::Gone;
use crate::schema::TableSchema;
use crate::shared::{SHARD, Shared, State};
use crate::tables::Table;

/// Pause before the manifest is read again.
const SETTLE_AGAIN: Duration = Duration::from_secs(1);

/// An edit whose outcome is open.
#[derive(Debug)]
pub(crate) struct OpenEdit {
    reason: String,
    /// Tables that it makes.
    made: Vec<TableName>,
    /// Segments that it adds: freed if the edit was not made.
    added: Vec<Gone>,
}

impl Shared {
    /// Changes the manifest: `change` alters a copy and says the same as rows. Readers that hold the old one
    /// keep it.
    pub(crate) fn edit(&self, change: impl FnOnce(&mut ManifestState) -> Vec<ManifestChange>) -> Result<()> {
        self.edit_and(|manifest| Ok(change(manifest)), |_| {})?;
        Ok(())
    }

    /// As [`edit`](Self::edit), where `change` may find that it cannot be made; `follow` alters the rest of the
    /// state in the same instant for readers. Returns the version of the manifest after the edit.
    pub(crate) fn edit_and(
        &self,
        change: impl FnOnce(&mut ManifestState) -> Result<Vec<ManifestChange>>,
        follow: impl FnOnce(&mut State),
    ) -> Result<u64> {
        let mut open = self.edit.lock();
        if self.settle_open(&mut open)? {
            return Err(moved_on());
        }
        let current = Arc::clone(&self.state.read().manifest);
        let mut next = ManifestState::clone(&current);
        let changes = change(&mut next)?;
        next.version = self.submit(&mut open, &current, &next, &changes)?;
        let version = next.version;
        let mut state = self.state.write();
        state.manifest = Arc::new(next);
        follow(&mut state);
        self.retired.replaced(&current);
        Ok(version)
    }

    /// Finds out whether an edit of open outcome was made; true where it was, and the state has followed it.
    ///
    /// # Errors
    ///
    /// Retryable, where the manifest cannot be read yet.
    pub(crate) fn settle(&self) -> Result<bool> {
        match self.has_open_edit.load(Ordering::Acquire) {
            true => self.settle_open(&mut self.edit.lock()),
            false => Ok(false),
        }
    }

    /// Finds out whether a table of this name is being made by an edit of open outcome.
    pub(crate) fn settle_name(&self, name: &TableName) -> Result<()> {
        if !self.has_open_edit.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut open = self.edit.lock();
        match self.settle_open(&mut open) {
            Err(error) if open.as_ref().is_some_and(|edit| edit.made.contains(name)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Submits an edit and finds out what became of it; the version after it.
    fn submit(
        &self,
        open: &mut Option<OpenEdit>,
        current: &Arc<ManifestState>,
        next: &ManifestState,
        changes: &[ManifestChange],
    ) -> Result<u64> {
        let error = match self.backend.edit(SHARD, self.epoch, current.version, changes) {
            Ok(EditOutcome::Applied { version }) => return Ok(version),
            Ok(EditOutcome::Refused { epoch, .. }) if epoch == self.epoch => {
                let stored = self.backend.manifest(SHARD)?;
                self.take_over(current, ManifestState::read(&stored)?);
                return Err(moved_on());
            }
            Ok(EditOutcome::Refused { epoch, .. }) => {
                tracing::error!(?epoch, ours = ?self.epoch, "manifest edit refused: the shard has another owner");
                return Err(StoreError::Closed);
            }
            Err(error) => error,
        };
        if !matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Timeout) {
            return Err(error.into());
        }
        let is_known = |id: &TableId| current.tables.contains_key(id);
        let new = next.tables.iter().filter(|(id, _)| !is_known(id));
        *open = Some(OpenEdit {
            reason: error.to_string(),
            made: new.map(|(_, row)| row.name.clone()).collect(),
            added: missing_in(next, current).map(load_of).collect(),
        });
        self.has_open_edit.store(true, Ordering::Release);
        self.doubt_tables(|id| current.tables.contains_key(&id) && !next.tables.contains_key(&id));
        let Ok(stored) = self.backend.manifest(SHARD) else {
            tracing::error!(%error, "it is not known whether the manifest was edited; it is read again until that is known");
            return Err(error.into());
        };
        let is_made = stored.epoch == self.epoch && stored.version == current.version + 1;
        self.close_edit(open, is_made);
        match is_made {
            true => Ok(stored.version),
            false => Err(error.into()),
        }
    }

    /// Reads the manifest where the outcome of an edit is open; whether it was made.
    fn settle_open(&self, open: &mut Option<OpenEdit>) -> Result<bool> {
        let Some(edit) = open.as_ref() else {
            return Ok(false);
        };
        let stored = self
            .backend
            .manifest(SHARD)
            .map_err(|error| StoreError::OpenEdit {
                reason: edit.reason.clone(),
                cause: error.to_string(),
                retry_after: SETTLE_AGAIN,
            })?;
        if stored.epoch != self.epoch {
            tracing::error!(epoch = ?stored.epoch, ours = ?self.epoch, "the shard has another owner");
            return Err(StoreError::Closed);
        }
        let current = Arc::clone(&self.state.read().manifest);
        let is_made = stored.version != current.version;
        if is_made {
            self.take_over(&current, ManifestState::read(&stored)?);
        }
        tracing::warn!(is_made, reason = %edit.reason, "it is known now whether the manifest was edited");
        self.close_edit(open, is_made);
        Ok(is_made)
    }

    /// Ends the doubt. What an edit adds that was not made is freed.
    fn close_edit(&self, open: &mut Option<OpenEdit>, is_made: bool) {
        let edit = open.take();
        self.has_open_edit.store(false, Ordering::Release);
        self.doubt_tables(|_| false);
        if let Some(edit) = edit.filter(|_| !is_made) {
            self.retired.add(0, edit.added);
        }
    }

    fn doubt_tables(&self, is_in_doubt: impl Fn(TableId) -> bool) {
        for table in self.tables.read().by_id.values() {
            table.set_in_doubt(is_in_doubt(table.id()));
        }
    }

    /// Follows a manifest that was edited without the state: what the callers of those edits would have done.
    fn take_over(&self, current: &Arc<ManifestState>, next: ManifestState) {
        let next = Arc::new(next);
        let dropped: Vec<TableId> = current.tables.keys().copied().collect();
        let dropped: Vec<TableId> = dropped
            .into_iter()
            .filter(|id| !next.tables.contains_key(id))
            .collect();
        let deletes: Vec<Vec<SequenceNumber>> = {
            let state = self.state.read();
            let of = |id: &TableId| state.deletes.of(*id).map(TableDeletes::sequences);
            dropped.iter().map(|id| of(id).unwrap_or_default()).collect()
        };
        {
            let mut state = self.state.write();
            dropped.iter().for_each(|id| state.drop_table(*id));
            let sealed_to = next.cursor.sealed_to;
            state.frozen.retain(|head| head.end() > sealed_to);
            state.manifest = Arc::clone(&next);
        }
        self.retired.replaced(current);
        let gone = missing_in(current, &next).map(Gone::of).collect();
        self.retired.add(next.version, gone);
        for row in next.tables.values() {
            let before = current.tables.get(&row.id);
            let known = self.tables.read().by_id.get(&row.id).cloned();
            match (before, known) {
                (None, None) => {
                    let table = Arc::new(Table::new(row, TableSchema::new(row.id)));
                    self.tables.write().insert(table);
                }
                (Some(before), Some(table)) if before != row => {
                    table.set_spec(row);
                    table.set_adopted(row.adopted.clone());
                    table.latest().forget_all();
                }
                _ => {}
            }
        }
        for segment in missing_in(&next, current) {
            self.note_newest(segment.last);
            if let Some(table) = self.tables.read().by_id.get(&segment.table) {
                // More of its timelines may be stored than is remembered.
                table.latest().forget_all();
            }
        }
        for (id, sequences) in dropped.into_iter().zip(deletes) {
            self.forget_table(id, sequences);
        }
    }

    /// Refuses a table that was dropped, or may have been.
    pub(crate) fn check_table(&self, table: &Table) -> Result<()> {
        if !self.tables.read().by_id.contains_key(&table.id()) {
            return Err(StoreError::TableDropped(table.id()));
        }
        match table.is_in_doubt() {
            true => Err(StoreError::TableInDoubt(table.name().clone())),
            false => Ok(()),
        }
    }

    /// Forgets a table that the manifest names no more. Rows of its deletes that cannot be removed now mean nothing.
    pub(crate) fn forget_table(&self, table: TableId, deletes: Vec<SequenceNumber>) {
        self.tables.write().remove(table);
        self.waiting_rows.lock().retain(|_, (of, _)| *of != table);
        let rows = deletes.into_iter();
        let rows: Vec<_> = rows.map(|sequence| deletes::row(table, sequence, None)).collect();
        if let Err(error) = deletes::write_rows(self.backend.as_ref(), &self.stamps, &rows) {
            tracing::warn!(%error, %table, "rows of deletes of a dropped table could not be removed");
        }
    }
}

impl State {
    /// Takes a table out of everything that is read.
    pub(crate) fn drop_table(&mut self, table: TableId) {
        let heads = self.frozen.iter().chain([&self.active]);
        heads.for_each(|head| head.drop_table(table));
        self.deletes.drop_table(table);
    }
}

/// Everything that a backend keeps of the segments of `one` and not of those of `other`.
fn missing_in<'a>(one: &'a ManifestState, other: &ManifestState) -> impl Iterator<Item = &'a Segment> {
    let parts = |manifest: &'a ManifestState| {
        let segments = manifest.segments.values().flat_map(BTreeMap::values);
        segments.flat_map(|segment| segment.parts())
    };
    let named: HashSet<SegmentId> = {
        let segments = other.segments.values().flat_map(BTreeMap::values);
        segments
            .flat_map(|segment| segment.parts())
            .map(|part| part.id)
            .collect()
    };
    parts(one).filter(move |part| !named.contains(&part.id))
}

/// Remains of a load of a segment. Its files stay for the sweep: another try may give them the same names.
fn load_of(segment: &Segment) -> Gone {
    Gone {
        place: segment.reference(),
        files: None,
    }
}

/// The manifest is not the one that the caller has looked at: it does its work again.
fn moved_on() -> StoreError {
    BackendError::Unavailable {
        reason: "an earlier edit of the manifest was made after all".to_owned(),
        retry_after: Duration::ZERO,
    }
    .into()
}
