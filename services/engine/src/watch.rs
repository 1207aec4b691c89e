//! Watches of a table: the stream of its writes after a cursor, as they are acknowledged.
//!
//! 1. The store provides the recent deltas after the cursor. Watchers share the recently decoded deltas, so a delta
//!    is usually decoded only once. Without watchers no delta is decoded.
//! 2. The timelines of a delta that match the condition are cached by ordinal, until their attributes are edited.
//! 3. Rows of these timelines form *parts* of bounded size, each with the cursor after it. Continuing from that
//!    cursor yields the rows after the part: each row once, in journal order.
//!
//! Timelines that match the condition are reported when a delta introduces them, and after their attributes were
//! edited. In both cases a timeline may be reported twice.
//!
//! A delete is reported with the ids of its timelines that match the condition. Timelines that are already removed
//! cannot be matched any more, so their ids are always reported. If the table is restricted to some timelines, removed
//! timelines are tested by their measurement and tags, which are still known. If the restriction tests attributes,
//! removed timelines are not reported.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use roaring::RoaringBitmap;
use tideline_access::TimelineCondition;
use tideline_chunk::{DeleteRecord, Delta, DeltaGroup};
use tideline_condition::operators::In;
use tideline_condition::{Condition, Literal, Matcher, Subject};
use tideline_ingest_protocols::prometheus::is_sample_detail;
use tideline_model::{ColumnData, Ordinal, SequenceNumber, TableId, TimeRange, TimelineId};
use tideline_runtime::background;
use tideline_search_index::TimelineRecord;
use tideline_series_store::{RecentEntry, StoreError};

use crate::delete::TimelineSelector;
use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::find::{NEVER, Timeline};
use crate::tables::Table;

/// Maximum number of rows of a part.
const PART_ROWS_MAX: usize = 2_000;
/// Approximate limit of the value bytes of a part.
const PART_BYTES_MAX: usize = 256 << 10;
/// Number of journal bytes after which one step reads no further entry; bounds the memory of the step.
const STEP_BYTES_MAX: usize = 4 << 20;
/// Number of parts after which a step ends, once it has made progress.
const STEP_PARTS_MAX: usize = 16;
/// Maximum number of timelines reported by one part.
const PART_TIMELINES_MAX: usize = 500;

/// Maximum total encoded size, in bytes, of the deltas that are kept decoded for other watchers.
const DECODED_BYTES_MAX: usize = 4 << 20;

/// Request to watch a table.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchRequest {
    /// Watched timelines. The condition must not use `first_seen` or `last_seen`, which every point changes.
    pub timelines: TimelineSelector,
    /// Watched fields; empty = all, restricted by `details`.
    pub fields: Vec<String>,
    /// True if an empty `fields` includes the fields that describe samples: start timestamps and exemplars.
    pub details: bool,
    /// True if points are reported.
    pub includes_points: bool,
    /// True if new and edited timelines are reported.
    pub includes_timelines: bool,
    /// True if deletes are reported.
    pub includes_deletes: bool,
    /// Cursor to continue from; `None` = from now.
    pub from: Option<WatchCursor>,
}

/// Position in the writes to a table. Its text form is opaque to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchCursor {
    table: TableId,
    sequence: SequenceNumber,
    /// Number of rows of the delta at `sequence` already processed; for a delete, the number of its timelines already
    /// processed.
    rows: u64,
    /// Number of the last attribute edit processed.
    edits: u64,
}

/// Error of a text that is not a valid watch cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a valid watch cursor; use the `id` of an event unchanged")]
pub struct BadCursor;

impl WatchCursor {
    /// Returns the journal sequence before which all writes have been processed.
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }
}

/// Part of the events for a watcher, with the cursor after it.
#[derive(Debug)]
pub struct WatchPart {
    /// Cursor to continue from after this part.
    pub cursor: WatchCursor,
    /// Events of the part.
    pub events: WatchEvents,
}

/// Events of a part.
#[derive(Debug)]
pub enum WatchEvents {
    /// Points were written.
    Points(Vec<WatchedSeries>),
    /// Timelines were introduced, or their attributes edited.
    Timelines(Vec<Timeline>),
    /// Points were deleted, or timelines with all their points.
    Deleted(WatchedDelete),
}

/// Reported delete.
#[derive(Debug)]
pub struct WatchedDelete {
    /// Timelines whose points were deleted.
    pub timelines: Vec<TimelineId>,
    /// Time range of the deleted points.
    pub range: TimeRange,
    /// True if the timelines themselves were removed.
    pub is_removed: bool,
}

/// New points of one timeline.
#[derive(Debug)]
pub struct WatchedSeries {
    /// Timeline of the points, without the times when it was first and last seen.
    pub timeline: Timeline,
    /// Fields of the points.
    pub fields: Vec<Box<str>>,
    /// One column per field.
    pub columns: Vec<ColumnData>,
    /// One timestamp per row.
    pub timestamps: Vec<i64>,
}

/// Watcher of a table.
#[derive(Debug)]
pub struct Watcher {
    table: Table,
    request: WatchRequest,
    matcher: Matcher,
    cursor: WatchCursor,
    /// Timelines already checked against the condition.
    known: RoaringBitmap,
    /// Timelines that match the condition; valid only for timelines in `known`.
    matching: RoaringBitmap,
}

/// Delta decoded for watchers.
#[derive(Debug)]
struct DecodedDelta {
    delta: Delta,
    /// Ordinals of the delta's timelines; `None` for timelines removed meanwhile.
    ordinals: Vec<Option<Ordinal>>,
}

/// Recently decoded deltas, oldest first, so that other watchers need not decode them again.
#[derive(Debug, Default)]
pub(crate) struct DecodedDeltas(Mutex<Decoded>);

#[derive(Debug, Default)]
struct Decoded {
    kept: VecDeque<(SequenceNumber, usize, Arc<DecodedDelta>)>,
    /// Bytes of the encoded deltas.
    bytes: usize,
}

impl DecodedDeltas {
    fn get(&self, table: &Table, entry: &RecentEntry) -> Result<Arc<DecodedDelta>> {
        let known = |decoded: &Decoded| {
            let mut kept = decoded.kept.iter().rev();
            let found = kept.find(|(sequence, ..)| *sequence == entry.sequence);
            found.map(|(_, _, delta)| Arc::clone(delta))
        };
        if let Some(decoded) = known(&self.0.lock()) {
            return Ok(decoded);
        }
        let delta = Delta::decode(&entry.encoded).map_err(|error| {
            EngineError::Store(StoreError::Delta {
                sequence: entry.sequence.0,
                cause: error,
            })
        })?;
        let ordinals = {
            let reader = table.catalog.reader();
            delta.timelines.iter().map(|id| reader.by_id(*id)).collect()
        };
        let delta = Arc::new(DecodedDelta { delta, ordinals });
        let mut decoded = self.0.lock();
        // Two watchers may have decoded the delta at the same time.
        if known(&decoded).is_none() && entry.encoded.len() <= DECODED_BYTES_MAX {
            decoded.bytes += entry.encoded.len();
            decoded
                .kept
                .push_back((entry.sequence, entry.encoded.len(), Arc::clone(&delta)));
            while decoded.bytes > DECODED_BYTES_MAX {
                let Some((_, bytes, _)) = decoded.kept.pop_front() else {
                    break;
                };
                decoded.bytes -= bytes;
            }
        }
        Ok(delta)
    }
}

impl Engine {
    /// Starts to watch a table.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::NoSuchTimeline`] for an unknown id, and a search error for a condition that is invalid
    /// or exceeds a limit. Returns [`EngineError::Invalid`] if the condition uses `first_seen` or `last_seen`, or the
    /// cursor belongs to another table.
    pub fn watch(&self, table: &Table, request: WatchRequest) -> Result<Watcher> {
        let condition = self.condition_of(table, &request.timelines)?;
        let matcher = self.compile(table, &condition, NEVER)?;
        if matcher.needs_seen() {
            return Err(EngineError::Invalid(
                "a watch cannot use first_seen or last_seen: every point changes them".into(),
            ));
        }
        let from_now = || WatchCursor {
            table: table.points.id(),
            edits: table.catalog.reader().edit_counter(),
            sequence: self.store.recent_end(),
            rows: 0,
        };
        let cursor = request.from.unwrap_or_else(from_now);
        if cursor.table != table.points.id() {
            return Err(EngineError::Invalid("the cursor belongs to another table".into()));
        }
        Ok(Watcher {
            table: table.clone(),
            request,
            matcher,
            cursor,
            known: RoaringBitmap::new(),
            matching: RoaringBitmap::new(),
        })
    }

    fn condition_of(&self, table: &Table, selector: &TimelineSelector) -> Result<Condition> {
        match selector {
            TimelineSelector::Condition(condition) => Ok(condition.clone()),
            TimelineSelector::Ids(ids) => {
                let known = ids
                    .iter()
                    .map(|id| self.visible(table, *id).map(|_| id.to_string()));
                let texts = known.map(|id| id.map(Literal::Text)).collect::<Result<_>>()?;
                Ok(Condition::leaf(Subject::Id, In(texts)))
            }
        }
    }
}

impl Watcher {
    /// Returns the id of the watched table.
    pub fn table(&self) -> TableId {
        self.cursor.table
    }

    /// Returns the request. Watchers of a table with equal requests and equal [restrictions](Self::restriction) return
    /// equal events.
    pub fn request(&self) -> &WatchRequest {
        &self.request
    }

    /// Returns the condition to which the table is restricted; `None` for all timelines.
    pub fn restriction(&self) -> Option<&TimelineCondition> {
        self.table.condition()
    }

    /// Returns the current cursor.
    pub fn cursor(&self) -> WatchCursor {
        self.cursor
    }

    /// Moves the watcher to a cursor of another watcher with the same request.
    pub fn jump(&mut self, cursor: WatchCursor) {
        self.cursor = cursor;
        // Edits and removals may have been skipped.
        self.known.clear();
    }

    /// Returns the events since the last step, from at most a few MiB of journal. The list is empty if the watcher
    /// has caught up, or if nothing in these bytes is watched.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`step_until`](Self::step_until).
    pub fn step(&mut self, engine: &Engine) -> Result<Vec<WatchPart>> {
        self.step_until(engine, SequenceNumber(u64::MAX))
    }

    /// Returns events as [`step`](Self::step) does, but processes no journal entry at or after `until`. Watchers that
    /// step to the same positions can share the output encoded for a step.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::WatchLost`] if writes after the cursor are not kept any more, and a store error if the
    /// table was dropped or a delta is damaged.
    pub fn step_until(&mut self, engine: &Engine, until: SequenceNumber) -> Result<Vec<WatchPart>> {
        let table = &self.table.clone();
        engine.check_exists(table)?;
        let mut parts = Vec::new();
        while !self.add_edits(engine, table, &mut parts)? {
            if parts.len() >= STEP_PARTS_MAX {
                return Ok(parts);
            }
        }
        let entries = engine
            .store
            .recent(&table.points, self.cursor.sequence, STEP_BYTES_MAX)
            .map_err(EngineError::WatchLost)?;
        for entry in entries.entries.iter().filter(|entry| entry.sequence < until) {
            background::yield_core();
            if parts.len() >= STEP_PARTS_MAX {
                return Ok(parts);
            }
            let delta = engine.decoded.get(table, entry)?;
            if entry.sequence != self.cursor.sequence {
                self.cursor.rows = 0;
            }
            self.cursor.sequence = entry.sequence;
            if !self.add_delta(engine, table, &delta, &mut parts)? {
                return Ok(parts);
            }
            self.pass(SequenceNumber(entry.sequence.0 + 1));
            if let Some(last) = parts.last_mut() {
                // A watcher that continues from this part does not need the delta any more.
                last.cursor = self.cursor;
            }
        }
        self.pass(entries.next.min(until));
        Ok(parts)
    }

    fn pass(&mut self, sequence: SequenceNumber) {
        if sequence > self.cursor.sequence {
            self.cursor.sequence = sequence;
            self.cursor.rows = 0;
        }
    }

    /// Processes the next attribute edits, at most 500: clears the cached matches of the edited timelines and, if
    /// timelines are requested, adds the edited timelines that match the condition now. Returns true if no edits are
    /// left.
    fn add_edits(&mut self, engine: &Engine, table: &Table, parts: &mut Vec<WatchPart>) -> Result<bool> {
        let (edited, newest): (Vec<(u64, Ordinal)>, u64) = {
            let reader = table.catalog.reader();
            let edited = reader.numbered_edits_since(self.cursor.edits);
            (edited.take(PART_TIMELINES_MAX).collect(), reader.edit_counter())
        };
        for (_, ordinal) in &edited {
            self.known.remove(ordinal.0);
        }
        let is_all = edited.len() < PART_TIMELINES_MAX;
        // If the counter decreased, a crash has undone edits; the cursor then moves back.
        self.cursor.edits = edited.last().map_or(newest, |(number, _)| *number);
        if self.request.includes_timelines {
            let ordinals = edited.into_iter().map(|(_, ordinal)| ordinal);
            let matching: Vec<Ordinal> = ordinals.filter(|ordinal| self.matches(table, *ordinal)).collect();
            self.put_timelines(engine, table, &matching, parts)?;
        }
        Ok(is_all)
    }

    /// Adds the events of a delta from the cursor's row on. Returns true if the end of the delta was reached.
    fn add_delta(
        &mut self,
        engine: &Engine,
        table: &Table,
        decoded: &DecodedDelta,
        parts: &mut Vec<WatchPart>,
    ) -> Result<bool> {
        let delta = &decoded.delta;
        if let Some(delete) = &delta.delete {
            if delete.removes_timelines {
                // Ordinals of removed timelines may be assigned to other timelines.
                self.known.clear();
            }
            // A delete has no rows.
            return Ok(!self.request.includes_deletes || self.add_delete(table, delete, parts));
        }
        let ordinals: Vec<Option<Ordinal>> = decoded
            .ordinals
            .iter()
            .map(|ordinal| ordinal.filter(|ordinal| self.matches(table, *ordinal)))
            .collect();
        if self.request.includes_timelines && self.cursor.rows == 0 {
            let new: Vec<TimelineId> = delta.new_timelines.iter().map(|timeline| timeline.id).collect();
            let new: Vec<Ordinal> = self.matching(table, &new).into_iter().flatten().collect();
            // The cursor stays before the rows of this delta: a watcher that continues from it reports the timelines
            // again.
            self.put_timelines(engine, table, &new, parts)?;
        }
        if !self.request.includes_points || ordinals.iter().all(Option::is_none) {
            return Ok(true);
        }
        let mut before = 0;
        for group in &delta.groups {
            let ordinals = &ordinals;
            let rows = GroupRows {
                group,
                ordinals,
                before,
            };
            if !self.add_rows(table, &rows, parts) {
                return Ok(false);
            }
            before += group.rows() as u64;
        }
        Ok(true)
    }

    /// Adds the events of a delete from the cursor's timeline on. Returns true if the end of the delete was reached.
    fn add_delete(&mut self, table: &Table, delete: &DeleteRecord, parts: &mut Vec<WatchPart>) -> bool {
        let reported = usize::try_from(self.cursor.rows).unwrap_or(usize::MAX);
        for ids in delete
            .timelines
            .get(reported..)
            .unwrap_or_default()
            .chunks(PART_TIMELINES_MAX)
        {
            // Processes at least one chunk per step; otherwise a step makes no progress.
            if parts.len() >= STEP_PARTS_MAX && self.cursor.rows > 0 {
                return false;
            }
            let matching = self.matching(table, ids);
            // The look-up of removed timelines follows the matching, so that a timeline that is removed in between is
            // reported.
            let timelines: Vec<TimelineId> = {
                let reader = table.catalog.reader();
                let pairs = matching.into_iter().zip(ids);
                let is_gone = |id| reader.by_id(id).is_none() && table.may_tell(&reader, id);
                let deleted = pairs.filter(|(ordinal, id)| ordinal.is_some() || is_gone(**id));
                deleted.map(|(_, id)| *id).collect()
            };
            self.cursor.rows += ids.len() as u64;
            if !timelines.is_empty() {
                parts.push(WatchPart {
                    cursor: self.cursor,
                    events: WatchEvents::Deleted(WatchedDelete {
                        timelines,
                        range: delete.range,
                        is_removed: delete.removes_timelines,
                    }),
                });
            }
        }
        true
    }

    /// Adds the rows of a group from the cursor's row on. Returns true if the end of the group was reached.
    fn add_rows(&mut self, table: &Table, rows: &GroupRows<'_>, parts: &mut Vec<WatchPart>) -> bool {
        let GroupRows {
            group,
            ordinals,
            before,
        } = *rows;
        let reported = self.cursor.rows.saturating_sub(before);
        let mut at = usize::try_from(reported).unwrap_or(usize::MAX);
        let WatchRequest { fields, details, .. } = &self.request;
        let is_wanted = |position: &usize| {
            let name: &str = &group.fields[*position];
            match fields.is_empty() {
                true => *details || !is_sample_detail(name, group.columns[*position].value_type().kind()),
                false => fields.iter().any(|field| field == name),
            }
        };
        let positions: Vec<usize> = (0..group.fields.len()).filter(is_wanted).collect();
        if positions.is_empty() {
            return true;
        }
        while at < group.rows() {
            // Processes some rows in each step; otherwise a delta with very many new timelines starts again in each
            // step.
            if parts.len() >= STEP_PARTS_MAX && self.cursor.rows > 0 {
                return false;
            }
            let mut part = Part::new(group, &positions);
            while at < group.rows() && !part.is_full() {
                let timeline = group.timelines[at] as usize;
                if ordinals[timeline].is_some() {
                    part.push(timeline, at);
                }
                at += 1;
            }
            self.cursor.rows = before + at as u64;
            let series =
                part.into_series(|timeline| ordinals[timeline].and_then(|ordinal| table.describe(ordinal)));
            let series: Vec<WatchedSeries> = series.into_iter().flatten().collect();
            if !series.is_empty() {
                parts.push(WatchPart {
                    cursor: self.cursor,
                    events: WatchEvents::Points(series),
                });
            }
        }
        true
    }

    /// Returns the ordinal of each timeline; `None` if it is removed or does not match the condition.
    fn matching(&mut self, table: &Table, ids: &[TimelineId]) -> Vec<Option<Ordinal>> {
        let ordinals: Vec<Option<Ordinal>> = {
            let reader = table.catalog.reader();
            ids.iter().map(|id| reader.by_id(*id)).collect()
        };
        let matching = ordinals.into_iter();
        matching
            .map(|ordinal| ordinal.filter(|ordinal| self.matches(table, *ordinal)))
            .collect()
    }

    fn matches(&mut self, table: &Table, ordinal: Ordinal) -> bool {
        if self.known.insert(ordinal.0) {
            let reader = table.catalog.reader();
            let entry = reader.entry(ordinal);
            if entry.is_some_and(|entry| {
                self.matcher.matches(&TimelineRecord {
                    entry: &entry,
                    seen: None,
                })
            }) {
                self.matching.insert(ordinal.0);
            } else {
                self.matching.remove(ordinal.0);
            }
        }
        self.matching.contains(ordinal.0)
    }

    /// Adds timelines in their current state.
    fn put_timelines(
        &self,
        engine: &Engine,
        table: &Table,
        ordinals: &[Ordinal],
        parts: &mut Vec<WatchPart>,
    ) -> Result<()> {
        for ordinals in ordinals.chunks(PART_TIMELINES_MAX) {
            let described = engine.describe_all(table, ordinals)?;
            let described: Vec<Timeline> = described.into_iter().flatten().collect();
            if !described.is_empty() {
                parts.push(WatchPart {
                    cursor: self.cursor,
                    events: WatchEvents::Timelines(described),
                });
            }
        }
        Ok(())
    }
}

/// Rows of a group, with the timelines of its delta.
struct GroupRows<'a> {
    group: &'a DeltaGroup,
    /// Ordinals of the delta's timelines that match the condition; `None` for the other timelines.
    ordinals: &'a [Option<Ordinal>],
    /// Number of rows of the delta before the group.
    before: u64,
}

/// Rows of one group, collected by timeline.
pub(crate) struct Part<'a> {
    group: &'a DeltaGroup,
    positions: &'a [usize],
    /// Timelines in order of first occurrence, with their rows.
    rows: Vec<(usize, Vec<usize>)>,
    position_of: HashMap<usize, usize>,
    count: usize,
    bytes: usize,
}

impl<'a> Part<'a> {
    pub(crate) fn new(group: &'a DeltaGroup, positions: &'a [usize]) -> Self {
        Self {
            group,
            positions,
            rows: Vec::new(),
            position_of: HashMap::new(),
            count: 0,
            bytes: 0,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count >= PART_ROWS_MAX || self.bytes >= PART_BYTES_MAX
    }

    pub(crate) fn push(&mut self, timeline: usize, row: usize) {
        let position = *self.position_of.entry(timeline).or_insert_with(|| {
            self.rows.push((timeline, Vec::new()));
            self.rows.len() - 1
        });
        self.rows[position].1.push(row);
        self.count += 1;
        let bytes = |position: &usize| self.group.columns[*position].bytes_at(row);
        self.bytes += size_of::<i64>() + self.positions.iter().map(bytes).sum::<usize>();
    }

    /// Returns the points by timeline; `None` for a timeline without a description.
    pub(crate) fn into_series(
        self,
        describe: impl Fn(usize) -> Option<Timeline>,
    ) -> Vec<Option<WatchedSeries>> {
        let Self {
            group,
            positions,
            rows,
            ..
        } = self;
        let series = |(timeline, rows): (usize, Vec<usize>)| {
            Some(WatchedSeries {
                timeline: describe(timeline)?,
                fields: positions
                    .iter()
                    .map(|position| group.fields[*position].clone())
                    .collect(),
                columns: positions
                    .iter()
                    .map(|position| group.columns[*position].pick(rows.iter().copied()))
                    .collect(),
                timestamps: rows.iter().map(|row| group.timestamps[*row]).collect(),
            })
        };
        rows.into_iter().map(series).collect()
    }
}

impl fmt::Display for WatchCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            table,
            sequence,
            rows,
            edits,
        } = self;
        write!(f, "{:x}-{:x}-{rows:x}-{edits:x}", table.0, sequence.0)
    }
}

impl FromStr for WatchCursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> std::result::Result<Self, BadCursor> {
        let numbers = text.split('-').map(|part| u64::from_str_radix(part, 16));
        let numbers: Vec<u64> = numbers
            .collect::<std::result::Result<_, _>>()
            .map_err(|_| BadCursor)?;
        let [table, sequence, rows, edits] = numbers[..] else {
            return Err(BadCursor);
        };
        Ok(Self {
            table: TableId(u32::try_from(table).map_err(|_| BadCursor)?),
            sequence: SequenceNumber(sequence),
            rows,
            edits,
        })
    }
}
