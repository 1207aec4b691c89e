//! Edits of the manifest, one at a time. The state in memory changes after the durable state.
//!
//! 1. *Settle*: if the outcome of an earlier edit is unknown, read the manifest. While the read fails, no edit is made.
//! 2. *Edit*: change a copy of the manifest in memory, and submit the same change as rows.
//! 3. *Follow*: the copy becomes the current manifest, and the editing model makes its own part of the change visible
//!    to its readers.
//!
//! If the backend cannot report whether an edit was applied, the edit is *open*. The manifest is then read back at
//! once. If this read fails, the flusher and each later edit retry it. Until a read succeeds, a table that the edit
//! drops is *in doubt*: writes to it are refused as retryable, because an acknowledged write would be lost if the drop
//! was applied. For a table that the edit creates, [`Log::settle_name`] returns an error. If a retried read shows that
//! the edit was applied, the stored manifest replaces the whole state in memory: tables, segments, settings and the
//! cursor of the journal.

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

/// Retry delay that is reported to callers while the outcome of an edit is unknown.
const SETTLE_AGAIN: Duration = Duration::from_secs(1);

/// Edit with an unknown outcome.
#[derive(Debug)]
pub(crate) struct OpenEdit {
    reason: String,
    /// Tables that the edit creates.
    made: Vec<TableName>,
    /// Segments that the edit adds. They are freed if the edit was not applied.
    adds: Vec<SegmentRef>,
}

/// Change of the manifest.
#[derive(Debug)]
pub struct Edit {
    /// Shared rows after the change.
    pub manifest: Manifest,
    /// The complete change, as rows.
    pub changes: Vec<ManifestChange>,
    /// Segments that the change adds.
    pub adds: Vec<SegmentRef>,
}

impl Log {
    /// Changes the manifest. `change` receives the current manifest and returns the edit. Once the edit is durable,
    /// `follow` makes it visible to readers. Edits are serialized. Returns the version of the manifest after the edit.
    ///
    /// # Errors
    ///
    /// The errors of `change`, of the backend and of the lease. A retryable error if an earlier edit with an unknown
    /// outcome has changed the manifest or is still unresolved. If the outcome of this edit is unknown, the models are
    /// notified once it is resolved.
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

    /// Changes shared rows only. `change` alters a copy of the manifest and returns the same change as rows.
    ///
    /// # Errors
    ///
    /// The errors of [`edit`](Self::edit).
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

    /// Resolves an edit with an unknown outcome. Returns true if it was applied; the models then have the state after
    /// the edit. Returns false if it was not applied, or if no edit is open.
    ///
    /// # Errors
    ///
    /// [`LogError::OpenEdit`], which is retryable, if the manifest cannot be read yet; [`LogError::LeaseLost`] if the
    /// shard has a newer owner; [`LogError::StoredRow`] if a row of the manifest is damaged; the errors of the models.
    pub fn settle(&self) -> Result<bool> {
        match self.has_open_edit.load(Ordering::Acquire) {
            true => self.settle_open(&mut self.edit.lock()),
            false => Ok(false),
        }
    }

    /// Resolves an edit with an unknown outcome, so that a table of this name is found if the edit has created it.
    ///
    /// # Errors
    ///
    /// The errors of [`settle`](Self::settle), if the open edit creates a table of this name.
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

    /// Submits an edit, and tries once to resolve an unknown outcome. Returns the version of the manifest after the
    /// edit.
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
            tracing::error!(%error, "a manifest edit has an unknown outcome; the manifest is read again");
            return Err(error.into());
        };
        if stored.epoch != self.epoch() {
            // The edit may have been applied before the newer owner took the shard. The newer owner then uses the added
            // segments; otherwise it frees them. So they are not abandoned here.
            return Err(self.other_owner(stored.epoch));
        }
        let is_made = stored.version == current.version + 1;
        self.close_edit(open, is_made);
        match is_made {
            true => Ok(stored.version),
            false => Err(error.into()),
        }
    }

    /// Marks the lease as lost because the shard has another epoch, and returns the error.
    fn other_owner(&self, epoch: Epoch) -> LogError {
        let reason = format!("the shard has epoch {}, not {}", epoch.0, self.epoch().0);
        self.ownership.lose(&reason);
        LogError::LeaseLost { reason }
    }

    /// Reads the manifest if an edit is open. Returns true if that edit was applied.
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
        tracing::warn!(is_made, reason = %edit.reason, "the outcome of an open manifest edit is known");
        self.close_edit(open, is_made);
        Ok(is_made)
    }

    /// Removes the open edit; its tables are then no longer in doubt. Frees the segments of the edit if it was not
    /// applied.
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

    /// Replaces the manifest in memory with a newer stored manifest, and updates the models. If a model fails, the
    /// earlier manifest stays in memory, so that the next call updates all models again.
    fn take_over(&self, stored: &StoredManifest) -> Result<()> {
        let manifest = Arc::new(Manifest::read(stored)?);
        // Before the models: a write that was decided with the earlier manifest is refused once its model has changed.
        let earlier = std::mem::replace(&mut *self.manifest.write(), Arc::clone(&manifest));
        let mut models = self.models().into_iter();
        let followed = models.try_for_each(|model| model.take_over(&manifest, &stored.rows));
        if let Err(error) = followed {
            *self.manifest.write() = earlier;
            return Err(LogError::Model(error));
        }
        let sealed_to: SequenceNumber = manifest.cursor.sealed_to;
        self.frozen.lock().retain(|end| *end > sealed_to);
        Ok(())
    }
}

/// Returns the error for a caller whose manifest is outdated. The caller must repeat its work with the current
/// manifest.
fn moved_on() -> LogError {
    BackendError::Unavailable {
        reason: "an earlier edit with an unknown outcome has changed the manifest; try again".to_owned(),
        retry_after: Duration::ZERO,
    }
    .into()
}
