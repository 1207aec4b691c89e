//! State of each measurement and day of a writer: buffered rows, or a file.

use std::sync::Arc;

use tideline_chunk::Run;
use tideline_model::{Identity, TimelineId};

use crate::copy::ArchiveFile;
use crate::file::columns::Shape;
use crate::file::wide::WideFile;
use crate::layout::Day;

/// State of one measurement and day.
pub(super) enum Slot {
    /// Buffered runs, and their number of rows.
    Waiting(Vec<Waiting>, usize),
    /// Number of the newest file, and its columns. The next file of the slot has at least these columns.
    File(u32, Box<Shape>),
}

/// Buffered run of a measurement that does not have its own file.
pub(super) struct Waiting {
    pub(super) id: TimelineId,
    pub(super) identity: Option<Arc<Identity>>,
    pub(super) run: Run,
    pub(super) record: u64,
}

pub(super) enum FileState {
    Open(Box<WideFile>, Box<Measured>),
    /// The file is being sent. If the send fails, the segment is abandoned.
    Sending,
    Done(ArchiveFile),
}

/// Measurement, day and time range of a file.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) measurement: Box<str>,
    pub(super) day: Day,
    pub(super) first: i64,
    pub(super) last: i64,
}

impl Waiting {
    /// Returns the sort key in a shared file: measurement, timeline, time.
    pub(super) fn order(&self) -> (Option<&str>, TimelineId, Option<i64>) {
        let measurement = self.identity.as_deref().map(Identity::measurement);
        (measurement, self.id, self.run.timestamps.first().copied())
    }

    /// Returns the approximate memory usage in bytes.
    pub(super) fn bytes(&self) -> usize {
        let columns = self.run.columns.iter().map(|column| column.values.bytes() + 64);
        self.run.rows() * 8 + columns.sum::<usize>() + 256
    }
}
