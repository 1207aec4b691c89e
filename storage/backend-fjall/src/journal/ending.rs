//! Durable copy of the end of a journal file, kept while that end is rewritten.
//!
//! A kill may leave the file truncated. While the copy exists, the content of the journal is therefore read from two
//! files: the bytes before the end from the journal file, then the copy.

use std::fs::{self, File};
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::frame::FileId;
use crate::files::{remove_file, replace};

/// Last part of the name of a copy. The whole name is the name of the journal file followed by `.end`.
pub(super) const SUFFIX: &str = ".journal.end";
const MAGIC: [u8; 8] = *b"TLJRNEND";
const HEADER_BYTES: usize = 24;

/// Bytes of a file from offset `from` on.
#[derive(Debug)]
pub(super) struct Ending {
    from: u64,
    bytes: Vec<u8>,
}

impl Ending {
    /// Writes the copy of the bytes from offset `from` on, durably.
    pub(super) fn write(folder: &Path, id: FileId, from: u64, bytes: &[u8]) -> io::Result<()> {
        let mut content = Vec::with_capacity(HEADER_BYTES + bytes.len());
        content.extend_from_slice(&MAGIC);
        content.extend_from_slice(&from.to_le_bytes());
        content.extend_from_slice(&checksum(id, from, bytes).to_le_bytes());
        content.extend_from_slice(bytes);
        replace(folder, &[&name(id)], &content)
    }

    /// Reads the copy; `None` if it is missing or incomplete.
    fn read(folder: &Path, id: FileId) -> io::Result<Option<Self>> {
        let content = match fs::read(path(folder, id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        let parse = || {
            let (magic, rest) = content.split_first_chunk::<8>()?;
            let (from, rest) = rest.split_first_chunk()?;
            let (stored, bytes) = rest.split_first_chunk()?;
            let from = u64::from_le_bytes(*from);
            let is_whole = *magic == MAGIC && u64::from_le_bytes(*stored) == checksum(id, from, bytes);
            is_whole.then(|| Self {
                from,
                bytes: bytes.to_vec(),
            })
        };
        Ok(parse())
    }

    /// Returns true if the copy exists.
    pub(super) fn is_there(folder: &Path, id: FileId) -> io::Result<bool> {
        path(folder, id).try_exists()
    }

    /// Removes the copy if it exists.
    pub(super) fn remove(folder: &Path, id: FileId) -> io::Result<()> {
        remove_file(&path(folder, id))
    }
}

/// Reader of all bytes of a journal file. Reads the end from the copy, if a complete copy exists.
#[derive(Debug)]
pub(super) struct FullFile {
    reader: io::Chain<io::Take<File>, Cursor<Vec<u8>>>,
    pub(super) length: u64,
}

impl FullFile {
    /// Opens a file.
    pub(super) fn open(folder: &Path, id: FileId) -> io::Result<Self> {
        let file = File::open(folder.join(id.name()))?;
        let length = file.metadata()?.len();
        let ending = Ending::read(folder, id)?.filter(|ending| ending.from <= length);
        let (from, end) = ending.map_or((length, Vec::new()), |ending| (ending.from, ending.bytes));
        Ok(Self {
            length: from + end.len() as u64,
            reader: file.take(from).chain(Cursor::new(end)),
        })
    }
}

impl Read for FullFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

fn name(id: FileId) -> String {
    format!("{}.end", id.name())
}

fn path(folder: &Path, id: FileId) -> PathBuf {
    folder.join(name(id))
}

fn checksum(id: FileId, from: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, xxh3_64_with_seed(&from.to_le_bytes(), id.seed()))
}
