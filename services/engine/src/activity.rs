//! In-memory activity of a table since the start: running writers, growth, busy keys.

use parking_lot::RwLock;

use crate::growth::Growth;
use crate::hot_ranges::HotRanges;

/// Activity of one table since the start.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Read-locked by a write or edit from naming its timelines until its commit. Write-locked for milliseconds by an
    /// operation that must exclude such writes.
    pub(crate) writers: RwLock<()>,
    /// New timelines of the last minute.
    pub(crate) growth: Growth,
    /// Points written and timelines read in the last minute.
    pub(crate) hot_ranges: HotRanges,
}
