//! List of fjall's keyspaces, kept by this backend in two checksummed copies.
//!
//! fjall deletes every keyspace folder that its meta keyspace does not name. So one flipped bit in the meta keyspace
//! can delete all data without an error. The list is compared with the folders before fjall is opened, and with fjall's
//! keyspaces afterwards. The list never names a keyspace that does not exist: a keyspace is listed after its creation
//! and before rows are stored in it. The keyspace of a group is removed from the list when it holds no more rows.
//!
//! The lists of both stores are in the data folder, so that a missing cold folder is detected.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use tideline_model::Tier;
use xxhash_rust::xxh3::xxh3_64;

use crate::files::replace;
use crate::keys::{PARTS, group_of};

/// Files that hold the list of a store.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ListFiles {
    names: [&'static str; 2],
    title: &'static str,
}

/// List of the hot store.
const HOT: ListFiles = ListFiles {
    names: ["KEYSPACES", "KEYSPACES.copy"],
    title: "tideline keyspaces 1",
};
/// List of the cold store.
const COLD: ListFiles = ListFiles {
    names: ["COLD_KEYSPACES", "COLD_KEYSPACES.copy"],
    title: "tideline cold keyspaces 1",
};

impl ListFiles {
    /// Returns the files of a tier's store.
    pub(crate) fn of(tier: Tier) -> &'static Self {
        match tier {
            Tier::Hot => &HOT,
            Tier::Cold | Tier::Archive => &COLD,
        }
    }
}

/// Numbers and names of keyspaces. The number is the name of the keyspace's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyspaceList {
    files: &'static ListFiles,
    /// Number of writes; the copy with the higher number is newer.
    generation: u64,
    names: BTreeMap<u64, String>,
}

impl KeyspaceList {
    /// Creates a list of these keyspaces.
    pub(crate) fn of(tier: Tier, keyspaces: Vec<(u64, String)>) -> Self {
        Self {
            files: ListFiles::of(tier),
            generation: 0,
            names: keyspaces.into_iter().collect(),
        }
    }

    /// Reads the newer intact copy; `None` if neither copy is intact.
    pub(crate) fn read(folder: &Path, tier: Tier) -> io::Result<Option<Self>> {
        let files = ListFiles::of(tier);
        let mut copies = Vec::new();
        for name in files.names {
            match fs::read(folder.join(name)) {
                Ok(content) => match Self::parse(&content, files) {
                    Some(list) => copies.push(list),
                    None => tracing::error!(name, "a copy of the list of keyspaces is damaged"),
                },
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(copies.into_iter().max_by_key(|list| list.generation))
    }

    /// Returns the names of the copies that exist and are damaged.
    pub(crate) fn damaged_copies(folder: &Path, tier: Tier) -> io::Result<Vec<&'static str>> {
        let files = ListFiles::of(tier);
        let mut damaged = Vec::new();
        for name in files.names {
            match fs::read(folder.join(name)) {
                Ok(content) if Self::parse(&content, files).is_none() => damaged.push(name),
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(damaged)
    }

    /// Returns true if a copy exists, intact or not.
    pub(crate) fn is_there(folder: &Path, tier: Tier) -> io::Result<bool> {
        let names = ListFiles::of(tier).names.iter();
        let there: Vec<bool> = names
            .map(|name| folder.join(name).try_exists())
            .collect::<io::Result<_>>()?;
        Ok(there.contains(&true))
    }

    /// Writes both copies.
    pub(crate) fn write(&mut self, folder: &Path) -> io::Result<()> {
        self.generation += 1;
        replace(folder, &self.files.names, self.render().as_bytes())
    }

    /// Undoes changes that could not be written. The generation stays raised, because a failed write may have stored
    /// it.
    pub(crate) fn restore(&mut self, before: Self) {
        self.names = before.names;
    }

    /// Replaces the keyspaces of the list. Returns true if that changes the list.
    pub(crate) fn set(&mut self, keyspaces: impl Iterator<Item = (u64, String)>) -> bool {
        let before = std::mem::replace(&mut self.names, keyspaces.collect());
        before != self.names
    }

    /// Adds a keyspace.
    pub(crate) fn add(&mut self, number: u64, name: &str) {
        self.names.insert(number, name.to_owned());
    }

    /// Removes a keyspace.
    pub(crate) fn remove(&mut self, number: u64) {
        self.names.remove(&number);
    }

    /// Returns true if a keyspace is listed.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.names.contains_key(&number)
    }

    /// Returns the folder numbers of all listed keyspaces.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.names.keys().copied()
    }

    /// Returns the number of listed keyspaces of groups and parts.
    pub(crate) fn filled(&self) -> usize {
        let is_filled = |name: &&String| group_of(name).is_some() || *name == PARTS;
        self.names.values().filter(is_filled).count()
    }

    /// Describes the first listed keyspace that is not among `opened`; `None` if `opened` contains all listed ones.
    pub(crate) fn missing_in(&self, opened: &[(u64, String)]) -> Option<String> {
        let mut listed = self.names.iter();
        let missing = listed.find(|(number, name)| {
            !opened
                .iter()
                .any(|(opened, title)| opened == *number && title == *name)
        });
        missing.map(|(number, name)| format!("keyspace {name} in folder {number}"))
    }

    fn render(&self) -> String {
        let mut text = format!("{}\ngeneration {}\n", self.files.title, self.generation);
        for (number, name) in &self.names {
            writeln!(text, "{number} {name}").expect("a string takes every write");
        }
        let checksum = xxh3_64(text.as_bytes());
        writeln!(text, "xxh3 {checksum:016x}").expect("a string takes every write");
        text
    }

    fn parse(content: &[u8], files: &'static ListFiles) -> Option<Self> {
        let text = std::str::from_utf8(content).ok()?;
        let mut lines = text.lines();
        if lines.next()? != files.title {
            return None;
        }
        let generation = lines.next()?.strip_prefix("generation ")?.parse().ok()?;
        let mut names = BTreeMap::new();
        for line in lines {
            let (number, name) = line.split_once(' ')?;
            if number != "xxh3" {
                names.insert(number.parse().ok()?, name.to_owned());
            }
        }
        let list = Self {
            files,
            generation,
            names,
        };
        (list.render() == text).then_some(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_seen_and_the_other_copy_is_used() {
        for tier in Tier::KEPT {
            let folder = tempfile::tempdir().expect("a folder");
            let files = ListFiles::of(tier);
            let read = || KeyspaceList::read(folder.path(), tier).expect("read");
            assert_eq!(read(), None);
            let mut list = KeyspaceList::of(tier, vec![(1, "rows".to_owned())]);
            list.write(folder.path()).expect("write");
            assert_eq!(list.filled(), 0);
            list.add(7, "g0000000000000001");
            list.write(folder.path()).expect("write");
            assert_eq!(list.filled(), 1);
            list.add(8, PARTS);
            assert_eq!(list.filled(), 2);
            list.remove(8);
            let text = list.render().into_bytes();
            for bit in 0..text.len() * 8 {
                let mut flipped = text.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(KeyspaceList::parse(&flipped, files), None, "bit {bit}");
            }
            for name in files.names {
                fs::write(folder.path().join(name), b"damaged").expect("damage");
                assert_eq!(read().as_ref(), (name == files.names[0]).then_some(&list));
            }
            assert!(KeyspaceList::is_there(folder.path(), tier).expect("look"));
        }
    }

    #[test]
    fn the_list_of_one_store_is_not_that_of_the_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut hot = KeyspaceList::of(Tier::Hot, Vec::new());
        hot.write(folder.path()).expect("write");
        assert!(!KeyspaceList::is_there(folder.path(), Tier::Cold).expect("look"));
        for (hot, cold) in HOT.names.iter().zip(COLD.names) {
            fs::copy(folder.path().join(hot), folder.path().join(cold)).expect("copy");
        }
        let cold = KeyspaceList::read(folder.path(), Tier::Cold).expect("read");
        assert_eq!(cold, None);
    }
}
