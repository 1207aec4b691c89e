//! Three processes that compete for the same shard, and pause at random: no acknowledged entry is lost, and no two of
//! them acknowledge at the same time.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tideline_backend::{Backend, EditOutcome, Epoch, ErrorKind, Lease, ManifestKind};
use tideline_backend_cassandra::CassandraBackend;
use tideline_model::{Durability, SequenceNumber};
use tideline_testkit::cassandra::shared_node;
use tideline_testkit::{Random, rounds, seed, wait};

use crate::keyspace::{Keyspace, SHARD, entry, recover, take_when_free};
use crate::take_over::change;

/// Number of processes that compete for the shard.
const RIVALS: u64 = 3;
const LEASE: Duration = Duration::from_millis(1_500);

/// All acknowledged entries, edits and takes.
#[derive(Default)]
struct Ledger {
    entries: BTreeMap<u64, String>,
    edits: Vec<String>,
    /// Epoch of each acknowledgement, in order of time.
    epochs: Vec<u64>,
    takes: Vec<u64>,
}

/// Lease with the time when it was requested.
struct Held {
    lease: Lease,
    valid_until: Instant,
    sequence: u64,
    version: u64,
}

struct Rival<'a> {
    number: u64,
    random: Random,
    keyspace: &'a Keyspace,
    ledger: &'a Mutex<Ledger>,
    is_closed: bool,
}

impl Rival<'_> {
    fn run(&mut self, until: Instant) {
        let mut backend = self.keyspace.open();
        while Instant::now() < until {
            let Some(mut held) = self.take(&backend) else {
                wait::pause(Duration::from_millis(30));
                continue;
            };
            while Instant::now() < until && self.step(&backend, &mut held) {}
            if self.is_closed || self.random.is(30) {
                self.is_closed = false;
                backend = self.keyspace.open();
            }
        }
    }

    /// Takes the shard and recovers it. Returns `None` if another process owns it.
    fn take(&self, backend: &CassandraBackend) -> Option<Held> {
        let known: Vec<(u64, String)> = {
            let ledger = self.ledger.lock().expect("not poisoned");
            ledger
                .entries
                .iter()
                .map(|(at, value)| (*at, value.clone()))
                .collect()
        };
        let sent = Instant::now();
        let lease = match backend.take(SHARD) {
            Ok(lease) => lease,
            Err(error) => {
                assert!(error.kind().is_retryable(), "rival {}: {error}", self.number);
                return None;
            }
        };
        self.ledger
            .lock()
            .expect("not poisoned")
            .takes
            .push(lease.epoch.0);
        let found: BTreeMap<u64, String> = match recover(backend, lease.epoch) {
            Ok(found) => found.into_iter().collect(),
            // Another rival took the shard during the recovery.
            Err(error) if error.kind() == ErrorKind::Refused => return None,
            Err(error) => panic!("rival {}: {error}", self.number),
        };
        for (sequence, value) in known {
            assert_eq!(
                found.get(&sequence),
                Some(&value),
                "rival {}, epoch {:?}",
                self.number,
                lease.epoch
            );
        }
        let manifest = backend.manifest(SHARD).expect("a manifest");
        (manifest.epoch == lease.epoch).then(|| Held {
            lease,
            valid_until: sent + LEASE,
            sequence: found.keys().next_back().map_or(1, |last| last + 1),
            version: manifest.version,
        })
    }

    /// Records an acknowledgement, if the lease is still valid.
    fn acknowledge(&self, held: &Held, note: impl FnOnce(&mut Ledger)) {
        let mut ledger = self.ledger.lock().expect("not poisoned");
        if Instant::now() < held.valid_until {
            ledger.epochs.push(held.lease.epoch.0);
            note(&mut ledger);
        }
    }

    /// Performs one random action as the owner. Returns false if the shard is lost or given up.
    fn step(&mut self, backend: &CassandraBackend, held: &mut Held) -> bool {
        let epoch = held.lease.epoch;
        match self.random.below(100) {
            0..4 => wait::pause(LEASE.mul_f64(self.random.below(300) as f64 / 100.0)),
            4..6 => {
                backend.close().expect("it closes");
                self.is_closed = true;
                return false;
            }
            6..16 => return self.edit(backend, held),
            _ => self.append(backend, held),
        }
        let left = held.valid_until.saturating_duration_since(Instant::now());
        if left > LEASE / 2 || (left.is_zero() && self.random.is(50)) {
            // A process whose lease has expired during a pause may write once more before it renews the lease.
            return true;
        }
        let sent = Instant::now();
        match backend.renew(SHARD, epoch) {
            Ok(lease) => {
                assert_eq!(lease.epoch, epoch);
                held.valid_until = sent + LEASE;
                true
            }
            Err(error) if error.kind() == ErrorKind::Refused => false,
            Err(error) => panic!("rival {}: {error}", self.number),
        }
    }

    fn append(&mut self, backend: &CassandraBackend, held: &mut Held) {
        let count = 1 + self.random.below(20);
        let value = format!("rival {} in epoch {}", self.number, held.lease.epoch.0);
        let sequences = held.sequence..held.sequence + count;
        let entries: Vec<_> = sequences
            .clone()
            .map(|sequence| entry(sequence, &value))
            .collect();
        backend
            .append(SHARD, held.lease.epoch, &entries, Durability::Synced)
            .expect("an append");
        // Sometimes skips a sequence.
        held.sequence += count + self.random.below(2);
        self.acknowledge(held, |ledger| {
            for sequence in sequences {
                let before = ledger.entries.insert(sequence, value.clone());
                assert_eq!(before, None, "sequence {sequence} was acknowledged twice");
            }
        });
    }

    fn edit(&mut self, backend: &CassandraBackend, held: &mut Held) -> bool {
        let name = format!("epoch {}, version {}", held.lease.epoch.0, held.version);
        match backend
            .edit(SHARD, held.lease.epoch, held.version, &change(&name))
            .expect("an outcome")
        {
            EditOutcome::Applied { version } => {
                held.version = version;
                // An applied edit counts even if the lease has expired.
                let mut ledger = self.ledger.lock().expect("not poisoned");
                ledger.edits.push(name);
                true
            }
            EditOutcome::Refused { epoch, .. } => {
                assert!(
                    epoch > held.lease.epoch,
                    "refused by a newer epoch, not by {epoch:?}"
                );
                false
            }
        }
    }
}

#[test]
fn rivals_lose_no_acknowledged_entry() {
    let Some(contact) = shared_node() else { return };
    let seed = seed("rivals_lose_no_acknowledged_entry");
    let seconds = rounds("TIDELINE_RIVALS_SECONDS", 10, 300) as u64;
    let mut keyspace = Keyspace::new(contact);
    keyspace.0.options.lease = LEASE;
    let ledger = Mutex::new(Ledger::default());
    let until = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        for number in 0..RIVALS {
            let mut rival = Rival {
                number,
                random: Random::new(seed.wrapping_add(number)),
                keyspace: &keyspace,
                ledger: &ledger,
                is_closed: false,
            };
            scope.spawn(move || rival.run(until));
        }
    });

    let ledger = ledger.into_inner().expect("not poisoned");
    eprintln!(
        "{} entries and {} edits in {} epochs were acknowledged",
        ledger.entries.len(),
        ledger.edits.len(),
        ledger.takes.len()
    );
    assert!(ledger.takes.len() > 2, "the shard changed its owner");
    let last = keyspace.open();
    let lease = take_when_free(&last);
    let found: BTreeMap<u64, String> = recover(&last, lease.epoch)
        .expect("a recovery")
        .into_iter()
        .collect();
    for (sequence, value) in &ledger.entries {
        assert_eq!(found.get(sequence), Some(value), "sequence {sequence}");
    }
    let history = last
        .read_history(SHARD, SequenceNumber(0), usize::MAX)
        .expect("a history");
    assert_eq!(history.entries.len(), found.len());
    let manifest = last.manifest(SHARD).expect("a manifest");
    let rows = manifest.rows.iter().filter(|row| row.kind == ManifestKind::Job);
    let names: Vec<String> = rows
        .map(|row| String::from_utf8_lossy(&row.name).into_owned())
        .collect();
    for edit in &ledger.edits {
        assert!(names.contains(edit), "{edit}");
    }
    assert!(
        ledger.epochs.is_sorted(),
        "an owner acknowledged after its successor: {:?}",
        ledger.epochs
    );
    let mut takes = ledger.takes.clone();
    takes.sort_unstable();
    takes.dedup();
    assert_eq!(takes.len(), ledger.takes.len(), "each take has its own epoch");
    assert!(lease.epoch > Epoch(takes.last().copied().unwrap_or(0)));
}
