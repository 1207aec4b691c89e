//! Writer of a segment: receives runs timeline by timeline and writes files by measurement and day.
//!
//! - A small measurement of a day is buffered in memory. It is written to a shared file at the end, or earlier if the
//!   buffers are full. Adjacent days with few rows are written to the same shared file.
//! - A large measurement of a day gets its own file.
//! - In a sparse segment, a run of few points over many days is not split at days. Otherwise years of one value per day
//!   would become thousands of files of one row.
//! - Buffered rows and row groups of open files have memory limits. If the limit of buffered rows is exceeded, the
//!   largest measurement gets its own file, or all buffered rows are written to shared files. If the limit of row
//!   groups is exceeded, the largest row groups are written early.
//! - A complete file is sent under a name derived from its content. It is then read back and verified before it becomes
//!   part of the segment.

mod slots;

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tideline_chunk::{LoneSummaryWriter, Run, SequenceSpan};
use tideline_model::{FieldId, Identity, TimelineId};

use self::slots::{FileState, Measured, Slot, Waiting};
use crate::copy::{ArchiveCopy, ArchiveFile};
use crate::description::{DescribedFields, described};
use crate::directory::write_timelines;
use crate::error::{ArchiveError, Result};
use crate::extent::{Extent, SPARSE_SUMMARIES_BYTES_MAX, SUMMARY_WIDTHS, is_dense};
use crate::file::columns::Shape;
use crate::file::shared::SharedFile;
use crate::file::wide::WideFile;
use crate::layout::{Day, SegmentTarget, data_key, shared_key, timelines_key};
use crate::send::send;
use crate::spool::{Extents, RowLocation, SpoolWriter};
use crate::target::Target;
use crate::timeline_metadata::{Fields, TimelineMetadata};

/// Maximum memory of buffered rows of small measurements, in bytes.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Maximum memory of the row groups of all open files, in bytes.
const GROUPS_BYTES_MAX: usize = 128 << 20;
/// Size in bytes at which a file is complete. Further rows go to another file, because a file is sent and read back as
/// a whole.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of open files.
const OPEN_FILES_MAX: usize = 128;
/// Maximum number of points in a shared file of several days. A file of one day may have more.
const SHARED_POINTS: usize = 65_536;
/// Number of points per day below which a run over several days is not split at days, if the segment is sparse.
const SPARSE_POINTS_A_DAY: u128 = 64;

/// Names of the objects that a job has started to put at a target. The objects must be removed if the job fails.
#[derive(Debug, Clone, Default)]
pub struct SentObjects(Arc<Mutex<Vec<String>>>);

impl SentObjects {
    /// Records a name before the object is put.
    pub(crate) fn note(&self, key: &str) {
        self.0.lock().push(key.to_owned());
    }

    /// Returns all names, newest first, so that a description is removed before the objects that it lists.
    pub fn newest_first(&self) -> Vec<String> {
        self.0.lock().iter().rev().cloned().collect()
    }
}

/// Measurement and day of rows. The measurement is `None` for timelines without a known identity; the day is `None` for
/// runs that are not split at days.
type SlotKey = (Option<Box<str>>, Option<Day>);

/// Result of writing a segment.
#[derive(Debug)]
pub struct WrittenSegment {
    /// Files of the segment, all verified.
    pub copy: ArchiveCopy,
    /// Locations of all runs, in order of timelines.
    pub extents: Extents,
    /// Fields of the measurements.
    pub fields: DescribedFields,
}

/// Writer of the files of one segment.
pub struct ArchiveWriter<'a> {
    location: SegmentTarget,
    target: Arc<Target>,
    directory: std::path::PathBuf,
    own_file_rows: usize,
    metadata: &'a dyn TimelineMetadata,
    fields: &'a dyn Fields,
    names: HashMap<FieldId, String>,
    slots: HashMap<SlotKey, Slot>,
    waiting_bytes: usize,
    files: Vec<FileState>,
    open: usize,
    /// Memory of the row groups of open files, in bytes.
    groups_bytes: usize,
    spool: SpoolWriter,
    summarizer: LoneSummaryWriter,
    /// Summaries of the current run.
    summaries: Vec<u8>,
    records: u64,
    /// True if no measurement is expected to fill a file per day.
    is_sparse: bool,
    sent: SentObjects,
}

impl<'a> ArchiveWriter<'a> {
    pub(crate) fn new(
        location: SegmentTarget,
        target: Arc<Target>,
        directory: std::path::PathBuf,
        own_file_rows: usize,
        metadata: &'a dyn TimelineMetadata,
        fields: &'a dyn Fields,
    ) -> Result<Self> {
        Ok(Self {
            spool: SpoolWriter::new(&directory)?,
            location,
            target,
            directory,
            own_file_rows,
            metadata,
            fields,
            names: HashMap::new(),
            slots: HashMap::new(),
            waiting_bytes: 0,
            files: Vec::new(),
            open: 0,
            groups_bytes: 0,
            summarizer: LoneSummaryWriter::default(),
            summaries: Vec::new(),
            records: 0,
            is_sparse: false,
            sent: SentObjects::default(),
        })
    }

    /// Sets the expected number of points and their range of timestamps. If all points together would not fill a file
    /// per day, runs with few points per day are not split at days.
    #[must_use]
    pub fn expecting(mut self, points: u64, first: i64, last: i64) -> Self {
        let days = u128::from(Day::of(last).0.abs_diff(Day::of(first).0)) + 1;
        self.is_sparse = days > 1 && u128::from(points) < days * self.own_file_rows as u128;
        self
    }

    /// Returns the list of names to which this writer adds every object that it puts. The list remains valid after a
    /// failure.
    pub fn sent(&self) -> SentObjects {
        self.sent.clone()
    }

    /// Adds a run of a timeline. Timelines must be in ascending order, and runs of a timeline in order of time.
    ///
    /// # Errors
    ///
    /// Fails if the local disk or the target fails, or if a field has no name.
    pub fn add(&mut self, id: TimelineId, run: &Run, sequences: SequenceSpan) -> Result<()> {
        let identity = self.metadata.identity(id);
        if self.is_sparse && is_sparse(run) {
            return self.add_to_day(id, identity, None, run, sequences);
        }
        let mut start = 0;
        while start < run.rows() {
            let day = Day::of(run.timestamps[start]);
            let end = match day.end() {
                Some(end) => run.timestamps.partition_point(|time| *time < end),
                None => run.rows(),
            };
            if (start, end) == (0, run.rows()) {
                self.add_to_day(id, identity.clone(), Some(day), run, sequences)?;
            } else {
                self.add_to_day(id, identity.clone(), Some(day), &run.slice(start..end), sequences)?;
            }
            start = end;
        }
        Ok(())
    }

    fn add_to_day(
        &mut self,
        id: TimelineId,
        identity: Option<Arc<Identity>>,
        day: Option<Day>,
        run: &Run,
        sequences: SequenceSpan,
    ) -> Result<()> {
        let extent = Extent {
            file: u32::MAX,
            row: 0,
            rows: 0,
            first: run.timestamps[0],
            last: run.timestamps[run.rows() - 1],
            points: run.rows() as u32,
            values: u32::try_from(run.values()).unwrap_or(u32::MAX),
            sequences,
        };
        self.records += 1;
        self.summaries.clear();
        self.summarizer
            .write(run, &SUMMARY_WIDTHS, &mut self.summaries)
            .map_err(|error| ArchiveError::format("a run", error))?;
        if self.summaries.len() > SPARSE_SUMMARIES_BYTES_MAX && !is_dense(&self.summaries) {
            self.summaries.clear();
        }
        let measurement: Option<Box<str>> = identity.as_deref().map(|identity| identity.measurement().into());
        let key = (measurement, day);
        if let Some(Slot::File(file, _)) = self.slots.get(&key)
            && let Some(identity) = &identity
        {
            let (file, row, rows) = self.add_to_file(&key, *file, id, identity, run)?;
            let extent = Extent {
                file,
                row,
                rows,
                ..extent
            };
            return self.spool.push(id, &extent, &self.summaries).map(drop);
        }
        let record = self.spool.push(id, &extent, &self.summaries)?;
        let new = || Slot::Waiting(Vec::new(), 0);
        let slot = self.slots.entry(key.clone()).or_insert_with(new);
        let Slot::Waiting(waiting, rows) = slot else {
            return Err(ArchiveError::format(
                "a segment",
                "a timeline without an identity was assigned its own file",
            ));
        };
        let run = run.clone();
        *rows += run.rows();
        let run = Waiting {
            id,
            identity,
            run,
            record,
        };
        self.waiting_bytes += run.bytes();
        waiting.push(run);
        let may_have_file = key.0.is_some() && key.1.is_some();
        if *rows >= self.own_file_rows && may_have_file && self.open < OPEN_FILES_MAX {
            self.give_file(&key)?;
        }
        while self.waiting_bytes > WAITING_BYTES_MAX {
            self.relieve()?;
        }
        Ok(())
    }

    /// Reduces the buffered rows: opens a file for the largest measurement of a day. If [`OPEN_FILES_MAX`] files are
    /// open, or if the largest measurement takes at most 1/64 of the memory limit, writes all buffered rows to shared
    /// files instead.
    fn relieve(&mut self) -> Result<()> {
        let size = |slot: &Slot| match slot {
            Slot::Waiting(waiting, _) => waiting.iter().map(Waiting::bytes).sum::<usize>(),
            Slot::File(..) => 0,
        };
        let named = self
            .slots
            .iter()
            .filter(|((measurement, day), _)| measurement.is_some() && day.is_some());
        let largest = named
            .max_by_key(|(_, slot)| size(slot))
            .map(|(key, slot)| (key.clone(), size(slot)));
        match largest {
            Some((key, bytes)) if self.open < OPEN_FILES_MAX && bytes > WAITING_BYTES_MAX / 64 => {
                self.give_file(&key)
            }
            _ => self.share(&mut || true),
        }
    }

    /// Opens a file for a measurement of a day and moves its buffered rows to the file.
    fn give_file(&mut self, key: &SlotKey) -> Result<()> {
        let Some(Slot::Waiting(waiting, _)) = self.slots.remove(key) else {
            return Ok(());
        };
        let mut file = self.open_file(key, &waiting)?;
        let mut locations = Vec::with_capacity(waiting.len());
        for waiting in waiting {
            self.waiting_bytes -= waiting.bytes().min(self.waiting_bytes);
            let Waiting {
                id,
                identity,
                run,
                record,
            } = waiting;
            let identity = identity.expect("only a named measurement gets a file");
            let location = self.add_to_file(key, file, id, &identity, &run)?;
            file = location.0;
            locations.push((record, location));
        }
        self.spool.location(locations.into_iter())
    }

    /// Opens a file with the columns that buffered runs need.
    fn open_file(&mut self, key: &SlotKey, waiting: &[Waiting]) -> Result<u32> {
        let mut shape = self.shape(key);
        for Waiting { identity, run, .. } in waiting {
            if let Some(identity) = identity {
                self.widen(&mut shape, identity, run)?;
            }
        }
        self.open_with(key, shape, waiting.iter().map(|waiting| &waiting.run))
    }

    /// Returns all known tags and fields of a measurement.
    fn shape(&self, (measurement, _): &SlotKey) -> Shape {
        let measurement = measurement.as_deref().unwrap_or_default();
        Shape {
            tags: self.metadata.tag_keys(measurement),
            fields: self.fields.of_measurement(measurement),
        }
    }

    /// Adds the missing tags and fields of a run to a shape.
    fn widen(&self, shape: &mut Shape, identity: &Identity, run: &Run) -> Result<()> {
        for (tag, _) in identity.tags() {
            if let Err(at) = shape.tags.binary_search(tag) {
                shape.tags.insert(at, tag.clone());
            }
        }
        for column in &run.columns {
            let of = column.values.value_type();
            match shape.fields.iter_mut().find(|field| field.id == column.field) {
                Some(field) if field.types.contains(&of) => {}
                Some(field) => field.types.push(of),
                None => shape.fields.push(crate::ShapeField {
                    id: column.field,
                    name: self.name(column.field)?,
                    types: vec![of],
                }),
            }
        }
        Ok(())
    }

    fn open_with<'r>(
        &mut self,
        key: &SlotKey,
        shape: Shape,
        samples: impl Iterator<Item = &'r Run>,
    ) -> Result<u32> {
        let measurement = key.0.as_deref().unwrap_or_default();
        let no_day = || ArchiveError::format("a segment", "rows without a day have their own file");
        let day = key.1.ok_or_else(no_day)?;
        let mut notes = self.location.notes();
        notes.push(("tideline.measurement".into(), measurement.into()));
        notes.push(("tideline.day".into(), day.to_string()));
        let file = WideFile::new(&self.directory, &shape, samples, notes)?;
        let about = Measured {
            measurement: measurement.into(),
            day,
            first: i64::MAX,
            last: i64::MIN,
        };
        self.files.push(FileState::Open(Box::new(file), Box::new(about)));
        self.open += 1;
        let number = (self.files.len() - 1) as u32;
        self.slots
            .insert(key.clone(), Slot::File(number, Box::new(shape)));
        Ok(number)
    }

    /// Adds a run to the file of its measurement and day, or to a new file if the file is complete or lacks a column.
    fn add_to_file(
        &mut self,
        key: &SlotKey,
        file: u32,
        id: TimelineId,
        identity: &Identity,
        run: &Run,
    ) -> Result<RowLocation> {
        let mut number = file;
        if !matches!(&self.files[file as usize], FileState::Open(file, _) if file.fits(identity, run)) {
            self.complete(file as usize)?;
            number = self.open_again(key, identity, run)?;
        }
        let FileState::Open(file, about) = &mut self.files[number as usize] else {
            return Err(ArchiveError::format("a segment", "a file ended too early"));
        };
        let row = file.file.rows();
        let before = file.file.bytes_waiting();
        file.add(id, identity, run)?;
        self.groups_bytes = self.groups_bytes - before.min(self.groups_bytes) + file.file.bytes_waiting();
        about.first = about.first.min(run.timestamps[0]);
        about.last = about.last.max(run.timestamps[run.rows() - 1]);
        let is_full = file.file.bytes_written() >= FILE_BYTES_MAX;
        let location = (number, row, run.rows() as u32);
        if is_full {
            self.complete(number as usize)?;
        }
        self.bound_groups()?;
        Ok(location)
    }

    /// Opens the next file of a measurement and day, with the columns of the previous file and of the new run.
    /// Timelines with alternating columns therefore do not need a file per alternation.
    fn open_again(&mut self, key: &SlotKey, identity: &Identity, run: &Run) -> Result<u32> {
        let mut shape = match self.slots.get(key) {
            Some(Slot::File(_, shape)) => Shape::clone(shape),
            _ => self.shape(key),
        };
        self.widen(&mut shape, identity, run)?;
        self.open_with(key, shape, std::iter::once(run))
    }

    fn name(&self, field: FieldId) -> Result<String> {
        let unknown = || ArchiveError::format("a segment", format!("field {field} has no name"));
        self.fields.name(field).ok_or_else(unknown)
    }

    /// Writes the largest row groups until the row groups of all open files are within the memory limit.
    fn bound_groups(&mut self) -> Result<()> {
        while self.groups_bytes > GROUPS_BYTES_MAX {
            let open = self.files.iter_mut().filter_map(|file| match file {
                FileState::Open(file, _) => Some(&mut file.file),
                FileState::Sending | FileState::Done(_) => None,
            });
            let largest = open.max_by_key(|file| file.bytes_waiting());
            let bytes = largest.as_ref().map_or(0, |file| file.bytes_waiting());
            let Some(largest) = largest.filter(|_| bytes > 0) else {
                self.groups_bytes = 0;
                return Ok(());
            };
            largest.flush()?;
            self.groups_bytes -= bytes.min(self.groups_bytes);
        }
        Ok(())
    }

    /// Writes all buffered rows to shared files. Adjacent days share a file of at most [`SHARED_POINTS`] points; a
    /// single day may exceed this limit.
    fn share(&mut self, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        let waiting = |(key, slot): (&SlotKey, &Slot)| match slot {
            Slot::Waiting(waiting, points) if !waiting.is_empty() => Some((key.clone(), *points)),
            Slot::Waiting(..) | Slot::File(..) => None,
        };
        let mut keys: Vec<(SlotKey, usize)> = self.slots.iter().filter_map(waiting).collect();
        keys.sort_unstable_by(|(a, _), (b, _)| (a.1, &a.0).cmp(&(b.1, &b.0)));
        self.waiting_bytes = 0;
        let mut together: Vec<SlotKey> = Vec::new();
        let mut points = 0;
        for of_day in keys.chunk_by(|(a, _), (b, _)| a.1 == b.1) {
            let more: usize = of_day.iter().map(|(_, points)| *points).sum();
            let is_cut = |key: &SlotKey| key.1.is_some();
            // Runs that are not split at days have separate files.
            let is_apart = together.first().map(is_cut) != of_day.first().map(|(key, _)| is_cut(key));
            if !together.is_empty() && (is_apart || points + more > SHARED_POINTS) {
                self.share_together(&std::mem::take(&mut together), go_on)?;
                points = 0;
            }
            together.extend(of_day.iter().map(|(key, _)| key.clone()));
            points += more;
        }
        match together.is_empty() {
            true => Ok(()),
            false => self.share_together(&together, go_on),
        }
    }

    /// Writes the buffered rows of some slots to one shared file.
    fn share_together(&mut self, keys: &[SlotKey], go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        if !go_on() {
            return Err(ArchiveError::Stopped);
        }
        let mut waiting = Vec::new();
        for key in keys {
            if let Some(Slot::Waiting(more, _)) = self.slots.remove(key) {
                waiting.extend(more);
            }
        }
        waiting.sort_by(|a, b| a.order().cmp(&b.order()));
        let runs = waiting.iter().map(|waiting| &waiting.run);
        let mut file = SharedFile::new(&self.directory, runs, self.location.notes())?;
        let number = self.files.len() as u32;
        let (mut first, mut last) = (i64::MAX, i64::MIN);
        let mut locations = Vec::with_capacity(waiting.len());
        for Waiting {
            id,
            identity,
            run,
            record,
        } in waiting
        {
            for column in &run.columns {
                if !self.names.contains_key(&column.field) {
                    let name = self.name(column.field)?;
                    self.names.insert(column.field, name);
                }
            }
            let row = file.file.rows();
            let rows = file.add(id, identity.as_deref(), &run, &self.names)?;
            locations.push((record, (number, row, rows)));
            first = first.min(run.timestamps[0]);
            last = last.max(run.timestamps[run.rows() - 1]);
        }
        self.spool.location(locations.into_iter())?;
        let days = (Day::of(first), Day::of(last));
        let name = |sha256: &str| self.noted(shared_key(&self.location, days, sha256));
        let file = send(&self.target, &file.finish()?, (first, last), true, name)?;
        self.files.push(FileState::Done(file));
        Ok(())
    }

    /// Records the name of an object that is about to be put, and returns it.
    fn noted(&self, key: String) -> String {
        self.sent.note(&key);
        key
    }

    /// Completes a file, sends it and verifies it at the target.
    fn complete(&mut self, at: usize) -> Result<()> {
        let FileState::Open(_, about) = &self.files[at] else {
            return Ok(());
        };
        let about = about.clone();
        let FileState::Open(file, _) = std::mem::replace(&mut self.files[at], FileState::Sending) else {
            return Ok(());
        };
        self.open -= 1;
        self.groups_bytes -= file.file.bytes_waiting().min(self.groups_bytes);
        let name = |sha256: &str| self.noted(data_key(&self.location, &about.measurement, about.day, sha256));
        let sent = send(
            &self.target,
            &file.finish()?,
            (about.first, about.last),
            false,
            name,
        )?;
        self.files[at] = FileState::Done(sent);
        Ok(())
    }

    /// Returns true if no run was added.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Completes all files. On success they are stored at the target and verified. Calls `go_on` before each file of
    /// points and stops if it returns false.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::Stopped`] if `go_on` returned false; other errors if the target or the local disk fails.
    pub fn finish(mut self, go_on: &mut dyn FnMut() -> bool) -> Result<WrittenSegment> {
        self.share(go_on)?;
        for at in 0..self.files.len() {
            if !go_on() {
                return Err(ArchiveError::Stopped);
            }
            self.complete(at)?;
        }
        let files = std::mem::take(&mut self.files)
            .into_iter()
            .filter_map(|file| match file {
                FileState::Done(file) => Some(file),
                FileState::Open(..) | FileState::Sending => None,
            });
        let files: Vec<ArchiveFile> = files.collect();
        let mut extents = self.spool.finish()?;
        let (timelines, measurements) = write_timelines(
            &self.directory,
            &self.location,
            &files,
            &mut extents,
            self.metadata,
        )?;
        let sent = self.sent.clone();
        let name = |sha256: &str| {
            let key = timelines_key(&self.location, sha256);
            sent.note(&key);
            key
        };
        let first = files.iter().map(|file| file.first).min().unwrap_or(0);
        let last = files.iter().map(|file| file.last).max().unwrap_or(0);
        let timelines = send(&self.target, &timelines, (first, last), false, name)?;
        extents.rewind(self.records)?;
        let copy = ArchiveCopy {
            target: self.location.target,
            files,
            timelines,
            sidecar: String::new(),
            attached: None,
        };
        Ok(WrittenSegment {
            copy,
            extents,
            fields: described(measurements, self.fields),
        })
    }
}

/// Returns true if a run spans several days and has few points per day.
fn is_sparse(run: &Run) -> bool {
    let ends = run.timestamps.first().zip(run.timestamps.last());
    ends.is_some_and(|(first, last)| {
        let days = u128::from(Day::of(*last).0.abs_diff(Day::of(*first).0)) + 1;
        days > 1 && (run.rows() as u128) < days * SPARSE_POINTS_A_DAY
    })
}
