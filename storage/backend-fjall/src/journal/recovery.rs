//! What is done with the files that a folder has when it is opened, checked or healed.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use tideline_backend::{BackendError, Result};

use super::ending::{Ending, SUFFIX, Whole};
use super::frame::{FileId, Rest};
use super::reader::{Walk, walk};
use crate::error::at;
use crate::files::{NEW, Renewal, list, put_in_place, remove_file, sync_folder};
use crate::lost::LostFolder;

/// Every journal file of a folder, read and judged; nothing has been changed.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The files that are used, in order, with what they hold.
    pub(super) kept: Vec<(FileId, Walk)>,
    /// Parts that an open would lose, in order.
    lost: Vec<Lost>,
    /// Entries of the files that are used.
    pub(crate) entries: u64,
    /// Bytes of all files.
    pub(crate) bytes: u64,
}

/// A file of which not everything can be used.
#[derive(Debug)]
struct Lost {
    id: FileId,
    reason: String,
    /// From where it is cut; from `0` if all of it is lost.
    bytes: Range<u64>,
    rest: Rest,
}

/// Reads every journal file of a folder.
///
/// Entries of an epoch build on those before them, so an epoch ends at its first damage.
pub(crate) fn survey(folder: &Path) -> Result<Survey> {
    let ids = file_ids(folder)?;
    let mut survey = Survey::default();
    for (n, &id) in ids.iter().enumerate() {
        let before = n.checked_sub(1).map(|n| ids[n]);
        let before = before.filter(|before| (before.shard, before.epoch) == (id.shard, id.epoch));
        let is_newest = ids.get(n + 1).is_none_or(|next| next.shard != id.shard);
        survey.add(folder, id, before, is_newest)?;
    }
    Ok(survey)
}

impl Survey {
    /// Damage, one sentence for each file.
    pub(crate) fn findings(&self) -> Vec<String> {
        self.lost.iter().map(ToString::to_string).collect()
    }

    /// Refuses damage, or drops everything from it on: of that a copy and a report are kept in `root`.
    pub(super) fn cut(&mut self, folder: &Path, root: &Path, accept_loss: bool) -> Result<()> {
        if self.lost.is_empty() {
            return Ok(());
        }
        let report = self.findings();
        if !accept_loss {
            return Err(BackendError::corrupt(format!(
                "{}. Restore the folder, or start once with accept_loss, which goes on without these bytes",
                report.join("; ")
            )));
        }
        let lost = std::mem::take(&mut self.lost);
        let cut = || -> io::Result<()> {
            let aside = LostFolder::create(root, &report)?;
            for file in &lost {
                aside.keep(&folder.join(file.id.name()))?;
                Ending::remove(folder, file.id)?;
            }
            sync_folder(folder)?;
            // The newest goes first, so that a kill in between leaves no gap that is not noticed.
            for file in lost.iter().rev().filter(|file| file.bytes.start == 0) {
                fs::remove_file(folder.join(file.id.name()))?;
                sync_folder(folder)?;
            }
            Ok(())
        };
        cut().map_err(at(folder))?;
        for file in lost.iter().filter(|file| file.bytes.start > 0) {
            settle(folder, file.id, file.bytes.start)?;
        }
        Ok(())
    }

    fn add(&mut self, folder: &Path, id: FileId, before: Option<FileId>, is_newest: bool) -> Result<()> {
        let path = folder.join(id.name());
        let whole = Whole::open(folder, id).map_err(at(&path))?;
        let length = whole.length;
        self.bytes += length;
        let walked = walk(id, whole, length, &mut |_, _| Ok(()))?;
        let is_cut = before.is_some_and(|before| self.lost.last().is_some_and(|lost| lost.id == before));
        let gap = before.filter(|before| before.generation + 1 != id.generation);
        let (damage, from) = if is_cut {
            (Some(format!("{} follows what is damaged", id.name())), 0)
        } else if let Some(before) = gap {
            let (before, after) = (before.name(), id.name());
            let reason = format!("a journal file is missing between {before} and {after}");
            (Some(reason), 0)
        } else if walked.is_torn && !is_newest {
            let at = walked.intact_bytes;
            let reason = format!("{} is damaged at byte {at} and not the newest file", id.name());
            (Some(reason), at)
        } else {
            (walked.damage.clone(), walked.intact_bytes)
        };
        // A header without entries is of no use.
        let from = walked.last.map_or(0, |_| from);
        let is_kept = damage.is_none() || from > 0;
        if let Some(reason) = damage {
            let content = fs::read(&path).map_err(at(&path))?;
            let rest = content.get(from as usize..).unwrap_or_default();
            self.lost.push(Lost {
                id,
                reason,
                bytes: from..length,
                rest: Rest::search(rest, from, id.seed(), None),
            });
        }
        if is_kept {
            self.entries += walked.entries;
            self.kept.push((id, walked));
        }
        Ok(())
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.bytes;
        write!(f, "{}: bytes {start} to {end} hold {}", self.reason, self.rest)
    }
}

/// Makes a file trustworthy: puts a durable copy of its intact part, within the first `length` bytes, in its place, since
/// pages stay readable after a failed sync and are lost with the next power cut. Removes a file without entries.
pub(super) fn settle(folder: &Path, id: FileId, length: u64) -> Result<Option<Walk>> {
    let path = folder.join(id.name());
    let failed = at(&path);
    let whole = match Whole::open(folder, id) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(&failed)?,
    };
    let length = length.min(whole.length);
    let mut renewal = Renewal::start(&path, whole.take(length)).map_err(&failed)?;
    let walked = walk(id, &mut renewal, length, &mut |_, _| Ok(()))?.undamaged()?;
    if walked.last.is_none() {
        drop(renewal);
        return remove(folder, id).map(|()| None);
    }
    report_torn_end(id, &walked, length);
    renewal
        .finish(walked.intact_bytes)
        .and_then(|()| put_in_place(&path))
        .and_then(|()| Ending::remove(folder, id))
        .and_then(|()| sync_folder(folder))
        .map_err(&failed)?;
    Ok(Some(walked))
}

/// Does the same at a start, for what a run has left that may have been killed after a failed sync.
///
/// Only the part after the last known sync is doubtful. It is written again with the blocks that it lies in: the file is
/// cut before it and extended by it, while a durable copy of it is kept. Copying all of a journal would double the time
/// of a start.
pub(super) fn settle_end(folder: &Path, id: FileId) -> Result<Option<Walk>> {
    let path = folder.join(id.name());
    let failed = at(&path);
    if Ending::is_there(folder, id).map_err(&failed)? {
        return settle(folder, id, u64::MAX);
    }
    let file = File::options()
        .read(true)
        .write(true)
        .open(&path)
        .map_err(&failed)?;
    let length = file.metadata().map_err(&failed)?.len();
    let walked = walk(id, &file, length, &mut |_, _| Ok(()))?.undamaged()?;
    if walked.last.is_none() {
        return remove(folder, id).map(|()| None);
    }
    let doubtful = walked.intact_bytes - walked.synced_bytes;
    if doubtful > walked.synced_bytes {
        return settle(folder, id, u64::MAX);
    }
    report_torn_end(id, &walked, length);
    let mut bytes = vec![0; doubtful as usize];
    file.read_exact_at(&mut bytes, walked.synced_bytes)
        .map_err(&failed)?;
    if !Rest::search(&bytes, walked.synced_bytes, id.seed(), None)
        .unreadable
        .is_empty()
    {
        return Err(BackendError::corrupt(format!(
            "{} has changed while it was read",
            id.name()
        )));
    }
    let rewrite = || -> io::Result<()> {
        Ending::write(folder, id, walked.synced_bytes, &bytes)?;
        file.set_len(walked.synced_bytes)?;
        file.write_all_at(&bytes, walked.synced_bytes)?;
        file.sync_all()?;
        // Where the removal is undone by a power cut, the file holds the same bytes.
        Ending::remove(folder, id)
    };
    rewrite().map_err(&failed)?;
    Ok(Some(walked))
}

fn report_torn_end(id: FileId, walked: &Walk, length: u64) {
    if walked.is_torn {
        tracing::warn!(
            file = id.name(),
            from = walked.intact_bytes,
            to = length,
            "the torn end of the journal is cut"
        );
    }
}

fn remove(folder: &Path, id: FileId) -> Result<()> {
    let path = folder.join(id.name());
    fs::remove_file(&path)
        .and_then(|()| Ending::remove(folder, id))
        .and_then(|()| sync_folder(folder))
        .map_err(at(&path))
}

/// Removes copies that a kill left unfinished, and ends of files that are gone.
pub(super) fn sweep(folder: &Path) -> io::Result<()> {
    for path in list(folder)? {
        let text = path.to_string_lossy();
        let is_orphan = text.ends_with(SUFFIX) && !path.with_extension("").exists();
        if is_orphan || text.ends_with(&format!(".journal{NEW}")) || text.ends_with(&format!("{SUFFIX}{NEW}"))
        {
            remove_file(&path)?;
        }
    }
    Ok(())
}

/// The journal files of a folder, in order. Anything else there is not ours.
fn file_ids(folder: &Path) -> Result<Vec<FileId>> {
    let mut ids = Vec::new();
    for path in list(folder).map_err(at(folder))? {
        match path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(FileId::parse)
        {
            Some(id) => ids.push(id),
            None if is_part(&path) => {}
            None => tracing::warn!(path = %path.display(), "not a journal file"),
        }
    }
    ids.sort_unstable();
    Ok(ids)
}

fn is_part(path: &Path) -> bool {
    let text = path.to_string_lossy();
    text.ends_with(NEW) || text.ends_with(SUFFIX)
}
