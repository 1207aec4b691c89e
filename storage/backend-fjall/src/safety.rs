//! Safety copy of the store's structure, kept while fjall opens the store.
//!
//! Each open first hard-links all tables, which needs no space. So tables that the open deletes by mistake still exist.
//! The small files that name the tables are copied into one file. The copy is removed once the open has succeeded.
//! After a refused open the copy remains, and an operator can restore the store from it. The copy is one flat folder
//! with few small files, because each file costs time at every start.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::files::{list, remove_folder};
use crate::verify::KEYSPACES;

/// Folder of the copy.
pub(crate) const SAFETY: &str = "safety";
/// File of the copy with every `current` and version file: for each file, a line with path and length, then the bytes.
const VERSIONS: &str = "versions";
/// fjall's folder of tables inside a keyspace. A table never changes, so a link is as good as a copy.
pub(crate) const TABLES: &str = "tables";

/// Copies the structure of `store` to `safety` in `root`, replacing an older copy. The name of a link consists of the
/// number of the keyspace and the name of the table, joined by a hyphen.
pub(crate) fn make(root: &Path, store: &Path) -> io::Result<()> {
    let safety = root.join(SAFETY);
    remove_folder(&safety)?;
    fs::create_dir_all(&safety)?;
    let mut versions = BufWriter::new(File::create(safety.join(VERSIONS))?);
    for keyspace in list(&store.join(KEYSPACES))? {
        let Some(number) = name(&keyspace).filter(|_| keyspace.is_dir()) else {
            continue;
        };
        for file in list(&keyspace)? {
            if let Some(name) = name(&file).filter(|name| *name != TABLES) {
                let content = fs::read(&file)?;
                writeln!(versions, "{number}/{name} {}", content.len())?;
                versions.write_all(&content)?;
            }
        }
        for table in list(&keyspace.join(TABLES))? {
            if let Some(name) = name(&table) {
                fs::hard_link(&table, safety.join(format!("{number}-{name}")))?;
            }
        }
    }
    versions.flush()
}

/// Removes the copy.
pub(crate) fn remove(root: &Path) -> io::Result<()> {
    remove_folder(&root.join(SAFETY))
}

fn name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_holds_small_files_and_links_to_tables() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = folder.path().join("store");
        let keyspace = store.join(KEYSPACES).join("7");
        fs::create_dir_all(keyspace.join(TABLES)).expect("a folder");
        fs::write(keyspace.join("current"), b"abc").expect("write");
        fs::write(keyspace.join(TABLES).join("12"), b"a table").expect("write");
        for _ in 0..2 {
            make(folder.path(), &store).expect("make");
        }
        fs::remove_dir_all(&store).expect("lose everything");
        let safety = folder.path().join(SAFETY);
        assert_eq!(fs::read(safety.join("7-12")).expect("read"), b"a table");
        let versions = fs::read(safety.join(VERSIONS)).expect("read");
        assert_eq!(versions, b"7/current 3\nabc");
        remove(folder.path()).expect("remove");
        assert!(!safety.exists());
    }
}
