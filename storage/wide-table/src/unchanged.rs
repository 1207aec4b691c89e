//! Optimistic transactions: rows that a client has read must be unchanged when its writes are committed.
//!
//! A client reads rows with their digests, then sends its writes together with these digests. The write is refused if a
//! digest differs. Digests cover the stored content, including the times of all versions. They therefore stay valid
//! after a restart and need no state in the server. The digest of a range also changes if rows are added or removed.
//!
//! The caller's thread compares the digests by reading the rows again. The committer then checks that the rows have not
//! changed since this second read, as it does for conditions.

use tideline_backend::Direction;
use tideline_model::{KeyRange, TableId};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::error::{Result, WideError};
use crate::read::{STEP_PAGE, StoredRow};
use crate::state::RangeRevision;
use crate::store::WideStore;

/// Maximum total number of rows in the ranges that one write requires to be unchanged.
pub const UNCHANGED_ROWS_MAX: u64 = 10_000;

/// Digest of the stored content of a row or of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RowDigest(pub u128);

/// Incremental digest of a range, computed from its rows in ascending order.
#[derive(Default)]
pub struct RangeDigest(Xxh3);

impl std::fmt::Debug for RangeDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RangeDigest").field(&self.0.digest128()).finish()
    }
}

impl RangeDigest {
    /// Adds the next row.
    pub fn add(&mut self, row: &StoredRow) {
        for bytes in [&row.key, row.encoded()] {
            self.0.update(&(bytes.len() as u64).to_le_bytes());
            self.0.update(bytes);
        }
    }

    /// Returns the digest of the rows that were added.
    pub fn finish(&self) -> RowDigest {
        RowDigest(self.0.digest128())
    }
}

impl StoredRow {
    /// Returns the digest of the content. Any write of the row changes the digest, unless it stores the same versions
    /// again.
    pub fn digest(&self) -> RowDigest {
        RowDigest(xxh3_128(self.encoded()))
    }
}

/// State that a write requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unchanged {
    /// The row has this digest, or does not exist if the digest is `None`.
    Row {
        /// Stored key.
        key: Vec<u8>,
        /// Digest at the time of the read.
        digest: Option<RowDigest>,
    },
    /// A row of another table has this digest, or does not exist if the digest is `None`.
    RowOf {
        /// The other table.
        table: TableId,
        /// Stored key.
        key: Vec<u8>,
        /// Digest at the time of the read.
        digest: Option<RowDigest>,
    },
    /// The rows of a range within one partition have this digest.
    Range {
        /// Range of stored keys.
        range: KeyRange,
        /// Length of the prefix of the keys that names the partition.
        partition: usize,
        /// Digest at the time of the read.
        digest: RowDigest,
    },
}

/// Range that was compared, with its revision before the comparison.
#[derive(Debug)]
pub(crate) struct SeenRange {
    pub(crate) range: KeyRange,
    pub(crate) partition: usize,
    pub(crate) revision: RangeRevision,
}

impl WideStore {
    /// Returns the digest of the rows of a range, and its revision before the first row was read. `left` is the number
    /// of rows that may still be read; the rows read are subtracted from it.
    ///
    /// # Errors
    ///
    /// [`WideError::TooLarge`] if more than `left` rows would be read, and the errors of [`page`](Self::page).
    pub(crate) fn range_digest(
        &self,
        table: TableId,
        range: &KeyRange,
        left: &mut u64,
    ) -> Result<(RowDigest, RangeRevision)> {
        let revision = self.state().range_revision(table, range);
        let mut digest = RangeDigest::default();
        let mut rest = Some(range.clone());
        while let Some(range) = rest {
            let page = self.page(table, &range, Direction::Ascending, STEP_PAGE)?;
            *left = left.checked_sub(page.scanned).ok_or(WideError::TooLarge {
                what: "the number of rows of unchanged ranges",
                limit: UNCHANGED_ROWS_MAX,
                actual: UNCHANGED_ROWS_MAX + 1,
            })?;
            page.rows.iter().for_each(|row| digest.add(row));
            rest = page.next;
        }
        Ok((digest.finish(), revision))
    }
}
