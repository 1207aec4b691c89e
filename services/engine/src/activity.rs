//! What goes on in a table, in memory only: who writes it, how fast it grows, which of its keys are busy.

use parking_lot::RwLock;

use crate::growth::Growth;
use crate::heat::Heat;

/// The activity of one table since the start.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Held for reading while a write or an edit names timelines until it is committed; for writing by whoever must
    /// be sure that nobody does, for milliseconds.
    pub(crate) writers: RwLock<()>,
    /// New timelines of the last minute.
    pub(crate) growth: Growth,
    /// Writes and reads of the last minute.
    pub(crate) heat: Heat,
}
