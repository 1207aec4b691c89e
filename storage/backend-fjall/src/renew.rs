//! Renewal of a store's pointers after a failure, so that they are durable.
//!
//! The file `current` of a keyspace is a pointer to a version file, which names the tables. fjall renames a new
//! `current` into place. If the sync of the folder fails after that rename, the new pointer is readable, but the old
//! pointer is on the disk. An open would use the new pointer and delete tables that only the old version names. The
//! next power cut would then restore the old pointer. So each pointer is replaced by a copy before fjall opens the
//! store. Version files and tables need no copy: fjall syncs them before they are named.
//!
//! A file in the root of the store records that a renewal is necessary, for a start after a kill. The file need not be
//! durable: after a power cut, all readable bytes are on the disk.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::files::{list, remove_file, replace, sync_folder};
use crate::safety::TABLES;
use crate::verify::{CURRENT, KEYSPACES};

/// File in the root of a store that has failed and has not been opened since. It holds the reason.
const FAILED: &str = "FAILED";
/// File that is created and removed, so that the block with the names of a folder is written again. fjall skips files
/// whose names begin with `._`.
const TOUCH: &str = "._renewed";

/// Records that a store has failed.
pub(crate) fn note_failure(root: &Path, reason: &str) -> io::Result<()> {
    fs::write(root.join(FAILED), reason)
}

/// Returns true if a store has failed and has not been opened since.
pub(crate) fn has_failed(root: &Path) -> io::Result<bool> {
    root.join(FAILED).try_exists()
}

/// Renews every pointer of the store in `store`, then removes the record of the failure in `root`. Costs three syncs
/// per keyspace.
pub(crate) fn renew_pointers(root: &Path, store: &Path) -> io::Result<()> {
    let keyspaces = store.join(KEYSPACES);
    for keyspace in list(&keyspaces)? {
        let current = keyspace.join(CURRENT);
        if keyspace.is_dir() && current.try_exists()? {
            let tables = keyspace.join(TABLES);
            File::create(tables.join(TOUCH))?;
            remove_file(&tables.join(TOUCH))?;
            sync_folder(&tables)?;
            replace(&keyspace, &[CURRENT], &fs::read(&current)?)?;
        }
    }
    remove_file(&root.join(FAILED))
}
