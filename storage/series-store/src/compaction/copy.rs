//! Points that are in files and in the cold tier at the same time.
//!
//! A cold segment may have a *copy*: a complete archive segment with the same points, which readers ignore. The copy
//! is created when a segment is archived but has to stay in the cold tier for a while, or when a segment is restored
//! from files. After its time in the cold tier, one edit replaces the segment with its copy, without reading or writing
//! any points.
//!
//! A rewrite that merges or changes the points of the segment discards the copy, because the copy would no longer have
//! the same points.

use std::sync::Arc;

use tideline_log::fail_points::around;
use tideline_model::{SegmentId, TableId, Tier};

use super::archive::given_up;
use super::{Claim, Load, Rewrite, RewriteCause, RewriteCost, Rewritten};
use crate::deletes::TableDeletes;
use crate::error::{Result, StoreError};
use crate::manifest::Segment;
use crate::scan::cursor;
use crate::shared::Shared;

/// Result of evicting cold segments that have a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Segments whose points are now only in files.
    pub segments: u64,
    /// Bytes of these segments in the cold tier.
    pub bytes: u64,
    /// Segments that stay because files of their copy are missing or have a wrong size.
    pub stay: u64,
}

impl Load<'_> {
    /// Returns the segment to publish for a written segment; `None` if no point was left.
    pub(super) fn published(&self, loaded: Option<Segment>) -> Result<Option<Segment>> {
        let Some(loaded) = loaded else { return Ok(None) };
        match (self.rewrite.cause, self.inputs) {
            (RewriteCause::Copy, [input]) => {
                if !is_same(input, &loaded) {
                    return Err(StoreError::NoCopy(input.id));
                }
                Ok(Some(Segment::clone(input).with_copy(Some(loaded))))
            }
            (RewriteCause::Restore(until), inputs) => {
                let files = self.files_that_stay(inputs, &loaded);
                Ok(Some(loaded.with_copy(files).staying_until(Some(until))))
            }
            // The output of a merge with a restored segment stays in the cold tier as long as the restored segment.
            (_, inputs) if loaded.tier == Tier::Cold => {
                let until = inputs.iter().filter_map(|input| input.stays_until).max();
                Ok(Some(loaded.staying_until(until)))
            }
            _ => Ok(Some(loaded)),
        }
    }

    /// Returns the input, to be the copy of the restored segment, if its files contain exactly the restored points.
    /// These points then need not be archived again.
    fn files_that_stay(&self, inputs: &[Arc<Segment>], restored: &Segment) -> Option<Segment> {
        let [input] = inputs else { return None };
        let is_clean = !self.deletes.is_some_and(|deletes| deletes.concern(input));
        (input.archive.is_some() && is_clean && is_same(input, restored)).then(|| Segment::clone(input))
    }
}

/// Returns true if two segments have the same counts and time span.
fn is_same(one: &Segment, other: &Segment) -> bool {
    let counts = |segment: &Segment| {
        (
            segment.timelines,
            segment.points,
            segment.values,
            segment.first,
            segment.last,
        )
    };
    counts(one) == counts(other)
}

impl Shared {
    /// Checks that the input is one cold segment without deleted points.
    pub(super) fn check_copied(&self, inputs: &[Arc<Segment>], deletes: Option<&TableDeletes>) -> Result<()> {
        let [segment] = inputs else {
            return Err(StoreError::NoCopy(
                inputs.first().map(|segment| segment.id).unwrap_or_default(),
            ));
        };
        for id in deletes.iter().flat_map(|deletes| deletes.timelines_in(segment)) {
            if cursor::holds(self.backend.as_ref(), segment, id)? {
                return Err(StoreError::NoCopy(segment.id));
            }
        }
        match segment.tier {
            Tier::Cold => Ok(()),
            _ => Err(StoreError::NoCopy(segment.id)),
        }
    }

    /// Handles a restore of one segment that is still in the cold tier: only `stays_until` changes. Returns `None` for
    /// every other rewrite.
    pub(super) fn hold(&self, rewrite: &Rewrite, inputs: &[Arc<Segment>]) -> Result<Option<Rewritten>> {
        let (RewriteCause::Restore(until), [input]) = (rewrite.cause, inputs) else {
            return Ok(None);
        };
        if input.tier != Tier::Cold {
            return Ok(None);
        }
        let until = input.stays_until.max(Some(until));
        let held = Segment::clone(input).staying_until(until);
        self.replace(inputs, std::slice::from_ref(&held))?;
        Ok(Some(Rewritten {
            outputs: vec![Arc::new(held)],
            cost: RewriteCost::default(),
        }))
    }

    /// Replaces segments with their copies. Discards a copy if one of its files is missing or has a wrong size; skips
    /// segments without a copy.
    pub(crate) fn evict(&self, table: TableId, segments: &[SegmentId]) -> Result<Evicted> {
        self.check_not_read_only()?;
        let _claim = Claim::take(self, segments)?;
        let manifest = Arc::clone(&self.state.read().manifest);
        let wanted = manifest
            .of_table(table)
            .filter(|segment| segments.contains(&segment.id));
        let wanted: Vec<Arc<Segment>> = wanted.cloned().collect();
        drop(manifest);
        let (mut evicted, mut outputs, mut inputs) = (Evicted::default(), Vec::new(), Vec::new());
        for segment in wanted {
            let Some(in_files) = segment.evicted() else {
                continue;
            };
            outputs.push(match self.missing(&in_files)? {
                None => {
                    evicted.segments += 1;
                    evicted.bytes += segment.bytes;
                    in_files
                }
                Some(missing) => {
                    tracing::error!(
                        segment = segment.id.0, missing,
                        "archived files of a cold segment are missing or damaged; it is kept and archived again"
                    );
                    evicted.stay += 1;
                    Segment::clone(&segment).with_copy(None)
                }
            });
            inputs.push(segment);
        }
        around("evict", "edit", || self.replace(&inputs, &outputs))?;
        // Releases these references, because they prevent the segments from being reclaimed.
        drop(inputs);
        around("evict", "drop", || self.free())?;
        Ok(evicted)
    }

    /// Returns the name of the first file of a copy that is missing or has a wrong size; `None` if all files exist with
    /// the right size.
    fn missing(&self, copy: &Segment) -> Result<Option<String>> {
        let archive = self.settings.archive.as_ref();
        let archive = archive.ok_or(StoreError::NoArchive(copy.id))?;
        let Some(files) = self.files_of(copy)? else {
            return Ok(None);
        };
        archive.missing(&files).map_err(given_up)
    }
}
