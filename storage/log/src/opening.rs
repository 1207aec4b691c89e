//! Opening a log: from what the backend kept to a running one.
//!
//! 1. *Begin*: take the shard, in a new epoch, so that nothing an older process still sends can land; read the manifest and
//!    the remembered requests. The models read their own rows.
//! 2. *Replay*: hand the entries of older epochs from the published cursor on to their models. Sequences go on after the
//!    highest that was found, whatever became of its table.
//! 3. *Open*: everything has been read, and only now is something stored: the older epochs are closed.
//! 4. *Start* the threads. The flusher frees the parts that no manifest row named in step 1: a crash has cut off their
//!    first flush, or came between the edit that dropped them and their reclaim.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::trusted_clock::TrustedClock;
use bytes::Bytes;
use tideline_backend::{Backend, BackendError, Epoch, ManifestKind, ManifestRow, PartRef, SegmentRef};
use tideline_key_codec::parse_part_name;
use tideline_model::{Clock, PartId, SegmentId, SequenceNumber, Timestamp};

use crate::committer::Committer;
use crate::entry::{LogEntry, ModelTag};
use crate::error::{LogError, Result};
use crate::flusher::Flusher;
use crate::lease::{Ownership, Renewer};
use crate::log::{Log, SHARD};
use crate::manifest::Manifest;
use crate::model::{LogModel, Replay};
use crate::requests::Requests;
use crate::settings::LogSettings;
use crate::tail::{Tail, TailEntry};

/// A log that has read its manifest and not yet its journal.
#[derive(Debug)]
pub struct Opening {
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    settings: LogSettings,
    ownership: Arc<Ownership>,
    /// Where the lease holds for a while only.
    renewer: Option<Renewer>,
    manifest: Manifest,
    rows: Vec<ManifestRow>,
    segments: Vec<SegmentRef>,
    /// Parts that no row of the manifest names.
    orphans: Vec<PartRef>,
    requests: Requests,
}

/// A log whose journal was replayed; nothing has been stored yet.
#[derive(Debug)]
pub struct Replayed {
    opening: Opening,
    tail: Tail,
    /// Older epochs that are open, with their ends.
    ends: Vec<(Epoch, SequenceNumber)>,
    /// Entries that were handed to models.
    pub entries: u64,
}

impl Opening {
    /// Step 1.
    ///
    /// # Errors
    ///
    /// The backend fails, or a row of the manifest cannot be read.
    pub fn begin(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>, settings: LogSettings) -> Result<Self> {
        let sent = clock.monotonic();
        let lease = backend.take(SHARD)?;
        let ownership = Arc::new(Ownership::new(&lease, sent, Arc::clone(&clock)));
        // From now on: reading what there is may take longer than the lease holds.
        let renewer = lease.holds.map(|holds| {
            let (backend, ownership) = (Arc::clone(&backend), Arc::clone(&ownership));
            Renewer::start(backend, ownership, &settings.supervisor, holds)
        });
        let stored = backend.manifest(SHARD)?;
        let mut manifest = Manifest::read(&stored)?;
        let held = backend.segments(SHARD)?;
        let parts = backend.parts(SHARD)?;
        let segments = held.iter().map(|at| at.segment.0.max(at.group.0));
        let highest = segments.chain(parts.iter().map(|at| at.part.0)).max();
        let highest = highest.unwrap_or(0);
        let first = SegmentId::of(SHARD.0, 1).0;
        manifest.cursor.next_segment = manifest.cursor.next_segment.max(highest + 1).max(first);
        let orphans = unnamed(parts, &stored.rows);
        let requests = Requests::default();
        for table in manifest.tables.keys() {
            requests.load(backend.as_ref(), *table)?;
        }
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

    /// The backend.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// The shared rows of the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// All rows of the manifest, for the models.
    pub fn rows(&self) -> &[ManifestRow] {
        &self.rows
    }

    /// All segments of the shard that the backend held before anybody loaded one.
    pub fn segments(&self) -> &[SegmentRef] {
        &self.segments
    }

    /// Parts of the shard that the backend held and that no row of the manifest named. They are freed once the threads run.
    pub fn orphans(&self) -> &[PartRef] {
        &self.orphans
    }

    /// The time, as far as it can be trusted.
    fn trusted_now(&self) -> Timestamp {
        let stored = self.manifest.cursor.stored_clock();
        let (floor, clock) = (self.settings.clock_floor, &self.clock);
        TrustedClock::new(stored, floor, clock.now(), clock.monotonic()).now()
    }

    /// Step 2.
    ///
    /// # Errors
    ///
    /// The backend fails; an entry is damaged, or of a model that is not among `models`.
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
            tail: Tail::new(from, self.settings.tail_bytes_max),
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
        let Entries { tail, entries, .. } = replay;
        Ok(Replayed {
            opening: self,
            tail,
            ends,
            entries,
        })
    }
}

/// The entries of a journal on their way to the models.
struct Entries<'a, 'b> {
    models: &'a mut [&'b mut dyn Replay],
    tags: BTreeMap<ModelTag, usize>,
    requests: &'a Requests,
    settings: &'a LogSettings,
    tail: Tail,
    /// The highest sequence of all entries, whatever their tables.
    highest: Option<SequenceNumber>,
    entries: u64,
    /// The trusted time of the start.
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
        // Also of a dropped table: cursors of others may be behind it.
        self.tail.push(TailEntry {
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
    /// The sequence after the newest entry.
    pub fn end(&self) -> SequenceNumber {
        self.tail.end()
    }

    /// Step 3.
    ///
    /// # Errors
    ///
    /// The backend fails.
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
        let log = Log::new(backend, ownership, clock, settings, manifest, requests, self.tail);
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

/// The parts that no row of a manifest names.
fn unnamed(parts: Vec<PartRef>, rows: &[ManifestRow]) -> Vec<PartRef> {
    let rows = rows.iter().filter(|row| row.kind == ManifestKind::Part);
    let named: BTreeSet<PartId> = rows.filter_map(|row| parse_part_name(&row.name)).collect();
    let is_orphan = |held: &PartRef| !named.contains(&held.part);
    parts.into_iter().filter(is_orphan).collect()
}

/// The running threads of a log. They end when it is dropped.
pub struct LogThreads {
    log: Arc<Log>,
    committer: Committer,
    flusher: Flusher,
    /// The log tells them of edits for as long as they are there.
    _models: Vec<Arc<dyn LogModel>>,
}

impl LogThreads {
    /// Step 4. The models are told of edits from now on.
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

    /// The log.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Journals an entry, applies it and answers with its place.
    ///
    /// After `Ok` of a synced entry it is on stable storage, and every later read sees it. After an error the outcome is
    /// unknown unless the error says otherwise. Blocks for a group commit.
    ///
    /// # Errors
    ///
    /// Each variant of [`LogError`] says whether anything was written.
    pub fn commit(&self, entry: Box<dyn LogEntry>) -> Result<SequenceNumber> {
        self.committer.commit(entry)
    }

    /// Has all writes from now on behind a sequence, with an entry before it; the next one.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    pub fn raise(&self, to: SequenceNumber, entry: Box<dyn LogEntry>) -> Result<SequenceNumber> {
        self.committer.raise(to, entry)
    }

    /// Flushes everything that was committed before the call, and waits for it.
    ///
    /// # Errors
    ///
    /// The backend is read-only, or flushing fails; it is tried again.
    pub fn flush(&self) -> Result<()> {
        self.log.check_not_read_only()?;
        let end = self.committer.freeze()?;
        self.log.wait_flushed(end)
    }

    /// Stops taking writes, answers those that wait, syncs. What is not flushed stays in the journal and is there again
    /// after the next start. Repeatable.
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
