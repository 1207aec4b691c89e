//! Bytes that are held for a question, against its budget.

use tideline_query::{QueryError, Watch};

/// Bytes of one thing. They count for as long as this lives.
#[derive(Debug)]
pub(crate) struct Held<'w> {
    watch: &'w Watch,
    /// What they are of, as a failure says it.
    what: &'static str,
    bytes: u64,
}

/// Bytes that count in the memory account of the process, but not against the budget of a question, for as long as this
/// lives.
#[derive(Debug)]
pub(crate) struct HeldBeside<'w> {
    watch: &'w Watch,
    bytes: u64,
}

impl<'w> HeldBeside<'w> {
    /// Takes bytes; fails where the account has no room.
    pub(crate) fn new(watch: &'w Watch, bytes: u64) -> Result<Self, QueryError> {
        // Made first: what cannot be taken is given back as well.
        let held = Self { watch, bytes };
        watch.hold_beside(0, bytes)?;
        Ok(held)
    }
}

impl Drop for HeldBeside<'_> {
    fn drop(&mut self) {
        // To give back cannot fail.
        let _ = self.watch.hold_beside(self.bytes, 0);
    }
}

impl<'w> Held<'w> {
    /// None yet.
    pub(crate) fn new(watch: &'w Watch, what: &'static str) -> Self {
        let bytes = 0;
        Self { watch, what, bytes }
    }

    /// So many are held now; fails where all of the question are more than its budget allows.
    pub(crate) fn set(&mut self, bytes: u64) -> Result<(), QueryError> {
        if bytes == self.bytes {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.bytes, bytes);
        self.watch.hold_of(self.what, before, bytes)
    }

    /// How many are held.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// So many more are held now.
    pub(crate) fn add(&mut self, bytes: u64) -> Result<(), QueryError> {
        self.set(self.bytes.saturating_add(bytes))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // To give back cannot fail.
        let _ = self.set(0);
    }
}
