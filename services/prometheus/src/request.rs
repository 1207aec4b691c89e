//! Requests that read series and write their response.

use std::io::Write;
use std::time::Duration;

use tideline_promql::Result;

use crate::view::SeriesView;

/// Request for series of a table. The request is validated before it waits for a permit. With the permit, it reads the
/// series and writes the response.
pub trait SeriesRequest: Send + 'static {
    /// Returns the request as text, for the list of running queries.
    fn text(&self) -> String;

    /// Returns the time range that is read, in milliseconds, both ends included; `None` if no samples are read.
    fn read_range(&self) -> Option<(i64, i64)>;

    /// Writes the response. `waited` is the time that the request waited for a permit.
    ///
    /// # Errors
    ///
    /// Errors of evaluation, storage and budget, and `PromqlError::Canceled` if the request was cancelled or its client
    /// has disconnected. If a part of the response has been written, the response is incomplete.
    fn write(&self, view: &SeriesView<'_>, waited: Duration, out: &mut dyn Write) -> Result<()>;
}
