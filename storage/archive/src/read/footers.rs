//! What must be known of a file before its rows are read: page indexes and footer.
//!
//! One request brings them, since where they begin is stored. They are kept decoded in memory and as bytes on disk, each
//! within a budget, oldest used first to go.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};

use super::checked::{ValueColumn, checked};
use crate::copy::ArchiveFile;
use crate::digest::{sha256, sha256_hex};
use crate::error::{ArchiveError, Result, guarded};
use crate::target::Target;

/// Bytes before a footer on disk: the SHA-256 of it.
const DIGEST: usize = 32;

/// A file whose footer was read. Its name is not part of it: several files may have the same content.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) bytes: u64,
    pub(crate) metadata: ParquetMetaData,
    /// Which field and type each column of values has; of a shared file only the type is said.
    pub(crate) fields: Vec<ValueColumn>,
    pub(crate) is_shared: bool,
    /// First row of each row group, and behind the last one all rows.
    pub(crate) group_starts: Vec<u64>,
}

/// Footers of files that were read lately.
#[derive(Debug)]
pub(crate) struct Footers {
    memory: Mutex<Memory>,
    memory_max: usize,
    disk: Option<Disk>,
}

#[derive(Debug, Default)]
struct Memory {
    /// By checksum: the file, its size here, and when it was last used.
    files: HashMap<String, (Arc<OpenFile>, usize, u64)>,
    bytes: usize,
    uses: u64,
}

#[derive(Debug)]
struct Disk {
    directory: PathBuf,
    bytes_max: u64,
    /// Names with sizes, oldest first; as far as known.
    known: Mutex<std::collections::VecDeque<(String, u64)>>,
}

impl Footers {
    /// Empty ones; on disk what an earlier process has left.
    pub(crate) fn new(memory_max: usize, disk: Option<(PathBuf, u64)>) -> Result<Self> {
        let disk = disk.map(|(directory, bytes_max)| Disk::open(directory, bytes_max));
        let disk = disk.transpose()?;
        Ok(Self {
            memory: Mutex::default(),
            memory_max,
            disk,
        })
    }

    /// The file, opened if need be.
    pub(crate) fn open(&self, target: &Target, file: &ArchiveFile) -> Result<Arc<OpenFile>> {
        if let Some(open) = self.memory.lock().get(&file.sha256) {
            return Ok(open);
        }
        if file.index_from >= file.bytes {
            return Err(target.damaged(
                &file.key,
                "its footer begins behind its end, by what is stored about it",
            ));
        }
        let kept = self.disk.as_ref().and_then(|disk| disk.get(file));
        let opened = kept.and_then(|tail| open(target, file, &tail).ok());
        let opened = match opened {
            Some(opened) => opened,
            None => {
                let range = file.index_from..file.bytes;
                let tail = target.get_ranges(&file.key, std::slice::from_ref(&range))?;
                let tail = tail.into_iter().next().unwrap_or_default();
                let opened = open(target, file, &tail)?;
                if let Some(disk) = &self.disk {
                    disk.put(file, &tail);
                }
                opened
            }
        };
        let opened = Arc::new(opened);
        self.memory.lock().put(&file.sha256, &opened, self.memory_max);
        Ok(opened)
    }
}

fn open(target: &Target, file: &ArchiveFile, tail: &Bytes) -> Result<OpenFile> {
    let damaged = |reason: String| target.damaged(&file.key, reason);
    if !file.index_sha256.is_empty() && sha256_hex(tail) != file.index_sha256 {
        return Err(damaged("the checksum of its footer is another one".into()));
    }
    let mut reader = ParquetMetaDataReader::new()
        .with_column_index_policy(PageIndexPolicy::Skip)
        .with_offset_index_policy(PageIndexPolicy::Required);
    guarded(|| reader.try_parse_sized(tail, file.bytes))
        .map_err(damaged)?
        .map_err(|error| damaged(error.to_string()))?;
    let metadata = reader.finish().map_err(|error| damaged(error.to_string()))?;
    let (fields, group_starts) = checked(&metadata, file).map_err(damaged)?;
    Ok(OpenFile {
        bytes: file.bytes,
        metadata,
        fields,
        is_shared: file.shared,
        group_starts,
    })
}

impl Memory {
    fn get(&mut self, sha256: &str) -> Option<Arc<OpenFile>> {
        self.uses += 1;
        let uses = self.uses;
        let (file, _, used) = self.files.get_mut(sha256)?;
        *used = uses;
        Some(Arc::clone(file))
    }

    fn put(&mut self, sha256: &str, file: &Arc<OpenFile>, bytes_max: usize) {
        let bytes = file.metadata.memory_size() + sha256.len() + 256;
        self.uses += 1;
        if let Some((_, before, _)) = self
            .files
            .insert(sha256.to_owned(), (Arc::clone(file), bytes, self.uses))
        {
            self.bytes -= before;
        }
        self.bytes += bytes;
        while self.bytes > bytes_max && self.files.len() > 1 {
            let oldest = self.files.iter().min_by_key(|(_, (_, _, used))| *used);
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else {
                return;
            };
            if let Some((_, bytes, _)) = self.files.remove(&oldest) {
                self.bytes -= bytes;
            }
        }
    }
}

impl Disk {
    fn open(directory: PathBuf, bytes_max: u64) -> Result<Self> {
        let entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            entries => Some(entries.map_err(ArchiveError::local("listing"))?),
        };
        let mut found: Vec<_> = entries
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let about = entry.metadata().ok()?;
                Some((
                    about.modified().ok()?,
                    entry.file_name().into_string().ok()?,
                    about.len(),
                ))
            })
            .collect();
        found.sort();
        let known = found.into_iter().map(|(_, name, bytes)| (name, bytes)).collect();
        Ok(Self {
            directory,
            bytes_max,
            known: Mutex::new(known),
        })
    }

    /// The bytes, if they are there and those that were put: a disk may lose the end of a file that was not synced.
    fn get(&self, file: &ArchiveFile) -> Option<Bytes> {
        let kept = Bytes::from(fs::read(self.directory.join(name(file))).ok()?);
        let (digest, tail) = kept.split_at_checked(DIGEST)?;
        let is_whole = tail.len() as u64 == file.bytes - file.index_from && sha256(tail) == digest;
        is_whole.then(|| kept.slice(DIGEST..))
    }

    /// Keeps bytes if it can: a cache that fails is a slower one, and nothing else. Each writer has a file of its own
    /// until it is whole.
    fn put(&self, file: &ArchiveFile, tail: &Bytes) {
        let name = name(file);
        let made = fs::create_dir_all(&self.directory);
        let begun = made.and_then(|()| tempfile::NamedTempFile::new_in(&self.directory));
        let written = begun.and_then(|mut begun| {
            begun.write_all(&sha256(tail))?;
            begun.write_all(tail)?;
            begun
                .persist(self.directory.join(&name))
                .map_err(|error| error.error)
        });
        if let Err(error) = written {
            tracing::debug!(%error, "a footer was not kept on disk");
            return;
        }
        let mut known = self.known.lock();
        known.retain(|(other, _)| *other != name);
        known.push_back((name, (DIGEST + tail.len()) as u64));
        let mut total: u64 = known.iter().map(|(_, bytes)| bytes).sum();
        while total > self.bytes_max {
            let Some((oldest, bytes)) = known.pop_front() else {
                return;
            };
            total -= bytes;
            if let Err(error) = fs::remove_file(self.directory.join(&oldest)) {
                tracing::debug!(%error, "an old footer was not removed from disk");
            }
        }
    }
}

fn name(file: &ArchiveFile) -> String {
    format!("{}.tail", file.sha256)
}
