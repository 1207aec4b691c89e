//! Edits of the manifest: one at a time, and the state in memory follows what is durable.
//!
//! 1. *Settle*: where the outcome of an earlier edit is open, read the manifest. As long as that fails nothing is edited.
//! 2. *Edit*: alter a copy, submit the same as rows.
//! 3. *Follow*: the copy becomes the manifest, and the model that edits publishes the rest of it to its readers.
//!
//! A backend that cannot say whether an edit was made leaves its outcome *open*. Then the manifest is read back at once;
//! where that fails too, the flusher and each later edit try again. Until then a table that the edit makes or drops is *in
//! doubt*: its writes are refused as retryable, since an acknowledged one would vanish with a table that is dropped already.
//! The manifest that is found replaces the state in memory as a whole: tables, segments, settings and the journal's cursor.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tideline_backend::{
    BackendError, EditOutcome, Epoch, ErrorKind, Manifest as StoredManifest, ManifestChange, SegmentRef,
};
use tideline_model::{SequenceNumber, TableId, TableName};

use crate::error::{LogError, Result};
use crate::log::{Log, SHARD};
use crate::manifest::Manifest;

/// Pause before the manifest is read again.
const SETTLE_AGAIN: Duration = Duration::from_secs(1);

/// An edit whose outcome is open.
#[derive(Debug)]
pub(crate) struct OpenEdit {
    reason: String,
    /// Tables that it makes.
    made: Vec<TableName>,
    /// Segments that it adds: freed if the edit was not made.
    adds: Vec<SegmentRef>,
}

/// A change of the manifest.
#[derive(Debug)]
pub struct Edit {
    /// The shared rows after it.
    pub manifest: Manifest,
    /// All of it as rows.
    pub changes: Vec<ManifestChange>,
    /// Segments that it adds.
    pub adds: Vec<SegmentRef>,
}

impl Log {
    /// Changes the manifest: `change` gets the current one and says what is to be done; once that is durable, `follow` makes
    /// readers see it. Edits are made one after another. Returns the version of the manifest after the edit.
    ///
    /// # Errors
    ///
    /// Those of `change`; retryable where an earlier edit has changed the manifest or may have; those of the backend. After
    /// an unknown outcome the models are told what became of it.
    pub fn edit<E: From<LogError>>(
        &self,
        change: impl FnOnce(&Arc<Manifest>) -> std::result::Result<Edit, E>,
        follow: impl FnOnce(&Arc<Manifest>),
    ) -> std::result::Result<u64, E> {
        let mut open = self.edit.lock();
        if self.settle_open(&mut open)? {
            return Err(moved_on().into());
        }
        let current = self.manifest();
        let mut edit = change(&current)?;
        let version = self.submit(&mut open, &current, &edit)?;
        edit.manifest.version = version;
        let next = Arc::new(edit.manifest);
        *self.manifest.write() = Arc::clone(&next);
        follow(&next);
        Ok(version)
    }

    /// Changes shared rows only: `change` alters a copy and says the same as rows.
    ///
    /// # Errors
    ///
    /// As [`edit`](Self::edit).
    pub fn edit_shared(&self, change: impl FnOnce(&mut Manifest) -> Vec<ManifestChange>) -> Result<()> {
        let alter = |current: &Arc<Manifest>| {
            let mut manifest = Manifest::clone(current);
            let changes = change(&mut manifest);
            Ok::<_, LogError>(Edit {
                manifest,
                changes,
                adds: Vec::new(),
            })
        };
        self.edit(alter, |_| {})?;
        Ok(())
    }

    /// Finds out whether an edit of open outcome was made; true where it was, and the models have followed it.
    ///
    /// # Errors
    ///
    /// Retryable, where the manifest cannot be read yet.
    pub fn settle(&self) -> Result<bool> {
        match self.has_open_edit.load(Ordering::Acquire) {
            true => self.settle_open(&mut self.edit.lock()),
            false => Ok(false),
        }
    }

    /// Finds out whether a table of this name is being made by an edit of open outcome.
    ///
    /// # Errors
    ///
    /// It cannot be found out yet.
    pub fn settle_name(&self, name: &TableName) -> Result<()> {
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
    fn submit(&self, open: &mut Option<OpenEdit>, current: &Arc<Manifest>, edit: &Edit) -> Result<u64> {
        self.check_lease()?;
        let edited = self
            .backend
            .edit(SHARD, self.epoch(), current.version, &edit.changes);
        let error = match edited {
            Ok(EditOutcome::Applied { version }) => return Ok(version),
            Ok(EditOutcome::Refused { epoch, .. }) if epoch == self.epoch() => {
                self.take_over(&self.backend.manifest(SHARD)?)?;
                return Err(moved_on());
            }
            Ok(EditOutcome::Refused { epoch, .. }) => return Err(self.other_owner(epoch)),
            Err(error) => error,
        };
        if !matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Timeout) {
            return Err(error.into());
        }
        let next = &edit.manifest;
        let made = next
            .tables
            .iter()
            .filter(|(id, _)| !current.tables.contains_key(id));
        *open = Some(OpenEdit {
            reason: error.to_string(),
            made: made.map(|(_, row)| row.name.clone()).collect(),
            adds: edit.adds.clone(),
        });
        self.has_open_edit.store(true, Ordering::Release);
        let dropped = current.tables.keys().filter(|id| !next.tables.contains_key(id));
        self.doubt(&dropped.copied().collect::<Vec<_>>());
        let Ok(stored) = self.backend.manifest(SHARD) else {
            tracing::error!(%error, "it is not known whether the manifest was edited; it is read again until that is known");
            return Err(error.into());
        };
        let is_made = stored.epoch == self.epoch() && stored.version == current.version + 1;
        self.close_edit(open, is_made);
        match is_made {
            true => Ok(stored.version),
            false => Err(error.into()),
        }
    }

    /// The error of finding the shard in another epoch than ours.
    fn other_owner(&self, epoch: Epoch) -> LogError {
        let reason = format!("its epoch is {}, ours was {}", epoch.0, self.epoch().0);
        self.ownership.lose(&reason);
        LogError::LeaseLost { reason }
    }

    /// Reads the manifest where the outcome of an edit is open; whether it was made.
    fn settle_open(&self, open: &mut Option<OpenEdit>) -> Result<bool> {
        let Some(edit) = open.as_ref() else {
            return Ok(false);
        };
        let stored = self.backend.manifest(SHARD).map_err(|error| LogError::OpenEdit {
            reason: edit.reason.clone(),
            cause: error.to_string(),
            retry_after: SETTLE_AGAIN,
        })?;
        if stored.epoch != self.epoch() {
            return Err(self.other_owner(stored.epoch));
        }
        let is_made = stored.version != self.manifest().version;
        if is_made {
            self.take_over(&stored)?;
        }
        tracing::warn!(is_made, reason = %edit.reason, "it is known now whether the manifest was edited");
        self.close_edit(open, is_made);
        Ok(is_made)
    }

    /// Ends the doubt. What an edit adds that was not made is freed.
    fn close_edit(&self, open: &mut Option<OpenEdit>, is_made: bool) {
        let edit = open.take();
        self.has_open_edit.store(false, Ordering::Release);
        self.doubt(&[]);
        if let Some(edit) = edit.filter(|_| !is_made) {
            for model in self.models() {
                model.abandon(&edit.adds);
            }
        }
    }

    fn doubt(&self, tables: &[TableId]) {
        for model in self.models() {
            model.doubt(tables);
        }
    }

    /// Follows a manifest that was edited without the state: what the callers of those edits would have done.
    fn take_over(&self, stored: &StoredManifest) -> Result<()> {
        let manifest = Arc::new(Manifest::read(stored)?);
        *self.manifest.write() = Arc::clone(&manifest);
        let sealed_to: SequenceNumber = manifest.cursor.sealed_to;
        self.frozen.lock().retain(|end| *end > sealed_to);
        for model in self.models() {
            let followed = model.take_over(&manifest, &stored.rows);
            followed.map_err(LogError::Model)?;
        }
        Ok(())
    }
}

/// The manifest is not the one that the caller has looked at: it does its work again.
fn moved_on() -> LogError {
    BackendError::Unavailable {
        reason: "an earlier edit of the manifest was made after all".to_owned(),
        retry_after: Duration::ZERO,
    }
    .into()
}
