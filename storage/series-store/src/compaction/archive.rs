//! Writes archive segments: files at a target, and their extents in the backend. Also removes files that are no longer
//! needed.
//!
//! 1. *write*: files are written; each is read back and compared.
//! 2. *load*: the extents and the list of files are written as a segment that no manifest references.
//! 3. *describe*: a complete description is written next to the files, so that they can be read without this
//!    database.
//!
//! The manifest edit follows as for any other rewrite. Foreseeable failures are checked before the first file is sent.
//! A later failure removes the objects that were sent, the description first. If the target cannot be reached, the
//! removal is retried; if the process ends first, [`gc`](super::gc) removes the objects once they are a day old.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tideline_archive::{
    Archive, ArchiveError, ArchiveWriter, Description, Extent, SegmentTarget, TimelineMetadata,
};
use tideline_backend::{BackendError, Health, Row};
use tideline_chunk::{Run, SequenceSpan};
use tideline_key_codec::chunk_key;
use tideline_log::fail_points::around;
use tideline_model::{Identity, TableSpec, Tier, TimelineId};

use super::stream::{Output, Stream};
use super::{Load, Loaded, Throttle};
use crate::buckets::{EXTENT_BYTES, bucket_bits, load_buckets};
use crate::error::{Result, StoreError};
use crate::manifest::{Segment, SegmentTotals, put_cursor};
use crate::retired::ObjectsToRemove;
use crate::segment_writer::chunk_rows_max;
use crate::shared::Shared;
use crate::tables::Table;

/// Delay before the removal of files is retried at a target that could not be reached. Also the retry delay that is
/// reported while the tier of the extents cannot be written.
const REMOVE_AGAIN: Duration = Duration::from_secs(300);

/// Writes runs into files and counts their points.
pub(super) struct FilesOutput<'a> {
    writer: ArchiveWriter<'a>,
    pub(super) totals: SegmentTotals,
    timeline: Option<TimelineId>,
}

/// Converts an archive error. A requested stop is a cancellation, not a failure.
pub(super) fn given_up(error: ArchiveError) -> StoreError {
    match error {
        ArchiveError::Stopped => StoreError::Cancelled,
        error => StoreError::Archive(error),
    }
}

/// Metadata resolver without any timelines.
struct NoMetadata;

impl TimelineMetadata for NoMetadata {
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
    /// Writes the points of the inputs into files, and their extents into the backend. The result has no output if no
    /// point is left.
    pub(super) fn load_files(&self, load: &Load<'_>, throttle: &mut dyn Throttle) -> Result<Loaded> {
        let Load {
            rewrite,
            inputs,
            describe,
            ..
        } = load;
        let archive = self.archive(inputs)?;
        let table = self.tables.read().by_id.get(&rewrite.table).cloned();
        let table = table.ok_or(StoreError::TableDropped(rewrite.table))?;
        // If the policy has no archive target, the target of an archived input is used.
        let kept = || {
            inputs
                .iter()
                .find_map(|input| Some(input.archive.as_ref()?.target().to_owned()))
        };
        let target = target_of(&table).or_else(kept);
        let target = target.ok_or_else(|| StoreError::NoTarget(table.name().clone()))?;
        self.check_space()?;
        let begun = describe(SegmentTotals::default());
        let segment_target = SegmentTarget {
            origin: format!("{:016x}", self.origin()?),
            table: table.name().clone(),
            segment: begun.id,
            target: target.clone(),
        };
        let metadata = self.directory.metadata(rewrite.table);
        let metadata: &dyn TimelineMetadata = metadata.as_deref().map_or(&NoMetadata, |metadata| metadata);
        let writer = archive.writer(segment_target.clone(), metadata, table.schema())?;
        let points = inputs.iter().map(|input| input.points).sum();
        let first = inputs.iter().map(|input| input.first).min().unwrap_or(0);
        let last = inputs.iter().map(|input| input.last).max().unwrap_or(0);
        let writer = writer.expecting(points, first, last);
        let sent = writer.sent();
        let made = self.send_files(load, throttle, (archive, &table, &segment_target), writer);
        let objects = ObjectsToRemove {
            target,
            keys: sent.newest_first(),
        };
        match made {
            Ok(made) => Ok(Loaded {
                objects: Some(objects),
                ..made
            }),
            Err(error) => {
                self.files_to_remove.add(objects);
                self.remove_files();
                Err(error)
            }
        }
    }

    fn send_files(
        &self,
        load: &Load<'_>,
        throttle: &mut dyn Throttle,
        (archive, table, segment_target): (&Archive, &Table, &SegmentTarget),
        writer: ArchiveWriter<'_>,
    ) -> Result<Loaded> {
        let sent = writer.sent();
        let output = FilesOutput {
            writer,
            totals: SegmentTotals::default(),
            timeline: None,
        };
        let mut stream = Stream::new(self, load, throttle, Output::Files(Box::new(output)));
        let written = around("arc", "write", || -> Result<_> {
            stream.write_files()?;
            let Stream {
                output,
                cost,
                throttle,
                ..
            } = stream;
            match output {
                Output::Files(files) if !files.writer.is_empty() => {
                    let written = files.writer.finish(&mut || throttle.step(&cost).is_continue());
                    Ok((Some((written.map_err(given_up)?, files.totals)), cost))
                }
                _ => Ok((None, cost)),
            }
        })?;
        let (Some((written, mut totals)), mut cost) = written else {
            return Ok(Loaded {
                output: None,
                cost: written.1,
                objects: None,
            });
        };
        let mut files = written.copy;
        totals.chunks = written.extents.left();
        totals.bytes = files.bytes();
        cost.bytes_written = totals.bytes;
        let segment = (load.describe)(totals);
        let description = Description {
            format: tideline_archive::FORMAT,
            table: segment_target.table.clone(),
            spec: Some(TableSpec::clone(&table.spec())),
            fields: Some(written.fields),
            segment: serde_json::to_value(&segment).expect("plain structures always serialise"),
            archive: files.clone(),
        };
        let now = self.log.trusted_now().now.nanos();
        let segment = around("arc", "load", || {
            let bits = bucket_bits(segment.chunks * EXTENT_BYTES, self.settings.bucket_bytes);
            let mut extents = written.extents;
            let mut rows = std::iter::from_fn(|| {
                let next = extents.next()?;
                let next = next.map_err(|error| BackendError::corrupt(error.to_string()));
                Some(next.map(|(id, extent)| row(id, &extent, extents.summaries())))
            });
            load_buckets(self.backend.as_ref(), segment.reference(), bits, &mut rows)?;
            files.sidecar = archive.description_name(segment_target, &description);
            self.load_lists(segment.in_buckets(bits), Some((files, now)))
        })?;
        around("arc", "describe", || -> Result<_> {
            Ok(archive.describe(segment_target, &description, &sent)?)
        })?;
        Ok(Loaded {
            output: Some(segment),
            cost,
            objects: None,
        })
    }

    /// Refuses an archive job before any file is sent if the tier of its extents cannot be written at the moment.
    fn check_space(&self) -> Result<()> {
        let reason = match self.backend.tier_health(Tier::Archive.kept_in()) {
            Health::Ready => return Ok(()),
            Health::DiskLow {
                free_bytes,
                watermark_bytes,
            } => format!(
                "archiving is paused: the cold tier has {free_bytes} bytes free on disk, but needs {watermark_bytes}"
            ),
            Health::Poisoned { reason, .. }
            | Health::Unreachable { reason, .. }
            | Health::WritesRefused { reason }
            | Health::ReadOnly { reason } => reason,
        };
        Err(BackendError::Unavailable {
            reason,
            retry_after: REMOVE_AGAIN,
        }
        .into())
    }

    fn archive(&self, inputs: &[Arc<Segment>]) -> Result<&Arc<Archive>> {
        let first = inputs.first().map(|segment| segment.id).unwrap_or_default();
        self.settings.archive.as_ref().ok_or(StoreError::NoArchive(first))
    }

    /// Returns the id that distinguishes this database from others in the same target. Generates and stores it if
    /// it is missing.
    pub(crate) fn origin(&self) -> Result<u64> {
        let known = self.state.read().manifest.common.cursor.origin;
        if let Some(origin) = known {
            return Ok(origin);
        }
        let mut origin = tideline_archive::new_origin()?;
        self.edit(|manifest| {
            // Edits are serialized; a concurrent one may have set the origin first.
            origin = *manifest.common.cursor.origin.get_or_insert(origin);
            let cursor = self
                .log
                .cursor(manifest.common.cursor, manifest.common.cursor.sealed_to);
            manifest.common.cursor = cursor;
            vec![put_cursor(&manifest.common.cursor)]
        })?;
        Ok(origin)
    }

    /// Removes files of removed segments without readers, and of segments that were never published. If a target cannot
    /// be reached, the removal of all remaining files is postponed, so that a caller never waits for several failing
    /// targets. Does nothing while the backend is read-only.
    pub(crate) fn remove_files(&self) {
        if self.check_not_read_only().is_err() {
            return;
        }
        let Some(archive) = &self.settings.archive else {
            return;
        };
        while let Some(files) = self.files_to_remove.next(self.log.clock().monotonic()) {
            match archive.remove_objects(&files.target, files.keys.iter().map(String::as_str)) {
                Ok(()) => {}
                Err(error) if error.is_retryable() => {
                    tracing::warn!(%error, "failed to remove files that are no longer needed; retrying later");
                    let until = self.log.clock().monotonic().saturating_add(REMOVE_AGAIN);
                    return self.files_to_remove.put_back(files, until);
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to remove files; a later garbage collection removes them");
                }
            }
        }
    }
}

/// Returns the archive target in the policy of a table; `None` if the policy has no target.
pub(super) fn target_of(table: &Table) -> Option<String> {
    Some(table.spec().policy.archive.as_ref()?.target.clone())
}

/// Returns the row with the extent of a run and its summaries, if there are any.
pub(crate) fn row(id: TimelineId, extent: &Extent, summaries: &[u8]) -> Row {
    let mut value = Vec::with_capacity(32 + summaries.len());
    extent.encode(summaries, &mut value);
    Row {
        key: Bytes::copy_from_slice(&chunk_key(id, extent.first)),
        value: Bytes::from(value),
    }
}
