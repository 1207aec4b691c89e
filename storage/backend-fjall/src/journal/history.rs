//! History of a journal: files that are no longer needed for a replay and are kept for readers of change streams.
//!
//! A file moves to the folder of the history when it is forgotten. Its new name begins with its last sequence, so a
//! start need not read the file. A marker file holds the sequence from which all entries are kept. The marker is
//! written before a file is freed, so a reader never mistakes the entries of a freed file for a range without entries.
//! Files are read in pages. The offsets of some frames are kept in memory, so that a page need not be searched from the
//! beginning of its file.
//!
//! The files of an epoch are numbered from 0, so a file that another program has removed is noticed by the number of the
//! file after it. The removed entries are reported to readers like damaged ones.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use parking_lot::Mutex;
use tideline_backend::{Epoch, History as Kept, HistoryPage, HistoryUnit, JournalEntry, Result, Shard};
use tideline_model::{SequenceNumber, Timestamp};
use xxhash_rust::xxh3::xxh3_64;

use super::frame::{FRAME_HEADER_BYTES, FileId, FrameHeader, HEADER_BYTES, HeaderCheck, first_of};
use super::reader::walk;
use super::recovery::file_ids;
use super::{JournalFile, ShardJournal};
use crate::error::{During, at, from_io};
use crate::files::{list, remove_file, replace, sync_folder};

/// Name of the folder of the history, next to the folder of the journals.
pub(crate) const HISTORY: &str = "history";
/// End of the name of a marker file, after the number of the shard.
const MARKER: &str = ".from";
const MAGIC: [u8; 8] = *b"TLHISTRY";
/// Distance of the offsets that are kept in memory, in bytes.
const OFFSET_DISTANCE: u64 = 256 << 10;
/// Buffer size of reads, in bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// Kept files of a shard.
#[derive(Debug)]
pub(super) struct History {
    folder: PathBuf,
    shard: Shard,
    /// Sequence from which all entries are kept, as in the marker file.
    from: SequenceNumber,
    /// Files by sequence.
    files: Vec<KeptFile>,
    /// Newest file whose entries are not kept, as far as this process has freed it; `None` if there is no such file.
    freed: Option<FileId>,
}

/// File of the history.
#[derive(Debug, Clone, Copy)]
struct KeptFile {
    file: JournalFile,
    written: Timestamp,
}

/// Offsets of frames at intervals, by file: the sequence before the frame, and the offset. A file is identified by its
/// id and the sequence of its first entry, because earlier builds gave the same id to several files of a history.
pub(crate) type Offsets = Arc<Mutex<BTreeMap<(FileId, SequenceNumber), Vec<(SequenceNumber, u64)>>>>;

/// Removes the offsets of all files with an id.
pub(super) fn remove_offsets(offsets: &Offsets, id: FileId) {
    offsets.lock().retain(|(held, _), _| *held != id);
}

impl History {
    /// Begins a history with the entries from `from` on.
    fn begin(folder: PathBuf, shard: Shard, from: SequenceNumber) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        if let Some(root) = folder.parent() {
            sync_folder(root)?;
        }
        write_marker(&folder, shard, from)?;
        Ok(Self {
            folder,
            shard,
            from,
            files: Vec::new(),
            freed: None,
        })
    }

    /// Reads the lists of all histories in a folder. Files are not read.
    pub(super) fn read_all(folder: &Path) -> Result<BTreeMap<Shard, Self>> {
        let mut histories = BTreeMap::new();
        let mut files = Vec::new();
        for path in list(folder).map_err(at(folder))? {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            if let Some(shard) = shard_of_marker(name) {
                let from = read_marker(&path).map_err(at(&path))?;
                let history = Self {
                    folder: folder.to_owned(),
                    shard,
                    from: from.unwrap_or_default(),
                    files: Vec::new(),
                    freed: None,
                };
                histories.insert(shard, (history, from.is_some()));
            } else if let Some((last, id)) = parse_name(name) {
                let metadata = fs::metadata(&path).map_err(at(&path))?;
                let file = JournalFile {
                    id,
                    last,
                    bytes: metadata.len(),
                };
                files.push(KeptFile {
                    file,
                    written: modified(&metadata),
                });
            }
        }
        files.sort_by_key(|kept| kept.file.last);
        for kept in files {
            if let Some((history, _)) = histories.get_mut(&kept.file.id.shard) {
                history.files.push(kept);
            }
        }
        let complete = |(shard, (mut history, has_from)): (Shard, (Self, bool))| {
            if !has_from {
                // Without its content, the marker does not show which files were freed. So the entries of all files
                // count as missing.
                tracing::warn!(folder = %folder.display(), "the marker of a history is damaged; its files are not used");
                history.from = history
                    .files
                    .last()
                    .map_or(SequenceNumber(0), |kept| after(kept.file.last));
            }
            (shard, history)
        };
        Ok(histories.into_iter().map(complete).collect())
    }

    /// Returns the highest id of the kept files.
    pub(super) fn newest(&self) -> Option<FileId> {
        self.files.iter().map(|kept| kept.file.id).max()
    }

    /// Moves a forgotten file into the history, or removes the file if all of its entries are below the kept ones.
    pub(super) fn adopt(&mut self, journals: &Path, file: JournalFile) -> io::Result<()> {
        let path = journals.join(file.id.name());
        if file.last < self.from {
            fs::remove_file(path)?;
            self.freed = self.freed.max(Some(file.id));
            return Ok(());
        }
        let written = modified(&fs::metadata(&path)?);
        fs::rename(&path, self.path(&file))?;
        self.files.push(KeptFile { file, written });
        sync_folder(&self.folder)
    }

    /// Frees the files that are entirely below `from`.
    fn free(&mut self, from: SequenceNumber, offsets: &Offsets) -> io::Result<()> {
        if from > self.from {
            write_marker(&self.folder, self.shard, from)?;
            self.from = from;
        }
        let freed = self.files.partition_point(|kept| kept.file.last < self.from);
        if freed == 0 {
            return Ok(());
        }
        // A file that cannot be removed stays in the list, so the next call tries again.
        for _ in 0..freed {
            let file = self.files[0].file;
            remove_file(&self.path(&file))?;
            remove_offsets(offsets, file.id);
            self.files.remove(0);
            self.freed = self.freed.max(Some(file.id));
        }
        sync_folder(&self.folder)
    }

    /// Removes all kept files and the marker file.
    fn end(mut self, offsets: &Offsets) -> io::Result<()> {
        for kept in self.files.drain(..) {
            remove_offsets(offsets, kept.file.id);
            remove_file(&self.folder.join(name(&kept.file)))?;
        }
        remove_file(&self.folder.join(marker(self.shard)))?;
        sync_folder(&self.folder)
    }

    fn path(&self, file: &JournalFile) -> PathBuf {
        self.folder.join(name(file))
    }
}

impl ShardJournal {
    /// Keeps the entries from `from` on, even after they are forgotten; `None` ends the history.
    pub(crate) fn keep_history(&mut self, from: Option<SequenceNumber>) -> Result<()> {
        let folder = self.folder.with_file_name(HISTORY);
        let kept = match (from, &mut self.history) {
            (Some(from), Some(history)) => history.free(from, &self.offsets),
            (Some(from), None) => History::begin(folder.clone(), self.shard, from).map(|history| {
                self.history = Some(History {
                    freed: self.forgotten,
                    ..history
                });
            }),
            (None, history) => history
                .take()
                .map_or(Ok(()), |history| history.end(&self.offsets)),
        };
        kept.map_err(at(&folder))
    }

    /// Returns the list of the history.
    pub(crate) fn history(&self) -> Kept {
        let Some(history) = &self.history else {
            return Kept::default();
        };
        let units = history.files.iter().map(|kept| HistoryUnit {
            last: kept.file.last,
            bytes: kept.file.bytes,
            written: kept.written,
        });
        Kept {
            from: Some(history.from),
            units: units.collect(),
        }
    }

    /// Opens the files of a page, which is then read without the lock of this journal. `ends` are the ends of closed
    /// epochs.
    pub(crate) fn history_reader(
        &self,
        from: SequenceNumber,
        ends: &BTreeMap<Epoch, SequenceNumber>,
    ) -> Result<HistoryReader> {
        let start = self
            .history
            .as_ref()
            .map_or(from, |history| from.max(history.from));
        let kept_from = self.history.as_ref().map(|history| history.from);
        let kept = self.history.iter().flat_map(|history| {
            let files = history
                .files
                .iter()
                .map(|kept| (kept.file, history.path(&kept.file)));
            files.map(|(file, path)| (file, path, file.bytes))
        });
        let live = self.files.iter().map(|file| {
            let synced = self.active.as_ref().filter(|active| active.id == file.id);
            let length = synced.map_or(file.bytes, |active| active.synced_bytes);
            (*file, self.folder.join(file.id.name()), length)
        });
        let (mut files, mut before) = (Vec::new(), None);
        let mut freed = self.history.as_ref().and_then(|history| history.freed);
        for (file, path, length) in kept.chain(live) {
            // The files before the kept entries can have been freed in part.
            if kept_from.is_some_and(|from| file.last < from) {
                freed = freed.max(Some(file.id));
                continue;
            }
            // Failed appends use up numbers, so the first entry after a freed file can be above the kept position.
            let follows_freed = before.is_none() && freed.is_some_and(|freed| freed.precedes(file.id));
            let missing_from = kept_from
                .filter(|_| !follows_freed)
                .and_then(|from| missing_from(before, file.id, from));
            before = Some((file.id, file.last));
            // Interrupted copies leave files whose epochs were closed without entries.
            if file.last < start || ends.get(&file.id.epoch).is_some_and(|end| *end <= start) {
                continue;
            }
            files.push(PageFile {
                file,
                open: File::open(&path).map_err(at(&path))?,
                length,
                missing_from,
            });
            // Two files suffice: a page that reaches the end of the first file continues in the second.
            if files.len() == 2 {
                break;
            }
        }
        Ok(HistoryReader {
            start,
            files,
            offsets: Arc::clone(&self.offsets),
        })
    }
}

/// Open files with the entries from a position on, and their durable lengths.
#[derive(Debug)]
pub(crate) struct HistoryReader {
    start: SequenceNumber,
    files: Vec<PageFile>,
    offsets: Offsets,
}

/// Open file of a page.
#[derive(Debug)]
struct PageFile {
    file: JournalFile,
    open: File,
    /// Durable length in bytes.
    length: u64,
    /// Result of [`missing_from`].
    missing_from: Option<SequenceNumber>,
}

/// Returns the position from which the entries before a file are missing, up to its first entry; `None` if no file is
/// missing before it. `before` is the previous file with its last sequence. Without it, the file is the first one with
/// entries from the position `from` on.
fn missing_from(
    before: Option<(FileId, SequenceNumber)>,
    id: FileId,
    from: SequenceNumber,
) -> Option<SequenceNumber> {
    let (generation_max, start) = match before {
        Some((before, last)) if before.epoch == id.epoch => {
            (before.generation.saturating_add(1), after(last))
        }
        Some((_, last)) => (0, after(last)),
        None => (0, from),
    };
    (id.generation > generation_max).then_some(start)
}

impl HistoryReader {
    /// Reads a page. `end_of` returns the end of a closed epoch.
    pub(crate) fn page(
        self,
        bytes_max: usize,
        end_of: &dyn Fn(Epoch) -> Option<SequenceNumber>,
    ) -> Result<HistoryPage> {
        let mut page = HistoryPage {
            from: self.start,
            is_damaged: false,
            entries: Vec::new(),
            next: self.start,
        };
        let mut bytes = 0;
        for PageFile {
            file,
            open,
            length,
            missing_from,
        } in self.files
        {
            let mut frames = Frames::begin(file.id, open, length, page.next, &self.offsets)?;
            if frames.follows_missing(missing_from) && frames.first > page.next {
                // The next page begins with the missing file.
                if !page.entries.is_empty() {
                    return Ok(page);
                }
                tracing::warn!(
                    before = file.id.name(),
                    "a file of the history of the journal is missing"
                );
                page.is_damaged = true;
                page.from = frames.first;
                page.next = page.from;
            }
            let end = end_of(file.id.epoch);
            while bytes < bytes_max {
                match frames.next()? {
                    Some((sequence, _)) if sequence < page.next => {}
                    Some((sequence, _)) if end.is_some_and(|end| sequence >= end) => break,
                    Some((sequence, value)) => {
                        bytes += value.len().max(1);
                        page.next = after(sequence);
                        page.entries.push(JournalEntry { sequence, value });
                    }
                    None if frames.is_damaged && page.entries.is_empty() => {
                        tracing::warn!(
                            file = file.id.name(),
                            offset = frames.offset,
                            "the history of the journal is damaged"
                        );
                        page.is_damaged = true;
                        page.from = after(file.last).max(page.next);
                        page.next = page.from;
                        break;
                    }
                    // The next page begins with the damage.
                    None if frames.is_damaged => return Ok(page),
                    None => break,
                }
            }
        }
        Ok(page)
    }
}

/// Frames of a file from an offset on.
struct Frames {
    id: FileId,
    /// Sequence of the first entry of the file; 0 if the header is incomplete.
    first: SequenceNumber,
    reader: BufReader<io::Take<File>>,
    offset: u64,
    length: u64,
    last: Option<SequenceNumber>,
    is_damaged: bool,
    offsets: Offsets,
    noted: u64,
}

impl Frames {
    /// Begins at the last known offset that is not after the first entry of at least `from`.
    fn begin(
        id: FileId,
        mut file: File,
        length: u64,
        from: SequenceNumber,
        offsets: &Offsets,
    ) -> Result<Self> {
        let failed = |error: io::Error| from_io(&error, &id.name(), During::Read);
        let mut header = Vec::with_capacity(HEADER_BYTES);
        (&file)
            .take(HEADER_BYTES as u64)
            .read_to_end(&mut header)
            .map_err(failed)?;
        let is_intact = length == 0 || id.check_header(&header) == HeaderCheck::Intact;
        let first = first_of(&header).unwrap_or_default();
        let known = offsets.lock().get(&(id, first)).and_then(|known| {
            let at = known.partition_point(|(last, _)| *last < from);
            at.checked_sub(1).map(|at| known[at])
        });
        let known = known.filter(|(_, offset)| *offset <= length);
        let offset = known.map_or(HEADER_BYTES as u64, |(_, offset)| offset);
        file.seek(SeekFrom::Start(offset)).map_err(failed)?;
        let rest = length.saturating_sub(offset);
        Ok(Self {
            id,
            first,
            reader: BufReader::with_capacity(BUFFER_BYTES, file.take(rest)),
            offset,
            length,
            last: known.map(|(last, _)| last),
            is_damaged: !is_intact,
            offsets: Arc::clone(offsets),
            noted: known.map_or(0, |(_, offset)| offset),
        })
    }

    /// Returns true if entries between a position and the first entry of the file are missing.
    fn follows_missing(&self, from: Option<SequenceNumber>) -> bool {
        // A damaged header does not show the first entry. Such a file is reported as damaged as a whole.
        !self.is_damaged && from.is_some_and(|from| self.first > from)
    }

    /// Returns the next intact frame; `None` at the end, and at damage.
    fn next(&mut self) -> Result<Option<(SequenceNumber, Bytes)>> {
        if self.is_damaged || self.offset >= self.length {
            return Ok(None);
        }
        let left = self.length - self.offset;
        let mut head = [0; FRAME_HEADER_BYTES];
        if left < FRAME_HEADER_BYTES as u64 || !self.fill(&mut head)? {
            self.is_damaged = true;
            return Ok(None);
        }
        let frame = FrameHeader::parse(&head);
        let frame_bytes = FRAME_HEADER_BYTES as u64 + u64::from(frame.length);
        if !frame.is_plausible(self.offset, self.last) || frame_bytes > left {
            self.is_damaged = true;
            return Ok(None);
        }
        let mut payload = vec![0; frame.length as usize];
        if !self.fill(&mut payload)? || !frame.is_intact(self.id.seed(), &payload) {
            self.is_damaged = true;
            return Ok(None);
        }
        self.offset += frame_bytes;
        self.last = Some(frame.sequence);
        if self.offset >= self.noted + OFFSET_DISTANCE {
            self.noted = self.offset;
            let mut offsets = self.offsets.lock();
            let known = offsets.entry((self.id, self.first)).or_default();
            if known.last().is_none_or(|(_, offset)| *offset < self.offset) {
                known.push((frame.sequence, self.offset));
            }
        }
        Ok(Some((frame.sequence, Bytes::from(payload))))
    }

    /// Fills a buffer; returns false if the file is shorter.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<bool> {
        match self.reader.read_exact(buffer) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(from_io(&error, &self.id.name(), During::Read)),
        }
    }
}

/// Checks all files of a history, and that no file is missing between them or before the files in `journals`. Returns
/// one sentence for each damaged or missing file.
pub(crate) fn findings(folder: &Path, journals: &Path) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let (mut markers, mut files) = (BTreeMap::new(), Vec::new());
    for path in list(folder).map_err(at(folder))? {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if let Some(shard) = shard_of_marker(name) {
            match read_marker(&path).map_err(at(&path))? {
                Some(from) => {
                    markers.insert(shard, from);
                }
                None => findings.push(format!("{} is damaged", path.display())),
            }
        }
        let Some((last, id)) = parse_name(name) else {
            continue;
        };
        let file = File::open(&path).map_err(at(&path))?;
        let length = file.metadata().map_err(at(&path))?.len();
        let walked = walk(id, file, length, &mut |_, _| Ok(()))?;
        if walked.damage.is_some() || walked.is_torn || walked.last != Some(last) {
            findings.push(format!(
                "{} is damaged at byte {}: change streams have a gap there",
                path.display(),
                walked.intact_bytes
            ));
        }
        files.push((last, id, path));
    }
    files.sort_unstable();
    let live = file_ids(journals)?;
    for (shard, from) in markers {
        let of_shard = |id: &FileId| id.shard == shard;
        let kept = files.iter().filter(|(last, id, _)| of_shard(id) && *last >= from);
        let mut before = None;
        for (last, id, path) in kept {
            let missing = missing_from(before, *id, from);
            if let Some(missing) = missing
                && first_entry(path).map_err(at(path))? > Some(missing)
            {
                findings.push(missing_before(path));
            }
            before = Some((*id, *last));
        }
        let live = live.iter().find(|id| of_shard(id)).copied();
        if let (Some(before), Some(live)) = (before, live)
            && missing_from(Some(before), live, from).is_some()
        {
            findings.push(missing_before(&journals.join(live.name())));
        }
    }
    Ok(findings)
}

fn missing_before(path: &Path) -> String {
    format!(
        "the file of the history before {} is missing: change streams have a gap there",
        path.display()
    )
}

/// Returns the sequence of the first entry of a file, by its header; `None` if the header is damaged.
fn first_entry(path: &Path) -> io::Result<Option<SequenceNumber>> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    File::open(path)?
        .take(HEADER_BYTES as u64)
        .read_to_end(&mut header)?;
    let id = path
        .file_name()
        .and_then(|name| name.to_str())
        .and_then(parse_name);
    let is_intact = id.is_some_and(|(_, id)| id.check_header(&header) == HeaderCheck::Intact);
    Ok(first_of(&header).filter(|_| is_intact))
}

fn after(sequence: SequenceNumber) -> SequenceNumber {
    SequenceNumber(sequence.0.saturating_add(1))
}

fn name(file: &JournalFile) -> String {
    format!("{:016x}-{}", file.last.0, file.id.name())
}

fn parse_name(name: &str) -> Option<(SequenceNumber, FileId)> {
    let (last, rest) = name.split_at_checked(16)?;
    let last = u64::from_str_radix(last, 16).ok()?;
    Some((SequenceNumber(last), FileId::parse(rest.strip_prefix('-')?)?))
}

fn marker(shard: Shard) -> String {
    format!("{:04x}{MARKER}", shard.0)
}

fn shard_of_marker(name: &str) -> Option<Shard> {
    let digits = name.strip_suffix(MARKER)?;
    let shard = Shard(u16::from_str_radix(digits, 16).ok()?);
    (marker(shard) == name).then_some(shard)
}

fn write_marker(folder: &Path, shard: Shard, from: SequenceNumber) -> io::Result<()> {
    let mut content = Vec::with_capacity(24);
    content.extend_from_slice(&MAGIC);
    content.extend_from_slice(&from.0.to_le_bytes());
    let checksum = xxh3_64(&content);
    content.extend_from_slice(&checksum.to_le_bytes());
    replace(folder, &[&marker(shard)], &content)
}

/// Returns the content of a marker file; `None` if it is damaged.
fn read_marker(path: &Path) -> io::Result<Option<SequenceNumber>> {
    let content = fs::read(path)?;
    let parse = || {
        let (head, checksum) = content.split_first_chunk::<16>()?;
        let checksum = u64::from_le_bytes(*checksum.first_chunk()?);
        let (magic, from) = head.split_first_chunk::<8>()?;
        let is_intact = *magic == MAGIC && checksum == xxh3_64(head) && content.len() == 24;
        let from = u64::from_le_bytes(*from.first_chunk()?);
        is_intact.then_some(SequenceNumber(from))
    };
    Ok(parse())
}

fn modified(metadata: &fs::Metadata) -> Timestamp {
    let since = metadata
        .modified()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let nanos = since.and_then(|since| i64::try_from(since.as_nanos()).ok());
    nanos.map(Timestamp::from_nanos_clamped).unwrap_or_default()
}
