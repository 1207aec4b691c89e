//! Saved searches: search conditions that users store under a name.
//!
//! The catalog keeps their text and does not parse it. A change is committed to the journal before it becomes
//! visible; the next flush writes its row.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tideline_backend::{Backend, Stamp};
use tideline_key_codec::{parse_named_key, space};
use tideline_model::TableId;
use xxhash_rust::xxh3::xxh3_64;

use crate::catalog::Catalog;
use crate::change::{Changed, Commit, EntryRows, RowKind};
use crate::store::{ROWS_AT_ONCE, each_row};
use crate::unsaved_rows::UnsavedRows;
use crate::{CatalogError, Result};

/// Maximum number of saved searches per table.
pub const SEARCHES_MAX: usize = 1_000;
/// Maximum length of the name of a search, in bytes.
pub const SEARCH_NAME_BYTES_MAX: usize = 128;
/// Maximum length of the text of a search, in bytes.
pub const SEARCH_TEXT_BYTES_MAX: usize = 64 << 10;
/// Number of rows per write, which keeps a write within its byte limit.
const ROWS_PER_WRITE: usize = 32;
/// Version of the row layout.
const VERSION: u8 = 1;

/// The saved searches of one table.
#[derive(Debug)]
pub struct SavedSearches {
    table: TableId,
    saved: RwLock<Saved>,
    /// Held while a search is changed, until the log has responded.
    editing: Mutex<()>,
    /// Names of searches whose row may differ from memory.
    unsaved: UnsavedRows,
}

#[derive(Debug, Default)]
struct Saved {
    by_name: BTreeMap<String, Arc<str>>,
    /// Bytes of all searches, as defined by [`bytes_of`].
    bytes: u64,
}

impl Saved {
    /// Replaces a search; `None` deletes it.
    fn set(&mut self, name: String, text: Option<Arc<str>>) {
        self.bytes += text.as_ref().map_or(0, |text| bytes_of(&name, text));
        let bytes_before = |before: &Arc<str>| bytes_of(&name, before);
        self.bytes -= self.by_name.get(&name).map_or(0, bytes_before);
        match text {
            Some(text) => self.by_name.insert(name, text),
            None => self.by_name.remove(&name),
        };
    }
}

/// Returns the bytes of a search in memory: its name and its text.
pub fn bytes_of(name: &str, text: &str) -> u64 {
    (name.len() + text.len()) as u64
}

impl SavedSearches {
    pub(crate) fn new(table: TableId) -> Self {
        Self {
            table,
            saved: RwLock::default(),
            editing: Mutex::default(),
            unsaved: UnsavedRows::new(space::SEARCHES, table, ROWS_PER_WRITE),
        }
    }

    /// Reads all rows of the table.
    pub(crate) fn load(&self, backend: &dyn Backend) -> Result<()> {
        each_row(backend, space::SEARCHES, self.table, ROWS_AT_ONCE, &mut |rows| {
            for row in rows {
                let (_, name) = parse_named_key(&row.key).ok_or(CatalogError::DamagedKey(row.key.len()))?;
                let name = std::str::from_utf8(name).map_err(|_| CatalogError::DamagedKey(row.key.len()))?;
                let text =
                    decode(name, &row.value).ok_or_else(|| CatalogError::DamagedSearch(name.to_owned()))?;
                self.saved.write().set(name.to_owned(), Some(text));
            }
            Ok(())
        })
    }

    /// Returns the text of a search; `None` if no search has this name.
    pub fn get(&self, name: &str) -> Option<Arc<str>> {
        self.saved.read().by_name.get(name).cloned()
    }

    /// Returns all searches, sorted by name.
    pub fn all(&self) -> Vec<(String, Arc<str>)> {
        let saved = self.saved.read();
        let all = saved.by_name.iter();
        all.map(|(name, text)| (name.clone(), Arc::clone(text))).collect()
    }

    /// Returns the bytes of all names and texts, which are in memory.
    pub fn bytes(&self) -> u64 {
        self.saved.read().bytes
    }

    /// Applies a committed change; `None` deletes the search.
    pub(crate) fn apply(&self, name: String, text: Option<Arc<str>>) {
        let mut saved = self.saved.write();
        self.unsaved.add(&mut saved, [name.as_str().into()]);
        saved.set(name, text);
    }

    /// Applies a row of a replayed journal entry, like [`apply`](Self::apply).
    pub(crate) fn replay(&self, name: &str, row: Option<&[u8]>) -> Result<()> {
        let damaged = || CatalogError::DamagedSearch(name.to_owned());
        let text = row.map(|row| decode(name, row).ok_or_else(damaged)).transpose()?;
        self.apply(name.to_owned(), text);
        Ok(())
    }

    /// Writes the rows that are not durable yet, without a sync, and returns their names.
    pub(crate) fn write_rows(
        &self,
        backend: &dyn Backend,
        stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
    ) -> Result<BTreeSet<Box<str>>> {
        let row = |name: &str| self.get(name).map(|text| encode(name, &text).into());
        self.unsaved.write(backend, stamp, row)
    }

    /// Marks written rows as durable.
    pub(crate) fn rows_synced(&self, written: &BTreeSet<Box<str>>) {
        self.unsaved.synced(written);
    }
}

impl Catalog {
    /// Saves a search under a name and replaces an existing one. The change is durable and visible on return.
    ///
    /// A name has 1 to [`SEARCH_NAME_BYTES_MAX`] ASCII letters, digits, dots, dashes and underscores.
    ///
    /// # Errors
    ///
    /// [`CatalogError::InvalidSearchName`] for an invalid name, [`CatalogError::OverLimit`] if the name or text is
    /// too long or the table has [`SEARCHES_MAX`] searches, [`CatalogError::NotCommitted`] if the commit fails.
    pub fn put_search(self: &Arc<Self>, name: &str, text: &str, commit: &Commit<'_>) -> Result<()> {
        check_name(name)?;
        let over = |what, limit, actual| Err(CatalogError::OverLimit { what, limit, actual });
        if text.len() > SEARCH_TEXT_BYTES_MAX {
            return over("bytes of a saved search", SEARCH_TEXT_BYTES_MAX, text.len());
        }
        let _editing = self.searches.editing.lock();
        let is_new = self.searches.get(name).is_none();
        let count = self.searches.saved.read().by_name.len() + usize::from(is_new);
        if count > SEARCHES_MAX {
            return over("saved searches of a table", SEARCHES_MAX, count);
        }
        self.change_search(name, Some(text), commit)
    }

    /// Deletes a search durably. Returns false if it does not exist.
    ///
    /// # Errors
    ///
    /// [`CatalogError::NotCommitted`] if the commit fails.
    pub fn delete_search(self: &Arc<Self>, name: &str, commit: &Commit<'_>) -> Result<bool> {
        let _editing = self.searches.editing.lock();
        if self.searches.get(name).is_none() {
            return Ok(false);
        }
        self.change_search(name, None, commit)?;
        Ok(true)
    }

    fn change_search(self: &Arc<Self>, name: &str, text: Option<&str>, commit: &Commit<'_>) -> Result<()> {
        let mut rows = EntryRows::new(self.table);
        let row = text.map(|text| encode(name, text));
        rows.push(RowKind::Search, name.as_bytes(), row.as_deref());
        let changed = Changed::Search(name.to_owned(), text.map(Arc::from));
        Ok(self.commit(rows, changed, commit)?)
    }
}

fn check_name(name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_plain) {
        let shown = name.chars().take(80).collect();
        return Err(CatalogError::InvalidSearchName(shown));
    }
    if name.len() > SEARCH_NAME_BYTES_MAX {
        return Err(CatalogError::OverLimit {
            what: "bytes of the name of a search",
            limit: SEARCH_NAME_BYTES_MAX,
            actual: name.len(),
        });
    }
    Ok(())
}

/// Encodes the row of a search, as specified in `FORMAT.md`.
fn encode(name: &str, text: &str) -> Vec<u8> {
    let mut row = vec![VERSION];
    row.extend_from_slice(text.as_bytes());
    let checksum = checksum(name, &row);
    row.extend_from_slice(&checksum);
    row
}

fn decode(name: &str, row: &[u8]) -> Option<Arc<str>> {
    let (content, stored) = row.split_last_chunk::<4>()?;
    if checksum(name, content) != *stored {
        return None;
    }
    let (&VERSION, text) = content.split_first()? else {
        return None;
    };
    std::str::from_utf8(text).ok().map(Arc::from)
}

/// Returns a checksum that binds a row to its name.
fn checksum(name: &str, content: &[u8]) -> [u8; 4] {
    let all = [name.as_bytes(), content].concat();
    (xxh3_64(&all) as u32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};

    use super::*;
    use crate::ChangeLog;
    use crate::change::tests::{Journal, catalog, options, save};
    use crate::unsaved_rows::tests::assert_added_under_lock;

    /// Rows are stored on disk: these bytes must remain readable forever.
    #[test]
    fn golden_row() {
        let golden = [&[1][..], br#"{"where":{"and":[]}}"#, &[160, 108, 255, 32]].concat();
        assert_eq!(encode("mine", r#"{"where":{"and":[]}}"#), golden);
        assert_eq!(
            decode("mine", &golden).as_deref(),
            Some(r#"{"where":{"and":[]}}"#)
        );
        assert_eq!(decode("other", &golden), None, "a row belongs to its name");
        for at in 0..golden.len() * 8 {
            let mut flipped = golden.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            assert_eq!(decode("mine", &flipped), None, "bit {at}");
        }
    }

    #[test]
    fn a_search_is_unsaved_only_once_no_flush_can_write_its_old_text() {
        let searches = SavedSearches::new(TableId(7));
        let apply = || searches.apply("mine".into(), Some("new".into()));
        assert_added_under_lock(&searches.saved, &searches.unsaved, apply);
    }

    #[test]
    fn searches_are_replayed_saved_replaced_and_deleted() {
        let disk = MemoryDisk::new(Character::Embedded);
        let backend = MemoryBackend::open(&disk);
        let mut count = 0;
        let mut stamp = || {
            count += 1;
            Ok(Stamp(count))
        };
        let journal = Journal::default();
        let (mine, other) = (catalog(TableId(7)), catalog(TableId(8)));
        for (name, text) in [("b", "1"), ("a.b-C_9", "2"), ("b", "3")] {
            mine.put_search(name, text, &journal.commit()).expect("committed");
        }
        other
            .put_search("b", "other", &Journal::default().commit())
            .expect("committed");
        save(&other, &backend, &mut stamp).expect("written");
        let delete = || {
            mine.delete_search("a.b-C_9", &journal.commit())
                .expect("committed")
        };
        assert_eq!((delete(), delete()), (true, false));
        let expected = [("b".to_owned(), Arc::from("3"))];
        assert_eq!(mine.searches().all(), expected);
        assert_eq!(mine.searches().bytes(), 2);
        let load = |table| Catalog::load(&backend, TableId(table), options()).expect("sound rows");
        for is_saved in [false, true] {
            if is_saved {
                save(&mine, &backend, &mut stamp).expect("written");
                assert_eq!(load(7).searches().all(), expected);
                assert_eq!(load(7).searches().bytes(), 2);
            }
            let replayed = load(7);
            journal.replay(&replayed);
            assert_eq!(replayed.searches().all(), expected);
            assert_eq!(replayed.searches().bytes(), 2);
        }
        Catalog::remove_all(&backend, TableId(7), &ChangeLog::default(), &mut stamp).expect("written");
        for (table, left) in [(7, 0), (8, 1)] {
            assert_eq!(load(table).searches().all().len(), left);
        }
        for (name, said) in [
            ("", "letters, digits"),
            ("a/b", "letters, digits"),
            (&"a".repeat(129), "129 is over the limit of 128"),
        ] {
            let refused = mine
                .put_search(name, "", &journal.commit())
                .expect_err(said)
                .to_string();
            assert!(refused.contains(said), "{refused}");
        }
        let long = "x".repeat(SEARCH_TEXT_BYTES_MAX + 1);
        assert!(mine.put_search("x", &long, &journal.commit()).is_err());
    }
}
