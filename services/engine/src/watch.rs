//! Watching a table: what is written to it from a cursor on, as it is acknowledged.
//!
//! 1. The store's tail gives the deltas behind the cursor; each is decoded here once for all watchers, which share what was
//!    decoded lately, so what nobody watches costs nothing.
//! 2. The timelines of a delta that meet the condition are remembered by ordinal, until an edit of their attributes.
//! 3. Rows of those timelines become *parts* of a bounded size, each with the cursor behind it. Whoever goes on from
//!    there gets the rest: each row once, in the journal's order.
//!
//! Timelines are told of when a delta introduces them, and when their attributes were edited and they meet the
//! condition. Both may be told twice.
//!
//! A delete is told with the ids of its timelines that meet the condition, and of those that are gone by now, which
//! cannot be asked any more.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use roaring::RoaringBitmap;
use tideline_chunk::{DeleteRecord, Delta, DeltaGroup};
use tideline_condition::operators::In;
use tideline_condition::{Condition, Literal, Matcher, Subject};
use tideline_ingest_protocols::prometheus::is_sample_detail;
use tideline_model::{ColumnData, Ordinal, SequenceNumber, TableId, TimeRange, TimelineId};
use tideline_runtime::background;
use tideline_search_index::TimelineRecord;
use tideline_series_store::{StoreError, TailEntry};

use crate::delete::TimelineSelector;
use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::find::{NEVER, Timeline};
use crate::tables::Table;

/// Rows that a part is made of at most, and about how many bytes of values.
const PART_ROWS_MAX: usize = 2_000;
const PART_BYTES_MAX: usize = 256 << 10;
/// Bytes of journal that one step looks at, and parts that it makes, each at most: what bounds its memory.
const STEP_BYTES_MAX: usize = 4 << 20;
const STEP_PARTS_MAX: usize = 16;
/// Timelines that one part tells of.
const PART_TIMELINES_MAX: usize = 500;

/// Bytes of encoded deltas that are kept decoded, for watchers that follow.
const DECODED_BYTES_MAX: usize = 4 << 20;

/// What is watched.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchRequest {
    /// Of which timelines; it may not ask when they were seen, which every point changes.
    pub timelines: TimelineSelector,
    /// Which fields; empty = all.
    pub fields: Vec<String>,
    /// Whether all fields include those that accompany samples: start timestamps and exemplars.
    pub details: bool,
    /// Tell of points.
    pub tell_points: bool,
    /// Tell of timelines that are new or edited.
    pub tell_timelines: bool,
    /// Tell of deletes.
    pub tell_deletes: bool,
    /// Where to go on; `None` = from now.
    pub from: Option<WatchCursor>,
}

/// A place in what is written to a table. Its text form is opaque to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchCursor {
    table: TableId,
    sequence: SequenceNumber,
    /// Rows of that delta that have been told; of a delete its timelines.
    rows: u64,
    /// Edits of attributes that have been told.
    edits: u64,
}

/// The text is no cursor of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is no cursor of a watch; use the `id` of an event as it was sent")]
pub struct BadCursor;

impl WatchCursor {
    /// The journal's sequence before which everything has been told.
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }
}

/// Part of what a watcher is told, with the cursor behind it.
#[derive(Debug)]
pub struct WatchPart {
    /// Where to go on behind it.
    pub cursor: WatchCursor,
    /// What happened.
    pub events: WatchEvents,
}

/// What happened.
#[derive(Debug)]
pub enum WatchEvents {
    /// Points were written.
    Points(Vec<WatchedSeries>),
    /// Timelines were introduced, or their attributes edited.
    Timelines(Vec<Timeline>),
    /// Points were deleted.
    Deleted(WatchedDelete),
}

/// What was deleted.
#[derive(Debug)]
pub struct WatchedDelete {
    /// Whose points.
    pub timelines: Vec<TimelineId>,
    /// Which of their instants.
    pub range: TimeRange,
    /// Whether the timelines themselves were removed.
    pub is_removed: bool,
}

/// New points of one timeline.
#[derive(Debug)]
pub struct WatchedSeries {
    /// Who wrote them; its span is not filled in.
    pub timeline: Timeline,
    /// Their fields.
    pub fields: Vec<Box<str>>,
    /// A column a field.
    pub columns: Vec<ColumnData>,
    /// An instant a row.
    pub timestamps: Vec<i64>,
}

/// One who watches.
#[derive(Debug)]
pub struct Watcher {
    table: Table,
    request: WatchRequest,
    matcher: Matcher,
    cursor: WatchCursor,
    /// Timelines that were looked at, and those of them that meet the condition.
    known: RoaringBitmap,
    met: RoaringBitmap,
}

/// A delta as watchers need it.
#[derive(Debug)]
struct DecodedDelta {
    delta: Delta,
    /// Ordinals of the delta's timelines.
    ordinals: Vec<Option<Ordinal>>,
}

/// The deltas that were decoded lately, oldest first: a thousand watchers decode each once.
#[derive(Debug, Default)]
pub(crate) struct DecodedDeltas(Mutex<Decoded>);

#[derive(Debug, Default)]
struct Decoded {
    kept: VecDeque<(SequenceNumber, usize, Arc<DecodedDelta>)>,
    /// Bytes of the encoded deltas.
    bytes: usize,
}

impl DecodedDeltas {
    fn get(&self, table: &Table, entry: &TailEntry) -> Result<Arc<DecodedDelta>> {
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
        // Two watchers may have decoded it at once.
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
    /// Begins to watch a table.
    ///
    /// # Errors
    ///
    /// An unknown id; a condition beyond the limits, or one that asks when timelines were seen; a cursor of another table.
    pub fn watch(&self, table: &Table, request: WatchRequest) -> Result<Watcher> {
        let condition = self.condition_of(table, &request.timelines)?;
        let matcher = self.compile(table, &condition, NEVER)?;
        if matcher.needs_seen() {
            return Err(EngineError::Invalid(
                "a watch cannot ask for first_seen or last_seen, which every point changes".into(),
            ));
        }
        let from_now = || WatchCursor {
            table: table.points.id(),
            edits: table.catalog.reader().edit_counter(),
            sequence: self.store.tail_end(),
            rows: 0,
        };
        let cursor = request.from.unwrap_or_else(from_now);
        if cursor.table != table.points.id() {
            return Err(EngineError::Invalid("this cursor is of another table".into()));
        }
        Ok(Watcher {
            table: table.clone(),
            request,
            matcher,
            cursor,
            known: RoaringBitmap::new(),
            met: RoaringBitmap::new(),
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
    /// The table that it watches.
    pub fn table(&self) -> TableId {
        self.cursor.table
    }

    /// Where it stands.
    pub fn cursor(&self) -> WatchCursor {
        self.cursor
    }

    /// Places it where another watcher of the same request stands, or has stood.
    pub fn jump(&mut self, cursor: WatchCursor) {
        self.cursor = cursor;
        // Edits and removals may have been passed over.
        self.known.clear();
    }

    /// What has happened since the step before, up to a few MiB; nothing when it has caught up with the table.
    ///
    /// # Errors
    ///
    /// As [`step_until`](Self::step_until).
    pub fn step(&mut self, engine: &Engine) -> Result<Vec<WatchPart>> {
        self.step_until(engine, SequenceNumber(u64::MAX))
    }

    /// The same for what lies before `until` in the journal. Watchers that step to the same places can share what is made of
    /// a step.
    ///
    /// # Errors
    ///
    /// [`EngineError::WatchLost`] where what followed the cursor is not kept any more; that of a dropped table.
    pub fn step_until(&mut self, engine: &Engine, until: SequenceNumber) -> Result<Vec<WatchPart>> {
        let table = &self.table.clone();
        engine.check_exists(table)?;
        let mut parts = Vec::new();
        while !self.tell_edits(engine, table, &mut parts)? {
            if parts.len() >= STEP_PARTS_MAX {
                return Ok(parts);
            }
        }
        let entries = engine
            .store
            .tail(&table.points, self.cursor.sequence, STEP_BYTES_MAX)
            .map_err(EngineError::WatchLost)?;
        for entry in entries.entries.iter().filter(|entry| entry.sequence < until) {
            background::give_way();
            if parts.len() >= STEP_PARTS_MAX {
                return Ok(parts);
            }
            let delta = engine.decoded.get(table, entry)?;
            if entry.sequence != self.cursor.sequence {
                self.cursor.rows = 0;
            }
            self.cursor.sequence = entry.sequence;
            if !self.tell(engine, table, &delta, &mut parts)? {
                return Ok(parts);
            }
            self.pass(SequenceNumber(entry.sequence.0 + 1));
            if let Some(last) = parts.last_mut() {
                // So that whoever goes on from it does not need this delta any more.
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

    /// Timelines whose attributes were edited, and that meet the condition now: the next of them; whether there are no more.
    fn tell_edits(&mut self, engine: &Engine, table: &Table, parts: &mut Vec<WatchPart>) -> Result<bool> {
        let (edited, newest): (Vec<(u64, Ordinal)>, u64) = {
            let reader = table.catalog.reader();
            let edited = reader.numbered_edits_since(self.cursor.edits);
            (edited.take(PART_TIMELINES_MAX).collect(), reader.edit_counter())
        };
        for (_, ordinal) in &edited {
            self.known.remove(ordinal.0);
        }
        let is_all = edited.len() < PART_TIMELINES_MAX;
        // A counter that fell is of edits that a crash undid.
        self.cursor.edits = edited.last().map_or(newest, |(number, _)| *number);
        if self.request.tell_timelines {
            let ordinals = edited.into_iter().map(|(_, ordinal)| ordinal);
            let met: Vec<Ordinal> = ordinals.filter(|ordinal| self.meets(table, *ordinal)).collect();
            self.put_timelines(engine, table, &met, parts)?;
        }
        Ok(is_all)
    }

    /// Tells of a delta from the cursor's row on; whether all of it was told.
    fn tell(
        &mut self,
        engine: &Engine,
        table: &Table,
        decoded: &DecodedDelta,
        parts: &mut Vec<WatchPart>,
    ) -> Result<bool> {
        let delta = &decoded.delta;
        if let Some(delete) = &delta.delete {
            if delete.removes_timelines {
                // Their ordinals may come back as others.
                self.known.clear();
            }
            // It has no rows.
            return Ok(!self.request.tell_deletes || self.tell_delete(table, delete, parts));
        }
        let ordinals: Vec<Option<Ordinal>> = decoded
            .ordinals
            .iter()
            .map(|ordinal| ordinal.filter(|ordinal| self.meets(table, *ordinal)))
            .collect();
        if self.request.tell_timelines && self.cursor.rows == 0 {
            let new: Vec<TimelineId> = delta.new_timelines.iter().map(|timeline| timeline.id).collect();
            let new: Vec<Ordinal> = self.wanted(table, &new).into_iter().flatten().collect();
            // Behind them come the rows of the same delta: told again, they are told twice.
            self.put_timelines(engine, table, &new, parts)?;
        }
        if !self.request.tell_points || ordinals.iter().all(Option::is_none) {
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
            if !self.tell_rows(table, &rows, parts) {
                return Ok(false);
            }
            before += group.rows() as u64;
        }
        Ok(true)
    }

    /// Tells of a delete, from the timeline on that the cursor counts up to; whether it came to their end.
    fn tell_delete(&mut self, table: &Table, delete: &DeleteRecord, parts: &mut Vec<WatchPart>) -> bool {
        let told = usize::try_from(self.cursor.rows).unwrap_or(usize::MAX);
        for ids in delete
            .timelines
            .get(told..)
            .unwrap_or_default()
            .chunks(PART_TIMELINES_MAX)
        {
            // Some of them at least, or a step would come to nothing.
            if parts.len() >= STEP_PARTS_MAX && self.cursor.rows > 0 {
                return false;
            }
            let wanted = self.wanted(table, ids);
            // Looked at afterwards: what goes in between is told rather than lost.
            let timelines: Vec<TimelineId> = {
                let reader = table.catalog.reader();
                let pairs = wanted.into_iter().zip(ids);
                let told = pairs.filter(|(ordinal, id)| ordinal.is_some() || reader.by_id(**id).is_none());
                told.map(|(_, id)| *id).collect()
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

    /// Tells of the rows of a group from the cursor's on; whether it came to their end.
    fn tell_rows(&mut self, table: &Table, rows: &GroupRows<'_>, parts: &mut Vec<WatchPart>) -> bool {
        let GroupRows {
            group,
            ordinals,
            before,
        } = *rows;
        let told = self.cursor.rows.saturating_sub(before);
        let mut at = usize::try_from(told).unwrap_or(usize::MAX);
        let WatchRequest { fields, details, .. } = &self.request;
        let is_wanted = |place: &usize| {
            let name: &str = &group.fields[*place];
            match fields.is_empty() {
                true => *details || !is_sample_detail(name, group.columns[*place].value_type().kind()),
                false => fields.iter().any(|field| field == name),
            }
        };
        let places: Vec<usize> = (0..group.fields.len()).filter(is_wanted).collect();
        if places.is_empty() {
            return true;
        }
        while at < group.rows() {
            // Some rows at least, or a delta with very many new timelines would be begun for ever.
            if parts.len() >= STEP_PARTS_MAX && self.cursor.rows > 0 {
                return false;
            }
            let mut part = Part::new(group, &places);
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
            if !series.is_empty() {
                parts.push(WatchPart {
                    cursor: self.cursor,
                    events: WatchEvents::Points(series),
                });
            }
        }
        true
    }

    /// The ordinals of those timelines that are wanted.
    fn wanted(&mut self, table: &Table, ids: &[TimelineId]) -> Vec<Option<Ordinal>> {
        let ordinals: Vec<Option<Ordinal>> = {
            let reader = table.catalog.reader();
            ids.iter().map(|id| reader.by_id(*id)).collect()
        };
        let wanted = ordinals.into_iter();
        wanted
            .map(|ordinal| ordinal.filter(|ordinal| self.meets(table, *ordinal)))
            .collect()
    }

    fn meets(&mut self, table: &Table, ordinal: Ordinal) -> bool {
        if self.known.insert(ordinal.0) {
            let reader = table.catalog.reader();
            let entry = reader.entry(ordinal);
            if entry.is_some_and(|entry| {
                self.matcher.matches(&TimelineRecord {
                    entry: &entry,
                    seen: None,
                })
            }) {
                self.met.insert(ordinal.0);
            } else {
                self.met.remove(ordinal.0);
            }
        }
        self.met.contains(ordinal.0)
    }

    /// Tells of timelines as they are now.
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

/// The rows of a group, and whose they are.
struct GroupRows<'a> {
    group: &'a DeltaGroup,
    /// The wanted ones of the delta's timelines.
    ordinals: &'a [Option<Ordinal>],
    /// Rows of the delta that come before the group.
    before: u64,
}

/// Rows of one group, gathered by timeline.
struct Part<'a> {
    group: &'a DeltaGroup,
    places: &'a [usize],
    /// In the order in which timelines come first.
    rows: Vec<(usize, Vec<usize>)>,
    place_of: HashMap<usize, usize>,
    count: usize,
    bytes: usize,
}

impl<'a> Part<'a> {
    fn new(group: &'a DeltaGroup, places: &'a [usize]) -> Self {
        Self {
            group,
            places,
            rows: Vec::new(),
            place_of: HashMap::new(),
            count: 0,
            bytes: 0,
        }
    }

    fn is_full(&self) -> bool {
        self.count >= PART_ROWS_MAX || self.bytes >= PART_BYTES_MAX
    }

    fn push(&mut self, timeline: usize, row: usize) {
        let place = *self.place_of.entry(timeline).or_insert_with(|| {
            self.rows.push((timeline, Vec::new()));
            self.rows.len() - 1
        });
        self.rows[place].1.push(row);
        self.count += 1;
        let bytes = |place: &usize| self.group.columns[*place].bytes_at(row);
        self.bytes += size_of::<i64>() + self.places.iter().map(bytes).sum::<usize>();
    }

    fn into_series(self, describe: impl Fn(usize) -> Option<Timeline>) -> Vec<WatchedSeries> {
        let Self {
            group, places, rows, ..
        } = self;
        let series = |(timeline, rows): (usize, Vec<usize>)| {
            Some(WatchedSeries {
                timeline: describe(timeline)?,
                fields: places.iter().map(|place| group.fields[*place].clone()).collect(),
                columns: places
                    .iter()
                    .map(|place| group.columns[*place].pick(rows.iter().copied()))
                    .collect(),
                timestamps: rows.iter().map(|row| group.timestamps[*row]).collect(),
            })
        };
        rows.into_iter().filter_map(series).collect()
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
