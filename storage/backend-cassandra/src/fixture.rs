//! Keyspaces for tests of stores. A keyspace is empty at first, and is deleted when its value is dropped. For tests
//! only.

use std::fmt;
use std::time::Duration;

use tideline_backend::{Acknowledged, Result};
use uuid::Uuid;

use crate::backend::CassandraBackend;
use crate::options::{CassandraOptions, Replication};
use crate::schema;

/// Lease of 100 years: longer than any jump of the clock in a test.
const LEASE: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Keyspace of one test.
pub struct ScratchKeyspace {
    /// Options with which [`open`](Self::open) connects.
    pub options: CassandraOptions,
}

impl ScratchKeyspace {
    /// Creates a keyspace with tables and one copy of each row. A node may acknowledge writes before they are on its
    /// disk. Leases do not expire during a test, and the timeouts allow for busy machines; a test can change both.
    ///
    /// # Errors
    ///
    /// The errors of [`schema::create`].
    pub fn create(contact: &str) -> Result<Self> {
        Self::replicated(contact, 1)
    }

    /// Creates a keyspace as [`create`](Self::create) does, with a number of copies of each row.
    ///
    /// # Errors
    ///
    /// The errors of [`schema::create`].
    pub fn replicated(contact: &str, copies: u8) -> Result<Self> {
        let options = CassandraOptions {
            contact: vec![contact.to_owned()],
            keyspace: format!("t{}", Uuid::new_v4().simple()),
            acknowledged: Acknowledged::Replicated,
            lease: LEASE,
            request_timeout: Duration::from_secs(30),
            call_timeout: Duration::from_secs(60),
            ..CassandraOptions::default()
        };
        schema::create(&options, &Replication::Simple(copies))?;
        Ok(Self { options })
    }

    /// Opens the keyspace as a separate process would.
    ///
    /// # Errors
    ///
    /// The errors of [`CassandraBackend::open`].
    pub fn open(&self) -> Result<CassandraBackend> {
        CassandraBackend::open(self.options.clone())
    }
}

impl Drop for ScratchKeyspace {
    fn drop(&mut self) {
        if let Err(error) = schema::drop(&self.options) {
            tracing::warn!(keyspace = self.options.keyspace, %error, "a keyspace of a test is left");
        }
    }
}

impl fmt::Debug for ScratchKeyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScratchKeyspace")
            .field("options", &self.options)
            .finish()
    }
}
