//! The patterns of one request, added up.

use crate::error::shown;
use crate::{PatternError, Result};

/// Most memory that all patterns of a request may take once they are compiled and used, in bytes: some 400 simple ones,
/// compiled within a second.
pub const REQUEST_BYTES_MAX: u64 = 64 << 20;

/// Adds up the patterns of one request.
#[derive(Debug, Clone, Copy, Default)]
pub struct PatternBudget {
    bytes: u64,
}

impl PatternBudget {
    /// Takes one more pattern of so many bytes.
    ///
    /// # Errors
    ///
    /// If all patterns taken would be over [`REQUEST_BYTES_MAX`].
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

    /// Bytes of all patterns taken.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
