//! Recovery of journal files when a folder is opened, checked or repaired.
//!
//! A survey reads and checks all files and changes nothing. A cut drops damaged parts after an operator has accepted
//! their loss. Settling replaces doubtful bytes by durable copies; after a failed sync, such bytes may exist in
//! memory only.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use tideline_backend::{BackendError, Result};

use super::ending::{Ending, FullFile, SUFFIX};
use super::frame::{FileId, Rest};
use super::reader::{Walk, walk};
use crate::error::at;
use crate::files::{NEW, Renewal, list, put_in_place, remove_file, sync_folder};
use crate::lost::LostFolder;

/// Result of reading every journal file of a folder, without changing anything.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Usable files in order, each with the result of its walk.
    pub(super) kept: Vec<(FileId, Walk)>,
    /// Parts that are dropped if an operator accepts the loss, in order.
    lost: Vec<Lost>,
    /// Number of entries in the usable files.
    pub(crate) entries: u64,
    /// Size of all files, in bytes.
    pub(crate) bytes: u64,
}

/// File of which some or all bytes cannot be used.
#[derive(Debug)]
struct Lost {
    id: FileId,
    reason: String,
    /// Range of the lost bytes. The range starts at `0` if the whole file is lost.
    bytes: Range<u64>,
    rest: Rest,
}

/// Reads every journal file of a folder.
///
/// Entries of an epoch depend on those before them, so an epoch ends at its first damage.
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
    /// Describes the damage, one sentence per file.
    pub(crate) fn findings(&self) -> Vec<String> {
        self.lost.iter().map(ToString::to_string).collect()
    }

    /// Returns an error if there is damage. If the loss is accepted, instead drops everything from the damage on, and
    /// keeps links to the files and a report in `root`.
    pub(super) fn cut(&mut self, folder: &Path, root: &Path, accept_loss: bool) -> Result<()> {
        if self.lost.is_empty() {
            return Ok(());
        }
        let report = self.findings();
        if !accept_loss {
            return Err(BackendError::corrupt(format!(
                "{}. Restore the folder, or start once with accept_loss to continue without these bytes",
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
            // The newest file is removed first, so that a kill between two removals leaves no undetected gap.
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
        let file = FullFile::open(folder, id).map_err(at(&path))?;
        let length = file.length;
        self.bytes += length;
        let walked = walk(id, file, length, &mut |_, _| Ok(()))?;
        let is_cut = before.is_some_and(|before| self.lost.last().is_some_and(|lost| lost.id == before));
        let gap = before.filter(|before| before.generation + 1 != id.generation);
        let (damage, from) = if is_cut {
            (Some(format!("{} follows a damaged file", id.name())), 0)
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
        // A damaged file without entries is lost as a whole.
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

/// Makes a file durable: replaces it by a durable copy of its intact part within the first `length` bytes. The original
/// is not trusted: after a failed sync its pages may be readable but lost with the next power cut. Removes a file
/// without entries. Returns `None` if the file has no entries or does not exist.
pub(super) fn settle(folder: &Path, id: FileId, length: u64) -> Result<Option<Walk>> {
    let path = folder.join(id.name());
    let failed = at(&path);
    let file = match FullFile::open(folder, id) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(&failed)?,
    };
    let length = length.min(file.length);
    let mut renewal = Renewal::start(&path, file.take(length)).map_err(&failed)?;
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

/// Makes a file of an earlier run durable at a start, like [`settle`]. The earlier run may have been killed after a
/// failed sync.
///
/// Only the bytes after the last known sync are doubtful. A durable copy of the doubtful bytes is written first. Then
/// the file is truncated at the first doubtful byte, and the same bytes are appended, so that their blocks are written
/// again. Copying a whole journal would double the time of a start. The whole file is copied only if more than half of
/// its intact bytes are doubtful, or if an earlier rewrite was interrupted.
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
        // If a power cut undoes the removal, the file holds the same bytes as the copy.
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

/// Removes copies that a kill left unfinished, and copies of the ends of files that no longer exist.
pub(super) fn remove_leftovers(folder: &Path) -> io::Result<()> {
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

/// Returns the journal files of a folder, in order. Other files are ignored.
pub(super) fn file_ids(folder: &Path) -> Result<Vec<FileId>> {
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
