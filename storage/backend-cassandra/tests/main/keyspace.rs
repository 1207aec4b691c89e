//! Keyspaces with short leases, and helpers that write and read through backends.
//!
//! The helpers wait for events with a limit; other tests and builds share the cores.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::response::query_result::QueryRowsResult;
use tideline_backend::{Backend, Epoch, JournalEntry, Lease, Shard};
use tideline_backend_cassandra::fixture::ScratchKeyspace;
use tideline_backend_cassandra::{CassandraBackend, schema};
use tideline_model::{Durability, SequenceNumber};
use tideline_testkit::wait;

/// The only shard.
pub(crate) const SHARD: Shard = Shard(0);
/// Longest wait for a shard, or for a node that answers again. Other tests and builds share the cores.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Keyspace on a node for tests.
pub(crate) struct Keyspace(pub(crate) ScratchKeyspace);

impl Keyspace {
    /// Creates an empty keyspace with tables, and with a short lease.
    pub(crate) fn new(contact: &str) -> Self {
        Self::replicated(contact, 1)
    }

    /// Creates a keyspace like [`new`](Self::new), with a number of copies of each row.
    pub(crate) fn replicated(contact: &str, copies: u8) -> Self {
        let keyspace = ScratchKeyspace::replicated(contact, copies);
        let mut keyspace = keyspace.expect("the tables are created");
        keyspace.options.lease = Duration::from_secs(2);
        Self(keyspace)
    }

    /// Deletes all rows.
    pub(crate) fn empty(&self) {
        schema::empty(&self.0.options).expect("the tables are emptied");
    }

    /// Opens the keyspace for one process.
    pub(crate) fn open(&self) -> CassandraBackend {
        self.0.open().expect("open")
    }

    /// Runs a statement without the backend, like a request of another process.
    pub(crate) fn run(&self, statement: &str) -> Option<QueryRowsResult> {
        let options = &self.0.options;
        let login = options.user.clone().zip(options.password.clone());
        run(&options.contact[0], Some(&options.keyspace), login, statement)
    }
}

/// Runs a statement in a separate session.
pub(crate) fn run(
    contact: &str,
    keyspace: Option<&str>,
    login: Option<(String, String)>,
    statement: &str,
) -> Option<QueryRowsResult> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let answer = runtime.block_on(async {
        let mut builder = SessionBuilder::new().known_node(contact);
        if let Some((user, password)) = login {
            builder = builder.user(user, password);
        }
        let session: Session = builder.build().await.expect("a session");
        if let Some(keyspace) = keyspace {
            session.use_keyspace(keyspace, false).await.expect("a keyspace");
        }
        session.query_unpaged(statement, &[]).await
    });
    runtime.shutdown_background();
    let answer = answer.unwrap_or_else(|error| panic!("{statement}: {error}"));
    answer.into_rows_result().ok()
}

/// Takes the shard as soon as it is free.
pub(crate) fn take_when_free(backend: &CassandraBackend) -> Lease {
    let taken = wait::until(PATIENCE, || match backend.take(SHARD) {
        Ok(lease) => Some(lease),
        Err(error) if error.kind().is_retryable() => None,
        Err(error) => panic!("take: {error}"),
    });
    taken.expect("the shard becomes free")
}

/// Repeats a call until it succeeds.
pub(crate) fn until_ok<T>(what: &str, mut call: impl FnMut() -> tideline_backend::Result<T>) -> T {
    let done = wait::until(PATIENCE, || match call() {
        Ok(done) => Some(done),
        Err(error) if error.kind().is_retryable() => None,
        Err(error) => panic!("{what}: {error}"),
    });
    done.unwrap_or_else(|| panic!("{what} does not succeed within {PATIENCE:?}"))
}

pub(crate) fn entry(sequence: u64, value: &str) -> JournalEntry {
    JournalEntry {
        sequence: SequenceNumber(sequence),
        value: Bytes::copy_from_slice(value.as_bytes()),
    }
}

/// Appends entries with the same value.
pub(crate) fn append(
    backend: &CassandraBackend,
    epoch: Epoch,
    sequences: impl IntoIterator<Item = u64>,
    value: &str,
) {
    let entries: Vec<JournalEntry> = sequences
        .into_iter()
        .map(|sequence| entry(sequence, value))
        .collect();
    backend
        .append(SHARD, epoch, &entries, Durability::Synced)
        .expect("append");
}

/// Sequences and values of journal entries.
pub(crate) type Entries = Vec<(u64, String)>;

/// Returns the entries of an epoch.
pub(crate) fn replayed(backend: &CassandraBackend, epoch: Epoch, from: u64) -> Entries {
    let mut found = Vec::new();
    let read = backend.replay(SHARD, epoch, SequenceNumber(from), &mut |sequence, value| {
        found.push((sequence.0, String::from_utf8_lossy(&value).into_owned()));
        Ok(())
    });
    read.expect("replay");
    found
}

/// Replays and closes all older epochs, as the log does at a start. Returns their entries.
pub(crate) fn recover(backend: &CassandraBackend, own: Epoch) -> tideline_backend::Result<Entries> {
    let mut all = Entries::new();
    for journal in backend.epochs(SHARD)? {
        if journal.epoch >= own {
            continue;
        }
        backend.replay(SHARD, journal.epoch, SequenceNumber(0), &mut |sequence, value| {
            all.push((sequence.0, String::from_utf8_lossy(&value).into_owned()));
            Ok(())
        })?;
        if journal.end.is_none() {
            let end = all.iter().map(|(sequence, _)| sequence + 1).max().unwrap_or(0);
            backend.close_epoch(SHARD, journal.epoch, SequenceNumber(end))?;
        }
    }
    let mut counts: HashMap<u64, u32> = HashMap::new();
    for (sequence, _) in &all {
        *counts.entry(*sequence).or_default() += 1;
    }
    counts.retain(|_, count| *count > 1);
    assert!(counts.is_empty(), "sequences in more than one epoch: {counts:?}");
    Ok(all)
}

/// Returns all entries of the history.
pub(crate) fn history(backend: &CassandraBackend) -> Entries {
    let page = backend.read_history(SHARD, SequenceNumber(0), usize::MAX);
    let entries = page.expect("history").entries.into_iter();
    entries
        .map(|entry| {
            let value = String::from_utf8_lossy(&entry.value).into_owned();
            (entry.sequence.0, value)
        })
        .collect()
}

/// Returns entries with one value.
pub(crate) fn entries(sequences: impl IntoIterator<Item = u64>, value: &str) -> Entries {
    sequences
        .into_iter()
        .map(|sequence| (sequence, value.to_owned()))
        .collect()
}
