//! In-memory activity of a table: running writers, new timelines, busy keys, use of columns, timelines of restricted
//! principals. The activity is lost when the process stops.

use std::sync::atomic::AtomicU64;

use parking_lot::{Mutex, RwLock};

use crate::column_use::TableColumnUse;
use crate::growth::Growth;
use crate::hot_ranges::HotRanges;
use crate::restriction::Subsets;
use crate::row_limits::RowRates;
use crate::row_load::RowLoad;

/// Activity of one table.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Held for reading by each write and edit, from the look-up of its timelines to its commit. Held for writing by an
    /// operation that must exclude writers, usually for milliseconds.
    pub(crate) writers: RwLock<()>,
    /// Points written since the start.
    pub(crate) written: AtomicU64,
    /// New timelines of the last minute, and the size of all identities.
    pub(crate) growth: Growth,
    /// Points written and timelines read in the last minute.
    pub(crate) hot_ranges: HotRanges,
    /// Rows of a wide table written and read in the last minute.
    pub(crate) row_load: RowLoad,
    /// Use of the rate limits of a wide table.
    pub(crate) row_rates: RowRates,
    /// Reads and updates of the columns of a wide table.
    pub(crate) column_use: Mutex<TableColumnUse>,
    /// Timelines of the conditions of principals.
    pub(crate) subsets: Subsets,
}
