//! In-memory activity of a table since the start: running writers, growth, busy keys.

use parking_lot::RwLock;

use crate::growth::Growth;
use crate::hot_ranges::HotRanges;

/// Activity of one table since the start.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Held for reading by each write and edit from the naming of its timelines to its commit. Held for writing, for
    /// milliseconds, by an operation that must exclude writers.
    pub(crate) writers: RwLock<()>,
    /// New timelines of the last minute.
    pub(crate) growth: Growth,
    /// Points written and timelines read in the last minute.
    pub(crate) hot_ranges: HotRanges,
}
