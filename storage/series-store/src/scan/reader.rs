//! Reader of one selection: collects the fragments of each timeline from all segments and heads, and merges them in
//! time order.
//!
//! Fragments are chunks of segments, rows of archive files, blocks of heads and open rows, each with the rank of its
//! source: segments in write order, then heads from old to new. A source of higher rank was written later. Fragments
//! that overlap in time form an overlap group and are read together.

use std::ops::ControlFlow;

use bytes::Bytes;
use tideline_chunk::{Chunk, Run};
use tideline_model::{FieldId, SequenceNumber, Tier, TimeRange, TimelineId};

use super::archived::{self, Allowance, FilesReader};
use super::batched_seeks::BatchedSeeks;
use super::cost::ReadCost;
use super::cursor::SegmentCursor;
use super::fragment::{Fragment, FragmentData, Wanted, overlap_groups};
use super::overlap_group::{OverlapGroupReader, Part, ReadFiles};
use super::summary_push_down::Grid;
use super::zone_filter::ZoneFilter;
use super::{Order, Selection, Snapshot};
use crate::deletes::{Mask, TableDeletes};
use crate::error::{Result, StoreError};
use crate::head::table::TableHead;
use crate::latest::{LatestRow, Seen, fill_from};

/// Reader of the timelines of a selection. Timelines must be read in increasing id order.
#[derive(Debug)]
pub struct ScanReader<'a> {
    snapshot: &'a Snapshot,
    selection: Selection<'a>,
    /// Segments in write order.
    cursors: Vec<Source>,
    /// Batched seeks in segments with sparse access.
    sought: BatchedSeeks,
    deletes: Option<&'a TableDeletes>,
    fragments: Vec<Fragment>,
    overlap_groups: OverlapGroupReader,
    zone_filter: Option<&'a dyn ZoneFilter>,
}

/// Segment of the read.
#[derive(Debug)]
struct Source {
    cursor: SegmentCursor,
    tier: Tier,
    deletes_from: SequenceNumber,
    /// Reader of the files of an archive segment.
    files: Option<FilesReader>,
}

impl<'a> ScanReader<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, mut selection: Selection<'a>) -> Self {
        let page = snapshot.backend().capabilities().page_advice;
        selection.range = snapshot.visible(selection.table, selection.range);
        let segments = snapshot
            .state
            .manifest
            .overlapping(selection.table, selection.range);
        let wanted = segments
            .iter()
            .filter(|segment| selection.tier.is_none_or(|tier| tier == segment.tier));
        let allowance = Allowance::new(wanted.clone());
        let shared = &snapshot.shared;
        let mut sought = BatchedSeeks::default();
        let cursors = wanted.map(|segment| {
            let cursor = SegmentCursor::new(segment, selection.timelines, page, &mut sought);
            let through = cursor.is_dense();
            Source {
                files: FilesReader::new(shared, segment, selection.fields, through, &allowance),
                cursor,
                tier: segment.tier,
                deletes_from: segment.deletes_from(),
            }
        });
        Self {
            snapshot,
            cursors: cursors.collect(),
            sought,
            deletes: snapshot.state.deletes.of(selection.table),
            selection,
            fragments: Vec::new(),
            overlap_groups: OverlapGroupReader::default(),
            zone_filter: None,
        }
    }

    /// Excludes rows that a zone filter does not admit, where summaries allow it. Elsewhere, rows that the filter does
    /// not admit may still be returned.
    #[must_use]
    pub fn with_zone_filter(mut self, zone_filter: Option<&'a dyn ZoneFilter>) -> Self {
        self.zone_filter = zone_filter;
        self
    }

    /// Passes the points of one timeline to `visit`, run by run, until `visit` returns `Break`.
    ///
    /// A run contains only requested fields and only timestamps in the range. Runs do not overlap. If the selection
    /// lists fields, a row may have no value in these fields. The run is a reused buffer and valid only during the
    /// call.
    ///
    /// # Errors
    ///
    /// The errors of `visit`, of the backend, of the archive and of the lease; [`StoreError::Chunk`] if a chunk is
    /// damaged.
    pub fn timeline(
        &mut self,
        id: TimelineId,
        visit: &mut dyn FnMut(&Run) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let (zone_filter, order) = (self.zone_filter, self.selection.order);
        self.scan(id, |overlap_groups, fragments, files, wanted| {
            files.read(fragments, wanted.range)?;
            match zone_filter {
                Some(zone_filter) => {
                    overlap_groups.filtered(id, fragments, wanted, zone_filter, order, visit)
                }
                None => overlap_groups.rows(id, fragments, wanted, visit),
            }
        })
    }

    /// Reads one timeline for aggregates that do not depend on time order. Passes stored summaries to `visit` where
    /// they are exact, and points elsewhere.
    ///
    /// Count, sum, extremes, first and last value of every window of `grid` equal those of the points (sums of floats
    /// up to rounding). Parts are in unspecified time order, and a run may contain only some of the requested fields.
    ///
    /// # Errors
    ///
    /// The errors of [`timeline`](Self::timeline).
    pub fn timeline_summarized(
        &mut self,
        id: TimelineId,
        grid: Grid,
        visit: &mut dyn FnMut(Part<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.scan(id, |overlap_groups, fragments, files, wanted| {
            overlap_groups.summarized(id, fragments, files, (wanted, grid), visit)
        })
    }

    /// Returns the newest values of one timeline, one per field, in field order. The selection must be in descending
    /// order.
    ///
    /// Reads the newest chunks first, until all `expected` fields are found. Other fields may be missing in the
    /// result. An empty `expected` stops after the first run.
    ///
    /// # Errors
    ///
    /// The errors of [`timeline`](Self::timeline).
    pub fn newest(&mut self, id: TimelineId, expected: &[FieldId]) -> Result<LatestRow> {
        let mut row = LatestRow::new();
        self.timeline(id, &mut |run| {
            fill_from(&mut row, run);
            let is_found = |field: &FieldId| row.iter().any(|have| have.field == *field);
            Ok(if expected.iter().all(is_found) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })?;
        row.sort_by_key(|field| field.field);
        Ok(row)
    }

    /// Collects the fragments of a timeline and reads them, one overlap group at a time.
    fn scan(
        &mut self,
        id: TimelineId,
        mut read: impl FnMut(
            &mut OverlapGroupReader,
            &mut [Fragment],
            &mut dyn ReadFiles,
            Wanted<'_>,
        ) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.overlap_groups.cost.timelines += 1;
        self.gather(id)?;
        let mut fragments = std::mem::take(&mut self.fragments);
        fragments.sort_by_key(|fragment| (fragment.first, fragment.rank));
        let mut overlap_groups = overlap_groups(&fragments);
        if self.selection.order == Order::Descending {
            overlap_groups.reverse();
        }
        let wanted = self.wanted(id);
        let mut outcome = Ok(());
        for overlap_group in overlap_groups {
            let overlap_group = &mut fragments[overlap_group];
            let files: &mut dyn ReadFiles = &mut self.cursors;
            match read(&mut self.overlap_groups, overlap_group, files, wanted) {
                Ok(ControlFlow::Continue(())) => archived::release(overlap_group),
                Ok(ControlFlow::Break(())) => break,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        fragments.clear();
        self.fragments = fragments;
        outcome
    }

    /// Returns the time span of the points of a timeline in all fragments that overlap the range of the selection;
    /// `None` without points. The span may begin or end outside the range.
    pub(super) fn span(&mut self, id: TimelineId) -> Result<Option<Seen>> {
        self.gather(id)?;
        let masks = self.masks(id);
        let mut all: Option<Seen> = None;
        let mut fragments = std::mem::take(&mut self.fragments);
        for mut fragment in fragments.drain(..) {
            let span = if fragment.is_masked(masks) {
                self.cursors
                    .read(std::slice::from_mut(&mut fragment), TimeRange::ALL)?;
                self.unmasked_span(id, &fragment, masks)?
            } else {
                Some(Seen {
                    first: fragment.first,
                    last: fragment.last,
                })
            };
            all = match (all, span) {
                (Some(all), Some(span)) => Some(Seen {
                    first: all.first.min(span.first),
                    last: all.last.max(span.last),
                }),
                (all, span) => all.or(span),
            };
        }
        self.fragments = fragments;
        Ok(all)
    }

    fn unmasked_span(&mut self, id: TimelineId, fragment: &Fragment, masks: &[Mask]) -> Result<Option<Seen>> {
        let wanted = Wanted {
            range: TimeRange::ALL,
            fields: None,
            masks,
        };
        let run = self.overlap_groups.take(id, fragment, wanted)?;
        let ends = run.and_then(|run| run.timestamps.first().zip(run.timestamps.last()));
        Ok(ends.map(|(first, last)| Seen {
            first: *first,
            last: *last,
        }))
    }

    /// Returns the cost so far.
    pub fn cost(&self) -> ReadCost {
        self.overlap_groups.cost
    }

    fn wanted(&self, id: TimelineId) -> Wanted<'a> {
        let Selection { fields, range, .. } = self.selection;
        let masks = self.masks(id);
        Wanted { range, fields, masks }
    }

    fn masks(&self, id: TimelineId) -> &'a [Mask] {
        self.deletes.map_or(&[], |deletes| deletes.masks(id))
    }

    fn gather(&mut self, id: TimelineId) -> Result<()> {
        let (backend, range) = (self.snapshot.backend(), self.selection.range);
        self.snapshot.shared.log.check_lease()?;
        self.sought.seek(backend, self.selection.timelines, id, range)?;
        let mut rank = 0;
        for source in &mut self.cursors {
            rank += 1;
            let fragments = &mut self.fragments;
            let (tier, deletes_from) = (source.tier, source.deletes_from);
            let mut damage = None;
            source.cursor.chunks(backend, &self.sought, id, &mut |bytes| {
                let fragment = match &source.files {
                    Some(files) => files
                        .fragment(&bytes, rank, deletes_from)
                        .map(|(fragment, _)| fragment),
                    None => chunk_fragment(bytes, rank, tier, deletes_from)
                        .map_err(|cause| StoreError::chunk(id, cause)),
                };
                match fragment {
                    Ok(fragment) => fragments.push(fragment),
                    Err(error) => damage = Some(error),
                }
            })?;
            if let Some(error) = damage {
                return Err(error);
            }
        }
        if self.selection.tier.is_none_or(|tier| tier == Tier::Hot) {
            let snapshot = self.snapshot;
            for (head, deletes_from) in snapshot.heads() {
                if let Some(table) = head.table(self.selection.table) {
                    self.gather_head(&table, id, deletes_from, &mut rank);
                }
            }
        }
        self.fragments
            .retain(|fragment| fragment.range().overlaps(&range));
        // If the lease has ended meanwhile, a newer owner may have freed a segment before it was read.
        Ok(self.snapshot.shared.log.check_lease()?)
    }

    fn gather_head(
        &mut self,
        table: &TableHead,
        id: TimelineId,
        deletes_from: SequenceNumber,
        rank: &mut u64,
    ) {
        let Some(found) = table.fragments(id) else { return };
        let mut push = |first, last, data| {
            *rank += 1;
            self.fragments.push(Fragment {
                first,
                last,
                rank: *rank,
                tier: Tier::Hot,
                deletes_from,
                data,
            });
        };
        for block in found.blocks {
            push(block.first, block.last, FragmentData::Chunk(block.bytes));
        }
        if let Some(run) = found.open {
            let (first, last) = (run.timestamps[0], run.timestamps[run.rows() - 1]);
            push(first, last, FragmentData::Open(run));
        }
    }
}

impl ReadFiles for Vec<Source> {
    fn read(&mut self, fragments: &mut [Fragment], range: TimeRange) -> Result<()> {
        for fragment in fragments
            .iter_mut()
            .filter(|fragment| fragment.range().overlaps(&range))
        {
            // Ranks of segments start at one; ranks of heads follow.
            let source = usize::try_from(fragment.rank - 1)
                .ok()
                .and_then(|at| self.get_mut(at));
            if let Some(files) = source.and_then(|source| source.files.as_mut()) {
                files.read(fragment)?;
            }
        }
        Ok(())
    }
}

/// Returns a chunk of a segment as a fragment.
pub(crate) fn chunk_fragment(
    bytes: Bytes,
    rank: u64,
    tier: Tier,
    deletes_from: SequenceNumber,
) -> std::result::Result<Fragment, tideline_chunk::ChunkError> {
    let chunk = Chunk::open(&bytes)?;
    let (first, last) = (chunk.first_timestamp(), chunk.last_timestamp());
    Ok(Fragment {
        first,
        last,
        rank,
        tier,
        deletes_from,
        data: FragmentData::Chunk(bytes),
    })
}
