//! Timelines of attached segments: registers their identities through the journal, as any write does, then sets their
//! attributes.
//!
//! A timeline may occur in many segments, and the attributes in the newest segment apply. Segments are attached
//! newest first, so attributes are set only for timelines that occur in no newer segment.

use std::collections::BTreeMap;

use roaring::RoaringBitmap;
use serde_json::Value;
use tideline_archive::{TimelineRun, TimelineRuns};
use tideline_chunk::Delta;
use tideline_model::{Durability, GeoPoint, Identity, Ordinal, TimelineId, Timestamp};
use tideline_series_store::{Segment, StoreError};
use tideline_timeline_catalog::timeline_id;
use tideline_timeline_catalog::{AttributeChanges, AttributeValue, CatalogError};

use super::{AttachProgress, AttachStop};
use crate::engine::Engine;
use crate::tables::Table;
use crate::write::introduced;

/// Number of timelines registered in one batch.
const BATCH: usize = 1_000;
/// Number of salts tried per timeline id. Up to this number of identities of a table may have equal hashes.
const SALTS: u32 = 4;

/// Timelines of the segments attached by this run.
pub(super) struct NewTimelines {
    /// Archived segments that the table had before this run. They count as newer, because segments are attached newest
    /// first.
    earlier: Vec<Segment>,
    /// Timelines in newer segments of this run.
    seen: RoaringBitmap,
    /// Timelines in the current segment.
    now: RoaringBitmap,
    last: Option<TimelineId>,
    refused: u64,
    first_refusal: Option<String>,
}

/// Timeline of a segment.
struct ArchivedTimeline {
    id: TimelineId,
    identity: Identity,
    attributes: Option<String>,
}

impl NewTimelines {
    pub(super) fn new(earlier: Vec<Segment>) -> Self {
        Self {
            earlier,
            seen: RoaringBitmap::new(),
            now: RoaringBitmap::new(),
            last: None,
            refused: 0,
            first_refusal: None,
        }
    }

    /// Starts the next segment.
    pub(super) fn begin(&mut self) {
        self.now.clear();
        self.last = None;
    }

    /// Ends a segment that was attached.
    pub(super) fn end(&mut self) {
        self.seen |= &self.now;
    }

    /// Returns a message about the attributes that could not be set, if any.
    pub(super) fn take_refusal(&mut self) -> Option<String> {
        let first = self.first_refusal.take()?;
        Some(format!(
            "attributes of {} timelines could not be set: {first}",
            self.refused
        ))
    }

    fn refuse(&mut self, reason: impl FnOnce() -> String) {
        self.refused += 1;
        self.first_refusal.get_or_insert_with(reason);
    }

    /// Returns the next timelines with an identity, at most [`BATCH`].
    fn next(&mut self, runs: &mut TimelineRuns) -> std::result::Result<Vec<ArchivedTimeline>, AttachStop> {
        let mut timelines = Vec::new();
        for run in runs {
            let TimelineRun {
                id,
                identity,
                attributes,
                ..
            } = run.map_err(StoreError::from)?;
            if self.last.replace(id) == Some(id) {
                continue;
            }
            let Some(identity) = identity else { continue };
            timelines.push(ArchivedTimeline {
                id,
                identity,
                attributes,
            });
            if timelines.len() == BATCH {
                break;
            }
        }
        Ok(timelines)
    }
}

impl Engine {
    /// Registers the next timelines of a segment. Returns false if there are no more.
    pub(super) fn register_timelines(
        &self,
        table: &Table,
        runs: &mut TimelineRuns,
        newcomers: &mut NewTimelines,
        progress: &mut AttachProgress,
    ) -> std::result::Result<bool, AttachStop> {
        let timelines = newcomers.next(runs)?;
        if timelines.is_empty() {
            return Ok(false);
        }
        let generation = table.points.timeline_generation();
        let ordinals = register(table, &timelines)?;
        let mut delta = Delta {
            table: table.points.id(),
            timelines: timelines.iter().map(|timeline| timeline.id).collect(),
            ..Delta::default()
        };
        {
            let reader = table.catalog.reader();
            let unknown = ordinals.iter().filter(|ordinal| reader.needs_identity(**ordinal));
            delta.new_timelines = unknown.map(|ordinal| introduced(&reader, *ordinal)).collect();
        }
        progress.timelines += delta.new_timelines.len() as u64;
        if !delta.new_timelines.is_empty() {
            self.commit_named(table, delta, Vec::new(), Durability::Synced, generation)?;
        }
        self.take_attributes(table, &timelines, &ordinals, newcomers)?;
        newcomers.now.extend(ordinals.iter().map(|ordinal| ordinal.0));
        progress.entries += timelines.len() as u64;
        self.index.notify();
        Ok(true)
    }

    /// Sets the attributes of timelines that have no attributes yet and do not occur in a newer segment.
    fn take_attributes(
        &self,
        table: &Table,
        timelines: &[ArchivedTimeline],
        ordinals: &[Ordinal],
        newcomers: &mut NewTimelines,
    ) -> std::result::Result<(), AttachStop> {
        let mut edits: Vec<(Ordinal, AttributeChanges)> = Vec::new();
        for (timeline, ordinal) in timelines.iter().zip(ordinals) {
            let Some(json) = &timeline.attributes else {
                continue;
            };
            if newcomers.seen.contains(ordinal.0) || self.is_held(&newcomers.earlier, timeline.id)? {
                continue;
            }
            let is_bare = {
                let reader = table.catalog.reader();
                let entry = reader.entry(*ordinal);
                entry.is_some_and(|entry| entry.attributes().next().is_none())
            };
            match changes(json) {
                Some(changes) if is_bare => edits.push((*ordinal, changes)),
                Some(_) => {}
                None => newcomers.refuse(|| format!("timeline {}: invalid attributes {json}", timeline.id)),
            }
        }
        if edits.is_empty() {
            return Ok(());
        }
        let commit = |entry| self.commit_change(entry);
        let set = table.catalog.set_attributes_each(&edits, &commit)?;
        for outcome in set {
            match outcome {
                Ok(_) | Err(CatalogError::UnknownTimeline(_)) => {}
                Err(error) => newcomers.refuse(|| error.to_string()),
            }
        }
        Ok(())
    }

    fn is_held(&self, segments: &[Segment], id: TimelineId) -> std::result::Result<bool, AttachStop> {
        for segment in segments {
            if self.store.holds(segment, id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Registers timelines under their ids in the file. The ids of all timelines are checked before the first is
/// registered.
fn register(table: &Table, timelines: &[ArchivedTimeline]) -> std::result::Result<Vec<Ordinal>, AttachStop> {
    let source_tags = table.catalog.reader().source_tags().to_vec();
    let mut encoded = Vec::new();
    for timeline in timelines {
        encoded.clear();
        timeline.identity.encode(&mut encoded);
        let source = timeline.identity.source(&source_tags);
        if !(0..SALTS).any(|salt| timeline_id(source, &encoded, salt) == timeline.id) {
            return Err(AttachStop::Problem(format!(
                "the id of timeline {} does not match its tags under source_tags {source_tags:?}; create the \
                 table with the source_tags of the archive and attach to it",
                timeline.id
            )));
        }
    }
    let register = |timeline: &ArchivedTimeline| {
        let registered = table.catalog.register(&timeline.identity, None)?;
        match registered.id == timeline.id {
            true => Ok(registered.ordinal),
            false => Err(AttachStop::Problem(format!(
                "timeline {} has a different id in this database",
                timeline.id
            ))),
        }
    };
    timelines.iter().map(register).collect()
}

/// Parses attributes in JSON into changes that set them; `None` if they are invalid.
fn changes(json: &str) -> Option<AttributeChanges> {
    let attributes: BTreeMap<String, Value> = serde_json::from_str(json).ok()?;
    let change = |(key, value)| Some((key, Some(value_of(&value)?)));
    attributes.into_iter().map(change).collect()
}

/// Parses a value in the JSON form of [`TimelineMetadata`](tideline_archive::TimelineMetadata); `None` if it is
/// invalid.
fn value_of(value: &Value) -> Option<AttributeValue> {
    Some(match value {
        Value::String(text) => AttributeValue::Text(text.clone()),
        Value::Number(number) => AttributeValue::Number(number.as_f64()?),
        Value::Bool(boolean) => AttributeValue::Boolean(*boolean),
        Value::Object(parts) => match parts.get("time") {
            Some(time) => AttributeValue::Time(Timestamp::parse_rfc3339(time.as_str()?)?),
            None => {
                let degrees = |name: &str| parts.get(name)?.as_f64();
                AttributeValue::Point(GeoPoint::new(degrees("latitude")?, degrees("longitude")?)?)
            }
        },
        Value::Array(values) if values.iter().all(Value::is_string) => {
            let texts = values.iter().map(|text| text.as_str().map(str::to_owned));
            AttributeValue::Texts(texts.collect::<Option<_>>()?)
        }
        Value::Array(values) => {
            AttributeValue::Numbers(values.iter().map(Value::as_f64).collect::<Option<_>>()?)
        }
        Value::Null => return None,
    })
}
