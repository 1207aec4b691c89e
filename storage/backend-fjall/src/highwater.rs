//! High-water mark: a sidecar file that records how much has been acknowledged.
//!
//! fjall and a truncated journal can lose acknowledged writes without an error, because a damaged last record cannot be
//! distinguished from a torn one. The recovered data is therefore compared with this file. If less was recovered, the
//! store opens read-only. The maintenance thread writes the file once per interval (default 1 s), so the file may lack
//! the newest writes. `FORMAT.md` has the layout.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use tideline_backend::{Epoch, Shard};
use tideline_model::SequenceNumber;

use crate::files::{replace, sync_folder};

const FILE_NAME: &str = "highwater";
const MAGIC: [u8; 8] = *b"TLHIGHW1";
const SLOT_BYTES: usize = 4096;
const MARK_BYTES: usize = 18;
const MARKS_AT: usize = 28;
/// Offset of the count of cold loads: after the marks, where older builds wrote zeros.
const COLD_LOADS_AT: usize = SLOT_BYTES - 12;
/// Maximum number of marks of journals in a slot. The embedded store has one shard and rarely more than two epochs.
const MARKS_MAX: usize = (COLD_LOADS_AT - MARKS_AT) / MARK_BYTES;

/// Amount of acknowledged data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Number of commits of rows, hot parts, manifests and owners.
    pub(crate) commits: u64,
    /// Number of loads into the cold store, and of writes to its parts.
    pub(crate) cold_loads: u64,
    /// Sequence of the last durable entry of each epoch whose journal is not deleted.
    pub(crate) journals: BTreeMap<(Shard, Epoch), SequenceNumber>,
}

/// Open sidecar file. Recording a mark only takes a short lock, even while the file is being written.
#[derive(Debug)]
pub(crate) struct HighWater {
    noted: Mutex<Noted>,
    slots: Mutex<Slots>,
}

#[derive(Debug)]
struct Noted {
    marks: Marks,
    is_dirty: bool,
}

#[derive(Debug)]
struct Slots {
    folder: PathBuf,
    /// `None` until the first write.
    file: Option<File>,
    /// True if the file holds more than zeros. Otherwise the first write creates the file with its first mark in one
    /// step, because an empty file could not be distinguished from a file that lost its content.
    is_made: bool,
    counter: u64,
}

/// Content of the sidecar file when it was opened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StoredMarks {
    /// Amount of data that had been acknowledged when the file was written.
    Marks(Marks),
    /// The file did not exist, or holds only zeros. Earlier builds created an empty file and wrote the first mark
    /// later.
    Missing,
    /// Neither slot can be read.
    Damaged,
}

impl StoredMarks {
    /// Returns the acknowledged marks, if they are known.
    pub(crate) fn marks(&self) -> Option<&Marks> {
        match self {
            Self::Marks(marks) => Some(marks),
            Self::Missing | Self::Damaged => None,
        }
    }
}

/// Returns the damaged slots, numbered from 0. A slot of zeros is not damaged. Returns an empty list if there is no
/// file.
pub(crate) fn damaged_slots(folder: &Path) -> io::Result<Vec<usize>> {
    let content = match std::fs::read(folder.join(FILE_NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read?,
    };
    let slots = content.chunks(SLOT_BYTES).enumerate();
    let is_damaged = |slot: &[u8]| {
        let whole = <&[u8; SLOT_BYTES]>::try_from(slot);
        slot.iter().any(|byte| *byte != 0) && whole.ok().and_then(decode).is_none()
    };
    Ok(slots
        .filter(|(_, slot)| is_damaged(slot))
        .map(|(at, _)| at)
        .collect())
}

impl HighWater {
    /// Reads the sidecar file of a data folder. Nothing is written before the first mark.
    pub(crate) fn open(folder: &Path) -> io::Result<(Self, StoredMarks)> {
        let content = match fs::read(folder.join(FILE_NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        let is_made = content.iter().any(|byte| *byte != 0);
        let slots = content.chunks(SLOT_BYTES).take(2);
        let newest = slots
            .filter_map(|slot| decode(slot.try_into().ok()?))
            .max_by_key(|(counter, _)| *counter);
        let (counter, marks, remembered) = match newest {
            Some((counter, marks)) => (counter, marks.clone(), StoredMarks::Marks(marks)),
            None if is_made => (0, Marks::default(), StoredMarks::Damaged),
            None => (0, Marks::default(), StoredMarks::Missing),
        };
        let high_water = Self {
            noted: Mutex::new(Noted {
                marks,
                is_dirty: false,
            }),
            slots: Mutex::new(Slots {
                folder: folder.to_owned(),
                file: None,
                is_made,
                counter,
            }),
        };
        Ok((high_water, remembered))
    }

    /// Returns all recorded marks.
    #[cfg(test)]
    pub(crate) fn marks(&self) -> Marks {
        self.noted.lock().marks.clone()
    }

    /// Returns the number of acknowledged commits.
    pub(crate) fn commits(&self) -> u64 {
        self.noted.lock().marks.commits
    }

    /// Records that `commits` commits are durable. A lower number than before is ignored.
    pub(crate) fn note_commit(&self, commits: u64) {
        let mut noted = self.noted.lock();
        noted.marks.commits = noted.marks.commits.max(commits);
        noted.is_dirty = true;
    }

    /// Records that `loads` loads into the cold store and writes to its parts are durable. A lower number than before
    /// is ignored.
    pub(crate) fn note_cold_load(&self, loads: u64) {
        let mut noted = self.noted.lock();
        noted.marks.cold_loads = noted.marks.cold_loads.max(loads);
        noted.is_dirty = true;
    }

    /// Records a durable journal entry. A lower sequence than before is ignored.
    pub(crate) fn note_entry(&self, shard: Shard, epoch: Epoch, sequence: SequenceNumber) {
        let mut noted = self.noted.lock();
        let mark = noted.marks.journals.entry((shard, epoch)).or_insert(sequence);
        *mark = sequence.max(*mark);
        noted.is_dirty = true;
    }

    /// Durably removes the marks of journals that are about to be deleted.
    pub(crate) fn forget(&self, shard: Shard, epochs: &[Epoch]) -> io::Result<()> {
        {
            let mut noted = self.noted.lock();
            let is_kept = |held: Shard, epoch| held != shard || !epochs.contains(&epoch);
            noted
                .marks
                .journals
                .retain(|(held, epoch), _| is_kept(*held, *epoch));
            noted.is_dirty = true;
        }
        self.save()
    }

    /// Durably replaces all marks with `marks`.
    pub(crate) fn reset(&self, folder: &Path, marks: Marks) -> io::Result<()> {
        *self.noted.lock() = Noted {
            marks,
            is_dirty: true,
        };
        self.save()?;
        sync_folder(folder)
    }

    /// Writes the marks if they have changed: overwrites the older slot, then syncs.
    pub(crate) fn save(&self) -> io::Result<()> {
        let mut slots = self.slots.lock();
        let marks = {
            let mut noted = self.noted.lock();
            if !std::mem::take(&mut noted.is_dirty) {
                return Ok(());
            }
            noted.marks.clone()
        };
        let written = slots.write(&marks);
        if written.is_err() {
            self.noted.lock().is_dirty = true;
        }
        written
    }
}

impl Slots {
    fn write(&mut self, marks: &Marks) -> io::Result<()> {
        let counter = self.counter + 1;
        let at = (counter % 2) as usize * SLOT_BYTES;
        let slot = encode(counter, marks);
        if self.is_made {
            let file = self.file()?;
            file.write_all_at(&slot, at as u64)?;
            file.sync_data()?;
        } else {
            let mut content = [0; 2 * SLOT_BYTES];
            content[at..at + SLOT_BYTES].copy_from_slice(&slot);
            replace(&self.folder, &[FILE_NAME], &content)?;
            self.is_made = true;
        }
        self.counter = counter;
        Ok(())
    }

    fn file(&mut self) -> io::Result<&File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => File::options().write(true).open(self.folder.join(FILE_NAME))?,
        };
        Ok(self.file.insert(file))
    }
}

impl Marks {
    /// Describes the first part of `self` that is missing in `found`; `None` if nothing is missing.
    pub(crate) fn missing_in(&self, found: &Self) -> Option<String> {
        if found.commits < self.commits {
            return Some(format!(
                "{} of {} commits of rows and manifests",
                self.commits - found.commits,
                self.commits
            ));
        }
        if found.cold_loads < self.cold_loads {
            return Some(format!(
                "{} of {} loads of cold segments",
                self.cold_loads - found.cold_loads,
                self.cold_loads
            ));
        }
        let journal = self
            .journals
            .iter()
            .find(|(journal, mark)| found.journals.get(journal).is_none_or(|last| last < *mark));
        journal.map(|((shard, epoch), mark)| {
            format!(
                "the journal of shard {}, epoch {} up to entry {mark}",
                shard.0, epoch.0
            )
        })
    }
}

fn encode(counter: u64, marks: &Marks) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..8].copy_from_slice(&MAGIC);
    slot[8..16].copy_from_slice(&counter.to_le_bytes());
    slot[16..24].copy_from_slice(&marks.commits.to_le_bytes());
    // The newest epochs are last and matter most, so the first marks are skipped if there are too many.
    let skipped = marks.journals.len().saturating_sub(MARKS_MAX);
    let kept = marks.journals.iter().skip(skipped);
    slot[24..MARKS_AT].copy_from_slice(&(kept.len() as u32).to_le_bytes());
    for (n, ((shard, epoch), sequence)) in kept.enumerate() {
        let mark = &mut slot[MARKS_AT + n * MARK_BYTES..][..MARK_BYTES];
        mark[..2].copy_from_slice(&shard.0.to_le_bytes());
        mark[2..10].copy_from_slice(&epoch.0.to_le_bytes());
        mark[10..].copy_from_slice(&sequence.0.to_le_bytes());
    }
    slot[COLD_LOADS_AT..][..8].copy_from_slice(&marks.cold_loads.to_le_bytes());
    let checksum = crc32fast::hash(&slot[..SLOT_BYTES - 4]);
    slot[SLOT_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    slot
}

fn decode(slot: &[u8; SLOT_BYTES]) -> Option<(u64, Marks)> {
    let (checked, checksum) = slot.split_last_chunk::<4>()?;
    if crc32fast::hash(checked) != u32::from_le_bytes(*checksum) || checked[..8] != MAGIC {
        return None;
    }
    let number = |at: usize| -> Option<u64> { Some(u64::from_le_bytes(*checked.get(at..)?.first_chunk()?)) };
    let count = u32::from_le_bytes(*checked.get(24..)?.first_chunk()?) as usize;
    let mut journals = BTreeMap::new();
    for n in 0..count.min(MARKS_MAX) {
        let at = MARKS_AT + n * MARK_BYTES;
        let shard = u16::from_le_bytes(*checked.get(at..)?.first_chunk()?);
        journals.insert(
            (Shard(shard), Epoch(number(at + 2)?)),
            SequenceNumber(number(at + 10)?),
        );
    }
    let marks = Marks {
        commits: number(16)?,
        cold_loads: number(COLD_LOADS_AT)?,
        journals,
    };
    Some((number(8)?, marks))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(commits: u64) -> Marks {
        Marks {
            commits,
            cold_loads: commits / 2,
            journals: [((Shard(0), Epoch(3)), SequenceNumber(commits * 10))].into(),
        }
    }

    #[test]
    fn marks_read_back_and_every_flipped_bit_is_seen() {
        let slot = encode(7, &marks(5));
        assert_eq!(decode(&slot), Some((7, marks(5))));
        for bit in 0..SLOT_BYTES * 8 {
            let mut flipped = slot;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&flipped), None, "bit {bit}");
        }
    }

    #[test]
    fn a_slot_can_be_full() {
        let mut full = marks(5);
        for epoch in 0..300 {
            full.journals
                .insert((Shard(0), Epoch(epoch)), SequenceNumber(epoch));
        }
        let (_, read) = decode(&encode(1, &full)).expect("an intact slot");
        assert_eq!((read.commits, read.cold_loads), (5, 2));
        assert_eq!(read.journals.len(), MARKS_MAX);
        assert_eq!(
            read.journals.first_key_value().map(|(key, _)| key.1),
            Some(Epoch(75))
        );
    }

    #[test]
    fn a_torn_write_leaves_the_slot_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let (high_water, remembered) = HighWater::open(folder.path()).expect("open");
        assert_eq!(remembered, StoredMarks::Missing);
        for commits in 1..=4 {
            high_water.note_commit(commits);
            high_water.save().expect("save");
        }
        // The fourth write went to the first slot.
        let file = File::options().write(true).open(folder.path().join(FILE_NAME));
        let file = file.expect("open");
        file.write_all_at(&[0xff; 100], 50).expect("tear");
        let (_, remembered) = HighWater::open(folder.path()).expect("open");
        assert_eq!(
            remembered,
            StoredMarks::Marks(Marks {
                commits: 3,
                ..Marks::default()
            })
        );
        file.set_len(10).expect("truncate");
        let (_, remembered) = HighWater::open(folder.path()).expect("open");
        assert_eq!(remembered, StoredMarks::Damaged);
    }

    #[test]
    fn the_first_mark_is_there_as_a_whole_or_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE_NAME);
        let (high_water, _) = HighWater::open(folder.path()).expect("open");
        assert!(!path.exists(), "an open writes nothing");
        // Earlier builds created the file before they wrote to it, so a file of zeros may exist.
        for length in [0, SLOT_BYTES, 2 * SLOT_BYTES] {
            fs::write(&path, vec![0; length]).expect("write");
            let (_, remembered) = HighWater::open(folder.path()).expect("open");
            assert_eq!(remembered, StoredMarks::Missing, "{length} zeros");
        }
        high_water.note_commit(1);
        high_water.save().expect("save");
        let content = fs::read(&path).expect("read");
        assert_eq!(content.len(), 2 * SLOT_BYTES);
        let (_, remembered) = HighWater::open(folder.path()).expect("open");
        assert_eq!(
            remembered,
            StoredMarks::Marks(Marks {
                commits: 1,
                ..Marks::default()
            })
        );
    }

    #[test]
    fn less_than_remembered_is_missing() {
        assert_eq!(marks(5).missing_in(&marks(5)), None);
        assert_eq!(marks(5).missing_in(&marks(6)), None);
        assert!(marks(5).missing_in(&marks(4)).is_some());
        let without_loads = Marks {
            cold_loads: 1,
            ..marks(5)
        };
        let missing = marks(5).missing_in(&without_loads);
        assert_eq!(missing.as_deref(), Some("1 of 2 loads of cold segments"));
        let without_journal = Marks {
            commits: 9,
            ..Marks::default()
        };
        assert!(marks(5).missing_in(&without_journal).is_some());
    }
}
