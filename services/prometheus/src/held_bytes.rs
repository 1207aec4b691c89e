//! Accounting of the bytes that a request holds, against its budget and the memory account of the process.

use tideline_query::{QueryError, Watch};

/// Bytes held for one purpose, charged to the budget and the memory account until the value is dropped.
#[derive(Debug)]
pub(crate) struct HeldBytes<'w> {
    watch: &'w Watch,
    /// Name of the held data in error texts.
    what: &'static str,
    bytes: u64,
}

/// Bytes that are charged to the memory account of the process, but not to the budget of the request, until the
/// value is dropped.
#[derive(Debug)]
pub(crate) struct AccountBytes<'w> {
    watch: &'w Watch,
    bytes: u64,
}

impl<'w> AccountBytes<'w> {
    /// Creates an accounting with zero charged bytes.
    pub(crate) fn empty(watch: &'w Watch) -> Self {
        Self { watch, bytes: 0 }
    }

    /// Charges bytes; returns an error if the account has no room.
    pub(crate) fn new(watch: &'w Watch, bytes: u64) -> Result<Self, QueryError> {
        let mut held = Self::empty(watch);
        held.grow_to(bytes)?;
        Ok(held)
    }

    /// Charges more bytes, so that at least `bytes` are charged in total. Returns an error if the account has no room.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> Result<(), QueryError> {
        if bytes <= self.bytes {
            return Ok(());
        }
        // Stored first, so that a failed charge is released as well.
        let before = std::mem::replace(&mut self.bytes, bytes);
        self.watch.hold_limited_elsewhere(before, bytes)
    }
}

impl Drop for AccountBytes<'_> {
    fn drop(&mut self) {
        // Releasing memory cannot fail.
        let _ = self.watch.hold_limited_elsewhere(self.bytes, 0);
    }
}

impl<'w> HeldBytes<'w> {
    /// Creates an accounting with zero held bytes.
    pub(crate) fn new(watch: &'w Watch, what: &'static str) -> Self {
        let bytes = 0;
        Self { watch, what, bytes }
    }

    /// Sets the number of held bytes. Returns an error if the request then holds more than its budget allows,
    /// or if the memory account of the process has no room.
    pub(crate) fn set(&mut self, bytes: u64) -> Result<(), QueryError> {
        if bytes == self.bytes {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.bytes, bytes);
        self.watch.hold_of(self.what, before, bytes)
    }

    /// Returns the number of held bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds to the number of held bytes.
    pub(crate) fn add(&mut self, bytes: u64) -> Result<(), QueryError> {
        self.set(self.bytes.saturating_add(bytes))
    }
}

impl Drop for HeldBytes<'_> {
    fn drop(&mut self) {
        // Releasing memory cannot fail.
        let _ = self.set(0);
    }
}
