//! One read: for each timeline, its pieces from all segments and heads, put together in time order.
//!
//! Pieces are chunks of segments, blocks of heads, and open rows, each with the rank of its source: segments
//! in the order of their writes, then heads from old to new. A source of higher rank was written later. Pieces that
//! overlap in time form a cluster and are read together.

use std::ops::ControlFlow;

use bytes::Bytes;
use tideline_chunk::{Chunk, Run};
use tideline_model::{FieldId, SequenceNumber, Tier, TimeRange, TimelineId};

use super::archived::{self, Allowance, FilesReader};
use super::cluster::{ClusterReader, Part, ReadFiles};
use super::cost::ReadCost;
use super::cover::Grid;
use super::cursor::SegmentCursor;
use super::piece::{Piece, PieceData, Wanted, clusters};
use super::screen::Screen;
use super::sought::Sought;
use super::{Order, Selection, Snapshot};
use crate::deletes::{Mask, TableDeletes};
use crate::error::{Result, StoreError};
use crate::head::table::TableHead;
use crate::latest::{LatestRow, Seen, fill_from};

/// Reads the timelines of a selection, one after another in rising order of ids.
#[derive(Debug)]
pub struct SweepReader<'a> {
    snapshot: &'a Snapshot,
    selection: Selection<'a>,
    /// Of segments in the order of their writes.
    cursors: Vec<Source>,
    /// What was sought in those that are not read through.
    sought: Sought,
    deletes: Option<&'a TableDeletes>,
    pieces: Vec<Piece>,
    clusters: ClusterReader,
    screen: Option<&'a dyn Screen>,
}

/// A segment of the read.
#[derive(Debug)]
struct Source {
    cursor: SegmentCursor,
    tier: Tier,
    deletes_from: SequenceNumber,
    /// Of a segment whose points are in files.
    files: Option<FilesReader>,
}

impl<'a> SweepReader<'a> {
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
        let mut sought = Sought::default();
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
            pieces: Vec::new(),
            clusters: ClusterReader::default(),
            screen: None,
        }
    }

    /// Leaves out rows that a screen does not admit, where summaries can tell; others may be handed out all the same.
    #[must_use]
    pub fn screened(mut self, screen: Option<&'a dyn Screen>) -> Self {
        self.screen = screen;
        self
    }

    /// Hands the points of one timeline to `visit`, run by run, until it breaks.
    ///
    /// A run holds the wanted fields only, and only instants of the range; runs do not overlap. Where a
    /// selection names fields, a row may have none of them. The run is a reused buffer: take what you need.
    pub fn timeline(
        &mut self,
        id: TimelineId,
        visit: &mut dyn FnMut(&Run) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let (screen, order) = (self.screen, self.selection.order);
        self.sweep(id, |clusters, pieces, files, wanted| {
            files.read(pieces, wanted.range)?;
            match screen {
                Some(screen) => clusters.screened(id, pieces, wanted, screen, order, visit),
                None => clusters.rows(id, pieces, wanted, visit),
            }
        })
    }

    /// The same for aggregates that need no order of time: hands out what stretches of the timeline come to, wherever
    /// that is stored and exact, and the points of everything else.
    ///
    /// Whatever the mixture, counts, sums, extremes and edges of every window of `grid` are those of the points. Parts
    /// come in no order of time, and a run may hold some of the wanted fields only.
    pub fn timeline_summarized(
        &mut self,
        id: TimelineId,
        grid: Grid,
        visit: &mut dyn FnMut(Part<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.sweep(id, |clusters, pieces, files, wanted| {
            clusters.summarized(id, pieces, files, (wanted, grid), visit)
        })
    }

    /// The newest value of each field of one timeline, in the order of fields; for selections in descending order.
    ///
    /// Reads newest chunks first, until all `expected` fields are found.
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

    /// Gathers a timeline's pieces and reads them cluster by cluster.
    fn sweep(
        &mut self,
        id: TimelineId,
        mut read: impl FnMut(
            &mut ClusterReader,
            &mut [Piece],
            &mut dyn ReadFiles,
            Wanted<'_>,
        ) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.clusters.cost.timelines += 1;
        self.gather(id)?;
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.sort_by_key(|piece| (piece.first, piece.rank));
        let mut clusters = clusters(&pieces);
        if self.selection.order == Order::Descending {
            clusters.reverse();
        }
        let wanted = self.wanted(id);
        let mut outcome = Ok(());
        for cluster in clusters {
            let cluster = &mut pieces[cluster];
            let files: &mut dyn ReadFiles = &mut self.cursors;
            match read(&mut self.clusters, cluster, files, wanted) {
                Ok(ControlFlow::Continue(())) => archived::let_go(cluster),
                Ok(ControlFlow::Break(())) => break,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        pieces.clear();
        self.pieces = pieces;
        outcome
    }

    /// The span of a timeline's points in the range of the selection, as wide as the chunks that reach into it.
    pub(super) fn span(&mut self, id: TimelineId) -> Result<Option<Seen>> {
        self.gather(id)?;
        let masks = self.masks(id);
        let mut all: Option<Seen> = None;
        let mut pieces = std::mem::take(&mut self.pieces);
        for mut piece in pieces.drain(..) {
            let span = if piece.is_masked(masks) {
                self.cursors
                    .read(std::slice::from_mut(&mut piece), TimeRange::ALL)?;
                self.unmasked_span(id, &piece, masks)?
            } else {
                Some(Seen {
                    first: piece.first,
                    last: piece.last,
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
        self.pieces = pieces;
        Ok(all)
    }

    fn unmasked_span(&mut self, id: TimelineId, piece: &Piece, masks: &[Mask]) -> Result<Option<Seen>> {
        let wanted = Wanted {
            range: TimeRange::ALL,
            fields: None,
            masks,
        };
        let run = self.clusters.take(id, piece, wanted)?;
        let ends = run.and_then(|run| run.timestamps.first().zip(run.timestamps.last()));
        Ok(ends.map(|(first, last)| Seen {
            first: *first,
            last: *last,
        }))
    }

    /// What was read so far.
    pub fn cost(&self) -> ReadCost {
        self.clusters.cost
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
            let pieces = &mut self.pieces;
            let (tier, deletes_from) = (source.tier, source.deletes_from);
            let mut damage = None;
            source.cursor.chunks(backend, &self.sought, id, &mut |bytes| {
                let piece = match &source.files {
                    Some(files) => files.piece(&bytes, rank, deletes_from).map(|(piece, _)| piece),
                    None => chunk_piece(bytes, rank, tier, deletes_from)
                        .map_err(|cause| StoreError::chunk(id, cause)),
                };
                match piece {
                    Ok(piece) => pieces.push(piece),
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
        self.pieces.retain(|piece| piece.range().overlaps(&range));
        Ok(())
    }

    fn gather_head(
        &mut self,
        table: &TableHead,
        id: TimelineId,
        deletes_from: SequenceNumber,
        rank: &mut u64,
    ) {
        let Some(found) = table.pieces(id) else { return };
        let mut push = |first, last, data| {
            *rank += 1;
            self.pieces.push(Piece {
                first,
                last,
                rank: *rank,
                tier: Tier::Hot,
                deletes_from,
                data,
            });
        };
        for block in found.blocks {
            push(block.first, block.last, PieceData::Chunk(block.bytes));
        }
        if let Some(run) = found.open {
            let (first, last) = (run.timestamps[0], run.timestamps[run.rows() - 1]);
            push(first, last, PieceData::Open(run));
        }
    }
}

impl ReadFiles for Vec<Source> {
    fn read(&mut self, pieces: &mut [Piece], range: TimeRange) -> Result<()> {
        for piece in pieces.iter_mut().filter(|piece| piece.range().overlaps(&range)) {
            // Ranks of segments count from one; those of heads follow.
            let source = usize::try_from(piece.rank - 1)
                .ok()
                .and_then(|at| self.get_mut(at));
            if let Some(files) = source.and_then(|source| source.files.as_mut()) {
                files.read(piece)?;
            }
        }
        Ok(())
    }
}

/// A chunk of a segment as a piece.
pub(crate) fn chunk_piece(
    bytes: Bytes,
    rank: u64,
    tier: Tier,
    deletes_from: SequenceNumber,
) -> std::result::Result<Piece, tideline_chunk::ChunkError> {
    let chunk = Chunk::open(&bytes)?;
    let (first, last) = (chunk.first_timestamp(), chunk.last_timestamp());
    Ok(Piece {
        first,
        last,
        rank,
        tier,
        deletes_from,
        data: PieceData::Chunk(bytes),
    })
}
