//! Keyspaces for tests, each empty at first and deleted at the end.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tideline_backend::Acknowledged;
use tideline_backend_cassandra::{CassandraBackend, CassandraOptions, Replication, schema};

/// Keyspace on the node of the tests.
pub(crate) struct Keyspace {
    pub(crate) options: CassandraOptions,
}

impl Keyspace {
    /// Creates an empty keyspace with tables.
    pub(crate) fn new(contact: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let options = CassandraOptions {
            contact: vec![contact.to_owned()],
            keyspace: format!("t{}_{number}", std::process::id()),
            acknowledged: Acknowledged::Replicated,
            lease: Duration::from_secs(2),
            // Other tests and builds share the cores.
            request_timeout: Duration::from_secs(30),
            call_timeout: Duration::from_secs(60),
            ..CassandraOptions::default()
        };
        schema::create(&options, &Replication::Simple(1)).expect("the tables are created");
        Self { options }
    }

    /// Deletes all rows.
    pub(crate) fn empty(&self) {
        schema::empty(&self.options).expect("the tables are emptied");
    }

    /// Opens the keyspace for one process.
    pub(crate) fn open(&self) -> CassandraBackend {
        CassandraBackend::open(self.options.clone()).expect("open")
    }
}

impl Drop for Keyspace {
    fn drop(&mut self) {
        if let Err(error) = schema::drop(&self.options) {
            eprintln!("keyspace {} is left: {error}", self.options.keyspace);
        }
    }
}
