//! Data folder for tests, and its crash clones.
//!
//! A crash clone is a copy of the folder while the backend is open. Golden folders are unpacked from a single file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;
use tempfile::TempDir;
use tideline_backend::{
    Backend, Direction, Epoch, JournalEntry, KeyRange, PageLimit, Partition, Result, Row, RowChange,
    SegmentRef, Shard, Space, Stamp,
};
use tideline_backend_fjall::{FjallBackend, FjallOptions};
use tideline_model::{Durability, GroupId, SegmentId, SequenceNumber, Tier};

pub(crate) const SHARD: Shard = Shard(0);
pub(crate) const ROWS: Partition = Partition::space(Space(1), 0);
pub(crate) const SEGMENT: SegmentRef = SegmentRef {
    segment: SegmentId(5),
    group: GroupId(2),
    tier: Tier::Hot,
};

pub(crate) const COLD: SegmentRef = SegmentRef {
    segment: SegmentId(6),
    group: GroupId(3),
    tier: Tier::Cold,
};

/// Data folder that is removed when the value is dropped.
pub(crate) struct TestFolder(TempDir);

impl TestFolder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn open(&self) -> Result<FjallBackend> {
        self.open_with(options())
    }

    pub(crate) fn open_with(&self, options: FjallOptions) -> Result<FjallBackend> {
        FjallBackend::open(self.path(), options)
    }

    /// Copies the folder as a crash would leave it while the backend is open.
    pub(crate) fn clone_as_after_a_crash(&self) -> Self {
        // The threads of fjall may be active: a copy is consistent only if no file changed while it was made.
        loop {
            let clone = Self::new();
            let before = state(self.path());
            let is_copied = copy_folder(self.path(), clone.path()).is_ok();
            if is_copied && before.is_ok_and(|before| state(self.path()).is_ok_and(|after| before == after)) {
                return clone;
            }
        }
    }

    /// Unpacks the data folder in a golden file. Each entry is a line with path, length and number of stored bytes,
    /// followed by these bytes. An unpacked file is padded with zeros to its length. The path of a folder ends in a
    /// slash.
    pub(crate) fn unpack(mut golden: &[u8]) -> Self {
        let test_folder = Self::new();
        while !golden.is_empty() {
            let end = golden.iter().position(|byte| *byte == b'\n').expect("a line");
            let line = std::str::from_utf8(&golden[..end]).expect("text");
            let [name, length, stored] = line
                .split(' ')
                .collect::<Vec<_>>()
                .try_into()
                .expect("three words");
            let stored: usize = stored.parse().expect("a number");
            let (content, rest) = golden[end + 1..].split_at(stored);
            golden = rest;
            let path = test_folder.path().join(name);
            if name.ends_with('/') {
                fs::create_dir_all(path).expect("a folder");
                continue;
            }
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(&path, content).expect("write");
            let file = fs::OpenOptions::new().write(true).open(path).expect("open");
            file.set_len(length.parse().expect("a number"))
                .expect("set the length");
        }
        test_folder
    }

    /// Returns the newest journal file.
    pub(crate) fn journal(&self) -> PathBuf {
        let mut files = files(&self.path().join("journal"));
        files.sort();
        files.pop().expect("a journal file")
    }
}

pub(crate) fn options() -> FjallOptions {
    FjallOptions {
        cache_bytes: 4 << 20,
        worker_threads: 1,
        free_bytes_min: 0,
        free_per_mille_min: 0,
        ..FjallOptions::default()
    }
}

/// Returns every file in a folder, recursively.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// Returns every file and subfolder of a folder, recursively, with size and time of change.
pub(crate) fn state(folder: &Path) -> io::Result<Vec<(PathBuf, u64, SystemTime)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let metadata = fs::metadata(&path)?;
        if metadata.is_dir() {
            found.extend(state(&path)?);
        }
        found.push((path, metadata.len(), metadata.modified()?));
    }
    found.sort();
    Ok(found)
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let copy = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy_folder(&path, &copy)?;
        } else {
            copy_file(&path, &copy)?;
        }
    }
    Ok(())
}

/// Copies a file without writing its trailing zeros, which fill most of fjall's 64 MiB logs. The copy is sparse and has
/// the same length.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let content = fs::read(from)?;
    let length = content.len() as u64;
    let end = content
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    fs::write(to, &content[..end])?;
    let file = fs::OpenOptions::new().write(true).open(to)?;
    file.set_len(length)
}

pub(crate) fn append(backend: &FjallBackend, epoch: Epoch, sequence: u64, durability: Durability) {
    let entry = JournalEntry {
        sequence: SequenceNumber(sequence),
        value: value(sequence),
    };
    backend
        .append(SHARD, epoch, &[entry], durability)
        .expect("append");
}

fn value(sequence: u64) -> Bytes {
    Bytes::from(vec![sequence as u8; 100 + (sequence % 50) as usize])
}

pub(crate) fn replay(backend: &FjallBackend, epoch: Epoch) -> Vec<u64> {
    let mut seen = Vec::new();
    backend
        .replay(SHARD, epoch, SequenceNumber(0), &mut |sequence, bytes| {
            assert_eq!(bytes, value(sequence.0));
            seen.push(sequence.0);
            Ok(())
        })
        .expect("replay");
    seen
}

pub(crate) fn write(backend: &FjallBackend, n: u64) -> Result<()> {
    let change = RowChange {
        key: Bytes::copy_from_slice(&n.to_be_bytes()),
        value: Some(Bytes::from_static(b"a value")),
    };
    backend.write(ROWS, &[change], Stamp(n), Durability::Synced)
}

pub(crate) fn load(backend: &FjallBackend, segment: SegmentRef) {
    load_bucket(backend, segment, 0);
}

pub(crate) fn load_bucket(backend: &FjallBackend, segment: SegmentRef, bucket: u16) {
    let mut rows = (0..100_u64).map(|n| {
        Ok(Row {
            key: Bytes::copy_from_slice(&n.to_be_bytes()),
            value: Bytes::from(vec![n as u8; 1_000]),
        })
    });
    backend.load(segment, bucket, &mut rows).expect("load");
}

pub(crate) fn count(backend: &FjallBackend, partition: Partition) -> Result<usize> {
    let limit = PageLimit {
        rows_max: usize::MAX,
        bytes_max: usize::MAX,
    };
    let page = backend.scan(partition, &KeyRange::ALL, Direction::Ascending, limit)?;
    Ok(page.rows.len())
}
