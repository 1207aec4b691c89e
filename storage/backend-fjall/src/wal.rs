//! Reader of fjall's write-ahead log: distinguishes damage from a torn end, and rewrites logs.
//!
//! fjall truncates its log at the first unreadable record, even if intact records follow. Most batches of this
//! backend are synced one by one. An intact batch after a bad batch therefore means that synced writes are about to
//! be dropped silently. A buffered (not synced) batch records how many commits were durable when it was written. If
//! fewer commits precede the bad batch, durable commits are lost, and the log is damaged.
//!
//! A torn end is truncated here, because fjall cannot open logs with certain torn ends. The layout is that of fjall 3
//! (`src/journal/entry.rs`): start (count, sequence), items, end (xxh3 of the items).
//!
//! The bytes that are read may be in memory only, because Linux marks pages as clean after a failed write-back. fjall
//! would append to such a file. The next power cut would then leave a hole before the appended batches. So a log is
//! never used as it was found. At every start and after every failure, each log is copied to a new file, synced and
//! renamed into place. The copies cost little, because logs are bounded and an open reads them anyway.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;
use tideline_backend::{BackendError, KEY_BYTES_MAX, Result, VALUE_BYTES_MAX};
use xxhash_rust::xxh3::Xxh3;

use crate::error::at;
use crate::files::{NEW, Renewal, list, put_in_place, remove_file, sync_folder};
use crate::keys::COMMITS;
use crate::lost::LostFolder;
use crate::shard_state::DURABLE_AT;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const TRAILER: [u8; 4] = [b'F', b'J', b'L', 3];
/// Length of an item's header after its tag: value type, compression, keyspace, lengths of key, value and stored value.
const ITEM_HEADER_BYTES: usize = 20;
/// Compression byte of an uncompressed item.
const UNCOMPRESSED: u8 = 0;
/// Exclusive upper bound of the step between the sequences of two batches. fjall numbers batches, loads and versions
/// with one counter, so the sequences of successive batches are close to each other. A batch after a larger step counts
/// as damaged, because the checksum of a batch does not cover its sequence.
const SEQUENCE_STEP_MAX: u64 = 1 << 32;
/// Buffer size of reads, in bytes.
const READ_BYTES: usize = 64 << 10;

/// Logs of a fjall folder.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Number of batches before the first damage.
    pub(crate) batches: u64,
    /// Number of the last commit that a batch records; `None` if no batch records one. In the cold store, each load and
    /// each write to parts counts as a commit.
    commits: Option<u64>,
    /// Number of the commit in the first batch that records one.
    first_commit: Option<u64>,
    /// Sequence of the last batch.
    sequence: Option<u64>,
    /// Log files up to the first damage, oldest first.
    files: Vec<LogFile>,
    /// First damage, if there is any.
    damage: Option<Damage>,
}

/// Log file, and the length of its usable part.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    intact_bytes: u64,
    /// True if the usable part is followed by remains of batches that were not durable.
    is_torn: bool,
}

/// Damage in a log, and the content after it.
#[derive(Debug)]
pub(crate) struct Damage {
    reason: String,
    /// Sequence of the last batch before the damage.
    after: Option<u64>,
    /// Rest of the damaged log, followed by the later logs. If an entire log is missing, only the later logs.
    lost: Vec<LostPart>,
}

/// Part of a log that cannot be used.
#[derive(Debug)]
struct LostPart {
    path: PathBuf,
    bytes: Range<u64>,
    found: Found,
}

/// Content of a part of a log after damage or a torn end.
#[derive(Debug, Default)]
struct Found {
    batches: u64,
    /// Highest [`Batch::promised`] of the intact batches.
    promised: u64,
    /// First and last sequence of the intact batches.
    sequences: Option<(u64, u64)>,
    /// Byte ranges that hold no intact batch.
    unreadable: Vec<Range<u64>>,
    /// End of the content. The zeros after it are space that fjall has reserved.
    end: u64,
}

/// Reads every log file of a fjall folder.
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
    let mut before = None;
    for (number, path) in files {
        // fjall numbers its logs consecutively, and removes the oldest first.
        let is_next = before.is_none_or(|before| number == before + 1);
        before = Some(number);
        if log.damage.is_none() && !is_next {
            log.damage = Some(Damage {
                reason: format!("the log before {} is missing", path.display()),
                after: log.sequence,
                lost: Vec::new(),
            });
        }
        let file = File::open(&path).map_err(at(&path))?;
        let length = data_end(&file).map_err(at(&path))?;
        if log.damage.is_some() {
            log.lose(&file, &path, 0..length)?;
        } else {
            log.read_file(&file, &path, length, Some(number) == newest)?;
        }
    }
    Ok(log)
}

impl Log {
    /// Returns true if the folder has no log at all. fjall creates a log with the store and always keeps the newest
    /// log.
    pub(crate) fn is_missing(&self) -> bool {
        self.files.is_empty() && self.damage.is_none()
    }

    /// Returns the number of the last commit that a batch records; `None` if no batch records one.
    pub(crate) fn commits(&self) -> Option<u64> {
        self.commits
    }

    /// Returns the number of the first recorded commit; `None` if no batch records one. All earlier commits must be in
    /// tables.
    pub(crate) fn first_commit(&self) -> Option<u64> {
        self.first_commit
    }

    /// Describes the torn end, if there is one. The end of a damaged log does not count as torn.
    pub(crate) fn torn_end(&self) -> Option<String> {
        let torn = self.files.iter().find(|file| file.is_torn)?;
        Some(format!(
            "{} has a torn end from byte {} on",
            torn.path.display(),
            torn.intact_bytes
        ))
    }

    /// Returns the damage, if there is any.
    pub(crate) fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// Drops everything from the damage on. Links to the damaged files and a report are kept in `root`.
    pub(crate) fn cut(&mut self, root: &Path, store: &Path) -> Result<()> {
        let Some(damage) = self.damage.take() else {
            return Ok(());
        };
        let cut = || -> io::Result<()> {
            let lost = LostFolder::create(root, &damage.report())?;
            let paths: Vec<&Path> = damage.lost.iter().map(|part| part.path.as_path()).collect();
            for path in &paths {
                lost.keep(path)?;
            }
            // The newest log is removed first, so that a kill leaves no gap between logs. `renew` truncates the damaged
            // log.
            let is_used = |path: &Path| self.files.iter().any(|file| file.path == path);
            for path in paths.iter().rev().filter(|path| !is_used(path)) {
                fs::remove_file(path)?;
                sync_folder(store)?;
            }
            Ok(())
        };
        cut().map_err(at(store))
    }

    /// Replaces each log by a durable copy of its intact part, which has no torn end.
    pub(crate) fn renew(&self, store: &Path) -> Result<()> {
        for path in list(store).map_err(at(store))? {
            if path.to_string_lossy().ends_with(&format!(".jnl{NEW}")) {
                remove_file(&path).map_err(at(&path))?;
            }
        }
        // One log at a time, so that a nearly full disk needs room for one copy only.
        for file in &self.files {
            file.copy()?;
            put_in_place(&file.path)
                .and_then(|()| sync_folder(store))
                .map_err(at(&file.path))?;
        }
        Ok(())
    }

    fn read_file(&mut self, file: &File, path: &Path, length: u64, is_newest: bool) -> Result<()> {
        let failed = at(path);
        let mut reader = BufReader::with_capacity(READ_BYTES, file.take(length));
        let mut position = 0;
        let mut scratch = Vec::new();
        let mut damage = None;
        let mut is_torn = false;
        while position < length {
            let Some(batch) = read_batch(&mut reader, &mut scratch).map_err(&failed)? else {
                let found = search(file, position..length).map_err(&failed)?;
                is_torn = !found.is_zero();
                // Unsynced writes reach the disk in any order. So in the newest log, later batches prove damage only if
                // they show that missing commits had been durable.
                if found.promised > self.commits.unwrap_or(0) {
                    damage = Some(format!(
                        "{} is damaged at byte {position}, before intact batches",
                        path.display()
                    ));
                } else if is_torn && !is_newest {
                    damage = Some(format!(
                        "{} is damaged at byte {position} and is not the newest log",
                        path.display()
                    ));
                }
                break;
            };
            if !self.is_next(batch.sequence) {
                damage = Some(format!(
                    "the batch at byte {position} of {} has sequence {} after {:?}",
                    path.display(),
                    batch.sequence,
                    self.sequence
                ));
                break;
            }
            self.sequence = Some(batch.sequence);
            position += batch.bytes;
            self.batches += 1;
            self.first_commit = self.first_commit.or(batch.commits);
            self.commits = self.commits.max(batch.commits);
        }
        self.files.push(LogFile {
            path: path.to_owned(),
            intact_bytes: position,
            is_torn: is_torn && damage.is_none(),
        });
        if let Some(reason) = damage {
            self.damage = Some(Damage {
                reason,
                after: self.sequence,
                lost: Vec::new(),
            });
            self.lose(file, path, position..length)?;
        }
        Ok(())
    }

    /// Records a part of a log that cannot be used.
    fn lose(&mut self, file: &File, path: &Path, bytes: Range<u64>) -> Result<()> {
        let found = search(file, bytes.clone()).map_err(at(path))?;
        if let Some(damage) = &mut self.damage {
            let bytes = bytes.start..found.end;
            damage.lost.push(LostPart {
                path: path.to_owned(),
                bytes,
                found,
            });
        }
        Ok(())
    }

    fn is_next(&self, sequence: u64) -> bool {
        let is_after = |last| sequence > last && sequence - last < SEQUENCE_STEP_MAX;
        sequence >> 56 == 0 && self.sequence.is_none_or(is_after)
    }
}

impl LogFile {
    /// Writes and syncs a copy of the usable part. Each batch is checked again, because its pages may have been
    /// reloaded since the first check.
    fn copy(&self) -> Result<()> {
        let failed = at(&self.path);
        if self.is_torn {
            tracing::warn!(path = %self.path.display(), end = self.intact_bytes, "fjall's log had a torn end, which is cut");
        }
        let file = File::open(&self.path).map_err(&failed)?;
        let reader = BufReader::with_capacity(READ_BYTES, file.take(self.intact_bytes));
        let mut renewal = Renewal::start(&self.path, reader).map_err(&failed)?;
        let mut position = 0;
        let mut scratch = Vec::new();
        while position < self.intact_bytes {
            match read_batch(&mut renewal, &mut scratch).map_err(&failed)? {
                Some(batch) => position += batch.bytes,
                None => {
                    return Err(BackendError::corrupt(format!(
                        "{} has changed at byte {position} while it was copied",
                        self.path.display()
                    )));
                }
            }
        }
        renewal.finish(self.intact_bytes).map_err(&failed)
    }
}

impl Damage {
    /// Returns the error of an open for which no loss is accepted.
    pub(crate) fn error(&self) -> BackendError {
        BackendError::corrupt(format!(
            "{self}. Restore the folder, or start once with accept_loss to continue without these bytes"
        ))
    }

    /// Describes the damage in one line, then the lost content in one line per file. The report assumes that the log is
    /// cut at the damage.
    fn report(&self) -> Vec<String> {
        let mut report = vec![match self.after {
            Some(after) => format!("{}; batches after sequence {after} are lost", self.reason),
            None => format!("{}; all batches are lost", self.reason),
        }];
        report.extend(self.lost.iter().map(ToString::to_string));
        report
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        for part in &self.lost {
            write!(f, "; {part}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LostPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.bytes;
        write!(f, "{}: bytes {start} to {end} hold", self.path.display())?;
        match (self.found.batches, self.found.sequences) {
            (batches, Some((first, last))) => {
                write!(f, " {batches} intact batches, sequences {first} to {last}")?;
            }
            _ => f.write_str(" no intact batch")?,
        }
        for (n, Range { start, end }) in self.found.unreadable.iter().enumerate() {
            let before = if n == 0 { ", unreadable bytes " } else { ", " };
            write!(f, "{before}{start} to {end}")?;
        }
        Ok(())
    }
}

impl Found {
    /// Returns true if the part has no content: the log ends before this part.
    fn is_zero(&self) -> bool {
        self.batches == 0 && self.unreadable.is_empty()
    }

    fn skip(&mut self, range: Range<usize>, start: u64) {
        if !range.is_empty() {
            self.unreadable
                .push(start + range.start as u64..start + range.end as u64);
        }
    }
}

/// Returns the end of the last written block. fjall creates files of 64 MiB, which are mostly a hole.
pub(crate) fn data_end(file: &File) -> io::Result<u64> {
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

/// Searches a part of a log for intact batches.
fn search(file: &File, part: Range<u64>) -> io::Result<Found> {
    let mut bytes = Vec::new();
    rustix::fs::seek(file, SeekFrom::Start(part.start))?;
    file.take(part.end - part.start).read_to_end(&mut bytes)?;
    let end = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    let mut found = Found {
        end: part.start + end as u64,
        ..Found::default()
    };
    let mut scratch = Vec::new();
    let (mut at, mut unreadable_from) = (0, 0);
    while at < end {
        let batch = match bytes[at] {
            START => read_batch(&mut &bytes[at..], &mut scratch)?,
            _ => None,
        };
        let Some(batch) = batch else {
            at += 1;
            continue;
        };
        found.skip(unreadable_from..at, part.start);
        found.batches += 1;
        found.promised = found.promised.max(batch.promised);
        let first = found.sequences.map_or(batch.sequence, |(first, _)| first);
        found.sequences = Some((first, batch.sequence));
        at += batch.bytes as usize;
        unreadable_from = at;
    }
    found.skip(unreadable_from..end.max(unreadable_from), part.start);
    Ok(found)
}

/// Intact batch.
struct Batch {
    sequence: u64,
    bytes: u64,
    /// Number of the commit that the batch contains; `None` if it records none.
    commits: Option<u64>,
    /// Number of commits that were durable when the batch was written. `u64::MAX` if the batch does not record it: then
    /// all earlier commits were durable.
    promised: u64,
}

/// Reads a batch; `None` if there is no intact batch at this position.
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
    let mut commits = None;
    let mut durable = None;
    for _ in 0..count {
        if array::<1>(reader)? != [ITEM] {
            return Ok(None);
        }
        let header = array::<ITEM_HEADER_BYTES>(reader)?;
        let key_bytes = usize::from(u16::from_le_bytes([header[10], header[11]]));
        let value_bytes = u32::from_le_bytes([header[16], header[17], header[18], header[19]]) as usize;
        // The prefix of the partition makes keys of this backend longer than the limit of the contract.
        if key_bytes > 2 * KEY_BYTES_MAX || value_bytes > 2 * VALUE_BYTES_MAX {
            return Ok(None);
        }
        scratch.resize(key_bytes + value_bytes, 0);
        reader.read_exact(scratch)?;
        // The count of commits is the only row with this key, and such a short value is never compressed.
        if scratch.starts_with(COMMITS) && key_bytes == COMMITS.len() && header[1] == UNCOMPRESSED {
            let number = |at: usize| {
                let bytes = scratch.get(key_bytes + at..)?.first_chunk()?;
                Some(u64::from_be_bytes(*bytes))
            };
            commits = commits.max(number(0));
            durable = durable.max(number(DURABLE_AT));
        }
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
        commits,
        promised: durable.unwrap_or(u64::MAX),
    }))
}

fn array<const N: usize>(reader: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}
