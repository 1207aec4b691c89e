//! Copy of all data of a shard from one backend into another.
//!
//! The copy owns the shard in both backends, so no server changes the data during the copy. It runs in these steps:
//!
//! 1. Put a row into the manifest of the target that marks the copy as unfinished. [`Opening`](crate::Opening) refuses
//!    a manifest with this row. The target must be empty, or hold the unfinished copy of the same source.
//! 2. Copy all rows of key spaces, parts and segments that the manifest of the source publishes. Rows are copied in
//!    pieces, and each piece is read back and compared. The row of step 1 records the number of copied partitions and
//!    the key at which the next partition continues, so an interrupted copy continues there.
//! 3. Copy the journal from the oldest entry that a start or a change stream needs, and compare it.
//! 4. Put the rows of the manifest, and with the last edit remove the row of step 1.
//!
//! The row also records the version of the source's manifest. A copy continues only if the version is the same: each
//! run of a server edits the manifest before its first write.

mod journal;
mod rows;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::after;
use serde::{Deserialize, Serialize};
use tideline_backend::{
    Backend, BackendError, EditOutcome, Health, Manifest as StoredManifest, ManifestChange, ManifestKind,
    ManifestRow, WRITE_BYTES_MAX, WRITE_ROWS_MAX,
};
use tideline_key_codec::space_partitions;
use tideline_model::{Clock, KeyRange};
use tideline_runtime::Supervisor;
use xxhash_rust::xxh3::Xxh3Default;

use crate::error::LogError;
use crate::lease::{Ownership, Renewer};
use crate::log::SHARD;
use crate::manifest::{FORMAT_COPY, Manifest, put_row};
use crate::opening::EPOCH_ID_BITS;

/// Name of the row of the manifest that marks an unfinished copy.
const UNFINISHED_COPY: &[u8] = b"copy";
/// Pause between two attempts to take the shard.
const TAKE_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Amounts of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyProgress {
    /// Number of partitions (buckets of segments, parts and key spaces) that were copied.
    pub partitions: u64,
    /// Number of partitions of the source.
    pub partitions_total: u64,
    /// Number of rows that were copied and compared.
    pub rows: u64,
    /// Bytes of keys and values of these rows.
    pub bytes: u64,
    /// Number of journal entries that were copied and compared.
    pub entries: u64,
}

/// Failure of a copy.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The source failed.
    #[error("the source: {0}")]
    Source(LogError),
    /// The target failed.
    #[error("the target: {0}")]
    Target(LogError),
    /// The source has less data than was acknowledged, or is not able to serve.
    #[error("the source is not sound: {0}")]
    Unsound(String),
    /// The target has data that is not an unfinished copy.
    #[error("the target already has {0}; name an empty one, because a copy replaces nothing")]
    TargetHasData(&'static str),
    /// The source has changed since the copy in the target began.
    #[error(
        "a server has used the source since the unfinished copy in the target began; empty the target and copy again"
    )]
    SourceChanged,
    /// The target returned other data than was written to it.
    #[error("{0} of the target differ from those of the source; empty the target and copy again")]
    Differs(String),
    /// The caller has interrupted the copy. The copied pieces are kept.
    #[error("the copy was interrupted; run it again to continue")]
    Interrupted,
}

type Result<T> = std::result::Result<T, CopyError>;

/// Row of the manifest that marks an unfinished copy.
#[derive(Debug, Serialize, Deserialize)]
struct CopyRow {
    format: u8,
    /// Version of the source's manifest.
    source_version: u64,
    progress: CopyProgress,
    /// Key at which the next partition continues; empty for the whole partition.
    from: Vec<u8>,
}

/// Settings of a copy.
#[derive(Clone)]
pub struct CopySettings {
    /// Longest time to wait until the lease of an owner that no longer renews it has expired.
    pub patience: Duration,
    /// Bytes after which a piece ends and the progress is stored. Each bucket of a segment is one piece, whatever its
    /// size.
    pub piece_bytes: usize,
    /// Clock of the leases.
    pub clock: Arc<dyn Clock>,
    /// Supervisor of the threads that renew the leases.
    pub supervisor: Supervisor,
    /// Called once for each side, before the copy waits because it cannot take the data yet, such as for the end of another
    /// owner's lease.
    pub on_wait: OnWait,
}

/// Receives the reason of a wait, and its longest time.
pub type OnWait = Arc<dyn Fn(&BackendError, Duration) + Send + Sync>;

/// One side of a copy: a backend whose shard the copy owns.
struct Side {
    backend: Arc<dyn Backend>,
    ownership: Arc<Ownership>,
    /// Renews the lease; `None` if the lease has no end.
    _renewer: Option<Renewer>,
}

/// Running copy.
struct Copy<'a> {
    source: Side,
    target: Side,
    manifest: StoredManifest,
    /// Version of the target's manifest.
    version: u64,
    row: CopyRow,
    piece_bytes: usize,
    /// Bytes that were copied since the progress was stored.
    unrecorded_bytes: u64,
    observe: &'a mut dyn FnMut(&CopyProgress) -> ControlFlow<()>,
}

/// Copies all data of the shard. `observe` is called after each piece, and interrupts the copy if it returns
/// [`ControlFlow::Break`]. After an interruption, and after any error except [`CopyError::TargetHasData`],
/// [`CopyError::Differs`] and [`CopyError::SourceChanged`], another call with the same backends continues the copy.
///
/// Afterwards the source is unchanged. A server that uses the source again creates a second database with the same
/// origin.
///
/// # Errors
///
/// A [`CopyError`]; the target is not usable then.
pub fn copy(
    source: Arc<dyn Backend>,
    target: Arc<dyn Backend>,
    settings: &CopySettings,
    observe: &mut dyn FnMut(&CopyProgress) -> ControlFlow<()>,
) -> Result<CopyProgress> {
    match source.health() {
        Health::Ready | Health::DiskLow { .. } => {}
        // A source whose writes are refused cannot be taken.
        Health::ReadOnly { reason }
        | Health::WritesRefused { reason }
        | Health::Poisoned { reason, .. }
        | Health::Unreachable { reason, .. } => {
            return Err(CopyError::Unsound(reason));
        }
    }
    let source = Side::take(source, settings, 0).map_err(CopyError::Source)?;
    let manifest = source
        .backend
        .manifest(SHARD)
        .map_err(|error| CopyError::Source(error.into()))?;
    let shared = Manifest::read(&manifest).map_err(CopyError::Source)?;
    // Ids that the source has assigned must be below those of all later owners of the target. The bits of an id above
    // [`EPOCH_ID_BITS`] hold the epoch of the owner, because the shard is 0.
    let epoch_min = shared.cursor.next_segment >> EPOCH_ID_BITS;
    let target = Side::take(target, settings, epoch_min).map_err(CopyError::Target)?;
    let mut copy = Copy {
        row: CopyRow {
            format: FORMAT_COPY,
            source_version: manifest.version,
            progress: CopyProgress::default(),
            from: Vec::new(),
        },
        source,
        target,
        manifest,
        version: 0,
        piece_bytes: settings.piece_bytes,
        unrecorded_bytes: 0,
        observe,
    };
    copy.begin()?;
    copy.copy_rows()?;
    copy.copy_journal(shared.cursor.sealed_to)?;
    copy.publish()?;
    Ok(copy.row.progress)
}

impl Copy<'_> {
    /// Marks the target as unfinished, or continues an unfinished copy.
    fn begin(&mut self) -> Result<()> {
        let stored = self.target.call(|target| target.manifest(SHARD))?;
        self.version = stored.version;
        let unfinished = stored.rows.iter().find(|row| is_unfinished_copy(row));
        match unfinished {
            Some(row) => {
                let damaged = |error: serde_json::Error| {
                    CopyError::Target(LogError::StoredRow {
                        what: "row of an unfinished copy",
                        reason: error.to_string(),
                    })
                };
                let row: CopyRow = serde_json::from_slice(&row.detail).map_err(damaged)?;
                if row.source_version != self.row.source_version {
                    return Err(CopyError::SourceChanged);
                }
                self.row.progress = row.progress;
                self.row.from = row.from;
            }
            None => self.check_empty(&stored)?,
        }
        self.record()
    }

    /// Refuses a target that has data.
    fn check_empty(&self, stored: &StoredManifest) -> Result<()> {
        let has_data = |what| Err(CopyError::TargetHasData(what));
        if !stored.rows.is_empty() {
            return has_data("a database");
        }
        if !self.target.call(|target| target.segments(SHARD))?.is_empty()
            || !self.target.call(|target| target.parts(SHARD))?.is_empty()
        {
            return has_data("segments or parts");
        }
        if !self.target.call(|target| target.epochs(SHARD))?.is_empty() {
            return has_data("a journal");
        }
        for space in space_partitions() {
            let page = self.target.scan(space, &KeyRange::ALL)?;
            if !page.rows.is_empty() || page.next.is_some() {
                return has_data("rows");
            }
        }
        Ok(())
    }

    /// Makes the copied rows durable, and stores the progress.
    fn record(&mut self) -> Result<()> {
        self.target.call(|target| target.sync_rows(SHARD))?;
        let row = put_row(ManifestKind::Cursor, UNFINISHED_COPY, &self.row);
        self.unrecorded_bytes = 0;
        self.edit(&[row])
    }

    /// Reports the progress to the caller.
    fn report(&mut self) -> Result<()> {
        match (self.observe)(&self.row.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(CopyError::Interrupted),
        }
    }

    /// Puts the rows of the manifest. The last edit ends the copy.
    fn publish(&mut self) -> Result<()> {
        self.source.check().map_err(CopyError::Source)?;
        let mut changes = Vec::new();
        let mut bytes = 0;
        for row in std::mem::take(&mut self.manifest.rows) {
            let size = row.name.len() + row.detail.len();
            // The last edit also removes a row.
            if changes.len() + 2 > WRITE_ROWS_MAX || bytes + size + UNFINISHED_COPY.len() > WRITE_BYTES_MAX {
                self.edit(&changes)?;
                changes.clear();
                bytes = 0;
            }
            bytes += size;
            changes.push(ManifestChange::Put(row));
        }
        let name = Bytes::from_static(UNFINISHED_COPY);
        changes.push(ManifestChange::Remove(ManifestKind::Cursor, name));
        self.edit(&changes)
    }

    /// Edits the manifest of the target. Repeats an edit of unknown outcome that was not applied.
    fn edit(&mut self, changes: &[ManifestChange]) -> Result<()> {
        loop {
            self.target.check().map_err(CopyError::Target)?;
            let (epoch, version) = (self.target.ownership.epoch, self.version);
            let edited = self.target.backend.edit(SHARD, epoch, version, changes);
            match edited {
                Ok(EditOutcome::Applied { version }) => {
                    self.version = version;
                    return Ok(());
                }
                Ok(EditOutcome::Refused { .. }) => {
                    let reason = "another process has changed the manifest".to_owned();
                    return Err(CopyError::Target(BackendError::Refused { reason }.into()));
                }
                Err(BackendError::Unknown { .. }) => {
                    let now = self.target.call(|target| target.manifest(SHARD))?.version;
                    if now > version {
                        self.version = now;
                        return Ok(());
                    }
                }
                Err(error) => return Err(CopyError::Target(error.into())),
            }
        }
    }
}

impl Side {
    /// Takes the shard. If leases are limited in time, the epoch is above `epoch_min`. Waits up to
    /// [`CopySettings::patience`] for the lease of another owner to expire.
    fn take(
        backend: Arc<dyn Backend>,
        settings: &CopySettings,
        epoch_min: u64,
    ) -> std::result::Result<Self, LogError> {
        let clock = &settings.clock;
        let deadline = clock.monotonic() + settings.patience;
        let mut is_waiting = false;
        let (lease, sent) = loop {
            let sent = clock.monotonic();
            match backend.take(SHARD) {
                // If the lease has no end, ids do not depend on the epoch, so any epoch is accepted.
                Ok(lease) if lease.holds.is_none() || lease.epoch.0 > epoch_min => break (lease, sent),
                Ok(_) => {}
                Err(error) if error.kind().is_retryable() && clock.monotonic() < deadline => {
                    if !is_waiting {
                        is_waiting = true;
                        (settings.on_wait)(&error, settings.patience);
                    }
                    // No event signals the end of another process's lease.
                    let _ = after(TAKE_AGAIN_AFTER).recv();
                }
                Err(error) => return Err(error.into()),
            }
        };
        let ownership = Arc::new(Ownership::new(&lease, sent, Arc::clone(clock)));
        let renewer = Renewer::of(&lease, &ownership, Arc::clone(&backend), &settings.supervisor);
        Ok(Self {
            backend,
            ownership,
            _renewer: renewer,
        })
    }

    /// Returns an error unless the copy owns the shard.
    fn check(&self) -> std::result::Result<(), LogError> {
        self.ownership.check()
    }
}

/// Returns true if a row of the manifest marks an unfinished copy.
pub(crate) fn is_unfinished_copy(row: &ManifestRow) -> bool {
    row.kind == ManifestKind::Cursor && *row.name == *UNFINISHED_COPY
}

/// Digest of rows or entries in their order.
#[derive(Default)]
struct Digest {
    hash: Xxh3Default,
    count: u64,
    bytes: u64,
}

impl Digest {
    /// Adds a key or sequence, and a value.
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.hash.update(&(key.len() as u64).to_le_bytes());
        self.hash.update(key);
        self.hash.update(&(value.len() as u64).to_le_bytes());
        self.hash.update(value);
        self.count += 1;
        self.bytes += (key.len() + value.len()) as u64;
    }

    fn is_equal(&self, other: &Self) -> bool {
        self.count == other.count && self.hash.digest128() == other.hash.digest128()
    }
}

impl fmt::Debug for CopySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopySettings")
            .field("patience", &self.patience)
            .field("piece_bytes", &self.piece_bytes)
            .finish_non_exhaustive()
    }
}
