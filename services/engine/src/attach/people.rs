//! Who the timelines of an attached segment are: their identities go into the journal as those of any write do, and then
//! their attributes are set.
//!
//! A timeline may be in many segments, and its attributes are those of the newest, which comes first. So they are set for
//! timelines that no newer segment has.

use std::collections::BTreeMap;

use roaring::RoaringBitmap;
use serde_json::Value;
use tideline_archive::{TimelineRun, TimelineRuns};
use tideline_chunk::Delta;
use tideline_model::{Durability, GeoPoint, Identity, Ordinal, TimelineId, Timestamp};
use tideline_series_store::{Segment, StoreError};
use tideline_timeline_catalog::timeline_id;
use tideline_timeline_catalog::{AttributeChanges, AttributeValue, CatalogError};

use super::{AttachProgress, Halt};
use crate::engine::Engine;
use crate::tables::Table;
use crate::write::introduced;

/// Timelines that are taken in at once.
const BATCH: usize = 1_000;
/// Identities of a table that may share both hashes of their ids.
const SALTS: u32 = 4;

/// Timelines of segments that are being attached.
pub(super) struct Newcomers {
    /// Archived segments that the table had before: attached by an earlier run, and so newer.
    earlier: Vec<Segment>,
    /// Timelines of newer segments of this run.
    seen: RoaringBitmap,
    /// Those of the segment at hand.
    now: RoaringBitmap,
    last: Option<TimelineId>,
    refused: u64,
    first_refusal: Option<String>,
}

/// A timeline of a segment.
struct Member {
    id: TimelineId,
    who: Identity,
    attributes: Option<String>,
}

impl Newcomers {
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

    /// The next segment begins.
    pub(super) fn begin(&mut self) {
        self.now.clear();
        self.last = None;
    }

    /// The segment is attached.
    pub(super) fn end(&mut self) {
        self.seen |= &self.now;
    }

    /// What became of attributes that could not be set, in words.
    pub(super) fn take_refusal(&mut self) -> Option<String> {
        let first = self.first_refusal.take()?;
        Some(format!(
            "those of {} timelines could not be set: {first}",
            self.refused
        ))
    }

    fn refuse(&mut self, reason: impl FnOnce() -> String) {
        self.refused += 1;
        self.first_refusal.get_or_insert_with(reason);
    }

    /// The next timelines that have a name.
    fn next(&mut self, runs: &mut TimelineRuns) -> std::result::Result<Vec<Member>, Halt> {
        let mut members = Vec::new();
        for run in runs {
            let TimelineRun {
                id, who, attributes, ..
            } = run.map_err(StoreError::from)?;
            if self.last.replace(id) == Some(id) {
                continue;
            }
            let Some(who) = who else { continue };
            members.push(Member { id, who, attributes });
            if members.len() == BATCH {
                break;
            }
        }
        Ok(members)
    }
}

impl Engine {
    /// Takes in the next timelines of a segment; `false` when there are none.
    pub(super) fn take_people(
        &self,
        table: &Table,
        runs: &mut TimelineRuns,
        newcomers: &mut Newcomers,
        progress: &mut AttachProgress,
    ) -> std::result::Result<bool, Halt> {
        let members = newcomers.next(runs)?;
        if members.is_empty() {
            return Ok(false);
        }
        let generation = table.points.timeline_generation();
        let ordinals = register(table, &members)?;
        let mut delta = Delta {
            table: table.points.id(),
            timelines: members.iter().map(|member| member.id).collect(),
            ..Delta::default()
        };
        {
            let reader = table.catalog.reader();
            let unknown = ordinals
                .iter()
                .filter(|ordinal| reader.needs_announcement(**ordinal));
            delta.new_timelines = unknown.map(|ordinal| introduced(&reader, *ordinal)).collect();
        }
        progress.timelines += delta.new_timelines.len() as u64;
        if !delta.new_timelines.is_empty() {
            self.commit_named(table, delta, Vec::new(), Durability::Synced, generation)?;
        }
        self.take_attributes(table, &members, &ordinals, newcomers)?;
        newcomers.now.extend(ordinals.iter().map(|ordinal| ordinal.0));
        progress.entries += members.len() as u64;
        self.index.notify();
        Ok(true)
    }

    /// Sets the attributes of those that have none and are in no newer segment.
    fn take_attributes(
        &self,
        table: &Table,
        members: &[Member],
        ordinals: &[Ordinal],
        newcomers: &mut Newcomers,
    ) -> std::result::Result<(), Halt> {
        let mut edits: Vec<(Ordinal, AttributeChanges)> = Vec::new();
        for (member, ordinal) in members.iter().zip(ordinals) {
            let Some(json) = &member.attributes else { continue };
            if newcomers.seen.contains(ordinal.0) || self.is_held(&newcomers.earlier, member.id)? {
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
                None => newcomers.refuse(|| format!("timeline {}: {json} cannot be read", member.id)),
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

    fn is_held(&self, segments: &[Segment], id: TimelineId) -> std::result::Result<bool, Halt> {
        for segment in segments {
            if self.store.holds(segment, id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Makes timelines known; each has the id that it has in the file, or none of them is taken in.
fn register(table: &Table, members: &[Member]) -> std::result::Result<Vec<Ordinal>, Halt> {
    let source_tags = table.catalog.reader().source_tags().to_vec();
    let mut encoded = Vec::new();
    for member in members {
        encoded.clear();
        member.who.encode(&mut encoded);
        let source = member.who.source(&source_tags);
        if !(0..SALTS).any(|salt| timeline_id(source, &encoded, salt) == member.id) {
            return Err(Halt::Problem(format!(
                "timeline {} is not the one that its tags yield with source_tags {source_tags:?}: where others were set, make \
                 the table with them and attach to it",
                member.id
            )));
        }
    }
    let register = |member: &Member| {
        let registered = table.catalog.register(&member.who, None)?;
        match registered.id == member.id {
            true => Ok(registered.ordinal),
            false => Err(Halt::Problem(format!(
                "timeline {} has another id here",
                member.id
            ))),
        }
    };
    members.iter().map(register).collect()
}

/// What sets attributes as they were told; `None` where that is nothing.
fn changes(json: &str) -> Option<AttributeChanges> {
    let told: BTreeMap<String, Value> = serde_json::from_str(json).ok()?;
    let change = |(key, value)| Some((key, Some(value_of(&value)?)));
    told.into_iter().map(change).collect()
}

/// A value as [`People`](tideline_archive::People) tells it.
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
