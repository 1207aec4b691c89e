//! Steps of one process. They call the code of the log in the order in which its threads and its callers call it.
//!
//! Each step compares its results with the ledger. A step that needs a lock of an overtaken step does nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tideline_model::{Durability, TableName, TableSpec};

use super::notes::{Note, NoteModel, Reader, TABLE, outcomes, request_key};
use super::world::{Life, Running, World, job_numbers};
use crate::committer::Committer;
use crate::entry::LogEntry;
use crate::error::Result;
use crate::flusher::Worker as FlusherWorker;
use crate::log::Log;
use crate::manifest::{TableRow, put_table};
use crate::model::LogModel;
use crate::opening::Opening;
use crate::settings::LogSettings;

/// Number of different keys of notes.
const KEYS: u64 = 5;

impl World {
    /// Tries to take the shard and to open the log, as the server does.
    pub(super) fn open(self: &Arc<Self>, life: &Arc<Life>) {
        match self.try_to_open(life) {
            Ok(running) if life.is_alive() => {
                self.trace(Some(life), &format!("opens epoch {}", running.log.epoch().0));
                self.check_opened(life, &running);
                *life.running.lock() = Some(Arc::new(running));
            }
            Ok(_) => {}
            Err(error) => {
                if life.ownership.lock().take().is_some() {
                    self.trace(Some(life), &format!("cannot open: {error}"));
                    self.ledger.lock().counts.failed_opens += 1;
                }
            }
        }
    }

    fn try_to_open(self: &Arc<Self>, life: &Arc<Life>) -> Result<Running> {
        let settings = LogSettings {
            // The simulation has one thread, so no lease is renewed while it waits.
            renewal_patience: Duration::ZERO,
            request_ttl: Duration::from_secs(10 * 365 * 24 * 3_600),
            ..LogSettings::default()
        };
        let (backend, clock) = (life.connection.clone(), Arc::clone(&life.clock));
        let opening = Opening::begin_with(backend, clock, settings, |_, ownership| {
            life.note_renewal();
            *life.ownership.lock() = Some(Arc::clone(ownership));
            None
        })?;
        let model = NoteModel::read(&opening, self)?;
        let replayed = opening.replay(&mut [&mut Reader(Arc::clone(&model))])?;
        let log = replayed.open()?;
        model.set_log(&log);
        let models: Vec<Arc<dyn LogModel>> = vec![model.clone()];
        log.set_models(&models);
        let (committer, worker) = Committer::new(Arc::clone(&log), models.clone());
        let flusher = FlusherWorker {
            log: Arc::clone(&log),
            models,
        };
        create_table(&log)?;
        Ok(Running {
            log,
            model,
            committer,
            committing: Mutex::new(worker),
            flushing: Mutex::new(flusher),
            compacting: Mutex::default(),
        })
    }

    /// Compares everything that a new owner has found with the ledger. A process whose lease has ended during the
    /// opening serves no requests, so its view does not count.
    fn check_opened(&self, life: &Life, running: &Running) {
        if running.log.check_lease().is_err() {
            return;
        }
        let disk = &life.connection.disk;
        let found = running.model.all(disk).expect("the disk answers");
        let numbers: Vec<u64> = found.iter().map(|(_, note)| note.number).collect();
        let mut newest = BTreeMap::new();
        for (sequence, note) in &found {
            let last = newest.entry(note.key).or_insert((*sequence, *note));
            if last.0 < *sequence {
                *last = (*sequence, *note);
            }
        }
        newest.retain(|_, (_, note)| !note.erases);
        let newest = newest
            .into_iter()
            .map(|(key, (_, note))| (key, note.number))
            .collect();
        let epoch = running.log.epoch();
        let who = format!("process {}, which has opened epoch {},", life.number, epoch.0);
        let mut ledger = self.ledger.lock();
        ledger.counts.opens += 1;
        ledger.notes.open(&who, &numbers, epoch);
        ledger.jobs.open(&who, &job_numbers(disk), epoch);
        assert_eq!(
            running.model.newest(),
            newest,
            "{who} has read rows that do not hold the newest note of each key"
        );
    }

    /// Writes new notes.
    pub(super) fn write(&self, life: &Life, running: &Running) {
        let notes: Vec<Note> = (0..1 + self.below(3)).map(|_| self.new_note()).collect();
        self.commit(life, running, &notes);
    }

    fn new_note(&self) -> Note {
        Note {
            number: self.ledger.lock().next_element(),
            key: self.below(KEYS) as u8,
            erases: self.is(20),
            durability: match self.is(80) {
                true => Durability::Synced,
                false => Durability::Buffered,
            },
        }
    }

    /// Sends a note of unknown outcome again, with its request key, like a client that has found the new owner.
    pub(super) fn repeat(&self, life: &Life, running: &Running) {
        let undecided = self.ledger.lock().notes.undecided_before(running.log.epoch());
        if undecided.is_empty() || running.log.check_lease().is_err() {
            return;
        }
        let number = undecided[self.below(undecided.len() as u64) as usize];
        if running.log.request_outcome(TABLE, request_key(number)).is_some() {
            let mut ledger = self.ledger.lock();
            ledger.counts.remembered += 1;
            ledger.notes.promise(number);
            return;
        }
        self.ledger.lock().counts.repeated += 1;
        let note = Note {
            number,
            ..self.new_note()
        };
        self.commit(life, running, &[note]);
    }

    fn commit(&self, life: &Life, running: &Running, notes: &[Note]) {
        let Some(mut worker) = running.committing.try_lock().filter(|_| running.is_editable()) else {
            return;
        };
        let epoch = running.log.epoch();
        let mut submitted = Vec::new();
        for note in notes {
            self.ledger.lock().notes.send(note.number, epoch);
            let entry: Box<dyn LogEntry> = running.model.entry(*note);
            match running.committer.submit(entry) {
                Ok(sent) => submitted.push((note.number, sent)),
                Err(error) => panic!("nothing else waits: {error}"),
            }
        }
        worker.handle_waiting();
        for (number, outcome) in outcomes(submitted) {
            if !life.is_alive() {
                return;
            }
            let mut ledger = self.ledger.lock();
            match outcome {
                Ok(sequence) => {
                    self.trace(Some(life), &format!("acknowledges {number} as {sequence}"));
                    ledger.counts.acknowledged += 1;
                    ledger.notes.promise(number);
                }
                Err(error) if error.is_not_written() => ledger.notes.refuse(number),
                Err(error) => {
                    self.trace(Some(life), &format!("fails to write {number}: {error}"));
                    ledger.counts.unknown += 1;
                }
            }
        }
    }

    /// Reads all notes, as a request does: the lease is checked before the data is read, and again before the response.
    pub(super) fn read(&self, life: &Life, running: &Running) {
        let promised = self.ledger.lock().notes.promised();
        let answer = || -> Result<Vec<u64>> {
            running.log.check_lease()?;
            let found = running.model.all(life.connection.as_ref())?;
            running.log.check_lease()?;
            Ok(found.iter().map(|(_, note)| note.number).collect())
        };
        let answer = answer();
        let mut ledger = self.ledger.lock();
        match answer {
            Ok(numbers) if life.is_alive() => {
                self.trace(Some(life), &format!("reads {} notes", numbers.len()));
                ledger.counts.reads += 1;
                let who = format!("the answer of process {}", life.number);
                ledger.notes.check(&who, &numbers, &promised);
                numbers.iter().for_each(|number| ledger.notes.promise(*number));
            }
            Ok(_) => {}
            Err(_) => ledger.counts.refused_reads += 1,
        }
    }

    pub(super) fn freeze(&self, life: &Life, running: &Running) {
        if let Some(mut worker) = running.committing.try_lock() {
            self.trace(Some(life), "freezes");
            // A failed freeze is tried again.
            let _ = worker.freeze();
        }
    }

    /// Runs one round of the flusher.
    pub(super) fn flush(&self, life: &Life, running: &Running) {
        let Some(worker) = running.flushing.try_lock().filter(|_| running.is_editable()) else {
            return;
        };
        self.trace(Some(life), "flushes");
        let before = running.log.frozen.lock().len();
        worker.work();
        if running.log.frozen.lock().len() < before {
            self.ledger.lock().counts.flushes += 1;
        }
    }

    pub(super) fn compact(&self, life: &Life, running: &Running) {
        let Some(_one) = running.compacting.try_lock().filter(|_| running.is_editable()) else {
            return;
        };
        self.trace(Some(life), "compacts");
        if running.log.check_lease().is_ok() && running.model.compact().is_ok_and(|done| done) {
            self.ledger.lock().counts.compactions += 1;
        }
    }

    /// Adds a job row to the manifest.
    pub(super) fn edit(&self, life: &Life, running: &Running) {
        if !running.is_editable() {
            return;
        }
        let number = {
            let mut ledger = self.ledger.lock();
            let number = ledger.next_element();
            ledger.jobs.send(number, running.log.epoch());
            number
        };
        let name = Bytes::from(number.to_string());
        let edited = running
            .log
            .edit_job_rows(vec![(name, Bytes::from_static(b"{}"))], Vec::new());
        if edited.is_ok() && life.is_alive() {
            self.trace(Some(life), &format!("stores job {number}"));
            self.ledger.lock().jobs.promise(number);
        }
    }

    pub(super) fn sync(&self, life: &Life, running: &Running) {
        if let Some(mut worker) = running.committing.try_lock() {
            self.trace(Some(life), "syncs");
            worker.sync_buffered();
        }
    }
}

/// Creates the table of the notes, if it does not exist.
fn create_table(log: &Log) -> Result<()> {
    if log.manifest().tables.contains_key(&TABLE) {
        return Ok(());
    }
    log.edit_shared(|manifest| {
        let name = TableName::new("notes").expect("a valid name");
        let row = TableRow::new(TABLE, name, TableSpec::default(), 0, 0);
        let change = put_table(&row);
        manifest.tables.insert(TABLE, row);
        vec![change]
    })
}
