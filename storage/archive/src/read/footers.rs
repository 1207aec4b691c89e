//! Cache of footers: the metadata that is needed before rows are read, consisting of page indexes, footer and block
//! checksums.
//!
//! One request fetches the metadata of a file, because the offset of the metadata is recorded. The metadata is cached
//! decoded in memory and encoded on disk. Each cache has a size limit: the cache in memory evicts the least recently
//! used entry, the cache on disk the oldest entry.
//!
//! A file from a build without block checksums is read once as a whole and compared with its SHA-256. The checksums of
//! its blocks are computed at the same time and cached in memory and on disk, so that later partial reads can be
//! verified.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use ring::digest::{Context, SHA256};

use super::checked::{ValueColumn, checked};
use super::fetch::TRIES;
use super::pages::{ContentId, Pages};
use crate::copy::ArchiveFile;
use crate::digest::{hex, sha256, sha256_hex};
use crate::error::{ArchiveError, Result, guarded};
use crate::file::sums::{BlockSums, NOTE_SUMS, Summer};
use crate::target::Target;

/// Size of the SHA-256 at the start of each cached file on disk.
const DIGEST: usize = 32;
/// Maximum size of files that are fetched as a whole, in bytes. A second request would cost more than these bytes.
const WHOLE_BYTES: u64 = 64 << 10;
/// Bytes per request when a file is read as a whole.
const PART_BYTES: u64 = 4 << 20;

/// Open file. It has no object name, because several objects may have the same content.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) bytes: u64,
    pub(crate) metadata: ParquetMetaData,
    /// Value columns with their fields and types. The field names of a shared file are empty.
    pub(crate) fields: Vec<ValueColumn>,
    pub(crate) is_shared: bool,
    /// First row of each row group, followed by the total number of rows.
    pub(crate) group_starts: Vec<u64>,
    /// Expected block checksums.
    pub(crate) sums: BlockSums,
    /// Key of the blocks in the page cache.
    pub(crate) content: ContentId,
}

/// Cache of footers. Also holds the page cache.
#[derive(Debug)]
pub(crate) struct Footers {
    memory: Mutex<Memory>,
    memory_max: usize,
    disk: Option<Disk>,
    pages: Arc<Pages>,
    /// Locks of the files that are being read as a whole. Each file is read by one caller at a time.
    proving: Mutex<HashMap<String, Arc<Mutex<()>>>>,
}

#[derive(Debug, Default)]
struct Memory {
    /// Files by their checksums: the file, its size in memory, and the number of its last use.
    files: HashMap<String, (Arc<OpenFile>, usize, u64)>,
    bytes: usize,
    uses: u64,
}

#[derive(Debug)]
struct Disk {
    directory: PathBuf,
    bytes_max: u64,
    /// Known file names with sizes, oldest first.
    known: Mutex<std::collections::VecDeque<(String, u64)>>,
}

/// Block checksums of a file without stored block checksums, computed while the file was compared with its SHA-256.
#[derive(Debug, Clone)]
struct Proof {
    /// SHA-256 of the bytes from `index_from` on.
    index_sha256: String,
    sums: BlockSums,
}

/// Open file, and its rows if the same request fetched them with the footer. The rows are not verified yet.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) rows: Option<Bytes>,
}

/// Last part of a file (page indexes and footer), and the bytes before it if the same request fetched them.
struct Tail {
    bytes: Bytes,
    before: Option<Bytes>,
}

impl Footers {
    /// Creates a cache. The disk cache starts with the files that an earlier process has written.
    pub(crate) fn new(memory_max: usize, disk: Option<(PathBuf, u64)>, pages: Arc<Pages>) -> Result<Self> {
        let disk = disk.map(|(directory, bytes_max)| Disk::open(directory, bytes_max));
        let disk = disk.transpose()?;
        Ok(Self {
            memory: Mutex::default(),
            memory_max,
            disk,
            pages,
            proving: Mutex::default(),
        })
    }

    /// Returns the page cache.
    pub(crate) fn pages(&self) -> &Arc<Pages> {
        &self.pages
    }

    /// Returns an open file from the cache, or opens it.
    pub(crate) fn open(&self, target: &Target, file: &ArchiveFile) -> Result<Opened> {
        let name = format!("{}{}", file.sha256, file.index_sha256);
        if let Some(open) = self.memory.lock().get(&name) {
            return Ok(Opened {
                file: open,
                rows: None,
            });
        }
        if file.index_from >= file.bytes {
            return Err(target.damaged(
                &file.key,
                "the recorded start of its footer is beyond the end of the file",
            ));
        }
        match self.read(target, file)? {
            Some((opened, rows)) => Ok(self.remember(&name, opened, rows)),
            None => self.prove(target, file, &name),
        }
    }

    fn remember(&self, name: &str, opened: OpenFile, rows: Option<Bytes>) -> Opened {
        let file = Arc::new(opened);
        self.memory.lock().put(name, &file, self.memory_max);
        Opened { file, rows }
    }

    /// Opens a file with block checksums. Returns `None` if the file has no valid block checksums, or if no checksum of
    /// its footer is recorded.
    fn read(&self, target: &Target, file: &ArchiveFile) -> Result<Option<(OpenFile, Option<Bytes>)>> {
        if file.index_sha256.is_empty() {
            return Ok(None);
        }
        let (metadata, before) = self.footer(target, file, &file.index_sha256)?;
        let notes = metadata.file_metadata().key_value_metadata();
        let note = notes.into_iter().flatten().find(|note| note.key == NOTE_SUMS);
        let sums = note.and_then(|note| BlockSums::from_note(note.value.as_deref()?));
        let Some(sums) = sums.filter(|sums| sums.end() <= file.index_from) else {
            return Ok(None);
        };
        let opened = opened(target, file, metadata, sums, &file.index_sha256)?;
        Ok(Some((opened, before)))
    }

    /// Opens a file without block checksums. Reads the whole file once, unless the disk cache has its block checksums.
    /// Only one caller reads the file; concurrent callers wait and then use the cache.
    fn prove(&self, target: &Target, file: &ArchiveFile, name: &str) -> Result<Opened> {
        let lock = Arc::clone(self.proving.lock().entry(name.to_owned()).or_default());
        let proven = {
            let _held = lock.lock();
            let known = self.memory.lock().get(name);
            match known {
                Some(file) => Ok(Opened { file, rows: None }),
                None => {
                    let proven = self.proven(target, file);
                    proven.map(|(opened, rows)| self.remember(name, opened, rows))
                }
            }
        };
        let mut proving = self.proving.lock();
        // Each waiting caller holds a reference as well, so a count of 2 means that there are no waiting callers.
        if Arc::strong_count(&lock) == 2 {
            proving.remove(name);
        }
        proven
    }

    fn proven(&self, target: &Target, file: &ArchiveFile) -> Result<(OpenFile, Option<Bytes>)> {
        let name = format!("{}.sums", file.sha256);
        let kept = self.disk.as_ref().and_then(|disk| disk.get(&name));
        let proof = match kept.and_then(|kept| Proof::parse(&kept)) {
            Some(proof) => proof,
            None => {
                let proof = Proof::of(target, file)?;
                if let Some(disk) = &self.disk {
                    disk.put(&name, proof.to_text().as_bytes());
                }
                proof
            }
        };
        let (metadata, before) = self.footer(target, file, &proof.index_sha256)?;
        let opened = opened(target, file, metadata, proof.sums, &file.sha256)?;
        Ok((opened, before))
    }

    /// Returns the footer of a file from disk or from the target, and the bytes before it if the same request fetched
    /// them.
    fn footer(
        &self,
        target: &Target,
        file: &ArchiveFile,
        index_sha256: &str,
    ) -> Result<(ParquetMetaData, Option<Bytes>)> {
        let name = tail_name(file);
        let kept = self.disk.as_ref().and_then(|disk| disk.get(&name));
        if let Some(kept) = kept.filter(|kept| sha256_hex(kept) == index_sha256)
            && let Ok(metadata) = decoded(target, file, &kept)
        {
            return Ok((metadata, None));
        }
        let mut tries = 1;
        let Tail { bytes, before } = loop {
            let tail = fetch_tail(target, file)?;
            if sha256_hex(&tail.bytes) == index_sha256 {
                break tail;
            }
            if tries == TRIES {
                let reason = "the checksum of its footer does not match; put the file back from a copy";
                return Err(target.damaged(&file.key, reason));
            }
            tries += 1;
        };
        let metadata = decoded(target, file, &bytes)?;
        if let Some(disk) = &self.disk {
            disk.put(&name, &bytes);
        }
        Ok((metadata, before))
    }
}

impl Proof {
    /// Reads a complete file and compares it with its SHA-256. Holds one part in memory at a time.
    fn of(target: &Target, file: &ArchiveFile) -> Result<Self> {
        let (mut whole, mut index) = (Context::new(&SHA256), Context::new(&SHA256));
        let mut summer = Summer::default();
        let mut at = 0;
        while at < file.bytes {
            let range = at..file.bytes.min(at + PART_BYTES);
            for part in target.get_ranges(&file.key, std::slice::from_ref(&range))? {
                whole.update(&part);
                summer.update(&part);
                let behind = usize::try_from(file.index_from.saturating_sub(at)).unwrap_or(usize::MAX);
                index.update(part.get(behind..).unwrap_or_default());
            }
            at = range.end;
        }
        if hex(whole.finish().as_ref()) != file.sha256 {
            return Err(target.damaged(
                &file.key,
                "its checksum does not match, and its parts have none; put the file back from a copy",
            ));
        }
        Ok(Self {
            index_sha256: hex(index.finish().as_ref()),
            sums: summer.sums(),
        })
    }

    /// Encodes the proof for the disk cache.
    fn to_text(&self) -> String {
        format!("{} {}", self.index_sha256, self.sums.to_note())
    }

    fn parse(text: &Bytes) -> Option<Self> {
        let (index_sha256, note) = std::str::from_utf8(text).ok()?.split_once(' ')?;
        Some(Self {
            index_sha256: index_sha256.to_owned(),
            sums: BlockSums::from_note(note)?,
        })
    }
}

/// Fetches the last part of a file, or all of a small file.
fn fetch_tail(target: &Target, file: &ArchiveFile) -> Result<Tail> {
    let begin = if file.bytes <= WHOLE_BYTES {
        0
    } else {
        file.index_from
    };
    let range = begin..file.bytes;
    let got = target.get_ranges(&file.key, std::slice::from_ref(&range))?;
    let got = got.into_iter().next().unwrap_or_default();
    let before = usize::try_from(file.index_from - begin).unwrap_or(usize::MAX);
    let before = before.min(got.len());
    Ok(Tail {
        before: (before > 0).then(|| got.slice(..before)),
        bytes: got.slice(before..),
    })
}

/// Decodes the last part of a file.
fn decoded(target: &Target, file: &ArchiveFile, tail: &Bytes) -> Result<ParquetMetaData> {
    let damaged = |reason: String| target.damaged(&file.key, reason);
    let mut reader = ParquetMetaDataReader::new()
        .with_column_index_policy(PageIndexPolicy::Skip)
        .with_offset_index_policy(PageIndexPolicy::Required);
    guarded(|| reader.try_parse_sized(tail, file.bytes))
        .map_err(damaged)?
        .map_err(|error| damaged(error.to_string()))?;
    reader.finish().map_err(|error| damaged(error.to_string()))
}

/// Validates a decoded footer. `sha256` must identify the complete content of the file.
fn opened(
    target: &Target,
    file: &ArchiveFile,
    metadata: ParquetMetaData,
    sums: BlockSums,
    sha256: &str,
) -> Result<OpenFile> {
    let checked = checked(&metadata, file);
    let (fields, group_starts) = checked.map_err(|reason| target.damaged(&file.key, reason))?;
    Ok(OpenFile {
        bytes: file.bytes,
        metadata,
        fields,
        is_shared: file.shared,
        group_starts,
        sums,
        content: ContentId::of(sha256),
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
        let bytes = file.metadata.memory_size() + file.sums.bytes() + sha256.len() + 256;
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

    /// Returns the content if it is complete and unchanged. A power failure may truncate a file that was not synced.
    fn get(&self, name: &str) -> Option<Bytes> {
        let kept = Bytes::from(fs::read(self.directory.join(name)).ok()?);
        let (digest, content) = kept.split_at_checked(DIGEST)?;
        (sha256(content) == digest).then(|| kept.slice(DIGEST..))
    }

    /// Stores content. Errors are only logged, because a failing cache only costs speed. Each call writes its own
    /// temporary file and renames it when it is complete.
    fn put(&self, name: &str, content: &[u8]) {
        let made = fs::create_dir_all(&self.directory);
        let begun = made.and_then(|()| tempfile::NamedTempFile::new_in(&self.directory));
        let written = begun.and_then(|mut begun| {
            begun.write_all(&sha256(content))?;
            begun.write_all(content)?;
            begun
                .persist(self.directory.join(name))
                .map_err(|error| error.error)
        });
        if let Err(error) = written {
            tracing::debug!(%error, "could not cache a footer on disk");
            return;
        }
        let mut known = self.known.lock();
        known.retain(|(other, _)| *other != name);
        known.push_back((name.to_owned(), (DIGEST + content.len()) as u64));
        let mut total: u64 = known.iter().map(|(_, bytes)| bytes).sum();
        while total > self.bytes_max {
            let Some((oldest, bytes)) = known.pop_front() else {
                return;
            };
            total -= bytes;
            if let Err(error) = fs::remove_file(self.directory.join(&oldest)) {
                tracing::debug!(%error, "could not remove an old footer from disk");
            }
        }
    }
}

/// Returns the disk file name of the last part of a file.
fn tail_name(file: &ArchiveFile) -> String {
    format!("{}.tail", file.sha256)
}
