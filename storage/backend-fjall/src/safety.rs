//! A copy of the store's structure, kept while fjall opens it.
//!
//! If an open deletes what it should not, tables are still there: they are linked aside before, which costs no space,
//! and the small files that name them are copied. The copy goes when the open has been proven good; a copy that is
//! still there after a refused open is what an operator restores from.

use std::fs;
use std::io;
use std::path::Path;

use crate::files::{list, remove_folder};
use crate::verify::KEYSPACES;

/// The folder of the copy.
pub(crate) const SAFETY: &str = "safety";
/// fjall's folder of tables inside a keyspace. A table never changes, so a link is a copy.
const TABLES: &str = "tables";

/// Copies the structure of `store` to `DIR/safety`, in place of an older copy.
pub(crate) fn make(folder: &Path, store: &Path) -> io::Result<()> {
    let safety = folder.join(SAFETY);
    remove_folder(&safety)?;
    for keyspace in list(&store.join(KEYSPACES))? {
        let (true, Some(number)) = (keyspace.is_dir(), keyspace.file_name()) else {
            continue;
        };
        let copy = safety.join(KEYSPACES).join(number);
        fs::create_dir_all(copy.join(TABLES))?;
        for file in list(&keyspace)?.iter().filter(|path| path.is_file()) {
            if let Some(name) = file.file_name() {
                fs::copy(file, copy.join(name))?;
            }
        }
        for table in list(&keyspace.join(TABLES))? {
            if let Some(name) = table.file_name() {
                fs::hard_link(&table, copy.join(TABLES).join(name))?;
            }
        }
    }
    Ok(())
}

/// Removes the copy.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    remove_folder(&folder.join(SAFETY))
}
