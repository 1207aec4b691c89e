//! A second model on the same log: sequences, freezes and restarts are shared, entries are separate.
//!
//! The second model keeps notes in memory and records the calls of the log, which the test compares.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tideline_backend::{ManifestRow, SegmentRef};
use tideline_log::{
    Flushed, LogEntry, LogModel, Manifest, ModelError, ModelTag, Pressure, Refusal, Replay, ReplayedEntry,
};
use tideline_model::{Durability, ManualClock, SequenceNumber, TableId, Timestamp, Value};
use tideline_series_store::{Recovery, SeriesStore, Settings};

use crate::fixture::{Names, TestBackend, timeline, write};

const TABLE: TableId = TableId(77);

/// Notes in memory, and the ends of the generations that were frozen and flushed. Nothing is stored.
#[derive(Debug, Clone, Default)]
struct Notes(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    notes: Vec<(SequenceNumber, Bytes)>,
    frozen: Vec<SequenceNumber>,
    flushed: Vec<SequenceNumber>,
}

struct Note(Notes, Bytes);

impl LogEntry for Note {
    fn kind(&self) -> &'static str {
        "note"
    }
    fn table(&self) -> TableId {
        TABLE
    }
    fn encoded(&self) -> &Bytes {
        &self.1
    }
    fn durability(&self) -> Durability {
        Durability::Synced
    }
    fn check(&self) -> Result<(), Refusal> {
        Ok(())
    }
    fn apply(&self, sequence: SequenceNumber) -> Result<(), ModelError> {
        self.0.0.lock().notes.push((sequence, self.1.clone()));
        Ok(())
    }
}

impl Replay for Notes {
    fn tag(&self) -> ModelTag {
        ModelTag::TEST
    }
    fn apply(&mut self, sequence: SequenceNumber, entry: &Bytes) -> Result<ReplayedEntry, ModelError> {
        self.0.lock().notes.push((sequence, entry.clone()));
        Ok(ReplayedEntry {
            table: TABLE,
            request: None,
        })
    }
}

impl LogModel for Notes {
    fn pressure(&self) -> Pressure {
        Pressure::Low
    }
    fn is_empty(&self) -> bool {
        self.0.lock().notes.is_empty()
    }
    fn freeze(&self, next: SequenceNumber) {
        self.0.lock().frozen.push(next);
    }
    fn flush(&self, _: SequenceNumber) -> Result<Option<Box<dyn Flushed>>, ModelError> {
        Ok(None)
    }
    fn flushed(&self, end: SequenceNumber) {
        self.0.lock().flushed.push(end);
    }
    fn tidy(&self) {}
    fn take_over(&self, _: &Arc<Manifest>, _: &[ManifestRow]) -> Result<(), ModelError> {
        Ok(())
    }
    fn doubt(&self, _: &[TableId]) {}
    fn abandon(&self, _: &[SegmentRef]) {}
}

fn open(test_backend: &TestBackend) -> (SeriesStore, Notes) {
    let clock = Arc::new(ManualClock::new(Timestamp::EPOCH));
    let recovery = Recovery::begin(test_backend.backend(), clock, Settings::default()).expect("it begins");
    let notes = Notes::default();
    let models = |_: &Arc<tideline_log::Log>| vec![Arc::new(notes.clone()) as Arc<dyn LogModel>];
    let directory = Arc::new(Names::default());
    let opened = recovery.finish_beside(directory, &mut [&mut notes.clone()], models);
    (opened.expect("it opens").0, notes)
}

fn put(store: &SeriesStore, notes: &Notes, text: &str) -> SequenceNumber {
    let note = Note(notes.clone(), Bytes::from(format!("TT{text}")));
    store.threads().commit(Box::new(note)).expect("it is committed")
}

#[test]
fn two_models_share_sequences_freezes_and_restarts() {
    for (name, test_backend) in TestBackend::all() {
        let (store, notes) = open(&test_backend);
        let table = store.table("default").expect("the default table");
        let point = |at: i64| (timeline(1), at, vec![("v", Value::Signed(at))]);
        write(&store, &table, &[point(1)], &[timeline(1)]).expect("a write");
        let first = put(&store, &notes, "first");
        write(&store, &table, &[point(2)], &[]).expect("a write");
        store.seal().expect("both are flushed");
        let end = store.log().manifest().cursor.sealed_to;
        assert_eq!(end, store.recent_end(), "{name}");
        let state = std::mem::take(&mut *notes.0.lock());
        assert_eq!((state.frozen, state.flushed), (vec![end], vec![end]), "{name}");
        assert_eq!(state.notes, [(first, Bytes::from("TTfirst"))], "{name}");
        let second = put(&store, &notes, "second");
        write(&store, &table, &[point(3)], &[]).expect("a write");
        drop(store);
        let (store, notes) = open(&test_backend);
        assert_eq!(
            notes.0.lock().notes,
            [(second, Bytes::from("TTsecond"))],
            "{name}: only what was not flushed is replayed"
        );
        assert_eq!(store.stats().head_points, 1, "{name}");
        assert_eq!(store.stats().segment_points, 2, "{name}");
    }
}
