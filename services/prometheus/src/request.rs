//! Requests that read series and write their answer.

use std::io::Write;
use std::time::Duration;

use tideline_promql::Result;

use crate::view::SeriesView;

/// A request for series of a table. It is checked before it waits for its turn, and then writes its answer while it reads.
pub trait SeriesRequest: Send + 'static {
    /// Returns the request as text, for the list of running queries.
    fn text(&self) -> String;

    /// Returns the time range that is read, in milliseconds, both ends included; `None` if no samples are read.
    fn reach(&self) -> Option<(i64, i64)>;

    /// Writes the answer. `waited` is the time that the request waited for its turn.
    fn write(&self, view: &SeriesView<'_>, waited: Duration, out: &mut dyn Write) -> Result<()>;
}
