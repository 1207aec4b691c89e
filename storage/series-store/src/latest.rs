//! In-memory latest values of timelines, in addition to the head.
//!
//! For each timeline, the newest row of every shape is kept. The newest value of a field is the newest of its values in
//! these rows. A timeline that was first written in this process is *complete*: memory holds all its latest values. A
//! timeline from before a restart is completed from its newest chunks on first access.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;
use tideline_chunk::Run;
use tideline_model::{ColumnData, FieldId, SequenceNumber, TimelineId, Value, ValueType};

use crate::merge::value_at;
use crate::pages::Pages;
use crate::schema::Shape;
use crate::sharding::{DeltaRow, SHARDS, ShardedDelta, shard_of, warm};
use crate::timeline_slots::{NO_SLOT, TimelineSlots};

/// Newest value of one field.
#[derive(Debug, Clone, PartialEq)]
pub struct LatestField {
    /// Field of the value.
    pub field: FieldId,
    /// Timestamp in nanoseconds since the epoch.
    pub timestamp: i64,
    /// Newest value.
    pub value: Value,
}

/// Newest value of every field of one timeline, in field order.
pub type LatestRow = Vec<LatestField>;

/// Time span of the points of a timeline, both ends inclusive, in nanoseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Timestamp of the oldest point.
    pub first: i64,
    /// Timestamp of the newest point.
    pub last: i64,
}

/// Rows per batch of a write: all timelines of a batch are looked up and loaded into the CPU cache, and then updated.
const ROWS_AHEAD: usize = 1_024;
/// Spare capacity in bytes that a row may keep for texts and histograms, in addition to twice their current size.
const BYTES_KEPT: usize = 256;

/// Number of values after the first that are stored inline, enough for a typical row of agents with many fields.
const WORDS_INLINE: usize = 9;

/// Latest values of one table.
#[derive(Debug)]
pub(crate) struct TableLatest {
    shards: Box<[Mutex<Shard>]>,
    generation: AtomicU64,
    /// Number of backward steps of the clock at the last call of `follow`.
    regressions: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    slots: TimelineSlots,
    timelines: Pages<TimelineLatest>,
}

/// Latest values of one timeline. There may be millions of instances, and a write changes one instance per row; the
/// data for a row with one number fits one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct TimelineLatest {
    /// Newest row of the first shape. Nearly every timeline has only one shape.
    shape_row: Option<ShapeRow>,
    /// Timestamps of the oldest and the newest point; `first` is greater than `last` while there are no points.
    seen: Seen,
    /// State that timelines with one number per row do not need.
    more: Option<Box<More>>,
    /// True if `seen` includes the points in chunks.
    spanned: bool,
    /// True if all latest values are in memory, including those found in chunks.
    complete: bool,
}

#[derive(Debug, Default)]
struct More {
    /// Other values of the row in `shape_row`.
    tail: ShapeRowRest,
    /// Newest rows of further shapes.
    others: Vec<(ShapeRow, ShapeRowRest)>,
    /// Newest values found in chunks.
    stored: Box<[LatestField]>,
}

/// Newest row of one shape.
#[derive(Debug)]
struct ShapeRow {
    shape: Arc<Shape>,
    timestamp: i64,
    sequence: SequenceNumber,
    /// Word of the first field: its value, or the end offset of a text or histogram. Shapes of agents that send one
    /// value per row have no other field.
    first: u64,
}

/// Values of a row after the first, and its texts and histograms.
#[derive(Debug, Default)]
struct ShapeRowRest {
    /// Values of the other fields.
    rest: SmallVec<[u64; WORDS_INLINE]>,
    /// Concatenated texts and histograms. The word of a text or histogram is its end offset in these bytes.
    bytes: Vec<u8>,
}

/// Latest values of one timeline that are available without reading chunks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CachedLatest {
    pub(crate) row: LatestRow,
    /// True if `row` has all latest values of the timeline.
    pub(crate) complete: bool,
}

impl Default for TableLatest {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            generation: AtomicU64::new(0),
            regressions: AtomicU64::new(0),
        }
    }
}

impl TableLatest {
    /// Applies the rows of a delta. `first_writes` is true if the timelines that the delta introduces have no chunks.
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
            let mut before = NO_SLOT;
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

    /// Returns the values of a timeline that are in memory; `None` if no entry of the timeline is in memory.
    pub(crate) fn known(&self, id: TimelineId) -> Option<CachedLatest> {
        let shard = self.shard(id);
        let latest = shard.get(id)?;
        Some(CachedLatest {
            row: latest.row(),
            complete: latest.complete,
        })
    }

    /// Returns the time span of a timeline. The outer `None` means that chunks must be read; the inner `None` means
    /// that the timeline has no points.
    pub(crate) fn seen(&self, id: TimelineId) -> Option<Option<Seen>> {
        self.shard(id)
            .get(id)
            .filter(|latest| latest.spanned)
            .map(TimelineLatest::seen)
    }

    /// Adds the span found in chunks, unless the generation has changed since they were read.
    pub(crate) fn widen(&self, id: TimelineId, stored: Option<Seen>, generation: u64) {
        let mut shard = self.shard(id);
        if generation == self.generation() {
            shard.entry(id).span(stored);
        }
    }

    /// Adds the values found in chunks, unless the generation has changed since they were read. The timeline is then
    /// complete: its latest values are available without reading chunks.
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

    /// Removes timelines from memory. Their remaining values are read again from the chunks.
    ///
    /// Values read from chunks before this call are not added afterwards.
    pub(crate) fn forget(&self, ids: &[TimelineId]) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        for id in ids {
            self.shard(*id).remove(*id);
        }
    }

    /// Removes all timelines from memory.
    pub(crate) fn forget_all(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.shards
            .iter()
            .for_each(|shard| *shard.lock() = Shard::default());
    }

    /// Removes all timelines from memory if the trusted clock has gone back since the last call. Points that were
    /// expired when chunks were read may be visible again; the values in memory do not include them.
    pub(crate) fn follow(&self, clock_regressions: u64) {
        if self.regressions.fetch_max(clock_regressions, Ordering::SeqCst) < clock_regressions {
            self.forget_all();
        }
    }

    /// Returns the number of times that timelines were removed from memory. Values read from chunks at another
    /// generation must be discarded.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    fn shard(&self, id: TimelineId) -> parking_lot::MutexGuard<'_, Shard> {
        self.shards[shard_of(id)].lock()
    }
}

impl Shard {
    fn get(&self, id: TimelineId) -> Option<&TimelineLatest> {
        let slot = self.slots.get(id)?;
        Some(&self.timelines[slot as usize])
    }

    /// Returns the mutable entry of a timeline. Creates an empty entry if the timeline is new.
    fn entry(&mut self, id: TimelineId) -> &mut TimelineLatest {
        let slot = self.slot(id, NO_SLOT);
        &mut self.timelines[slot as usize]
    }

    /// Returns the slot of a timeline, known or new. `before` is the slot of the previous timeline.
    fn slot(&mut self, id: TimelineId, before: u32) -> u32 {
        let slot = self.slots.of(id, before);
        if slot as usize == self.timelines.len() {
            self.timelines.push(TimelineLatest::default());
        }
        slot
    }

    fn remove(&mut self, id: TimelineId) {
        if let Some(slot) = self.slots.remove(id) {
            self.timelines[slot as usize] = TimelineLatest::default();
        }
    }
}

impl Default for TimelineLatest {
    fn default() -> Self {
        Self {
            shape_row: None,
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
        let shape_row = self.shape_row.get_or_insert_with(|| ShapeRow::new(row.shape));
        if Arc::ptr_eq(&shape_row.shape, row.shape) {
            return shape_row.take(row, sequence, || &mut self.more.get_or_insert_default().tail);
        }
        let others = &mut self.more.get_or_insert_default().others;
        let known = others
            .iter()
            .position(|(shape_row, _)| Arc::ptr_eq(&shape_row.shape, row.shape));
        let at = known.unwrap_or_else(|| {
            others.push((ShapeRow::new(row.shape), ShapeRowRest::default()));
            others.len() - 1
        });
        let (shape_row, tail) = &mut others[at];
        shape_row.take(row, sequence, || tail);
    }

    /// Returns the word that the next row probably overwrites.
    fn last_word(&self) -> u64 {
        self.shape_row.as_ref().map_or(0, |shape_row| shape_row.first)
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

    /// Returns the newest value of each field: by timestamp, then by write order.
    fn row(&self) -> LatestRow {
        let (nothing, more) = (ShapeRowRest::default(), self.more.as_deref());
        let first = self
            .shape_row
            .iter()
            .map(|shape_row| (shape_row, more.map_or(&nothing, |more| &more.tail)));
        let others = more.into_iter().flat_map(|more| &more.others);
        let shape_rows = first.chain(others.map(|(shape_row, tail)| (shape_row, tail)));
        let of_shapes = shape_rows.flat_map(|(shape_row, tail)| shape_row.fields(tail));
        let stored = more.into_iter().flat_map(|more| &more.stored);
        let stored = stored.map(|field| (field.clone(), SequenceNumber(0)));
        let mut newest: Vec<(LatestField, SequenceNumber)> = Vec::new();
        for (candidate, sequence) in stored.chain(of_shapes) {
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

impl ShapeRow {
    fn new(shape: &Arc<Shape>) -> Self {
        Self {
            shape: Arc::clone(shape),
            timestamp: i64::MIN,
            sequence: SequenceNumber(0),
            first: 0,
        }
    }

    /// Stores a row of this shape, unless the current row has a newer timestamp. Calls `tail` unless the row is a
    /// single number or boolean.
    fn take<'a>(
        &mut self,
        row: DeltaRow<'_>,
        sequence: SequenceNumber,
        tail: impl FnOnce() -> &'a mut ShapeRowRest,
    ) {
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
        let ShapeRowRest { rest, bytes } = tail();
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
        // Frees the capacity left by a single long text or histogram.
        if bytes.capacity() > 2 * bytes.len() + BYTES_KEPT {
            bytes.shrink_to_fit();
        }
    }

    fn fields<'a>(&'a self, tail: &'a ShapeRowRest) -> impl Iterator<Item = (LatestField, SequenceNumber)> {
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

/// Returns a number or boolean as a word; `None` for values without fixed length.
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

/// Adds the newest value of each field of `run` to `row`, unless `row` has a value of the field with the same or a
/// later timestamp. Runs are passed newest first.
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
