//! What a writer has of each measurement and day: rows that wait for more, or a file.

use std::sync::Arc;

use tideline_chunk::Run;
use tideline_model::{Identity, TimelineId};

use crate::copy::ArchiveFile;
use crate::file::columns::Shape;
use crate::file::wide::WideFile;
use crate::layout::Day;

/// A measurement of a day.
pub(super) enum Slot {
    /// Runs, and their rows.
    Waiting(Vec<Waiting>, usize),
    /// Its newest file, and what the next one has columns for: at least what this one has.
    File(u32, Box<Shape>),
}

/// A run that waits for its measurement to grow.
pub(super) struct Waiting {
    pub(super) id: TimelineId,
    pub(super) who: Option<Arc<Identity>>,
    pub(super) run: Run,
    pub(super) record: u64,
}

pub(super) enum FileState {
    Open(Box<WideFile>, Box<Measured>),
    /// On its way; where that failed there is no segment.
    Sending,
    Done(ArchiveFile),
}

/// What a file is about.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) measurement: Box<str>,
    pub(super) day: Day,
    pub(super) first: i64,
    pub(super) last: i64,
}

impl Waiting {
    /// Where its rows belong in a shared file: by measurement, timeline, time.
    pub(super) fn order(&self) -> (Option<&str>, TimelineId, Option<i64>) {
        let measurement = self.who.as_deref().map(Identity::measurement);
        (measurement, self.id, self.run.timestamps.first().copied())
    }

    /// About the memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        let columns = self.run.columns.iter().map(|column| column.values.bytes() + 64);
        self.run.rows() * 8 + columns.sum::<usize>() + 256
    }
}
