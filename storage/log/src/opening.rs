//! Opening of a log: from the stored state to the running threads.
//!
//! 1. *Begin*: take the shard in a new epoch, so that writes still sent by an older process are refused. Read the
//!    manifest and the remembered requests. Each model then reads its own rows.
//! 2. *Replay*: pass each entry of an older epoch at or above the published cursor to its model. Sequences continue
//!    after the highest sequence found, even if it belongs to an entry of a dropped table.
//! 3. *Open*: close the older epochs. Apart from taking the lease, this is the first step that stores anything; all
//!    reads precede it.
//! 4. *Start* the threads. The flusher frees the parts that no manifest row referenced in step 1. A crash leaves such
//!    parts if it happens after they are written and before the edit that adds them, or between the edit that removes
//!    them and their release.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::trusted_clock::TrustedClock;
use bytes::Bytes;
use tideline_backend::{Backend, BackendError, Epoch, Lease, ManifestKind, ManifestRow, PartRef, SegmentRef};
use tideline_key_codec::parse_part_name;
use tideline_model::{Clock, ModelTag, PartId, SegmentId, SequenceNumber, Timestamp};

use crate::committer::Committer;
use crate::entry::LogEntry;
use crate::error::{LogError, Result};
use crate::flusher::Flusher;
use crate::lease::{Ownership, Renewer};
use crate::log::{Log, SHARD};
use crate::manifest::Manifest;
use crate::model::{LogModel, Replay};
use crate::recent_entries::{RecentEntries, RecentEntry};
use crate::reply::Submitted;
use crate::requests::Requests;
use crate::settings::LogSettings;

/// Number of bits of an id that one owner of a shard counts up. The bits above hold the epoch of the owner. Applies
/// only if leases are limited in time, so that another process can take the shard.
///
/// A previous owner may still load or free segments that this owner does not see, so the two must never assign the same
/// id. 24 bits leave room for 16 million owners with 16 million ids each.
pub(crate) const EPOCH_ID_BITS: u32 = 24;

/// Log that has read its manifest, but not yet its journal.
#[derive(Debug)]
pub struct Opening {
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    settings: LogSettings,
    ownership: Arc<Ownership>,
    /// Renews the lease; `None` if the lease has no end.
    renewer: Option<Renewer>,
    manifest: Manifest,
    rows: Vec<ManifestRow>,
    segments: Vec<SegmentRef>,
    /// Parts that no row of the manifest references.
    orphans: Vec<PartRef>,
    requests: Requests,
}

/// Log whose journal was replayed. Nothing but the lease has been stored yet.
#[derive(Debug)]
pub struct Replayed {
    opening: Opening,
    recent: RecentEntries,
    /// Older epochs that are still open, with the ends at which they will be closed.
    ends: Vec<(Epoch, SequenceNumber)>,
    /// Number of entries that were passed to models.
    pub entries: u64,
}

impl Opening {
    /// Takes the shard and reads the manifest and the remembered requests (step 1).
    ///
    /// # Errors
    ///
    /// The errors of the backend. [`LogError::StoredRow`] if a row of the manifest or of a request cannot be read.
    /// [`LogError::LeaseLost`] or [`LogError::LeaseExpired`] if the lease has ended before everything was read.
    pub fn begin(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>, settings: LogSettings) -> Result<Self> {
        let (renewed, supervisor) = (Arc::clone(&backend), settings.supervisor.clone());
        Self::begin_with(backend, clock, settings, |lease, ownership| {
            Renewer::of(lease, ownership, renewed, &supervisor)
        })
    }

    /// Begins like [`begin`](Self::begin). `start_renewer` starts the renewal of the lease.
    pub(crate) fn begin_with(
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        settings: LogSettings,
        start_renewer: impl FnOnce(&Lease, &Arc<Ownership>) -> Option<Renewer>,
    ) -> Result<Self> {
        let sent = clock.monotonic();
        let lease = backend.take(SHARD)?;
        let ownership = Arc::new(Ownership::new(&lease, sent, Arc::clone(&clock)));
        // Renewal starts now: reading the stored state may take longer than the lease is valid.
        let renewer = start_renewer(&lease, &ownership);
        let stored = backend.manifest(SHARD)?;
        let mut manifest = Manifest::read(&stored)?;
        let held = backend.segments(SHARD)?;
        let parts = backend.parts(SHARD)?;
        let segments = held.iter().map(|at| at.segment.0.max(at.group.0));
        let highest = segments.chain(parts.iter().map(|at| at.part.0)).max();
        let highest = highest.unwrap_or(0);
        let first = match lease.holds {
            Some(_) => lease.epoch.0 << EPOCH_ID_BITS,
            None => 1,
        };
        let first = SegmentId::of(SHARD.0, first).0;
        manifest.cursor.next_segment = manifest.cursor.next_segment.max(highest + 1).max(first);
        let orphans = unnamed(parts, &stored.rows);
        let requests = Requests::default();
        for table in manifest.tables.keys() {
            requests.load(backend.as_ref(), *table)?;
        }
        // The threads free the orphans that were found above. If the lease ended before this point, these orphans can
        // be segments and parts that a newer owner has published.
        ownership.check()?;
        Ok(Self {
            backend,
            clock,
            settings,
            ownership,
            renewer,
            manifest,
            rows: stored.rows,
            segments: held,
            requests,
            orphans,
        })
    }

    /// Returns the backend.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Returns the epoch in which this process owns the shard.
    pub fn epoch(&self) -> Epoch {
        self.ownership.epoch
    }

    /// Returns the manifest rows that all models share, decoded.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns all rows of the manifest, for the models.
    pub fn rows(&self) -> &[ManifestRow] {
        &self.rows
    }

    /// Returns all segments of the shard that the backend held at the start, before this process loaded any.
    pub fn segments(&self) -> &[SegmentRef] {
        &self.segments
    }

    /// Returns the parts of the shard that no row of the manifest references. The flusher frees them.
    pub fn orphans(&self) -> &[PartRef] {
        &self.orphans
    }

    /// Returns the trusted time.
    pub fn trusted_now(&self) -> Timestamp {
        let stored = self.manifest.cursor.stored_clock();
        let (floor, clock) = (self.settings.clock_floor, &self.clock);
        TrustedClock::new(stored, floor, clock.now(), clock.monotonic()).now()
    }

    /// Replays the journal from the published cursor (step 2).
    ///
    /// # Errors
    ///
    /// The errors of the backend. [`LogError::StoredRow`] if an entry is shorter than a tag, [`LogError::UnknownModel`]
    /// if the model of an entry is not in `models`, [`LogError::Model`] if a model cannot apply an entry.
    pub fn replay(self, models: &mut [&mut dyn Replay]) -> Result<Replayed> {
        let from = self.manifest.cursor.sealed_to;
        let older = self.backend.epochs(SHARD)?.into_iter();
        let older: Vec<_> = older
            .filter(|journal| journal.epoch < self.ownership.epoch)
            .collect();
        let tags: BTreeMap<ModelTag, usize> = (0..)
            .zip(models.iter())
            .map(|(at, model)| (model.tag(), at))
            .collect();
        let mut replay = Entries {
            models,
            tags,
            requests: &self.requests,
            settings: &self.settings,
            recent: RecentEntries::new(from, self.settings.tail_bytes_max),
            highest: None,
            entries: 0,
            now: self.trusted_now(),
        };
        let mut ends = Vec::new();
        for journal in older {
            let mut failed = None;
            let replayed = self
                .backend
                .replay(SHARD, journal.epoch, from, &mut |sequence, entry| {
                    replay.apply(sequence, entry).map_err(|error| {
                        let carried = BackendError::corrupt(error.to_string());
                        failed = Some(error);
                        carried
                    })
                });
            if let Some(error) = failed {
                return Err(error);
            }
            replayed?;
            if journal.end.is_none() {
                let after = |highest: SequenceNumber| SequenceNumber(highest.0 + 1);
                ends.push((journal.epoch, replay.highest.map_or(from, after)));
            }
        }
        let Entries { recent, entries, .. } = replay;
        Ok(Replayed {
            opening: self,
            recent,
            ends,
            entries,
        })
    }
}

/// Replay state: passes the entries of a journal to the models.
struct Entries<'a, 'b> {
    models: &'a mut [&'b mut dyn Replay],
    tags: BTreeMap<ModelTag, usize>,
    requests: &'a Requests,
    settings: &'a LogSettings,
    recent: RecentEntries,
    /// Highest sequence of all entries, including those of dropped tables.
    highest: Option<SequenceNumber>,
    entries: u64,
    /// Trusted time of the start.
    now: Timestamp,
}

impl Entries<'_, '_> {
    fn apply(&mut self, sequence: SequenceNumber, entry: Bytes) -> Result<()> {
        self.highest = self.highest.max(Some(sequence));
        let damaged = || LogError::StoredRow {
            what: "journal entry",
            reason: format!("entry {sequence} is too short"),
        };
        let model = ModelTag::of(&entry).ok_or_else(damaged)?;
        let Some(at) = self.tags.get(&model) else {
            return Err(LogError::UnknownModel {
                sequence: sequence.0,
                model,
            });
        };
        let replayed = self.models[*at].apply(sequence, &entry);
        let replayed = replayed.map_err(LogError::Model)?;
        // Entries of dropped tables are kept as well, because cursors of other tables may precede them.
        self.recent.push(RecentEntry {
            sequence,
            table: replayed.table,
            encoded: entry,
        });
        if let Some(request) = replayed.request {
            self.requests
                .remember(replayed.table, request, self.now, self.settings);
        }
        self.entries += 1;
        Ok(())
    }
}

impl Replayed {
    /// Returns the sequence after the newest entry; the published cursor if there is no entry.
    pub fn end(&self) -> SequenceNumber {
        self.recent.end()
    }

    /// Closes the older epochs and builds the log (step 3).
    ///
    /// # Errors
    ///
    /// The errors of the backend.
    pub fn open(self) -> Result<Arc<Log>> {
        let Opening {
            backend,
            clock,
            settings,
            ownership,
            renewer,
            manifest,
            requests,
            orphans,
            ..
        } = self.opening;
        for (closed, end) in self.ends {
            backend.close_epoch(SHARD, closed, end)?;
        }
        let log = Log::new(
            backend,
            ownership,
            clock,
            settings,
            manifest,
            requests,
            self.recent,
        );
        let log = Arc::new(log);
        let watched = Arc::downgrade(&log);
        log.ownership.on_loss(move || {
            if let Some(log) = watched.upgrade() {
                log.wake_watchers();
            }
        });
        *log.renewer.lock() = renewer;
        *log.orphans.lock() = orphans;
        Ok(log)
    }
}

/// Returns the parts that no row of the manifest references.
fn unnamed(parts: Vec<PartRef>, rows: &[ManifestRow]) -> Vec<PartRef> {
    let rows = rows.iter().filter(|row| row.kind == ManifestKind::Part);
    let named: BTreeSet<PartId> = rows.filter_map(|row| parse_part_name(&row.name)).collect();
    let is_orphan = |held: &PartRef| !named.contains(&held.part);
    parts.into_iter().filter(is_orphan).collect()
}

/// Running threads of a log. They end when the value is dropped.
pub struct LogThreads {
    log: Arc<Log>,
    committer: Committer,
    flusher: Flusher,
    /// Keeps the models alive: the log holds weak references to them.
    _models: Vec<Arc<dyn LogModel>>,
}

impl LogThreads {
    /// Starts the committer and the flusher (step 4). From now on the models are notified of edits with an unknown
    /// outcome.
    pub fn start(log: Arc<Log>, models: Vec<Arc<dyn LogModel>>) -> Self {
        log.set_models(&models);
        let flusher = Flusher::start(Arc::clone(&log), models.clone());
        let committer = Committer::start(Arc::clone(&log), models.clone());
        Self {
            log,
            committer,
            flusher,
            _models: models,
        }
    }

    /// Returns the log.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Appends an entry to the journal, applies it and returns its sequence.
    ///
    /// After `Ok`, the entry is visible to every later read, and a synced entry is on stable storage. After an error
    /// the outcome is unknown unless the documentation of the [`LogError`] states it. Blocks until the group of the
    /// entry is committed.
    ///
    /// # Errors
    ///
    /// A [`LogError`]; [`LogError::is_not_written`] returns true if it is certain that nothing was written.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    ///
    /// # use bytes::Bytes;
    /// # use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
    /// # use tideline_log::{LogEntry, LogSettings, LogThreads, ModelError, Opening, Refusal};
    /// # use tideline_model::{Durability, SequenceNumber, SystemClock, TableId};
    /// /// Entry of a model that only stores the sequences of its entries.
    /// struct Mark {
    ///     encoded: Bytes,
    ///     applied: Arc<Mutex<Vec<SequenceNumber>>>,
    /// }
    ///
    /// impl LogEntry for Mark {
    ///     # fn kind(&self) -> &'static str { "mark" }
    ///     # fn table(&self) -> TableId { TableId(1) }
    ///     # fn durability(&self) -> Durability { Durability::Synced }
    ///     # fn check(&self) -> Result<(), Refusal> { Ok(()) }
    ///     fn encoded(&self) -> &Bytes {
    ///         &self.encoded
    ///     }
    ///     fn apply(&self, sequence: SequenceNumber) -> Result<(), ModelError> {
    ///         self.applied.lock().map_err(|error| error.to_string())?.push(sequence);
    ///         Ok(())
    ///     }
    ///     // …
    /// }
    ///
    /// let backend = Arc::new(MemoryBackend::open(&MemoryDisk::new(Character::Embedded)));
    /// let opening = Opening::begin(backend, Arc::new(SystemClock), LogSettings::default())?;
    /// let log = LogThreads::start(opening.replay(&mut [])?.open()?, Vec::new());
    ///
    /// let applied = Arc::default();
    /// // The entry begins with the tag of test models.
    /// let mark = Mark { encoded: Bytes::from_static(b"TT"), applied: Arc::clone(&applied) };
    /// let sequence = log.commit(Box::new(mark))?;
    /// assert_eq!(*applied.lock().unwrap(), [sequence]);
    /// log.stop();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn commit(&self, entry: Box<dyn LogEntry>) -> Result<SequenceNumber> {
        self.committer.commit(entry)
    }

    /// Sends an entry to the committer without waiting. Entries are committed in the order in which they are submitted.
    /// If a caller numbers and submits entries under one lock, they are committed in the order of the numbers.
    ///
    /// # Errors
    ///
    /// [`LogError::Overloaded`] if too many bytes wait; [`LogError::Closed`] if the committer has ended;
    /// [`LogError::Failed`] if a thread has panicked. Nothing was written.
    pub fn submit(&self, entry: Box<dyn LogEntry>) -> Result<Submitted> {
        self.committer.submit(entry)
    }

    /// Waits for a submitted entry, and returns its sequence.
    ///
    /// # Errors
    ///
    /// The errors of [`commit`](Self::commit).
    pub fn wait(&self, submitted: Submitted) -> Result<SequenceNumber> {
        submitted.wait()
    }

    /// Raises the next sequence to `to`, by writing `entry` with the sequence before `to`. Does not write the entry if
    /// the next sequence is already `to` or higher. Returns the next sequence.
    ///
    /// # Errors
    ///
    /// The errors of [`commit`](Self::commit), except `Overloaded` and `Refused`.
    pub fn raise(&self, to: SequenceNumber, entry: Box<dyn LogEntry>) -> Result<SequenceNumber> {
        self.committer.raise(to, entry)
    }

    /// Flushes all entries that were committed before the call, and waits until they are published.
    ///
    /// # Errors
    ///
    /// - `Misconfigured` if the backend is read-only;
    /// - the error of the backend if it cannot cut the journal;
    /// - [`LogError::Append`] if the flush fails; it is then retried in the background;
    /// - [`LogError::Closed`] if the threads are stopped;
    /// - [`LogError::Failed`] if a thread has panicked.
    pub fn flush(&self) -> Result<()> {
        self.log.check_not_read_only()?;
        let end = self.committer.freeze()?;
        self.log.wait_flushed(end)
    }

    /// Stops accepting writes, completes the waiting ones, and syncs. Entries that are not flushed stay in the journal,
    /// and the next start replays them. May be called repeatedly.
    pub fn stop(&self) {
        self.committer.stop();
        self.flusher.stop();
        if let Some(renewer) = &*self.log.renewer.lock() {
            renewer.stop();
        }
    }
}

impl Drop for LogThreads {
    fn drop(&mut self) {
        self.stop();
    }
}

impl std::fmt::Debug for LogThreads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogThreads")
            .field("log", &self.log)
            .finish_non_exhaustive()
    }
}
