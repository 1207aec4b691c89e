//! What is done with the files that a folder has when it is opened, checked or healed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use tideline_backend::{BackendError, Result};

use super::frame::FileId;
use super::reader::{Walk, walk};
use crate::error::at;
use crate::files::{list, sync_folder};

/// Checks every journal file of a folder without changing anything; returns entries and bytes.
pub(crate) fn verify(folder: &Path) -> Result<(u64, u64)> {
    let ids = file_ids(folder)?;
    let (mut entries, mut bytes) = (0, 0);
    for (n, &id) in ids.iter().enumerate() {
        let is_newest = ids.get(n + 1).is_none_or(|next| next.shard != id.shard);
        let path = folder.join(id.name());
        let file = File::open(&path).map_err(at(&path))?;
        let length = file.metadata().map_err(at(&path))?.len();
        let walked = walk(id, &file, length, &mut |_, _| {
            entries += 1;
            Ok(())
        })?;
        check_end(id, walked, is_newest)?;
        bytes += length;
    }
    check_generations(&ids)?;
    Ok((entries, bytes))
}

/// Makes the end of a file trustworthy: cuts what is torn, and writes again what may be in memory only, since pages
/// stay readable after a failed sync and are lost with the next power cut. Removes a file without entries.
pub(super) fn settle(folder: &Path, id: FileId) -> Result<Option<Walk>> {
    let path = folder.join(id.name());
    let failed = at(&path);
    let mut file = match OpenOptions::new().read(true).write(true).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(&failed)?,
    };
    let length = file.metadata().map_err(&failed)?.len();
    let walked = walk(id, &file, length, &mut |_, _| Ok(()))?;
    if walked.last.is_none() {
        fs::remove_file(&path).map_err(&failed)?;
        sync_folder(folder).map_err(&failed)?;
        return Ok(None);
    }
    if walked.is_torn {
        tracing::warn!(
            file = id.name(),
            from = walked.intact_bytes,
            to = length,
            "the torn end of the journal is cut"
        );
    }
    let mut rewrite = || -> io::Result<()> {
        file.set_len(walked.intact_bytes)?;
        file.seek(SeekFrom::Start(walked.synced_bytes))?;
        let mut doubtful = Vec::new();
        file.read_to_end(&mut doubtful)?;
        file.seek(SeekFrom::Start(walked.synced_bytes))?;
        file.write_all(&doubtful)?;
        file.sync_all()?;
        sync_folder(folder)
    };
    rewrite().map_err(&failed)?;
    Ok(Some(walked))
}

/// The journal files of a folder, in order. Anything else there is not ours.
pub(super) fn file_ids(folder: &Path) -> Result<Vec<FileId>> {
    let mut ids = Vec::new();
    for path in list(folder).map_err(at(folder))? {
        match path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(FileId::parse)
        {
            Some(id) => ids.push(id),
            None => tracing::warn!(path = %path.display(), "no journal file"),
        }
    }
    ids.sort_unstable();
    Ok(ids)
}

/// Only the newest file may have a torn end.
pub(super) fn check_end(id: FileId, walked: Walk, is_newest: bool) -> Result<()> {
    if is_newest || !walked.is_torn {
        return Ok(());
    }
    Err(BackendError::corrupt(format!(
        "{} is damaged at byte {} and not the newest file",
        id.name(),
        walked.intact_bytes
    )))
}

/// Files go from the front only, so a missing one in between was lost.
pub(super) fn check_generations(ids: &[FileId]) -> Result<()> {
    for pair in ids.windows(2) {
        let is_next = pair[1].generation == pair[0].generation + 1;
        if (pair[0].shard, pair[0].epoch) == (pair[1].shard, pair[1].epoch) && !is_next {
            return Err(BackendError::corrupt(format!(
                "a journal file is missing between {} and {}",
                pair[0].name(),
                pair[1].name()
            )));
        }
    }
    Ok(())
}
