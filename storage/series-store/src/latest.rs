//! The latest values of every timeline, in memory beside the head.
//!
//! Each timeline keeps the newest row of every shape that it was written in; the newest value of a field is the
//! newest among the shapes that have it. A timeline that was first written in this process is *complete*: what
//! is here is all there is. One from before a restart is completed from its newest chunks when somebody asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;
use tideline_chunk::Run;
use tideline_model::{ColumnData, FieldId, SequenceNumber, TimelineId, Value, ValueType};

use crate::merge::value_at;
use crate::pages::Pages;
use crate::places::{NOWHERE, Places};
use crate::schema::Shape;
use crate::sharding::{DeltaRow, SHARDS, ShardedDelta, shard_of, warm};

/// The newest value of one field.
#[derive(Debug, Clone, PartialEq)]
pub struct LatestField {
    /// The field.
    pub field: FieldId,
    /// When it was measured, nanoseconds since the epoch.
    pub timestamp: i64,
    /// The value.
    pub value: Value,
}

/// The newest value of every field of one timeline, in field order.
pub type LatestRow = Vec<LatestField>;

/// The span of a timeline's points, both ends included, nanoseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Its oldest point.
    pub first: i64,
    /// Its newest point.
    pub last: i64,
}

/// Rows whose timelines are looked for before any is altered.
const ROWS_AHEAD: usize = 1_024;
/// Room for texts and histograms that a lane keeps beyond twice of what it needs.
const BYTES_KEPT: usize = 256;

/// Values beyond the first that lie beside what else a timeline has: those of a usual row of agents that send many.
const WORDS_INLINE: usize = 9;

/// One table's latest values.
#[derive(Debug)]
pub(crate) struct TableLatest {
    shards: Box<[Mutex<Shard>]>,
    generation: AtomicU64,
    /// The clock's turns that what is here has followed.
    turns: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    places: Places,
    timelines: Pages<TimelineLatest>,
}

/// There may be millions, and a write alters each that it has a row of: what a row of one number needs is one line of
/// the processor's cache.
#[derive(Debug)]
#[repr(align(64))]
struct TimelineLatest {
    /// Nearly every timeline has one shape for all its life: that one.
    lane: Option<Lane>,
    /// Its oldest and newest point; the other way round while there is none.
    seen: Seen,
    /// What timelines of one number a row have no use for.
    more: Option<Box<More>>,
    /// Whether `seen` counts the chunks as well.
    spanned: bool,
    /// Whether nothing in the chunks is missing here.
    complete: bool,
}

#[derive(Debug, Default)]
struct More {
    /// What belongs to the lane.
    tail: Tail,
    /// Those of further shapes.
    others: Vec<(Lane, Tail)>,
    /// What was found in chunks, for fields that no lane is newer in.
    stored: Box<[LatestField]>,
}

/// The newest row of one shape.
#[derive(Debug)]
struct Lane {
    shape: Arc<Shape>,
    timestamp: i64,
    sequence: SequenceNumber,
    /// The value of the first field; most shapes of agents that send one value a row have no other.
    first: u64,
}

/// The rest of that row.
#[derive(Debug, Default)]
struct Tail {
    /// The values of the other fields.
    rest: SmallVec<[u64; WORDS_INLINE]>,
    /// Texts and histograms, one behind another; their words say where each ends.
    bytes: Vec<u8>,
}

/// What is known of one timeline without reading chunks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Known {
    pub(crate) row: LatestRow,
    /// Whether chunks hold no more.
    pub(crate) complete: bool,
}

impl Default for TableLatest {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            generation: AtomicU64::new(0),
            turns: AtomicU64::new(0),
        }
    }
}

impl TableLatest {
    /// Takes in the rows of a delta. `first_writes` says that the timelines which the delta introduces have no
    /// chunk anywhere.
    pub(crate) fn apply(&self, sharded: &ShardedDelta<'_>, sequence: SequenceNumber, first_writes: bool) {
        let delta = sharded.delta;
        if first_writes {
            for timeline in &delta.new_timelines {
                let mut shard = self.shard(timeline.id);
                if shard.get(timeline.id).is_none() {
                    let latest = shard.entry(timeline.id);
                    (latest.spanned, latest.complete) = (true, true);
                }
            }
        }
        let mut slots = Vec::new();
        for (shard, mut rows) in sharded.shards() {
            let mut shard = self.shards[shard].lock();
            let mut before = NOWHERE;
            loop {
                slots.clear();
                slots.extend(rows.clone().take(ROWS_AHEAD).map(|row| {
                    before = shard.slot(delta.timelines[row.timeline()], before);
                    before
                }));
                warm(
                    slots
                        .iter()
                        .map(|slot| shard.timelines[*slot as usize].last_word()),
                );
                for (slot, row) in slots.iter().zip(&mut rows) {
                    shard.timelines[*slot as usize].take(row, sequence);
                }
                if slots.len() < ROWS_AHEAD {
                    break;
                }
            }
        }
    }

    /// What is known of a timeline; `None` when it was not written since the start.
    pub(crate) fn known(&self, id: TimelineId) -> Option<Known> {
        let shard = self.shard(id);
        let latest = shard.get(id)?;
        Some(Known {
            row: latest.row(),
            complete: latest.complete,
        })
    }

    /// The span of a timeline, if all of it is known; the outer `None` says that chunks have to be asked.
    pub(crate) fn seen(&self, id: TimelineId) -> Option<Option<Seen>> {
        self.shard(id)
            .get(id)
            .filter(|latest| latest.spanned)
            .map(TimelineLatest::seen)
    }

    /// Adds the span of what chunks held at a generation.
    pub(crate) fn widen(&self, id: TimelineId, stored: Option<Seen>, generation: u64) {
        let mut shard = self.shard(id);
        if generation == self.generation() {
            shard.entry(id).span(stored);
        }
    }

    /// Adds what chunks held at a generation: from now on nothing has to be read for this timeline.
    pub(crate) fn complete(&self, id: TimelineId, stored: LatestRow, generation: u64) {
        let mut shard = self.shard(id);
        if generation != self.generation() {
            return;
        }
        let latest = shard.entry(id);
        if !stored.is_empty() || latest.more.is_some() {
            latest.more.get_or_insert_default().stored = stored.into();
        }
        latest.complete = true;
    }

    /// Forgets timelines: what is left of them is found again in the chunks.
    ///
    /// What somebody has read of them before is not taken in afterwards.
    pub(crate) fn forget(&self, ids: &[TimelineId]) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        for id in ids {
            self.shard(*id).remove(*id);
        }
    }

    /// Forgets all timelines.
    pub(crate) fn forget_all(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.shards
            .iter()
            .for_each(|shard| *shard.lock() = Shard::default());
    }

    /// Forgets all timelines if the clock has gone back since: what was found in chunks left out points that are visible
    /// again.
    pub(crate) fn follow(&self, clock_turns: u64) {
        if self.turns.fetch_max(clock_turns, Ordering::SeqCst) < clock_turns {
            self.forget_all();
        }
    }

    /// Counts what was forgotten: what was read from chunks at another generation must not be kept.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    fn shard(&self, id: TimelineId) -> parking_lot::MutexGuard<'_, Shard> {
        self.shards[shard_of(id)].lock()
    }
}

impl Shard {
    fn get(&self, id: TimelineId) -> Option<&TimelineLatest> {
        let slot = self.places.get(id)?;
        Some(&self.timelines[slot as usize])
    }

    /// What is known of a timeline, to alter; nothing yet where it was not known.
    fn entry(&mut self, id: TimelineId) -> &mut TimelineLatest {
        let slot = self.slot(id, NOWHERE);
        &mut self.timelines[slot as usize]
    }

    /// The place of a timeline, known or new, where the one before it has the place `before`.
    fn slot(&mut self, id: TimelineId, before: u32) -> u32 {
        let slot = self.places.of(id, before);
        if slot as usize == self.timelines.len() {
            self.timelines.push(TimelineLatest::default());
        }
        slot
    }

    fn remove(&mut self, id: TimelineId) {
        if let Some(slot) = self.places.remove(id) {
            self.timelines[slot as usize] = TimelineLatest::default();
        }
    }
}

impl Default for TimelineLatest {
    fn default() -> Self {
        Self {
            lane: None,
            seen: Seen {
                first: i64::MAX,
                last: i64::MIN,
            },
            more: None,
            spanned: false,
            complete: false,
        }
    }
}

impl TimelineLatest {
    fn take(&mut self, row: DeltaRow<'_>, sequence: SequenceNumber) {
        self.widen(row.group.timestamps[row.row]);
        let lane = self.lane.get_or_insert_with(|| Lane::new(row.shape));
        if Arc::ptr_eq(&lane.shape, row.shape) {
            return lane.take(row, sequence, || &mut self.more.get_or_insert_default().tail);
        }
        let others = &mut self.more.get_or_insert_default().others;
        let known = others
            .iter()
            .position(|(lane, _)| Arc::ptr_eq(&lane.shape, row.shape));
        let at = known.unwrap_or_else(|| {
            others.push((Lane::new(row.shape), Tail::default()));
            others.len() - 1
        });
        let (lane, tail) = &mut others[at];
        lane.take(row, sequence, || tail);
    }

    /// The value that the next row probably takes the place of.
    fn last_word(&self) -> u64 {
        self.lane.as_ref().map_or(0, |lane| lane.first)
    }

    fn seen(&self) -> Option<Seen> {
        (self.seen.first <= self.seen.last).then_some(self.seen)
    }

    fn span(&mut self, stored: Option<Seen>) {
        if let Some(seen) = stored {
            self.widen(seen.first);
            self.widen(seen.last);
        }
        self.spanned = true;
    }

    fn widen(&mut self, timestamp: i64) {
        self.seen.first = self.seen.first.min(timestamp);
        self.seen.last = self.seen.last.max(timestamp);
    }

    /// The newest value of each field: latest time first, then latest write.
    fn row(&self) -> LatestRow {
        let (nothing, more) = (Tail::default(), self.more.as_deref());
        let first = self
            .lane
            .iter()
            .map(|lane| (lane, more.map_or(&nothing, |more| &more.tail)));
        let others = more.into_iter().flat_map(|more| &more.others);
        let lanes = first.chain(others.map(|(lane, tail)| (lane, tail)));
        let of_lanes = lanes.flat_map(|(lane, tail)| lane.fields(tail));
        let stored = more.into_iter().flat_map(|more| &more.stored);
        let stored = stored.map(|field| (field.clone(), SequenceNumber(0)));
        let mut newest: Vec<(LatestField, SequenceNumber)> = Vec::new();
        for (candidate, sequence) in stored.chain(of_lanes) {
            match newest.iter_mut().find(|(have, _)| have.field == candidate.field) {
                Some((have, written)) => {
                    if (candidate.timestamp, sequence) > (have.timestamp, *written) {
                        (*have, *written) = (candidate, sequence);
                    }
                }
                None => newest.push((candidate, sequence)),
            }
        }
        newest.sort_by_key(|(field, _)| field.field);
        newest.into_iter().map(|(field, _)| field).collect()
    }
}

impl Lane {
    fn new(shape: &Arc<Shape>) -> Self {
        Self {
            shape: Arc::clone(shape),
            timestamp: i64::MIN,
            sequence: SequenceNumber(0),
            first: 0,
        }
    }

    /// Takes a row of its shape, unless it has a newer one. `tail` is asked for where the row has more than a number.
    fn take<'a>(&mut self, row: DeltaRow<'_>, sequence: SequenceNumber, tail: impl FnOnce() -> &'a mut Tail) {
        let DeltaRow { group, row, .. } = row;
        let timestamp = group.timestamps[row];
        if self.timestamp > timestamp {
            return;
        }
        self.timestamp = timestamp;
        self.sequence = sequence;
        if let [column] = &*group.columns
            && let Some(word) = number(column, row)
        {
            self.first = word;
            return;
        }
        let Tail { rest, bytes } = tail();
        bytes.clear();
        rest.resize(group.columns.len().saturating_sub(1), 0);
        let words = std::iter::once(&mut self.first).chain(rest);
        for (word, column) in words.zip(&group.columns) {
            *word = number(column, row).unwrap_or_else(|| {
                match column {
                    ColumnData::String(values) => bytes.extend_from_slice(values.get(row).as_bytes()),
                    ColumnData::Histogram(values) => bytes.extend_from_slice(values.get(row)),
                    _ => {}
                }
                bytes.len() as u64
            });
        }
        // One long text must not hold its room for ever.
        if bytes.capacity() > 2 * bytes.len() + BYTES_KEPT {
            bytes.shrink_to_fit();
        }
    }

    fn fields<'a>(&'a self, tail: &'a Tail) -> impl Iterator<Item = (LatestField, SequenceNumber)> {
        let mut start = 0;
        let mut next = move |end: u64| &tail.bytes[std::mem::replace(&mut start, end as usize)..end as usize];
        self.shape
            .fields
            .iter()
            .zip(std::iter::once(&self.first).chain(&tail.rest))
            .map(move |((field, value_type), &word)| {
                let value = match value_type {
                    ValueType::Float => Value::Float(f64::from_bits(word)),
                    ValueType::Signed => Value::Signed(word as i64),
                    ValueType::Unsigned => Value::Unsigned(word),
                    ValueType::Boolean => Value::Boolean(word != 0),
                    ValueType::String => {
                        let text = std::str::from_utf8(next(word)).expect("text went in");
                        Value::String(text.into())
                    }
                    ValueType::Histogram => Value::Histogram(next(word).into()),
                };
                (
                    LatestField {
                        field: *field,
                        timestamp: self.timestamp,
                        value,
                    },
                    self.sequence,
                )
            })
    }
}

/// A number or truth as a word; `None` for what has no fixed length.
#[inline]
fn number(column: &ColumnData, row: usize) -> Option<u64> {
    match column {
        ColumnData::Float(values) => Some(values[row].to_bits()),
        ColumnData::Signed(values) => Some(values[row] as u64),
        ColumnData::Unsigned(values) => Some(values[row]),
        ColumnData::Boolean(values) => Some(u64::from(values[row])),
        ColumnData::String(_) | ColumnData::Histogram(_) => None,
    }
}

/// Adds the newest value of each field of `run` that `row` does not have yet; runs come newest first.
pub(crate) fn fill_from(row: &mut LatestRow, run: &Run) {
    for column in &run.columns {
        let Some(last) = (0..run.timestamps.len())
            .rev()
            .find(|at| column.presence.contains(*at))
        else {
            continue;
        };
        let found = LatestField {
            field: column.field,
            timestamp: run.timestamps[last],
            value: value_at(column, last).expect("the row was found present"),
        };
        match row.iter_mut().find(|have| have.field == column.field) {
            Some(have) if have.timestamp >= found.timestamp => {}
            Some(have) => *have = found,
            None => row.push(found),
        }
    }
}
