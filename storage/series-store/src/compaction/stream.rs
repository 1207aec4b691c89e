//! Streaming k-way merge of the inputs of a rewrite, encoded lazily into chunks or file rows.
//!
//! Each input is read page by page. The encoded fragments of one timeline are in memory together; they are decoded and
//! merged in slices of time. Memory therefore depends on the largest timeline, not on the size of the inputs.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use tideline_archive::Extent;
use tideline_backend::{Backend, BackendError, PageLimit, Row, SegmentRef};
use tideline_chunk::{Chunk, ChunkError, SequenceSpan};
use tideline_model::{FieldId, SequenceNumber, Tier, TimeRange, TimelineId};
use tideline_runtime::background;

use super::archive::FilesOutput;
use super::{Load, RewriteCost, Throttle};
use crate::buckets::load_buckets;
use crate::deletes::TableDeletes;
use crate::error::{Result, StoreError};
use crate::manifest::SegmentTotals;
use crate::merge::concat;
use crate::scan::archived::{Allowance, FilesReader, release};
use crate::scan::chunk_fragment;
use crate::scan::cursor::Walk;
use crate::scan::fragment::{Buffer, Fragment, FragmentData, Wanted, overlap_groups};
use crate::segment_writer::{SegmentWriter, chunk_rows_max};
use crate::shared::Shared;

/// Maximum bytes of the pages of all inputs together. Exceeded only if the inputs are so many that each page has its
/// minimum of [`PAGE_BYTES_MIN`].
const PAGES_BYTES: usize = 32 << 20;
/// Maximum rows of the pages of all inputs together. Exceeded only if the inputs are so many that each page has its
/// minimum of [`PAGE_ROWS_MIN`]. The memory of a short chunk consists mostly of the row that contains it.
const PAGES_ROWS: usize = 32_768;
/// Minimum rows of a page, so that the seek to its start is a small part of the cost.
const PAGE_ROWS_MIN: usize = 256;
/// Minimum bytes of a page of one input for efficient reads.
const PAGE_BYTES_MIN: usize = 64 << 10;
/// Approximate maximum number of values that are decoded and merged at once. Larger overlap groups are merged in slices
/// of time.
const SLICE_VALUES: usize = 1 << 20;

/// Lazily evaluated output.
pub(super) struct Stream<'a> {
    backend: &'a dyn Backend,
    sources: Vec<Input>,
    deletes: Option<&'a TableDeletes>,
    tier: Tier,
    /// Time range of the output. Points outside it are skipped.
    range: TimeRange,
    pub(super) throttle: &'a mut dyn Throttle,
    pub(super) output: Output<'a>,
    ready: VecDeque<Row>,
    buffer: Buffer,
    pub(super) cost: RewriteCost,
    /// Error that ended the stream early.
    failure: Option<StoreError>,
}

/// Input with its read position.
struct Input {
    walk: Walk,
    tier: Tier,
    deletes_from: SequenceNumber,
    /// Reader of the files of an archive segment.
    files: Option<FilesReader>,
}

/// Destination of the output.
pub(super) enum Output<'a> {
    /// Chunks for the backend.
    Chunks(Box<SegmentWriter>),
    /// Files for a target.
    Files(Box<FilesOutput<'a>>),
}

impl<'a> Stream<'a> {
    /// Creates the stream from the inputs of a load to `output`.
    pub(super) fn new(
        shared: &'a Shared,
        load: &Load<'a>,
        throttle: &'a mut dyn Throttle,
        output: Output<'a>,
    ) -> Self {
        let inputs = load.inputs;
        let backend = shared.backend.as_ref();
        let allowance = Allowance::new(inputs.iter()).passing();
        let advice = backend.capabilities().page_advice;
        let bytes =
            (PAGES_BYTES / inputs.len().max(1)).clamp(PAGE_BYTES_MIN, advice.bytes_max.max(PAGE_BYTES_MIN));
        let rows =
            (PAGES_ROWS / inputs.len().max(1)).clamp(PAGE_ROWS_MIN, advice.rows_max.max(PAGE_ROWS_MIN));
        let page = PageLimit {
            bytes_max: bytes,
            rows_max: rows,
        };
        let sources = inputs.iter().map(|segment| Input {
            walk: Walk::all(segment, page),
            tier: segment.tier,
            deletes_from: segment.deletes_from(),
            files: FilesReader::new(shared, segment, None, true, &allowance),
        });
        Self {
            backend,
            sources: sources.collect(),
            deletes: load.deletes,
            tier: load.part.tier,
            range: load.part.range,
            throttle,
            output,
            ready: VecDeque::new(),
            buffer: Buffer::default(),
            cost: RewriteCost::default(),
            failure: None,
        }
    }

    /// Writes the entire output into files.
    pub(super) fn write_files(&mut self) -> Result<()> {
        while self.advance()? {
            if self.throttle.step(&self.cost).is_break() {
                return Err(StoreError::Cancelled);
            }
        }
        Ok(())
    }

    /// Streams the entire output into the buckets of a new segment.
    pub(super) fn load(&mut self, backend: &dyn Backend, location: SegmentRef, bits: u8) -> Result<()> {
        let loaded = load_buckets(backend, location, bits, self);
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(loaded?),
        }
    }

    /// Produces the output of the next timeline. Returns false after the last one.
    fn advance(&mut self) -> Result<bool> {
        let mut next: Option<TimelineId> = None;
        for source in &mut self.sources {
            if let Some(id) = source.walk.peek(self.backend)? {
                next = Some(next.map_or(id, |lowest| lowest.min(id)));
            }
        }
        let Some(id) = next else { return Ok(false) };
        let mut fragments = Vec::new();
        let mut sequences: Option<SequenceSpan> = None;
        let mut columns = 0;
        for (rank, source) in (0..).zip(&mut self.sources) {
            let (tier, deletes_from) = (source.tier, source.deletes_from);
            let mut damage = None;
            let files = &source.files;
            source.walk.chunks(self.backend, id, &mut |bytes| {
                let found = match files {
                    Some(files) => files.fragment(&bytes, rank, deletes_from).map(Found::archived),
                    None => Found::chunk(&bytes, rank, tier, deletes_from)
                        .map_err(|cause| StoreError::chunk(id, cause)),
                };
                match found {
                    Ok(found) if !found.overlaps(&self.range) => {}
                    Ok(found) => {
                        self.cost.bytes_read += found.bytes;
                        self.cost.points_read += found.rows as u64;
                        self.cost.values_read += found.values;
                        columns = columns.max(found.columns);
                        sequences = Some(union(sequences, found.sequences));
                        fragments.push((found.fragment, found.rows));
                    }
                    Err(error) => damage = Some(error),
                }
            })?;
            if let Some(error) = damage {
                return Err(error);
            }
        }
        if let Some(sequences) = sequences {
            self.timeline(id, fragments, columns.max(1), sequences)?;
        }
        if let Output::Chunks(writer) = &mut self.output {
            self.ready.extend(writer.take_rows());
        }
        self.cost.timelines += 1;
        let totals = self.output.totals_so_far();
        self.cost.points_written = totals.points;
        self.cost.values_written = totals.values;
        self.cost.bytes_written = totals.bytes;
        Ok(true)
    }

    /// Merges the fragments of a timeline in time order and adds the result to the output in runs of similar length.
    fn timeline(
        &mut self,
        id: TimelineId,
        mut fragments: Vec<(Fragment, usize)>,
        columns: usize,
        sequences: SequenceSpan,
    ) -> Result<()> {
        fragments.sort_by_key(|(fragment, _)| (fragment.first, fragment.rank));
        let rows: usize = fragments.iter().map(|(_, rows)| rows).sum();
        let slice_rows = (SLICE_VALUES / columns).max(1);
        let (mut fragments, lengths): (Vec<Fragment>, Vec<usize>) = fragments.into_iter().unzip();
        let rows_max = chunk_rows_max(self.tier).min(slice_rows);
        // Chunks have similar lengths: thirteen thousand cold rows become two halves, never one full chunk and a
        // short remainder.
        let even = rows.div_ceil(rows.div_ceil(rows_max).max(1));
        let masks = self.deletes.map_or(&[][..], |deletes| deletes.masks(id));
        let mut whole = tideline_chunk::Run::default();
        for overlap_group in overlap_groups(&fragments) {
            background::yield_core();
            let in_cluster: usize = lengths[overlap_group.clone()].iter().sum();
            for slice in slices(&fragments[overlap_group.clone()], in_cluster.div_ceil(slice_rows)) {
                let range = slice.intersect(&self.range);
                if range.is_empty() {
                    continue;
                }
                self.have(&mut fragments[overlap_group.clone()], range)?;
                let wanted = Wanted {
                    range,
                    fields: None::<&[FieldId]>,
                    masks,
                };
                let damaged = |cause| StoreError::chunk(id, cause);
                let run = match &fragments[overlap_group.clone()] {
                    [fragment] => match self.buffer.take(fragment, wanted).map_err(damaged)? {
                        true => &self.buffer.run,
                        false => continue,
                    },
                    several => {
                        self.buffer.run = self.buffer.merge(several, wanted, |_, _| {}).map_err(damaged)?;
                        &self.buffer.run
                    }
                };
                concat(&mut whole, run);
                if whole.rows() >= even {
                    self.output.add(id, &whole, sequences)?;
                    whole = tideline_chunk::Run::default();
                }
            }
            release(&mut fragments[overlap_group]);
        }
        self.output.add(id, &whole, sequences)
    }

    /// Reads archived fragments that overlap a time slice, and frees fragments that end before the slice.
    fn have(&mut self, fragments: &mut [Fragment], slice: TimeRange) -> Result<()> {
        for fragment in fragments {
            if fragment.last < slice.start {
                release(std::slice::from_mut(fragment));
                continue;
            }
            // Ranks are indexes of the inputs.
            let source = usize::try_from(fragment.rank)
                .ok()
                .and_then(|at| self.sources.get_mut(at));
            if fragment.first < slice.end
                && let Some(files) = source.and_then(|source| source.files.as_mut())
            {
                files.read(fragment)?;
            }
        }
        Ok(())
    }
}

/// Fragment of an input with its counts.
struct Found {
    fragment: Fragment,
    rows: usize,
    values: u64,
    columns: usize,
    bytes: u64,
    sequences: SequenceSpan,
}

impl Found {
    /// Returns true if the span from the first to the last timestamp overlaps a time range.
    fn overlaps(&self, range: &TimeRange) -> bool {
        self.fragment.first < range.end && self.fragment.last >= range.start
    }

    fn chunk(
        bytes: &Bytes,
        rank: u64,
        tier: Tier,
        deletes_from: SequenceNumber,
    ) -> std::result::Result<Self, ChunkError> {
        let chunk = Chunk::open(bytes)?;
        Ok(Self {
            rows: chunk.rows(),
            values: chunk.columns().map(|column| column.count() as u64).sum(),
            columns: chunk.columns().len(),
            bytes: bytes.len() as u64,
            sequences: chunk.sequences(),
            fragment: chunk_fragment(bytes.clone(), rank, tier, deletes_from)?,
        })
    }

    fn archived((fragment, extent): (Fragment, Extent)) -> Self {
        Self {
            rows: extent.points as usize,
            values: u64::from(extent.values),
            columns: extent.values.div_ceil(extent.points.max(1)) as usize,
            bytes: match &fragment.data {
                FragmentData::Archived(rows) => rows.bytes,
                _ => 0,
            },
            sequences: extent.sequences,
            fragment,
        }
    }
}

impl Output<'_> {
    /// Adds a run of a timeline.
    fn add(&mut self, id: TimelineId, run: &tideline_chunk::Run, sequences: SequenceSpan) -> Result<()> {
        match self {
            Self::Chunks(writer) => writer.add(id, run, sequences),
            Self::Files(files) => files.add(id, run, sequences),
        }
    }

    /// Returns the counts of the output so far.
    pub(super) fn totals_so_far(&self) -> &SegmentTotals {
        match self {
            Self::Chunks(writer) => writer.totals_so_far(),
            Self::Files(files) => &files.totals,
        }
    }
}

impl Iterator for Stream<'_> {
    type Item = tideline_backend::Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.ready.pop_front() {
                return Some(Ok(row));
            }
            let failure = match self.advance() {
                Ok(false) => return None,
                Ok(true) if self.throttle.step(&self.cost).is_break() => StoreError::Cancelled,
                Ok(true) => continue,
                Err(error) => error,
            };
            let reason = failure.to_string();
            self.failure = Some(failure);
            return Some(Err(BackendError::corrupt(reason)));
        }
    }
}

fn union(sequences: Option<SequenceSpan>, more: SequenceSpan) -> SequenceSpan {
    let all = sequences.unwrap_or(more);
    SequenceSpan {
        lowest: all.lowest.min(more.lowest),
        highest: all.highest.max(more.highest),
    }
}

/// Divides the time span of fragments into ranges of equal length: at least one, at most `count`.
fn slices(fragments: &[Fragment], count: usize) -> impl Iterator<Item = TimeRange> + use<> {
    let first = fragments.iter().map(|fragment| fragment.first).min().unwrap_or(0);
    let last = fragments.iter().map(|fragment| fragment.last).max().unwrap_or(0);
    let count = count.max(1) as i128;
    let width = (i128::from(last) - i128::from(first)) / count + 1;
    let at = move |step: i128| {
        let instant = (i128::from(first) + step * width).min(i128::from(last) + 1);
        i64::try_from(instant).unwrap_or(i64::MAX)
    };
    let cuts: Range<i128> = 0..count;
    cuts.map(move |step| TimeRange::new(at(step), at(step + 1)))
        .filter(|range| !range.is_empty())
}
