//! Reads fjall's own write-ahead log, only to tell damage from a torn end.
//!
//! fjall cuts its log at the first record that it cannot read, whatever comes after. All our batches are synced one
//! by one, so an intact batch after a bad one means that synced writes are about to be dropped silently. A torn end is
//! cut here and not left to fjall, which for some of them refuses to open for ever. The layout is that of fjall 3
//! (`src/journal/entry.rs`): start (count, sequence), items, end (xxh3 of the items).

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;
use tideline_backend::{BackendError, KEY_BYTES_MAX, Result, VALUE_BYTES_MAX};
use xxhash_rust::xxh3::Xxh3;

use crate::error::at;
use crate::files::list;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const TRAILER: [u8; 4] = [b'F', b'J', b'L', 3];
/// After its tag: value type, compression, keyspace, length of key, of value, of stored value.
const ITEM_HEADER_BYTES: usize = 20;
/// fjall numbers batches, loads and versions from one counter, so two neighbours are near each other. The number is
/// not part of the checksum.
const SEQUENCE_STEP_MAX: u64 = 1 << 32;

/// The logs of a fjall folder, in which nothing is damaged.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// How many batches there are.
    pub(crate) batches: u64,
    /// The sequence of the last batch.
    sequence: Option<u64>,
    /// The file that has a torn end, and where it begins.
    torn: Option<(PathBuf, u64)>,
}

/// Checks every log file of a fjall folder.
pub(crate) fn check(store: &Path) -> Result<Log> {
    let mut files: Vec<(u64, PathBuf)> = Vec::new();
    for path in list(store).map_err(at(store))? {
        let number = path
            .file_name()
            .and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse().ok());
        files.extend(number.map(|number| (number, path)));
    }
    files.sort_unstable();
    let newest = files.last().map(|(number, _)| *number);
    let mut log = Log::default();
    for (number, path) in files {
        log.check_file(&path, Some(number) == newest)?;
    }
    Ok(log)
}

impl Log {
    /// What its torn end is, in words, if there is one.
    pub(crate) fn torn_end(&self) -> Option<String> {
        let (path, end) = self.torn.as_ref()?;
        Some(format!("{} has a torn end from byte {end} on", path.display()))
    }

    /// Cuts the torn end, if there is one: a part of a batch that nobody was promised.
    pub(crate) fn cut(&self) -> Result<()> {
        let Some((path, end)) = &self.torn else {
            return Ok(());
        };
        tracing::warn!(path = %path.display(), end, "fjall's log had a torn end, which is cut");
        let cut = || {
            let file = File::options().write(true).open(path)?;
            file.set_len(*end)?;
            file.sync_all()
        };
        cut().map_err(at(path))
    }

    fn check_file(&mut self, path: &Path, is_newest: bool) -> Result<()> {
        let failed = at(path);
        let file = File::open(path).map_err(&failed)?;
        let length = data_end(&file).map_err(&failed)?;
        let mut reader = BufReader::with_capacity(64 << 10, (&file).take(length));
        let mut position = 0;
        let mut scratch = Vec::new();
        while position < length {
            match read_batch(&mut reader, &mut scratch).map_err(&failed)? {
                Some(batch) => {
                    self.check_sequence(batch.sequence, path, position)?;
                    position += batch.bytes;
                    self.batches += 1;
                }
                None => {
                    if check_rest(&file, path, position, length, is_newest)? {
                        self.torn = Some((path.to_owned(), position));
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn check_sequence(&mut self, sequence: u64, path: &Path, position: u64) -> Result<()> {
        let is_next = self
            .sequence
            .is_none_or(|last| sequence > last && sequence - last < SEQUENCE_STEP_MAX);
        if !is_next || sequence >> 56 != 0 {
            return Err(BackendError::corrupt(format!(
                "the batch at byte {position} of {} has sequence {sequence} after {:?}",
                path.display(),
                self.sequence
            )));
        }
        self.sequence = Some(sequence);
        Ok(())
    }
}

/// Where the last written block ends: fjall makes its files 64 MiB long, mostly a hole.
fn data_end(file: &File) -> io::Result<u64> {
    let mut end = 0;
    loop {
        match rustix::fs::seek(file, SeekFrom::Data(end)) {
            Ok(data) => end = rustix::fs::seek(file, SeekFrom::Hole(data))?,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        }
    }
    rustix::fs::seek(file, SeekFrom::Start(0))?;
    Ok(end)
}

/// Judges what comes after the last intact batch. Returns whether there is anything.
fn check_rest(file: &File, path: &Path, position: u64, length: u64, is_newest: bool) -> Result<bool> {
    let mut rest = Vec::new();
    let failed = at(path);
    rustix::fs::seek(file, SeekFrom::Start(position))
        .map_err(io::Error::from)
        .and_then(|_| file.take(length - position).read_to_end(&mut rest))
        .map_err(&failed)?;
    if rest.iter().all(|byte| *byte == 0) {
        return Ok(false);
    }
    let mut scratch = Vec::new();
    let mut starts = rest.iter().enumerate().filter(|(_, byte)| **byte == START);
    let has_intact = starts.any(|(at, _)| {
        let mut rest = &rest[at..];
        matches!(read_batch(&mut rest, &mut scratch), Ok(Some(_)))
    });
    if has_intact || !is_newest {
        return Err(BackendError::corrupt(format!(
            "{} is damaged at byte {position}, before intact batches",
            path.display()
        )));
    }
    Ok(true)
}

/// An intact batch.
struct Batch {
    sequence: u64,
    bytes: u64,
}

/// Reads a batch; `None` if there is no intact one here.
fn read_batch(reader: &mut impl Read, scratch: &mut Vec<u8>) -> io::Result<Option<Batch>> {
    match try_batch(reader, scratch) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        result => result,
    }
}

fn try_batch(reader: &mut impl Read, scratch: &mut Vec<u8>) -> io::Result<Option<Batch>> {
    if array::<1>(reader)? != [START] {
        return Ok(None);
    }
    let count = u32::from_le_bytes(array(reader)?);
    let sequence = u64::from_le_bytes(array(reader)?);
    let mut hash = Xxh3::new();
    let mut bytes = 13;
    for _ in 0..count {
        if array::<1>(reader)? != [ITEM] {
            return Ok(None);
        }
        let header = array::<ITEM_HEADER_BYTES>(reader)?;
        let key_bytes = usize::from(u16::from_le_bytes([header[10], header[11]]));
        let value_bytes = u32::from_le_bytes([header[16], header[17], header[18], header[19]]) as usize;
        // Our keys are a little longer than the contract's, by what names the partition.
        if key_bytes > 2 * KEY_BYTES_MAX || value_bytes > 2 * VALUE_BYTES_MAX {
            return Ok(None);
        }
        scratch.resize(key_bytes + value_bytes, 0);
        reader.read_exact(scratch)?;
        hash.update(&[ITEM]);
        hash.update(&header);
        hash.update(scratch);
        bytes += (1 + ITEM_HEADER_BYTES + scratch.len()) as u64;
    }
    if array::<1>(reader)? != [END] {
        return Ok(None);
    }
    let checksum = u64::from_le_bytes(array(reader)?);
    let is_intact = array::<4>(reader)? == TRAILER && checksum == hash.digest();
    Ok(is_intact.then_some(Batch {
        sequence,
        bytes: bytes + 13,
    }))
}

fn array<const N: usize>(reader: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}
