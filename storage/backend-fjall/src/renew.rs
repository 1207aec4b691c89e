//! Makes the pointers of a store durable after a failure.
//!
//! fjall names the tables of a keyspace by `current`, which it renames into place. If the sync of the folder fails
//! after that rename, the new pointer is readable and the old one is on the disk: an open would go by the new one and
//! delete the tables of the old one, and the next power cut would bring the old one back. So each pointer is replaced
//! by a copy before fjall opens. Version files and tables need no copy: fjall syncs them before anything names them.
//!
//! A file beside the store notes that this is to be done, for a start after a kill. It need not be durable: after a power
//! cut nothing is in memory only.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::files::{list, remove_file, replace, sync_folder};
use crate::safety::TABLES;
use crate::verify::{CURRENT, KEYSPACES};

/// A file in the root of a store that has failed and has not been opened since. It holds the reason.
const FAILED: &str = "FAILED";
/// A file that is made and removed, so that the block with the names of a folder is written again. fjall skips files
/// whose names begin like that.
const TOUCH: &str = "._renewed";

/// Notes that a store has failed.
pub(crate) fn note_failure(root: &Path, reason: &str) -> io::Result<()> {
    fs::write(root.join(FAILED), reason)
}

/// Whether a store failed and was not opened since.
pub(crate) fn has_failed(root: &Path) -> io::Result<bool> {
    root.join(FAILED).try_exists()
}

/// Renews every pointer of the store in `store`. Three syncs for each keyspace.
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
