//! Reads points: timelines in id order, across all segments and heads of one moment.
//!
//! | file | holds |
//! |---|---|
//! | [`cursor`] | cursor over one segment, by pages or by seeks |
//! | [`batched_seeks`] | batched seeks of timelines in many segments |
//! | [`archived`] | rows in archive files, read on demand |
//! | [`fragment`] | points of one timeline in one source, and their decoding |
//! | [`overlap_group`] | merging of fragments that overlap in time, as rows or as summaries |
//! | [`summary_push_down`] | summary push-down: buckets whose summaries replace rows |
//! | [`zone_filter`] | zone filter: buckets that summaries exclude |
//! | [`reader`] | reader over the timelines of a selection |
//! | [`cost`] | cost of a read |

pub(crate) mod archived;
mod batched_seeks;
mod cost;
pub(crate) mod cursor;
pub(crate) mod fragment;
mod overlap_group;
mod reader;
mod summary_push_down;
#[cfg(test)]
mod tests;
mod zone_filter;

use std::sync::Arc;
use std::time::Duration;

use tideline_backend::Backend;
use tideline_model::{FieldId, Policy, SequenceNumber, TableId, Tier, TimeRange, TimelineId, Timestamp};

use crate::error::Result;
use crate::head::Head;
use crate::latest::{LatestRow, Seen};
use crate::manifest::ManifestState;
use crate::shared::{Shared, State};

pub use cost::{ReadCost, TierCost};
pub use overlap_group::Part;
pub use reader::ScanReader;
pub(crate) use reader::chunk_fragment;
pub use summary_push_down::Grid;
pub use zone_filter::{Bucket, ZoneFilter};

/// Order in which the points of a timeline are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Oldest first.
    Ascending,
    /// Newest run first. The rows within a run are still in ascending order.
    Descending,
}

/// Points to read.
#[derive(Debug, Clone)]
pub struct Selection<'a> {
    /// Table to read.
    pub table: TableId,
    /// Timelines in increasing order.
    pub timelines: &'a [TimelineId],
    /// Time range.
    pub range: TimeRange,
    /// Fields; `None` = all.
    pub fields: Option<&'a [FieldId]>,
    /// Order within a timeline.
    pub order: Order,
    /// Tier to read; `None` = all. Unsealed points are hot.
    pub tier: Option<Tier>,
}

/// Point-in-time view of the points of all tables. Later seals, moves and drops of segments do not affect a snapshot.
/// Heads are shared, not copied: later writes to the active head, deletes in it, and the drop of a table may be
/// visible.
#[derive(Debug, Clone)]
pub struct Snapshot {
    shared: Arc<Shared>,
    state: State,
    /// Trusted time of the snapshot, or the earlier time set by `before`. Points expired by then are hidden.
    now: Timestamp,
}

impl Snapshot {
    pub(crate) fn new(shared: Arc<Shared>, state: State, now: Timestamp) -> Self {
        Self { shared, state, now }
    }

    /// Returns a snapshot that also shows the points that expired within the last `delay`.
    pub(crate) fn before(mut self, delay: Duration) -> Self {
        let delay = i64::try_from(delay.as_nanos()).unwrap_or(i64::MAX);
        self.now = Timestamp::from_nanos_clamped(self.now.nanos().saturating_sub(delay));
        self
    }

    /// Returns the part of a time range in which the points of a table have not expired.
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

    /// Returns a reader for a selection. Readers of one snapshot may run on different threads.
    pub fn reader<'a>(&'a self, selection: Selection<'a>) -> ScanReader<'a> {
        ScanReader::new(self, selection)
    }

    /// Returns the newest value of each field of one timeline; see [`ScanReader::newest`].
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

    /// Returns the time span of the points of each timeline; `None` without points. Ids must be increasing. Fetches the
    /// chunks, but decodes only their first and last timestamps. Decodes a whole chunk, or rows in a file, only if a
    /// pending delete may hide points in it.
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

    /// Returns the manifest of the snapshot.
    pub fn manifest(&self) -> &ManifestState {
        &self.state.manifest
    }

    /// Returns the pinned state.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    fn backend(&self) -> &dyn Backend {
        self.shared.backend.as_ref()
    }

    /// Returns the heads, oldest first, each with the sequence number from which deletes may still have to be applied
    /// to it.
    fn heads(&self) -> impl Iterator<Item = (&Arc<Head>, SequenceNumber)> {
        let frozen = self.state.frozen.iter().map(|head| (head, head.end()));
        // The committer removes deleted points from the active head directly.
        frozen.chain([(&self.state.active, SequenceNumber(u64::MAX))])
    }
}

/// Returns the earliest timestamp that has not expired at `now`; `i64::MIN` if the policy has no expiry.
pub(crate) fn visible_from(policy: Option<&Policy>, now: Timestamp) -> i64 {
    let age = policy.and_then(Policy::visible_age);
    age.map_or(i64::MIN, |age| now.nanos().saturating_sub(age))
}
