//! Data model of the simulation: notes, each with a number and a key.
//!
//! A note is an entry of the journal. A flush loads the notes of a generation into a segment, and writes the newest
//! note of each changed key as a row that is changed in place. A compaction replaces two segments by one. A read
//! returns all notes: those in memory, and those of the published segments. The model handles segments as
//! `tideline-series-store` does: it retires them with [`Retired`], frees those of an abandoned edit, and frees the
//! orphans of its start.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use tideline_backend::page::scan_to_limit;
use tideline_backend::{
    Backend, Direction, KeyRange, ManifestChange, ManifestKind, ManifestRow, PageLimit, Partition, Row,
    RowChange, SegmentRef, Space,
};
use tideline_key_codec::{delete_key, parse_delete_key};
use tideline_model::{Durability, GroupId, ModelTag, SegmentId, SequenceNumber, TableId, Tier};

use super::world::World;
use crate::entry::{LogEntry, ModelError, Refusal};
use crate::error::{LogError, Result};
use crate::log::Log;
use crate::manifest::Manifest;
use crate::model::{Flushed, LogModel, Pressure, Replay, Replayed};
use crate::opening::Opening;
use crate::requests::RequestRecord;
use crate::retired::{Retired, Versioned};
use crate::{Edit, Submitted};

/// Table of all notes.
pub(super) const TABLE: TableId = TableId(1);
/// Rows with the newest note of each key.
const NEWEST: Partition = Partition::space(Space(998), 0);
/// Limit of a page that holds all rows of a partition.
const LIMIT: PageLimit = PageLimit {
    rows_max: usize::MAX,
    bytes_max: usize::MAX,
};

/// One note. A note that erases its key is also a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) number: u64,
    pub(super) key: u8,
    pub(super) erases: bool,
    pub(super) durability: Durability,
}

/// Notes by sequence.
pub(super) type Notes = BTreeMap<SequenceNumber, Note>;

impl Note {
    fn encode(self) -> Bytes {
        let mut bytes = b"TT".to_vec();
        bytes.extend(self.number.to_le_bytes());
        bytes.extend([
            self.key,
            u8::from(self.erases),
            u8::from(self.durability == Durability::Synced),
        ]);
        bytes.into()
    }

    fn decode(bytes: &[u8]) -> Self {
        Self {
            number: u64::from_le_bytes(bytes[2..10].try_into().expect("eight bytes")),
            key: bytes[10],
            erases: bytes[11] == 1,
            durability: match bytes[12] {
                1 => Durability::Synced,
                _ => Durability::Buffered,
            },
        }
    }

    pub(super) fn request(self) -> RequestRecord {
        RequestRecord {
            key: request_key(self.number),
            outcome: Bytes::from_static(b"noted"),
        }
    }
}

/// Returns the request key of a note.
pub(super) fn request_key(number: u64) -> [u8; 16] {
    u128::from(number).to_le_bytes()
}

/// Published segments at one version of the manifest.
#[derive(Debug, Default)]
pub(super) struct Published {
    version: u64,
    pub(super) segments: Vec<SegmentRef>,
}

impl Versioned for Published {
    fn version(&self) -> u64 {
        self.version
    }
}

/// State of the model in one process.
#[derive(Debug, Default)]
struct State {
    active: Notes,
    frozen: Vec<(SequenceNumber, Notes)>,
    published: Arc<Published>,
    /// Newest note of each key with its sequence.
    newest: BTreeMap<u8, (SequenceNumber, Note)>,
}

impl State {
    fn apply(&mut self, sequence: SequenceNumber, note: Note) {
        self.active.insert(sequence, note);
        let newest = self.newest.entry(note.key).or_insert((sequence, note));
        if newest.0 < sequence {
            *newest = (sequence, note);
        }
    }

    fn drop_frozen(&mut self, end: SequenceNumber) {
        self.frozen.retain(|(at, _)| *at > end);
    }

    /// Publishes segments. Returns the state before.
    fn publish(&mut self, version: u64, segments: Vec<SegmentRef>) -> Arc<Published> {
        std::mem::replace(&mut self.published, Arc::new(Published { version, segments }))
    }
}

/// The model of one process.
#[derive(Debug)]
pub(super) struct NoteModel {
    state: Arc<Mutex<State>>,
    retired: Arc<Retired<Published, SegmentRef>>,
    log: Mutex<Weak<Log>>,
    world: Weak<World>,
}

/// Entry of a note.
pub(super) struct NoteEntry {
    model: Arc<NoteModel>,
    note: Note,
    encoded: Bytes,
}

impl LogEntry for NoteEntry {
    fn kind(&self) -> &'static str {
        "note"
    }
    fn table(&self) -> TableId {
        TABLE
    }
    fn encoded(&self) -> &Bytes {
        &self.encoded
    }
    fn durability(&self) -> Durability {
        self.note.durability
    }
    fn request(&self) -> Option<RequestRecord> {
        Some(self.note.request())
    }
    fn check(&self) -> std::result::Result<(), Refusal> {
        Ok(())
    }
    fn apply(&self, sequence: SequenceNumber) -> std::result::Result<(), ModelError> {
        self.model.state.lock().apply(sequence, self.note);
        Ok(())
    }
}

/// Reads entries of the journal into the model.
pub(super) struct Reader(pub(super) Arc<NoteModel>);

impl Replay for Reader {
    fn tag(&self) -> ModelTag {
        ModelTag::TEST
    }
    fn apply(
        &mut self,
        sequence: SequenceNumber,
        entry: &Bytes,
    ) -> std::result::Result<Replayed, ModelError> {
        let note = Note::decode(entry);
        self.0.state.lock().apply(sequence, note);
        Ok(Replayed {
            table: TABLE,
            request: Some(note.request()),
        })
    }
}

impl NoteModel {
    /// Reads the published segments and the rows of the newest notes.
    pub(super) fn read(opening: &Opening, world: &Arc<World>) -> Result<Arc<Self>> {
        let segments = segments_of(opening.rows());
        let is_orphan = |held: &SegmentRef| !segments.contains(held);
        let orphans = opening.segments().iter().copied().filter(is_orphan).collect();
        let mut state = State::default();
        for row in rows_of(opening.backend().as_ref(), NEWEST)? {
            let sequence = SequenceNumber(number_of(&row.value[..8]));
            let note = Note::decode(&row.value[8..]);
            state.newest.insert(note.key, (sequence, note));
        }
        state.publish(opening.manifest().version, segments);
        Ok(Arc::new(Self {
            state: Arc::new(Mutex::new(state)),
            retired: Arc::new(Retired::new(orphans)),
            log: Mutex::default(),
            world: Arc::downgrade(world),
        }))
    }

    pub(super) fn set_log(&self, log: &Arc<Log>) {
        *self.log.lock() = Arc::downgrade(log);
    }

    fn log(&self) -> Arc<Log> {
        self.log
            .lock()
            .upgrade()
            .expect("the log exists while its model works")
    }

    pub(super) fn entry(self: &Arc<Self>, note: Note) -> Box<NoteEntry> {
        Box::new(NoteEntry {
            model: Arc::clone(self),
            note,
            encoded: note.encode(),
        })
    }

    /// Returns all notes, read through `backend`: from memory and from the published segments.
    pub(super) fn all(&self, backend: &dyn Backend) -> Result<Vec<(SequenceNumber, Note)>> {
        // The published version is held until the end, so that this process does not free its segments.
        let (mut found, published) = {
            let state = self.state.lock();
            let frozen = state.frozen.iter().flat_map(|(_, notes)| notes);
            let notes = frozen.chain(&state.active);
            let found: Vec<_> = notes.map(|(at, note)| (*at, *note)).collect();
            (found, Arc::clone(&state.published))
        };
        for segment in &published.segments {
            found.extend(notes_of(backend, *segment)?);
        }
        Ok(found)
    }

    /// Returns the newest note of each key that is not erased.
    pub(super) fn newest(&self) -> BTreeMap<u8, u64> {
        let state = self.state.lock();
        let newest = state.newest.iter().filter(|(_, (_, note))| !note.erases);
        newest.map(|(key, (_, note))| (*key, note.number)).collect()
    }

    fn new_segment(&self) -> SegmentRef {
        let log = self.log();
        let segment = SegmentRef {
            segment: log.next_segment(),
            group: log.next_group(),
            tier: Tier::Hot,
        };
        if let Some(world) = self.world.upgrade() {
            world.note_ids(&[segment.segment.0, segment.group.0]);
        }
        segment
    }

    fn load(&self, notes: impl Iterator<Item = (SequenceNumber, Note)>) -> Result<SegmentRef> {
        let segment = self.new_segment();
        let mut rows = notes.map(|(sequence, note)| {
            Ok(Row {
                key: delete_key(TABLE, sequence).to_vec().into(),
                value: note.encode(),
            })
        });
        self.log().backend().load(segment, 0, &mut rows)?;
        Ok(segment)
    }

    /// Replaces the two oldest segments by one segment. Returns false if there are fewer than two.
    pub(super) fn compact(&self) -> Result<bool> {
        let published = Arc::clone(&self.state.lock().published);
        let [one, two, ..] = published.segments[..] else {
            return Ok(false);
        };
        let log = self.log();
        let mut notes = notes_of(log.backend().as_ref(), one)?;
        notes.append(&mut notes_of(log.backend().as_ref(), two)?);
        let merged = self.load(notes.into_iter())?;
        let change = |current: &Arc<Manifest>| -> Result<Edit> {
            if !published
                .segments
                .iter()
                .all(|segment| self.is_published(*segment))
            {
                return Err(LogError::Closed);
            }
            let mut manifest = Manifest::clone(current);
            manifest.cursor = log.cursor(manifest.cursor, manifest.cursor.sealed_to);
            let changes = vec![
                remove(one),
                remove(two),
                put(merged),
                crate::manifest::put_cursor(&manifest.cursor),
            ];
            Ok(Edit {
                manifest,
                changes,
                adds: vec![merged],
            })
        };
        let follow = |manifest: &Arc<Manifest>| {
            let mut state = self.state.lock();
            let mut segments = state.published.segments.clone();
            segments.retain(|segment| ![one, two].contains(segment));
            segments.push(merged);
            let before = state.publish(manifest.version, segments);
            self.retired.replaced(&before);
            self.retired.add(manifest.version, vec![one, two]);
        };
        log.edit(change, follow)?;
        Ok(true)
    }

    fn is_published(&self, segment: SegmentRef) -> bool {
        self.state.lock().published.segments.contains(&segment)
    }
}

impl LogModel for NoteModel {
    fn pressure(&self) -> Pressure {
        Pressure::Low
    }

    fn is_empty(&self) -> bool {
        self.state.lock().active.is_empty()
    }

    fn freeze(&self, next: SequenceNumber) {
        let mut state = self.state.lock();
        let frozen = std::mem::take(&mut state.active);
        state.frozen.push((next, frozen));
    }

    fn flush(&self, end: SequenceNumber) -> std::result::Result<Option<Box<dyn Flushed>>, ModelError> {
        let notes: Notes = {
            let state = self.state.lock();
            let frozen = state.frozen.iter().filter(|(at, _)| *at <= end);
            frozen
                .flat_map(|(_, notes)| notes)
                .map(|(at, note)| (*at, *note))
                .collect()
        };
        if notes.is_empty() {
            return Ok(None);
        }
        let segment = self.load(notes.iter().map(|(at, note)| (*at, *note)))?;
        let newest: BTreeMap<u8, (&SequenceNumber, &Note)> =
            notes.iter().map(|(at, note)| (note.key, (at, note))).collect();
        let row = |(key, (at, note)): (u8, (&SequenceNumber, &Note))| RowChange {
            key: vec![key].into(),
            value: (!note.erases).then(|| [&at.0.to_le_bytes()[..], &note.encode()].concat().into()),
        };
        let rows: Vec<RowChange> = newest.into_iter().map(row).collect();
        let log = self.log();
        let stamp = log.stamps().next()?;
        log.backend().write(NEWEST, &rows, stamp, Durability::Buffered)?;
        Ok(Some(Box::new(FlushedNotes {
            segment,
            end,
            state: Arc::clone(&self.state),
            retired: Arc::clone(&self.retired),
        })))
    }

    fn flushed(&self, end: SequenceNumber) {
        self.state.lock().drop_frozen(end);
    }

    fn tidy(&self) {
        for segment in self.retired.take_free() {
            // The next start retries a failure.
            let _ = self.log().backend().reclaim(segment);
        }
    }

    fn take_over(
        &self,
        manifest: &Arc<Manifest>,
        rows: &[ManifestRow],
    ) -> std::result::Result<(), ModelError> {
        let mut state = self.state.lock();
        let segments = segments_of(rows);
        let mut removed = state.published.segments.clone();
        removed.retain(|segment| !segments.contains(segment));
        let before = state.publish(manifest.version, segments);
        self.retired.replaced(&before);
        self.retired.add(manifest.version, removed);
        state.drop_frozen(manifest.cursor.sealed_to);
        Ok(())
    }

    fn doubt(&self, _: &[TableId]) {}

    fn abandon(&self, loads: &[SegmentRef]) {
        if let Some(world) = self.world.upgrade() {
            world.note_abandoned(loads.len());
        }
        self.retired.add(0, loads.to_vec());
    }
}

/// Generation that was loaded and is not published yet.
struct FlushedNotes {
    segment: SegmentRef,
    end: SequenceNumber,
    state: Arc<Mutex<State>>,
    retired: Arc<Retired<Published, SegmentRef>>,
}

impl Flushed for FlushedNotes {
    fn edit(&mut self, _: &mut Manifest) -> std::result::Result<Vec<ManifestChange>, ModelError> {
        Ok(vec![put(self.segment)])
    }

    fn adds(&self) -> Vec<SegmentRef> {
        vec![self.segment]
    }

    fn follow(self: Box<Self>, manifest: &Arc<Manifest>) {
        let mut state = self.state.lock();
        state.drop_frozen(self.end);
        let mut segments = state.published.segments.clone();
        segments.push(self.segment);
        let before = state.publish(manifest.version, segments);
        self.retired.replaced(&before);
    }
}

/// Waits for submitted notes. Returns the outcome of each.
pub(super) fn outcomes(submitted: Vec<(u64, Submitted)>) -> Vec<(u64, Result<SequenceNumber>)> {
    let outcome = |(number, submitted): (u64, Submitted)| (number, submitted.wait());
    submitted.into_iter().map(outcome).collect()
}

fn name(segment: SegmentRef) -> Bytes {
    [segment.segment.0.to_le_bytes(), segment.group.0.to_le_bytes()]
        .concat()
        .into()
}

fn put(segment: SegmentRef) -> ManifestChange {
    ManifestChange::Put(ManifestRow {
        kind: ManifestKind::Segment,
        name: name(segment),
        detail: Bytes::from_static(b"notes"),
    })
}

fn remove(segment: SegmentRef) -> ManifestChange {
    ManifestChange::Remove(ManifestKind::Segment, name(segment))
}

fn segments_of(rows: &[ManifestRow]) -> Vec<SegmentRef> {
    let rows = rows.iter().filter(|row| row.kind == ManifestKind::Segment);
    rows.map(|row| SegmentRef {
        segment: SegmentId(number_of(&row.name[..8])),
        group: GroupId(number_of(&row.name[8..])),
        tier: Tier::Hot,
    })
    .collect()
}

fn number_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn rows_of(backend: &dyn Backend, partition: Partition) -> Result<Vec<Row>> {
    let page = scan_to_limit(backend, partition, &KeyRange::ALL, Direction::Ascending, LIMIT)?;
    Ok(page.rows)
}

fn notes_of(backend: &dyn Backend, segment: SegmentRef) -> Result<Vec<(SequenceNumber, Note)>> {
    let rows = rows_of(backend, Partition::segment(segment, 0))?;
    let note = |row: Row| {
        let (_, sequence) = parse_delete_key(&row.key).expect("a table and a sequence");
        (sequence, Note::decode(&row.value))
    };
    Ok(rows.into_iter().map(note).collect())
}
