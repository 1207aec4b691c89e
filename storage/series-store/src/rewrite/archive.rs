//! Loading the archive: files at a target, and where their rows are in the backend.
//!
//! 1. *write*: files, each read back and compared before it counts.
//! 2. *describe*: what is known of them, beside them, so that they can be read without this database.
//! 3. *load*: the places of rows, as a segment that nobody sees.
//!
//! Then comes the edit, as for any other rewrite. What ends before it leaves objects that nothing names: [`sweep`](super::sweep)
//! removes them when they are a day old.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tideline_archive::{Archive, ArchiveError, ArchiveWriter, Description, Extent, People, SegmentPlace};
use tideline_backend::{BackendError, Row};
use tideline_chunk::{Run, SequenceSpan};
use tideline_key_codec::{chunk_bucket, chunk_key};
use tideline_model::{Identity, TableSpec, Tier, TimelineId};

use super::stream::{Output, Stream};
use super::{Load, Pace, RewriteCost};
use crate::error::{Result, StoreError};
use crate::fail_points::around;
use crate::manifest::{Segment, SegmentTotals, put_cursor};
use crate::segment_writer::chunk_rows_max;
use crate::shared::Shared;
use crate::tables::Table;

/// How long a target that was not reached is left alone before files are removed there.
const REMOVE_AGAIN: Duration = Duration::from_secs(300);

/// Puts runs into files, and counts them.
pub(super) struct FilesOutput<'a> {
    writer: ArchiveWriter<'a>,
    pub(super) totals: SegmentTotals,
    timeline: Option<TimelineId>,
}

/// A stop in the middle is not a failure of the rewrite.
pub(super) fn given_up(error: ArchiveError) -> StoreError {
    match error {
        ArchiveError::Stopped => StoreError::Cancelled,
        error => StoreError::Archive(error),
    }
}

/// Where nobody knows who timelines are.
struct Nobody;

impl People for Nobody {
    fn identity(&self, _id: TimelineId) -> Option<Arc<Identity>> {
        None
    }

    fn attributes(&self, _id: TimelineId) -> Option<String> {
        None
    }

    fn tag_keys(&self, _measurement: &str) -> Vec<String> {
        Vec::new()
    }
}

impl FilesOutput<'_> {
    pub(super) fn add(&mut self, id: TimelineId, run: &Run, sequences: SequenceSpan) -> Result<()> {
        let rows = run.rows();
        if rows == 0 {
            return Ok(());
        }
        let length = rows.div_ceil(rows.div_ceil(chunk_rows_max(Tier::Archive)));
        for from in (0..rows).step_by(length) {
            let part = run.slice(from..rows.min(from + length));
            self.writer.add(id, &part, sequences).map_err(given_up)?;
        }
        let totals = &mut self.totals;
        if self.timeline.replace(id) != Some(id) {
            totals.timelines += 1;
        }
        let span = (run.timestamps[0], run.timestamps[rows - 1]);
        totals.count(span, rows as u64, run.values() as u64);
        Ok(())
    }
}

impl Shared {
    /// Writes what the inputs come to into files, and loads the places of its rows; the output, if anything is left.
    pub(super) fn load_files(
        &self,
        load: &Load<'_>,
        pace: &mut dyn Pace,
    ) -> Result<(Option<Segment>, RewriteCost)> {
        let Load {
            rewrite,
            inputs,
            describe,
            ..
        } = load;
        let archive = self.archive(inputs)?;
        let table = self.tables.read().by_id.get(&rewrite.table).cloned();
        let table = table.ok_or(StoreError::TableDropped(rewrite.table))?;
        // Without a policy any more, what is archived stays where it is.
        let kept = || {
            inputs
                .iter()
                .find_map(|input| Some(input.archive.as_ref()?.target.clone()))
        };
        let target = target_of(&table).or_else(kept);
        let target = target.ok_or_else(|| StoreError::NoTarget(table.name().clone()))?;
        let begun = describe(SegmentTotals::default());
        let place = SegmentPlace {
            origin: format!("{:016x}", self.origin()?),
            table: table.name().clone(),
            segment: begun.id,
            target,
        };
        let people = self.directory.people(rewrite.table);
        let people: &dyn People = people.as_deref().map_or(&Nobody, |people| people);
        let output = FilesOutput {
            writer: archive.writer(place.clone(), people, table.schema())?,
            totals: SegmentTotals::default(),
            timeline: None,
        };
        let mut stream = Stream::new(self, load, pace, Output::Files(Box::new(output)));
        let written = around("arc", "write", || {
            stream.write_files()?;
            let Stream {
                output, cost, pace, ..
            } = stream;
            match output {
                Output::Files(files) if !files.writer.is_empty() => {
                    let written = files.writer.finish(&mut || pace.step(&cost).is_continue());
                    Ok((Some((written.map_err(given_up)?, files.totals)), cost))
                }
                _ => Ok((None, cost)),
            }
        })?;
        let (Some((written, mut totals)), mut cost) = written else {
            return Ok((None, written.1));
        };
        let mut files = written.copy;
        totals.chunks = written.extents.left();
        totals.bytes = files.bytes();
        cost.bytes_written = totals.bytes;
        let segment = describe(totals);
        let description = Description {
            format: tideline_archive::FORMAT,
            table: place.table.clone(),
            spec: Some(TableSpec::clone(&table.spec())),
            fields: Some(written.fields),
            segment: serde_json::to_value(&segment).expect("plain structures always serialise"),
            archive: files.clone(),
        };
        files.sidecar = around("arc", "describe", || Ok(archive.describe(&place, &description)?))?;
        around("arc", "load", || {
            let bucket = chunk_bucket(TimelineId::MIN);
            let mut extents = written.extents;
            let mut rows = std::iter::from_fn(|| {
                let next = extents.next()?;
                let next = next.map_err(|error| BackendError::corrupt(error.to_string()));
                Some(next.map(|(id, extent)| row(id, &extent, extents.summaries())))
            });
            Ok(self.backend.load(segment.reference(), bucket, &mut rows)?)
        })?;
        Ok((
            Some(segment.in_files(files, self.trusted_now().now.nanos())),
            cost,
        ))
    }

    fn archive(&self, inputs: &[Arc<Segment>]) -> Result<&Arc<Archive>> {
        let first = inputs.first().map(|segment| segment.id).unwrap_or_default();
        self.settings.archive.as_ref().ok_or(StoreError::NoArchive(first))
    }

    /// What tells this database from others in the same target; made and stored where there is none yet.
    fn origin(&self) -> Result<u64> {
        let known = self.state.read().manifest.cursor.origin;
        if let Some(origin) = known {
            return Ok(origin);
        }
        let mut origin = tideline_archive::new_origin()?;
        self.edit(|manifest| {
            // Somebody else may have come first: one edit at a time decides.
            origin = *manifest.cursor.origin.get_or_insert(origin);
            let cursor = self.cursor(manifest.cursor, manifest.cursor.sealed_to);
            manifest.cursor = cursor;
            vec![put_cursor(&manifest.cursor)]
        })?;
        Ok(origin)
    }

    /// Removes files of segments that nobody reads any more. Where a target is not reached they wait, and all others with
    /// them: nobody shall wait for each of them in turn.
    pub(crate) fn remove_files(&self) {
        if self.check_not_read_only().is_err() {
            return;
        }
        let Some(archive) = &self.settings.archive else {
            return;
        };
        while let Some(files) = self.files_to_remove.next(self.clock.monotonic()) {
            match archive.remove(&files) {
                Ok(()) => {}
                Err(error) if error.is_retryable() => {
                    tracing::warn!(%error, "files of segments that are gone could not be removed; they are tried again");
                    let until = self.clock.monotonic().saturating_add(REMOVE_AGAIN);
                    return self.files_to_remove.put_back(files, until);
                }
                Err(error) => {
                    tracing::warn!(%error, "files of a segment that is gone could not be removed; they are swept later");
                }
            }
        }
    }
}

/// Where the policy of a table says that its archive is.
pub(super) fn target_of(table: &Table) -> Option<String> {
    Some(table.spec().policy.archive.as_ref()?.target.clone())
}

/// The row that says where a run lies, and what its numbers come to, where that is known.
pub(crate) fn row(id: TimelineId, extent: &Extent, summaries: &[u8]) -> Row {
    let mut value = Vec::with_capacity(32 + summaries.len());
    extent.encode(summaries, &mut value);
    Row {
        key: Bytes::copy_from_slice(&chunk_key(id, extent.first)),
        value: Bytes::from(value),
    }
}
