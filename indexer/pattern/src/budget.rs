//! Limit on the total size of the patterns of one request.

use crate::error::shown;
use crate::{PatternError, Result};

/// Maximum memory of all patterns of a request, compiled and in use, in bytes. About 400 simple patterns fit; they
/// compile within a second.
pub const REQUEST_BYTES_MAX: u64 = 64 << 20;

/// Budget for the patterns of one request.
#[derive(Debug, Clone, Copy, Default)]
pub struct PatternBudget {
    bytes: u64,
}

impl PatternBudget {
    /// Adds a pattern that takes `bytes` bytes of memory.
    ///
    /// # Errors
    ///
    /// [`PatternError::TooMany`] if the sum exceeds [`REQUEST_BYTES_MAX`].
    pub fn take(&mut self, pattern: &str, bytes: u64) -> Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        match self.bytes > REQUEST_BYTES_MAX {
            true => Err(PatternError::TooMany {
                pattern: shown(pattern),
                limit: REQUEST_BYTES_MAX,
                actual: self.bytes,
            }),
            false => Ok(()),
        }
    }

    /// Returns the sum of all added patterns in bytes, including a rejected one.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
