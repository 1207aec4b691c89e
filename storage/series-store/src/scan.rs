//! Reading points: timelines in id order, over all segments and heads of one moment.
//!
//! | file | part |
//! |---|---|
//! | [`cursor`] | one segment, walked forwards in pages or sought |
//! | [`sought`] | timelines that are sought, in many segments at once |
//! | [`archived`] | rows in files, read when they are needed |
//! | [`piece`] | what one source has of a timeline, and decoding it |
//! | [`cluster`] | pieces that overlap in time put together, as rows or as summaries |
//! | [`cover`] | where summaries may stand for rows |
//! | [`screen`] | where summaries rule rows out |
//! | [`reader`] | one timeline after another |
//! | [`cost`] | what it took |

pub(crate) mod archived;
mod cluster;
mod cost;
mod cover;
pub(crate) mod cursor;
pub(crate) mod piece;
mod reader;
mod screen;
mod sought;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tideline_backend::Backend;
use tideline_model::{FieldId, Policy, SequenceNumber, TableId, Tier, TimeRange, TimelineId, Timestamp};

use crate::error::Result;
use crate::head::Head;
use crate::latest::{LatestRow, Seen};
use crate::manifest::ManifestState;
use crate::shared::{Shared, State};

pub use cluster::Part;
pub use cost::{ReadCost, TierCost};
pub use cover::Grid;
pub use reader::SweepReader;
pub(crate) use reader::chunk_piece;
pub use screen::{Bucket, Screen};

/// The order in which a timeline's points are handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Oldest first.
    Ascending,
    /// Newest run first; the rows inside a run still rise.
    Descending,
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
    /// The tier to read; `None` = all. Unsealed points are hot.
    pub tier: Option<Tier>,
}

/// The points of one moment: later seals, drops and restarts of heads do not disturb it. What is written to
/// the active head meanwhile may be seen.
#[derive(Debug, Clone)]
pub struct Snapshot {
    shared: Arc<Shared>,
    state: State,
    /// When it was taken: points that were expired by then are hidden.
    now: Timestamp,
}

impl Snapshot {
    pub(crate) fn new(shared: Arc<Shared>, state: State, now: Timestamp) -> Self {
        Self { shared, state, now }
    }

    /// The part of a range in which a table's points have not expired.
    pub fn visible(&self, table: TableId, range: TimeRange) -> TimeRange {
        let policy = self
            .state
            .manifest
            .common
            .tables
            .get(&table)
            .map(|row| &row.spec.policy);
        let start = range.start.max(visible_from(policy, self.now));
        TimeRange {
            start: start.min(range.end),
            end: range.end,
        }
    }

    /// A reader over a selection. Readers of one snapshot may run on different threads.
    pub fn reader<'a>(&'a self, selection: Selection<'a>) -> SweepReader<'a> {
        SweepReader::new(self, selection)
    }

    /// The newest value of each field of one timeline; see [`SweepReader::newest`].
    pub(crate) fn newest(&self, table: TableId, id: TimelineId, expected: &[FieldId]) -> Result<LatestRow> {
        let timelines = [id];
        let mut reader = self.reader(Selection {
            table,
            timelines: &timelines,
            range: TimeRange::ALL,
            fields: None,
            order: Order::Descending,
            tier: None,
        });
        reader.newest(id, expected)
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
            tier: None,
        });
        ids.iter().map(|id| reader.span(*id)).collect()
    }

    /// The manifest of this moment.
    pub fn manifest(&self) -> &ManifestState {
        &self.state.manifest
    }

    /// The state of this moment.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    fn backend(&self) -> &dyn Backend {
        self.shared.backend.as_ref()
    }

    /// Heads, oldest first, each with the first delete that may still have to be applied to it.
    fn heads(&self) -> impl Iterator<Item = (&Arc<Head>, SequenceNumber)> {
        let frozen = self.state.frozen.iter().map(|head| (head, head.end()));
        // The committer takes deleted points out of the active head itself.
        frozen.chain([(&self.state.active, SequenceNumber(u64::MAX))])
    }
}

/// The first instant at which points of a table are visible at `now`.
pub(crate) fn visible_from(policy: Option<&Policy>, now: Timestamp) -> i64 {
    let age = policy.and_then(Policy::visible_age);
    age.map_or(i64::MIN, |age| now.nanos().saturating_sub(age))
}
