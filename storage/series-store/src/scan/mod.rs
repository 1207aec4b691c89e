//! Reading points: timelines in id order, over all segments and heads of one moment.
//!
//! | file | part |
//! |---|---|
//! | [`cursor`] | one segment, walked forwards in pages or by single seeks |
//! | [`reader`] | one timeline's pieces put together in time order and decoded |

mod cursor;
mod reader;

use std::ops::ControlFlow;
use std::sync::Arc;

use tideline_backend::Backend;
use tideline_model::{FieldId, TableId, TimeRange, TimelineId};

use crate::error::Result;
use crate::head::Head;
use crate::latest::{LatestRow, Seen, fill_from};
use crate::manifest::ManifestState;
use crate::shared::State;

pub use reader::SweepReader;

/// The order in which a timeline's points are handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Oldest first.
    Ascending,
    /// Newest run first; the rows inside a run still rise.
    Descending,
}

/// What a read has cost so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCost {
    /// Timelines looked at.
    pub timelines: u64,
    /// Chunks and blocks of the head decoded.
    pub chunks: u64,
    /// Points decoded.
    pub points: u64,
    /// Field values decoded.
    pub values: u64,
    /// Encoded bytes of those chunks.
    pub bytes: u64,
}

impl ReadCost {
    /// Adds another part of the same read.
    pub fn add(&mut self, other: &Self) {
        self.timelines += other.timelines;
        self.chunks += other.chunks;
        self.points += other.points;
        self.values += other.values;
        self.bytes += other.bytes;
    }
}

/// Which points a read is for.
#[derive(Debug, Clone)]
pub struct Selection<'a> {
    /// The table.
    pub table: TableId,
    /// The timelines, in rising order.
    pub timelines: &'a [TimelineId],
    /// The instants.
    pub range: TimeRange,
    /// The fields; `None` = all.
    pub fields: Option<&'a [FieldId]>,
    /// The order within a timeline.
    pub order: Order,
}

/// The points of one moment: later seals, drops and restarts of heads do not disturb it. What is written to
/// the active head meanwhile may be seen.
#[derive(Debug, Clone)]
pub struct Snapshot {
    backend: Arc<dyn Backend>,
    state: State,
}

impl Snapshot {
    pub(crate) fn new(backend: Arc<dyn Backend>, state: State) -> Self {
        Self { backend, state }
    }

    /// A reader over a selection. Readers of one snapshot may run on different threads.
    pub fn reader<'a>(&'a self, selection: Selection<'a>) -> SweepReader<'a> {
        SweepReader::new(self, selection)
    }

    /// The newest value of each field of one timeline.
    ///
    /// Reads newest chunks first, until all `expected` fields are found.
    pub(crate) fn newest(&self, table: TableId, id: TimelineId, expected: &[FieldId]) -> Result<LatestRow> {
        let mut row = LatestRow::new();
        let timelines = [id];
        let mut reader = self.reader(Selection {
            table,
            timelines: &timelines,
            range: TimeRange::ALL,
            fields: None,
            order: Order::Descending,
        });
        reader.timeline(id, &mut |run| {
            fill_from(&mut row, run);
            let found = expected
                .iter()
                .all(|field| row.iter().any(|have| have.field == *field));
            Ok(if found {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })?;
        row.sort_by_key(|field| field.field);
        Ok(row)
    }

    /// The span of each timeline's points, from keys and headers alone. Ids rise.
    pub(crate) fn spans(&self, table: TableId, ids: &[TimelineId]) -> Result<Vec<Option<Seen>>> {
        let (range, order) = (TimeRange::ALL, Order::Ascending);
        let mut reader = self.reader(Selection {
            table,
            timelines: ids,
            range,
            fields: None,
            order,
        });
        ids.iter().map(|id| reader.span(*id)).collect()
    }

    /// The manifest of this moment.
    pub fn manifest(&self) -> &ManifestState {
        &self.state.manifest
    }

    fn backend(&self) -> &dyn Backend {
        self.backend.as_ref()
    }

    /// Heads, oldest first.
    fn heads(&self) -> impl Iterator<Item = &Arc<Head>> {
        self.state.frozen.iter().chain([&self.state.active])
    }
}
