//! Our own list of fjall's keyspaces, in two checksummed copies.
//!
//! fjall deletes every keyspace folder that its meta keyspace does not name, so one flipped bit there can delete
//! everything and report success. The list is compared with the folders before fjall is opened, and with what fjall
//! has opened after. It never names more than there is: a keyspace is listed after it has been created and before
//! anything is in it, and taken off the list before it is dropped.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::files::replace;

const FILE_NAMES: [&str; 2] = ["KEYSPACES", "KEYSPACES.copy"];
const TITLE: &str = "tideline keyspaces 1";

/// Folder numbers and names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeyspaceList {
    /// Counts the changes, so that the newer copy is known.
    generation: u64,
    names: BTreeMap<u64, String>,
}

impl KeyspaceList {
    /// A list of what there is.
    pub(crate) fn of(keyspaces: Vec<(u64, String)>) -> Self {
        Self {
            generation: 0,
            names: keyspaces.into_iter().collect(),
        }
    }

    /// Reads the newer intact copy; `None` if there is none.
    pub(crate) fn read(folder: &Path) -> io::Result<Option<Self>> {
        let mut copies = Vec::new();
        for name in FILE_NAMES {
            match fs::read(folder.join(name)) {
                Ok(content) => match Self::parse(&content) {
                    Some(list) => copies.push(list),
                    None => tracing::error!(name, "a copy of the list of keyspaces is damaged"),
                },
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(copies.into_iter().max_by_key(|list| list.generation))
    }

    /// Writes both copies.
    pub(crate) fn write(&mut self, folder: &Path) -> io::Result<()> {
        self.generation += 1;
        replace(folder, &FILE_NAMES, self.render().as_bytes())
    }

    /// Lists a keyspace.
    pub(crate) fn add(&mut self, number: u64, name: &str) {
        self.names.insert(number, name.to_owned());
    }

    /// Takes a keyspace off the list.
    pub(crate) fn remove(&mut self, number: u64) {
        self.names.remove(&number);
    }

    /// Every folder number.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.names.keys().copied()
    }

    /// Every folder number and name.
    pub(crate) fn entries(&self) -> Vec<(u64, String)> {
        self.names
            .iter()
            .map(|(number, name)| (*number, name.clone()))
            .collect()
    }

    /// The first listed keyspace that is not among `opened`.
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
        let mut text = format!("{TITLE}\ngeneration {}\n", self.generation);
        for (number, name) in &self.names {
            writeln!(text, "{number} {name}").expect("a string takes every write");
        }
        let checksum = xxh3_64(text.as_bytes());
        writeln!(text, "xxh3 {checksum:016x}").expect("a string takes every write");
        text
    }

    fn parse(content: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(content).ok()?;
        let mut lines = text.lines();
        if lines.next()? != TITLE {
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
        let list = Self { generation, names };
        (list.render() == text).then_some(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_seen_and_the_other_copy_is_used() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(KeyspaceList::read(folder.path()).expect("read"), None);
        let mut list = KeyspaceList::of(vec![(1, "rows".to_owned())]);
        list.write(folder.path()).expect("write");
        list.add(7, "g0000000000000001");
        list.write(folder.path()).expect("write");
        let text = list.render().into_bytes();
        for bit in 0..text.len() * 8 {
            let mut flipped = text.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(KeyspaceList::parse(&flipped), None, "bit {bit}");
        }
        for name in FILE_NAMES {
            fs::write(folder.path().join(name), b"damaged").expect("damage");
            let read = KeyspaceList::read(folder.path()).expect("read");
            assert_eq!(read.as_ref(), (name == FILE_NAMES[0]).then_some(&list));
        }
    }
}
