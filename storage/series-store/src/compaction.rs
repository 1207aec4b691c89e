//! Rewrites (compaction): merges segments into one, in the same tier or another, or cuts them at a timestamp.
//!
//! Fold (merge segments of one or more windows), migrate (hot to cold), archive (cold to files), copy (cold to files,
//! but also kept in the cold tier), restore (files to cold) and purge (remove deleted points) share these steps:
//!
//! 1. Read: iterate over the timelines of all inputs in id order, and merge the fragments (chunks or file rows) of each
//!    timeline in time order. The newest write wins, and deletes are applied. Memory is bounded by pages of the inputs,
//!    the encoded fragments of one timeline, and one decoded time slice of these fragments.
//! 2. Load: write the chunks as a stream into a new segment that is not visible yet.
//! 3. Edit: one manifest edit adds the output and removes the inputs; both changes become visible at the same moment.
//! 4. Drop: reclaim the inputs when the last reader of the old manifest is done.
//!
//! A failure before step 3 leaves an orphaned segment, which is reclaimed immediately or by the next start. Files
//! already written to a target are removed immediately or by a later garbage collection. After step 3 only space
//! remains to be freed. Repeating a rewrite is safe.
//!
//! | file | holds |
//! |---|---|
//! | [`stream`] | step 1, evaluated lazily by step 2 |
//! | [`archive`] | step 2 for output in files |
//! | [`copy`] | points that are in files and in the cold tier at the same time |
//! | [`gc`] | removal of unreferenced objects |
//! | [`orphans`] | search and removal of unreferenced objects on request |
//! | [`settings`] | table settings stored at targets |
//!
//! A cut ([`RewriteCause::Cut`]) performs steps 1 and 2 once per output, each time for another time range, and
//! publishes all outputs with one edit.
//!
//! The output takes the position of its inputs in the write order of the table. This is possible only if no other
//! segment with an overlapping time range was written between the oldest and the newest input.

pub(crate) mod archive;
mod copy;
mod gc;
mod orphans;
mod settings;
mod stream;

use std::ops::ControlFlow;
use std::sync::Arc;

use tideline_backend::{ErrorKind, SegmentRef};
use tideline_log::fail_points::around;
use tideline_model::{SegmentId, SequenceNumber, TableId, Tier, TimeRange};

use crate::buckets::bucket_bits;
use crate::deletes::TableDeletes;
use crate::error::{Result, StoreError};
use crate::manifest::{
    ManifestState, Segment, SegmentTotals, WriteSpan, put_cursor, put_segment, remove_segment,
};
use crate::retired::{InDoubt, ObjectsToRemove, RetiredSegment};
use crate::segment_writer::SegmentWriter;
use crate::shared::{Shared, group_window};
use crate::window::{COLD_LEVEL, LEVEL_MAX, Window, cold_boundary, tiles};
pub use copy::Evicted;
pub use gc::{OtherObjects, OtherObjectsOf};
pub use orphans::{Orphan, OrphanSearch, Orphans};
pub(crate) use settings::SettingsWritten;
use stream::{Output, Stream};

/// Rewrite to perform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewrite {
    /// Table of the segments.
    pub table: TableId,
    /// Segments in any order; at least one.
    pub inputs: Vec<SegmentId>,
    /// Tier of the output.
    pub tier: Tier,
    /// Cause of the rewrite.
    pub cause: RewriteCause,
}

/// Cause of a rewrite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RewriteCause {
    /// A window, or the store, has too many segments.
    Fold,
    /// The points are old enough for the next tier.
    Migrate,
    /// Only points before this timestamp, the start of a cold window, are old enough to move. They become segments of
    /// the tier of the rewrite. Points at and after the timestamp become segments of the current tier of the inputs, or
    /// of the coldest tier if the inputs are in several tiers. No output spans the timestamp.
    Cut(i64),
    /// Deletes have to be applied.
    Purge,
    /// The points are old enough to be moved into files.
    Archive,
    /// The points are also written into files, but stay in the cold tier for a while. Applies to one cold segment
    /// without deleted points.
    Copy,
    /// An operator requests archived points in the cold tier until this time of the trusted clock, in nanoseconds since
    /// the epoch.
    Restore(i64),
}

/// Work done by a rewrite so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RewriteCost {
    /// Timelines completed.
    pub timelines: u64,
    /// Points in the fragments (chunks or file rows) that were read.
    pub points_read: u64,
    /// Field values in these fragments.
    pub values_read: u64,
    /// Encoded bytes of these fragments; an estimate for file rows.
    pub bytes_read: u64,
    /// Points of the output.
    pub points_written: u64,
    /// Field values of the output.
    pub values_written: u64,
    /// Bytes of the output: keys and chunks, or files.
    pub bytes_written: u64,
}

impl std::ops::Add for RewriteCost {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl std::ops::AddAssign for RewriteCost {
    fn add_assign(&mut self, other: Self) {
        self.timelines += other.timelines;
        self.points_read += other.points_read;
        self.values_read += other.values_read;
        self.bytes_read += other.bytes_read;
        self.points_written += other.points_written;
        self.values_written += other.values_written;
        self.bytes_written += other.bytes_written;
    }
}

/// Result of a rewrite.
#[derive(Debug, Clone)]
pub struct Rewritten {
    /// Segments that replace the inputs, in time order: one, or several after a cut. Empty if no point was left, or
    /// if a purge found nothing to remove.
    pub outputs: Vec<Arc<Segment>>,
    /// Work done.
    pub cost: RewriteCost,
}

/// Throttle of a rewrite, which can also cancel it.
pub trait Throttle {
    /// Receives the cost so far. Called after every timeline, and while files are completed. May wait. `Break` cancels
    /// the rewrite and leaves everything unchanged.
    fn step(&mut self, cost: &RewriteCost) -> ControlFlow<()>;
}

impl RewriteCause {
    /// Returns the prefix of the fail point names.
    fn name(self) -> &'static str {
        match self {
            Self::Fold => "fold",
            Self::Migrate | Self::Cut(_) => "mig",
            Self::Purge => "purge",
            Self::Archive | Self::Copy => "arc",
            Self::Restore(_) => "restore",
        }
    }
}

/// Input of step 2 (load): the segments, oldest write first, their deletes, and a function that builds the output
/// segment from its totals.
struct Load<'a> {
    rewrite: &'a Rewrite,
    inputs: &'a [Arc<Segment>],
    deletes: Option<&'a TableDeletes>,
    part: Part,
    describe: &'a dyn Fn(SegmentTotals) -> Segment,
}

/// Output of a rewrite.
#[derive(Debug, Clone, Copy)]
struct Part {
    window: Window,
    tier: Tier,
    /// Time range of the points in this output.
    range: TimeRange,
}

/// Throttle for one of several outputs. Adds the cost of the previous outputs.
struct PartThrottle<'a> {
    throttle: &'a mut dyn Throttle,
    before: RewriteCost,
}

impl Throttle for PartThrottle<'_> {
    fn step(&mut self, cost: &RewriteCost) -> ControlFlow<()> {
        self.throttle.step(&(self.before + *cost))
    }
}

/// Result of step 2 (load). No manifest references the segment yet.
struct Loaded {
    /// Segment to publish; `None` if no point was left.
    output: Option<Segment>,
    cost: RewriteCost,
    /// Objects that step 2 has written to a target.
    objects: Option<ObjectsToRemove>,
}

/// Guard of a segment whose files are being written. No manifest references these files yet; the guard prevents
/// their removal as orphans.
struct Archiving<'a> {
    shared: &'a Shared,
    segment: SegmentId,
}

impl<'a> Archiving<'a> {
    fn begin(shared: &'a Shared, segment: SegmentId) -> Self {
        shared.archiving.lock().insert(segment);
        Self { shared, segment }
    }
}

impl Drop for Archiving<'_> {
    fn drop(&mut self) {
        self.shared.archiving.lock().remove(&self.segment);
    }
}

/// Guard that reserves segments for one rewrite, drop or eviction.
struct Claim<'a> {
    shared: &'a Shared,
    segments: &'a [SegmentId],
}

impl<'a> Claim<'a> {
    fn take(shared: &'a Shared, segments: &'a [SegmentId]) -> Result<Self> {
        let mut moving = shared.moving.lock();
        if let Some(claimed) = segments.iter().find(|id| moving.contains(*id)) {
            return Err(StoreError::SegmentGone(*claimed));
        }
        moving.extend(segments.iter().copied());
        Ok(Self { shared, segments })
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut moving = self.shared.moving.lock();
        self.segments.iter().for_each(|id| {
            moving.remove(id);
        });
    }
}

impl Shared {
    /// Performs a rewrite; see the module documentation.
    pub(crate) fn rewrite(&self, rewrite: &Rewrite, throttle: &mut dyn Throttle) -> Result<Rewritten> {
        self.check_not_read_only()?;
        let _claim = Claim::take(self, &rewrite.inputs)?;
        // The heads are not pinned, because the rewrite may run for a long time.
        let (manifest, deletes) = {
            let state = self.state.read();
            (Arc::clone(&state.manifest), state.deletes.clone())
        };
        let inputs = inputs(&manifest, rewrite)?;
        let deletes = deletes.of(rewrite.table);
        if let Some(cleared) = self.clear_untouched(rewrite, &inputs, deletes)? {
            return Ok(cleared);
        }
        if rewrite.cause == RewriteCause::Copy {
            self.check_copied(&inputs, deletes)?;
        }
        if let Some(held) = self.hold(rewrite, &inputs)? {
            return Ok(held);
        }
        let name = rewrite.cause.name();
        let parts = parts_of(&inputs, rewrite, self.settings.window_nanos)?;
        let mut locations = Vec::with_capacity(parts.len());
        let mut loads = Vec::with_capacity(parts.len());
        let mut archiving = Vec::new();
        let (mut published, mut cost) = (Vec::with_capacity(parts.len()), RewriteCost::default());
        for part in parts {
            let location = self.choose_part_location(&manifest, rewrite, &inputs, part, &locations);
            locations.push((part, location));
            archiving.extend((part.tier == Tier::Archive).then(|| Archiving::begin(self, location.segment)));
            let mut throttle = PartThrottle {
                throttle,
                before: cost,
            };
            match self.load_part(rewrite, &inputs, deletes, (part, location), &mut throttle) {
                Ok(loaded) => {
                    cost += loaded.cost;
                    published.extend(loaded.output);
                    let objects = loaded.objects;
                    loads.push(InDoubt { location, objects });
                }
                Err(error) => {
                    self.give_up_all(loads);
                    return Err(error);
                }
            }
        }
        let edited = around(name, "edit", || self.replace(&inputs, &published));
        if let Err(error) = edited {
            match is_refused(&error) {
                true => self.give_up_all(loads),
                false => {
                    self.in_doubt.lock().extend(loads);
                    self.settle_doubts();
                }
            }
            return Err(error);
        }
        for output in &published {
            let bytes = match published.len() {
                1 => cost.bytes_written,
                _ => output.bytes,
            };
            self.count_loaded(&self.counters.rewritten_bytes, rewrite.table, output.tier, bytes);
        }
        // Releases the pinned manifest, because it prevents the inputs from being reclaimed.
        drop(manifest);
        around(name, "drop", || self.free())?;
        Ok(Rewritten {
            outputs: published.into_iter().map(Arc::new).collect(),
            cost,
        })
    }

    /// Returns the location of a part. Parts with the same tier and group window get the same group, even if the group
    /// is new.
    fn choose_part_location(
        &self,
        manifest: &ManifestState,
        rewrite: &Rewrite,
        inputs: &[Arc<Segment>],
        part: Part,
        before: &[(Part, SegmentRef)],
    ) -> SegmentRef {
        let bytes = inputs.iter().map(|segment| segment.bytes).sum();
        let mut location = self.choose_location(manifest, rewrite.table, part.tier, part.window, bytes);
        let wide = group_window(part.tier, part.window);
        let sibling = before
            .iter()
            .find(|(other, _)| other.tier == part.tier && group_window(other.tier, other.window) == wide);
        if let Some((_, sibling)) = sibling {
            location.group = sibling.group;
        }
        location
    }

    /// Writes one part as a segment. The result has the manifest row of the segment, if a point is left. On failure,
    /// frees everything that was written.
    fn load_part(
        &self,
        rewrite: &Rewrite,
        inputs: &[Arc<Segment>],
        deletes: Option<&TableDeletes>,
        (part, location): (Part, SegmentRef),
        throttle: &mut dyn Throttle,
    ) -> Result<Loaded> {
        let written = inputs
            .iter()
            .map(|segment| segment.written)
            .reduce(WriteSpan::union)
            .unwrap_or_default();
        let deletes_applied = deletes_applied(inputs, deletes);
        let replaces = self.replaced(inputs)?;
        let load = Load {
            rewrite,
            inputs,
            deletes,
            part,
            describe: &|totals| {
                Segment::new(
                    location,
                    rewrite.table,
                    part.window,
                    written,
                    deletes_applied,
                    totals,
                )
                .replacing(replaces.clone())
            },
        };
        self.check_row(&(load.describe)(SegmentTotals::default()))?;
        let made = match part.tier {
            Tier::Archive => self.load_files(&load, throttle),
            _ => self.load_chunks(&load, throttle),
        };
        let Loaded {
            output,
            cost,
            objects,
        } = match made {
            Ok(made) => made,
            Err(error) => {
                self.give_up(location, None);
                return Err(error);
            }
        };
        if output.is_none() {
            self.give_up(location, None);
        }
        match load.published(output) {
            Ok(output) => Ok(Loaded {
                output,
                cost,
                objects,
            }),
            Err(error) => {
                self.give_up(location, objects);
                Err(error)
            }
        }
    }

    /// Frees segments, and objects at targets, that no manifest references.
    fn give_up_all(&self, loads: Vec<InDoubt>) {
        for InDoubt { location, objects } in loads {
            self.give_up(location, objects);
        }
    }

    /// Writes the merged inputs as chunks of a new segment. The result has no output if no point is left.
    fn load_chunks(&self, load: &Load<'_>, throttle: &mut dyn Throttle) -> Result<Loaded> {
        let Load {
            rewrite,
            part,
            describe,
            ..
        } = load;
        let writer = SegmentWriter::new(part.tier);
        let mut stream = Stream::new(self, load, throttle, Output::Chunks(Box::new(writer)));
        let location = describe(SegmentTotals::default()).reference();
        let bytes = load.inputs.iter().map(|segment| segment.bytes).sum();
        let bits = bucket_bits(bytes, self.settings.bucket_bytes);
        around(rewrite.cause.name(), "load", || {
            stream.load(self.backend.as_ref(), location, bits)
        })?;
        let Stream { output, cost, .. } = stream;
        let mut loaded = Loaded {
            output: None,
            cost,
            objects: None,
        };
        if let Output::Chunks(mut writer) = output
            && !writer.is_empty()
        {
            let segment = describe(writer.totals()).in_buckets(bits);
            loaded.output = Some(self.load_lists(segment, None)?);
        }
        Ok(loaded)
    }

    /// Drops whole segments. Reads that start afterwards do not return points of these segments. Returns the number of
    /// dropped segments; ids that are not in the manifest are skipped.
    pub(crate) fn drop_segments(&self, table: TableId, segments: &[SegmentId]) -> Result<u64> {
        let _claim = Claim::take(self, segments)?;
        let manifest = Arc::clone(&self.state.read().manifest);
        let found: Vec<Arc<Segment>> = manifest
            .of_table(table)
            .filter(|segment| segments.contains(&segment.id))
            .cloned()
            .collect();
        drop(manifest);
        around("expire", "edit", || self.replace(&found, &[]))?;
        around("expire", "drop", || self.free())?;
        Ok(found.len() as u64)
    }

    /// Resolves edits in doubt, frees segments that have no readers, removes the files of these segments, and removes
    /// deletes that are applied to all older segments and heads.
    fn free(&self) -> Result<()> {
        self.settle_doubts();
        self.reclaim_retired();
        self.remove_files();
        self.forget_done_deletes()
    }

    /// Publishes the outputs in place of the inputs. Retires every input, and every copy of an input, that is not part
    /// of an output.
    fn replace(&self, inputs: &[Arc<Segment>], outputs: &[Segment]) -> Result<()> {
        let kept: Vec<SegmentId> = parts(outputs).map(|part| part.id).collect();
        let gone = inputs.iter().flat_map(|input| input.parts());
        let gone: Vec<RetiredSegment> = gone
            .filter(|part| !kept.contains(&part.id))
            .map(RetiredSegment::of)
            .collect();
        let version = self.edit_and(
            |manifest| {
                let mut changes = Vec::with_capacity(inputs.len() + outputs.len() + 1);
                let stays = |id| outputs.iter().any(|output| output.id == id);
                for input in inputs {
                    let of_table = manifest.segments.get_mut(&input.table);
                    of_table
                        .and_then(|segments| segments.remove(&input.id))
                        .ok_or(StoreError::SegmentGone(input.id))?;
                    changes.extend((!stays(input.id)).then(|| remove_segment(input.id)));
                }
                for output in outputs {
                    manifest.add(output.clone());
                    changes.push(put_segment(output));
                }
                manifest.common.cursor = self
                    .log
                    .cursor(manifest.common.cursor, manifest.common.cursor.sealed_to);
                changes.push(put_cursor(&manifest.common.cursor));
                Ok(changes)
            },
            |_| {},
        )?;
        self.retired.add(version, gone);
        Ok(())
    }

    /// Handles a purge of one segment without points of the deleted timelines: only `deletes_applied` changes.
    /// Returns `None` for every other rewrite.
    fn clear_untouched(
        &self,
        rewrite: &Rewrite,
        inputs: &[Arc<Segment>],
        deletes: Option<&TableDeletes>,
    ) -> Result<Option<Rewritten>> {
        let ([input], Some(deletes), RewriteCause::Purge) = (inputs, deletes, rewrite.cause) else {
            return Ok(None);
        };
        for id in deletes.timelines_in(input) {
            if crate::scan::cursor::holds(self.backend.as_ref(), input, id)? {
                return Ok(None);
            }
        }
        let mut cleared = Segment::clone(input);
        cleared.deletes_applied = deletes_applied(inputs, Some(deletes));
        self.edit_and(
            |manifest| {
                let of_table = manifest.segments.get(&input.table);
                if !of_table.is_some_and(|segments| segments.contains_key(&input.id)) {
                    return Err(StoreError::SegmentGone(input.id));
                }
                manifest.add(cleared.clone());
                Ok(vec![put_segment(&cleared)])
            },
            |_| {},
        )?;
        self.free()?;
        Ok(Some(Rewritten {
            outputs: Vec::new(),
            cost: RewriteCost::default(),
        }))
    }

    /// Frees a segment that no manifest references, and its objects at a target.
    fn give_up(&self, location: SegmentRef, objects: Option<ObjectsToRemove>) {
        if let Some(objects) = objects {
            self.files_to_remove.add(objects);
            self.remove_files();
        }
        self.reclaim_abandoned(location);
    }

    /// Resolves edits with unknown outcome, and frees their output segments if the manifest does not reference them.
    ///
    /// An edit contains the manifest version that it is based on. Once a later edit has succeeded, an earlier edit
    /// can no longer be applied, and the manifest in memory equals the stored one.
    fn settle_doubts(&self) {
        if self.in_doubt.lock().is_empty() {
            return;
        }
        let look = || {
            self.edit(|manifest| {
                manifest.common.cursor = self
                    .log
                    .cursor(manifest.common.cursor, manifest.common.cursor.sealed_to);
                vec![put_cursor(&manifest.common.cursor)]
            })
        };
        // The first edit may fail because the manifest has changed; the log then reads it again.
        if look().is_err() && look().is_err() {
            return;
        }
        let doubts = std::mem::take(&mut *self.in_doubt.lock());
        let manifest = Arc::clone(&self.state.read().manifest);
        for InDoubt { location, objects } in doubts {
            let segments = manifest.segments.values().flat_map(|of_table| of_table.values());
            let mut parts = segments.flat_map(|segment| segment.parts());
            if !parts.any(|part| part.id == location.segment) {
                self.give_up(location, objects);
            }
        }
    }

    /// Returns the names of descriptions that other databases wrote, if the points of the described files are in the
    /// inputs. The described files may outlive the inputs; a database that attaches the output ignores these
    /// descriptions. For descriptions of this database, the segment ids are sufficient.
    fn replaced(&self, inputs: &[Arc<Segment>]) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for part in inputs.iter().flat_map(|input| input.parts()) {
            names.extend(self.replaces_of(part)?);
            let attached = part.archive.as_ref().filter(|files| files.attached().is_some());
            names.extend(attached.map(|files| files.sidecar().to_owned()));
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Frees a segment that no manifest references.
    pub(crate) fn reclaim_abandoned(&self, location: SegmentRef) {
        if let Err(error) = self.backend.reclaim(location) {
            tracing::warn!(%error, ?location, "failed to reclaim an abandoned load; the next start reclaims it");
        }
    }
}

/// Returns the parts of all segments: each segment, and its copy if it has one.
fn parts(segments: &[Segment]) -> impl Iterator<Item = &Segment> {
    segments.iter().flat_map(Segment::parts)
}

/// Returns the inputs in write order. Fails if one does not exist, or if another segment with an overlapping time
/// range was written between them.
fn inputs(manifest: &ManifestState, rewrite: &Rewrite) -> Result<Vec<Arc<Segment>>> {
    let of_table = manifest.segments.get(&rewrite.table);
    let find = |id: &SegmentId| of_table.and_then(|segments| segments.get(id)).cloned();
    let found = rewrite
        .inputs
        .iter()
        .map(|id| find(id).ok_or(StoreError::SegmentGone(*id)));
    let mut found: Vec<Arc<Segment>> = found.collect::<Result<_>>()?;
    found.sort_unstable_by_key(|segment| segment.written.newest);
    found.dedup_by_key(|segment| segment.id);
    let written = found
        .iter()
        .map(|segment| segment.written)
        .reduce(WriteSpan::union);
    let span = found
        .iter()
        .map(|segment| segment.range())
        .reduce(|a, b| TimeRange::new(a.start.min(b.start), a.end.max(b.end)));
    if let Some((written, span)) = written.zip(span) {
        let between = manifest.of_table(rewrite.table).find(|other| {
            !rewrite.inputs.contains(&other.id)
                && other.range().overlaps(&span)
                && other.written.interleaves(&written)
        });
        if let Some(other) = between {
            return Err(StoreError::Interleaved { segment: other.id });
        }
    }
    Ok(found)
}

/// Returns true if a failed edit was definitely not applied.
fn is_refused(error: &StoreError) -> bool {
    match error {
        StoreError::SegmentGone(_) | StoreError::TableDropped(_) => true,
        StoreError::Backend(error) => matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::Refused),
        _ => false,
    }
}

/// Returns the narrowest window that contains the windows of all inputs. For a tier other than the hot tier, the result
/// is at least a cold window. Returns `None` without inputs, or if the inputs are on both sides of the epoch.
fn target_window(inputs: &[Arc<Segment>], tier: Tier) -> Option<Window> {
    let mut windows = inputs.iter().map(|segment| segment.window);
    let mut target = windows.next()?;
    for window in windows {
        while !(target.level >= window.level && target.holds(window)) {
            if target.level == LEVEL_MAX {
                return None;
            }
            target = target.parent();
        }
    }
    while tier != Tier::Hot && target.level < COLD_LEVEL {
        target = target.parent();
    }
    Some(target)
}

/// Returns the outputs of a rewrite in time order.
fn parts_of(inputs: &[Arc<Segment>], rewrite: &Rewrite, base: i64) -> Result<Vec<Part>> {
    let target = |tier| target_window(inputs, tier).ok_or(StoreError::NoCommonWindow);
    let RewriteCause::Cut(at) = rewrite.cause else {
        return Ok(vec![Part {
            window: target(rewrite.tier)?,
            tier: rewrite.tier,
            range: TimeRange::ALL,
        }]);
    };
    // The remaining points stay in the coldest tier of the inputs, so that no point moves back to a warmer tier.
    let stays = inputs
        .iter()
        .map(|input| input.tier)
        .max()
        .unwrap_or(rewrite.tier);
    let window = target(stays)?;
    let around = window.range(base);
    if at <= around.start || at >= around.end || cold_boundary(at, base) != at {
        return Err(StoreError::Cut { at, around });
    }
    let sides = [
        (TimeRange::new(around.start, at), rewrite.tier),
        (TimeRange::new(at, around.end), stays),
    ];
    let points = inputs
        .iter()
        .map(|input| input.range())
        .reduce(|one, other| TimeRange::new(one.start.min(other.start), one.end.max(other.end)));
    let has_points = |range: &TimeRange| points.is_some_and(|points| points.overlaps(range));
    let parts = sides.into_iter().flat_map(|(side, tier)| {
        tiles(side, base, COLD_LEVEL).into_iter().map(move |window| Part {
            window,
            tier,
            range: window.range(base),
        })
    });
    Ok(parts.filter(|part| has_points(&part.range)).collect())
}

/// Returns the sequence below which all deletes are applied to the output.
fn deletes_applied(inputs: &[Arc<Segment>], deletes: Option<&TableDeletes>) -> SequenceNumber {
    let known = deletes.map_or(SequenceNumber(0), TableDeletes::end);
    let own = inputs.iter().map(|segment| segment.deletes_from()).max();
    own.map_or(known, |own| own.max(known))
}

#[cfg(test)]
mod tests;
