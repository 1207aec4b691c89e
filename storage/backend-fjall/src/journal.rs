//! The journal: append-only files of this backend, one for each shard, epoch and generation. A request for a new file
//! ([`ShardJournal::cut`]) or a failure starts the next generation of an epoch.
//!
//! fjall's write-ahead log is not used, because dropping a keyspace neither rotates nor frees that log. Three rules
//! make the files trustworthy:
//!
//! 1. Every frame stores how many bytes of its file were durable when the frame was written. So an intact frame after a
//!    bad frame shows whether the bad frame had been durable. If so, the bad frame is *damage*; otherwise it is a *torn
//!    write*.
//! 2. After a failed write or sync, nothing more is appended to the file. A failed sync leaves pages that can be read
//!    but are not on the disk; `settle` replaces the file by a durable copy before the file is used again.
//! 3. Only the newest file of a shard may have a torn end. Each open settles this file, so all files before a new file
//!    have sound ends.

mod ending;
mod frame;
mod history;
mod reader;
mod recovery;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tideline_backend::limits::check_entries;
use tideline_backend::{BackendError, Epoch, JournalEntry, Result, Shard};
use tideline_model::{Durability, SequenceNumber};

use crate::error::{During, at, from_io, unavailable};
use crate::files::sync_folder;
use ending::FullFile;
pub(crate) use frame::FileId;
use frame::encode;
pub(crate) use history::{HISTORY, findings as history_findings};
use history::{History, Offsets, remove_offsets};
use reader::{Walk, walk};
pub(crate) use recovery::survey;
use recovery::{Survey, remove_leftovers, settle, settle_end};

/// Journals of all shards.
#[derive(Debug)]
pub(crate) struct Journals {
    folder: PathBuf,
    shards: Mutex<BTreeMap<Shard, Arc<Mutex<ShardJournal>>>>,
}

impl Journals {
    /// Reads the journals in a folder without changing anything. Every frame is checked, and a torn end of the newest
    /// file is ignored. Damage is refused.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let mut found = survey(folder)?;
        // Refuses damage, because no loss is accepted.
        found.cut(folder, folder, false)?;
        Self::of(folder, found)
    }

    /// Reads the journals in a folder. Damage is refused unless an operator accepts the loss. If the loss is accepted,
    /// an epoch ends at its damage, and links to the cut files are kept in `root`.
    pub(crate) fn judge(folder: &Path, root: &Path, accept_loss: bool) -> Result<Self> {
        let mut found = survey(folder)?;
        found.cut(folder, root, accept_loss)?;
        Self::of(folder, found)
    }

    fn of(folder: &Path, found: Survey) -> Result<Self> {
        let mut shards: BTreeMap<Shard, ShardJournal> = BTreeMap::new();
        for (id, walk) in found.kept {
            let journal = shards
                .entry(id.shard)
                .or_insert_with(|| ShardJournal::new(folder, id.shard));
            journal.files.extend(JournalFile::of(id, &walk));
            journal.unsettled = Some(id);
        }
        for (shard, history) in History::read_all(&folder.with_file_name(HISTORY))? {
            let journal = shards.entry(shard);
            let journal = journal.or_insert_with(|| ShardJournal::new(folder, shard));
            journal.forgotten = history.newest();
            journal.history = Some(history);
        }
        let shards = shards
            .into_iter()
            .map(|(shard, journal)| (shard, Arc::new(Mutex::new(journal))));
        Ok(Self {
            folder: folder.to_owned(),
            shards: Mutex::new(shards.collect()),
        })
    }

    /// Reads and settles the journals in a folder.
    #[cfg(test)]
    pub(crate) fn open(folder: &Path, root: &Path, accept_loss: bool) -> Result<Self> {
        fs::create_dir_all(folder).map_err(at(folder))?;
        let journals = Self::judge(folder, root, accept_loss)?;
        journals.settle()?;
        Ok(journals)
    }

    /// Prepares the journals for appends: removes unfinished copies, truncates torn ends, and rewrites doubtful ends.
    pub(crate) fn settle(&self) -> Result<()> {
        fs::create_dir_all(&self.folder)
            .and_then(|()| remove_leftovers(&self.folder))
            .map_err(at(&self.folder))?;
        for journal in self.all() {
            journal.lock().settle()?;
        }
        Ok(())
    }

    /// Returns the sequence of the last entry of each epoch of all shards.
    pub(crate) fn marks(&self) -> BTreeMap<(Shard, Epoch), SequenceNumber> {
        let all = self.all().into_iter();
        all.flat_map(|journal| journal.lock().marks()).collect()
    }

    /// Returns the journal of one shard. Hold its lock for as long as the order of appends matters.
    pub(crate) fn shard(&self, shard: Shard) -> Arc<Mutex<ShardJournal>> {
        let mut shards = self.shards.lock();
        let journal = shards
            .entry(shard)
            .or_insert_with(|| Arc::new(Mutex::new(ShardJournal::new(&self.folder, shard))));
        Arc::clone(journal)
    }

    /// Returns the journals of all shards.
    pub(crate) fn all(&self) -> Vec<Arc<Mutex<ShardJournal>>> {
        self.shards.lock().values().cloned().collect()
    }
}

/// Journal of one shard.
#[derive(Debug)]
pub(crate) struct ShardJournal {
    folder: PathBuf,
    shard: Shard,
    /// Files by epoch, then generation. The active file, if it has entries, is the last.
    files: Vec<JournalFile>,
    active: Option<ActiveFile>,
    /// Newest forgotten file. If its epoch has no other files, the next file of the epoch follows this file, so that no
    /// two files of a history have the same id.
    forgotten: Option<FileId>,
    /// Lowest sequence with which the next file may begin, if a cut was requested.
    cut: Option<SequenceNumber>,
    /// Last acknowledged entry and its epoch. Later entries of this epoch must have higher sequences.
    acknowledged: Option<(Epoch, SequenceNumber)>,
    broken: Option<Broken>,
    /// Newest file found in the folder, until it is settled.
    unsettled: Option<FileId>,
    /// Files that are kept for change streams; `None` if none are kept.
    history: Option<History>,
    /// Offsets of frames in all files, for readers of the history.
    offsets: Offsets,
    buffer: Vec<u8>,
}

/// File with at least one entry.
#[derive(Debug, Clone, Copy)]
struct JournalFile {
    id: FileId,
    last: SequenceNumber,
    bytes: u64,
}

/// File that receives appends.
#[derive(Debug)]
struct ActiveFile {
    id: FileId,
    file: File,
    bytes: u64,
    synced_bytes: u64,
}

/// File that accepts no appends until it is settled, or that could not be created.
#[derive(Debug)]
struct Broken {
    id: FileId,
    reason: String,
}

impl ShardJournal {
    fn new(folder: &Path, shard: Shard) -> Self {
        Self {
            folder: folder.to_owned(),
            shard,
            files: Vec::new(),
            active: None,
            forgotten: None,
            cut: None,
            acknowledged: None,
            broken: None,
            unsettled: None,
            history: None,
            offsets: Offsets::default(),
            buffer: Vec::new(),
        }
    }

    /// Settles the newest file that was found in the folder.
    fn settle(&mut self) -> Result<()> {
        if let Some(newest) = self.unsettled {
            let settled = settle_end(&self.folder, newest)?;
            self.files.retain(|file| file.id != newest);
            self.files
                .extend(settled.and_then(|walk| JournalFile::of(newest, &walk)));
            self.unsettled = None;
        }
        self.acknowledged = self.files.last().map(|file| (file.id.epoch, file.last));
        Ok(())
    }

    /// Appends entries of the owner. The caller has checked the epoch while holding the lock of this journal.
    pub(crate) fn append(
        &mut self,
        epoch: Epoch,
        entries: &[JournalEntry],
        durability: Durability,
    ) -> Result<()> {
        self.check_broken()?;
        check_entries(entries, self.acknowledged(epoch))?;
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            return Ok(());
        };
        let is_cut = self.cut.is_some_and(|cut| first.sequence >= cut);
        if self
            .active
            .as_ref()
            .is_some_and(|active| is_cut || active.id.epoch != epoch)
        {
            self.sync()?;
            self.active = None;
        }
        if is_cut {
            self.cut = None;
        }
        let mut active = match self.active.take() {
            Some(active) => active,
            None => self.create(epoch, first.sequence)?,
        };
        let seed = active.id.seed();
        for entry in entries {
            encode(
                &mut self.buffer,
                seed,
                entry.sequence,
                active.synced_bytes,
                &entry.value,
            );
        }
        let written = active.write(&self.buffer, durability, &self.folder);
        self.buffer.clear();
        if let Err(error) = written {
            return Err(self.break_at(active.id, &error));
        }
        let grown = JournalFile {
            id: active.id,
            last: last.sequence,
            bytes: active.bytes,
        };
        match self.files.last_mut().filter(|file| file.id == grown.id) {
            Some(file) => *file = grown,
            None => self.files.push(grown),
        }
        self.acknowledged = Some((epoch, last.sequence));
        self.active = Some(active);
        Ok(())
    }

    /// Creates a file; its header is written with the first entries. A failure marks the journal as broken, so that the
    /// failure is reported until a file can be created again.
    fn create(&mut self, epoch: Epoch, first: SequenceNumber) -> Result<ActiveFile> {
        let is_of_epoch = |id: &FileId| id.epoch == epoch;
        let newest = self.files.last().map(|file| file.id).filter(is_of_epoch);
        let newest = newest.or(self.forgotten.filter(is_of_epoch));
        let id = FileId {
            shard: self.shard,
            epoch,
            generation: newest.map_or(0, |newest| newest.generation + 1),
        };
        let file = create_file(&self.folder, id).map_err(|error| {
            self.set_broken(id, &error);
            // Nothing was written, so the outcome is known, unlike that of a failed write.
            unavailable(format!("{}: {error}", id.name()))
        })?;
        self.buffer.extend_from_slice(&id.header(first));
        Ok(ActiveFile {
            id,
            file,
            bytes: 0,
            synced_bytes: 0,
        })
    }

    /// Makes all appended entries durable.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.check_broken()?;
        let Some(active) = &mut self.active else {
            return Ok(());
        };
        match active.sync() {
            Ok(()) => Ok(()),
            Err(error) => {
                let id = active.id;
                Err(self.break_at(id, &error))
            }
        }
    }

    /// Requests a new file: the next append whose first entry has sequence `at` or higher starts it.
    pub(crate) fn cut(&mut self, at: SequenceNumber) {
        self.cut = Some(at);
    }

    /// Returns the epochs that have entries, lowest first.
    pub(crate) fn epochs(&self) -> Vec<Epoch> {
        let mut epochs: Vec<_> = self.files.iter().map(|file| file.id.epoch).collect();
        epochs.dedup();
        epochs
    }

    /// Returns the highest sequence of an epoch; `None` if it has no entries.
    pub(crate) fn last(&self, epoch: Epoch) -> Option<SequenceNumber> {
        let files = self.files.iter().filter(|file| file.id.epoch == epoch);
        files.map(|file| file.last).max()
    }

    /// Returns the sequence of the last entry of each epoch.
    pub(crate) fn marks(&self) -> Vec<((Shard, Epoch), SequenceNumber)> {
        let epochs = self.epochs().into_iter();
        let marks = epochs.filter_map(|epoch| Some(((self.shard, epoch), self.last(epoch)?)));
        marks.collect()
    }

    /// Opens the files for a [`Replay`] of an epoch, which then runs without the lock of this journal.
    pub(crate) fn replay(&self, epoch: Epoch, from: SequenceNumber) -> Result<Replay> {
        let files = self
            .files
            .iter()
            .filter(|file| file.id.epoch == epoch && file.last >= from);
        let files = files.map(|file| {
            let path = self.folder.join(file.id.name());
            let open = FullFile::open(&self.folder, file.id).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => BackendError::corrupt(format!("{} is gone", file.id.name())),
                _ => at(&path)(error),
            })?;
            Ok((file.id, open, file.bytes))
        });
        Ok(Replay {
            files: files.collect::<Result<_>>()?,
            from,
        })
    }

    /// Returns the epochs that [`forget`](Self::forget) frees entirely: those up to and including `epoch` whose entries
    /// are all below `to`.
    pub(crate) fn forgotten_epochs(&self, epoch: Epoch, to: SequenceNumber) -> Vec<Epoch> {
        let mut epochs = self.epochs();
        epochs.retain(|&held| held <= epoch && self.last(held) < Some(to));
        epochs
    }

    /// Removes the files of epochs up to and including `epoch` whose entries are all below `to`, except a broken file.
    /// With a history, moves them there. A file that cannot be removed is kept, with the later files of its epoch; the
    /// failure is only logged.
    pub(crate) fn forget(&mut self, epoch: Epoch, to: SequenceNumber) -> Result<()> {
        let broken = self.broken.as_ref().map(|broken| broken.id);
        let is_gone =
            |file: &JournalFile| file.id.epoch <= epoch && file.last < to && Some(file.id) != broken;
        if self.active.is_some() && self.files.last().is_some_and(is_gone) {
            if self.history.is_some() {
                // Readers of the history trust the whole file.
                self.sync()?;
            }
            self.active = None;
        }
        let mut kept = Vec::new();
        for file in std::mem::take(&mut self.files) {
            let is_first = kept
                .last()
                .is_none_or(|kept: &JournalFile| kept.id.epoch != file.id.epoch);
            if is_first && is_gone(&file) {
                let path = self.folder.join(file.id.name());
                let removed = match &mut self.history {
                    Some(history) => history.adopt(&self.folder, file),
                    None => fs::remove_file(&path),
                };
                if let Err(error) = removed {
                    tracing::warn!(path = %path.display(), %error, "a journal file could not be removed");
                    kept.push(file);
                } else {
                    self.forgotten = self.forgotten.max(Some(file.id));
                    if self.history.is_none() {
                        remove_offsets(&self.offsets, file.id);
                    }
                }
            } else {
                kept.push(file);
            }
        }
        self.files = kept;
        sync_folder(&self.folder).map_err(at(&self.folder))
    }

    /// Returns the size of all files, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Returns the reason why nothing can be appended, if there is one.
    pub(crate) fn broken(&self) -> Option<&str> {
        self.broken.as_ref().map(|broken| broken.reason.as_str())
    }

    /// Repairs a broken journal by settling the acknowledged part of its last file. If that fails, the journal stays
    /// broken.
    ///
    /// The other entries in the file belong to the failed append. Their outcome was reported as unknown, and their
    /// model has not applied them. The other entries are removed, so that the next start does not apply a repeated
    /// write twice.
    ///
    /// If nothing is left of the file, the next append creates it again; this function first checks that it can be
    /// created.
    pub(crate) fn heal(&mut self) -> Result<()> {
        let Some(broken) = &self.broken else {
            return Ok(());
        };
        let id = broken.id;
        let acknowledged = self.files.iter().find(|file| file.id == id);
        let settled = settle(&self.folder, id, acknowledged.map_or(0, |file| file.bytes))?;
        if settled.is_none() {
            let path = self.folder.join(id.name());
            create_file(&self.folder, id)
                .and_then(|_tried| fs::remove_file(&path))
                .map_err(at(&path))?;
        }
        self.files.retain(|file| file.id != id);
        self.files
            .extend(settled.and_then(|walk| JournalFile::of(id, &walk)));
        self.broken = None;
        Ok(())
    }

    fn acknowledged(&self, epoch: Epoch) -> Option<SequenceNumber> {
        let acknowledged = self.acknowledged.filter(|(owner, _)| *owner == epoch);
        acknowledged.map(|(_, sequence)| sequence)
    }

    fn check_broken(&self) -> Result<()> {
        match &self.broken {
            Some(broken) => Err(unavailable(format!("the journal failed: {}", broken.reason))),
            None => Ok(()),
        }
    }

    /// Marks a file as broken after a failed write or sync. Its content after the acknowledged entries is unknown.
    fn break_at(&mut self, id: FileId, error: &io::Error) -> BackendError {
        self.set_broken(id, error);
        from_io(error, &id.name(), During::Write)
    }

    fn set_broken(&mut self, id: FileId, error: &io::Error) {
        tracing::error!(file = id.name(), %error, "journal write failed");
        self.active = None;
        self.broken = Some(Broken {
            id,
            reason: error.to_string(),
        });
    }
}

/// Creates the file, which must not exist yet.
fn create_file(folder: &Path, id: FileId) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(folder.join(id.name()))
}

impl JournalFile {
    /// Describes the file of a walk; `None` if the file has no entries.
    fn of(id: FileId, walk: &Walk) -> Option<Self> {
        Some(Self {
            id,
            last: walk.last?,
            bytes: walk.intact_bytes,
        })
    }
}

impl ActiveFile {
    fn write(&mut self, frames: &[u8], durability: Durability, folder: &Path) -> io::Result<()> {
        let is_new = self.bytes == 0;
        self.file.write_all(frames)?;
        self.bytes += frames.len() as u64;
        if durability == Durability::Synced {
            self.sync()?;
        }
        if is_new { sync_folder(folder) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.synced_bytes < self.bytes {
            self.file.sync_data()?;
            self.synced_bytes = self.bytes;
        }
        Ok(())
    }
}

/// Open files of an epoch with fixed lengths, so that appends and deletions can proceed during the replay.
#[derive(Debug)]
pub(crate) struct Replay {
    files: Vec<(FileId, FullFile, u64)>,
    from: SequenceNumber,
}

impl Replay {
    /// Calls `visit` for each entry from the start of the replay up to, but not including, `end`; without `end`, up to
    /// the last entry. An append of unknown outcome may be stored twice; its entries are passed once.
    pub(crate) fn run(
        self,
        end: Option<SequenceNumber>,
        visit: &mut dyn FnMut(SequenceNumber, Bytes) -> Result<()>,
    ) -> Result<()> {
        let mut next = Some(self.from);
        for (id, file, length) in self.files {
            let walked = walk(id, file, length, &mut |sequence, payload| {
                let is_inside = end.is_none_or(|end| sequence < end);
                if is_inside && next.is_some_and(|next| sequence >= next) {
                    next = sequence.0.checked_add(1).map(SequenceNumber);
                    return visit(sequence, Bytes::from(std::mem::take(payload)));
                }
                Ok(())
            })?
            .undamaged()?;
            if walked.intact_bytes < length {
                return Err(BackendError::corrupt(format!(
                    "{} ends at byte {} of {length}",
                    id.name(),
                    walked.intact_bytes
                )));
            }
        }
        Ok(())
    }
}
